"""Groups of pods, queues and network domains as values, from the objects of Volcano, Kubernetes and Coscheduling.

Three API groups have a kind PodGroup; `core.model.group_of` reads the one of a pod. Quantities are integers as in
`model`: cpu in thousandths, the rest in whole units.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, NamedTuple

from core.errors import quoted
from core.model import ALONE, BEGUN, SURPLUS, GroupKey, GroupKind, Pod, Requirement
from core.units import BYTES_PER_MIB

TASK: Final = "volcano.sh/task-spec"
# The minimum number of members if there is no PodGroup; read from pods here, and from their owner by Volcano.
MIN_MEMBER: Final = "scheduling.volcano.sh/group-min-member"
# The queue of a pod's group: of a Volcano Job (groups 1.7), or of a group that is made for other pods (groups 3).
QUEUE_OF_JOB: Final = "volcano.sh/queue-name"
QUEUE_OF_POD: Final = "scheduling.volcano.sh/queue-name"
# Volcano's job controller is about to delete the pod itself.
OUT_OF_SYNC: Final = "volcano.sh/controller-out-of-sync"
NUMA_POLICY: Final = "volcano.sh/numa-topology-policy"
QUEUE_GATE: Final = "scheduling.volcano.sh/queue-allocation-gate"
DEFAULT_QUEUE: Final = "default"
ROOT_QUEUE: Final = "root"
# A group with more subgroups is rejected.
SUBGROUPS_MAX: Final = 10_000
# All of a group is read at every decision about one of its pods, and everyone who may create groups decides how long
# that takes. A group with more tasks or entries of subGroupPolicy is rejected, or whose entries have more words: keys,
# and the values of their selectors.
PARTS_MAX: Final = 1000
WORDS_MAX: Final = 10_000


class GroupPhase(StrEnum):
    """status.phase of Volcano's PodGroup; absent means PENDING. Its job controller creates pods in all others."""

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
    """The status of a PodGroup. written: whether it has a phase."""

    phase: GroupPhase = GroupPhase.PENDING
    written: bool = False
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    conditions: tuple[GroupCondition, ...] = ()


class NetworkTopology(NamedTuple):
    """A requirement that all nodes of some members are in one domain of the network.

    hard: required, otherwise preferred. highest: tier of the largest allowed domain. highest_name: name of that tier if
    it has no number here. Without both, any nodes are allowed.
    """

    hard: bool = True
    highest: int | None = None
    highest_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubGroups:
    """One entry of subGroupPolicy: members that match *selector* and have equal values of *keys* form a subgroup.

    selector: None selects all. keys: if empty, there is one subgroup. size: members of a subgroup that are placed
    together or not at all. least: minimum number of placed subgroups, otherwise none of the group is placed. name:
    unique in its group.
    network_topology: applies to the members of one subgroup.
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

    min_member: members that are placed together or not at all; 0 and 1 mean no gang. min_task_member: minimums of
    tasks.
    sub_groups: gangs inside of it; a member belongs to the first match. min_resources: None if absent. created_s: Unix
    seconds. owner: kind/name of the controlling object. priority: as resolved by the API server; None if only
    priority_class defines it. preempts: whether other pods may be evicted for its members. stays: its members are not
    evicted for other pods. disrupted_together: whether all members are evicted if one is; None: absent, which means yes
    for gangs. topology_key: label whose value the nodes of all members share; "": none. network_topology: applies to
    all members. problems: names of fields with unsupported requests, or one entry for a group that cannot be read.
    unread: why it cannot.
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
    stays: bool = False
    disrupted_together: bool | None = None
    topology_key: str = ""
    network_topology: NetworkTopology | None = None
    created_s: int = 0
    owner: str = ""
    deleting: bool = False
    problems: tuple[str, ...] = ()
    unread: str = ""
    status: GroupStatus = GroupStatus()

    @property
    def is_gang(self) -> bool:
        """Whether some members are placed together or not at all."""
        return self.min_member > 1 or any(one.size > 1 or one.least for one in self.sub_groups)

    @property
    def minimums(self) -> tuple[object, ...]:
        """All that decides how many members are placed together."""
        return self.min_member, self.min_task_member, self.sub_groups

    @property
    def minimum_field(self) -> str:
        """The source of min_member in messages; without an object, annotations of members define it."""
        if not self.uid:
            return f"annotation {MIN_MEMBER}"
        return "the group's minCount" if self.key.kind is GroupKind.NATIVE else "the group's minMember"

    @property
    def task_minimums(self) -> Mapping[str, int]:
        """The minimums of tasks that apply: none if their sum exceeds min_member (as in Volcano; G11)."""
        return self.min_task_member if self.min_member >= sum(self.min_task_member.values()) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """A Queue of Volcano.

    capability, guarantee, deserved: amounts by resource; capability does not limit resources that it omits. state: as
    written by its controller, "" if absent. problems: names of fields with unsupported requests, or one entry for a
    queue that cannot be read. unread: why it cannot. in_bytes: by field, those of the amounts that have a binary
    suffix.
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
    unread: str = ""
    in_bytes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def in_units(self, units: Mapping[str, int]) -> "QueueSpec":
        """Return the queue with amounts of cards' memory in the units of containers; *units*: the MiB of each.

        Nobody means 68719476736 MiB by ``64Gi``.
        """
        if not self.in_bytes:
            return self
        return replace(
            self,
            capability=_in_units(self.capability, self.in_bytes.get("capability"), units),
            guarantee=_in_units(self.guarantee, self.in_bytes.get("guarantee"), units),
            deserved=_in_units(self.deserved, self.in_bytes.get("deserved"), units),
        )

    @property
    def is_open(self) -> bool:
        """Whether it takes groups; a queue without a state does."""
        return self.state in ("", "Open")


def _in_units(
    amounts: Mapping[str, int], in_bytes: Mapping[str, int] | None, units: Mapping[str, int]
) -> Mapping[str, int]:
    if not in_bytes:
        return amounts
    return {
        **amounts,
        **{
            name: amount // (units[name] * BYTES_PER_MIB) if name in units else amount
            for name, amount in in_bytes.items()
        },
    }


def progress_of(group: GroupSpec | None, placed: int) -> int:
    """Return how far *group* is with *placed* members.

    One that has begun and lacks members comes first, because what these members hold is of no use until then. Surplus
    members of a group that has its minimum come last (Volcano, plugins/gang).
    """
    if group is None or not placed:
        return ALONE
    return SURPLUS if placed >= group.min_member else BEGUN


def line_of(group: GroupSpec | None) -> str:
    """Return the queue in whose line pods of *group* stand; those without a group stand in that of `default`."""
    return group.queue if group is not None and group.queue else DEFAULT_QUEUE


def task_of(pod: Pod) -> str:
    """Return the task of a Volcano Job to which *pod* belongs, or ""."""
    return pod.annotations.get(TASK, "")


def unsupported_in(pod: Pod) -> str:
    """Return the unsupported request of a waiting member to Volcano, "" if there is none (groups 4.10)."""
    if pod.node_name:
        return ""
    policy = pod.annotations.get(NUMA_POLICY, "none")
    if policy != "none":
        return f"{NUMA_POLICY}: {quoted(policy)}"
    # Volcano's webhook adds a gate of the same name, which only its scheduler removes.
    if pod.gated and pod.annotations.get(QUEUE_GATE) == "true":
        return f'{QUEUE_GATE}: "true"'
    return ""


def is_leaving(pod: Pod) -> bool:
    """Return whether *pod* is or will be deleted: it keeps what it holds, but is no longer a member."""
    return pod.deleting or pod.annotations.get(OUT_OF_SYNC) == "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """Members of a HyperNode: the node *name*, or with is_inner the HyperNode *name*; or the matching nodes.

    pattern: a regular expression that matches node names. labels: requirements on node labels.
    """

    name: str = ""
    is_inner: bool = False
    pattern: str = ""
    labels: tuple[Requirement, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HyperNode:
    """One domain of the network: nodes of a switch, a rack or a block.

    tier: a smaller tier means that its nodes are closer together. Source: Volcano, topology/v1alpha1
    hypernode_types.go (groups 4.11).
    """

    name: str
    tier: int = 0
    tier_name: str = ""
    members: tuple[Members, ...] = ()
