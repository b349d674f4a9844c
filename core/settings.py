"""What an operator may set, as values; reading and checking the text is core.wire.configuration's part."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NewType

from core import names

# What a pod's schedulerName may hold and a log line or an event can show.
_SCHEDULER_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,251}[A-Za-z0-9])?", re.ASCII)
SCHEDULER_NAME_REMEDY: Final = "write the name of a scheduler: letters, digits, '-', '.'"


def is_scheduler_name(text: str) -> bool:
    """Whether pods can name a scheduler so."""
    return _SCHEDULER_NAME.fullmatch(text) is not None


class Policy(StrEnum):
    """How cards and nodes are preferred; INDEX is upstream's order where a configuration names no policy.

    PACK is decided among nodes (`core.placing.pack`): dialects are asked by BINPACK, and see CARD_POLICIES alone.
    """

    BINPACK = "binpack"
    PACK = "pack"
    SPREAD = "spread"
    INDEX = ""

    @property
    def packs(self) -> bool:
        """Whether it keeps idle nodes and cards whole for those who need them whole."""
        return self in {Policy.BINPACK, Policy.PACK}


# Those by which a dialect may be asked for cards.
CARD_POLICIES: Final = (Policy.BINPACK, Policy.SPREAD, Policy.INDEX)

# A device protocol, by the name that settings, metrics and explanations use; `core.catalog` says which there are.
DialectName = NewType("DialectName", str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """The words of dialects that a configuration's texts may use.

    dialects: every name. switches: by the argument of Volcano's deviceshare plugin, the dialect that it switches on;
    old_switches: those of them that the predicates plugin had up to v1.8.2. modes: the words of ways of sharing.
    """

    dialects: tuple[DialectName, ...] = ()
    switches: Mapping[str, DialectName] = field(default_factory=dict)
    old_switches: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()


CONTROLLER_ACCOUNT: Final = "system:serviceaccount:cardshare-system:cardshare-controller"


class OnOtherNodes(StrEnum):
    """What is done about a device plugin that writes the assignment of a pod that is not on its own node."""

    WARN = "warn"
    DENY = "deny"


class NeverFits(StrEnum):
    """What is done about a pod that no node of the cluster could ever take."""

    OFF = "off"
    WARN = "warn"
    DENY = "deny"


EVERY_NAMESPACE: Final = "*"

# Who is privileged needs none of the others to reach every device of its node; who may lift limits needs no mount.
_OF_PRIVILEGED: Final = frozenset({"CS303", "CS307", "CS308", "CS309"})
_OF_LIMITS: Final = frozenset({"CS304", "CS310"})
# What is only warned of, where kubelets are set up for it.
_OF_KUBELETS: Final = frozenset({"CS322"})
ALLOWABLE: Final = _OF_PRIVILEGED | _OF_LIMITS | _OF_KUBELETS

# Schedulers beside ours that give cards.
KNOWN_SCHEDULERS: Final = (names.VOLCANO_SCHEDULER_NAME, "hami-scheduler")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionSettings:
    """What the webhook enforces.

    trusted_accounts: user names that may write assignment keys; a trailing ``*`` is a prefix.
    None: the controller's and those of every dialect's device plugin.
    plugin_accounts: those of them that are device plugins, by name or prefix. None: those of every dialect's.
    other_schedulers: by the name that pods carry, the account of a scheduler beside ours that assigns its pods cards.
    plugins_on_other_nodes: what is done where such an account writes a pod that is not on the node of its token.
    default_mode: vgpu-mode by namespace where a pod names none; absent = the controller chooses.
    allow_privileged, allow_limit_overrides: let pass what would otherwise evade a share's limits, everywhere.
    allow: codes of rules that let pass what they would deny, by namespace, ``*`` for all; of `ALLOWABLE` alone.
    allow_variables: names of environment variables that no rule denies; a trailing ``*`` is a prefix.
    hide_devices: containers without cards in pods with cards are given variables by which runtimes show them none.
    memory_required: namespaces (``*`` for all) in which who asks for cards says how much memory of them.
    known_schedulers: beside ours, schedulers that give cards to pods that name them.
    admit_on_failure: answer a review that we fail to judge by admitting the object as it is; otherwise it is denied.
    never_fits: by namespace, ``*`` for all others, what is done about pods that no node could ever take.
    """

    trusted_accounts: tuple[str, ...] | None = None
    plugin_accounts: tuple[str, ...] | None = None
    other_schedulers: Mapping[str, str] = field(default_factory=dict)
    plugins_on_other_nodes: OnOtherNodes = OnOtherNodes.WARN
    default_mode: Mapping[str, str] = field(default_factory=dict)
    allow_privileged: bool = False
    allow_limit_overrides: bool = False
    allow: Mapping[str, frozenset[str]] = field(default_factory=dict)
    allow_variables: tuple[str, ...] = ()
    hide_devices: bool = False
    memory_required: frozenset[str] = frozenset()
    known_schedulers: tuple[str, ...] = KNOWN_SCHEDULERS
    admit_on_failure: bool = False
    never_fits: Mapping[str, NeverFits] = field(default_factory=dict)

    def never_fits_in(self, namespace: str) -> NeverFits:
        """What is done in *namespace* about pods that can never fit; warn where nothing is said."""
        found = self.never_fits
        return found.get(namespace) or found.get(EVERY_NAMESPACE) or NeverFits.WARN

    def allows(self, code: str, namespace: str) -> bool:
        """Whether the rule *code* lets pass in *namespace* what it would deny."""
        if (self.allow_privileged and code in _OF_PRIVILEGED) or (self.allow_limit_overrides and code in _OF_LIMITS):
            return True
        found = self.allow
        return bool(found) and (code in found.get(namespace, ()) or code in found.get(EVERY_NAMESPACE, ()))

    def allows_variable(self, name: str) -> bool:
        """Whether containers may set the variable *name*, whatever reads it."""
        return is_named(name, self.allow_variables)

    def requires_memory(self, namespace: str) -> bool:
        """Whether who asks for cards in *namespace* has to say how much memory of them."""
        found = self.memory_required
        return bool(found) and (namespace in found or EVERY_NAMESPACE in found)

    def is_account_of(self, scheduler: str, user_name: str) -> bool:
        """Whether *user_name* is that of the other scheduler of this name."""
        return self.other_schedulers.get(scheduler) == user_name


def is_named(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether *name* is one of *patterns*, of which a trailing ``*`` makes a prefix."""
    return any(name.startswith(one[:-1]) if one.endswith("*") else name == one for one in patterns)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWeights:
    """How much a node's own resources count beside its cards: Volcano's binpack and nodeorder plugins.

    binpack is the weight of the whole, resources what each resource asked for weighs in it. least_requested,
    most_requested and balanced judge cpu and memory as nodeorder does. All 0: nodes are compared by their cards. What
    pods prefer counts beside that, where any does: node_affinity, pod_affinity, pod_topology_spread; taint_toleration
    is for taints with PreferNoSchedule; image_locality orders nodes that are as good in all else, whatever it weighs.
    nodeorder has the same weights by default.
    """

    binpack: int = 0
    resources: tuple[tuple[str, int], ...] = (("cpu", 1), ("memory", 1))
    least_requested: int = 0
    most_requested: int = 0
    balanced: int = 0
    node_affinity: int = 2
    pod_affinity: int = 2
    pod_topology_spread: int = 2
    taint_toleration: int = 3
    image_locality: int = 1

    def __bool__(self) -> bool:
        """Whether anything but cards counts for every pod."""
        return bool(self.binpack or self.least_requested or self.most_requested or self.balanced)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeKind:
    """Nodes that the cluster may have although none is there now: what of a node tells of its cards, as it is written.

    labels, annotations, capacity: key and value.
    """

    name: str
    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    capacity: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """What a configuration of Volcano's scheduler says of groups.

    enqueue: a group is admitted only where queue and cluster could take its minResources. gang: its members are placed
    together. overcommit_pct: how much of the cluster admitted groups may ask; None = any.
    """

    enqueue: bool = True
    gang: bool = True
    overcommit_pct: int | None = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of both processes; the table in docs/settings.md says what each means.

    policy and schedule_weight follow ``deviceshare.*``; turn_wait_max_s is how long a pod may wait for its turn on
    nodes in use before an idle one is opened for it, under a policy that packs; handoff_timeout_s is when a silent
    plugin closes its node; keep_free_after_s is how long a pod or group is refused before nodes are kept free for it,
    for keep_free_for_s at most (0 = never); preemption: who was refused for preemption_delay_s has pods of a lower
    priority evicted, and their room kept for it for preemption_wait_s at most; reclaim: likewise pods of queues that
    hold more than they deserve, where its own holds less; volume_wait_max_s is how long a pod that has its place waits
    for its volume claims to be bound there; new_node_s is how long a node without cards counts as one whose device
    plugin has yet to register them; removed_pod_hold_s is how long a started pod that is removed by force keeps its
    cards; network_tiers are node labels, the narrowest domains first; dialects are those switched on, None: every one.
    switched_off: of the others, what switches each off and where that stands.
    """

    scheduler_names: tuple[str, ...] = (names.SCHEDULER_NAME,)
    policy: Policy = Policy.BINPACK
    schedule_weight: int = 1
    node_weights: NodeWeights = NodeWeights()
    dialects: frozenset[DialectName] | None = None
    turn_wait_max_s: float = 60.0
    handoff_timeout_s: float = 300.0
    bind_in_flight_max: int = 64
    refused_retry_s: float = 300.0
    keep_free_after_s: float = 300.0
    keep_free_for_s: float = 600.0
    preemption: bool = False
    reclaim: bool = False
    preemption_delay_s: float = 300.0
    preemption_wait_s: float = 600.0
    volume_wait_max_s: float = 600.0
    new_node_s: float = 60.0
    removed_pod_hold_s: float = 5.0
    audit_round_s: float = 600.0
    node_lock: bool = False
    metrics_per_pod: bool = False
    mode_preference: tuple[str, ...] = ()
    node_kinds: tuple[NodeKind, ...] = ()
    network_tiers: tuple[str, ...] = ()
    groups: GroupSettings = GroupSettings()
    admission: AdmissionSettings = AdmissionSettings()
    device_config_name: str = "volcano-vgpu-device-config"
    device_config_namespace: str = "kube-system"
    hami_config_name: str = "hami-scheduler-device"
    hami_config_namespace: str = "kube-system"
    switched_off: tuple[tuple[DialectName, str], ...] = ()

    def has_on(self, name: DialectName) -> bool:
        """Whether the dialect *name* is switched on."""
        return self.dialects is None or name in self.dialects

    def why_off(self, name: DialectName) -> str:
        """What switches the dialect *name* off, "" where nobody knows."""
        return dict(self.switched_off).get(name, "")
