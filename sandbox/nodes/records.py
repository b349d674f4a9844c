"""What each container received from the device plugins: the truth that a scheduler's promises are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Served(NamedTuple):
    """One answer of a device plugin: which container received it, and which pod's assignment it was.

    pod: namespace/name of the pod that kubelet admitted; uid: its uid. meant_for: the uid of the pod that the plugin
    took for it.
    """

    pod: str
    uid: str
    container: str
    meant_for: str


@dataclass(slots=True, kw_only=True)
class Records:
    """Environment per pod (namespace/name) and container; of pods of one name, the last.

    A deleted pod's record stays, so that it can be looked at after the pod has run.

    Attributes:
        served: every answer of a plugin that tells whose assignment it took, in order.
    """

    _uids: dict[str, str] = field(default_factory=dict)
    _by_pod: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)
    served: list[Served] = field(default_factory=list)

    def put(self, pod: str, uid: str, container: str, env: Mapping[str, str]) -> None:
        """Note what one container received from one call, beside what it received before."""
        if self._uids.get(pod) != uid:
            self._uids[pod] = uid
            self._by_pod[pod] = {}
        self._by_pod[pod].setdefault(container, {}).update(env)

    def of(self, pod: str) -> Mapping[str, Mapping[str, str]]:
        """The environment of each container of *pod* that was served; empty if none was."""
        return self._by_pod.get(pod, {})

    def strangers(self) -> list[Served]:
        """The answers by which a container received what was assigned to another pod."""
        return [one for one in self.served if one.meant_for != one.uid]

    def document(self) -> dict[str, dict[str, dict[str, str]]]:
        """All of it: ``{"ns/pod": {container: env}}``."""
        return self._by_pod
