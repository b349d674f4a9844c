"""A kubelet's knowledge of its devices: immediate from its plugins, and delayed in the node's status.

Source: Kubernetes, pkg/kubelet/cm/devicemanager (v1.36). Kubelet admits by its own lists. The node's status, which
schedulers read, follows up to 10 s later (nodeStatusUpdateFrequency).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

Json = dict[str, Any]


class DevicesUnavailableError(Exception):
    """Kubelet's own refusal to call a plugin, with the original text."""


class DeviceLists:
    """The device lists of one node: healthy devices by resource.

    Attributes:
        changed: set whenever the node's status is outdated.
    """

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self._status: Json = {}
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

    def told(self) -> Json:
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
