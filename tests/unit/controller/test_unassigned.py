from tests.support.world import World, node, pod


def test_a_pod_that_somebody_else_bound_without_an_assignment_closes_its_node_and_is_told():
    world = World(node("n1"))
    stranger = world.shows(pod("stranger", scheduler_name="default-scheduler"), node_name="n1")
    world.adds(pod("a"))
    assert world.placed() == {"stranger": "n1"}
    assert world.stage("a") == "refused"
    (told,) = [one for one in world.announced() if one.reason == "CardsClosed"]
    assert (told.about.name, told.warning) == ("stranger", True)
    assert "volcano.sh/vgpu-number" in told.message
    world.shows(stranger, node_name="n1", labels={"x": "y"})
    assert [one for one in world.announced() if one.reason == "CardsClosed"] == []
    world.gone("stranger")
    world.passes(1.0)
    assert world.placed() == {"a": "n1"}


def test_a_pod_whose_cards_are_named_is_counted_whoever_bound_it():
    world = World(node("n1", memory=1500))
    named = {"volcano.sh/vgpu-ids-new": "n1-0,NVIDIA,1000,0:;"}
    world.shows(pod("stranger", scheduler_name="default-scheduler", annotations=named), node_name="n1")
    world.adds(pod("large"), pod("small", memory=500))
    assert world.placed() == {"stranger": "n1", "small": "n1"}
