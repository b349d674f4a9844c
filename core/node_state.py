"""One node at one instant: its cards, what each pod holds of them, and how that changes as pods come and go.

A pod that any scheduler bound is read by its annotations (`Reader`); its dialect defines what these mean. Values in,
values out: the ledger (`core.ledger`) keeps the states and decides when one replaces another.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from core import model, names
from core.cardless import card_of
from core.catalog import Catalog
from core.constraints.constraint import NOTHING_HELD, Constraints, Held, Signatures
from core.errors import InvalidRequestError
from core.model import Amounts, Node, NodeFacts, Pod
from core.port.refusals import Complaint
from core.settings import DialectName, Tables

Offers = Mapping[DialectName, tuple[Any, ...]]
# What is written to nodes all the time: locks, from which no dialect reads cards; and signs of life, of which dialects
# read only whether they are there.
_LOCKS: Final = ("cambricon.com/dsmlu.lock", "gpu", "hami.io/mutex.lock", "hamivgpu")
_SIGNS: Final = ("hami.io/node-handshake", "volcano.sh/node-vgpu-handshake")
Closed = Mapping[DialectName | None, str]


class HoldingPart(NamedTuple):
    """What a pod holds in one dialect; assignment is None if its cards are unknown.

    closes: why its node accepts nothing new in that dialect, or "".
    """

    dialect: DialectName
    assignment: Any
    closes: str = ""


class Holding(NamedTuple):
    """What one pod holds of a node, by a reservation here or by a Binding in the API server.

    dialect is None for a pod without cards; with several dialects, it is the first, and *also* has the others.
    scale: meaning of the assignment's figures (`core.port.spec.Scaling`), as of when it was first counted.
    uses: what it asks by constraints that read use. unclear: why its own cards accept nothing new, or "".
    """

    key: str
    dialect: DialectName | None
    assignment: Any
    amounts: Amounts
    closes: str = ""
    also: tuple[HoldingPart, ...] = ()
    scale: Any = None
    uses: Signatures = ()
    unclear: str = ""

    @property
    def parts(self) -> tuple[HoldingPart, ...]:
        """What it holds, by dialect."""
        if self.dialect is None:
            return ()
        return (HoldingPart(self.dialect, self.assignment, self.closes), *self.also)

    @property
    def reason(self) -> str:
        """Why its node accepts nothing new in some dialect, or only its own cards accept nothing new; or ""."""
        return self._closes or self.unclear

    @property
    def _closes(self) -> str:
        return self.closes or next((part.closes for part in self.also if part.closes), "")

    def closed_text(self, node: str) -> str:
        """Return what of its *node* accepts nothing new because of it, and why; "" if nothing."""
        what = f"node {node} accepts" if self._closes else f"its cards on node {node} accept"
        return f"{what} no new shares while this pod is there: {self.reason}" if self.reason else ""


def offers_alike(before: Node, node: Node) -> bool:
    """Return whether two states of a node differ in nothing from which a dialect reads the cards that it offers."""
    if (
        before.labels != node.labels
        or before.allocatable != node.allocatable
        or before.capacity != node.capacity
        or before.documents != node.documents
    ):
        return False
    was, now = before.annotations, node.annotations
    if was == now:
        return True
    for key, text in now.items():
        if was.get(key) != text and key not in _LOCKS and not (key in was and key.startswith(_SIGNS)):
            return False
    return all(key in now or key in _LOCKS for key in was)


class There(Protocol):
    """The unused cards of a node by dialect, and the meaning of figures on them."""

    empty: Mapping[DialectName, tuple[Any, ...]]
    scales: Mapping[DialectName, object]


class Reader:
    """Reads what bound pods hold, under one configuration."""

    def __init__(self, catalog: Catalog, tables: Tables, constraints: Constraints) -> None:
        self.catalog: Final = catalog
        self._constraints: Final = constraints
        # Computed once, because it is slow and needed for every pod.
        self.scaled: Final = {one.name: one.scaling for one in catalog.specs if one.scaling is not None}
        self._tables: Final = tables
        # For dialects that share a resource with another: the annotations that only their own pods have.
        self._held_by: Final = {
            name: catalog.names(name, tables).assignment_keys - catalog.marks() for name in catalog.stands_in
        }
        # For dialects that assign cards by annotations: their resources.
        self._shares: Final = {
            name: one.resources for name, one in catalog.words(tables).names.items() if one.assignment_keys
        }

    def as_bound(self, known: Pod | None, held: Holding | None, pod: Pod) -> Pod:
        """Return *pod* with its *known* assignment, if that was readable.

        Schedulers write an assignment once, with the Binding, and plugins write their result once.
        """
        if known is None or held is None or known.node_name != pod.node_name:
            return pod
        read = [one.dialect for one in held.parts if one.assignment is not None and not one.closes]
        keys = [key for name in read for key in self.catalog.names(name, self._tables).assignment_keys]
        kept = {key: known.annotations[key] for key in keys if key in known.annotations}
        if all(pod.annotations.get(key) == text for key, text in kept.items()):
            return pod
        return pod._replace(annotations={**pod.annotations, **kept})

    def amounts(self, pod: Pod) -> Amounts:
        """Return what *pod* uses of its node, as kubelet counts it; only one of ``pods`` if that is unreadable."""
        try:
            return model.amounts_of(pod)
        except InvalidRequestError:
            return ((names.PODS, 1),)

    def counted(self, pod: Pod, there: "There | None", amounts: Amounts, before: Holding | None) -> Holding:
        """Return what bound *pod* holds, in every dialect for which it has an assignment, or a request without one.

        Args:
            pod: the bound pod.
            there: the cards of its node, None if the node does not exist.
            amounts: its use of the node, as kubelet counts it.
            before: what it held when it was last counted.
        """
        empty = there.empty if there is not None else {}
        found: list[HoldingPart] = []
        asked: frozenset[str] | None = None
        for name in self.catalog.concerned(pod, self._tables):
            held = self.catalog.dialects[name].held(pod, empty.get(name, ()), self._tables)
            if held is not None:
                found.append(HoldingPart(name, held.assignment, held.closes))
                continue
            # Without such annotations, only the request defines the cards, and `held` has read it.
            shares = self._shares.get(name)
            if shares is None:
                continue
            if asked is None:
                asked = asked_resources(pod)
            if not shares.isdisjoint(asked) and self.catalog.gives_cards(name, pod, self._tables):
                named = ", ".join(sorted(asked & shares))
                closes = f"pod {pod.key} asks for {named}, and nothing says which cards it uses; delete the pod"
                found.append(HoldingPart(name, None, closes))
        for name, other in self.catalog.stands_in.items() if len(found) > 1 else ():
            meant = name in empty or not self._held_by[name].isdisjoint(pod.annotations)
            found = _one_of_a_name(found, name, other, meant=meant)
        if not found:
            return Holding(pod.key, None, None, amounts, uses=self._constraints.uses_of(pod))
        (name, assignment, closes), *also = found
        scale, assignment, why = self._scaled(pod, found[0], there, before)
        uses = self._constraints.uses_of(pod)
        return Holding(pod.key, name, assignment, amounts, closes, tuple(also), scale, uses, why)

    def _scaled(
        self, pod: Pod, part: HoldingPart, there: "There | None", before: Holding | None
    ) -> tuple[object, Any, str]:
        """Return the meaning of the figures of *part*, its assignment, and why that takes whole cards, or ""."""
        name, assignment, _ = part
        scaling = self.scaled.get(name)
        if assignment is None or scaling is None:
            return None, assignment, ""
        now = there.scales[name] if there is not None else scaling.of_node(None, (), self._tables)
        since = before.scale if before is not None and before.dialect is name else None
        since = scaling.read(pod, assignment, now) if since is None else since
        if since is None or since is now:
            return now, assignment, ""
        kept, assignment, why = scaling.rescaled(assignment, since, now)
        if why:
            why = f"pod {pod.key} {why}, so what it takes is unknown; delete it, or wait until it is gone"
        return kept, assignment, why

    def scales(self, node: Node, empty: Mapping[DialectName, tuple[Any, ...]]) -> dict[DialectName, object]:
        """Return the meaning of figures on the cards of *node*."""
        return {name: one.of_node(node, empty.get(name, ()), self._tables) for name, one in self.scaled.items()}


def _one_of_a_name(
    found: list[HoldingPart], name: DialectName, other: DialectName, *, meant: bool
) -> list[HoldingPart]:
    """Return *found*; if two dialects sell by one resource, keep only the one that gave the pod its cards.

    *meant*: that is *name*, even if its cards are unreadable, because its annotations exist or it serves the node.
    """
    parts = {part.dialect: part for part in found}
    if name not in parts or other not in parts:
        return found
    left = other if meant or parts[name].assignment is not None else name
    return [part for part in found if part.dialect != left]


def asks_the_same(one: Pod, other: Pod) -> bool:
    """Return whether two states of one pod use the same of a node, apart from cards."""
    return (
        one.containers == other.containers
        and one.init_containers == other.init_containers
        and one.overhead == other.overhead
        and one.resources == other.resources
    )


def asked_resources(pod: Pod) -> frozenset[str]:
    """Return the resources that containers of *pod* name."""
    return frozenset([name for one in (*pod.containers, *pod.init_containers) for name in (*one.limits, *one.requests)])


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
