"""What each action and plugin of Volcano's scheduler is here: one table, which docs/volcano-scheduler-conf.md repeats.

Source: Volcano, pkg/scheduler/actions and plugins (groups 4).
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple


class Effect(StrEnum):
    """How much of a part is done here."""

    DONE = "done"
    PARTLY = "partly honoured"
    NONE = "has no effect here"


class Part(NamedTuple):
    """One action or plugin: how much of it is done here, what that is, and what leaving it out of the text means.

    without: "" where that is the same.
    """

    effect: Effect
    here: str
    without: str = ""


ACTIONS: Final[Mapping[str, Part]] = {
    "enqueue": Part(
        Effect.DONE,
        "a PodGroup is admitted when its queue is open, and the queue and the cluster have capacity for its "
        "`minResources`",
        "every PodGroup of an open queue is admitted at once, with any request",
    ),
    "allocate": Part(Effect.DONE, "pods are placed"),
    "backfill": Part(Effect.PARTLY, "pods without requests have no separate round; they are placed in their turn"),
    "preempt": Part(Effect.NONE, "only the setting `preemption` enables evictions for other pods"),
    "reclaim": Part(Effect.NONE, "only the setting `reclaim` lets queues take back what others have borrowed"),
}

PLUGINS: Final[Mapping[str, Part]] = {
    "priority": Part(
        Effect.PARTLY,
        "pods are placed by their priority, then by age; PodGroups, which have no pods yet, are admitted by the "
        "priority of their queue, then by age",
    ),
    "gang": Part(
        Effect.DONE,
        "`minMember` members of a PodGroup are placed at once, or none; it also decides when the group counts "
        "as running",
        "members are placed one at a time, and `minMember` has no effect",
    ),
    "conformance": Part(
        Effect.DONE, "no effect needed: pods of kube-system and of a critical priority are never evicted"
    ),
    "overcommit": Part(
        Effect.DONE,
        "admitted PodGroups may request `overcommit-factor` (1.2) times what the ready nodes have; for cards, "
        "no more than exist",
        "with `proportion` or `capacity` they may request what exists and no more; without these, there is no "
        "limit for the cluster",
    ),
    "proportion": Part(
        Effect.PARTLY,
        "a queue's `capability` limits what its pods hold; if several queues wait, the one that holds the "
        "smallest part of its deserved amount by `deserved`, `weight` and `guarantee` comes first, along the "
        "tree of parents, with or without the plugin; a queue may hold more than it deserves while others do "
        "not request it",
    ),
    "capacity": Part(
        Effect.PARTLY,
        "a queue's `capability` limits what its pods hold, and its deserved amount follows from `deserved`, "
        "`weight` and `guarantee`, along the tree of parents, with or without the plugin; only the setting "
        "`reclaim` enables evictions for that",
    ),
    "drf": Part(
        Effect.PARTLY, "queues are ordered by their dominant shares, PodGroups of one queue by priority and age"
    ),
    "sla": Part(Effect.NONE, "`sla-waiting-time` has no effect: no PodGroup is admitted because it waited long"),
    "predicates": Part(Effect.DONE, "nodes are judged by the rules of kube-scheduler, for every pod"),
}

# Known to Volcano of some version, and nothing here.
OTHER_ACTIONS: Final = ("elect", "gangpreempt", "gangreclaim", "reserve", "shuffle")

# Beside ``name`` and ``arguments`` in a plugin's entry: which of its functions are on (conf.PluginOption).
FLAGS: Final = (
    "enableJobOrder", "enableHierarchy", "enableJobReady", "enableJobPipelined", "enableTaskOrder",
    "enablePreemptable", "enableReclaimable", "enablePreemptive", "enableQueueOrder", "enabledClusterOrder",
    "enablePredicate", "enableBestNode", "enableNodeOrder", "enableTargetJob", "enableReservedNodes",
    "enableJobEnqueued", "enabledVictim", "enableJobStarving", "enabledOverused", "enabledAllocatable",
    "enabledHyperNodeOrder", "enabledSubJobReady", "enabledSubJobPipelined", "enabledSubJobOrder",
    "enabledHyperNodeGradient", "enableNamespaceOrder",
)  # fmt: skip
# Of these, those that choose whom to evict: here no plugin does.
EVICTING: Final = frozenset({"enablePreemptable", "enableReclaimable", "enablePreemptive", "enabledVictim"})

# Arguments that Volcano reads and that have no effect here, by plugin; one that ends in a dot begins others.
ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "predicates": (
        "predicate.NodeAffinityEnable", "predicate.NodePortsEnable", "predicate.TaintTolerationEnable",
        "predicate.PodAffinityEnable", "predicate.NodeVolumeLimitsEnable", "predicate.VolumeZoneEnable",
        "predicate.PodTopologySpreadEnable", "predicate.VolumeBindingEnable", "predicate.CacheEnable",
        "predicate.DynamicResourceAllocationEnable", "predicate.ProportionalEnable", "predicate.resources",
        "predicate.resources.",
    ),
    "nodeorder": ("selectorspread.weight", "volumebinding.weight"),
    "capacity": ("capacity.DynamicResourceAllocationEnable", "capacity.DRAConsumableCapacityEnable"),
    "extender": ("extender.",),
    "network-topology-aware": ("weight", "hypernode."),
    "nodegroup": ("strict",),
    "numaaware": ("weight",),
    "rescheduling": ("interval", "metricsPeriod", "strategies", "queueSelector", "labelSelector"),
    "resource-strategy-fit": (
        "resourceStrategyFitWeight", "resources", "resources.", "sra", "sra.", "proportional", "proportional.",
    ),
    "sla": ("sla-waiting-time",),
    "task-topology": ("task-topology.weight",),
    "tdm": ("tdm.revocable-zone.", "tdm.evict.period"),
    "usage": ("usage.weight", "cpu.weight", "memory.weight", "thresholds", "type"),
}  # fmt: skip

# Parameters of MindCluster's plugin in Volcano that have no effect here.
INIT_PARAMETERS: Final = (
    "grace-over-time", "nslb-version", "shared-tor-num", "super-pod-size", "reserve-nodes", "forceEnqueue",
)  # fmt: skip


def is_argument(plugin: str, key: str) -> bool:
    """Whether Volcano's *plugin* reads the argument *key* that has no effect here."""
    return any(key == one or (one.endswith(".") and key.startswith(one)) for one in ARGUMENTS.get(plugin, ()))


_OVERCOMMIT_MAX: Final = 1000.0


def overcommit_pct(plugins: Mapping[str, object], factor: object) -> int | None:
    """How much of the cluster admitted groups may ask, in percent; None: it is not looked at.

    Args:
        plugins: those that are named.
        factor: `overcommit-factor` as it is written, or None.
    """
    if "overcommit" in plugins:
        return _percent(factor)
    return 100 if {"proportion", "capacity"} & plugins.keys() else None


def _percent(factor: object) -> int:
    """1.2 as 120; what is no such number is 1.2, and less than 1 is too, as in Volcano."""
    try:
        found = float(factor) if isinstance(factor, str | int | float) else 1.2
    except ValueError:
        found = 1.2
    return round(100 * found) if 1.0 <= found <= _OVERCOMMIT_MAX else 120
