"""The kubelet player's interface to a device plugin.

The real interface is a gRPC service on a socket of the node. Its relevant property is that kubelet names **no pod**: a
plugin learns only the resource and the number of devices, and finds the pod by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

# The environment variables that one call gives to one container.
ContainerEnv = Mapping[str, str]


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
