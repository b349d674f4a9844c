"""The order of pending pods: which is decided next, which rest until when, and which wait refused.

Pods stand in lines, one for each queue of theirs: the line whose turn it is comes first, and in it priority, then age.
A pod that nothing fits is kept by what it asks, so that one question wakes all that ask the same. A pod is kept under
the ticket of its last move: an older ticket is nothing any more.
"""

import heapq
from collections.abc import Callable, Iterator
from typing import Any, Final

from controller.deciding.asks import Ask
from core.model import PodUid

Order = tuple[int, bool, int, int]

_ANY: Final = float("inf")


# Where a pod stands: by its order, under a ticket.
_Item = tuple[Order, int, PodUid]


class _Row:
    """Pods in their order, line by line."""

    def __init__(self, is_current: Callable[[PodUid, int], bool], rank: Callable[[str], Any]) -> None:
        self._is_current: Final = is_current
        self._rank: Final = rank
        self._heaps: Final[dict[str, list[_Item]]] = {}
        self._size = 0

    def push(self, line: str, item: _Item, most: float) -> None:
        """Add a pod; those that have left are thrown out where there are more than *most* items."""
        if self._size > most:
            for one, heap in list(self._heaps.items()):
                heap[:] = [item for item in heap if self._is_current(item[2], item[1])]
                heapq.heapify(heap)
                if not heap:
                    del self._heaps[one]
            self._size = sum(map(len, self._heaps.values()))
        heapq.heappush(self._heaps.setdefault(line, []), item)
        self._size += 1

    def first(self, *, pop: bool) -> PodUid | None:
        """The first pod of the line whose turn it is, which is taken out if *pop*."""
        for line, heap in list(self._heaps.items()):
            while heap and not self._is_current(heap[0][2], heap[0][1]):
                heapq.heappop(heap)
                self._size -= 1
            if not heap:
                del self._heaps[line]
        if not self._heaps:
            return None
        heap = self._heaps[min(self._heaps, key=self._rank) if len(self._heaps) > 1 else next(iter(self._heaps))]
        if not pop:
            return heap[0][2]
        self._size -= 1
        return heapq.heappop(heap)[2]

    def __len__(self) -> int:
        """How many items there are, with those of pods that have left."""
        return self._size

    def __iter__(self) -> Iterator[PodUid]:
        return (uid for heap in self._heaps.values() for _, ticket, uid in heap if self._is_current(uid, ticket))


class Queue:
    """Pods by uid and ticket; what else there is to know of them is `lifecycle`'s."""

    def __init__(self, is_current: Callable[[PodUid, int], bool], rank: Callable[[str], Any]) -> None:
        """Begin empty.

        Args:
            is_current: whether a ticket is its pod's last.
            rank: of lines, which has its turn first: the lower one.
        """
        self._is_current: Final = is_current
        self._rank: Final = rank
        self._ready: Final = _Row(is_current, rank)
        self._resting: Final[list[tuple[float, int, PodUid]]] = []
        # By what is asked: how many pods wait, and in which order (with those that have left).
        self._refused: Final[dict[Ask, _Row]] = {}
        self._waiting: Final[dict[Ask, int]] = {}

    def ready(self, line: str, order: Order, ticket: int, uid: PodUid) -> None:
        """Name a pod in `pop`, when its line and order say."""
        self._ready.push(line, (order, ticket, uid), _ANY)

    def rest(self, until_s: float, ticket: int, uid: PodUid) -> None:
        """Name a pod in `due` after *until_s* (monotonic)."""
        heapq.heappush(self._resting, (until_s, ticket, uid))

    def refuse(self, ask: Ask, line: str, order: Order, ticket: int, uid: PodUid) -> None:
        """Keep a pod until its *ask* is asked about; `unpark` once it leaves."""
        self._waiting[ask] = self._waiting.get(ask, 0) + 1
        row = self._refused.get(ask)
        if row is None:
            row = self._refused[ask] = _Row(self._is_current, self._rank)
        row.push(line, (order, ticket, uid), 2 * self._waiting[ask] + 16)

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
        return self._ready.first(pop=True)

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
        return list(self._refused.get(ask, ()))

    def first_refused(self, ask: Ask, *, pop: bool) -> PodUid | None:
        """The first pod refused for *ask*, or None; if *pop*, it is not named again."""
        row = self._refused.get(ask)
        return row.first(pop=pop) if row is not None else None
