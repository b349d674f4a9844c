"""The kubelet player's interface to device plugins: what it knows of their devices, and what containers received.

The real interface is a gRPC service on a socket of the node. Its relevant property is that kubelet names **no pod**: a
plugin learns only the resource and the number of devices, and finds the pod by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

# The environment variables that one call gives to one container.
ContainerEnv = Mapping[str, str]

# Kubelet's error when a plugin's process dies during a call.
DIED: Final = "rpc error: code = Unavailable desc = error reading from server: EOF"


class AllocateError(Exception):
    """A device plugin refused to serve a container; kubelet then fails the whole pod.

    Attributes:
        message: the plugin's original answer, without the prefix that kubelet adds.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class DevicePlugin(Protocol):
    """One plugin on one node."""

    @property
    def resources(self) -> tuple[str, ...]:
        """The resource names for which kubelet calls `allocate`."""
        ...

    async def start(self) -> None:
        """Register: write the node's annotations and the capacity and allocatable of its status.

        Called once the Node object exists and is ready; a second call is a restart of the plugin.
        """
        ...

    async def allocate(self, resource: str, count: int) -> ContainerEnv:
        """Serve *count* devices of *resource* to a container that is being admitted on the node.

        Raises:
            AllocateError: the plugin finds no suitable pod, or fails in another way.
        """
        ...


@runtime_checkable
class SettlingPlugin(Protocol):
    """A plugin that also queries kubelet's pod-resources socket for the devices of each pod."""

    async def settle(self, pod: Mapping[str, Any], env: ContainerEnv) -> None:
        """Record that a container of *pod* received *env*, and react as the plugin does, with its delay.

        The state is recorded before the first await, because the next call to `DevicePlugin.allocate` may come at once.
        """
        ...


@runtime_checkable
class TellingPlugin(Protocol):
    """A plugin that finds its pod by itself and can report it; kubelet never learns it."""

    @property
    def meant_for(self) -> str:
        """The uid of the pod whose assignment the last answered call used, "" if none."""
        ...


@runtime_checkable
class BeatingPlugin(Protocol):
    """A plugin that writes heartbeats to its node while it lives."""

    @property
    def beat_s(self) -> float:
        """The interval between heartbeats in seconds; 0: none."""
        ...

    async def beat(self) -> None:
        """Write one heartbeat."""
        ...


class DevicesUnavailableError(Exception):
    """Kubelet's own refusal to call a plugin, with the original text."""


class DeviceLists:
    """The device lists of one node: healthy devices by resource, at once; the node's status follows.

    Kubelet admits by its own lists. The node's status, which schedulers read, follows up to 10 s later
    (nodeStatusUpdateFrequency). Source: Kubernetes, pkg/kubelet/cm/devicemanager (v1.36).

    Attributes:
        changed: set whenever the node's status is outdated.
    """

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self._status: dict[str, Any] = {}
        self._healthy: dict[str, Decimal] = {}

    def take(self, status: Mapping[str, Any]) -> None:
        """Apply a plugin's report of *capacity* and *allocatable*; None removes a resource."""
        for part, amounts in status.items():
            self._status.setdefault(part, {}).update(amounts)
        for resource, amount in (status.get("allocatable") or {}).items():
            if amount is None:
                self._healthy.pop(resource, None)
            else:
                self._healthy[resource] = Decimal(amount)
        self.changed.set()

    def lose(self, resources: Iterable[str]) -> None:
        """Mark all devices of *resources* unhealthy, because their plugin has died."""
        self.take({"allocatable": dict.fromkeys((one for one in resources if one in self._healthy), "0")})

    def told(self) -> dict[str, Any]:
        """Return the part of the node's status that still has to be written; it counts as written from now on."""
        self.changed.clear()
        found, self._status = self._status, {}
        return found

    def check(self, resource: str, count: int, held: Iterable[Mapping[str, Decimal]]) -> None:
        """Check that *count* devices of *resource* are available beside those that are *held*.

        Raises:
            DevicesUnavailableError: they are not, in kubelet's words.
        """
        if resource not in self._healthy:
            return  # no plugin reported it: a test provides the plugin
        healthy = self._healthy[resource]
        if not healthy:
            text = f"no healthy devices present; cannot allocate unhealthy devices {resource}"
            raise DevicesUnavailableError(text)
        available = healthy - sum((one.get(resource, Decimal(0)) for one in held), Decimal(0))
        if available < count:
            raise DevicesUnavailableError(
                f"requested number of devices unavailable for {resource}. Requested: {count}, Available: {available:f}"
            )


class Served(NamedTuple):
    """One answer of a device plugin: the container that received it, and the pod whose assignment it was.

    pod: namespace/name of the pod that kubelet admitted; uid: its uid. meant_for: the uid of the pod that the plugin
    assumed.
    """

    pod: str
    uid: str
    container: str
    meant_for: str


@dataclass(slots=True, kw_only=True)
class Records:
    """Environment by pod (namespace/name) and container; only for the latest pod of a name.

    A deleted pod's record stays for later inspection.

    Attributes:
        served: every answer of a plugin that reports whose assignment it used, in order.
    """

    _uids: dict[str, str] = field(default_factory=dict)
    _by_pod: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)
    served: list[Served] = field(default_factory=list)

    def put(self, pod: str, uid: str, container: str, env: Mapping[str, str]) -> None:
        """Add what one container received from one call."""
        if self._uids.get(pod) != uid:
            self._uids[pod] = uid
            self._by_pod[pod] = {}
        self._by_pod[pod].setdefault(container, {}).update(env)

    def of(self, pod: str) -> Mapping[str, Mapping[str, str]]:
        """Return the environment of each served container of *pod*; empty if there is none."""
        return self._by_pod.get(pod, {})

    def strangers(self) -> list[Served]:
        """Return the answers in which a container received another pod's assignment."""
        return [one for one in self.served if one.meant_for != one.uid]
