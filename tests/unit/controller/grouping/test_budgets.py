"""A queue's capability is a hard limit, in cards' own units, whoever is in the queue and however it was filled."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from controller.deciding.cluster import QueueOrder
from controller.grouping.budgets import Budgets
from core.groups import GroupSpec, QueueSpec
from core.model import GroupKey, GroupKind
from core.waiting import Cause
from tests.support.worlds.world import CORES, MEMORY, NUMBER, World, node, pod

GROUP = "scheduling.k8s.io/group-name"


def spec(name, queue, least=1):
    key = GroupKey(GroupKind.VOLCANO, "default", name)
    return GroupSpec(key=key, uid=f"uid-{name}", resource_version="1", min_member=least, queue=queue)


def queue(name, parent="", **capability):
    limits = {resource.replace("_", "-"): amount for resource, amount in capability.items()}
    return QueueSpec(
        name=name,
        resource_version="1",
        parent=parent,
        capability={
            one if one in ("cpu", "memory", "pods") else f"volcano.sh/{one}": many for one, many in limits.items()
        },
    )


def world(*nodes, groups, queues):
    made = World(*nodes)
    made.groups_are(*groups, queues=queues)
    return made


def member(name, group, **fields):
    return pod(name, annotations={GROUP: group, **fields.pop("annotations", {})}, **fields)


def held(made, *names):
    return [name for name in names if made.ledger.node_of(made.seen(name).uid)]


@pytest.mark.parametrize(
    ("limits", "capability", "told"),
    [
        (
            {NUMBER: "2", MEMORY: "1000"},
            {"vgpu_memory": 3000},
            "2000 volcano.sh/vgpu-memory requested, 1000 of 3000 left",
        ),
        ({NUMBER: "2", MEMORY: "1000"}, {"vgpu_number": 3}, "2 volcano.sh/vgpu-number requested, 1 of 3 left"),
        (
            {NUMBER: "2", MEMORY: "1", CORES: "30"},
            {"vgpu_cores": 100},
            "60 volcano.sh/vgpu-cores requested, 40 of 100 left",
        ),
        (
            {NUMBER: "1", "volcano.sh/vgpu-memory-percentage": "30"},
            {"vgpu_memory": 5000},
            "3000 volcano.sh/vgpu-memory requested, 2000 of 5000 left",
        ),
        ({"cpu": "2"}, {"cpu": 3000}, "2 cpu requested, 1 of 3 left"),
    ],
    ids=["memory-times-cards", "cards", "cores-times-cards", "percentage", "cpu"],
)
def test_every_resource_is_limited_in_its_own_unit(limits, capability, told):
    made = world(node("n1", cards=4), groups=[spec("g", "q")], queues=[queue("q", **capability)])
    made.adds(member("a", "g", limits=limits), member("b", "g", limits=limits))
    made.plan()
    assert held(made, "a", "b") == ["a"]
    wait = made.wait("b")
    assert wait.cause is Cause.WAITING_FOR_QUEUE
    assert f"queue q has too little capacity: {told}" in wait.text


def test_a_pod_goes_on_when_its_queue_has_room_again():
    made = world(node("n1", cards=4), groups=[spec("g", "q")], queues=[queue("q", vgpu_number=1)])
    made.adds(member("a", "g"), member("b", "g"))
    made.plan()
    made.gone("a")
    made.passes(60.0)
    assert held(made, "b") == ["b"]


def test_a_gang_is_placed_within_its_queue_or_not_at_all():
    made = world(node("n1", cards=8), groups=[spec("g", "q", 3)], queues=[queue("q", vgpu_number=2)])
    made.adds(*[member(f"g{at}", "g") for at in range(3)])
    made.plan()
    assert held(made, "g0", "g1", "g2") == []
    told = "queue q has too little capacity: 3 volcano.sh/vgpu-number requested by the pods that start together, 2 of 2"
    assert told in made.wait("g0").text
    made.scheduler.cluster.groups.queue_changed(queue("q", vgpu_number=3))
    made.passes(60.0)
    assert held(made, "g0", "g1", "g2") == ["g0", "g1", "g2"]


def test_what_is_above_a_queue_limits_it_too():
    queues = [queue("root"), queue("dept", "root", vgpu_number=2), queue("a", "dept"), queue("b", "dept")]
    made = world(node("n1", cards=8), groups=[spec("g", "a"), spec("h", "b")], queues=queues)
    made.adds(member("a", "g"), member("b", "h"), member("c", "h"))
    made.plan()
    assert held(made, "a", "b", "c") == ["a", "b"]
    assert "queue dept has too little capacity" in made.wait("c").text


@pytest.mark.parametrize("how", ["deleted", "left", "left by others"])
def test_who_waits_for_a_queue_above_goes_on_without_it(how):
    queues = [queue("dept", vgpu_number=1), queue("a", "dept"), queue("b", "dept")]
    made = world(node("n1", cards=8), groups=[spec("g", "a"), spec("h", "b")], queues=queues)
    made.adds(member("a", "g"), member("b", "h"))
    made.plan()
    assert held(made, "a", "b") == ["a"]
    groups = made.scheduler.cluster.groups
    if how == "deleted":
        groups.queue_gone("dept")
    else:
        groups.queue_changed(queue("b" if how == "left" else "a"))
    made.passes(1.0)
    assert held(made, "a", "b") == ["a", "b"]


def beside_another_group(capability, guarantee):
    """A pod of one group holds what a pod of another group of its queue waits for; and the former group."""
    others = [QueueSpec(name=name, guarantee=guarantee) for name in ("other", "third")]
    groups, mine = [spec("one", "q"), spec("two", "q")], QueueSpec(name="q", capability=capability)
    made = world(node("n1", cards=3, slots=1), groups=groups, queues=[mine, *others])
    made.adds(member("a", "one"))
    made.placed()
    made.adds(member("b", "two"))
    made.passes(1.0)
    assert made.wait("b").cause is Cause.WAITING_FOR_QUEUE
    return made, groups[0]


@pytest.mark.parametrize(("capability", "guarantee"), [({NUMBER: 1}, {}), ({}, {NUMBER: 1})])
def test_a_pod_goes_on_when_a_group_leaves_its_queue(capability, guarantee):
    made, one = beside_another_group(capability, guarantee)
    made.scheduler.cluster.groups.changed(replace(one, queue="third", resource_version="2"))
    made.passes(1.0)
    assert made.placed().keys() == {"a", "b"}


@pytest.mark.parametrize("by_force", [False, True], ids=["ends", "is removed"])
def test_a_queue_holds_what_the_pods_of_a_deleted_group_hold_until_they_are_gone(by_force):
    made, one = beside_another_group({NUMBER: 1}, {})
    groups, budgets = made.scheduler.cluster.groups, made.scheduler.cluster.budgets
    groups.gone(one.key)
    made.passes(1.0)
    assert made.placed().keys() == {"a"}
    assert (budgets.held("q")[NUMBER], budgets.held("default").get(NUMBER, 0)) == (1, 0)
    made.shows(made.seen("a"), deleting=True)
    made.passes(1.0)
    assert made.placed().keys() == {"a"}
    made.gone("a", by_force=by_force)
    made.passes(1.0)
    assert made.placed().keys() == {"b"}
    assert groups.queue_of(one.key) == ""


@pytest.mark.parametrize("key", ["volcano.sh/queue-name", "scheduling.volcano.sh/queue-name"])
def test_after_a_restart_a_queue_still_holds_what_pods_of_a_deleted_group_hold(key):
    bound = {"volcano.sh/vgpu-ids-new": "n1-0,NVIDIA,1000,0:", key: "q"}
    made = World(node("n1", cards=4))
    made.adds(member("old", "deleted", node_name="n1", annotations=bound, started=True))
    made.groups_are(spec("g", "q"), queues=[queue("q", vgpu_number=1), queue("default", vgpu_number=1)])
    budgets = made.scheduler.cluster.budgets
    assert (budgets.held("q")[NUMBER], budgets.held("default").get(NUMBER, 0)) == (1, 0)
    made.adds(member("new", "g"))
    made.passes(1.0)
    assert made.placed().keys() == {"old"}
    made.gone("old")
    made.passes(1.0)
    assert made.placed().keys() == {"new"}


def test_a_group_that_exists_is_in_the_queue_that_it_names_whatever_its_pods_say():
    bound = {"volcano.sh/vgpu-ids-new": "n1-0,NVIDIA,1000,0:", "volcano.sh/queue-name": "q"}
    made = World(node("n1", cards=4))
    made.adds(member("old", "g", node_name="n1", annotations=bound, started=True))
    made.groups_are(spec("g", "third"), queues=[queue("q"), queue("third")])
    budgets = made.scheduler.cluster.budgets
    assert (budgets.held("q").get(NUMBER, 0), budgets.held("third")[NUMBER]) == (0, 1)


def test_a_group_that_comes_back_in_another_queue_leaves_nothing_in_the_first():
    made, one = beside_another_group({NUMBER: 1}, {})
    made.scheduler.cluster.groups.gone(one.key)
    made.scheduler.cluster.groups.changed(replace(one, uid="again", queue="third"))
    made.passes(1.0)
    assert made.placed().keys() == {"a", "b"}


def test_what_is_bound_counts_before_this_process_was():
    made = world(node("n1", cards=8), groups=[spec("g", "q")], queues=[queue("q", vgpu_memory=1500)])
    bound = {"volcano.sh/vgpu-ids-new": "n1-0,NVIDIA,1000,0:"}
    made.adds(member("old", "g", node_name="n1", annotations=bound, started=True), member("new", "g"))
    made.plan()
    assert held(made, "new") == []


@pytest.mark.parametrize("seed", range(8))
def test_no_queue_ever_holds_more_than_it_may(seed):
    """Pods come, go and are bound at random; what each queue holds is added up from the pods alone."""
    chance = random.Random(seed)
    queues = [
        queue("root"),
        queue("p", "root", vgpu_number=6),
        queue("a", "p", vgpu_memory=4000),
        queue("b", "p", cpu=3000),
    ]
    groups = [spec("g", "a"), spec("h", "b"), spec("i", "b", 2)]
    above = {"g": ("a", "p"), "h": ("b", "p"), "i": ("b", "p")}
    made = world(node("n1", cards=4), node("n2", cards=4), groups=groups, queues=queues)
    alive: dict[str, tuple[str, int, int]] = {}
    for number in range(60):
        if alive and chance.random() < 0.35:
            name = chance.choice(sorted(alive))
            del alive[name]
            made.gone(name)
        else:
            group, cards, memory = chance.choice("ghi"), chance.choice((1, 1, 2)), chance.choice((500, 1000, 2000))
            name = f"p{number}"
            alive[name] = group, cards, memory
            limits = {NUMBER: str(cards), MEMORY: str(memory), "cpu": "1"}
            made.adds(member(name, group, limits=limits))
        made.passes(chance.choice((0.0, 1.0, 30.0)))
        for bind in made.binds():
            made.accepts(bind)
            made.shows_bound(bind)
        sums = dict.fromkeys(("a", "b", "p"), (0, 0, 0))
        for name, (group, cards, memory) in alive.items():
            if made.ledger.node_of(made.seen(name).uid):
                for one in above[group]:
                    number_, memory_, cpu = sums[one]
                    sums[one] = number_ + cards, memory_ + cards * memory, cpu + 1
        assert sums["p"][0] <= 6
        assert sums["a"][1] <= 4000
        assert sums["b"][2] <= 3


@pytest.mark.parametrize("seed", range(12))
def test_holdings_and_ranks_are_those_that_are_counted_anew_whatever_changes(seed):
    """Pods come and go; groups change their queue, end and come back; queues move, end and come back."""
    chance = random.Random(seed)
    names = ("p", "a", "b", "c", "default")
    groups = ("g", "h", "i")

    def drawn(name):
        parents = {"a": ("", "p", "root"), "b": ("", "a", "p"), "c": ("b", "gone")}.get(name, ("",))
        limits = {"vgpu_number": 5} if chance.random() < 0.3 else {}
        weighed = replace(queue(name, chance.choice(parents), **limits), weight=chance.randint(1, 3))
        return replace(weighed, guarantee={NUMBER: 1}) if chance.random() < 0.3 else weighed

    made = world(
        node("n1", cards=8),
        groups=[spec(name, chance.choice(names)) for name in groups],
        queues=[queue("root"), *map(drawn, names)],
    )
    cluster, alive = made.scheduler.cluster, list[str]()
    for number in range(20):
        moved = chance.choice(names)
        if chance.random() < 0.2:
            cluster.groups.queue_gone(moved)
        else:
            cluster.groups.queue_changed(drawn(moved))
        unasked = QueueOrder(cluster.queue, cluster.groups, cluster.budgets, cluster.ledger, cluster.clock)
        for one in (cluster.queue_order, unasked):
            one.look(cluster.clock())
        for step in range(3):
            group = chance.choice(groups)
            match chance.choice(("come", "come", "go", "move", "end")):
                case "come":
                    name = f"p{number}-{step}"
                    alive.append(name)
                    which = {"volcano.sh/queue-name": chance.choice(names)} if chance.random() < 0.5 else {}
                    made.adds(member(name, group, annotations=which) if chance.random() < 0.8 else pod(name))
                case "go" if alive:
                    made.gone(alive.pop(chance.randrange(len(alive))))
                case "move":
                    key = spec(group, "").key
                    cluster.groups.gone(key)
                    cluster.groups.changed(spec(group, chance.choice((*names, "gone", ""))))
                case _:
                    cluster.groups.gone(spec(group, "").key)
            made.plan()
            for bind in made.binds():
                made.accepts(bind)
                made.shows_bound(bind)
            ranks = {name: cluster.queue_order.rank(name) for name in names}
        assert ranks == {name: unasked.rank(name) for name in names}
        anew = Budgets(cluster.groups, cluster.ledger)
        for name in alive:
            uid = made.seen(name).uid
            spender = cluster.budgets.spender_of(uid)
            if spender is not None:
                anew.note(uid, spender, cluster.budgets.held_by(uid))
        for name in (*names, "gone", "root"):
            assert +Counter(cluster.budgets.held(name)) == +Counter(anew.held(name))


def test_what_queues_deserve_is_found_anew_only_if_pods_nodes_or_queues_have_changed():
    made = world(node("n1", cards=8), groups=[spec("g", "a")], queues=[queue("a"), queue("b")])
    lines = made.scheduler.cluster.queue_order
    made.adds(member("p", "g", memory=1000))
    made.plan()
    lines.look(1.0)
    before = lines.deserved("a")
    assert before[NUMBER] == 1
    lines.look(2.0)
    assert lines.deserved("a") is before
    made.adds(member("q", "g", memory=1000))
    made.plan()
    lines.look(3.0)
    assert lines.deserved("a")[NUMBER] == 2
    made.scheduler.cluster.groups.queue_changed(queue("a", vgpu_number=1))
    lines.look(4.0)
    assert lines.deserved("a")[NUMBER] == 1
    before = lines.deserved("a")
    made.scheduler.nodes.changed(node("n2", cards=8))
    lines.look(5.0)
    assert lines.deserved("a") is not before


def test_who_is_beyond_its_queue_lets_the_next_of_its_shape_have_what_it_was_woken_for():
    made = world(node("n1", cards=1), groups=[spec("g", "q"), spec("h", "")], queues=[queue("q", vgpu_number=0)])
    made.adds(
        pod("holds", memory=10_000, node_name="n1", annotations={"volcano.sh/vgpu-ids-new": "n1-0,NVIDIA,10000,0:"})
    )
    made.adds(member("first", "g", memory=10_000), member("second", "h", memory=10_000, created_s=2_000_000_000))
    made.plan()
    assert (made.stage("first"), made.stage("second")) == ("refused", "refused")
    made.gone("holds")
    made.passes(1.0)
    assert held(made, "first", "second") == ["second"]


def reserved(*queues):
    """A world of 88 cards, 84 of which are guaranteed to queue a."""
    nodes = [node(f"n{at}", cards=8, slots=1, memory=1000) for at in range(11)]
    guaranteed = QueueSpec(name="a", resource_version="1", guarantee={NUMBER: 84})
    return world(*nodes, groups=[spec("g-a", "a"), spec("g-b", "b"), spec("g-c", "c")], queues=[guaranteed, *queues])


B = QueueSpec(name="b", resource_version="1")
C = QueueSpec(name="c", resource_version="1")


def names_of(made):
    return Counter(one.name[0] for one in made.pods.values() if made.ledger.node_of(one.uid))


def test_what_is_guaranteed_to_a_queue_is_kept_for_it_although_nobody_of_it_asks():
    made = reserved(B, C)
    made.adds(*(member(f"b{at}", "g-b") for at in range(8)))
    made.adds(*(member(f"c{at}", "g-c") for at in range(8)))
    made.plan()
    # All others together have the 4 that are left.
    assert sum(names_of(made).values()) == 4
    wait = next(made.wait(f"b{at}") for at in range(8) if not held(made, f"b{at}"))
    assert wait.cause is Cause.WAITING_FOR_QUEUE
    assert wait.text == (
        f"waits because the free capacity is guaranteed to other queues: 1 {NUMBER} requested, 0 of 88 left; ask for "
        "less, wait until pods end, or lower the spec.guarantee of a queue"
    )
    made.adds(*(member(f"a{at}", "g-a") for at in range(100)))
    made.plan()
    assert names_of(made)["a"] == 84


def test_a_gang_of_another_queue_does_not_take_what_is_guaranteed():
    made = world(
        *[node(f"n{at}", cards=8, slots=1) for at in range(11)],
        groups=[spec("gang", "b", least=8), spec("small", "b", least=4)],
        queues=[QueueSpec(name="a", guarantee={NUMBER: 84}), B],
    )
    made.adds(*(member(f"g{at}", "gang") for at in range(8)))
    made.plan()
    assert not names_of(made)
    assert made.wait("g0").cause is Cause.WAITING_FOR_QUEUE
    made.adds(*(member(f"s{at}", "small") for at in range(4)))
    made.plan()
    assert names_of(made) == {"s": 4}


def test_pods_of_no_queue_do_not_take_it_either():
    made = reserved(B)
    made.adds(*(pod(f"x{at}") for at in range(8)))
    made.plan()
    assert names_of(made) == {"x": 4}


def free_again_by_a_node(made):
    made.scheduler.nodes.changed(node("more", cards=2, slots=1))


def free_again_by_the_queue(made):
    made.scheduler.cluster.groups.queue_changed(QueueSpec(name="a", resource_version="2", guarantee={NUMBER: 82}))


def free_again_by_an_end(made):
    placed = sorted(name for name in ("b0", "b1", "b2", "b3", "b4", "b5") if held(made, name))
    made.gone(placed[0])
    made.gone(placed[1])


@pytest.mark.parametrize("helps", [free_again_by_a_node, free_again_by_the_queue, free_again_by_an_end])
@pytest.mark.parametrize("group", ["g-b", None])
def test_who_waits_for_that_goes_on_once_more_is_left(helps, group):
    made = reserved(B)
    made.adds(*(member(f"b{at}", group) if group else pod(f"b{at}") for at in range(6)))
    made.plan()
    assert names_of(made) == {"b": 4}
    helps(made)
    made.passes(1.0)
    left = len([one for one in made.pods.values() if not made.ledger.node_of(one.uid)])
    assert left == 0


def test_what_a_queue_below_is_guaranteed_is_kept_from_others_of_its_parent_and_of_the_cluster():
    queues = [
        QueueSpec(name="top"),
        QueueSpec(name="a", parent="top", guarantee={NUMBER: 3}),
        QueueSpec(name="b", parent="top"),
        QueueSpec(name="c"),
    ]
    made = world(
        node("n1", cards=8, slots=1),
        groups=[spec("g-a", "a"), spec("g-b", "b"), spec("g-c", "c"), spec("g-t", "top")],
        queues=queues,
    )
    for name in "tbc":
        made.adds(*(member(f"{name}{at}", f"g-{name}") for at in range(8)))
    made.plan()
    assert sum(names_of(made).values()) == 5
    made.adds(*(member(f"a{at}", "g-a") for at in range(8)))
    made.plan()
    assert names_of(made)["a"] == 3


def test_cordoned_nodes_have_nothing_free_and_hold_nobody_up():
    made = reserved(B)
    made.adds(*(member(f"a{at}", "g-a") for at in range(84)))
    assert len(made.placed()) == 84
    for at in [at for at in range(11) if len(made.holders(f"n{at}")) == 8]:
        made.scheduler.nodes.changed(node(f"n{at}", cards=8, slots=1, memory=1000, version="2", unschedulable=True))
    made.adds(*(member(f"b{at}", "g-b") for at in range(8)))
    made.plan()
    assert names_of(made) == {"a": 84, "b": 4}


def test_a_queue_says_what_it_holds_in_the_units_in_which_it_is_limited():
    made = world(node("n1", cards=4), groups=[spec("g", "q")], queues=[queue("q")])
    made.adds(member("a", "g", limits={NUMBER: "2", MEMORY: "1000", CORES: "10"}))
    made.placed()
    allocated = made.scheduler.cluster.budgets.allocated()["q"]
    assert (allocated[NUMBER], allocated[MEMORY], allocated[CORES]) == (2, 2000, 20)
