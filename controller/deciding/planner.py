"""Decides which pods go where now, gives turns on busy nodes, and wakes whom something freed could help.

Synchronous, and the owner's alone to call: nothing here waits between a decision and its reservation.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import replace
from math import inf, isinf
from typing import Final, Protocol

from controller.actions import Action, Announce, Bind, Lock, Subject, about_pod, target_of
from controller.deciding import plan as steps
from controller.deciding.asks import Ask, Capped, shapes_of
from controller.deciding.keeping_free import End, KeepingFree, Kept
from controller.deciding.lifecycle import Entry, Lifecycle, Stage, Told
from controller.deciding.lines import Lines
from controller.deciding.locks import Locks
from controller.deciding.nominations import Nominations
from controller.deciding.settling import Attempts
from controller.deciding.units import Gang, Units
from controller.deciding.wake import Wakes
from controller.grouping.books import Books
from controller.grouping.groups import Groups
from controller.handing_over.handoff import SHORT_S, HandOff, Impatient
from controller.handing_over.marks import NO_KEYS, Keys
from controller.metrics import Metrics
from core.catalog import Catalog
from core.errors import NodeInvariantError
from core.explaining import explain
from core.explaining.refusal import impersonal
from core.groups import group_of
from core.ledger import Ledger, Placement
from core.model import Container, NodeConstraints, NodeName, Pod, PodUid, Toleration
from core.nodefit import Amounts
from core.placing import gang, keeping_free
from core.placing.candidates import Candidates
from core.placing.decide import preferred_shapes, shape_of, still_fits
from core.placing.fairness import Budget, Over, also_taken, taken
from core.placing.gang import Together
from core.placing.kinds import Kinds
from core.placing.learning import Learning
from core.placing.score import node_policy
from core.placing.shape import Found, Shape, takes
from core.port import Stamp
from core.settings import DialectName, Settings, Tables
from core.topology.peers import Peers
from core.waiting import Wait, code_in

_LINE_PAUSE_S: Final = 0.25
_SILENCE_PAUSE_S: Final = 1.0
_NO_WAIT: Final = float("inf")
# Somebody who looks at a pod that waits its turn for longer than this wants to know why.
_TELL_TURN_S: Final = 10.0
# Trying refused gangs again takes no more than a fifth of the time.
_REST_PER_WORK: Final = 4.0
# Annotations that come to less than this leave room for any assignment.
_LONG_BYTES: Final = 128 * 1024
# What the API server's admission gives to every pod that does not tolerate it by itself; indices are apart by what
# pods tolerate. Source: Kubernetes documentation, admission controllers, DefaultTolerationSeconds.
_PLAIN: Final = NodeConstraints(
    tolerations=tuple(
        Toleration(key=f"node.kubernetes.io/{key}", operator="Exists", effect="NoExecute")
        for key in ("not-ready", "unreachable")
    )
)


class Chore(Protocol):
    """What time alone brings about."""

    def next_s(self) -> float:
        """When it may do so next, monotonic."""
        ...

    def look(self, now_s: float) -> None:
        """Do what is due."""
        ...


def _is_among(shape: Shape, freed: Set[Peers] | None) -> bool:
    return shape.peers is not None and (freed is None or shape.peers in freed)


def _needs_nothing(entry: Entry, placement: Placement) -> bool:
    return False


class Planner:
    """Ledger, queue and hand-off, and what is decided on them.

    Attributes:
        actions: what is to be done outside, oldest first; the reader takes them out.
        unreported: pods that wait for a reason of their own which the user may not know.
        wakes: who waits for what.
        life: the pending pods.
        sent: the Bindings of which the outcome is not known.
        prepares: begins what a reserved pod needs before its Binding; False if that is nothing.
    """

    def __init__(
        self,
        catalog: Catalog,
        tables: Tables,
        settings: Settings,
        groups: Groups,
        *,
        metrics: Metrics,
        clock: Callable[[], float],
        wall: Callable[[], float],
        read: Callable[[Entry], None],
    ) -> None:
        """Begin with nothing.

        Args:
            catalog: the dialects.
            tables: device configuration.
            settings: the operator's.
            groups: whose members are placed together.
            metrics: where to count.
            clock: monotonic seconds.
            wall: Unix seconds.
            read: reads again what a pod asks whose shape is not known, and puts it where that leads.
        """
        self.ledger: Final = Ledger(catalog, tables, settings)
        self.books: Final = Books(groups)
        self.lines: Final = Lines(groups, self.books, self.ledger, clock)
        self.life: Final = Lifecycle(self.lines.of, self.lines.rank)
        self.lines.follow(self.life)
        self.handoff: Final = HandOff(catalog, tables, settings)
        self.chores: Final[list[Chore]] = [self.handoff]
        self.locks: Final = Locks(catalog, settings)
        self.actions: Final[deque[Action]] = deque()
        self.unreported: Final[dict[PodUid, None]] = {}
        self.wakes: Final = Wakes(self._takes)
        self.units: Final = Units(groups, self.life, self.books, self._room_on)
        self.keeping_free: Final = KeepingFree(
            self.life, settings, find=self._nodes_for, began=self._keeps_free, ended=self._keeps_no_more
        )
        self.nominations: Final = Nominations()
        self.chores.extend((self.keeping_free, self.lines))
        self.settings = settings
        self.policy = node_policy(settings)
        self.candidates = Candidates(self.ledger, self.policy)
        self.kinds = Kinds(self.ledger)
        self.learning = Learning(self.ledger)
        self.sent: Final[Attempts[PodUid]] = Attempts()
        self.prepares: Callable[[Entry, Placement], bool] = _needs_nothing
        self.catalog: Final = catalog
        self._metrics: Final = metrics
        self._clock: Final = clock
        self._wall: Final = wall
        self._read: Final = read
        self._lines_s = 0.0
        self._silence_s = 0.0
        self._retried_s = clock()
        self._primed: Final[list[Shape]] = []
        # What orders the cluster for a shape, and shapes that it was ordered for whose next pod is decided whatever has
        # changed since: so there is an end to the ordering.
        self._preparing: Iterator[None] | None = None
        self._prepared: Final[set[Shape]] = set()
        deque(self.prime(), maxlen=0)

    def configure(self, tables: Tables, settings: Settings) -> Iterator[None]:
        """Decide under another configuration, after the last of the slices in which everything is judged anew."""
        self.settings = settings
        self._preparing = None
        self._prepared.clear()
        yield from self.ledger.configure(tables, settings)
        self.policy = node_policy(settings)
        self.candidates = Candidates(self.ledger, self.policy)
        self.kinds = Kinds(self.ledger)
        self.learning = Learning(self.ledger)
        yield from self.prime()
        self.locks.configure(settings)
        self.handoff.tables, self.handoff.settings = tables, settings
        self.keeping_free.settings = settings

    def plan(self, until_s: float) -> bool:
        """Decide what can be decided before *until_s* (monotonic); True if there is more to do at once."""
        now_s = self._clock()
        self._look_around(now_s)
        self._give_turns(now_s)
        while self._has_room:
            if self._preparing is not None:
                if next(self._preparing, False) is False:
                    self._preparing = None
            elif self.learning.is_due:
                self._preparing = self._learn()
            elif not self._ask_refused(now_s):
                entry = self.units.begun() or self.life.pop(now_s)
                if entry is None:
                    return False
                try:
                    self._decide(entry, now_s)
                except NodeInvariantError as error:
                    self.set_aside(error)
                    self.life.ready(entry)
            if self._clock() >= until_s:
                return True
        return False

    @property
    def _has_room(self) -> bool:
        return self.life.in_flight < self.settings.bind_in_flight_max

    def next_due_s(self) -> float:
        """When `plan` has something to do again although nothing happens, monotonic."""
        due_s = [_NO_WAIT]
        self._hear()
        if self._has_room:
            if (resting_s := self.life.next_due_s()) is not None:
                due_s.append(resting_s)
            due_s.append(self.wakes.due_s(self._clock()))
        if self.handoff.waiting:
            due_s.append(self._lines_s + _LINE_PAUSE_S)
        if self.handoff.in_flight:
            due_s.append(self._silence_s + _SILENCE_PAUSE_S)
        due_s += [chore.next_s() for chore in self.chores]
        if self.life.is_refusing:
            due_s.append(self._retried_s + self.settings.refused_retry_s)
        return min(due_s)

    def _decide(self, entry: Entry, now_s: float) -> None:
        shape = entry.shape
        if shape is None:
            self._read(entry)
            return
        found = self.units.gang(entry)
        if self._reads_anew(entry, found) or self._is_refused_already(entry, shape, found):
            return
        shapes = [shape] if found is None else [one.shape for one in found.waiting if one.shape is not None]
        unprepared = next((one for one in shapes if not self._is_prepared(one)), None)
        if unprepared is not None:
            self._preparing = self._prepare(unprepared)
            self.life.ready(entry)
            return
        self._prepared.difference_update(shapes)
        self._metrics.decisions.inc()
        if found is not None:
            self._decide_gang(found, now_s)
            return
        self._decide_pod(entry, shape, now_s)

    def _reads_anew(self, entry: Entry, found: Gang | None) -> bool:
        """Whether other pods have come, or gone, that keep this one off, or one of its gang: then it is read again."""
        topology = self.ledger.topology
        stale = [
            one
            for one in ((entry,) if found is None else found.waiting)
            if one.shape is not None and not topology.is_current(one.pod, one.shape.peers)
        ]
        for one in stale:
            self._read(one)
        if stale and entry not in stale:
            self.life.ready(entry)
        return bool(stale)

    def _is_refused_already(self, entry: Entry, shape: Shape, found: Gang | None) -> bool:
        """Whether others are refused for the same, and nothing has opened or the first of them is woken for that."""
        if self._keeps_some and not self.barred_to(entry):
            return False  # it may go where those before it may not
        if found is not None:
            if not found.is_complete or entry.woken == found.asks or not self.life.refuses(found.asks):
                return False
            self._refuse_gang(found)
            return True
        if entry.woken != shape and self.life.refuses(shape):
            self.life.refuse(entry, shape, self._clock())
            self.unreported[entry.pod.uid] = None
            return True
        cap = self.units.cap(entry)
        if cap is not None and entry.woken != cap and self.life.refuses(cap):
            self._refuse_over(entry, cap)
            return True
        return False

    def _decide_pod(self, entry: Entry, shape: Shape, now_s: float) -> None:
        """Place a pod that is decided alone."""
        keys = self.keys(shape)
        step = steps.next_step(
            self._wish(entry, shape, keys),
            self.candidates,
            self.handoff,
            now_s,
        )
        over = () if isinstance(step, steps.RefusePod) else self._over(entry.pod, step.placement)
        key, cap = group_of(entry.pod), self.units.cap(entry)
        if over and key is not None and cap is not None:
            self.units.capped(cap, key, over)
            self._refuse_over(entry, cap)
            return
        match step:
            case steps.BindNow(placement=placement):
                self.reserve(entry, placement)
                if not self.prepares(entry, placement):
                    self.send(entry, placement, keys)
            case steps.WaitTurn(placement=placement):
                self.reserve(entry, placement)
                if not self.prepares(entry, placement):
                    self._line_up(entry, placement, keys, now_s)
            case steps.RefusePod(silent=silent):
                self._refuse(entry, shape, silent)

    def _wish(self, entry: Entry, shape: Shape, keys: Keys) -> steps.Wish:
        avoided, barred = self.handoff.rests.avoided(entry.pod), self.barred_to(entry)
        return steps.Wish(entry.pod, shape, keys, avoided, barred, self._packs(entry.pod))

    def _packs(self, pod: Pod) -> bool:
        """Whether *pod* waits for nodes in use so that idle ones stay whole; those that run together do not wait."""
        return self.settings.policy.packs and group_of(pod) is None

    def _over(self, pod: Pod, placement: Placement) -> tuple[Over, ...]:
        """Of what the pod's queue has too little left for *placement*."""
        left = self.budget(pod)
        return () if left is None else left.lacks(taken(self.ledger, pod, placement.dialect, placement.assignment))

    def budget(self, pod: Pod) -> Budget | None:
        """What *pod* may take of its group's queue; None where that is not limited."""
        key = group_of(pod)
        return self.books.budget(key) if key is not None else None

    def _prepare(self, shape: Shape) -> Iterator[None]:
        """Order the cluster for pods like none before; the first of them is decided when that is done."""
        for wished in (*preferred_shapes(self.ledger, shape), shape):
            yield from self.candidates.prepare(wished)
        self._prepared.add(shape)

    def _is_prepared(self, shape: Shape) -> bool:
        return shape in self._prepared or all(
            map(self.candidates.is_prepared, (*preferred_shapes(self.ledger, shape), shape))
        )

    # ------------------------------------------------------------------ learning

    @property
    def learns(self) -> bool:
        """Whether it decides by what pods ask (`core.placing.pack`)."""
        return self.policy.tables is not None

    def learn_of(self, pod: Pod, shape: Shape | None = None) -> None:
        """*pod* asks *shape*, which is read where it is not given; nothing is remembered where nothing is learnt."""
        if not self.learns or self.learning.has_seen(pod.uid):
            return
        wish = shape or shape_of(pod, self.ledger)
        if isinstance(wish, Shape):
            self.learning.saw(pod.uid, wish)

    def _learn(self) -> Iterator[None]:
        """Decide by what the pods up to now ask, if that has changed; what was judged before is judged anew."""
        for has_moved in self.learning.learn():
            if has_moved:
                self.policy = replace(self.policy, tables=self.learning.tables)
                self.candidates.judge_anew(self.policy)
                self._prepared.clear()
            yield
        for shape in self._primed:
            yield from self.candidates.prepare(shape)

    # ------------------------------------------------------------------ gangs

    def _decide_gang(self, found: Gang, now_s: float) -> None:
        """Place enough members of a group at once, or none."""
        if not found.is_complete:
            wait = found.incomplete_wait()
            for entry in found.waiting:
                self._hold(entry, wait)
            return
        shared = self.ledger.topology.volumes.only_one_may_use([one.pod for one in found.waiting])
        if shared is not None:
            for entry in found.waiting:
                self._hold(entry, shared)
            return
        started_s = self._clock()
        answer, silent = self._place_gang(found, now_s)
        if isinstance(answer, gang.Refused):
            self.units.refused(found, answer, silent)
            self._refuse_gang(found)
            self.wakes.refused(found.asks, ())
            worked_s = self._clock() - started_s
            self.wakes.rest(found.asks, now_s + (1.0 + _REST_PER_WORK) * worked_s)
            return
        placements = {one.pod: one for one in answer}
        self.units.placed(found)
        passes_on = any(one.woken is not None for one in found.waiting)
        for entry in found.waiting:
            self.life.ready(entry)
            placement = placements.get(entry.pod.uid)
            if placement is not None and entry.shape is not None:
                self.reserve(entry, placement)
                if not self.prepares(entry, placement):
                    self._go(entry, placement, self.keys(entry.shape), now_s)
        self._let_out(found, now_s)
        if not passes_on and self.life.refuses(found.asks):
            self.life.wake(found.asks)  # another that asks the same may fit as well

    def _place_gang(
        self, found: Gang, now_s: float
    ) -> tuple[tuple[Placement, ...] | gang.Refused, frozenset[NodeName]]:
        """Reserve for enough members, on no node whose device plugin is silent; and which of these were in the way."""
        silent: dict[Keys, set[NodeName]] = {}
        barred = self.barred_to(found.waiting[0])
        keys = {one.pod.uid: self.keys(one.shape) for one in found.unit.members}
        while True:
            with self.ledger.trial() as trial:
                answer = gang.place(
                    self.ledger,
                    self.candidates,
                    found.unit,
                    lambda shape: barred | silent.get(self.keys(shape), frozenset()),
                    self.books.budget(found.key),
                )
                placements = () if isinstance(answer, gang.Refused) else answer
                wrong = [one for one in placements if isinf(self.handoff.wait_s(one.node, keys[one.pod], now_s))]
                if not wrong:
                    trial.keep()
                    return answer, frozenset().union(*silent.values())
            for one in wrong:
                silent.setdefault(keys[one.pod], set()).add(one.node)

    def _go(self, entry: Entry, placement: Placement, keys: Keys, now_s: float) -> None:
        """Send a reserved pod, or let it wait its turn."""
        if self._has_room and self.handoff.free(placement.node, keys):
            self.send(entry, placement, keys)
        else:
            self._line_up(entry, placement, keys, now_s)

    def go_on(self, entry: Entry) -> None:
        """What a reserved pod needed before its Binding is there: it goes where it has its place, if that stands."""
        if entry.placement is None or entry.shape is None:
            return
        if still_fits(self.ledger, self.policy, entry.shape, entry.placement):
            self._go(entry, entry.placement, self.keys(entry.shape), self._clock())
            return
        self.take_back(entry)
        self.life.ready(entry)

    def _let_out(self, found: Gang, now_s: float) -> None:
        """Where others stand in long lines so that idle nodes stay whole, let members of a gang go to such nodes."""
        if not self.settings.policy.packs:
            return
        for entry in found.waiting:
            if entry.stage is not Stage.TURN or entry.placement is None or entry.shape is None:
                continue
            left_s = self.handoff.wait_s(entry.placement.node, self.keys(entry.shape), now_s)
            if left_s > SHORT_S:
                self._try_elsewhere(Impatient(entry.pod.uid, 0.0, left_s), now_s)

    def _hold(self, entry: Entry, wait: Wait) -> None:
        """Let a pod wait for a reason of its own."""
        self.life.hold(entry)
        self.life.hold_up(entry, wait)
        self.unreported[entry.pod.uid] = None

    def _refuse_gang(self, found: Gang) -> None:
        """Let all who wait of a gang that does not fit wait until it could."""
        refusal = self.units.refusal(found.asks)
        wait = refusal.wait if refusal is not None else None
        for entry in found.waiting:
            if entry.parked == found.asks:
                if wait is not None:
                    self.life.hold_up(entry, wait)
                continue
            if entry.stage is not Stage.READY:
                self.life.ready(entry)
            self.life.refuse(entry, found.asks, self._clock(), wait)
            self.unreported[entry.pod.uid] = None
        self.units.tell(found)

    def _refuse_over(self, entry: Entry, cap: Capped) -> None:
        """Let a pod wait of which its queue has too little left."""
        refusal = self.units.refusal(cap)
        self.life.refuse(entry, cap, self._clock(), refusal.wait if refusal is not None else None)
        self.unreported[entry.pod.uid] = None

    def _refuse(self, entry: Entry, shape: Shape, silent: tuple[NodeName, ...]) -> None:
        self.life.refuse(entry, shape, self._clock())
        self.wakes.refused(shape, silent)
        self.unreported[entry.pod.uid] = None

    def reserve(self, entry: Entry, placement: Placement) -> None:
        """Promise *placement*, at once and in memory."""
        self.ledger.reserve(placement)
        self.life.reserve(entry, placement)
        self.keeping_free.placed(entry, self._clock())
        self.book(entry.pod, placement.dialect, placement.assignment, placement.amounts)
        shape = entry.shape
        if shape is not None and entry.woken is None and self.life.refuses(shape):
            self.life.wake(shape)  # the next of them may fit as well

    def book(self, pod: Pod, dialect: DialectName | None, assignment: object, amounts: Amounts) -> None:
        """Count on its group's queue what *pod* is promised, or holds; *amounts*: of its node, beside cards."""
        key = group_of(pod)
        if key is not None:
            self.books.note(pod.uid, key, taken(self.ledger, pod, dialect, assignment))
        else:
            self.books.note(pod.uid, None, also_taken(self.ledger, dialect, assignment, amounts))

    def send(self, entry: Entry, placement: Placement, keys: Keys) -> None:
        """Have a reserved pod's node locked, if that is needed, and its Binding sent."""
        pod = entry.pod
        too_long = self._too_long(pod, placement)
        if too_long is not None:
            self.take_back(entry)
            self._hold(entry, too_long)
            return
        if placement.dialect is not None:
            self.handoff.begin(pod.uid, placement.node, keys, self._clock())
        if placement.dialect is None or self.locks.of(placement.dialect) is None:
            self.bind(entry, placement)
            return
        self.life.lock(entry)
        action = Lock(node=placement.node, dialect=placement.dialect, pod=target_of(pod), attempt=entry.attempt)
        self.actions.append(action)

    def bind(self, entry: Entry, placement: Placement) -> None:
        """Have the Binding of a pod sent that is in flight already, with the next stamp of its node."""
        if entry.turn_s is not None:
            self._metrics.turn_wait_s.observe(self._clock() - entry.turn_s)
        self.life.bind(entry)
        self.sent.send(entry.pod.uid, entry.version)
        self.actions.append(
            Bind(
                pod=target_of(entry.pod),
                attempt=entry.attempt,
                version=entry.version,
                node=placement.node,
                annotations={**self._assigned(placement, in_line=True), **self.ledger.told_of(placement)},
                where=explain.placed(self.ledger, placement),
            )
        )

    def _assigned(self, placement: Placement, *, in_line: bool = False) -> Mapping[str, str]:
        """What the Binding says of cards; *in_line*: with the next stamp of its node, which is taken."""
        if placement.dialect is None:
            return {}
        unix_s = int(self._wall())
        order = self.handoff.order(placement.node, placement.dialect, unix_s) if in_line else 0
        stamp = Stamp(node=placement.node, now_s=unix_s, order=order)
        return self.catalog.dialects[placement.dialect].annotations(placement.assignment, stamp, self.ledger.tables)

    def _too_long(self, pod: Pod, placement: Placement) -> Wait | None:
        """Why *pod* has no room for its assignment, or None; the API server does not look at that in a Binding."""
        had = steps.annotations_bytes(pod.annotations)
        if had < _LONG_BYTES:
            return None
        comes_to = steps.annotations_bytes({**pod.annotations, **self._assigned(placement)})
        return steps.room_wait(pod.annotations, had, comes_to)

    # ------------------------------------------------------------------ turns

    def _line_up(self, entry: Entry, placement: Placement, keys: Keys, now_s: float) -> None:
        self.life.line_up(entry, now_s)
        self.handoff.join(entry.pod.uid, placement.node, keys, now_s, entry.turn_s)
        self.handoff.ask_again(placement.node)

    def _give_turns(self, now_s: float) -> None:
        for node in self.handoff.turns():
            for uid, keys in self.handoff.line(node):
                if not self._has_room:
                    self.handoff.ask_again(node)
                    break
                if not self.handoff.busy(node, keys):
                    self._give_turn(uid, keys)
        if now_s >= self._lines_s + _LINE_PAUSE_S:
            self._lines_s = now_s
            for one in self.handoff.impatient(now_s):
                self._try_elsewhere(one, now_s)

    def _give_turn(self, uid: PodUid, keys: Keys) -> None:
        entry = self.life.get(uid)
        if entry is None or entry.placement is None or entry.shape is None:
            self.handoff.leave(uid)
        elif still_fits(self.ledger, self.policy, entry.shape, entry.placement):
            self.send(entry, entry.placement, keys)
        else:
            self.take_back(entry)
            self.life.ready(entry)

    def _try_elsewhere(self, one: Impatient, now_s: float) -> None:
        """Let a pod that waits too long go to the next best node, if there is one with a shorter line."""
        try:
            self._move(one, now_s)
        except NodeInvariantError as error:
            self.set_aside(error)
            self._decide_anew(one.uid)

    def _move(self, one: Impatient, now_s: float) -> None:
        entry = self.life.get(one.uid)
        if entry is None or entry.placement is None or entry.shape is None:
            return
        keys = self.keys(entry.shape)
        node = entry.placement.node
        self.handoff.crowds.add(node, keys, SHORT_S)
        left_s = one.left_s if self.handoff.closed_s(node, keys, now_s) <= SHORT_S else inf
        wish = self._wish(entry, entry.shape, keys)._replace(waited_s=one.waited_s, left_s=left_s)
        step = steps.step_aside(wish, self.candidates, self.handoff, now_s)
        if step is None:
            self._keep_waiting(entry, keys, node, now_s)
            return
        self.take_back(entry)
        self.reserve(entry, step.placement)
        if isinstance(step, steps.BindNow) and self._has_room:
            self.send(entry, step.placement, keys)
        else:
            self._line_up(entry, step.placement, keys, now_s)

    def _decide_anew(self, uid: PodUid) -> None:
        """A pod whose next place contradicted itself is decided like any other, unless it has its old place still."""
        entry = self.life.get(uid)
        if entry is not None and entry.placement is None:
            self.life.ready(entry)

    def _keep_waiting(self, entry: Entry, keys: Keys, node: NodeName, now_s: float) -> None:
        """A pod finds no shorter line: it stays, and is told; but not behind a plugin that does not answer."""
        if isinf(self.handoff.wait_s(node, keys, now_s)):
            self.take_back(entry)
            self.life.ready(entry)
        elif entry.turn_s is not None and now_s >= entry.turn_s + _TELL_TURN_S and entry.wait is None:
            self.life.hold_up(entry, self.turn_wait(entry.pod, node, keys))
            self.unreported[entry.pod.uid] = None

    def turn_wait(self, pod: Pod, node: NodeName, keys: Keys, *, in_full: bool = False) -> Wait:
        """Why *pod*, with *keys*, that has its place on *node* is not bound yet; *in_full*: for operators."""
        for uid, _ in self.handoff.flights(node):
            other = self.life.get(uid)
            if other is None or other.stage is not Stage.SETTLING or other.shape is None:
                continue
            if self.handoff.marks.alike(node, keys, self.keys(other.shape)):
                return steps.unsettled_wait(node)
        most_s = self.settings.turn_wait_max_s if self._packs(pod) else 0.0
        return steps.turn_wait(node, self.handoff.why_closed(node, keys, in_full=in_full), most_s=most_s)

    # ------------------------------------------------------------------ waking

    def _look_around(self, now_s: float) -> None:
        """What time and the hand-off bring about."""
        for took_s in self.handoff.seconds:
            self._metrics.handoff_s.observe(took_s)
        self.handoff.seconds.clear()
        for chore in self.chores:
            if chore.next_s() <= now_s:
                chore.look(now_s)
        if now_s >= self._silence_s + _SILENCE_PAUSE_S:
            self._silence_s = now_s
            for one in self.handoff.silent(now_s):
                self._announce_silence(one.uid, one.node, one.pod, one.waited_s)
        if now_s >= self._retried_s + self.settings.refused_retry_s:
            self._retried_s = now_s
            self.wakes.hear_of_all()
            self.books.freed.update(dict.fromkeys(self.books.queues))

    def _announce_silence(self, uid: PodUid, node: NodeName, pod: Pod | None, waited_s: float) -> None:
        if self.life.get(uid) is not None:
            return  # not known to be bound there: it is not the plugin that has not answered
        found = self.ledger.node(node)
        # Events of nodes are in a namespace that others read; which pod it is, the pod's own event tells.
        message = (
            f"its device plugin has not served pod uid {uid} for {waited_s:.0f} s; no pod that it could mistake for "
            "that one is sent there until it answers; see the plugin's log, or delete the pod"
        )
        about = Subject(kind="Node", name=node, uid=found.uid if found is not None else "")
        self.actions.append(Announce(about=about, reason="DevicePluginSilent", message=message))
        if pod is not None:
            message = f"the device plugin of node {node} has not served this pod for {waited_s:.0f} s; see its log"
            self.actions.append(Announce(about=about_pod(pod), reason="DevicePluginSilent", message=message))

    def _ask_refused(self, now_s: float) -> bool:
        """Ask for one of those that are refused whether it fits now; False if there is nothing to ask."""
        self._hear()
        self.life.wake_next()
        for freed in self.units.freed():
            self.life.wake(freed)
        if self.wakes.is_due(now_s):
            self.wakes.begin((one for one in self.life.refused_asks() if not isinstance(one, Capped)), now_s)
        ask = self.wakes.next(self._clock())
        if ask is None:
            return False
        if isinstance(ask, Together):
            self._ask_together(ask)
        elif isinstance(ask, Shape):
            if self.wakes.opened_for(ask) is not None or self.candidates.is_prepared(ask):
                self._ask(ask)
            else:
                self._preparing = self._prepare_to_ask(ask)
        return True

    def _ask_together(self, asks: Together) -> None:
        if not self.life.refuses(asks):
            self.wakes.forget(asks)
            self.units.forget(asks)
        elif self.units.may_fit(asks, self._less(self.wakes.opened_for(asks), self.barred(asks))):
            self.life.wake(asks)
        else:
            self.wakes.still_refused(asks)

    def _hear(self) -> None:
        """Take in which nodes opened."""
        for opened in (self.ledger.opened, self.handoff.opened):
            if opened:
                self.wakes.hear(opened)
                opened.clear()
        freed = self.ledger.topology.freed()
        if freed is None or freed:
            self.wakes.stir(lambda ask: any(_is_among(shape, freed) for shape in shapes_of(ask)))

    def _prepare_to_ask(self, shape: Shape) -> Iterator[None]:
        """Order the cluster for refused pods of which too much has changed; it is asked whatever has changed since."""
        yield from self.candidates.prepare(shape)
        self._ask(shape)

    def _ask(self, shape: Shape) -> None:
        if not self.life.refuses(shape):
            self.wakes.forget(shape)
            return
        barred = self.barred(shape)
        opened = self._less(self.wakes.opened_for(shape), barred)
        if self._best(shape, barred) is not None if opened is None else self.wakes.is_taken(shape, opened):
            self.life.wake(shape)
        else:
            self.wakes.still_refused(shape)

    @staticmethod
    def _less(opened: Set[NodeName] | None, barred: frozenset[NodeName]) -> Set[NodeName] | None:
        return opened if opened is None or not barred else opened - barred

    def _takes(self, shape: Shape, name: NodeName) -> bool:
        """Whether node *name* takes *shape* now."""
        state = self.ledger.states.get(name)
        return (
            state is not None
            and takes(shape, state, self.catalog.judging(shape.dialect), self.policy.cards)
            and not self.ledger.topology.refuses(shape.peers, name)
        )

    def _room_on(self, shape: Shape, name: NodeName, most: int) -> int:
        """How many pods of *shape*, up to *most*, node *name* takes now."""
        return gang.room_on(self.ledger, self.policy, shape, name, most)

    # ------------------------------------------------------------------ who waits too long

    def barred(self, ask: Ask) -> frozenset[NodeName]:
        """The nodes that the first of those refused for *ask* is not placed on now: they are kept free for another."""
        return self.barred_to(self.life.first_refused(ask)) if self._keeps_some else frozenset()

    @property
    def _keeps_some(self) -> bool:
        """Whether nodes are kept for anybody."""
        return len(self.nominations) > 0 or self.keeping_free.kept is not None

    def barred_to(self, entry: Entry | None) -> frozenset[NodeName]:
        """The nodes that *entry* is not placed on now; of None all that are kept for others."""
        return self.keeping_free.barred(entry) | self.nominations.barred(entry)

    def barred_to_new(self, priority: int) -> frozenset[NodeName]:
        """The nodes that a pod of *priority* would not be placed on were it created now."""
        return self.keeping_free.barred_to_new(priority) | self.nominations.barred_to_new(priority)

    def _nodes_for(self, ask: Ask, entry: Entry) -> frozenset[NodeName]:
        """The nodes that one who is refused would need; none if no nodes would do, or its queue has no room."""
        found, refusal = self.units.gang(entry), self.units.refusal(ask)
        if refusal is not None and refusal.over:
            return frozenset()
        if found is not None:
            unit = found.unit
        elif entry.shape is not None:
            unit = gang.Unit(members=(gang.Member(pod=entry.pod, shape=entry.shape),))
        else:
            return frozenset()
        answer = refusal.answer if refusal is not None else None
        return keeping_free.nodes_for(self.ledger.fork(), self.policy, unit, answer)

    def _keeps_free(self, kept: Kept) -> None:
        self.wakes.unreported[kept.ask] = None

    def _keeps_no_more(self, kept: Kept, how: End) -> None:
        self._metrics.kept_free.labels(how.value).inc()
        self.wakes.hear(kept.nodes)
        if self.life.refuses(kept.ask):
            self.wakes.unreported[kept.ask] = None

    # ------------------------------------------------------------------ keeping

    def prime(self) -> Iterator[None]:
        """Have the indices of pods without constraints of their own made, before the first of these pods.

        Where the cluster is not listed yet, they are kept up change by change (`keep_up`).
        """
        tables = self.ledger.tables
        self._primed.clear()
        for dialect in self.catalog.dialects.values():
            limits = dict.fromkeys(dialect.resources(tables), "1")
            probe = Pod(
                uid=PodUid(""),
                namespace="",
                name="",
                constraints=_PLAIN,
                containers=(Container(name="", limits=limits),),
            )
            shape = shape_of(probe, self.ledger)
            if isinstance(shape, Shape):
                self._primed.append(shape)
                yield from self.candidates.prepare(shape)
                self._best(shape)

    def keep_up(self) -> None:
        """Bring the indices up to date while little has changed."""
        for shape in self._primed:
            if not self.learns or self.candidates.is_prepared(shape):
                self._best(shape)

    def _best(self, shape: Shape, passed_over: frozenset[NodeName] = frozenset()) -> Found | None:
        while True:
            try:
                return self.candidates.best(shape, passed_over)
            except NodeInvariantError as error:
                self.set_aside(error)

    def set_aside(self, error: NodeInvariantError) -> None:
        """Place nothing new on a node about which we are wrong; all others go on.

        Raises:
            NodeInvariantError: it was set aside already, or is not there: then it is not the node that is wrong.
        """
        name = NodeName(error.node)
        node = self.ledger.node(name)
        if node is None or name in self.ledger.aside:
            raise error
        self._metrics.contradictions.inc()
        why = (
            f"the scheduler contradicts itself there ({impersonal(error.problem)}); nothing new is placed on it until "
            "its cards or the configuration change, or the controller starts again; please report this"
        )
        self.ledger.set_aside(name, why)
        about = Subject(kind="Node", name=name, uid=node.uid)
        self.actions.append(Announce(about=about, reason="NodeSetAside", message=f"node {name}: {why}"))

    def keys(self, shape: Shape) -> Keys:
        """What a device plugin could mistake a pod of *shape* by."""
        if shape.dialect is None:
            return NO_KEYS
        return Keys(shape.dialect, self.catalog.dialects[shape.dialect].confusable(shape.request))

    def told(self, entry: Entry, told: Told) -> None:
        """The pod's condition says *told*."""
        code = code_in(told.text)
        if code and (entry.told is None or code_in(entry.told.text) != code):
            self._metrics.refusals.labels(code).inc()
        self.life.tell(entry, told)

    def take_back(self, entry: Entry) -> None:
        """Free what is reserved for a pod that stays in the queue.

        Raises:
            InvariantError: a Binding of it may still be written.
        """
        self.sent.check_settled(entry.pod.uid)
        self.handoff.leave(entry.pod.uid)
        if entry.placement is not None:
            self.life.unreserve(entry)
            self.books.drop(entry.pod.uid)
            self.ledger.release(entry.pod.uid)
