"""Pods of owners that ask for several of them together, while nobody makes their group: none of them starts."""

from typing import Any

from tests.support.worlds import volcano
from tests.support.worlds.controller_rig import NODES
from tests.support.worlds.volcano import NAMES

LIMITS = {"cpu": "1", "volcano.sh/gpu-memory": "1000"}
LABELS = {"a": "b"}
APPS = "/apis/apps/v1/namespaces/default"
OWNERS: dict[str, tuple[str, dict[str, Any]]] = {
    "ReplicaSet": (f"{APPS}/replicasets", {"replicas": 2}),
    "StatefulSet": (f"{APPS}/statefulsets", {"replicas": 2, "serviceName": "s"}),
    "DaemonSet": (f"{APPS}/daemonsets", {}),
    "Job": ("/apis/batch/v1/namespaces/default/jobs", {"parallelism": 2}),
}


def pod_spec(**more):
    container = {"name": "c", "image": "i", "resources": {"limits": LIMITS, "requests": LIMITS}}
    return {"schedulerName": "volcano", "containers": [container], **more}


async def make_owner(world, kind, annotations):
    """An owner of *kind*, as its pods refer to it."""
    path, spec = OWNERS[kind]
    if kind != "Job":
        spec = {**spec, "selector": {"matchLabels": LABELS}}
    template = {"metadata": {"labels": LABELS}, "spec": pod_spec(restartPolicy="Never" if kind == "Job" else "Always")}
    metadata = {"name": "owner", "annotations": annotations}
    made = await world.client.create(path, {"metadata": metadata, "spec": {**spec, "template": template}})
    version = "batch/v1" if kind == "Job" else "apps/v1"
    return {
        "apiVersion": version,
        "kind": kind,
        "name": "owner",
        "uid": made["metadata"]["uid"],
        "controller": True,
    }


async def test_pods_wait_for_the_group_that_their_owner_asks_for_and_others_only_for_a_while(rig):
    async with rig(nodes=NODES[1:]) as world:
        await volcano.install(world.client)
        await world.controller(*NAMES)
        together = {"scheduling.volcano.sh/group-min-member": "2"}
        asks = {"ReplicaSet": together, "StatefulSet": {}, "DaemonSet": {}, "Job": together}
        owners = {kind: await make_owner(world, kind, annotations) for kind, annotations in asks.items()}
        for kind, owner in owners.items():
            metadata = {"name": f"{kind.lower()}-0", "ownerReferences": [owner]}
            await world.add({"metadata": metadata, "spec": pod_spec()})
        for kind in ("StatefulSet", "DaemonSet"):
            await world.phase(f"{kind.lower()}-0", deadline_s=90.0)
        for kind in ("ReplicaSet", "Job"):
            await world.waits(f"{kind.lower()}-0", f"of its owner '{kind}/owner' asks for 2 pods together")
        # Volcano's controllers come back, and make the groups.
        async with volcano.playing(world.client):
            for kind in ("ReplicaSet", "Job"):
                metadata = {"name": f"{kind.lower()}-1", "ownerReferences": [owners[kind]]}
                await world.add({"metadata": metadata, "spec": pod_spec()})
            for kind in ("ReplicaSet", "Job"):
                for at in range(2):
                    await world.phase(f"{kind.lower()}-{at}")
