"""Which pods to evict so that a unit fits for which there is no room: of all that may be evicted, the cheapest.

Pods of a lower priority may be evicted, and pods of queues from which the unit's queue may take back capacity; pods of
a gang only together. On each node all of them are removed, and then restored one by one as long as the pod still fits,
the most important first. The chosen node is the one with the fewest broken disruption budgets; then with the lowest
highest victim, the smallest sum of priorities, the fewest victims, and the latest start of its highest victims; then by
name. Source: Kubernetes documentation, "Pod Priority and Preemption"; where that is silent, kube-scheduler
(pkg/scheduler/framework/preemption). For pods that are taken back, the `priority` of their queue counts before their
own: queues of a higher one are "considered later during reclamation" (Volcano, Queue).

If the queue of the unit has too little left, pods of that queue are evicted on whatever node they are. If some must
leave the chosen node too, these are pods of the queue if possible, because they free both (Volcano, action preempt).

The members of a gang are placed one by one; if one finds no node, those like it come first in another try. In the end,
each victim is restored if they still fit without it on the nodes that were chosen, and if its queue suffices.
"""

from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import merge
from typing import Final, NamedTuple

from core.ledger import Ledger, Placement
from core.model import NodeName, PodUid
from core.node_state import NodeState
from core.placing.crowd import Broken, Crowd, Disruptions, Occupant
from core.placing.decide import NodePolicy, Shape, has_room, placed_on, shape_now
from core.placing.domains import domains
from core.placing.gang import Member, Unit
from core.placing.minimums import Path
from core.placing.queues import Allowance, Reclaim, Spent
from core.wire.policies import DisruptionBudget

# As kube-scheduler: of the nodes on which victims were found no more than so many, or a tenth of all, are compared.
_COMPARED: Final = 100
_COMPARED_SHARE: Final = 10
# So many nodes are looked at for one shape in one search.
LOOKED_AT_MAX: Final = 2000
# Priorities are 32 bits wide: so shifted, more victims of a negative one cost more, not less.
_SHIFT: Final = 1 << 31
_NOBODY: Final = -(1 << 63)
_NO_PODS: Final = frozenset[PodUid]()
# So many shapes of one unit come first, one after the other.
_FIRSTS_MAX: Final = 4
# The rank of pods that may leave for their own priority: they leave before those that only their queue returns.
_BY_PRIORITY: Final = (0,)
# Pods of a queue are sorted so many at once, because nothing else is decided meanwhile.
_RANKED_AT_ONCE: Final = 500
# Members that may stand in for each other; see `_like`.
_Like = tuple[Shape, Path]
# A pod of a queue by its importance: negated priority, start, key, uid.
_Row = tuple[int, int, str, PodUid]


class Cost(NamedTuple):
    """The cost of evicting pods; the smallest is the best.

    violations: how many evictions break a disruption budget. queue: the most important one that pods are taken back
    from (`Reclaim.queues`). highest: their highest priority. priorities: the sum, each shifted by 2**31. minus_start_s:
    the earliest start of the pods of the highest priority, negated.
    """

    violations: int
    queue: tuple[int, ...]
    highest: int
    priorities: int
    victims: int
    minus_start_s: int
    node: NodeName


class Eviction(NamedTuple):
    """The pods to evict, the most important first, and the placements of the unit's members after that.

    Without victims, the unit fits now, or as soon as the pods that are ending have ended. guarded: the victims that a
    disruption budget covers. broken: the budgets that forbid it; no set of victims was found without any.
    """

    victims: tuple[PodUid, ...]
    placements: tuple[Placement, ...]
    guarded: frozenset[PodUid] = frozenset()
    broken: tuple[Broken, ...] = ()

    @property
    def violations(self) -> int:
        """How many of the evictions disruption budgets forbid."""
        return sum([one.forbidden for one in self.broken])


class _Block(NamedTuple):
    """Pods that are evicted together: their highest priority, the earliest start, and the first of their names.

    minus_queue: how important the queue is that they are taken back from, negated. budgets: for each pod, the
    disruption budgets that count its eviction. guarded: the pods that one covers.
    """

    minus_queue: tuple[int, ...]
    minus_priority: int
    start_s: int
    key: str
    pods: tuple[PodUid, ...]
    budgets: tuple[tuple[int, ...], ...]
    guarded: tuple[PodUid, ...]


class _Candidate(NamedTuple):
    cost: Cost
    victims: tuple[_Block, ...]
    placement: Placement


class _Kept(NamedTuple):
    state: NodeState
    occupants: Sequence[Occupant | None]
    candidate: _Candidate | None


# What is kept of so many shapes and priorities at most: each may keep a state of every node.
_KEPT_MAX: Final = 8


class FoundOnNodes:
    """What searches found on nodes, for later searches of the same shape and priority.

    It holds for a node as long as its state, the pods on it and the policy are the same. Kept is only what depends on
    nothing else: not for pods with rules about other pods, and not where a gang, a disruption budget or a queue counts
    who leaves.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self._policy: NodePolicy | None = None
        self._budgets: Sequence[DisruptionBudget] = ()
        self._found: dict[tuple[Shape, int], dict[NodeName, _Kept]] = {}

    def of(
        self, shape: Shape, priority: int, policy: NodePolicy, budgets: Sequence[DisruptionBudget]
    ) -> dict[NodeName, _Kept]:
        """Return what is kept for *shape*, by node; the caller adds to it."""
        if policy != self._policy or budgets != self._budgets:
            self._policy, self._budgets = policy, budgets
            self._found.clear()
        found = self._found.pop((shape, priority), None)
        if found is None:
            found = {}
            if len(self._found) >= _KEPT_MAX:
                del self._found[next(iter(self._found))]
        self._found[shape, priority] = found
        return found


@dataclass(slots=True)
class _Pool:
    """The nodes for one shape: those still to examine, and those that were examined.

    began: how many members had a place when it was made. turns: the same, when each node was examined.
    """

    names: Iterator[NodeName]
    began: int
    kept: dict[NodeName, _Kept] | None = None
    found: dict[NodeName, _Candidate] = field(default_factory=dict)
    turns: dict[NodeName, int] = field(default_factory=dict)
    again: dict[NodeName, None] = field(default_factory=dict)
    looked_at: int = 0


def victims_for(
    ledger: Ledger,
    policy: NodePolicy,
    unit: Unit,
    crowd: Crowd,
    *,
    priority: int,
    own: Hashable = None,
    reclaim: Reclaim | None = None,
    allowance: Allowance | None = None,
    passed_over: Set[NodeName] = frozenset(),
    skipped: int = 0,
    looked_at_max: int = LOOKED_AT_MAX,
    known: FoundOnNodes | None = None,
) -> Generator[None, None, Eviction | None]:
    """Return the pods to evict so that the minimum of *unit* fits; None if no eviction would help.

    Only if all that was found breaks disruption budgets, the answer does, too. For a unit that must be in one domain,
    the victims are in the narrowest domain in which that helps. No pod is evicted for a unit whose subgroups must be in
    domains of their own.

    Yields after each node. In the end *ledger* is as it was.

    Args:
        ledger: one in which nothing else happens meanwhile: a fork.
        policy: how nodes are chosen.
        unit: what waits.
        crowd: the pods on the nodes.
        priority: of *unit*; only pods of a lower one are evicted.
        own: the block of *unit* itself.
        reclaim: the pods that its queue may evict, whatever their priority; None: no pods.
        allowance: what its queue may still hold; None: that is not checked.
        passed_over: nodes that are left out.
        skipped: how many nodes to begin behind.
        looked_at_max: no more nodes than these are looked at for a shape.
        known: what former searches found, to be used and added to.
    """
    wanted = unit.wanted()
    if not wanted or any(ledger.node_of(one.pod.uid) is not None for one in wanted):
        return None
    search = partial(
        _Search, ledger, policy, crowd, priority, own=own, skipped=skipped, looked_at_max=looked_at_max, known=known
    )
    # Those who fit once the pods that are ending have ended need no victims, even where these would be cheap.
    if (len(wanted) > 1 or unit.is_bound) and any(one.leaving for one in crowd.occupants.values()):
        for outside in _outsides(ledger, unit):
            found = yield from _found(ledger, partial(search, passed_over=passed_over | outside, only=_NO_PODS), unit)
            if found is not None and (allowance is None or allowance.suffices(found.placements, ())):
                return found
    forbidden: Eviction | None = None
    for outside in _outsides(ledger, unit):
        there = partial(search, passed_over=passed_over | outside)
        found = yield from _allowed(ledger, [partial(there, reclaim=reclaim)], unit)
        if found is not None and allowance is not None and not allowance.suffices(found.placements, found.victims):
            if not allowance.may_suffice(found.placements, found.victims):
                continue
            within = partial(there, allowance=allowance)
            ways = [partial(within, only=allowance.mates), partial(within, reclaim=reclaim)]
            found = yield from _allowed(ledger, ways, unit)
        if found is not None and not found.broken:
            return found
        forbidden = forbidden or found
    return forbidden


def _outsides(ledger: Ledger, unit: Unit) -> Iterator[Set[NodeName]]:
    """Yield the nodes that *unit* may not be on: for each domain that it may be in, all nodes outside."""
    if not unit.is_bound:
        yield frozenset()
    elif unit.topology is not None and not any(one.near.hard for one in unit.inner.values()):
        for domain in domains(ledger, unit.topology, unit.home):
            yield ledger.states.keys() - domain.nodes


def _allowed(
    ledger: Ledger, searches: Iterable["partial[_Search]"], unit: Unit
) -> Generator[None, None, Eviction | None]:
    """Return the first result of *searches* that breaks no disruption budget; if all do, the first."""
    forbidden: Eviction | None = None
    for search in searches:
        for is_strict in (False, True):
            found = yield from _found(ledger, partial(search, is_strict=is_strict), unit)
            if found is None or not found.broken:
                break
            forbidden = forbidden or found
        if found is not None and not found.broken:
            return found
    return forbidden


def _found(ledger: Ledger, search: Callable[[], "_Search"], unit: Unit) -> Generator[None, None, Eviction | None]:
    """Return what *search* finds for the minimum of *unit*; None if it finds nothing."""
    firsts: list[_Like] = []
    tried: Unit | None = unit
    while tried is not None:
        wanted = tried.wanted()
        with ledger.trial():
            now = search()
            fitting = yield from now.take_all(wanted)
            if fitting == len(wanted):
                if not (yield from now.free_allowance()):
                    return None
                if len(wanted) > 1 or now.is_within:
                    yield from now.spare()
                return now.answer()
        tried = _reordered(tried, wanted, fitting, firsts)
    return None


def _reordered(unit: Unit, wanted: Sequence[Member], fitting: int, firsts: list[_Like]) -> Unit | None:
    """Return how *unit* is tried after only *fitting* of its *wanted* members found a node; None if that is in vain.

    Those like the first that found none come first, because others may have taken its place. If they came first
    already, as many as fitted are kept, and others may stand in for the rest. firsts: what those that came first are
    like.
    """
    like = _like(wanted[fitting])
    if not firsts:
        firsts.append(_like(wanted[0]))
    members = list(unit.members)
    if like == firsts[-1]:
        alike = [one for one in members if _like(one) == like]
        kept = alike[: sum(_like(one) == like for one in wanted[:fitting])]
        members = [*kept, *[one for one in members if _like(one) != like]]
    elif like in firsts or len(firsts) == _FIRSTS_MAX:
        return None
    else:
        firsts.append(like)
        members.sort(key=lambda one: _like(one) != like)
    found = replace(unit, members=tuple(members))
    return found if found.is_complete else None


def _like(member: Member) -> _Like:
    """Return what makes members like *member*: they ask the same, and count for the same parts of the group."""
    return member.shape, member.parts


class _Search:
    """One search; the ledger contains what was decided for the members so far.

    Attributes:
        is_within: whether the members must be within the allowance of their queue.
    """

    def __init__(
        self,
        ledger: Ledger,
        policy: NodePolicy,
        crowd: Crowd,
        priority: int,
        *,
        own: Hashable,
        reclaim: Reclaim | None = None,
        passed_over: Set[NodeName],
        skipped: int,
        looked_at_max: int,
        known: FoundOnNodes | None = None,
        allowance: Allowance | None = None,
        only: Set[PodUid] | None = None,
        is_strict: bool = False,
    ) -> None:
        self.is_within: Final = allowance is not None
        self._allowance: Final = allowance
        # No other pods may leave; None: any.
        self._only: Final = only
        # Whether no pods may leave whose eviction breaks a disruption budget by itself.
        self._is_strict: Final = is_strict
        self._ledger: Final = ledger
        self._policy: Final = policy
        self._crowd: Final = crowd
        self._priority: Final = priority
        self._own: Final = own
        self._reclaim: Final = reclaim
        self._looked_at_max: Final = looked_at_max
        self._known: Final = known if reclaim is None and only is None else None
        names = [name for name in ledger.states if name not in passed_over]
        first = skipped % len(names) if names else 0
        self._names: Final = (*names[first:], *names[:first])
        self._passed_over: Final = passed_over
        self._compared: Final = max(_COMPARED, len(names) // _COMPARED_SHARE)
        self._disruptions: Final = Disruptions(ledger, crowd)
        self._pools: Final[dict[Shape, _Pool]] = {}
        self._cleared: Final[set[NodeName]] = set()
        self._victims: list[_Block] = []
        self._placed: dict[PodUid, tuple[Member, Placement]] = {}

    def answer(self) -> Eviction:
        """What was found."""
        victims = sorted(self._victims)
        return Eviction(
            tuple(uid for block in victims for uid in block.pods),
            tuple(placement for _, placement in self._placed.values()),
            frozenset(uid for block in victims for uid in block.guarded),
            self._disruptions.broken(budgets for block in victims for budgets in block.budgets),
        )

    def best(self, member: Member) -> Generator[None, None, _Candidate | None]:
        """Return the cheapest place for *member* among the compared nodes; None if there is none."""
        pool = self._pools.get(member.shape) or self._new_pool(member)
        while True:
            while (name := self._next(pool)) is not None:
                found = (
                    self._candidate(member, name) if pool.kept is None else self._kept_or_new(pool.kept, member, name)
                )
                yield
                if found is not None:
                    pool.found[name], pool.turns[name] = found, len(self._placed)
                    if not found.victims:
                        break
            best = min(pool.found.values(), key=lambda one: one.cost, default=None)
            if best is not None and self._holds(member, best, pool):
                return best
            if best is not None:
                self._look_again(pool, best.placement.node)
            elif pool.began < len(self._placed) and self._heeds_others(member):
                pool = self._new_pool(member)  # beside the members that have a place now, other nodes may take it
            else:
                return None

    def take_all(self, members: Sequence[Member]) -> Generator[None, None, int]:
        """Give each of *members* the cheapest place until one finds none; return how many found one."""
        for at, member in enumerate(members):
            best = yield from self.best(member)
            if best is None:
                return at
            self.take(member, best)
        return len(members)

    def _new_pool(self, member: Member) -> _Pool:
        pool = self._pools[member.shape] = _Pool(iter(self._names), len(self._placed), self._kept(member))
        return pool

    def _holds(self, member: Member, found: _Candidate, pool: _Pool) -> bool:
        """Return whether what was chosen since can neither forbid *found* for *member* nor make it dearer.

        What a queue may lose, and what a disruption budget allows, is counted over all nodes. Some members may only be
        where others are, or where they are not.
        """
        if pool.turns[found.placement.node] == len(self._placed):
            return True
        is_counted = self._reclaim is not None or self._disruptions.has_budgets
        return not ((found.victims and is_counted) or self._heeds_others(member))

    def _heeds_others(self, member: Member) -> bool:
        """Return whether pods on other nodes decide where *member* fits."""
        return bool(member.shape.asked.pods) or not self._ledger.constraints.is_current(member.pod, ())

    @staticmethod
    def _look_again(pool: _Pool, name: NodeName) -> None:
        pool.found.pop(name, None)
        pool.again[name] = None

    def _next(self, pool: _Pool) -> NodeName | None:
        """Return the node to examine next; None if enough are known."""
        if pool.again:
            name = next(iter(pool.again))
            del pool.again[name]
            return name
        if len(pool.found) >= self._compared or pool.looked_at >= self._looked_at_max:
            return None
        pool.looked_at += 1
        return next(pool.names, None)

    def take(self, member: Member, found: _Candidate) -> None:
        """Evict the victims of *found*, and give *member* its place."""
        touched = {found.placement.node}
        for block in reversed(found.victims):
            touched.update(name for uid in block.pods if (name := self._ledger.node_of(uid)) is not None)
            self._evict(block)
        pod = member.pod  # of pods of one shape, any was judged
        placement = found.placement._replace(pod=pod.uid, pod_key=pod.key, asked_by=pod)
        self._ledger.reserve(placement)
        self._placed[pod.uid] = member, placement
        for pool in self._pools.values():
            for name in touched - self._passed_over:
                self._look_again(pool, name)

    def _evict(self, block: _Block) -> None:
        self._violations((block,), self._disruptions.spent)
        self._release(block)
        self._victims.append(block)

    def free_allowance(self) -> Generator[None, None, bool]:
        """Evict more pods of the queue, the least important first, until it suffices; return False if it cannot."""
        allowance, short = self._allowance, self._short()
        if allowance is None or not short:
            return True
        seen = {uid for block in self._victims for uid in block.pods}
        for block in self._blocks((uid for _, _, _, uid in (yield from self._ranked(allowance))), seen):
            freed = allowance.freed(block.pods)
            if not any(freed[one] for one in short):
                continue
            self._evict(block)
            short = Counter({one: lacking - freed[one] for one, lacking in short.items() if lacking > freed[one]})
            if not short:
                # Unused guarantees of other queues may leave less than was freed.
                short = self._short()
                if not short:
                    return True
            yield
        return False

    def _short(self) -> Counter[str]:
        """Return how much too little the allowance is if the victims leave and the members have their places."""
        if self._allowance is None:
            return Counter()
        pods = [uid for block in self._victims for uid in block.pods]
        left = self._allowance.left([placement for _, placement in self._placed.values()], pods)
        return Counter({one: -amount for one, amount in left.items() if amount < 0})

    def _ranked(self, allowance: Allowance) -> Generator[None, None, Iterable[_Row]]:
        """Return the pods of the queue that may be evicted, the least important first."""
        mates, parts = tuple(allowance.mates), list[list[_Row]]()
        for at in range(0, len(mates), _RANKED_AT_ONCE):
            rows = []
            for uid in mates[at : at + _RANKED_AT_ONCE]:
                occupant, holding = self._crowd.occupants.get(uid), self._ledger.holding(uid)
                if occupant is not None and holding is not None and self._may_leave(uid, occupant):
                    rows.append((-occupant.priority, occupant.start_s, holding.key, uid))
            parts.append(sorted(rows, reverse=True))
            yield
        return merge(*parts, reverse=True)

    def spare(self) -> Iterator[None]:
        """Restore each victim without which all members still fit on their nodes, and into the allowance."""
        for block in self._reprieved(sorted(self._victims), self._disruptions.promised.copy(), ()):
            yield
            rest = [one for one in self._victims if one is not block]
            members, before = [one for one, _ in self._placed.values()], [one for _, one in self._placed.values()]
            if not self._suffices(rest, before):
                continue
            with self._ledger.trial() as trial:
                for one in members:
                    self._ledger.release(one.pod.uid)
                self._restore(block)
                placements = self._place_all(members, sorted({one.node for one in before}))
                if placements is not None and self._suffices(rest, placements.values()):
                    trial.keep()
                    self._victims = rest
                    self._placed = {one.pod.uid: (one, placements[one.pod.uid]) for one in members}

    def _suffices(self, victims: Iterable[_Block], placements: Iterable[Placement]) -> bool:
        """Return whether the allowance suffices for *placements* if *victims* leave."""
        allowance = self._allowance
        return allowance is None or allowance.suffices(placements, [uid for block in victims for uid in block.pods])

    def _place_all(self, members: Sequence[Member], nodes: Sequence[NodeName]) -> dict[PodUid, Placement] | None:
        """Promise all of *members* places on *nodes*; None if one finds none, even if those like it come first."""
        order = list(members)
        for _ in range(_FIRSTS_MAX):
            with self._ledger.trial() as trial:
                found = self._place_each(order, nodes)
                if len(found) == len(order):
                    trial.keep()
                    return found
            shape = order[len(found)].shape
            if shape == order[0].shape:
                break
            order.sort(key=lambda one: one.shape != shape)
        return None

    def _place_each(self, members: Iterable[Member], nodes: Sequence[NodeName]) -> dict[PodUid, Placement]:
        """Promise *members* places on *nodes* until one finds none."""
        found: dict[PodUid, Placement] = {}
        for one in members:
            placement = next((at for name in nodes if (at := self._fits(one, name)) is not None), None)
            if placement is None:
                break
            self._ledger.reserve(placement)
            found[one.pod.uid] = placement
        return found

    # ------------------------------------------------------------------ one node

    def _kept(self, member: Member) -> dict[NodeName, _Kept] | None:
        """What is known of pods like *member* by node; None if it depends on more than one node."""
        shape = member.shape
        if self._known is None or shape.asked.pods or shape.asked.preferred:
            return None
        if not self._ledger.constraints.is_current(member.pod, ()):
            return None
        kept = self._known.of(shape, self._priority, self._policy, self._crowd.budgets)
        for name in kept.keys() - self._ledger.states.keys():
            del kept[name]
        return kept

    def _kept_or_new(self, kept: dict[NodeName, _Kept], member: Member, name: NodeName) -> _Candidate | None:
        """The same as `_candidate`, which is asked only if the node or its pods have changed."""
        # A member that was placed before may ask that this one is not near it.
        if not self._ledger.constraints.is_current(member.pod, ()):
            return self._candidate(member, name)
        state = self._ledger.states[name]
        occupants = [self._crowd.occupants.get(uid) for uid in self._ledger.holders(name)]
        before = kept.get(name)
        is_same = before is not None and before.state is state and before.occupants == occupants
        # Groups may have become gangs, and budgets cover pods by labels, which change.
        if before is not None and is_same and self._is_alone(name, occupants, before.candidate):
            return before.candidate
        found = self._candidate(member, name)
        if self._is_alone(name, occupants, found):
            kept[name] = _Kept(state, occupants, found)
        else:
            kept.pop(name, None)
        return found

    def _is_alone(self, name: NodeName, occupants: Iterable[Occupant | None], found: _Candidate | None) -> bool:
        """Whether *found* depends on nothing but node *name* and its *occupants*."""
        blocks = self._crowd.blocks
        if any(one is not None and (one.leaving or one.block in blocks) for one in occupants):
            return False
        if not self._disruptions.has_budgets or (found is None and not self._is_strict):
            return True
        return not any(self._disruptions.covering(uid) for uid in self._ledger.holders(name))

    def _candidate(self, member: Member, name: NodeName) -> _Candidate | None:
        """Return the victims on node *name* for *member*; None if it does not fit there even without them."""
        ledger, shape = self._ledger, member.shape
        state = ledger.states[name]
        if not ledger.constraints.admits(shape.asked, state.facts) or not state.cards(shape.dialect):
            return None
        self._clear(name)
        placement = self._fits(member, name)
        if placement is not None:
            return _Candidate(Cost(0, (), _NOBODY, 0, 0, 0, name), (), placement)
        blocks = sorted(self._blocks(self._ledger.holders(name), set()))
        if not blocks or not self._may_have_room(shape, name, blocks):
            return None
        with ledger.trial():
            for block in blocks:
                self._release(block)
            placement = self._fits(member, name)
            if placement is None:
                return None
            victims = []
            for block in self._reprieved(blocks, self._disruptions.spent.copy(), self._victims):
                self._restore(block)
                if self._fits(member, name) is None:
                    self._release(block)
                    victims.append(block)
            placement = self._fits(member, name)
        victims.sort()
        if placement is None or self._too_much((*self._victims, *reversed(victims))):
            return None
        violations = sum(self._violations(victims, self._disruptions.spent.copy()).values())
        return _Candidate(self._cost(victims, violations, name), tuple(victims), placement)

    def _clear(self, name: NodeName) -> None:
        """Release the pods of node *name* that are ending anyway."""
        if name not in self._cleared:
            self._cleared.add(name)
            occupants = self._crowd.occupants
            for uid in [uid for uid in self._ledger.holders(name) if uid in occupants and occupants[uid].leaving]:
                self._ledger.release(uid)

    def _fits(self, member: Member, name: NodeName) -> Placement | None:
        shape = shape_now(self._ledger, member.pod, member.shape)
        return placed_on(self._ledger, self._policy, member.pod, shape, name)

    def _blocks(self, pods: Iterable[PodUid], seen: set[PodUid]) -> Iterator[_Block]:
        """Yield the blocks of *pods* that may be evicted, each once, without those of *seen*; adds to *seen*."""
        for uid in pods:
            occupant = self._crowd.occupants.get(uid) if uid not in seen else None
            if occupant is not None and self._may_leave(uid, occupant):
                block = self._block(uid, occupant)
                seen.update(self._crowd.blocks.get(occupant.block, (uid,)))
                if block is not None:
                    yield block

    def _may_leave(self, uid: PodUid, occupant: Occupant) -> bool:
        if self._only is not None and uid not in self._only:
            return False
        return occupant.priority < self._priority or (self._reclaim is not None and uid in self._reclaim.paths)

    def _block(self, uid: PodUid, occupant: Occupant) -> _Block | None:
        """Return the block of *uid*; None if one of its pods may not be evicted."""
        if occupant.block not in self._crowd.blocks:
            pods: Iterable[PodUid] = (uid,)
        elif occupant.block == self._own:
            return None
        else:
            # A pod on no node has left already, and one that is ending anyway is no victim.
            pods = [one for one in self._crowd.blocks[occupant.block] if self._ledger.node_of(one) is not None]
        found: list[tuple[int, int, str, PodUid]] = []
        for one in pods:
            who, holding = self._crowd.occupants.get(one), self._ledger.holding(one)
            if who is not None and who.leaving:
                continue
            if who is None or holding is None or who.stays or not self._may_leave(one, who):
                return None
            if self._ledger.node_of(one) not in self._ledger.states:
                return None
            found.append((-who.priority, who.start_s, holding.key, one))
        if not found:
            return None
        found.sort()
        start_s = min(start_s for _, start_s, _, _ in found)
        uids = tuple(one for _, _, _, one in found)
        covering = [self._disruptions.covering(one) for one in uids]
        block = _Block(
            self._minus_queue(-found[0][0], uids[0]),
            found[0][0],
            start_s,
            found[0][2],
            uids,
            tuple(self._disruptions.counting(one, budgets) for one, budgets in zip(uids, covering, strict=True)),
            tuple(one for one, budgets in zip(uids, covering, strict=True) if budgets),
        )
        is_barred = self._is_strict and self._disruptions.forbidden(block.budgets, self._disruptions.spent.copy())
        return None if is_barred else block

    def _minus_queue(self, priority: int, uid: PodUid) -> tuple[int, ...]:
        """Return how important the queue is that *uid* is taken back from, negated."""
        if self._reclaim is None or priority < self._priority:
            return _BY_PRIORITY
        return (-1, *(-one for one in self._reclaim.queues[uid]))

    def _may_have_room(self, shape: Shape, name: NodeName, blocks: Iterable[_Block]) -> bool:
        """Return whether node *name* has the resources for *shape* without *blocks*."""
        state, holders = self._ledger.states[name], self._ledger.holders(name)
        used = dict(state.used)
        for block in blocks:
            for uid in block.pods:
                holding = holders.get(uid)
                for resource, amount in holding.amounts if holding is not None else ():
                    used[resource] -= amount
        return has_room(shape, state._replace(used=used))

    def _release(self, block: _Block) -> None:
        for uid in block.pods:
            self._ledger.release(uid)

    def _restore(self, block: _Block) -> None:
        for uid in block.pods:
            self._ledger.restore(uid)

    # ------------------------------------------------------------------ what it costs

    def _reprieved(self, blocks: Sequence[_Block], spent: Counter[int], before: Sequence[_Block]) -> list[_Block]:
        """Return *blocks* in the order of restoring; *before*: victims that leave as well.

        First those that their queues may not lose, then those that break a budget, then the most important.
        """
        broken = self._violations(blocks, spent)
        order = sorted(blocks, key=lambda block: (not broken[block], block))
        stay = self._too_much((*before, *reversed(order)))
        return [*[one for one in order if one in stay], *[one for one in order if one not in stay]]

    def _too_much(self, blocks: Iterable[_Block]) -> set[_Block]:
        """Return those of *blocks* that queues may not lose as well, after the others in this order.

        Those of a lower priority leave in any case, and count first.
        """
        reclaim = self._reclaim
        if reclaim is None:
            return set()
        lost, stay, others = Spent(), set[_Block](), list[_Block]()
        for block in blocks:
            if -block.minus_priority < self._priority:
                lost.update(reclaim.losses(block.pods))
            else:
                others.append(block)
        for block in others:
            losses = reclaim.losses(block.pods)
            if reclaim.lets_go(losses, lost):
                lost.update(losses)
            else:
                stay.add(block)
        return stay

    def _violations(self, blocks: Iterable[_Block], spent: Counter[int]) -> Counter[_Block]:
        """Return how many evictions of each block budgets forbid, in this order; adds to *spent*."""
        found = Counter[_Block]()
        for block in blocks:
            found[block] += self._disruptions.forbidden(block.budgets, spent)
        return found

    def _cost(self, victims: Sequence[_Block], violations: int, name: NodeName) -> Cost:
        who = [self._crowd.occupants[uid] for block in victims for uid in block.pods]
        highest = max(one.priority for one in who)
        began_s = min(one.start_s for one in who if one.priority == highest)
        queue = tuple(-one for one in min(block.minus_queue for block in victims))
        return Cost(violations, queue, highest, sum(one.priority + _SHIFT for one in who), len(who), -began_s, name)
