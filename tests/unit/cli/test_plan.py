"""``kubectl cards plan`` judges pods by their volumes, as the snapshot of a cluster shows these."""

from dataclasses import replace
from typing import Any

import pytest

from cli.options import Plan, PlanTarget
from cli.plan import NothingToPlanError, fetch_plan
from cli.snapshot import VERSION, SnapshotReads, packed
from core.moving.who import MOVING, Stays

NUMBER, MEMORY, CORES = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"
HOST = "kubernetes.io/hostname"
CLAIM = {
    "metadata": {
        "name": "disk",
        "namespace": "team",
        "uid": "c",
        "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
    },
    "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": "v"},
    "status": {"phase": "Bound"},
}


def node(name: str) -> dict[str, Any]:
    cards = "".join(f"{name}-{at},10,10000,NVIDIA-T4,true,hami-core:" for at in range(2))
    have = {NUMBER: "20", MEMORY: "20000", CORES: "200", "cpu": "64", "memory": "256Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True"}
    return {
        "metadata": {"name": name, "labels": {HOST: name}, "annotations": {"volcano.sh/node-vgpu-register": cards}},
        "status": {"capacity": have, "allocatable": have, "conditions": [ready]},
    }


def pod(name: str, memory: int, on: str = "", *, number: int = 1, owner: str = "", claim: str = "") -> dict[str, Any]:
    limits = {NUMBER: str(number), MEMORY: str(memory)}
    given = f"{on}-0,NVIDIA,{memory},0:"
    keys = {"volcano.sh/vgpu-ids-new": given, "volcano.sh/vgpu-node": on, "volcano.sh/vgpu-time": "1"}
    owners = [{"kind": "ReplicaSet", "name": owner, "controller": True}] if owner else []
    about = {
        "name": name,
        "namespace": "team",
        "uid": name,
        "ownerReferences": owners,
        "annotations": keys if on else {},
    }
    spec = {"schedulerName": "cardshare", "containers": [{"name": "c", "resources": {"limits": limits}}]}
    if on:
        spec["nodeName"], about["annotations"] = on, keys
    if claim:
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    return {"metadata": about, "spec": spec, "status": {"phase": "Running" if on else "Pending"}}


def cluster(*volumes: dict[str, Any], claims: Any = (CLAIM,)) -> SnapshotReads:
    """A pod with a claim on node a, another without a controller on b, and one that needs a whole node."""
    pods = [pod("s", 1000, "a", owner="serve", claim="disk"), pod("alone", 1000, "b"), pod("train", 10_000, number=2)]
    lists = {
        "/api/v1/nodes": [node("a"), node("b")],
        "/api/v1/pods": pods,
        "/api/v1/persistentvolumeclaims": [*claims],
        "/api/v1/persistentvolumes": [*volumes],
        "/api/v1/configmaps": [],
    }
    taken = {"version": VERSION, "taken": "2026-01-01T00:00:00Z", "namespace": "team"}
    return SnapshotReads(packed(taken | {"collections": {path: {"items": items} for path, items in lists.items()}}))


def standing(moving: dict[str, Any], waiting: dict[str, Any]) -> SnapshotReads:
    """*moving* on node a, a pod without a controller on b, and *waiting*, which needs a whole node."""
    lists = {
        "/api/v1/nodes": [node("a"), node("b")],
        "/api/v1/pods": [moving, pod("alone", 1000, "b"), waiting],
        "/api/v1/configmaps": [],
    }
    taken = {"version": VERSION, "taken": "2026-01-01T00:00:00Z", "namespace": "team"}
    return SnapshotReads(packed(taken | {"collections": {path: {"items": items} for path, items in lists.items()}}))


def volume(*hosts: str) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": HOST, "operator": "In", "values": [*hosts]}]}]
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if hosts else {}
    claimed = {"claimRef": {"name": "disk", "namespace": "team", "uid": "c"}}
    return {"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"], "nfs": {}, **claimed, **affinity}}


def asking(kind: str, name: str) -> Plan:
    return Plan(asked=PlanTarget("x", None, kind, "team", name), kubeconfig="", context="")


@pytest.mark.parametrize(("hosts", "moves"), [((), ["b"]), (("a", "b"), ["b"]), (("a",), [])])
async def test_a_pod_moves_only_to_where_its_volume_is(hosts, moves):
    plan = await fetch_plan(cluster(volume(*hosts)), asking("pod", "train"), "team")
    assert [one.to_node for one in plan.moves] == moves
    assert plan.helps is bool(moves)


async def test_a_pod_with_an_unknown_claim_stays():
    plan = await fetch_plan(cluster(claims=()), asking("pod", "train"), "team")
    assert not plan.helps
    assert {one.reason: one.pods for one in plan.staying} == {
        "their volume claims cannot be judged": 1,
        "no controller would replace them": 1,
    }


@pytest.mark.parametrize(
    ("kind", "name", "says"),
    [
        ("pod", "absent", "there is no pod team/absent"),
        ("pod", "alone", "pod team/alone does not wait: it is on node b"),
        ("group", "ring", "there is no PodGroup team/ring with pods"),
    ],
)
async def test_what_does_not_wait_is_said_in_one_line(kind, name, says):
    with pytest.raises(NothingToPlanError, match=says):
        await fetch_plan(cluster(volume()), asking(kind, name), "team")


@pytest.mark.parametrize(
    ("owner", "tolerations", "jobs", "reason"),
    [
        ("PyTorchJob", [], False, Stays.OF_JOB),
        ("Workflow", [], False, Stays.OF_JOB),
        ("Workflow", [], True, ""),
        ("ReplicaSet", [{"operator": "Exists"}], False, Stays.TOLERATES),
        ("ReplicaSet", [{"key": MOVING, "operator": "Exists"}], False, Stays.TOLERATES),
        ("ReplicaSet", [{"key": MOVING, "value": "0123456789ab"}], False, ""),
        ("StatefulSet", [{"key": "other", "operator": "Exists"}], False, ""),
    ],
)
async def test_who_would_be_lost_or_could_come_back_does_not_move(owner, tolerations, jobs, reason):
    one = pod("s", 1000, "a", owner="serve")
    one["metadata"]["ownerReferences"][0]["kind"], one["spec"]["tolerations"] = owner, tolerations
    asked = replace(asking("pod", "train"), jobs=jobs)
    plan = await fetch_plan(standing(one, pod("train", 10_000, number=2)), asked, "team")
    assert plan.helps is not bool(reason)
    assert not reason or reason in [staying.reason for staying in plan.staying]


@pytest.mark.parametrize(
    ("spec", "says", "problem"),
    [
        ({"schedulingGates": [{"name": "x"}]}, "", "it has scheduling gates"),
        ({}, "CS530 Wait until pods of queue q end", "CS530 Wait until pods of queue q end"),
    ],
)
async def test_nothing_is_planned_for_a_pod_that_room_does_not_let_in(spec, says, problem):
    waiting = pod("train", 10_000, number=2)
    waiting["spec"] |= spec
    waiting["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "x", "message": says}]
    with pytest.raises(NothingToPlanError, match=f"moves do not help pod team/train: {problem}"):
        await fetch_plan(standing(pod("s", 1000, "a", owner="serve"), waiting), asking("pod", "train"), "team")


NEAR = {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}


@pytest.mark.parametrize(
    ("held", "wish", "problem"),
    [
        (2, {}, ""),
        (1, {}, "starts only with its group; write --for group team/ring"),
        (2, NEAR, "PodGroup team/ring has a network topology, for which no moves are planned"),
    ],
)
async def test_a_pod_beyond_the_minimum_of_its_group_is_planned_alone(held, wish, problem):
    mates = [pod(f"m{at}", 100, "b") for at in range(2)]
    for mate in mates[held:]:
        del mate["spec"]["nodeName"]
        mate["metadata"]["annotations"], mate["status"] = {}, {"phase": "Pending"}
    waiting = pod("train", 10_000, number=2)
    for member in (*mates, waiting):
        member["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = "ring"
    ring = {"metadata": {"name": "ring", "namespace": "team", "uid": "g"}, "spec": {"minMember": 2, **wish}}
    lists = {
        "/api/v1/nodes": [node("a"), node("b")],
        "/api/v1/pods": [pod("s", 1000, "a", owner="serve"), *mates, waiting],
        "/api/v1/configmaps": [],
        "/apis/scheduling.volcano.sh/v1beta1/podgroups": [ring],
    }
    taken = {"version": VERSION, "taken": "2026-01-01T00:00:00Z", "namespace": "team"}
    reads = SnapshotReads(packed(taken | {"collections": {path: {"items": items} for path, items in lists.items()}}))
    if problem:
        with pytest.raises(NothingToPlanError, match=problem):
            await fetch_plan(reads, asking("pod", "train"), "team")
    else:
        assert [one.pod for one in (await fetch_plan(reads, asking("pod", "train"), "team")).moves] == ["team/s"]
