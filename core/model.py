"""Pods and nodes as values: what the cluster says, with annotations still as text.

Quantities of Kubernetes' own resources are integers here (cpu in thousandths, the rest in whole units);
what a device protocol reads is left as text for its dialect.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, NewType

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
    """By what a container could reach more than its share of cards; read of pods under review alone.

    capabilities: those added. env: of its variables those that `core.watched` names, with what is written there, None
    where it comes from elsewhere. env_from: whether there are variables that nobody sees here. mounts: of the paths at
    which volumes are mounted those that plugins keep to themselves.
    """

    privileged: bool = False
    capabilities: tuple[str, ...] = ()
    env: tuple[tuple[str, str | None], ...] = ()
    env_from: bool = False
    mounts: tuple[str, ...] = ()


NO_REACH: Final = Reach()


class Image(NamedTuple):
    """A container image that a node has: all its names, by tags and by digest, and its size."""

    names: tuple[str, ...]
    size_bytes: int


# Protocol, address of the node ("" or 0.0.0.0: all of them), and port.
HostPort = tuple[str, str, int]


class Container(NamedTuple):
    """One container: limits and requests as written, by resource name; sidecar = restartable init container.

    After a resize its requests are what kubelet counts: the most of what is asked, allocated and in use.
    """

    name: str
    limits: Mapping[str, str] = EMPTY
    requests: Mapping[str, str] = EMPTY
    sidecar: bool = False
    host_ports: tuple[HostPort, ...] = ()
    reach: Reach = NO_REACH

    def amount(self, resource: str) -> str | None:
        """What is written of *resource*: its limit, else its request; None where it is not named."""
        text = self.limits.get(resource)
        return self.requests.get(resource) if text is None else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """One toleration of a pod; empty key with Exists tolerates everything, empty effect every effect."""

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

    of_field: over the node's fields instead, of which metadata.name is the only one.
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()
    of_field: bool = False


# An OR of ANDs; an empty AND is met by nothing.
Alternatives = tuple[tuple[Requirement, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConstraints:
    """All of a pod that decides by a node's labels and taints alone; shared by every shape that has the same.

    affinity: required node affinity, an OR of ANDs; None = not asked, () = no term, which matches nothing. volumes: one
    such OR for each thing that the pod's volumes ask of its node. features: those that a node has to declare.
    """

    selector: tuple[tuple[str, str], ...] = ()
    affinity: Alternatives | None = None
    tolerations: tuple[Toleration, ...] = ()
    volumes: tuple[Alternatives, ...] = ()
    features: tuple[str, ...] = ()


class PeerTerm(NamedTuple):
    """One required term of a pod's affinity or anti-affinity to other pods, as written.

    selector, namespace_selector: what their labels, and those of their namespaces, must meet; None: not given.
    label_keys, other_label_keys: matchLabelKeys and mismatchLabelKeys.
    """

    topology_key: str
    selector: tuple[Requirement, ...] | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: tuple[Requirement, ...] | None = None
    label_keys: tuple[str, ...] = ()
    other_label_keys: tuple[str, ...] = ()


class Spread(NamedTuple):
    """One topology spread constraint, as written; by default it looks at no taints of nodes."""

    topology_key: str
    max_skew: int = 1
    selector: tuple[Requirement, ...] | None = None
    min_domains: int = 1
    by_affinity: bool = True
    by_taints: bool = False
    label_keys: tuple[str, ...] = ()


class PeerTerms(NamedTuple):
    """All of a pod that decides by where other pods are; shared by pods that ask the same."""

    affinity: tuple[PeerTerm, ...] = ()
    anti_affinity: tuple[PeerTerm, ...] = ()
    spread: tuple[Spread, ...] = ()


NO_PEERS: Final = PeerTerms()


class Wishes(NamedTuple):
    """What a pod would rather have of its node, as written; shared by pods that wish the same.

    nodes: preferred node affinity, weight and what a node is to meet. near: preferred affinity to other pods, weight
    and term; the weight of anti-affinity is negative. spread: the constraints with ScheduleAnyway.
    """

    nodes: tuple[tuple[int, tuple[Requirement, ...]], ...] = ()
    near: tuple[tuple[int, PeerTerm], ...] = ()
    spread: tuple[Spread, ...] = ()


NO_WISHES: Final = Wishes()


class Disk(NamedTuple):
    """A disk that stands in the pod itself: of two with one of *names* in common, one at most is written on a node."""

    volume: str
    names: tuple[str, ...]
    read_only: bool = False


class PodVolumes(NamedTuple):
    """What a pod mounts that decides by where it is: claims by name, volumes that get a claim of their own, disks."""

    claims: tuple[str, ...] = ()
    ephemeral: tuple[str, ...] = ()
    disks: tuple[Disk, ...] = ()


NO_VOLUMES: Final = PodVolumes()


class Pod(NamedTuple):
    """A pod as the API server tells it.

    created_s is Unix seconds. overhead is by resource name, as written; so is resources, what is requested for the pod
    as a whole, or else its limit. unjudged names what the pod asks that no rule here decides yet ("resource claim x");
    such a pod waits with that name as its reason.
    images: what its containers and image volumes need, one for each, as nodes name them. features: what its node has to
    declare that it can do.
    init_done: whether every init container that ends has ended well.
    runtime_class is read of pods under review alone.
    bind_condition_reason is the reason of its PodScheduled condition, "" without one.
    scheduling_group names the PodGroup of Kubernetes' own that it is a member of.
    nominated_node is where its scheduler has made room for it, "" if nowhere. preempts is false where others of a lower
    priority are not to leave for it. start_s is when its kubelet took it, Unix seconds, 0 before. ready: whether its
    condition Ready is True.
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
    def finished(self) -> bool:
        """Whether the pod holds nothing any more: Succeeded or Failed (a deleting pod still holds; nvidia 4.2)."""
        return self.phase in (Phase.SUCCEEDED, Phase.FAILED)


class ReviewedPod(NamedTuple):
    """A pod under review: all of it that a rule of admission may read, and nothing that tells it from its siblings.

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
        """The same as dialects read it."""
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


# What dialects read requests of: the same of both.
AnyPod = Pod | ReviewedPod


def most_at_once(pod: AnyPod, amount: Callable[[Container], int]) -> int:
    """What *pod* takes at most at once of what each container takes an *amount* of.

    An init container ends before the next one starts; a sidecar stays beside all that come after it (KEP-753).
    """
    running = peak = 0
    for one in pod.init_containers:
        own = amount(one)
        peak = max(peak, running + own)
        running += own if one.sidecar else 0
    return max(peak, running + sum(map(amount, pod.containers)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as the API server tells it; capacity and allocatable as written, by resource name.

    documents holds side documents that a protocol needs (MindCluster's ConfigMaps), by name, as text. created_s is Unix
    seconds. joining: it came so lately that its device plugin may not have registered its cards yet. unserved:
    the dialects whose device plugins have left it, while other nodes have theirs. features: those that its kubelet
    declares. kubelet_version: such as ``v1.36.1``.
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
