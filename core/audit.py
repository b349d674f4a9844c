"""Finds faults of a ledger: cards over their total, cards sold twice, and differences from a rebuilt ledger.

Reads only. It answers two questions: which states of a ledger are invalid (`faults`), and where a ledger that was
updated by every change differs from one built from the API server's objects alone (`rebuilt`, `differences`). The
caller decides what to do about it.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from core.catalog import Catalog
from core.constraints.constraint import NOTHING_HELD
from core.constraints.resource_claims import closed_by_claims
from core.ledger import Ledger
from core.model import Node, NodeName, Pod, PodUid
from core.node_state import Holding, NodeState
from core.settings import DialectName, Settings, Tables
from core.units import listed

_NAMED_MAX: Final = 5
_NAMED_WHERE: Final = "named in the controller's /v1/audit and log"


class Fault(StrEnum):
    """The kind of fault; also the words of the metric that counts them."""

    OVERCOMMITTED = "overcommitted"
    FOREIGN_OVERCOMMIT = "foreign-overcommit"
    SOLD_TWICE = "sold-twice"
    UNREADABLE_HOLDER = "unreadable-holder"
    DUPLICATE_CARD = "duplicate-card"
    MISSING_NODE = "missing-node"
    DRIFT = "drift"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFinding:
    """One fault on *node*; text says what is wrong, where and what to do, for the operator.

    event: the same without names of pods, for an event of the node, which is in a namespace that tenants may read;
    "" if there is no event.
    """

    fault: Fault
    node: NodeName
    text: str
    event: str = ""


def rebuilt(catalog: Catalog, tables: Tables, settings: Settings, nodes: Iterable[Node], pods: Iterable[Pod]) -> Ledger:
    """Return a ledger built from the API server's objects alone, without reservations."""
    ledger = Ledger(catalog, tables, settings)
    for node in nodes:
        ledger.set_node(node)
    for pod in pods:
        if pod.node_name:
            ledger.count(pod)
    return ledger


def faults(ledger: Ledger, foreign: Collection[PodUid] = ()) -> tuple[AuditFinding, ...]:
    """Return all faults, by node; *foreign* are the pods that another scheduler bound."""
    found = [one for name in ledger.states for one in faults_on(ledger, name, foreign)]
    return (*found, *faults_between(ledger))


def faults_between(ledger: Ledger) -> tuple[AuditFinding, ...]:
    """Return the faults that concern several nodes: one card on two nodes, pods with cards on missing ones."""
    found = list(_duplicates(ledger))
    found += [
        AuditFinding(
            fault=Fault.MISSING_NODE,
            node=node,
            text=f"pod {key} is bound to node {node}, which does not exist; its cards are not counted; "
            "delete the pod, or restore the node",
        )
        for node, key in ledger.stray_pods_with_cards()
    ]
    return tuple(found)


def faults_on(ledger: Ledger, name: NodeName, foreign: Collection[PodUid] = ()) -> Iterator[AuditFinding]:
    """Yield the faults of one existing node."""
    state, holders = ledger.states[name], ledger.holders(name)
    for which, cards in state.offers.items():
        for text in ledger.catalog.dialects[which].overcommitted(cards):
            theirs = {uid: one for uid, one in holders.items() if any(part.dialect == which for part in one.parts)}
            strangers = [one.key for uid, one in theirs.items() if uid in foreign]
            keys = strangers or [one.key for one in theirs.values()]
            fault = Fault.FOREIGN_OVERCOMMIT if strangers else Fault.OVERCOMMITTED
            whose = "pods bound by another scheduler are among its holders" if strangers else "its holders"
            yield AuditFinding(
                fault=fault,
                node=name,
                text=f"{text}; {whose}: {_listed(keys)}; delete one of them",
                event=f"{text}; {whose}: {_counted(keys)}; delete one of them, {_NAMED_WHERE}",
            )
    yield from _sold_twice(name, holders, ledger.catalog)
    yield from _claimed_too(ledger, state, holders)
    for one in holders.values():
        if one.reason:
            yield AuditFinding(fault=Fault.UNREADABLE_HOLDER, node=name, text=one.reason)


def _sold_twice(name: NodeName, holders: Mapping[PodUid, Holding], catalog: Catalog) -> Iterator[AuditFinding]:
    keys: dict[DialectName, list[str]] = defaultdict(list)
    for one in holders.values():
        for which in dict.fromkeys(part.dialect for part in one.parts):
            keys[which].append(one.key)
    for which in sorted(keys):
        for rival in sorted(keys.keys() & catalog.rivals.get(which, frozenset())):
            if which < rival:
                text = (
                    f"the same cards are held as {which} by {_listed(keys[which])} and as {rival} by "
                    f"{_listed(keys[rival])}; delete the pods of one of them"
                )
                event = (
                    f"the same cards are held as {which} by {_counted(keys[which])} and as {rival} by "
                    f"{_counted(keys[rival])}; delete the pods of one of them, {_NAMED_WHERE}"
                )
                yield AuditFinding(fault=Fault.SOLD_TWICE, node=name, text=text, event=event)


def _claimed_too(ledger: Ledger, state: NodeState, holders: Mapping[PodUid, Holding]) -> Iterator[AuditFinding]:
    """Yield cards of a node that pods hold and others use through resource claims."""
    uses = ledger.uses(state.facts.name)
    closed = closed_by_claims(uses, state.offers, ledger.catalog).cards if uses else {}
    for which, cards in closed.items():
        dialect = ledger.catalog.dialects[which]
        for card, why in cards.items():
            keys = [
                one.key
                for one in holders.values()
                for part in one.parts
                if part.dialect == which and part.assignment is not None
                if any(share.card == card for share in dialect.describe(part.assignment, state.offers[which]))
            ]
            if keys:
                text = f"card {card} is held as {which} by %s, and {why}; delete either"
                event = f"{text}, {_NAMED_WHERE}" % _counted(keys)
                yield AuditFinding(
                    fault=Fault.SOLD_TWICE, node=state.facts.name, text=text % _listed(keys), event=event
                )


def _duplicates(ledger: Ledger) -> Iterator[AuditFinding]:
    """Yield cards that two nodes register under the same globally unique id."""
    # Mappings as sets that keep the order: one node may offer a card in several protocols.
    nodes: dict[str, dict[NodeName, None]] = defaultdict(dict)
    for name, state in ledger.states.items():
        for which, cards in state.offers.items():
            dialect = ledger.catalog.dialects[which]
            for card in dialect.identities(cards):
                nodes[card][name] = None
    for card, names in sorted(nodes.items()):
        if len(names) > 1:
            text = (
                f"card {card} is registered by {_listed(names)}; one card is in one node: see the device plugins there"
            )
            yield AuditFinding(fault=Fault.DUPLICATE_CARD, node=next(iter(names)), text=text, event=text)


def differences(
    ledger: Ledger, fresh: Ledger, name: NodeName, *, reserved: Collection[PodUid], unsettled: Collection[PodUid]
) -> tuple[str, ...]:
    """Return where *ledger* differs on one node from *fresh*, built from the API server's objects; () if nowhere.

    Args:
        ledger: the ledger that was updated by every change.
        fresh: a ledger with this node and its pods, under the same configuration.
        name: the node, which both contain.
        reserved: pods that hold something by an unwritten reservation.
        unsettled: pods that either ledger may have in a later version; they are skipped.
    """
    found: list[str] = []
    ours, theirs = ledger.holders(name), fresh.holders(name)
    for uid in ours.keys() | theirs.keys():
        if uid in unsettled:
            continue
        mine, other = ours.get(uid), theirs.get(uid)
        if mine is None and other is not None:
            found.append(f"pod {other.key} is bound there and not counted")
        elif mine is not None and other is None and uid not in reserved:
            found.append(f"pod {mine.key} is counted there and not bound")
        elif mine is not None and other is not None and not _alike(mine, other):
            found.append(f"pod {mine.key} is counted as {mine}, and is {other}")
    return (*sorted(found), *arithmetic(ledger, name))


def arithmetic(ledger: Ledger, name: NodeName) -> tuple[str, ...]:
    """Return where the state of one node is not the sum of its holders; () if it is."""
    state, holders = ledger.states[name], ledger.holders(name)
    used: Counter[str] = Counter()
    held = NOTHING_HELD
    offers: dict[DialectName, tuple[Any, ...]] = {which: ledger.empty_cards(name, which) for which in state.offers}
    for one in holders.values():
        used.update(dict(one.amounts))
        held = ledger.constraints.reserved(held, one.uses)
        for which, assignment, _ in one.parts:
            if which in offers and assignment is not None:
                offers[which] = ledger.catalog.dialects[which].take(offers[which], assignment)
    found = [
        f"the cards offered as {which} are not the sum of what is held"
        for which in state.offers
        if offers[which] != state.offers[which]
    ]
    if held != state.held:
        found.append(
            f"what its pods hold besides cards and resources is counted as {dict(state.held)}, and is {dict(held)}"
        )
    if +used != +Counter(state.used):
        found.append(f"its resources in use are counted as {_amounts(state)}, and are {dict(sorted(used.items()))}")
    return tuple(found)


def _alike(one: Holding, other: Holding) -> bool:
    return _timeless(one) == _timeless(other)


def _timeless(one: Holding) -> Holding:
    """Return *one* without history, such as the unit in which its figures were written."""
    also = tuple(part for part in one.also if part.dialect is not one.dialect)
    return one._replace(key="", scale=None, also=also)


def _amounts(state: NodeState) -> dict[str, int]:
    return {resource: amount for resource, amount in sorted(state.used.items()) if amount}


def _counted(names: Collection[str]) -> str:
    return "one pod" if len(names) == 1 else f"{len(names)} pods"


def _listed(names: Collection[str]) -> str:
    return listed(sorted(names), _NAMED_MAX)
