"""A plan names its moves, keeps to who may move, and says why nothing helps."""

import re
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import yaml

from cli.apply import UnusablePlanError, id_of, plan_in
from core.catalog import standard_catalog
from core.groups import GroupSpec, SubGroups
from core.ledger import Ledger
from core.model import MEMBER_OF, NO_VOLUMES, GroupKey, GroupKind, NodeName, Phase, Pod, PodUid, PodVolumes, Requirement
from core.moving.search import Limits
from core.moving.units import unit_of, unit_of_group
from core.moving.who import Rights, Stays, crowd_of
from core.placing.decide import Shape, node_policy, placed_on, shape_of
from core.placing.gang import Unit
from core.port.cards import CardWish
from core.settings import Settings, Tables
from core.view.plan import Ground, plan_for_pods, plan_for_wish, still_helps
from core.waiting import Wait
from core.wire.policies import DisruptionBudget
from tests.support.worlds.world import node, pod

RING = GroupKey(GroupKind.VOLCANO, "default", "ring")
APP = (Requirement(key="app", operator="In", values=("x",)),)


def owned(name: str, owner: str = "ReplicaSet/r", **fields: Any) -> Pod:
    return pod(name, owner=owner, **fields)


def ground(*pods: tuple[str, Pod], limits: Limits | None = None, **rights: Any) -> Ground:
    """Two nodes of two cards with *pods* on the nodes that are named."""
    ledger, there = Ledger(standard_catalog(), Tables(), Settings()), []
    for name in ("a", "b"):
        ledger.set_node(node(name, cards=2))
    policy = node_policy(ledger.settings)
    for name, one in pods:
        shape = shape_of(one, ledger)
        assert isinstance(shape, Shape)
        placement = placed_on(ledger, policy, one, shape, NodeName(name))
        assert placement is not None
        ledger.reserve(placement)
        there.append(one._replace(node_name=name))
    return Ground(ledger, there, Rights(**({"schedulers": {"cardshare"}} | rights)), limits or Limits())


def wanting(where: Ground, *pods: Pod) -> Unit:
    unit = unit_of(pods, where.ledger)
    assert isinstance(unit, Unit)
    return unit


WHOLE_NODE = pod("train", number=2, memory=10_000)


def test_a_move_has_from_and_to_and_the_file_reads_back():
    where = ground(("a", owned("s")), ("b", pod("alone")))
    plan = plan_for_pods(where, "pod default/train", wanting(where, WHOLE_NODE))
    (move,) = plan.moves
    assert (move.pod, move.owner, move.from_node, move.to_node) == ("default/s", "ReplicaSet/r", "a", "b")
    assert plan.gain == "1 move makes room for 1 pod on 1 node: a"
    assert plan.is_fewest
    text = yaml.safe_dump(msgspec.to_builtins(plan))
    assert plan_in(text) == plan
    assert id_of(plan_in(text)) == id_of(plan)


def test_without_need_nobody_moves():
    where = ground(("a", owned("s")))
    plan = plan_for_pods(where, "x", wanting(where, WHOLE_NODE))
    assert plan.helps
    assert plan.gain == "no move is needed; there is room now for 1 pod on 1 node: b"
    assert plan_in(yaml.safe_dump(msgspec.to_builtins(plan))) == plan


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "no plan"),
        ("{}", "no plan"),
        ("version: 1\nmoves: 3", "no plan"),
        ("", "it is empty"),
        ("version: 1\n---\nversion: 1", "line 2: another document begins there; write only one"),
    ],
)
def test_a_file_that_is_no_plan_is_one_line(text, says):
    with pytest.raises(UnusablePlanError, match=says) as found:
        plan_in(text)
    assert "\n" not in str(found.value)


def test_a_shape_is_planned_in_a_protocol_that_the_nodes_offer():
    where = ground(("a", owned("s")), ("b", pod("alone")))
    plan = plan_for_wish(where, "2 x whole", CardWish(2), 1, "team")
    assert (plan.protocol, plan.namespace, len(plan.moves)) == ("vgpu", "team", 1)
    assert plan.limits["volcano.sh/vgpu-number"] == "2"
    two = plan_for_wish(where, "2 x whole", CardWish(2), 2, "team")
    assert not two.helps
    within = "within --moves 10 and --per-namespace 2"
    assert two.gain == f"no moves help: 1 pod may move, and that does not make enough room {within}"
    assert "too few cards" in two.why


def test_a_shape_that_no_move_helps_is_explained_for_cards_that_could_take_it_when_free():
    where = ground(("a", owned("s")))
    gpus = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "4"}
    where.ledger.set_node(node("whole", annotations={}, capacity=gpus, allocatable=gpus))
    alone = pod("alone", limits={"nvidia.com/gpu": "1"})
    shape = shape_of(alone, where.ledger)
    assert isinstance(shape, Shape)
    placement = placed_on(where.ledger, where.policy, alone, shape, NodeName("whole"))
    assert placement is not None
    where.ledger.reserve(placement)
    plan = plan_for_wish(where, "4 x whole", CardWish(4), 1, "team")
    assert (plan.helps, plan.protocol) == (False, "whole_gpu")
    assert "whole GPUs: 3 of 4 GPUs free" in plan.why
    never = plan_for_wish(where, "5 x whole", CardWish(5), 1, "team")
    assert (never.helps, never.protocol) == (False, "vgpu")


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (owned("p", ""), Stays.NO_CONTROLLER),
        (owned("p", "DaemonSet/d"), Stays.OF_NODE),
        (owned("p", "Job/j"), Stays.OF_JOB),
        (owned("p", namespace="kube-system"), Stays.OF_SYSTEM),
        (owned("p", scheduler_name="default-scheduler"), Stays.OTHER_SCHEDULER),
        (owned("p", annotations={"karpenter.sh/do-not-disrupt": "true"}), Stays.ANNOTATION),
        (owned("p", annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}), Stays.ANNOTATION),
        (owned("p", priority=1), Stays.PRIORITY),
        (owned("p", deleting=True), Stays.LEAVING),
        (owned("p", labels={"app": "x"}, phase=Phase.RUNNING, ready=True), Stays.BUDGET),
        (owned("p", labels={"app": "x"}, phase=Phase.RUNNING), None),
        (owned("p", labels={"app": "x"}), None),
        (owned("p", labels={"app": "y"}, phase=Phase.RUNNING), Stays.BUDGETS),
        (owned("p", annotations={MEMBER_OF: "ring"}), Stays.UNKNOWN_GROUP),
        (owned("p", volumes=PodVolumes(claims=("disk",))), Stays.VOLUMES),
        (owned("p", annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}), None),
    ],
)
def test_who_may_not_move_says_why(one, why):
    where = ground(("a", one._replace(volumes=NO_VOLUMES)))
    both = (Requirement(key="app", operator="In", values=("y",)),)
    budgets = [DisruptionBudget("default", "b", APP, 0, frees_unready=True)]
    budgets += [DisruptionBudget("default", name, both, 9, frees_unready=True) for name in "cd"]
    rights = replace(where.rights, budgets=budgets)
    crowd = crowd_of(where.ledger, [one._replace(node_name="a")], rights)
    assert crowd.staying == ({one.uid: why} if why else {})
    assert (one.uid in crowd.movable) is (why is None)


def test_a_group_gets_in_as_a_whole_and_is_planned_for_its_minimum():
    members = [pod(name, memory=10_000, annotations={MEMBER_OF: "ring"}) for name in "xyz"]
    where = ground(("a", owned("s")), ("b", pod("alone", memory=6000)), ("b", pod("other", memory=6000)))
    spec = GroupSpec(key=RING, uid="u", min_member=2)
    unit = unit_of_group(spec, members, where.ledger)
    assert isinstance(unit, Unit)
    plan = plan_for_pods(where, "group default/ring", unit)
    assert plan.gain == "1 move makes room for 2 pods on 1 node: a"
    assert not plan.is_fewest
    assert {one.pod for one in plan.places} == {"default/x", "default/y"}


ELSEWHERE = tuple(
    SubGroups(name=f"s{at}", selector=(Requirement(key="a", operator="Exists"),), size=2) for at in range(1000)
)


@pytest.mark.parametrize(
    ("waiting", "spec", "why"),
    [
        pytest.param(2, {"min_member": 4}, r"its 2 pods are too few for its minimum \(4\)", id="members lack"),
        pytest.param(
            2,
            {"min_member": 2, "min_task_member": {"w": 2}},
            r"its 2 pods are too few for its minimum \(0 of 2 of task w\)",
            id="a task lacks",
        ),
        pytest.param(
            30, {"min_member": 2, "sub_groups": ELSEWHERE}, "too many entries would be compared", id="undivided"
        ),
    ],
)
def test_nobody_moves_for_a_group_that_could_not_start_on_an_empty_cluster(waiting, spec, why):
    members = [pod(f"x{at}", memory=1_000, annotations={MEMBER_OF: "ring"}) for at in range(waiting)]
    unit = unit_of_group(GroupSpec(key=RING, uid="u", **spec), members, ground().ledger)
    assert isinstance(unit, Wait)
    assert re.search(why, unit.text)


def test_a_group_with_its_minimum_needs_no_moves_and_says_how_to_plan_for_one_more():
    members = [pod(name, memory=10_000, annotations={MEMBER_OF: "ring"}) for name in "xy"]
    where = ground(("a", members[0]))
    unit = unit_of_group(GroupSpec(key=RING, uid="u", min_member=1), [*where.pods, members[1]], where.ledger)
    assert isinstance(unit, Unit)
    plan = plan_for_pods(where, "group default/ring", unit)
    assert plan.gain == "nothing to do: its minimum is on nodes already; for one pod more, write --for pod"
    assert not plan.moves


def test_a_plan_helps_no_more_once_its_room_is_taken():
    where = ground(("a", owned("s")), ("b", pod("alone")))
    unit = wanting(where, WHOLE_NODE)
    plan = plan_for_pods(where, "x", unit)
    left = [PodUid(one.uid) for one in plan.moves]
    assert not still_helps(where, plan, unit, left).why
    late = pod("late")
    full = ground(("a", owned("s")), ("b", pod("alone")), ("a", late))
    assert (
        still_helps(full, plan, unit, left).why
        == "there is no room for pod default/train any more, even after all moves"
    )
    assert still_helps(full, plan, unit, [late.uid]).why == (
        f"pod default/late may not be moved: {Stays.NO_CONTROLLER}"
    )
