"""One node at one instant: its cards and their use, and how that changes as pods come and go.

Values in, values out: the ledger (`core.ledger`) keeps the states and decides when one replaces another.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from core.cardless import card_of
from core.catalog import Catalog
from core.constraints.every import NOTHING_HELD, Constraints, Held
from core.holding import Holding
from core.nodefit import NodeFacts
from core.port.refusals import Complaint
from core.settings import DialectName

Offers = Mapping[DialectName, tuple[Any, ...]]
Closed = Mapping[DialectName | None, str]


class NodeState(NamedTuple):
    """One node at one instant; offers: each dialect's cards with their use.

    used: use by its pods, by resource. held: what they hold by constraints that read use. closed: dialect -> why
    nothing new may be placed; None stands for pods without cards. A state is replaced and never changed; each
    replacement has a new version, unique within its ledger (a fork numbers its own).
    """

    facts: NodeFacts
    offers: Offers
    used: Mapping[str, int]
    closed: Closed
    complaints: tuple[Complaint, ...] = ()
    version: int = 0
    held: Held = NOTHING_HELD

    def cards(self, dialect: DialectName | None) -> tuple[Any, ...]:
        """Return its cards in *dialect*, () if it offers none; for pods without cards the node itself is one."""
        if dialect is not None:
            return self.offers.get(dialect, ())
        return (card_of(self.facts.allocatable, self.used, self.offers, self.closed),)


def state_of(
    facts: NodeFacts,
    empty: Offers,
    holders: Collection[Holding],
    catalog: Catalog,
    constraints: Constraints,
    *,
    version: int,
    complaints: tuple[Complaint, ...],
    whatever: Closed,
) -> NodeState:
    """Return a node's state computed from scratch: all *holders* are counted on its *empty* cards.

    whatever: what accepts nothing new independently of the holders, with reasons.
    """
    offers = dict(empty)
    used: dict[str, int] = {}
    held = NOTHING_HELD
    for holding in holders:
        for name, assignment, _ in holding.parts:
            if assignment is not None and name in offers:
                offers[name] = catalog.dialects[name].take(offers[name], assignment)
        for resource, amount in holding.amounts:
            used[resource] = used.get(resource, 0) + amount
        held = constraints.reserved(held, holding.uses)
    closed = _closed(holders, offers, catalog, whatever)
    return NodeState(facts, offers, used, closed, complaints, version, held)


def state_with(
    state: NodeState, holding: Holding, catalog: Catalog, constraints: Constraints, version: int
) -> NodeState:
    """Return *state* with *holding* added."""
    offers, closed = state.offers, state.closed
    if holding.dialect is not None:
        offers = _moved(offers, holding, catalog, back=False)
        closed = _closed_by(holding, offers, closed, catalog)
    used = dict(state.used)
    for resource, amount in holding.amounts:
        used[resource] = used.get(resource, 0) + amount
    held = constraints.reserved(state.held, holding.uses)
    return NodeState(state.facts, offers, used, closed, state.complaints, version, held)


def state_without(
    state: NodeState,
    holding: Holding,
    left: Iterable[Holding],
    catalog: Catalog,
    constraints: Constraints,
    *,
    version: int,
    whatever: Closed,
) -> NodeState:
    """Return *state* with *holding* released; *left* are still held. whatever: as for `state_of`."""
    offers, closed = state.offers, state.closed
    if holding.dialect is not None:
        offers = _moved(offers, holding, catalog, back=True)
        # Other holders may close the same; if this one closed nothing, nothing opens.
        if closed and any(closed.get(of) == why for of, why in _closed_by(holding, offers, {}, catalog).items()):
            closed = _closed(left, offers, catalog, whatever)
    used = dict(state.used)
    for resource, amount in holding.amounts:
        used[resource] -= amount
    held = constraints.released(state.held, holding.uses)
    return NodeState(state.facts, offers, used, closed, state.complaints, version, held)


def _moved(offers: Offers, holding: Holding, catalog: Catalog, *, back: bool) -> Offers:
    """Return *offers* after *holding* is added, or released if *back*."""
    if holding.dialect is None:
        return offers
    # Nearly all pods hold cards in one dialect.
    parts = holding.parts if holding.also else ((holding.dialect, holding.assignment, ""),)
    for name, assignment, _ in parts:
        if assignment is not None and name in offers:
            dialect = catalog.dialects[name]
            move: Callable[[tuple[Any, ...], Any], tuple[Any, ...]] = dialect.give_back if back else dialect.take
            offers = {**offers, name: move(offers[name], assignment)}
    return offers


def _closed(holders: Iterable[Holding], offers: Offers, catalog: Catalog, closed: Closed) -> Closed:
    """Return *closed* with what *holders* close in addition."""
    for holding in holders:
        if holding.dialect is not None:
            closed = _closed_by(holding, offers, closed, catalog)
    return closed


def _closed_by(holding: Holding, offers: Offers, closed: Closed, catalog: Catalog) -> Closed:
    """Return *closed* with what *holding* closes: it is unreadable, or its cards are also sold in another dialect.

    If several protocols sell the same cards, a node serves the one that is held, even if it is not offered at the
    moment; the others wait until it is no longer held.
    """
    if not (holding.closes or holding.also) and len(offers) == 1 and holding.dialect in offers:
        return closed
    for name, _, closes in holding.parts:
        if closes and name not in closed:
            closed = {**closed, name: closes}
        if len(offers) > 1 or name not in offers:
            for rival in catalog.rivals.get(name, ()):
                if rival in offers and rival not in closed:
                    closed = {**closed, rival: f"its cards are in use as {name} by pod {holding.key}"}
    return closed
