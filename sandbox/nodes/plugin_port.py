"""What the kubelet player asks of a device plugin, whoever plays it.

The real interface is a gRPC service on a socket of the node. What matters of it here is that kubelet names **no pod**:
a plugin learns only which resource is wanted and how many, and finds the pod by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

# The environment variables that one container receives from one call.
ContainerEnv = Mapping[str, str]


class AllocateError(Exception):
    """A device plugin refused to serve a container; kubelet then fails the whole pod.

    Attributes:
        message: what the plugin answers, word for word, without the prefix that kubelet adds.
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
        """Serve *count* devices of *resource* to some container that is being admitted on the node.

        Raises:
            AllocateError: the plugin finds no pod that fits, or fails in another way of its own.
        """
        ...


@runtime_checkable
class SettlingPlugin(Protocol):
    """A plugin that also asks kubelet, over its pod-resources socket, which pod has which devices."""

    async def settle(self, pod: Mapping[str, Any], env: ContainerEnv) -> None:
        """Learn that a container of *pod* received *env*, and do what the plugin does about it, however long later.

        What is learnt is noted before the first wait: the next call to `DevicePlugin.allocate` may already be there.
        """
        ...


@runtime_checkable
class TellingPlugin(Protocol):
    """A plugin that finds its pod by itself, and can be asked which it took; kubelet is never told."""

    @property
    def meant_for(self) -> str:
        """The uid of the pod whose assignment the last answered call took, "" if it took none."""
        ...


@runtime_checkable
class BeatingPlugin(Protocol):
    """A plugin that writes to its node again and again while it lives."""

    @property
    def beat_s(self) -> float:
        """Seconds between two writes; 0: it does not."""
        ...

    async def beat(self) -> None:
        """Write once more."""
        ...
