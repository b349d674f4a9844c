"""A handshake that nobody rewrites says nothing; where it is rewritten, the plugin knows pods by time alone."""

from dataclasses import replace

from controller.handing_over.registers import STALE_S
from core.model import Node, NodeName
from tests.support.worlds.world import World, node, pod

HANDSHAKE = "volcano.sh/node-vgpu-handshake"


def old(name="n1", beat="Reported 1", version="1", **fields) -> Node:
    """A node whose plugin, up to v1.12.0, has written a handshake."""
    made = node(name, version=version, **fields)
    return node(name, version=version, **fields, annotations={**made.annotations, HANDSHAKE: beat})


def at_index(name, index="0"):
    return pod(name, annotations={"cardshare.io/gpu-index": index})


def test_an_index_is_refused_while_the_handshake_is_rewritten():
    world = World(old())
    world.adds(at_index("p"))
    for beat in range(20):
        world.passes(30.0)
        world.scheduler.nodes.changed(old(beat=f"Reported {beat + 2}", version=str(beat + 2)))
    assert world.binds() == []
    assert world.stage("p") == "refused"


def test_an_index_is_taken_once_the_handshake_of_a_replaced_plugin_is_old():
    world = World(old())
    world.adds(at_index("p"))
    world.passes(STALE_S - 1.0)
    assert world.binds() == []
    for _ in range(3):
        world.passes(5.0)
    (bind,) = world.binds()
    assert bind.node == "n1"


def test_other_changes_of_the_node_do_not_make_the_handshake_young():
    world = World(old())
    world.adds(at_index("p"))
    for version in range(2, 14):
        world.passes(STALE_S / 10)
        world.scheduler.nodes.changed(old(version=str(version)))
    assert len(world.binds()) == 1


def test_a_plugin_that_beats_again_counts_as_old_again():
    world = World(old())
    for _ in range(3):
        world.passes(STALE_S)
    world.scheduler.nodes.changed(old(beat="Reported 2", version="2"))
    world.adds(at_index("p"))
    assert world.binds() == []


def test_pods_of_different_numbers_are_not_in_flight_together_where_an_old_plugin_serves():
    world = World(old(cards=3))
    world.adds(pod("one"), pod("two", number=2))
    (first,) = world.binds()
    assert world.stage("two" if first.pod.name == "one" else "one") == "turn"
    world.accepts(first)
    world.serves(first.pod.name)
    assert len(world.binds()) == 1


def test_they_are_where_main_serves_beside_what_an_old_one_left():
    world = World(old(cards=3))
    for _ in range(3):
        world.passes(STALE_S)
    world.adds(pod("one"), pod("two", number=2))
    assert len(world.binds()) == 2


def test_a_register_in_another_order_is_no_change_while_the_plugin_writes_it_in_any():
    world = World(old(cards=3))
    before = world.ledger.states[NodeName("n1")]
    made = old(cards=3, beat="Reported 2", version="2")
    register = made.annotations["volcano.sh/node-vgpu-register"]
    turned = ":".join(reversed(register.strip(":").split(":"))) + ":"
    annotations = {**made.annotations, "volcano.sh/node-vgpu-register": turned}
    world.scheduler.nodes.changed(replace(made, annotations=annotations))
    assert world.ledger.states[NodeName("n1")].offers == before.offers
