"""The sample of vectors in the tree against the whole set, where that lies beside the checkout."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.conform.records import is_configurations
from tests.conform.run import CHECKS
from tests.conform.sample import traits

ROOT = Path(__file__).parents[3]
SAMPLE = ROOT / "tests" / "data" / "vectors"
WHOLE = Path(os.environ.get("CARDSHARE_VECTORS", ROOT.parent / "shared" / "protocol" / "vectors"))
# Families of a protocol that is not spoken yet are named by the runner, and judged nowhere.
FAMILIES = sorted(path.name for path in WHOLE.glob("*-*.json") if path.name.startswith(tuple(CHECKS)))

beside = pytest.mark.skipif(
    not FAMILIES, reason=f"no recorded vectors: {WHOLE} is absent; name their folder in CARDSHARE_VECTORS"
)


def records(folder: Path, family: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / family).read_text(encoding="utf-8"))
    return found


def test_the_sample_is_small():
    assert sum(path.stat().st_size for path in SAMPLE.iterdir()) < 2 * 2**20


@beside
def test_the_sample_has_every_family_and_the_configurations():
    assert sorted(path.name for path in SAMPLE.glob("*-*.json") if not is_configurations(path)) == FAMILIES
    for name in ("configs.json", "hami-configs.json"):
        assert (SAMPLE / name).read_bytes() == (WHOLE / name).read_bytes()


@beside
@pytest.mark.parametrize("family", FAMILIES)
def test_the_sample_shows_all_that_the_whole_family_does_with_records_of_its_own(family):
    whole, sample = records(WHOLE, family), records(SAMPLE, family)
    by_id = {record["id"]: record for record in whole}
    assert [record["id"] for record in sample if by_id.get(record["id"]) != record] == []
    shown = {trait for record in sample for trait in traits(record)}
    assert {trait for record in whole for trait in traits(record)} - shown == set()
