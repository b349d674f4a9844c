"""One node at one instant: its cards with what is in use on them, and how that changes as pods come and go.

Values in, values out: the ledger (`core.ledger`) keeps the states and says when one follows upon another.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from core.cardless import card_of
from core.catalog import Catalog
from core.holding import Holding
from core.nodefit import NodeFacts, Ports, with_ports, without_ports
from core.port.refusals import Complaint
from core.settings import DialectName

_NO_PORTS: Final[Ports] = {}

Offers = Mapping[DialectName, tuple[Any, ...]]
Closed = Mapping[DialectName | None, str]


class NodeState(NamedTuple):
    """One node at one instant: offers maps dialect -> that dialect's cards with what is in use on them.

    used: what its pods take, by resource. ports: those that they listen on. closed: dialect -> why nothing new may be
    placed; None stands for pods without cards. Replaced, never changed; version is another one at every replacement,
    unique within its ledger (a fork numbers its own).
    """

    facts: NodeFacts
    offers: Offers
    used: Mapping[str, int]
    closed: Closed
    complaints: tuple[Complaint, ...] = ()
    version: int = 0
    ports: Ports = _NO_PORTS

    def cards(self, dialect: DialectName | None) -> tuple[Any, ...]:
        """Its cards in *dialect*, () if it offers none; for pods without cards the node itself is one."""
        if dialect is not None:
            return self.offers.get(dialect, ())
        return (card_of(self.facts.allocatable, self.used, bare=not any(self.offers.values())),)


def state_of(
    facts: NodeFacts,
    empty: Offers,
    holders: Collection[Holding],
    catalog: Catalog,
    *,
    version: int,
    complaints: tuple[Complaint, ...],
    whatever: Closed,
) -> NodeState:
    """A node's state from nothing: all *holders* are counted on its *empty* cards.

    whatever: what of it takes nothing new whatever they hold, and why.
    """
    offers = dict(empty)
    used: dict[str, int] = {}
    ports = _NO_PORTS
    for holding in holders:
        for name, assignment, _ in holding.parts:
            if assignment is not None and name in offers:
                offers[name] = catalog.dialects[name].take(offers[name], assignment)
        for resource, amount in holding.amounts:
            used[resource] = used.get(resource, 0) + amount
        if holding.ports:
            ports = with_ports(ports, holding.ports)
    closed = _closed(holders, offers, catalog, whatever)
    return NodeState(facts, offers, used, closed, complaints, version, ports)


def state_with(state: NodeState, holding: Holding, catalog: Catalog, version: int) -> NodeState:
    """*state* after *holding* is held too."""
    offers, closed = state.offers, state.closed
    if holding.dialect is not None:
        offers = _moved(offers, holding, catalog, back=False)
        closed = _closed_by(holding, offers, closed, catalog)
    used = dict(state.used)
    for resource, amount in holding.amounts:
        used[resource] = used.get(resource, 0) + amount
    ports = with_ports(state.ports, holding.ports) if holding.ports else state.ports
    return NodeState(state.facts, offers, used, closed, state.complaints, version, ports)


def state_without(
    state: NodeState, holding: Holding, left: Iterable[Holding], catalog: Catalog, *, version: int, whatever: Closed
) -> NodeState:
    """*state* after *holding* is given back; *left* are held still. whatever: as of `state_of`."""
    offers, closed = state.offers, state.closed
    if holding.dialect is not None:
        offers = _moved(offers, holding, catalog, back=True)
        # Others may close what this one closed; while it closed nothing by itself, nothing opens.
        if closed and any(closed.get(of) == why for of, why in _closed_by(holding, offers, {}, catalog).items()):
            closed = _closed(left, offers, catalog, whatever)
    used = dict(state.used)
    for resource, amount in holding.amounts:
        used[resource] -= amount
    ports = without_ports(state.ports, holding.ports) if holding.ports else state.ports
    return NodeState(state.facts, offers, used, closed, state.complaints, version, ports)


def _moved(offers: Offers, holding: Holding, catalog: Catalog, *, back: bool) -> Offers:
    """*offers* after what *holding* holds is in use on them, or given *back*."""
    if holding.dialect is None:
        return offers
    # Nearly all pods hold cards in one way.
    parts = holding.parts if holding.also else ((holding.dialect, holding.assignment, ""),)
    for name, assignment, _ in parts:
        if assignment is not None and name in offers:
            dialect = catalog.dialects[name]
            move: Callable[[tuple[Any, ...], Any], tuple[Any, ...]] = dialect.give_back if back else dialect.take
            offers = {**offers, name: move(offers[name], assignment)}
    return offers


def _closed(holders: Iterable[Holding], offers: Offers, catalog: Catalog, closed: Closed) -> Closed:
    """*closed*, and what *holders* close besides."""
    for holding in holders:
        if holding.dialect is not None:
            closed = _closed_by(holding, offers, closed, catalog)
    return closed


def _closed_by(holding: Holding, offers: Offers, closed: Closed, catalog: Catalog) -> Closed:
    """*closed*, and what *holding* closes besides: what it holds cannot be read, or its cards are sold another way too.

    Of protocols that sell the same cards a node serves the one that is held, whether or not it is offered just now; the
    others wait until nothing of it is held.
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
