import ast
from collections import deque
from dataclasses import fields
from pathlib import Path

import pytest

from controller.deciding import lifecycle
from controller.deciding.lifecycle import TABLE, Entry, News, Stage, StageEvent, UndefinedEventError
from controller.deciding.queue import SchedulingQueue
from core.errors import InvariantError
from core.model import PodUid
from core.placing.decide import Shape
from core.settings import DialectName
from tests.support.judging.asking import asking
from tests.support.pages.lifecycle_page import PAGE, page
from tests.support.worlds.world import World, node, pod

CONTROLLER = Path(lifecycle.__file__).parent


def shape(number):
    return Shape(dialect=DialectName("vgpu"), request=number, amounts=(), asked=asking())


def seen(queue, name, *, priority=0, created_s=0):
    return queue.seen(pod(name, priority=priority, created_s=created_s))


def popped(queue, now_s=0.0):
    names = []
    while (found := queue.pop(now_s)) is not None:
        names.append(found.pod.name)
        queue.bind(found)
    return names


def test_pods_are_decided_by_priority_then_age_then_arrival():
    queue = SchedulingQueue()
    for one in (
        seen(queue, "young", created_s=9),
        seen(queue, "b", created_s=5),
        seen(queue, "a", created_s=5),
        seen(queue, "vip", priority=7, created_s=99),
    ):
        queue.ready(one)
    assert popped(queue) == ["vip", "b", "a", "young"]


def test_a_pod_that_is_made_ready_twice_is_decided_once():
    queue = SchedulingQueue()
    one = seen(queue, "a")
    queue.ready(one)
    queue.ready(one)
    assert popped(queue) == ["a"]


def test_a_resting_pod_is_decided_when_it_is_due_and_not_before():
    queue = SchedulingQueue()
    queue.back_off(seen(queue, "a"), 5.0)
    assert queue.next_due_s() == 5.0
    assert popped(queue, 4.9) == []
    assert popped(queue, 5.0) == ["a"]


def test_refused_pods_wake_one_at_a_time_the_first_in_order_first():
    queue = SchedulingQueue()
    for name, created_s in (("late", 9), ("early", 1), ("middle", 5)):
        queue.refuse(seen(queue, name, created_s=created_s), shape(1), 0.0)
    assert popped(queue) == []
    assert queue.wake(shape(1))
    assert popped(queue) == ["early"]
    assert queue.wake(shape(1))
    assert popped(queue) == ["middle"]


def test_a_shape_is_forgotten_with_its_last_refused_pod():
    queue = SchedulingQueue()
    for name in ("a", "b"):
        queue.refuse(seen(queue, name), shape(1), 0.0)
    queue.leave(pod("a").uid)
    assert queue.refused_asks() == [shape(1)]
    queue.leave(pod("b").uid)
    assert not queue.is_refusing
    assert not queue.wake(shape(1))


def test_pods_that_leave_a_refused_shape_leave_no_trace_in_its_line():
    queue = SchedulingQueue()
    queue.refuse(seen(queue, "stays"), shape(1), 0.0)
    for i in range(1000):
        queue.refuse(seen(queue, f"p{i}"), shape(1), 0.0)
        queue.leave(pod(f"p{i}").uid)
    assert len(queue._refused[shape(1)]) < 50
    assert [one.pod.name for one in queue.refused_pods(shape(1))] == ["stays"]


def test_counts_say_how_many_pods_are_in_each_stage():
    queue = SchedulingQueue()
    queue.ready(seen(queue, "a"))
    queue.hold(seen(queue, "b"))
    counts = queue.counts()
    assert (counts[Stage.READY], counts[Stage.HELD], counts[Stage.REFUSED]) == (1, 1, 0)


def test_in_flight_is_counted_from_the_stages_whichever_way_a_pod_leaves_them():
    queue = SchedulingQueue()
    one, other = seen(queue, "a"), seen(queue, "b")
    queue.lock(one)
    queue.bind(other)
    assert queue.in_flight == 2
    queue.bind(one)
    queue.written(one)
    assert queue.in_flight == 1
    queue.leave(other.pod.uid)
    assert queue.in_flight == 0


def test_what_cannot_happen_in_a_stage_is_an_error_that_changes_nothing():
    queue = SchedulingQueue()
    one = seen(queue, "a")
    queue.bind(one)
    with pytest.raises(UndefinedEventError, match="pod default/a is binding, where 'line up' cannot happen"):
        queue.line_up(one, 1.0)
    assert (one.stage, one.turn_s, queue.in_flight) == (Stage.BINDING, None, 1)
    with pytest.raises(UndefinedEventError, match="is binding, where 'seen' cannot happen"):
        seen(queue, "a")


def test_a_pod_that_has_left_comes_back_as_another_entry_only():
    queue = SchedulingQueue()
    one = seen(queue, "a")
    queue.leave(one.pod.uid)
    with pytest.raises(UndefinedEventError, match="is not known, where 'queue' cannot happen"):
        queue.ready(one)
    assert seen(queue, "a") is not one
    assert len(queue) == 1


def test_every_stage_can_be_reached_and_left_and_every_event_happens_somewhere():
    reached: set[Stage | None] = set()
    todo: set[Stage | None] = {None}
    while todo:
        stage = todo.pop()
        reached.add(stage)
        todo |= {then for (before, _), then in TABLE.items() if before is stage} - reached
    assert reached == {None, *Stage}
    assert {before for before, _ in TABLE} == {None, *Stage}
    assert {event for _, event in TABLE} == set(StageEvent)


def test_only_the_lifecycle_writes_an_entry():
    written = {one.name for one in fields(Entry)}
    found = [
        f"{path.name}:{node.lineno}: {ast.unparse(node)}"
        for path in sorted(CONTROLLER.glob("*.py"))
        if path.name != "queue.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and node.attr in written
        # An object writes its own attributes, and the hand-off those of its flights.
        and ast.unparse(node.value) not in ("self", "flight")
    ]
    assert found == []


def test_in_service_a_pod_to_which_something_impossible_happens_is_read_and_all_others_go_on():
    world = World(node("n1", memory=1000), strict=False)
    world.adds(pod("p"))
    (bind,) = world.binds()
    world.adds(pod("q"))
    world.plan()
    scheduler = world.scheduler
    with pytest.raises(UndefinedEventError) as caught:
        scheduler.cluster.queue.line_up(world.entry("p"), 1.0)
    scheduler.mistrust(caught.value)
    scheduler.outcomes.bound(bind.pod.uid, bind.attempt)
    assert (world.stage("p"), world.holders("n1"), world.stage("q")) == ("settling", {"uid-p"}, "refused")
    world.reads_back(world.seen("p"))
    world.writes_fence()
    world.now_s += 0.1
    assert [one.pod.name for one in world.binds()] == ["p"]
    scheduler.mistrust(UndefinedEventError(PodUid("gone"), "default/gone", None, StageEvent.QUEUE))
    assert scheduler.cluster.actions == deque()


def test_the_page_for_maintainers_shows_the_tables_as_they_are():
    assert PAGE.read_text() == page(), "run: python -m tests.support.pages.lifecycle_page"


@pytest.mark.parametrize("state", [None, News.LOST, News.READ_OPEN])
def test_what_may_still_be_written_is_never_released(state):
    world = World(node("n1"))
    world.adds(pod("a"))
    (bind,) = world.binds()
    if state is not None:
        world.loses(bind)
    if state is News.READ_OPEN:
        world.reads_back(world.seen("a"))
    entry = world.entry("a")
    with pytest.raises(InvariantError, match="must not be released"):
        world.scheduler.reservations.release(entry)
    assert world.holders("n1") == {"uid-a"}
