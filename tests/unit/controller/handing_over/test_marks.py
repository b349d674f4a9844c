from controller.handing_over.collision import CollisionKey, Collisions
from core.model import NodeName
from core.port.handoff import LockMark
from core.settings import DialectName

NODE = NodeName("n1")
ONE, OTHER = DialectName("one"), DialectName("other")


def test_of_two_dialects_only_pods_of_one_lock_are_alike():
    marks, lock = Collisions(), frozenset({LockMark("lock")})
    assert not marks.alike(NODE, CollisionKey(ONE, frozenset({1})), CollisionKey(OTHER, frozenset({1})))
    assert marks.alike(NODE, CollisionKey(ONE, lock), CollisionKey(OTHER, lock))
    assert not marks.alike(NODE, CollisionKey(ONE, lock), CollisionKey(OTHER, frozenset({LockMark("another")})))
    marks.set_blind(NODE, ONE, blind=True)
    assert not marks.alike(NODE, CollisionKey(ONE, frozenset({1})), CollisionKey(OTHER, frozenset({2})))
