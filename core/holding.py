"""What a pod holds of its node, and how to read it from the annotations of a pod that any scheduler bound.

`core.ledger` counts it; the dialect defines what an annotation means.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from core import names, nodefit
from core.catalog import Catalog
from core.constraints.constraint import Signatures
from core.constraints.every import Constraints
from core.errors import InvalidRequestError
from core.model import Node, Pod
from core.nodefit import Amounts
from core.settings import DialectName
from core.tables import Tables


class Part(NamedTuple):
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
    uses: what it asks by constraints that read use.
    """

    key: str
    dialect: DialectName | None
    assignment: Any
    amounts: Amounts
    closes: str = ""
    also: tuple[Part, ...] = ()
    scale: Any = None
    uses: Signatures = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        """What it holds, by dialect."""
        if self.dialect is None:
            return ()
        return (Part(self.dialect, self.assignment, self.closes), *self.also)

    @property
    def reason(self) -> str:
        """Why its node accepts nothing new in some dialect, or ""."""
        return self.closes or next((part.closes for part in self.also if part.closes), "")


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
        self.budgeted: Final = frozenset(
            name for one in catalog.dialects for name in catalog.names(one, tables).budgeted
        )
        self._tables: Final = tables
        self.uncounted: Final = catalog.uncounted(tables)
        # For dialects that share a resource with another: the annotations that only their own pods have.
        self._held_by: Final = {
            name: catalog.names(name, tables).assignment_keys - catalog.marks() for name in catalog.stands_in
        }
        self.resources_of: Final = {name: catalog.names(name, tables).resources for name in catalog.dialects}
        self.resources: Final = frozenset[str]().union(*self.resources_of.values())
        self.card_resources: Final = self.resources | catalog.resources(Tables())
        # For dialects that assign cards by annotations: their resources.
        self._shares: Final = {
            name: self.resources_of[name] for name in catalog.dialects if catalog.names(name, tables).assignment_keys
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
            return nodefit.amounts_of(pod)
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
        found: list[Part] = []
        asked: frozenset[str] | None = None
        for name, dialect in self.catalog.dialects.items():
            held = dialect.held(pod, empty.get(name, ()), self._tables)
            if held is not None:
                found.append(Part(name, held.assignment, held.closes))
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
                found.append(Part(name, None, closes))
        for name, other in self.catalog.stands_in.items():
            meant = name in empty or not self._held_by[name].isdisjoint(pod.annotations)
            found = _one_of_a_name(found, name, other, meant=meant)
        if not found:
            return Holding(pod.key, None, None, amounts, uses=self._constraints.uses_of(pod))
        scale = self._scale(pod, found, there, before)
        (name, assignment, closes), *also = found
        return Holding(pod.key, name, assignment, amounts, closes, tuple(also), scale, self._constraints.uses_of(pod))

    def _scale(self, pod: Pod, found: list[Part], there: "There | None", before: Holding | None) -> object:
        """Return the meaning of the figures of the first of *found*; if it has changed since, close the node."""
        name, assignment, _ = found[0]
        scaling = self.scaled.get(name)
        if assignment is None or scaling is None:
            return None
        now = there.scales[name] if there is not None else scaling.of_node(None, (), self._tables)
        since = before.scale if before is not None and before.dialect is name else None
        since = scaling.read(pod, assignment, now) if since is None else since
        if since is None or since is now:
            return now
        kept, why = scaling.rescaled(assignment, since, now)
        if why:
            closes = f"pod {pod.key} {why}; what it takes cannot be told; wait until it is gone, or delete it"
            found.append(Part(name, None, closes))
        return kept

    def scales(self, node: Node, empty: Mapping[DialectName, tuple[Any, ...]]) -> dict[DialectName, object]:
        """Return the meaning of figures on the cards of *node*."""
        return {name: one.of_node(node, empty.get(name, ()), self._tables) for name, one in self.scaled.items()}


def _one_of_a_name(found: list[Part], name: DialectName, other: DialectName, *, meant: bool) -> list[Part]:
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
