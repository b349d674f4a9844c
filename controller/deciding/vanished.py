"""Pods that ran and vanished before they ended: their processes run on until kubelet has ended them.

Whoever removes a pod by force removes its object at once; its node's kubelet hears of it then, and gives its processes
the shortest grace period. So the pod holds its cards for some seconds more; if its node is not ready, until that is
again, and then as long, because its kubelet hears of nothing until then; and no longer than its node is there.
What vanished before this process began to watch, between two leaders, it cannot know: so all nodes with cards stay
closed for as long, once the process leads.
"""

from collections.abc import Collection
from math import inf
from typing import Final, NamedTuple

from controller.handing_over.handoff import HandOff
from core.ledger import Ledger
from core.model import NodeName, PodUid

_LOOK_S: Final = 0.5


class Held(NamedTuple):
    """What *uid* holds of *node*, for *left_s* more, counted from when the node is ready; pod: its namespace/name."""

    uid: PodUid
    pod: str
    node: NodeName
    left_s: float


class Vanished:
    """Those that hold something still; a chore, which sees that it ends."""

    def __init__(self, ledger: Ledger, handoff: HandOff) -> None:
        """Begin with none."""
        self._ledger: Final = ledger
        self._handoff: Final = handoff
        self._until_s: Final[dict[PodUid, float]] = {}
        self._looked_s = -inf

    @property
    def uids(self) -> Collection[PodUid]:
        """Who holds something."""
        return self._until_s.keys()

    def held(self, now_s: float) -> list[Held]:
        """All of it."""
        found: list[Held] = []
        for uid, until_s in self._until_s.items():
            holding, node = self._ledger.holding(uid), self._ledger.node_of(uid)
            if holding is not None and node is not None:
                found.append(Held(uid, holding.key, node, max(until_s - now_s, 0.0)))
        return found

    def hold(self, uid: PodUid, now_s: float) -> None:
        """The object of *uid* has gone, and its processes may run on."""
        self._until_s[uid] = now_s + self._ledger.settings.removed_pod_hold_s

    def hold_nodes(self, listed_s: float) -> None:
        """Pods that others bound may have vanished just before they were first listed, at *listed_s*, monotonic."""
        until_s = listed_s + self._ledger.settings.removed_pod_hold_s
        for name, state in self._ledger.states.items():
            if state.offers:
                self._handoff.unwatched[name] = until_s

    def end(self, uid: PodUid) -> None:
        """Free what *uid* holds, if it does: it has ended, or its object is there again."""
        if self._until_s.pop(uid, None) is not None:
            self._ledger.release(uid)

    def next_s(self) -> float:
        """Soon, while anyone holds something."""
        return self._looked_s + _LOOK_S if self._until_s or self._handoff.unwatched else inf

    def look(self, now_s: float) -> None:
        """Free what those hold whose time is over."""
        self._looked_s = now_s
        for closed, until_s in list(self._handoff.unwatched.items()):
            node = self._ledger.node(closed)
            if node is not None and not node.ready:
                self._handoff.unwatched[closed] = now_s + self._ledger.settings.removed_pod_hold_s
            elif until_s <= now_s:
                self._handoff.watched(closed)
        for uid, until_s in list(self._until_s.items()):
            name = self._ledger.node_of(uid)
            node = self._ledger.node(name) if name is not None else None
            if node is None or (node.ready and until_s <= now_s):
                self.end(uid)
            elif not node.ready:
                self.hold(uid, now_s)
