"""Reserve: promises to pods, and nodes reserved for waiting pods: kept free, or being cleared by evictions.

Nodes are kept free for one pod or gang at a time: the first in the order that was refused for `keep_free_after_s` while
later ones were placed, and that would fit on empty nodes. Later pods do not go to these nodes. This ends when the pod
is placed, or after `keep_free_for_s`. If it ends in vain, nothing is kept free for `keep_free_after_s`, so that cards
do not idle long, and then other pods come first. A restart forgets which nodes were kept free.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Final

from controller.actions import Target, Unnominate, target_of
from controller.deciding.cluster import ClusterState
from controller.deciding.lifecycle import Ask, Capped, Entry, Order, Stage
from controller.grouping.budgets import Spender, spender_of
from core.constraints.quota import taken
from core.history.pods import What
from core.ledger import Placement
from core.model import Amounts, GroupKey, NodeName, Pod, PodUid, group_of
from core.placing import keeping_free
from core.placing.gang import Together
from core.settings import DialectName


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedNodes:
    """Nodes that are reserved for the pod *uid*, with *order* in the queue, or for its whole group *key*."""

    uid: PodUid
    key: GroupKey | None
    order: Order
    nodes: frozenset[NodeName]

    def is_for(self, entry: Entry) -> bool:
        """Return whether the nodes are reserved for *entry*, or its group."""
        return entry.pod.uid == self.uid or (self.key is not None and group_of(entry.pod) == self.key)

    def is_barred_to(self, entry: Entry | None) -> bool:
        """Return whether *entry* may not use the nodes now; None: a pod after all others in the order."""
        return entry is None or not (self.is_for(entry) or entry.order < self.order)

    def is_barred_to_new(self, priority: int) -> bool:
        """Return whether a new pod of *priority* could not use the nodes."""
        return -priority >= self.order[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nomination(ReservedNodes):
    """Nodes on which evictions free capacity.

    victims: the pods that are evicted. nominated: the pods whose status names such a node. until_s: the latest end;
    quiet_s: since when no pod there is leaving, both monotonic. asking: not all victims were asked to leave yet. whose:
    what kind of pods the victims are, in words. placed: the members of the group that counted already. minimums: how
    many members the group needed. spender: whose queue and namespace are charged. cleared: the nodes of the victims.
    attempt: as in its action. takes: what each pod takes of its queue and namespace, as far as known. awaits: pods that
    are ending anyway and must leave a part of the queue or namespace as well, as far as known.
    """

    victims: tuple[PodUid, ...]
    nominated: tuple[Target, ...]
    until_s: float
    asking: bool
    spender: Spender
    attempt: int = 0
    quiet_s: float = inf
    whose: str = "of a lower priority"
    placed: tuple[PodUid, ...] = ()
    minimums: tuple[object, ...] = ()
    cleared: frozenset[NodeName] = frozenset()
    takes: Mapping[PodUid, Mapping[str, int]] = field(default_factory=dict)
    awaits: tuple[PodUid, ...] = ()


def awaited(cluster: ClusterState, nomination: Nomination) -> Iterator[tuple[Entry, Mapping[str, int]]]:
    """Yield the pods that are not placed yet of those for whom others leave, and what each takes of its queue."""
    for target in nomination.nominated:
        entry = cluster.queue.get(target.uid)
        if entry is not None and entry.placement is None:
            amounts = nomination.takes.get(target.uid)
            yield entry, taken(cluster.ledger, entry.pod, None, None) if amounts is None else amounts


class Nominations:
    """All preemptions in progress."""

    def __init__(self) -> None:
        self._nominations: Final[dict[PodUid, Nomination]] = {}
        # By group, the pod that stands for it.
        self._by_group: Final[dict[GroupKey, PodUid]] = {}

    def __len__(self) -> int:
        return len(self._nominations)

    def __iter__(self) -> Iterator[Nomination]:
        return iter(tuple(self._nominations.values()))

    def get(self, uid: PodUid) -> Nomination | None:
        """Return the nomination for the pod *uid*, or for the group that it stands for."""
        return self._nominations.get(uid)

    def put(self, nomination: Nomination) -> None:
        """Add a nomination, or replace the one of the same pod."""
        self._nominations[nomination.uid] = nomination
        if nomination.key is not None:
            self._by_group[nomination.key] = nomination.uid

    def drop(self, nomination: Nomination) -> None:
        """Remove a nomination."""
        self._nominations.pop(nomination.uid, None)
        if nomination.key is not None:
            self._by_group.pop(nomination.key, None)

    def of(self, entry: Entry) -> Nomination | None:
        """Return the nomination for *entry*, or its group."""
        found = self._nominations.get(entry.pod.uid)
        if found is not None or not self._by_group:
            return found
        key = group_of(entry.pod)
        uid = self._by_group.get(key) if key is not None else None
        return self._nominations[uid] if uid is not None else None

    def forget(self, is_there: Callable[[PodUid], bool]) -> None:
        """Forget the nominations of pods that wait no more, for a process that evicts nobody."""
        for one in self:
            if not is_there(one.uid):
                self.drop(one)

    def restore(self, entry: Entry, until_s: float) -> None:
        """Keep the node for the pod that its own status names as nominated."""
        pod = entry.pod
        self.put(
            Nomination(
                uid=pod.uid,
                key=None,
                order=entry.order,
                nodes=frozenset({NodeName(pod.nominated_node)}),
                victims=(),
                nominated=(target_of(pod),),
                until_s=until_s,
                asking=False,
                spender=spender_of(pod),
            )
        )


# ---------------------------------------------------------------------- kept free


_NEVER: Final = float("inf")
# The interval between searches for a pod that waits too long.
_LOOK_S: Final = 1.0
# How many pods are tried in one search, because each takes some milliseconds for each thousand nodes.
_TRIED: Final = 2
_PLACED_MAX: Final = 1024
_NOWHERE: Final = frozenset[NodeName]()


class End(StrEnum):
    """How a reservation of nodes ends; REFUSED: a pod there may not be evicted."""

    PLACED = "placed"
    IN_VAIN = "in_vain"
    REFUSED = "refused"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFree(ReservedNodes):
    """Nodes that are kept free for the first pod or gang with *ask*, until *until_s* (monotonic)."""

    ask: Ask
    until_s: float


class KeepingFree:
    """Keeps nodes free for one pod or gang that waits too long; a chore."""

    def __init__(self, cluster: ClusterState, nominations: Nominations) -> None:
        """Keep nothing free."""
        self._cluster: Final = cluster
        self._nominations: Final = nominations
        self._kept: KeptFree | None = None
        self._looked_s = -_NEVER
        self._rests_until_s = -_NEVER
        # Pods for which no nodes were found, and until when they are not tried again.
        self._without: dict[PodUid, float] = {}
        # How often nodes were kept free in vain, by pod: others come first.
        self._in_vain: dict[PodUid, int] = {}
        # Times and orders of placed pods; a placement is dropped once a pod after it in the order is placed later.
        self._placed: Final[list[tuple[float, Order]]] = []

    @property
    def kept(self) -> KeptFree | None:
        """The nodes kept free now, if any."""
        kept = self._kept
        if kept is not None:
            entry = self._cluster.queue.get(kept.uid)
            if entry is None or entry.shape is None:
                self._end(End.GONE)
            elif entry.placement is not None:
                self._end(End.PLACED)
        return self._kept

    def placed(self, entry: Entry, now_s: float) -> None:
        """Record that *entry* was placed, so that refused pods before it in the order count as overtaken."""
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
        """Return when to look next, monotonic."""
        kept = self.kept
        if kept is not None:
            return kept.until_s
        if not self._cluster.settings.keep_free_for_s or not self._cluster.queue.is_refusing:
            return _NEVER
        return max(self._looked_s + _LOOK_S, self._rests_until_s)

    def look(self, now_s: float) -> None:
        """End keeping nodes free if it lasted too long, or begin for the first pod that waits too long."""
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
        """Yield the first pod of each ask, if it was refused for too long and overtaken."""
        since_s = now_s - self._cluster.settings.keep_free_after_s
        for ask in self._cluster.queue.refused_asks():
            entry = self._cluster.queue.first_refused(ask) if not isinstance(ask, Capped) else None
            if entry is None or entry.refused_s is None or entry.pod.uid in self._without:
                continue
            if entry.refused_s <= since_s and self._is_overtaken(entry, entry.refused_s):
                yield ask, entry

    def _begin(self, ask: Ask, entry: Entry, nodes: frozenset[NodeName], now_s: float) -> None:
        self._kept = KeptFree(
            ask=ask,
            uid=entry.pod.uid,
            key=group_of(entry.pod) if isinstance(ask, Together) else None,
            order=entry.order,
            nodes=nodes,
            until_s=now_s + self._cluster.settings.keep_free_for_s,
        )
        self._cluster.requeue.unreported[ask] = None

    def _nodes_for(self, ask: Ask, entry: Entry) -> frozenset[NodeName]:
        """Return the nodes that a refused pod needs; none if none suffice, or its queue lacks capacity."""
        unit, refusal = self._cluster.gangs.unit(entry), self._cluster.gangs.refusal(ask)
        if not unit.members or (refusal is not None and refusal.over):
            return _NOWHERE
        answer = refusal.answer if refusal is not None else None
        # Nodes on which pods are being evicted for others are left out, or those evictions would be in vain.
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


# Stages in which a pod has no place, and is not about to get one.
_UNDECIDED: Final = (Stage.REFUSED, Stage.HELD)


class Reservations:
    """Promises to pods, and the nodes reserved for waiting pods.

    Attributes:
        keeping_free: the nodes that are kept free.
        nominations: the preemptions in progress.
    """

    def __init__(self, cluster: ClusterState) -> None:
        """Begin without promises and reserved nodes."""
        self.nominations: Final = Nominations()
        self.keeping_free: Final = KeepingFree(cluster, self.nominations)
        self._cluster: Final = cluster

    def reserved(self) -> list[ReservedNodes]:
        """Return the reservations of nodes."""
        kept = self.keeping_free.kept
        return [*self.nominations, kept] if kept is not None else [*self.nominations]

    def barred_to(self, entry: Entry | None) -> frozenset[NodeName]:
        """Return the nodes that *entry* may not use, because they are reserved for other pods; None: for any pod."""
        barred = [one.nodes for one in self.reserved() if one.is_barred_to(entry)]
        own = self.nominations.of(entry) if entry is not None else None
        if entry is not None and own is not None:
            # A pod of equal priority would otherwise take capacity whose evictions have only begun.
            barred += [one.nodes - own.nodes for one in self.nominations if self._is_for_an_equal(one, entry)]
        return _NOWHERE.union(*barred)

    def _is_for_an_equal(self, nomination: Nomination, entry: Entry) -> bool:
        """Return whether *nomination* is for another pod or group with the priority of *entry*."""
        if nomination.order[0] != entry.order[0] or nomination.is_for(entry):
            return False
        key, other = group_of(entry.pod), self._cluster.queue.get(nomination.uid)
        return key is None or other is None or group_of(other.pod) != key

    def barred_to_first(self, ask: Ask) -> frozenset[NodeName]:
        """Return the nodes that the first pod refused for *ask* may not use."""
        return self.barred_to(self._cluster.queue.first_refused(ask)) if self.reserved() else _NOWHERE

    def barred_to_new(self, priority: int) -> frozenset[NodeName]:
        """Return the nodes that a new pod of *priority* may not use."""
        return _NOWHERE.union(*(one.nodes for one in self.reserved() if one.is_barred_to_new(priority)))

    def promised_before(self, entry: Entry) -> list[tuple[Spender, Mapping[str, int]]]:
        """Return what *entry* must leave of its queue and namespace to pods for whom others are being evicted.

        One sum for each group or namespace, because every decision counts with these.
        """
        if not len(self.nominations):
            return []
        found: dict[Spender, Counter[str]] = {}
        shares = self._cluster.budgets.sharing(spender_of(entry.pod))
        for one in self.nominations:
            if one.is_barred_to(entry) and shares(one.spender):
                for other, amounts in awaited(self._cluster, one):
                    found.setdefault(spender_of(other.pod), Counter()).update(amounts)
        return list(found.items())

    def is_before_promised(self, entry: Entry) -> bool:
        """Return whether *entry* may take of its queue or namespace what is promised to pods after it in the order."""
        shares = self._cluster.budgets.sharing(spender_of(entry.pod))
        others = (one for one in self.nominations if entry.order < one.order and not one.is_for(entry))
        return any(shares(one.spender) for one in others)

    # ------------------------------------------------------------------ promises

    def reserve(self, entry: Entry, placement: Placement) -> None:
        """Reserve *placement* in the ledger; this writes nothing to the API server."""
        queue = self._cluster.queue
        self._cluster.ledger.reserve(placement)
        queue.reserve(entry, placement)
        self._cluster.recording.note(entry.pod, What.RESERVED, placement.node)
        self.keeping_free.placed(entry, self._cluster.clock())
        self.book(entry.pod, placement.dialect, placement.assignment, placement.amounts)
        shape = entry.shape
        if shape is not None and entry.woken is None and queue.refuses(shape):
            queue.wake(shape)  # the next refused pod with this shape may fit as well

    def book(self, pod: Pod, dialect: DialectName | None, assignment: object, amounts: Amounts) -> None:
        """Count what *pod* holds against its queue and namespace; *amounts*: resources of its node besides cards."""
        ledger, key = self._cluster.ledger, group_of(pod)
        if key is not None:
            self._cluster.budgets.note(pod.uid, key, taken(ledger, pod, dialect, assignment))
        else:
            # It is only compared with others, so its amounts count as on its node.
            self._cluster.budgets.note(pod.uid, pod.namespace, {**dict(amounts), **ledger.metered(dialect, assignment)})

    def give_up(self, entry: Entry) -> None:
        """Release a pod's reservation and make the pod ready again."""
        self.release(entry)
        self._cluster.queue.ready(entry)

    def release(self, entry: Entry) -> None:
        """Release the reservation of a pod that stays in the queue.

        Raises:
            InvariantError: a Binding of the pod may still be written.
        """
        uid, cluster = entry.pod.uid, self._cluster
        cluster.sent.check_settled(uid)
        cluster.handoff.leave(uid)
        if entry.placement is not None:
            was_made_for_it = entry.pod.nominated_node == entry.placement.node
            cluster.queue.release(entry)
            cluster.budgets.drop(uid)
            cluster.ledger.release(uid)
            cluster.recording.note(entry.pod, What.RELEASED)
            if was_made_for_it and not self.renominate(entry):
                cluster.actions.append(Unnominate(pod=target_of(entry.pod)))

    def check_nominated(self, entry: Entry) -> None:
        """Have the nominated node of an undecided pod removed if no capacity is kept for it.

        Another scheduler may have left it, or an earlier write failed. Autoscalers pass over nominated pods.
        """
        if not self.renominate(entry) and entry.stage in _UNDECIDED and entry.pod.nominated_node:
            self._cluster.actions.append(Unnominate(pod=target_of(entry.pod)))

    def renominate(self, entry: Entry) -> bool:
        """Keep the nominated node for *entry* after evictions for it; return whether it has a nomination.

        The time limit stays that of the preemption. A preemption that has ended is not resumed, because the status that
        the watch shows may be outdated.
        """
        settings, now_s = self._cluster.settings, self._cluster.clock()
        if self.nominations.of(entry) is not None:
            return True
        until_s = min(entry.room_until_s, now_s + settings.preemption_wait_s)
        is_on = settings.preemption or settings.reclaim
        if not (entry.pod.nominated_node and is_on and entry.placement is None and now_s < until_s):
            return False
        self.nominations.restore(entry, until_s)
        return True
