"""``kubectl cards plan`` judges pods by their volumes, as the snapshot of a cluster shows these."""

from typing import Any

import pytest

from cli.options import Asked, Plan
from cli.plan import NothingToPlanError, fetch_plan
from cli.snapshot import VERSION, Snapshot, packed

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


def cluster(*volumes: dict[str, Any], claims: Any = (CLAIM,)) -> Snapshot:
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
    return Snapshot(packed(taken | {"collections": {path: {"items": items} for path, items in lists.items()}}))


def volume(*hosts: str) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": HOST, "operator": "In", "values": [*hosts]}]}]
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if hosts else {}
    claimed = {"claimRef": {"name": "disk", "namespace": "team", "uid": "c"}}
    return {"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"], "nfs": {}, **claimed, **affinity}}


def asking(kind: str, name: str) -> Plan:
    return Plan(asked=Asked("x", None, 1, kind, "team", name), kubeconfig="", context="")


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
