from core.model import NodeName
from tests.support.worlds.world import World, node, pod


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


def test_a_new_leader_tells_of_a_pod_that_closes_its_cards_though_they_are_named():
    world = World(node("n1", memory=10_000))
    world.adds(pod("a"))
    assert world.placed() == {"a": "n1"}
    # The plugin has come back with another unit: what the pod holds means another thing now.
    world.scheduler.nodes.changed(node("n1", memory=1000, version="2"))
    world.announced()
    for _ in world.scheduler.announce_anew():
        pass
    (told,) = [one for one in world.announced() if one.reason == "CardsClosed"]
    assert told.about.name == "a"
    assert told.message.startswith("its cards on node n1 accept no new shares while this pod is there: pod default/a")
    assert "of the 10000 units" in told.message


IDS = "volcano.sh/vgpu-ids-new"


def test_who_rewrites_a_bound_pods_cards_moves_nothing_and_is_told_of():
    world = World(node("n1", cards=2, memory=1000))
    world.adds(pod("a"))
    assert world.placed() == {"a": "n1"}
    bound = world.seen("a")
    other = bound.annotations[IDS].replace("n1-0", "n1-2").replace("n1-1", "n1-0").replace("n1-2", "n1-1")
    world.shows(bound, annotations={**bound.annotations, IDS: other}, deleting=True)
    (told,) = [one for one in world.announced() if one.reason == "AssignmentChanged"]
    assert told.about.name == "a"
    # Both cards are in use, each once.
    world.adds(pod("b"), pod("c"))
    assert world.placed() == {"a": "n1", "b": "n1"}
    assert world.seen("b").annotations[IDS].split(",")[0] != bound.annotations[IDS].split(",")[0]
    assert world.ledger.overcommitted(NodeName("n1")) == ()
    # What the plugin writes is nobody's forgery.
    world.serves("b")
    assert [one for one in world.announced() if one.reason == "AssignmentChanged"] == []


def test_an_assignment_that_could_not_be_read_is_read_once_it_can_be():
    world = World(node("n1", cards=1, memory=1000))
    torn = pod("torn", scheduler_name="default-scheduler", memory=500, annotations={IDS: "x"})
    shown = world.shows(torn, node_name="n1")
    assert world.ledger.states[NodeName("n1")].closed
    world.shows(shown, annotations={IDS: "n1-0,NVIDIA,500,0:;"})
    assert not world.ledger.states[NodeName("n1")].closed
    assert [one for one in world.announced() if one.reason == "AssignmentChanged"] == []
