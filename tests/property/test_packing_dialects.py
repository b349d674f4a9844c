"""In every protocol `pack` finds what looking at every node finds."""

import argparse
import random
from dataclasses import replace

import pytest

from core.catalog import standard_catalog
from core.ledger import Ledger
from core.model import PodUid
from core.placing.candidates import Candidates
from core.placing.decide import Shape, decide, node_policy, scan, shape_of, still_fits
from core.placing.learning import Learning
from core.settings import Policy, Settings
from tests.bench.fleets import FLEETS

NO_SELECTION = argparse.Namespace(selective=False)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("dialect", FLEETS)
def test_the_best_node_is_the_best_of_all(dialect, seed):
    chance = random.Random(seed)
    fleet = FLEETS[dialect]
    settings = Settings(policy=Policy.PACK)
    ledger = Ledger(standard_catalog(), fleet.tables, settings)
    for number in range(5):
        ledger.set_node(fleet.node(number))
    policy = node_policy(settings)
    candidates, learning = Candidates(ledger, policy), Learning(ledger)
    pods = [fleet.pod(number, NO_SELECTION, chance) for number in range(8)]
    placed = []
    learnt = 0
    for number in range(220):
        pod = chance.choice(pods)._replace(uid=PodUid(f"p{number}"), name=f"p{number}")
        shape = shape_of(pod, ledger)
        assert isinstance(shape, Shape)
        learning.saw(pod.uid, shape)
        if learning.is_due and list(learning.learn())[-1]:
            learnt += 1
            policy = replace(policy, tables=learning.tables)
            candidates.judge_anew(policy)
        assert candidates.best(shape) == scan(ledger, policy, shape)
        placement = decide(candidates, pod, shape)
        if placement is not None:
            ledger.reserve(placement)
            placed.append((shape, placement))
        assert all(still_fits(ledger, *one) for one in placed)
        if placed and (placement is None or chance.random() < 0.2):
            _, gone = placed.pop(chance.randrange(len(placed)))
            ledger.release(gone.pod)
    assert learnt
    assert all(one.card and one.cards for one in learning.known)
    # Of a model that nobody asks for nothing is known.
    assert any(sum(one.table.loss) > 0 for one in learning.known)
