"""Folders of images for the real node: what a run that was killed leaves goes, what a live one uses stays."""

import os
from pathlib import Path

import pytest

from tests.support.node import images


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of one blob and one database."""
    made = tmp_path / "0123"
    (made / "meta").mkdir(parents=True)
    (made / "blob").write_text("blob")
    (made / "meta/a.db").write_text("data")
    return made


def test_a_copy_shares_blobs_has_databases_of_its_own_and_goes_with_its_run(store: Path):
    with images.copied(store) as copy:
        assert (copy / "blob").stat().st_ino == (store / "blob").stat().st_ino
        assert (copy / "meta/a.db").stat().st_ino != (store / "meta/a.db").stat().st_ino
    assert not copy.exists()


def test_the_next_run_removes_what_a_killed_one_left_and_no_copy_in_use(store: Path):
    left = store.with_name("run-left")
    left.mkdir()
    with images.copied(store) as other, images.copied(store) as own:
        assert not left.exists()
        assert (other / "blob").exists()
        assert (own / "blob").exists()


def test_only_stores_are_forgotten_and_those_used_last_are_kept(store: Path):
    older = [store.with_name(f"old-{at}") for at in range(3)]
    for at, one in enumerate(older):
        one.mkdir()
        os.utime(one, (at, at))
    with images.copied(store) as copy:
        os.utime(copy, (0, 0))
        images.forget_old_stores(store.parent)
        assert (copy / "blob").exists()
    assert [one.name for one in (*older, store) if one.exists()] == ["old-1", "old-2", "0123"]
