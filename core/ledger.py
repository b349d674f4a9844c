"""What each pod holds: node -> immutable node state, replaced as a whole at every change, and a log of changes.

The ledger is the only mutable object in the core and belongs to one task. It never looks inside a dialect's cards.
Questions (what if, preview) use a `fork`, which shares all states and costs a copy of one mapping.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeVar

from core import model
from core.catalog import Catalog, Words
from core.claims import Use
from core.constraints.constraint import ChangeLog, Constraint, Constraints, Signatures
from core.constraints.every import every
from core.constraints.images import Images
from core.constraints.resource_claims import closed_by_claims
from core.constraints.topology.counting import Topology
from core.constraints.volumes import Volumes
from core.errors import InvariantError, NodeInvariantError
from core.model import Amounts, Node, NodeFacts, NodeName, Pod, PodUid, container_names
from core.node_state import (
    Closed,
    Holding,
    NodeState,
    Offers,
    Reader,
    asked_resources,
    asks_the_same,
    offers_alike,
    state_of,
    state_with,
    state_without,
)
from core.port.handoff import Stamp
from core.port.refusals import DESERTED, UNSTEADY, CardFault, Complaint, Reason
from core.settings import DialectName, Settings, Tables

# The number of logged changes for readers.
_LOG_MAX: Final = 1 << 17
# The number of nodes that are judged between two pauses of `Ledger.configure`.
_SLICE: Final = 8

_T = TypeVar("_T")


class Placement(NamedTuple):
    """A promise to one pod: its node, the dialect's assignment, and its use of the node as kubelet counts it.

    score is the raw device score (before rounding and weight). asked_by: the pod as judged; without it the promise is
    never read again. dialect is None for a pod without cards. uses: what it asks by constraints that read use.
    """

    pod: PodUid
    pod_key: str
    node: NodeName
    dialect: DialectName | None
    assignment: Any
    amounts: Amounts
    score: float = 0.0
    uses: Signatures = ()
    asked_by: Pod | None = None


_Read = tuple[Offers, tuple[Complaint, ...]]


@dataclass(slots=True)
class _Entry:
    """The source of a node's state: the node as last seen, its unused cards, and what its pods hold.

    There are many pods, so *holders* changes in place, unlike a state; only the ledger *owner* may change it.
    read: what the dialects read of the node, its cards and complaints; empty: the same cards, of which some may be
    closed. scales: meaning of figures on its cards. aside: why nothing new is placed on it in any dialect, or "".
    shut: the same by dialect, because of resource claims, or because its device plugin has left the node.
    """

    node: Node
    read: _Read
    empty: Offers
    complaints: tuple[Complaint, ...]
    holders: dict[PodUid, Holding]
    owner: Any
    scales: Mapping[DialectName, object]
    aside: str = ""
    shut: Closed = field(default_factory=dict)

    @property
    def closed(self) -> Closed:
        """Return what accepts nothing new, whatever its pods hold, with reasons."""
        return dict.fromkeys((*self.empty, None), self.aside) if self.aside else self.shut


# A pod's node, the pod as counted, its promise, and its place for each constraint that tracks pods.
_Before = tuple[NodeName | None, Pod | None, Placement | None, tuple[Any, ...]]
_NOTHING: Final[_Before] = (None, None, None, ())


class Trial:
    """Reservations that are undone unless kept, with the former state of the nodes and pods that they touched.

    Attributes:
        kept: whether they stay.
    """

    __slots__ = ("before", "kept", "nodes", "outer", "owner")

    def __init__(self, owner: object, outer: "Trial | None") -> None:
        self.kept = False
        self.owner: Final = owner
        self.outer: Final = outer
        self.nodes: Final[dict[NodeName, tuple[NodeState, _Entry]]] = {}
        self.before: Final[dict[PodUid, _Before]] = {}

    def keep(self) -> None:
        """Keep all reservations and releases when the trial ends."""
        self.kept = True


class Ledger:
    """The cluster as promised: nodes from the API, counted pods, reserved and released placements."""

    def __init__(
        self,
        catalog: Catalog,
        tables: Tables,
        settings: Settings,
        *,
        topology: Topology | None = None,
        volumes: Volumes | None = None,
        constraints: Callable[[Topology, Volumes], Iterable[Constraint]] = every,
    ) -> None:
        """Begin without nodes and pods, but those that *topology* and *volumes* know; *constraints*: all of them."""
        self.catalog: Final = catalog
        self.tables = tables
        self.settings = settings
        self.states: dict[NodeName, NodeState] = {}
        # Where its pods are, promised or bound, and their volumes; constraints read that.
        self.topology: Final = topology or Topology()
        self.volumes: Final = volumes or Volumes()
        self._every: Final = constraints
        self.constraints: Final = Constraints(constraints(self.topology, self.volumes))
        self._reader = Reader(catalog, tables, self.constraints)
        # The images of nodes; a fork reads the cluster's current ones.
        self.images = Images()
        self._keeps_images = True
        self._entries: dict[NodeName, _Entry] = {}
        self._owner = object()
        self._node_of: dict[PodUid, NodeName] = {}
        # Bound pods with cards, or with cards under another configuration, as last seen: they are read again when their
        # node's cards or the configuration change.
        self._pods: dict[PodUid, Pod] = {}
        # Promises that were not seen bound yet; they are read again, as their Binding will be, when their node's cards
        # change.
        self._promised: dict[PodUid, Placement] = {}
        # Pods bound to missing nodes: they count on no card, and are kept in case the node appears.
        self._stray: dict[NodeName, dict[PodUid, Holding]] = {}
        # Unbound pods that count on the node that another scheduler nominated for them.
        self.nominated: Final[set[PodUid]] = set()
        self._log = ChangeLog(_LOG_MAX)
        # Nodes that may now take what they refused before; a new promise does not count. The reader removes them.
        self.opened: Final[dict[NodeName, None]] = {}
        # Cards that accept nothing new although they are healthy.
        self._unsteady: dict[NodeName, Mapping[DialectName, frozenset[str]]] = {}
        # What pods use through resource claims, by node, whether or not the node exists.
        self._uses: dict[NodeName, tuple[Use, ...]] = {}
        # How many cards of a node these close, by dialect.
        self._claimed: dict[NodeName, dict[DialectName, int]] = {}
        self._version = 0
        self._trial: Trial | None = None

    # ------------------------------------------------------------------ reading

    @property
    def words(self) -> Words:
        """The names of dialects, and the resources that request cards, under this configuration."""
        return self.catalog.words(self.tables)

    def resources_of(self, dialect: DialectName | None) -> frozenset[str]:
        """Return the resources that request cards of *dialect*; none for None."""
        return self.words.names[dialect].resources if dialect else frozenset()

    @property
    def cursor(self) -> int:
        """The position after the last change."""
        return self._log.cursor

    def changes_since(self, cursor: int) -> list[NodeName] | None:
        """Return the nodes changed since *cursor*, oldest first, with repetitions; None if some were dropped."""
        return self._log.since(cursor)

    def node_of(self, pod: PodUid) -> NodeName | None:
        """Return the node on which *pod* holds something, reserved or bound."""
        return self._node_of.get(pod)

    def holding(self, pod: PodUid) -> Holding | None:
        """Return what *pod* holds, reserved or bound."""
        node = self._node_of.get(pod)
        if node is None:
            return None
        return self.holders(node).get(pod)

    def holders(self, name: NodeName) -> Mapping[PodUid, Holding]:
        """Return what is held on *name*, whether or not it exists; a live view, valid until the next change."""
        entry = self._entries.get(name)
        return entry.holders if entry is not None else self._stray.get(name, {})

    def held(self) -> Iterator[tuple[PodUid, Holding]]:
        """Yield every pod that holds something, on nodes that exist and on others, with what it holds."""
        for entry in self._entries.values():
            yield from entry.holders.items()
        for held in self._stray.values():
            yield from held.items()

    def counted(self, pod: PodUid) -> Pod | None:
        """Return a bound pod with cards, with the annotations that count; None for others."""
        return self._pods.get(pod)

    def asked_by(self, pod: PodUid) -> Pod | None:
        """Return a pod with cards, bound or promised, as it was judged; None if unknown."""
        promise = self._promised.get(pod)
        return promise.asked_by if promise is not None else self._pods.get(pod)

    def recount(self, name: NodeName) -> None:
        """Compute the state of *name* again from its holders."""
        self._certain()
        if name in self.states:
            self._put(name, self._rebuilt(self.states[name].facts, self._own(name)))

    def stray_pods(self) -> tuple[tuple[NodeName, str], ...]:
        """Return (node, pod key) of pods bound to missing nodes."""
        return tuple((node, holding.key) for node, holding in self._stray_holdings())

    def stray_pods_with_cards(self) -> tuple[tuple[NodeName, str], ...]:
        """Return (node, pod key) of those that have cards."""
        return tuple((node, holding.key) for node, holding in self._stray_holdings() if holding.parts)

    def _stray_holdings(self) -> Iterator[tuple[NodeName, Holding]]:
        return ((node, holding) for node, held in self._stray.items() for holding in held.values())

    def node(self, name: NodeName) -> Node | None:
        """Return the node as last seen."""
        entry = self._entries.get(name)
        return entry.node if entry is not None else None

    def nodes(self) -> Iterable[Node]:
        """Return every node as last seen."""
        return (entry.node for entry in self._entries.values())

    def offered(self, name: NodeName) -> Offers:
        """Return the unused cards of *name* by dialect; the same object while they do not change."""
        return self._entries[name].empty

    def empty_cards(self, name: NodeName, dialect: DialectName | None) -> tuple[Any, ...]:
        """Return the unused cards of *name* in one dialect."""
        return self.states[name]._replace(offers=self._entries[name].empty, used={}).cards(dialect)

    # ------------------------------------------------------------------ promising

    def reserve(self, placement: Placement) -> None:
        """Reserve *placement*; idempotent.

        Raises:
            InvariantError: the pod holds something else, or the node is gone; a `NodeInvariantError` if the node takes
                nothing in this dialect, or a card would exceed its total.
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
        name = placement.dialect
        if name in state.closed or (name is not None and name not in state.offers):
            what, why = name or "no dialect", state.closed.get(name, "it offers no such cards")
            raise NodeInvariantError(placement.node, f"cards of {what} are promised ({why}) to pod {placement.pod_key}")
        holding = self._held_by(placement)
        changed = state_with(state, holding, self.catalog, self.constraints, self._next())
        # A card that shrank under its holders already exceeds its total; only a new excess is an error.
        over = self._over(name, changed, state)
        if over and set(over) - set(self._over(name, state, changed)):
            raise NodeInvariantError(placement.node, f"{'; '.join(over)}, with pod {placement.pod_key}")
        self._remember(placement.pod)
        self._node_of[placement.pod] = placement.node
        self._promised[placement.pod] = placement
        self._own(placement.node).holders[placement.pod] = holding
        if placement.asked_by is not None:
            self.constraints.put(placement.asked_by, placement.node)
        self._put(placement.node, changed, opens=False)

    def _held_by(self, placement: Placement) -> Holding:
        if placement.dialect is None:
            return Holding(placement.pod_key, None, None, placement.amounts, uses=placement.uses)
        scale = self._entries[placement.node].scales.get(placement.dialect)
        # By position: with the names of its fields, a record takes four times as long.
        found = placement.pod_key, placement.dialect, placement.assignment, placement.amounts
        return Holding(*found, "", (), scale, placement.uses)

    def _over(self, name: DialectName | None, state: NodeState, other: NodeState) -> tuple[str, ...]:
        """Return the cards in *name* that exceed their totals in *state* and are not the same in *other*."""
        if name is None:
            return ()
        before = other.offers[name]
        changed = [card for slot, card in enumerate(state.offers[name]) if card is not before[slot]]
        return self.catalog.dialects[name].overcommitted(changed)

    def release(self, pod: PodUid) -> bool:
        """Release all that *pod* holds; return False if it holds nothing (idempotent)."""
        self._remember(pod)
        self.constraints.drop(pod)
        self.nominated.discard(pod)
        node = self._node_of.pop(pod, None)
        self._pods.pop(pod, None)
        self._promised.pop(pod, None)
        if node is None:
            return False
        state = self.states.get(node)
        if state is None:
            self._certain()
            stray = self._stray.get(node, {})
            stray.pop(pod, None)
            if not stray:
                self._stray.pop(node, None)
            return True
        holders = self._own(node).holders
        holding = holders.pop(pod, None)
        if holding is None:
            raise InvariantError(f"pod {pod} is not among the holders of {node}")
        self._put(node, self._without(node, state, holding, holders.values()))
        return True

    def restore(self, pod: PodUid) -> None:
        """Let *pod*, which was released in the current trial or an outer one, hold again what it held before.

        Raises:
            InvariantError: it was not released, or holds something.
        """
        trial = self._trial
        while trial is not None and trial.before.get(pod, _NOTHING)[0] is None:
            trial = trial.outer
        node, known, placement, seats = trial.before[pod] if trial is not None else _NOTHING
        if trial is None or node is None or pod in self._node_of:
            raise InvariantError(f"pod {pod} was not released in a trial, or holds something")
        holding = trial.nodes[node][1].holders[pod]
        self._remember(pod)
        self._own(node).holders[pod] = holding
        self._node_of[pod] = node
        _set(self._pods, pod, known)
        _set(self._promised, pod, placement)
        self.constraints.restore(pod, seats)
        state = state_with(self.states[node], holding, self.catalog, self.constraints, self._next())
        self._put(node, state, opens=False)

    @contextmanager
    def trial(self) -> Iterator[Trial]:
        """Reserve and release inside; unless the trial is kept, everything is restored at its end, however it ends.

        The former states are restored with their versions, so cached verdicts stay valid. Nothing else may change in
        the meantime; a trial inside another one is kept only if the outer one is.
        """
        trial = self._trial = Trial(self._owner, self._trial)
        # Until the end, entries are copied before they change.
        self._owner = object()
        try:
            yield trial
        except BaseException:
            trial.kept = False
            raise
        finally:
            self._trial, self._owner = trial.outer, trial.owner
            if trial.kept:
                self._keep(trial)
            else:
                self._put_back(trial)

    def _keep(self, trial: Trial) -> None:
        for name in trial.nodes:
            self._entries[name].owner = self._owner
        if trial.outer is not None:
            for name, known in trial.nodes.items():
                trial.outer.nodes.setdefault(name, known)
            for uid, held in trial.before.items():
                trial.outer.before.setdefault(uid, held)

    def _put_back(self, trial: Trial) -> None:
        for name, (state, entry) in trial.nodes.items():
            self._entries[name] = entry
            if self.states[name] is not state:
                self._put(name, state, opens=False)
        for uid, (node, pod, placement, seats) in trial.before.items():
            self.constraints.restore(uid, seats)
            _set(self._node_of, uid, node)
            _set(self._pods, uid, pod)
            _set(self._promised, uid, placement)

    def _remember(self, uid: PodUid) -> None:
        """Save what *uid* holds before it changes, if it may have to be restored."""
        if self._trial is not None and uid not in self._trial.before:
            self._trial.before[uid] = (
                self._node_of.get(uid),
                self._pods.get(uid),
                self._promised.get(uid),
                self.constraints.seats(uid),
            )

    def _certain(self) -> None:
        """Ensure that no trial is in progress before the cluster's state changes."""
        if self._trial is not None:
            raise InvariantError("nodes, bound pods and configuration do not change in the middle of a trial")

    def set_aside(self, name: NodeName, why: str) -> None:
        """Place nothing new on *name*, whose state is contradictory, until its cards or the configuration change."""
        self._certain()
        state = self.states.get(name)
        if state is not None:
            entry = self._own(name)
            entry.aside = why
            self._put(name, self._rebuilt(state.facts, entry))

    @property
    def aside(self) -> Mapping[NodeName, str]:
        """Return the nodes that were set aside, with reasons."""
        return {name: entry.aside for name, entry in self._entries.items() if entry.aside}

    def count(self, pod: Pod) -> bool:
        """Count a *pod* that any scheduler bound, as the API server shows it; replaces a reservation.

        A finished pod is released. A pod that holds the same as before changes nothing on the node. It keeps what it
        was first seen bound with, whatever its annotations say later, because a running container never moves. Return
        False if they differ.
        """
        self._certain()
        name = NodeName(pod.node_name)
        if pod.finished or not name:
            self.release(pod.uid)
            return True
        before = self.holding(pod.uid)
        known = self._pods.get(pod.uid)
        told, pod = pod, self._reader.as_bound(known, before, pod)
        # The annotations of each pod change several times; its other resources are parsed once.
        amounts = before.amounts if before and known and asks_the_same(known, pod) else self._reader.amounts(pod)
        entry = self._entries.get(name)
        holding = self._reader.counted(pod, entry, amounts, before)
        if before is None or self._node_of.get(pod.uid) != name or before != holding:
            self._hold(pod.uid, name, holding)
        self.nominated.discard(pod.uid)
        self.constraints.put(pod, name)
        self._promised.pop(pod.uid, None)
        if holding.dialect is not None or any("/" in resource for resource in asked_resources(pod)):
            self._pods[pod.uid] = pod
        return told is pod or self._reader.counted(told, entry, amounts, before) == holding

    def nominate(self, pod: Pod) -> None:
        """Count the resources of another scheduler's *pod* on its nominated node."""
        self._certain()
        name = NodeName(pod.nominated_node)
        holding = Holding(pod.key, None, None, self._reader.amounts(pod), uses=self.constraints.uses_of(pod))
        if self._node_of.get(pod.uid) != name or self.holding(pod.uid) != holding:
            self._hold(pod.uid, name, holding)
        self.nominated.add(pod.uid)
        self.constraints.put(pod, name)

    def _hold(self, uid: PodUid, name: NodeName, holding: Holding) -> None:
        """Let *uid* hold exactly *holding*, on *name*."""
        self.release(uid)
        self._node_of[uid] = name
        state = self.states.get(name)
        if state is None:
            self._stray.setdefault(name, {})[uid] = holding
        else:
            self._own(name).holders[uid] = holding
            state = state_with(state, holding, self.catalog, self.constraints, self._next())
            self._put(name, state, opens=False)

    def told_of(self, placement: Placement) -> Mapping[str, str]:
        """Return what the Binding of the reserved *placement* has besides its dialect's annotations."""
        scaling = self._reader.scaled.get(placement.dialect) if placement.dialect is not None else None
        holding = self.holding(placement.pod)
        if scaling is None or holding is None or holding.scale is None:
            return {}
        return scaling.told(placement.assignment, holding.scale)

    def metered(self, dialect: DialectName | None, assignment: object) -> Mapping[str, int]:
        """Return what *assignment* takes of queue and namespace, besides the resources of its node."""
        if dialect is None or assignment is None:
            return {}
        return self.catalog.dialects[dialect].metered(assignment, self.tables)

    def described(self, placement: Placement) -> str:
        """Return where a pod went, card by card: ``gpu-3: GPU-0 (4096 MiB, 25 % cores)``; without cards the node."""
        state = self.states.get(placement.node)
        if placement.dialect is None:
            return placement.node
        cards = state.cards(placement.dialect) if state is not None else ()
        shares = self.catalog.dialects[placement.dialect].describe(placement.assignment, cards)
        return f"{placement.node}: " + ", ".join(f"{one.card} ({one.text})" for one in shares)

    # ------------------------------------------------------------------ the cluster

    def set_node(self, node: Node) -> bool:
        """Update *node* from the API server; return False if nothing relevant changed."""
        self._certain()
        if self._keeps_images:
            self.images.set_node(node.name, node.images)
        old = self.states.get(node.name)
        known = self._entries[node.name] if old is not None else None
        # Most writes to a node change nothing that a dialect reads, and reading a register is slow.
        is_read = known is not None and offers_alike(known.node, node)
        read = known.read if known is not None and is_read else self._read(node)
        empty, complaints, shut = self._offers(node, read)
        facts = model.facts_of(node, has_cards=any(empty.values()))
        if old is None:
            holders = self._stray.pop(node.name, {})
            scales = self._reader.scales(node, empty)
            entry = _Entry(node, read, empty, complaints, holders, self._owner, scales, shut=shut)
            self._entries[node.name] = entry
        else:
            entry = self._own(node.name)
            if entry.empty != empty or not is_read:
                entry.scales = self._reader.scales(node, empty)
            entry.node, entry.read = node, read
            same = entry.empty == empty and entry.complaints == complaints and entry.shut == shut
            if old.facts == facts and same:
                return False
            facts = old.facts if old.facts == facts else facts
            if entry.empty != empty:
                entry.empty, entry.aside = empty, ""
            entry.complaints, entry.shut = complaints, shut
        self.constraints.set_node(facts)
        self._put(node.name, self._rebuilt(facts, entry))
        return True

    def keep_out(self, name: NodeName, cards: Mapping[DialectName, frozenset[str]]) -> bool:
        """Place nothing new on these *cards* of a node, by name, but on all others; return False if nothing changed."""
        if cards:
            self._unsteady[name] = cards
        else:
            self._unsteady.pop(name, None)
        entry = self._entries.get(name)
        return entry is not None and self.set_node(entry.node)

    def set_uses(self, name: NodeName, uses: tuple[Use, ...]) -> bool:
        """Close the cards of a node that pods use through resource claims; return False if nothing changed."""
        if uses == self._uses.get(name, ()):
            return False
        if uses:
            self._uses[name] = uses
        else:
            del self._uses[name]
        entry = self._entries.get(name)
        return entry is not None and self.set_node(entry.node)

    def uses(self, name: NodeName) -> tuple[Use, ...]:
        """Return what pods use of a node through resource claims."""
        return self._uses.get(name, ())

    def claimed_cards(self) -> dict[DialectName, int]:
        """Return how many cards accept nothing new because of resource claims, by dialect."""
        found = dict.fromkeys(self.catalog.dialects, 0)
        for counts in self._claimed.values():
            for name, count in counts.items():
                found[name] += count
        return found

    def _read(self, node: Node) -> _Read:
        return self.catalog.offers(node, self.tables, self.settings)

    def _offers(self, node: Node, read: _Read) -> tuple[Offers, tuple[Complaint, ...], Closed]:
        """Return the unused cards of *node*, its problems, and what is closed as a whole."""
        offers, complaints = read
        shut: Closed = {
            one.name: why
            for one in self.catalog.specs
            if one.pausing is not None and offers.get(one.name) and (why := one.pausing.why(node.labels))
        }
        if node.unserved:
            left = [
                one.deserted(node)
                for one in self.catalog.specs
                if one.deserted is not None and one.name in node.unserved and offers.get(one.name)
            ]
            complaints, shut = (*complaints, *left), {**shut, **{one.dialect: DESERTED for one in left}}
        unsteady, uses = self._unsteady.get(node.name), self._uses.get(node.name)
        self._claimed.pop(node.name, None)
        if not (unsteady or uses):
            return offers, complaints, shut
        offers = dict(offers)
        closed = closed_by_claims(uses or (), offers, self.catalog)
        if uses:
            self._claimed[node.name] = {
                name: len(cards) if name in closed.dialects else len(closed.cards.get(name, ()))
                for name, cards in offers.items()
            }
        for which, cards in offers.items():
            faults = {name: CardFault(Reason.UNSTEADY, UNSTEADY) for name in (unsteady or {}).get(which, ())}
            faults |= {card: CardFault(Reason.CLAIMED, why) for card, why in closed.cards.get(which, {}).items()}
            if faults:
                offers[which] = self.catalog.dialects[which].kept_out(cards, faults)
        return offers, complaints, {**closed.dialects, **shut}

    def remove_node(self, name: NodeName) -> bool:
        """Remove *name*; its pods stay known as strays until they are gone too."""
        self._certain()
        self._unsteady.pop(name, None)
        self._claimed.pop(name, None)
        if self.states.pop(name, None) is None:
            return False
        self.constraints.remove_node(name)
        if self._keeps_images:
            self.images.remove_node(name)
        holders = self._own(name).holders
        del self._entries[name]
        if holders:
            self._stray[name] = holders
        self._log.add(name)
        return True

    def configure(self, tables: Tables, settings: Settings) -> Iterator[None]:
        """Judge everything again under *tables* and *settings*, in slices of a few milliseconds.

        Until the last slice, nodes may be under either configuration, so nothing may be decided or changed between
        slices.
        """
        self._certain()
        self.tables, self.settings = tables, settings
        self._reader = Reader(self.catalog, tables, self.constraints)
        for at, name in enumerate(self._entries, start=1):
            entry = self._own(name)
            entry.read = self._read(entry.node)
            entry.empty, entry.complaints, entry.shut = self._offers(entry.node, entry.read)
            entry.scales, entry.aside = self._reader.scales(entry.node, entry.empty), ""
            self._put(name, self._rebuilt(self.states[name].facts, entry))
            if at % _SLICE == 0:
                yield

    def fork(self) -> "Ledger":
        """Return a ledger with the same states, for trials; changes to it do not affect this one."""
        self._certain()
        twin = Ledger(
            self.catalog,
            self.tables,
            self.settings,
            topology=self.topology.fork(),
            volumes=self.volumes.fork(),
            constraints=self._every,
        )
        twin.states = dict(self.states)
        twin._entries = dict(self._entries)
        # From now on, both copy an entry before they change it.
        self._owner = object()
        twin._node_of = dict(self._node_of)
        twin._pods = dict(self._pods)
        twin._promised = dict(self._promised)
        twin._stray = {node: dict(held) for node, held in self._stray.items()}
        twin._unsteady = dict(self._unsteady)
        twin._uses = dict(self._uses)
        twin.images, twin._keeps_images = self.images, False
        return twin

    def state_without(self, name: NodeName, pod: PodUid) -> NodeState:
        """Return the state of node *name* without *pod*; changes nothing."""
        state, holders = self.states[name], self.holders(name)
        holding = holders.get(pod)
        if holding is None:
            return state
        return self._without(name, state, holding, (one for uid, one in holders.items() if uid != pod))

    def overcommitted(self, name: NodeName) -> tuple[str, ...]:
        """Return the cards of *name* that hold more than they have, each as a sentence with numbers."""
        state = self.states[name]
        return tuple(
            text for which, cards in state.offers.items() for text in self.catalog.dialects[which].overcommitted(cards)
        )

    # ------------------------------------------------------------------ states

    def _own(self, name: NodeName) -> _Entry:
        """Return the entry of *name*, for changes in this ledger and in no fork."""
        entry = self._entries[name]
        if entry.owner is not self._owner:
            if self._trial is not None:
                self._trial.nodes[name] = self.states[name], entry
            entry = replace(entry, holders=dict(entry.holders), owner=self._owner)
            self._entries[name] = entry
        return entry

    def _rebuilt(self, facts: NodeFacts, entry: _Entry) -> NodeState:
        """Return the node's state, computed from scratch: every holder is read and counted on the current cards."""
        holders = entry.holders
        for uid, old in holders.items():
            holders[uid] = self._recounted(uid, entry, old)
        complaints = entry.complaints
        if entry.aside:
            complaints += tuple(Complaint(dialect=one, field="placements", problem=entry.aside) for one in entry.empty)
        return state_of(
            facts,
            entry.empty,
            holders.values(),
            self.catalog,
            self.constraints,
            version=self._next(),
            complaints=complaints,
            whatever=entry.closed,
        )

    def _recounted(self, uid: PodUid, entry: _Entry, old: Holding) -> Holding:
        """Return what *uid*, which held *old*, holds of the cards of *entry*; read again if there is a source.

        A promise is read as its Binding will be, by the rules and layouts that are in force now.
        """
        pod = self._pods.get(uid)
        if pod is not None:
            return self._reader.counted(pod, entry, self._reader.amounts(pod), old)
        placement = self._promised.get(uid)
        if placement is None or placement.asked_by is None or placement.dialect is None:
            return old
        pod = placement.asked_by
        stamp = Stamp(node=placement.node, now_s=0, order=0, containers=container_names(pod))
        said = self.catalog.dialects[placement.dialect].annotations(placement.assignment, stamp, self.tables)
        pod = pod._replace(annotations={**pod.annotations, **said})
        found = self._reader.counted(pod, entry, self._reader.amounts(pod), old)
        return found if found.dialect == placement.dialect else old

    def _without(self, name: NodeName, state: NodeState, holding: Holding, left: Iterable[Holding]) -> NodeState:
        """Return *state* of node *name* after *holding* is released; *left* are still held."""
        closed = self._entries[name].closed
        return state_without(
            state, holding, left, self.catalog, self.constraints, version=self._next(), whatever=closed
        )

    def _next(self) -> int:
        self._version += 1
        return self._version

    def _put(self, name: NodeName, state: NodeState, *, opens: bool = True) -> None:
        """Set the state of *name*; *opens*: it may take what the former state refused."""
        self.states[name] = state
        if opens:
            self.opened[name] = None
        self._log.add(name)


def _set(known: dict[PodUid, _T], uid: PodUid, value: _T | None) -> None:
    if value is None:
        known.pop(uid, None)
    else:
        known[uid] = value
