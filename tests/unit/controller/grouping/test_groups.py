import json
from dataclasses import replace

import pytest

from controller.grouping.enqueue import Enqueue
from controller.grouping.groups import Groups
from core.groups import GroupPhase, GroupSpec, GroupStatus, QueueSpec
from core.model import GroupKey, GroupKind, Phase, PodUid
from core.settings import GroupSettings
from core.waiting import Cause
from core.wire.groups import salvage_group
from tests.support.devices import ascend
from tests.support.worlds.world import World, node, pod

OURS = ("cardshare", "volcano")
IN_G = {"scheduling.k8s.io/group-name": "g"}
KEY = GroupKey(GroupKind.VOLCANO, "default", "g")
NATIVE = GroupKey(GroupKind.NATIVE, "default", "g")
DEFAULT = QueueSpec(name="default")


def group(key=KEY, phase="", version="10", **fields):
    status = GroupStatus(phase=GroupPhase(phase), written=True) if phase else GroupStatus()
    return GroupSpec(**({"key": key, "uid": "g1", "resource_version": version, "status": status} | fields))


def ours(*nodes, **settings):
    return World(*(nodes or [node("n1")]), scheduler_names=OURS, **settings)


def member(name, **fields):
    return pod(name, **({"annotations": IN_G, "scheduler_name": "volcano"} | fields))


def status(world, key=KEY):
    found = world.scheduler.cluster.groups.judged(key)
    assert found is not None
    _, tally, verdict = found
    return verdict.admitted, verdict.why, {state.value: count for state, count in tally.counts.items() if count}


def test_a_pod_waits_until_it_is_known_whether_its_group_is_there():
    world = ours()
    world.adds(member("p"))
    assert world.binds() == []
    assert world.wait("p").cause is Cause.WAITING_FOR_GROUP
    world.groups_are(queues=[DEFAULT])
    assert world.wait("p").cause is Cause.GROUP_NOT_FOUND
    assert "waits for 'PodGroup default/g', which does not exist" in world.wait("p").text


@pytest.mark.parametrize("order", ["group first", "pod first"])
def test_a_group_is_admitted_and_its_pod_is_placed_in_whichever_order_they_come(order):
    world = ours()
    if order == "pod first":
        world.adds(member("p"))
        world.groups_are(queues=[DEFAULT])
        world.plan()
        world.scheduler.cluster.groups.changed(group())
    else:
        world.groups_are(group(), queues=[DEFAULT])
        world.adds(member("p"))
    world.passes(1.0)
    assert [bind.pod.name for bind in world.binds()] == ["p"]
    assert status(world) == (True, "", {"waiting": 1})


def test_a_kind_that_is_not_installed_leaves_it_to_the_pods_to_say_how_many_they_are():
    world = ours()
    world.has_no_kind()
    world.adds(member("p"), member("q", annotations={**IN_G, "scheduling.volcano.sh/group-min-member": "2"}))
    implied = world.scheduler.cluster.groups.spec(KEY)
    assert implied is not None
    assert (implied.uid, implied.min_member) == ("", 2)
    assert world.scheduler.cluster.groups.is_admitted(KEY)


def test_a_kind_that_is_not_installed_is_named_where_nobody_says_how_many():
    world = ours()
    world.has_no_kind()
    world.adds(member("p"))
    assert world.binds() == []
    assert world.wait("p").cause is Cause.GROUP_NOT_FOUND
    assert "scheduling.volcano.sh/group-min-member" in world.wait("p").text


def test_members_are_placed_once_one_of_them_says_how_many_they_are():
    """Also those that came before it, such as the workers of a launcher that alone has the annotation."""
    world = ours()
    world.has_no_kind()
    world.adds(member("p"), member("q"))
    assert world.binds() == []
    world.adds(member("r", annotations={**IN_G, "scheduling.volcano.sh/group-min-member": "3"}))
    assert sum(world.ledger.node_of(one.uid) is not None for one in world.pods.values()) == 0
    world.plan()
    assert sum(world.ledger.node_of(one.uid) is not None for one in world.pods.values()) == 3


def test_members_are_told_once_none_of_them_says_any_more_how_many_they_are():
    world = ours()
    world.has_no_kind()
    world.adds(member("p"), member("q", annotations={**IN_G, "scheduling.volcano.sh/group-min-member": "3"}))
    assert world.binds() == []
    assert world.wait("p").cause is Cause.WAITING_FOR_GROUP
    world.gone("q")
    assert world.binds() == []
    assert world.wait("p").cause is Cause.GROUP_NOT_FOUND


def test_a_kind_that_is_installed_later_is_seen():
    world = ours()
    world.has_no_kind()
    world.adds(member("p"))
    world.groups_are(group(), queues=[DEFAULT])
    world.passes(1.0)
    assert len(world.binds()) == 1


@pytest.mark.parametrize(
    ("queues", "cause", "words"),
    [
        ([], Cause.QUEUE_NOT_OPEN, "queue q does not exist"),
        ([QueueSpec(name="q", state="Closing")], Cause.QUEUE_NOT_OPEN, "queue q is Closing"),
        ([QueueSpec(name="q", capability={"cpu": 1000})], Cause.WAITING_FOR_QUEUE, "2 cpu requested, 1 of 1 left"),
    ],
)
def test_a_group_that_its_queue_does_not_take_says_why(queues, cause, words):
    world = ours()
    world.groups_are(group(queue="q", min_resources={"cpu": 2000}), queues=queues)
    world.adds(member("p"))
    world.passes(1.0)
    assert world.binds() == []
    admitted, why, _ = status(world)
    assert not admitted
    assert words in why
    assert world.wait("p").cause is cause
    assert words in world.wait("p").text


def test_one_group_blocks_no_other_and_a_queue_that_opens_lets_its_groups_in():
    world = ours()
    other = GroupKey(GroupKind.VOLCANO, "default", "other")
    closed = QueueSpec(name="q", state="Closed")
    world.groups_are(group(queue="q"), group(other, uid="o1"), queues=[closed, DEFAULT])
    world.passes(1.0)
    assert (status(world)[0], status(world, other)[0]) == (False, True)
    world.scheduler.cluster.groups.queue_changed(replace(closed, state="Open"))
    world.passes(1.0)
    assert status(world)[0]


def test_what_an_admitted_group_asks_is_taken_from_its_queue_until_it_is_gone():
    world = ours()
    other = GroupKey(GroupKind.VOLCANO, "default", "other")
    asked = {"queue": "q", "min_resources": {"cpu": 1000}}
    q = QueueSpec(name="q", capability={"cpu": 1500})
    world.groups_are(group(created_s=1, **asked), group(other, uid="o1", created_s=2, **asked), queues=[q])
    world.passes(1.0)
    assert (status(world)[0], status(world, other)[0]) == (True, False)
    world.scheduler.cluster.groups.gone(KEY)
    world.passes(1.0)
    assert status(world, other)[0]


def test_a_cluster_that_is_full_admits_when_something_has_ended():
    world = ours(node("n1", cards=4))
    blocker = world.shows(pod("old", node_name="n1", containers=pod("x").containers), resource_version="1")
    ledger = world.ledger
    free = 64_000 * 120 // 100 - ledger.states["n1"].used.get("cpu", 0)
    world.groups_are(group(min_resources={"cpu": free + 1}), queues=[DEFAULT])
    world.passes(1.0)
    assert "cpu requested" in status(world)[1]
    assert blocker.node_name == "n1"


def hami_node(*cards):
    """A node of HAMi's plugin, which advertises neither memory nor cores: a card of each size in MiB."""
    register = [
        {"id": f"G{at}", "count": 10, "devmem": mib, "devcore": 100, "type": "NVIDIA A100", "health": True}
        for at, mib in enumerate(cards)
    ]
    annotations = {"hami.io/node-nvidia-register": json.dumps(register)}
    have = {"nvidia.com/gpu": str(10 * len(cards)), "cpu": "64", "pods": "110"}
    return node("h1", annotations=annotations, allocatable=have, capacity=have)


@pytest.mark.parametrize(
    ("nodes", "asked", "words"),
    [
        ([hami_node(40_000, 40_000)], {"nvidia.com/gpumem": 80_000, "nvidia.com/gpucores": 200}, ""),
        ([hami_node(40_000, 40_000)], {"nvidia.com/gpumem-percentage": 200}, ""),
        ([hami_node(40_000)], {"nvidia.com/gpumem": 40_001}, "40001 nvidia.com/gpumem requested, 40000 in total"),
        ([hami_node(40_000)], {"nvidia.com/gpucores": 101}, "101 nvidia.com/gpucores requested, 100 in total"),
        ([node("n1", cards=2)], {"volcano.sh/vgpu-memory-percentage": 200}, ""),
        ([ascend.node("Ascend310P", ("U0", "U1"))], {"huawei.com/Ascend310P-memory": 2 * 21_527}, ""),
        ([ascend.node("Ascend910B2", soft=True)], {"huawei.com/Ascend910B2-core": 100}, ""),
        ([ascend.node("Ascend910B2", soft=True)], {"huawei.com/Ascend910B2-core": 101}, "101 huawei.com/"),
        (
            [hami_node(40_000)],
            {"huawei.com/Ascend310P-memory": 1},
            "1 huawei.com/Ascend310P-memory requested, 0 in total",
        ),
    ],
)
def test_a_group_is_admitted_by_what_cards_have_if_nodes_advertise_no_such_resource(nodes, asked, words):
    world = ours(*nodes)
    world.groups_are(group(min_resources=asked), queues=[DEFAULT])
    world.passes(1.0)
    admitted, why, _ = status(world)
    assert (admitted, words in why) == (not words, True)


def test_checking_many_groups_takes_a_fifth_of_the_time():
    world = ours()
    world.groups_are(group(queue="q", min_resources={"cpu": 2000}), queues=[QueueSpec(name="q", capability={"cpu": 1})])
    groups, ticks = world.scheduler.cluster.groups, iter((100.0, 100.2))
    enqueue = Enqueue(groups, world.ledger, lambda: next(ticks))
    enqueue.look(100.0)
    groups.queue_changed(QueueSpec(name="q", capability={"cpu": 2}))
    assert enqueue.next_s() == pytest.approx(101.0)


@pytest.mark.parametrize("phase", ["Inqueue", "Running", "Unknown", "Completed"])
def test_a_group_that_was_admitted_before_this_process_began_is_admitted(phase):
    world = ours()
    world.groups_are(group(phase=phase, min_resources={"cpu": 10**9}), queues=[DEFAULT])
    assert world.scheduler.cluster.groups.is_admitted(KEY)


def test_a_group_made_anew_under_its_old_name_starts_afresh():
    world = ours()
    world.groups_are(group(phase="Running"), queues=[QueueSpec(name="default", state="Closed")])
    assert world.scheduler.cluster.groups.is_admitted(KEY)
    world.scheduler.cluster.groups.changed(group(uid="g2", version="11"))
    assert not world.scheduler.cluster.groups.is_admitted(KEY)


def test_what_is_told_late_is_nothing():
    world = ours()
    world.groups_are(group(version="12", min_member=3), queues=[DEFAULT])
    world.scheduler.cluster.groups.changed(group(version="9", min_member=1))
    found = world.scheduler.cluster.groups.spec(KEY)
    assert found is not None
    assert found.min_member == 3


def test_what_is_not_supported_is_refused_by_name():
    world = ours()
    world.groups_are(group(problems=("spec.subGroupPolicy with one name twice",)), queues=[DEFAULT])
    world.adds(member("p"))
    world.passes(1.0)
    assert world.binds() == []
    assert world.wait("p").cause is Cause.GROUP_NOT_SUPPORTED
    admitted, why, _ = status(world)
    assert not admitted
    assert "spec.subGroupPolicy with one name twice" in why


def test_a_group_that_cannot_be_read_names_the_field_and_what_to_write():
    world = ours()
    text = b'{"metadata":{"name":"g","namespace":"default"},"spec":{"minResources":{"cpu":"lots"}}}'
    spec = salvage_group(GroupKind.VOLCANO, text)
    world.groups_are(spec, queues=[DEFAULT])
    world.adds(member("p"))
    world.passes(1.0)
    told = "cannot be read: spec.minResources.cpu: found 'lots'; write"
    assert world.wait("p").cause is Cause.GROUP_NOT_SUPPORTED
    assert told in world.wait("p").text
    assert told in status(world)[1]


def test_members_are_counted_where_they_stand_and_those_on_nodes_hold_what_they_ask():
    world = ours()
    world.groups_are(group(min_member=3), queues=[DEFAULT])
    world.adds(member("w"), member("r", node_name="n1", phase=Phase.RUNNING), member("s", phase=Phase.SUCCEEDED))
    assert status(world)[2] == {"waiting": 1, "running": 1, "succeeded": 1}
    held = world.scheduler.cluster.budgets.allocated()["default"]
    assert held["pods"] == 1
    assert held["volcano.sh/vgpu-number"] == 1
    world.gone("r")
    world.gone("s")
    assert status(world)[2] == {"waiting": 1}
    assert world.scheduler.cluster.budgets.allocated()["default"] == {}


def test_a_queue_holds_what_its_children_do():
    world = ours()
    queues = [QueueSpec(name="root"), QueueSpec(name="team", parent="root"), QueueSpec(name="a", parent="team")]
    world.groups_are(group(queue="a"), queues=queues)
    world.adds(member("r", node_name="n1", phase=Phase.RUNNING))
    assert {name: held.get("pods") for name, held in world.scheduler.cluster.budgets.allocated().items()} == {
        "root": 1,
        "team": 1,
        "a": 1,
    }


def test_queues_that_are_each_others_parents_end():
    world = ours()
    queues = [QueueSpec(name="a", parent="b"), QueueSpec(name="b", parent="a")]
    world.groups_are(group(queue="a"), queues=queues)
    world.adds(member("r", node_name="n1"))
    assert world.scheduler.cluster.budgets.allocated()["b"]["pods"] == 1


def test_a_members_group_can_be_named_later():
    world = ours()
    world.groups_are(group(), queues=[DEFAULT])
    shown = world.shows(member("p", annotations={}, node_name="n1"))
    assert status(world)[2] == {}
    world.shows(shown, annotations=IN_G)
    assert status(world)[2] == {"bound": 1}


def test_a_member_that_was_placed_before_it_named_its_group_counts_for_those_that_wait():
    world = ours()
    world.groups_are(group(min_member=2), queues=[DEFAULT])
    world.adds(member("early"))
    assert world.binds() == []
    late = world.shows(member("late", annotations={}))
    assert [one.pod.name for one in world.binds()] == ["late"]
    world.shows(late, annotations=IN_G)
    world.plan()
    early = world.scheduler.cluster.queue.get(PodUid("uid-early"))
    assert early is not None
    assert early.placement is not None


def test_groups_of_volcano_are_anothers_to_admit_while_its_name_is():
    world = World(node("n1"))
    world.groups_are(group(), queues=[])
    world.adds(member("p", scheduler_name="cardshare"))
    assert len(world.binds()) == 1
    assert world.scheduler.cluster.groups.judged(KEY) is None
    world.configures(scheduler_names=OURS)
    assert status(world)[0] is False


def test_without_the_action_enqueue_a_group_is_admitted_whatever_it_asks():
    world = ours(groups=GroupSettings(enqueue=False))
    world.groups_are(group(min_resources={"cpu": 10**9}), queues=[DEFAULT])
    world.passes(1.0)
    assert status(world)[0]


def test_without_the_plugin_gang_no_group_wants_its_members_together():
    world = ours(groups=GroupSettings(gang=False))
    world.groups_are(group(min_member=4, min_task_member={"w": 4}), queues=[DEFAULT])
    found = world.scheduler.cluster.groups.spec(KEY)
    assert found is not None
    assert (found.min_member, found.min_task_member) == (0, {})


def test_a_native_group_needs_no_admission_and_is_not_written_as_volcanos():
    world = World(node("n1"))
    world.groups_are(group(NATIVE, queue=""), kind=GroupKind.NATIVE)
    world.adds(pod("p", scheduling_group="g"))
    assert len(world.binds()) == 1
    assert world.scheduler.cluster.groups.judged(NATIVE) is not None


@pytest.mark.parametrize(("least", "words"), [(3, "Create 1 more"), (2, "0 of 2 that wait")])
def test_a_native_group_says_why_its_members_wait(least, words):
    world = World(node("n1"))
    world.groups_are(group(NATIVE, queue="", min_member=least), kind=GroupKind.NATIVE)
    world.adds(*(pod(name, memory=10**6, scheduling_group="g") for name in "pq"))
    world.passes(2.0)
    assert world.binds() == []
    admitted, why, _ = status(world, NATIVE)
    assert admitted
    assert words in why


def test_groups_are_told_of_again_once_their_kind_is_served_in_another_version():
    world = World(node("n1"))
    groups, spec = world.scheduler.cluster.groups, group(NATIVE, queue="")
    for api, told in (("/apis/a/v1", True), ("/apis/a/v1", False), ("/apis/a/v2", True), ("", False)):
        list(groups.replaced(GroupKind.NATIVE, [spec], served=bool(api), api=api))
        assert (NATIVE in groups.unreported) is told
        groups.unreported.clear()
    assert groups.apis[GroupKind.NATIVE] == "/apis/a/v2"


@pytest.mark.parametrize("left", ["one waits alone", "none waits"])
def test_a_group_whose_minimum_is_lowered_is_not_refused_any_more(left):
    world = ours(node("n1", memory=2000))
    world.groups_are(group(phase="Inqueue", min_member=2), queues=[DEFAULT])
    world.adds(member("a"), member("b"))
    world.placed()
    world.scheduler.cluster.groups.changed(group(phase="Running", min_member=4, version="11"))
    world.adds(member("c"), member("d"))
    world.passes(1.0)
    assert "2 of the 4 members" in status(world)[1]
    if left == "none waits":
        world.gone("c")
        world.gone("d")
    world.scheduler.cluster.groups.changed(group(phase="Unknown", min_member=2, version="12"))
    world.passes(1.0)
    assert status(world)[:2] == (True, "")
    assert (left == "none waits") or world.stage("c") == "refused"


def test_a_refusal_ends_with_the_last_member_that_waits():
    world = ours(node("n1", memory=1000))
    world.groups_are(group(phase="Inqueue", min_member=2), queues=[DEFAULT])
    world.adds(member("a"), member("b"))
    world.passes(1.0)
    assert "1 of the 2 members" in status(world)[1]
    world.gone("a")
    world.gone("b")
    world.passes(1.0)
    assert status(world)[1] == ""


def test_a_refusal_is_told_until_the_members_have_their_places():
    world = ours()
    world.groups_are(group(phase="Inqueue", min_member=2), queues=[DEFAULT])
    world.adds(member("p"))
    world.scheduler.cluster.groups.unreported.clear()
    world.scheduler.cluster.groups.refused(KEY, "1 of 2 members fits")
    assert list(world.scheduler.cluster.groups.unreported) == [KEY]
    assert status(world)[1] == "1 of 2 members fits"
    world.scheduler.cluster.groups.placed(KEY)
    assert status(world)[1] == ""


def test_why_members_waited_together_is_not_said_of_a_group_whose_pods_are_placed_one_by_one_by_now():
    world = ours()
    world.groups_are(group(phase="Inqueue", min_member=2), queues=[DEFAULT])
    world.adds(member("p", memory=10**6))
    world.scheduler.cluster.groups.refused(KEY, "1 of 2 members fits")
    assert status(world)[1] == "1 of 2 members fits"
    world.scheduler.cluster.groups.changed(group(phase="Inqueue", min_member=1, version="11"))
    assert status(world)[1] == ""


def test_why_a_single_pod_waited_is_not_said_of_the_one_that_replaces_it():
    world = ours()
    world.groups_are(group(phase="Inqueue", min_member=1), queues=[DEFAULT])
    world.adds(member("p", memory=10**6))
    world.scheduler.cluster.groups.refused_alone(KEY, "too little")
    assert status(world)[1] == "too little"
    world.shows(world.seen("p"), node_name="n1", phase=Phase.RUNNING)
    world.shows(world.seen("p"), phase=Phase.FAILED)
    world.adds(member("q"))
    assert status(world)[1] == ""


@pytest.mark.parametrize(("since", "cause"), [("gone", Cause.GROUP_NOT_FOUND), ("closed", Cause.QUEUE_NOT_OPEN)])
def test_a_member_that_backs_off_is_judged_by_its_group_as_it_is_by_then(since, cause):
    world = ours()
    world.groups_are(group(phase="Running"), queues=[DEFAULT])
    world.adds(member("p"))
    (bind,) = world.binds()
    world.scheduler.outcomes.refused(bind.pod.uid, bind.attempt, rest_s=60.0)
    assert world.stage("p") == "resting"
    if since == "gone":
        world.scheduler.cluster.groups.gone(KEY)
    else:
        world.scheduler.cluster.groups.queue_changed(replace(DEFAULT, state="Closed"))
    world.passes(61.0)
    assert world.binds() == []
    assert world.wait("p").cause is cause


def test_nothing_is_placed_out_of_a_queue_that_is_not_open_and_what_runs_goes_on():
    world = ours(node("n1"), node("n2"))
    world.groups_are(group(phase="Running"), queues=[QueueSpec(name="default", state="Closing")])
    world.adds(member("old", node_name="n1", phase=Phase.RUNNING), member("new"))
    world.passes(1.0)
    assert world.binds() == []
    assert world.wait("new").cause is Cause.QUEUE_NOT_OPEN
    assert "queue default is Closing" in world.wait("new").text
    world.scheduler.cluster.groups.queue_changed(DEFAULT)
    assert [bind.pod.name for bind in world.binds()] == ["new"]


def test_a_group_is_as_a_backup_of_etcd_has_it_although_a_newer_version_was_known():
    world = ours()
    world.groups_are(group(phase="Running", version="1000"), queues=[DEFAULT])
    world.scheduler.cluster.groups.unreported.clear()
    world.groups_are(group(version="900", queue="q"), queues=[DEFAULT])
    found = world.scheduler.cluster.groups.judged(KEY)
    assert found is not None
    assert (found[0].resource_version, found[0].queue) == ("900", "q")
    assert status(world)[0] is False
    world.scheduler.cluster.groups.queue_changed(QueueSpec(name="q"))
    world.passes(1.0)
    assert status(world)[0] is True
    assert KEY in world.scheduler.cluster.groups.unreported  # so that its Job may go on


def test_a_gang_that_has_its_places_is_bound_whole_though_its_queue_is_closed_meanwhile():
    """As in Volcano, whose bindings follow the decision without another look; half a gang would hold cards idle."""
    world = ours(node("n1", cards=4))
    world.groups_are(group(min_member=2), queues=[DEFAULT])
    world.adds(member("a"), member("b"))
    world.passes(1.0)
    (first,) = world.binds()
    assert (world.stage("a"), world.stage("b")) == ("binding", "turn")
    world.scheduler.cluster.groups.queue_changed(replace(DEFAULT, state="Closed"))
    world.adds(member("late"))
    world.accepts(first)
    world.serves(first.pod.name)
    world.passes(1.0)
    assert world.placed().keys() == {"a", "b"}
    assert world.wait("late").cause is Cause.QUEUE_NOT_OPEN


def test_a_group_whose_pods_have_their_places_is_admitted_whatever_its_queue_says():
    world = ours()
    world.groups_are(
        group(min_member=2, queue="q", min_resources={"cpu": 2000}), queues=[QueueSpec(name="q", state="Closed")]
    )
    world.adds(member("a", node_name="n1", phase=Phase.RUNNING), member("b", node_name="n1", phase=Phase.SUCCEEDED))
    world.passes(1.0)
    assert status(world)[0]


def test_a_member_that_asks_what_is_not_honoured_keeps_its_group_back_by_that_name():
    world = ours(node("n1"), node("n2"))
    world.groups_are(group(), queues=[DEFAULT])
    numa = {**IN_G, "volcano.sh/numa-topology-policy": "single-numa-node"}
    world.adds(member("a"), member("b", annotations=numa))
    world.passes(1.0)
    assert "b" not in [bind.pod.name for bind in world.binds()]
    assert world.wait("b").cause is Cause.GROUP_NOT_SUPPORTED
    assert "volcano.sh/numa-topology-policy: 'single-numa-node'" in world.wait("b").text
    world.shows(member("b", annotations={**numa, "volcano.sh/numa-topology-policy": "none"}))
    assert world.scheduler.cluster.groups.wait(KEY) is None


@pytest.mark.parametrize("how", ["it asks no more", "it is gone"])
def test_the_member_that_is_named_is_one_that_still_asks_what_is_not_honoured(how):
    world = ours()
    world.groups_are(group(phase="Inqueue"), queues=[DEFAULT])
    odd = {**IN_G, "volcano.sh/numa-topology-policy": "restricted"}
    world.adds(member("a", annotations=odd), member("b", annotations=odd), member("c"))
    world.passes(1.0)
    assert "pod a of" in world.wait("c").text
    if how == "it is gone":
        world.gone("a")
    else:
        world.shows(world.seen("a"), annotations=IN_G)
    assert "pod b of" in world.wait("c").text


@pytest.mark.parametrize("order", [1, -1], ids=["by name", "the last first"])
def test_members_are_seldom_read_again_while_all_of_them_ask_what_is_not_honoured_and_are_deleted(order):
    told = list[GroupKey]()
    groups = Groups(told.append, lambda _: None, GroupSettings())
    odd = {**IN_G, "volcano.sh/numa-topology-policy": "restricted"}
    pods = [member(f"p{at}", annotations=odd) for at in range(9)]
    for one in pods:
        groups.pod_changed(one)
    assert len(told) == 1
    for one in pods[::order]:
        groups.pod_gone(one.uid)
    assert len(told) <= 3


def test_a_member_behind_the_gate_that_only_volcanos_scheduler_lifts_keeps_its_group_back_by_that_name():
    world = ours(node("n1"), node("n2"))
    world.groups_are(group(), queues=[DEFAULT])
    gate = {**IN_G, "scheduling.volcano.sh/queue-allocation-gate": "true"}
    world.adds(member("a"), member("b", annotations=gate, gated=True))
    world.passes(1.0)
    assert not world.binds()
    assert world.wait("a").cause is Cause.GROUP_NOT_SUPPORTED
    assert 'scheduling.volcano.sh/queue-allocation-gate: "true"' in world.wait("a").text
    # Somebody has lifted it after all.
    world.shows(member("b", annotations=gate))
    assert world.scheduler.cluster.groups.wait(KEY) is None


def test_a_group_that_asks_less_is_asked_again():
    world = ours()
    q = QueueSpec(name="q", capability={"cpu": 1000})
    world.groups_are(group(queue="q", min_resources={"cpu": 2000}), queues=[q])
    world.passes(1.0)
    assert not status(world)[0]
    world.scheduler.cluster.groups.changed(group(version="11", queue="q", min_resources={"cpu": 1000}))
    world.passes(1.0)
    assert status(world)[0]
