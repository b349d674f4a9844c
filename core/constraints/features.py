"""Features that a pod needs and that the kubelet of its node must declare.

Source: Kubernetes documentation, "Node Declared Features"; kube-scheduler's plugin NodeDeclaredFeatures.
"""

from collections.abc import Iterator
from operator import attrgetter
from typing import Final

from core.constraints.constraint import Constraint, Obstacle, ReadScope
from core.model import NodeFacts


def _filter(features: tuple[str, ...], facts: NodeFacts, held: object) -> bool:
    return next(_explain(features, facts, held), None) is None


def _explain(features: tuple[str, ...], facts: NodeFacts, held: object) -> Iterator[Obstacle]:
    for feature in features:
        if feature not in facts.features:
            yield Obstacle(f"no declared feature {feature}")


FEATURES: Final = Constraint(
    name="features",
    reads=ReadScope.NODE,
    stated=attrgetter("features"),
    signature=lambda pod: pod.features or None,
    filter=_filter,
    explain=_explain,
)
