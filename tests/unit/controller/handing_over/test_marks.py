from controller.handing_over.marks import Keys, Marks
from core.model import NodeName
from core.port.handoff import LockMark
from core.settings import DialectName

NODE = NodeName("n1")
ONE, OTHER = DialectName("one"), DialectName("other")


def test_of_two_dialects_only_pods_of_one_lock_are_alike():
    marks, lock = Marks(), frozenset({LockMark("lock")})
    assert not marks.alike(NODE, Keys(ONE, frozenset({1})), Keys(OTHER, frozenset({1})))
    assert marks.alike(NODE, Keys(ONE, lock), Keys(OTHER, lock))
    assert not marks.alike(NODE, Keys(ONE, lock), Keys(OTHER, frozenset({LockMark("another")})))
    marks.set_blind(NODE, ONE, blind=True)
    assert not marks.alike(NODE, Keys(ONE, frozenset({1})), Keys(OTHER, frozenset({2})))
