"""The kinds of nodes that the cluster has or settings describe, each as a new node of it would be: whether one helps.

A new node has the cards, labels and taints of its kind, nothing in use and every card well; but no name, card id or
passing condition that is an old one's alone. Nodes that are alike in that are one kind, and are judged once. The kinds
of nodes that are gone are remembered, for a pool that is scaled to zero may come back. Cluster
autoscalers buy a node for every pod that is said to be unschedulable, so it is said only of a pod that one would take.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from core import model, names
from core.inventory import at_its_best, node_of
from core.ledger import Ledger
from core.model import Node, NodeFacts, NodeName, Taint
from core.node_state import NodeState
from core.placing.decide import Shape, judge, takes
from core.settings import DialectName, Policy

INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
_HOSTNAME: Final = "kubernetes.io/hostname"
# Taints that tell of a node's condition, or that it is about to go. Source: Kubernetes documentation, "Taints and
# Tolerations"; Cluster Autoscaler, utils/taints; Karpenter, apis/v1/taints.go.
_PASSING: Final = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "karpenter.sh/disrupt",
    "karpenter.sh/unregistered",
)
# How a node without cards is called.
_AMOUNTS: Final = ((names.CPU, 1000, "cpus"), (names.MEMORY, 2**30, "Gi of memory"))
_NEW: Final = NodeName("")
_SPARE: Final = 64
_GONE_MAX: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class NodesAlike:
    """Nodes that are alike when they are new. described: its name in settings, "" for that of nodes that are there."""

    state: NodeState
    described: str = ""


class _Known(NamedTuple):
    """The kind of one node, and what of the node it was made of."""

    facts: NodeFacts
    offers: Mapping[DialectName, tuple[Any, ...]]
    capacity: Mapping[str, str]
    kind: NodesAlike


class Kinds:
    """The kinds of one ledger's nodes, made when they are asked for; make a new one when tables or settings change."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger: Final = ledger
        self._nodes: dict[NodeName, _Known] = {}
        self._shared: dict[object, NodesAlike] = {}
        self._gone: dict[NodesAlike, None] = {}
        self.described: Final = tuple(self._described())

    def of(self, name: NodeName) -> NodesAlike | None:
        """The kind of node *name*; None if it does not exist."""
        state, node = self._ledger.states.get(name), self._ledger.node(name)
        if state is None or node is None:
            self._nodes.pop(name, None)
            return None
        offers = self._ledger.offered(name)
        known = self._nodes.get(name)
        if (
            known is not None
            and known.facts is state.facts
            and known.offers is offers
            and known.capacity == node.capacity
        ):
            return known.kind
        kind = self._kind(node, offers)
        self._nodes[name] = _Known(state.facts, offers, node.capacity, kind)
        self._tidy()
        return kind

    @property
    def absent(self) -> Iterable[NodesAlike]:
        """The kinds that may have no node now: those described in settings, and those of nodes that are gone."""
        return (*self.described, *self._gone)

    def leaves(self, name: NodeName) -> None:
        """Node *name* is about to be forgotten."""
        kind = self.of(name)
        self._nodes.pop(name, None)
        if kind is not None and any(kind.state.offers.values()):
            # The last is the one that was there last.
            self._gone.pop(kind, None)
            self._gone[kind] = None
            if len(self._gone) > _GONE_MAX:
                del self._gone[next(iter(self._gone))]

    def takes(self, kind: NodesAlike, shape: Shape, policy: Policy) -> bool:
        """Whether a new node of *kind* takes *shape*."""
        if self._ledger.constraints.refuses_new(shape.asked, kind.state.facts.labels):
            return False
        return takes(self._ledger, shape, kind.state, policy)

    def like(self, node: Node) -> NodesAlike:
        """A new node like *node*, which need not exist, such as an autoscaler's template of nodes that it can add.

        What it does not say of cards is taken from the kind in settings whose labels it has, the one with most of them.
        """
        settings = self._ledger.settings
        alike = [one for one in settings.node_kinds if one.labels and node.labels.items() >= dict(one.labels).items()]
        described = max(alike, key=lambda one: len(one.labels), default=None)
        if described is not None:
            kind = node_of(described)
            node = replace(
                node,
                annotations={**kind.annotations, **node.annotations},
                capacity={**kind.capacity, **node.capacity},
                allocatable={**kind.allocatable, **node.allocatable},
            )
        offers, _ = self._ledger.catalog.offers(node, self._ledger.tables, settings)
        return NodesAlike(self._state(node, offers), described.name if described is not None else "")

    def told(self, kind: NodesAlike, dialect: DialectName | None) -> str:
        """Return what to call a new node of *kind* for a pod that wants cards of *dialect*, or only cpu and memory."""
        if kind.described:
            return f"of kind {kind.described}"
        facts = kind.state.facts
        if dialect is None:
            amounts = (f"{facts.allocatable.get(one, 0) / per:g} {unit}" for one, per, unit in _AMOUNTS)
            type_ = facts.labels.get(INSTANCE_TYPE, "")
            of = " and ".join(amounts)
            return f"of type {type_} ({of})" if type_ else f"with {of}"
        cards = kind.state.offers.get(dialect, ())
        counts: dict[str, int] = {}
        for one in self._ledger.catalog.dialects[dialect].tally(cards):
            counts[one.label] = counts.get(one.label, 0) + one.cards
        has = " and ".join(f"{count} x {label}" for label, count in sorted(counts.items()))
        type_ = facts.labels.get(INSTANCE_TYPE, "")
        return f"of type {type_} ({has})" if type_ else f"with {has}"

    def room(self, kind: NodesAlike, shape: Shape, policy: Policy, most: int) -> int:
        """How many of *shape* a new node of *kind* takes at once, *most* at the most."""
        state = kind.state
        # A pod that depends on what other pods are there counts as alone on the node.
        most = 1 if shape.asked.use or shape.asked.pods else most
        for taken in range(most):
            placed = judge(self._ledger, shape, state, policy)
            if placed is None:
                return taken
            used = dict(state.used)
            for resource, amount in shape.taken:
                used[resource] = used.get(resource, 0) + amount
            offers = state.offers
            if shape.dialect is not None:
                own = self._ledger.catalog.dialects[shape.dialect]
                offers = {**offers, shape.dialect: own.take(offers[shape.dialect], placed.assignment)}
            state = state._replace(used=used, offers=offers)
        return most

    def _kind(self, node: Node, offers: Mapping[DialectName, tuple[Any, ...]]) -> NodesAlike:
        best = at_its_best(node)
        if best is not node:
            offers, _ = self._ledger.catalog.offers(best, self._ledger.tables, self._ledger.settings)
        state = self._state(best, offers)
        key = (
            frozenset(state.facts.labels.items()),
            state.facts.taints,
            frozenset(state.facts.allocatable.items()),
            frozenset(state.offers.items()),
        )
        return self._shared.setdefault(key, NodesAlike(state))

    def _state(self, node: Node, offers: Mapping[DialectName, tuple[Any, ...]]) -> NodeState:
        """*node* as another like it would be when it is new."""
        facts = NodeFacts(
            name=_NEW,
            uid="",
            labels={key: text for key, text in node.labels.items() if key != _HOSTNAME and text != node.name},
            taints=tuple(_lasting(node.taints)),
            unschedulable=False,
            ready=True,
            allocatable=model.facts_of(node).allocatable,
        )
        fresh: dict[DialectName, tuple[Any, ...]] = {}
        for name, cards in offers.items():
            fresh[name] = self._ledger.catalog.dialects[name].at_best(cards)
        return NodeState(facts, fresh, {}, {})

    def _described(self) -> Iterable[NodesAlike]:
        ledger = self._ledger
        for kind in ledger.settings.node_kinds:
            node = node_of(kind)
            offers, _ = ledger.catalog.offers(node, ledger.tables, ledger.settings)
            yield NodesAlike(self._state(node, offers), kind.name)

    def _tidy(self) -> None:
        """Forget nodes that are gone, and kinds without nodes."""
        if len(self._nodes) > len(self._ledger.states) + _SPARE:
            self._nodes = {name: one for name, one in self._nodes.items() if name in self._ledger.states}
        if len(self._shared) > 2 * len(self._nodes) + _SPARE:
            used = {known.kind for known in self._nodes.values()} | self._gone.keys()
            self._shared = {key: kind for key, kind in self._shared.items() if kind in used}


class Helping:
    """Gathers, node by node, whether a new node would take one shape; each kind is judged once."""

    def __init__(self, kinds: Kinds, shape: Shape, policy: Policy) -> None:
        self._kinds: Final = kinds
        self._shape: Final = shape
        self._policy: Final = policy
        self._judged: Final[dict[NodesAlike, bool]] = {}

    def look(self, name: NodeName) -> None:
        """Judge the kind of node *name*."""
        kind = self._kinds.of(name)
        if kind is not None:
            self._judge(kind)

    def told(self) -> str:
        """What to call a new node that would take the shape, one of the kinds looked at or described; "" if none."""
        return min(self._helpful(), default="")

    def room(self, most: int) -> int:
        """How many of the shape that node would take at once, *most* at the most; 0 if there is none."""
        kinds = self._helpful()
        return self._kinds.room(kinds[min(kinds)], self._shape, self._policy, most) if kinds else 0

    def _helpful(self) -> dict[str, NodesAlike]:
        """The kinds that would take the shape, by what to call them."""
        for kind in self._kinds.absent:
            self._judge(kind)
        return {self._kinds.told(kind, self._shape.dialect): kind for kind, takes in self._judged.items() if takes}

    def _judge(self, kind: NodesAlike) -> None:
        if kind not in self._judged:
            self._judged[kind] = self._kinds.takes(kind, self._shape, self._policy)


def _lasting(taints: Iterable[Taint]) -> Iterable[Taint]:
    return (taint for taint in taints if not taint.key.startswith(_PASSING))
