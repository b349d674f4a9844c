"""In every protocol `pack` finds what looking at every node finds, and what a dialect says of holes is so."""

import argparse
import random
from dataclasses import replace

import pytest

from core.catalog import standard_catalog
from core.ledger import Ledger
from core.model import PodUid
from core.placing.candidates import Candidates
from core.placing.decide import decide, shape_of, still_fits
from core.placing.learning import Learning
from core.placing.score import node_policy
from core.placing.shape import Shape, scan
from core.settings import Policy, Settings
from tests.bench.fleets import FLEETS

NO_SELECTION = argparse.Namespace(selective=False)


def holes_tell_the_truth(ledger, shape):
    """On every node: a card's hole after a share is what `left` says, and some card takes one where `place` does."""
    packing, port = ledger.catalog.packing[shape.dialect], ledger.catalog.dialects[shape.dialect]
    by_card = ledger.catalog.packing_by_card.get(shape.dialect)
    for state in ledger.states.values():
        cards = state.cards(shape.dialect)
        placed = port.place(cards, shape.request, Policy.BINPACK)
        if by_card is None or not by_card.by_card(shape.request):
            continue
        lefts = [by_card.left(cards, shape.request, slot) for slot in range(len(cards))]
        assert any(left is not None for left in lefts) == (placed is not None)
        for slot, left in enumerate(lefts):
            if left is None:
                continue
            one = by_card.alone(cards, shape.request, slot)
            after = packing.holes(port.take(cards, one.assignment))
            assert after[slot] == left
            others = [
                (old, new) for at, (old, new) in enumerate(zip(packing.holes(cards), after, strict=True)) if at != slot
            ]
            assert all(old == new for old, new in others)
        if placed is not None:
            assert placed.assignment in [
                by_card.alone(cards, shape.request, slot).assignment
                for slot, left in enumerate(lefts)
                if left is not None
            ]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("dialect", FLEETS)
def test_the_best_node_is_the_best_of_all_and_holes_are_what_is_left(dialect, seed):
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
        if number % 20 == 0:
            holes_tell_the_truth(ledger, shape)
        assert candidates.best(shape) == scan(ledger, policy, shape)
        placement = decide(candidates, pod, shape)
        if placement is not None:
            ledger.reserve(placement)
            placed.append(pod.uid)
            assert still_fits(ledger, policy, shape, placement)
        if placed and (placement is None or chance.random() < 0.2):
            ledger.release(placed.pop(chance.randrange(len(placed))))
    assert learnt
    assert all(one.card and one.cards for one in learning.known)
    # Of a model that nobody asks for nothing is known.
    assert any(sum(one.table.loss) > 0 for one in learning.known)


def test_every_dialect_tells_what_is_left_of_its_cards():
    catalog = standard_catalog()
    assert catalog.packing.keys() == catalog.dialects.keys()
