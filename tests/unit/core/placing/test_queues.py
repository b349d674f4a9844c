"""What a queue may still hold once some of its pods have left."""

from core.model import PodUid
from core.placing.queues import Allowance


def allowance(many, asked, limit):
    """A queue of *many* pods with one card each that is full; a unit asks for more."""
    looked_at = []

    def amounts(uid):
        looked_at.append(uid)
        return {"card": 1, "cpu": 1000}

    found = Allowance(
        mates=frozenset(PodUid(f"p{at}") for at in range(many)),
        amounts=amounts,
        left=lambda placements, victims: {"card": limit - many + len(set(victims)) - asked, "cpu": 0},
    )
    return found, looked_at


def test_it_is_asked_only_as_long_as_it_matters_whether_more_pods_of_a_large_queue_suffice():
    found, looked_at = allowance(10_000, asked=3, limit=10_000)
    assert found.may_suffice((), ())
    assert len(looked_at) == 3


def test_more_pods_do_not_suffice_where_all_of_them_hold_too_little():
    found, looked_at = allowance(4, asked=5, limit=4)
    assert not found.may_suffice((), ())
    assert len(looked_at) == 4
    assert not found.may_suffice((), (PodUid("p0"),))
    found, _ = allowance(4, asked=4, limit=4)
    assert found.may_suffice((), ())
    assert found.may_suffice((), (PodUid("p0"),))
