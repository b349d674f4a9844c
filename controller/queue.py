"""The order of pending pods: which is decided next, which rest until when, and which wait refused.

Order is priority, then age. A pod that nothing fits is kept by what it asks, so that one question wakes all that ask
the same. A pod is kept under the ticket of its last move: an older ticket is nothing any more.
"""

import heapq
from collections.abc import Callable
from typing import Final

from controller.asks import Ask
from core.model import PodUid

Order = tuple[int, int, int]


class Queue:
    """Pods by uid and ticket; what else there is to know of them is `lifecycle`'s."""

    def __init__(self, is_current: Callable[[PodUid, int], bool]) -> None:
        """Begin empty; *is_current* says whether a ticket is its pod's last."""
        self._is_current: Final = is_current
        self._ready: Final[list[tuple[Order, int, PodUid]]] = []
        self._resting: Final[list[tuple[float, int, PodUid]]] = []
        # By what is asked: how many pods wait, and in which order (with those that have left).
        self._refused: Final[dict[Ask, list[tuple[Order, int, PodUid]]]] = {}
        self._waiting: Final[dict[Ask, int]] = {}

    def ready(self, order: Order, ticket: int, uid: PodUid) -> None:
        """Name a pod in `pop`, when its order says."""
        heapq.heappush(self._ready, (order, ticket, uid))

    def rest(self, until_s: float, ticket: int, uid: PodUid) -> None:
        """Name a pod in `due` after *until_s* (monotonic)."""
        heapq.heappush(self._resting, (until_s, ticket, uid))

    def refuse(self, ask: Ask, order: Order, ticket: int, uid: PodUid) -> None:
        """Keep a pod until its *ask* is asked about; `unpark` once it leaves."""
        self._waiting[ask] = self._waiting.get(ask, 0) + 1
        waiting = self._refused.setdefault(ask, [])
        if len(waiting) > 2 * self._waiting[ask] + 16:
            waiting[:] = [item for item in waiting if self._is_current(item[2], item[1])]
            heapq.heapify(waiting)
        heapq.heappush(waiting, (order, ticket, uid))

    def unpark(self, ask: Ask) -> None:
        """One of the pods refused for *ask* has left."""
        self._waiting[ask] -= 1
        if not self._waiting[ask]:
            del self._waiting[ask]
            self._refused.pop(ask, None)

    # ------------------------------------------------------------------ asking

    def due(self, now_s: float) -> list[PodUid]:
        """The pods that have rested; each is told once."""
        found: list[PodUid] = []
        while self._resting and self._resting[0][0] <= now_s:
            _, ticket, uid = heapq.heappop(self._resting)
            if self._is_current(uid, ticket):
                found.append(uid)
        return found

    def pop(self) -> PodUid | None:
        """The first of those that are ready; it is not named again."""
        while self._ready:
            _, ticket, uid = heapq.heappop(self._ready)
            if self._is_current(uid, ticket):
                return uid
        return None

    def next_due_s(self) -> float | None:
        """When the next resting pod is due, monotonic."""
        return self._resting[0][0] if self._resting else None

    def refused_asks(self) -> list[Ask]:
        """What pods are refused for."""
        return list(self._refused)

    def refuses(self, ask: Ask) -> bool:
        """Whether pods are refused for *ask*."""
        return ask in self._refused

    @property
    def is_refusing(self) -> bool:
        """Whether any pod is refused."""
        return bool(self._refused)

    def refused_pods(self, ask: Ask) -> list[PodUid]:
        """The pods refused for *ask*, in no order."""
        return [uid for _, ticket, uid in self._refused.get(ask, ()) if self._is_current(uid, ticket)]

    def peek_refused(self, ask: Ask) -> PodUid | None:
        """The first pod refused for *ask*, or None; it stays where it is."""
        waiting = self._refused.get(ask)
        while waiting and not self._is_current(waiting[0][2], waiting[0][1]):
            heapq.heappop(waiting)
        return waiting[0][2] if waiting else None

    def first_refused(self, ask: Ask) -> PodUid | None:
        """The first pod refused for *ask*, or None; it is not named again."""
        waiting = self._refused.get(ask)
        while waiting:
            _, ticket, uid = heapq.heappop(waiting)
            if self._is_current(uid, ticket):
                return uid
        return None
