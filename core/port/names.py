"""The names of a protocol: resources, annotations, runtime classes."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names of one protocol under one configuration; what is left empty, it does not have.

    resources: by which containers request its cards. uncounted: those that are never compared with a node's
    allocatable. assignment_keys: pod annotations that only schedulers and device plugins write. repeats: by those that
    HAMi's webhook writes when a pod is created, the resource whose amount they repeat. preferences:
    annotations by which users select cards, which may change until the pod is bound.
    counts: by each resource for a part of a card, the resource that counts cards. fills: by the latter, the default
    count if it is not 1; 0 for none. paired: resources that count cards which are allocated only in pairs: 1 means 2.
    memories: by each resource that counts cards, the resource for the memory of each. units: by each resource for
    memory that is a number of units, the MiB of one; ``1Gi`` of it is rejected. budgeted: metered resources that a
    ResourceQuota can limit for a namespace under ``limits.``.
    totals: resources for a part of a card whose amount is that of all cards of a container together.
    quantities: resources with amounts such as ``4Gi``, with the MiB of a unit without suffix; all others are whole
    numbers.
    runtime_classes: those that its pods get if they name none.
    beginnings: how further annotations and resources begin by which a bound pod can hold its cards. A pod with none of
    these, none of *assignment_keys* and none of *resources* does not concern the protocol (`Catalog.concerned`).
    """

    resources: frozenset[str] = frozenset()
    uncounted: frozenset[str] = frozenset()
    assignment_keys: frozenset[str] = frozenset()
    repeats: Mapping[str, str] = field(default_factory=dict)
    preferences: frozenset[str] = frozenset()
    counts: Mapping[str, str] = field(default_factory=dict)
    fills: Mapping[str, int] = field(default_factory=dict)
    paired: frozenset[str] = frozenset()
    memories: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, int] = field(default_factory=dict)
    budgeted: tuple[str, ...] = ()
    totals: frozenset[str] = frozenset()
    quantities: Mapping[str, int] = field(default_factory=dict)
    runtime_classes: frozenset[str] = frozenset()
    beginnings: tuple[str, ...] = ()
