"""The statuses that kubelet writes: of its node, and of a running, ended or rejected pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sandbox.nodes.nodefile import NodeSpec

Json = dict[str, Any]

_CONDITIONS = ("Initialized", "Ready", "ContainersReady")


def node(spec: NodeSpec, address: str, now: str) -> Json:
    """Return the Node object that a kubelet registers."""
    labels = {
        "kubernetes.io/hostname": spec.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        **spec.labels,
    }
    body: Json = {"taints": [dict(taint) for taint in spec.taints]} if spec.taints else {}
    if spec.unschedulable:
        body["unschedulable"] = True
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": spec.name, "labels": labels, "annotations": dict(spec.annotations)},
        "spec": body,
        "status": {
            "capacity": dict(spec.capacity),
            "allocatable": dict(spec.allocatable),
            "addresses": [
                {"type": "InternalIP", "address": address},
                {"type": "Hostname", "address": spec.name},
            ],
            "nodeInfo": {
                # Since 1.36, kubelets list devices in the status of pods; this one does not.
                "kubeletVersion": "v1.35.5-sandbox",
                "osImage": "sandbox",
                "containerRuntimeVersion": "sandbox://1",
                "architecture": "amd64",
                "operatingSystem": "linux",
            },
            **({"images": [dict(image) for image in spec.images]} if spec.images else {}),
            **ready(now, is_ready=True),
        },
    }


def ready(now: str, *, is_ready: bool) -> Json:
    """Return the part of a node's status that shows whether its kubelet is ready."""
    condition = {
        "type": "Ready",
        "status": "True" if is_ready else "False",
        "reason": "KubeletReady" if is_ready else "KubeletNotReady",
        "message": "the player is running" if is_ready else "the player was told to be not ready",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
    return {"conditions": [condition]}


def running(pod: Mapping[str, Any], address: str, now: str) -> Json:
    """Return the status of a pod whose containers all run."""
    statuses = [
        {**_container(container), "ready": True, "started": True, "state": {"running": {"startedAt": now}}}
        for container in pod["spec"]["containers"]
    ]
    begun = [
        _ended(container, now, 0)
        if container.get("restartPolicy") != "Always"
        else {**_container(container), "ready": True, "started": True, "state": {"running": {"startedAt": now}}}
        for container in pod["spec"].get("initContainers") or ()
    ]
    status: Json = {
        "phase": "Running",
        "startTime": now,
        "hostIP": address,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": _conditions("True", now),
        "containerStatuses": statuses,
    }
    return {**status, "initContainerStatuses": begun} if begun else status


def succeeded(pod: Mapping[str, Any], now: str) -> Json:
    """Return the status of a pod whose containers all ended successfully."""
    statuses = [_ended(container, now, 0) for container in pod["spec"]["containers"]]
    return {"phase": "Succeeded", "conditions": _conditions("False", now), "containerStatuses": statuses}


def turned_away(reason: str, message: str, now: str) -> Json:
    """Return the status of a pod that kubelet rejected: Failed."""
    return {"phase": "Failed", "reason": reason, "message": message, "startTime": now}


def _conditions(status: str, now: str) -> list[Json]:
    return [
        {
            "type": name,
            "status": "True" if name == "Initialized" else status,
            "lastProbeTime": None,
            "lastTransitionTime": now,
        }
        for name in _CONDITIONS
    ]


def _container(container: Mapping[str, Any]) -> Json:
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "containerID": f"sandbox://{container['name']}",
        "restartCount": 0,
    }


def _ended(container: Mapping[str, Any], now: str, code: int) -> Json:
    state = {"terminated": {"exitCode": code, "reason": "Completed", "finishedAt": now}}
    return {**_container(container), "ready": False, "started": False, "state": state}


def addresses(count: int) -> Iterable[str]:
    """Return addresses for *count* nodes, from the range for benchmarks (RFC 2544)."""
    return (f"198.{18 + i // 65536}.{i // 256 % 256}.{i % 256}" for i in range(1, count + 1))
