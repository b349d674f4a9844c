"""Cards that becomes unhealthy again and again take nothing new, longer each time; the others of their node serve."""

import pytest

from controller.handing_over.closed_nodes import FIRST_S as REST_S
from controller.handing_over.closed_nodes import FORGOTTEN_S, LAST_S
from controller.handing_over.collision import CollisionKey
from controller.handing_over.registers import FIRST_OF_CARD_S, Flaps
from core.catalog import standard_catalog
from core.explaining import explain
from core.model import NodeName
from core.port.refusals import UNSTEADY, CardFault, Reason
from core.settings import DialectName, Policy, Settings
from tests.bench.fleets import FLEETS
from tests.support.worlds.world import World, node, pod

NODE = NodeName("n1")


def shown(version, *ids):
    """Node n1 with two cards, those of *ids* unhealthy."""
    made = node("n1", cards=2, version=version)
    register = made.annotations["volcano.sh/node-vgpu-register"]
    for one in ids:
        register = register.replace(f"{one},10,10000,NVIDIA-T4,true", f"{one},10,10000,NVIDIA-T4,false")
    return node("n1", cards=2, version=version, annotations={"volcano.sh/node-vgpu-register": register})


def flap(world, version, *ids):
    """Have cards become unhealthy, and be well again."""
    world.scheduler.nodes.changed(shown(f"{version}0", *ids))
    world.scheduler.nodes.changed(shown(f"{version}1"))


def faults(world):
    return [card.fixed.fault for card in world.scheduler.cluster.ledger.states[NODE].offers[DialectName("vgpu")]]


def rest_s(world):
    keys = CollisionKey(DialectName("vgpu"), frozenset())
    return world.scheduler.cluster.handoff.cooldown.left_s(NODE, keys, world.now_s)


def held(world, name):
    return {one[0] for one in world.scheduler.cluster.ledger.holding(world.seen(name).uid).assignment.parts}


def test_a_card_that_comes_back_once_is_used_after_its_nodes_rest():
    world = World(shown("1"))
    flap(world, 2, "n1-0")
    assert faults(world) == [None, None]
    assert rest_s(world) == REST_S


def test_38_a_card_that_flaps_takes_nothing_new_for_longer_each_time_and_the_others_of_its_node_serve():
    world = World(shown("1"))
    flap(world, 2, "n1-0")
    for at, kept_out_s in enumerate((10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0), start=3):
        flap(world, at, "n1-0")
        assert faults(world) == [Reason.UNSTEADY, None]
        # The node rests no longer than a plugin takes to come back.
        assert rest_s(world) == REST_S
        world.passes(kept_out_s - 5.0)
        assert faults(world) == [Reason.UNSTEADY, None]
        world.adds(pod(f"p{at}"))
        (bind,) = world.binds()
        assert "n1-1" in str(bind.annotations)
        world.accepts(bind)
        world.serves(f"p{at}")
        world.passes(10.0)
        assert faults(world) == [None, None]


def test_a_pod_that_only_such_a_card_would_take_is_told_so_and_bound_once_it_has_stayed_well():
    world = World(shown("1", "n1-1"))
    for at in (2, 3):
        world.scheduler.nodes.changed(shown(f"{at}0", "n1-0", "n1-1"))
        world.scheduler.nodes.changed(shown(f"{at}1", "n1-1"))
    assert faults(world) == [Reason.UNSTEADY, Reason.UNHEALTHY]
    world.adds(pod("p"))
    assert world.binds() == []
    shape = world.entry("p").shape
    assert shape is not None
    refused = explain.refused(world.ledger, shape, Policy.BINPACK)
    assert "every card that fits has become unhealthy repeatedly" in explain.sentence(refused)
    assert UNSTEADY in explain.report(refused)
    world.passes(FIRST_OF_CARD_S + 5.0)
    (bind,) = world.binds()
    assert "n1-0" in str(bind.annotations)


def test_what_a_card_holds_is_kept_while_it_flaps():
    world = World(shown("1"))
    world.adds(pod("p"))
    (bind,) = world.binds()
    world.accepts(bind)
    world.serves("p")
    before = world.scheduler.cluster.ledger.holding(world.seen("p").uid)
    for at in range(2, 6):
        flap(world, at, "n1-0", "n1-1")
    assert faults(world) == [Reason.UNSTEADY, Reason.UNSTEADY]
    assert world.scheduler.cluster.ledger.holding(world.seen("p").uid) == before


def test_a_flap_is_forgotten_after_ten_minutes_of_being_well():
    flaps = Flaps()
    for now_s in (0.0, 1.0):
        flaps.returned(NODE, DialectName("vgpu"), ("a",), now_s)
    assert flaps.unsteady(NODE) == {DialectName("vgpu"): {"a"}}
    assert flaps.counts([DialectName("vgpu")])[DialectName("vgpu")] == 1
    assert flaps.end(1.0 + FIRST_OF_CARD_S) == [NODE]
    assert flaps.counts([DialectName("vgpu")])[DialectName("vgpu")] == 0
    flaps.end(1.0 + FIRST_OF_CARD_S + FORGOTTEN_S)
    flaps.returned(NODE, DialectName("vgpu"), ("a",), 1.0 + FIRST_OF_CARD_S + FORGOTTEN_S)
    assert flaps.unsteady(NODE) == {}


def test_no_card_is_kept_out_for_more_than_five_minutes():
    flaps = Flaps()
    for _ in range(2000):
        flaps.returned(NODE, DialectName("vgpu"), ("a",), 0.0)
    assert flaps.end(LAST_S) == [NODE]


HEALING = {
    name: one for name, one in standard_catalog().dialects.items() if name in FLEETS and one.well(()) is not None
}


@pytest.mark.parametrize("name", HEALING)
def test_every_protocol_that_tells_of_unhealthy_cards_can_keep_some_out(name):
    fleet, dialect = FLEETS[name], HEALING[name]
    offers, _ = standard_catalog().offers(fleet.node(0), fleet.tables, Settings())
    cards = offers[name]
    names = dialect.well(cards) or frozenset()
    assert len(names) == len(cards)
    assert dialect.kept_out(cards, {}) == cards
    kept_out = dialect.kept_out(cards, dict.fromkeys(names, CardFault(Reason.UNSTEADY, UNSTEADY)))
    assert all(one != other for one, other in zip(cards, kept_out, strict=True))
    assert dialect.well(kept_out) == names
    assert dialect.healed(kept_out) == cards
