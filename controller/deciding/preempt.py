"""Preemption: evicts pods of lower priority for a refused pod, and reserves the freed capacity until it is placed.

Off by default. Setting `preemption` enables it. Setting `reclaim` lets a queue that holds less than it deserves evict
pods of queues that hold more.

A pod that was refused for `preemption_delay_s` gets a search for `victims`, one pod at a time and in slices, on a copy
of the ledger. Before any eviction, the result is checked again on its nodes. A preemption ends when the pod is placed,
when its gang cannot start with the capacity that becomes free, because it lost a member or its minimum was raised, when
a victim may not be evicted, when all victims are gone and the pod still does not fit, or after `preemption_wait_s`. A
pod that fits into capacity that an earlier preemption leaves over needs none of its own.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from controller.actions import Preempt, Target, Unnominate, target_of
from controller.deciding.cluster import ClusterState
from controller.deciding.lifecycle import Ask, Capped, Entry, Order, Stage
from controller.deciding.reserve import End, Nomination, Reservations
from controller.deciding.victims import LOWER, Leftovers, Question, VictimSearch, ended, forbidden
from controller.grouping.budgets import spender_of
from core.constraints.quota import QUOTA, Account
from core.ledger import Ledger
from core.model import BEGUN, GroupKey, NodeName, Pod, PodUid, group_of
from core.placing.crowd import SYSTEM_CRITICAL, Crowd
from core.placing.decide import Shape
from core.placing.gang import Together
from core.placing.preemption import Eviction
from core.units import counted, listed
from core.waiting import Cause, Wait

_NEVER: Final = float("inf")
# The order of a nomination by reclaim: victims of a higher priority must not take the capacity back.
_BEFORE_ALL: Final = (1 - SYSTEM_CRITICAL, BEGUN, 0, 0)
_LOOK_S: Final = 1.0
_SLICE_S: Final = 0.003
# Searches without victims take at most a twentieth of the time, successful ones half of it.
_REST_PER_WORK: Final = 19.0
_REST_PER_FOUND: Final = 1.0
# The pauses before another search for an ask, if no victims help, and if none are needed.
_NOBODY_S: Final = 60.0
_NO_NEED_S: Final = 5.0
# The minimum time before a pod whose eviction was refused is chosen again.
_SPARED_S: Final = 30.0
# A preemption ends if the pod is still refused this long after all victims have left.
_QUIET_S: Final = 5.0
# The maximum number of preemptions in progress: victims take up to their grace period to leave.
_NOMINATIONS_MAX: Final = 256
# The maximum number of preemptions with evictions still to be sent; the victims of more would be outdated by then.
_ASKING_MAX: Final = 8
# Besides the first pod of each ask, a look considers about this many others; the next look goes on.
_LOOKED_FOR: Final = 256
# How many asks are looked at in one step; a step takes a millisecond.
_ASKS_AT_ONCE: Final = 64


class _Alike(NamedTuple):
    """What pods with the same victims have in common; limits: what their queue and namespace may hold at most."""

    ask: Ask
    priority: int
    line: str
    limits: tuple[Account, ...]


# When the last search for a pod was in vain, and the pod.
_Turn = tuple[float, Order, Ask, Entry]


@dataclass(slots=True, kw_only=True)
class _Search:
    ask: Ask
    uid: PodUid
    question: Question
    worked_s: float = 0.0
    slices: int = 0


class Preempting:
    """Starts preemptions, and follows them to their end; a chore.

    Attributes:
        trouble: why no pod is evicted although preemption is enabled, for operators, or "".
        victim_search: the search for victims of one pod.
    """

    def __init__(self, cluster: ClusterState, reservations: Reservations) -> None:
        """Begin without preemptions."""
        self.trouble = ""
        self._cluster: Final = cluster
        self._reservations: Final = reservations
        self._nominations: Final = reservations.nominations
        self._leftovers: Final = Leftovers(cluster, reservations)
        self.victim_search: Final = VictimSearch(cluster, reservations)
        self._search: _Search | None = None
        # Finds the next pod to search for, and how long this has taken so far.
        self._choice: Generator[None, None, tuple[Ask, Entry] | None] | None = None
        self._chosen_s = 0.0
        self._looked_s = -_NEVER
        self._rests_until_s = -_NEVER
        # Whether the next search begins as soon as `_rests_until_s` has passed, because the last one has ended.
        self._goes_on = False
        # The earliest time of the next search for pods with the same victims.
        self._rests: dict[_Alike, float] = {}
        # Waiting pods for whom a victim was not evicted, with that victim and the reason.
        self._denied: dict[PodUid, tuple[PodUid, str]] = {}
        # How many nominations were made.
        self._attempts = 0
        # How many asks, and how often all of them, were looked at for other pods than the first.
        self._asks_passed = self._rounds = 0

    @property
    def is_on(self) -> bool:
        """Whether the settings enable evictions for other pods."""
        settings = self._cluster.settings
        return settings.preemption or settings.reclaim

    # ------------------------------------------------------------------ in time

    def next_s(self) -> float:
        """Return when to look next, monotonic."""
        if self._search is not None or self._choice is not None:
            return -_NEVER
        if not len(self._nominations) and not (self.is_on and self._cluster.queue.is_refusing):
            return _NEVER
        look_s = self._looked_s + _LOOK_S
        return min(look_s, self._rests_until_s) if self._goes_on else look_s

    def look(self, now_s: float) -> None:
        """End preemptions that are over, and search for victims for the next pod."""
        if self._search is None and now_s >= self._looked_s + _LOOK_S:
            self._looked_s = now_s
            met = dict[GroupKey, bool]()
            for nomination in self._nominations:
                self._tend(nomination, now_s, met)
        if not self.is_on or self._cluster.occupants.disruption_budgets is None:
            self._search, self._choice, self._goes_on = None, None, False
            return
        if self._search is None and self._choice is None and now_s >= self._rests_until_s:
            self._goes_on = False
            if self._may_begin:
                self._choice, self._chosen_s = self._next(now_s), 0.0
        if self._choice is not None:
            self._choose(self._choice, now_s)
        if self._search is not None:
            self._go_on(self._search)

    @property
    def asking(self) -> int:
        """The number of preemptions with evictions still to be sent."""
        return sum(one.asking for one in self._nominations)

    @property
    def _may_begin(self) -> bool:
        """Whether another preemption may begin."""
        return len(self._nominations) < _NOMINATIONS_MAX and self.asking < _ASKING_MAX

    def _choose(self, choice: Generator[None, None, tuple[Ask, Entry] | None], now_s: float) -> None:
        """Go on with *choice*, and begin a search for its pod; the time that it takes counts as part of the search."""
        started_s = self._cluster.clock()
        found: tuple[Ask, Entry] | None = None
        try:
            while self._cluster.clock() < started_s + _SLICE_S:
                next(choice)
        except StopIteration as end:
            self._choice, found = None, end.value
        if found is not None:
            self._begin(*found, now_s)
        self._chosen_s += self._cluster.clock() - started_s
        if self._search is not None:
            self._search.worked_s = self._chosen_s
        elif self._choice is None and not self._goes_on:
            # This pod is decided again first; the next one need not wait for that.
            self._goes_on = found is not None
            self._rests_until_s = max(self._rests_until_s, self._cluster.clock() + _REST_PER_WORK * self._chosen_s)

    def _next(self, now_s: float) -> Generator[None, None, tuple[Ask, Entry] | None]:
        """Return the first pod that was refused for long enough and for which others may be evicted.

        Pods without a search come first, by their order; then those whose last vain search was longest ago. Yields
        between some of the asks.
        """
        queue = self._cluster.queue
        self._rests = {who: rest_s for who, rest_s in self._rests.items() if rest_s > now_s or queue.refuses(who.ask)}
        self._denied = {uid: one for uid, one in self._denied.items() if queue.get(uid) is not None}
        # An earlier leader may have preempted for gangs: the status of each of their pods shows it separately.
        made_for = (queue.get(one.uid) for one in self._nominations)
        groups = {key for one in made_for if one is not None and (key := group_of(one.pod)) is not None}
        asks, found = list[Ask](), list[_Turn]()
        for at, ask in enumerate(queue.refused_asks()):
            if at % _ASKS_AT_ONCE == 0:
                yield
            first = queue.first_refused(ask) if self.may_help(ask) else None
            if first is None:
                continue
            asks.append(ask)
            found += self._turns(ask, [first], now_s, groups)
        found += self._others(asks, now_s, groups)
        best = min(found, key=_by_turn, default=None)
        if best is None:
            return None
        _, _, ask, chosen = best
        entry = queue.get(chosen.pod.uid)
        if entry is None or entry.stage is not Stage.REFUSED or entry.parked != ask:
            return None  # it was decided between the steps
        return ask, entry

    def _others(self, asks: Sequence[Ask], now_s: float, groups: Set[GroupKey]) -> Iterator[_Turn]:
        """Yield the turns of pods that may come before the first of their *asks*; each time, of some.

        They may belong to a queue or namespace with other limits, or may have waited longer.
        """
        left, asked = _LOOKED_FOR, 0
        for ask in (*asks[self._asks_passed :], *asks[: self._asks_passed]):
            if left <= 0:
                break
            pods = self._cluster.queue.refused_pods(ask)
            at = self._rounds * _LOOKED_FOR % max(len(pods), 1)
            some = (pods[at:] + pods[:at])[:_LOOKED_FOR]
            left, asked = left - len(some), asked + 1
            yield from self._turns(ask, some, now_s, groups)
        self._asks_passed += asked
        if self._asks_passed >= len(asks):
            self._asks_passed, self._rounds = 0, self._rounds + 1

    def _turns(self, ask: Ask, some: Iterable[Entry], now_s: float, groups: Set[GroupKey]) -> Iterator[_Turn]:
        """Yield the turns of those of *some*, refused for *ask*, for whom others may be evicted now."""
        for one in some:
            rested_s = self._rested_s(ask, one, now_s, groups)
            if rested_s is not None:
                yield rested_s, one.order, ask, one

    def may_help(self, ask: Ask) -> bool:
        """Return whether evictions may help *ask*: it is not refused by a quota, or by silent plugins alone."""
        refusal = self._cluster.gangs.refusal(ask)
        if refusal is None or not refusal.over:
            return not isinstance(ask, Capped) and ask not in self._cluster.requeue.silent
        # Pods of its queue may leave a part of what the queue may hold.
        is_of_queue = isinstance(refusal.spender, GroupKey) and all(one.account.kind != QUOTA for one in refusal.over)
        return is_of_queue and self.victim_search.is_by_priority

    def _rested_s(self, ask: Ask, entry: Entry, now_s: float, groups: Set[GroupKey]) -> float | None:
        """Return since when others may be evicted for *entry*; None if not now.

        groups: groups with a preemption in progress.
        """
        since_s = now_s - self._cluster.settings.preemption_delay_s
        if not entry.standing.preempts or entry.refused_s is None or entry.refused_s > since_s:
            return None
        rested_s = self._rests.get(self._who(ask, entry), -_NEVER)
        if rested_s > now_s or self._nominations.of(entry) is not None:
            return None
        return None if isinstance(ask, Together) and group_of(entry.pod) in groups else rested_s

    def _who(self, ask: Ask, entry: Entry) -> _Alike:
        limits = self._cluster.budgets.limits(spender_of(entry.pod))
        return _Alike(ask, entry.standing.priority, entry.line, limits)

    def _begin(self, ask: Ask, entry: Entry, now_s: float) -> None:
        """Nominate a node with capacity that other preemptions leave over, or else begin a search."""
        if self._asks(entry) != ask:
            self._cluster.queue.ready(entry)
            return
        ledger = self._cluster.ledger.fork()
        if self._joins(ledger, ask, entry, now_s):
            self._goes_on = True
        else:
            self._search = _Search(
                ask=ask, uid=entry.pod.uid, question=self.victim_search.question(entry, ledger=ledger)
            )

    def _asks(self, entry: Entry) -> Ask | None:
        """Return what is decided with *entry* now; its group may have lost its minimum since it was refused."""
        gang = self._cluster.gangs.gang(entry)
        if gang is not None:
            return gang.asks
        return self._cluster.cap(entry) if isinstance(entry.parked, Capped) else entry.shape

    def _joins(self, ledger: Ledger, ask: Ask, entry: Entry, now_s: float) -> bool:
        """Nominate for *entry* capacity that preemptions for earlier pods leave over; return whether there is any."""
        started_s = self._cluster.clock()
        placement = self._leftovers.place(ledger, ask, entry, self._cluster.handoff.closed_nodes(now_s).keys())
        ended_s = self._cluster.clock()
        self._rests_until_s = max(self._rests_until_s, ended_s + _REST_PER_FOUND * (ended_s - started_s))
        if placement is None or self.victim_search.is_over(entry, [placement], self._cluster.occupants.leaving()):
            return False
        self._nominate(entry, Eviction((), (placement,)), LOWER, now_s)
        return True

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
        search.slices += 1
        if is_over:
            self._search = None
            self._goes_on = True
            rest = _REST_PER_FOUND if self._answered(search, answer) else _REST_PER_WORK
            self._rests_until_s = max(self._rests_until_s, self._cluster.clock() + rest * search.worked_s)

    def _answered(self, search: _Search, answer: Eviction | None) -> bool:
        """Take the answer of *search*, and return whether victims are asked to leave."""
        now_s, entry = self._cluster.clock(), self._cluster.queue.get(search.uid)
        if entry is None or entry.stage is not Stage.REFUSED or entry.parked != search.ask:
            return False
        if self._asks(entry) != search.ask:
            self._cluster.queue.ready(entry)
            return False
        who = self._who(search.ask, entry)
        self._forget_denied([one.pod.uid for one in self._cluster.gangs.unit(entry).members], search.question.crowd)
        if answer is None or answer.broken:
            # Nodes with other preemptions were left out, so another search may succeed later.
            self._rests[who] = now_s + (_NO_NEED_S if len(self._nominations) else _NOBODY_S)
            self.victim_search.was_in_vain()
            if answer is not None:
                whose, why = search.question.whose(answer), forbidden(answer.broken, entry.pod.namespace)
                stays = next(uid for uid in answer.victims if uid in answer.guarded)
                self._deny([one.pod for one in answer.placements], stays, whose, why)
            return False
        question = search.question
        again: Eviction | None = answer
        if search.slices > 1 and answer.victims:
            # Between the slices others may have come and gone.
            question = self.victim_search.question(entry, again=answer)
            again = ended(question.steps)
        if again is None or not again.victims or again.broken:
            self._rests[who] = now_s + _NO_NEED_S
            return False
        self._nominate(entry, again, question.whose(again), now_s)
        return True

    # ------------------------------------------------------------------ nominating

    def _nominate(self, entry: Entry, found: Eviction, whose: str, now_s: float) -> None:
        """Request the evictions, and reserve the capacity for *entry* or its gang."""
        victims = tuple(target for uid in found.victims if (target := self._target(uid)) is not None)
        nominated = tuple(
            (target_of(one.pod), placement.node)
            for placement in found.placements
            if (one := self._cluster.queue.get(placement.pod)) is not None
        )
        key = group_of(entry.pod) if isinstance(entry.parked, Together) else None
        nodes = frozenset(placement.node for placement in found.placements)
        cleared = frozenset(node for _, node in victims)
        if not victims:
            cleared = nodes & frozenset[NodeName]().union(*(one.cleared for one in self._nominations))
        members = self._cluster.groups.members(key) if key is not None else {}
        spec = self._cluster.groups.spec(key) if key is not None else None
        self._attempts += 1
        nomination = Nomination(
            uid=entry.pod.uid,
            attempt=self._attempts,
            key=key,
            order=entry.order if whose == LOWER else _BEFORE_ALL,
            nodes=nodes,
            victims=found.victims,
            nominated=tuple(pod for pod, _ in nominated),
            until_s=now_s + self._cluster.settings.preemption_wait_s,
            asking=True,
            whose=whose,
            placed=tuple(uid for uid, pod in members.items() if self._counts(pod)),
            minimums=spec.minimums if spec is not None else (),
            cleared=cleared,
            spender=spender_of(entry.pod),
            takes=dict(zip((pod.uid for pod, _ in nominated), self.victim_search.taken(found.placements), strict=True)),
            awaits=self._awaits(entry, found),
        )
        self._nominations.put(nomination)
        self._cluster.occupants.choose(nomination.victims)
        self._cluster.actions.append(
            Preempt(
                nomination=nomination.uid,
                attempt=nomination.attempt,
                nominated=nominated,
                victims=victims,
                guarded=found.guarded,
            )
        )

    def _awaits(self, entry: Entry, found: Eviction) -> tuple[PodUid, ...]:
        """Return the ending pods that must leave a part of the queue or namespace besides the victims; () if none."""
        if not self.victim_search.is_over(entry, found.placements, found.victims):
            return ()
        budgets, leaving = self._cluster.budgets, self._cluster.occupants.leaving()
        shares = budgets.sharing(spender_of(entry.pod))
        return tuple(uid for uid in sorted(leaving) if (one := budgets.spender_of(uid)) is not None and shares(one))

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
        if nomination.asking:
            return  # the API server may still refuse
        many = len(nomination.victims)
        text = _are_evicted(many, nomination.whose) if many else f"pods {nomination.whose} were evicted"
        wait_s = self._cluster.settings.preemption_wait_s
        whose = "it" if nomination.key is None else "its group"
        wait = Wait(
            Cause.WAITING_FOR_EVICTED,
            f"{text}{self._whence(nomination)}; their capacity is reserved for {whose}, {wait_s:g} s at most",
        )
        for entry in self._waiting(nomination):
            if entry.stage is Stage.REFUSED and entry.wait != wait:
                self._cluster.hold_up(entry, wait)

    def _whence(self, nomination: Nomination) -> str:
        """Return the nodes of the victims, in words; "" if they are unknown."""
        where = nomination.cleared
        if not where and not (nomination.takes or self._cluster.budgets.limits(nomination.spender)):
            where = nomination.nodes  # an earlier leader chose the victims, for these alone
        return f" from {_on(where)}" if where else ""

    # ------------------------------------------------------------------ outcomes

    def needs(self, action: Preempt) -> bool:
        """Return whether the evictions of *action* are still needed."""
        nomination = self._made_by(action)
        return nomination is not None and self._over(nomination, self._waiting(nomination), {}) is None

    def unneeded(self, action: Preempt) -> None:
        """Record that the remaining evictions were not sent, because they seemed unnecessary; end it if they are."""
        nomination = self._made_by(action)
        if nomination is None:
            return
        over = self._over(nomination, self._waiting(nomination), {})
        if over is not None:
            self._end(nomination, over)
        else:
            self._nominations.put(replace(nomination, asking=False))

    def _made_by(self, action: Preempt) -> Nomination | None:
        """Return the nomination of *action*; None if it has ended, even if the same pod has another one since."""
        nomination = self._nominations.get(action.nomination)
        return nomination if nomination is not None and nomination.attempt == action.attempt else None

    def asked(self, action: Preempt) -> None:
        """Record that all evictions were sent and accepted."""
        self.trouble = ""
        self._goes_on = True
        nomination = self._made_by(action)
        if nomination is None:
            return
        sent, many = replace(nomination, asking=False), len(nomination.victims)
        self._nominations.put(sent)
        for entry in self._waiting(sent):
            self._denied.pop(entry.pod.uid, None)
        first = self._cluster.queue.get(sent.uid)
        if many and first is not None:
            message = f"{_are_evicted(many, sent.whose)}{self._whence(sent)}"
            self._cluster.announce(first.pod, "Preempting", message, warning=False)
        self._tell(sent)

    def evicted(self, victim: Target) -> None:
        """Record that a victim's eviction was accepted."""
        self._cluster.recording.evicted(victim)

    def refused(
        self,
        action: Preempt,
        victim: PodUid | None,
        rest_s: float = 0.0,
        *,
        by_budget: bool = False,
        trouble: str = "",
    ) -> None:
        """End a preemption because *victim* may not be evicted now, None: no eviction was sent.

        Args:
            action: the preemption.
            victim: the pod that stays.
            rest_s: for how long to choose others.
            by_budget: whether a disruption budget protects it.
            trouble: the reason, if it concerns all evictions and not this victim.
        """
        self.trouble = trouble
        now_s, nomination = self._cluster.clock(), self._made_by(action)
        for one, _ in action.victims:
            if one.uid == victim:
                self._cluster.occupants.spare(one, now_s + max(rest_s, _SPARED_S))
        if trouble:
            self._rests_until_s = now_s + _NOBODY_S
        if nomination is None:
            return
        self._end(nomination, End.REFUSED)
        if victim is not None:
            why = forbidden() if by_budget else "the API server refused it"
            self._deny([pod.uid for pod in nomination.nominated], victim, nomination.whose, why)

    def _deny(self, pods: Iterable[PodUid], victim: PodUid, whose: str, why: str) -> None:
        """Note for those of *pods* that wait that *victim* stays."""
        # Victims take turns, so a name or a node would change the text each time.
        text = f"To evict pods {whose} would help, but {why}; this is tried again."
        for uid in pods:
            if self._cluster.queue.get(uid) is not None:
                self._denied[uid] = victim, text
                self._cluster.unreported[uid] = None

    def _forget_denied(self, pods: Iterable[PodUid], crowd: Crowd) -> None:
        """Drop what is noted for *pods* of a victim that could be chosen now: a search of *crowd* has answered."""
        for uid in pods:
            who = crowd.occupants.get(self._denied[uid][0]) if uid in self._denied else None
            if who is not None and not who.stays:
                del self._denied[uid]
                self._cluster.unreported[uid] = None

    def denied(self, entry: Entry) -> str:
        """Return that no pod was evicted for *entry*, and why, as a sentence; "" if that does not hold it up now."""
        victim, text = self._denied.get(entry.pod.uid, (None, ""))
        is_there = victim is not None and self._cluster.occupants.get(victim) is not None
        return text if self.is_on and is_there and entry.stage is Stage.REFUSED else ""

    def _tend(self, nomination: Nomination, now_s: float, met: dict[GroupKey, bool]) -> None:
        entries = self._waiting(nomination)
        over = self._over(nomination, entries, met)
        if over is not None:
            self._end(nomination, over)
        elif now_s >= nomination.until_s:
            for uid in self._leaving(nomination):
                self._cluster.occupants.does_not_leave(uid)
            self._end(nomination, End.IN_VAIN)
        elif nomination.asking or self._leaving(nomination):
            if nomination.quiet_s != _NEVER:
                self._nominations.put(replace(nomination, quiet_s=_NEVER))
            self._tell(nomination)
            # More pods than the victims may be leaving, and the waiting pods need not wait for those.
            if self._may_fit(_first(entries).parked, nomination.nodes):
                self._wake(entries)
        elif any(one.stage is not Stage.REFUSED for one in entries):
            self._tell(nomination)
        elif now_s >= nomination.quiet_s + _QUIET_S:
            self._end(nomination, End.IN_VAIN)
        else:
            if nomination.quiet_s == _NEVER:
                self._nominations.put(replace(nomination, quiet_s=now_s))
            self._tell(nomination)
            self._wake(entries)

    def _wake(self, entries: Iterable[Entry]) -> None:
        """Have the first of *entries* decided, if it is refused.

        Others may be refused for the same, and come first by their queue: the room is kept from them.
        """
        first = _first(entries)
        if first.stage is Stage.REFUSED:
            self._cluster.queue.wake_one(first)

    def _may_fit(self, ask: Ask | None, nodes: Iterable[NodeName]) -> bool:
        """Return whether *nodes* may take a pod that is refused for *ask* now."""
        if isinstance(ask, Together):
            return self._cluster.gangs.may_fit(ask, nodes)
        if isinstance(ask, Capped):
            return self._cluster.gangs.may_afford(ask) and self._may_fit(ask.shape, nodes)
        return isinstance(ask, Shape) and any(self._cluster.search.takes(ask, name) for name in nodes)

    def _over(self, nomination: Nomination, entries: Sequence[Entry], met: dict[GroupKey, bool]) -> End | None:
        """Return the outcome of a preemption whose waiting pods are *entries*; None while it is in progress.

        met: whether groups have their minimum; filled as far as this is needed.
        """
        ledger = self._cluster.ledger
        able = [one for one in entries if one.shape is not None]
        if not able:
            is_placed = any(ledger.node_of(pod.uid) is not None for pod in nomination.nominated)
            return End.PLACED if is_placed else End.GONE
        if all(one.placement is not None for one in able):
            return End.PLACED
        if nomination.victims and self._may_differ(nomination, able, met):
            gang, node_of = self._cluster.gangs.gang(_first(able)), ledger.node_of
            rooms = sum(node_of(pod.uid) is None for pod in nomination.nominated)
            if gang is not None and not gang.may_start_with(rooms):
                return End.GONE
        return None if self.is_on and nomination.nodes <= ledger.states.keys() else End.IN_VAIN

    def _may_differ(self, nomination: Nomination, waiting: Sequence[Entry], met: dict[GroupKey, bool]) -> bool:
        """Return whether the group may need other members than *waiting*; finding its gang is costly."""
        key = nomination.key
        if key is None:
            group = group_of(_first(waiting).pod)
            if group is not None and group not in met:
                met[group] = self._cluster.gangs.is_met(group)
            return group is not None and not met[group]
        uids = {one.pod.uid for one in waiting}
        spec, members = self._cluster.groups.spec(key), self._cluster.groups.members(key)
        if spec is None or spec.minimums != nomination.minimums:
            return True
        return any(
            uid not in uids and not ((pod := members.get(uid)) is not None and self._counts(pod))
            for uid in (*nomination.placed, *(pod.uid for pod in nomination.nominated))
        )

    def _counts(self, member: Pod) -> bool:
        return self._cluster.gangs.counts(member, self._cluster.queue.get(member.uid))

    def _leaving(self, nomination: Nomination) -> list[PodUid]:
        """Return the ending pods on which a nomination relies: on its nodes and, if needed, of its queue elsewhere."""
        ledger, occupants, spender = self._cluster.ledger, self._cluster.occupants, nomination.spender
        there = dict.fromkeys(uid for name in nomination.nodes for uid in ledger.holders(name))
        there.update(dict.fromkeys((*nomination.victims, *nomination.awaits)))
        if not nomination.takes and isinstance(spender, GroupKey):
            # An earlier leader evicted the victims: if they are elsewhere, they are of its queue.
            groups, line = self._cluster.groups, self._cluster.groups.queue_of(spender)
            keys = ((uid, groups.key_of.get(uid)) for uid in occupants.leaving())
            there.update((uid, None) for uid, key in keys if key is not None and groups.queue_of(key) == line)
        return [uid for uid in there if occupants.is_leaving(uid)]

    def _end(self, nomination: Nomination, how: End) -> None:
        self._nominations.drop(nomination)
        self._cluster.occupants.unchoose(nomination.victims)
        self._leftovers.forget(nomination.nodes)
        if how is End.IN_VAIN and not nomination.victims:
            self._leftovers.in_vain(nomination.uid)
        self._cluster.metrics.preemptions.labels(how.value).inc()
        self._cluster.requeue.hear(nomination.nodes)
        until_s = nomination.until_s if how is End.PLACED else self._cluster.clock()
        if how is not End.PLACED:
            # What was kept of its queue for it is free for others.
            budgets = self._cluster.budgets
            budgets.freed.update((one.freed_with, None) for one in budgets.limits(nomination.spender))
        for entry in self._waiting(nomination):
            self._cluster.queue.keep_room(entry, until_s)
            if how is End.PLACED:
                continue
            self._cluster.actions.append(Unnominate(pod=target_of(entry.pod)))
            if entry.wait is not None and entry.wait.cause is Cause.WAITING_FOR_EVICTED:
                refusal = self._cluster.gangs.refusal(entry.parked) if entry.parked is not None else None
                self._cluster.hold_up(entry, refusal.wait if refusal is not None and refusal.over else None)


def _by_turn(one: _Turn) -> tuple[float, Order]:
    return one[:2]


def _first(entries: Iterable[Entry]) -> Entry:
    return min(entries, key=lambda one: one.order)


def _are_evicted(many: int, whose: str) -> str:
    return f"{counted(many, 'pods')} {whose} {'is' if many == 1 else 'are'} being evicted"


def _on(nodes: frozenset[NodeName]) -> str:
    return f"{'node' if len(nodes) == 1 else 'nodes'} {listed(sorted(nodes), 3)}"
