"""The cards of the cluster and their holders: the answer of ``kubectl cards get``, field by field. Pure.

Fields may be added; renaming a field or changing its meaning requires another *version*.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from core.card_time import is_sold, takes_none
from core.ledger import Ledger
from core.node_state import NodeState
from core.port.cards import WHOLE, Tally
from core.settings import DialectName

VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one pod (namespace/name) holds of a card: in words, and *amount* in the card's unit, None if unknown.

    cores_pct: percent of the card's cores, None if the protocol does not count them. removed: the pod was
    force-deleted, and its processes may still run.
    """

    pod: str
    share: str
    amount: int | None = None
    cores_pct: int | None = None
    removed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One card: *used* of *total* in *unit*, percent of its cores in use, and what each pod holds.

    cores_pct: None if the protocol does not count them. note: special conditions. mode: its sharing mode, if its
    protocol has several. healthy: False if it accepts nothing new; note gives the reason. stranded: a part of it is
    free, and no pod of the protocol can get that part (docs/operators/metrics.md). offered: False if pods hold it but
    the device plugin currently does not offer it; its figures are then unknown. others: how many more pods hold it
    that are not shown, because they are in other namespaces.
    """

    id: str
    protocol: str
    type: str = ""
    used: int | None = None
    total: int | None = None
    unit: str = ""
    cores_pct: int | None = None
    note: str = ""
    mode: str = ""
    healthy: bool = True
    stranded: bool = False
    offered: bool = True
    held_by: tuple[Share, ...] = ()
    others: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The sum of one protocol's cards: *used* of *total* in *unit*; idle cards are healthy and unused.

    used, total, cores_pct: None if the value of a card is unknown or not counted.
    """

    protocol: str
    cards: int
    idle: int
    unhealthy: int
    used: int | None
    total: int | None
    unit: str
    cores_pct: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node with its cards; warnings: unusable data, and what the node accepts no pods for.

    ready, schedulable, taints: as on the node, a taint as ``key=value:effect``. totals: one for each protocol.
    """

    name: str
    ready: bool
    schedulable: bool
    taints: tuple[str, ...]
    cards: tuple[Card, ...]
    totals: tuple[Total, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cards:
    """The answer of ``get``. totals: over all its nodes. missing: requested nodes that do not exist."""

    version: int = VERSION
    nodes: tuple[Node, ...]
    totals: tuple[Total, ...] = ()
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def cards_of(ledger: Ledger, node_names: Sequence[str] = (), notes: Sequence[str] = (), namespace: str = "") -> Cards:
    """Return the counted cards of the cluster, or only of *node_names* if given.

    With a *namespace*, only cards that its pods hold, and only its pods as holders.
    """
    names = set(node_names) or ledger.states.keys()
    states = sorted((ledger.states[name] for name in ledger.states if name in names), key=lambda one: one.facts.name)
    nodes = tuple(_node(ledger, state, namespace) for state in states)
    if namespace:
        nodes = tuple(node for node in nodes if node.cards)
    return Cards(
        nodes=nodes,
        totals=totals_of([card for node in nodes for card in node.cards]),
        missing=tuple(name for name in node_names if name not in ledger.states),
        notes=tuple(notes),
    )


def switched_off(ledger: Ledger) -> tuple[str, ...]:
    """Return a note for each disabled dialect whose cards nodes have: what disables it, and on how many nodes."""
    settings = ledger.settings
    found: dict[DialectName, int] = {}
    if settings.dialects is not None:
        everything = replace(settings, dialects=None)
        for node in ledger.nodes():
            offers, _ = ledger.catalog.offers(node, ledger.tables, everything)
            for name, cards in offers.items():
                if cards and not settings.has_on(name):
                    found[name] = found.get(name, 0) + 1
    return tuple([_switched_off(name, settings.why_off(name), count) for name, count in sorted(found.items())])


def _switched_off(name: DialectName, why: str, nodes: int) -> str:
    where = "one node get" if nodes == 1 else f"{nodes} nodes get"
    return f"{name} is switched off{f': {why}' if why else ''}; the cards of {where} no new pods by it"


def with_removed(found: Cards, held: Sequence[Mapping[str, Any]], namespace: str = "") -> Cards:
    """Return *found* with what removed pods *held* (the controller's ``/v1/held``); only of *namespace* if given."""
    of_node = {node.name: [one for one in held if one["node"] == node.name] for node in found.nodes}
    nodes = tuple(_with_removed(node, of_node[node.name], namespace) for node in found.nodes)
    return replace(found, nodes=nodes, totals=totals_of([card for node in nodes for card in node.cards]))


def _with_removed(node: Node, held: Sequence[Mapping[str, Any]], namespace: str) -> Node:
    cards = node.cards
    for one in held:
        until = f"{one['left_s']:.0f} s more" if one["node_ready"] else f"until {node.name} is ready again"
        for part in one["cards"]:
            share = Share(
                pod=one["pod"],
                share=f"{part['share']}, removed by force, held {until}",
                amount=part["amount"],
                cores_pct=part["cores_pct"],
                removed=True,
            )
            cards = tuple(
                _with_share(card, share, shown=not namespace or share.pod.startswith(f"{namespace}/"))
                if (card.id, card.protocol) == (part["card"], part["protocol"])
                else card
                for card in cards
            )
    return replace(node, cards=cards, totals=totals_of(cards))


def _with_share(card: Card, share: Share, *, shown: bool) -> Card:
    return replace(
        card,
        used=_sum((card.used, share.amount)),
        cores_pct=_sum((card.cores_pct, share.cores_pct)),
        held_by=(*card.held_by, share) if shown else card.held_by,
        others=card.others if shown else card.others + 1,
    )


def _node(ledger: Ledger, state: NodeState, namespace: str) -> Node:
    cards, facts = tuple(_cards(ledger, state)), state.facts
    if namespace:
        cards = tuple(one for one in (_of_namespace(card, namespace) for card in cards) if one.held_by)
    return Node(
        name=facts.name,
        ready=facts.ready,
        schedulable=not facts.unschedulable,
        taints=tuple(
            f"{one.key}={one.value}:{one.effect}" if one.value else f"{one.key}:{one.effect}" for one in facts.taints
        ),
        cards=cards,
        totals=totals_of(cards),
        warnings=tuple(_warnings(state)),
    )


def node_for(node: Node, namespace: str) -> Node:
    """Return *node* for a reader who may see only pods of *namespace*: it names no object of another namespace.

    Warnings, and the reasons why cards accept nothing, can name pods and resource claims, so they are left out.
    """
    return replace(node, cards=tuple(card_for(card, namespace) for card in node.cards), warnings=())


def card_for(card: Card, namespace: str) -> Card:
    """Return *card* for a reader who may see only pods of *namespace*: it names no object of another namespace."""
    found = _of_namespace(card, namespace)
    return found if found.healthy else replace(found, note="")


def _of_namespace(card: Card, namespace: str) -> Card:
    """Return *card* with only the pods of *namespace* as holders, and the number of the others."""
    own = tuple(one for one in card.held_by if one.pod.startswith(f"{namespace}/"))
    return replace(card, held_by=own, others=card.others + len(card.held_by) - len(own))


def totals_of(cards: Iterable[Card]) -> tuple[Total, ...]:
    """Return the sums of *cards* by protocol and unit, without cards that device plugins currently do not offer."""
    kinds: dict[tuple[str, str], list[Card]] = {}
    for card in cards:
        if card.offered:
            kinds.setdefault((card.protocol, card.unit), []).append(card)
    return tuple(
        Total(
            protocol=protocol,
            cards=sum(map(count_of, of)),
            idle=sum(map(idle_of, of)),
            unhealthy=sum(count_of(card) for card in of if not card.healthy),
            used=_sum(card.used for card in of),
            total=_sum(card.total for card in of),
            unit=unit,
            cores_pct=_sum(card.cores_pct for card in of),
        )
        for (protocol, unit), of in kinds.items()
    )


def count_of(card: Card) -> int:
    """Return how many cards *card* is: several if a node's cards are requested by number and not told apart."""
    return card.total if card.mode == WHOLE and card.total is not None else 1


def idle_of(card: Card) -> int:
    """Return how many of `count_of` are healthy and unused."""
    if card.mode == WHOLE and card.total is not None and card.used is not None:
        return max(card.total - card.used, 0) if card.healthy else 0
    return int(card.healthy and card.used == 0 and not card.held_by)


def _sum(amounts: Iterable[int | None]) -> int | None:
    """Return the sum; None if one of them is unknown."""
    found = 0
    for one in amounts:
        if one is None:
            return None
        found += one
    return found


def _cards(ledger: Ledger, state: NodeState) -> Iterator[Card]:
    for name, dialect in ledger.catalog.dialects.items():
        holders, offered = _holders(ledger, state, name), state.offers.get(name, ())
        closed = bool(offered) and takes_none(state, name)
        for tally in dialect.tally(offered):
            yield _card(name, tally, holders.pop(tally.card, []), closed=closed)
        # The plugin currently does not offer these cards, but their holders still have them.
        for card, shares in holders.items():
            yield Card(id=card, protocol=name, offered=False, held_by=tuple(shares))


def _card(name: DialectName, tally: Tally, shares: Sequence[Share], *, closed: bool) -> Card:
    return Card(
        id=tally.card,
        protocol=name,
        type=tally.label,
        used=tally.used,
        total=tally.total,
        unit=tally.unit,
        cores_pct=tally.cores_pct,
        note=tally.note,
        mode=tally.mode,
        healthy=tally.healthy,
        stranded=tally.used < tally.total and (closed or is_sold(tally)),
        held_by=tuple(shares),
    )


def _holders(ledger: Ledger, state: NodeState, dialect: DialectName) -> dict[str, list[Share]]:
    held: dict[str, list[Share]] = {}
    cards = state.offers.get(dialect, ())
    for holding in sorted(ledger.holders(state.facts.name).values(), key=lambda holding: holding.key):
        for which, assignment, _ in holding.parts:
            if which is not dialect or assignment is None:
                continue
            for one in ledger.catalog.dialects[dialect].describe(assignment, cards):
                share = Share(pod=holding.key, share=one.text, amount=one.amount, cores_pct=one.cores_pct)
                held.setdefault(one.whole, []).append(share)
    return held


def _warnings(state: NodeState) -> Iterator[str]:
    for complaint in state.complaints:
        yield f"{complaint.field}: {complaint.problem}"
    for name, why in state.closed.items():
        yield f"takes no new pods of {name}: {why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The cards of one *type* under one *protocol*, on all nodes.

    cards: those that device plugins currently offer. idle: healthy and unused ones. unhealthy: those that accept no new
    pods.
    used, total, free: in *unit*; None if the value of a card is unknown. free: on healthy cards. stranded: the part of
    *free* on stranded cards. largest: the most that is free on one other card. fragmented_pct: the percentage of *free*
    that no request for a whole card can get, because it is stranded or on a card in part use.
    """

    protocol: str
    type: str
    unit: str
    cards: int
    idle: int
    unhealthy: int
    used: int | None
    total: int | None
    free: int | None
    stranded: int | None
    largest: int | None
    fragmented_pct: int | None


def kinds_of(nodes: Iterable[Node]) -> tuple[Kind, ...]:
    """Return the cards of *nodes* by protocol and type, ordered by name."""
    found: dict[tuple[str, str, str], list[Card]] = {}
    for node in nodes:
        for card in node.cards:
            if card.offered:
                found.setdefault((card.protocol, card.type, card.unit), []).append(card)
    return tuple(_kind(*key, cards) for key, cards in sorted(found.items()))


def _kind(protocol: str, label: str, unit: str, cards: Sequence[Card]) -> Kind:
    healthy = [card for card in cards if card.healthy]
    is_known = all(card.used is not None and card.total is not None for card in cards)
    usable = [card for card in healthy if not card.stranded]
    free = sum(map(_free, healthy))
    whole = sum(_free(card) for card in usable if card.mode == WHOLE or idle_of(card))
    return Kind(
        protocol=protocol,
        type=label,
        unit=unit,
        cards=sum(map(count_of, cards)),
        idle=sum(map(idle_of, cards)),
        unhealthy=sum(map(count_of, cards)) - sum(map(count_of, healthy)),
        used=sum(card.used or 0 for card in cards) if is_known else None,
        total=sum(card.total or 0 for card in cards) if is_known else None,
        free=free if is_known else None,
        stranded=free - sum(map(_free, usable)) if is_known else None,
        largest=max(map(_free, usable), default=0) if is_known else None,
        fragmented_pct=-(-100 * (free - whole) // max(free, 1)) if is_known else None,
    )


def _free(card: Card) -> int:
    return max((card.total or 0) - (card.used or 0), 0)
