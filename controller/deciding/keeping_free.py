"""Keeps nodes free for who waits too long behind others: one pod or group at a time, and never for longer than a bound.

The first in the order of pods that was refused for `keep_free_after_s`, while others after it in that order were
placed, and that would fit if nodes were empty, has as many nodes kept free as it needs: who comes after it is placed
elsewhere. It ends when it is placed, or after `keep_free_for_s`; if that was in vain, nothing is kept free for
`keep_free_after_s`, so that cards do not idle long, and others come first then.
What is kept free is not remembered over a restart.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from controller.deciding.asks import Ask, Capped
from controller.deciding.lifecycle import Entry, Lifecycle
from controller.deciding.queue import Order
from controller.deciding.room import Room
from core.groups import group_of
from core.model import NodeName, PodUid
from core.placing.gang import Together
from core.settings import Settings

_NEVER: Final = float("inf")
# Between two looks for one that waits too long.
_LOOK_S: Final = 1.0
# To find nodes for one takes some milliseconds for each thousand: so many are tried in one look.
_TRIED: Final = 2
_PLACED_MAX: Final = 1024


class End(StrEnum):
    """How it ended that nodes were kept free for one."""

    PLACED = "placed"
    IN_VAIN = "in_vain"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept(Room):
    """Nodes that are kept free for who waits by *ask*, until *until_s* (monotonic)."""

    ask: Ask
    until_s: float


class KeepingFree:
    """For whom nodes are kept free."""

    def __init__(
        self,
        life: Lifecycle,
        settings: Settings,
        *,
        find: Callable[[Ask, Entry], frozenset[NodeName]],
        began: Callable[[Kept], None],
        ended: Callable[[Kept, End], None],
    ) -> None:
        """Keep nothing free.

        Args:
            life: the pending pods.
            settings: the operator's.
            find: the nodes that one who is refused would need, none if no nodes would do.
            began: told that nodes are kept free.
            ended: told that they are no more, and how that ended.
        """
        self.settings = settings
        self._life: Final = life
        self._find: Final = find
        self._began: Final = began
        self._ended: Final = ended
        self._kept: Kept | None = None
        self._looked_s = -_NEVER
        self._rests_until_s = -_NEVER
        # For whom no nodes were found, and until when they are not looked for again.
        self._without: dict[PodUid, float] = {}
        # For whom nodes were kept free in vain, and how often: others come first.
        self._in_vain: dict[PodUid, int] = {}
        # Who was placed, and when: of those only that nobody was placed later than who comes after them in the order.
        self._placed: Final[list[tuple[float, Order]]] = []

    @property
    def kept(self) -> Kept | None:
        """What is kept free now."""
        kept = self._kept
        if kept is not None:
            entry = self._life.get(kept.uid)
            if entry is None or entry.shape is None:
                self._end(End.GONE)
            elif entry.placement is not None:
                self._end(End.PLACED)
        return self._kept

    def placed(self, entry: Entry, now_s: float) -> None:
        """*entry* was placed: who comes before it in the order, and was refused already, was overtaken."""
        while self._placed and self._placed[-1][1] <= entry.order:
            self._placed.pop()
        self._placed.append((now_s, entry.order))
        if len(self._placed) > _PLACED_MAX:
            del self._placed[0]

    def _is_overtaken(self, entry: Entry, since_s: float) -> bool:
        """Whether one who comes after *entry* was placed since."""
        at = bisect_left(self._placed, (since_s,))
        return at < len(self._placed) and self._placed[at][1] > entry.order

    # ------------------------------------------------------------------ in time

    def next_s(self) -> float:
        """When to look next, monotonic."""
        if self.kept is not None:
            return self._kept.until_s if self._kept is not None else _NEVER
        if not self.settings.keep_free_for_s or not self._life.is_refusing:
            return _NEVER
        return max(self._looked_s + _LOOK_S, self._rests_until_s)

    def look(self, now_s: float) -> None:
        """End what lasted too long, or begin for the first of those that wait too long."""
        kept = self.kept
        if kept is not None and (now_s >= kept.until_s or not self.settings.keep_free_for_s):
            self._rests_until_s = now_s + self.settings.keep_free_after_s
            self._in_vain = {uid: many for uid, many in self._in_vain.items() if self._life.get(uid) is not None}
            self._in_vain[kept.uid] = self._in_vain.get(kept.uid, 0) + 1
            self._end(End.IN_VAIN)
        self._looked_s = now_s
        if self._kept is not None or now_s < self._rests_until_s or not self.settings.keep_free_for_s:
            return
        self._without = {uid: until_s for uid, until_s in self._without.items() if until_s > now_s}
        late = [(self._in_vain.get(entry.pod.uid, 0), entry.order, ask, entry) for ask, entry in self._late(now_s)]
        for _, _, ask, entry in sorted(late, key=lambda one: one[:2])[:_TRIED]:
            nodes = self._find(ask, entry)
            if nodes:
                self._begin(ask, entry, nodes, now_s)
                return
            self._without[entry.pod.uid] = now_s + self.settings.keep_free_after_s

    def _late(self, now_s: float) -> Iterable[tuple[Ask, Entry]]:
        """The first of all that ask the same, where it was refused for too long."""
        since_s = now_s - self.settings.keep_free_after_s
        for ask in self._life.refused_asks():
            entry = self._life.first_refused(ask) if not isinstance(ask, Capped) else None
            if entry is None or entry.refused_s is None or entry.pod.uid in self._without:
                continue
            if entry.refused_s <= since_s and self._is_overtaken(entry, entry.refused_s):
                yield ask, entry

    def _begin(self, ask: Ask, entry: Entry, nodes: frozenset[NodeName], now_s: float) -> None:
        self._kept = Kept(
            ask=ask,
            uid=entry.pod.uid,
            key=group_of(entry.pod) if isinstance(ask, Together) else None,
            order=entry.order,
            nodes=nodes,
            until_s=now_s + self.settings.keep_free_for_s,
        )
        self._began(self._kept)

    def _end(self, how: End) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            self._ended(kept, how)
