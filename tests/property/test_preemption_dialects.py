"""In every protocol nobody leaves in vain: nobody who may stay, nobody too few, and nothing is overcommitted."""

import random
from collections import Counter

import pytest

from core.catalog import standard_catalog
from core.ledger import Ledger
from core.placing.candidates import Candidates
from core.placing.crowd import Crowd, Occupant
from core.placing.decide import Shape, decide, node_policy, placed_on, shape_of, try_decide
from core.placing.gang import Member, Unit
from core.placing.preemption import victims_for
from core.settings import Policy, Settings
from tests.property.test_mixed_cluster import TABLES, asked, cluster

PODS, ASKING, MINE = 220, 60, 2


def search(ledger, policy, unit, crowd):
    found = victims_for(ledger, policy, unit, crowd, priority=MINE)
    while True:
        try:
            next(found)
        except StopIteration as end:
            return end.value


@pytest.mark.parametrize("seed", [1, 2])
def test_in_every_protocol_nobody_leaves_in_vain(seed):
    chance = random.Random(seed)
    settings = Settings(policy=Policy.BINPACK)
    policy = node_policy(settings)
    ledger = Ledger(standard_catalog(), TABLES, settings)
    for node in cluster():
        ledger.set_node(node)
    candidates = Candidates(ledger, policy)
    occupants = {}
    for number in range(PODS):
        pod = asked(chance, number)
        shape = shape_of(pod, ledger)
        assert isinstance(shape, Shape)
        placement = decide(candidates, pod, shape)
        if placement is not None:
            ledger.reserve(placement)
            occupants[pod.uid] = Occupant(priority=chance.choice((0, 0, 1, 1, 1, 2, 3)), start_s=number)
    crowd = Crowd(occupants, {})
    states = dict(ledger.states)
    served, victims = Counter[str](), 0
    for number in range(PODS, PODS + ASKING):
        pod = asked(chance, number)._replace(priority=MINE)
        shape = shape_of(pod, ledger)
        assert isinstance(shape, Shape)
        fits = try_decide(ledger, policy, pod, shape) is not None
        answer = search(ledger, policy, Unit(members=(Member(pod=pod, shape=shape),)), crowd)
        assert all(ledger.states[name] is state for name, state in states.items())
        with ledger.trial():
            for uid, occupant in occupants.items():
                if occupant.priority < MINE:
                    ledger.release(uid)
            could = try_decide(ledger, policy, pod, shape) is not None
        assert (answer is not None) == could
        if answer is None:
            continue
        assert bool(answer.victims) != fits
        if fits:
            continue
        (placement,) = answer.placements
        assert all(occupants[uid].priority < MINE for uid in answer.victims)
        for stays in answer.victims:
            with ledger.trial():
                for uid in answer.victims:
                    if uid != stays:
                        ledger.release(uid)
                assert placed_on(ledger, policy, pod, shape, placement.node) is None
        with ledger.trial():
            for uid in answer.victims:
                ledger.release(uid)
            ledger.reserve(placement)
            assert not ledger.overcommitted(placement.node)
        served[placement.dialect or ""] += 1
        victims += len(answer.victims)
    assert len(served) >= 5, served
    assert victims > sum(served.values())
