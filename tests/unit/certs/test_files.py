"""Certificate files in a directory: kept, replaced at once, and for their owner only."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from certs.files import ensure, read, why_not_written, write
from certs.pair import State, StoredPem, WantedPair, judge

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
WANTED = WantedPair(dns_names=("web.ns.svc",), days=90, ca_days=900)
FILES = ("tls.crt", "tls.key", "ca.crt", "ca.key")


def content(directory) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_nothing_there_becomes_a_good_pair_for_its_owner_only(tmp_path):
    directory = tmp_path / "deep" / "certs"
    done = ensure(directory, WANTED, NOW)
    assert (done.found.state, done.stands.state, done.written) == (State.MISSING, State.GOOD, True)
    assert sorted(content(directory)) == sorted(FILES)
    assert {(directory / name).stat().st_mode & 0o777 for name in FILES} == {0o600}
    assert directory.stat().st_mode & 0o777 == 0o700


def test_a_good_pair_is_kept_byte_for_byte(tmp_path):
    ensure(tmp_path, WANTED, NOW)
    before = content(tmp_path)
    done = ensure(tmp_path, WANTED, NOW + timedelta(days=30))
    assert not done.written
    assert content(tmp_path) == before


@pytest.mark.parametrize("name", ["tls.crt", "tls.key", "ca.crt"])
@pytest.mark.parametrize("damage", ["gone", "garbled", "cut"])
def test_a_damaged_pair_is_made_anew_and_old_leaves_stay_trusted_where_the_bundle_could_be_read(tmp_path, name, damage):
    ensure(tmp_path, WANTED, NOW)
    good = read(tmp_path)
    file = tmp_path / name
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(b"garbage" if damage == "garbled" else file.read_bytes()[:100])
    done = ensure(tmp_path, WANTED, NOW)
    assert (done.written, done.stands.state) == (True, State.GOOD)
    assert (read(tmp_path).ca_pem == good.ca_pem) is (name != "ca.crt")


def test_a_name_that_was_added_makes_a_new_pair_by_the_same_authority(tmp_path):
    ensure(tmp_path, WANTED, NOW)
    more = WantedPair(dns_names=("web.ns.svc", "two.ns.svc"), days=90, ca_days=900)
    before = read(tmp_path).ca_pem
    assert ensure(tmp_path, more, NOW).found.state is State.NAMES_MISSING
    assert read(tmp_path).ca_pem == before


def test_a_crash_between_any_two_files_is_mended_by_the_next_run(tmp_path):
    ensure(tmp_path, WANTED, NOW)
    before = content(tmp_path)
    ensure(tmp_path, WANTED, NOW + timedelta(days=700))
    after = content(tmp_path)
    late = NOW + timedelta(days=700)
    for written in (("ca.crt",), ("ca.crt", "ca.key"), ("ca.crt", "ca.key", "tls.key")):
        for name in FILES:
            (tmp_path / name).write_bytes((after if name in written else before)[name])
        assert ensure(tmp_path, WANTED, late).stands.state is State.GOOD, written
        assert not ensure(tmp_path, WANTED, late).written


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path):
    ensure(tmp_path, WANTED, NOW)
    stored = read(tmp_path)
    (tmp_path / "tls.key").unlink()
    (tmp_path / "tls.key").mkdir()
    with pytest.raises(OSError, match=r"tls\.key"):
        write(tmp_path, stored)
    assert sorted(content_names(tmp_path)) == sorted(FILES)
    assert (tmp_path / "tls.crt").read_bytes() == stored.cert_pem


def content_names(directory) -> list[str]:
    return [path.name for path in directory.iterdir()]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file, whatever its mode")
def test_a_file_that_may_not_be_read_is_a_complaint(tmp_path):
    ensure(tmp_path, WANTED, NOW)
    (tmp_path / "tls.key").chmod(0)
    assert judge(read(tmp_path), NOW).state is State.UNREADABLE


def test_a_directory_or_a_huge_file_in_the_place_of_a_file_is_a_complaint(tmp_path):
    ensure(tmp_path, WANTED, NOW)
    (tmp_path / "tls.crt").unlink()
    (tmp_path / "tls.crt").mkdir()
    (tmp_path / "ca.crt").write_bytes(b"x" * (2**20 + 1))
    verdict = judge(read(tmp_path), NOW)
    assert verdict.state is State.UNREADABLE
    assert "Is a directory" in verdict.text
    assert "over 1048576 bytes" in verdict.text


@pytest.mark.parametrize(
    ("place", "says"),
    [("file", "file: it is no directory; name one"), ("file/in", "in: it is no directory; name one")],
)
def test_a_place_that_is_no_directory_is_told_as_that(tmp_path, place, says):
    (tmp_path / "file").touch()
    with pytest.raises((FileExistsError, NotADirectoryError)) as failed:
        ensure(tmp_path / place, WANTED, NOW)
    assert why_not_written(tmp_path / place, failed.value).endswith(says)


def test_a_place_where_nothing_can_be_made_is_told_with_the_cause():
    with pytest.raises(FileNotFoundError) as failed:
        ensure(Path("/proc/x"), WANTED, NOW)
    assert why_not_written(Path("/proc/x"), failed.value) == (
        "/proc/x: it cannot be written: no such file or directory; make it writable, or name another directory"
    )


def test_an_empty_directory_reads_as_nothing(tmp_path):
    assert read(tmp_path) == StoredPem()
