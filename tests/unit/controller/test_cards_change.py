"""Cards that change under running pods (facts 3.3): 37 other, 38 unhealthy, 39 another register, other modes.

What a pod holds is counted by the card's id, whatever stands at its place in the register.
"""

from collections.abc import Sequence

import pytest

from core.model import Node, NodeName, Phase
from core.settings import DialectName
from tests.support.worlds.world import World, node, pod

N1 = NodeName("n1")
REST_S = 6.0


def with_cards(version: str, *records: str) -> Node:
    """Node n1 with a register of these records: uuid, memory, health, mode."""
    pieces = (one.split(",") for one in records)
    text = "".join(f"{uuid},10,{memory},NVIDIA-T4,{health},{mode}:" for uuid, memory, health, mode in pieces)
    return node("n1", cards=len(records), version=version, annotations={"volcano.sh/node-vgpu-register": text})


def plain(version: str, uuids: Sequence[str], memory: int = 1000) -> Node:
    return with_cards(version, *(f"{uuid},{memory},true,hami-core" for uuid in uuids))


def running(world: World, name: str, memory: int) -> str:
    """Have a pod bound and served: on which card."""
    world.adds(pod(name, memory=memory))
    (bind,) = world.binds()
    world.accepts(bind)
    world.serves(name)
    return str(bind.annotations["volcano.sh/vgpu-ids-new"].split(",")[0])


def used(world: World) -> dict[str, int]:
    cards = world.ledger.states[N1].offers.get(DialectName("vgpu"), ())
    return {card.fixed.uuid: card.used_memory for card in cards}


def test_39_a_card_that_leaves_the_register_takes_its_share_along_and_has_it_again_when_it_is_back():
    world = World(plain("1", ["g0", "g1"]))
    held = {running(world, "p0", 800), running(world, "p1", 700)}
    assert held == {"g0", "g1"}
    before = used(world)
    world.scheduler.nodes.changed(plain("2", ["g1"]))
    assert used(world) == {"g1": before["g1"]}
    world.scheduler.nodes.changed(plain("3", ["g0", "g1"]))
    assert used(world) == before
    world.now_s += REST_S
    world.adds(pod("q", memory=500))
    assert world.binds() == []


@pytest.mark.parametrize("order", [["g1", "g0"], ["g2", "g1", "g0"]], ids=["turned", "one more in front"])
def test_39_another_order_moves_nothing(order):
    world = World(plain("1", ["g0", "g1"]))
    card = running(world, "p0", 800)
    world.scheduler.nodes.changed(plain("2", order))
    world.now_s += REST_S
    assert {uuid: memory for uuid, memory in used(world).items() if memory} == {card: 800}


def test_39_half_the_memory_leaves_a_card_overfull_and_takes_nothing_new():
    world = World(plain("1", ["g0"]))
    running(world, "p0", 800)
    world.scheduler.nodes.changed(plain("2", ["g0"], memory=500))
    world.now_s += REST_S
    world.adds(pod("q", memory=100))
    assert world.binds() == []
    assert used(world) == {"g0": 800}
    assert world.holders("n1") == {"uid-p0"}
    world.scheduler.nodes.changed(plain("3", ["g0"]))
    world.now_s += REST_S
    assert len(world.binds()) == 1


def test_37_other_cards_under_the_same_name_are_empty_and_the_pods_of_the_old_ones_are_kept():
    world = World(plain("1", ["g0"]))
    running(world, "p0", 800)
    world.scheduler.nodes.gone(N1)
    world.scheduler.nodes.changed(plain("9", ["h0"]))
    world.now_s += REST_S
    assert used(world) == {"h0": 0}
    assert world.holders("n1") == {"uid-p0"}
    world.gone("p0")
    assert used(world) == {"h0": 0}


def test_38_an_unhealthy_card_takes_nothing_new_keeps_what_it_has_and_heals():
    world = World(plain("1", ["g0"]))
    running(world, "p0", 300)
    world.scheduler.nodes.changed(with_cards("2", "g0,1000,false,hami-core"))
    world.adds(pod("q", memory=100))
    assert world.binds() == []
    assert used(world) == {"g0": 300}
    world.scheduler.nodes.changed(plain("3", ["g0"]))
    world.now_s += REST_S
    (bind,) = world.binds()
    assert bind.pod.name == "q"


def test_a_mode_that_is_switched_under_a_running_pod_closes_the_card_until_it_is_gone():
    world = World(plain("1", ["g0"]))
    running(world, "p0", 300)
    world.scheduler.nodes.changed(with_cards("2", "g0,1000,true,mig"))
    world.now_s += REST_S
    world.adds(pod("q", memory=100))
    assert world.binds() == []
    assert world.holders("n1") == {"uid-p0"}
    world.scheduler.nodes.changed(plain("3", ["g0"]))
    world.now_s += REST_S
    (bind,) = world.binds()
    assert (bind.pod.name, used(world)) == ("q", {"g0": 400})


def test_31_a_pod_that_was_turned_away_frees_its_share_once():
    world = World(plain("1", ["g0"]))
    world.adds(pod("p0", memory=800))
    (bind,) = world.binds()
    world.accepts(bind)
    for _ in range(3):
        world.shows(world.seen("p0"), phase=Phase.FAILED, status_reason="UnexpectedAdmissionError")
        assert used(world) == {"g0": 0}
    world.gone("p0")
    assert used(world) == {"g0": 0}
