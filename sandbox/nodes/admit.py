"""Kubelet's decisions about a pod and the statuses that it writes: its node's, and of a running, ended or rejected pod.

It decides whether the node has capacity, and which plugin is called for what, in which order. Pure functions; `kubelet`
does the communication.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from sandbox.api.quantities import QuantityError, value_of
from sandbox.api.validation import is_extended
from sandbox.nodes.nodefile import NodeSpec

Json = dict[str, Any]

_TERMINAL: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One call to a device plugin: *count* devices of *resource* for *container*."""

    container: str
    resource: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """A shortage of a resource on the node, in the resource's unit."""

    resource: str
    wanted: Decimal
    used: Decimal
    capacity: Decimal

    @property
    def reason(self) -> str:
        """The pod's reason, as kubelet writes it."""
        return f"OutOf{self.resource}"

    @property
    def message(self) -> str:
        """The pod's message, as kubelet writes it (pkg/kubelet/lifecycle, InsufficientResourceError)."""
        return (
            f"Pod was rejected: Node didn't have enough resource: {self.resource}, "
            f"requested: {self.wanted:f}, used: {self.used:f}, capacity: {self.capacity:f}"
        )


def asks(pod: Mapping[str, Any], resources: Iterable[str]) -> Iterator[Ask]:
    """Yield the calls to plugins of *resources*: init containers, then containers, in spec order.

    Within a container, kubelet processes limits in no defined order; here they are ordered by name.
    """
    served = frozenset(resources)
    for container in containers(pod):
        limits = (container.get("resources") or {}).get("limits") or {}
        for resource in sorted(served & set(limits)):
            count = int(value_of(limits[resource]))
            if count > 0:
                yield Ask(container=container["name"], resource=resource, count=count)


def containers(pod: Mapping[str, Any]) -> Iterator[Json]:
    """Init containers, then containers."""
    spec = pod["spec"]
    yield from spec.get("initContainers") or ()
    yield from spec["containers"]


def requests(pod: Mapping[str, Any]) -> dict[str, Decimal]:
    """Return a pod's need of each resource: the sum of its containers and sidecars, or the largest init step.

    Source: k8s.io/component-helpers/resource, PodRequests.
    """
    spec = pod["spec"]
    running: dict[str, Decimal] = {}
    for container in spec["containers"]:
        running = _sum(running, _of(container))
    sidecars: dict[str, Decimal] = {}
    peak: dict[str, Decimal] = {}
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            sidecars = _sum(sidecars, _of(container))
            peak = _most(peak, sidecars)
        else:
            peak = _most(peak, _sum(sidecars, _of(container)))
    needed = _most(_sum(running, sidecars), peak)
    overhead = {name: value_of(text) for name, text in (spec.get("overhead") or {}).items()}
    return {**_sum(needed, overhead), "pods": Decimal(1)}


def shortage(
    wanted: Mapping[str, Decimal], held: Iterable[Mapping[str, Decimal]], allocatable: Mapping[str, str]
) -> Shortage | None:
    """Return the node's first shortage for *wanted* beside *held*.

    Extended resources that the node does not have are ignored, as in kubelet.
    """
    used: dict[str, Decimal] = {}
    for amounts in held:
        for name, amount in amounts.items():
            used[name] = used.get(name, Decimal(0)) + amount
    for resource, amount in sorted(wanted.items()):
        if resource not in allocatable and is_extended(resource):
            continue
        capacity, taken = value_of(allocatable.get(resource, "0")), used.get(resource, Decimal(0))
        if amount > 0 and taken + amount > capacity:
            return Shortage(resource=resource, wanted=amount, used=taken, capacity=capacity)
    return None


def is_terminal(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in _TERMINAL


def seconds_of(pod: Mapping[str, Any], annotation: str) -> float | None:
    """Return the duration in a pod's annotation for the player; None if it is missing or unreadable."""
    text = (pod["metadata"].get("annotations") or {}).get(annotation)
    try:
        return None if text is None else max(float(text), 0.0)
    except ValueError:
        return None


def _of(container: Mapping[str, Any]) -> dict[str, Decimal]:
    found = (container.get("resources") or {}).get("requests") or {}
    values = {}
    for name, text in found.items():
        try:
            values[name] = value_of(text)
        except QuantityError:
            continue
    return values


def _sum(a: Mapping[str, Decimal], b: Mapping[str, Decimal]) -> dict[str, Decimal]:
    return {name: a.get(name, Decimal(0)) + b.get(name, Decimal(0)) for name in {**a, **b}}


def _most(a: Mapping[str, Decimal], b: Mapping[str, Decimal]) -> dict[str, Decimal]:
    return {name: max(a.get(name, Decimal(0)), b.get(name, Decimal(0))) for name in {**a, **b}}


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
    statuses = [_running(container, now) for container in pod["spec"]["containers"]]
    begun = [
        _running(container, now) if container.get("restartPolicy") == "Always" else _ended(container, now)
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
    statuses = [_ended(container, now) for container in pod["spec"]["containers"]]
    return {"phase": "Succeeded", "conditions": _conditions("False", now), "containerStatuses": statuses}


def stopped(pod: Mapping[str, Any], now: str) -> Json:
    """Return the status of a deleted pod whose containers SIGTERM ended: Failed, as of kubelet 1.27."""
    state = {"terminated": {"exitCode": 143, "reason": "Error", "finishedAt": now}}
    statuses = [{**_ended(container, now), "state": state} for container in pod["spec"]["containers"]]
    return {"phase": "Failed", "conditions": _conditions("False", now), "containerStatuses": statuses}


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


def _running(container: Mapping[str, Any], now: str) -> Json:
    return {**_container(container), "ready": True, "started": True, "state": {"running": {"startedAt": now}}}


def _ended(container: Mapping[str, Any], now: str) -> Json:
    state = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": now}}
    return {**_container(container), "ready": False, "started": False, "state": state}


def addresses(count: int) -> Iterable[str]:
    """Return addresses for *count* nodes, from the range for benchmarks (RFC 2544)."""
    return (f"198.{18 + i // 65536}.{i // 256 % 256}.{i % 256}" for i in range(1, count + 1))
