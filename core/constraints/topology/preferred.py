"""What a pod prefers: preferred affinity to nodes and pods, and topology spread with ScheduleAnyway.

Values only; `leaning` rates nodes by them. Source: Kubernetes documentation, "Assigning Pods to Nodes" and
"Pod Topology Spread Constraints"; API reference, PreferredSchedulingTerm, WeightedPodAffinityTerm.
"""

from typing import Final, NamedTuple

from core.constraints.topology.peers import ANYWHERE, Evenly, Who, evenly, who_of
from core.model import NO_WISHES, NodeConstraints, Pod, Requirement
from core.settings import NodeWeights


class Near(NamedTuple):
    """The pods that a pod prefers in its domain by *key*; with a negative weight, those that it avoids."""

    weight: int
    who: Who
    key: str


class Preferred:
    """All preferences of one pod that have a weight; equal values share their counts. The hash is computed once.

    nodes: weights, and what a node must meet. constraints: the pod's part that its spread constraints consider.
    """

    __slots__ = ("_hash", "constraints", "near", "nodes", "spread")

    def __init__(
        self,
        *,
        nodes: tuple[tuple[int, tuple[Requirement, ...]], ...] = (),
        near: tuple[Near, ...] = (),
        spread: tuple[Evenly, ...] = (),
        constraints: NodeConstraints = ANYWHERE,
    ) -> None:
        self.nodes: Final = nodes
        self.near: Final = near
        self.spread: Final = spread
        self.constraints: Final = constraints
        self._hash = hash((nodes, near, spread, constraints))

    @property
    def keys(self) -> tuple[str, ...]:
        """All labels that define domains, perhaps with repetitions."""
        return (*[one.key for one in self.near], *[one.key for one in self.spread])

    @property
    def minds_pods(self) -> bool:
        """Whether the rating of a node depends on other pods."""
        return bool(self.near or self.spread)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Preferred)
            and self._hash == other._hash
            and self.nodes == other.nodes
            and self.near == other.near
            and self.spread == other.spread
            and self.constraints == other.constraints
        )


def preferred_of(pod: Pod, weights: NodeWeights) -> Preferred | None:
    """Return the preferences of *pod* that have *weights*; None if there are none."""
    wishes = pod.wishes
    if wishes is NO_WISHES or wishes == NO_WISHES:
        return None
    nodes = wishes.nodes if weights.node_affinity else ()
    near = wishes.near if weights.pod_affinity else ()
    spread = tuple(evenly(pod, wishes.spread)) if weights.pod_topology_spread else ()
    if not (nodes or near or spread):
        return None
    return Preferred(
        nodes=nodes,
        near=tuple([Near(weight, who_of(term, pod, in_doubt=False), term.topology_key) for weight, term in near]),
        spread=spread,
        constraints=pod.constraints if spread else ANYWHERE,
    )
