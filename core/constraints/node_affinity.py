"""The labels that a pod requires or prefers of its node: node selector, and node affinity.

Source: Kubernetes documentation, "Assigning Pods to Nodes"; kube-scheduler's plugin NodeAffinity.
"""

from collections.abc import Hashable, Iterator
from operator import attrgetter
from typing import Final

from core.constraints.constraint import FULL, Constraint, Obstacle, ReadScope
from core.model import Alternatives, NodeConstraints, NodeFacts, Pod, Requirement, is_any
from core.settings import NodeWeights

# The remedy if a node has the capacity, but not the labels.
CORRECT_LABELS: Final = "correct the pod's node selector or affinity"

# The selector as (label, value), and required node affinity: an OR of ANDs, None if absent.
Required = tuple[tuple[tuple[str, str], ...], Alternatives | None]
# Preferred node affinity: weights, and what a node must meet.
Preferred = tuple[tuple[int, tuple[Requirement, ...]], ...]


def selects(constraints: NodeConstraints, facts: NodeFacts) -> bool:
    """Return whether the node has the labels that a pod with *constraints* requires."""
    return _filter((constraints.selector, constraints.affinity), facts, None)


def _signature(pod: Pod) -> Hashable | None:
    asked = pod.constraints
    return (asked.selector, asked.affinity) if asked.selector or asked.affinity is not None else None


def _filter(asked: Required, facts: NodeFacts, held: object) -> bool:
    selector, affinity = asked
    for key, value in selector:
        if facts.labels.get(key) != value:
            return False
    return affinity is None or is_any(affinity, facts)


def _explain(asked: Required, facts: NodeFacts, held: object) -> Iterator[Obstacle]:
    selector, _ = asked
    if _filter(asked, facts, held):
        return
    differ = tuple([(key, facts.labels[key]) for key, value in selector if facts.labels.get(key, value) != value])
    missed = next((f"node selector {key}={value}" for key, value in selector if facts.labels.get(key) != value), None)
    yield Obstacle(missed or "required node affinity", instead=CORRECT_LABELS, labels=differ)


def _rate(preferred: Preferred, facts: NodeFacts, weights: NodeWeights) -> float:
    """Return 100 times the fraction of the weights that the node meets, times the weight of node affinity (0013)."""
    met = sum([weight for weight, term in preferred if is_any((term,), facts)])
    return weights.node_affinity * FULL * met / (sum([weight for weight, _ in preferred]) or 1)


NODE_AFFINITY: Final = Constraint(
    name="node affinity",
    reads=ReadScope.NODE,
    stated=attrgetter("constraints.selector", "constraints.affinity", "wishes.nodes"),
    signature=_signature,
    filter=_filter,
    explain=_explain,
    prefers=lambda pod, weights: (pod.wishes.nodes or None) if weights.node_affinity else None,
    rate=_rate,
    most=lambda preferred, weights: abs(weights.node_affinity) * FULL,
)
