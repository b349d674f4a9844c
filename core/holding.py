"""What a pod holds of its node, and how that is read of a bound pod's annotations, whoever bound it.

Counting it is the ledger's (`core.ledger`); what an annotation means is its dialect's.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from core import names, nodefit
from core.catalog import Catalog
from core.errors import InvalidRequestError
from core.model import HostPort, Node, Pod
from core.nodefit import Amounts
from core.port.optional import Metering, Scaled
from core.settings import DialectName
from core.tables import Tables


class Part(NamedTuple):
    """What a pod holds in one dialect; assignment is None where nothing says which cards it uses.

    closes: why its node takes nothing new in that dialect, or "".
    """

    dialect: DialectName
    assignment: Any
    closes: str = ""


class Holding(NamedTuple):
    """One pod's part of a node, reserved by us or bound as the API server says.

    dialect is None for a pod without cards, and its first where it holds cards in several: *also* are the others.
    scale: what the figures of its assignment mean (`core.port.optional.Scaled`), as of when it was first counted.
    ports: of the node, which it listens on.
    """

    key: str
    dialect: DialectName | None
    assignment: Any
    amounts: Amounts
    closes: str = ""
    also: tuple[Part, ...] = ()
    scale: Any = None
    ports: tuple[HostPort, ...] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        """What it holds, by dialect."""
        if self.dialect is None:
            return ()
        return (Part(self.dialect, self.assignment, self.closes), *self.also)

    @property
    def reason(self) -> str:
        """Why its node takes nothing new in some dialect, or ""."""
        return self.closes or next((part.closes for part in self.also if part.closes), "")


class There(Protocol):
    """The cards of a node with nothing in use, by dialect, and what figures mean on them."""

    empty: Mapping[DialectName, tuple[Any, ...]]
    scales: Mapping[DialectName, object]


class Reader:
    """Reads what bound pods hold, under one configuration."""

    def __init__(self, catalog: Catalog, tables: Tables) -> None:
        self.catalog: Final = catalog
        # Which dialects are scaled, and which meter: asked for every pod, and slow to find out.
        self.scaled: Final = {name: one for name, one in catalog.dialects.items() if isinstance(one, Scaled)}
        self.metering: Final = {name: one for name, one in catalog.dialects.items() if isinstance(one, Metering)}
        self.budgeted: Final = frozenset(name for one in self.metering.values() for name in one.budgeted(tables))
        self._tables: Final = tables
        self.uncounted: Final = catalog.uncounted(tables)
        # Who sells by a name that another sells by too: the annotations that only its own pods have.
        self._held_by: Final = {
            name: catalog.dialects[name].assignment_keys(tables) - catalog.marks() for name in catalog.stands_in
        }
        self.resources_of: Final = {name: one.resources(tables) for name, one in catalog.dialects.items()}
        self.resources: Final = frozenset[str]().union(*self.resources_of.values())
        self.card_resources: Final = self.resources | catalog.resources(Tables())
        # By dialect that says by annotations which cards, the resources by which it is asked.
        self._shares: Final = {
            name: self.resources_of[name]
            for name, dialect in catalog.dialects.items()
            if dialect.assignment_keys(tables)
        }

    def as_bound(self, known: Pod | None, held: Holding | None, pod: Pod) -> Pod:
        """*pod* with the assignment that it is *known* to be bound with, if that could be read.

        Schedulers write an assignment with the Binding, and plugins what they made of it, once.
        """
        if known is None or held is None or known.node_name != pod.node_name:
            return pod
        read = [one.dialect for one in held.parts if one.assignment is not None and not one.closes]
        keys = [key for name in read for key in self.catalog.dialects[name].assignment_keys(self._tables)]
        kept = {key: known.annotations[key] for key in keys if key in known.annotations}
        if all(pod.annotations.get(key) == text for key, text in kept.items()):
            return pod
        return pod._replace(annotations={**pod.annotations, **kept})

    def amounts(self, pod: Pod) -> Amounts:
        """What *pod* takes of its node, as kubelet counts it; one of ``pods`` where that cannot be read."""
        try:
            return nodefit.amounts_of(pod)
        except InvalidRequestError:
            return ((names.PODS, 1),)

    def counted(self, pod: Pod, there: "There | None", amounts: Amounts, before: Holding | None) -> Holding:
        """What bound *pod* holds, in every dialect of which it carries an assignment, or asks for cards without one.

        Args:
            pod: as it is bound.
            there: the cards of its node, None if that does not exist.
            amounts: what it takes of the node, as kubelet counts it.
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
            # Where no annotation says which cards, the request is all there is, and `held` has read it.
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
            return Holding(pod.key, None, None, amounts, ports=nodefit.ports_of(pod))
        scale = self._scale(pod, found, there, before)
        (name, assignment, closes), *also = found
        return Holding(pod.key, name, assignment, amounts, closes, tuple(also), scale, nodefit.ports_of(pod))

    def _scale(self, pod: Pod, found: list[Part], there: "There | None", before: Holding | None) -> object:
        """What the figures of the first of *found* mean; where they mean something else by now, the node is closed."""
        name, assignment, _ = found[0]
        dialect = self.scaled.get(name)
        if assignment is None or dialect is None:
            return None
        now = there.scales[name] if there is not None else dialect.scale(None, (), self._tables)
        since = before.scale if before is not None and before.dialect is name else None
        since = dialect.scale_read(pod, assignment, now) if since is None else since
        if since is None or since is now:
            return now
        kept, why = dialect.rescaled(assignment, since, now)
        if why:
            closes = f"pod {pod.key} {why}; what it takes cannot be told; wait until it is gone, or delete it"
            found.append(Part(name, None, closes))
        return kept

    def scales(self, node: Node, empty: Mapping[DialectName, tuple[Any, ...]]) -> dict[DialectName, object]:
        """What figures mean on the cards of *node*."""
        return {name: one.scale(node, empty.get(name, ()), self._tables) for name, one in self.scaled.items()}


def _one_of_a_name(found: list[Part], name: DialectName, other: DialectName, *, meant: bool) -> list[Part]:
    """*found*, of two dialects that sell by one resource only the one that gave the pod its cards.

    *meant*: it is *name*, whether or not which cards can be read: annotations of its are there, or it serves the node.
    """
    parts = {part.dialect: part for part in found}
    if name not in parts or other not in parts:
        return found
    left = other if meant or parts[name].assignment is not None else name
    return [part for part in found if part.dialect != left]


def asks_the_same(one: Pod, other: Pod) -> bool:
    """Whether two states of one pod take the same of a node, beside cards."""
    return (
        one.containers == other.containers
        and one.init_containers == other.init_containers
        and one.overhead == other.overhead
        and one.resources == other.resources
    )


def asked_resources(pod: Pod) -> frozenset[str]:
    """The resources that containers of *pod* name."""
    return frozenset([name for one in (*pod.containers, *pod.init_containers) for name in (*one.limits, *one.requests)])
