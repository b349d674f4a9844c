"""Who waits for what: of all that happens, what could let a waiting pod in, and which pods it could.

Pods that no node takes wait by their shape, and units by what they ask together, for a node to open. The ledger says
which nodes did (`Ledger.opened`): something was freed there, or its labels, taints, cards or configuration changed; a
promise opens nothing. Only those nodes are asked, by the verdict that decides, and only for who has not heard of them
yet. Pods that wait for something else say for what (`Happening`), and are read again once it has happened.
"""

from collections.abc import Callable, Iterable, Set
from enum import StrEnum
from typing import Final, NamedTuple

from controller.deciding.asks import Ask
from core.claims import StorageKind
from core.model import NodeName, PodUid

# A burst of releases is one question.
_PAUSE_S: Final = 0.02
# Asking takes no more than a fifth of the time, however much is refused.
_PAUSE_PER_WORK: Final = 4.0
_NEVER: Final = float("inf")
# Of more nodes than these not each is asked about, but where it would go best, which knows what changed.
_EACH_MAX: Final = 64
# Nor where so much opened that to tell which they were takes long.
_LATE_MAX: Final = 1024
_LOG_MAX: Final = 1 << 16


class What(StrEnum):
    """What pods wait for besides nodes, by a name."""

    LOCK = "lock"
    STORAGE = "storage"


class Happening(NamedTuple):
    """Something that changed: the lock of node *name*; or a claim, volume or class, *name* by its kind."""

    what: What
    name: str


def storage_happening(kind: StorageKind, name: str) -> Happening:
    """A claim, volume or class changed."""
    return Happening(What.STORAGE, f"{kind} {name}")


class Wakes:
    """What each ask that is refused has heard of, and who waits for which happening.

    Attributes:
        unreported: those of which the users may not know why.
        silent: for each, the nodes that would fit were their device plugins not silent.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.unreported: Final[dict[Ask, None]] = {}
        self.silent: Final[dict[Ask, tuple[NodeName, ...]]] = {}
        # The nodes that opened, oldest first, from position *start* on; up to where each ask has heard.
        self._opened: list[NodeName] = []
        self._start = 0
        self._heard: Final[dict[Ask, int]] = {}
        self._since: dict[int, Set[NodeName]] = {}
        self._looked = 0
        # Some of those that have heard of all nodes have come to be asked about all the same.
        self._stirred = False
        self._to_ask: Final[dict[Ask, None]] = {}
        # Since when questions are put, without a pause; None until the first of them is named.
        self._begun_s: float | None = None
        self._next_s = 0.0
        # Which of them rest, until when.
        self._rests: Final[dict[Ask, float]] = {}
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

    def stir(self, helps: Callable[[Ask], bool]) -> None:
        """Any node may have opened for those whom that *helps*."""
        for ask in [ask for ask in self._heard if helps(ask)]:
            self._heard[ask] = -1
            self._stirred = True

    def refused(self, ask: Ask, silent: tuple[NodeName, ...]) -> None:
        """No node takes *ask* now; silent: as above."""
        self._heard[ask] = self._end
        self.unreported[ask] = None
        if silent:
            self.silent[ask] = silent
        else:
            self.silent.pop(ask, None)

    def still_refused(self, ask: Ask) -> None:
        """No node that opened takes *ask*; numbers may have changed that its users were told."""
        self._heard[ask] = self._end
        self.unreported[ask] = None

    def tell_anew(self) -> None:
        """The users of all that are refused may not know why any more, though nothing opened."""
        self.unreported.update(dict.fromkeys(self._heard))

    def rest(self, ask: Ask, until_s: float) -> None:
        """Do not name *ask* before *until_s* (monotonic): to try it takes long."""
        self._rests[ask] = until_s

    def forget(self, ask: Ask) -> None:
        """No pod is refused for *ask* any more."""
        self._rests.pop(ask, None)
        self.silent.pop(ask, None)
        self._heard.pop(ask, None)

    def opened_for(self, ask: Ask) -> Set[NodeName] | None:
        """The nodes that opened since *ask* was refused; None: any may have."""
        heard = self._heard.get(ask, -1)
        if heard < self._start:
            return None
        if self._end - heard > _LATE_MAX:
            return None
        found = self._since.get(heard)
        if found is None:
            found = self._since[heard] = frozenset(self._opened[heard - self._start :])
        return found if len(found) <= _EACH_MAX else None

    def is_due(self, now_s: float) -> bool:
        """Whether there is something to ask about now."""
        return now_s >= self._next_s and (self._has_news or now_s >= self._rested_s)

    @property
    def _has_news(self) -> bool:
        return self._looked < self._end or self._stirred

    @property
    def _rested_s(self) -> float:
        """When the first that rests, and has not heard of all, has rested."""
        behind = (until_s for ask, until_s in self._rests.items() if self._heard.get(ask, -1) < self._end)
        return min(behind, default=_NEVER)

    def begin(self, asks: Iterable[Ask], now_s: float) -> None:
        """Begin to ask about those of *asks*, all that are refused, that have not heard of all."""
        self._looked, self._stirred = self._end, False
        self._begun_s, self._next_s = None, now_s + _PAUSE_S
        refused = dict.fromkeys(asks)
        for ask in [ask for ask in self._heard if ask not in refused]:
            self.forget(ask)
        for ask in [ask for ask, until_s in self._rests.items() if until_s <= now_s]:
            del self._rests[ask]
        behind = [ask for ask in refused if self._heard.get(ask, -1) < self._end]
        self._to_ask.update((ask, None) for ask in behind if ask not in self._rests)
        # What all have heard of is not kept.
        heard = min(self._heard.values(), default=self._end) - self._start
        if heard > 0:
            del self._opened[:heard]
            self._start += heard

    def next(self, now_s: float) -> Ask | None:
        """What to ask about next, or None."""
        if not self._to_ask:
            return None
        if self._begun_s is None:
            self._begun_s = now_s
        ask = next(iter(self._to_ask))
        del self._to_ask[ask]
        if not self._to_ask:
            self._next_s = max(self._next_s, now_s + _PAUSE_PER_WORK * (now_s - self._begun_s))
        return ask

    def due_s(self, now_s: float) -> float:
        """When there is something to ask, monotonic."""
        if self._to_ask:
            return now_s
        return self._next_s if self._has_news else max(self._next_s, self._rested_s)

    # ------------------------------------------------------------------ others

    def wait_for(self, uid: PodUid, *happenings: Happening) -> None:
        """Have *uid* named once one of *happenings* happens; until then, or until it is forgotten."""
        for one in happenings:
            self._waiting.setdefault(one, {})[uid] = None
            self._awaited.setdefault(uid, set()).add(one)

    def waiting(self, happening: Happening) -> list[PodUid]:
        """Who waits for *happening*, first come first; they go on doing so."""
        return list(self._waiting.get(happening, ()))

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
