"""The pods on nodes, for the choice of victims, and what disruption budgets say of their eviction."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from core import model
from core.ledger import Ledger
from core.model import PodUid
from core.wire.policies import DisruptionBudget

# Pods of this priority and above keep a cluster going. Source: Kubernetes, scheduling.SystemCriticalPriority.
SYSTEM_CRITICAL: Final = 2_000_000_000


class Occupant(NamedTuple):
    """A pod on a node, with what decides whether it may be evicted.

    start_s: when it was started, Unix seconds. block: pods with the same one are only evicted together, if
    `Crowd.blocks` has it. leaving: it is ending anyway. stays: it is never evicted. pending: its phase is Pending, so
    no disruption budget counts its eviction. ready: its condition Ready is True.
    """

    priority: int
    start_s: int = 0
    block: Hashable = None
    leaving: bool = False
    stays: bool = False
    pending: bool = False
    ready: bool = True


class Crowd(NamedTuple):
    """The pods on nodes; a pod that is not in *occupants* is never evicted.

    blocks: the pods of each block. chosen: victims of earlier preemptions; they spend the *budgets* as well.
    """

    occupants: Mapping[PodUid, Occupant]
    blocks: Mapping[Hashable, Collection[PodUid]]
    budgets: Sequence[DisruptionBudget] = ()
    chosen: Collection[PodUid] = ()


class Broken(NamedTuple):
    """A disruption budget that forbids *forbidden* of the *wanted* evictions; several if they cover the same pods.

    The API server evicts no pod that several cover.
    """

    budgets: tuple[DisruptionBudget, ...]
    wanted: int
    forbidden: int


class Disruptions:
    """Counts evictions against disruption budgets.

    Attributes:
        has_budgets: whether there are any.
        promised: by budget, how many evictions earlier preemptions still have to send.
        spent: the same, with the victims so far.
    """

    def __init__(self, ledger: Ledger, crowd: Crowd) -> None:
        """Begin with the victims of earlier preemptions."""
        self._ledger: Final = ledger
        self._crowd: Final = crowd
        self._by_namespace: Final[dict[str, list[int]]] = {}
        for at, budget in enumerate(crowd.budgets):
            self._by_namespace.setdefault(budget.namespace, []).append(at)
        self.has_budgets: Final = bool(crowd.budgets)
        self.promised: Final = Counter[int]()
        for uid in crowd.chosen if self.has_budgets else ():
            holding, covering = ledger.holding(uid), self.covering(uid)
            name = holding.key.partition("/")[2] if holding is not None else ""
            if not any(name in crowd.budgets[at].disrupted for at in covering):
                self.forbidden((self.counting(uid, covering),), self.promised)
        self.spent: Final = self.promised.copy()

    def covering(self, uid: PodUid) -> tuple[int, ...]:
        """Return the budgets that cover a pod on a node."""
        seat = self._ledger.topology.seat(uid) if self.has_budgets else None
        if seat is None:
            return ()
        own = self._by_namespace.get(seat.namespace, ())
        return tuple([at for at in own if speaks_of(self._crowd.budgets[at], seat.labels)])

    def counting(self, uid: PodUid, covering: tuple[int, ...]) -> tuple[int, ...]:
        """Return those of the budgets *covering* a pod that count its eviction."""
        who, budgets = self._crowd.occupants[uid], [self._crowd.budgets[at] for at in covering]
        return covering if is_counted(budgets, pending=who.pending, ready=who.ready) else ()

    def forbidden(self, counting: Iterable[tuple[int, ...]], spent: Counter[int]) -> int:
        """Return how many evictions are forbidden, given the budgets that count each, in order; adds to *spent*."""
        found = 0
        for budgets in counting:
            if len(budgets) == 1:
                spent.update(budgets)
                found += spent[budgets[0]] > self._crowd.budgets[budgets[0]].allowed
            elif budgets:
                found += 1
        return found

    def broken(self, counting: Iterable[tuple[int, ...]]) -> tuple[Broken, ...]:
        """Return what forbids some of all evictions together, given the budgets that count each."""
        wanted, forbidden, spent = Counter[tuple[int, ...]](), Counter[tuple[int, ...]](), self.promised.copy()
        for budgets in counting:
            wanted[budgets] += 1
            forbidden[budgets] += self.forbidden((budgets,), spent)
        return tuple(
            Broken(tuple(self._crowd.budgets[at] for at in budgets), wanted[budgets], many)
            for budgets, many in forbidden.items()
            if many
        )


def is_counted(covering: Sequence[DisruptionBudget], *, pending: bool, ready: bool) -> bool:
    """Return whether the budgets *covering* a pod count its eviction.

    Source: Kubernetes, pkg/registry/core/pod/storage/eviction.go.
    """
    return not pending and (ready or len(covering) > 1 or not all(one.frees_unready for one in covering))


def speaks_of(budget: DisruptionBudget, labels: Mapping[str, str]) -> bool:
    """Return whether *budget* covers pods with *labels* in its namespace."""
    return budget.selector is not None and all(model.satisfies(labels, one) for one in budget.selector)
