"""Who is asked when something happens, and who is not."""

from controller.deciding.lifecycle import ClusterEvent, EventResource
from controller.deciding.queue import Requeue
from core.model import NodeName, PodUid
from core.placing.decide import Shape
from core.settings import DialectName
from tests.support.judging.asking import asking
from tests.support.worlds.world import World, node, pod

A, B = NodeName("a"), NodeName("b")


def shape(number):
    return Shape(dialect=DialectName("vgpu"), request=number, amounts=(), asked=asking())


ONE, TWO = shape(1), shape(2)


def notes_asked(world: World, asked: list[NodeName]) -> None:
    """Have every node written down that is asked whether it takes a refused shape."""
    search = world.scheduler.cluster.search
    takes = search.takes

    def noted(shape: Shape, name: NodeName) -> bool:
        asked.append(name)
        return takes(shape, name)

    search.takes = noted  # type: ignore[method-assign]


def test_a_shape_is_asked_about_the_nodes_that_opened_since_it_was_refused_and_no_others():
    requeue = Requeue()
    requeue.hear([A])
    requeue.refused(ONE, ())
    requeue.hear([B, B])
    requeue.refused(TWO, ())
    assert (requeue.opened_for(ONE), requeue.opened_for(TWO)) == ({B}, set())
    assert requeue.is_due(1.0)
    requeue.begin([ONE, TWO], 1.0)
    assert [requeue.next(1.0), requeue.next(1.0)] == [ONE, None]
    requeue.still_refused(ONE)
    assert not requeue.is_due(99.0)
    assert requeue.due_s(99.0) == float("inf")


def test_where_any_node_may_have_opened_every_refused_shape_is_asked():
    requeue = Requeue()
    for one in (ONE, TWO):
        requeue.refused(one, ())
    requeue.hear_of_all()
    assert (requeue.opened_for(ONE), requeue.opened_for(TWO)) == (None, None)
    requeue.begin([ONE, TWO], 1.0)
    assert {requeue.next(1.0), requeue.next(1.0)} == {ONE, TWO}


def test_what_all_have_heard_of_is_not_kept_nor_is_a_shape_that_nobody_is_refused_for():
    requeue = Requeue()
    requeue.refused(TWO, (A,))
    for at in range(1000):
        requeue.hear([A])
        requeue.refused(ONE, ())
        requeue.begin([ONE], float(at))
    assert len(requeue._opened) <= 1
    assert (list(requeue._heard), requeue.silent) == ([ONE], {})


def test_who_waits_for_a_happening_is_named_once_and_not_after_it_left():
    requeue = Requeue()
    one, other = ClusterEvent(EventResource.LOCK, "n1"), ClusterEvent(EventResource.LOCK, "n2")
    p, q, r = PodUid("p"), PodUid("q"), PodUid("r")
    requeue.wait_for(p, one, other)
    requeue.wait_for(q, one)
    requeue.wait_for(r, other)
    requeue.leave(r)
    assert requeue.happened(one) == [p, q]
    assert requeue.happened(one) == []
    assert requeue.happened(other) == []


def test_promises_and_their_bindings_have_no_refused_shape_asked():
    world = World(*[node(f"n{i}", memory=4000, cards=2) for i in range(4)])
    world.adds(*[pod(f"big{i}", memory=5000 + i) for i in range(50)])
    world.plan()
    asked: list[NodeName] = []
    notes_asked(world, asked)
    decided = world.metrics.decisions._value.get()
    world.adds(*[pod(f"p{i}", memory=1000) for i in range(8)])
    placed = world.placed()
    assert len(placed) == 8
    assert asked == []
    assert world.metrics.decisions._value.get() - decided == 8


def test_a_release_has_each_refused_shape_asked_about_that_node_alone():
    world = World(node("n1", memory=1000), node("n2", memory=1000))
    world.adds(pod("a"), pod("b"))
    world.placed()
    world.adds(*[pod(f"w{i}", memory=900 + i) for i in range(3)])
    world.plan()
    asked: list[NodeName] = []
    notes_asked(world, asked)
    home = world.seen("a").node_name
    world.gone("a")
    world.passes(1.0)
    assert asked == [home] * 3


def test_what_opens_in_the_middle_of_planning_is_heard_of_though_nothing_else_happens():
    world = World(node("n1", memory=1000))
    world.adds(pod("w", memory=1000, priority=1))
    assert len(world.binds()) == 1
    world.adds(pod("x", memory=1000))
    world.plan()
    assert world.stage("x") == "refused"
    world.gone("w")
    assert world.scheduler.cycle.next_due_s() <= world.now_s + 0.05
    world.passes(0.1)
    assert world.stage("x") != "refused"


def test_time_in_which_nothing_could_be_asked_calls_for_no_rest():
    requeue = Requeue()
    requeue.refused(ONE, ())
    requeue.hear([A])
    requeue.begin([ONE], 10.0)
    assert requeue.next(1000.0) == ONE
    requeue.still_refused(ONE)
    requeue.hear([A])
    assert requeue.is_due(1000.1)
