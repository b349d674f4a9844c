"""Groups of pods and queues as values: what Volcano's, Kubernetes' own and Coscheduling's objects say of them.

Three API groups have a kind PodGroup. A group is known by which of them it is of, its namespace and its name.
Quantities are integers as in `nodefit`: cpu in thousandths, the rest in whole units.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from core.errors import quoted
from core.model import Pod, Requirement

# The only key that Volcano reads membership from (groups 1.1, G9).
MEMBER_OF: Final = "scheduling.k8s.io/group-name"
TASK: Final = "volcano.sh/task-spec"
# How many members are wanted at once, where no PodGroup can say it: on pods here, on their owner for Volcano.
MIN_MEMBER: Final = "scheduling.volcano.sh/group-min-member"
# Volcano's job controller is about to delete the pod itself.
OUT_OF_SYNC: Final = "volcano.sh/controller-out-of-sync"
NUMA_POLICY: Final = "volcano.sh/numa-topology-policy"
QUEUE_GATE: Final = "scheduling.volcano.sh/queue-allocation-gate"
COSCHEDULING_MEMBER_OF: Final = "scheduling.x-k8s.io/pod-group"

DEFAULT_QUEUE: Final = "default"
ROOT_QUEUE: Final = "root"
# A group of more subgroups is refused.
SUBGROUPS_MAX: Final = 10_000


class GroupKind(StrEnum):
    """The API group that a PodGroup is of."""

    VOLCANO = "scheduling.volcano.sh"
    NATIVE = "scheduling.k8s.io"
    COSCHEDULING = "scheduling.x-k8s.io"


class GroupKey(NamedTuple):
    """Which group is meant."""

    kind: GroupKind
    namespace: str
    name: str

    def __str__(self) -> str:
        """As people are told: the kind is named only where it is not Volcano's."""
        which = "PodGroup" if self.kind is GroupKind.VOLCANO else f"PodGroup ({self.kind.value})"
        return f"{which} {self.namespace}/{self.name}"


class GroupPhase(StrEnum):
    """status.phase of Volcano's PodGroup; an absent one is PENDING. Its job controller makes pods in all others."""

    PENDING = "Pending"
    INQUEUE = "Inqueue"
    RUNNING = "Running"
    UNKNOWN = "Unknown"
    COMPLETED = "Completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCondition:
    """One condition of a PodGroup; changed_at is its lastTransitionTime as written."""

    type: str
    status: bool
    reason: str = ""
    message: str = ""
    changed_at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """What a PodGroup's status says. written: whether it has a phase at all."""

    phase: GroupPhase = GroupPhase.PENDING
    written: bool = False
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    conditions: tuple[GroupCondition, ...] = ()


class NetworkTopology(NamedTuple):
    """That all nodes of some members are in one domain of the network.

    hard: no other nodes will do; otherwise that is preferred. highest: the tier of the widest domain that will do,
    highest_name: what that tier is called if it has no number here; without both any nodes will do.
    """

    hard: bool = True
    highest: int | None = None
    highest_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubGroups:
    """One entry of subGroupPolicy: members that meet *selector* and have equal values of *keys* are a subgroup.

    selector: None selects all. keys: none makes one subgroup of all. size: so many of a subgroup are placed together,
    or none. least: so many subgroups are placed, or none of the group. name: unique in its group. network_topology: of
    the members of one subgroup.
    """

    name: str
    selector: tuple[Requirement, ...] | None = None
    keys: tuple[str, ...] = ()
    size: int = 1
    least: int = 0
    network_topology: NetworkTopology | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    """A PodGroup.

    min_member: so many members are placed together, or none; 0 and 1 are no gang. min_task_member: of these tasks at
    least so many. sub_groups: gangs inside of it; a member is of the first that takes it. min_resources: None where it
    is not said. created_s is Unix seconds. owner: kind/name of the object that controls it. priority: as the API server
    found it; None where only priority_class says it. preempts: whether others may be evicted for its members.
    disrupted_together: whether all members leave if one does; None: not said, those of a gang do. topology_key:
    of the label whose value all members' nodes share; "": none. network_topology: of all members. problems: what it
    asks that is not honoured, by the names of its fields.
    """

    key: GroupKey
    uid: str = ""
    resource_version: str = ""
    min_member: int = 1
    min_task_member: Mapping[str, int] = field(default_factory=dict)
    sub_groups: tuple[SubGroups, ...] = ()
    min_resources: Mapping[str, int] | None = None
    queue: str = DEFAULT_QUEUE
    priority_class: str = ""
    priority: int | None = None
    preempts: bool = True
    disrupted_together: bool | None = None
    topology_key: str = ""
    network_topology: NetworkTopology | None = None
    created_s: int = 0
    owner: str = ""
    deleting: bool = False
    problems: tuple[str, ...] = ()
    status: GroupStatus = GroupStatus()

    @property
    def is_gang(self) -> bool:
        """Whether some members are placed together, or none of them."""
        return self.min_member > 1 or any(one.size > 1 or one.least for one in self.sub_groups)

    @property
    def minimum_field(self) -> str:
        """What says min_member, as people are told; where there is no object, members say it themselves."""
        if not self.uid:
            return f"annotation {MIN_MEMBER}"
        return "the group's minCount" if self.key.kind is GroupKind.NATIVE else "the group's minMember"

    @property
    def task_minimums(self) -> Mapping[str, int]:
        """The minimums of tasks that hold: none where they add up to more than min_member (as in Volcano; G11)."""
        return self.min_task_member if self.min_member >= sum(self.min_task_member.values()) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """A Queue of Volcano.

    capability, guarantee, deserved: amounts by resource; what capability does not name is not limited. state: as its
    controller wrote it, "" where none did. problems: what it asks that is not honoured, by the names of its fields.
    """

    name: str
    uid: str = ""
    resource_version: str = ""
    weight: int = 1
    priority: int = 0
    capability: Mapping[str, int] = field(default_factory=dict)
    guarantee: Mapping[str, int] = field(default_factory=dict)
    deserved: Mapping[str, int] = field(default_factory=dict)
    reclaimable: bool = True
    parent: str = ""
    created_s: int = 0
    state: str = ""
    allocated: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether it takes groups; one that no controller has looked at does."""
        return self.state in ("", "Open")


def group_of(pod: Pod) -> GroupKey | None:
    """The group that *pod* is a member of: Volcano's first, then Kubernetes' own, then Coscheduling's."""
    name = pod.annotations.get(MEMBER_OF)
    if name:
        return GroupKey(GroupKind.VOLCANO, pod.namespace, name)
    if pod.scheduling_group:
        return GroupKey(GroupKind.NATIVE, pod.namespace, pod.scheduling_group)
    name = pod.labels.get(COSCHEDULING_MEMBER_OF)
    return GroupKey(GroupKind.COSCHEDULING, pod.namespace, name) if name else None


def task_of(pod: Pod) -> str:
    """The task of a Volcano Job that *pod* is of, or ""."""
    return pod.annotations.get(TASK, "")


def unsupported_in(pod: Pod) -> str:
    """What a waiting member asks of Volcano that is not honoured, "" if there is nothing (groups 4.10)."""
    if pod.node_name:
        return ""
    policy = pod.annotations.get(NUMA_POLICY, "none")
    if policy != "none":
        return f"{NUMA_POLICY}: {quoted(policy)}"
    # Volcano's webhook adds a gate of the same name, which nobody but its scheduler lifts.
    if pod.gated and pod.annotations.get(QUEUE_GATE) == "true":
        return f'{QUEUE_GATE}: "true"'
    return ""


def is_leaving(pod: Pod) -> bool:
    """Whether *pod* is being deleted, or its controller is about to: it holds what it has, and is no member."""
    return pod.deleting or pod.annotations.get(OUT_OF_SYNC) == "true"
