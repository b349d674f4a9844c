"""Pods and nodes as values: the data of the cluster, with annotations as text.

Quantities of Kubernetes' own resources are integers (cpu in thousandths, the rest in whole units); values that a device
protocol reads stay text for its dialect. How labels and resources of a node without its cards are compared with what a
pod asks is here too, and what a pod says of its group; `core.constraints` and `core.groups` have the rest.

Source: Kubernetes documentation, "Assigning Pods to Nodes", "Resource Management for Pods and Containers";
kube-scheduler's plugin NodeResourcesFit.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple, NewType

from core import names
from core.errors import InvalidRequestError, escaped
from core.units import TRUE, parse_amount, parse_int64, parse_milli

PodUid = NewType("PodUid", str)
NodeName = NewType("NodeName", str)

EMPTY: Final[Mapping[str, str]] = {}


class Phase(StrEnum):
    """status.phase of a pod."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class Reach(NamedTuple):
    """Ways in which a container could access more than its share of cards; read only for pods under review.

    capabilities: the added ones. env: its variables in `core.watched` with their values, None if the value comes from
    elsewhere. env_from: whether there are variables with unknown names. mounts: mount paths of volumes that device
    plugins reserve.
    """

    privileged: bool = False
    capabilities: tuple[str, ...] = ()
    env: tuple[tuple[str, str | None], ...] = ()
    env_from: bool = False
    mounts: tuple[str, ...] = ()


NO_REACH: Final = Reach()


class Image(NamedTuple):
    """A container image on a node: all its names, by tag and by digest, and its size."""

    names: tuple[str, ...]
    size_bytes: int


# Protocol, address on the node ("" or 0.0.0.0: all of them), and port.
HostPort = tuple[str, str, int]


class Container(NamedTuple):
    """One container: limits and requests as written, by resource name; sidecar = restartable init container.

    After a resize, its requests are what kubelet counts: the maximum of requested, allocated and used.
    """

    name: str
    limits: Mapping[str, str] = EMPTY
    requests: Mapping[str, str] = EMPTY
    sidecar: bool = False
    host_ports: tuple[HostPort, ...] = ()
    reach: Reach = NO_REACH

    def amount(self, resource: str) -> str | None:
        """Return the written amount of *resource*: its limit, else its request; None if absent."""
        text = self.limits.get(resource)
        return self.requests.get(resource) if text is None else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """One toleration of a pod; an empty key with Exists tolerates everything, an empty effect every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """One taint of a node."""

    key: str
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One match expression over labels: operator In, NotIn, Exists, DoesNotExist, Gt or Lt.

    of_field: over the node's fields instead; metadata.name is the only one.
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()
    of_field: bool = False


# An OR of ANDs; an empty AND matches nothing.
Alternatives = tuple[tuple[Requirement, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConstraints:
    """The part of a pod that depends only on a node's labels and taints; shared by shapes with equal values.

    affinity: required node affinity, an OR of ANDs; None = absent, () = no term, which matches nothing.
    """

    selector: tuple[tuple[str, str], ...] = ()
    affinity: Alternatives | None = None
    tolerations: tuple[Toleration, ...] = ()


class PeerTerm(NamedTuple):
    """One required term of a pod's affinity or anti-affinity to other pods, as written.

    selector, namespace_selector: requirements on labels of pods and of their namespaces; None: absent.
    label_keys, other_label_keys: matchLabelKeys and mismatchLabelKeys.
    """

    topology_key: str
    selector: tuple[Requirement, ...] | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: tuple[Requirement, ...] | None = None
    label_keys: tuple[str, ...] = ()
    other_label_keys: tuple[str, ...] = ()


class Spread(NamedTuple):
    """One topology spread constraint, as written; by default it ignores taints of nodes."""

    topology_key: str
    max_skew: int = 1
    selector: tuple[Requirement, ...] | None = None
    min_domains: int = 1
    by_affinity: bool = True
    by_taints: bool = False
    label_keys: tuple[str, ...] = ()


class PeerTerms(NamedTuple):
    """The part of a pod that depends on the places of other pods; shared by pods with equal values."""

    affinity: tuple[PeerTerm, ...] = ()
    anti_affinity: tuple[PeerTerm, ...] = ()
    spread: tuple[Spread, ...] = ()


NO_PEERS: Final = PeerTerms()


class Wishes(NamedTuple):
    """The preferences of a pod about its node, as written; shared by pods with equal values.

    nodes: preferred node affinity, as weight and requirements. near: preferred affinity to other pods, as weight and
    term;
    anti-affinity has a negative weight. spread: the constraints with ScheduleAnyway.
    """

    nodes: tuple[tuple[int, tuple[Requirement, ...]], ...] = ()
    near: tuple[tuple[int, PeerTerm], ...] = ()
    spread: tuple[Spread, ...] = ()


NO_WISHES: Final = Wishes()


class Disk(NamedTuple):
    """A disk in the pod itself. Of two disks that share one of *names*, at most one may be writable on a node."""

    volume: str
    names: tuple[str, ...]
    read_only: bool = False


class PodVolumes(NamedTuple):
    """A pod's volumes that restrict its node: claims by name, ephemeral volumes with claims of their own, disks."""

    claims: tuple[str, ...] = ()
    ephemeral: tuple[str, ...] = ()
    disks: tuple[Disk, ...] = ()


NO_VOLUMES: Final = PodVolumes()


class Pod(NamedTuple):
    """A pod as the API server shows it.

    created_s: Unix seconds. overhead: by resource name, as written. resources: the request for the pod as a whole, or
    else its limit. unjudged: requests that no rule here supports yet ("resource claim x"); such a pod waits with that
    name as its reason.
    images: the images of its containers and image volumes, as nodes name them. features: features that its node must
    declare.
    init_done: whether every non-restartable init container has ended successfully, and none runs again.
    runtime_class: read only for pods under review.
    bind_condition_reason: the reason of its PodScheduled condition, "" without one.
    scheduling_group: name of its PodGroup of Kubernetes' own kind.
    nominated_node: the node that its scheduler nominated, "" if none. preempts: False if pods of lower priority must
    not be evicted for it. start_s: when its kubelet accepted it, Unix seconds, 0 before. ready: whether its condition
    Ready is True.
    """

    uid: PodUid
    namespace: str
    name: str
    labels: Mapping[str, str] = EMPTY
    scheduler_name: str = ""
    node_name: str = ""
    runtime_class: str = ""
    phase: Phase = Phase.PENDING
    deleting: bool = False
    gated: bool = False
    started: bool = False
    init_done: bool = False
    priority: int = 0
    scheduling_group: str = ""
    created_s: int = 0
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Mapping[str, str] = EMPTY
    resources: Mapping[str, str] = EMPTY
    constraints: NodeConstraints = NodeConstraints()
    peers: PeerTerms = NO_PEERS
    wishes: Wishes = NO_WISHES
    volumes: PodVolumes = NO_VOLUMES
    images: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()
    status_reason: str = ""
    status_message: str = ""
    scheduled_reason: str = ""
    scheduled_message: str = ""
    owner: str = ""
    nominated_node: str = ""
    preempts: bool = True
    start_s: int = 0
    service_account: str = ""
    ready: bool = False
    resource_version: str = ""
    annotations: Mapping[str, str] = EMPTY

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def host_ports(self) -> tuple[HostPort, ...]:
        """The host ports that the pod uses while it runs: those of its containers and sidecars."""
        running = (*(one for one in self.init_containers if one.sidecar), *self.containers)
        return tuple([port for one in running for port in one.host_ports])

    @property
    def finished(self) -> bool:
        """Whether the pod holds nothing any more: Succeeded or Failed (a terminating pod still holds; nvidia 4.2)."""
        return self.phase in (Phase.SUCCEEDED, Phase.FAILED)


class ReviewedPod(NamedTuple):
    """A pod under review: everything that an admission rule may read, and nothing that is unique to the pod.

    host_paths: of its volumes.
    """

    namespace: str
    labels: Mapping[str, str] = EMPTY
    annotations: Mapping[str, str] = EMPTY
    scheduler_name: str = ""
    node_name: str = ""
    runtime_class: str = ""
    deleting: bool = False
    finalizers: tuple[str, ...] = ()
    host_pid: bool = False
    host_paths: tuple[str, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()

    def as_pod(self) -> Pod:
        """Return the same data in the form that dialects read."""
        return Pod(
            uid=PodUid(""),
            namespace=self.namespace,
            name="",
            labels=self.labels,
            annotations=self.annotations,
            scheduler_name=self.scheduler_name,
            node_name=self.node_name,
            runtime_class=self.runtime_class,
            containers=self.containers,
            init_containers=self.init_containers,
        )


# Dialects read requests from both in the same way.
AnyPod = Pod | ReviewedPod


def container_names(pod: AnyPod) -> tuple[str, ...]:
    """Return the names of the containers of *pod*, init containers first."""
    return tuple([one.name for one in (*pod.init_containers, *pod.containers)])


def most_at_once(pod: AnyPod, amount: Callable[[Container], int]) -> int:
    """Return the maximum that *pod* uses at one time, if each container uses *amount*.

    An init container ends before the next one starts; a sidecar continues beside all later ones (KEP-753).
    """
    running = peak = 0
    for one in pod.init_containers:
        own = amount(one)
        peak = max(peak, running + own)
        running += own if one.sidecar else 0
    return max(peak, running + sum(map(amount, pod.containers)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as the API server shows it; capacity and allocatable as written, by resource name.

    documents: additional documents of a protocol (MindCluster's ConfigMaps), by name, as text. created_s: Unix seconds.
    joining: it is so new that its device plugin may not have registered its cards yet. unserved: the dialects whose
    device plugins have left it, while other nodes have them. features: features that its kubelet declares.
    kubelet_version: such as ``v1.36.1``.
    """

    name: NodeName
    uid: str = ""
    resource_version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=dict)
    allocatable: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    deleting: bool = False
    created_s: int = 0
    joining: bool = False
    unserved: frozenset[str] = frozenset()
    images: tuple[Image, ...] = ()
    features: tuple[str, ...] = ()
    kubelet_version: str = ""
    documents: Mapping[str, str] = field(default_factory=dict)


# ---------------------------------------------------------------------- labels and resources


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


# ---------------------------------------------------------------------- a pod's group and importance


# The only key that Volcano reads membership from (groups 1.1, G9).
MEMBER_OF: Final = "scheduling.k8s.io/group-name"
# Says whether a pod, or the pods of a group, may be evicted for others, as annotation, else as label. Source: Volcano,
# GetPodPreemptable and IsJobPreemptableForGangEviction, which its actions obey (groups 4.9).
_PREEMPTABLE: Final = "volcano.sh/preemptable"
COSCHEDULING_MEMBER_OF: Final = "scheduling.x-k8s.io/pod-group"

# The longest name of an object.
_NAME_MAX: Final = 253


class GroupKind(StrEnum):
    """The API group of a PodGroup."""

    VOLCANO = "scheduling.volcano.sh"
    NATIVE = "scheduling.k8s.io"
    COSCHEDULING = "scheduling.x-k8s.io"


class GroupKey(NamedTuple):
    """Identifies a group."""

    kind: GroupKind
    namespace: str
    name: str

    def __str__(self) -> str:
        """Return the form for messages, which shows the kind only if it is not Volcano's.

        The name may come from a pod's annotation, which can be any text.
        """
        which = "PodGroup" if self.kind is GroupKind.VOLCANO else f"PodGroup ({self.kind.value})"
        name = self.name if len(self.name) <= _NAME_MAX else f"{self.name[: _NAME_MAX - 1]}…"
        return f"{which} {self.namespace}/{escaped(name)}"


def group_of(pod: Pod) -> GroupKey | None:
    """Return the group of *pod*: Volcano's first, then Coscheduling's, then Kubernetes' own.

    Kubernetes' own comes last because people write the others, while the Job controller of Kubernetes 1.37 puts every
    pod of a Job into a group without a minimum (groups 7).
    """
    name = pod.annotations.get(MEMBER_OF)
    if name:
        return GroupKey(GroupKind.VOLCANO, pod.namespace, name)
    name = pod.labels.get(COSCHEDULING_MEMBER_OF)
    if name:
        return GroupKey(GroupKind.COSCHEDULING, pod.namespace, name)
    return GroupKey(GroupKind.NATIVE, pod.namespace, pod.scheduling_group) if pod.scheduling_group else None


# How far the group of a pod is: some members are placed, but too few; none is, or it has no group; it has its minimum.
BEGUN: Final = 0
ALONE: Final = 1
SURPLUS: Final = 2


class Standing(NamedTuple):
    """How important a pod is: its priority, and whether others of a lower one may be evicted for it.

    raised_by: the PriorityClass of its group that raised it above its own priority, `PRIORITY_FIELD` of
    `core.placing.queues` if the group names none, "" if it was not raised. progress: how far its group is; of pods of
    one priority, the smallest comes first.
    """

    priority: int
    preempts: bool
    raised_by: str = ""
    progress: int = ALONE


def order(standing: Standing, pod: Pod) -> tuple[int, int, int]:
    """Return where *pod* stands in its line, the smallest first: priority, then progress of its group, then age."""
    return (-standing.priority, standing.progress, pod.created_s)


def is_preemptable(annotations: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Return whether an object with these *annotations* and *labels* lets pods be evicted for others."""
    return annotations.get(_PREEMPTABLE, labels.get(_PREEMPTABLE, "true")) in TRUE
