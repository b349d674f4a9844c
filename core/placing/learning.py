"""Learns the tables of the policy `pack` (`core.placing.pack`) from the pods that ask, on the cards of one ledger.

A pod counts once, when it first asks, or when it is first seen bound. What it takes of a card is found out on idle
cards of each size, by its own dialect: MiB that are rounded up to a slice or a template count as that.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from core.ledger import Ledger
from core.model import NodeName, PodUid
from core.placing.decide import Shape
from core.placing.pack import NO_HOLE_VALUES, CardsTaken, HoleValues, Mix, PackStock, Request, Size, Table, taken
from core.settings import DialectName, Policy

# How many nodes are looked at, or requests tried, between two pauses.
_SLICE: Final = 200
# Of so many sizes of card people are told.
_TOLD_MAX: Final = 32


class Known(NamedTuple):
    """What is known of cards of one size: *card* is their name for people, and *cards* how many there are."""

    dialect: DialectName
    card: str
    cards: int
    table: Table


class Learning:
    """The pods that asked, and the tables made of them.

    Attributes:
        tables: those in force.
        is_due: whether pods have come that they do not know of, and enough.
        mix: what the pods asked.
        made_of: how many pods had asked when the tables were made.
        known: what the tables know, size by size, for people.
    """

    def __init__(self, ledger: Ledger) -> None:
        """Know nothing."""
        self._ledger: Final = ledger
        self._seen: Final[set[PodUid]] = set()
        self.mix: Final = Mix()
        self.tables = NO_HOLE_VALUES
        self.is_due = False
        self.made_of = 0
        self.known: tuple[Known, ...] = ()

    def has_seen(self, pod: PodUid) -> bool:
        """Whether *pod* is counted."""
        return pod in self._seen

    def saw(self, pod: PodUid, shape: Shape) -> None:
        """*pod* asks *shape*, or is bound with it."""
        if pod in self._seen:
            return
        self._seen.add(pod)
        request = None if shape.dialect is None else (shape.dialect, shape.request)
        if self.mix.add(request, shape.amounts):
            self.is_due = True

    def gone(self, pod: PodUid) -> None:
        """*pod* does not exist any more; what it asked is remembered."""
        self._seen.discard(pod)

    def learn(self) -> Iterator[bool]:
        """Make the tables anew, in slices of a few milliseconds; in the last of them they change.

        Yields False where others may have their turn, and last whether the tables are others than before.
        """
        self.is_due = False
        stock = PackStock()
        for at, name in enumerate(tuple(self._ledger.states), start=1):
            if name in self._ledger.states:
                self._add(stock, name)
            if at % _SLICE == 0:
                yield False
        by_size: dict[Size, Table] = {}
        for size, cards in stock.samples.items():
            asked: dict[Request, CardsTaken] = {}
            for at, request in enumerate(self.mix.requests, start=1):
                found = self._asked(request, size, cards)
                if found is not None:
                    asked[request] = found
                if at % _SLICE == 0:
                    yield False
            by_size[size] = self.mix.table(asked, stock.have, stock.cards[size])
            yield False
        tables = HoleValues(by_size)
        self.made_of = self.mix.seen
        self.known = tuple([self._known(size, stock, table) for size, table in list(by_size.items())[:_TOLD_MAX]])
        has_moved = not tables.is_like(self.tables)
        if has_moved:
            self.tables = tables
        yield has_moved

    def _add(self, stock: PackStock, name: NodeName) -> None:
        catalog = self._ledger.catalog
        stock.beside(self._ledger.states[name].facts.allocatable)
        for dialect, cards in self._ledger.offered(name).items():
            best = catalog.dialects[dialect].at_best(cards)
            if holes := catalog.dialects[dialect].holes(best):
                stock.add(dialect, best, holes)

    def _known(self, size: Size, stock: PackStock, table: Table) -> Known:
        dialect, what = size
        cards = stock.samples[size]
        holes = self._ledger.catalog.dialects[dialect].holes(cards)
        tallies = self._ledger.catalog.dialects[dialect].tally(cards)
        one = next((tally for hole, tally in zip(holes, tallies, strict=False) if hole.size == what), None)
        told = [] if one is None else [one.label, f"{one.total} {one.unit}", one.mode]
        return Known(dialect, ", ".join([word for word in told if word]), stock.cards[size], table)

    def _asked(self, request: Request, size: Size, cards: tuple[Any, ...]) -> CardsTaken | None:
        """Return what *request* takes of those idle *cards* that have one *size*."""
        if request is None or request[0] != size[0]:
            return None
        name, what = request
        port = self._ledger.catalog.dialects[name]
        placed = port.place(cards, what, Policy.BINPACK)
        if placed is None:
            return None
        return taken(size[1], port.holes(cards), port.holes(port.take(cards, placed.assignment)))
