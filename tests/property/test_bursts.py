"""A burst packs: nodes in use are waited for while that is shorter than what opening idle ones is worth.

Whatever asks, and however long plugins take: nobody waits longer than `turn_wait_max_s` while an idle node would take
it; nobody is left waiting; and under a policy that does not pack that setting changes nothing.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.settings import Policy
from tests.support.worlds.bursts import one_at_a_time, play
from tests.support.worlds.world import node, pod

# Between two looks at the lines a pod may be late, and behind the hand-off that ends last.
_LATE_S = 0.5


def fleet(count, cards=2):
    return [node(f"n{at:03d}", cards=cards, slots=10) for at in range(count)]


def shares(count, **fields):
    return [pod(f"p{at:04d}", **fields) for at in range(count)]


@pytest.mark.parametrize(("serves_s", "most"), [(0.05, 1.5), (1.0, 2.0)])
def test_a_burst_of_shares_uses_few_more_nodes_than_one_pod_at_a_time(serves_s, most):
    nodes, pods = fleet(60, cards=8), shares(400)
    found = play(nodes, pods, {one.name: serves_s for one in nodes})
    assert found.used <= most * one_at_a_time(nodes, pods)
    assert max(found.waited_s.values()) <= 60.0


def test_slower_plugins_open_more_nodes_and_nobody_waits_longer():
    nodes, pods = fleet(100), shares(120)
    used = []
    for serves_s in (0.1, 5.0, 20.0):
        found = play(nodes, pods, {one.name: serves_s for one in nodes})
        used.append(found.used)
        assert max(found.waited_s.values()) <= 60.0 + _LATE_S
    assert used == sorted(set(used))


@settings(max_examples=25, deadline=None)
@given(
    memories=st.lists(st.sampled_from((500, 1000, 2500, 5000, 10_000)), min_size=1, max_size=60),
    paces_s=st.lists(st.sampled_from((0.02, 0.3, 1.0, 4.0)), min_size=1, max_size=5),
    bound_s=st.sampled_from((5.0, 20.0, 60.0)),
)
def test_nobody_waits_longer_than_the_bound_while_idle_nodes_are_there(memories, paces_s, bound_s):
    nodes = fleet(len(memories) + 1, cards=1)
    pods = [pod(f"p{at:04d}", memory=memory) for at, memory in enumerate(memories)]
    paces = {one.name: paces_s[at % len(paces_s)] for at, one in enumerate(nodes)}
    found = play(nodes, pods, paces, turn_wait_max_s=bound_s)
    assert max(found.waited_s.values()) <= bound_s + _LATE_S


@settings(max_examples=10, deadline=None)
@given(
    policy=st.sampled_from((Policy.SPREAD, Policy.INDEX)),
    memories=st.lists(st.sampled_from((1000, 5000)), min_size=1, max_size=40),
    serves_s=st.sampled_from((0.1, 1.0, 3.0)),
)
def test_a_policy_that_does_not_pack_knows_no_such_bound(policy, memories, serves_s):
    # A card for each: spread over fewer, small ones may leave no card with room for a large one.
    nodes = fleet(4, cards=10)
    pods = [pod(f"p{at:04d}", memory=memory) for at, memory in enumerate(memories)]
    paces = {one.name: serves_s for one in nodes}
    one, other = (play(nodes, pods, paces, policy=policy, turn_wait_max_s=bound_s) for bound_s in (2.0, 600.0))
    assert (one.nodes, one.waited_s) == (other.nodes, other.waited_s)


def test_what_the_plugin_cannot_confuse_goes_at_once():
    nodes = fleet(10, cards=8)
    pods = [*shares(30), pod("two", number=2), pod("three", number=3)]
    found = play(nodes, pods, {one.name: 1.0 for one in nodes})
    assert found.used == 1
    assert (found.waited_s["two"], found.waited_s["three"]) == (0.0, 0.0)


def test_a_gang_does_not_stand_in_line_behind_those_who_wait_for_packing():
    group = {"scheduling.k8s.io/group-name": "g", "scheduling.volcano.sh/group-min-member": "4"}
    nodes = fleet(20, cards=8)
    pods = [*shares(60), *(pod(f"m{at}", annotations=group, created_s=1_800_000_001) for at in range(4))]
    found = play(nodes, pods, {one.name: 1.0 for one in nodes})
    assert max(found.waited_s[f"m{at}"] for at in range(4)) <= 3.0
    assert max(found.waited_s.values()) > 30.0
