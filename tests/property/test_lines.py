"""Where queues want more than there is, each has its turn as its share says: against a twin that places pod by pod.

The twin knows what each queue deserves and holds, and gives every turn to the queue that has least of its share.
"""

from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.groups import GroupSpec, QueueSpec
from core.model import GroupKey, GroupKind
from core.placing.queues import QueueTree, deserved
from core.settings import Policy
from tests.support.worlds.world import CORES, MEMORY, NUMBER, World, node, pod

GROUP = "scheduling.k8s.io/group-name"


def spec(name, least=1):
    key = GroupKey(GroupKind.VOLCANO, "default", f"g-{name}")
    return GroupSpec(key=key, uid=f"uid-{name}", resource_version="1", min_member=least, queue=name)


def without_cards(name, cpus):
    have = {"cpu": str(cpus), "memory": "100Gi", "pods": "500"}
    return node(name, annotations={}, capacity=have, allocatable=have)


def turns(total, queues, counts):
    """In which order queues have their turn, as long as there is room, by counting."""
    asked = {one.name: {"cpu": counts[one.name] * 1000} for one in queues}
    due = deserved({"cpu": total * 1000}, asked, QueueTree(queues))
    held, left, order = Counter[str](), Counter(counts), []

    def unused(one):
        return max(one.guarantee.get("cpu", 0) // 1000 - held[one.name], 0)

    def may(one):
        """Whether it takes nothing that is guaranteed to others, or what is guaranteed to it."""
        return total - held.total() > sum(unused(other) for other in queues if other is not one) or unused(one)

    while held.total() < total and (waiting := [one for one in queues if left[one.name] and may(one)]):
        least = min(
            waiting, key=lambda one: (-one.priority, due.share(one.name, {"cpu": held[one.name] * 1000}), one.name)
        )
        held[least.name] += 1
        left[least.name] -= 1
        order.append(least.name)
    return order


@settings(max_examples=60, deadline=None)
@example(5, [(1, 0, 0, 2), (1, 0, 0, 3), (1, 0, 1, 0)])
@given(
    st.integers(1, 20),
    st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from((0, 0, 0, 1)), st.integers(0, 4), st.integers(0, 12)),
        min_size=1,
        max_size=4,
    ),
)
def test_queues_have_their_turns_as_their_shares_say(total, drawn):
    queues = [
        QueueSpec(
            name=f"q{at}",
            resource_version="1",
            weight=weight,
            priority=priority,
            guarantee={"cpu": least * 1000} if least else {},
        )
        for at, (weight, priority, least, _) in enumerate(drawn)
    ]
    counts = {f"q{at}": count for at, (*_, count) in enumerate(drawn)}
    world = World(without_cards("n0", total), bind_in_flight_max=1024)
    world.groups_are(*[spec(one.name) for one in queues], queues=queues)
    for name, count in counts.items():
        world.adds(*[pod(f"{name}-{at}", limits={"cpu": "1"}, annotations={GROUP: f"g-{name}"}) for at in range(count)])
    order = [bind.pod.name.split("-")[0] for bind in world.binds()]
    assert order == turns(total, queues, counts)


def test_weights_hold_among_those_that_wait_for_one_shape_too():
    """Pods end one after the other, and what they leave goes to who has least of its share."""
    queues = [QueueSpec(name="a", weight=1), QueueSpec(name="b", weight=3)]
    world = World(node("n0", cards=8, slots=1), bind_in_flight_max=1024)
    world.groups_are(spec("a"), spec("b"), queues=queues)
    world.adds(*[pod(f"a{at}", memory=10_000, annotations={GROUP: "g-a"}, created_s=1) for at in range(30)])
    held = world.placed()
    assert len(held) == 8
    world.adds(*[pod(f"b{at}", memory=10_000, annotations={GROUP: "g-b"}, created_s=2) for at in range(30)])
    for _ in range(12):
        running = [one for one in world.pods.values() if one.node_name]
        world.gone(min(running, key=lambda one: (one.name[0], one.name)).name)
        world.passes(2.0)
        held = world.placed()
    assert Counter(name[0] for name in held) == {"a": 2, "b": 6}


def test_gangs_of_two_queues_take_turns_by_their_weights():
    queues = [QueueSpec(name="a", weight=1), QueueSpec(name="b", weight=1)]
    groups = [
        GroupSpec(
            key=GroupKey(GroupKind.VOLCANO, "default", f"{name}{at}"),
            uid=f"uid-{name}{at}",
            resource_version="1",
            min_member=2,
            queue=name,
        )
        for name in "ab"
        for at in range(4)
    ]
    world = World(node("n0", cards=8, slots=1), bind_in_flight_max=1024)
    world.groups_are(*groups, queues=queues)
    for name in "ab":
        for at in range(4):
            for member in range(2):
                world.adds(pod(f"{name}{at}-{member}", memory=10_000, annotations={GROUP: f"{name}{at}"}))
    world.plan()
    placed = Counter(one.name[0] for one in world.pods.values() if world.ledger.node_of(one.uid))
    assert placed == {"a": 4, "b": 4}


def test_a_queue_below_its_guarantee_comes_before_one_with_a_larger_weight():
    queues = [QueueSpec(name="a", weight=1, guarantee={NUMBER: 6, MEMORY: 6000}), QueueSpec(name="b", weight=100)]
    world = World(node("n0", cards=8, slots=1, memory=1000), bind_in_flight_max=1024)
    world.groups_are(spec("a"), spec("b"), queues=queues)
    for name in "ba":
        world.adds(*[pod(f"{name}{at}", memory=1000, annotations={GROUP: f"g-{name}"}) for at in range(8)])
    world.plan()
    placed = Counter(one.name[0] for one in world.pods.values() if world.ledger.node_of(one.uid))
    assert placed == {"a": 6, "b": 2}


@pytest.mark.parametrize("grouped", [True, False])
def test_pods_of_no_queue_stand_in_line_with_the_queue_default(grouped):
    queues = [QueueSpec(name="default", weight=1), QueueSpec(name="b", weight=1)]
    world = World(without_cards("n0", 10), bind_in_flight_max=1024)
    world.groups_are(spec("default"), spec("b"), queues=queues)
    annotations = {GROUP: "g-default"} if grouped else {}
    world.adds(*[pod(f"a{at}", limits={"cpu": "1"}, annotations=annotations) for at in range(20)])
    world.adds(*[pod(f"b{at}", limits={"cpu": "1"}, annotations={GROUP: "g-b"}) for at in range(20)])
    assert Counter(bind.pod.name[0] for bind in world.binds()) == {"a": 5, "b": 5}


@pytest.mark.parametrize(
    ("queues", "expected"),
    [
        (
            [QueueSpec(name="p"), QueueSpec(name="a", parent="p"), QueueSpec(name="b", parent="p", weight=3)],
            {"a": 8, "b": 24, "c": 32},
        ),
        (
            [QueueSpec(name="a", deserved={"cpu": 40_000}), QueueSpec(name="c", deserved={"cpu": 24_000})],
            {"a": 40, "c": 24},
        ),
    ],
    ids=["tree", "deserved"],
)
def test_queues_come_to_hold_what_tree_and_deserved_say(queues, expected):
    names = {one.name for one in queues}
    queues = [*queues, *(QueueSpec(name=name) for name in expected if name not in names)]
    world = World(without_cards("n0", 64), bind_in_flight_max=1024)
    world.groups_are(*[spec(name) for name in expected], queues=queues)
    for name in expected:
        world.adds(*[pod(f"{name}{at}", limits={"cpu": "1"}, annotations={GROUP: f"g-{name}"}) for at in range(80)])
    assert Counter(bind.pod.name[0] for bind in world.binds()) == expected


@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize(("nodes", "cards", "cpus"), [(8, 8, 18), (16, 4, 9), (1, 64, 144)])
@pytest.mark.parametrize("first", "ac")
def test_a_queue_of_cards_and_one_of_cpu_leave_each_other_what_they_need(policy, nodes, cards, cpus, first):
    have = {"cpu": str(cpus), "memory": "500Gi", "pods": "500"}
    have |= {NUMBER: str(cards), MEMORY: str(cards * 10_000), CORES: str(cards * 100)}
    every = [node(f"n{at}", cards=cards, slots=1, capacity=have, allocatable=have) for at in range(nodes)]
    world = World(*every, bind_in_flight_max=1024, policy=policy)
    world.groups_are(spec("a"), spec("c"), queues=[QueueSpec(name="a"), QueueSpec(name="c")])
    asked = {"a": {"cpu": "1"}, "c": {"cpu": "1", NUMBER: "1", MEMORY: "1000"}}
    for name in (first, *({"a", "c"} - {first})):
        world.adds(*[pod(f"{name}{at}", limits=asked[name], annotations={GROUP: f"g-{name}"}) for at in range(100)])
    assert Counter(name[0] for name in world.placed()) == {"a": 80, "c": 64}
