"""Pods of every protocol come and go on one cluster while plugins fail and cards fail; audited all the while."""

import asyncio
import random
from collections import Counter
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.wire.nodes import node_from_object
from core.wire.pods import pod_from_object
from sandbox.demo.outcomes import NOT_REPORTED, unseen
from sandbox.nodes.kubelet import AdmissionOrder, KubeletSettings
from sandbox.players.registry import DEVICE_CONFIG
from tests.support.devices.mixed import wanted, would_fit
from tests.support.devices.texts import device_tables
from tests.support.worlds.audit import audit
from tests.support.worlds.controller_rig import PODS, pod

Json = dict[str, Any]

TABLES = device_tables(DEVICE_CONFIG.read_text(encoding="utf-8"))
STEPS, ARRIVE, SETTLED_WITHIN_S, SEED = 60, 5, 120, 1
RIGHTS = Path(__file__).parents[2] / "deploy" / "mindcluster.yaml"
T4 = {"kind": "vgpu", "model": "Tesla T4", "memory_mib": 15360}
A100 = {"kind": "vgpu", "model": "NVIDIA A100-SXM4-40GB", "memory_mib": 40960, "mode": "mig"}
MIND = {"kind": "mindcluster", "report_after_s": 0.05, "retry_after_s": 0.05}
ON_310P = {"labels": {"accelerator": "huawei-Ascend310P"}}
NODES: list[Json] = [
    {"name": "t4", "plugin": {**T4, "count": 4}},
    {"name": "mps", "plugin": {**T4, "mode": "mps", "count": 2}},
    {"name": "mig", "plugin": {**A100, "count": 3}},
    {"name": "share", "plugin": {"kind": "gpushare", "memory_mib": 11178, "count": 4}},
    {"name": "number", "plugin": {"kind": "gpushare", "strategy": "number", "memory_mib": 11178, "count": 4}},
    {"name": "gpus", "plugin": {"kind": "nvidia", "model": "NVIDIA A100-SXM4-80GB", "count": 8}},
    {"name": "hami", "plugin": {"kind": "hami", "model": "NVIDIA A10", "memory_mib": 23028, "count": 3}},
    {"name": "b3", "plugin": {"kind": "ascend-hami", "chip": "Ascend910B3", "count": 8}},
    {"name": "mind", **ON_310P, "plugin": {**MIND, "chips": 3}},
    {"name": "mixed-1", **ON_310P, "plugins": [{**A100, "count": 2}, {**MIND, "chips": 2}]},
    {
        "name": "mixed-2",
        "plugins": [
            {**T4, "count": 2},
            {"kind": "ascend-hami", "chip": "Ascend910B4-1", "count": 2},
            {"kind": "ascend-hami", "chip": "Ascend310P", "cards": [{"id": "NPU-310P-0"}]},
        ],
    },
]
# Node, which of its plugins, and the card by the plugin's own name for it.
MAY_FALL_ILL: tuple[tuple[str, int, str | int], ...] = (
    ("t4", 0, "GPU-t4-0"),
    ("mig", 0, "GPU-mig-0"),
    ("gpus", 0, "GPU-gpus-0"),
    ("hami", 0, "GPU-hami-0"),
    ("b3", 0, "NPU-b3-0"),
    ("mind", 0, 1),
    ("mixed-1", 1, 0),
    ("mixed-2", 0, "GPU-mixed-2-0"),
)
RESOURCES = {
    *(
        "volcano.sh/vgpu-number",
        "volcano.sh/gpu-memory",
        "volcano.sh/gpu-number",
        "nvidia.com/gpu",
        "nvidia.com/gpumem",
    ),
    *("huawei.com/Ascend910B3", "huawei.com/Ascend910B4-1", "huawei.com/Ascend310P", "huawei.com/npu-core"),
}


class Crowd:
    """What goes on in one cluster."""

    def __init__(self, world, controller, seed):
        self.world = world
        self.controller = controller
        self.chance = random.Random(seed)
        self.plugins = [plugin for node in NODES for plugin in world.kubelet.plugins(node["name"])]
        self.ill: tuple[Any, str | int] | None = None
        # In turn: a card that fails again and again is kept out for longer than this test waits.
        self.next_ill = cycle(self.chance.sample(MAY_FALL_ILL, len(MAY_FALL_ILL)))
        self.seen: Counter[str] = Counter()
        self.ran: set[str] = set()
        self.made: list[Json] = []

    async def step(self, number):
        """Some arrive, about as many leave, and now and then something goes wrong."""
        for at in range(ARRIVE):
            asked = wanted(self.chance)
            made = pod(f"p{number}-{at}", asked.limits, annotations=dict(asked.annotations))
            made["metadata"]["labels"] = dict(asked.labels)
            self.made.append(await self.world.client.create(PODS, made))
        # None that kubelet may be asking a plugin for: gone in the middle of it, the plugin takes the next pod for it.
        may_go = [one for one in await self.world.client.list(PODS) if self.is_settled(one)]
        for one in self.chance.sample(may_go, min(len(may_go), self.chance.choice((0, 2, 4, 10)))):
            await self.world.client.delete(f"{PODS}/{one['metadata']['name']}", grace_s=0)
        if self.chance.random() < 0.5:
            self.chance.choice(self.plugins).faults.fail_next = 1
        if self.chance.random() < 0.2:
            await self.fails_a_card()

    @staticmethod
    def is_settled(found):
        return found["status"].get("phase") in ("Running", "Failed")

    async def fails_a_card(self):
        """One card of one node becomes unhealthy, and the one before it is healthy again."""
        await self.recover()
        node, at, card = next(self.next_ill)
        self.ill = (self.world.kubelet.plugins(node)[at], card)
        await self.ill[0].set_healthy(card, False)

    async def recover(self):
        if self.ill is not None:
            await self.ill[0].set_healthy(self.ill[1], True)
            self.ill = None

    async def look(self):
        """The nodes and pods at this moment, audited."""
        assert self.controller.process.returncode is None, self.controller.log_tail()
        nodes = await self.world.client.list("/api/v1/nodes")
        pods = await self.world.client.list(PODS)
        assert audit(map(node_from_object, nodes), map(pod_from_object, pods), TABLES) == []
        for one in pods:
            name, phase = one["metadata"]["name"], one["status"].get("phase")
            self.seen[one["status"].get("reason") or phase] += 1
            if phase == "Running":
                env = self.world.records.of(f"default/{name}").values()
                assert unseen(one, env) in ("", NOT_REPORTED), name
                self.ran |= RESOURCES & one["spec"]["containers"][0]["resources"]["limits"].keys()
        return nodes, pods

    async def unsettled(self):
        """What still moves, or waits without need; nothing in the end."""
        nodes, pods = await self.look()
        moving = [one["metadata"]["name"] for one in pods if one["spec"].get("nodeName") and not self.is_settled(one)]
        maps = await self.world.client.list("/api/v1/configmaps")
        left = moving or would_fit(nodes, pods, maps, TABLES)
        # As they were made, and on an empty cluster, most fit; or this judge said no to everything.
        assert left or len(would_fit(nodes, self.made, maps, TABLES)) > len(self.made) / 2
        return left


async def test_a_mixed_crowd_is_never_sold_too_much_and_never_waits_without_need(rig):
    """`scripts/chaos` and `scripts/twin` play others."""
    kubelet = KubeletSettings(order=AdmissionOrder.SHUFFLED, seed=SEED)
    async with rig(nodes=NODES, kubelet=kubelet) as world:
        await world.ensure("/api/v1/namespaces", "mindx-dl")
        await world.apply(yaml.safe_load_all(RIGHTS.read_text(encoding="utf-8")))
        crowd = Crowd(world, await world.controller(), SEED)
        for number in range(STEPS):
            await crowd.step(number)
            await crowd.look()
        await crowd.recover()
        for plugin in crowd.plugins:
            plugin.faults.fail_next = 0
        left = ["?"]
        try:
            async with asyncio.timeout(SETTLED_WITHIN_S):
                while left:
                    await asyncio.sleep(0.2)
                    left = await crowd.unsettled()
        except TimeoutError:
            pytest.fail(str([(name, (await world.get(name))["status"]) for name in left]))
        assert crowd.ran == RESOURCES
        assert crowd.seen["UnexpectedAdmissionError"] > 0
        assert crowd.seen["Pending"] > 0
