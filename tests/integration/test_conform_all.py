"""The whole set of differential vectors, where it lies beside the checkout."""

from pathlib import Path

import pytest

from tests.conform import run as conform
from tests.conform.records import load

VECTORS = Path(__file__).parents[3] / "shared" / "protocol" / "vectors"


@pytest.mark.skipif(not VECTORS.is_dir(), reason="the whole set of vectors does not lie beside this checkout")
def test_every_record_of_the_spoken_families_passes():
    files = conform.vector_files([VECTORS], "*")
    tallies = conform.run([record for path in files for record in load(path)])
    assert {family: tally.failures for family, tally in tallies.items() if tally.failures} == {}
    spoken = [family for family in tallies if family.startswith(("vgpu-", "gpushare-"))]
    assert spoken
    assert all(tallies[family].unsupported == 0 for family in spoken)
