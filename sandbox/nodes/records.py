"""What each container received from the device plugins: the truth that a scheduler's promises are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Records:
    """Environment per pod (namespace/name) and container; of pods of one name, the last.

    A deleted pod's record stays, so that it can be looked at after the pod has run.
    """

    _uids: dict[str, str] = field(default_factory=dict)
    _by_pod: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)

    def put(self, pod: str, uid: str, container: str, env: Mapping[str, str]) -> None:
        """Note what one container received from one call, beside what it received before."""
        if self._uids.get(pod) != uid:
            self._uids[pod] = uid
            self._by_pod[pod] = {}
        self._by_pod[pod].setdefault(container, {}).update(env)

    def of(self, pod: str) -> Mapping[str, Mapping[str, str]]:
        """The environment of each container of *pod* that was served; empty if none was."""
        return self._by_pod.get(pod, {})

    def document(self) -> dict[str, dict[str, dict[str, str]]]:
        """All of it: ``{"ns/pod": {container: env}}``."""
        return self._by_pod
