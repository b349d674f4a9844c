"""Orders over nodes that bound a score: what `core.candidates` walks instead of looking at every node.

Each family keeps a few entries per node in sorted orders and hands out walks over them. A walk yields ranks that are
never worse than the rank of the entry's node, in ascending order. `Windows` bounds by what is free: per kind of
card, every run of *width* cards in ascending order of free amounts, sorted by the sum of what is free. `Levels`
bounds by the number of idle cards alone, and sorts by used share.

Entries are sorted by one whole number each, which holds sum, tie and the node's place among all names: numbers
compare several times faster than tuples, and this is where a decision spends its time.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Final

from core.model import NodeName
from core.ordered import Ordered
from core.port import NodeRoom, Room, Want

UNLIMITED: Final = float("inf")
_ANY_SPARE: Final = 1 << 62

# A key is sum of free, tie and label side by side; the tie is a used share in parts per million, of either sign.
_LABEL_BITS: Final = 48
_LABELS_END: Final = 1 << _LABEL_BITS
# Between a name and one added behind, or before, all others: room for a million of them, with as many between two.
_LABEL_STEP: Final = 1 << 24
_TIE_BITS: Final = 22
_TIE_ZERO: Final = 1 << (_TIE_BITS - 1)
_SUM_SHIFT: Final = _LABEL_BITS + _TIE_BITS

# Windows of one card are kept apart by classes of what they can spare, so that a walk passes over few that are too
# poor in it, and few orders have to be asked; most protocols count percent of cores here.
_SPARE_STEP: Final = 50
_RICH: Final = 100
_RICHEST: Final = 2

# A walk that passes over more dead entries of one block than this has the block tidied.
_UNTIDY: Final = 12

# Which order an entry is in: kind (or kinds), and its class (or magnitude of idle cards).
Place = tuple[Hashable, int]
Bound = tuple[float, int, NodeName]
Wants = Callable[[Hashable], Want | None]


class Labels:
    """Numbers for node names, in the order of the names, with gaps for names to come."""

    def __init__(self, names: Iterable[NodeName]) -> None:
        self._sorted = sorted(names)
        # Both ends are kept free: a list of nodes comes in the order of their names, each behind the one before.
        first, last = _LABELS_END // 4, _LABELS_END // 4 * 3
        step = (last - first) // (len(self._sorted) + 1)
        self.numbers: dict[NodeName, int] = {name: first + step * at for at, name in enumerate(self._sorted, start=1)}

    def add(self, name: NodeName) -> bool:
        """Number *name*; False if there is no gap left where it belongs: then all names want new numbers."""
        if name in self.numbers:
            return True
        at = bisect_left(self._sorted, name)
        below = self.numbers[self._sorted[at - 1]] if at else 0
        above = self.numbers[self._sorted[at]] if at < len(self._sorted) else _LABELS_END
        if at == len(self._sorted):
            number = below + min(_LABEL_STEP, (above - below) // 2)
        elif at == 0:
            number = above - min(_LABEL_STEP, above // 2)
        else:
            number = (below + above) // 2
        if number in (below, above):
            return False
        self._sorted.insert(at, name)
        self.numbers[name] = number
        return True


# What an entry means: name, tie, sum of free, least free, spare.
_Entry = tuple[NodeName, int, int, int, int]
_Order = Ordered[_Entry]


class WindowWalk:
    """A walk over one order of windows, from the smallest that the request fits in, or from behind where one ended."""

    __slots__ = ("_at", "_next", "_order", "_want", "_weight", "key", "place")

    def __init__(self, place: Place, order: _Order, start: int, want: Want, weight: int) -> None:
        self.place = place
        self.key = 0
        self._order = order
        self._want = want
        self._weight = weight
        self._at, self._next = order.seek(start)

    def advance(self) -> Bound | None:
        """The rank that bounds the next entry's node, or None at the end."""
        order = self._order
        blocks, values = order.blocks, order.values
        least, poorest, numerator, total = self._want
        at = self._at
        while at < len(blocks):
            block, dead = blocks[at], 0
            for place in range(self._next, len(block)):
                key = block[place]
                entry = values.get(key)
                if entry is None:
                    dead += 1
                    if dead > _UNTIDY:
                        break
                    continue
                name, tie, summed, free, spare = entry
                if free >= least and spare >= poorest:
                    if dead and dead == place - self._next:
                        order.trim(at, self._next, place)
                        place -= dead  # noqa: PLW2901  the loop ends here
                    self.key, self._at, self._next = key, at, place + 1
                    return -(100.0 * (numerator - summed) / total) * self._weight, tie, name
            if dead > _UNTIDY:
                order.tidy(at)
                at, self._next = order.seek(key)
            else:
                at, self._next = at + 1, 0
        self._at = at
        return None


class LevelWalk:
    """A walk over one order whose entries share one bound, from its start or from behind where one ended."""

    __slots__ = ("_at", "_minus_bound", "_next", "_order", "key", "place")

    def __init__(self, place: Place, order: _Order, start: int, minus_bound: float) -> None:
        self.place = place
        self.key = 0
        self._order = order
        self._minus_bound = minus_bound
        self._at, self._next = order.seek(start) if start else (0, 0)

    def advance(self) -> Bound | None:
        """The rank that bounds the next entry's node, or None at the end."""
        order = self._order
        blocks, values = order.blocks, order.values
        at = self._at
        while at < len(blocks):
            block, dead = blocks[at], 0
            for place in range(self._next, len(block)):
                key = block[place]
                entry = values.get(key)
                if entry is not None:
                    if dead:
                        order.trim(at, self._next, place)
                    self.key, self._at, self._next = key, at, place - dead + 1
                    return self._minus_bound, entry[1], entry[0]
                dead += 1
                if dead > _UNTIDY:
                    break
            if dead > _UNTIDY:
                order.tidy(at)
                at, self._next = order.seek(key)
            else:
                at, self._next = at + 1, 0
        self._at = at
        return None


Walk = WindowWalk | LevelWalk


class _Family:
    """Which entries of a node stand in which orders."""

    def __init__(self, labels: Labels) -> None:
        self._labels: Final = labels
        self._entries: dict[NodeName, list[tuple[_Order, int]]] = {}

    def drop(self, name: NodeName) -> None:
        """Forget *name*."""
        for order, key in self._entries.pop(name, ()):
            order.remove(key)

    def _base(self, name: NodeName, tie: int) -> int:
        """The part of a key that all entries of a node share."""
        return ((tie + _TIE_ZERO) << _LABEL_BITS) | self._labels.numbers[name]


class Windows(_Family):
    """Nodes by what is free on *width* of their cards at once; equal cards of a node stand there once."""

    def __init__(self, width: int, labels: Labels) -> None:
        super().__init__(labels)
        self._width: Final = width
        self._orders: dict[Hashable, dict[int, _Order]] = {}
        # Nodes whose cards are of several kinds, where several are asked: no sum of free amounts bounds their score.
        self._mixed: Final = _Order()

    def put(self, name: NodeName, room: NodeRoom, tie: int) -> None:
        """Let *name* stand where it belongs now; *tie* settles equal scores."""
        for order, key in self._entries.get(name, ()):
            order.remove(key)
        now: list[tuple[_Order, int]] = []
        base = self._base(name, tie)
        windows = self._cards(room.rooms) if self._width == 1 else self._runs(room.rooms)
        for order, summed, least, spare in windows:
            key = (summed << _SUM_SHIFT) | base
            order.add(key, (name, tie, summed, least, spare))
            now.append((order, key))
        self._entries[name] = now

    def walks(self, wants: Wants, ends: Mapping[Place, int], weight: int) -> Iterator[Walk]:
        """Walks over all orders that a request may fit in; *ends* tells where an earlier walk had come to."""
        for kind, orders in self._orders.items():
            want = wants(kind)
            if want is None:
                continue
            first = (want.free * self._width) << _SUM_SHIFT
            lowest = _spare_class(want.spare) if self._width == 1 else want.free.bit_length()
            for number, order in orders.items():
                if number >= lowest and order.blocks:
                    place = (kind, number)
                    start = ends[place] + 1 if ends and place in ends else first
                    yield WindowWalk(place, order, start, want, weight)
        if self._mixed.blocks:
            place = (None, 0)
            yield LevelWalk(place, self._mixed, ends.get(place, -1) + 1, -UNLIMITED)

    def _cards(self, rooms: tuple[Room, ...]) -> Iterable[tuple[_Order, int, int, int]]:
        """(order, sum, least free, spare) of single cards, apart by class of what they can spare.

        Of cards with equal free amounts in one class, the one that can spare most stands for all.
        """
        found: dict[tuple[int, int, int], tuple[_Order, int, int, int]] = {}
        kind: Hashable = None
        orders: dict[int, _Order] = {}
        for one, free, spare in rooms:
            # Cards of one node mostly share one kind object, whose hash is then not asked for again.
            if one is not kind:
                kind, orders = one, self._orders.setdefault(one, {})
            number = spare // _SPARE_STEP if spare < _RICH else _RICHEST
            have = found.get((id(orders), free, number))
            if have is None or have[3] < spare:
                found[id(orders), free, number] = (_of_class(orders, number), free, free, spare)
        return found.values()

    def _runs(self, rooms: tuple[Room, ...]) -> Iterable[tuple[_Order, int, int, int]]:
        """(order, sum, least free, spare) of runs of cards, apart by the magnitude of their least free amount.

        What a run can spare is what its *width* richest cards can, of those with at least its least free amount: a
        later card may stand in for a poor one.
        """
        width = self._width
        if len(rooms) < width:
            return ()
        kind = rooms[0].kind
        if any(one.kind is not kind and one.kind != kind for one in rooms):
            return ((self._mixed, 0, 0, _ANY_SPARE),)
        orders = self._orders.setdefault(kind, {})
        cards = sorted([(free, spare) for _, free, spare in rooms])
        spares = sorted([spare for _, spare in cards[len(cards) - width + 1 :]])
        summed = sum([free for free, _ in cards[len(cards) - width + 1 :]])
        found: dict[int, tuple[_Order, int, int, int]] = {}
        for at in range(len(cards) - width, -1, -1):
            least, spare = cards[at]
            insort(spares, spare)
            summed += least
            # The run that begins at the first of equal cards spares most and sums the same.
            found[least] = (_of_class(orders, least.bit_length()), summed, least, spares[-width])
            summed -= cards[at + width - 1][0]
        return found.values()


class Levels(_Family):
    """Nodes by kinds of card and number of idle cards, taken together by magnitude: 0, 1, 2 to 3, 4 to 7, ..."""

    def __init__(self, labels: Labels) -> None:
        super().__init__(labels)
        self._orders: dict[frozenset[Hashable], dict[int, _Order]] = {}

    def put(self, name: NodeName, room: NodeRoom, tie: int) -> None:
        """Let *name* stand where it belongs now; *tie* settles equal scores."""
        self.drop(name)
        if room.rooms:
            # Cards of one node mostly share one kind object, whose hash is then asked for once.
            kinds = frozenset({id(one.kind): one.kind for one in room.rooms}.values())
            order = _of_class(self._orders.setdefault(kinds, {}), room.idle.bit_length())
            key = self._base(name, tie)
            order.add(key, (name, tie, 0, 0, 0))
            self._entries[name] = [(order, key)]

    def walks(self, wants: Wants, ends: Mapping[Place, int], minus_bound: Callable[[int], float]) -> Iterator[Walk]:
        """Walks over all orders that a request may fit in; *minus_bound* is the negated bound by idle cards."""
        bounds: dict[int, float] = {}
        for kinds, by_magnitude in self._orders.items():
            if all(wants(kind) is None for kind in kinds):
                continue
            for magnitude, order in by_magnitude.items():
                if order.blocks:
                    place = (kinds, magnitude)
                    if magnitude not in bounds:
                        bounds[magnitude] = minus_bound((1 << magnitude) - 1)
                    yield LevelWalk(place, order, ends.get(place, -1) + 1 if ends else 0, bounds[magnitude])


def _of_class(orders: dict[int, _Order], number: int) -> _Order:
    order = orders.get(number)
    if order is None:
        order = orders[number] = Ordered()
    return order


def _spare_class(spare: int) -> int:
    return spare // _SPARE_STEP if spare < _RICH else _RICHEST
