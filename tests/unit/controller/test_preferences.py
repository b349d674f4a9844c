"""Pods that would rather be somewhere: where they go, what that is weighed against, and who is not kept off by it."""

import pytest

from core.model import Image, NodeConstraints, PeerTerm, Requirement, Spread, Taint, Toleration, Wishes
from core.settings import NodeWeights, Policy
from tests.support.worlds.world import World, node, pod

ZONE, HOST = "zone", "kubernetes.io/hostname"
SOFT = Taint(key="DeletionCandidateOfClusterAutoscaler", effect="PreferNoSchedule")
NONE = NodeWeights(node_affinity=0, pod_affinity=0, pod_topology_spread=0, taint_toleration=0)


def app(name):
    return (Requirement(key="app", operator="In", values=(name,)),)


def in_zone(value, weight=1):
    return Wishes(nodes=((weight, (Requirement(key=ZONE, operator="In", values=(value,)),)),))


def beside(name, weight, key=ZONE):
    return Wishes(near=((weight, PeerTerm(topology_key=key, selector=app(name))),))


def spread(key=ZONE, name="web"):
    return Wishes(spread=(Spread(topology_key=key, selector=app(name)),))


def nodes(*names, **fields):
    """Nodes of which the name's first letter is the zone."""
    return [node(name, labels={ZONE: name[0], HOST: name}, **fields) for name in names]


def there(name, where, labels):
    return pod(name, limits={}, scheduler_name="other", node_name=where, labels=labels)


def test_a_node_that_is_preferred_is_taken_before_one_that_cards_speak_for():
    for wishes, where in ((Wishes(), "a1"), (in_zone("b"), "b1")):
        world = World(*nodes("a1", "b1"))
        world.adds(pod("p", wishes=wishes))
        assert world.placed() == {"p": where}


def test_what_is_preferred_is_no_condition():
    world = World(*nodes("a1"))
    world.adds(pod("p", wishes=in_zone("b")))
    assert world.placed() == {"p": "a1"}


@pytest.mark.parametrize(("weight", "where"), [(0, "a1"), (2, "b1")])
def test_how_much_a_preference_counts_is_settled_by_its_weight(weight, where):
    world = World(*nodes("a1", "b1"), node_weights=NodeWeights(node_affinity=weight))
    world.adds(pod("first", memory=5000))
    world.accepts(world.binds()[0])
    world.serves("first")
    # binpack: a1 is the fuller one.
    world.adds(pod("p", wishes=in_zone("b")))
    assert world.placed()["p"] == where


def test_of_two_preferences_the_heavier_one_decides():
    world = World(*nodes("a1", "b1"))
    both = Wishes(nodes=(*in_zone("a", 20).nodes, *in_zone("b", 30).nodes))
    world.adds(pod("p", wishes=both))
    assert world.placed() == {"p": "b1"}


def test_a_pod_goes_where_such_pods_are_or_are_not():
    for weight, where in ((10, "b1"), (-10, "a1")):
        world = World(*nodes("a1", "b1"), policy=Policy.SPREAD)
        world.adds(there("db", "b1", {"app": "db"}))
        world.adds(pod("p", wishes=beside("db", weight)))
        assert world.placed()["p"] == where


def test_a_pod_that_is_labelled_otherwise_changes_what_is_preferred():
    world = World(*nodes("a1", "b1"))
    world.adds(there("db", "b1", {"app": "cache"}), pod("p", wishes=beside("db", 10)))
    assert world.placed()["p"] == "a1"
    world.shows(world.seen("db"), labels={"app": "db"})
    world.adds(pod("q", wishes=beside("db", 10)))
    assert world.placed()["q"] == "b1"


def test_pods_are_spread_over_zones_as_far_as_there_is_room():
    world = World(*nodes("a1", "b1", memory=3000))
    world.adds(*[pod(f"p{number}", labels={"app": "web"}, wishes=spread()) for number in range(4)])
    assert sorted(where[0] for where in world.placed().values()) == ["a", "a", "b", "b"]
    world.adds(*[pod(f"q{number}", labels={"app": "web"}, wishes=spread()) for number in range(3)])
    assert sorted(where[0] for where in world.placed().values()) == ["a", "a", "a", "b", "b", "b"]


def test_a_node_without_the_label_by_which_pods_are_spread_comes_last():
    world = World(node("a0"), *nodes("b1"))
    world.adds(*[pod(f"p{number}", labels={"app": "web"}, wishes=spread(), memory=5000) for number in range(3)])
    assert list(world.placed().values()) == ["b1", "b1", "a0"]


def test_taints_to_be_kept_away_from_are_unless_nothing_else_takes_the_pod():
    world = World(*nodes("a1", taints=(SOFT,)), *nodes("b1"))
    world.adds(pod("first", memory=10_000))
    world.adds(pod("second", memory=10_000))
    assert world.placed() == {"first": "b1", "second": "a1"}


def test_who_tolerates_such_a_taint_is_not_kept_away():
    world = World(*nodes("a1", taints=(SOFT,)), *nodes("b1"))
    world.adds(pod("p", constraints=NodeConstraints(tolerations=(Toleration(key=SOFT.key, operator="Exists"),))))
    assert world.placed() == {"p": "a1"}


def test_without_weights_nothing_that_is_preferred_counts():
    world = World(*nodes("a1", taints=(SOFT,)), *nodes("b1"), node_weights=NONE)
    world.adds(pod("p", wishes=in_zone("b")))
    assert world.placed() == {"p": "a1"}


APP = (Image(("registry/app:1",), 2 * 2**30),)


@pytest.mark.parametrize(("weight", "where"), [(1, "a2"), (0, "a1")])
def test_of_equally_good_nodes_the_one_that_has_the_image_is_taken(weight, where):
    world = World(node("a1"), node("a2", images=APP), node("a3"), node_weights=NodeWeights(image_locality=weight))
    world.adds(pod("p", images=("registry/app:1",)), pod("q", images=("registry/other:1",)))
    assert world.placed() == {"p": where, "q": where if weight == 0 else "a2"}


def test_an_image_that_has_come_counts_from_then_on():
    world = World(node("a1"), node("a2"), node("a3"), policy=Policy.SPREAD)
    world.adds(pod("first", images=("registry/app:1",)))
    assert world.placed() == {"first": "a1"}
    world.scheduler.nodes.changed(node("a3", version="2", images=APP))
    world.adds(pod("p", images=("registry/app:1",)))
    assert world.placed()["p"] == "a3"
    world.scheduler.nodes.changed(node("a2", version="2", images=APP))
    world.scheduler.nodes.changed(node("a3", version="3"))
    world.adds(pod("q", images=("registry/app:1",)))
    assert world.placed()["q"] == "a2"


def test_an_image_outweighs_no_card():
    world = World(node("a1"), node("a2", images=APP))
    world.adds(pod("first", memory=5000))
    assert world.placed() == {"first": "a1"}
    # binpack: a1 is the fuller one, and scores higher.
    world.adds(pod("p", images=("registry/app:1",)))
    assert world.placed()["p"] == "a1"
