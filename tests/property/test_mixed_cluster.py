"""All protocols in one cluster: pods come and go at random, plugins fail, cards fail; nothing is sold twice."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from core.catalog import standard_catalog
from core.dialects.hami_vendors.vendor import Vendor
from core.ledger import Ledger
from core.model import Container, Node, NodeName, Phase, Pod, PodUid, container_names
from core.placing.candidates import Candidates
from core.placing.decide import Shape, decide, node_policy, shape_of
from core.port.handoff import Progress, Stamp
from core.settings import Policy, Settings, Tables
from sandbox.players.hami import HamiSetup
from sandbox.players.player import Card
from sandbox.players.registry import DEVICE_CONFIG
from tests.support.devices import ascend, vendors
from tests.support.devices.mindcluster import npu_node
from tests.support.devices.mixed import CORES, MEMORY, NUMBER, Wanted, wanted, wanted_of
from tests.support.devices.plugins import Plugins
from tests.support.devices.texts import device_tables
from tests.support.worlds.audit import audit

PODS = 2000
TABLES = Tables(sections=(*device_tables(DEVICE_CONFIG.read_text(encoding="utf-8")).sections, *vendors.TABLES.sections))
BASE = {"cpu": "512", "memory": "2048Gi", "pods": "500"}


def vgpu_node(name: str, model: str, memory: int, mode: str, count: int = 4) -> Node:
    register = "".join(f"GPU-{name}-{at},10,{memory},NVIDIA-{model},true,{mode}:" for at in range(count))
    amounts = {NUMBER: str(10 * count), MEMORY: str(count * memory), CORES: str(100 * count)}
    return made(name, amounts, {"volcano.sh/node-vgpu-register": register})


def hami_node(name: str, count: int = 4) -> Node:
    """A node of HAMi's plugin for NVIDIA cards."""
    cards = tuple(Card(id=f"GPU-{name}-{at}", model="Tesla T4", memory_mib=15360) for at in range(count))
    register = HamiSetup(cards=cards).register()
    return made(name, {"nvidia.com/gpu": str(10 * count)}, {"hami.io/node-nvidia-register": register})


def made(name: str, amounts: dict[str, str], annotations: dict[str, str] | None = None, **fields: Any) -> Node:
    full = {**BASE, **amounts}
    return Node(name=NodeName(name), capacity=full, allocatable=full, annotations=annotations or {}, **fields)


def joined(name: str, *nodes: Node) -> Node:
    """One node with the cards of several."""
    first = made(name, {})
    for one in nodes:
        first = replace(
            first,
            labels={**first.labels, **one.labels},
            annotations={**first.annotations, **one.annotations},
            capacity={**one.capacity, **one.allocatable, **first.capacity},
            allocatable={**one.allocatable, **first.allocatable},
            documents={**first.documents, **one.documents},
        )
    return first


def cluster() -> list[Node]:
    product = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
    gpus = made("gpus", {"nvidia.com/gpu": "8"}, labels=product)
    t4 = vgpu_node("t4", "Tesla T4", 15360, "hami-core")
    return [
        t4,
        vgpu_node("mps", "Tesla T4", 15360, "mps", 2),
        vgpu_node("mig", "NVIDIA A100-SXM4-40GB", 40960, "mig"),
        vgpu_node("a30", "NVIDIA A30", 24576, "mig", 2),
        made("share", {"volcano.sh/gpu-memory": "44712", "volcano.sh/gpu-number": "4"}),
        made("number", {"volcano.sh/gpu-number": "4"}),
        gpus,
        joined("both", vgpu_node("both", "Tesla T4", 15360, "hami-core", 2), replace(gpus, name=NodeName("x"))),
        hami_node("hami"),
        joined("torn", vgpu_node("torn", "Tesla T4", 15360, "hami-core", 2), hami_node("torn", 2)),
        joined("b3", ascend.node("Ascend910B3", [f"B3-{at}" for at in range(8)])),
        joined("mind", npu_node(4)),
        *[joined(port.name, vendors.node_of(port.vendor, cards_of(port.vendor), port.name)) for port in vendors.PORTS],
        joined("mixed-1", vgpu_node("m1", "NVIDIA A100-SXM4-40GB", 40960, "mig", 2), npu_node(2)),
        joined("mixed-2", t4, ascend.node("Ascend910B4-1", ["B41-0", "B41-1"]), ascend.node("Ascend310P", ["P-0"])),
    ]


def cards_of(vendor: Vendor) -> list[dict[str, Any]]:
    """The cards of its node."""
    return [
        vendors.card(vendor, at, id=f"{vendor.word}-{at}", numa=at // 2)
        for at in range(max((4, *vendor.limits.counts)))
    ]


def asked(chance: random.Random, number: int) -> Pod:
    """A random pod of a random protocol."""
    found, name = wanted(chance), f"pod-{number}"
    if chance.random() < 0.4:
        found = wanted_of(chance.choice(vendors.PORTS).vendor, chance)
    if chance.random() < 0.1:
        limits = {"nvidia.com/gpu": chance.choice("112"), "nvidia.com/gpumem": chance.choice(("1000", "6000", "12000"))}
        found = Wanted(limits={**limits, "nvidia.com/gpucores": chance.choice(("0", "30", "60"))})
    return Pod(
        uid=PodUid(name),
        namespace="default",
        name=name,
        annotations=found.annotations,
        labels=found.labels,
        containers=(Container(name="c", limits=found.limits, requests=found.limits),),
    )


def nonzero(amounts: Mapping[str, int]) -> dict[str, int]:
    return {key: amount for key, amount in amounts.items() if amount}


class World:
    """The cluster's objects, and the ledger that decides from them."""

    def __init__(self, seed: int, policy: Policy) -> None:
        self.chance = random.Random(seed)
        self.settings = Settings(policy=policy)
        self.ledger = Ledger(standard_catalog(), TABLES, self.settings)
        self.nodes = {node.name: node for node in cluster()}
        for node in self.nodes.values():
            self.ledger.set_node(node)
        self.candidates = Candidates(self.ledger, node_policy(self.settings))
        self.pods: dict[PodUid, Pod] = {}
        # Nodes of which something was changed.
        self.changed: set[str] = set()
        self.plugins = Plugins(
            {name: int(one.capacity.get("huawei.com/npu-core", 0)) // 8 for name, one in self.nodes.items()}
        )
        # Bound but not served, and served but not told of by the plugin.
        self.unserved: list[PodUid] = []
        self.unreported: list[PodUid] = []
        self.placed: Counter[str] = Counter()
        self.failed = self.refused = 0
        self.stamp = 100

    def arrive(self, number: int) -> None:
        pod = asked(self.chance, number)
        shape = shape_of(pod, self.ledger)
        assert isinstance(shape, Shape), shape
        placement = decide(self.candidates, pod, shape)
        if placement is None:
            self.refused += 1
            judging = self.ledger.catalog.judging(shape.dialect)
            for state in self.ledger.states.values():
                cards = state.cards(shape.dialect)
                if cards and judging.place(cards, shape.request, node_policy(self.settings).cards) is None:
                    assert judging.shortfalls(cards, shape.request)
            return
        self.ledger.reserve(placement)
        assert placement.dialect is not None
        dialect = self.ledger.catalog.dialects[placement.dialect]
        # What a plugin could mistake for each other is not in flight together.
        marks = dialect.confusable(shape.request)
        while any(marks & self.marks(uid) for uid in self.unserved if self.pods[uid].node_name == placement.node):
            self.serve()
        self.stamp += 1
        names = container_names(pod)
        stamp = Stamp(node=placement.node, now_s=self.stamp, order=self.stamp, containers=names)
        written = dialect.annotations(placement.assignment, stamp, TABLES)
        bound = pod._replace(node_name=placement.node, annotations={**pod.annotations, **written})
        self.keep(bound)
        self.unserved.append(bound.uid)
        self.placed[placement.dialect] += 1

    def keep(self, pod: Pod) -> None:
        """The API server holds *pod* like this now."""
        self.pods[pod.uid] = pod
        self.changed.add(pod.node_name)
        self.ledger.count(pod)

    def audited(self) -> list[str]:
        """What is wrong on the nodes of which something was changed."""
        nodes = [node for name, node in self.nodes.items() if name in self.changed]
        pods = [pod for pod in self.pods.values() if pod.node_name in self.changed]
        self.changed.clear()
        return audit(nodes, pods, TABLES)

    def marks(self, uid: PodUid) -> frozenset[Hashable]:
        """What the plugin could mistake a bound pod by."""
        flights = (one.in_flight(self.pods[uid], TABLES) for one in self.ledger.catalog.dialects.values())
        return frozenset(mark for flight in flights if flight is not None for mark in flight.confusable)

    def serve(self) -> None:
        """Kubelet admits one of the pods that wait for a plugin, in no order: its plugin serves it, or fails."""
        pod = self.pods[self.unserved.pop(self.chance.randrange(len(self.unserved)))]
        annotations = self.plugins.serve(pod, self.pods.values())
        if self.chance.random() < 0.15:
            self.failed += 1
            self.keep(pod._replace(phase=Phase.FAILED))
            for dialect in self.ledger.catalog.dialects.values():
                flight = dialect.in_flight(self.pods[pod.uid], TABLES)
                if flight is not None and flight.progress is Progress.FAILED and flight.cleanup:
                    cleaned = {**self.pods[pod.uid].annotations, **flight.cleanup}
                    self.keep(self.pods[pod.uid]._replace(annotations=cleaned))
            return
        self.keep(pod._replace(phase=Phase.RUNNING, started=True, annotations=annotations))
        self.unreported.append(pod.uid)

    def report(self) -> None:
        """The plugin tells what it gave to one of the pods that it served."""
        pod = self.pods[self.unreported.pop(self.chance.randrange(len(self.unreported)))]
        self.keep(pod._replace(annotations=self.plugins.report(pod)))

    def leave(self) -> None:
        """A pod's object goes."""
        if self.pods:
            uid = self.chance.choice(tuple(self.pods))
            for waiting in (self.unserved, self.unreported):
                if uid in waiting:
                    waiting.remove(uid)
            self.changed.add(self.pods.pop(uid).node_name)
            self.ledger.release(uid)

    def fails_a_card(self) -> None:
        """A card becomes unhealthy, or recovers."""
        key = "volcano.sh/node-vgpu-register"
        node = self.chance.choice([node for node in self.nodes.values() if key in node.annotations])
        records = node.annotations[key].rstrip(":").split(":")
        at = self.chance.randrange(len(records))
        ill = ",false," in records[at]
        records[at] = records[at].replace(",false,", ",true,") if ill else records[at].replace(",true,", ",false,")
        self.nodes[node.name] = replace(node, annotations={**node.annotations, key: ":".join(records) + ":"})
        self.ledger.set_node(self.nodes[node.name])
        self.changed.add(node.name)

    def rebuilt(self) -> Ledger:
        """The ledger that a fresh list makes."""
        fresh = Ledger(standard_catalog(), TABLES, self.settings)
        for node in self.nodes.values():
            fresh.set_node(node)
        for pod in self.pods.values():
            fresh.count(pod)
        return fresh


@pytest.mark.parametrize(("seed", "policy"), [(1, Policy.BINPACK), (2, Policy.SPREAD), (3, Policy.PACK)])
def test_no_card_is_sold_beyond_its_total_in_any_protocols_own_terms(seed, policy):
    world = World(seed, policy)
    for number in range(PODS):
        world.arrive(number)
        # Mostly more come than go, until a part of them leaves at once: full and emptying clusters are both seen.
        for _ in range(len(world.pods) // 3 if world.chance.random() < 0.01 else world.chance.random() < 0.5):
            world.leave()
        if world.unserved and world.chance.random() < 0.7:
            world.serve()
        if world.unreported and world.chance.random() < 0.7:
            world.report()
        if world.chance.random() < 0.02:
            world.fails_a_card()
        assert world.audited() == [], number
        if number % 200 == 199:
            assert audit(world.nodes.values(), world.pods.values(), TABLES) == [], number
            fresh = world.rebuilt()
            for name, state in world.ledger.states.items():
                assert state.offers == fresh.states[name].offers, name
                assert nonzero(state.used) == nonzero(fresh.states[name].used), name
    assert set(world.placed) == set(standard_catalog().dialects), world.placed
    assert min(world.placed.values()) >= 10, world.placed
    assert world.failed > 50
    assert world.refused > 300


def test_the_auditor_finds_what_is_wrong():
    world = World(1, Policy.BINPACK)
    entry = "GPU-t4-0,NVIDIA,9000,60:"
    pods = [
        Pod(uid=PodUid(n), namespace="d", name=n, node_name="t4", annotations={"volcano.sh/vgpu-ids-new": entry})
        for n in ("a", "b")
    ]
    found = audit(world.nodes.values(), pods, TABLES)
    assert found == ["t4: GPU-t4-0 holds 18000 MiB, 120 % and 2 shares of ['10', '15360']"]
    for node, ids in (
        ("t4", "GPU-none,NVIDIA,1,1:"),
        ("mig", "GPU-mig-0[group1-0],NVIDIA,1,1:GPU-mig-0[group3-0],NVIDIA,1,1:"),
        ("mig", "GPU-mig-0[group1-0],NVIDIA,1,1:GPU-mig-0[group1-0],NVIDIA,1,1:"),
        ("mig", "GPU-mig-0[group1-0],NVIDIA,6000,1:"),
        ("mig", "GPU-mig-0,NVIDIA,6000,1:"),
    ):
        wrong = pods[0]._replace(node_name=node, annotations={"volcano.sh/vgpu-ids-new": ids})
        assert audit(world.nodes.values(), [wrong], TABLES) != [], ids
    chips = [
        ("share", {"volcano.sh/gpu-index": "4"}),
        ("mind", {"huawei.com/npu-core": "0-vir04,1"}),
        ("b3", {"hami.io/Ascend910B3-devices-allocated": "B3-0,Ascend910B3,65537,0:;"}),
    ]
    for node, forged in chips:
        wrong = pods[0]._replace(node_name=node, annotations=forged)
        assert audit(world.nodes.values(), [wrong], TABLES) != [], forged
    assert json.loads(world.nodes[NodeName("b3")].annotations["hami.io/node-register-Ascend910B3"])
