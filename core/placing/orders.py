"""Orders over nodes that bound a score: what `core.placing.candidates` walks instead of looking at every node.

Each family keeps a few entries per node in sorted orders. `Windows` bounds by what is free: per kind of card, every
run of *width* cards in ascending order of free amounts, sorted by the sum of what is free. `Levels` bounds by the
number of idle cards alone, and sorts by used share. A `Step` walks one order for one shape: it yields ranks that are
never worse than the rank of the entry's node, in ascending order.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, Set
from heapq import merge
from itertools import islice
from typing import Final, Generic, NamedTuple, TypeVar

from core.model import NodeName
from core.placing.ordered import NO_KEY, Key, Labels, Ordered, Row, Seat
from core.port.cards import NodeRoom, Want

UNLIMITED: Final = float("inf")

# Nodes whose cards are of several kinds stand under this number, where several cards are asked.
_MIXED: Final = -1
_ANYTHING: Final = Want(0, 0, 0, 1)

# A rank that bounds, and where it was found (sum and seat); compares with a `core.placing.score.Rank`.
Bound = tuple[float, float, NodeName, int, Seat]
# (free, spare) of one card.
_Amounts = tuple[int, int]
_Place = tuple[Ordered, Key]
_Kinds = TypeVar("_Kinds", int, frozenset[int])
# What a shape wants of cards of one kind, by its number; None if such cards can never serve it.
Wants = Callable[[int], Want | None]


class Stand(NamedTuple):
    """A node's cards in one dialect as the orders read them: (free, spare) of each, ascending, by number of kind.

    tie: what settles equal scores. one: by kinds as narrow as the dialect tells them apart; several: by kinds wide
    enough to stand side by side.
    """

    idle: int
    tie: int
    one: Mapping[int, Sequence[_Amounts]]
    several: Mapping[int, Sequence[_Amounts]]


class Kinds:
    """Numbers for kinds of card: kinds are large values, hashed here once per change of a node."""

    def __init__(self) -> None:
        self._numbers: Final[dict[Hashable, int]] = {}
        self.kinds: Final[list[Hashable]] = []

    def stand(self, room: NodeRoom, tie: int) -> Stand:
        """*room* with its cards put together by kind; *tie* settles equal scores."""
        several: dict[int, list[_Amounts]] = {}
        cards: list[_Amounts] = []
        last: Hashable = None
        narrow = False
        for kind, free, spare, within in room.rooms:
            # Cards of one node are mostly of one kind, whose hash is then not asked for again.
            if kind is not last and kind != last:
                last, cards = kind, several.setdefault(self._number(kind), [])
            cards.append((free, spare))
            narrow = narrow or within is not None
        for cards in several.values():
            cards.sort()
        return Stand(room.idle, tie, self._narrow(room) if narrow else several, several)

    def _narrow(self, room: NodeRoom) -> dict[int, list[_Amounts]]:
        one: dict[int, list[_Amounts]] = {}
        for kind, free, spare, within in room.rooms:
            one.setdefault(self._number(kind if within is None else within), []).append((free, spare))
        for cards in one.values():
            cards.sort()
        return one

    def _number(self, kind: Hashable) -> int:
        number = self._numbers.get(kind)
        if number is None:
            number = self._numbers[kind] = len(self.kinds)
            self.kinds.append(kind)
        return number


class Step(NamedTuple):
    """One order as one shape walks it: entries from the sum *first* on that have what *want* asks.

    optimum is the best bound that an entry there could have. flat: it is the bound of all, whatever is free.
    """

    order: Ordered
    first: int
    want: Want
    weight: int
    optimum: float
    flat: bool

    def walk(
        self, labels: Labels, passed_over: Set[NodeName], after: Bound | None, left_out: list[Bound]
    ) -> Iterator[Bound]:
        """Ranks that bound the nodes of the order less those *passed_over*; only what comes behind *after*.

        What it leaves out on its way it adds to *left_out*.
        """
        least, poorest, numerator, total = self.want
        order, bound, who = self.order, self.optimum, labels.who
        sums, by_sum = order.sums, order.by_sum
        for at in range(bisect_left(sums, self.first if after is None else after[3]), len(sums)):
            summed = sums[at]
            # One sum is one bound, so all its seats come in one order.
            rows: list[Sequence[Seat]] = []
            for row in by_sum[summed]:
                if row.free >= least and row.spare >= poorest:
                    rows.append(row.seats)  # noqa: PERF401  # a comprehension costs a call, and mostly finds nothing
            if not rows:
                continue
            if after is not None and summed == after[3]:
                rows = [seats[bisect_right(seats, after[4]) :] for seats in rows]
            if not self.flat:
                bound = -(100.0 * (numerator - summed) / total) * self.weight
            for seat in rows[0] if len(rows) == 1 else _merged(rows):
                tie, name = who(seat)
                if name in passed_over:
                    left_out.append((bound, tie, name, summed, seat))
                else:
                    yield bound, tie, name, summed, seat


class _Family(Generic[_Kinds]):
    """Which nodes stand where in which orders.

    orders: all that were ever made, each behind the kind, or kinds, of its cards and its class. entries: how often
    nodes stand in them, all told.
    """

    def __init__(self, labels: Labels) -> None:
        self._labels: Final = labels
        self.orders: Final[list[tuple[_Kinds, int, Ordered]]] = []
        self.entries = 0
        self._known: Final[dict[tuple[_Kinds, int], Ordered]] = {}
        # Where a node stands, and in which rows; not as pairs, of which the garbage collector would look at each.
        self._seats: Final[dict[NodeName, Seat]] = {}
        self._rows: Final[dict[NodeName, list[Row]]] = {}

    def drop(self, name: NodeName) -> None:
        """Forget *name*."""
        for row in self._rows.pop(name, ()):
            row.remove(self._seats[name])
            self.entries -= 1
        self._seats.pop(name, None)

    def _stand(self, name: NodeName, tie: int, places: list[_Place]) -> None:
        """Let *name* stand in *places*, and nowhere else."""
        before = self._seats.get(name, 0)
        rows = self._rows.get(name, ())
        for row in rows:
            row.remove(before)
        self.entries += len(places) - len(rows)
        seat = self._seats[name] = self._labels.seat(tie, name)
        self._rows[name] = [order.add(key, seat) for order, key in places]

    def _order(self, kinds: _Kinds, number: int) -> Ordered:
        """The order of *kinds* and class *number*."""
        order = self._known.get((kinds, number))
        if order is None:
            order = self._known[kinds, number] = Ordered()
            self.orders.append((kinds, number, order))
        return order


class Windows(_Family[int]):
    """Nodes by what is free on *width* of their cards at once; equal cards of a node stand there once."""

    def __init__(self, width: int, labels: Labels) -> None:
        super().__init__(labels)
        self._width: Final = width

    def put(self, name: NodeName, stand: Stand) -> None:
        """Let *name* stand where it belongs now."""
        self._stand(name, stand.tie, self._cards(stand.one) if self._width == 1 else self._runs(stand))

    def steps(self, made: int, wants: Wants, weight: int) -> Iterator[Step]:
        """How a shape walks the orders behind the first *made*, as far as its request may fit in them."""
        width = self._width
        for kind, number, order in self.orders[made:]:
            if kind == _MIXED:
                yield Step(order, 0, _ANYTHING, weight, -UNLIMITED, flat=True)
                continue
            want = wants(kind)
            if want is None or (width > 1 and number < want.free.bit_length()):
                continue
            # The magnitude of the least free amount tells how little the sum can be.
            least = want.free if width == 1 else max(want.free, 1 << number >> 1)
            first = least * width
            optimum = -(100.0 * (want.numerator - first) / want.total) * weight
            yield Step(order, first, want, weight, optimum, flat=False)

    def _cards(self, cards_by_kind: Mapping[int, Sequence[_Amounts]]) -> list[_Place]:
        """Where single cards stand."""
        places: list[_Place] = []
        for kind, cards in cards_by_kind.items():
            order = self._order(kind, 0)
            # Of cards with equal free amounts, the one that can spare most stands for all.
            for free, spare in dict(cards).items():
                places.append((order, (free, free, spare)))
        return places

    def _runs(self, stand: Stand) -> list[_Place]:
        """Where runs of cards stand, apart by the magnitude of their least free amount.

        What a run can spare is what its *width* richest cards can, of those with at least its least free amount: a
        later card may stand in for a poor one.
        """
        width, cards_by_kind = self._width, stand.several
        if sum(map(len, cards_by_kind.values())) < width:
            return []
        if len(cards_by_kind) > 1:
            # No sum of free amounts bounds the score of cards of several kinds.
            return [(self._order(_MIXED, 0), NO_KEY)]
        ((kind, cards),) = cards_by_kind.items()
        narrow, above = (kind, 0) if stand.one is cards_by_kind else _freest(stand.one)
        last = len(cards) - width
        spares = sorted([spare for _, spare in cards[last + 1 :]])
        summed = sum([free for free, _ in cards[last + 1 :]])
        places: list[_Place] = []
        for at in range(last, -1, -1):
            least, spare = cards[at]
            insort(spares, spare)
            summed += least
            # Of runs that begin at equal cards, the first spares most, and all sum the same.
            if not at or cards[at - 1][0] != least:
                order = self._order(narrow if least > above else kind, least.bit_length())
                places.append((order, (summed, least, spares[-width])))
            summed -= cards[at + width - 1][0]
        return places


class Levels(_Family[frozenset[int]]):
    """Nodes by kinds of card and number of idle cards, taken together by magnitude: 0, 1, 2 to 3, 4 to 7, ..."""

    def put(self, name: NodeName, stand: Stand) -> None:
        """Let *name* stand where it belongs now."""
        places = [(self._order(frozenset(stand.several), stand.idle.bit_length()), NO_KEY)] if stand.several else []
        self._stand(name, stand.tie, places)

    def steps(self, made: int, wants: Wants, minus_bound: Callable[[int], float]) -> Iterator[Step]:
        """How a shape walks the orders behind the first *made*; *minus_bound* is the negated bound by idle cards."""
        for kinds, magnitude, order in self.orders[made:]:
            if any(wants(kind) is not None for kind in kinds):
                yield Step(order, 0, _ANYTHING, 1, minus_bound((1 << magnitude) - 1), flat=True)


def _merged(rows: Sequence[Sequence[Seat]]) -> Iterator[Seat]:
    """The seats of all *rows* in ascending order; most readers want no more than the first."""
    rows = [row for row in rows if row]
    if rows:
        yield min([row[0] for row in rows])
        yield from islice(merge(*rows), 1, None)


def _freest(cards_by_kind: Mapping[int, Sequence[_Amounts]]) -> tuple[int, int]:
    """The kind of the freest card, and the free amount above which all cards are of that kind."""
    most = sorted([(cards[-1][0], kind) for kind, cards in cards_by_kind.items()])
    return most[-1][1], most[-2][0] if len(most) > 1 else 0
