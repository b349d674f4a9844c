import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from controller.acting.group_writes import GroupWrites
from controller.actions import Announce, Inbox
from controller.metrics import Metrics
from controller.reporting.events import Recorder
from core.groups import GroupPhase, GroupSpec, GroupStatus, QueueSpec
from core.model import GroupKey, GroupKind, Phase
from core.units import time_text
from core.wire.groups import JobSpec, salvage_group, salvage_queue
from kube.errors import ApiForbiddenError
from kube.kinds import QUEUES_PATH
from tests.support.servers.fake_calls import FakeCalls, conflict, not_found
from tests.support.worlds.world import START_UNIX_S, World, node, pod

pytestmark = pytest.mark.looptime

KEY = GroupKey(GroupKind.VOLCANO, "default", "g")
PATH = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups/g"
QUEUES = [QueueSpec(name="root", reclaimable=False), QueueSpec(name="default")]
IN_G = {"scheduling.k8s.io/group-name": "g"}


def group(version="10", phase="", **fields):
    status = GroupStatus(phase=GroupPhase(phase), written=True) if phase else GroupStatus()
    return GroupSpec(**({"key": KEY, "uid": "g1", "resource_version": version, "status": status} | fields))


def member(name, **fields):
    return pod(name, annotations=IN_G, scheduler_name="volcano", **fields)


class Noting(Recorder):
    """Remembers what would become events."""

    noted: ClassVar[list[Announce]] = []

    def note(self, announce):
        self.noted.append(announce)


class Server(FakeCalls):
    """Stores the group's status as the API server would, and what queues were made."""

    def __init__(self, spec):
        super().__init__()
        self.spec, self.status = spec, {}
        self.answers_patch("g", self._stored)

    def _stored(self, name, version):
        self.status = {**self.status, **self.of("patch")[-1][1]["status"]}
        metadata = {"name": "g", "namespace": "default", "uid": "g1", "resourceVersion": version}
        return json.dumps({"metadata": metadata, "spec": self.spec, "status": self.status}).encode()

    async def create(self, path, value, *, dry_run=False):
        version = await self._note("create", path, value)
        return json.dumps({**value, "metadata": {**value["metadata"], "resourceVersion": version}}).encode()


class Rig:
    def __init__(self, world, calls):
        self.world, self.calls = world, calls
        self.inbox = Inbox(asyncio.get_running_loop().time)
        self.recorder = Noting(calls, Metrics(), instance="i")
        clock = asyncio.get_running_loop().time
        self.writes = GroupWrites(
            world.scheduler.cluster.groups,
            calls,
            self.inbox,
            self.recorder,
            Metrics(),
            budgets=world.scheduler.cluster.budgets,
            jobs=world.scheduler.jobs,
            clock=clock,
            wall=lambda: START_UNIX_S + clock(),
        )

    async def passes(self, seconds):
        """Let time pass; the scheduler takes what it is told."""
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            self.writes.wake.set()
            await asyncio.sleep(0.05)
            self.inbox.work(float("inf"))
            self.world.passes(0.05)

    def patches(self):
        return [body for path, body in self.calls.of("patch") if path == PATH]


@asynccontextmanager
async def running(*specs, queues=QUEUES, **settings):
    world = World(node("n1"), **({"scheduler_names": ("cardshare", "volcano")} | settings))
    world.groups_are(*specs, queues=queues)
    (first,) = specs or (group(),)
    spec = {"minMember": first.min_member, "queue": first.queue}
    if first.min_resources is not None:
        spec["minResources"] = {name: f"{amount}m" for name, amount in first.min_resources.items()}
    rig = Rig(world, Server(spec))
    rig.recorder.noted.clear()
    task = asyncio.create_task(rig.writes.run())
    try:
        yield rig
    finally:
        task.cancel()


async def test_an_admitted_group_is_written_once_in_the_version_that_was_judged():
    async with running(group()) as rig:
        await rig.passes(3.0)
        (written,) = rig.patches()
        assert written["metadata"] == {"resourceVersion": "10"}
        assert written["status"]["phase"] == "Inqueue"
        assert [one.reason for one in rig.recorder.noted] == ["Admitted"]


async def test_changes_that_come_together_are_one_write():
    async with running(group(phase="Inqueue", min_member=3)) as rig:
        await rig.passes(1.0)
        for name in "abc":
            rig.world.adds(member(name, node_name="n1", phase=Phase.RUNNING))
        await rig.passes(1.0)
        (written,) = rig.patches()
        assert (written["status"]["phase"], written["status"]["running"]) == ("Running", 3)


async def test_a_write_that_was_overtaken_is_judged_again():
    async with running(group()) as rig:
        rig.calls.fails("patch", conflict())
        await rig.passes(0.1)
        rig.world.scheduler.cluster.groups.changed(group(version="11", min_member=2))
        await rig.passes(1.0)
        assert [body["metadata"]["resourceVersion"] for body in rig.patches()] == ["10", "11"]


async def test_a_group_that_is_gone_is_let_go():
    async with running(group()) as rig:
        rig.calls.fails("patch", *[not_found()] * 10)
        await rig.passes(5.0)
        assert len(rig.patches()) == 1


async def test_an_answer_that_comes_after_the_end_of_its_group_brings_nothing_back():
    asked: dict[str, Any] = {"queue": "q", "min_resources": {"cpu": 1000}}
    q = QueueSpec(name="q", capability={"cpu": 1000})
    async with running(group(phase="Inqueue", **asked), queues=[*QUEUES, q]) as rig:
        groups = rig.world.scheduler.cluster.groups
        await rig.passes(1.0)
        rig.calls.delay_s = 0.5
        rig.world.adds(member("a", node_name="n1", phase=Phase.RUNNING))
        await rig.passes(0.2)
        assert len(rig.patches()) == 1
        groups.gone(KEY)
        await rig.passes(1.0)
        assert groups.judged(KEY) is None
        other = GroupSpec(key=KEY._replace(name="other"), uid="o1", resource_version="20", **asked)
        groups.changed(other)
        await rig.passes(1.0)
        assert groups.is_admitted(other.key)


async def test_an_answer_that_comes_after_another_group_of_that_name_does_not_replace_it():
    async with running(group(phase="Inqueue")) as rig:
        groups = rig.world.scheduler.cluster.groups
        rig.calls.delay_s = 0.5
        rig.world.adds(member("a", node_name="n1", phase=Phase.RUNNING))
        await rig.passes(0.2)
        groups.gone(KEY)
        groups.changed(group(version="2000", uid="g2", min_member=3))
        await rig.passes(0.6)
        spec = groups.spec(KEY)
        assert spec is not None
        assert (spec.uid, spec.min_member) == ("g2", 3)


def as_queue(name, version, **spec):
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": version}
    return json.dumps({"metadata": metadata, "spec": spec}).encode()


@pytest.mark.parametrize("since", ["deleted", "changed"])
async def test_an_answer_that_comes_late_leaves_a_queue_as_it_is_by_now(since):
    q = QueueSpec(name="q", uid="uid-q", resource_version="10", guarantee={"cpu": 60_000})
    async with running(group(phase="Inqueue", queue="q"), queues=[*QUEUES, q]) as rig:
        groups = rig.world.scheduler.cluster.groups
        rig.calls.answers_patch("q", lambda name, version: as_queue(name, version, guarantee={"resource": {"cpu": 60}}))
        rig.calls.delay_s = 0.3
        rig.world.adds(member("a", node_name="n1", phase=Phase.RUNNING))
        while "/queues/q/status" not in str(rig.calls.sent):
            await rig.passes(0.05)
        if since == "deleted":
            groups.queue_gone("q")
        else:
            groups.queue_changed(replace(q, resource_version="9000", guarantee={}))
        await rig.passes(3.0)
        assert groups.tree.guaranteed == {}


async def test_the_same_in_other_words_waits_a_while():
    async with running(group(queue="q", min_resources={"cpu": 2000})) as rig:
        q = QueueSpec(name="q", capability={"cpu": 1000})
        rig.world.scheduler.cluster.groups.queue_changed(q)
        await rig.passes(1.0)
        before = len(rig.patches())
        for at in range(20):
            rig.world.scheduler.cluster.groups.queue_changed(replace(q, capability={"cpu": 1001 + at}))
            await rig.passes(0.2)
        assert len(rig.patches()) == before
        await rig.passes(20.0)
        assert len(rig.patches()) <= before + 2
        assert "of 1020m left" in rig.patches()[-1]["status"]["conditions"][0]["message"]


async def test_a_time_that_is_still_to_come_holds_up_no_other_words():
    """The clock of the last leader was ahead."""
    async with running(group(queue="q", min_resources={"cpu": 2000})) as rig:
        groups, q = rig.world.scheduler.cluster.groups, QueueSpec(name="q", capability={"cpu": 1000})
        groups.queue_changed(q)
        await rig.passes(1.0)
        spec, *_ = groups.judged(KEY)
        later = tuple(replace(one, changed_at=time_text(START_UNIX_S + 7200)) for one in spec.status.conditions)
        groups.changed(replace(spec, resource_version="9999", status=replace(spec.status, conditions=later)))
        groups.queue_changed(replace(q, capability={"cpu": 1500}))
        await rig.passes(3.0)
        assert "of 1500m left" in rig.patches()[-1]["status"]["conditions"][0]["message"]


async def test_the_more_groups_wait_the_longer_other_words_do(monkeypatch):
    monkeypatch.setattr("controller.acting.group_writes._WORDS_PER_S", 1 / 30)
    async with running(group(queue="q", min_resources={"cpu": 2000})) as rig:
        q = QueueSpec(name="q", capability={"cpu": 1000})
        rig.world.scheduler.cluster.groups.queue_changed(q)
        await rig.passes(1.0)
        before = len(rig.patches())
        rig.world.scheduler.cluster.groups.queue_changed(replace(q, capability={"cpu": 1001}))
        await rig.passes(25.0)
        assert len(rig.patches()) == before
        await rig.passes(20.0)
        assert len(rig.patches()) == before + 1


async def test_a_group_that_is_admitted_after_its_figures_changed_is_written_at_once():
    """Its job controller creates no pods before."""
    async with running(group(queue="q", min_resources={"cpu": 2000})) as rig:
        q = QueueSpec(name="q", capability={"cpu": 1000})
        rig.world.scheduler.cluster.groups.queue_changed(q)
        await rig.passes(1.0)
        rig.world.scheduler.cluster.groups.queue_changed(replace(q, capability={"cpu": 1500}))
        await rig.passes(1.0)
        assert rig.patches()[-1]["status"]["phase"] == "Pending"
        rig.world.scheduler.cluster.groups.queue_changed(replace(q, capability={"cpu": 2000}))
        await rig.passes(1.0)
        assert rig.patches()[-1]["status"]["phase"] == "Inqueue"


async def test_a_group_of_which_members_stay_missing_says_so_and_one_whose_pods_come_in_time_does_not():
    async with running(group(min_member=2, phase="Inqueue")) as rig:
        rig.world.now_s = asyncio.get_running_loop().time()
        rig.world.shows(member("p0"))
        await rig.passes(0.8)
        assert rig.patches() == []
        await rig.passes(0.5)
        (patch,) = rig.patches()
        (told,) = patch["status"]["conditions"]
        assert (told["type"], told["status"], told["reason"]) == ("Unschedulable", "True", "NotEnoughTasks")
        assert told["message"].startswith(
            "waits until 2 members of PodGroup default/g can be placed together; 1 is ready"
        )
        assert patch["status"]["phase"] == "Inqueue"
        assert [note.reason for note in rig.recorder.noted] == ["Unschedulable"]
        rig.world.shows(member("p1"))
        rig.world.placed()
        await rig.passes(1.0)
        (told,) = [one for one in rig.patches()[-1]["status"]["conditions"] if one["status"] == "True"]
        assert told["type"] == "Scheduled"
    async with running(group(min_member=2, phase="Inqueue")) as rig:
        rig.world.now_s = asyncio.get_running_loop().time()
        rig.world.shows(member("p0"))
        await rig.passes(0.8)
        rig.world.shows(member("p1"))
        rig.world.placed()
        await rig.passes(2.0)
        assert {one["type"] for patch in rig.patches() for one in patch["status"]["conditions"]} == {"Scheduled"}


async def test_a_job_whose_queue_does_not_exist_is_told_so_by_an_event():
    async with running(group()) as rig:
        rig.world.scheduler.jobs.changed(JobSpec(namespace="ns", name="j", uid="u", queue="missing", begun=False))
        rig.world.passes(2.0)
        await rig.passes(1.5)
        (note,) = [note for note in rig.recorder.noted if note.about.kind == "Job"]
        assert (note.reason, note.warning) == ("QueueNotFound", True)
        assert (note.about.namespace, note.about.name, note.about.uid) == ("ns", "j", "u")
        assert note.about.api_version == "batch.volcano.sh/v1alpha1"
        assert note.message == (
            "waits because queue missing does not exist; create it, or name another in the job's spec.queue"
        )


async def test_the_queues_are_made_where_they_are_missing():
    async with running(queues=[]) as rig:
        await rig.passes(2.0)
        made = [(path, body["metadata"]["name"], body["spec"]) for path, body in rig.calls.of("create")]
        assert made == [
            (QUEUES_PATH, "root", {"weight": 1, "reclaimable": False}),
            (QUEUES_PATH, "default", {"weight": 1, "reclaimable": True}),
        ]
        rig.world.scheduler.cluster.groups.queue_gone("default")
        await rig.passes(2.0)
        assert len(rig.calls.of("create")) == 3


async def test_what_may_not_be_written_is_tried_again_and_told_once(capsys):
    async with running(queues=[]) as rig:
        forbidden = ApiForbiddenError(verb="POST", path="/", status=403, message="no")
        rig.calls.fails("create", *[forbidden] * 3)
        await rig.passes(6.0)
        assert {body["metadata"]["name"] for _, body in rig.calls.of("create")[3:]} == {"root", "default"}


async def test_a_queue_says_what_the_pods_of_its_groups_hold_and_what_it_held_goes():
    held = QueueSpec(name="default", allocated={"pods": "2", "gone.example/x": "1"})
    async with running(group(phase="Running"), queues=[QUEUES[0], held]) as rig:
        rig.world.adds(member("a", node_name="n1", phase=Phase.RUNNING))
        await rig.passes(1.5)
        ((path, body),) = [one for one in rig.calls.of("patch") if "/queues/" in one[0]]
        assert path == f"{QUEUES_PATH}/default/status"
        allocated = body["status"]["allocated"]
        assert (allocated["pods"], allocated["gone.example/x"]) == ("1", None)


async def test_a_group_that_cannot_be_read_is_written_once():
    wrong = {"minMember": -3}
    text = json.dumps({"metadata": {"name": "g", "namespace": "default", "uid": "g1"}, "spec": wrong}).encode()
    async with running(salvage_group(GroupKind.VOLCANO, text)) as rig:
        rig.calls.spec = wrong
        await rig.passes(8.0)
        (written,) = rig.patches()
        (condition,) = written["status"]["conditions"]
        assert "cannot be read: PodGroup spec.minMember: found 'a number below 0'" in condition["message"]


async def test_a_queue_that_cannot_be_read_is_written_once():
    said: dict[str, str] = {}

    def stored(name, version):
        said.update(rig.calls.of("patch")[-1][1]["status"]["allocated"])
        found = json.loads(as_queue(name, version, weight="x"))
        return json.dumps({**found, "status": {"state": "Open", "allocated": said}}).encode()

    wrong = salvage_queue(as_queue("q", "10", weight="x"))
    async with running(group(phase="Running", queue="q"), queues=[*QUEUES, wrong]) as rig:
        rig.calls.answers_patch("q", stored)
        rig.world.adds(member("a", node_name="n1", phase=Phase.RUNNING))
        await rig.passes(6.0)
        assert len([path for path, _ in rig.calls.of("patch") if "/queues/q/" in path]) == 1
        assert rig.world.scheduler.cluster.groups.queues["q"].allocated["pods"] == "1"


async def test_while_the_name_is_anothers_nothing_is_written():
    async with running(group(), queues=[], scheduler_names=("cardshare",)) as rig:
        rig.world.adds(member("a", node_name="n1", phase=Phase.RUNNING))
        await rig.passes(3.0)
        assert rig.calls.sent == []
