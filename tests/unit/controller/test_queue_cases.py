"""What waits costs nothing and holds nobody up: pods that are gated, deleted while they wait, or never fit."""

from tests.support.worlds.world import World, node, pod


def decided(world):
    (counted,) = world.metrics.decisions.collect()
    return next(one.value for one in counted.samples if one.name.endswith("_total"))


def test_a_thousand_pods_that_are_deleted_while_they_wait_leave_nothing_although_finalizers_keep_them():
    world = World(node("n1", memory=100))
    for at in range(1000):
        world.adds(pod(f"p{at}"))
        world.plan()
        world.shows(world.seen(f"p{at}"), deleting=True)
        assert world.binds() == []
        assert world.stage(f"p{at}") == "none"
        world.gone(f"p{at}")
    assert sum(world.scheduler.cluster.queue.counts().values()) == 0
    assert not world.holders("n1")


def test_ten_thousand_gated_pods_cost_no_decision_and_one_that_is_let_go_is_placed():
    world = World(node("n1"))
    world.adds(*(pod(f"p{at}", gated=True) for at in range(10_000)))
    assert world.binds() == []
    assert decided(world) == 0
    world.shows(world.seen("p4711"), gated=False)
    (bind,) = world.binds()
    assert bind.pod.name == "p4711"


def test_a_pod_of_high_priority_that_never_fits_holds_nobody_up_and_is_looked_at_again_in_time():
    world = World(node("n1"), refused_retry_s=300.0)
    world.adds(pod("large", memory=99_999, priority=1000), *(pod(f"p{at}") for at in range(5)))
    assert set(world.placed()) == {f"p{at}" for at in range(5)}
    world.passes(31.0)
    world.scheduler.cluster.requeue.unreported.clear()  # what the others took was told
    world.passes(267.0)
    assert not world.scheduler.cluster.requeue.unreported
    world.passes(3.0)
    world.passes(0.1)
    assert len(world.scheduler.cluster.requeue.unreported) == 1
