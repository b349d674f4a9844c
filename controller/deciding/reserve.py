"""Reserve: what pods are promised, and nodes that are kept for who waits: kept free, or being cleared by evictions.

The first in the order of pods that was refused for `keep_free_after_s`, while others after it in that order were
placed, and that would fit if nodes were empty, has as many nodes kept free as it needs: who comes after it is placed
elsewhere. It ends when it is placed, or after `keep_free_for_s`; if that was in vain, nothing is kept free for
`keep_free_after_s`, so that cards do not idle long, and others come first then.
What is kept free is not remembered over a restart.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Final

from controller.actions import Target, target_of
from controller.deciding.cluster import ClusterState
from controller.deciding.lifecycle import Ask, Capped, Entry, Order
from core.constraints.quota import also_taken, taken
from core.groups import GroupKey, group_of
from core.history.pods import What
from core.ledger import Placement
from core.model import NodeName, Pod, PodUid
from core.nodefit import Amounts
from core.placing import keeping_free
from core.placing.gang import Together
from core.settings import DialectName


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Nodes that are kept for the pod *uid*, which stands at *order*, or for all that wait of its group *key*."""

    uid: PodUid
    key: GroupKey | None
    order: Order
    nodes: frozenset[NodeName]

    def is_for(self, entry: Entry) -> bool:
        """Whether it is kept for *entry*, or its group."""
        return entry.pod.uid == self.uid or (self.key is not None and group_of(entry.pod) == self.key)

    def is_barred_to(self, entry: Entry | None) -> bool:
        """Whether *entry* is not placed there now; None: one who comes after all others."""
        return entry is None or not (self.is_for(entry) or entry.order < self.order)

    def is_barred_to_new(self, priority: int) -> bool:
        """Whether a pod of *priority* would not be placed there were it created now."""
        return -priority >= self.order[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nomination(Room):
    """Nodes on which room is made.

    victims: who was asked to leave. nominated: the pods of which their status says so. until_s: when it ends at the
    latest; quiet_s: since when nobody there is leaving, both monotonic. asking: not all were asked to leave yet. whose:
    which pods *victims* are, in words.
    """

    victims: tuple[PodUid, ...]
    nominated: tuple[Target, ...]
    until_s: float
    asking: bool
    quiet_s: float = inf
    whose: str = "of a lower priority"


class Nominations:
    """All room that is being made."""

    def __init__(self) -> None:
        self._nominations: Final[dict[PodUid, Nomination]] = {}
        # The pods in whose names room is made for their groups.
        self._by_group: Final[dict[GroupKey, PodUid]] = {}

    def __len__(self) -> int:
        return len(self._nominations)

    def __iter__(self) -> Iterator[Nomination]:
        return iter(tuple(self._nominations.values()))

    def get(self, uid: PodUid) -> Nomination | None:
        """The room that is made for the pod *uid*, or that it asked for in the name of its group."""
        return self._nominations.get(uid)

    def put(self, nomination: Nomination) -> None:
        """From now on room is made so."""
        self._nominations[nomination.uid] = nomination
        if nomination.key is not None:
            self._by_group[nomination.key] = nomination.uid

    def drop(self, nomination: Nomination) -> None:
        """No room is made any more."""
        self._nominations.pop(nomination.uid, None)
        if nomination.key is not None:
            self._by_group.pop(nomination.key, None)

    def of(self, entry: Entry) -> Nomination | None:
        """The room that is made for *entry*, or its group."""
        found = self._nominations.get(entry.pod.uid)
        if found is not None or not self._by_group:
            return found
        key = group_of(entry.pod)
        uid = self._by_group.get(key) if key is not None else None
        return self._nominations[uid] if uid is not None else None

    def restore(self, entry: Entry, now_s: float, wait_s: float) -> None:
        """Go on keeping the room of which the pod's own status says that it is being made."""
        pod = entry.pod
        if entry.has_place or self.of(entry) is not None:
            return
        self.put(
            Nomination(
                uid=pod.uid,
                key=None,
                order=entry.order,
                nodes=frozenset({NodeName(pod.nominated_node)}),
                victims=(),
                nominated=(target_of(pod),),
                until_s=now_s + wait_s,
                asking=False,
            )
        )


# ---------------------------------------------------------------------- kept free


_NEVER: Final = float("inf")
# Between two looks for one that waits too long.
_LOOK_S: Final = 1.0
# To find nodes for one takes some milliseconds for each thousand: so many are tried in one look.
_TRIED: Final = 2
_PLACED_MAX: Final = 1024
_NOWHERE: Final = frozenset[NodeName]()


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

    def __init__(self, cluster: ClusterState, nominations: Nominations) -> None:
        """Keep nothing free."""
        self._cluster: Final = cluster
        self._nominations: Final = nominations
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
            entry = self._cluster.queue.get(kept.uid)
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
        at = bisect_left(self._placed, (since_s,))
        return at < len(self._placed) and self._placed[at][1] > entry.order

    # ------------------------------------------------------------------ in time

    def next_s(self) -> float:
        """When to look next, monotonic."""
        if self.kept is not None:
            return self._kept.until_s if self._kept is not None else _NEVER
        if not self._cluster.settings.keep_free_for_s or not self._cluster.queue.is_refusing:
            return _NEVER
        return max(self._looked_s + _LOOK_S, self._rests_until_s)

    def look(self, now_s: float) -> None:
        """End what lasted too long, or begin for the first of those that wait too long."""
        kept = self.kept
        if kept is not None and (now_s >= kept.until_s or not self._cluster.settings.keep_free_for_s):
            self._rests_until_s = now_s + self._cluster.settings.keep_free_after_s
            self._in_vain = {
                uid: many for uid, many in self._in_vain.items() if self._cluster.queue.get(uid) is not None
            }
            self._in_vain[kept.uid] = self._in_vain.get(kept.uid, 0) + 1
            self._end(End.IN_VAIN)
        self._looked_s = now_s
        if self._kept is not None or now_s < self._rests_until_s or not self._cluster.settings.keep_free_for_s:
            return
        self._without = {uid: until_s for uid, until_s in self._without.items() if until_s > now_s}
        late = [(self._in_vain.get(entry.pod.uid, 0), entry.order, ask, entry) for ask, entry in self._late(now_s)]
        for _, _, ask, entry in sorted(late, key=lambda one: one[:2])[:_TRIED]:
            nodes = self._nodes_for(ask, entry)
            if nodes:
                self._begin(ask, entry, nodes, now_s)
                return
            self._without[entry.pod.uid] = now_s + self._cluster.settings.keep_free_after_s

    def _late(self, now_s: float) -> Iterable[tuple[Ask, Entry]]:
        """The first of all that ask the same, where it was refused for too long."""
        since_s = now_s - self._cluster.settings.keep_free_after_s
        for ask in self._cluster.queue.refused_asks():
            entry = self._cluster.queue.first_refused(ask) if not isinstance(ask, Capped) else None
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
            until_s=now_s + self._cluster.settings.keep_free_for_s,
        )
        self._cluster.requeue.unreported[ask] = None

    def _nodes_for(self, ask: Ask, entry: Entry) -> frozenset[NodeName]:
        """The nodes that one who is refused would need; none if no nodes would do, or its queue has no room."""
        unit, refusal = self._cluster.gangs.unit(entry), self._cluster.gangs.refusal(ask)
        if not unit.members or (refusal is not None and refusal.over):
            return _NOWHERE
        answer = refusal.answer if refusal is not None else None
        # Where others are leaving for somebody, they would leave in vain.
        cleared = _NOWHERE.union(*(one.nodes for one in self._nominations if not one.is_for(entry)))
        ledger = self._cluster.ledger.fork()
        return keeping_free.nodes_for(ledger, self._cluster.search.policy, unit, answer, passed_over=cleared)

    def _end(self, how: End) -> None:
        kept, self._kept = self._kept, None
        if kept is None:
            return
        self._cluster.metrics.kept_free.labels(how.value).inc()
        self._cluster.requeue.hear(kept.nodes)
        if self._cluster.queue.refuses(kept.ask):
            self._cluster.requeue.unreported[kept.ask] = None


class Reservations:
    """What pods are promised, and what nodes are kept for whom.

    Attributes:
        keeping_free: for whom nodes are kept free.
        nominations: for whom others were asked to leave.
    """

    def __init__(self, cluster: ClusterState) -> None:
        """Promise nothing, and keep nothing."""
        self.nominations: Final = Nominations()
        self.keeping_free: Final = KeepingFree(cluster, self.nominations)
        self._cluster: Final = cluster

    def rooms(self) -> list[Room]:
        """All that is kept for somebody."""
        kept = self.keeping_free.kept
        return [*self.nominations, kept] if kept is not None else [*self.nominations]

    def to(self, entry: Entry | None) -> frozenset[NodeName]:
        """The nodes that *entry* is not placed on now; of None all that are kept for others."""
        return _NOWHERE.union(*(one.nodes for one in self.rooms() if one.is_barred_to(entry)))

    def to_first(self, ask: Ask) -> frozenset[NodeName]:
        """The nodes that the first of those refused for *ask* is not placed on now."""
        return self.to(self._cluster.queue.first_refused(ask)) if self.rooms() else _NOWHERE

    def to_new(self, priority: int) -> frozenset[NodeName]:
        """The nodes that a pod of *priority* would not be placed on were it created now."""
        return _NOWHERE.union(*(one.nodes for one in self.rooms() if one.is_barred_to_new(priority)))

    # ------------------------------------------------------------------ promises

    def reserve(self, entry: Entry, placement: Placement) -> None:
        """Promise *placement*, at once and in memory."""
        queue = self._cluster.queue
        self._cluster.ledger.reserve(placement)
        queue.reserve(entry, placement)
        self._cluster.recording.note(entry.pod, What.RESERVED, placement.node)
        self.keeping_free.placed(entry, self._cluster.clock())
        self.book(entry.pod, placement.dialect, placement.assignment, placement.amounts)
        shape = entry.shape
        if shape is not None and entry.woken is None and queue.refuses(shape):
            queue.wake(shape)  # the next of them may fit as well

    def book(self, pod: Pod, dialect: DialectName | None, assignment: object, amounts: Amounts) -> None:
        """Count on its queue and namespace what *pod* is promised, or holds; *amounts*: of its node, beside cards."""
        ledger, key = self._cluster.ledger, group_of(pod)
        if key is not None:
            self._cluster.budgets.note(pod.uid, key, taken(ledger, pod, dialect, assignment))
        else:
            self._cluster.budgets.note(pod.uid, pod.namespace, also_taken(ledger, dialect, assignment, amounts))

    def give_up(self, entry: Entry) -> None:
        """Take back what is reserved for a pod, which is decided again."""
        self.take_back(entry)
        self._cluster.queue.ready(entry)

    def take_back(self, entry: Entry) -> None:
        """Free what is reserved for a pod that stays in the queue.

        Raises:
            InvariantError: a Binding of it may still be written.
        """
        uid, cluster = entry.pod.uid, self._cluster
        cluster.sent.check_settled(uid)
        cluster.handoff.leave(uid)
        if entry.placement is not None:
            cluster.queue.unreserve(entry)
            cluster.budgets.drop(uid)
            cluster.ledger.release(uid)
            cluster.recording.note(entry.pod, What.RELEASED)
