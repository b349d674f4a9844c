"""The cluster state that all parts of `controller/deciding` share: ledger, queue, hand-off, and pending actions."""

from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from controller.actions import Action, Announce, Subject, Target, about_pod
from controller.deciding.gang import Gangs
from controller.deciding.lifecycle import Attempts, Capped, Entry, Fencing, PodCondition
from controller.deciding.queue import Requeue, SchedulingQueue
from controller.deciding.score import NodeSearch
from controller.grouping.budgets import Budgets, Spender, spender_of
from controller.grouping.groups import Groups
from controller.handing_over.collision import NO_COLLISION, CollisionKey
from controller.handing_over.handoff import HandOff
from controller.metrics import Metrics
from core import model
from core.catalog import Catalog
from core.constraints.quota import Over, taken
from core.errors import InvalidRequestError
from core.groups import DEFAULT_QUEUE, ROOT_QUEUE, line_of
from core.history.pods import PodEvent, PodRecord, What
from core.ledger import Ledger, Placement
from core.model import Container, GroupKey, NodeName, Phase, Pod, PodUid, Standing, group_of, is_preemptable
from core.placing.crowd import SYSTEM_CRITICAL, Crowd, Occupant
from core.placing.decide import Shape
from core.placing.queues import Deserved, QueueTree, deserved
from core.settings import Settings, Tables
from core.units import parse_amount
from core.waiting import Wait, code_in
from core.wire.policies import DisruptionBudget

_AGAIN_S: Final = 1.0
# Adding up takes at most a twentieth of the time.
_REST_PER_WORK: Final = 19.0
_NEVER: Final = float("inf")

# The sort key of a line: for each queue from the top of the tree down, its negated priority, share, age and name.
Rank = tuple[tuple[int, float, int, str], ...]


@lru_cache(maxsize=1 << 10)
def _shared(keys: CollisionKey) -> CollisionKey:
    """Return one object for all equal keys, because they are compared again and again while a line is long."""
    return keys


class QueueOrder:
    """The order of queues; a chore of the cycle.

    Attributes:
        groups: groups and queues.
    """

    def __init__(
        self, queue: SchedulingQueue, groups: Groups, budgets: Budgets, ledger: Ledger, clock: Callable[[], float]
    ) -> None:
        self.groups: Final = groups
        self._ledger: Final = ledger
        self._queue: Final = queue
        self._budgets: Final = budgets
        self._clock: Final = clock
        self._deserved = Deserved()
        # What it follows from: capacity, what pods of each queue ask for, and the queues.
        self._seen: tuple[Mapping[str, int], Mapping[str, Mapping[str, int]], QueueTree] = ({}, {}, groups.tree)
        self._tree = groups.tree
        self._next_s = 0.0
        # There may be many lines, and each decision compares them.
        self._ranks: Final[dict[str, Rank]] = {}

    def of(self, pod: Pod) -> str:
        """Return the line of *pod*: the name of its queue."""
        key = group_of(pod)
        return line_of(self.groups.spec(key)) if key is not None else DEFAULT_QUEUE

    def rank(self, line: str) -> Rank:
        """Return the sort key of *line*; the lowest has its turn first."""
        if self._budgets.moved or self._tree is not self.groups.tree:
            self._heed_moves()
        found = self._ranks.get(line)
        if found is None:
            found = self._ranks[line] = tuple(self._step(name) for name in self.groups.tree.path(line) or [line])
        return found

    def _heed_moves(self) -> None:
        """Forget the ranks of lines in or below queues that hold something else now; of all, if queues have changed."""
        tree = self.groups.tree
        if self._tree is not tree:
            self._tree, self._next_s = tree, 0.0
            self._ranks.clear()
        below = [name or DEFAULT_QUEUE for name in self._budgets.moved if name != ROOT_QUEUE]
        for name in below:
            self._ranks.pop(name, None)
            below += tree.children(name)
        self._budgets.moved.clear()

    def _step(self, name: str) -> tuple[int, float, int, str]:
        queue = self.groups.queues.get(name)
        share = self._deserved.share(name, self._budgets.held(name))
        return (0, share, 0, name) if queue is None else (-queue.priority, share, queue.created_s, name)

    def deserved(self, name: str) -> Mapping[str, float]:
        """Return how much queue *name* deserved at the last update; resources that it does not request are left out."""
        return self._deserved.amounts.get(name, {})

    # ------------------------------------------------------------------ in time

    def bring_up_to_date(self, now_s: float) -> None:
        """Update what queues deserve, unless that was done recently, even if pods of only one queue wait."""
        if now_s >= self._due_s():
            self.look(now_s)

    def next_s(self) -> float:
        """Return when to update what queues deserve, monotonic; never while at most one queue has pods."""
        if len(self._queue.lines) < 2:
            return _NEVER
        return self._due_s()

    def _due_s(self) -> float:
        """Return when to update what queues deserve, monotonic: at once if queues have changed."""
        return self._next_s if self._tree is self.groups.tree else 0.0

    def look(self, now_s: float) -> None:
        """Update what queues deserve."""
        started_s = self._clock()
        self._heed_moves()
        total = dict(self._budgets.totals.amounts())
        asked = self._budgets.held_by_line(self._queue.lines)
        for (line, shape), (entry, count) in self._waiting().items():
            self._add(asked[line], entry, shape, count)
        seen = total, asked, self.groups.tree
        if seen != self._seen:
            self._seen, self._deserved = seen, deserved(*seen)
        self._ranks.clear()
        self._next_s = now_s + max(_AGAIN_S, _REST_PER_WORK * (self._clock() - started_s))

    def _waiting(self) -> dict[tuple[str, Shape], tuple[Entry, int]]:
        """Return one waiting pod for each line and shape, and the number of such pods."""
        found: dict[tuple[str, Shape], tuple[Entry, int]] = {}
        for entry in self._queue:
            if entry.shape is not None and entry.placement is None:
                known = found.get((entry.line, entry.shape))
                found[entry.line, entry.shape] = (entry, 1) if known is None else (known[0], known[1] + 1)
        return found

    def _add(self, asked: dict[str, int], entry: Entry, shape: Shape, count: int) -> None:
        try:
            amounts = dict(model.amounts_of(entry.pod))
        except InvalidRequestError:
            return
        for resource, amount in amounts.items():
            asked[resource] = asked.get(resource, 0) + count * amount
        if shape.dialect is not None:
            # The amount is only known once a pod is placed, so all of the resource counts as requested.
            for resource in self._ledger.resources_of(shape.dialect) & self._ledger.words.uncounted:
                asked[resource] = self._budgets.totals.amounts().get(resource, 0)


# ---------------------------------------------------------------------- pods on nodes


# Pods of this namespace run the cluster, so they are never evicted for others.
_SYSTEM: Final = "kube-system"
# Marks a mirror pod, the API server's copy of a static pod; its deletion does not end the pod.
_MIRROR: Final = "kubernetes.io/config.mirror"


class Occupants:
    """The pods on nodes, as far as they matter for preemption.

    Attributes:
        disruption_budgets: by namespace and name; None while they are unknown.
    """

    def __init__(self, groups: Groups, clock: Callable[[], float]) -> None:
        self.disruption_budgets: dict[tuple[str, str], DisruptionBudget] | None = None
        self._groups: Final = groups
        self._clock: Final = clock
        self._who: Final[dict[PodUid, Occupant]] = {}
        self._leaving: Final[set[PodUid]] = set()
        # Pods that were evicted long ago and are still there; and pods that may not be evicted yet, each with the time
        # (monotonic) until which no preemption chooses it, and its namespace.
        self._stuck: Final[set[PodUid]] = set()
        self._spared: dict[PodUid, tuple[float, str]] = {}
        # How many preemptions in progress evict each pod.
        self._victims: Final = Counter[PodUid]()

    def put(self, pod: Pod) -> None:
        """Note that *pod* is on a node; a finished one is dropped."""
        if pod.finished:
            self.drop(pod.uid)
            return
        group = group_of(pod)
        spec = self._groups.spec(group) if group is not None else None
        priority = self._groups.standing(pod).priority if group is not None else pod.priority
        self._who[pod.uid] = Occupant(
            priority=priority,
            start_s=pod.start_s or pod.created_s,
            block=group,
            leaving=pod.deleting,
            stays=priority >= SYSTEM_CRITICAL
            or pod.namespace == _SYSTEM
            or _MIRROR in pod.annotations
            or not is_preemptable(pod.annotations, pod.labels)
            or (spec is not None and spec.stays),
            pending=pod.phase is Phase.PENDING,
            ready=pod.ready,
        )
        # After a restore of etcd, a pod may be as it was before its deletion.
        if pod.deleting:
            self._leaving.add(pod.uid)
        else:
            self._leaving.discard(pod.uid)

    def group_changed(self, key: GroupKey) -> None:
        """Update the members on nodes of a changed group."""
        for pod in self._groups.members(key).values():
            if pod.uid in self._who:
                self.put(pod)

    def drop(self, uid: PodUid) -> None:
        """Note that a pod is on no node."""
        self._who.pop(uid, None)
        self._leaving.discard(uid)
        self._stuck.discard(uid)
        self._spared.pop(uid, None)

    def get(self, uid: PodUid) -> Occupant | None:
        """Return what is known of a pod, if it is on a node."""
        return self._who.get(uid)

    def is_leaving(self, uid: PodUid) -> bool:
        """Return whether a pod is expected to leave its node."""
        return uid in self._leaving and uid not in self._stuck

    def leaving(self) -> frozenset[PodUid]:
        """Return the pods that are expected to leave their nodes."""
        return frozenset(self._leaving - self._stuck)

    def is_victim(self, uid: PodUid) -> bool:
        """Return whether a preemption in progress evicts a pod."""
        return uid in self._victims

    def choose(self, uids: Iterable[PodUid]) -> None:
        """Note that a preemption evicts *uids*; from now on they count in no group, as in Volcano (groups 4.5)."""
        self._victims.update(uids)

    def unchoose(self, uids: Collection[PodUid]) -> None:
        """Note that the preemption that evicted *uids* has ended: their groups count those that stay again."""
        self._victims.subtract(uids)
        for uid in [uid for uid in uids if self._victims[uid] <= 0]:
            del self._victims[uid]
        for key in {key for uid in uids if uid in self._who and (key := self._groups.key_of.get(uid)) is not None}:
            self._groups.stays(key)

    def does_not_leave(self, uid: PodUid) -> None:
        """Note that a pod was evicted long ago and is still there, so that nothing relies on its end."""
        if uid in self._who:
            self._stuck.add(uid)

    def spare(self, victim: Target, until_s: float) -> None:
        """Do not choose a pod as a victim before *until_s*, monotonic, unless a budget of its namespace is relaxed."""
        if victim.uid in self._who:
            self._spared[victim.uid] = until_s, victim.namespace

    def crowd(self) -> Crowd:
        """Return all pods on nodes as they are now, for a search for victims; those that are chosen already leave."""
        now_s = self._clock()
        self._spared = {uid: one for uid, one in self._spared.items() if one[0] > now_s}
        who = dict(self._who)
        chosen = [uid for uid in self._victims if uid in who and not who[uid].leaving]
        for uid in chosen:
            who[uid] = who[uid]._replace(leaving=True)
        for uid in (*self._stuck, *self._spared):
            if uid in self._stuck or not who[uid].leaving:
                who[uid] = who[uid]._replace(leaving=False, stays=True)
        return Crowd(who, self._gangs(), self._all_budgets(), chosen)

    def _gangs(self) -> dict[Hashable, Collection[PodUid]]:
        """Return the members of every group that is disrupted together."""
        return {key: tuple(self._groups.members(key)) for key in self._groups.named() if self.disrupted_together(key)}

    def disrupted_together(self, key: GroupKey) -> bool:
        """Return whether members of group *key* leave together: by its disruption mode, else if it is a gang."""
        spec = self._groups.spec(key)
        if spec is None:
            return False
        return spec.is_gang if spec.disrupted_together is None else spec.disrupted_together

    def _all_budgets(self) -> Sequence[DisruptionBudget]:
        return tuple(self.disruption_budgets.values()) if self.disruption_budgets else ()

    # ------------------------------------------------------------------ disruption budgets

    def budgets_replaced(self, budgets: Sequence[DisruptionBudget]) -> None:
        """Replace all disruption budgets."""
        self.disruption_budgets = {(one.namespace, one.name): one for one in budgets}
        self._spared.clear()

    def forget_budgets(self) -> None:
        """Forget all disruption budgets; they are unknown from now on."""
        self.disruption_budgets = None

    def budget_changed(self, budget: DisruptionBudget) -> None:
        """A disruption budget appeared or changed."""
        if self.disruption_budgets is not None:
            known = self.disruption_budgets.get((budget.namespace, budget.name))
            self.disruption_budgets[budget.namespace, budget.name] = budget
            if known is not None and _is_relaxed(known, budget):
                self._relaxed(budget.namespace)

    def budget_gone(self, budget: DisruptionBudget) -> None:
        """A disruption budget is deleted."""
        if self.disruption_budgets is not None:
            self.disruption_budgets.pop((budget.namespace, budget.name), None)
            self._relaxed(budget.namespace)

    def _relaxed(self, namespace: str) -> None:
        """A budget of *namespace* covers fewer pods, or allows more evictions."""
        self._spared = {uid: one for uid, one in self._spared.items() if one[1] != namespace}


def _is_relaxed(before: DisruptionBudget, now: DisruptionBudget) -> bool:
    return now.allowed > before.allowed or now.selector != before.selector


# ---------------------------------------------------------------------- record of events


class Recording:
    """The record of pods' events, which only a leader keeps.

    Attributes:
        pods: the record.
        is_on: whether events are recorded.
    """

    def __init__(self, ledger: Ledger, wall: Callable[[], float]) -> None:
        """Begin with nothing; *wall*: Unix seconds."""
        self.pods: Final = PodRecord()
        self.is_on = False
        self._ledger: Final = ledger
        self._wall: Final = wall

    def begin(self) -> None:
        """Begin to record."""
        self.is_on = True

    def note(self, pod: Pod, what: What, text: str = "", code: str = "") -> None:
        """Record an event of a pod that this controller decides."""
        if not self.is_on:
            return
        key = pod.key
        if pod.uid not in self.pods:
            now_s = int(self._wall())
            asked_s = min(pod.created_s, now_s) or now_s
            asked = PodEvent(What.ASKED, asked_s, asked_s, text=self._asked(pod))
            self.pods.note(pod.uid, key, asked)
        self.pods.note(pod.uid, key, self._event(what, text, code))

    def known(self, uid: PodUid, what: What, text: str = "") -> None:
        """Record an event of a pod, if the record has earlier events of it."""
        key = self.pods.pod(uid) if self.is_on else None
        if key is not None:
            self.pods.note(uid, key, self._event(what, text))

    def evicted(self, victim: Target) -> None:
        """Record that a pod was evicted for another."""
        if self.is_on:
            event = self._event(What.EVICTED, "its cards are needed for a pod that comes first")
            self.pods.note(victim.uid, victim.key, event)

    def ended(self, pod: Pod) -> None:
        """Record that a pod has ended and holds nothing any more."""
        if self.pods.what(pod.uid) is not What.ENDED:
            said = ": ".join(filter(None, (pod.phase, pod.status_reason, pod.status_message)))
            self.known(pod.uid, What.ENDED, said)

    def served(self, uid: PodUid) -> None:
        """Record that the device plugin has served a pod."""
        self.known(uid, What.SERVED)

    def gone(self, uid: PodUid) -> None:
        """Record that a pod no longer exists."""
        self.known(uid, What.GONE)

    def _event(self, what: What, text: str, code: str = "") -> PodEvent:
        now_s = int(self._wall())
        return PodEvent(what, now_s, now_s, 1, self._ledger.cursor, code, text)

    def _asked(self, pod: Pod) -> str:
        """Return what the containers of *pod* ask of cards."""
        return " + ".join(filter(None, map(self._wanted, (*pod.containers, *pod.init_containers))))

    def _wanted(self, container: Container) -> str:
        of_cards = self._ledger.words.resources
        return ", ".join(
            f"{name}: {_whole(text)}" for name, text in sorted(container.limits.items()) if name in of_cards
        )


def _whole(text: str) -> str:
    """Return a quantity without its suffix, as whole numbers are usually written: 12000 for 12k."""
    if text.isdecimal() and text[0] != "0":
        return text
    try:
        return str(parse_amount(text, ""))
    except InvalidRequestError:
        return text


# ---------------------------------------------------------------------- shared state


class ClusterState:
    """The state that all parts of the scheduler share; only the scheduler's task changes it.

    Attributes:
        groups: PodGroups, queues and their members.
        ledger: the nodes, and what pods hold on them; it has the catalog, and the configuration in force.
        budgets: what pods hold of their queues and namespaces.
        queue_order: the order of queues, and so of the lines of *queue*.
        queue: the pending pods.
        handoff: pods in flight, and the lines of placed pods that wait their turn, by node.
        search: finds the best node.
        gangs: pods that are placed together, and why units are refused.
        occupants: the pods on nodes, as far as they matter for preemption.
        carded: bound pods with cards, as last seen.
        of_kueue: bound pods of this scheduler without cards that Kueue admitted, as last seen.
        sent: Bindings with an unknown outcome.
        fencing: pods that an earlier leader may still bind; no Binding is sent before their versions are changed.
        actions: actions that were not performed yet, oldest first; the loop removes them.
        requeue: which event wakes which refused pods.
        unreported: pods with a reason of their own that their conditions may not have yet.
        recording: the record of pods' events.
        metrics: counters and histograms.
        clock: monotonic seconds.
        wall: Unix seconds.
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
    ) -> None:
        """Begin with nothing; see the attributes."""
        self.groups: Final = groups
        self.ledger: Final = Ledger(catalog, tables, settings)
        self.budgets: Final = Budgets(groups, self.ledger)
        self.queue: Final = SchedulingQueue(self._line_of, self._rank, self._standing_of)
        self.queue_order: Final = QueueOrder(self.queue, groups, self.budgets, self.ledger, clock)
        self.recording: Final = Recording(self.ledger, wall)
        self.handoff: Final = HandOff(catalog, tables, settings, self.recording.served)
        self.actions: Final[deque[Action]] = deque()
        self.search: Final = NodeSearch(self.ledger, self.announce_node, metrics)
        self.occupants: Final = Occupants(groups, clock)
        self.gangs: Final = Gangs(groups, self.queue, self.budgets, self.search.room_on, self.occupants.is_victim)
        self.carded: Final[dict[PodUid, Pod]] = {}
        self.of_kueue: Final[dict[PodUid, Pod]] = {}
        self.sent: Final[Attempts[PodUid]] = Attempts()
        self.fencing: Final = Fencing(self.actions)
        self.requeue: Final = Requeue()
        self.unreported: Final[dict[PodUid, None]] = {}
        self.metrics: Final = metrics
        self.clock: Final = clock
        self.wall: Final = wall

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.ledger.settings

    @property
    def may_bind(self) -> bool:
        """Whether another Binding may be sent now: `bind_in_flight_max` is not reached, and no fence is in progress."""
        return self.queue.in_flight < self.settings.bind_in_flight_max and not self.fencing.is_under_way

    def collision_key(self, shape: Shape) -> CollisionKey:
        """Return by what a device plugin could mistake another pod for one of *shape*, and kubelet reject both."""
        if shape.dialect is None:
            return NO_COLLISION
        marks = self.ledger.catalog.dialects[shape.dialect].confusable(shape.request)
        return _shared(CollisionKey(shape.dialect, marks, frozenset(shape.taken)))

    def _line_of(self, pod: Pod) -> str:
        return self.queue_order.of(pod)

    def _rank(self, line: str) -> Rank:
        return self.queue_order.rank(line)

    def _standing_of(self, pod: Pod) -> Standing:
        return Standing(pod.priority, pod.preempts) if group_of(pod) is None else self.groups.standing(pod)

    def announce(self, pod: Pod, reason: str, message: str, *, warning: bool = True) -> None:
        """Write an event on a pod."""
        self.actions.append(Announce(about=about_pod(pod), reason=reason, message=message, warning=warning))

    def announce_node(self, name: NodeName, reason: str, message: str) -> None:
        """Write an event on a node."""
        node = self.ledger.node(name)
        about = Subject(kind="Node", name=name, uid=node.uid if node is not None else "")
        self.actions.append(Announce(about=about, reason=reason, message=message))

    def hold(self, entry: Entry, wait: Wait) -> None:
        """Hold a pod, and report *wait* to its user."""
        self.queue.hold(entry)
        self.hold_up(entry, wait)

    def hold_up(self, entry: Entry, wait: Wait | None) -> None:
        """Set why a pod is not bound yet, and report it to its user."""
        self.queue.hold_up(entry, wait)
        self.unreported[entry.pod.uid] = None

    def set_condition(self, entry: Entry, condition: PodCondition) -> None:
        """Record the condition that was written for a pod, and count a new code as a refusal."""
        code = code_in(condition.text)
        if code and (entry.condition is None or code_in(entry.condition.text) != code):
            self.metrics.refusals.labels(code).inc()
        self.recording.note(entry.pod, What.WAITS, condition.text, code)
        self.queue.set_condition(entry, condition)

    def cap(self, entry: Entry) -> Capped | None:
        """Return the ask by which a pod waits if its queue or namespace is full; None if nothing limits it."""
        limits = self.budgets.limits(spender_of(entry.pod))
        return Capped(limits, entry.shape) if limits and entry.shape is not None else None

    def over(
        self, pod: Pod, placement: Placement, beside: Iterable[tuple[Spender, Mapping[str, int]]] = ()
    ) -> tuple[Over, ...]:
        """Return the resources of which the queue or namespace of *pod* has too little left for *placement*.

        beside: what is promised to others.
        """
        left = self.budgets.budget(spender_of(pod), beside=beside)
        return () if left is None else left.lacks(taken(self.ledger, pod, placement.dialect, placement.assignment))
