"""The keys by which a device plugin could mistake one pod for another on its node.

Some pods can be mistaken for others without a Binding in progress: those that vanished unserved (`UnservedPods`), and
those whose lock a plugin may still be removing (`Releases`).
Source: protocol reference, nvidia 2.9, 5.2 (P1, P20), 7.2.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from core.constraints.constraint import NodeSet
from core.model import NodeName, Pod, PodUid
from core.port.handoff import LockMark
from core.settings import DialectName

_NOBODY: Final = NodeSet()
# The minimum time for which an unserved pod counts: it may wait in kubelet's queue and for its plugin.
LONG_ENOUGH_S: Final = 10.0
# The same, as a multiple of the measured hand-off time.
LONG_ENOUGH_HANDOFFS: Final = 4.0
# After a sign that kubelet has passed it, and up to `LONG_ENOUGH_S` while something is in flight: pods that it hears of
# together, kubelet admits by age.
PASSED_S: Final = 1.0
PASSED_HANDOFFS: Final = 2.0
# Five tries, each a read and a write at the 5 calls/s of its client, with pauses of 1.5 s between them; and a margin.
RELEASE_S: Final = 6.0


# Amounts as a set, which computes its hash only once: keys are looked up for each pod of a line, again and again.
Taken = frozenset[tuple[str, int]]


class CollisionKey(NamedTuple):
    """By what the plugin of *dialect* knows a pod: two pods with a common mark are never in flight together.

    The marks of a dialect are its own, but for `LockMark`. taken: what a pod that is not in flight takes of its node;
    kubelet's topology manager judges pods by that, and no plugin does.
    """

    dialect: DialectName | None
    marks: frozenset[Hashable]
    taken: Taken = frozenset()


# Of a pod without cards: no plugin serves it.
NO_COLLISION: Final = CollisionKey(None, frozenset())


class Collisions:
    """Whom the plugin of each node can tell apart."""

    def __init__(self) -> None:
        # Nodes whose plugin goes by time alone: to it, all pods of the dialect are one.
        self._blind: Final[set[tuple[NodeName, DialectName]]] = set()

    def set_blind(self, node: NodeName, dialect: DialectName, *, blind: bool) -> bool:
        """Note whether the plugin of *dialect* on *node* tells no pod from another; True if that is news."""
        key = (node, dialect)
        if blind == (key in self._blind):
            return False
        if blind:
            self._blind.add(key)
        else:
            self._blind.discard(key)
        return True

    def is_blind(self, node: NodeName, dialect: DialectName) -> bool:
        """Whether the plugin of *dialect* on *node* tells no pod from another."""
        return (node, dialect) in self._blind

    def forget(self, node: NodeName) -> None:
        """The node is gone."""
        self._blind.difference_update([key for key in self._blind if key[0] == node])

    def alike(self, node: NodeName, one: CollisionKey, other: CollisionKey) -> bool:
        """Whether the plugin on *node* could mistake a pod with keys *one* for a pod with keys *other*."""
        if one.dialect is not other.dialect:
            return any(isinstance(mark, LockMark) for mark in one.marks & other.marks)
        if not (one.marks and other.marks):
            return False
        return not one.marks.isdisjoint(other.marks) or (node, one.dialect) in self._blind


class LongLines:
    """Which nodes would let a pod wait for longer than so many seconds, by what plugins could mistake it for.

    They are not looked at again until something ends there.

    Attributes:
        by_key: collision key -> seconds -> the nodes known to let wait for longer. A node of some seconds is also in
            all sets of fewer.
    """

    def __init__(self) -> None:
        self.by_key: Final[dict[CollisionKey, dict[float, NodeSet]]] = {}
        self._keys: Final[dict[NodeName, set[CollisionKey]]] = {}

    def add(self, node: NodeName, keys: CollisionKey, beyond_s: float) -> None:
        """A pod with *keys* would wait on *node* for longer than *beyond_s*."""
        self.beyond(keys, beyond_s)
        for limit_s, nodes in self.by_key.setdefault(keys, {beyond_s: NodeSet()}).items():
            if limit_s <= beyond_s:
                nodes.add(node)
        self._keys.setdefault(node, set()).add(keys)

    def beyond(self, keys: CollisionKey, limit_s: float) -> NodeSet:
        """The nodes known to let a pod with *keys* wait for longer than *limit_s*."""
        by_limit = self.by_key.get(keys)
        if by_limit is None:
            return _NOBODY
        found = by_limit.get(limit_s)
        if found is None:
            longer = (node for beyond_s, nodes in by_limit.items() if beyond_s > limit_s for node in nodes)
            found = by_limit[limit_s] = NodeSet(longer)
        return found

    def forget(self, node: NodeName) -> None:
        """Something ended on *node*: it may be tried again."""
        for keys in self._keys.pop(node, ()):
            by_limit = self.by_key[keys]
            for nodes in by_limit.values():
                nodes.discard(node)
            if not any(by_limit.values()):
                del self.by_key[keys]


@dataclass(slots=True)
class _Vanished:
    """seen: it was seen bound; otherwise its Binding may not have been written. end_s: the latest end."""

    keys: CollisionKey
    vanished_s: float
    until_s: float
    seen: bool
    end_s: float = float("inf")


class UnservedPods:
    """The unserved pods of every node: they vanished before their device plugin served them.

    A pod that is deleted at once (with force, or a grace period of 0) is gone from the API server while it is still in
    kubelet's queue. Kubelet admits it anyway, from its own copy, and its `Allocate` gets the assignment of another pod
    that the plugin mistakes for it. So it counts as in flight until kubelet must have passed it. After that, its call
    finds no pod and fails harmlessly.

    Kubelet sees pods in the order of the watch. So an unserved pod is passed once a pod is served whose Binding was
    sent after it had vanished. Without such a pod, it is passed after a time in which no pod was in flight on the node,
    because a pod in flight shows that kubelet's queue is not empty.
    Source: Kubernetes, pkg/kubelet (HandlePodAdditions, v1.36); protocol reference, nvidia 2.9.

    Attributes:
        nodes: the unserved pods of each node that has some.
    """

    def __init__(self) -> None:
        self.nodes: Final[dict[NodeName, dict[PodUid, _Vanished]]] = {}
        # The last node on which a pod vanished: it may count on others still.
        self._node_of: Final[dict[PodUid, NodeName]] = {}

    def __len__(self) -> int:
        return sum(len(vanished) for vanished in self.nodes.values())

    def add(
        self, node: NodeName, uid: PodUid, keys: CollisionKey, now_s: float, expected_s: float, *, seen: bool
    ) -> None:
        """Add *uid*, which vanished unserved on *node*, where a hand-off takes *expected_s*."""
        until_s = now_s + _long_enough_s(expected_s)
        self.nodes.setdefault(node, {})[uid] = _Vanished(keys, now_s, until_s, seen)
        self._node_of[uid] = node

    def withdraw(self, uid: PodUid) -> NodeName | None:
        """Drop *uid*, because its Binding was certainly not written; return its node, None if it did not count."""
        node = self._node_of.get(uid)
        if node is None or self.nodes[node][uid].seen:
            return None
        self._drop(node, uid)
        return node

    def served(self, node: NodeName, begun_s: float, now_s: float, expected_s: float) -> None:
        """Shorten the time of pods that vanished before *begun_s*, when a now served pod's first Binding was sent."""
        soon_s = now_s + max(PASSED_S, PASSED_HANDOFFS * expected_s)
        for one in self.nodes.get(node, {}).values():
            if one.vanished_s < begun_s:
                one.until_s = min(one.until_s, soon_s)
                one.end_s = min(one.end_s, now_s + _long_enough_s(expected_s))

    def end(self, now_s: float, in_flight: Iterable[NodeName], expected_s: float) -> list[NodeName]:
        """Return the nodes where unserved pods no longer count; nodes with pods *in_flight* must wait."""
        ended: list[NodeName] = []
        busy = frozenset(in_flight) if self.nodes else frozenset()
        for node in list(self.nodes):
            for uid, one in list(self.nodes[node].items()):
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
        found = (one.until_s for vanished in self.nodes.values() for one in vanished.values())
        return min(found, default=float("inf"))

    def of(self, node: NodeName) -> list[tuple[CollisionKey, float]]:
        """The keys of each unserved pod of *node*, and until when it counts at the least (monotonic)."""
        return [(one.keys, one.until_s) for one in self.nodes.get(node, {}).values()]

    def _drop(self, node: NodeName, uid: PodUid) -> None:
        if self._node_of.get(uid) == node:
            del self._node_of[uid]
        del self.nodes[node][uid]
        if not self.nodes[node]:
            del self.nodes[node]


def _long_enough_s(expected_s: float) -> float:
    return max(LONG_ENOUGH_S, LONG_ENOUGH_HANDOFFS * expected_s)


@dataclass(slots=True)
class _Release:
    """pod: as it was when it had been served. until_s: its plugin has given up by then.

    is_over: the node was seen without the lock; what the mirror shows may be older than the lock.
    """

    pod: Pod
    keys: CollisionKey
    until_s: float
    is_over: bool = False


class Releases:
    """Pods that were served recently, so that their device plugin may still be removing the lock of their node.

    Old plugins check the owner of a lock only once, and then retry until the lock is gone, even if another pod has it
    by then. If cardshare removed the lock and took it for the next pod, the plugin would delete that one. So only the
    plugin removes the lock of a served pod, until the pod has started (the plugin removes the lock before its call
    ends) or the plugin must have given up.
    Source: protocol reference, hami 3.5; ascend 2.2 step 6.

    Attributes:
        nodes: the recently served pods of each node that has some.
    """

    def __init__(self) -> None:
        self.nodes: Final[dict[NodeName, dict[PodUid, _Release]]] = {}

    def add(self, node: NodeName, pod: Pod, keys: CollisionKey, until_s: float) -> None:
        """*pod* was served on *node* and has not started; one that is known already stays as it is."""
        self.nodes.setdefault(node, {}).setdefault(pod.uid, _Release(pod, keys, until_s))

    def drop(self, node: NodeName, uid: PodUid) -> bool:
        """*uid* has started, or is at an end: its plugin's call is over. True if that is news."""
        found = self.nodes.get(node)
        if found is None or found.pop(uid, None) is None:
            return False
        if not found:
            del self.nodes[node]
        return True

    def unlocked(self, node: NodeName, dialect: DialectName) -> bool:
        """*node* was seen without the lock of *dialect*: nobody need wait for it. True if that is news."""
        news = [one for one in self.nodes.get(node, {}).values() if one.keys.dialect == dialect and not one.is_over]
        for one in news:
            one.is_over = True
        return bool(news)

    def pods(self, node: NodeName) -> list[Pod]:
        """The pods of *node* whose lock is their plugin's to drop, as they were then; some may be gone."""
        return [one.pod for one in self.nodes.get(node, {}).values()]

    def of(self, node: NodeName) -> list[CollisionKey]:
        """By what the plugins of *node* know the pods whose lock has not been seen to be gone."""
        found = self.nodes.get(node)
        return [one.keys for one in found.values() if not one.is_over] if found else []

    def next_s(self) -> float:
        """When the next plugin must have given up, monotonic; infinite without any."""
        return min((one.until_s for pods in self.nodes.values() for one in pods.values()), default=float("inf"))

    def end(self, now_s: float) -> list[NodeName]:
        """The nodes where a plugin must have given up by now."""
        over = [(node, uid) for node, pods in self.nodes.items() for uid, one in pods.items() if one.until_s <= now_s]
        for node, uid in over:
            self.drop(node, uid)
        return list(dict.fromkeys(node for node, _ in over))
