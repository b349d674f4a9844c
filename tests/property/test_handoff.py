"""Whatever kubelets, plugins and people do, and in which order: no container receives another pod's cards."""

from __future__ import annotations

import os
import random

import pytest

from core.model import Container, NodeName, Phase, Pod, PodUid
from sandbox.players.vgpu_protocol import Version
from tests.support.devices.field import SHARE_MEMORY, Field, Kubelet, Order, field_node
from tests.support.worlds.world import NUMBER, World, pod

MEMORY = "volcano.sh/vgpu-memory"
# CARDSHARE_HANDOFF_LIVES=300 plays more of them than the normal run has time for.
LIVES = int(os.environ.get("CARDSHARE_HANDOFF_LIVES", "8"))


def asks(*numbers: int, memory: int = 100) -> tuple[Container, ...]:
    found = ({NUMBER: str(number), MEMORY: str(memory)} for number in numbers)
    return tuple(Container(name=f"c{at}", limits=one, requests=one) for at, one in enumerate(found))


def some_pod(chance: random.Random, at: int, *, shares: bool) -> Pod:
    name, created_s = f"p{at}", 1_800_000_000 + chance.randrange(3)
    if shares:
        return pod(name, limits={SHARE_MEMORY: str(chance.choice((100, 100, 200)))}, created_s=created_s)
    numbers = chance.choice(((1,), (1,), (1,), (2,), (2,), (3,), (1, 1), (2, 1)))
    return pod(name, containers=asks(*numbers), created_s=created_s)


def play(seed: int, order: Order, version: Version, *, shares: bool = False, steps: int = 600) -> Field:
    """A random life of two nodes and their pods."""
    chance = random.Random(seed)
    names = (NodeName("n1"), NodeName("n2"))
    world = World(*(field_node(name, version, shares=shares) for name in names))
    field = Field(world, [Kubelet(node, version, order) for node in names], chance)
    # Where v1.11.0 finds nobody it takes the first pod of the cluster (P20): against that nothing helps.
    innocent = pod("first", namespace="apps", scheduler_name="other", containers=())
    field.create(innocent._replace(phase=Phase.RUNNING, started=True))
    created = 0
    for _ in range(steps):
        world.now_s += chance.choice((0.0, 0.005, 0.02, 0.05))
        kubelet = field.kubelets[chance.choice(names)]
        match chance.randrange(16):
            case 0 | 1 if created < 60:
                field.create(some_pod(chance, created, shares=shares))
                created += 1
            case 2:
                field.delete(chance.choice([*field.api.pods][1:] or [PodUid("")]), force=chance.random() < 0.7)
            case 3:
                kubelet.paused = chance.random() < 0.3
            case 4 if chance.random() < 0.1:
                kubelet.plugin_is_up = not kubelet.plugin_is_up
            case 5 | 6 | 7:
                field.mirror(chance.choice((1, 1, 5)))
            case 8 | 9:
                field.control()
            case 10 | 11:
                field.write_binding()
            case 12 | 13:
                field.hear(kubelet, chance.choice((1, 1, 5)))
            case _:
                field.admit(kubelet)
    field.calm_down()
    return field


@pytest.mark.parametrize("shares", [False, True], ids=["vgpu", "share"])
@pytest.mark.parametrize("version", list(Version))
@pytest.mark.parametrize("order", list(Order))
def test_no_container_receives_another_pods_cards(order, version, shares):
    if shares and version is not Version.MAIN:
        pytest.skip("the share plugin has one version")
    for seed in range(LIVES):
        field = play(seed, order, version, shares=shares)
        assert not field.strangers(), (seed, field.strangers())
        assert not field.left_over(), (seed, field.left_over())
