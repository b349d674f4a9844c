"""Moves let in what they were made for, break no rule, and are as few as trying everything finds.

The oracle has arithmetic of its own (`tests.property.test_preemption`): cards and cpu as lists of free amounts. It
moves pods of one node to others; neither it nor the search makes room for a move by another move.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from core.ledger import Ledger
from core.model import Phase, Pod, PodUid, Requirement
from core.moving.search import Limits, Movable, Moves, search
from core.moving.units import unit_of
from core.moving.who import Rights, crowd_of
from core.placing.decide import NodePolicy, Shape, node_policy, scan, shape_of, try_decide
from core.placing.gang import Unit
from core.settings import Policy, Settings
from core.waiting import Wait
from core.wire.policies import DisruptionBudget
from tests.property.test_preemption import RULE, asked, clusters, fitting, ledger_of, left, member, takes
from tests.support.devices.selling import CATALOG, KINDS, TABLES, shares, wishing

NODES = range(3)
DEAR = 6


def movable_of(pods) -> dict[PodUid, Movable]:
    """Those of *pods* whose priority is below `DEAR`, each alone."""
    found = {}
    for number, (_, _, memory, cpu, priority, start_s, _, _) in enumerate(pods):
        again = member(number, (memory, cpu))
        pod = again.pod._replace(uid=PodUid(f"p{number}"), name=f"p{number}", priority=priority)
        if priority < DEAR:
            found[pod.uid] = Movable(pod, again.shape, priority, start_s)
    return found


def fewest(pods, wanted, most):
    """How many pods of one node have to move to the others, trying everything; None if no number helps."""
    if any(takes(pods, node, wanted) for node in NODES):
        return 0
    cheap = [at for at, one in enumerate(pods) if one[4] < DEAR]
    for many in range(1, most + 1):
        for some in combinations(cheap, many):
            node, *others = sorted({pods[at][0] for at in some})
            stay = [one for at, one in enumerate(pods) if at not in some]
            moving = [pods[at] for at in some]
            if not others and takes(stay, node, wanted) and go_elsewhere(stay, moving, node):
                return many
    return None


def go_elsewhere(there, pods, origin):
    """Whether there are places for all of *pods* on other nodes than *origin*."""
    if not pods:
        return True
    (_, _, memory, cpu, *rest), *others = pods
    for node in NODES:
        free, cpu_left = left(there, node)
        for card in (0, 1):
            fits = node != origin and free[card] >= memory and cpu_left >= cpu
            if fits and go_elsewhere([*there, (node, card, memory, cpu, *rest)], others, origin):
                return True
    return False


def check_moves(
    ledger: Ledger, policy: NodePolicy, unit: Unit, found: Moves, movable: Mapping[PodUid, Movable], limits: Limits
) -> None:
    """Make *found* happen one by one, as an eviction and the controller's own decision."""
    targets = {one.node for one in found.placements}
    assert len({one.pod.uid for one in found.moves}) == len(found.moves) <= limits.moves
    assert max(Counter(one.pod.namespace for one in found.moves).values(), default=0) <= limits.per_namespace
    for move in found.moves:
        assert ledger.node_of(move.pod.uid) == move.origin
        ledger.release(move.pod.uid)
        shape = movable[move.pod.uid].shape
        best = scan(ledger, policy, shape.beside(ledger.constraints.pods_of(move.pod)), targets)
        assert best is not None
        assert best.node == move.placement.node
        ledger.reserve(move.placement)
    for placement in found.placements:
        ledger.reserve(placement)
    assert all(ledger.node_of(one.pod.uid) is not None for one in unit.wanted())


@settings(max_examples=400, deadline=None)
@given(clusters, asked, st.integers(1, 4))
def test_moves_are_as_few_as_trying_everything_finds(pods, wanted, most):
    pods = fitting(pods)
    ledger, movable = ledger_of(pods), movable_of(pods)
    before = dict(ledger.states)
    unit, limits = Unit(members=(member(99, wanted),)), Limits(moves=most, per_namespace=most)
    answer = search(ledger, RULE, unit, movable, limits)
    assert ledger.states == before
    assert not answer.gave_up
    expected = fewest(pods, wanted, most)
    assert (None if answer.found is None else len(answer.found.moves)) == expected
    if answer.found is not None:
        assert answer.found.is_fewest
        check_moves(ledger.fork(), RULE, unit, answer.found, movable, limits)
        assert answer == search(ledger, RULE, unit, movable, limits)


def crowded(chance: Random) -> tuple[Ledger, list[Pod], list[Unit]]:
    """A cluster of cards of one kind with pods and holes on it, who is there, and for whom there is no room."""
    kind = chance.choice((*KINDS, shares))
    best = [kind(chance, f"n{at}")[1] for at in range(chance.choice((2, 3, 4)))]
    ledger = Ledger(CATALOG, TABLES, Settings(policy=chance.choice((Policy.BINPACK, Policy.SPREAD, Policy.PACK))))
    for one in best:
        ledger.set_node(replace(one, allocatable={**one.allocatable, "pods": chance.choice(("4", "40"))}))
    empty = ledger.fork()
    policy, there, refused = node_policy(ledger.settings), list[Pod](), list[Unit]()
    for at in range(40):
        pod = wishing(chance, best)[0]._replace(
            uid=PodUid(f"w{at}"), name=f"w{at}", namespace=chance.choice("ab"),
            owner=chance.choice(("ReplicaSet/r", "ReplicaSet/r", "StatefulSet/s", "Job/j", "DaemonSet/d", "")),
            priority=chance.choice((0, 0, 0, 1)),
        )  # fmt: skip
        pod = pod._replace(labels={**pod.labels, "app": chance.choice("xyyy")})
        shape = shape_of(pod, ledger)
        placement = try_decide(ledger, policy, pod, shape) if isinstance(shape, Shape) else None
        if placement is not None:
            ledger.reserve(placement)
            there.append(pod._replace(node_name=placement.node, phase=Phase.RUNNING, ready=True))
        elif not isinstance(unit := unit_of([pod], ledger), Wait) and scan(empty, policy, unit.members[0].shape):
            refused.append(unit)
    for pod in chance.sample(there, len(there) // 3):
        ledger.release(pod.uid)
        there.remove(pod)
    return ledger, there, chance.sample(refused, min(len(refused), 8))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**40))
def test_on_every_protocols_cards_moves_let_the_pod_in_and_move_only_who_may(seed: int):
    chance = Random(seed)
    ledger, there, refused = crowded(chance)
    policy = node_policy(ledger.settings)
    x_only = (Requirement(key="app", operator="In", values=("x",)),)
    budget = DisruptionBudget("a", "b", x_only, chance.choice((0, 1)))
    limits = Limits(moves=chance.choice((1, 3, 10)), per_namespace=chance.choice((1, 2, 10)))
    before = dict(ledger.states)
    for unit in refused:
        priority, jobs = unit.members[0].pod.priority, chance.random() < 0.7
        rights = Rights(priority=priority, jobs=jobs, budgets=(budget,), schedulers={"cardshare"})
        crowd = crowd_of(ledger, there, rights)
        assert crowd.movable.keys() ^ crowd.staying.keys() == {one.uid for one in there}
        for one in crowd.movable.values():
            assert one.priority <= priority
            assert one.pod.owner.startswith(("ReplicaSet", "StatefulSet", *(("Job",) if jobs else ())))
            assert budget.allowed or (one.pod.namespace, one.pod.labels["app"]) != ("a", "x")
        answer = search(ledger, policy, unit, crowd.movable, limits)
        assert ledger.states == before
        if answer.found is not None:
            check_moves(ledger.fork(), policy, unit, answer.found, crowd.movable, limits)


def test_a_gang_moves_whole_or_not_at_all():
    # Only n0 has the cpu; one of its two pods would be enough, and both have room elsewhere.
    dear = [(node, 1, 8, 3, 9, 0, 0, "a") for node in (1, 2)]
    pods = [(0, card, 5, 1, 3, 0, 0, "a") for card in (0, 1)] + dear
    ledger, movable, unit = ledger_of(pods), movable_of(pods), Unit(members=(member(99, (6, 4)),))
    alone = search(ledger, RULE, unit, movable, Limits()).found
    assert alone is not None
    assert len(alone.moves) == 1
    gang = {uid: one._replace(block="gang") for uid, one in movable.items()}
    whole = search(ledger, RULE, unit, gang, Limits()).found
    assert whole is not None
    assert {one.pod.uid for one in whole.moves} == {"p0", "p1"}
    check_moves(ledger.fork(), RULE, unit, whole, gang, Limits())
    assert search(ledger, RULE, unit, gang, Limits(moves=1)).found is None
