"""The scheduling cycle: takes pods from the queue one by one, chooses their nodes, and tries refused pods again.

It has the steps of kube-scheduler: pop, filter and score (`score`), reserve (`reserve`), pre-bind (`prebind`), permit
and bind (both in `bind`). Pre-bind comes before permit, so that no pod stands in a node's line while its volumes are
created. All of it is synchronous, in the scheduler's task: nothing can change between a decision and its reservation.
A gang takes the same path with all its members at once (`gang`).
"""

from collections.abc import Iterator, Sequence, Set
from math import inf, isinf
from typing import Final, Protocol

from controller.deciding.bind import PluginGate
from controller.deciding.cluster import ClusterState
from controller.deciding.gang import Gang
from controller.deciding.lifecycle import Ask, Capped, Entry, Stage, shapes_of
from controller.deciding.pending import Pending
from controller.deciding.prebind import PreBind
from controller.deciding.reserve import Reservations
from controller.deciding.score import Nowhere, select_node
from controller.handing_over.collision import CollisionKey
from core.constraints.constraint import is_among
from core.errors import NodeInvariantError
from core.ledger import Placement
from core.model import NO_VOLUMES, NodeName, group_of
from core.placing import gang
from core.placing.decide import Shape
from core.placing.gang import Together
from core.waiting import Cause, Wait

# A new placement opens no node, so no refused pod is tried because of it. At this interval, the conditions of refused
# pods are updated with what was taken meanwhile.
_TELL_S: Final = 30.0
_COUNTED_AT_ONCE: Final = 64


class Retrying:
    """Tries refused pods again, one ask at a time, when something could have opened for them."""

    def __init__(self, cluster: ClusterState, reservations: Reservations) -> None:
        """Begin with nobody."""
        self._cluster: Final = cluster
        self._reservations: Final = reservations
        self._retried_s = cluster.clock()
        self._told_s = cluster.clock()
        self._told_cursor = cluster.ledger.cursor
        self._to_count: list[Capped] = []

    def next(self, now_s: float) -> bool:
        """Check whether one refused ask fits now, and wake its first pod if so; return False if none is left."""
        queue, requeue = self._cluster.queue, self._cluster.requeue
        self.hear()
        queue.wake_next()
        self._cluster.budgets.hear()
        for freed in self._cluster.gangs.freed() if self._cluster.budgets.freed and queue.is_refusing else ():
            queue.wake(freed)
        self._cluster.budgets.freed.clear()
        if requeue.is_due(now_s):
            requeue.begin((one for one in queue.refused_asks() if not isinstance(one, Capped)), now_s)
        ask = requeue.next(self._cluster.clock())
        if ask is None:
            return False
        if isinstance(ask, Together):
            self._ask_together(ask)
        elif isinstance(ask, Shape):
            if requeue.opened_for(ask) is not None or self._cluster.search.candidates.is_prepared(ask):
                self._ask(ask)
            else:
                self._cluster.search.begin(self._prepare_to_ask(ask))
        return True

    def retry(self, now_s: float) -> None:
        """At intervals, try every ask again, in case an event was missed, and update the conditions of refused pods."""
        cursor = self._cluster.ledger.cursor
        if now_s >= self._told_s + _TELL_S and cursor != self._told_cursor:
            self._told_s, self._told_cursor = now_s, cursor
            self._cluster.requeue.tell_anew()
            self._to_count = [ask for ask in self._cluster.queue.refused_asks() if isinstance(ask, Capped)]
        self._count_some()
        if now_s >= self._retried_s + self._cluster.settings.refused_retry_s:
            self._retried_s = now_s
            self._cluster.requeue.hear_of_all()
            self._cluster.budgets.free_all()

    def _count_some(self) -> None:
        """Update the figures of some pods whose queue or namespace has too little left."""
        for _ in range(min(_COUNTED_AT_ONCE, len(self._to_count))):
            ask = self._to_count.pop()
            wait = self._cluster.gangs.counted_anew(ask)
            if wait is None:
                continue
            for entry in self._cluster.queue.refused_pods(ask):
                self._cluster.hold_up(entry, _still(entry, wait))

    def retry_due_s(self) -> float:
        """Return when `retry` is next due, monotonic."""
        if not self._cluster.queue.is_refusing:
            return inf
        if self._to_count:
            return self._cluster.clock()
        due_s = self._retried_s + self._cluster.settings.refused_retry_s
        return due_s if self._told_cursor == self._cluster.ledger.cursor else min(due_s, self._told_s + _TELL_S)

    def hear(self) -> None:
        """Pass on to `Requeue` which nodes opened."""
        ledger = self._cluster.ledger
        for opened in (ledger.opened, self._cluster.handoff.opened):
            if opened:
                self._cluster.requeue.hear(opened)
                opened.clear()
        freed = ledger.constraints.freed()
        if freed:
            self._cluster.requeue.stir(lambda ask: any(is_among(shape.asked, freed) for shape in shapes_of(ask)))

    # ------------------------------------------------------------------ one of them

    def _ask_together(self, asks: Together) -> None:
        if not self._cluster.queue.refuses(asks):
            self._cluster.requeue.forget(asks)
            self._cluster.gangs.forget(asks)
        elif self._asks_otherwise(asks) or self._cluster.gangs.may_fit(
            asks, _less(self._cluster.requeue.opened_for(asks), self._reservations.barred_to_first(asks))
        ):
            self._cluster.queue.wake(asks)
        else:
            self._cluster.requeue.still_refused(asks)

    def _prepare_to_ask(self, shape: Shape) -> Iterator[None]:
        """Order the cluster for a refused shape, in slices, and then check whether it fits."""
        yield from self._cluster.search.candidates.prepare(shape)
        self._ask(shape)

    def _ask(self, shape: Shape) -> None:
        if not self._cluster.queue.refuses(shape):
            self._cluster.requeue.forget(shape)
            return
        barred = self._reservations.barred_to_first(shape)
        opened = _less(self._cluster.requeue.opened_for(shape), barred)
        if self._asks_otherwise(shape):
            fits = True
        elif opened is None:
            fits = self._cluster.search.best(shape, barred) is not None
        else:
            fits = any(self._cluster.search.takes(shape, name) for name in opened)
        if fits:
            self._cluster.queue.wake(shape)
        else:
            self._cluster.requeue.still_refused(shape)

    def _asks_otherwise(self, ask: Ask) -> bool:
        """Return whether other pods have changed what the first refused pod asks; it is then woken and read again."""
        # A pod without constraints on other pods can only have gained some, and is read again before its decision.
        if not any(shape.asked.pods for shape in shapes_of(ask)):
            return False
        first = self._cluster.queue.first_refused(ask)
        if first is None or first.shape is None:
            return False
        return not self._cluster.ledger.constraints.is_current(first.pod, first.shape.asked.pods)


def _less(opened: Set[NodeName] | None, barred: frozenset[NodeName]) -> Set[NodeName] | None:
    return opened if opened is None or not barred else opened - barred


# Trying refused gangs again takes no more than a fifth of the time.
_REST_PER_WORK: Final = 4.0


class Chore(Protocol):
    """Work that falls due by time alone."""

    def next_s(self) -> float:
        """Return when `look` is next due, monotonic."""
        ...

    def look(self, now_s: float) -> None:
        """Do what is due."""
        ...


class Cycle:
    """The scheduling cycle."""

    def __init__(
        self,
        cluster: ClusterState,
        reservations: Reservations,
        *,
        pending: Pending,
        gate: PluginGate,
        prebind: PreBind,
        chores: Sequence[Chore],
    ) -> None:
        """Prepare; *chores*: work that falls due by time, run in this order before any decision."""
        self._cluster: Final = cluster
        self._reservations: Final = reservations
        self._pending: Final = pending
        self._gate: Final = gate
        self._prebind: Final = prebind
        self._chores: Final = chores
        self._retrying: Final = Retrying(cluster, reservations)

    def plan(self, until_s: float) -> bool:
        """Decide pods until *until_s* (monotonic); return whether more can be decided at once."""
        now_s = self._cluster.clock()
        self._run_chores(now_s)
        self._gate.allow_waiting(now_s)
        while self._cluster.may_bind:
            if not (self._cluster.search.go_on() or self._retrying.next(now_s)):
                begun = self._cluster.gangs.begun() if self._cluster.groups.key_of else None
                entry = begun or self._cluster.queue.pop(now_s)
                if entry is None:
                    return False
                try:
                    self._decide(entry, now_s)
                except NodeInvariantError as error:
                    self._cluster.search.set_aside(error)
                    self._cluster.queue.ready(entry)
            if self._cluster.clock() >= until_s:
                return True
        return False

    def _run_chores(self, now_s: float) -> None:
        for took_s in self._cluster.handoff.seconds:
            self._cluster.metrics.handoff_s.observe(took_s)
        self._cluster.handoff.seconds.clear()
        for chore in self._chores:
            if chore.next_s() <= now_s:
                chore.look(now_s)
        self._gate.look_for_silence(now_s)
        self._retrying.retry(now_s)

    def next_due_s(self) -> float:
        """Return when `plan` is due if no event comes before, monotonic."""
        due_s = [self._gate.due_s(), self._retrying.retry_due_s()]
        self._retrying.hear()
        if self._cluster.may_bind:
            resting_s = self._cluster.queue.next_due_s()
            due_s += [inf if resting_s is None else resting_s, self._cluster.requeue.due_s(self._cluster.clock())]
        return min((*due_s, *(chore.next_s() for chore in self._chores)))

    # ------------------------------------------------------------------ one pod

    def _decide(self, entry: Entry, now_s: float) -> None:
        shape = entry.shape
        if shape is None:
            self._pending.read(entry)
            return
        key = group_of(entry.pod)
        if key is not None and self._cluster.groups.wait(key) is not None:
            self._pending.read(entry)  # its group has changed while it backed off
            return
        found = self._cluster.gangs.gang(entry) if key is not None else None
        if key is not None and found is None:
            self._cluster.groups.placed(key)  # perhaps because its minimum was lowered
        if self._reread_stale(entry, found) or self._refuse_like_others(entry, shape, found):
            return
        shapes = (shape,) if found is None else found.asks.shapes
        unprepared = self._cluster.search.unprepared(shapes)
        if unprepared is not None:
            self._cluster.search.begin(self._cluster.search.prepared(unprepared))
            self._cluster.queue.ready(entry)
            return
        self._cluster.search.decided(shapes)
        self._cluster.metrics.decisions.inc()
        if found is not None:
            self._decide_gang(found, now_s)
            return
        self._decide_pod(entry, shape, now_s)

    def _reread_stale(self, entry: Entry, found: Gang | None) -> bool:
        """Read the pod and its gang again if other pods changed what their constraints ask; return whether any did."""
        constraints = self._cluster.ledger.constraints
        stale = [
            one
            for one in ((entry,) if found is None else found.waiting)
            if one.shape is not None and not constraints.is_current(one.pod, one.shape.asked.pods)
        ]
        for one in stale:
            self._pending.read(one)
        if stale and entry not in stale:
            self._cluster.queue.ready(entry)
        return bool(stale)

    def _refuse_like_others(self, entry: Entry, shape: Shape, found: Gang | None) -> bool:
        """Refuse the pod without a search if equal pods are refused and it was not woken; return whether it is refused.

        A pod that comes before the woken one in the order is decided, too.
        """
        if found is not None:
            if (
                not found.is_complete
                or self._cluster.queue.is_tried(entry, found.asks)
                or not self._cluster.queue.refuses(found.asks)
                or self._reservations.is_before_promised(entry)
                or self._may_be_open(entry)
            ):
                return False
            self._refuse_gang(found)
            return True
        if self._cluster.queue.refuses(shape) and not self._cluster.queue.is_tried(entry, shape):
            if self._has_reserved(entry):
                return False
            self._refuse(entry, shape)
            return True
        cap = self._cluster.cap(entry)
        if cap is None or not self._cluster.queue.refuses(cap) or self._cluster.queue.is_tried(entry, cap):
            return False
        # The others may be refused for what is promised.
        if self._has_reserved(entry) or self._reservations.is_before_promised(entry):
            return False
        self._refuse_over(entry, cap)
        return True

    def _has_reserved(self, entry: Entry) -> bool:
        """Return whether nodes and a part of its queue are kept for the pod, or nodes kept for others may be open."""
        return self._reservations.nominations.of(entry) is not None or self._may_be_open(entry)

    def _may_be_open(self, entry: Entry) -> bool:
        """Return whether nodes that are kept for others may be open to the pod; this reads all that are kept."""
        return bool(self._reservations.reserved()) and not self._reservations.barred_to(entry)

    def _decide_pod(self, entry: Entry, shape: Shape, now_s: float) -> None:
        keys = self._cluster.collision_key(shape)
        found = select_node(
            self._gate.wish(entry, shape, keys), self._cluster.search.candidates, self._cluster.handoff, now_s
        )
        if isinstance(found, Nowhere):
            self._refuse(entry, shape)
            self._cluster.requeue.refused(shape, found.silent)
            return
        cap = self._cluster.cap(entry)
        promised = self._reservations.promised_before(entry) if cap is not None else ()
        over = self._cluster.over(entry.pod, found, promised) if cap is not None else ()
        if over and cap is not None:
            self._cluster.gangs.capped(cap, entry.pod, over)
            self._refuse_over(entry, cap)
            return
        self._place(entry, found, keys, now_s)

    def _place(self, entry: Entry, placement: Placement, keys: CollisionKey, now_s: float) -> None:
        """Reserve *placement* for a pod, then permit the pod once its claims are bound."""
        self._reservations.reserve(entry, placement)
        if entry.pod.volumes == NO_VOLUMES or not self._prebind.begin(entry, placement):
            self._gate.permit(entry, placement, keys, now_s)

    def _refuse(self, entry: Entry, shape: Shape) -> None:
        """Let a pod wait because no node takes it."""
        self._wait_for(entry, shape, None)

    def _refuse_over(self, entry: Entry, cap: Capped) -> None:
        """Let a pod wait because its queue or namespace has too little left."""
        refusal = self._cluster.gangs.refusal(cap)
        wait = refusal.wait if refusal is not None else None
        self._wait_for(entry, cap, wait)

    def _wait_for(self, entry: Entry, ask: Ask, wait: Wait | None) -> None:
        """Let a pod wait until something opens that could help *ask*; *wait*: the reason, if known."""
        is_first = entry.refused_s is None
        self._cluster.queue.refuse(entry, ask, self._cluster.clock(), _still(entry, wait))
        self._cluster.unreported[entry.pod.uid] = None
        if is_first:
            self._reservations.check_nominated(entry)

    # ------------------------------------------------------------------ gangs

    def _decide_gang(self, found: Gang, now_s: float) -> None:
        """Place enough members of a group at once, or none."""
        cluster = self._cluster
        if not found.is_complete:
            wait = found.incomplete_wait()
            for entry in found.waiting:
                cluster.hold(entry, wait)
            self._cluster.gangs.lacks(found, wait, now_s)
            return
        shared = cluster.ledger.constraints.together([one.pod for one in found.waiting])
        if shared is not None:
            for entry in found.waiting:
                cluster.hold(entry, shared)
            return
        started_s = cluster.clock()
        answer, silent = self._place_gang(found, now_s)
        if isinstance(answer, gang.Refused):
            self._cluster.gangs.refused(found, answer, silent)
            self._refuse_gang(found)
            cluster.requeue.refused(found.asks, ())
            worked_s = cluster.clock() - started_s
            cluster.requeue.rest(found.asks, now_s + (1.0 + _REST_PER_WORK) * worked_s)
            return
        placements = {one.pod: one for one in answer}
        self._cluster.gangs.placed(found)
        passes_on = any(one.woken is not None for one in found.waiting)
        for entry in found.waiting:
            cluster.queue.ready(entry)
            placement = placements.get(entry.pod.uid)
            if placement is not None and entry.shape is not None:
                self._place(entry, placement, cluster.collision_key(entry.shape), now_s)
        if cluster.settings.policy.packs:
            for entry in found.waiting:
                self._gate.let_out(entry, now_s)
        if not passes_on and cluster.queue.refuses(found.asks):
            cluster.queue.wake(found.asks)  # another that asks the same may fit as well

    def _place_gang(
        self, found: Gang, now_s: float
    ) -> tuple[tuple[Placement, ...] | gang.Refused, frozenset[NodeName]]:
        """Reserve for enough members, on no node with a silent device plugin; return also the silent nodes."""
        cluster = self._cluster
        silent: dict[CollisionKey, set[NodeName]] = {}
        barred = self._reservations.barred_to(found.waiting[0])
        promised = self._reservations.promised_before(found.waiting[0])
        keys = {one.pod.uid: cluster.collision_key(one.shape) for one in found.unit.members}
        while True:
            with cluster.ledger.trial() as trial:
                answer = gang.place(
                    cluster.ledger,
                    self._cluster.search.candidates,
                    found.unit,
                    lambda shape: barred | silent.get(cluster.collision_key(shape), frozenset()),
                    cluster.budgets.budget(found.key, beside=promised),
                )
                placements = () if isinstance(answer, gang.Refused) else answer
                wrong = [one for one in placements if isinf(cluster.handoff.wait_s(one.node, keys[one.pod], now_s))]
                if not wrong:
                    trial.keep()
                    return answer, frozenset().union(*silent.values())
            for one in wrong:
                silent.setdefault(keys[one.pod], set()).add(one.node)

    def _refuse_gang(self, found: Gang) -> None:
        """Let the waiting members of a gang that does not fit wait until it could fit."""
        queue, refusal = self._cluster.queue, self._cluster.gangs.refusal(found.asks)
        wait = refusal.wait if refusal is not None else None
        for entry in found.waiting:
            if entry.parked == found.asks:
                if wait is not None:
                    queue.hold_up(entry, _still(entry, wait))
                continue
            if entry.stage is not Stage.READY:
                queue.ready(entry)
            self._wait_for(entry, found.asks, wait)
        self._cluster.gangs.tell(found)


def _still(entry: Entry, wait: Wait | None) -> Wait | None:
    """Return *wait*, unless the pod still waits for evicted pods: then its condition stays as it is."""
    return entry.wait if entry.wait is not None and entry.wait.cause is Cause.WAITING_FOR_EVICTED else wait
