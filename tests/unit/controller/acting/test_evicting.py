"""Who is asked to leave: by evictions that name the very pod, and what the API server's answers lead to."""

import asyncio

import pytest

from controller.acting.evicting import POLICY_REST_S, Evicting
from controller.actions import Announce, Inbox, Preempt, Target, Unnominate
from controller.deciding.preempt import Preempting
from controller.metrics import Metrics
from controller.reporting.events import Recorder
from core.model import NodeName, PodUid
from kube.errors import ApiError, ApiForbiddenError, ApiRefusedError, ApiThrottledError, ApiUnknownError
from tests.support.servers.fake_calls import FakeCalls, conflict, not_found

pytestmark = pytest.mark.looptime


class Calls(FakeCalls):
    async def nominate(self, namespace, name, node, *, uid):
        return await self._note("nominate", f"{namespace}/{name}", (node, uid))

    async def evict(self, namespace, name, *, uid, dry_run=False):
        await self._note("try" if dry_run else "evict", f"{namespace}/{name}", uid)


class Notes(Recorder):
    def __init__(self):
        self.noted = []

    def note(self, announce: Announce) -> None:
        self.noted.append(announce)


class Heard(Preempting):
    """What the scheduler is told."""

    def __init__(self):
        self.told = []
        self.by_budget = []
        self.victims = []
        self.needed = lambda: True

    def needs(self, action):
        return self.needed()

    def unneeded(self, action):
        self.told.append(("unneeded", action.nomination))

    def evicted(self, victim):
        self.victims.append(victim.name)

    def asked(self, action):
        self.told.append(("asked", action.nomination))

    def refused(self, action, victim, rest_s=0.0, *, by_budget=False, trouble=""):
        self.told.append(("refused", action.nomination, victim, rest_s, trouble))
        self.by_budget.append(by_budget)


class Rig:
    def __init__(self):
        self.calls, self.heard, self.notes, self.metrics = Calls(), Heard(), Notes(), Metrics()
        self.inbox = Inbox(float)
        self.calls.delay_s = 0.01
        room = asyncio.Semaphore(8)
        self.evicting = Evicting(self.calls, self.heard, self.inbox, self.notes, self.metrics, at_once=room)

    async def preempt(self, *victims, guarded=(), nominated=("high",)):
        await self.evicting.preempt(
            Preempt(
                nomination=PodUid("uid-high"),
                attempt=1,
                nominated=tuple((target(name), NodeName("n1")) for name in nominated),
                victims=tuple((target(name), NodeName("n1")) for name in victims),
                guarded=frozenset(PodUid(f"uid-{name}") for name in guarded),
            )
        )
        while self.inbox.work(1.0):
            pass
        return [(call, path.removeprefix("d/")) for call, path, _ in self.calls.sent], self.heard.told


def target(name):
    namespace, _, own = name.rpartition("/")
    return Target(uid=PodUid(f"uid-{name}"), namespace=namespace or "d", name=own)


def error(kind: type[ApiError], status: int, message: str = "because", **more) -> ApiError:
    return kind(verb="POST", path="/api/v1/pods/p/eviction", status=status, message=message, **more)


# The words of an eviction; those of a Binding are others.
ANOTHER = (
    'Operation cannot be fulfilled on Pod "b": the UID in the precondition (uid-b) does not match the UID in record '
    "(uid-c). The object might have been deleted and then recreated"
)
BUDGET = error(ApiThrottledError, 429, "it would violate the pod's disruption budget", retry_after_s=10.0)


async def test_the_room_is_claimed_before_the_one_pod_in_it_is_asked_to_leave():
    rig = Rig()
    sent, told = await rig.preempt("low")
    assert sent == [("nominate", "high"), ("evict", "low")]
    assert [what for _, _, what in rig.calls.sent] == [("n1", "uid-high"), "uid-low"]
    assert told == [("asked", "uid-high")]
    assert rig.heard.victims == ["low"]
    (note,) = rig.notes.noted
    assert (note.about.uid, note.reason) == ("uid-low", "Preempted")
    assert note.message == "Preempted by pod uid-high on node n1"


async def test_of_several_none_leaves_where_one_may_not():
    rig = Rig()
    rig.calls.fails("try", BUDGET)
    rig.calls.fails_for = "d/b"
    sent, told = await rig.preempt("a", "b", "c", "d", guarded="bc")
    # Of those that no budget covers one is tried: who may not evict it may evict no other.
    assert sent == [("try", "a"), ("try", "b"), ("try", "c")]
    assert told == [("refused", "uid-high", "uid-b", 10.0, "")]
    assert rig.notes.noted == []
    assert rig.metrics.evictions.labels("refused")._value.get() == 1
    assert rig.heard.by_budget == [True]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (429, "Too many requests, please try again later."),
        (503, "apiserver is shutting down"),
        (0, "held back: the API server asked to be left alone for 3.0 s more"),
    ],
)
async def test_an_api_server_that_asks_for_time_is_no_disruption_budget(status, message):
    rig = Rig()
    rig.calls.fails("evict", error(ApiThrottledError, status, message, retry_after_s=3.0))
    _, told = await rig.preempt("low")
    assert told == [("refused", "uid-high", "uid-low", 3.0, "")]
    assert rig.heard.by_budget == [False]
    assert rig.metrics.evictions.labels("failed")._value.get() == 1


async def test_for_one_that_a_budget_covers_nothing_is_written_before_it_may_leave():
    rig = Rig()
    rig.calls.fails("try", BUDGET)
    sent, told = await rig.preempt("a", guarded="a")
    assert sent == [("try", "a")]
    assert told == [("refused", "uid-high", "uid-a", 10.0, "")]


async def test_one_of_each_namespace_is_tried_because_rights_may_differ():
    rig = Rig()
    sent, _ = await rig.preempt("a", "other/b", "c", "other/d")
    assert [name for call, name in sent if call == "try"] == ["a", "other/b"]
    assert [name for call, name in sent if call == "evict"] == ["a", "other/b", "c", "other/d"]


async def test_who_is_covered_by_a_budget_leaves_first_and_alone_and_nobody_after_one_who_may_not():
    rig = Rig()
    rig.calls.fails("evict", BUDGET)
    rig.calls.fails_for = "d/c"
    sent, told = await rig.preempt(*"abcde", guarded="bcd")
    assert [name for call, name in sent if call == "evict"] == ["b", "c"]
    assert told == [("refused", "uid-high", "uid-c", 10.0, "")]
    assert rig.heard.victims == ["b"]


async def test_of_the_others_no_more_are_asked_once_one_may_not_and_what_became_of_those_asked_is_told():
    rig = Rig()
    names = [f"low-{at:02d}" for at in range(40)]
    rig.calls.fails("evict", error(ApiForbiddenError, 403, "a webhook denies it"))
    rig.calls.fails_for = "low-10"
    sent, told = await rig.preempt(*names)
    asked = [name for call, name in sent if call == "evict"]
    # At most eight are in flight for one pod.
    assert asked == names[: len(asked)]
    assert len(asked) <= 10 + 8
    assert sorted(rig.heard.victims) == [name for name in asked if name != "low-10"]
    assert {note.about.name for note in rig.notes.noted} == set(rig.heard.victims)
    assert told == [("refused", "uid-high", "uid-low-10", POLICY_REST_S, "")]


async def test_a_pod_that_two_budgets_cover_stays_for_long_and_nobody_else_leaves():
    rig = Rig()
    rig.calls.fails("try", error(ApiRefusedError, 500, "This pod has more than one PodDisruptionBudget"))
    rig.calls.fails_for = "d/b"
    sent, told = await rig.preempt(*"abc", guarded="b")
    assert sent == [("try", "a"), ("try", "b")]
    assert told == [("refused", "uid-high", "uid-b", POLICY_REST_S, "")]
    assert rig.metrics.evictions.labels("failed")._value.get() == 1


async def test_where_the_api_server_refused_one_that_no_budget_covers_all_are_tried_from_then_on():
    rig = Rig()
    rig.calls.fails("evict", error(ApiForbiddenError, 403, "a webhook denies it"))
    rig.calls.fails_for = "d/b"
    sent, _ = await rig.preempt(*"abc")
    assert [name for call, name in sent if call == "try"] == ["a"]
    rig.calls.sent.clear()
    rig.calls.fails("try", error(ApiForbiddenError, 403, "a webhook denies it"))
    sent, _ = await rig.preempt(*"abc")
    assert sent == [("try", "a"), ("try", "b"), ("try", "c")]
    rig.calls.sent.clear()
    rig.calls.fails("try", error(ApiForbiddenError, 403, "a webhook denies it"))
    sent, _ = await rig.preempt("b")
    assert sent == [("try", "b")]


async def test_of_namespaces_where_one_was_refused_the_last_are_known():
    rig = Rig()
    rig.calls.delay_s = 0.0
    for at in range(300):
        rig.calls.fails("evict", error(ApiForbiddenError, 403, "a webhook denies it"))
        await rig.preempt(f"n{at}/a")
    tried = {}
    for at in (0, 299):
        rig.calls.sent.clear()
        sent, _ = await rig.preempt(f"n{at}/a", f"n{at}/b")
        tried[at] = [call for call, _ in sent].count("try")
    assert tried == {0: 1, 299: 2}


async def test_nobody_else_leaves_for_a_pod_that_needs_no_room_any_more():
    rig = Rig()
    rig.heard.needed = lambda: not any(call == "try" and path == "d/b" for call, path, _ in rig.calls.sent)
    sent, told = await rig.preempt(*"ab", guarded="b")
    assert [call for call, _ in sent] == ["try", "try"]
    assert told == [("unneeded", "uid-high")]
    rig = Rig()
    rig.heard.needed = lambda: len(rig.calls.of("evict")) < 12
    sent, told = await rig.preempt(*(f"low-{at:02d}" for at in range(40)))
    assert [call for call, _ in sent].count("evict") == len(rig.heard.victims) == 12
    assert told == [("unneeded", "uid-high")]


async def test_nobody_leaves_for_a_pod_that_is_gone():
    for gone in (not_found(), conflict()):
        rig = Rig()
        rig.calls.fails("nominate", gone)
        rig.calls.fails_for = "d/b"
        sent, told = await rig.preempt("low", nominated="ab")
        assert sent == [("nominate", "a"), ("nominate", "b")]
        assert told == [("refused", "uid-high", None, 0.0, "")]


async def test_who_has_gone_has_left_and_who_is_another_is_left_alone():
    rig = Rig()
    rig.calls.fails("try", not_found(), conflict(ANOTHER))
    rig.calls.fails("evict", not_found(), conflict(ANOTHER))
    sent, told = await rig.preempt("a", "b")
    assert [call for call, _ in sent].count("evict") == 2
    assert told == [("asked", "uid-high")]


async def test_a_conflict_is_asked_again_and_is_no_eviction():
    rig = Rig()
    rig.calls.fails("evict", conflict(), conflict())
    sent, told = await rig.preempt("low")
    assert sent.count(("evict", "low")) == 3
    assert told == [("asked", "uid-high")]
    rig = Rig()
    rig.calls.fails("evict", conflict(), conflict(), conflict())
    _, told = await rig.preempt("low")
    assert told == [("refused", "uid-high", "uid-low", 0.0, "")]
    assert rig.heard.victims == []
    assert rig.notes.noted == []


async def test_an_unknown_outcome_is_asked_again_and_given_up_in_the_end():
    lost = error(ApiUnknownError, 0, "no answer")
    rig = Rig()
    rig.calls.fails("evict", lost, lost)
    sent, told = await rig.preempt("low")
    assert sent.count(("evict", "low")) == 3
    assert told == [("asked", "uid-high")]
    rig = Rig()
    rig.calls.fails("evict", lost, lost, lost)
    _, told = await rig.preempt("low")
    assert told == [("refused", "uid-high", "uid-low", 0.0, "")]


async def test_a_right_that_is_missing_is_told_to_operators():
    rig = Rig()
    no_right = (
        'pods "low" is forbidden: User "u" cannot create resource "pods/eviction" in API group "" in the namespace "d"'
    )
    rig.calls.fails("evict", error(ApiForbiddenError, 403, no_right))
    _, told = await rig.preempt("low")
    ((_, _, victim, _, trouble),) = told
    assert victim == "uid-low"
    assert trouble.startswith("no pod is evicted for others:")
    assert "pods/eviction" in trouble


async def test_nobody_leaves_where_the_claim_cannot_be_written():
    rig = Rig()
    rig.calls.fails("nominate", error(ApiThrottledError, 429))
    sent, told = await rig.preempt("low")
    assert sent == [("nominate", "high")]
    assert told == [("refused", "uid-high", None, 0.0, "")]


async def test_a_nomination_that_cannot_be_taken_back_ends_nothing():
    rig = Rig()
    rig.calls.fails("nominate", error(ApiUnknownError, 500))
    await rig.evicting.unnominate(Unnominate(pod=target("high")))
    await rig.evicting.unnominate(Unnominate(pod=target("high")))
    assert [what for _, _, what in rig.calls.sent] == [("", "uid-high")] * 2
