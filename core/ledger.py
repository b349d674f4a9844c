"""Who holds what: node -> immutable node state, replaced whole at every change, and a log of what changed.

The ledger is the one mutable thing in the core and belongs to one task. It never looks inside a dialect's cards.
Questions (what if, preview) are asked of a `fork`, which shares all states and costs a copy of one mapping.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from core import nodefit
from core.catalog import Catalog
from core.change_log import ChangeLog
from core.claimed import closed_by_claims
from core.errors import InvariantError, NodeInvariantError
from core.holding import Holding, Reader, asked_resources, asks_the_same
from core.images import Images
from core.model import HostPort, Node, NodeName, Pod, PodUid
from core.node_state import Closed, NodeState, Offers, state_of, state_with, state_without
from core.nodefit import Amounts, NodeFacts
from core.port.handoff import Stamp
from core.port.optional import Metering
from core.port.refusals import DESERTED, UNSTEADY, Complaint, Fault, Reason
from core.resource_claims import Use
from core.settings import DialectName, Settings
from core.tables import Tables
from core.topology.counting import Topology
from core.topology.peers import Seat

# How many changes of nodes are remembered for readers.
_LOG_MAX: Final = 1 << 17
# How many nodes are judged anew between two pauses of `Ledger.configure`.
_SLICE: Final = 8

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What one pod is promised: its node, the dialect's assignment and what it takes of the node, as kubelet counts.

    score is the raw device score (before rounding and weight). asked_by: the pod as it was decided on; without it the
    promise is never read anew. dialect is None of a pod without cards. ports: of the node, which it listens on.
    """

    pod: PodUid
    pod_key: str
    node: NodeName
    dialect: DialectName | None
    assignment: Any
    amounts: Amounts
    score: float = 0.0
    ports: tuple[HostPort, ...] = ()
    asked_by: Pod | None = field(default=None, compare=False, repr=False)


@dataclass(slots=True)
class _Entry:
    """What a node's state is rebuilt from: the node as last seen, its cards with nothing in use, and its pods' parts.

    Pods are many, so *holders* changes in place, unlike a state; *owner* is whose ledger's it is to change.
    scales: what figures mean on its cards. aside: why nothing new is placed on it in any dialect, or "". shut: the same
    by dialect, because of resource claims, or because its device plugin has left the node.
    """

    node: Node
    empty: Offers
    complaints: tuple[Complaint, ...]
    holders: dict[PodUid, Holding]
    owner: Any
    scales: Mapping[DialectName, object]
    aside: str = ""
    shut: Closed = field(default_factory=dict)

    @property
    def closed(self) -> Closed:
        """What of the node takes nothing new whatever its pods hold, and why."""
        return dict.fromkeys((*self.empty, None), self.aside) if self.aside else self.shut


# Of a pod: its node, what it was counted by, what it was promised, and its seat.
_Before = tuple[NodeName | None, Pod | None, Placement | None, Seat | None]
_NOTHING: Final[_Before] = (None, None, None, None)


class Trial:
    """Promises that stand only if they are kept: what the nodes and pods that they touched were before.

    Attributes:
        kept: whether they are to stand.
    """

    __slots__ = ("before", "kept", "nodes", "outer", "owner")

    def __init__(self, owner: object, outer: "Trial | None") -> None:
        self.kept = False
        self.owner: Final = owner
        self.outer: Final = outer
        self.nodes: Final[dict[NodeName, tuple[NodeState, _Entry]]] = {}
        self.before: Final[dict[PodUid, _Before]] = {}

    def keep(self) -> None:
        """Let stand what was promised and released so far, once the trial ends."""
        self.kept = True


class Ledger:
    """The cluster as promised: nodes set from the API, pods counted, placements reserved and released."""

    def __init__(self, catalog: Catalog, tables: Tables, settings: Settings) -> None:
        self.catalog: Final = catalog
        self.tables = tables
        self.settings = settings
        self._reader = Reader(catalog, tables)
        self.states: dict[NodeName, NodeState] = {}
        # Where its pods are, promised or bound, as far as others ask about that.
        self.topology = Topology()
        # Who has which images; a fork has those that the cluster has by then.
        self.images = Images()
        self._keeps_images = True
        self._entries: dict[NodeName, _Entry] = {}
        self._owner = object()
        self._node_of: dict[PodUid, NodeName] = {}
        # Bound pods with cards, or with cards under another configuration, as last seen: they are read again when their
        # node's cards or the configuration change.
        self._pods: dict[PodUid, Pod] = {}
        # What is promised and not seen bound yet: read again as its Binding will say it, when its node's cards change.
        self._promised: dict[PodUid, Placement] = {}
        # Pods bound to nodes that are not there: counted on no card, kept for when the node appears.
        self._stray: dict[NodeName, dict[PodUid, Holding]] = {}
        # Pods on no node yet that count where another scheduler has made room for them.
        self.nominated: Final[set[PodUid]] = set()
        self._log = ChangeLog(_LOG_MAX)
        # The nodes that may take now what they refused before; a promise does not count. The reader takes them out.
        self.opened: Final[dict[NodeName, None]] = {}
        # Cards that take nothing new although they are well.
        self._unsteady: dict[NodeName, Mapping[DialectName, frozenset[str]]] = {}
        # What pods use through resource claims, by node, whether that exists or not.
        self._uses: dict[NodeName, tuple[Use, ...]] = {}
        # How many cards of a node these close, by dialect.
        self._claimed: dict[NodeName, dict[DialectName, int]] = {}
        self._version = 0
        self._trial: Trial | None = None

    # ------------------------------------------------------------------ reading

    @property
    def uncounted(self) -> frozenset[str]:
        """Resources of shares that are never compared with what a node has."""
        return self._reader.uncounted

    @property
    def metering(self) -> Mapping[DialectName, Metering[Any, Any]]:
        """The dialects that say themselves what an assignment takes of their resources in all."""
        return self._reader.metering

    @property
    def budgeted(self) -> frozenset[str]:
        """The resources of which a namespace's quota says, in HAMi's spelling, how much its pods may have in all."""
        return self._reader.budgeted

    @property
    def card_resources(self) -> frozenset[str]:
        """Every resource by which cards are asked for, here or under the configuration that is the default."""
        return self._reader.card_resources

    @property
    def resources(self) -> frozenset[str]:
        """Every resource by which cards are asked for under this configuration."""
        return self._reader.resources

    def resources_of(self, dialect: DialectName | None) -> frozenset[str]:
        """The resources by which cards of *dialect* are asked for; none of none."""
        return self._reader.resources_of[dialect] if dialect else frozenset()

    @property
    def cursor(self) -> int:
        """The position behind the last change."""
        return self._log.cursor

    def changes_since(self, cursor: int) -> list[NodeName] | None:
        """The nodes changed since *cursor*, oldest first, repeats included; None if that is too long ago."""
        return self._log.since(cursor)

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

    def counted(self, pod: PodUid) -> Pod | None:
        """A bound pod with cards, with the annotations that it is counted by; None for others."""
        return self._pods.get(pod)

    def asked_by(self, pod: PodUid) -> Pod | None:
        """A pod with cards, bound or promised, as it asked; None where that is not known."""
        promise = self._promised.get(pod)
        return promise.asked_by if promise is not None else self._pods.get(pod)

    def recount(self, name: NodeName) -> None:
        """Make the state of *name* anew from its holders."""
        self._certain()
        if name in self.states:
            self._put(name, self._rebuilt(self.states[name].facts, self._own(name)))

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

    def offered(self, name: NodeName) -> Offers:
        """The cards of *name* by dialect as if nobody held anything; the same object as long as they are the same."""
        return self._entries[name].empty

    def empty_cards(self, name: NodeName, dialect: DialectName | None) -> tuple[Any, ...]:
        """The cards of *name* in one dialect as if nobody held anything."""
        return self.states[name]._replace(offers=self._entries[name].empty, used={}).cards(dialect)

    # ------------------------------------------------------------------ promising

    def reserve(self, placement: Placement) -> None:
        """Promise *placement*; a second time is nothing.

        Raises:
            InvariantError: the pod holds something else, or the node is gone; a `NodeInvariantError` if the node takes
                nothing in this dialect, or a card would be over its total.
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
        changed = state_with(state, holding, self.catalog, self._next())
        over = self._over(name, changed)
        # A card that shrank under its holders is over its total already; it must not be this promise's doing.
        if over and set(over) - set(self._over(name, state)):
            raise NodeInvariantError(placement.node, f"{'; '.join(over)}, with pod {placement.pod_key}")
        self._remember(placement.pod)
        self._node_of[placement.pod] = placement.node
        self._promised[placement.pod] = placement
        self._own(placement.node).holders[placement.pod] = holding
        if placement.asked_by is not None:
            self.topology.put(placement.asked_by, placement.node)
        self._put(placement.node, changed, opens=False)

    def _held_by(self, placement: Placement) -> Holding:
        if placement.dialect is None:
            return Holding(placement.pod_key, None, None, placement.amounts, ports=placement.ports)
        scale = self._entries[placement.node].scales.get(placement.dialect)
        return Holding(
            placement.pod_key,
            placement.dialect,
            placement.assignment,
            placement.amounts,
            scale=scale,
            ports=placement.ports,
        )

    def _over(self, name: DialectName | None, state: NodeState) -> tuple[str, ...]:
        return () if name is None else self.catalog.dialects[name].overcommitted(state.offers[name])

    def release(self, pod: PodUid) -> bool:
        """Take back all that *pod* holds; False if it holds nothing (a second time is nothing)."""
        self._remember(pod)
        self.topology.drop(pod)
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
        """Let *pod*, which was released in the trial that lasts, or in one around it, hold again what it held before.

        Raises:
            InvariantError: it was not, or holds something.
        """
        trial = self._trial
        while trial is not None and trial.before.get(pod, _NOTHING)[0] is None:
            trial = trial.outer
        node, known, placement, seat = trial.before[pod] if trial is not None else _NOTHING
        if trial is None or node is None or pod in self._node_of:
            raise InvariantError(f"pod {pod} was not released in a trial, or holds something")
        holding = trial.nodes[node][1].holders[pod]
        self._remember(pod)
        self._own(node).holders[pod] = holding
        self._node_of[pod] = node
        _set(self._pods, pod, known)
        _set(self._promised, pod, placement)
        self.topology.restore(pod, seat)
        self._put(node, state_with(self.states[node], holding, self.catalog, self._next()), opens=False)

    @contextmanager
    def trial(self) -> Iterator[Trial]:
        """Reserve and release inside; unless the trial is kept, all is as it was before, whatever ended it.

        The former states come back as they were, with their versions: what is known of them stays true. Nothing else
        may change meanwhile; a trial inside another one is kept only if that is.
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
        for uid, (node, pod, placement, seat) in trial.before.items():
            self.topology.restore(uid, seat)
            _set(self._node_of, uid, node)
            _set(self._pods, uid, pod)
            _set(self._promised, uid, placement)

    def _remember(self, uid: PodUid) -> None:
        """Note what *uid* holds before that changes, if it may have to be put back."""
        if self._trial is not None and uid not in self._trial.before:
            self._trial.before[uid] = (
                self._node_of.get(uid),
                self._pods.get(uid),
                self._promised.get(uid),
                self.topology.seat(uid),
            )

    def _certain(self) -> None:
        """See that nothing is being tried, before the cluster itself changes."""
        if self._trial is not None:
            raise InvariantError("nodes, bound pods and configuration do not change in the middle of a trial")

    def set_aside(self, name: NodeName, why: str) -> None:
        """Place nothing new on *name*, where a contradiction was found, until its cards or the configuration change."""
        self._certain()
        state = self.states.get(name)
        if state is not None:
            entry = self._own(name)
            entry.aside = why
            self._put(name, self._rebuilt(state.facts, entry))

    @property
    def aside(self) -> Mapping[NodeName, str]:
        """The nodes that were set aside, and why."""
        return {name: entry.aside for name, entry in self._entries.items() if entry.aside}

    def count(self, pod: Pod) -> bool:
        """Count bound *pod* by what the API server says of it, whoever bound it; replaces a reservation.

        A finished pod is released. A pod that holds the same as before changes nothing on the node. It goes on holding
        what it was first seen bound with, whatever its annotations say later: nobody moves a running container. False
        where they say another thing.
        """
        self._certain()
        name = NodeName(pod.node_name)
        if pod.finished or not name:
            self.release(pod.uid)
            return True
        before = self.holding(pod.uid)
        known = self._pods.get(pod.uid)
        told, pod = pod, self._reader.as_bound(known, before, pod)
        # Annotations change some times for each pod; what it takes beside its cards is parsed once.
        amounts = before.amounts if before and known and asks_the_same(known, pod) else self._reader.amounts(pod)
        entry = self._entries.get(name)
        holding = self._reader.counted(pod, entry, amounts, before)
        if before is None or self._node_of.get(pod.uid) != name or before != holding:
            self._hold(pod.uid, name, holding)
        self.nominated.discard(pod.uid)
        self.topology.put(pod, name)
        self._promised.pop(pod.uid, None)
        if holding.dialect is not None or any("/" in resource for resource in asked_resources(pod)):
            self._pods[pod.uid] = pod
        return told is pod or self._reader.counted(told, entry, amounts, before) == holding

    def nominate(self, pod: Pod) -> None:
        """Count what another scheduler's *pod* will take of the node on which that has made room for it."""
        self._certain()
        name = NodeName(pod.nominated_node)
        holding = Holding(pod.key, None, None, self._reader.amounts(pod), ports=nodefit.ports_of(pod))
        if self._node_of.get(pod.uid) != name or self.holding(pod.uid) != holding:
            self._hold(pod.uid, name, holding)
        self.nominated.add(pod.uid)
        self.topology.put(pod, name)

    def _hold(self, uid: PodUid, name: NodeName, holding: Holding) -> None:
        """Let *uid* hold *holding* on *name*, and nothing else anywhere."""
        self.release(uid)
        self._node_of[uid] = name
        state = self.states.get(name)
        if state is None:
            self._stray.setdefault(name, {})[uid] = holding
        else:
            self._own(name).holders[uid] = holding
            self._put(name, state_with(state, holding, self.catalog, self._next()), opens=False)

    def told_of(self, placement: Placement) -> Mapping[str, str]:
        """What the Binding of *placement*, which is reserved, carries beside its dialect's annotations."""
        dialect = self._reader.scaled.get(placement.dialect) if placement.dialect is not None else None
        holding = self.holding(placement.pod)
        if dialect is None or holding is None or holding.scale is None:
            return {}
        return dialect.scale_told(placement.assignment, holding.scale)

    # ------------------------------------------------------------------ the cluster

    def set_node(self, node: Node) -> bool:
        """Take *node* as the API server says it; False if nothing that matters here changed."""
        self._certain()
        if self._keeps_images:
            self.images.set_node(node.name, node.images)
        empty, complaints, shut = self._offers(node)
        facts = nodefit.facts_of(node, has_cards=any(empty.values()))
        old = self.states.get(node.name)
        if old is None:
            holders = self._stray.pop(node.name, {})
            scales = self._reader.scales(node, empty)
            entry = self._entries[node.name] = _Entry(node, empty, complaints, holders, self._owner, scales, shut=shut)
        else:
            entry = self._own(node.name)
            if entry.empty != empty or entry.node.annotations != node.annotations:
                entry.scales = self._reader.scales(node, empty)
            entry.node = node
            same = entry.empty == empty and entry.complaints == complaints and entry.shut == shut
            if old.facts == facts and same:
                return False
            facts = old.facts if old.facts == facts else facts
            if entry.empty != empty:
                entry.empty, entry.aside = empty, ""
            entry.complaints, entry.shut = complaints, shut
        self.topology.set_node(facts)
        self._put(node.name, self._rebuilt(facts, entry))
        return True

    def keep_out(self, name: NodeName, cards: Mapping[DialectName, frozenset[str]]) -> bool:
        """Place nothing new on these *cards* of a node, by name, but on all others; False if it is so already."""
        if cards:
            self._unsteady[name] = cards
        else:
            self._unsteady.pop(name, None)
        entry = self._entries.get(name)
        return entry is not None and self.set_node(entry.node)

    def set_uses(self, name: NodeName, uses: tuple[Use, ...]) -> bool:
        """Place nothing new on cards of a node that pods use through resource claims; False if it is so already."""
        if uses == self._uses.get(name, ()):
            return False
        if uses:
            self._uses[name] = uses
        else:
            del self._uses[name]
        entry = self._entries.get(name)
        return entry is not None and self.set_node(entry.node)

    def uses(self, name: NodeName) -> tuple[Use, ...]:
        """What pods use of a node through resource claims."""
        return self._uses.get(name, ())

    def claimed_cards(self) -> dict[DialectName, int]:
        """How many cards take nothing new because of resource claims, by dialect."""
        found = dict.fromkeys(self.catalog.dialects, 0)
        for counts in self._claimed.values():
            for name, count in counts.items():
                found[name] += count
        return found

    def _offers(self, node: Node) -> tuple[Offers, tuple[Complaint, ...], Closed]:
        """The cards of *node* with nothing in use, what is wrong with it, and what of it is closed as a whole."""
        offers, complaints = self.catalog.offers(node, self.tables, self.settings)
        shut: Closed = {}
        if node.unserved:
            lasting = self.catalog.lasting.items()
            left = [one.deserted(node) for name, one in lasting if name in node.unserved and offers.get(name)]
            complaints, shut = (*complaints, *left), {one.dialect: DESERTED for one in left}
        unsteady, uses = self._unsteady.get(node.name), self._uses.get(node.name)
        self._claimed.pop(node.name, None)
        if not (unsteady or uses):
            return offers, complaints, shut
        closed = closed_by_claims(uses or (), offers, self.catalog)
        if uses:
            self._claimed[node.name] = {
                name: len(cards) if name in closed.dialects else len(closed.cards.get(name, ()))
                for name, cards in offers.items()
            }
        for which, healing in self.catalog.healing.items():
            faults = {name: Fault(Reason.UNSTEADY, UNSTEADY) for name in (unsteady or {}).get(which, ())}
            faults |= {card: Fault(Reason.CLAIMED, why) for card, why in closed.cards.get(which, {}).items()}
            if faults and which in offers:
                offers[which] = healing.kept_out(offers[which], faults)
        return offers, complaints, {**closed.dialects, **shut}

    def remove_node(self, name: NodeName) -> bool:
        """Forget *name*; its pods stay known as strays until they are gone too."""
        self._certain()
        self._unsteady.pop(name, None)
        self._claimed.pop(name, None)
        if self.states.pop(name, None) is None:
            return False
        self.topology.remove_node(name)
        if self._keeps_images:
            self.images.remove_node(name)
        holders = self._own(name).holders
        del self._entries[name]
        if holders:
            self._stray[name] = holders
        self._log.add(name)
        return True

    def configure(self, tables: Tables, settings: Settings) -> Iterator[None]:
        """Judge everything anew under *tables* and *settings*, in slices of a few milliseconds.

        Until the last of them nodes stand under either configuration: nothing may be decided or changed between them.
        """
        self._certain()
        self.tables, self.settings = tables, settings
        self._reader = Reader(self.catalog, tables)
        for at, name in enumerate(self._entries, start=1):
            entry = self._own(name)
            entry.empty, entry.complaints, entry.shut = self._offers(entry.node)
            entry.scales, entry.aside = self._reader.scales(entry.node, entry.empty), ""
            self._put(name, self._rebuilt(self.states[name].facts, entry))
            if at % _SLICE == 0:
                yield

    def fork(self) -> "Ledger":
        """A ledger with the same states, for trying: what happens to it does not happen here."""
        self._certain()
        twin = Ledger(self.catalog, self.tables, self.settings)
        twin.states = dict(self.states)
        twin._entries = dict(self._entries)
        # From now on either copies an entry before it changes it.
        self._owner = object()
        twin._node_of = dict(self._node_of)
        twin._pods = dict(self._pods)
        twin._promised = dict(self._promised)
        twin._stray = {node: dict(held) for node, held in self._stray.items()}
        twin._unsteady = dict(self._unsteady)
        twin._uses = dict(self._uses)
        twin.topology = self.topology.fork()
        twin.images, twin._keeps_images = self.images, False
        return twin

    def state_without(self, name: NodeName, pod: PodUid) -> NodeState:
        """Node *name* as it would be if *pod* held nothing there; changes nothing."""
        state, holders = self.states[name], self.holders(name)
        holding = holders.get(pod)
        if holding is None:
            return state
        return self._without(name, state, holding, (one for uid, one in holders.items() if uid != pod))

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
            if self._trial is not None:
                self._trial.nodes[name] = self.states[name], entry
            entry = replace(entry, holders=dict(entry.holders), owner=self._owner)
            self._entries[name] = entry
        return entry

    def _rebuilt(self, facts: NodeFacts, entry: _Entry) -> NodeState:
        """The node's state from nothing: every holder is read and counted again on the cards as they are now."""
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
            version=self._next(),
            complaints=complaints,
            whatever=entry.closed,
        )

    def _recounted(self, uid: PodUid, entry: _Entry, old: Holding) -> Holding:
        """What *uid*, which held *old*, holds of the cards of *entry*, read anew if there is something to read it from.

        A promise is read as its Binding will say it, by the rules and layouts that are in force now.
        """
        pod = self._pods.get(uid)
        if pod is not None:
            return self._reader.counted(pod, entry, self._reader.amounts(pod), old)
        placement = self._promised.get(uid)
        if placement is None or placement.asked_by is None or placement.dialect is None:
            return old
        pod, stamp = placement.asked_by, Stamp(node=placement.node, now_s=0, order=0)
        said = self.catalog.dialects[placement.dialect].annotations(placement.assignment, stamp, self.tables)
        pod = pod._replace(annotations={**pod.annotations, **said})
        found = self._reader.counted(pod, entry, self._reader.amounts(pod), old)
        return found if found.dialect == placement.dialect else old

    def _without(self, name: NodeName, state: NodeState, holding: Holding, left: Iterable[Holding]) -> NodeState:
        """*state* of node *name* after *holding* is given back; *left* are held still."""
        return state_without(
            state, holding, left, self.catalog, version=self._next(), whatever=self._entries[name].closed
        )

    def _next(self) -> int:
        self._version += 1
        return self._version

    def _put(self, name: NodeName, state: NodeState, *, opens: bool = True) -> None:
        """Let *state* be that of *name*; *opens*: it may take what the one before refused."""
        self.states[name] = state
        if opens:
            self.opened[name] = None
        self._log.add(name)


def _set(known: dict[PodUid, _T], uid: PodUid, value: _T | None) -> None:
    if value is None:
        known.pop(uid, None)
    else:
        known[uid] = value
