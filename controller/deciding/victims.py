"""What would make room for one refused pod: what earlier preemptions leave over, or the victims of one of its own.

`preempt` asks it for one pod after another, and checks its answer again before any eviction.
"""

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Set
from typing import Final, NamedTuple

from controller.deciding.cluster import ClusterState
from controller.deciding.lifecycle import Ask, Entry
from controller.deciding.reserve import Nomination, Reservations, awaited
from controller.grouping.budgets import spender_of
from core.constraints.quota import QUOTA, Budget, taken
from core.ledger import Ledger, Placement
from core.model import GroupKey, NodeName, Pod, PodUid, group_of
from core.placing.crowd import Broken, Crowd, Occupant
from core.placing.decide import Shape, placed_on, shape_now
from core.placing.gang import Unit
from core.placing.preemption import LOOKED_AT_MAX, Eviction, FoundOnNodes, victims_for
from core.placing.queues import Allowance, QueueTree, Reclaim
from core.units import counted, listed

LOWER: Final = "of a lower priority"
OF_QUEUES: Final = "of queues that hold more than they deserve"
# Lower than every priority.
_NO_PRIORITY: Final = -(1 << 63)
# The maximum number of nodes that are tried for one pod, because nothing else is decided meanwhile.
_LOOKED_AT_MAX: Final = 32
# The maximum number of remembered pods that waited in vain.
_VAIN_MAX: Final = 4096
_NOTHING: Final[Mapping[str, int]] = {}


class Leftovers:
    """Finds room for single pods on nodes that are being cleared for pods before them."""

    def __init__(self, cluster: ClusterState, reservations: Reservations) -> None:
        """Begin with nothing known."""
        self._cluster: Final = cluster
        self._reservations: Final = reservations
        # Shapes and nodes where such a pod does not fit beside the pods for which others are evicted.
        self._full: Final[set[tuple[Shape, NodeName]]] = set()
        self._vain: Final[set[PodUid]] = set()

    def place(self, ledger: Ledger, ask: Ask, entry: Entry, closed: Set[NodeName]) -> Placement | None:
        """Return where *entry*, which asks *ask*, fits once all have left and been placed; not on *closed* nodes.

        *ledger*, a fork, is as it was afterwards.
        """
        if not isinstance(ask, Shape) or entry.pod.uid in self._vain:
            return None
        rooms: dict[NodeName, list[Nomination]] = {}
        for one in self._reservations.nominations:
            for name in one.nodes:
                rooms.setdefault(name, []).append(one)
        kept = self._reservations.keeping_free.kept
        out = closed | kept.nodes if kept is not None and kept.is_barred_to(entry) else closed
        unknown = [name for name in rooms if name not in out and (ask, name) not in self._full]
        for name in unknown[:_LOOKED_AT_MAX]:
            those = rooms[name]
            # Where more than one node is cleared, it is open which of the pods goes where.
            if not all(len(one.nodes) == 1 and one.is_barred_to(entry) for one in those):
                continue
            placement = self._beside(ledger, name, those, entry.pod, ask)
            if placement is not None:
                return placement
            self._full.add((ask, name))
        return None

    def forget(self, nodes: Set[NodeName]) -> None:
        """Forget what is known of *nodes*, because a nomination on them ended."""
        self._full.difference_update([one for one in self._full if one[1] in nodes])

    def in_vain(self, uid: PodUid) -> None:
        """Find no room any more for a pod that waited for what was left in vain: others may have to leave for it."""
        if len(self._vain) >= _VAIN_MAX:
            self._vain.clear()
        self._vain.add(uid)

    def _beside(
        self, ledger: Ledger, name: NodeName, those: Iterable[Nomination], pod: Pod, shape: Shape
    ) -> Placement | None:
        if name not in ledger.states:
            return None
        with ledger.trial():
            victims = {uid for one in those for uid in one.victims}
            for uid in tuple(ledger.holders(name)):
                if uid in victims or self._cluster.occupants.is_leaving(uid):
                    ledger.release(uid)
            for target in (target for one in those for target in one.nominated):
                other = self._cluster.queue.get(target.uid)
                if other is None or other.placement is not None:
                    continue
                placement = self._fits(ledger, name, other.pod, other.shape) if other.shape is not None else None
                if placement is None:
                    return None
                ledger.reserve(placement)
            return self._fits(ledger, name, pod, shape)

    def _fits(self, ledger: Ledger, name: NodeName, pod: Pod, shape: Shape) -> Placement | None:
        return placed_on(ledger, self._cluster.search.policy, pod, shape_now(ledger, pod, shape), name)


class Question(NamedTuple):
    """A search for victims, which runs step by step, and the pods on nodes at its start.

    takes_back: the pods that can only be victims because the unit's queue reclaims what it deserves.
    """

    steps: Generator[None, None, Eviction | None]
    crowd: Crowd
    takes_back: Set[PodUid] = frozenset()

    def whose(self, found: Eviction) -> str:
        """Return what kind of pods the victims of *found* are, in words."""
        return LOWER if self.takes_back.isdisjoint(found.victims) else OF_QUEUES


class VictimSearch:
    """Searches for the victims that a refused pod, or its gang, needs, within the limits of its queue and namespace."""

    def __init__(self, cluster: ClusterState, reservations: Reservations) -> None:
        """Begin with nothing known."""
        self._cluster: Final = cluster
        self._reservations: Final = reservations
        self._known: Final = FoundOnNodes()
        self._skipped = 0

    @property
    def is_by_priority(self) -> bool:
        """Whether pods of a lower priority are evicted; if neither setting is on, questions are answered as if so."""
        return self._cluster.settings.preemption or not self._cluster.settings.reclaim

    def question(self, entry: Entry, *, again: Eviction | None = None, ledger: Ledger | None = None) -> Question:
        """Return a search for the victims that *entry*, or its gang, needs now.

        Args:
            entry: the waiting pod.
            again: an answer to check again: only on its nodes and, of the queue elsewhere, with its victims; None: any.
            ledger: a fresh fork of the cluster's ledger, which must not change until the search ends.
        """
        unit = self._cluster.gangs.unit(entry)
        out = self._reservations.barred_to(entry) | self._cluster.handoff.closed_nodes(self._cluster.clock()).keys()
        if again is not None:
            out |= self._cluster.ledger.states.keys() - {one.node for one in again.placements}
        crowd, settings = self._cluster.occupants.crowd(), self._cluster.settings
        reclaim = (
            reclaim_for(self._cluster, unit, entry.line, crowd, self._reservations.nominations)
            if settings.reclaim
            else None
        )
        priority = self._lowest(unit, entry) if self.is_by_priority else _NO_PRIORITY
        leaving = self._cluster.occupants.leaving()
        among = crowd.occupants
        if again is not None:
            among = {uid: who for uid in again.victims if (who := among.get(uid)) is not None}
        steps = victims_for(
            ledger or self._cluster.ledger.fork(),
            self._cluster.search.policy,
            unit,
            crowd,
            priority=priority,
            own=group_of(entry.pod),
            reclaim=reclaim,
            allowance=self._allowance(entry, among, priority, leaving),
            passed_over=out,
            skipped=self._skipped,
            known=self._known if again is None else None,
        )
        takes_back = frozenset(
            uid for uid in (reclaim.paths if reclaim is not None else ()) if crowd.occupants[uid].priority >= priority
        )
        return Question(self._within_limits(entry, steps, reclaim, takes_back, leaving), crowd, takes_back)

    def _lowest(self, unit: Unit, entry: Entry) -> int:
        """Return the lowest priority among the members of *unit*, which include *entry*."""
        entries = (self._cluster.queue.get(one.pod.uid) for one in unit.members)
        return min((one.standing.priority for one in entries if one is not None), default=entry.standing.priority)

    def _within_limits(
        self,
        entry: Entry,
        steps: Generator[None, None, Eviction | None],
        reclaim: Reclaim | None,
        takes_back: Set[PodUid],
        leaving: frozenset[PodUid],
    ) -> Generator[None, None, Eviction | None]:
        """Run *steps*; return None instead of victims if *entry*, or its gang, would then hold more than it may.

        That is so if its queue or namespace has too little left, with pods of earlier preemptions counted as placed; or
        if pods of *takes_back* are victims, and its queue would then hold more than it deserves.
        """
        found = yield from steps
        if found is None or not found.victims:
            return found
        if reclaim is not None and not takes_back.isdisjoint(found.victims):
            asked = Counter[str]()
            for amounts in self.taken(found.placements):
                asked.update(amounts)
            if not reclaim.is_due(asked):
                return None
        return None if self.is_over(entry, found.placements, leaving.union(found.victims)) else found

    def _allowance(
        self, entry: Entry, among: Mapping[PodUid, Occupant], priority: int, leaving: frozenset[PodUid]
    ) -> Allowance | None:
        """Return what the queue of *entry* may still hold once *leaving* have left; None if nothing limits it.

        Of the queue, only pods of *among* are evicted.
        """
        key = group_of(entry.pod)
        if key is None or all(one.kind == QUOTA for one in self._cluster.budgets.limits(key)):
            return None
        gone = leaving.union(*(one.victims for one in self._reservations.nominations))

        def left(placements: Iterable[Placement], victims: Iterable[PodUid]) -> Mapping[str, int]:
            budget, asked = self._budget(entry, leaving.union(victims)), Counter[str]()
            for amounts in self.taken(placements):
                asked.update(amounts)
            found: dict[str, int] = {}
            for (account, one), (rest, _) in budget.left.items() if budget is not None else ():
                if account.kind != QUOTA and asked[one]:
                    found[one] = min(found.get(one, rest - asked[one]), rest - asked[one])
            return found

        return Allowance(
            mates=self._mates(key, among, priority) - gone,
            amounts=self._cluster.budgets.held_by,
            left=left,
        )

    def _mates(self, key: GroupKey, among: Mapping[PodUid, Occupant], priority: int) -> frozenset[PodUid]:
        """Return those of the pods *among* in the queue of group *key* that may be evicted for *priority*."""
        groups, line = self._cluster.groups, self._cluster.groups.queue_of(key)
        found = [(uid, who.block) for uid, who in among.items() if who.priority < priority and not who.stays]
        keys = {block for _, block in found if isinstance(block, GroupKey)}
        mates = {key for key in keys if groups.queue_of(key) == line}
        return frozenset(uid for uid, block in found if block in mates)

    def taken(self, placements: Iterable[Placement]) -> list[dict[str, int]]:
        """Return what each of *placements* takes of its queue and namespace."""
        queue, ledger = self._cluster.queue, self._cluster.ledger
        pods = [(at, one.pod) for at in placements if (one := queue.get(at.pod)) is not None]
        return [taken(ledger, pod, at.dialect, at.assignment) for at, pod in pods]

    def is_over(self, entry: Entry, placements: Iterable[Placement], victims: Iterable[PodUid]) -> bool:
        """Return whether *placements* of *entry*, or its gang, exceed its limits once *victims* have left."""
        left = self._budget(entry, victims)
        return left is not None and any(left.spend(amounts) for amounts in self.taken(placements))

    def _budget(self, entry: Entry, victims: Iterable[PodUid]) -> Budget | None:
        """Return what *entry*, or its gang, may take once *victims* have left; None if nothing limits it.

        The victims of earlier preemptions count as gone, and the pods before *entry* for whom these are as placed.
        """
        cluster, spender = self._cluster, spender_of(entry.pod)
        if not cluster.budgets.limits(spender):
            return None
        leaving = set(victims).union(*(one.victims for one in self._reservations.nominations))
        return cluster.budgets.budget(spender, without=leaving, beside=self._reservations.promised_before(entry))

    def was_in_vain(self) -> None:
        """Begin the next search with the nodes behind those that the last one has looked at."""
        if len(self._cluster.ledger.states) > LOOKED_AT_MAX:
            self._skipped += LOOKED_AT_MAX


def ended(steps: Generator[None, None, Eviction | None]) -> Eviction | None:
    """Run a search to its end, without a pause, and return its result; for searches on few nodes."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # typeshed knows no better


def forbidden(broken: Iterable[Broken] = (), namespace: str = "") -> str:
    """Return that disruption budgets forbid evictions, and which; users of *namespace* may see only those there."""
    told = []
    for budgets, wanted, many in broken:
        names = listed([one.name if one.namespace == namespace else "one of another namespace" for one in budgets], 3)
        told.append(
            f"{names} select the same pod, and the API server evicts no such pod"
            if len(budgets) > 1
            else f"{names} allows {wanted - many} of {counted(wanted, 'evictions')}"
        )
    return f"a disruption budget forbids it: {'; '.join(told)}" if told else "a disruption budget forbids it"


def reclaim_for(
    cluster: ClusterState, unit: Unit, line: str, crowd: Crowd, nominations: Iterable[Nomination]
) -> Reclaim | None:
    """Return from which pods queue *line* may take back what it deserves for *unit*; None if from none.

    It may while it and the queues above it hold less than they deserve, with pods that leave counted as gone and pods
    that wait for evictions counted as placed.
    """
    order, budgets = cluster.queue_order, cluster.budgets
    order.bring_up_to_date(cluster.clock())
    tree, path = order.groups.tree, _path(order.groups.tree, line)
    asked = Counter[str]()
    for one in unit.wanted():
        asked.update(taken(cluster.ledger, one.pod, None, None))
    resources = frozenset(one for one, amount in asked.items() if amount and one in order.deserved(line))
    changes = _changes(cluster, tree, crowd, nominations)

    def held(name: str, resource: str) -> int:
        return budgets.held(name).get(resource, 0) + changes[name, resource]

    room: dict[str, dict[str, float]] = {}
    for name in reversed(path):
        left = {one: order.deserved(name).get(one, 0.0) - held(name, one) for one in resources}
        if any(asked[one] > amount for one, amount in left.items()):
            break
        room[name] = left
    if not resources or not room:
        return None
    below: dict[str, tuple[str, ...]] = {}
    priorities: dict[str, tuple[int, ...]] = {}
    paths: dict[PodUid, tuple[str, ...]] = {}
    queues: dict[PodUid, tuple[int, ...]] = {}
    for uid, who in crowd.occupants.items():
        whose = budgets.queue_of(uid)
        if whose is None or who.leaving or who.stays:
            continue
        if whose not in below:
            theirs = _path(tree, whose)
            below[whose] = _below(tree, path, theirs, len(path) - len(room))
            if below[whose]:
                priorities[whose] = tuple(tree.queues[name].priority for name in theirs)
        if below[whose]:
            paths[uid], queues[uid] = below[whose], priorities[whose]
    names = {name for found in below.values() for name in found}
    return Reclaim(
        paths=paths,
        queues=queues,
        amounts=budgets.held_by,
        resources=resources,
        over={name: {one: held(name, one) - order.deserved(name).get(one, 0.0) for one in resources} for name in names},
        spare={
            name: {one: held(name, one) - amount for one, amount in tree.guaranteed.get(name, _NOTHING).items()}
            for name in names
        },
        room=room,
    )


def _path(tree: QueueTree, line: str) -> tuple[str, ...]:
    return tuple(tree.path(line)) or (line,)


def _below(tree: QueueTree, own: tuple[str, ...], other: tuple[str, ...], shared_least: int) -> tuple[str, ...]:
    """Return the queues on path *other* that *own* reclaims from; none if the two share too few queues."""
    shared = 0
    while shared < min(len(own), len(other)) and own[shared] == other[shared]:
        shared += 1
    if shared < shared_least or shared in (len(own), len(other)):
        return ()
    return other[shared:] if all(tree.queues[name].reclaimable for name in other[shared:]) else ()


def _changes(
    cluster: ClusterState, tree: QueueTree, crowd: Crowd, nominations: Iterable[Nomination]
) -> Counter[tuple[str, str]]:
    """Return the changes of what queues hold, once all leaving pods are gone and the pods that wait for them placed."""
    found = Counter[tuple[str, str]]()
    leaving = {uid for uid, who in crowd.occupants.items() if who.leaving}
    for nomination in nominations:
        leaving.update(nomination.victims)
        for entry, amounts in awaited(cluster, nomination):
            found.update({(name, one): more for name in _path(tree, entry.line) for one, more in amounts.items()})
    for uid in leaving:
        whose = cluster.budgets.queue_of(uid)
        if whose is not None:
            amounts = dict(cluster.budgets.held_by(uid))
            found.subtract({(name, one): less for name in _path(tree, whose) for one, less in amounts.items()})
    return found
