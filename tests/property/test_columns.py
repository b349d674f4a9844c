"""The search answers what a scan of all nodes does, whatever happens to a cluster of all protocols at once."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from core.catalog import standard_catalog
from core.constraints.constraint import NodeSet
from core.dialects.vgpu.table import VgpuTable
from core.ledger import Ledger
from core.model import Image, Node, NodeName, Pod, PodUid
from core.placing.candidates import BYTES_MAX, Candidates
from core.placing.decide import NodePolicy, Shape, node_policy, scan, shape_of, shapes_by_way
from core.placing.pack import HoleValues, Table, losses
from core.settings import NodeWeights, Policy, Settings
from core.settings import Tables as CardTables
from core.wire.nodes import node_from_object
from core.wire.pods import pod_from_object
from tests.property.test_mixed_cluster import TABLES
from tests.support.devices import ascend
from tests.support.devices.mindcluster import npu_node
from tests.support.devices.mixed import CORES, MEMORY, NUMBER, wanted
from tests.support.worlds.placed import reserve

SEEDS, STEPS = 24, 120
# Model and memory; what nobody makes too.
VGPUS = (("Tesla T4", 15360), ("A100-SXM4-40GB", 40960), ("A30", 24576), ("odd", 7), ("huge", 2**31 - 1), ("none", 0))
SHARED = (("NVIDIA A100-SXM4-40GB", 40960), ("Tesla T4", 15360), ("NVIDIA A30", 24576))
WEIGHTS = (
    NodeWeights(),
    NodeWeights(binpack=3, resources=(("cpu", 1), ("memory", 2), ("nvidia.com/gpu", 5))),
    NodeWeights(least_requested=1, balanced=2),
    NodeWeights(most_requested=1_000_000, node_affinity=1_000_000, pod_affinity=1_000_000),
    NodeWeights(node_affinity=0, pod_affinity=0, pod_topology_spread=0, taint_toleration=0),
)
KEYS = ("zone", "rack", "kubernetes.io/hostname", "nobody's")
ASCEND = ("huawei.com/Ascend910B3", "huawei.com/Ascend910B3-memory")
Chance = random.Random
_Made = TypeVar("_Made")
Make = Callable[[Chance, str], _Made]


def _vgpu(chance: Chance, name: str) -> Node:
    count, mode = chance.choice((1, 1, 2, 4, 8, 120)), chance.choice(("hami-core", "hami-core", "mps", "mig", "mig"))
    usual = chance.choice(VGPUS)
    register, total = "", 1
    for at in range(count):
        model, memory = usual if chance.random() < 0.6 else chance.choice(VGPUS)
        total += memory
        own = mode if chance.random() < 0.95 else chance.choice(("mig", "mps", "strange"))
        well = str(chance.random() < 0.95).lower()
        register += f"GPU-{name}-{at},{chance.choice((1, 2, 10))},{memory},NVIDIA-{model},{well},{own}:"
    # Of a plugin with an old list kubelet counts less than the cards have.
    part = chance.choice((1, 1, 1, 2, 3))
    amounts = {NUMBER: str(10 * count), MEMORY: str(total // part + 1), CORES: str(100 * count // part + 1)}
    return Node(name=NodeName(name), annotations={"volcano.sh/node-vgpu-register": register}, allocatable=amounts)


def _shares(chance: Chance, name: str) -> Node:
    count = chance.choice((0, 1, 4, 8, 300))
    amounts = {"volcano.sh/gpu-number": str(count)}
    if chance.random() < 0.6:
        amounts["volcano.sh/gpu-memory"] = str(chance.choice((11178, 10**12, 0, 1)) * count)
    ill = {"volcano.sh/gpu-unhealthy-ids": "1"} if chance.random() < 0.2 else {}
    return Node(name=NodeName(name), annotations=ill, allocatable=amounts)


def _whole(chance: Chance, name: str) -> Node:
    labels = {"nvidia.com/gpu.product": chance.choice(("NVIDIA-A100-SXM4-80GB", "Tesla-T4"))}
    return Node(
        name=NodeName(name), labels=labels, allocatable={"nvidia.com/gpu": chance.choice(("0", "2", "8", "65536"))}
    )


def _hami(chance: Chance, name: str) -> Node:
    cards = []
    for at in range(chance.choice((1, 2, 8))):
        model, memory = chance.choice(SHARED)
        mode = chance.choice(("hami-core", "hami-core", "mig", "mps"))
        one = {"id": f"GPU-{name}-{at}", "index": at, "count": chance.choice((1, 3, 10)), "devmem": memory}
        cards.append({**one, "devcore": 100, "type": model, "numa": at // 2, "mode": mode, "health": at != 5})
    register = {"hami.io/node-nvidia-register": json.dumps(cards)}
    return Node(name=NodeName(name), annotations=register, allocatable={"nvidia.com/gpu": "80"})


def _ascend(chance: Chance, name: str) -> Node:
    word = chance.choice(("Ascend910B3", "Ascend910B4-1", "Ascend310P"))
    uuids = [f"{name}-{at}" for at in range(chance.choice((1, 2, 8)))]
    return ascend.node(word, uuids, soft=chance.random() < 0.3)


def _mind(chance: Chance, name: str) -> Node:
    del name
    unhealthy = (0,) if chance.random() < 0.2 else ()
    return npu_node(chance.choice((1, 4, 8)), per_chip=chance.choice((8, 10)), unhealthy=unhealthy)


PARTS: tuple[Callable[[Chance, str], Node], ...] = (_vgpu, _vgpu, _vgpu, _shares, _whole, _hami, _ascend, _mind)


def some_node(chance: Chance, name: str) -> Node:
    """A node with the cards of no protocol, or of some."""
    base = {
        "cpu": chance.choice(("4", "64", "512", "63770m", "0")),
        "memory": chance.choice(("8Gi", "2048Gi", "9223372036854775807")),
        "pods": chance.choice(("3", "500")),
    }
    labels = {"zone": chance.choice("ab"), "disk": chance.choice("sn"), "rack": chance.choice("123")}
    soft = [("s1", "PreferNoSchedule"), ("s2", "PreferNoSchedule"), ("t", "NoSchedule")]
    node = Node(name=NodeName(name), labels={"kubernetes.io/hostname": name}, allocatable=base, images=_images(chance))
    taints = [{"key": key, "effect": effect} for key, effect in soft if chance.random() < 0.15]
    node = replace(node, taints=node_from_object({"metadata": {"name": name}, "spec": {"taints": taints}}).taints)
    parts = [part(chance, name) for part in chance.sample(PARTS, chance.choice((0, 1, 1, 1, 2, 3)))]
    for one in (Node(name=node.name, labels={key: labels[key] for key in labels if chance.random() < 0.8}), *parts):
        node = replace(
            node,
            labels={**node.labels, **one.labels},
            annotations={**node.annotations, **one.annotations},
            allocatable={**one.allocatable, **node.allocatable},
            capacity={**node.capacity, **one.allocatable, **one.capacity},
            documents={**node.documents, **one.documents},
        )
    return node


def _images(chance: Chance) -> tuple[Image, ...]:
    return tuple(Image((f"{one}:latest",), 900 * 2**20) for one in "xyz" if chance.random() < 0.4)


def some_pod(chance: Chance, name: str) -> Pod:
    """A pod of a protocol, or of none, that wants nodes and neighbours, or would rather have them."""
    found = wanted(chance)
    limits, labels = dict(found.limits), {**found.labels, "app": chance.choice("abc")}
    if chance.random() < 0.2:
        limits = {}
    elif chance.random() < 0.12:
        limits[next(iter(limits))] = chance.choice(("3", "16", "64", "2000"))
    if MEMORY in limits and chance.random() < 0.25:
        del limits[MEMORY]
        limits["volcano.sh/vgpu-memory-percentage"] = chance.choice(("1", "33", "100"))
    beside = chance.choice(({}, {"cpu": "2"}, {"cpu": "100", "memory": "1Gi"}, {"cpu": "1500m", "memory": "300Gi"}))
    containers: list[Any] = [
        {"name": "c", "image": chance.choice("xyz"), "resources": {"limits": {**limits, **beside}}}
    ]
    if chance.random() < 0.25:
        # Others ask for as much, for nothing, or for more or fewer, larger or smaller shares.
        for extra in "de"[: chance.choice((1, 2))]:
            more = {name: _another(chance, name, of) for name, of in (limits if chance.random() < 0.8 else {}).items()}
            more["memory"] = chance.choice(("1Gi", "1Gi", "7Ei"))
            containers.append({"name": extra, "resources": {"limits": more}})
    if chance.random() < 0.1:
        containers[0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    affinity: dict[str, Any] = {}
    if chance.random() < 0.25:
        asked = [{"key": chance.choice(("zone", "disk")), "operator": "In", "values": [chance.choice("abs")]}]
        one = {"weight": chance.randint(1, 100), "preference": {"matchExpressions": asked}}
        affinity["nodeAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": [one]}
    for kind in ("podAffinity", "podAntiAffinity"):
        rather = [{"weight": chance.randint(1, 100), "podAffinityTerm": _term(chance)}]
        affinity[kind] = {"preferredDuringSchedulingIgnoredDuringExecution": rather} if chance.random() < 0.15 else {}
        if chance.random() < 0.05:
            affinity[kind]["requiredDuringSchedulingIgnoredDuringExecution"] = [_term(chance)]
    spread = {**_term(chance), "maxSkew": 2, "whenUnsatisfiable": chance.choice(("ScheduleAnyway", "DoNotSchedule"))}
    keys = ("t", "s1", "node.kubernetes.io/unschedulable")
    spec = {
        "containers": containers,
        "schedulerName": "cardshare",
        "affinity": affinity,
        "topologySpreadConstraints": [spread] if chance.random() < 0.15 else [],
        "nodeSelector": {"zone": "a"} if chance.random() < 0.1 else {},
        "tolerations": [{"key": key, "operator": "Exists"} for key in keys if chance.random() < 0.2],
    }
    metadata = {"name": name, "namespace": "d", "uid": name, "labels": labels, "annotations": dict(found.annotations)}
    return pod_from_object({"metadata": metadata, "spec": spec})


def _another(chance: Chance, resource: str, amount: str) -> str:
    """What one more container asks of *resource*, of which the first asks *amount*."""
    if "mem" in resource and not resource.endswith("percentage"):
        return chance.choice((amount, "700", "20000", "38000"))
    return chance.choice((amount, amount, "1"))


def _term(chance: Chance) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": {"app": chance.choice("abc")}}, "topologyKey": chance.choice(KEYS)}


def mixed_node(chance: Chance, name: str) -> Node:
    """A node with cards of several models and sizes, of one protocol."""
    count = chance.choice((2, 3))
    match chance.randrange(3):
        case 0:
            models = enumerate(chance.choices(VGPUS[:3], k=count))
            mode = chance.choice(("hami-core", "mig"))
            register = [f"GPU-{name}-{at},10,{mib},NVIDIA-{model},true,{mode}:" for at, (model, mib) in models]
            found = Node(
                name=NodeName(name),
                annotations={"volcano.sh/node-vgpu-register": "".join(register)},
                allocatable={NUMBER: "30", MEMORY: "200000", CORES: "300"},
            )
        case 1:
            cards = [
                {"id": f"GPU-{name}-{at}", "index": at, "count": 10, "devmem": mib, "devcore": 100, "type": model}
                | {"numa": 0, "mode": chance.choice(("hami-core", "mig")), "health": True}
                for at, (model, mib) in enumerate(chance.choices(SHARED, k=count))
            ]
            shown = {"hami.io/node-nvidia-register": json.dumps(cards)}
            found = Node(name=NodeName(name), annotations=shown, allocatable={"nvidia.com/gpu": "30"})
        case _:
            uuids = [f"{name}-{at}" for at in range(count)]
            sizes = {one: {"devmem": chance.choice((16384, 65536))} for one in uuids}
            found = ascend.node("Ascend910B3", uuids, soft=chance.random() < 0.5, name=name, **sizes)
    return replace(found, allocatable={**found.allocatable, "pods": "500"})


def unequal_pod(chance: Chance, name: str) -> Pod:
    """A pod of containers that ask for small and large shares, of one card and of two."""
    count, memory = chance.choice(((NUMBER, MEMORY), ("nvidia.com/gpu", "nvidia.com/gpumem"), ASCEND))
    soft = {"huawei.com/vnpu-mode": "hami-core"} if chance.random() < 0.5 else {}
    containers = []
    for at in range(chance.choice((2, 3))):
        limits = {count: chance.choice("112"), memory: chance.choice(("1000", "4000", "20000", "30000"))}
        if count == ASCEND[0] and limits[count] == "2":
            del limits[memory]  # several chips are given whole
        containers.append({"name": f"c{at}", "resources": {"limits": limits}})
    metadata = {"name": name, "namespace": "d", "uid": name, "annotations": soft if count == ASCEND[0] else {}}
    return pod_from_object({"metadata": metadata, "spec": {"containers": containers, "schedulerName": "cardshare"}})


class World:
    """A ledger to which anything happens, and candidates that are asked meanwhile."""

    def __init__(self, seed: int, some_node: Make[Node] = some_node, some_pod: Make[Pod] = some_pod) -> None:
        chance = self.chance = random.Random(seed)
        self.some_node, self.some_pod = some_node, some_pod
        policy = chance.choice((Policy.BINPACK, Policy.BINPACK, Policy.SPREAD, Policy.INDEX, Policy.PACK))
        weight, weights = chance.choice((1, 1, 0, 3, 1_000_000)), chance.choice(WEIGHTS)
        self.settings = Settings(policy=policy, schedule_weight=weight, node_weights=weights)
        self.rule = node_policy(self.settings)
        self.ledger = Ledger(standard_catalog(), TABLES, self.settings)
        self.size, self.number = chance.choice((1, 8, 30, 60)), 0
        for _ in range(self.size):
            self.ledger.set_node(some_node(chance, self.name()))
        self.pods = [some_pod(chance, f"q{number}") for number in range(chance.choice((1, 3, 8, 20)))]
        self.placed: list[PodUid] = []
        self.preparing: list[Iterator[None]] = []
        self.asked = self.found = 0
        self.crowds = [NodeSet(), NodeSet()]
        self.begin()

    def begin(self) -> None:
        """Know nothing of any node."""
        most = self.chance.choice((1, 3000, BYTES_MAX))
        self.candidates = Candidates(self.ledger, self.rule, at_once=self.chance.choice((1, 16)), bytes_max=most)

    def name(self) -> str:
        """A name among others, or one that comes before or behind them, or between two that are next to each other."""
        chance = self.chance
        self.number += 1
        among = f"n{chance.randrange(2 * self.size):03}"
        long = chance.randint(0, 60)
        between = (f"n001-{self.number:05}", "n0" + "0" * long + "1", "m" + "z" * long)
        ends = ("a" * chance.randint(1, 60), f"z{self.number:05}")
        return among if chance.random() < 0.5 else chance.choice((*between, *ends))

    def step(self) -> None:
        """Something happens."""
        often = (self.ask,) * 9 + (self.sets,) * 3 + (self.changes,) * 2 + (self.releases,) * 2 + (self.prepares,) * 2
        self.chance.choice((*often, self.crowds_change, self.goes, self.comes_back, self.tries, self.is_rare))()

    def some(self) -> NodeName:
        """A node that is there."""
        return self.chance.choice(list(self.ledger.states) or [NodeName("nobody")])

    def sets(self) -> None:
        """A node is there, or has other cards."""
        self.ledger.set_node(self.some_node(self.chance, self.name() if self.chance.random() < 0.5 else self.some()))

    def changes(self) -> None:
        """A node is cordoned, or not, or has other images."""
        node = self.ledger.node(self.some())
        if node is not None:
            self.ledger.set_node(replace(node, unschedulable=self.chance.random() < 0.3, images=_images(self.chance)))

    def crowds_change(self) -> None:
        """Nodes are left out now, or are not any more; of some nothing is known yet."""
        at = self.chance.randrange(len(self.crowds))
        if self.chance.random() < 0.1:
            self.crowds[at] = NodeSet()
        crowd = self.crowds[at]
        for name in [self.some(), self.some(), NodeName(self.name())]:
            crowd.add(name)
            if self.chance.random() < 0.1:
                for _ in range(600):  # more than its log remembers
                    crowd.discard(name)
                    crowd.add(name)
        for name in self.chance.sample(list(crowd), len(crowd) // 3):
            crowd.discard(name)

    def goes(self) -> None:
        """A node is gone."""
        self.ledger.remove_node(self.some())

    def comes_back(self) -> None:
        """A node goes, and comes back before anybody asks."""
        node = self.ledger.node(self.some())
        if node is not None:
            self.ledger.remove_node(node.name)
            self.ledger.set_node(node if self.chance.random() < 0.5 else self.some_node(self.chance, node.name))

    def releases(self) -> None:
        """A pod ends."""
        if self.placed:
            self.ledger.release(self.placed.pop(self.chance.randrange(len(self.placed))))

    def prepares(self) -> None:
        """Somebody begins to prepare, or goes on with it, or leaves it."""
        if self.chance.random() < 0.4 or not self.preparing:
            self.preparing.append(self.candidates.prepare(self.shape()))
        one = self.chance.choice(self.preparing)
        if next(one, True) or self.chance.random() < 0.1:
            self.preparing.remove(one)

    def tries(self) -> None:
        """Pods are placed and released for trying."""
        before = list(self.placed)
        with self.ledger.trial() as trial:
            for _ in range(3):
                there = [uid for uid in self.placed if self.ledger.node_of(uid) in self.ledger.states]
                if there and self.chance.random() < 0.4:
                    self.placed.remove(uid := self.chance.choice(there))
                    self.ledger.release(uid)
                self.ask()
            if self.chance.random() < 0.5:
                trial.keep()
        if not trial.kept:
            self.placed = before

    def is_rare(self) -> None:
        """What happens seldom."""
        match self.chance.randrange(7):
            case 0:
                for _ in range(60):
                    self.ledger.recount(self.some())
            case 1:
                self.ledger.set_aside(self.some(), "wrong")
            case 2:
                self.pods[self.chance.randrange(len(self.pods))] = self.some_pod(self.chance, f"q{self.number}")
            case 3:
                for name in self.chance.sample(list(self.ledger.states), len(self.ledger.states) // 2):
                    self.ledger.remove_node(name)
            case 4:
                vgpu = replace(
                    TABLES.of(VgpuTable), named=VgpuTable().named._replace(mib_per_unit=self.chance.choice((1, 10)))
                )
                for _ in self.ledger.configure(CardTables(sections=(vgpu,)), self.settings):
                    pass
                self.preparing.clear()
                self.begin()
            case 5 if self.rule.tables is not None:
                self.rule = learnt(self.chance, self.rule, self.ledger)
                self.candidates.judge_anew(self.rule)
            case _:
                self.candidates.choice(self.shape())
                self.candidates.size(self.shape())

    def shape(self) -> Shape:
        """What one of the pods asks, or one of the ways to serve it; *pod* is that one."""
        while True:
            at = self.chance.randrange(len(self.pods))
            self.pod = self.pods[at]
            shape = shape_of(self.pod, self.ledger)
            if isinstance(shape, Shape):
                return self.chance.choice([shape, shape, *shapes_by_way(self.ledger, shape).values()])
            self.number += 1
            self.pods[at] = self.some_pod(self.chance, f"q{self.number}")

    def ask(self) -> None:
        """Compare, and mostly promise what is found."""
        chance, shape = self.chance, self.shape()
        count = chance.choice((0, 0, 0, 1, 7, 8, 9, 500))
        some = chance.sample(list(self.ledger.states), min(count, len(self.ledger.states)))
        passed_over = frozenset({*some, *[NodeName(self.name()) for _ in range(min(count, 3))]})
        liking = self.ledger.images.liking(self.pod) if chance.random() < 0.7 else None
        crowd = chance.choice((None, *self.crowds))
        found = self.candidates.best(shape, passed_over, liking, crowd)
        assert found == scan(self.ledger, self.rule, shape, passed_over | frozenset(crowd or ()), liking=liking)
        self.asked += 1
        if found is None or chance.random() < 0.2:
            return
        self.found += 1
        pod = self.pod._replace(uid=PodUid(f"p{self.asked}"), name=f"p{self.asked}")
        self.placed.append(reserve(self.ledger, pod.name, shape, found, pod))


def learnt(chance: Chance, rule: NodePolicy, ledger: Ledger) -> NodePolicy:
    """*rule* with other tables."""
    sizes = {
        (name, hole.size)
        for state in ledger.states.values()
        for name, cards in state.offers.items()
        for hole in ledger.catalog.dialects[name].holes(cards)
    }
    by_size = {
        size: Table(losses({chance.randint(1, 100): 1.0}), (("cpu", 100.0), ("memory", 2.0**30)), chance.random())
        for size in sorted(sizes, key=repr)
    }
    return replace(rule, tables=HoleValues(by_size))


def test_the_best_is_that_of_a_scan_whatever_happens(monkeypatch):
    asked = found = 0
    for seed in range(SEEDS):
        monkeypatch.setattr("core.ledger._LOG_MAX", (1 << 17, 50, 3)[seed % 3])
        world = World(seed)
        for _ in range(STEPS):
            world.step()
        asked, found = asked + world.asked, found + world.found
    assert asked > SEEDS * STEPS // 3
    assert found > asked // 12


def test_the_best_is_that_of_a_scan_where_cards_of_a_node_and_containers_of_a_pod_are_unequal():
    asked = found = 0
    for seed in range(SEEDS):
        world = World(seed, mixed_node, unequal_pod)
        for _ in range(STEPS):
            world.step()
        asked, found = asked + world.asked, found + world.found
    assert asked > SEEDS * STEPS // 3
    assert found > asked // 12


@pytest.mark.parametrize("seed", range(3))
def test_many_nodes_that_come_and_go_leave_nothing_behind(seed):
    """Names are used up, and rows are crowded with nodes that are gone."""
    chance = random.Random(seed)
    world = World(100 + seed)
    for number in range(700):
        world.ledger.set_node(some_node(chance, f"n001-{number:05}"))
        if number > 20:
            world.ledger.remove_node(NodeName(f"n001-{number - 20:05}"))
        if number % 25 == 0:
            world.ask()
