"""The search answers exactly what looking at every node would, on the cluster that the benchmark asks."""

import argparse
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.catalog import standard_catalog
from core.ledger import Ledger, Placement
from core.model import Node, PodUid
from core.placing.candidates import Candidates
from core.placing.decide import shape_of
from core.placing.score import NodePolicy
from core.placing.shape import Shape, scan
from core.settings import Policy, Settings
from tests.bench.fleets import FLEETS


def _reported(node: Node, chance: Random) -> Node:
    """*node* with cards of which a driver reports less than their slices have together, or much less."""
    short = chance.choice((0, 0, 424, 516, 20_000))
    memory = "volcano.sh/node-vgpu-register"
    records = [record.split(",") for record in node.annotations[memory].split(":") if record]
    told = "".join(",".join((*one[:2], str(int(one[2]) - short), *one[3:])) + ":" for one in records)
    return replace(node, annotations={**node.annotations, memory: told}) if int(records[0][2]) > short else node


@pytest.mark.parametrize("protocol", ["vgpu", "vgpu-mig"])
@settings(max_examples=25, deadline=None)
@given(st.sampled_from((Policy.BINPACK, Policy.BINPACK, Policy.SPREAD)), st.booleans(), st.integers(0, 2**32))
def test_the_best_candidate_is_the_best_of_all_nodes(protocol, policy, selective, seed):
    chance = Random(seed)
    fleet = FLEETS[protocol]
    ledger = Ledger(standard_catalog(), fleet.tables, Settings())
    for number in range(chance.randint(1, 6)):
        ledger.set_node(_reported(fleet.node(number), chance))
    rule = NodePolicy(policy, 1)
    candidates = Candidates(ledger, rule)
    asking = argparse.Namespace(selective=selective)
    shapes = [shape_of(fleet.pod(number, asking, chance), ledger) for number in range(8)]
    placed: list[PodUid] = []
    for number in range(120):
        shape = chance.choice(shapes)
        assert isinstance(shape, Shape)
        found = candidates.best(shape)
        assert found == scan(ledger, rule, shape)
        if placed and (found is None or not chance.randrange(3)):
            ledger.release(placed.pop(chance.randrange(len(placed))))
        elif found is not None:
            placed.append(PodUid(f"p{number}"))
            ledger.reserve(
                Placement(
                    pod=placed[-1],
                    pod_key=placed[-1],
                    node=found.node,
                    dialect=shape.dialect,
                    assignment=found.placed.assignment,
                    amounts=shape.taken,
                )
            )
