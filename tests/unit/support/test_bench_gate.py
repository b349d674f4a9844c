"""The report on what became slower knows every figure, for both cores, and says slower only where it is so."""

import pytest

from tests.bench import gate


@pytest.mark.parametrize("marks", gate.MARKS.values(), ids=gate.MARKS)
def test_every_figure_has_a_mark(marks):
    assert set(marks) == {*gate._WORK, "place_cpu_ratio"}
    assert min(marks.values()) > 0


@pytest.mark.parametrize(("value", "slower"), [(1.0, False), (1.4, False), (1.6, True)])
def test_half_as_much_again_is_slower(value, slower):
    found = gate._judged("one", value, "loops", {"one": 1.0})
    assert found.params == {"mark": 1.0, "slower": slower}
