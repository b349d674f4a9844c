from core.constraints.constraint import NodeSet
from core.model import NodeName

A, B = NodeName("a"), NodeName("b")


def test_the_log_tells_of_those_that_came_or_went_and_of_no_others():
    found = NodeSet([A])
    found.add(A)
    found.add(B)
    found.discard(A)
    found.discard(A)
    assert (set(found), len(found), A in found, B in found) == ({B}, 1, False, True)
    assert found.log.since(0) == [A, B, A]
