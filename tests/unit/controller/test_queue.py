from controller.queue import Entry, Queue, Stage
from core.model import NodeConstraints
from core.settings import DialectName
from core.shape import Shape
from tests.support.world import pod


def entry(name, *, priority=0, created_s=0):
    return Entry(pod=pod(name, priority=priority, created_s=created_s), version="1")


def shape(number):
    return Shape(dialect=DialectName.VGPU, request=number, amounts=(), constraints=NodeConstraints())


def popped(queue, now_s=0.0):
    names = []
    while (found := queue.pop(now_s)) is not None:
        names.append(found.pod.name)
        queue.set(found, Stage.BINDING)
    return names


def test_pods_are_decided_by_priority_then_age_then_arrival():
    queue = Queue()
    for one in (
        entry("young", created_s=9),
        entry("b", created_s=5),
        entry("a", created_s=5),
        entry("vip", priority=7, created_s=99),
    ):
        queue.ready(one)
    assert popped(queue) == ["vip", "b", "a", "young"]


def test_a_pod_that_is_made_ready_twice_is_decided_once():
    queue, one = Queue(), entry("a")
    queue.ready(one)
    queue.ready(one)
    assert popped(queue) == ["a"]


def test_a_resting_pod_is_decided_when_it_is_due_and_not_before():
    queue = Queue()
    queue.rest(entry("a"), 5.0)
    assert queue.next_due_s() == 5.0
    assert popped(queue, 4.9) == []
    assert popped(queue, 5.0) == ["a"]


def test_refused_pods_wake_one_at_a_time_the_first_in_order_first():
    queue = Queue()
    for name, created_s in (("late", 9), ("early", 1), ("middle", 5)):
        queue.refuse(entry(name, created_s=created_s), shape(1))
    assert popped(queue) == []
    assert queue.wake(shape(1))
    assert popped(queue) == ["early"]
    assert queue.wake(shape(1))
    assert popped(queue) == ["middle"]


def test_a_shape_is_forgotten_with_its_last_refused_pod():
    queue = Queue()
    for name in ("a", "b"):
        queue.refuse(entry(name), shape(1))
    queue.remove(pod("a").uid)
    assert queue.refused_shapes() == [shape(1)]
    queue.remove(pod("b").uid)
    assert not queue.is_refusing
    assert not queue.wake(shape(1))


def test_pods_that_leave_a_refused_shape_leave_no_trace_in_its_line():
    queue = Queue()
    queue.refuse(entry("stays"), shape(1))
    for i in range(1000):
        passing = entry(f"p{i}")
        queue.refuse(passing, shape(1))
        queue.remove(passing.pod.uid)
    assert len(queue._refused[shape(1)]) < 50
    assert [one.pod.name for one in queue.refused_pods(shape(1))] == ["stays"]


def test_counts_say_how_many_pods_are_in_each_stage():
    queue = Queue()
    queue.ready(entry("a"))
    queue.hold(entry("b"))
    counts = queue.counts()
    assert (counts[Stage.READY], counts[Stage.HELD], counts[Stage.REFUSED]) == (1, 1, 0)
