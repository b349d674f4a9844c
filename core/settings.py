"""The configuration as values: the operator's settings, and what the device configuration says to dialects.

core.wire.configuration reads and validates the text of the settings. Each dialect has classes for its own sections of
the device configuration in its folder, and only that dialect uses them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, NewType, TypeVar

from core import names

# Allowed in a pod's schedulerName, and printable in a log line or an event.
_SCHEDULER_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,251}[A-Za-z0-9])?", re.ASCII)
SCHEDULER_NAME_REMEDY: Final = "write the name of a scheduler: letters, digits, '-', '.'"


NOT_OWNED: Final = (
    f"write cardshare, or another name of your own; kube-scheduler places pods of {names.DEFAULT_SCHEDULER_NAME} too"
)


def is_scheduler_name(text: str) -> bool:
    """Return whether *text* is a valid name of a scheduler."""
    return _SCHEDULER_NAME.fullmatch(text) is not None


class Policy(StrEnum):
    """The preference among cards and nodes; INDEX is upstream's order if a configuration names no policy.

    PACK decides among nodes (`core.placing.pack`); for it, dialects get BINPACK. They see only CARD_POLICIES.
    """

    BINPACK = "binpack"
    PACK = "pack"
    SPREAD = "spread"
    INDEX = ""

    @property
    def packs(self) -> bool:
        """Whether it keeps idle nodes and cards whole for pods that need them whole."""
        return self in {Policy.BINPACK, Policy.PACK}


# The policies that a dialect may get.
CARD_POLICIES: Final = (Policy.BINPACK, Policy.SPREAD, Policy.INDEX)

# A device protocol, by its name in settings, metrics and explanations; `core.catalog` lists them.
DialectName = NewType("DialectName", str)


CONTROLLER_ACCOUNT: Final = "system:serviceaccount:cardshare-system:cardshare-controller"


class OnOtherNodes(StrEnum):
    """The reaction to a device plugin that writes the assignment of a pod on another node."""

    WARN = "warn"
    DENY = "deny"


class NeverFits(StrEnum):
    """The reaction to a pod that no node of the cluster could ever take."""

    OFF = "off"
    WARN = "warn"
    DENY = "deny"


EVERY_NAMESPACE: Final = "*"

# A privileged container can access every device of its node, so it needs none of the others; a container that may
# change limits needs no mount.
_OF_PRIVILEGED: Final = frozenset({"CS303", "CS307", "CS308", "CS309"})
_OF_LIMITS: Final = frozenset({"CS304", "CS310"})
# A rule that only warns if kubelets are configured for it.
_OF_KUBELETS: Final = frozenset({"CS322"})
ALLOWABLE: Final = _OF_PRIVILEGED | _OF_LIMITS | _OF_KUBELETS

# Other schedulers that assign cards.
KNOWN_SCHEDULERS: Final = (names.VOLCANO_SCHEDULER_NAME, "hami-scheduler")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionSettings:
    """The rules that the webhook enforces.

    trusted_accounts: user names that may write assignment keys; a trailing ``*`` marks a prefix.
    None: the controller's and those of every dialect's device plugin.
    plugin_accounts: device plugins besides those of the dialects, which may write them too, by name or prefix.
    other_schedulers: accounts of other schedulers that assign cards, by the scheduler name of their pods.
    plugins_on_other_nodes: the reaction if such an account writes a pod that is not on the node of its token.
    default_mode: vgpu-mode by namespace for pods that name none; absent = the controller chooses.
    allow_privileged, allow_limit_overrides: allow everywhere what could exceed a share's limits.
    allow: codes of rules that allow what they would deny, by namespace, ``*`` for all; only codes in `ALLOWABLE`.
    allow_variables: names of environment variables that no rule denies; a trailing ``*`` marks a prefix.
    hide_devices: in pods with cards, containers without cards get variables that make runtimes hide all cards.
    memory_required: namespaces (``*`` for all) in which card requests must state their memory.
    known_schedulers: other schedulers that assign cards to pods that name them.
    admit_on_failure: admit an object unchanged if judging it fails; otherwise it is denied.
    never_fits: by namespace, ``*`` for all others, the reaction to pods that no node could ever take.
    """

    trusted_accounts: tuple[str, ...] | None = None
    plugin_accounts: tuple[str, ...] = ()
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
        """Return the reaction in *namespace* to pods that can never fit; warn by default."""
        found = self.never_fits
        return found.get(namespace) or found.get(EVERY_NAMESPACE) or NeverFits.WARN

    def allows(self, code: str, namespace: str) -> bool:
        """Return whether the rule *code* is lifted in *namespace*."""
        if (self.allow_privileged and code in _OF_PRIVILEGED) or (self.allow_limit_overrides and code in _OF_LIMITS):
            return True
        found = self.allow
        return bool(found) and (code in found.get(namespace, ()) or code in found.get(EVERY_NAMESPACE, ()))

    def allows_variable(self, name: str) -> bool:
        """Return whether containers may set the variable *name*, whatever reads it."""
        return is_named(name, self.allow_variables)

    def requires_memory(self, namespace: str) -> bool:
        """Return whether card requests in *namespace* must state their memory."""
        found = self.memory_required
        return bool(found) and (namespace in found or EVERY_NAMESPACE in found)

    def is_account_of(self, scheduler: str, user_name: str) -> bool:
        """Return whether *user_name* is the account of the other scheduler *scheduler*."""
        return self.other_schedulers.get(scheduler) == user_name


def is_named(name: str, patterns: tuple[str, ...]) -> bool:
    """Return whether *name* matches one of *patterns*; a trailing ``*`` marks a prefix."""
    return any(name.startswith(one[:-1]) if one.endswith("*") else name == one for one in patterns)


SERVICE_ACCOUNT: Final = "system:serviceaccount:"


def plugin_remedy(account: str) -> str:
    """Return how an operator lets the service account *account* write as a device plugin, for people."""
    return (
        f'if {account} is a device plugin, write accounts.plugins: {{"{account}": []}} into the values of the chart, '
        "with the keys of its Node in [] if pluginNodeWrites is Deny; "
        f'without Helm, write plugin_accounts: ["{account}"] under admission in cardshare.yaml, and the account into '
        "pluginAccounts of the policies"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWeights:
    """The weights of a node's own resources beside its cards: Volcano's binpack and nodeorder plugins.

    binpack: weight of the whole; resources: weights of the requested resources in it. least_requested, most_requested
    and balanced: for cpu and memory, as in nodeorder. All 0: nodes are compared by their cards. Preferences of pods
    count in addition, if there are any: node_affinity, pod_affinity, pod_topology_spread; taint_toleration is for
    taints with PreferNoSchedule; image_locality orders otherwise equal nodes, whatever its weight. nodeorder has the
    same defaults.
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
        """Return whether anything besides cards counts for every pod."""
        return bool(self.binpack or self.least_requested or self.most_requested or self.balanced)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeKind:
    """Nodes that may join the cluster later: the properties of a node that define its cards, as written.

    labels, annotations, capacity: key and value.
    """

    name: str
    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    capacity: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The settings for groups in a configuration of Volcano's scheduler.

    enqueue: admit a group only if queue and cluster could take its minResources. gang: place its members together.
    overcommit_pct: how much of the cluster admitted groups may request; None = any.
    """

    enqueue: bool = True
    gang: bool = True
    overcommit_pct: int | None = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of both processes; docs/settings.md describes each.

    policy and schedule_weight follow ``deviceshare.*``.
    turn_wait_max_s: under a policy that packs, how long a pod may wait for its turn on nodes in use before it gets an
    idle one.
    handoff_timeout_s: after this long without a response of its plugin, a node is closed.
    keep_free_after_s: how long a pod or group is refused before nodes are kept free for it, for at most keep_free_for_s
    (0 = never).
    preemption: after preemption_delay_s of refusal, pods of lower priority are evicted, and the capacity is kept for at
    most preemption_wait_s. reclaim: likewise for pods of queues that hold more than they deserve, if the pod's own
    queue holds less.
    volume_wait_max_s: how long a placed pod waits for its volume claims to be bound.
    new_node_s: how long the device plugin of a new node without cards may take to register them.
    mps_several_gpus: whether a container may get several GPUs that NVIDIA's plugin shares by MPS.
    removed_pod_hold_s: how long a started pod that is force-deleted keeps its cards.
    network_tiers: node labels, the smallest domains first.
    dialects: the enabled ones, None: all. switched_off: for the others, the setting that disables each, and its
    location.
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
    mps_several_gpus: bool = False
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
        """Return whether the dialect *name* is enabled."""
        return self.dialects is None or name in self.dialects

    def why_off(self, name: DialectName) -> str:
        """Return what disables the dialect *name*, "" if unknown."""
        return dict(self.switched_off).get(name, "")


class Section:
    """One dialect's part of the configuration, an immutable value; without arguments, it has the plugin's defaults."""

    __slots__ = ()

    @property
    def claimed(self) -> tuple[str, ...]:
        """Resources by which its plugin sells shares of cards, so that they have no other meaning."""
        return ()


_S = TypeVar("_S", bound=Section)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """Device configuration: what dialects need besides pod and node. A new version re-judges everything.

    sections: at most one of each class; a missing one has its defaults. lost: dialects whose own section is unusable.
    foreign: resources that HAMi's configuration names, and no dialect does. mps_several_gpus: as in `Settings`.
    """

    version: int = 0
    sections: tuple[Section, ...] = ()
    lost: frozenset[str] = frozenset()
    foreign: frozenset[str] = frozenset()
    mps_several_gpus: bool = False

    def of(self, kind: type[_S]) -> _S:
        """Return the section of class *kind*."""
        for one in self.sections:
            if isinstance(one, kind):
                return one
        name: Any = kind
        found: _S = _default(name)
        return found

    def is_claimed(self, resource: str) -> bool:
        """Return whether a plugin sells shares by *resource*, which then has no other meaning."""
        return any(resource in one.claimed for one in self.sections)


@lru_cache(maxsize=64)
def _default(kind: Any) -> Any:
    return kind()
