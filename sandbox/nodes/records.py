"""What each container received from the device plugins, to compare with the scheduler's promises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


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

    def document(self) -> dict[str, dict[str, dict[str, str]]]:
        """Return all records: ``{"ns/pod": {container: env}}``."""
        return self._by_pod
