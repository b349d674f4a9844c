"""Units that were refused: why, in words, by which reason; what has them tried again, and what does not."""

import asyncio
from functools import partial
from itertools import count

import pytest

from controller.actions import Preempt
from controller.metrics import Metrics
from controller.reporting.answers import answer
from controller.reporting.status import StatusWriter
from core.groups import GroupPhase, GroupSpec, GroupStatus, QueueSpec
from core.model import GroupKey, GroupKind, Requirement
from core.placing import gang
from core.placing.gang import Together
from core.waiting import Cause
from core.wire.policies import DisruptionBudget
from tests.support.worlds.telling import Rig
from tests.support.worlds.world import NUMBER, World, node, pod

GROUP, TASK = "scheduling.k8s.io/group-name", "volcano.sh/task-spec"


def spec(least, name="g", **fields):
    key = GroupKey(GroupKind.VOLCANO, "default", name)
    return GroupSpec(key=key, uid=f"uid-{name}", resource_version="1", min_member=least, **fields)


def members(count, group="g", **fields):
    made = {"memory": 10_000, "annotations": {GROUP: group}, **fields}
    return [pod(f"{group}{at}", **made) for at in range(count)]


def holding(name, where, card=0):
    ids = {"volcano.sh/vgpu-ids-new": f"{where}-{card},NVIDIA,10000,0:"}
    return pod(name, memory=10_000, node_name=where, annotations=ids, started=True)


def placed(made, *names):
    return [name for name in names if made.ledger.node_of(made.seen(name).uid)]


def tries(monkeypatch):
    """Count how often a gang is tried."""
    found = []
    place = gang.place

    def counted(*args):
        found.append(1)
        return place(*args)

    monkeypatch.setattr(gang, "place", counted)
    return found


async def told(*nodes, groups, pods, **settings):
    """What the condition of the last pod says, and its reason; and what /v1/explain answers."""
    rig = Rig(*nodes, **settings)
    rig.world.groups_are(*groups, queues=[QueueSpec(name="default")])
    rig.world.adds(*pods)
    async with asyncio.TaskGroup() as tasks:
        began = [tasks.create_task(rig.teller.run()), tasks.create_task(rig.recorder.run())]
        await rig.passes(10.0)
        key = pods[-1].key
        full = await answer(
            rig.world.scheduler, rig.inbox, rig.teller.explain, key, explain_unit=rig.teller.explain_unit
        )
        for one in began:
            one.cancel()
    bodies = [body for path, body in rig.calls.of("patch") if pods[-1].name in path]
    condition = bodies[-1]["status"]["conditions"][0]
    return rig.world, condition["reason"], condition["message"], full, len(bodies)


async def told_of_three(*pods):
    """The same of an admitted Volcano group of three, beside a node with two cards."""
    admitted = GroupStatus(phase=GroupPhase.INQUEUE, written=True)
    groups, both = [spec(3, status=admitted)], ("cardshare", "volcano")
    return await told(node("n0", cards=2), groups=groups, pods=pods, scheduler_names=both)


@pytest.mark.looptime
async def test_a_gang_for_which_new_nodes_would_make_room_is_unschedulable_and_told_why_and_what_would_help():
    made, reason, text, full, writes = await told_of_three(holding("x", "n0"), *members(3))
    assert reason == "Unschedulable"
    assert text.startswith("CS501 waits because 1 of the 3 members of its group that must start together fit now")
    assert "For one more: 0/1 nodes are available: 1 too little free memory on every card. Nearest: n0" in text
    assert "Free capacity for 2 more, reduce what each asks for, or set the group's minMember to 1." in text
    assert text.endswith("1 new node with 2 x T4 would take those that do not fit.")
    assert full["code"] == "CS501"
    assert "For one more member: No node fits (1 checked)" in full["text"]
    assert writes == 1
    judged = made.scheduler.cluster.groups.judged(spec(3).key)
    assert judged is not None
    assert "1 new node with 2 x T4" in judged[2].why


@pytest.mark.looptime
async def test_a_gang_that_no_empty_node_takes_is_not_told_to_free_capacity():
    _, _, text, _, _ = await told_of_three(*members(3, memory=20_000))
    assert text.endswith("Ask for at most 10000 MiB of memory.")


@pytest.mark.looptime
async def test_a_gang_of_which_one_member_fits_no_kind_of_node_is_not_unschedulable():
    large = pod("g9", memory=20_000, annotations={GROUP: "g"})
    _, reason, text, *_ = await told(node("n0"), groups=[spec(2)], pods=[*members(1), large])
    assert reason == "WaitingForGroup"
    assert "Not even an empty node of this cluster could take it" in text
    assert text.endswith(
        "Ask for at most 10000 MiB of memory; it would then wait for capacity. Or set the group's minMember to 1."
    )
    assert "New node" not in text


@pytest.mark.looptime
async def test_a_gang_whose_queue_could_not_take_all_of_it_is_not_unschedulable():
    rig = Rig(node("n0", cards=1))
    rig.world.groups_are(spec(3, queue="q"), queues=[QueueSpec(name="q", capability={NUMBER: 2})])
    rig.world.adds(*members(3))
    rig.world.plan()
    wait = rig.world.wait("g0")
    assert wait.cause is Cause.WAITING_FOR_QUEUE
    assert f"3 {NUMBER} requested by the pods that start together, 2 of 2 left" in wait.text


def test_many_units_that_ask_the_same_are_tried_once(monkeypatch):
    made = World(node("n0", cards=2))
    found = tries(monkeypatch)
    made.groups_are(*[spec(3, f"g{at}-") for at in range(20)])
    for at in range(20):
        made.adds(*members(3, f"g{at}-"))
    made.plan()
    assert len(found) == 1
    assert len([one for one in made.scheduler.cluster.queue.refused_asks() if isinstance(one, Together)]) == 1


def test_a_unit_is_not_tried_where_nothing_that_opened_could_complete_it(monkeypatch):
    made = World(*[node(f"n{at}") for at in range(4)], node("small", memory=1000))
    made.groups_are(spec(4))
    made.adds(holding("x", "n0"), holding("y", "n1"), pod("s", memory=1000))
    assert made.placed()["s"] == "small"
    made.adds(*members(4))
    made.plan()
    found = tries(monkeypatch)
    # Nothing that a member could use; then room for one of the two that are missing.
    made.gone("s")
    made.passes(10.0)
    made.gone("x")
    made.passes(10.0)
    assert found == []
    made.gone("y")
    made.passes(10.0)
    assert len(found) == 1
    assert placed(made, "g0", "g1", "g2", "g3") == ["g0", "g1", "g2", "g3"]


def test_when_one_is_placed_the_next_that_asks_the_same_is_tried():
    made = World(node("n0", cards=4))
    made.groups_are(spec(2, "a"), spec(2, "b"), spec(2, "c"))
    made.adds(*[holding(f"x{at}", "n0", at) for at in range(4)])
    for name in "abc":
        made.adds(*members(2, name))
    made.plan()
    for at in range(4):
        made.gone(f"x{at}")
    made.passes(10.0)
    assert placed(made, "a0", "a1", "b0", "b1", "c0", "c1") == ["a0", "a1", "b0", "b1"]


def test_what_woke_a_unit_that_leaves_wakes_the_next():
    made = World(node("n0", cards=2))
    made.groups_are(spec(2, "a"), spec(2, "b"))
    made.adds(holding("x", "n0"), holding("y", "n0", 1))
    made.adds(*members(2, "a"), *members(2, "b"))
    made.plan()
    made.gone("x")
    made.gone("y")
    made.now_s += 1.0
    made.scheduler.cycle.plan(made.now_s)  # one step: the first is woken, and not decided yet
    made.gone("a0")
    made.gone("a1")
    made.passes(10.0)
    assert placed(made, "b0", "b1") == ["b0", "b1"]


def test_a_gang_that_is_whole_by_a_member_that_another_bound_is_placed():
    made = World(node("n0", cards=2))
    made.groups_are(spec(2))
    made.adds(holding("x", "n0"))
    made.adds(*members(2))
    made.plan()
    assert placed(made, "g0", "g1") == []
    ids = {GROUP: "g", "volcano.sh/vgpu-ids-new": "n9-0,NVIDIA,10000,0:"}
    made.shows(made.seen("g0"), node_name="n9", annotations=ids)
    made.plan()
    assert placed(made, "g1") == ["g1"]


def test_pods_of_a_full_queue_are_asked_about_when_something_of_it_frees_and_not_otherwise():
    made = World(node("n0", cards=8))
    made.groups_are(spec(1, queue="q"), queues=[QueueSpec(name="q", capability={NUMBER: 1})])
    made.adds(*[pod(f"p{at}", annotations={GROUP: "g"}) for at in range(20)], pod("other"))
    made.plan()
    decided = made.metrics.decisions._value.get()
    made.gone("other")
    made.passes(10.0)
    assert made.metrics.decisions._value.get() == decided
    made.gone("p0")
    made.passes(10.0)
    assert placed(made, *[f"p{at}" for at in range(1, 20)]) == ["p1"]
    assert made.metrics.decisions._value.get() == decided + 2


def test_who_waits_for_a_queue_that_has_room_while_no_node_has_is_woken_by_a_node():
    made = World(node("n0", cards=1))
    made.groups_are(spec(1, queue="q"), queues=[QueueSpec(name="q", capability={NUMBER: 1})])
    made.adds(pod("runs", annotations={GROUP: "g"}, limits={NUMBER: "1", "volcano.sh/vgpu-memory": "1"}))
    made.plan()
    made.adds(*[pod(f"p{at}", memory=9_999, annotations={GROUP: "g"}) for at in range(3)])
    made.plan()
    assert {made.wait(f"p{at}").cause for at in range(3)} == {Cause.WAITING_FOR_QUEUE}
    made.adds(pod("fills", memory=9_999))
    made.plan()
    made.gone("runs")
    made.passes(10.0)
    assert placed(made, "p0", "p1", "p2") == []
    made.gone("fills")
    made.passes(10.0)
    assert placed(made, "p0", "p1", "p2") == ["p0"]


def test_a_queue_above_that_is_given_more_lets_in_who_waits_below():
    made = World(node("n0", cards=4))
    queues = [QueueSpec(name="top", capability={NUMBER: 1}), QueueSpec(name="q", parent="top")]
    made.groups_are(spec(1, queue="q"), queues=queues)
    made.adds(*[pod(f"p{at}", annotations={GROUP: "g"}) for at in range(2)])
    made.plan()
    assert placed(made, "p0", "p1") == ["p0"]
    made.scheduler.cluster.groups.queue_changed(QueueSpec(name="top", capability={NUMBER: 2}, resource_version="2"))
    made.passes(1.0)
    assert placed(made, "p0", "p1") == ["p0", "p1"]


@pytest.mark.looptime
async def test_who_has_nodes_kept_free_and_who_may_not_go_there_are_told_so():
    rig = Rig(node("n0", cards=3), keep_free_after_s=5.0, keep_free_for_s=30.0)
    rig.world.adds(holding("x", "n0"), pod("large", memory=10_000, number=3))
    async with asyncio.TaskGroup() as tasks:
        began = [tasks.create_task(rig.teller.run()), tasks.create_task(rig.recorder.run())]
        await rig.passes(1.0)
        rig.world.adds(pod("small", memory=10_000, created_s=2_000_000_000))
        await rig.passes(10.0)
        assert placed(rig.world, "large", "small") == ["small"]
        assert rig.said()[-1].endswith("Kept free for the first pod that waits for this, for at most 30 s: n0.")
        rig.world.adds(pod("second", memory=10_000, created_s=2_000_000_000))
        await rig.passes(2.0)
        assert "1 kept free for others that wait longer" in rig.said()[-1]
        await rig.passes(27.0)
        assert placed(rig.world, "large", "second") == ["second"]
        assert rig.world.metrics.kept_free.labels("in_vain")._value.get() == 1
        for one in began:
            one.cancel()


@pytest.mark.looptime
async def test_who_waits_because_a_pod_may_not_be_evicted_is_told_so_until_it_may_be():
    rig = Rig(node("n0"), preemption=True, preemption_delay_s=0.0)
    rig.world.has_no_kind()
    budget = DisruptionBudget("default", "b", (Requirement(key="app", operator="In", values=("x",)),))
    rig.world.scheduler.cluster.occupants.budgets_replaced([budget])
    rig.world.adds(holding("low", "n0")._replace(labels={"app": "x"}), pod("high", memory=10_000, priority=9))
    rig.world.serves("low")
    preempting = rig.world.scheduler.preempting
    async with asyncio.TaskGroup() as tasks:
        began = [tasks.create_task(rig.teller.run()), tasks.create_task(rig.recorder.run())]
        await rig.passes(603.0)
        why = "To evict pods of a lower priority would help, but a disruption budget forbids it: b allows 0 of 1 "
        assert [text for text in rig.said() if "being evicted" in text] == []
        assert [text for text in rig.said() if why in text] == rig.said()[-1:]
        rig.world.scheduler.cluster.occupants.budget_changed(budget._replace(allowed=1))
        await rig.passes(61.0)
        (action,) = rig.world.actions(Preempt)
        preempting.asked(action)
        rig.world.shows(rig.world.seen("low"), deleting=True)
        await rig.passes(6.0)
        assert rig.said()[-1].startswith("CS515 1 pod of a lower priority is being evicted from node n0")
        for one in began:
            one.cancel()


@pytest.mark.looptime
async def test_the_loop_is_given_back_while_each_kind_of_member_is_looked_for():
    nodes = 64
    rig = Rig(*(node(f"n{at}", memory=1000) for at in range(nodes)))
    rig.world.groups_are(spec(3), queues=[QueueSpec(name="default")])
    rig.world.adds(*members(3), *(pod(f"other{at}", memory=5000, annotations={GROUP: "g"}) for at in range(3)))
    rig.world.plan()
    asks = rig.world.entry("g0").parked
    assert isinstance(asks, Together)
    # Every look at the clock is 10 ms later: the loop is given back as often as it can be.
    teller = StatusWriter(
        rig.world.scheduler, rig.calls, rig.inbox, rig.recorder, Metrics(), clock=partial(next, count(0.0, 0.01))
    )
    turns = 0
    explaining = asyncio.create_task(teller.explain_unit(asks))
    while not explaining.done():
        await asyncio.sleep(0)
        turns += 1
    wait, refused, worked_s = await explaining
    assert wait is not None
    assert refused is not None
    assert refused.nodes == nodes
    # Every sixteen nodes, for both kinds.
    assert turns >= 2 * nodes // 16
    assert worked_s > 0
