import ast
from collections import deque
from dataclasses import fields
from pathlib import Path

import pytest

from controller.deciding import lifecycle
from controller.deciding.lifecycle import TABLE, Entry, Event, Lifecycle, Stage, UndefinedEventError
from core.model import NodeConstraints, PodUid
from core.placing.shape import Shape
from core.settings import DialectName
from tests.support.pages.lifecycle_page import PAGE, page
from tests.support.worlds.world import World, node, pod

CONTROLLER = Path(lifecycle.__file__).parent


def shape(number):
    return Shape(dialect=DialectName("vgpu"), request=number, amounts=(), constraints=NodeConstraints())


def seen(life, name, *, priority=0, created_s=0):
    return life.seen(pod(name, priority=priority, created_s=created_s))


def popped(life, now_s=0.0):
    names = []
    while (found := life.pop(now_s)) is not None:
        names.append(found.pod.name)
        life.bind(found)
    return names


def test_pods_are_decided_by_priority_then_age_then_arrival():
    life = Lifecycle()
    for one in (
        seen(life, "young", created_s=9),
        seen(life, "b", created_s=5),
        seen(life, "a", created_s=5),
        seen(life, "vip", priority=7, created_s=99),
    ):
        life.ready(one)
    assert popped(life) == ["vip", "b", "a", "young"]


def test_a_pod_that_is_made_ready_twice_is_decided_once():
    life = Lifecycle()
    one = seen(life, "a")
    life.ready(one)
    life.ready(one)
    assert popped(life) == ["a"]


def test_a_resting_pod_is_decided_when_it_is_due_and_not_before():
    life = Lifecycle()
    life.back_off(seen(life, "a"), 5.0)
    assert life.next_due_s() == 5.0
    assert popped(life, 4.9) == []
    assert popped(life, 5.0) == ["a"]


def test_refused_pods_wake_one_at_a_time_the_first_in_order_first():
    life = Lifecycle()
    for name, created_s in (("late", 9), ("early", 1), ("middle", 5)):
        life.refuse(seen(life, name, created_s=created_s), shape(1), 0.0)
    assert popped(life) == []
    assert life.wake(shape(1))
    assert popped(life) == ["early"]
    assert life.wake(shape(1))
    assert popped(life) == ["middle"]


def test_a_shape_is_forgotten_with_its_last_refused_pod():
    life = Lifecycle()
    for name in ("a", "b"):
        life.refuse(seen(life, name), shape(1), 0.0)
    life.leave(pod("a").uid)
    assert life.refused_asks() == [shape(1)]
    life.leave(pod("b").uid)
    assert not life.is_refusing
    assert not life.wake(shape(1))


def test_pods_that_leave_a_refused_shape_leave_no_trace_in_its_line():
    life = Lifecycle()
    life.refuse(seen(life, "stays"), shape(1), 0.0)
    for i in range(1000):
        life.refuse(seen(life, f"p{i}"), shape(1), 0.0)
        life.leave(pod(f"p{i}").uid)
    assert len(life._queue._refused[shape(1)]) < 50
    assert [one.pod.name for one in life.refused_pods(shape(1))] == ["stays"]


def test_counts_say_how_many_pods_are_in_each_stage():
    life = Lifecycle()
    life.ready(seen(life, "a"))
    life.hold(seen(life, "b"))
    counts = life.counts()
    assert (counts[Stage.READY], counts[Stage.HELD], counts[Stage.REFUSED]) == (1, 1, 0)


def test_in_flight_is_counted_from_the_stages_whichever_way_a_pod_leaves_them():
    life = Lifecycle()
    one, other = seen(life, "a"), seen(life, "b")
    life.lock(one)
    life.bind(other)
    assert life.in_flight == 2
    life.bind(one)
    life.written(one)
    assert life.in_flight == 1
    life.leave(other.pod.uid)
    assert life.in_flight == 0


def test_what_cannot_happen_in_a_stage_is_an_error_that_changes_nothing():
    life = Lifecycle()
    one = seen(life, "a")
    life.bind(one)
    with pytest.raises(UndefinedEventError, match="pod default/a is binding, where 'line up' cannot happen"):
        life.line_up(one, 1.0)
    assert (one.stage, one.turn_s, life.in_flight) == (Stage.BINDING, None, 1)
    with pytest.raises(UndefinedEventError, match="is binding, where 'seen' cannot happen"):
        seen(life, "a")


def test_a_pod_that_has_left_comes_back_as_another_entry_only():
    life = Lifecycle()
    one = seen(life, "a")
    life.leave(one.pod.uid)
    with pytest.raises(UndefinedEventError, match="is not known, where 'queue' cannot happen"):
        life.ready(one)
    assert seen(life, "a") is not one
    assert len(life) == 1


def test_every_stage_can_be_reached_and_left_and_every_event_happens_somewhere():
    reached: set[Stage | None] = set()
    todo: set[Stage | None] = {None}
    while todo:
        stage = todo.pop()
        reached.add(stage)
        todo |= {then for (before, _), then in TABLE.items() if before is stage} - reached
    assert reached == {None, *Stage}
    assert {before for before, _ in TABLE} == {None, *Stage}
    assert {event for _, event in TABLE} == set(Event)


def test_only_the_lifecycle_writes_an_entry():
    written = {one.name for one in fields(Entry)}
    found = [
        f"{path.name}:{node.lineno}: {ast.unparse(node)}"
        for path in sorted(CONTROLLER.glob("*.py"))
        if path.name != "lifecycle.py"
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
    owner = world.owner
    with pytest.raises(UndefinedEventError) as caught:
        owner.life.line_up(world.entry("p"), 1.0)
    owner.mistrust(caught.value)
    owner.outcomes.bound(bind.pod.uid, bind.attempt)
    assert (world.stage("p"), world.holders("n1"), world.stage("q")) == ("settling", {"uid-p"}, "refused")
    world.reads_back(world.seen("p"))
    world.writes_fence()
    world.now_s += 0.1
    assert [one.pod.name for one in world.binds()] == ["p"]
    owner.mistrust(UndefinedEventError(PodUid("gone"), "default/gone", None, Event.QUEUE))
    assert owner.planner.actions == deque()


def test_the_page_for_maintainers_shows_the_tables_as_they_are():
    assert PAGE.read_text() == page(), "run: python -m tests.support.pages.lifecycle_page"
