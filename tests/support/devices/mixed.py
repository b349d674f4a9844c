"""Random requests in every protocol, and whether one that waits would fit a cluster as its objects tell of it."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from controller.documents import Documents, places
from core.catalog import standard_catalog
from core.dialects.hami_vendors.vendor import Vendor
from core.ledger import Ledger
from core.model import NodeName, Pod
from core.placing.decide import NodePolicy, Shape, node_policy, placed_on, shape_of, try_decide
from core.settings import Settings, Tables
from core.wire.config_maps import config_map_from_object
from core.wire.nodes import node_from_object
from core.wire.pods import pod_from_object
from tests.support.devices import vendors
from tests.support.devices.mindcluster import LABELS

Json = dict[str, Any]

NUMBER, MEMORY, CORES = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"
_KINDS: Final = (
    "vgpu",
    "vgpu",
    "vgpu",
    "memory",
    "number",
    "whole",
    "hami",
    "hami",
    "shares",
    "shares",
    "mind",
    "mind",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What one container asks for, and what its pod says about it."""

    limits: Mapping[str, str]
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


def wanted(chance: random.Random) -> Wanted:
    """A random request of a random protocol."""
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    limits: dict[str, int]
    kind = chance.choice(_KINDS)
    if kind == "vgpu":
        mode = chance.choice(("", "", "hami-core", "mig", "mps"))
        annotations = {"volcano.sh/vgpu-mode": mode} if mode else {}
        limits = {NUMBER: chance.choice((1, 1, 1, 2)), MEMORY: chance.choice((1000, 3000, 6000, 12000, 20000))}
        limits[CORES] = chance.choice((0, 0, 10, 50, 100))
    elif kind == "memory":
        limits = {"volcano.sh/gpu-memory": chance.choice((1000, 4000, 9000))}
    elif kind == "number":
        limits = {"volcano.sh/gpu-number": chance.choice((1, 2))}
    elif kind == "whole":
        annotations = {"nvidia.com/use-gputype": chance.choice(("A100", "A100-SXM4-80GB"))}
        limits = {"nvidia.com/gpu": chance.choice((1, 2, 4))}
    elif kind == "shares":
        wish = chance.choice(({}, {}, {"nvidia.com/use-gputype": "A10"}, {"hami.io/gpu-scheduler-policy": "mutex"}))
        annotations = dict(wish)
        limits = {"nvidia.com/gpu": chance.choice((1, 1, 2)), "nvidia.com/gpumem": chance.choice((1000, 6000, 20000))}
        limits["nvidia.com/gpucores"] = chance.choice((0, 0, 30, 100))
    elif kind == "hami":
        word = chance.choice(("Ascend910B3", "Ascend910B4-1", "Ascend310P"))
        count = chance.choice((1, 1, 2)) if word == "Ascend910B3" else 1
        limits = {f"huawei.com/{word}": count}
        if count == 1 and chance.random() < 0.8:
            limits[f"huawei.com/{word}-memory"] = chance.choice((2000, 10000, 30000 if word != "Ascend310P" else 12000))
    else:
        labels = {**LABELS, "vnpu-level": chance.choice(("low", "high"))}
        limits = {"huawei.com/npu-core": chance.choice((1, 2, 4, 8))}
    return Wanted(limits={key: str(value) for key, value in limits.items()}, annotations=annotations, labels=labels)


def wanted_of(vendor: Vendor, chance: random.Random) -> Wanted:
    """A random request of one of HAMi's other vendors, of one that its plugin can serve."""
    limits = vendors.any_container(vendor, chance, "c").limits
    alone = limits.get(vendor.limits.count) == "1"
    return Wanted(limits=limits, annotations=vendors.any_notes(vendor, chance, alone=alone))


def would_fit(nodes: Iterable[Json], pods: Iterable[Json], config_maps: Iterable[Json], tables: Tables) -> list[str]:
    """The names of pods on no node that some node has room for, judged from a ledger built from these objects alone.

    Room that a pod's `nominatedNodeName` keeps from others is not theirs (`_beside_nominated`).
    """
    settings, documents = Settings(), Documents(standard_catalog())
    told = [config_map_from_object(one) for one in config_maps]
    for place in places(standard_catalog()):
        documents.replace(place, [one for one in told if one.namespace == place.namespace])
    ledger = Ledger(standard_catalog(), tables, settings)
    for node in map(node_from_object, nodes):
        ledger.set_node(replace(node, documents=documents.of(node.name)))
    read = [pod_from_object(one) for one in pods]
    for pod in read:
        ledger.count(pod)
    waiting = [pod for pod in read if not pod.node_name and not pod.finished]
    nominated = [pod for pod in waiting if pod.nominated_node in ledger.states]
    cleared = {NodeName(pod.node_name) for pod in read if pod.node_name and pod.deleting and not pod.finished}
    fitting = []
    for pod in waiting:
        shape = shape_of(pod, ledger)
        assert isinstance(shape, Shape), (pod.name, shape)
        fits = try_decide(ledger, node_policy(settings), pod, shape) is not None
        before = [one for one in nominated if _is_kept_from(pod, one)]
        if fits and before:
            fits = _beside_nominated(ledger, node_policy(settings), pod, before, cleared)
        if fits:
            fitting.append(pod.name)
    return fitting


def _is_kept_from(pod: Pod, nominated: Pod) -> bool:
    """Whether what is kept for *nominated* is kept from *pod* (preemption.md, What happens): unless that comes before.

    Of one priority the older comes first, but not to this room if other room is made for it. Age is told in seconds:
    who came first within one is not known, and no pod is said to be forgotten for that.
    """
    if pod.uid == nominated.uid or nominated.priority < pod.priority:
        return False
    is_older = pod.created_s < nominated.created_s and not pod.nominated_node
    return nominated.priority > pod.priority or not is_older


def _beside_nominated(
    ledger: Ledger, policy: NodePolicy, pod: Pod, before: Sequence[Pod], cleared: set[NodeName]
) -> bool:
    """Whether a node has room for *pod* that is not kept for those *before* it.

    While pods end there, the whole node is kept. After that, it is theirs as far as they fit now: a nomination that
    serves nobody hides nobody.
    """
    closed = {NodeName(one.nominated_node) for one in before} & cleared
    with ledger.trial():
        for one in sorted(before, key=lambda one: (-one.priority, one.created_s, one.name)):
            _take(ledger, policy, one)
        shape = shape_of(pod, ledger)
        assert isinstance(shape, Shape)
        return any(placed_on(ledger, policy, pod, shape, name) for name in ledger.states.keys() - closed)


def _take(ledger: Ledger, policy: NodePolicy, nominated: Pod) -> None:
    shape = shape_of(nominated, ledger)
    assert isinstance(shape, Shape)
    placement = placed_on(ledger, policy, nominated, shape, NodeName(nominated.nominated_node))
    if placement is not None:
        ledger.reserve(placement)
