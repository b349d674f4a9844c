import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controller.acting.act import Actor
from controller.actions import Announce, Bind, Clear, Inbox
from controller.metrics import Metrics
from controller.reporting.events import Recorder
from controller.serving import Serving
from core.groups import QueueSpec
from core.model import Phase
from core.units import time_text
from core.waiting import Cause, Wait
from kube.errors import (
    ApiError,
    ApiForbiddenError,
    ApiRefusedError,
    ApiThrottledError,
    ApiUnauthorizedError,
    ApiUnknownError,
    ApiUnreachableError,
    from_answer,
)
from tests.support.servers.fake_calls import FakeCalls, conflict, not_found
from tests.support.worlds.world import START_UNIX_S, World, node, pod

pytestmark = pytest.mark.looptime


class Notes(Recorder):
    """Keeps what is noted."""

    def __init__(self):
        self.noted = []

    def note(self, announce: Announce) -> None:
        self.noted.append(announce)


class Rig:
    """An actor between a world and calls that fail as told."""

    def __init__(self, tasks):
        self.world = World(node("n1"))
        self.calls = FakeCalls()
        self.metrics = Metrics()
        self.notes = Notes()
        now_s = asyncio.get_running_loop().time
        self.world.now_s = now_s()
        self.inbox = Inbox(now_s)
        self.actor = Actor(
            self.calls, self.world.scheduler, self.inbox, self.notes, self.metrics, clock=now_s, wall=now_s
        )
        self.tasks = tasks

    async def passes(self, seconds):
        """Let time pass with scheduler and actor at work."""
        now_s = asyncio.get_running_loop().time
        end_s = now_s() + seconds
        while now_s() < end_s:
            self.world.now_s = now_s()
            self.inbox.work(now_s() + 1.0)
            self.world.plan()
            while self.world.scheduler.cluster.actions:
                self.actor.perform(self.world.scheduler.cluster.actions.popleft(), self.tasks)
            await asyncio.sleep(0.1)

    def outcomes(self):
        return {
            sample.labels["outcome"]: sample.value
            for sample in next(iter(self.metrics.binds.collect())).samples
            if sample.name.endswith("_total")
        }

    def binds(self):
        return [what for _, what in self.calls.of("bind")]


@asynccontextmanager
async def running() -> AsyncIterator[Rig]:
    async with asyncio.TaskGroup() as tasks:
        yield Rig(tasks)


NO_RIGHT = 'pods "p" is forbidden: User "u" cannot create resource "pods/binding" in API group "" in the namespace "n"'
DENIED = 'admission webhook "x.example" denied the request: User "u" cannot create resource "pods/binding"'


def error(kind: type[ApiError], status: int, message: str = "because", **more) -> ApiError:
    return kind(verb="POST", path="/", status=status, message=message, **more)


def as_stored(name, version, **spec):
    limits = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "1000"}
    container = {"name": "main", "resources": {"limits": limits, "requests": limits}}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": version}
    spec = {"schedulerName": "cardshare", "containers": [container], **spec}
    return json.dumps({"metadata": metadata, "spec": spec, "status": {}}).encode()


async def test_a_binding_carries_what_was_decided_and_is_announced():
    async with running() as rig:
        shown = rig.world.shows(pod("p"))
        await rig.passes(0.3)
        (what,) = rig.binds()
        assert (what["uid"], what["resource_version"], what["node"]) == ("uid-p", shown.resource_version, "n1")
        assert rig.world.stage("p") == "bound"
        assert [note.message for note in rig.notes.noted] == ["Successfully assigned default/p to n1: n1-0 (1000 MiB)"]
        assert rig.outcomes() == {"bound": 1.0}


async def test_after_a_conflict_the_pod_is_read_and_bound_in_its_new_version():
    async with running() as rig:
        rig.calls.fails("bind", conflict())
        rig.calls.pods["default/p"] = as_stored("p", "900")
        rig.world.shows(pod("p"))
        await rig.passes(0.5)
        assert [what["resource_version"] for what in rig.binds()][-1] == "900"
        assert rig.outcomes() == {"conflict": 1.0, "bound": 1.0}


async def test_a_pod_that_is_gone_is_forgotten():
    async with running() as rig:
        rig.calls.fails("bind", not_found())
        rig.world.shows(pod("p"))
        await rig.passes(0.5)
        assert (rig.world.stage("p"), rig.world.holders("n1")) == ("none", set())


@pytest.mark.drifts(reason="it is read from calls, or listed, and not shown by the world")
async def test_an_unknown_outcome_is_read_until_the_api_server_answers_and_keeps_the_share():
    async with running() as rig:
        rig.calls.fails("bind", error(ApiUnknownError, 0))
        rig.calls.fails("get_pod", *[error(ApiUnknownError, 500)] * 3)
        rig.calls.pods["default/p"] = as_stored("p", "900", nodeName="n1")
        rig.world.shows(pod("p"))
        await rig.passes(5.0)
        assert (rig.world.stage("p"), rig.world.holders("n1")) == ("settling", {"uid-p"})
        await rig.passes(10.0)
        assert (rig.world.stage("p"), rig.world.holders("n1")) == ("none", {"uid-p"})
        assert len(rig.binds()) == 1


@pytest.mark.drifts(reason="it is read from calls, or listed, and not shown by the world")
async def test_a_maintenance_page_in_place_of_an_answer_gives_no_card_away():
    async with running() as rig:
        rig.calls.fails("bind", from_answer("POST", "/", 503, {"Retry-After": "2"}, b"<html>maintenance</html>"))
        rig.calls.fails("get_pod", *[error(ApiUnknownError, 503)] * 2)
        rig.calls.pods["default/p"] = as_stored("p", "900", nodeName="n1")
        rig.world.shows(pod("p"))
        await rig.passes(1.0)
        assert (rig.world.stage("p"), rig.world.holders("n1")) == ("settling", {"uid-p"})
        await rig.passes(10.0)
        assert (rig.world.stage("p"), rig.world.holders("n1")) == ("none", {"uid-p"})
        assert len(rig.binds()) == 1


async def test_a_throttled_binding_waits_as_long_as_it_was_asked_to():
    async with running() as rig:
        rig.calls.fails("bind", error(ApiThrottledError, 429, retry_after_s=3.0))
        rig.world.shows(pod("p"))
        await rig.passes(2.5)
        assert len(rig.binds()) == 1
        await rig.passes(1.0)
        assert len(rig.binds()) == 2


async def test_a_binding_that_was_asked_to_wait_for_a_day_is_sent_again_in_a_minute():
    async with running() as rig:
        rig.calls.fails("bind", from_answer("POST", "/", 429, {"Retry-After": "86400"}, b"busy"))
        rig.world.shows(pod("p"))
        await rig.passes(59.0)
        assert len(rig.binds()) == 1
        await rig.passes(2.0)
        assert (len(rig.binds()), rig.world.stage("p")) == (2, "bound")


@pytest.mark.parametrize(
    ("kind", "status", "message", "word"),
    [
        (ApiForbiddenError, 403, NO_RIGHT, "forbidden: create pods/binding"),
        (ApiUnauthorizedError, 401, "Unauthorized", "forbidden: create pods/binding"),
        (ApiUnreachableError, 0, "", "unreachable"),
    ],
    ids=["forbidden", "unauthorized", "unreachable"],
)
async def test_why_bindings_do_not_go_through_is_said_until_one_does(kind, status, message, word):
    async with running() as rig:
        rig.calls.fails("bind", error(kind, status, message))
        rig.world.shows(pod("p"))
        await rig.passes(0.5)
        assert rig.actor.state.startswith(word)
        await rig.passes(15.0)
        assert (rig.actor.state, rig.world.stage("p")) == ("", "bound")


@pytest.mark.parametrize(
    ("kind", "message"),
    [(ApiForbiddenError, NO_RIGHT), (ApiUnreachableError, "refused")],
    ids=["forbidden", "unreachable"],
)
async def test_a_process_is_ready_again_when_the_pod_is_gone_that_could_not_be_bound(kind, message):
    async with running() as rig:
        rig.calls.fails("bind", *[error(kind, 403, message)] * 99)
        rig.world.shows(pod("p"))
        for _ in range(10):
            await rig.passes(60.0)
            assert rig.actor.state != ""
        rig.world.gone("p")
        await rig.passes(120.0)
        assert rig.actor.state == ""


@pytest.mark.parametrize("message", [DENIED, 'pods "p" is forbidden: exceeded quota'], ids=["webhook", "quota"])
async def test_a_binding_that_admission_forbids_is_told_to_its_user_and_no_matter_of_the_process(message):
    async with running() as rig:
        rig.calls.fails("bind", error(ApiForbiddenError, 403, message))
        rig.world.shows(pod("p"))
        await rig.passes(0.5)
        assert rig.actor.state == ""
        entry = rig.world.entry("p")
        assert (entry.stage, rig.world.wait("p")) == (
            "resting",
            Wait(Cause.BINDING_REFUSED, f"the API server forbids binding this pod to n1: {message}"),
        )
        assert entry.pod.uid in rig.world.scheduler.cluster.unreported
        await rig.passes(11.0)
        assert rig.world.stage("p") == "bound"


async def test_a_right_that_is_missing_in_one_namespace_is_that_namespaces_matter_while_others_are_bound():
    async with running() as rig:
        shown = rig.world.shows(pod("q"))
        await rig.passes(0.5)
        rig.world.shows(shown, node_name="n1", annotations=rig.binds()[0]["annotations"])
        rig.world.serves("q")
        rig.calls.fails("bind", error(ApiForbiddenError, 403, NO_RIGHT))
        rig.world.shows(pod("p"))
        await rig.passes(0.5)
        assert (rig.actor.state, rig.world.stage("p")) == ("", "resting")


async def test_a_binding_that_is_answered_500_for_ever_is_told_fenced_and_frees_its_share_between_tries():
    async with running() as rig:
        rig.calls.fails("bind", *[error(ApiUnknownError, 500, "no such thing")] * 99)
        rig.calls.fails_for = "default/p"
        shown = rig.world.shows(pod("p"))
        rig.calls.pods["default/p"] = as_stored("p", shown.resource_version)
        rig.calls.answers_patch("p", as_stored)
        await rig.passes(300.0)
        text = "it is not known whether the API server has bound this pod to n1: 500 no such thing"
        conditions = [body["status"]["conditions"][0] for _, body in rig.calls.of("patch")]
        assert {(one["reason"], one["message"]) for one in conditions} == {("SchedulerError", f"CS550 {text}")}
        assert len({one["lastProbeTime"] for one in conditions}) >= 8
        assert ["lastTransitionTime" in one for one in conditions] == [True] + [False] * (len(conditions) - 1)
        assert {(note.reason, note.message) for note in rig.notes.noted} == {("FailedScheduling", f"CS550 {text}")}
        sent = [what["resource_version"] for what in rig.binds()]
        assert len(set(sent)) == len(sent)
        assert 8 <= len(sent) <= 20
        rig.world.shows(pod("q", memory=10_000))
        await rig.passes(130.0)
        assert rig.world.stage("q") == "bound"


async def test_a_condition_that_cannot_be_written_keeps_the_share_and_is_tried_again():
    async with running() as rig:
        rig.calls.fails("bind", error(ApiUnknownError, 0))
        shown = rig.world.shows(pod("p"))
        rig.calls.pods["default/p"] = as_stored("p", shown.resource_version)
        rig.calls.answers_patch("p", as_stored)
        rig.calls.fails("patch", error(ApiForbiddenError, 403), conflict(), *[error(ApiUnknownError, 0)] * 2)
        await rig.passes(1.5)
        assert (rig.world.stage("p"), rig.world.holders("n1")) == ("settling", {"uid-p"})
        await rig.passes(10.0)
        assert (rig.world.stage("p"), len(rig.binds())) == ("bound", 2)


async def test_an_attempt_whose_pods_condition_is_forbidden_is_fenced_by_an_annotation_and_frees_its_share():
    async with running() as rig:
        rig.calls.fails("bind", error(ApiUnknownError, 0))
        shown = rig.world.shows(pod("p"))
        rig.calls.pods["default/p"] = as_stored("p", shown.resource_version)
        rig.calls.answers_patch("p", as_stored)
        rig.calls.fails("patch", error(ApiForbiddenError, 403))
        await rig.passes(10.0)
        _, (path, body) = rig.calls.of("patch")
        assert path == "/api/v1/namespaces/default/pods/p"
        assert body["metadata"]["resourceVersion"] == shown.resource_version
        assert body["metadata"]["annotations"].keys() == {"cardshare.io/moved"}
        assert (rig.world.stage("p"), len(rig.binds())) == ("bound", 2)


@pytest.mark.parametrize(
    ("kind", "status", "message"),
    [
        (ApiForbiddenError, 403, "because"),
        (ApiRefusedError, 422, "because"),
        (ApiUnknownError, 500, 'failed calling webhook "x.example.com": context deadline exceeded'),
        (ApiUnknownError, 0, "no answer within 6 s"),
    ],
    ids=["forbidden", "refused", "a webhook that hangs", "no answer"],
)
async def test_a_pod_that_cannot_be_fenced_off_is_named_because_no_pod_is_placed_meanwhile(kind, status, message):
    async with running() as rig:
        fencing = rig.world.scheduler.cluster.fencing
        rig.world.shows(pod("old", memory=1))
        rig.world.shows(pod("older", memory=1))
        rig.world.scheduler.take_over(["cardshare"])
        assert fencing.trouble(0.0, 0.0) == ""
        rig.calls.fails("patch", *[error(kind, status, message)] * 999)
        began_s = rig.world.scheduler.cluster.clock()
        await rig.passes(25.0)
        assert not rig.binds()
        told = fencing.trouble(began_s + 60.0, START_UNIX_S + 60.0)
        assert told.startswith(f"no pod is bound: since {time_text(START_UNIX_S)}, neither patch pods/status nor patch")
        assert "for default/old and 1 other pod, which an earlier leader may still bind: " in told
        assert message in told
        process = SimpleNamespace(
            connection="",
            watches=SimpleNamespace(reasons=list),
            leading=None,
            actor=rig.actor,
            leads=True,
            scheduler=rig.world.scheduler,
            is_stopping=False,
        )
        (reason,) = Serving.reasons(cast(Any, SimpleNamespace(_process=process)))
        assert "default/old and 1 other pod" in reason
        process.leads = False
        assert Serving.reasons(cast(Any, SimpleNamespace(_process=process))) == []
        rig.world.gone("old")
        rig.world.gone("older")
        assert fencing.trouble(0.0, 0.0) == ""


async def test_a_binding_that_is_never_accepted_is_told_and_not_repeated():
    async with running() as rig:
        rig.calls.fails("bind", error(ApiRefusedError, 422))
        rig.world.shows(pod("p"))
        await rig.passes(60.0)
        assert len(rig.binds()) == 1
        assert rig.world.wait("p").text == "the API server refuses to bind this pod to n1: because"


async def test_a_dead_pods_devices_are_cleared_however_often_that_fails_at_first():
    async with running() as rig:
        rig.calls.fails("annotate", *[error(ApiUnknownError, 500)] * 30)
        rig.world.shows(pod("p"))
        rig.world.plan()
        (bind,) = rig.world.actions(Bind)
        bound = rig.world.accepts(bind)
        rig.world.shows(bound, annotations={**bound.annotations, "volcano.sh/bind-phase": "failed"})
        await rig.passes(0.5)
        assert rig.world.scheduler.cluster.handoff.in_flight == 1
        await rig.passes(480.0)
        assert rig.calls.of("annotate") == [("default/p", {"volcano.sh/devices-to-allocate": ""})] * 31
        assert rig.world.scheduler.cluster.handoff.in_flight == 0


async def test_a_dead_pods_devices_are_cleared_after_a_conflict_and_no_more_once_another_pod_has_its_name():
    left = {"volcano.sh/vgpu-node": "n1", "volcano.sh/devices-to-allocate": "g,NVIDIA,1,1:"}
    async with running() as rig:
        rig.calls.fails("annotate", conflict())
        rig.world.shows(pod("p", node_name="n1", phase=Phase.FAILED, annotations=left))
        await rig.passes(5.0)
        assert len(rig.calls.of("annotate")) == 2
        immutable = 'Pod "q" is invalid: metadata.uid: Invalid value: "uid-q": field is immutable'
        rig.calls.fails("annotate", *[error(ApiRefusedError, 422, immutable)] * 99)
        rig.world.shows(pod("q", node_name="n1", phase=Phase.FAILED, annotations=left))
        await rig.passes(5.0)
        rig.world.gone("q")
        before = len(rig.calls.of("annotate"))
        await rig.passes(120.0)
        assert len(rig.calls.of("annotate")) <= before + 1


async def test_what_was_left_on_a_pod_is_cleared_in_the_version_that_was_seen_and_asked_for_again_after_a_conflict():
    async with running() as rig:
        rig.calls.fails("annotate", conflict())
        left = {"volcano.sh/vgpu-node": "n1", "volcano.sh/devices-to-allocate": "g,NVIDIA,1,1:"}
        first = rig.world.shows(pod("p", annotations=left))
        await rig.passes(0.5)
        second = rig.world.shows(first, labels={"x": "y"})
        await rig.passes(0.5)
        assert rig.calls.cleared_versions == [first.resource_version, second.resource_version]
        assert rig.binds() == []


async def test_bindings_in_flight_are_waited_for():
    async with running() as rig:
        rig.calls.delay_s = 2.0
        rig.world.shows(pod("p"))
        await rig.passes(0.3)
        assert rig.outcomes() == {"bound": 0.0}
        await rig.actor.drain()
        assert rig.outcomes() == {"bound": 1.0}


def test_clearing_names_what_is_cleared():
    world = World(node("n1"))
    annotations = {"volcano.sh/vgpu-node": "n1", "volcano.sh/devices-to-allocate": "g,NVIDIA,1,1:"}
    world.shows(pod("p", node_name="n1", phase=Phase.FAILED, annotations=annotations))
    assert [action.annotations for action in world.actions(Clear)] == [{"volcano.sh/devices-to-allocate": ""}]


@pytest.mark.parametrize("told", ["", "CS501 full"], ids=["told nothing", "told before"])
async def test_a_pod_is_moved_out_of_the_version_that_an_earlier_leader_knew_before_it_is_bound(told):
    async with running() as rig:
        rig.calls.answers_patch("p", as_stored)
        shown = rig.world.shows(pod("p", scheduled_message=told))
        rig.world.scheduler.take_over(("cardshare",))
        await rig.passes(0.5)
        ((path, body),) = rig.calls.of("patch")
        assert path == "/api/v1/namespaces/default/pods/p/status"
        assert body["metadata"] == {"uid": "uid-p", "resourceVersion": shown.resource_version}
        (condition,) = body["status"]["conditions"]
        assert set(condition) >= {"type", "lastProbeTime"}
        assert ("message" in condition) is (not told)
        (what,) = rig.binds()
        assert what["resource_version"] != shown.resource_version


async def test_a_pod_whose_condition_is_forbidden_is_moved_by_an_annotation_and_holds_up_no_one():
    async with running() as rig:
        rig.calls.fails("patch", error(ApiRefusedError, 422, "spec.containers: Invalid value"))
        rig.calls.answers_patch("p", as_stored)
        shown = rig.world.shows(pod("p"))
        rig.world.scheduler.take_over(("cardshare",))
        await rig.passes(0.5)
        _, (path, body) = rig.calls.of("patch")
        assert path == "/api/v1/namespaces/default/pods/p"
        assert body["metadata"]["resourceVersion"] == shown.resource_version
        assert body["metadata"]["annotations"].keys() == {"cardshare.io/moved"}
        (what,) = rig.binds()
        assert what["resource_version"] != shown.resource_version


async def test_while_pods_may_not_be_moved_nothing_is_bound_and_the_process_says_why():
    async with running() as rig:
        rig.calls.fails("patch", *(error(ApiForbiddenError, 403, NO_RIGHT) for _ in range(4)))
        rig.calls.answers_patch("p", as_stored)
        rig.world.shows(pod("p"))
        rig.world.scheduler.take_over(("cardshare",))
        await rig.passes(2.5)
        fencing = rig.world.scheduler.cluster.fencing
        assert (rig.binds(), NO_RIGHT in fencing.trouble(0.0, 0.0)) == ([], True)
        await rig.passes(2.0)
        assert (len(rig.binds()), fencing.trouble(0.0, 0.0), rig.actor.state) == (1, "", "")


WEB = "/apis/apps/v1/namespaces/default/replicasets/web"


@pytest.mark.parametrize(
    ("failures", "said", "reads", "is_bound"),
    [
        ((), {"scheduling.volcano.sh/group-min-member": "2"}, 1, False),
        ((), {"scheduling.volcano.sh/group-min-member": "two"}, 1, True),
        ((), {}, 1, True),
        ((), None, 1, True),
        ((error(ApiForbiddenError, 403),), {}, 1, True),
        ((error(ApiUnknownError, 500),), {"scheduling.volcano.sh/group-min-member": "2"}, 2, False),
    ],
    ids=["two", "no-number", "nothing", "gone", "forbidden", "failed"],
)
async def test_an_owner_is_read_for_how_many_pods_it_wants_together(failures, said, reads, is_bound):
    async with running() as rig:
        rig.world.configures(scheduler_names=("volcano",))
        rig.world.groups_are(queues=[QueueSpec(name="default")])
        rig.calls.fails("get_raw", *failures)
        if said is not None:
            rig.calls.raw[WEB] = json.dumps({"metadata": {"annotations": said}}).encode()
        rig.world.shows(pod("p", scheduler_name="volcano", owner="ReplicaSet/web", created_s=START_UNIX_S - 2000))
        await rig.passes(15.0)
        assert [path for path, _ in rig.calls.of("get_raw")] == [WEB] * reads
        assert bool(rig.binds()) is is_bound
