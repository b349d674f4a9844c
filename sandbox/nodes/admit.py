"""Kubelet's decisions about a pod: whether its node has capacity, and which plugin is called for what, in which order.

Pure functions; `kubelet` does the communication.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from sandbox.api.quantities import QuantityError, value_of
from sandbox.api.validation import is_extended

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
    """Return whether the pod has ended."""
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
