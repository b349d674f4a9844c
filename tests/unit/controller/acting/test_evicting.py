"""Who is asked to leave: by evictions that name the very pod, and what the API server's answers lead to."""

import asyncio

import pytest

from controller.acting.evicting import Evicting
from controller.actions import Announce, Preempt, Target, Unnominate
from controller.deciding.preempt import Preempting
from controller.failpoints import go_on
from controller.inbox import Inbox
from controller.metrics import Metrics
from controller.reporting.events import Recorder
from core.model import NodeName, PodUid
from kube.errors import ApiError, ApiForbiddenError, ApiThrottledError, ApiUnknownError
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
        self.victims = []

    def evicted(self, victim):
        self.victims.append(victim.name)

    def asked(self, uid):
        self.told.append(("asked", uid))

    def refused(self, uid, victim, rest_s, *, trouble=""):
        self.told.append(("refused", uid, victim, rest_s, trouble))


class Rig:
    def __init__(self):
        self.calls, self.heard, self.notes, self.metrics = Calls(), Heard(), Notes(), Metrics()
        self.inbox = Inbox(float)
        one = asyncio.Semaphore(1)
        self.evicting = Evicting(
            self.calls, self.heard, self.inbox, self.notes, self.metrics, at_once=one, reached=go_on
        )

    async def preempt(self, *victims):
        await self.evicting.preempt(
            Preempt(
                nomination=PodUid("uid-high"),
                nominated=((target("high"), NodeName("n1")),),
                victims=tuple((target(name), NodeName("n1")) for name in victims),
            )
        )
        while self.inbox.work(1.0):
            pass
        return [(call, path.removeprefix("d/")) for call, path, _ in self.calls.sent], self.heard.told


def target(name):
    return Target(uid=PodUid(f"uid-{name}"), namespace="d", name=name)


def error(kind: type[ApiError], status: int, message: str = "because", **more) -> ApiError:
    return kind(verb="POST", path="/", status=status, message=message, **more)


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
    sent, told = await rig.preempt("a", "b", "c")
    assert sent == [("nominate", "high"), ("try", "a"), ("try", "b")]
    assert told == [("refused", "uid-high", "uid-b", 10.0, "")]
    assert rig.notes.noted == []
    assert rig.metrics.evictions.labels("refused")._value.get() == 1


async def test_who_has_gone_has_left_and_who_is_another_is_left_alone():
    rig = Rig()
    rig.calls.fails("try", not_found(), conflict())
    rig.calls.fails("evict", not_found(), conflict())
    _, told = await rig.preempt("a", "b")
    assert told == [("asked", "uid-high")]


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
