"""Pods that were served so lately that their device plugin may still be dropping the lock of their node.

Old plugins ask once whose lock it is, and try again until it is gone, whoever has it by then: a lock that we drop and
take anew for the next pod is deleted under it. So the lock of a pod that was served is its plugin's to drop, until the
pod has started (the plugin drops it before its call ends) or the plugin must have given up.
Source: protocol reference, hami 3.5; ascend 2.2 step 6.
"""

from dataclasses import dataclass
from typing import Final

from controller.handing_over.collision import CollisionKey
from core.model import NodeName, Pod, PodUid
from core.settings import DialectName

# Five tries, each a read and a write at the 5 calls/s of its client, with pauses of 1.5 s between them; and a margin.
RELEASE_S: Final = 6.0


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
    """The locks of every node that are being dropped, by the pods that were served."""

    def __init__(self) -> None:
        self._nodes: Final[dict[NodeName, dict[PodUid, _Release]]] = {}

    def add(self, node: NodeName, pod: Pod, keys: CollisionKey, until_s: float) -> None:
        """*pod* was served on *node* and has not started; one that is known already stays as it is."""
        self._nodes.setdefault(node, {}).setdefault(pod.uid, _Release(pod, keys, until_s))

    def drop(self, node: NodeName, uid: PodUid) -> bool:
        """*uid* has started, or is at an end: its plugin's call is over. True if that is news."""
        found = self._nodes.get(node)
        if found is None or found.pop(uid, None) is None:
            return False
        if not found:
            del self._nodes[node]
        return True

    def unlocked(self, node: NodeName, dialect: DialectName) -> bool:
        """*node* was seen without the lock of *dialect*: nobody need wait for it. True if that is news."""
        news = [one for one in self._nodes.get(node, {}).values() if one.keys.dialect == dialect and not one.is_over]
        for one in news:
            one.is_over = True
        return bool(news)

    def pods(self, node: NodeName) -> list[Pod]:
        """The pods of *node* whose lock is their plugin's to drop, as they were then; some may be gone."""
        return [one.pod for one in self._nodes.get(node, {}).values()]

    def of(self, node: NodeName) -> list[CollisionKey]:
        """By what the plugins of *node* know the pods whose lock has not been seen to be gone."""
        found = self._nodes.get(node)
        return [one.keys for one in found.values() if not one.is_over] if found else []

    def next_s(self) -> float:
        """When the next plugin must have given up, monotonic; infinite without any."""
        return min((one.until_s for pods in self._nodes.values() for one in pods.values()), default=float("inf"))

    def end(self, now_s: float) -> list[NodeName]:
        """The nodes where a plugin must have given up by now."""
        over = [(node, uid) for node, pods in self._nodes.items() for uid, one in pods.items() if one.until_s <= now_s]
        for node, uid in over:
            self.drop(node, uid)
        return list(dict.fromkeys(node for node, _ in over))
