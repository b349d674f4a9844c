"""Which protocols may sell the same cards of a node."""

import pytest

from core.catalog import standard_catalog
from core.settings import DialectName

RIVALS = standard_catalog().rivals


@pytest.mark.parametrize("name", RIVALS)
def test_rivalry_is_mutual_and_stays_with_one_vendor(name):
    for other in RIVALS[name]:
        assert name in RIVALS[other]
        assert other != name
    ascend = {DialectName("ascend_hami"), DialectName("mindcluster")}
    assert all((other in ascend) is (name in ascend) for other in RIVALS[name])


def test_shares_and_whole_gpus_are_rivals():
    assert RIVALS[DialectName("metax_gpu")] == {DialectName("metax_sgpu")}
    assert DialectName("whole_gpu") in RIVALS[DialectName("vgpu")]
    assert RIVALS[DialectName("mindcluster")] == {DialectName("ascend_hami")}
