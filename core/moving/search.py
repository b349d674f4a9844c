"""The fewest and gentlest moves that let in a unit for which there is no room.

A move evicts a pod whose replacement has a place on another node at that moment, and that room is reserved in turn, so
all replacements fit together. No pod moves to a node on which room is made.
For each node a lower bound of its moves is known from the amounts on its cards. Nodes are searched from the lowest
bound on: first the pods on the cards that are cleared most easily, less those without which the unit fits too, then, if
the bound is lower, all smaller sets of pods, within a limit of work. Of equally many moves, those of pods of the lowest
priority and the latest start are chosen, then by node name.
Members of a unit are placed one at a time.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import combinations
from typing import Final, NamedTuple

from core.ledger import Ledger, Placement
from core.model import NodeName, Pod, PodUid
from core.moving.places import MovePlaces
from core.placing.decide import NodePolicy, Shape
from core.placing.domains import domains
from core.placing.gang import Member, Unit

# Of nodes on which equally few moves help, the gentlest of so many is taken.
_COMPARED: Final = 32
# So many ways are tried to choose other pods on a node, where the first chosen have no room elsewhere.
_TRIES: Final = 4
_SHIFT: Final = 1 << 31
_NEVER: Final = 1 << 30
_NOWHERE: Final = frozenset[NodeName]()


class Movable(NamedTuple):
    """A pod that may move: *pod*, *shape*: its replacement, under the uid that the pod has now.

    start_s: when it was started, Unix seconds. block: pods of the same move together or not at all; None: alone.
    """

    pod: Pod
    shape: Shape
    priority: int = 0
    start_s: int = 0
    block: Hashable = None


class Limits(NamedTuple):
    """What a search may do. moves: of all pods; per_namespace: of the pods of one; looks: judged nodes and pods."""

    moves: int = 10
    per_namespace: int = 2
    looks: int = 200_000


class Move(NamedTuple):
    """One move: the pod that is evicted, from where, and the place of its replacement."""

    pod: Pod
    origin: NodeName
    placement: Placement


class Moves(NamedTuple):
    """What was found: moves in their order, then where the members of the unit go.

    is_fewest: no smaller number of moves lets the unit in; False if that is not known.
    """

    moves: tuple[Move, ...]
    placements: tuple[Placement, ...]
    is_fewest: bool = True


class Search(NamedTuple):
    """The answer. found: None if no moves were found; gave_up: because the limit of work was reached."""

    found: Moves | None
    gave_up: bool
    looks: int


class _Block(NamedTuple):
    """Pods that move together."""

    cost: tuple[int, int, int]
    key: str
    pods: tuple[PodUid, ...]
    namespaces: tuple[tuple[str, int], ...]


class _Candidate(NamedTuple):
    """Moves on one node; the smallest is the best: number of pods, highest priority, sums, and name."""

    cost: tuple[int, int, int, int, NodeName]
    moves: tuple[Move, ...]
    placement: Placement


def search(
    ledger: Ledger,
    policy: NodePolicy,
    unit: Unit,
    movable: Mapping[PodUid, Movable],
    limits: Limits,
    *,
    places: MovePlaces | None = None,
) -> Search:
    """Search moves that let in the minimum of *unit*; at the end *ledger* is as it was.

    Args:
        ledger: one in which nothing else happens meanwhile: a fork.
        policy: how nodes are chosen.
        unit: what waits.
        movable: who may move, by uid; of a block all, or else it stays.
        limits: of moves and work.
        places: what is remembered of earlier searches on *ledger*.
    """
    places = places if places is not None else MovePlaces(ledger, policy)
    began = places.looked_at
    best: Moves | None = None
    gave_up = False
    for outside in _outsides(ledger, unit):
        one = _Search(places, movable, limits, began + limits.looks, outside)
        found = one.unit(unit.wanted())
        gave_up |= one.gave_up
        if found is not None and (best is None or len(found.moves) < len(best.moves)):
            best = found
    if best is not None and gave_up:
        best = best._replace(is_fewest=False)
    return Search(best, gave_up, places.looked_at - began)


def _outsides(ledger: Ledger, unit: Unit) -> Iterator[Set[NodeName]]:
    """For each domain that *unit* may be in, the nodes outside; none of a unit without domains."""
    if not unit.is_bound:
        yield _NOWHERE
    elif unit.topology is not None and not any(one.near.hard for one in unit.inner.values()):
        for domain in domains(ledger, unit.topology, unit.home):
            yield ledger.states.keys() - domain.nodes


class _Search:
    """One search; what was decided for earlier members is reserved in the ledger."""

    def __init__(
        self,
        places: MovePlaces,
        movable: Mapping[PodUid, Movable],
        limits: Limits,
        looks_max: int,
        outside: Set[NodeName],
    ) -> None:
        self.gave_up = False
        self._places: Final = places
        self._ledger: Final = places.ledger
        self._movable: Final = movable
        self._limits: Final = limits
        self._looks_max: Final = looks_max
        self._outside: Final = outside
        self._blocks: Final[dict[PodUid, _Block]] = {}
        # Nodes on which room is made, to which no pod moves, and nodes to which some pod moves.
        self._targets: Final[set[NodeName]] = set()
        self._destinations: Final[set[NodeName]] = set()
        self._moved: Final[set[PodUid]] = set()
        self._by_namespace: Final = Counter[str]()
        self._elsewhere: dict[tuple[Shape, NodeName], bool] = {}
        # Nodes that do not take the member, whoever moves.
        self._hopeless: set[NodeName] = set()
        self._make_blocks()

    def _make_blocks(self) -> None:
        together: dict[Hashable, list[PodUid]] = {}
        for uid, one in self._movable.items():
            together.setdefault(uid if one.block is None else (one.block,), []).append(uid)
        for uids in together.values():
            who = [self._movable[uid] for uid in uids]
            highest = max(one.priority for one in who)
            cost = (highest, sum(one.priority + _SHIFT for one in who), -min(one.start_s for one in who))
            namespaces = tuple(sorted(Counter(one.pod.namespace for one in who).items()))
            block = _Block(cost, min(one.pod.key for one in who), tuple(uids), namespaces)
            self._blocks.update(dict.fromkeys(uids, block))

    def unit(self, wanted: Sequence[Member]) -> Moves | None:
        """Place all of *wanted*; None if no moves were found."""
        moves, placements = list[Move](), list[Placement]()
        with self._ledger.trial():
            for member in wanted:
                found = self._best(member)
                if found is None:
                    return None
                self._take(found)
                moves += found.moves
                placements.append(found.placement)
        return Moves(tuple(moves), tuple(placements), len(wanted) <= 1 or not moves)

    def _take(self, found: _Candidate) -> None:
        for one in found.moves:
            self._ledger.release(one.pod.uid)
            self._moved.add(one.pod.uid)
            self._by_namespace[one.pod.namespace] += 1
            self._destinations.add(one.placement.node)
        self._targets.add(found.placement.node)
        for one in found.moves:
            self._ledger.reserve(one.placement)
        self._ledger.reserve(found.placement)

    # ------------------------------------------------------------------ one member

    def _best(self, member: Member) -> _Candidate | None:
        """Return the fewest moves for *member*: none if it fits."""
        closed = self._outside | self._destinations
        placement = self._places.best(member.pod, member.shape, closed)
        if placement is not None:
            return _Candidate((0, 0, 0, 0, placement.node), (), placement)
        self._elsewhere, self._hopeless = {}, set()
        bounds = sorted(
            (bound, name)
            for name in self._ledger.states
            if name not in closed and (bound := self._bound(member, name)) <= self._limits.moves - len(self._moved)
        )
        best: _Candidate | None = None
        compared = 0
        smaller: list[tuple[int, NodeName]] = []
        for bound, name in bounds:
            if best is not None and (bound > best.cost[0] or (bound == best.cost[0] and compared >= _COMPARED)):
                break
            if self._is_tired():
                break
            found = self._on(member, name)
            if name not in self._hopeless and (found is None or found.cost[0] > bound):
                smaller.append((bound, name))
            if found is not None:
                compared += 1
                best = found if best is None else min(best, found, key=lambda one: one.cost)
        return self._fewer(member, best, smaller)

    def _is_tired(self) -> bool:
        if self._places.looked_at >= self._looks_max:
            self.gave_up = True
        return self.gave_up

    def _movable_on(self, name: NodeName) -> dict[_Block, None]:
        """Return the blocks with pods on node *name* that may move, within the limits, and each have another place."""
        found: dict[_Block, None] = {}
        for uid in self._ledger.holders(name):
            block = self._blocks.get(uid)
            if block is not None and block not in found and self._may_move(block, name):
                found[block] = None
        return found

    def _may_move(self, block: _Block, name: NodeName) -> bool:
        if len(self._moved) + len(block.pods) > self._limits.moves:
            return False
        if any(self._by_namespace[one] + many > self._limits.per_namespace for one, many in block.namespaces):
            return False
        return all(uid not in self._moved and self._has_other(self._movable[uid], name) for uid in block.pods)

    def _has_other(self, one: Movable, name: NodeName) -> bool:
        """Return whether a node other than *name* takes the pod, beside all who are there."""
        key = (one.shape, name)
        if key not in self._elsewhere:
            self._elsewhere[key] = self._places.is_anywhere(one.pod, one.shape, self._targets | {name})
        return self._elsewhere[key]

    # ------------------------------------------------------------------ bounds

    def _bound(self, member: Member, name: NodeName) -> int:
        """Return how many pods of node *name* move for *member* at the least; `_NEVER`: no number of them helps."""
        shape = member.shape
        shares = self._places.shares_of_empty(shape, name)
        if shares is None:
            return _NEVER
        blocks = self._movable_on(name)
        if not blocks:
            return _NEVER
        return max(1, self._bound_of_amounts(shape, name, blocks), self._cards(shape, name, blocks)[0])

    def _bound_of_amounts(self, shape: Shape, name: NodeName, blocks: Iterable[_Block]) -> int:
        """The same by cpu, memory and other resources of the node."""
        state, holders = self._ledger.states[name], self._ledger.holders(name)
        bound = 0
        for resource, wanted in shape.amounts:
            lacks = wanted + state.used.get(resource, 0) - state.facts.allocatable.get(resource, 0)
            if lacks > 0:
                held = (dict(holders[uid].amounts).get(resource, 0) for uid in _on_node(blocks, holders))
                bound = max(bound, _fewest(lacks, held))
        return bound

    def _cards(self, shape: Shape, name: NodeName, blocks: Iterable[_Block]) -> tuple[int, set[PodUid]]:
        """The same by its cards; and the pods on those that are cleared most easily."""
        shares = self._places.shares_of_empty(shape, name)
        if not shares or shape.dialect is None:
            return 0, set()
        ledger = self._ledger
        dialect, cards = ledger.catalog.dialects[shape.dialect], ledger.states[name].cards(shape.dialect)
        holders = ledger.holders(name)
        held: dict[str, list[tuple[int, PodUid]]] = {}
        is_alone = True
        for uid in _on_node(blocks, holders):
            holding = holders[uid]
            if holding.dialect == shape.dialect:
                parts: dict[str, int] = {}
                for one in dialect.describe(holding.assignment, cards):
                    parts[one.whole] = parts.get(one.whole, 0) + (one.amount or 0)
                is_alone &= len(parts) == 1
                for card, amount in parts.items():
                    held.setdefault(card, []).append((amount, uid))
        wanted: dict[str, int] = {}
        for share in shares:
            wanted[share.whole] = wanted.get(share.whole, 0) + (share.amount or 0)
        least = min(wanted.values())
        found: list[tuple[int, int, str, list[PodUid]]] = []
        for tally in dialect.tally(cards):
            lacks = least - (tally.total - tally.used)
            on_card = sorted(held.get(tally.card, ()), reverse=True)
            few = _fewest(lacks, (amount for amount, _ in on_card)) if lacks > 0 else 0
            if few < _NEVER:
                found.append((few, lacks, tally.card, [uid for _, uid in on_card[:few]]))
        found.sort()
        if len(found) < len(wanted):
            return _NEVER, set()
        chosen = found[: len(wanted)]
        bound = sum(few for few, *_ in chosen) if is_alone else chosen[-1][0]
        return bound, {uid for *_, uids in chosen for uid in uids}

    # ------------------------------------------------------------------ one node

    def _on(self, member: Member, name: NodeName) -> _Candidate | None:
        """Return few moves that let in *member* on node *name*; None if none were found."""
        everybody = blocks = list(self._movable_on(name))
        for _ in range(_TRIES):
            victims = self._victims(member, name, blocks)
            if victims is None:
                if blocks is everybody:
                    self._hopeless.add(name)
                return None
            found = self._moved_away(member, name, victims)
            if isinstance(found, _Candidate):
                return found
            blocks = [one for one in blocks if one is not found]
            if self._is_tired():
                return None
        return None

    def _victims(self, member: Member, name: NodeName, blocks: Sequence[_Block]) -> list[_Block] | None:
        """Return of *blocks* a set without which *member* fits on node *name*, and no part of which would do."""
        _, uids = self._cards(member.shape, name, blocks)
        easy = list(dict.fromkeys(self._blocks[uid] for uid in sorted(uids)))
        sizes = {one: self._size(one) for one in blocks}
        with self._ledger.trial():
            self._release(easy)
            if self._places.on(member.pod, member.shape, name) is None:
                self._release(one for one in blocks if one not in easy)
                easy = list(blocks)
                if self._places.on(member.pod, member.shape, name) is None:
                    return None
            victims = []
            # Whoever is dear stays first, but rather many small ones than a large one.
            for block in sorted(easy, key=lambda one: (-len(one.pods), -one.cost[0], sizes[one], one.key)):
                self._restore(block)
                if self._places.on(member.pod, member.shape, name) is None:
                    self._release((block,))
                    victims.append(block)
        return victims

    def _size(self, block: _Block) -> int:
        """What a block holds of cards, in the units of their protocol."""
        ledger, size = self._ledger, 0
        for uid in block.pods:
            node = ledger.node_of(uid) or self._movable[uid].pod.node_name
            holding = ledger.holding(uid)
            if holding is not None and holding.dialect is not None and node in ledger.states:
                cards = ledger.states[NodeName(node)].cards(holding.dialect)
                shares = ledger.catalog.dialects[holding.dialect].describe(holding.assignment, cards)
                size += sum(one.amount or 0 for one in shares)
        return size

    def _moved_away(self, member: Member, name: NodeName, victims: Sequence[_Block]) -> "_Candidate | _Block | None":
        """Return the moves of *victims* for *member*; else one of them for whose pods no room was left elsewhere."""
        pods = [(uid, block) for block in victims for uid in block.pods]
        if len(self._moved) + len(pods) > self._limits.moves:
            return max(victims, key=lambda one: len(one.pods))
        spent = Counter(self._movable[uid].pod.namespace for uid, _ in pods)
        for namespace, many in spent.items():
            if self._by_namespace[namespace] + many > self._limits.per_namespace:
                return next(block for uid, block in pods if self._movable[uid].pod.namespace == namespace)
        sizes = {block: self._size(block) for block in victims}
        pods.sort(key=lambda one: (-sizes[one[1]], one[1].key, one[0]))
        with self._ledger.trial():
            origins = {uid: self._ledger.node_of(uid) or name for uid, _ in pods}
            self._release(victims)
            placement = self._places.on(member.pod, member.shape, name)
            if placement is None:
                return None
            self._ledger.reserve(placement)
            moves, stuck = self._destinations_of(pods, origins, self._targets | {name})
            for _ in pods:
                if stuck is None:
                    break
                # Whoever found no room goes first.
                pods.remove(stuck)
                pods.insert(0, stuck)
                moves, stuck = self._destinations_of(pods, origins, self._targets | {name})
        if stuck is not None:
            return stuck[1]
        costs = [block.cost for block in victims]
        cost = (len(moves), max(one[0] for one in costs), sum(one[1] for one in costs), max(one[2] for one in costs))
        return _Candidate((*cost, name), tuple(moves), placement)

    def _destinations_of(
        self, pods: Sequence[tuple[PodUid, _Block]], origins: Mapping[PodUid, NodeName], closed: Set[NodeName]
    ) -> tuple[list[Move], tuple[PodUid, _Block] | None]:
        """Return where released *pods* go, one at a time, and the first that finds no room."""
        moves = list[Move]()
        with self._ledger.trial():
            for each in pods:
                one = self._movable[each[0]]
                to = self._places.best(one.pod, one.shape, closed)
                if to is None:
                    return moves, each
                self._ledger.reserve(to)
                moves.append(Move(one.pod, origins[each[0]], to))
        return moves, None

    def _fewer(
        self, member: Member, best: _Candidate | None, smaller: Sequence[tuple[int, NodeName]]
    ) -> _Candidate | None:
        """Return fewer moves than *best* if all smaller sets of pods on the nodes of *smaller* have some."""
        most = self._limits.moves - len(self._moved) if best is None else best.cost[0] - 1
        for size in range(1, most + 1):
            for bound, name in smaller:
                if bound > size:
                    break
                for found in self._of_size(member, name, size):
                    return found
                if self._is_tired():
                    return best
        return best

    def _of_size(self, member: Member, name: NodeName, size: int) -> Iterator[_Candidate]:
        blocks = sorted(self._movable_on(name))
        for some in combinations(blocks, min(size, len(blocks))):
            if sum(len(one.pods) for one in some) != size:
                continue
            if self._is_tired():
                return
            with self._ledger.trial():
                self._release(some)
                fits = self._places.on(member.pod, member.shape, name) is not None
            found = self._moved_away(member, name, some) if fits else None
            if isinstance(found, _Candidate):
                yield found

    def _release(self, blocks: Iterable[_Block]) -> None:
        for block in blocks:
            for uid in block.pods:
                self._ledger.release(uid)

    def _restore(self, block: _Block) -> None:
        for uid in block.pods:
            self._ledger.restore(uid)


def _on_node(blocks: Iterable[_Block], holders: Collection[PodUid]) -> Iterator[PodUid]:
    return (uid for block in blocks for uid in block.pods if uid in holders)


def _fewest(lacks: int, amounts: Iterable[int]) -> int:
    """Return how many of *amounts* make up *lacks* at the least; `_NEVER` if all do not."""
    for many, amount in enumerate(sorted(amounts, reverse=True), start=1):
        lacks -= amount
        if lacks <= 0:
            return many
    return _NEVER
