"""Who leaves for whom where the rules of the two pages meet: those who leave anyway, who stay, ports, and peers."""

from dataclasses import replace

import pytest

from core.errors import InvariantError
from core.ledger import Ledger
from core.model import Container, NodeConstraints, NodeName, PeerTerm, PeerTerms, PodUid, Requirement
from core.placing.crowd import Crowd, Occupant
from core.placing.decide import Shape, node_policy, shape_of
from core.placing.domains import LabelTiers, Near
from core.placing.gang import Inner, Member, Unit
from core.placing.minimums import Minimum
from core.placing.preemption import FoundOnNodes, victims_for
from core.placing.queues import Reclaim
from core.settings import Settings, Tables
from core.wire.policies import DisruptionBudget
from tests.support.devices.catalogs import catalog_of
from tests.support.devices.toy import Toy
from tests.support.worlds.world import node, pod

CPU = {"cpu": "40"}


def cpu_pod(name, *, limits=CPU, **fields):
    return pod(name, limits=limits, **fields)


def ledger_of(*pods, nodes=("n1",)):
    ledger = Ledger(catalog_of(Toy()), Tables(), Settings())
    for name in nodes:
        ledger.set_node(node(name, labels={"zone": name}))
    for one in pods:
        ledger.count(one)
    return ledger


def search(ledger, unit, occupants, *, blocks=None, budgets=(), **how):
    found = victims_for(
        ledger,
        node_policy(ledger.settings),
        unit,
        Crowd({PodUid(f"uid-{name}"): one for name, one in occupants.items()}, blocks or {}, budgets),
        priority=min((one.pod.priority for one in unit.members), default=0),
        **how,
    )
    looks = 0
    while True:
        try:
            next(found)
            looks += 1
        except StopIteration as end:
            return end.value, looks


def alone(ledger, asking):
    shape = shape_of(asking, ledger)
    assert isinstance(shape, Shape)
    return Unit(members=(Member(pod=asking, shape=shape),))


def names(answer):
    return [uid.removeprefix("uid-") for uid in answer.victims]


def test_who_leaves_anyway_is_waited_for_and_nobody_else_sent_away():
    ledger = ledger_of(cpu_pod("low", node_name="n1"))
    unit = alone(ledger, cpu_pod("high", priority=10))
    answer, _ = search(ledger, unit, {"low": Occupant(priority=0)})
    assert names(answer) == ["low"]
    answer, _ = search(ledger, unit, {"low": Occupant(priority=20, leaving=True)})
    assert names(answer) == []
    for stays in (Occupant(priority=0, stays=True), Occupant(priority=10)):
        assert search(ledger, unit, {"low": stays})[0] is None
    assert search(ledger, unit, {})[0] is None


def test_a_gang_leaves_whole_and_never_for_its_own_members():
    ledger = ledger_of(cpu_pod("g0", node_name="n1"), cpu_pod("g1", node_name="n2"), nodes=("n1", "n2"))
    unit = alone(ledger, cpu_pod("high", priority=10))
    uids = {"g": (PodUid("uid-g0"), PodUid("uid-g1"), PodUid("uid-waiting"))}
    members = {"g0": Occupant(priority=0, block="g"), "g1": Occupant(priority=1, block="g")}
    answer, _ = search(ledger, unit, members, blocks=uids)
    assert sorted(names(answer)) == ["g0", "g1"]
    assert search(ledger, unit, members, blocks=uids, own="g")[0] is None
    members["g1"] = Occupant(priority=10, block="g")
    assert search(ledger, unit, members, blocks=uids)[0] is None


def test_a_host_port_is_made_free():
    listens = (Container(name="c", requests={"cpu": "1"}, host_ports=(("TCP", "", 80),)),)
    low = pod("low", node_name="n1", containers=listens)
    ledger = ledger_of(low, cpu_pod("other", limits={"cpu": "1"}, node_name="n1"))
    unit = alone(ledger, pod("high", priority=10, containers=listens))
    answer, _ = search(ledger, unit, {"low": Occupant(priority=0), "other": Occupant(priority=0)})
    assert names(answer) == ["low"]


def test_who_forbids_the_pod_beside_it_leaves():
    term = PeerTerm(topology_key="zone", selector=(Requirement(key="app", operator="In", values=("high",)),))
    guard = cpu_pod("guard", limits={"cpu": "1"}, node_name="n1", peers=PeerTerms(anti_affinity=(term,)))
    ledger = ledger_of(guard, cpu_pod("other", limits={"cpu": "1"}, node_name="n1"))
    unit = alone(ledger, cpu_pod("high", limits={"cpu": "1"}, priority=10, labels={"app": "high"}))
    answer, _ = search(ledger, unit, {"guard": Occupant(priority=0), "other": Occupant(priority=0)})
    assert names(answer) == ["guard"]


def test_nodes_are_left_out_and_no_more_are_looked_at_than_told():
    nodes = tuple(f"n{at}" for at in range(6))
    ledger = ledger_of(*(cpu_pod(f"p{at}", node_name=name) for at, name in enumerate(nodes)), nodes=nodes)
    unit = alone(ledger, cpu_pod("high", priority=10))
    occupants = {f"p{at}": Occupant(priority=5 - at) for at in range(6)}
    assert names(search(ledger, unit, occupants)[0]) == ["p5"]
    assert names(search(ledger, unit, occupants, passed_over={NodeName("n5")})[0]) == ["p4"]
    answer, looks = search(ledger, unit, occupants, skipped=2, looked_at_max=2)
    assert (names(answer), looks) == (["p3"], 2)
    assert names(search(ledger, unit, occupants, skipped=5, looked_at_max=2)[0]) == ["p5"]


def near_each_other(ledger, count, **fields):
    """A gang of pods that each take a node, all in one zone."""
    members = [alone(ledger, cpu_pod(f"high{at}", priority=10)).members[0] for at in range(count)]
    near = Near(LabelTiers(("zone",)), 1)
    return Unit(members=tuple(members), minimum=Minimum(members=count), **{"topology": near, **fields})


def zones(**of):
    """A node for each priority of each zone, with a pod of that priority on it; and these pods."""
    ledger = Ledger(catalog_of(Toy()), Tables(), Settings())
    occupants = {}
    for zone, priorities in of.items():
        for at, priority in enumerate(priorities):
            name = f"{zone}{at}"
            ledger.set_node(node(name, labels={"zone": zone}))
            ledger.count(cpu_pod(f"on-{name}", node_name=name))
            occupants[f"on-{name}"] = Occupant(priority=priority)
    return ledger, occupants


def test_those_who_leave_for_a_gang_with_a_topology_are_all_of_the_smallest_domain_where_that_helps():
    ledger, occupants = zones(a=(0, 20), b=(1, 1, 0), c=(0, 20, 20, 20))
    answer, _ = search(ledger, near_each_other(ledger, 2), occupants)
    assert len(answer.victims) == 2
    assert {placement.node[0] for placement in answer.placements} == {"b"}


def test_nobody_leaves_for_a_gang_that_no_domain_would_take_then():
    ledger, occupants = zones(a=(0, 20), b=(0, 20), c=(0,))
    assert search(ledger, near_each_other(ledger, 2), occupants)[0] is None
    unbound = near_each_other(ledger, 2, topology=Near(LabelTiers(("zone",)), 1, hard=False))
    assert len(search(ledger, unbound, occupants)[0].victims) == 2


def test_nobody_leaves_for_a_gang_that_may_not_leave_the_domain_of_others():
    ledger, occupants = zones(a=(0, 20), b=(0, 0))
    assert search(ledger, near_each_other(ledger, 2, home=frozenset({NodeName("a1")})), occupants)[0] is None


def test_nobody_leaves_for_a_gang_whose_subgroups_must_be_in_domains_of_their_own():
    ledger, occupants = zones(a=(0, 0))
    inner = {"s": Inner(Near(LabelTiers(("zone",)), 1))}
    assert search(ledger, near_each_other(ledger, 2, topology=None, inner=inner), occupants)[0] is None


def test_a_unit_of_which_members_are_placed_is_not_searched_for():
    ledger = ledger_of(cpu_pod("low", node_name="n1"), cpu_pod("high", node_name="n1", limits={"cpu": "1"}))
    assert search(ledger, alone(ledger, cpu_pod("high", priority=10)), {"low": Occupant(priority=0)})[0] is None


def test_what_was_not_released_in_a_trial_is_not_restored():
    ledger = ledger_of(cpu_pod("low", node_name="n1"))
    uid = PodUid("uid-low")
    with pytest.raises(InvariantError):
        ledger.restore(uid)
    with ledger.trial():
        with pytest.raises(InvariantError):
            ledger.restore(uid)
        ledger.release(uid)
        with ledger.trial():
            ledger.restore(uid)
            assert ledger.node_of(uid) == "n1"
        assert ledger.node_of(uid) is None
        ledger.restore(uid)
        with pytest.raises(InvariantError):
            ledger.restore(uid)
    assert ledger.node_of(uid) == "n1"


def one_on_each(nodes):
    ledger = ledger_of(*(cpu_pod(f"on-{name}", node_name=name) for name in nodes), nodes=nodes)
    return ledger, {f"on-{name}": Occupant(priority=at) for at, name in enumerate(nodes)}


def test_a_former_search_does_not_count_once_a_group_has_become_a_gang():
    ledger, there = one_on_each(("n1", "n2"))
    there["on-n1"] = there["on-n1"]._replace(block="g")
    there["other"] = Occupant(priority=10, block="g")
    ledger.count(cpu_pod("other", limits={"cpu": "0"}, node_name="n2"))
    unit, known = alone(ledger, cpu_pod("high", priority=10)), FoundOnNodes()
    assert names(search(ledger, unit, there, known=known)[0]) == ["on-n1"]
    blocks = {"g": (PodUid("uid-on-n1"), PodUid("uid-other"))}
    assert names(search(ledger, unit, there, blocks=blocks, known=known)[0]) == ["on-n2"]


def test_a_former_search_does_not_count_once_a_budget_covers_a_pod_by_its_new_labels():
    ledger, there = one_on_each(("n1", "n2"))
    budgets = (DisruptionBudget("default", "b", (Requirement(key="app", operator="In", values=("db",)),), 0),)
    unit, known = alone(ledger, cpu_pod("high", priority=10)), FoundOnNodes()
    assert names(search(ledger, unit, there, budgets=budgets, known=known)[0]) == ["on-n1"]
    ledger.count(cpu_pod("on-n1", node_name="n1", labels={"app": "db"}))
    assert names(search(ledger, unit, there, budgets=budgets, known=known)[0]) == ["on-n2"]


def test_for_a_gang_a_disruption_budget_is_spent_once_on_all_nodes_together():
    nodes = ("n1", "n2", "n3")
    low = [cpu_pod(f"a-{at}", node_name=at, labels={"app": "a"}) for at in nodes[:2]]
    ledger = ledger_of(*low, cpu_pod("other", node_name="n3"), nodes=nodes)
    budget = DisruptionBudget("default", "b", (Requirement(key="app", operator="In", values=("a",)),), 1)
    members = tuple(alone(ledger, cpu_pod(f"high-{at}", priority=10)).members[0] for at in range(2))
    unit = Unit(members=members, minimum=Minimum(members=2))
    occupants = {"a-n1": Occupant(priority=0), "a-n2": Occupant(priority=0), "other": Occupant(priority=1)}
    answer, _ = search(ledger, unit, occupants, budgets=(budget,))
    assert sorted(names(answer)) == ["a-n1", "other"]
    assert answer.violations == 0


@pytest.mark.parametrize(("apart", "nodes"), [(True, {"n1", "n3"}), (False, {"n1", "n2"})])
def test_for_a_gang_only_those_leave_whose_nodes_its_members_may_share(apart, nodes):
    ledger = ledger_of(*(cpu_pod(f"on-n{at}", node_name=f"n{at}") for at in (1, 2, 3)), nodes=("n1", "n2", "n3"))
    for name, zone in (("n1", "a"), ("n2", "a"), ("n3", "b")):
        ledger.set_node(node(name, labels={"zone": zone}))
    term = PeerTerm(topology_key="zone", selector=(Requirement(key="app", operator="In", values=("web",)),))
    peers = PeerTerms(anti_affinity=(term,)) if apart else PeerTerms(affinity=(term,))
    fields = {"priority": 10, "labels": {"app": "web"}, "peers": peers}
    members = tuple(alone(ledger, cpu_pod(f"web-{at}", **fields)).members[0] for at in (0, 1))
    # The second cheapest is one that the second member may not go to.
    priorities = {"n1": 0, "n2": 1, "n3": 2} if apart else {"n1": 0, "n2": 2, "n3": 1}
    occupants = {f"on-{name}": Occupant(priority=priority) for name, priority in priorities.items()}
    answer, _ = search(ledger, Unit(members=members, minimum=Minimum(members=2)), occupants)
    assert {placement.node for placement in answer.placements} == nodes
    assert set(names(answer)) == {f"on-{name}" for name in nodes}


def test_if_there_is_no_room_for_a_whole_subgroup_others_leave_for_a_member_that_asks_the_same():
    ledger, there = one_on_each(("n1", "n2"))
    there = {"on-n1": Occupant(priority=0), "on-n2": Occupant(priority=20)}
    alike = [alone(ledger, cpu_pod(f"high-{at}", priority=10)).members[0] for at in range(3)]
    members = (*[replace(one, parts=("x",)) for one in alike[:2]], alike[2])
    unit = Unit(members=members, minimum=Minimum(members=1, parts=(Minimum(name="x", members=2, whole=True),)))
    answer, _ = search(ledger, unit, there)
    assert names(answer) == ["on-n1"]
    assert [one.pod for one in answer.placements] == ["uid-high-2"]


def test_a_member_that_leaves_anyway_keeps_no_gang_from_leaving_wherever_it_is():
    ledger, there = one_on_each(("n1", "n2"))
    unit = alone(ledger, cpu_pod("high", priority=10))
    there = {"on-n1": Occupant(priority=20, block="g", leaving=True), "on-n2": Occupant(priority=1, block="g")}
    uids = {"g": (PodUid("uid-on-n1"), PodUid("uid-on-n2"))}
    for first in (0, 1):
        answer, _ = search(ledger, unit, there, blocks=uids, skipped=first, passed_over={NodeName("n1")})
        assert names(answer) == ["on-n2"]


def test_nobody_leaves_for_a_gang_that_fits_in_another_domain_once_others_have_ended():
    ledger, occupants = zones(a=(0, 0), b=(0, 0, 20))
    occupants |= {name: Occupant(priority=20, leaving=True) for name in ("on-b0", "on-b1")}
    answer, _ = search(ledger, near_each_other(ledger, 2), occupants)
    assert names(answer) == []
    assert {placement.node for placement in answer.placements} == {"b0", "b1"}


def unlike(ledger, *cpus, minimum):
    members = (alone(ledger, cpu_pod(f"high-{at}", limits={"cpu": cpu}, priority=10)) for at, cpu in enumerate(cpus))
    return Unit(members=tuple(one.members[0] for one in members), minimum=Minimum(members=minimum))


def test_of_members_that_differ_a_small_one_takes_no_room_that_another_needs():
    # 64 cpu each, of which somebody who stays has half on n2.
    low = (cpu_pod("low-1", node_name="n1"), cpu_pod("low-2", limits={"cpu": "24"}, node_name="n2"))
    kept = cpu_pod("kept", limits={"cpu": "32"}, node_name="n2")
    ledger = ledger_of(*low, kept, nodes=("n1", "n2"))
    occupants = {"low-1": Occupant(priority=0), "low-2": Occupant(priority=1)}
    answer, _ = search(ledger, unlike(ledger, "30", "60", minimum=2), occupants)
    assert sorted(names(answer)) == ["low-1", "low-2"]
    assert {placement.pod: placement.node for placement in answer.placements} == {
        "uid-high-0": "n2",
        "uid-high-1": "n1",
    }
    # Where only one of both may go, nobody leaves.
    occupants = {"low-1": Occupant(priority=0), "low-2": Occupant(priority=20)}
    assert search(ledger, unlike(ledger, "30", "60", minimum=2), occupants)[0] is None


def test_for_a_member_that_fits_nowhere_another_stands_in():
    ledger = ledger_of(*(cpu_pod(f"on-{at}", node_name=f"n{at}") for at in (1, 2)), nodes=("n1", "n2"))
    occupants = {"on-1": Occupant(priority=0), "on-2": Occupant(priority=0)}
    answer, _ = search(ledger, unlike(ledger, "60", "99", "60", minimum=2), occupants)
    assert sorted(names(answer)) == ["on-1", "on-2"]
    assert sorted(placement.pod for placement in answer.placements) == ["uid-high-0", "uid-high-2"]
    assert search(ledger, unlike(ledger, "60", "99", "60", minimum=3), occupants)[0] is None
    assert search(ledger, unlike(ledger, "99", "60", "99", minimum=2), occupants)[0] is None


def test_a_budget_counts_only_those_who_leave_in_the_end():
    # On n1 two are covered by a budget that lets one go, and one of them suffices.
    there = (("a-large", "40", "n1", "a"), ("a-small", "8", "n1", "a"), ("b", "40", "n2", "b"))
    low = [cpu_pod(name, limits={"cpu": cpu}, node_name=at, labels={"app": app}) for name, cpu, at, app in there]
    ledger = ledger_of(*low, nodes=("n1", "n2"))
    budgets = tuple(
        DisruptionBudget("default", app, (Requirement(key="app", operator="In", values=(app,)),), allowed)
        for app, allowed in (("a", 1), ("b", 0))
    )
    occupants = {"a-large": Occupant(priority=1), "a-small": Occupant(priority=2), "b": Occupant(priority=0)}
    answer, _ = search(ledger, alone(ledger, cpu_pod("high", priority=10)), occupants, budgets=budgets)
    assert (names(answer), answer.violations) == (["a-large"], 0)


@pytest.mark.parametrize(("spare", "leave"), [(60, None), (80, ["equal", "low"])])
def test_what_leaves_by_its_priority_for_one_member_counts_for_what_its_queue_lost_to_another(spare, leave):
    ledger = ledger_of(cpu_pod("equal", node_name="n1"), cpu_pod("low", node_name="n2"), nodes=("n1", "n2"))
    pods = (
        cpu_pod(f"high-{name}", priority=10, constraints=NodeConstraints(selector=(("zone", name),)))
        for name in ("n1", "n2")
    )
    members = tuple(member for one in pods for member in alone(ledger, one).members)
    uids = [PodUid("uid-equal"), PodUid("uid-low")]
    reclaim = Reclaim(
        paths=dict.fromkeys(uids, ("other",)),
        queues=dict.fromkeys(uids, (1,)),
        amounts=lambda _: {"cpu": 40},
        resources=frozenset({"cpu"}),
        over={"other": {"cpu": 80.0}},
        spare={"other": {"cpu": spare}},
        room={},
    )
    unit = Unit(members=members, minimum=Minimum(members=2))
    answer, _ = search(ledger, unit, {"equal": Occupant(priority=10), "low": Occupant(priority=0)}, reclaim=reclaim)
    assert (None if answer is None else sorted(names(answer))) == leave


def test_a_search_for_a_gang_whose_members_keep_off_each_other_counts_for_no_later_one():
    ledger = ledger_of(*(cpu_pod(f"on-{at}", node_name=f"n{at}") for at in (1, 2)), nodes=("n0", "n1", "n2"))
    for name in ("n0", "n1", "n2"):
        ledger.set_node(node(name, labels={"zone": "a" if name == "n0" else "b"}))
    there = {"on-1": Occupant(priority=0), "on-2": Occupant(priority=5)}
    term = PeerTerm(topology_key="zone", selector=(Requirement(key="app", operator="In", values=("web",)),))
    web = [cpu_pod(f"web-{at}", priority=10, labels={"app": "web"}) for at in (0, 1)]
    guard = cpu_pod("guard", priority=10, limits={"cpu": "1"}, peers=PeerTerms(anti_affinity=(term,)))
    members = tuple(member for one in (web[0], guard, web[1]) for member in alone(ledger, one).members)
    known = FoundOnNodes()
    search(ledger, Unit(members=members, minimum=Minimum(members=3)), there, known=known)
    ledger.count(cpu_pod("on-0", node_name="n0"))
    there["on-1"] = there["on-1"]._replace(stays=True)
    assert names(search(ledger, Unit(members=members[2:]), there, known=known)[0]) == ["on-2"]


def test_of_nodes_that_are_gone_nothing_is_kept():
    ledger, there = one_on_each(("n1", "n2"))
    unit, known = alone(ledger, cpu_pod("high", priority=10)), FoundOnNodes()
    search(ledger, unit, there, known=known)
    ledger.remove_node(NodeName("n2"))
    search(ledger, unit, there, known=known)
    (kept,) = known._found.values()
    assert list(kept) == ["n1"]
