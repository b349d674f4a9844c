"""How often conditions are written, and how rarely where they cannot be, or change again and again."""

import asyncio

import pytest
import structlog

from controller.reporting.conditions import FAILING_MAX_S, NUMBERS_PER_S, PER_S, Conditions, Saying, WaitReasons
from core.groups import MIN_MEMBER
from core.model import GroupKind, PodUid
from core.waiting import Cause, Wait
from kube.errors import ApiForbiddenError
from tests.support.servers.fake_calls import conflict
from tests.support.worlds.telling import Rig, running
from tests.support.worlds.world import node, pod

pytestmark = pytest.mark.looptime


def forbidden():
    return ApiForbiddenError(verb="PATCH", path="/", status=403, reason="Forbidden", message="no")


def told_text(rig, name):
    told = rig.world.entry(name).condition
    return told.text if told is not None else ""


def patches(rig):
    return len(rig.calls.of("patch"))


async def test_where_no_condition_can_be_written_the_tries_and_the_log_lines_are_few():
    async with running() as rig:
        rig.calls.fails("patch", *[forbidden()] * 5000)
        rig.world.adds(*[pod(f"p{i}", memory=5000) for i in range(200)])
        with structlog.testing.capture_logs() as logs:
            await rig.passes(60)
            first = patches(rig)
            await rig.passes(600, 1.0)
        assert 4 <= first <= 60
        assert patches(rig) - first <= 4 * 600 / FAILING_MAX_S + 8
        assert 1 <= len(logs) <= 12
        # As soon as they can be, all are.
        rig.calls.failures.clear()
        await rig.passes(400, 0.5)
        assert all(rig.world.entry(f"p{i}").condition is not None for i in range(200))


async def test_one_pod_that_may_not_be_written_keeps_nobody_else_waiting():
    async with running() as rig:
        rig.calls.fails_for = "/pods/p7/"
        rig.calls.fails("patch", *[forbidden()] * 5000)
        rig.world.adds(*[pod(f"p{i}", memory=5000) for i in range(50)])
        await rig.passes(10)
        assert [i for i in range(50) if rig.world.entry(f"p{i}").condition is None] == [7]
        await rig.passes(300, 1.0)
        tries = [path for path, _ in rig.calls.of("patch") if "/p7/" in path]
        assert 5 <= len(tries) <= 10


async def test_no_more_conditions_are_written_a_second_than_told_and_those_told_nothing_come_first():
    async with running() as rig:
        rig.world.adds(*[pod(f"old{i}", memory=5000) for i in range(200)])
        await rig.passes(10)
        assert patches(rig) == 200
        rig.world.scheduler.nodes.changed(node("n1", memory=1000, version="2", unschedulable=True))
        await rig.passes(1)
        rig.world.adds(*[pod(f"new{i}", memory=5000) for i in range(50)])
        for at in range(20):
            before = patches(rig)
            await rig.passes(1, 0.02)
            assert patches(rig) - before <= PER_S + 25, at
        told = [path.split("/")[-2] for path, _ in rig.calls.of("patch")][200:]
        assert len(told) == 250
        last_new = max(at for at, name in enumerate(told) if name.startswith("new"))
        assert sum(name.startswith("old") for name in told[last_new:]) > 100


async def test_where_only_numbers_moved_few_are_written_a_second_and_who_has_other_news_comes_first():
    async with running() as rig:
        rig.world.adds(*[pod(f"old{i}", memory=5000) for i in range(300)])
        await rig.passes(70)
        assert patches(rig) == 300
        rig.world.scheduler.nodes.changed(node("n1", memory=1001, version="2"))
        await rig.passes(10)
        assert 90 <= patches(rig) - 300 <= 10 * NUMBERS_PER_S + 20
        rig.world.adds(*[pod(f"new{i}", memory=5000) for i in range(20)])
        await rig.passes(2)
        assert all("1001" in told_text(rig, f"new{i}") for i in range(20))
        await rig.passes(30)
        assert all("1001" in told_text(rig, f"old{i}") for i in range(300))
        assert patches(rig) == 620


async def test_where_the_api_server_is_slow_numbers_leave_somebody_free_for_who_was_told_nothing():
    async with running() as rig:
        rig.world.adds(*[pod(f"old{i}", memory=5000) for i in range(100)])
        await rig.passes(70)
        rig.calls.delay_s = 5.0
        rig.world.scheduler.nodes.changed(node("n1", memory=1001, version="2"))
        await rig.passes(12)
        rig.world.shows(pod("new", memory=5000))
        await rig.passes(1)
        assert any("/new/" in path for path, _ in rig.calls.of("patch"))


async def test_a_pod_in_line_for_its_numbers_is_told_other_news_without_waiting_for_its_turn():
    async with running() as rig:
        rig.world.adds(*[pod(f"p{i}", memory=5000) for i in range(300)])
        await rig.passes(70)
        rig.world.scheduler.nodes.changed(node("n1", memory=1001, version="2"))
        await rig.passes(5)
        rig.world.scheduler.nodes.changed(node("n1", memory=1001, version="3", unschedulable=True))
        await rig.passes(10)
        assert all("cordoned" in told_text(rig, f"p{i}") for i in range(300))
        before = patches(rig)
        await rig.passes(40)
        assert patches(rig) == before


async def test_a_cordon_that_flaps_does_not_have_every_waiting_pod_written_each_time():
    async with running() as rig:
        rig.world.adds(*[pod(f"p{i}", memory=5000) for i in range(20)])
        for at in range(200):
            await rig.passes(6, 0.5)
            rig.world.scheduler.nodes.changed(node("n1", memory=1000, version=f"{at + 2}", unschedulable=at % 2 == 0))
        assert patches(rig) <= 20 * 13
        # What stands in the end is what is true, within five minutes.
        rig.world.scheduler.nodes.changed(node("n1", memory=1000, version="999", unschedulable=True))
        await rig.passes(320, 0.5)
        assert all("cordoned" in told_text(rig, f"p{i}") for i in range(20))


async def test_a_text_that_was_written_again_and_again_has_the_next_one_wait_no_longer():
    async with running() as rig:
        uid = rig.world.shows(pod("p", memory=5000)).uid
        await rig.passes(2)
        text = told_text(rig, "p")
        for _ in range(8):  # as each fence does
            rig.world.scheduler.condition_written(uid, text, None, "", "")
            await rig.passes(0.5, 0.5)
        rig.world.scheduler.nodes.changed(node("n1", memory=1000, version="2", unschedulable=True))
        await rig.passes(2)
        assert "cordoned" in told_text(rig, "p")


async def test_a_pod_that_its_user_changes_is_told_at_once_however_often_it_was_told_before():
    async with running() as rig:
        rig.world.shows(pod("p", memory=5000))
        for at in range(50):
            await rig.passes(6, 0.5)
            rig.world.scheduler.nodes.changed(node("n1", memory=1000, version=f"{at + 2}", unschedulable=at % 2 == 0))
        before, rig.world.version = patches(rig), 5000  # beyond those that the conditions made
        rig.world.shows(rig.world.seen("p"), annotations={"nvidia.com/use-gputype": "A100"})
        await rig.passes(2)
        assert patches(rig) == before + 1


async def test_a_pod_that_changes_while_it_is_told_is_told_what_is_true_then():
    async with running() as rig:
        rig.calls.delay_s = 1.0
        rig.world.shows(pod("p", memory=5000))
        await rig.passes(0.5)
        rig.calls.fails("patch", conflict())
        rig.world.scheduler.nodes.changed(node("n1", memory=1000, version="2", unschedulable=True))
        await rig.passes(20)
        assert "cordoned" in told_text(rig, "p")
        assert patches(rig) <= 4


async def test_a_pod_that_is_told_something_while_it_stands_in_line_is_written_once_and_looked_at_again():
    async with running() as rig:
        rig.calls.delay_s = 10.0
        # As many as are written at once: who comes next stands in line.
        rig.world.adds(*[pod(f"p{i}", memory=5000) for i in range(4)])
        await rig.passes(2)
        uid = rig.world.shows(pod("p", memory=5000)).uid
        await rig.passes(2)
        rig.world.scheduler.condition_written(uid, "told with its Binding", None, "", "")
        rig.world.scheduler.cluster.unreported[uid] = None
        await rig.passes(8)
        written = [path for path, _ in rig.calls.of("patch") if "/p/" in path]
        assert len(written) == 1
        rig.world.scheduler.nodes.changed(node("n1", memory=1000, version="2", unschedulable=True))
        await rig.passes(30)
        assert "cordoned" in told_text(rig, "p")
        assert len([path for path, _ in rig.calls.of("patch") if "/p/" in path]) == 2


async def test_a_pod_that_is_put_in_line_while_it_is_looked_at_is_written_once():
    rig = Rig(node("n1", memory=1000))
    rig.calls.delay_s = 10.0
    uid = rig.world.shows(pod("p", memory=5000)).uid
    wait = Wait(Cause.UNSCHEDULABLE, "nothing is free")
    conditions = Conditions(
        rig.world.scheduler,
        rig.calls,
        rig.inbox,
        rig.recorder,
        rig.metrics,
        what=lambda _: Saying(wait, WaitReasons(wait)),
        clock=rig.now_s,
        wall=rig.now_s,
    )
    rig.world.scheduler.condition_written(uid, "something else", None, "", "")
    # So many that others have their turn when it is this pod's.
    for i in range(255):
        conditions.put(PodUid(f"gone-{i}"))
    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(conditions.run())
        for _ in range(20):
            conditions.put(uid)
            await asyncio.sleep(0)
        assert patches(rig) == 1
        await rig.passes(15)
        assert told_text(rig, "p").endswith("nothing is free")
        writing.cancel()


async def test_a_pod_that_goes_while_it_is_to_be_told_is_told_nothing_more():
    async with running() as rig:
        rig.calls.fails("patch", *[forbidden()] * 9)
        rig.world.adds(*[pod(f"p{i}", memory=5000) for i in range(9)])
        await rig.passes(0.1)
        for i in range(9):
            rig.world.gone(f"p{i}")
        before = patches(rig)
        await rig.passes(600, 1.0)
        assert patches(rig) == before


async def test_a_failed_write_that_is_no_longer_needed_leaves_nothing_behind():
    async with running() as rig:
        rig.world.shows(pod("p", memory=5000))
        await rig.passes(1)
        before = told_text(rig, "p")
        rig.calls.fails("patch", *[conflict()] * 3)
        rig.world.scheduler.nodes.changed(node("n1", memory=1000, version="2", unschedulable=True))
        await rig.passes(7)
        rig.world.scheduler.nodes.changed(node("n1", memory=1000, version="3"))
        await rig.passes(20)
        assert (told_text(rig, "p"), rig.calls.failures["patch"]) == (before, [])
        rig.world.gone("p")
        await rig.passes(400, 1.0)
        assert rig.teller._conditions._failures == {}


def member(name, **fields):
    return pod(name, annotations={"scheduling.k8s.io/group-name": "g", MIN_MEMBER: "3"}, memory=100, **fields)


async def test_members_whose_fellows_come_within_a_moment_are_told_nothing_and_written_nothing():
    async with running() as rig:
        rig.world.scheduler.cluster.groups.served[GroupKind.VOLCANO] = False
        for i in range(3):
            rig.world.shows(member(f"m{i}"))
            await rig.passes(0.05, 0.02)
        await rig.passes(5)
        assert patches(rig) == 0


async def test_a_member_whose_fellows_do_not_come_is_told_within_a_second():
    async with running() as rig:
        rig.world.scheduler.cluster.groups.served[GroupKind.VOLCANO] = False
        rig.world.shows(member("m0"))
        await rig.passes(1)
        assert "until 3 members" in told_text(rig, "m0")
