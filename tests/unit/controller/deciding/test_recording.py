"""What happens to a pod is written down where it is decided, while this process leads."""

from controller.actions import target_of
from controller.deciding.lifecycle import PodCondition
from core.history.pods import PodEvent, What
from core.model import Phase, PodUid
from tests.support.worlds.world import World, node, pod


def leads(*nodes) -> World:
    world = World(*nodes)
    world.scheduler.cluster.recording.begin()
    return world


def events(world: World, name: str) -> tuple[PodEvent, ...]:
    (life,) = world.scheduler.cluster.recording.pods.named(f"default/{name}")
    return life.events


def told(world: World, name: str) -> list[str]:
    return [" ".join(filter(None, (one.what, one.code, one.text))) for one in events(world, name)]


def test_a_pod_that_is_placed_served_and_deleted():
    world = leads(node("n1"))
    world.adds(pod("a", memory=1000))
    world.placed()
    world.gone("a")
    assert told(world, "a") == [
        "asked volcano.sh/vgpu-memory: 1000, volcano.sh/vgpu-number: 1",
        "reserved n1",
        "sent n1: n1-0 (1000 MiB)",
        "bound n1",
        "served",
        "ended Succeeded",
        "gone",
    ]
    changes = [one.change for one in events(world, "a")[1:]]
    assert changes == sorted(changes)
    assert changes[0] < changes[-1]


def test_a_pod_that_waits_and_is_then_placed():
    world = leads(node("n1", cards=1, memory=1000))
    world.adds(pod("first", memory=1000), pod("a", memory=1000))
    world.placed()
    entry = world.entry("a")
    world.scheduler.cluster.set_condition(entry, PodCondition(text="CS501 no node fits: n1-0 lacks 1000 MiB", at_s=1.0))
    world.now_s += 60
    world.scheduler.cluster.set_condition(entry, PodCondition(text="CS501 no node fits: n1-0 lacks 900 MiB", at_s=61.0))
    *_, waits = events(world, "a")
    assert (waits.what, waits.code, waits.times, waits.last_s - waits.first_s) == (What.WAITS, "CS501", 2, 60)
    assert waits.text.endswith("lacks 900 MiB")
    world.gone("first")
    world.placed()
    assert [one.what for one in events(world, "a")] == ["asked", "waits", "reserved", "sent", "bound", "served"]


def test_a_binding_that_is_refused_gives_the_place_back():
    world = leads(node("n1"))
    world.adds(pod("a", memory=1000))
    (bind,) = world.binds()
    world.scheduler.outcomes.refused(PodUid("uid-a"), bind.attempt)
    world.passes(60.0)
    found = {one.what: one.times for one in events(world, "a")}
    assert found == {What.ASKED: 1, What.RESERVED: 2, What.RELEASED: 1, What.SENT: 2}


def test_a_pod_that_leaves_for_another():
    world = leads(node("n1"))
    world.adds(pod("a", memory=1000))
    world.placed()
    world.scheduler.preempting.evicted(target_of(world.seen("a")))
    assert told(world, "a")[-1] == "evicted its cards are needed for a pod that comes first"


def test_a_standby_writes_nothing_down():
    world = World(node("n1"))
    world.adds(pod("a", memory=1000))
    world.placed()
    world.gone("a")
    assert not len(world.scheduler.cluster.recording.pods)


def test_pods_of_others_are_of_no_interest():
    world = leads(node("n1"))
    world.adds(pod("theirs", memory=1000, scheduler_name="another"))
    world.shows(world.seen("theirs"), node_name="n1", phase=Phase.RUNNING, started=True)
    world.gone("theirs")
    assert not len(world.scheduler.cluster.recording.pods)
