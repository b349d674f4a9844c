"""Nodes that accept no pods for now: their removal, condition, cordon and taints.

Source: Kubernetes documentation, "Taints and Tolerations"; kube-scheduler's plugins TaintToleration and
NodeUnschedulable.
"""

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Final

from core.constraints.constraint import FULL, Constraint, Obstacle, ReadScope
from core.model import HARD_EFFECTS, REMOVAL_TAINTS, NodeFacts, Taint, Toleration
from core.settings import NodeWeights
from core.units import parse_int64

NOT_READY: Final = "not ready"
CORDONED: Final = "unschedulable (cordoned)"
LEAVES: Final = "about to be removed"
# How the key of an obstacle begins that a toleration would overcome.
TAINT: Final = "taint "
# The effect of taints that pods avoid if possible; each costs the points of a whole preference.
_SOFT: Final = "PreferNoSchedule"
_CORDONED: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
# Kubernetes adds this taint to a node that is not ready. The condition itself is judged, so that a pod which tolerates
# the taint (every DaemonSet pod does) is still admitted.
_NOT_READY: Final = Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")
_UNREACHABLE: Final = "node.kubernetes.io/unreachable"

Tolerations = tuple[Toleration, ...]


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Return whether one of *tolerations* tolerates *taint*."""
    return any(
        (not t.effect or t.effect == taint.effect)
        and (not t.key or t.key == taint.key)
        and (t.operator == "Exists" or (bool(t.key) and _accepts(t, taint.value)))
        for t in tolerations
    )


def _accepts(toleration: Toleration, value: str) -> bool:
    """Return whether *toleration*, which names the key, accepts that value of the taint.

    Source: kubernetes/api v0.37.2, core/v1/toleration.go.
    """
    operator = toleration.operator
    if operator == "Equal":
        return toleration.value == value
    limit, have = _number(toleration.value), _number(value)
    if limit is None or have is None:
        return False
    return (operator == "Gt" and have > limit) or (operator == "Lt" and have < limit)


def _number(text: str) -> int | None:
    """Return *text* as a number; None if it is none, or written otherwise, such as ``+5`` or ``05``."""
    found = parse_int64(text)
    return found if found is not None and str(found) == text else None


def _filter(tolerations: Tolerations, facts: NodeFacts, held: object) -> bool:
    if facts.ready and not (facts.taints or facts.unschedulable or facts.leaving):
        return True
    return next(_explain(tolerations, facts, held), None) is None


def _explain(tolerations: Tolerations, facts: NodeFacts, held: object) -> Iterator[Obstacle]:
    """Yield its removal, its condition, a cordon, taints.

    A node that is about to be removed accepts no pod, whatever its tolerations.
    """
    # Taints that accompany a reason that is already reported.
    told: tuple[str, ...] = ()
    if facts.leaving:
        yield Obstacle(f"{LEAVES} ({facts.leaving})", "is no longer about to be removed")
        told = REMOVAL_TAINTS
    if not facts.ready and not tolerates(tolerations, _NOT_READY):
        yield Obstacle(NOT_READY, "is ready")
        told = (*told, _NOT_READY.key, _UNREACHABLE)
    if facts.unschedulable and not tolerates(tolerations, _CORDONED):
        yield Obstacle(CORDONED, "is uncordoned")
        told = (*told, _CORDONED.key)
    for taint in facts.taints:
        if taint.effect in HARD_EFFECTS and taint.key not in told and not tolerates(tolerations, taint):
            key = f"{TAINT}{taint.key}{'=' + taint.value if taint.value else ''}:{taint.effect}"
            yield Obstacle(key, f"no longer has {key}")


def _score(tolerations: Tolerations, facts: NodeFacts, weights: NodeWeights) -> float:
    """Return -100 for each taint with PreferNoSchedule that the pod does not tolerate, times the weight."""
    soft = [taint for taint in facts.taints if taint.effect == _SOFT and not tolerates(tolerations, taint)]
    return -(weights.taint_toleration * FULL * len(soft))


TAINTS: Final = Constraint(
    name="taints",
    reads=ReadScope.NODE,
    signature=attrgetter("constraints.tolerations"),
    filter=_filter,
    explain=_explain,
    score=_score,
)
