"""Pods that were removed by force and still hold their cards.

The API server deletes such a pod at once; its kubelet then stops the processes with the shortest grace period. So the
cards stay held for `removed_pod_hold_s`. If the node is not ready, its kubelet hears of nothing, so that time begins
once the node is ready again. If the node is deleted, nothing can be placed there; if it returns, it is closed for the
same time. A new leader does not know pods that vanished between two leaders, so it keeps all nodes with cards closed
for the same time.
"""

from math import inf
from typing import Final, NamedTuple

from controller.handing_over.handoff import HandOff
from core.ledger import Ledger
from core.model import NodeName, PodUid

_LOOK_S: Final = 0.5
# A deleted node that returns after this is taken for another machine, or for one whose processes have ended.
_ABSENT_S: Final = 600.0


class VanishedPod(NamedTuple):
    """Pod *uid*, namespace/name *pod*, holds cards of *node* for *left_s* more once the node is ready."""

    uid: PodUid
    pod: str
    node: NodeName
    left_s: float


class Vanished:
    """Pods that were removed by force and still hold their cards; a chore, which releases them in time.

    Attributes:
        until_s: until when each of them holds its cards, monotonic, if its node is ready.
    """

    def __init__(self, ledger: Ledger, handoff: HandOff) -> None:
        """Begin with none."""
        self._ledger: Final = ledger
        self._handoff: Final = handoff
        self.until_s: Final[dict[PodUid, float]] = {}
        # Deleted nodes where processes may still run, and until when they are remembered, the oldest first.
        self._absent: Final[dict[NodeName, float]] = {}
        self._looked_s = -inf

    def held(self, now_s: float) -> list[VanishedPod]:
        """Return what each of them holds."""
        found: list[VanishedPod] = []
        for uid, until_s in self.until_s.items():
            holding, node = self._ledger.holding(uid), self._ledger.node_of(uid)
            if holding is not None and node is not None:
                found.append(VanishedPod(uid, holding.key, node, max(until_s - now_s, 0.0)))
        return found

    def hold(self, uid: PodUid, now_s: float) -> None:
        """Keep holding what *uid* holds: its object is gone, and its processes may still run."""
        self.until_s[uid] = now_s + self._ledger.settings.removed_pod_hold_s

    def hold_nodes(self, listed_s: float) -> None:
        """Close all nodes with cards: pods may have vanished there before the first list at *listed_s*, monotonic."""
        until_s = listed_s + self._ledger.settings.removed_pod_hold_s
        for name, state in self._ledger.states.items():
            if state.offers:
                self._handoff.unwatched[name] = until_s

    def absent(self, node: NodeName, now_s: float) -> None:
        """Close *node*, which is deleted, once it returns: processes of removed pods may still run there."""
        while self._absent and next(iter(self._absent.values())) <= now_s:
            del self._absent[next(iter(self._absent))]
        self._absent.pop(node, None)
        self._absent[node] = now_s + _ABSENT_S

    def returned(self, node: NodeName, now_s: float) -> None:
        """*node* was created, perhaps again."""
        if self._absent.pop(node, -inf) > now_s:
            self._handoff.unwatched[node] = now_s + self._ledger.settings.removed_pod_hold_s

    def end(self, uid: PodUid) -> None:
        """Release what *uid* still holds, if anything: it has ended, or its object exists again."""
        if self.until_s.pop(uid, None) is not None:
            self._ledger.release(uid)

    def next_s(self) -> float:
        """Return when to look again, monotonic; never while no pod is held and no node is closed."""
        return self._looked_s + _LOOK_S if self.until_s or self._handoff.unwatched else inf

    def look(self, now_s: float) -> None:
        """Release the pods and nodes whose time is over."""
        self._looked_s = now_s
        for closed, until_s in list(self._handoff.unwatched.items()):
            node = self._ledger.node(closed)
            if node is not None and not node.ready:
                self._handoff.unwatched[closed] = now_s + self._ledger.settings.removed_pod_hold_s
            elif until_s <= now_s:
                self._handoff.watched(closed)
        for uid, until_s in list(self.until_s.items()):
            name = self._ledger.node_of(uid)
            node = self._ledger.node(name) if name is not None else None
            if name is not None and node is None:
                self.absent(name, now_s)
            if node is None or (node.ready and until_s <= now_s):
                self.end(uid)
            elif not node.ready:
                self.hold(uid, now_s)
