"""Gangs in the queue: all their members at once, or none; what becomes of them when something fails in the middle."""

import gc
from dataclasses import replace

import pytest

from core.groups import GroupSpec, HyperNode, Members, NetworkTopology, SubGroups
from core.model import GroupKey, GroupKind, Phase, Requirement
from core.placing.domains import HyperNodes
from core.placing.gang import Refused, place
from core.waiting import Cause
from core.wire.hyper_nodes import salvage_hyper_node
from tests.support.worlds.world import START_UNIX_S, World, node, pod

GROUP, TASK, MIN = "scheduling.k8s.io/group-name", "volcano.sh/task-spec", "scheduling.volcano.sh/group-min-member"


def key(name="g"):
    return GroupKey(GroupKind.VOLCANO, "default", name)


def spec(least, name="g", **fields):
    return GroupSpec(key=key(name), uid=f"uid-{name}", min_member=least, **{"resource_version": "1", **fields})


def member(name, group="g", task="", **fields):
    """A pod that wants a card to itself."""
    annotations = {GROUP: group, **({TASK: task} if task else {}), **fields.pop("annotations", {})}
    return pod(name, **{"memory": 10_000, "annotations": annotations, **fields})


def members(count, group="g", **fields):
    return [member(f"{group}{at}", group, **fields) for at in range(count)]


def nodes(*cards):
    return [node(f"n{at}", cards=many) for at, many in enumerate(cards)]


def world(*cards, groups=()):
    made = World(*nodes(*cards))
    made.groups_are(*groups)
    return made


def test_a_gang_of_64_on_cards_where_63_fit_starts_nothing():
    made = world(*[8] * 7, 7, groups=[spec(64)])
    made.adds(*members(64))
    assert made.binds() == []
    assert made.scheduler.cluster.ledger.node_of(made.seen("g0").uid) is None
    wait = made.wait("g0")
    assert wait.cause is Cause.WAITING_FOR_GROUP
    assert "63 of the 64 members of its group" in wait.text
    assert "set the group's minMember to 63" in wait.text


def test_groups_of_each_kind_are_told_by_which_field_fewer_would_be_wanted():
    native = GroupKey(GroupKind.NATIVE, "default", "n")
    made = world(1, groups=[spec(2), replace(spec(2, "n"), key=native)])
    made.adds(*members(2), *[pod(f"n{at}", memory=10_000, scheduling_group="n") for at in range(2)])
    assert made.binds() == []
    assert "set the group's minMember to 1" in made.wait("g0").text
    assert "set the group's minCount to 1" in made.wait("n0").text


def test_a_gang_that_fits_is_sent_at_once_and_a_single_pod_goes_on_beside_it():
    made = world(2, 2, groups=[spec(3)])
    made.adds(*members(3), pod("alone", memory=10_000))
    assert (
        len(made.binds())
        + len(made.scheduler.cluster.handoff.line("n0"))
        + len(made.scheduler.cluster.handoff.line("n1"))
        == 4
    )
    assert sum(made.ledger.node_of(one.uid) is not None for one in made.pods.values()) == 4


def test_two_gangs_that_would_each_take_half_go_one_after_the_other():
    made = world(4, groups=[spec(3, "a"), spec(3, "b")])
    # One pod of each in turn, by age.
    for at in range(3):
        for name in "ab":
            made.adds(member(f"{name}{at}", name, created_s=START_UNIX_S + 2 * at + (name == "b")))
    made.plan()
    placed = {name for name in "ab" for at in range(3) if made.ledger.node_of(made.seen(f"{name}{at}").uid)}
    assert placed == {"a"}
    for at in range(3):
        made.gone(f"a{at}")
    made.passes(60.0)
    assert all(made.ledger.node_of(made.seen(f"b{at}").uid) for at in range(3))


def test_nothing_is_decided_until_enough_members_exist():
    made = world(4, groups=[spec(3, min_task_member={"worker": 2, "ps": 1})])
    made.adds(member("w0", task="worker"), member("w1", task="worker"), member("w2", task="worker"))
    assert made.binds() == []
    assert made.wait("w0").text == (
        "waits until 3 members of PodGroup default/g can be placed together; 3 are ready (0 of 1 of task ps)"
    )
    made.adds(member("ps", task="ps"))
    made.plan()
    assert sum(made.ledger.node_of(one.uid) is not None for one in made.pods.values()) == 4


def test_no_worker_starts_without_the_master_of_an_elastic_group():
    """As in Volcano: the minimums of tasks apply if their sum is at most minMember, even if that is 1."""
    made = world(2, groups=[spec(1, min_task_member={"master": 1, "worker": 0})])
    made.adds(member("w0", task="worker"), member("w1", task="worker"))
    assert made.binds() == []
    assert made.wait("w0").text == (
        "waits until 1 member of PodGroup default/g can be placed together; 2 are ready (0 of 1 of task master)"
    )
    made.adds(member("m", task="master"))
    assert "m" in bound(made)


def test_what_a_group_lacks_is_said_with_what_to_do():
    made = world(4, groups=[spec(3)])
    made.adds(*members(2))
    assert made.binds() == []
    few = "waits until 3 members of PodGroup default/g can be placed together; 2 are ready"
    assert made.wait("g0").text == f"{few}. Create 1 more, or set the group's minMember to 2"
    made = world(4, groups=[spec(3)])
    made.adds(*members(2), member("other", scheduler_name="default-scheduler"))
    assert made.binds() == []
    assert made.wait("g0").text == f"{few}, 1 more names another scheduler: write cardshare"


def test_leaving_members_are_reported_beside_missing_ones():
    made = world(2, groups=[spec(2)])
    made.adds(*members(2))
    for bind in made.binds():
        made.shows_bound(bind)
    made.shows(made.seen("g0"), deleting=True)
    made.adds(member("g2"), member("g3", scheduler_name="default-scheduler"))
    made.shows(made.seen("g1"), deleting=True)
    assert made.binds() == []
    least = "waits until 2 members of PodGroup default/g can be placed together; 1 is ready"
    assert made.wait("g2").text == f"{least}, 1 more names another scheduler: write cardshare, 2 more are leaving"


def test_pods_that_name_no_task_are_told_where_the_group_wants_some_of_each():
    made = world(4, groups=[spec(2, min_task_member={"worker": 1, "ps": 1})])
    made.adds(*members(2))
    assert made.binds() == []
    text = made.wait("g0").text
    assert "2 are ready (0 of 1 of task ps, 0 of 1 of task worker)" in text
    assert "Name the task of each pod in annotation volcano.sh/task-spec" in text


def test_names_that_only_pods_write_are_shown_without_control_characters():
    """They may name any task, and any group whose kind is not installed."""
    made = world(1, groups=[spec(2)])
    made.adds(*members(2, task="t\x1b[31m\n"))
    assert made.binds() == []
    assert r"of 2 of task t\x1b[31m\n. " in made.wait("g0").text
    made = World(node("n"))
    made.has_no_kind()
    made.adds(member("p", group="g\x1b]0;x\x07" + 300 * "y", annotations={MIN: "2"}))
    assert made.binds() == []
    text = made.wait("p").text
    assert text.startswith(r"waits until 2 members of PodGroup default/g\x1b]0;x\x07yyy")
    assert text.endswith("set annotation scheduling.volcano.sh/group-min-member to 1")
    assert len(text) < 500


def test_pods_without_the_labels_of_subgroups_are_told_so_and_nothing_of_tasks():
    made = world(4, groups=[spec(4, sub_groups=(SubGroups(name="w", keys=("part",), size=2, least=2),))])
    made.adds(*[member(f"g{at}", labels={"part": "0"} if at < 2 else {}) for at in range(4)])
    assert made.binds() == []
    text = made.wait("g0").text
    assert "4 are ready (1 of 2 subgroups of w). Compare the labels of its pods with the group's subGroup" in text
    assert TASK not in text


def test_members_that_are_bound_or_succeeded_count_and_failed_ones_do_not():
    made = world(4, groups=[spec(3)])
    made.adds(
        member("done", node_name="n0", phase=Phase.SUCCEEDED),
        member("runs", node_name="n0", annotations={"volcano.sh/vgpu-ids-new": "n0-0,NVIDIA,10000,0:"}, started=True),
        member("failed", node_name="n0", phase=Phase.FAILED),
        member("p"),
    )
    assert [bind.pod.key for bind in made.binds()] == ["default/p"]


def test_a_gang_waits_for_room_and_is_placed_when_enough_frees():
    made = world(3, groups=[spec(3)])
    made.adds(
        pod("holds", memory=10_000, node_name="n0", annotations={"volcano.sh/vgpu-ids-new": "n0-0,NVIDIA,10000,0:"})
    )
    made.adds(*members(3))
    assert made.binds() == []
    made.gone("holds")
    made.passes(1.0)
    assert all(made.ledger.node_of(made.seen(f"g{at}").uid) for at in range(3))


def test_a_member_whose_binding_is_refused_is_judged_again_at_once():
    made = world(*[1] * 4, groups=[spec(3)])
    made.adds(*members(3))
    binds = made.binds()
    assert len(binds) == 3
    for bind in binds[1:]:
        made.accepts(bind)
    made.scheduler.outcomes.refused(binds[0].pod.uid, binds[0].attempt)
    (again,) = made.binds()
    assert again.pod == binds[0].pod


def test_a_replaced_member_joins_without_the_others():
    made = world(*[1] * 3, groups=[spec(3)])
    made.adds(*members(3))
    binds = {bind.pod.name: bind for bind in made.binds()}
    for bind in binds.values():
        made.accepts(bind)
        made.shows_bound(bind)
    made.gone("g1")
    made.passes(60.0)
    made.adds(member("g1"))
    assert [bind.pod.name for bind in made.binds()] == ["g1"]


def test_more_than_the_minimum_is_placed_as_far_as_it_fits():
    made = world(*[1] * 3, groups=[spec(2)])
    made.adds(*members(4))
    made.plan()
    held = [name for name in ("g0", "g1", "g2", "g3") if made.ledger.node_of(made.seen(name).uid)]
    assert len(held) == 3
    assert [made.stage(name) for name in ("g0", "g1", "g2", "g3") if name not in held] == ["refused"]


def test_a_begun_gang_is_completed_first_after_a_restart():
    made = world(1, 1, groups=[spec(2)])
    bound = {"volcano.sh/vgpu-ids-new": "n0-0,NVIDIA,10000,0:"}
    made.adds(pod("older", memory=10_000, priority=10, created_s=1))
    made.adds(member("a", node_name="n0", annotations=bound, started=True), member("b", created_s=START_UNIX_S + 5))
    assert [bind.pod.key for bind in made.binds()] == ["default/b"]


def test_a_begun_gang_is_completed_first_once_groups_are_known():
    made = World(*nodes(1, 1))
    bound = {"volcano.sh/vgpu-ids-new": "n0-0,NVIDIA,10000,0:"}
    made.adds(member("a", node_name="n0", annotations=bound, started=True), member("b", created_s=START_UNIX_S + 5))
    assert made.binds() == []
    made.adds(pod("older", memory=10_000, priority=10, created_s=1))
    made.groups_are(spec(2))
    assert [bind.pod.key for bind in made.binds()] == ["default/b"]


def test_members_with_and_without_cards_are_one_gang():
    made = world(1, groups=[spec(3)])
    made.adds(member("ps", limits={"cpu": "2"}), member("w0"), member("w1"))
    assert made.binds() == []
    made.scheduler.nodes.changed(node("n9", cards=1))
    made.passes(1.0)
    assert {bind.pod.name for bind in made.binds()} | {"ps", "w0", "w1"} == {"ps", "w0", "w1"}
    assert all(made.ledger.node_of(made.seen(name).uid) for name in ("ps", "w0", "w1"))


def test_without_the_kind_a_group_is_formed_by_its_members_annotation():
    made = World(*nodes(2))
    made.has_no_kind()
    made.adds(member("a", annotations={MIN: "2"}))
    assert made.binds() == []
    made.adds(member("b", annotations={MIN: "2"}))
    made.plan()
    assert all(made.ledger.node_of(made.seen(name).uid) for name in "ab")


@pytest.mark.parametrize("least", [0, 1])
def test_a_group_of_one_is_no_gang(least):
    made = world(1, groups=[spec(least)])
    made.adds(*members(2))
    assert len(made.binds()) == 1


def test_members_that_are_to_be_spread_share_no_card():
    """As `volcano.sh/vgpu-podgroup-policy` asks: two of a group on one card are refused, on two they go."""
    spread = {"volcano.sh/vgpu-podgroup-policy": "spread"}
    made = world(1, groups=[spec(2)])
    made.adds(*[member(name, memory=1000, annotations=spread) for name in "ab"])
    assert made.binds() == []
    made.scheduler.nodes.changed(node("n0", cards=2, version="2"))
    made.passes(1.0)
    cards = {
        entry.uuid
        for name in "ab"
        if (holding := made.ledger.holding(made.seen(name).uid)) is not None
        for entry in holding.assignment.entries
    }
    assert cards == {"n0-0", "n0-1"}


def test_a_gang_of_more_than_may_be_in_flight_is_sent_in_turn():
    made = World(*nodes(*[1] * 6), bind_in_flight_max=2)
    made.groups_are(spec(6))
    made.adds(*members(6))
    made.plan()
    assert all(made.ledger.node_of(made.seen(f"g{at}").uid) for at in range(6))
    assert made.scheduler.cluster.queue.in_flight == 2
    assert len(made.placed()) == 6


def partitioned(count, size, group="g"):
    return [member(f"{group}{at}", group, labels={"part": str(at // size)}) for at in range(count)]


def subgroups(size, least, **fields):
    return (SubGroups(name="w", keys=("part",), size=size, least=least, **fields),)


def bound(made):
    made.plan()
    return sorted(one.name for one in made.pods.values() if made.ledger.node_of(one.uid) is not None)


def test_of_a_group_of_subgroups_nothing_starts_until_enough_of_them_fit_whole():
    made = world(3, 3, groups=[spec(0, sub_groups=subgroups(2, 3))])
    ids = {"volcano.sh/vgpu-ids-new": "n0-0,NVIDIA,10000,0:"}
    made.adds(pod("holds", memory=10_000, node_name="n0", annotations=ids))
    made.adds(*partitioned(6, 2))
    assert bound(made) == ["holds"]
    assert "5 of the 6 members of its group" in made.wait("g0").text
    assert "2 of 3 subgroups of w, 1 of 2 of subgroup w/2" in made.wait("g0").text
    made.gone("holds")
    made.passes(60.0)
    assert bound(made) == ["g0", "g1", "g2", "g3", "g4", "g5"]


def test_a_subgroup_beyond_the_minimum_is_placed_whole_or_not_at_all():
    made = world(5, groups=[spec(2, sub_groups=subgroups(2, 1))])
    made.adds(*partitioned(6, 2))
    assert bound(made) == ["g0", "g1", "g2", "g3"]
    assert bound(made) == ["g0", "g1", "g2", "g3"]
    assert "1 of the 2 members of its subgroup" in made.wait("g4").text


def test_a_subgroup_that_is_not_whole_says_so():
    made = world(8, groups=[spec(2, sub_groups=subgroups(2, 1))])
    made.adds(*partitioned(3, 2))
    assert bound(made) == ["g0", "g1"]
    assert made.wait("g2").text == (
        "waits until 2 members of subgroup w/1 of PodGroup default/g can be placed together; 1 is ready. Create 1 more"
    )
    made.adds(member("g3", labels={"part": "1"}))
    assert bound(made) == ["g0", "g1", "g2", "g3"]


def test_when_a_member_leaves_each_subgroup_that_waits_is_judged_again():
    made = world(2, groups=[spec(2, sub_groups=subgroups(2, 1))])
    made.adds(*partitioned(6, 2))
    assert bound(made) == ["g0", "g1"]
    made.gone("g5")
    made.plan()
    assert "2 members of subgroup w/2 of PodGroup default/g can be placed together; 1 is" in made.wait("g4").text


def test_until_enough_subgroups_are_whole_the_fullest_others_are_told():
    made = world(8, groups=[spec(4, sub_groups=subgroups(2, 2))])
    made.adds(*partitioned(3, 2))
    assert bound(made) == []
    assert made.wait("g0").text == (
        "waits until 4 members of PodGroup default/g can be placed together; 3 are ready"
        " (1 of 2 subgroups of w, 1 of 2 of subgroup w/1). Create 1 more"
    )


def test_members_that_no_policy_selects_are_of_no_subgroup():
    selector = (Requirement(key="part", operator="In", values=("0", "1")),)
    made = world(5, groups=[spec(2, sub_groups=subgroups(2, 1, selector=selector))])
    made.adds(*partitioned(5, 2))
    assert bound(made) == ["g0", "g1", "g2", "g3", "g4"]


def test_a_group_of_too_many_subgroups_is_told_and_not_placed(monkeypatch):
    monkeypatch.setattr("core.placing.minimums.SUBGROUPS_MAX", 2)
    made = world(8, groups=[spec(2, sub_groups=subgroups(1, 1))])
    made.adds(*partitioned(3, 1))
    assert bound(made) == []
    assert "3 subgroups" in made.wait("g0").text


def test_a_group_whose_pods_are_compared_with_too_many_policies_is_told_and_not_placed():
    exists = (Requirement(key="a", operator="Exists"),)
    policies = tuple(SubGroups(name=f"s{at}", selector=exists, size=2) for at in range(1000))
    made = world(2, groups=[spec(1, sub_groups=policies)])
    made.adds(*members(30))
    assert bound(made) == []
    assert made.wait("g0").text == (
        "give each entry of the subGroupPolicy of PodGroup default/g a label value of its own in matchLabels: "
        "too many entries would be compared with each of its pods"
    )
    made.scheduler.cluster.groups.changed(spec(1, sub_groups=policies[:2], resource_version="2"))
    assert len(bound(made)) == 2


def racks(*cards):
    """Nodes, by rack and number, with so many cards."""
    return [
        node(f"{rack}{at}", cards=many, labels={"rack": rack})
        for rack, of in zip("ab", cards, strict=True)
        for at, many in enumerate(of)
    ]


def near(*cards, least=3):
    made = World(*racks(*cards))
    made.groups_are(spec(least, topology_key="rack"))
    return made


def where(made):
    made.plan()
    places = {one.name: made.ledger.node_of(one.uid) for one in made.pods.values()}
    return {name: place[0] for name, place in sorted(places.items()) if place is not None}


def test_a_gang_with_a_topology_goes_to_the_smallest_domain_that_takes_it():
    made = near([2, 2, 2], [2, 1], least=3)
    made.adds(*members(3))
    assert where(made) == {"g0": "b", "g1": "b", "g2": "b"}


def test_a_gang_that_no_domain_takes_is_told_the_figures_of_the_best():
    made = near([1], [1, 1], least=3)
    made.adds(*members(3))
    assert where(made) == {}
    text = made.wait("g0").text
    assert "2 of the 3 members of its group that must start together fit now in rack=b, where most of them do" in text


def test_members_beyond_the_minimum_and_those_that_come_back_stay_in_the_domain():
    made = near([2, 2], [2], least=2)
    made.adds(*members(2))
    assert where(made) == {"g0": "b", "g1": "b"}
    made.adds(member("g2"))
    assert where(made) == {"g0": "b", "g1": "b"}
    assert "no node near the other members of its group takes it now in rack=b:" in made.wait("g2").text
    made.adds(member("other", group="none"))
    made.gone("g0")
    made.passes(60.0)
    assert where(made)["g2"] == "b"


def test_without_the_label_on_any_node_a_gang_says_so():
    made = world(4, groups=[spec(2, topology_key="rack")])
    made.adds(*members(2))
    assert bound(made) == []
    assert "no node is in a domain of node label rack" in made.wait("g0").text


def near_spec(least, highest=None, *, hard=True, name="", **fields):
    return spec(least, network_topology=NetworkTopology(hard, highest, name), **fields)


def tiered(*cards, labels=("rack", "block"), **fields):
    """Racks a and b in block 1, c and d in block 2, each node with so many cards."""
    found = [
        node(f"{rack}{at}", cards=many, labels={"rack": rack, "block": block})
        for rack, block, of in zip("abcd", "1122", cards, strict=True)
        for at, many in enumerate(of)
    ]
    return World(*found, network_tiers=labels, **fields)


def test_a_hard_network_topology_takes_the_lowest_tier_and_of_it_the_smallest_domain():
    made = tiered([2, 2], [1, 1, 1, 1], [3, 3, 3], [1])
    made.groups_are(near_spec(4, 2))
    made.adds(*members(4))
    assert set(where(made).values()) == {"a"}


def test_a_hard_network_topology_widens_up_to_the_highest_tier_that_it_allows():
    made = tiered([1], [1], [1], [1, 1])
    made.groups_are(near_spec(3, 1))
    made.adds(*members(3))
    assert where(made) == {}
    assert "2 of the 3 members of its group" in made.wait("g0").text
    assert "fit now in rack=d, block=2, where most of them do" in made.wait("g0").text
    made.groups_are(near_spec(3, 2, resource_version="2"))
    assert set(where(made).values()) == {"c", "d"}


def test_a_tier_is_named_by_its_label():
    made = tiered([1], [1], [1], [1])
    made.groups_are(near_spec(2, name="block"))
    made.adds(*members(2))
    assert set(where(made).values()) in ({"a", "b"}, {"c", "d"})


def test_a_tier_that_nobody_has_is_told():
    made = tiered([1], [1], [1], [1])
    made.groups_are(near_spec(1, name="spine"))
    made.adds(*members(1))
    assert where(made) == {}
    assert "no tier of the network is called 'spine'" in made.wait("g0").text


def test_a_limit_below_all_tiers_is_told():
    made = tiered([1], [1], [1], [1])
    made.groups_are(near_spec(1, 0))
    made.adds(*members(1))
    assert where(made) == {}
    assert "the lowest tier of the network is 1; allow that or a higher one" in made.wait("g0").text


def test_the_tier_above_the_highest_is_the_whole_cluster():
    made = tiered([1], [1], [1], [1])
    made.groups_are(near_spec(4, 3))
    made.adds(*members(4))
    assert set(where(made).values()) == set("abcd")


def test_a_soft_network_topology_is_placed_near_if_possible_and_else_anywhere():
    made = tiered([1], [1], [1], [1, 1])
    made.groups_are(near_spec(2, hard=False), spec(1, "h"))
    made.adds(*members(2))
    assert set(where(made).values()) == {"d"}
    made = tiered([1], [1], [1], [1])
    made.groups_are(near_spec(3, 1, hard=False))
    made.adds(*members(3))
    assert len(where(made)) == 3


def test_without_tiers_a_limit_is_refused_and_a_preference_is_not():
    for asked, placed in ((near_spec(2, 1), 0), (near_spec(2, 1, hard=False), 2), (near_spec(2), 2)):
        made = world(2, groups=[asked])
        made.adds(*members(2))
        assert len(where(made)) == placed
        assert (
            placed
            or "no tiers of the network are known; create HyperNodes, or set network_tiers" in made.wait("g0").text
        )


def test_members_that_come_later_join_the_others_even_softly():
    made = tiered([1, 2], [1], [1], [2])
    made.groups_are(near_spec(2, hard=False))
    made.adds(*members(2))
    assert set(where(made).values()) == {"d"}
    made.adds(member("g2"))
    assert where(made)["g2"] == "c"  # of the same block


def hyper_node(name, tier, *members, tier_name=""):
    return HyperNode(name=name, tier=tier, tier_name=tier_name, members=members)


def test_hyper_nodes_are_tiers_by_names_patterns_labels_and_what_they_hold():
    made = tiered([1], [1], [1, 1], [1], labels=())
    made.groups_are(near_spec(3, 1))
    made.adds(*members(3))
    assert where(made) == {}
    s0 = hyper_node("s0", 1, Members(name="a0"), Members(name="b0"))
    s1 = hyper_node("s1", 1, Members(pattern="^c[0-9]$"))
    s2 = hyper_node("s2", 1, Members(labels=(Requirement(key="rack", operator="In", values=("d",)),)))
    s3 = hyper_node("s3", 2, Members(name="s1", is_inner=True), Members(name="s2", is_inner=True), tier_name="spine")
    made.scheduler.cluster.groups.hyper_nodes.replaced([s0, s1, s2, s3])
    assert where(made) == {}
    assert "2 of the 3 members of its group that must start together fit now in HyperNode s0" in made.wait("g0").text
    made.groups_are(near_spec(3, name="spine", resource_version="2"))
    assert set(where(made).values()) == {"c", "d"}


def test_a_hyper_node_that_comes_later_lets_in_who_waits():
    made = tiered([1], [1], [1], [1], labels=())
    made.scheduler.cluster.groups.hyper_nodes.replaced([hyper_node("s0", 1, Members(name="a0")), hyper_node("s9", 2)])
    made.groups_are(near_spec(2, 1))
    made.adds(*members(2))
    assert where(made) == {}
    made.scheduler.cluster.groups.hyper_nodes.put(hyper_node("s0", 1, Members(pattern="^[ab]")))
    assert set(where(made).values()) == {"a", "b"}


def test_networks_that_are_no_more_are_forgotten():
    made = world(1, 1, groups=[near_spec(3, 1)])
    made.adds(*members(3))
    for at in range(100):
        made.scheduler.cluster.groups.hyper_nodes.put(hyper_node("s", 1, Members(name=f"n{at}")))
        made.plan()
    made.scheduler.cluster.requeue.begin(
        made.scheduler.cluster.queue.refused_asks(), made.now_s
    )  # as when a node opens
    made.scheduler.cluster.requeue.unreported.clear()  # as once all is told
    gc.collect()
    assert sum(isinstance(one, HyperNodes) for one in gc.get_objects()) <= 20


def test_a_hyper_node_that_cannot_be_read_loosens_no_limit():
    made = tiered([1], [1], [1], [1], labels=())
    pattern = b'{"selector": {"regexMatch": {"pattern": "["}}}'
    bad = b'{"metadata": {"name": "s1"}, "spec": {"tier": 2, "members": [' + pattern + b"]}}"
    made.scheduler.cluster.groups.hyper_nodes.replaced(
        [hyper_node("s0", 1, Members(name="a0")), salvage_hyper_node(bad)]
    )
    made.groups_are(near_spec(2, 2))
    made.adds(*members(2))
    assert where(made) == {}


def test_hyper_nodes_that_hold_each_other_are_one_domain():
    made = tiered([1], [1], [1], [1], labels=())
    circle = [
        hyper_node("s0", 1, Members(name="a0"), Members(name="s1", is_inner=True)),
        hyper_node("s1", 1, Members(name="b0"), Members(name="s0", is_inner=True)),
    ]
    made.scheduler.cluster.groups.hyper_nodes.replaced(circle)
    made.groups_are(near_spec(2, 1))
    made.adds(*members(2))
    assert set(where(made).values()) == {"a", "b"}


def by_partition(size, least, highest, *, hard=True):
    return SubGroups(name="w", keys=("part",), size=size, least=least, network_topology=NetworkTopology(hard, highest))


def test_each_subgroup_is_in_a_domain_of_its_own_and_all_are_in_one_of_the_group():
    made = tiered([2], [3], [2], [2])
    made.groups_are(near_spec(4, 2, sub_groups=(by_partition(2, 2, 1),)))
    made.adds(*[member(f"g{at}", labels={"part": str(at // 2)}) for at in range(4)])
    found = where(made)
    assert found["g0"] == found["g1"] != found["g2"] == found["g3"]
    assert set(found.values()) in ({"a", "b"}, {"c", "d"})


def test_a_small_subgroup_takes_no_domain_that_only_a_larger_one_of_its_group_fits_into():
    made = tiered([1, 1, 1], [1, 1, 0, 0], [0], [0])
    roles = [
        replace(by_partition(size, 1, 1), name=name, selector=(Requirement(key="role", operator="In", values=(name,)),))
        for name, size in (("prefill", 2), ("decode", 3))
    ]
    made.groups_are(spec(5, sub_groups=tuple(roles)))
    names = [name for name, size in (("prefill", 2), ("decode", 3)) for _ in range(size)]
    made.adds(*[member(f"g{at}", labels={"part": "0", "role": name}) for at, name in enumerate(names)])
    assert where(made) == {"g0": "b", "g1": "b", "g2": "a", "g3": "a", "g4": "a"}


def test_the_first_of_a_subgroup_takes_no_domain_that_has_no_room_for_the_others():
    made = tiered([1], [1, 1, 1, 1], [0], [0])
    made.groups_are(spec(4, sub_groups=(by_partition(1, 1, 1),)))
    made.adds(*[member(f"g{at}", labels={"part": "0"}) for at in range(4)])
    assert set(where(made).values()) == {"b"}


class Counted:
    """A network that counts how often it is asked for the domains of a node."""

    def __init__(self, network):
        self.network, self.asked = network, 0
        self.tiers, self.domain, self.domains = network.tiers, network.domain, network.domains

    def around(self, node, labels):
        self.asked += 1
        return self.network.around(node, labels)


def test_the_domains_of_subgroups_are_found_once_however_many_domains_the_group_may_be_in():
    count = 40
    made = World(*[node(f"n{at}", labels={"rack": f"r{at}", "block": f"b{at // 2}"}) for at in range(count)])
    made.configures(network_tiers=("rack", "block"))
    made.groups_are(near_spec(4, 2, sub_groups=(by_partition(2, 2, 1),)))
    made.adds(*[member(f"g{at}", labels={"part": str(at // 2)}) for at in range(4)])
    made.plan()
    unit = made.scheduler.cluster.gangs.unit(made.entry("g0"))
    assert unit.topology is not None
    network = Counted(unit.topology.network)
    inner = {name: one._replace(near=replace(one.near, network=network)) for name, one in unit.inner.items()}
    unit = replace(unit, topology=replace(unit.topology, network=network), inner=inner)
    assert isinstance(place(made.ledger, made.scheduler.cluster.search.candidates, unit), Refused)
    assert network.asked == 2 * count


def test_a_group_starts_with_the_subgroup_that_lacks_least_if_there_is_no_room_for_the_first():
    """Some of it are left of an earlier start."""
    parts = [
        SubGroups(
            name=role, selector=(Requirement(key="role", operator="In", values=(role,)),), keys=("part",), size=many
        )
        for role, many in (("x", 2), ("y", 1))
    ]
    made = world(3, groups=[spec(1)])
    made.adds(member("held", labels={"role": "x", "part": "2"}))
    assert set(where(made)) == {"held"}
    made.groups_are(spec(1, resource_version="2", sub_groups=tuple(replace(one, least=1) for one in parts)))
    labels = [("x", "1"), ("x", "1"), ("x", "2"), ("y", "1")]
    made.adds(*[member(f"g{at}", labels={"role": role, "part": part}) for at, (role, part) in enumerate(labels)])
    assert set(where(made)) == {"held", "g2", "g3"}


def test_a_subgroup_that_no_domain_takes_keeps_the_group_out():
    made = tiered([2], [1], [1], [1])
    made.groups_are(spec(4, sub_groups=(by_partition(2, 2, 1),)))
    made.adds(*[member(f"g{at}", labels={"part": str(at // 2)}) for at in range(4)])
    assert where(made) == {}
    assert "1 of 2 subgroups of w" in made.wait("g0").text
    made.groups_are(spec(4, resource_version="2", sub_groups=(by_partition(2, 2, 1, hard=False),)))
    assert len(where(made)) == 4


def test_members_of_a_subgroup_that_come_later_join_it():
    made = tiered([2], [3], [3], [1])
    made.groups_are(spec(2, sub_groups=(by_partition(2, 1, 1),)))
    made.adds(*[member(f"g{at}", labels={"part": "0"}) for at in range(2)])
    (rack,) = set(where(made).values())
    made.adds(
        member("g2", labels={"part": "0"}), member("g3", labels={"part": "1"}), member("g4", labels={"part": "1"})
    )
    found = where(made)
    assert rack == "a"
    assert "g2" not in found
    assert found["g3"] == found["g4"] != "a"


def test_nodes_of_one_domain_are_kept_free_for_a_group_that_waits_too_long():
    made = tiered([1, 1], [1, 1, 1], [1], [1], keep_free_after_s=5.0, keep_free_for_s=60.0)
    small = [f"small{at}" for at in range(7)]
    made.adds(*(pod(name, memory=10_000) for name in small))
    made.plan()
    made.groups_are(near_spec(2, 1))
    made.adds(*members(2))
    for at in range(14):
        made.passes(2.0)
        made.gone(next(name for name in small if f"uid-{name}" in made.pods and name in where(made)))
        small.append(f"later{at}")
        made.adds(pod(small[-1], memory=10_000, created_s=START_UNIX_S + 1000 + at))
    found = where(made)
    assert found["g0"] == found["g1"]


def test_a_label_that_a_node_is_given_lets_in_who_waits():
    for labels in (("rack",), ()):
        made = tiered([1], [1], [1], [1], labels=labels)
        of_rack = Members(labels=(Requirement(key="rack", operator="In", values=("a",)),))
        made.scheduler.cluster.groups.hyper_nodes.replaced([hyper_node("s", 1, of_rack)])
        made.groups_are(near_spec(2, 1))
        made.adds(*members(2))
        assert where(made) == {}
        made.scheduler.nodes.changed(node("b0", cards=1, labels={"rack": "a", "block": "1"}, version="2"))
        made.passes(1.0)
        assert set(where(made).values()) == {"a", "b"}
