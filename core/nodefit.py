"""A node without its cards, and how labels and resources are compared; `core.constraints` has all other rules.

Source: Kubernetes documentation, "Assigning Pods to Nodes", "Resource Management for Pods and Containers";
kube-scheduler's plugin NodeResourcesFit.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from core import names
from core.errors import InvalidRequestError
from core.model import (
    Alternatives,
    Container,
    Node,
    NodeName,
    Pod,
    Requirement,
    Taint,
)
from core.units import parse_amount, parse_int64, parse_milli

HARD_EFFECTS: Final = ("NoSchedule", "NoExecute")
# Autoscalers mark a node that they remove by these taints. Source: Cluster Autoscaler, utils/taints; Karpenter,
# apis/v1/taints.go, and disruption in v1beta1.
REMOVAL_TAINTS: Final = ("ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption")
# The only field of a node that a pod may select by.
_NAME: Final = "metadata.name"
# Requests that a pod may have as a whole, besides those of its containers. Source: Kubernetes documentation, "Assign
# Pod-level CPU and memory resources".
_OF_WHOLE_PODS: Final = (names.CPU, names.MEMORY)
_HUGE_PAGES: Final = "hugepages-"

Amounts = tuple[tuple[str, int], ...]
# For each resource, the wanted and the free amount.
Shortages = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """A node without its cards: labels, taints, and allocatable (cpu in thousandths, the rest whole).

    leaving: the mark of a node that is about to be removed, "" without one. joining: it is new and has no cards yet.
    features: features that its kubelet declares.
    """

    name: NodeName
    uid: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    unschedulable: bool
    ready: bool
    allocatable: Mapping[str, int]
    leaving: str = ""
    joining: bool = False
    features: tuple[str, ...] = ()


def facts_of(node: Node, *, has_cards: bool = True) -> NodeFacts:
    """Return the part of *node* that constraints and `shortages` read; an unreadable allocatable counts as none."""
    return NodeFacts(
        name=node.name,
        uid=node.uid,
        labels=node.labels,
        taints=node.taints,
        unschedulable=node.unschedulable,
        ready=node.ready,
        allocatable=dict(_readable(node.allocatable)),
        leaving=_leaving(node),
        joining=node.joining and not has_cards,
        features=node.features,
    )


def _leaving(node: Node) -> str:
    """Return the mark of a *node* that is about to be removed, or ""."""
    if node.deleting:
        return "it is being deleted"
    marks = [taint.key for taint in node.taints if taint.key in REMOVAL_TAINTS and taint.effect in HARD_EFFECTS]
    return f"taint {marks[0]}" if marks else ""


def _readable(quantities: Mapping[str, str]) -> Iterable[tuple[str, int]]:
    for name, text in quantities.items():
        try:
            yield name, _parse(name, text)
        except InvalidRequestError:
            continue


@lru_cache(maxsize=1 << 12)
def _parse(name: str, text: str) -> int:
    return parse_milli(text, name) if name == names.CPU else parse_amount(text, name)


def _compared(name: str) -> bool:
    return name in names.NATIVE_RESOURCES or "/" in name or name.startswith(_HUGE_PAGES)


def amounts_of(pod: Pod) -> Amounts:
    """Return the use of a node by *pod*, sorted by resource: cpu in thousandths, the rest whole, and one of ``pods``.

    This is the larger of the init phase and the sum of containers and sidecars, or the request for the whole pod if it
    has one; plus overhead (Kubernetes' own rule).

    Raises:
        InvalidRequestError: a quantity is unreadable.
    """
    running: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in pod.init_containers:
        own = _requested(container)
        if container.sidecar:
            _add(running, own)
            own = {}
        for name, amount in own.items():
            peak[name] = max(peak.get(name, 0), amount + running.get(name, 0))
        for name, amount in running.items():
            peak[name] = max(peak.get(name, 0), amount)
    for container in pod.containers:
        _add(running, _requested(container))
    total = {name: max(running.get(name, 0), peak.get(name, 0)) for name in running.keys() | peak.keys()}
    for name, text in pod.resources.items():
        if name in _OF_WHOLE_PODS or name.startswith(_HUGE_PAGES):
            total[name] = _parse(name, text)
    _add(total, dict(overhead_of(pod)))
    total[names.PODS] = 1
    return tuple(sorted((n, a) for n, a in total.items() if a and _compared(n)))


def overhead_of(pod: Pod) -> Amounts:
    """Return what the RuntimeClass of *pod* adds to its containers, sorted by resource, in the same units.

    Raises:
        InvalidRequestError: a quantity is unreadable.
    """
    return tuple(sorted((name, _parse(name, text)) for name, text in pod.overhead.items()))


def parted(amounts: Amounts, uncounted: frozenset[str]) -> tuple[Amounts, Amounts]:
    """Split *amounts* into those that every node must have, and those of *uncounted* resources, which cards count.

    kubelet checks the latter only if they are advertised: see `has_account`.
    """
    return (
        tuple([one for one in amounts if one[0] not in uncounted]),
        tuple([one for one in amounts if one[0] in uncounted]),
    )


def _requested(container: Container) -> dict[str, int]:
    wanted = {name: _parse(name, text) for name, text in container.requests.items()}
    for name, text in container.limits.items():
        if name not in wanted:
            wanted[name] = _parse(name, text)
    return wanted


def _add(sums: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        sums[name] = sums.get(name, 0) + amount


def is_any(terms: Alternatives, facts: NodeFacts) -> bool:
    """Return whether the node meets one of *terms*."""
    return any(term and all(_selects(requirement, facts) for requirement in term) for term in terms)


def _selects(requirement: Requirement, facts: NodeFacts) -> bool:
    return satisfies({_NAME: facts.name} if requirement.of_field else facts.labels, requirement)


def required_labels(requirements: Iterable[Requirement]) -> list[tuple[str, str] | None]:
    """Return labels of which whatever meets *requirements* has one; None stands for none, where no value is named."""
    for one in requirements:
        if one.operator == "In":
            return [(one.key, value) for value in dict.fromkeys(one.values)]
    return [None]


def satisfies(labels: Mapping[str, str], requirement: Requirement) -> bool:
    """Return whether *labels* meet one match expression; an unknown operator is never met."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(value, requirement)
        case _:
            return False


def _compares(value: str | None, requirement: Requirement) -> bool:
    if value is None or len(requirement.values) != 1:
        return False
    text = requirement.values[0]
    have, limit = parse_int64(value), parse_int64(text)
    # A label value cannot start with a sign, so a requirement with one is never met.
    if have is None or limit is None or text[:1] in ("+", "-"):
        return False
    return have > limit if requirement.operator == "Gt" else have < limit


def shortages(wanted: Amounts, facts: NodeFacts, used: Mapping[str, int]) -> Shortages:
    """Return (resource, wanted, free) of every resource with too little; free is never below zero."""
    found = []
    for name, amount in wanted:
        free = facts.allocatable.get(name, 0) - used.get(name, 0)
        if amount > free:
            found.append((name, amount, max(free, 0)))
    return tuple(found)


def has_room(wanted: Amounts, allocatable: Mapping[str, int], used: Mapping[str, int]) -> bool:
    """Return whether `shortages` would be empty; the short form for the hot path."""
    for name, amount in wanted:  # noqa: SIM110  a generator costs twice as much here
        if used.get(name, 0) + amount > allocatable.get(name, 0):
            return False
    return True


def has_account(accounted: Amounts, allocatable: Mapping[str, int], used: Mapping[str, int]) -> bool:
    """Return whether kubelet would admit the *accounted* amounts; it ignores what the node does not advertise.

    Source: kubernetes, pkg/kubelet/lifecycle/predicate.go, removeMissingExtendedResources.
    """
    for name, amount in accounted:
        total = allocatable.get(name)
        if total is not None and used.get(name, 0) + amount > total:
            return False
    return True


def account_shortages(accounted: Amounts, facts: NodeFacts, used: Mapping[str, int]) -> Shortages:
    """Return (resource, wanted, free) of every resource for which `has_account` finds too little."""
    return shortages(tuple([one for one in accounted if one[0] in facts.allocatable]), facts, used)
