"""A small part of `scripts/twin --gangs`: groups, queues and failures against what pods and nodes alone say."""

from collections import Counter
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.actions import Bind
from core.groups import DEFAULT_QUEUE, GroupSpec, NetworkTopology, QueueSpec, SubGroups
from core.model import GroupKey, GroupKind
from core.placing.queues import QueueTree, deserved
from tests.support.devices.gang_cards import Kind, shares_of
from tests.support.devices.gang_domains import least_of, subgroup_of
from tests.support.devices.gang_reclaim import Then
from tests.support.devices.gang_state import NAMESPACES
from tests.support.devices.gang_world import GangWorld


@pytest.mark.parametrize("seed", range(6))
def test_gangs_are_whole_queues_are_kept_and_nobody_waits_who_fits(seed):
    world = GangWorld(seed)
    for number in range(400):
        world.step()
        if number % 50 == 49:
            world.settle()
        assert world.faults == []
    assert min(world.counts[name] for name in ("answer", "take_pod", "gangs placed", "waiting")) > 0


def test_pods_wait_for_quotas_and_for_queues():
    waiting = {"waiting for a quota", "waiting for a queue"}
    for seed in range(20):
        world = GangWorld(f"quotas {seed}")
        for _ in range(300):
            world.step()
        world.settle()
        assert world.faults == []
        waiting -= world.counts.keys()
        if not waiting:
            break
    assert not waiting


def lived(seed, until, **which):
    worlds = (GangWorld(f"{seed}/{at}") for at in count())
    world = next(one for one in worlds if all(getattr(one, name) is value for name, value in which.items()))
    while not until(world):
        world.step()
    assert world.faults == []
    return world


def test_a_gang_that_is_not_whole_is_seen():
    world = lived("part", lambda world: world.counts["gangs placed"] > 50)
    world.broken.clear()
    for name, spec in world.specs.items():
        world.specs[name] = replace(spec, min_member=99)
    world.look()
    assert any("and nothing was taken from it" in text for text in world.faults)


def test_a_member_that_gets_a_place_without_the_minimum_of_its_gang_is_seen():
    world = lived("joins", lambda world: world.counts["gangs placed"] > 50)
    for name, spec in world.specs.items():
        world.specs[name] = replace(spec, min_member=99)
    world.broken.update(world.specs)
    world.places.clear()
    world.look()
    assert any(" join gang " in text and " of 99" in text for text in world.faults)


def divided(world, group):
    """Whether members of *group* are on two nodes."""
    return len({where for one in world.members(group) if (where := world.node_of(one))}) > 1


def test_a_gang_in_no_domain_is_seen():
    world = lived("domains", lambda world: any(divided(world, name) for name in world.specs))
    for name, node in world.nodes.items():
        world.nodes[name] = replace(node, labels={**node.labels, "rack": name})
    for name, spec in world.specs.items():
        world.specs[name] = replace(spec, network_topology=NetworkTopology(highest=1))
    world.places.clear()
    world.look()
    assert any("in no domain" in text for text in world.faults)


def in_subgroup(world, one):
    group = world.asked[one.name].group
    return bool(group and world.node_of(one)) and subgroup_of(world.specs[group], one.labels) is not None


def test_a_part_of_a_subgroup_and_too_few_subgroups_are_seen():
    def until(world):
        return any(in_subgroup(world, one) for one in world.world.pods.values())

    world = lived("subgroups", until, divides=True)
    for name, spec in world.specs.items():
        policies = tuple(replace(one, size=9, least=9) for one in spec.sub_groups)
        world.specs[name] = replace(spec, sub_groups=policies)
    world.places.clear()
    world.look()
    assert any(" of 9 subgroups " in text for text in world.faults)
    assert any(text.endswith(" of 9") and " joins " in text for text in world.faults)


def test_groups_wait_for_domains_and_in_subgroups():
    counted = {"waiting in a domain", "waiting in subgroups", "domains joined", "subgroups joined"}
    for seed in range(40):
        world = GangWorld(f"divides {seed}")
        for number in range(200 if world.divides else 0):
            world.step()
            if number % 50 == 49:
                world.settle()
        assert world.faults == []
        counted -= world.counts.keys()
        if not counted:
            break
    assert not counted


@pytest.mark.parametrize(
    ("held", "there", "least"),
    [
        ({}, {("x", "1"): 2, ("x", "2"): 3, None: 1}, 4),
        ({("x", "1"): 1}, {("x", "1"): 1, ("x", "2"): 2, None: 2}, 3),
        ({("x", "1"): 2, ("x", "2"): 2}, {}, 0),
        ({}, {("x", "1"): 1, ("x", "2"): 3}, None),
    ],
)
def test_a_group_needs_its_subgroups_and_its_minimum(held, there, least):
    policy = SubGroups(name="x", keys=("part",), size=2, least=2)
    key = GroupKey(GroupKind.VOLCANO, "team", "g")
    assert least_of(GroupSpec(key=key, min_member=4, sub_groups=(policy,)), held, there) == least


def test_a_queue_that_holds_too_much_is_seen():
    world = lived("queue", lambda world: world.queues.queued()["small", "cpu"] > 0)
    world.broken.clear()
    world.queues.limits["small"] = {"cpu": 0}
    world.look()
    assert any("queue small holds more" in text for text in world.faults)


def test_a_namespace_that_holds_too_much_is_seen():
    world = lived("quota", lambda world: world.queues.limited_mib() > 0)
    world.broken.clear()
    world.queues.quotas["a"] = 0
    world.look()
    assert any("are held under quotas" in text for text in world.faults)


def test_pods_leave_for_those_of_a_higher_priority():
    counts = Counter[str]()
    for seed in range(3):
        world = lived(f"preempts {seed}", lambda world: True, preempts=True)
        for number in range(200):
            world.step()
            if number % 50 == 49:
                world.settle()
        assert world.faults == []
        counts += world.counts
    assert min(counts["evicted"], counts["waiting for a preemption"]) > 0


def test_a_claimed_card_that_a_pod_gets_is_seen():
    def sends(world):
        return any(
            isinstance(one, Bind) and shares_of(one.annotations) for one in world.world.scheduler.cluster.actions
        )

    world = lived("claims", sends, claims_cards=True)
    for name, offer in world.offers.items():
        world.claimed.update({name, *(f"{name}-{at}" for at in range(offer.cards))})
    world.places.clear()
    world.look()
    assert any("is placed on claimed " in text for text in world.faults)
    assert any("of which any card may be claimed" in text for text in world.faults)


def test_cards_are_claimed_and_given_back():
    world = lived("gives back", lambda world: world.counts["change"] > 20, claims_cards=True)
    before = world.claimed.copy()
    for _ in range(20):
        world.claims.change()
        world.world.plan()
        world.look()
    assert world.claimed != before
    world.settle()
    assert world.faults == []


def test_what_a_queue_takes_back_beyond_what_it_deserves_is_seen():
    def taken_back(world):
        return [one for one in world.taking._checked if one.victims and world.counts["taken back"]]

    world = lived("takes back", taken_back, reclaims=True)
    (then,) = world.taking._past[-1:]
    world.taking._past[:] = [then._replace(wants=Counter())]
    world.world.scheduler.cluster.actions.extend(taken_back(world))
    world.taking._checked.clear()
    world.taking.after()
    assert any(" leave for " in text for text in world.faults)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_what_queues_deserve_is_the_same_by_halving_and_by_fractions(data):
    def draw(*numbers):
        return data.draw(st.sampled_from(numbers))

    names, limits = ("small", "within", "open"), {"small": {"cpu": draw(2, 6, 20)}, "within": {"cpu": draw(3, 9)}}
    queues = {
        name: QueueSpec(
            name=name,
            weight=draw(1, 2, 3),
            deserved={"cpu": due} if (due := draw(0, 0, 2, 5)) else {},
            guarantee={"cpu": least} if (least := draw(0, 0, 1, 2)) else {},
        )
        for name in names
    }
    wants = {name: draw(0, 1, 4, 9) for name in (*names, DEFAULT_QUEUE)}
    total = draw(4, 8, 13, 30)
    tree = QueueTree(
        replace(queues[name], capability=limits.get(name, {}), parent="small" if name == "within" else "")
        for name in names
    )
    expected = deserved({"cpu": total}, {name: {"cpu": amount} for name, amount in wants.items()}, tree).amounts
    of_cpu = Counter({(name, "cpu"): amount for name, amount in wants.items()})
    found = Then(0.0, Counter(cpu=total), of_cpu, queues, limits).deserved()
    if any(wants.values()):
        assert {name: found.get((name, "cpu"), 0.0) for name in wants} == pytest.approx(
            {name: expected.get(name, {}).get("cpu", 0.0) for name in wants}, abs=1e-6
        )


def test_a_pod_that_is_evicted_for_one_of_no_higher_priority_is_seen():
    def evicts(world):
        return any(target.name in world.asked for one in world.evictions.planned for target, _ in one.victims)

    world = lived("evicts", evicts, preempts=True, reclaims=False)
    world.world.scheduler.cluster.actions.extend(world.evictions.planned)
    world.evictions.planned.clear()
    for asked in world.asked.values():
        asked.priority = 0
    world.look()
    assert any("is evicted for one of" in text for text in world.faults)


def test_a_gang_of_which_a_part_is_evicted_is_seen_unless_the_others_were_chosen_before():
    def whole(world):
        for one in world.evictions.planned:
            groups = [world.asked[target.name].group for target, _ in one.victims if target.name in world.asked]
            spec = world.specs.get(groups[0]) if groups else None
            if spec is not None and spec.is_gang and groups[0] not in world.unseen and len(groups) > 1:
                return one if groups == [groups[0]] * len(groups) else None
        return None

    def judged(*before):
        world.faults.clear()
        world.evictions.planned[:] = before
        world.world.scheduler.cluster.actions.append(replace(action, victims=action.victims[1:]))
        world.look()
        return [text for text in world.faults if "of its gang stay" in text]

    world = lived("part evicted", whole, preempts=True)
    action = whole(world)
    assert judged()
    assert not judged(replace(action, victims=action.victims[:1]))


def test_a_pod_on_a_node_that_does_not_take_it_is_seen():
    world = lived("places", lambda world: bool(world.places))
    world.places.clear()
    for name in world.nodes:
        world.nodes[name] = replace(world.nodes[name], unschedulable=True)
    world.look()
    assert any("which does not take it" in text for text in world.faults)


def test_who_waits_and_fits_is_seen():
    world = lived("waits 2", lambda world: len(world.nodes) > 3 and world.counts["gangs placed"] > 50)
    world.settle()
    for name in list(world.nodes):
        well = {"unschedulable": False, "taints": (), "ready": True}
        world.offers[name] = world.offers[name]._replace(cards=99)
        world.nodes[name] = replace(world.nodes[name], allocatable={"cpu": "99"}, **well)
    world.faults.clear()
    world.queues.quotas.clear()
    for _ in range(20):
        world.add_pods()
    world.waiting.look()
    assert any(" waits for " in text for text in world.faults)


def test_who_waits_though_those_below_could_leave_is_seen():
    world = lived("below", lambda world: bool(world.places), preempts=True, divides=False)
    for _ in range(200):
        world.step()
        for name, asked in world.asked.items():
            asked.priority = 1 if world.node_of(world.world.seen(name)) else 99
        world.waiting.look()
    assert any(" without " in text for text in world.faults)


def test_pods_ask_for_parts_of_the_cards_of_both_plugins_and_share_them():
    plugins, most = set(), 0
    for seed in range(4):
        world = GangWorld(f"parts {seed}")
        for _ in range(100 if world.parts else 0):
            world.step()
            sold = Counter(share.card for one in world.world.pods.values() for share in shares_of(one.annotations))
            most = max(most, *sold.values(), 0)
            plugins |= {world.asked[one.name].kind for one in world.world.pods.values() if one.started}
        assert world.faults == []
    assert plugins == set(Kind)
    assert most > 1


def test_a_card_that_is_sold_beyond_what_it_has_is_seen():
    world = lived("sold", lambda world: any(shares_of(one.annotations) for one in world.world.pods.values()))
    for name, offer in world.offers.items():
        world.offers[name] = offer._replace(slots=0)
    world.look()
    assert any("is sold beyond what it has" in text for text in world.faults)


def test_a_disruption_budget_that_is_broken_is_seen():
    def evicts(world):
        victims = [target.name for one in world.evictions.planned for target, _ in one.victims]
        return any(name in world.asked and world.world.seen(name).started for name in victims)

    world = lived("budgets", evicts, preempts=True)
    world.evictions.budgets.clear()
    for asked in world.asked.values():
        asked.app = "a"
    world.evictions.budgets.update({(namespace, "a"): 0 for namespace in NAMESPACES})
    world.world.scheduler.cluster.actions.extend(world.evictions.planned)
    world.evictions.planned.clear()
    world.look()
    assert any("budgets cover" in text for text in world.faults)
    assert any("do not allow" in text for text in world.faults)
