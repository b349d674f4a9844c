"""What a constraint is: one reason why a node does not take a pod, or takes it rather than another node.

A constraint is a record of functions. `core.constraints.every` lists all of them; how to add one is described in
docs/maintainers/adding-a-constraint.md. The names are those of kube-scheduler's plugins: filter, score, reserve.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from core.constraints.views import View
from core.model import NodeName, Pod, PodUid
from core.nodefit import NodeFacts
from core.settings import NodeWeights
from core.waiting import Wait


class Reads(StrEnum):
    """What a verdict depends on, besides the pod; this decides how long it is kept.

    NODE: labels, taints and conditions of the node; kept by node until these change. USE: also what the node's pods
    hold by this constraint; judged together with its cards. PODS: pods on any node, or other state of the cluster; kept
    up in a `View`.
    """

    NODE = "node"
    USE = "use"
    PODS = "pods"


class Obstacle(NamedTuple):
    """Why a node rejects a pod, in constant words for counting, and what ends it.

    until: words after the node's name ("is uncordoned"), or a clause if the constraint reads `Reads.USE`; "" if it
    lasts. Then *instead* is what the pod could do, and *labels* are those of the node that differ from its selector.
    """

    key: str
    until: str = ""
    instead: str = ""
    labels: tuple[tuple[str, str], ...] = ()


# What a pod asks by some constraints: their names and signatures.
Signatures = tuple[tuple[str, Hashable], ...]


class Asked(NamedTuple):
    """All that a pod asks by constraints, grouped by what they read; pods that ask the same have equal verdicts."""

    node: Signatures = ()
    use: Signatures = ()
    pods: Signatures = ()


class PodTracker(Protocol):
    """What a constraint that reads `Reads.PODS` keeps for one ledger: the pods on nodes, as far as they concern it."""

    def set_node(self, facts: NodeFacts) -> None:
        """A node was added or changed."""
        ...

    def remove_node(self, name: NodeName) -> None:
        """A node was removed; its pods are tracked still."""
        ...

    def put(self, pod: Pod, node: NodeName) -> None:
        """Reserve: *pod* is on *node*, whether or not that exists."""
        ...

    def drop(self, uid: PodUid) -> None:
        """Release: a pod is on no node."""
        ...

    def seat(self, uid: PodUid) -> Any:
        """Return where a pod is, for `restore`; None if it is on no node, or does not concern the constraint."""
        ...

    def restore(self, uid: PodUid, seat: Any) -> None:
        """Put a pod back to where it was when `seat` was called."""
        ...

    def view(self, asked: Any) -> View:
        """Return the nodes that refuse such pods now; the same object as long as it is kept up."""
        ...

    def is_current(self, pod: Pod, asked: Any) -> bool:
        """Return whether the signature of *pod* is still *asked* (None: nothing), as far as other pods change it."""
        ...

    def refuses_new(self, asked: Any, labels: Mapping[str, str]) -> bool:
        """Return whether a new node with *labels* and a name of its own might refuse such pods."""
        ...

    def freed(self) -> Set[Any] | None:
        """Return the signatures for which a node has opened since the last call; None: perhaps for all."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Constraint:
    """One constraint.

    In all functions *asked* is what `signature` returned, and *held* is what `reserve` returned for the node's pods:
    None if none of them asks anything, or if the constraint reads no use.

    Attributes:
        name: unique.
        reads: what verdicts depend on.
        signature: (pod) -> what it asks, hashable; None: nothing; a `Wait`: no node takes it, whatever is free.
        filter: (asked, node, held) -> whether the node takes the pod. True exactly if `explain` yields nothing.
        explain: (asked, node, held) -> why it does not.
        score: (asked, node, weights) -> points of 100 times a weight, never above 0: how much the pod avoids the node.
        reserve: (held, asked) -> held, with one pod more.
        release: (held, asked) -> held, without that pod; nothing or an empty value if no pod is left.
        tracker: pods on nodes, for a constraint that reads `Reads.PODS`; it then reserves and releases.
        woken_by: (pod) -> (kind, name) of objects besides nodes and pods; once one changes, the pod is read again.
        together: (pods) -> why they cannot be placed together, whatever is free; None if they can.
    """

    name: str
    reads: Reads
    signature: Callable[[Pod], Hashable | Wait | None]
    filter: Callable[[Any, NodeFacts, Any], bool]
    explain: Callable[[Any, NodeFacts, Any], Iterable[Obstacle]]
    score: Callable[[Any, NodeFacts, NodeWeights], float] | None = None
    reserve: Callable[[Any, Any], Any] | None = None
    release: Callable[[Any, Any], Any] | None = None
    tracker: PodTracker | None = None
    woken_by: Callable[[Pod], Iterable[tuple[str, str]]] | None = None
    together: Callable[[Sequence[Pod]], Wait | None] | None = None
