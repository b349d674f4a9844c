"""Who holds what: node -> immutable node state, replaced whole at every change, and a log of what changed.

The ledger is the one mutable thing in the core and belongs to one task. It never looks inside a dialect's cards.
Questions (what if, preview) are asked of a `fork`, which shares all states and costs a copy of one mapping.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from core import names, nodefit
from core.catalog import Catalog, rivals
from core.errors import InvalidRequestError, InvariantError
from core.model import Node, NodeName, Pod, PodUid
from core.nodefit import Amounts, NodeFacts
from core.port import Complaint, Stamp
from core.settings import DialectName, Settings, Tables

# A log longer than this is cut in half; a reader that is behind the cut reads everything anew.
_LOG_MAX: Final = 1 << 17
# How many nodes are judged anew between two pauses of `Ledger.configure`.
_SLICE: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What one pod is promised: its node, the dialect's assignment and the node resources it takes.

    score is the raw device score (before rounding and weight). asked_by: the pod as it was decided on; without it the
    promise is never read anew.
    """

    pod: PodUid
    pod_key: str
    node: NodeName
    dialect: DialectName
    assignment: Any
    amounts: Amounts
    score: float = 0.0
    asked_by: Pod | None = field(default=None, compare=False, repr=False)


class Holding(NamedTuple):
    """One pod's part of a node, reserved by us or bound as the API server says.

    dialect is None for a pod without cards; assignment is None where nothing says which cards it uses. closes: why its
    node takes nothing new in that dialect, or "".
    """

    key: str
    dialect: DialectName | None
    assignment: Any
    amounts: Amounts
    closes: str = ""


class NodeState(NamedTuple):
    """One node at one instant: offers maps dialect -> that dialect's cards with what is in use on them.

    used: what its pods take, by resource. closed: dialect -> why nothing new may be placed. Replaced, never changed;
    version is another one at every replacement, unique within its ledger (a fork numbers its own).
    """

    facts: NodeFacts
    offers: Mapping[DialectName, tuple[Any, ...]]
    used: Mapping[str, int]
    closed: Mapping[DialectName, str]
    complaints: tuple[Complaint, ...] = ()
    version: int = 0


@dataclass(slots=True)
class _Entry:
    """What a node's state is rebuilt from: the node as last seen, its cards with nothing in use, and its pods' parts.

    Pods are many, so *holders* changes in place, unlike a state; *owner* is whose ledger's it is to change.
    """

    node: Node
    empty: Mapping[DialectName, tuple[Any, ...]]
    complaints: tuple[Complaint, ...]
    holders: dict[PodUid, Holding]
    owner: object


class Ledger:
    """The cluster as promised: nodes set from the API, pods counted, placements reserved and released."""

    def __init__(self, catalog: Catalog, tables: Tables, settings: Settings) -> None:
        self.catalog: Final = catalog
        self.tables = tables
        self.settings = settings
        self.uncounted = catalog.uncounted(tables)
        self._shares = catalog.resources(tables)
        self.states: dict[NodeName, NodeState] = {}
        self._entries: dict[NodeName, _Entry] = {}
        self._owner = object()
        self._node_of: dict[PodUid, NodeName] = {}
        # Bound pods with cards, as last seen: their annotations are read again when their node's cards change.
        self._pods: dict[PodUid, Pod] = {}
        # What is promised and not seen bound yet: read again as its Binding will say it, when its node's cards change.
        self._promised: dict[PodUid, Placement] = {}
        # Pods bound to nodes that are not there: counted on no card, kept for when the node appears.
        self._stray: dict[NodeName, dict[PodUid, Holding]] = {}
        self._log: list[NodeName] = []
        self._log_start = 0
        self._version = 0

    # ------------------------------------------------------------------ reading

    @property
    def cursor(self) -> int:
        """The position behind the last change."""
        return self._log_start + len(self._log)

    def changes_since(self, cursor: int) -> list[NodeName] | None:
        """The nodes changed since *cursor*, oldest first, repeats included; None if that is too long ago."""
        if cursor < self._log_start:
            return None
        return self._log[cursor - self._log_start :]

    def node_of(self, pod: PodUid) -> NodeName | None:
        """The node on which *pod* holds something, reserved or bound."""
        return self._node_of.get(pod)

    def holding(self, pod: PodUid) -> Holding | None:
        """What *pod* holds, reserved or bound."""
        node = self._node_of.get(pod)
        if node is None:
            return None
        return self.holders(node).get(pod)

    def holders(self, name: NodeName) -> Mapping[PodUid, Holding]:
        """What is held on *name*, whether it exists or not; to be read before anything changes."""
        entry = self._entries.get(name)
        return entry.holders if entry is not None else self._stray.get(name, {})

    def stray_pods(self) -> tuple[tuple[NodeName, str], ...]:
        """(node, pod key) of pods bound to nodes that do not exist."""
        return tuple((node, holding.key) for node, held in self._stray.items() for holding in held.values())

    def node(self, name: NodeName) -> Node | None:
        """The node as last seen."""
        entry = self._entries.get(name)
        return entry.node if entry is not None else None

    def nodes(self) -> Iterable[Node]:
        """Every node as last seen."""
        return (entry.node for entry in self._entries.values())

    def empty_cards(self, name: NodeName, dialect: DialectName) -> tuple[Any, ...]:
        """The cards of *name* in one dialect as if nobody held anything."""
        return self._entries[name].empty.get(dialect, ())

    # ------------------------------------------------------------------ promising

    def reserve(self, placement: Placement) -> None:
        """Promise *placement*; a second time is nothing.

        Raises:
            InvariantError: the pod holds something else, the node is gone or offers no such cards, or a card would be
                over its total.
        """
        node = self._node_of.get(placement.pod)
        state = self.states.get(placement.node)
        if node is not None:
            held = self.holding(placement.pod)
            known = self._promised.get(placement.pod) == placement
            if known or (node == placement.node and held is not None and held.assignment == placement.assignment):
                return
            raise InvariantError(f"{placement.pod_key} is promised to {placement.node} but holds cards on {node}")
        if state is None:
            raise InvariantError(f"{placement.pod_key} is promised to {placement.node}, which does not exist")
        if placement.dialect not in state.offers:
            raise InvariantError(
                f"{placement.pod_key} is promised {placement.dialect} on {placement.node}: no such offer"
            )
        holding = Holding(placement.pod_key, placement.dialect, placement.assignment, placement.amounts)
        changed = self._with(state, holding)
        dialect = self.catalog.dialects[placement.dialect]
        over = dialect.overcommitted(changed.offers[placement.dialect])
        # A card that shrank under its holders is over its total already; it must not be this promise's doing.
        if over and set(over) - set(dialect.overcommitted(state.offers[placement.dialect])):
            raise InvariantError(f"{placement.pod_key} on {placement.node}: {'; '.join(over)}")
        self._node_of[placement.pod] = placement.node
        self._promised[placement.pod] = placement
        self._own(placement.node).holders[placement.pod] = holding
        self._put(placement.node, changed)

    def release(self, pod: PodUid) -> bool:
        """Take back all that *pod* holds; False if it holds nothing (a second time is nothing)."""
        node = self._node_of.pop(pod, None)
        self._pods.pop(pod, None)
        self._promised.pop(pod, None)
        if node is None:
            return False
        state = self.states.get(node)
        if state is None:
            stray = self._stray.get(node, {})
            stray.pop(pod, None)
            if not stray:
                self._stray.pop(node, None)
            return True
        holders = self._own(node).holders
        holding = holders.pop(pod, None)
        if holding is None:
            raise InvariantError(f"pod {pod} is not among the holders of {node}")
        self._put(node, self._without(state, holding, holders.values()))
        return True

    def count(self, pod: Pod) -> bool:
        """Count bound *pod* by what the API server says of it, whoever bound it; replaces a reservation.

        A finished pod is released. A pod that holds the same as before changes nothing on the node. It goes on holding
        what it was first seen bound with, whatever its annotations say later: nobody moves a running container. False
        where they say another thing.
        """
        name = NodeName(pod.node_name)
        if pod.finished or not name:
            self.release(pod.uid)
            return True
        before = self.holding(pod.uid)
        state = self.states.get(name)
        known = self._pods.get(pod.uid)
        told, pod = pod, self._as_bound(known, before, pod)
        # Annotations change some times for each pod; what it takes beside its cards is parsed once.
        amounts = before.amounts if before and known and _asks_the_same(known, pod) else self._amounts(pod)
        holding = self._counted(pod, state.offers if state is not None else {}, amounts)
        if before is None or self._node_of.get(pod.uid) != name or before != holding:
            self.release(pod.uid)
            self._node_of[pod.uid] = name
            state = self.states.get(name)
            if state is None:
                self._stray.setdefault(name, {})[pod.uid] = holding
            else:
                self._own(name).holders[pod.uid] = holding
                self._put(name, self._with(state, holding))
        self._promised.pop(pod.uid, None)
        if holding.dialect is not None:
            self._pods[pod.uid] = pod
        return told is pod or self._counted(told, state.offers if state is not None else {}, amounts) == holding

    def _as_bound(self, known: Pod | None, held: Holding | None, pod: Pod) -> Pod:
        """*pod* with the assignment that it is *known* to be bound with, if that could be read.

        Schedulers write an assignment with the Binding, and plugins what they made of it, once.
        """
        if known is None or held is None or held.dialect is None or held.assignment is None or held.closes:
            return pod
        if known.node_name != pod.node_name:
            return pod
        keys = self.catalog.dialects[held.dialect].assignment_keys(self.tables)
        kept = {key: known.annotations[key] for key in keys if key in known.annotations}
        if all(pod.annotations.get(key) == text for key, text in kept.items()):
            return pod
        return replace(pod, annotations={**pod.annotations, **kept})

    def _amounts(self, pod: Pod) -> Amounts:
        try:
            return nodefit.amounts_of(pod, self.uncounted)
        except InvalidRequestError:
            return ((names.PODS, 1),)

    def _counted(self, pod: Pod, offers: Mapping[DialectName, tuple[Any, ...]], amounts: Amounts) -> Holding:
        for name, dialect in self.catalog.dialects.items():
            held = dialect.held(pod, offers.get(name, ()), self.tables)
            if held is not None:
                return Holding(pod.key, name, held.assignment, amounts, held.closes)
        return self._unassigned(pod, amounts)

    def _unassigned(self, pod: Pod, amounts: Amounts) -> Holding:
        """A bound pod without an assignment: if it asks for shares, it may use any card of its node."""
        asked = {name for one in (*pod.containers, *pod.init_containers) for name in (*one.limits, *one.requests)}
        if not self._shares.isdisjoint(asked):
            for name, dialect in self.catalog.dialects.items():
                # Where no annotation says which cards, the request is all there is, and `held` has read it.
                if dialect.assignment_keys(self.tables) and self.catalog.gives_cards(name, pod, self.tables):
                    named = ", ".join(sorted(asked & dialect.resources(self.tables)))
                    closes = f"pod {pod.key} asks for {named}, and nothing says which cards it uses; delete the pod"
                    return Holding(pod.key, name, None, amounts, closes)
        return Holding(pod.key, None, None, amounts)

    # ------------------------------------------------------------------ the cluster

    def set_node(self, node: Node) -> bool:
        """Take *node* as the API server says it; False if nothing that matters here changed."""
        empty, complaints = self.catalog.offers(node, self.tables, self.settings)
        facts = nodefit.facts_of(node)
        old = self.states.get(node.name)
        if old is None:
            holders = self._stray.pop(node.name, {})
            entry = self._entries[node.name] = _Entry(node, empty, complaints, holders, self._owner)
        else:
            entry = self._own(node.name)
            entry.node = node
            if old.facts == facts and entry.empty == empty and entry.complaints == complaints:
                return False
            facts = old.facts if old.facts == facts else facts
            entry.empty, entry.complaints = empty, complaints
        self._put(node.name, self._rebuilt(facts, entry))
        return True

    def remove_node(self, name: NodeName) -> bool:
        """Forget *name*; its pods stay known as strays until they are gone too."""
        if self.states.pop(name, None) is None:
            return False
        holders = self._own(name).holders
        del self._entries[name]
        if holders:
            self._stray[name] = holders
        self._changed(name)
        return True

    def configure(self, tables: Tables, settings: Settings) -> Iterator[None]:
        """Judge everything anew under *tables* and *settings*, in slices of a few milliseconds.

        Until the last of them nodes stand under either configuration: nothing may be decided or changed between them.
        """
        self.tables, self.settings = tables, settings
        self.uncounted = self.catalog.uncounted(tables)
        self._shares = self.catalog.resources(tables)
        for at, name in enumerate(self._entries, start=1):
            entry = self._own(name)
            entry.empty, entry.complaints = self.catalog.offers(entry.node, tables, settings)
            self._put(name, self._rebuilt(self.states[name].facts, entry))
            if at % _SLICE == 0:
                yield

    def fork(self) -> "Ledger":
        """A ledger with the same states, for trying: what happens to it does not happen here."""
        twin = Ledger(self.catalog, self.tables, self.settings)
        twin.states = dict(self.states)
        twin._entries = dict(self._entries)
        # From now on either copies an entry before it changes it.
        self._owner = object()
        twin._node_of = dict(self._node_of)
        twin._pods = dict(self._pods)
        twin._promised = dict(self._promised)
        twin._stray = {node: dict(held) for node, held in self._stray.items()}
        return twin

    def state_without(self, name: NodeName, pod: PodUid) -> NodeState:
        """Node *name* as it would be if *pod* held nothing there; changes nothing."""
        state, holders = self.states[name], self.holders(name)
        holding = holders.get(pod)
        if holding is None:
            return state
        return self._without(state, holding, (one for uid, one in holders.items() if uid != pod))

    def overcommitted(self, name: NodeName) -> tuple[str, ...]:
        """The cards of *name* that hold more than they have, each as a sentence with numbers."""
        state = self.states[name]
        return tuple(
            text for which, cards in state.offers.items() for text in self.catalog.dialects[which].overcommitted(cards)
        )

    # ------------------------------------------------------------------ states

    def _own(self, name: NodeName) -> _Entry:
        """What *name* is rebuilt from, to be changed here and in no fork."""
        entry = self._entries[name]
        if entry.owner is not self._owner:
            entry = replace(entry, holders=dict(entry.holders), owner=self._owner)
            self._entries[name] = entry
        return entry

    def _rebuilt(self, facts: NodeFacts, entry: _Entry) -> NodeState:
        """The node's state from nothing: every holder is counted again on the cards as they are now."""
        offers = dict(entry.empty)
        used: dict[str, int] = {}
        holders = entry.holders
        for uid, old in holders.items():
            holding = self._recounted(uid, entry.empty) or old
            holders[uid] = holding
            if holding.dialect is not None and holding.assignment is not None and holding.dialect in offers:
                dialect = self.catalog.dialects[holding.dialect]
                offers[holding.dialect] = dialect.take(offers[holding.dialect], holding.assignment)
            for resource, amount in holding.amounts:
                used[resource] = used.get(resource, 0) + amount
        return NodeState(facts, offers, used, _closed(holders.values(), offers), entry.complaints, self._next())

    def _recounted(self, uid: PodUid, offers: Mapping[DialectName, tuple[Any, ...]]) -> Holding | None:
        """What *uid* holds of *offers*, read anew; None where there is nothing to read it from.

        A promise is read as its Binding will say it, by the rules and layouts that are in force now.
        """
        pod = self._pods.get(uid)
        if pod is not None:
            return self._counted(pod, offers, self._amounts(pod))
        placement = self._promised.get(uid)
        if placement is None or placement.asked_by is None:
            return None
        pod, stamp = placement.asked_by, Stamp(node=placement.node, now_s=0, order=0)
        said = self.catalog.dialects[placement.dialect].annotations(placement.assignment, stamp, self.tables)
        found = self._counted(replace(pod, annotations={**pod.annotations, **said}), offers, self._amounts(pod))
        return found if found.dialect is placement.dialect else None

    def _with(self, state: NodeState, holding: Holding) -> NodeState:
        """*state* after *holding* is held too."""
        offers, closed = state.offers, state.closed
        if holding.dialect is not None:
            if holding.assignment is not None and holding.dialect in offers:
                dialect = self.catalog.dialects[holding.dialect]
                offers = {**offers, holding.dialect: dialect.take(offers[holding.dialect], holding.assignment)}
            closed = {**_closed((holding,), offers), **closed}
        used = dict(state.used)
        for resource, amount in holding.amounts:
            used[resource] = used.get(resource, 0) + amount
        return NodeState(state.facts, offers, used, closed, state.complaints, self._next())

    def _without(self, state: NodeState, holding: Holding, left: Iterable[Holding]) -> NodeState:
        """*state* after *holding* is given back; *left* are held still."""
        offers, closed = state.offers, state.closed
        if holding.dialect is not None:
            if holding.assignment is not None and holding.dialect in offers:
                dialect = self.catalog.dialects[holding.dialect]
                offers = {**offers, holding.dialect: dialect.give_back(offers[holding.dialect], holding.assignment)}
            if closed:
                closed = _closed(left, offers)
        used = dict(state.used)
        for resource, amount in holding.amounts:
            used[resource] -= amount
        return NodeState(state.facts, offers, used, closed, state.complaints, self._next())

    def _next(self) -> int:
        self._version += 1
        return self._version

    def _put(self, name: NodeName, state: NodeState) -> None:
        self.states[name] = state
        self._changed(name)

    def _changed(self, name: NodeName) -> None:
        self._log.append(name)
        if len(self._log) > _LOG_MAX:
            cut = len(self._log) // 2
            del self._log[:cut]
            self._log_start += cut


def _asks_the_same(one: Pod, other: Pod) -> bool:
    """Whether two states of one pod take the same of a node, beside cards."""
    return (
        one.containers == other.containers
        and one.init_containers == other.init_containers
        and one.overhead == other.overhead
    )


def _closed(holders: Iterable[Holding], offers: Mapping[DialectName, Any]) -> dict[DialectName, str]:
    """What takes nothing new on a node, and why: where a holder cannot be read, and where its cards are sold twice.

    Of protocols that sell the same cards a node serves the one in use; the others wait until that one is empty.
    """
    closed: dict[DialectName, str] = {}
    for holding in holders:
        name = holding.dialect
        if name is None:
            continue
        if holding.closes:
            closed[name] = holding.closes
        if len(offers) > 1:
            for rival in rivals(name):
                if rival in offers and rival not in closed:
                    closed[rival] = f"its cards are in use as {name} by pod {holding.key}"
    return closed
