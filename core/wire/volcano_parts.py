"""The effect of Volcano's actions and plugins here: one table, which docs/volcano-scheduler-conf.md repeats.

Source: Volcano, pkg/scheduler/actions and plugins (groups 4).
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple


class Effect(StrEnum):
    """How much of a part is supported here."""

    DONE = "done"
    PARTLY = "partly honoured"
    NONE = "has no effect here"


class Part(NamedTuple):
    """One action or plugin: how much is supported here, its effect, and the effect of omitting it.

    without: "" if that is the same.
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

# Known to some version of Volcano, without effect here.
OTHER_ACTIONS: Final = ("elect", "gangpreempt", "gangreclaim", "reserve", "shuffle")

# Keys besides ``name`` and ``arguments`` in a plugin's entry that enable its functions (conf.PluginOption).
FLAGS: Final = (
    "enableJobOrder", "enableHierarchy", "enableJobReady", "enableJobPipelined", "enableTaskOrder",
    "enablePreemptable", "enableReclaimable", "enablePreemptive", "enableQueueOrder", "enabledClusterOrder",
    "enablePredicate", "enableBestNode", "enableNodeOrder", "enableTargetJob", "enableReservedNodes",
    "enableJobEnqueued", "enabledVictim", "enableJobStarving", "enabledOverused", "enabledAllocatable",
    "enabledHyperNodeOrder", "enabledSubJobReady", "enabledSubJobPipelined", "enabledSubJobOrder",
    "enabledHyperNodeGradient", "enableNamespaceOrder",
)  # fmt: skip
# The functions among them that choose pods to evict; no plugin does so here.
EVICTING: Final = frozenset({"enablePreemptable", "enableReclaimable", "enablePreemptive", "enabledVictim"})

# Arguments that Volcano reads and that have no effect here, by plugin; a trailing dot marks a prefix.
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
    """Return whether Volcano's *plugin* reads the argument *key*, which has no effect here."""
    return any(key == one or (one.endswith(".") and key.startswith(one)) for one in ARGUMENTS.get(plugin, ()))


_OVERCOMMIT_MAX: Final = 1000.0


def overcommit_pct(plugins: Mapping[str, object], factor: object) -> int | None:
    """Return how much of the cluster admitted groups may request, in percent; None: unlimited.

    Args:
        plugins: the named plugins.
        factor: `overcommit-factor` as written, or None.
    """
    if "overcommit" in plugins:
        return _percent(factor)
    return 100 if {"proportion", "capacity"} & plugins.keys() else None


def _percent(factor: object) -> int:
    """Return 120 for 1.2; invalid numbers and numbers below 1 count as 1.2, as in Volcano."""
    try:
        found = float(factor) if isinstance(factor, str | int | float) else 1.2
    except ValueError:
        found = 1.2
    return round(100 * found) if 1.0 <= found <= _OVERCOMMIT_MAX else 120
