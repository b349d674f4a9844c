from math import inf

from controller.handing_over.collision import CollisionKey, LongLines
from core.model import NodeName
from core.settings import DialectName

ONE, TWO = (CollisionKey(DialectName("vgpu"), frozenset({number})) for number in (1, 2))
N1, N2 = NodeName("n1"), NodeName("n2")


def test_who_waits_beyond_a_time_waits_beyond_every_shorter_one():
    long_lines = LongLines()
    long_lines.beyond(ONE, 2.0)
    long_lines.add(N1, ONE, 30.0)
    long_lines.add(N2, ONE, 5.0)
    assert [set(long_lines.beyond(ONE, limit_s)) for limit_s in (2.0, 5.0, 10.0, 30.0, 40.0)] == [
        {N1, N2},
        {N1, N2},
        {N1},
        {N1},
        set(),
    ]
    assert not long_lines.beyond(TWO, 2.0)


def test_a_node_that_is_closed_for_any_time_is_in_every_set():
    long_lines = LongLines()
    long_lines.add(N1, ONE, 5.0)
    long_lines.add(N2, ONE, inf)
    assert (set(long_lines.beyond(ONE, 10.0)), set(long_lines.beyond(ONE, 2.0))) == ({N2}, {N1, N2})


def test_what_is_forgotten_is_in_no_set():
    long_lines = LongLines()
    long_lines.add(N1, ONE, 5.0)
    long_lines.add(N1, TWO, inf)
    long_lines.add(N2, ONE, 5.0)
    long_lines.forget(N1)
    assert (set(long_lines.beyond(ONE, 2.0)), set(long_lines.beyond(TWO, 2.0))) == ({N2}, set())
