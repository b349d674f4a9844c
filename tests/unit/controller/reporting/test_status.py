import asyncio
from functools import partial
from itertools import count

import pytest

from controller.metrics import Metrics
from controller.reporting.status import StatusWriter
from core.groups import GroupSpec
from core.model import GroupKey, GroupKind, NodeName
from tests.support.servers.fake_calls import conflict
from tests.support.worlds.telling import running
from tests.support.worlds.world import CORES, NUMBER, World, node, pod

pytestmark = pytest.mark.looptime


async def test_a_refused_pod_is_told_by_condition_and_event_in_the_version_that_was_decided():
    async with running() as rig:
        shown = rig.world.shows(pod("p", memory=5000))
        await rig.passes(1)
        ((path, body),) = rig.calls.of("patch")
        assert path == "/api/v1/namespaces/default/pods/p/status"
        assert body["metadata"] == {"uid": "uid-p", "resourceVersion": shown.resource_version}
        (condition,) = body["status"]["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == (
            "PodScheduled",
            "False",
            "NeverFits",
        )
        assert "1000 of 5000 MiB in total" in condition["message"]
        ((namespace, event),) = rig.calls.of("create_event")
        assert (namespace, event["reason"], event["message"]) == ("default", "FailedScheduling", condition["message"])
        assert rig.world.entry("p").version == "1001"


@pytest.mark.parametrize("kind", [GroupKind.VOLCANO, GroupKind.NATIVE])
async def test_the_group_of_a_pod_that_needs_no_other_says_why_it_waits_until_it_has_a_node(kind):
    key = GroupKey(kind, "default", "g")
    async with running() as rig:
        spec = GroupSpec(key=key, uid="g", resource_version="1", queue="", min_member=1)
        rig.world.groups_are(spec, kind=kind)
        groups = rig.world.scheduler.cluster.groups
        is_native = kind is GroupKind.NATIVE
        annotations = {} if is_native else {"scheduling.k8s.io/group-name": "g"}
        for name in "pq":
            rig.world.adds(pod(name, memory=5000, annotations=annotations, scheduling_group="g" if is_native else ""))
        await rig.passes(1)
        told = groups._verdict(spec)
        assert (told.admitted, told.tried) == (True, True)
        assert "1000 of 5000 MiB in total" in told.why
        rig.world.scheduler.nodes.changed(node("n1", memory=6000, version="2"))
        await rig.passes(10)
        rig.world.shows(rig.world.seen("p"), node_name="n1", resource_version="5000")
        await rig.passes(10)
        # The other waits still, but the group has its minimum.
        assert rig.world.stage("q") == "refused"
        assert groups._verdict(spec).why == ""


async def test_many_pods_of_one_shape_are_explained_once():
    async with running() as rig:
        rig.world.adds(*[pod(f"p{i}", memory=5000) for i in range(20)])
        await rig.passes(1)
        assert (len(set(rig.said())), len(rig.said()), rig.teller.explained) == (1, 20, 1)


async def test_the_text_is_not_written_again_while_it_is_true():
    async with running() as rig:
        rig.world.shows(pod("p", memory=5000))
        for i in range(50):
            await rig.passes(10, 1.0)
            rig.world.scheduler.nodes.changed(node("n1", memory=1000, version=str(i), labels={"i": str(i)}))
        assert len(rig.said()) == 1


async def test_a_change_of_numbers_alone_is_written_once_a_minute():
    async with running() as rig:
        rig.world.shows(pod("p", memory=5000))
        for i in range(60):
            await rig.passes(10, 1.0)
            rig.world.scheduler.nodes.changed(node("n1", memory=1001 + i, version=str(i)))
        assert 8 <= len(rig.said()) <= 11


async def test_a_change_of_reasons_is_written_soon():
    async with running() as rig:
        rig.world.shows(pod("p", memory=5000))
        await rig.passes(10)
        rig.world.scheduler.nodes.changed(node("n1", memory=1000, version="2", unschedulable=True))
        await rig.passes(10)
        first, second = rig.said()
        assert "too little free memory" in first
        assert "cordoned" in second


def broken(what):
    """A node whose register is *what*, which no plugin writes."""
    return {"annotations": {"volcano.sh/node-vgpu-register": what}}


async def test_a_change_of_reasons_soon_after_one_of_numbers_is_written_as_soon():
    async with running() as rig:
        rig.world.shows(pod("p", memory=5000))
        await rig.passes(10)
        rig.world.scheduler.nodes.changed(node("n1", memory=1001, version="2"))
        await rig.passes(1)
        rig.world.scheduler.nodes.changed(node("n1", memory=1001, version="3", unschedulable=True))
        await rig.passes(10)
        assert "cordoned" in rig.said()[-1]


async def test_a_complaint_in_other_words_is_written_within_seconds_and_not_for_ever():
    async with running() as rig:
        rig.world.shows(pod("p", memory=1000))
        rig.world.scheduler.nodes.changed(node("n1", memory=1000, version="2", **broken("one")))
        await rig.passes(1)
        assert "one" in rig.said()[-1]
        rig.world.scheduler.nodes.changed(node("n1", memory=1000, version="3", **broken("two")))
        await rig.passes(12)
        assert "two" in rig.said()[-1]
        before = len(rig.said())
        for i in range(60):
            rig.world.scheduler.nodes.changed(node("n1", memory=1000, version=f"{i + 4}", **broken("ab"[i % 2])))
            await rig.passes(1)
        assert len(rig.said()) - before <= 7


async def test_a_pod_that_was_told_the_same_before_a_restart_is_not_told_again():
    async with running() as rig:
        other = World(node("n1", memory=1000))
        other.shows(pod("p", memory=5000))
        rig.world.shows(pod("first", memory=5000))
        await rig.passes(1)
        (text,) = rig.said()
        rig.world.shows(pod("p", memory=5000, scheduled_reason="Unschedulable", scheduled_message=text))
        await rig.passes(5)
        assert len(rig.said()) == 1


async def test_a_pod_that_is_held_is_told_its_own_reason():
    async with running() as rig:
        rig.world.shows(pod("p", limits={NUMBER: "1", CORES: "150"}))
        await rig.passes(1)
        (text,) = rig.said()
        assert "found '150'" in text


async def test_a_pod_that_is_placed_meanwhile_is_told_nothing():
    async with running() as rig:
        rig.world.shows(pod("p", memory=5000))
        rig.world.plan()
        rig.world.scheduler.nodes.changed(node("n2", memory=8000))
        rig.world.now_s += 1
        rig.world.plan()
        assert rig.world.stage("p") == "binding"
        await rig.passes(10)
        assert rig.said() == []


async def test_a_node_that_goes_while_a_refusal_is_explained_is_left_out():
    async with running() as rig:
        for i in range(40):
            rig.world.scheduler.nodes.changed(node(f"m{i}", memory=1000))
        rig.world.shows(pod("p", memory=5000))
        rig.world.plan()
        shape = rig.world.entry("p").shape
        assert shape is not None
        # Every look at the clock is 10 ms later: the loop is given back as often as it can be.
        clock = partial(next, count(0.0, 0.01))
        teller = StatusWriter(rig.world.scheduler, rig.calls, rig.inbox, rig.recorder, Metrics(), clock=clock)
        explaining = asyncio.create_task(teller.explain(shape))
        await asyncio.sleep(0)
        for i in range(40):
            rig.world.scheduler.nodes.gone(NodeName(f"m{i}"))
        answer, _ = await explaining
        assert 1 <= answer.nodes < 41


async def test_a_condition_that_met_a_change_is_written_again():
    async with running() as rig:
        rig.calls.fails("patch", conflict())
        rig.world.shows(pod("p", memory=5000))
        await rig.passes(5)
        first, second = rig.said()
        told = rig.world.entry("p").condition
        assert told is not None
        assert first == second == told.text


async def test_the_time_of_the_transition_is_written_with_the_first_condition_only():
    async with running() as rig:
        rig.world.shows(pod("p", memory=5000))
        await rig.passes(10)
        rig.world.scheduler.nodes.changed(node("n1", memory=1000, version="2", unschedulable=True))
        await rig.passes(10)
        first, second = (body["status"]["conditions"][0] for _, body in rig.calls.of("patch"))
        assert ("lastTransitionTime" in first, "lastTransitionTime" in second) == (True, False)


async def test_where_only_a_silent_plugin_is_in_the_way_no_more_is_told():
    async with running() as rig:
        world = rig.world
        world.adds(pod("a", memory=100))
        (first,) = world.binds()
        world.accepts(first)
        await rig.passes(301, 1.0)
        world.adds(pod("b", memory=100))
        await rig.passes(1)
        assert rig.said() == ["CS512 1 node would fit, but its device plugin does not answer (n1)."]
