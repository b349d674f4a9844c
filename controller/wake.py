"""Who waits for what: of all that happens, what could let a waiting pod in, and which pods it could.

Pods that no node takes wait by their shape, for a node to open. The ledger says which nodes did (`Ledger.opened`):
something was freed there, or its labels, taints, cards or configuration changed; a promise opens nothing. Only those
nodes are asked, by the verdict that decides, and only for shapes that have not heard of them yet. Pods that wait for
something else say for what (`Happening`), and are read again once it has happened.
"""

from collections.abc import Callable, Iterable, Set
from enum import StrEnum
from typing import Final, NamedTuple

from core.model import NodeName, PodUid
from core.shape import Shape

# A burst of releases is one question.
_PAUSE_S: Final = 0.02
# Asking takes no more than a fifth of the time, however many shapes are refused.
_PAUSE_PER_WORK: Final = 4.0
_NEVER: Final = float("inf")
# Of more nodes than these not each is asked for a shape, but where it would go best, which knows what changed.
_EACH_MAX: Final = 64
# Nor where so much opened that to tell which they were takes long.
_LATE_MAX: Final = 1024
_LOG_MAX: Final = 1 << 16


class What(StrEnum):
    """What pods wait for besides nodes, by a name: of a group namespace/name, of the others the name alone."""

    GROUP = "group"
    QUEUE = "queue"
    LOCK = "lock"


class Happening(NamedTuple):
    """Something that changed: the group or queue *name*, or the lock of node *name*."""

    what: What
    name: str


class Wakes:
    """What each refused shape has heard of, and who waits for which happening.

    Attributes:
        untold: shapes of which the users may not know why.
        silent: per refused shape, the nodes that would fit were their device plugins not silent.
    """

    def __init__(self, takes: Callable[[Shape, NodeName], bool]) -> None:
        """Begin with nothing; *takes*: whether a node takes a shape now."""
        self.untold: Final[dict[Shape, None]] = {}
        self.silent: Final[dict[Shape, tuple[NodeName, ...]]] = {}
        self._takes: Final = takes
        # The nodes that opened, oldest first, from position *start* on; up to where each refused shape has heard.
        self._opened: list[NodeName] = []
        self._start = 0
        self._heard: Final[dict[Shape, int]] = {}
        self._since: dict[int, Set[NodeName]] = {}
        self._looked = 0
        self._to_ask: Final[dict[Shape, None]] = {}
        # Since when shapes are asked about, without a pause; None until the first of them is named.
        self._begun_s: float | None = None
        self._next_s = 0.0
        self._waiting: Final[dict[Happening, dict[PodUid, None]]] = {}
        self._awaited: Final[dict[PodUid, set[Happening]]] = {}

    # ------------------------------------------------------------------ nodes

    @property
    def _end(self) -> int:
        return self._start + len(self._opened)

    @property
    def opened(self) -> int:
        """Another number whenever a node has opened."""
        return self._end

    def hear(self, nodes: Iterable[NodeName]) -> None:
        """These nodes opened."""
        self._opened.extend(nodes)
        self._since.clear()
        if len(self._opened) > _LOG_MAX:
            self.hear_of_all()

    def hear_of_all(self) -> None:
        """Any node may have opened."""
        self._start = self._end + 1
        self._opened = []
        self._since.clear()

    def refused(self, shape: Shape, silent: tuple[NodeName, ...]) -> None:
        """No node takes *shape* now; silent: as above."""
        self._heard[shape] = self._end
        self.untold[shape] = None
        if silent:
            self.silent[shape] = silent
        else:
            self.silent.pop(shape, None)

    def still_refused(self, shape: Shape) -> None:
        """No node that opened takes *shape*; numbers may have changed that its users were told."""
        self._heard[shape] = self._end
        self.untold[shape] = None

    def forget(self, shape: Shape) -> None:
        """No pod is refused for *shape* any more."""
        self.silent.pop(shape, None)
        self._heard.pop(shape, None)

    def opened_for(self, shape: Shape) -> Set[NodeName] | None:
        """The nodes that opened since *shape* was refused; None: any may have."""
        heard = self._heard.get(shape, -1)
        if heard < self._start:
            return None
        if self._end - heard > _LATE_MAX:
            return None
        found = self._since.get(heard)
        if found is None:
            found = self._since[heard] = frozenset(self._opened[heard - self._start :])
        return found if len(found) <= _EACH_MAX else None

    def is_taken(self, shape: Shape, opened: Iterable[NodeName]) -> bool:
        """Whether one of the nodes that *opened* takes *shape*."""
        return any(self._takes(shape, name) for name in opened)

    def is_due(self, now_s: float) -> bool:
        """Whether refused shapes are to be asked about now."""
        return self._looked < self._end and now_s >= self._next_s

    def begin(self, shapes: Iterable[Shape], now_s: float) -> None:
        """Begin to ask about those of *shapes*, all that are refused, that have not heard of all."""
        self._looked = self._end
        self._begun_s, self._next_s = None, now_s + _PAUSE_S
        refused = dict.fromkeys(shapes)
        for shape in [shape for shape in self._heard if shape not in refused]:
            self.forget(shape)
        self._to_ask.update((shape, None) for shape in refused if self._heard.get(shape, -1) < self._end)
        # What all have heard of is not kept.
        behind = min(self._heard.values(), default=self._end) - self._start
        if behind > 0:
            del self._opened[:behind]
            self._start += behind

    def next(self, now_s: float) -> Shape | None:
        """A shape to ask about, or None."""
        if not self._to_ask:
            return None
        if self._begun_s is None:
            self._begun_s = now_s
        shape = next(iter(self._to_ask))
        del self._to_ask[shape]
        if not self._to_ask:
            self._next_s = max(self._next_s, now_s + _PAUSE_PER_WORK * (now_s - self._begun_s))
        return shape

    def due_s(self, now_s: float) -> float:
        """When there is something to ask, monotonic."""
        if self._to_ask:
            return now_s
        return self._next_s if self._looked < self._end else _NEVER

    # ------------------------------------------------------------------ others

    def wait_for(self, uid: PodUid, *happenings: Happening) -> None:
        """Have *uid* named once one of *happenings* happens; until then, or until it is forgotten."""
        for one in happenings:
            self._waiting.setdefault(one, {})[uid] = None
            self._awaited.setdefault(uid, set()).add(one)

    def happened(self, happening: Happening) -> list[PodUid]:
        """Who waited for *happening*, first come first; they wait for nothing any more."""
        found = list(self._waiting.get(happening, ()))
        for uid in found:
            self.leave(uid)
        return found

    def leave(self, uid: PodUid) -> None:
        """*uid* waits for no happening any more."""
        for one in self._awaited.pop(uid, ()):
            waiting = self._waiting[one]
            del waiting[uid]
            if not waiting:
                del self._waiting[one]
