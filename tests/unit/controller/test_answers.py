from controller.answers import answer
from core.model import NodeName
from tests.support.world import World, node, pod

HELD = {"volcano.sh/vgpu-ids-new": "n1-0,NVIDIA,1000,0:"}


async def unasked(shape):
    raise AssertionError(shape)


async def test_a_bound_pod_is_told_its_node_its_cards_and_why_that_mode():
    world = World(node("n1"), node("n2"))
    world.adds(pod("p", node_name="n1", annotations=HELD))
    found = await answer(world.owner, unasked, "default/p")
    assert (found["state"], found["node"]) == ("bound", "n1")
    assert found["text"].startswith("is bound to n1: n1-0 (1000 MiB)\nThe mode was chosen: hami-core on n1")


async def test_a_bound_pod_whose_node_is_gone_is_told_so():
    world = World(node("n1"))
    world.adds(pod("p", node_name="n1", annotations=HELD))
    world.owner.nodes.gone(NodeName("n1"))
    found = await answer(world.owner, unasked, "default/p")
    assert found["text"] == "is bound to node n1, which does not exist; delete the pod, or bring the node back"
