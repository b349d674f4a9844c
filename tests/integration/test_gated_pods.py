"""Pods that are held by scheduling gates, as Kueue holds them, and let go with a selector (groups 8)."""

import asyncio

from sandbox.client import PatchKind
from sandbox.demo.stage import NODES
from tests.support.worlds.controller_rig import PODS, share

_NODES = tuple(node for node in NODES if node["name"] in ("t4-a", "t4-b", "share-a"))
_GATE = "kueue.x-k8s.io/admission"


def gated(name, memory_mib=1000):
    spec = {
        "schedulerName": "cardshare",
        "schedulingGates": [{"name": _GATE}],
        "containers": [{"name": "main", "image": "i", "resources": {"limits": share(memory_mib)}}],
    }
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def lifted(node):
    """Kueue's one patch: selector and tolerations of a flavor, a label, and the gate goes."""
    toleration = {"key": "flavor", "operator": "Exists", "effect": "NoSchedule"}
    return [
        {"op": "add", "path": "/metadata/labels", "value": {"kueue.x-k8s.io/podset": "main"}},
        {"op": "add", "path": "/spec/nodeSelector", "value": {"kubernetes.io/hostname": node}},
        {"op": "add", "path": "/spec/tolerations/-", "value": toleration},
        {"op": "remove", "path": "/spec/schedulingGates/0"},
    ]


async def eventually(client, name, holds):
    """The pod *name* as soon as it *holds*."""
    async with asyncio.timeout(60.0):
        while not holds(found := await client.get(f"{PODS}/{name}")):  # noqa: ASYNC110 (the cluster tells nobody)
            await asyncio.sleep(0.02)
    return found


def waiting(pod):
    conditions = pod["status"].get("conditions") or ()
    return next((one for one in conditions if one["type"] == "PodScheduled" and one["status"] == "False"), {})


def is_told(pod):
    return waiting(pod).get("message", "").startswith("CS5")


async def test_a_pod_is_left_alone_while_gated_and_decided_once_its_gate_is_lifted(staged):
    async with staged(nodes=_NODES) as stage:
        await stage.admin.create(PODS, gated("p"))
        # A pod that is decided later than the gated one would be.
        later = gated("later")
        del later["spec"]["schedulingGates"]
        await stage.admin.create(PODS, later)
        await eventually(stage.admin, "later", lambda pod: pod["status"].get("phase") == "Running")
        held = await stage.admin.get(f"{PODS}/p")
        assert "nodeName" not in held["spec"]
        assert waiting(held).get("reason", "SchedulingGated") == "SchedulingGated"
        patched = await stage.admin.patch(f"{PODS}/p", lifted("t4-b"), PatchKind.JSON)
        # Admission passed it on as it was sent.
        assert patched["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "t4-b"}
        assert patched["metadata"]["labels"] == {"kueue.x-k8s.io/podset": "main"}
        found = await eventually(stage.admin, "p", lambda pod: pod["status"].get("phase") == "Running")
        assert found["spec"]["nodeName"] == "t4-b"


async def test_a_pod_that_is_sent_where_its_cards_do_not_fit_is_told(staged):
    async with staged(nodes=_NODES) as stage:
        await stage.admin.create(PODS, gated("p"))
        await stage.admin.patch(f"{PODS}/p", lifted("share-a"), PatchKind.JSON)
        found = await eventually(stage.admin, "p", lambda pod: waiting(pod).get("message", "").startswith("CS5"))
        assert waiting(found)["reason"] == "NeverFits"
        assert "no cards for vgpu" in waiting(found)["message"]
