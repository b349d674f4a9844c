"""Nodes of HAMi's plugin that cannot be the best are passed over without a look at them."""

import json

from core.catalog import standard_catalog
from core.ledger import Ledger
from core.model import Container, Node, NodeConstraints, NodeName, Pod, PodUid
from core.placing.candidates import Candidates
from core.placing.decide import NodePolicy, Shape, scan, shape_of
from core.settings import Policy, Settings, Tables
from tests.support.worlds.placed import reserve


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
