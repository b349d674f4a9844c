"""Has pods of a lower priority leave for who finds no room, and keeps what becomes free for it until it is placed.

Off by default (`preemption`; `reclaim`: pods of queues that hold more than they deserve, for those of queues that hold
less). Who was refused for `preemption_delay_s` is searched victims for, one at a time and in
slices (`core.placing.preemption`), on a copy of the ledger; what is found is searched once more on the nodes that it is
about before anybody is asked to leave. It ends when the pod is placed, when somebody does not let a victim go, when all
have left and it still does not fit, or after `preemption_wait_s`. A pod that fits in what evictions for one before it
leave over needs none of its own.
"""

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from typing import Final, NamedTuple

from controller.actions import Preempt, Target, Unnominate, target_of
from controller.deciding.cluster import ClusterState
from controller.deciding.lifecycle import Ask, Capped, Entry, Stage
from controller.deciding.reserve import Nomination, Reservations
from controller.grouping.budgets import Spender, spender_of
from core.constraints.quota import taken
from core.groups import GroupKey, group_of
from core.ledger import Ledger, Placement
from core.model import NodeName, Pod, PodUid
from core.placing.decide import placed_on
from core.placing.gang import Together, Unit
from core.placing.preemption import LOOKED_AT_MAX, SYSTEM_CRITICAL, Crowd, Eviction, Known, victims_for
from core.placing.queue_tree import QueueTree
from core.placing.reclaim import Reclaim
from core.placing.shape import Shape
from core.waiting import Cause, Wait

_NOTHING: Final[Mapping[str, int]] = {}


def reclaim_for(
    cluster: ClusterState, unit: Unit, line: str, crowd: Crowd, nominations: Iterable[Nomination]
) -> Reclaim | None:
    """Whom queue *line* may take back room from for *unit*; None if from nobody."""
    lines, budgets = cluster.lines, cluster.budgets
    lines.bring_up_to_date(cluster.clock())
    tree, path = lines.groups.tree, _path(lines.groups.tree, line)
    asked = Counter[str]()
    for one in unit.wanted():
        asked.update(taken(cluster.ledger, one.pod, None, None))
    resources = frozenset(one for one, amount in asked.items() if amount and one in lines.deserved(line))
    changes = _changes(cluster, tree, crowd, nominations)

    def held(name: str, resource: str) -> int:
        return budgets.held(name).get(resource, 0) + changes[name, resource]

    room: dict[str, dict[str, float]] = {}
    for name in reversed(path):
        left = {one: lines.deserved(name).get(one, 0.0) - held(name, one) for one in resources}
        if any(asked[one] > amount for one, amount in left.items()):
            break
        room[name] = left
    if not resources or not room:
        return None
    below: dict[str, tuple[str, ...]] = {}
    paths: dict[PodUid, tuple[str, ...]] = {}
    for uid, who in crowd.occupants.items():
        whose = budgets.queue_of(uid)
        if whose is None or who.leaving or who.stays or who.kept:
            continue
        if whose not in below:
            below[whose] = _below(lines.groups.tree, path, _path(tree, whose), len(path) - len(room))
        if below[whose]:
            paths[uid] = below[whose]
    names = {name for found in below.values() for name in found}
    return Reclaim(
        paths=paths,
        amounts=budgets.held_by,
        resources=resources,
        over={name: {one: held(name, one) - lines.deserved(name).get(one, 0.0) for one in resources} for name in names},
        spare={
            name: {one: held(name, one) - amount for one, amount in tree.guaranteed.get(name, _NOTHING).items()}
            for name in names
        },
        room=room,
    )


def _path(tree: QueueTree, line: str) -> tuple[str, ...]:
    return tuple(tree.path(line)) or (line,)


def _below(tree: QueueTree, own: tuple[str, ...], other: tuple[str, ...], shared_least: int) -> tuple[str, ...]:
    """Of queue *other* those that are asked where *own* takes back; nobody where the two share too few."""
    shared = 0
    while shared < min(len(own), len(other)) and own[shared] == other[shared]:
        shared += 1
    if shared < shared_least or shared in (len(own), len(other)):
        return ()
    return other[shared:] if all(tree.queues[name].reclaimable for name in other[shared:]) else ()


def awaited(cluster: ClusterState, nomination: Nomination) -> Iterator[tuple[Entry, Mapping[str, int]]]:
    """Yield the pods that are not placed yet of those for whom others leave, and what each takes of its queue."""
    for target in nomination.nominated:
        entry = cluster.queue.get(target.uid)
        if entry is not None and entry.placement is None:
            yield entry, taken(cluster.ledger, entry.pod, None, None)


def _changes(
    cluster: ClusterState, tree: QueueTree, crowd: Crowd, nominations: Iterable[Nomination]
) -> Counter[tuple[str, str]]:
    """How much more, or less, queues hold once those have left who leave, and those are placed who wait for that."""
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


# So many nodes are looked at for one pod at most, because nothing else is decided meanwhile.
_LOOKED_AT_MAX: Final = 32
# Of more pods it is not remembered that they waited in vain.
_VAIN_MAX: Final = 4096


class Leftovers:
    """Finds room for single pods on nodes that are being cleared for pods before them."""

    def __init__(self, cluster: ClusterState, reservations: Reservations) -> None:
        """Begin with nothing known."""
        self._cluster: Final = cluster
        self._reservations: Final = reservations
        # Where pods of a shape do not fit beside those for whom others leave.
        self._full: Final[set[tuple[Shape, NodeName]]] = set()
        self._vain: Final[set[PodUid]] = set()

    def place(self, ask: Ask, entry: Entry, closed: Set[NodeName]) -> Placement | None:
        """Return where *entry*, which asks *ask*, fits once all have left and been placed; not on *closed* nodes."""
        barring = self._reservations
        if not isinstance(ask, Shape) or entry.pod.uid in self._vain:
            return None
        rooms: dict[NodeName, list[Nomination]] = {}
        for one in barring.nominations:
            for name in one.nodes:
                rooms.setdefault(name, []).append(one)
        kept, fork = barring.keeping_free.kept, None
        out = closed | kept.nodes if kept is not None and kept.is_barred_to(entry) else closed
        unknown = [name for name in rooms if name not in out and (ask, name) not in self._full]
        for name in unknown[:_LOOKED_AT_MAX]:
            those = rooms[name]
            # Where more than one node is cleared, it is open which of the pods goes where.
            if not all(len(one.nodes) == 1 and one.is_barred_to(entry) for one in those):
                continue
            fork = fork or self._cluster.ledger.fork()
            placement = self._beside(fork, name, those, entry.pod, ask)
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
        if not ledger.constraints.is_current(pod, shape.asked.pods):
            shape = shape.beside(ledger.constraints.pods_of(pod))
        return placed_on(ledger, self._cluster.search.policy, pod, shape, name)


_NEVER: Final = float("inf")
# No pod has a lower one.
_NO_PRIORITY: Final = -(1 << 63)
# Where room is kept that a queue took back: those who left for it come after it, whatever their priority.
_BEFORE_ALL: Final = (1 - SYSTEM_CRITICAL, False, 0, 0)
LOWER: Final = "of a lower priority"
OF_QUEUES: Final = "of queues that hold more than they deserve"
_LOOK_S: Final = 1.0
_SLICE_S: Final = 0.003
# Searches that find nobody take at most a twentieth of the time; those that make room for a pod, half of it.
_REST_PER_WORK: Final = 19.0
_REST_PER_FOUND: Final = 1.0
# For whom nobody can leave, and for whom nobody has to, is not searched again at once.
_NOBODY_S: Final = 60.0
_NO_NEED_S: Final = 5.0
# Whom the API server does not let go is not chosen again for so long, at the least.
_SPARED_S: Final = 30.0
# All have left, and this later the pod is refused still.
_QUIET_S: Final = 5.0
# As many pods and groups have room made for them at once: victims take up to their grace period to leave.
_NOMINATIONS_MAX: Final = 256
# Of pods that ask the same so many are looked at for one that is to be searched for.
_LOOKED_FOR: Final = 256


class End(StrEnum):
    """How it ended that room was made for a pod or group."""

    PLACED = "placed"
    IN_VAIN = "in_vain"
    REFUSED = "refused"
    GONE = "gone"


class Question(NamedTuple):
    """Who would have to leave: the search, to be taken further step by step, and who is there, as it was then.

    takes_back: who of them would leave only because the unit's queue takes back what it deserves.
    """

    steps: Generator[None, None, Eviction | None]
    crowd: Crowd
    takes_back: Set[PodUid] = frozenset()


@dataclass(slots=True, kw_only=True)
class _Search:
    ask: Ask
    uid: PodUid
    question: Question
    worked_s: float = 0.0


class Preempting:
    """For whom others are to leave.

    Attributes:
        trouble: why nobody is evicted although that is switched on, for operators, or "".
    """

    def __init__(self, cluster: ClusterState, reservations: Reservations) -> None:
        """Begin with nobody."""
        self.trouble = ""
        self._cluster: Final = cluster
        self._reservations: Final = reservations
        self._nominations: Final = reservations.nominations
        self._leftovers: Final = Leftovers(cluster, reservations)
        self._search: _Search | None = None
        self._known: Final = Known()
        self._looked_s = -_NEVER
        self._rests_until_s = -_NEVER
        # Whether the last search found somebody: then the next one does not wait for the next look.
        self._goes_on = False
        # What is not searched for again before a time, for pods of a priority and queue.
        self._rests: dict[tuple[Ask, int, str], float] = {}
        self._skipped = 0

    @property
    def is_on(self) -> bool:
        """Whether pods are to be evicted for others."""
        settings = self._cluster.settings
        return settings.preemption or settings.reclaim

    # ------------------------------------------------------------------ in time

    def next_s(self) -> float:
        """When to look next, monotonic."""
        if self._search is not None:
            return -_NEVER
        if not len(self._nominations) and not (self.is_on and self._cluster.queue.is_refusing):
            return _NEVER
        look_s = self._looked_s + _LOOK_S
        return min(look_s, self._rests_until_s) if self._goes_on else look_s

    def look(self, now_s: float) -> None:
        """End what is over, and search for whom others are to leave."""
        if self._search is None:
            self._goes_on = False
            if now_s >= self._looked_s + _LOOK_S:
                self._looked_s = now_s
                for nomination in self._nominations:
                    self._tend(nomination, now_s)
        if not self.is_on or self._cluster.occupants.disruption_budgets is None:
            self._search = None
            return
        if self._search is None and now_s >= self._rests_until_s and len(self._nominations) < _NOMINATIONS_MAX:
            found = self._next(now_s)
            if found is not None and self._joins(*found, now_s):
                self._goes_on = True
            elif found is not None:
                ask, entry = found
                self._search = _Search(ask=ask, uid=entry.pod.uid, question=self.question(entry))
        if self._search is not None:
            self._go_on(self._search)

    def _next(self, now_s: float) -> tuple[Ask, Entry] | None:
        """The first that was refused for long enough and for whom others may leave."""
        self._rests = {who: until_s for who, until_s in self._rests.items() if until_s > now_s}
        queue, found = self._cluster.queue, list[tuple[Ask, Entry]]()
        # A leader before may have made room for gangs: it tells so of each of their pods alone.
        made_for = (queue.get(one.uid) for one in self._nominations)
        groups = {key for one in made_for if one is not None and (key := group_of(one.pod)) is not None}
        for ask in queue.refused_asks():
            refusal = self._cluster.gangs.refusal(ask)
            # What no node refuses for want of room is not helped.
            if isinstance(ask, Capped) or ask in self._cluster.requeue.silent or (refusal is not None and refusal.over):
                continue
            first = queue.first_refused(ask)
            if first is not None and not self._may_be_next(ask, first, now_s, groups):
                others = sorted(islice(queue.refused_pods(ask), _LOOKED_FOR), key=lambda one: one.order)
                first = next((one for one in others if self._may_be_next(ask, one, now_s, groups)), None)
            if first is not None:
                found.append((ask, first))
        return min(found, key=lambda one: one[1].order, default=None)

    def _may_be_next(self, ask: Ask, entry: Entry, now_s: float, groups: Set[GroupKey]) -> bool:
        """Whether others may leave for *entry*; *groups*: those of the pods for which room is being made."""
        since_s = now_s - self._cluster.settings.preemption_delay_s
        if not entry.standing.preempts or entry.refused_s is None or entry.refused_s > since_s:
            return False
        if (ask, entry.standing.priority, entry.line) in self._rests or self._nominations.of(entry) is not None:
            return False
        return not (isinstance(ask, Together) and group_of(entry.pod) in groups)

    def _joins(self, ask: Ask, entry: Entry, now_s: float) -> bool:
        """Keep for *entry* the room that evictions for pods before it leave over; return whether there is any."""
        started_s = self._cluster.clock()
        placement = self._leftovers.place(ask, entry, self._cluster.handoff.closed_nodes(now_s).keys())
        ended_s = self._cluster.clock()
        self._rests_until_s = max(self._rests_until_s, ended_s + _REST_PER_FOUND * (ended_s - started_s))
        if placement is None or self._is_over(entry, [placement], ()):
            return False
        self._nominate(entry, Eviction((), (placement,)), frozenset(), now_s)
        return True

    # ------------------------------------------------------------------ searching

    def question(self, entry: Entry, *, only: frozenset[NodeName] | None = None) -> Question:
        """Who would have to leave for *entry*, or its gang, as all is now; *only*: of these nodes."""
        unit = self._cluster.gangs.unit(entry)
        out = self._reservations.to(entry) | self._cluster.handoff.closed_nodes(self._cluster.clock()).keys()
        if only is not None:
            out |= self._cluster.ledger.states.keys() - only
        crowd, settings = self._cluster.occupants.crowd(), self._cluster.settings
        reclaim = reclaim_for(self._cluster, unit, entry.line, crowd, self._nominations) if settings.reclaim else None
        # What is told while nothing is on is about priorities.
        by_priority = settings.preemption or not settings.reclaim
        priority = self._lowest(unit, entry) if by_priority else _NO_PRIORITY
        steps = victims_for(
            self._cluster.ledger.fork(),
            self._cluster.search.policy,
            unit,
            crowd,
            priority=priority,
            own=group_of(entry.pod),
            reclaim=reclaim,
            passed_over=out,
            skipped=self._skipped,
            known=self._known if only is None else None,
        )
        takes_back = frozenset(
            uid for uid in (reclaim.paths if reclaim is not None else ()) if crowd.occupants[uid].priority >= priority
        )
        return Question(self._within_limits(entry, steps, reclaim, takes_back), crowd, takes_back)

    def _lowest(self, unit: Unit, entry: Entry) -> int:
        """The lowest priority among the members of *unit*, of which *entry* is one."""
        entries = (self._cluster.queue.get(one.pod.uid) for one in unit.members)
        return min((one.standing.priority for one in entries if one is not None), default=entry.standing.priority)

    def _within_limits(
        self,
        entry: Entry,
        steps: Generator[None, None, Eviction | None],
        reclaim: Reclaim | None,
        takes_back: Set[PodUid],
    ) -> Generator[None, None, Eviction | None]:
        """What *steps* find, unless *entry*, or its gang, then holds more than it may.

        That is so where queue or namespace has too little left for it, also once those before it have the room that is
        made for them, and where its queue holds more than it deserves although pods of *takes_back* leave for it.
        """
        found = yield from steps
        if found is None or not found.victims:
            return found
        if reclaim is not None and not takes_back.isdisjoint(found.victims):
            asked = Counter[str]()
            for amounts in self._taken(found.placements):
                asked.update(amounts)
            if not reclaim.is_due(asked):
                return None
        return None if self._is_over(entry, found.placements, found.victims) else found

    def _taken(self, placements: Iterable[Placement]) -> list[dict[str, int]]:
        """What *placements* take of queue and namespace."""
        queue, ledger = self._cluster.queue, self._cluster.ledger
        pods = [(at, one.pod) for at in placements if (one := queue.get(at.pod)) is not None]
        return [taken(ledger, pod, at.dialect, at.assignment) for at, pod in pods]

    def _is_over(self, entry: Entry, placements: Iterable[Placement], victims: Iterable[PodUid]) -> bool:
        """Whether *placements* of *entry*, or its gang, are more than it may hold once *victims* have left."""
        cluster, spender = self._cluster, spender_of(entry.pod)
        if not cluster.budgets.limits(spender):
            return False
        leaving, beside = set(victims), list[tuple[Spender, Mapping[str, int]]]()
        for other in self._nominations:
            leaving.update(other.victims)
            if other.is_barred_to(entry):
                beside += [(spender_of(one.pod), amounts) for one, amounts in awaited(cluster, other)]
        left = cluster.budgets.budget(spender, without=leaving, beside=beside)
        return left is not None and any(left.spend(amounts) for amounts in self._taken(placements))

    def _go_on(self, search: _Search) -> None:
        started_s = self._cluster.clock()
        answer: Eviction | None = None
        is_over = False
        while not is_over and self._cluster.clock() < started_s + _SLICE_S:
            try:
                next(search.question.steps)
            except StopIteration as end:
                answer, is_over = end.value, True
            else:
                self._cluster.metrics.preemption_looked_at.inc()
        search.worked_s += self._cluster.clock() - started_s
        if is_over:
            self._search = None
            self._goes_on = self._answered(search, answer)
            rest = _REST_PER_FOUND if self._goes_on else _REST_PER_WORK
            self._rests_until_s = max(self._rests_until_s, self._cluster.clock() + rest * search.worked_s)

    def _answered(self, search: _Search, answer: Eviction | None) -> bool:
        """Take the answer of *search*, and return whether victims are asked to leave."""
        now_s, entry = self._cluster.clock(), self._cluster.queue.get(search.uid)
        if entry is None or entry.stage is not Stage.REFUSED or entry.parked != search.ask:
            return False
        who = search.ask, entry.standing.priority, entry.line
        if answer is None:
            # Nodes on which room is made for others are left out, for a while.
            self._rests[who] = now_s + (_NO_NEED_S if len(self._nominations) else _NOBODY_S)
            if len(self._cluster.ledger.states) > LOOKED_AT_MAX:
                self._skipped += LOOKED_AT_MAX
            return False
        # Meanwhile others may have come and gone.
        nodes = frozenset(placement.node for placement in answer.placements)
        question = self.question(entry, only=nodes)
        again = ended(question.steps) if answer.victims else None
        if again is None or not again.victims or again.violations > answer.violations:
            self._rests[who] = now_s + _NO_NEED_S
            return False
        self._nominate(entry, again, question.takes_back, now_s)
        return True

    # ------------------------------------------------------------------ claiming

    def _nominate(self, entry: Entry, found: Eviction, takes_back: Set[PodUid], now_s: float) -> None:
        """Have all victims asked to leave, and keep their room for *entry* or its gang."""
        victims = tuple(target for uid in found.victims if (target := self._target(uid)) is not None)
        nominated = tuple(
            (target_of(one.pod), placement.node)
            for placement in found.placements
            if (one := self._cluster.queue.get(placement.pod)) is not None
        )
        by_priority = takes_back.isdisjoint(found.victims)
        nomination = Nomination(
            uid=entry.pod.uid,
            key=group_of(entry.pod) if isinstance(entry.parked, Together) else None,
            order=entry.order if by_priority else _BEFORE_ALL,
            nodes=frozenset(placement.node for placement in found.placements),
            victims=found.victims,
            nominated=tuple(pod for pod, _ in nominated),
            until_s=now_s + self._cluster.settings.preemption_wait_s,
            asking=True,
            whose=LOWER if by_priority else OF_QUEUES,
        )
        self._nominations.put(nomination)
        self._cluster.actions.append(Preempt(nomination=nomination.uid, nominated=nominated, victims=victims))
        many, where = len(victims), _on(nomination.nodes)
        if many:
            message = f"{_pods(many)} {nomination.whose} {_are(many)} being evicted from {where}"
            self._cluster.announce(entry.pod, "Preempting", message, warning=False)
        self._tell(nomination)

    def _target(self, uid: PodUid) -> tuple[Target, NodeName] | None:
        ledger = self._cluster.ledger
        holding, node = ledger.holding(uid), ledger.node_of(uid)
        if holding is None or node is None:
            return None
        namespace, _, name = holding.key.partition("/")
        return Target(uid=uid, namespace=namespace, name=name), node

    def _waiting(self, nomination: Nomination) -> list[Entry]:
        queue = self._cluster.queue
        return [one for pod in nomination.nominated if (one := queue.get(pod.uid)) is not None]

    def _tell(self, nomination: Nomination) -> None:
        many = len(nomination.victims)
        text = f"pods {nomination.whose} were evicted"
        if many:
            text = f"{_pods(many)} {nomination.whose} {_are(many)} being evicted"
        wait_s = self._cluster.settings.preemption_wait_s
        whose = "it" if nomination.key is None else "its group"
        wait = Wait(
            Cause.WAITING_FOR_EVICTED,
            f"{text} from {_on(nomination.nodes)}; their capacity is reserved for {whose}, {wait_s:g} s at most",
        )
        for entry in self._waiting(nomination):
            if entry.stage is Stage.REFUSED and entry.wait != wait:
                self._cluster.hold_up(entry, wait)

    # ------------------------------------------------------------------ what becomes of it

    def asked(self, uid: PodUid) -> None:
        """All victims of a nomination were asked to leave, and may."""
        self.trouble = ""
        nomination = self._nominations.get(uid)
        if nomination is not None:
            self._nominations.put(replace(nomination, asking=False))

    def evicted(self, victim: Target) -> None:
        """A victim was asked to leave."""
        self._cluster.recording.evicted(victim)

    def refused(self, uid: PodUid, victim: PodUid | None, rest_s: float, *, trouble: str = "") -> None:
        """One of the victims may not leave now, or (None) nobody was asked; *trouble*: why, if not for its own sake."""
        self.trouble = trouble
        now_s, nomination = self._cluster.clock(), self._nominations.get(uid)
        if victim is not None:
            self._cluster.occupants.spare(victim, now_s + max(rest_s, _SPARED_S))
        if trouble:
            self._rests_until_s = now_s + _NOBODY_S
        if nomination is not None:
            self._end(nomination, End.REFUSED)

    def _tend(self, nomination: Nomination, now_s: float) -> None:
        entries = self._waiting(nomination)
        if not any(one.shape is not None for one in entries):
            is_placed = any(self._cluster.ledger.node_of(pod.uid) is not None for pod in nomination.nominated)
            self._end(nomination, End.PLACED if is_placed else End.GONE)
        elif all(one.placement is not None for one in entries):
            self._end(nomination, End.PLACED)
        elif not self.is_on:
            self._end(nomination, End.IN_VAIN)
        elif now_s >= nomination.until_s:
            for uid in self._leaving(nomination):
                self._cluster.occupants.does_not_leave(uid)
            self._end(nomination, End.IN_VAIN)
        elif nomination.asking or self._leaving(nomination):
            self._nominations.put(replace(nomination, quiet_s=_NEVER))
            self._tell(nomination)
        elif any(one.stage is not Stage.REFUSED for one in entries):
            self._tell(nomination)
        elif now_s >= nomination.quiet_s + _QUIET_S:
            self._end(nomination, End.IN_VAIN)
        else:
            self._nominations.put(replace(nomination, quiet_s=min(nomination.quiet_s, now_s)))
            self._tell(nomination)
            # Others may be refused for the same, and come first by their queue: the room is kept from them.
            self._cluster.queue.wake_one(min(entries, key=lambda one: one.order))

    def _leaving(self, nomination: Nomination) -> list[PodUid]:
        """Who is on its way off the nodes of a nomination."""
        ledger, is_leaving = self._cluster.ledger, self._cluster.occupants.is_leaving
        return [uid for name in nomination.nodes for uid in ledger.holders(name) if is_leaving(uid)]

    def _end(self, nomination: Nomination, how: End) -> None:
        self._nominations.drop(nomination)
        self._leftovers.forget(nomination.nodes)
        if how is End.IN_VAIN and not nomination.victims:
            self._leftovers.in_vain(nomination.uid)
        self._cluster.metrics.preemptions.labels(how.value).inc()
        self._cluster.requeue.hear(nomination.nodes)
        if how is End.PLACED:
            return
        for entry in self._waiting(nomination):
            self._cluster.actions.append(Unnominate(pod=target_of(entry.pod)))
            if entry.wait is not None and entry.wait.cause is Cause.WAITING_FOR_EVICTED:
                self._cluster.hold_up(entry, None)


def ended(steps: Generator[None, None, Eviction | None]) -> Eviction | None:
    """What a search finds, without a pause: for one on few nodes."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # typeshed knows no better


def _pods(many: int) -> str:
    return "1 pod" if many == 1 else f"{many} pods"


def _are(many: int) -> str:
    return "is" if many == 1 else "are"


def _on(nodes: frozenset[NodeName]) -> str:
    names = sorted(nodes)
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ("node " if len(names) == 1 else "nodes ") + ", ".join(names[:3]) + more
