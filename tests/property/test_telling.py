"""What waiting pods are told is true again soon after something changed, and after all has been calm.

The truth is found anew for each pod when it is compared: nothing of it leans on who was asked, or told, of what.
"""

import asyncio
import re
from random import Random
from typing import Any

import pytest

from controller.deciding.lifecycle import Stage
from core.explaining import explain
from core.model import NodeConstraints, NodeName, Taint
from core.placing.decide import Shape
from core.settings import Policy
from core.waiting import Cause
from tests.support.worlds.telling import Rig
from tests.support.worlds.world import node, pod

pytestmark = pytest.mark.looptime

GROUP, LEAST = "scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-min-member"
RED = Taint(key="red", effect="NoSchedule")
# One change is told so soon, once what a pod was told has stood for so long (`conditions`).
SOON_S, CALM_S = 13.0, 620.0


class Cluster:
    """A rig in which things happen by chance."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.version = 0
        self.count = 0
        policy = self.chance.choice((Policy.BINPACK, Policy.SPREAD))
        names = range(self.chance.choice((1, 2, 4)))
        self.rig = Rig(*[self._node(at) for at in names], keep_free_for_s=0.0, policy=policy)
        self.world = self.rig.world
        self.world.has_no_kind()
        self.serves = self.chance.random() < 0.7

    def _node(self, number: int):
        chance = self.chance
        self.version += 1
        odd: dict[str, Any] = chance.choice(
            (
                {},
                {},
                {},
                {"unschedulable": True},
                {"ready": False},
                {"taints": (RED,)},
                {"annotations": {}},
                {"annotations": {"volcano.sh/node-vgpu-register": "bad"}},
            )
        )
        return node(
            f"n{number}",
            cards=chance.choice((1, 2, 4)),
            memory=chance.choice((1000, 4000, 10_000)),
            slots=chance.choice((1, 3, 10)),
            version=f"v{self.version}",
            labels={"zone": chance.choice("ab")},
            **odd,
        )

    # ------------------------------------------------------------------ what happens

    def a_node_changes(self) -> None:
        self.world.scheduler.nodes.changed(self._node(self.chance.randrange(4)))

    def a_node_goes(self) -> None:
        self.world.scheduler.nodes.gone(NodeName(f"n{self.chance.randrange(4)}"))

    def a_pod_comes(self) -> None:
        chance = self.chance
        self.count += 1
        # Conditions move versions too, by a count of their own.
        self.world.version = max(self.world.version, self.rig.calls.version)
        zone = (("zone", chance.choice("ab")),) if chance.random() < 0.2 else ()
        self.world.adds(
            pod(
                f"p{self.count}",
                memory=chance.choice((400, 1000, 4000, 20_000)),
                number=chance.choice((1, 1, 2, 3)),
                priority=chance.choice((0, 0, 5)),
                created_s=1_800_000_000 + self.count,
                constraints=NodeConstraints(selector=zone),
                annotations={GROUP: f"g{chance.randrange(3)}", LEAST: "3"} if chance.random() < 0.3 else {},
            )
        )

    def a_pod_goes(self) -> None:
        if self.world.pods:
            self.world.gone(self.chance.choice(sorted(one.name for one in self.world.pods.values())))

    def something(self) -> None:
        happens = (
            *[self.a_node_changes] * 3,
            self.a_node_goes,
            *[self.a_pod_comes] * 4,
            *[self.a_pod_goes] * 3,
        )
        self.chance.choice(happens)()

    async def lives(self, seconds: float, step_s: float) -> None:
        world, calls = self.world, self.rig.calls
        end_s = self.rig.now_s() + seconds
        while self.rig.now_s() < end_s:
            await self.rig.passes(step_s, step_s)
            for bind in world.binds():
                world.version = calls.version = max(world.version, calls.version)
                world.accepts(bind)
                if self.serves or self.chance.random() < 0.5:
                    world.serves(bind.pod.name)
            world.scheduler.cluster.actions.clear()

    # ------------------------------------------------------------------ what is true

    async def untrue(self) -> list[tuple[str, str, str]]:
        """Pods that no node takes, or that wait for their group: name, what is true, and what they were told."""
        found = []
        for entry in list(self.world.scheduler.cluster.queue):
            said = entry.condition.text if entry.condition is not None else ""
            if entry.stage is Stage.REFUSED and isinstance(entry.parked, Shape):
                answer, _ = await self.rig.teller.explain(entry.parked)
                silent = self.world.scheduler.cluster.requeue.silent.get(entry.parked, ())
                true = _reasons(explain.wait(answer, silent).message)
                if true != _reasons(said):
                    found.append((entry.pod.name, true, said))
            elif entry.wait is not None and entry.wait.cause is Cause.WAITING_FOR_GROUP and entry.stage is Stage.HELD:
                group = entry.pod.annotations[GROUP]
                there = sum(one.annotations.get(GROUP) == group for one in self.world.pods.values())
                ready = f" {there} {'is' if there == 1 else 'are'} ready"
                if ready not in said:
                    found.append((entry.pod.name, ready, said))
        return found


def _reasons(text: str) -> str:
    """A text without its numbers, and, where it counts nodes, without what it says of the nearest one."""
    reasons = text.split(". ", maxsplit=1)[0] if "nodes are available" in text else text
    return re.sub("[0-9]+", "#", reasons)


@pytest.mark.parametrize("seed", range(24))
async def test_what_waiting_pods_are_told_is_true(seed):
    cluster = Cluster(seed)
    async with asyncio.TaskGroup() as tasks:
        began = [tasks.create_task(one) for one in (cluster.rig.teller.run(), cluster.rig.recorder.run())]
        for _ in range(cluster.chance.choice((5, 30))):
            cluster.something()
            await cluster.lives(cluster.chance.choice((0.25, 1.0, 4.0)), 0.25)
        await cluster.lives(330.0, 1.0)
        assert await cluster.untrue() == []
        for _ in range(3):
            await cluster.lives(CALM_S, 5.0)
            assert await cluster.untrue() == []
            cluster.something()
            await cluster.lives(SOON_S, 0.25)
            assert await cluster.untrue() == []
        for one in began:
            one.cancel()
