"""Pods that vanished before their device plugin served them: kubelet may still admit them, from its own copies.

A pod that is deleted at once (with force, or a grace period of 0) is gone from the API server while kubelet has it in
its line. It is admitted all the same, its `Allocate` takes the assignment of whoever the plugin mistakes for it, and so
on behind it. So it counts as in flight until kubelet must have passed it; then its call finds nobody, and fails
harmlessly.

Kubelet hears of pods in the order of the watch. A pod whose Binding was sent after it had vanished comes after it:
once that one is served, it is passed. Where there is no such pod, it is passed after a time in which nothing
was in flight on the node: what is in flight is a sign that kubelet's line has not been emptied.
Source: Kubernetes, pkg/kubelet (HandlePodAdditions, v1.36); protocol reference, nvidia 2.9.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from controller.handing_over.collision import CollisionKey
from core.model import NodeName, PodUid

# How long a pod waits in kubelet's line and for its plugin at the most, where less was measured.
LONG_ENOUGH_S: Final = 10.0
# So many hand-offs as they were measured there.
LONG_ENOUGH_HANDOFFS: Final = 4.0
# After a sign that kubelet has passed it, and up to `LONG_ENOUGH_S` while something is in flight: pods that it hears of
# together, kubelet admits by age.
PASSED_S: Final = 1.0
PASSED_HANDOFFS: Final = 2.0


@dataclass(slots=True)
class _Vanished:
    """seen: it had been seen bound; else its Binding may yet turn out not to have been written. end_s: it ends then."""

    keys: CollisionKey
    vanished_s: float
    until_s: float
    seen: bool
    end_s: float = float("inf")


class UnservedPods:
    """The unserved pods of every node."""

    def __init__(self) -> None:
        self._nodes: Final[dict[NodeName, dict[PodUid, _Vanished]]] = {}
        # The last node on which a pod vanished: it may count on others still.
        self._node_of: Final[dict[PodUid, NodeName]] = {}

    def __len__(self) -> int:
        return sum(len(vanished) for vanished in self._nodes.values())

    def add(
        self, node: NodeName, uid: PodUid, keys: CollisionKey, now_s: float, expected_s: float, *, seen: bool
    ) -> None:
        """*uid* vanished unserved on *node*, where a hand-off takes *expected_s*."""
        until_s = now_s + _long_enough_s(expected_s)
        self._nodes.setdefault(node, {})[uid] = _Vanished(keys, now_s, until_s, seen)
        self._node_of[uid] = node

    def withdraw(self, uid: PodUid) -> NodeName | None:
        """The Binding of *uid* was certainly not written: where it counted, if it did."""
        node = self._node_of.get(uid)
        if node is None or self._nodes[node][uid].seen:
            return None
        self._drop(node, uid)
        return node

    def served(self, node: NodeName, begun_s: float, now_s: float, expected_s: float) -> None:
        """A pod whose first Binding was sent at *begun_s* has been served: what had vanished before it is passed."""
        soon_s = now_s + max(PASSED_S, PASSED_HANDOFFS * expected_s)
        for one in self._nodes.get(node, {}).values():
            if one.vanished_s < begun_s:
                one.until_s = min(one.until_s, soon_s)
                one.end_s = min(one.end_s, now_s + _long_enough_s(expected_s))

    def end(self, now_s: float, in_flight: Iterable[NodeName], expected_s: float) -> list[NodeName]:
        """The nodes where unserved pods count no more; where pods are *in_flight*, they have to wait."""
        ended: list[NodeName] = []
        busy = frozenset(in_flight) if self._nodes else frozenset()
        for node in list(self._nodes):
            for uid, one in list(self._nodes[node].items()):
                if min(one.until_s, one.end_s) > now_s:
                    continue
                if node in busy and one.end_s > now_s:
                    one.until_s = min(now_s + _long_enough_s(expected_s), one.end_s)
                    continue
                self._drop(node, uid)
                ended.append(node)
        return ended

    def next_s(self) -> float:
        """When the next one may end, monotonic; infinite without any."""
        found = (one.until_s for vanished in self._nodes.values() for one in vanished.values())
        return min(found, default=float("inf"))

    def of(self, node: NodeName) -> list[tuple[CollisionKey, float]]:
        """The keys of each unserved pod of *node*, and until when it counts at the least (monotonic)."""
        return [(one.keys, one.until_s) for one in self._nodes.get(node, {}).values()]

    def _drop(self, node: NodeName, uid: PodUid) -> None:
        if self._node_of.get(uid) == node:
            del self._node_of[uid]
        del self._nodes[node][uid]
        if not self._nodes[node]:
            del self._nodes[node]


def _long_enough_s(expected_s: float) -> float:
    return max(LONG_ENOUGH_S, LONG_ENOUGH_HANDOFFS * expected_s)
