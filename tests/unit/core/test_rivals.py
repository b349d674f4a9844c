"""Which protocols may sell the same cards of a node."""

import pytest

from core.catalog import rivals
from core.settings import DialectName


@pytest.mark.parametrize("name", DialectName)
def test_rivalry_is_mutual_and_stays_with_one_vendor(name):
    for other in rivals(name):
        assert name in rivals(other)
        assert other != name
    ascend = {DialectName.ASCEND_HAMI, DialectName.MINDCLUSTER}
    assert all((other in ascend) is (name in ascend) for other in rivals(name))


def test_shares_and_whole_gpus_are_rivals():
    assert DialectName.WHOLE_GPU in rivals(DialectName.VGPU)
    assert rivals(DialectName.MINDCLUSTER) == {DialectName.ASCEND_HAMI}
