import pytest

from controller.grouping.admitting import Headroom, compared, order, refusal
from core.constraints.quota import shown
from core.groups import GroupSpec, QueueSpec
from core.model import GroupKey, GroupKind
from core.placing.queues import QueueTree
from core.wire.groups import salvage_queue

CPU = 1000
OPEN = {"q": QueueSpec(name="q", capability={"cpu": 4 * CPU}), "any": QueueSpec(name="any")}


def group(name="g", queue="any", resources=None, created_s=0):
    key = GroupKey(GroupKind.VOLCANO, "ml", name)
    return GroupSpec(key=key, queue=queue, min_resources=resources, created_s=created_s)


def room(**fields):
    return Headroom(**({"total": {"cpu": 10 * CPU, "volcano.sh/vgpu-number": 8}, "used": {}} | fields))


def why(spec, found=None, queues=None, held=None):
    return refusal(spec, OPEN if queues is None else queues, found or room(), held or {})


def test_what_quotas_count_is_not_asked_of_nodes():
    asked = {"cpu": 1, "requests.cpu": 1, "limits.cpu": 2, "pods": 2, "count/pods": 2, "a.b/c": 1, "requests.a.b/c": 1}
    assert compared(asked) == {"cpu": 1, "pods": 2, "a.b/c": 1}


def test_a_group_that_says_nothing_is_admitted():
    assert why(group()) == ""
    assert why(group(resources={})) == ""


@pytest.mark.parametrize(
    ("queue", "words"),
    [
        (None, "queue any does not exist"),
        (QueueSpec(name="any", state="Closed"), "queue any is Closed"),
        (
            QueueSpec(name="any", problems=("spec.affinity",)),
            "asks for spec.affinity, which cardshare does not support; leave it",
        ),
        (
            salvage_queue(b'{"metadata":{"name":"any"},"spec":{"weight":"x"}}'),
            "queue any cannot be read: Queue spec.weight",
        ),
    ],
)
def test_a_queue_that_takes_no_groups_is_named(queue, words):
    assert words in why(group(), queues={"any": queue} if queue else {})


def test_a_queue_takes_no_more_than_its_capability_and_says_what_is_left():
    taken = room()
    taken.count("q", {"cpu": 3 * CPU}, {"cpu": 1 * CPU})
    assert why(group(queue="q", resources={"cpu": 1 * CPU}), taken) == ""
    assert (
        why(group(queue="q", resources={"cpu": 1500}), taken)
        == "queue q has too little capacity: 1500m cpu requested, 1 of 4 left"
    )


CARDS = "volcano.sh/vgpu-number"
TREE = {
    "a": QueueSpec(name="a", guarantee={CARDS: 84}),
    "p": QueueSpec(name="p", capability={"cpu": 4 * CPU}),
    "b": QueueSpec(name="b", parent="p", guarantee={CARDS: 1}),
    "c": QueueSpec(name="c", parent="p"),
}


def tree_room(**fields):
    return room(total={"cpu": 99 * CPU, CARDS: 88}, tree=QueueTree(TREE.values()), **fields)


@pytest.mark.parametrize(
    ("queue", "asked", "left"), [("a", 87, 87), ("p", 4, 4), ("b", 4, 4), ("c", 3, 3)], ids=["a", "p", "b", "c"]
)
def test_what_is_guaranteed_to_other_queues_is_not_promised(queue, asked, left):
    assert why(group(queue=queue, resources={CARDS: asked}), tree_room(), TREE) == ""
    text = why(group(queue=queue, resources={CARDS: asked + 1}), tree_room(), TREE)
    assert f"guaranteed to other queues: {asked + 1} {CARDS} requested, {left} of {left} left for queue" in text
    assert why(group(queue=queue, resources={CARDS: 999}), tree_room(), TREE) != ""


def test_groups_of_all_queues_below_a_queue_count_for_it():
    taken = tree_room()
    taken.count("c", {CARDS: 2, "cpu": 3 * CPU}, {})
    assert why(group(queue="b", resources={CARDS: 2}), taken, TREE) == ""
    assert "3 volcano.sh/vgpu-number requested, 2 of 4 left for queue p" in why(
        group(queue="b", resources={CARDS: 3}), taken, TREE
    )
    assert why(group(queue="b", resources={"cpu": 2 * CPU}), taken, TREE) == (
        "queue p has too little capacity: 2 cpu requested, 1 of 4 left"
    )
    assert why(group(queue="a", resources={CARDS: 84}), taken, TREE) == ""


def test_what_the_capability_does_not_name_is_not_limited():
    assert why(group(queue="q", resources={"memory": 1}), room(total={"memory": 1})) == ""


def test_some_of_the_cluster_is_given_twice_and_no_more():
    assert why(group(resources={"cpu": 12 * CPU})) == ""
    assert "12001m cpu requested, 12 available" in why(group(resources={"cpu": 12 * CPU + 1}))
    assert "2001m cpu requested, 2 available" in why(
        group(resources={"cpu": 2 * CPU + 1}), room(used={"cpu": 10 * CPU})
    )


def test_what_admitted_groups_ask_beyond_what_they_hold_is_taken():
    taken = room(used={"cpu": 2 * CPU})
    taken.count("any", {"cpu": 6 * CPU}, {"cpu": 2 * CPU})
    assert why(group(resources={"cpu": 6 * CPU}), taken) == ""
    assert why(group(resources={"cpu": 6 * CPU + 1}), taken) != ""


def test_cards_are_compared_with_all_there_are():
    assert why(group(resources={"volcano.sh/vgpu-number": 8})) == ""
    assert "9 volcano.sh/vgpu-number requested, 8 in total" in why(group(resources={"volcano.sh/vgpu-number": 9}))


def test_without_the_plugin_the_cluster_is_not_asked():
    assert why(group(resources={"cpu": 99 * CPU}), room(factor_pct=None)) == ""
    assert why(group(queue="q", resources={"cpu": 99 * CPU}), room(factor_pct=None)) != ""


def test_what_its_members_hold_already_is_not_asked_again():
    assert why(group(resources={"cpu": 13 * CPU}), held={"cpu": 1 * CPU}) == ""


def test_queues_of_a_higher_priority_and_older_groups_come_first():
    queues = {"low": QueueSpec(name="low"), "high": QueueSpec(name="high", priority=5)}
    groups = [group("c", "low", created_s=1), group("b", "high", created_s=2), group("a", "low", created_s=3)]
    assert [one.key.name for one in order(groups, queues)] == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("name", "amount", "text"),
    [
        ("cpu", 1500, "1500m"),
        ("cpu", 2000, "2"),
        ("memory", 2**31, "2Gi"),
        ("memory", 3 * 2**20, "3Mi"),
        ("memory", 1001, "1001"),
        ("pods", 3, "3"),
        ("a.b/memory", 2**30, "1073741824"),
    ],
)
def test_amounts_are_written_as_kubernetes_does(name, amount, text):
    assert shown(name, amount) == text


def test_resources_that_no_node_advertises_are_compared_with_what_cards_have():
    found = room(sold=lambda: {"nvidia.com/gpumem": 40_000})
    assert why(group(resources={"nvidia.com/gpumem": 40_000, "volcano.sh/vgpu-number": 8}), found) == ""
    assert "40001 nvidia.com/gpumem requested, 40000 in total" in why(
        group(resources={"nvidia.com/gpumem": 40_001}), found
    )
    assert "1 a.b/c requested, 0 in total" in why(group(resources={"a.b/c": 1}), found)
