"""Nodes of HAMi's plugin, of all kinds: what the search answers, what is promised, and why there is nothing."""

import json
import random
from typing import Any

import pytest

from core.catalog import standard_catalog
from core.dialects.hami.dialect import DIALECT
from core.ledger import Ledger
from core.model import Container, Node, NodeConstraints, NodeName, Pod, PodUid
from core.placing.candidates import Candidates
from core.placing.decide import shape_of
from core.placing.score import NodePolicy
from core.placing.shape import Shape, scan
from core.settings import DialectName, Policy, Settings
from core.tables import Tables
from tests.support.worlds.placed import reserve

HAMI = DialectName("hami")
POLICIES = ("binpack", "spread", "mutex", "binpack,numa", "topology-aware", "numa")
# As the plugin registers an A100 of 40 GB: MiB, percent of cores, slices, places.
PROFILES = [
    {
        "name": name,
        "memoryMB": memory,
        "core": cores,
        "sliceCount": slices,
        "placements": [{"start": start, "size": size} for start in starts],
    }
    for name, memory, cores, slices, size, starts in (
        ("1g.5gb", 4864, 15, 1, 1, range(7)),
        ("2g.10gb", 9856, 29, 2, 2, (0, 2, 4)),
        ("3g.20gb", 19968, 43, 3, 4, (0, 4)),
        ("7g.40gb", 40192, 100, 7, 8, (0,)),
    )
]


def some_node(chance, number):
    cut = chance.random() < 0.3
    cards = []
    for at in range(chance.randint(1, 4)):
        card = {"id": f"GPU-{number}-{at}", "index": at, "type": chance.choice(("NVIDIA A100", "NVIDIA L40S"))}
        card |= {"numa": at % 2, "health": chance.random() < 0.9}
        if cut:
            card |= {"count": 7, "devmem": 40960, "devcore": 100, "mode": "mig", "migProfiles": PROFILES}
        else:
            card |= {"count": chance.choice((2, 10)), "devmem": chance.choice((40960, 40960, 24576))}
            card |= {"devcore": chance.choice((100, 100, 150)), "mode": chance.choice(("hami-core", "mps"))}
        cards.append(card)
    return Node(
        name=NodeName(f"n{number}"),
        annotations={"hami.io/node-nvidia-register": json.dumps(cards)},
        labels={"gpu": "on"},
        allocatable={"cpu": "64", "pods": "20", "nvidia.com/gpu": str(10 * len(cards))},
    )


def some_container(chance, name):
    limits = {"nvidia.com/gpu": str(chance.choice((1, 1, 1, 2, 3)))}
    kind = chance.random()
    if kind < 0.6:
        limits["nvidia.com/gpumem"] = str(chance.choice((500, 4000, 9000, 20000)))
    elif kind < 0.8:
        limits["nvidia.com/gpumem-percentage"] = str(chance.choice((10, 30, 100)))
    if chance.random() < 0.5:
        limits["nvidia.com/gpucores"] = str(chance.choice((0, 10, 50, 100)))
    return Container(name, limits=limits, requests=limits)


def some_pod(chance, number):
    wishes = {
        "hami.io/gpu-scheduler-policy": (0.3, POLICIES),
        "hami.io/node-scheduler-policy": (0.3, ("binpack", "spread")),
        "nvidia.com/vgpu-mode": (0.2, ("mig", "hami-core", "hami-core,mps")),
        "nvidia.com/numa-bind": (0.2, ("true",)),
        "nvidia.com/use-gputype": (0.2, ("A100",)),
    }
    inits = [some_container(chance, "init")] if chance.random() < 0.15 else []
    if chance.random() < 0.05:
        inits.append(some_container(chance, "sidecar")._replace(sidecar=True))
    return Pod(
        uid=PodUid(f"shape-{number}"),
        namespace="ns",
        name=f"shape-{number}",
        scheduler_name="hami-scheduler",
        annotations={key: chance.choice(words) for key, (odds, words) in wishes.items() if chance.random() < odds},
        containers=tuple(some_container(chance, f"c{at}") for at in range(1 + (chance.random() < 0.2))),
        init_containers=tuple(inits),
    )


@pytest.mark.parametrize("seed", range(24))
def test_the_best_node_is_the_best_of_all_and_no_card_is_promised_beyond_what_it_has(seed):
    chance = random.Random(seed)
    ledger = Ledger(standard_catalog(), Tables(), Settings())
    for number in range(chance.randint(2, 10)):
        ledger.set_node(some_node(chance, number))
    policy = chance.choice((Policy.BINPACK, Policy.SPREAD, Policy.INDEX))
    rule = NodePolicy(policy, chance.choice((1, 1, 3)))
    candidates = Candidates(ledger, rule)
    shapes = [shape_of(some_pod(chance, number), ledger) for number in range(5)]
    placed = []
    for number in range(60):
        shape = chance.choice(shapes)
        assert isinstance(shape, Shape)
        found = candidates.best(shape, frozenset())
        assert found == scan(ledger, rule, shape, frozenset())
        if found is not None:
            placed.append(reserve(ledger, f"p{number}", shape, found))
        for state in ledger.states.values():
            cards = state.offers.get(HAMI, ())
            request: Any = shape.request
            assert DIALECT.port.overcommitted(cards) == ()
            if cards and DIALECT.port.place(cards, request, policy) is None:
                assert DIALECT.port.shortfalls(cards, request)
        if placed and chance.random() < 0.3:
            ledger.release(placed.pop(chance.randrange(len(placed))))


def test_nodes_that_several_cards_cannot_make_the_best_are_not_judged():
    """Of many nodes, each as full as no other, few are looked at, whatever number of cards is asked."""
    ledger = Ledger(standard_catalog(), Tables(), Settings())
    rule = NodePolicy(Policy.BINPACK, 1)

    def asked(number, memory, cores, node=""):
        figures = {"nvidia.com/gpu": number, "nvidia.com/gpumem": memory, "nvidia.com/gpucores": cores}
        limits = {key: str(one) for key, one in figures.items()}
        selector = (("name", node),) if node else ()
        pod = Pod(
            uid=PodUid("u"),
            namespace="ns",
            name="u",
            containers=(Container("c", limits=limits, requests=limits),),
            constraints=NodeConstraints(selector=selector),
        )
        shape = shape_of(pod, ledger)
        assert isinstance(shape, Shape)
        return shape

    for number in range(80):
        cards = [
            {"id": f"GPU-{number}-{at}", "index": at, "type": "NVIDIA L40S", "count": 10, "devmem": 40960}
            | {"devcore": 100, "mode": "hami-core", "health": True}
            for at in range(4)
        ]
        ledger.set_node(
            Node(
                name=NodeName(f"n{number:02d}"),
                annotations={"hami.io/node-nvidia-register": json.dumps(cards)},
                labels={"name": f"n{number}"},
                allocatable={"cpu": "64", "pods": "20", "nvidia.com/gpu": "40"},
            )
        )
    filling = Candidates(ledger, rule)
    for number in range(80):
        for count, memory, cores in ((1, 100 + number, 100 if number < 70 else 20), (2, 200 + 3 * number, 10)):
            shape = asked(count, memory, cores, f"n{number}")
            found = filling.best(shape, frozenset())
            assert found is not None
            reserve(ledger, f"{number}-{count}", shape, found)
    for count, cores in ((1, 0), (1, 30), (2, 30), (3, 0)):
        candidates, shape = Candidates(ledger, rule), asked(count, 5000, cores)
        assert candidates.best(shape, frozenset()) == scan(ledger, rule, shape, frozenset())
        assert candidates.judged <= 3, (count, cores)
