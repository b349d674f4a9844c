"""A node may have a resource by name only, because its device plugin offers its cards in another way."""

import json

import pytest

from core.catalog import standard_catalog
from core.explaining import explain
from core.ledger import Ledger
from core.model import Container, Node, NodeName
from core.placing.decide import Shape, shape_of
from core.settings import Policy, Settings, Tables
from tests.support.devices.cards import pod

CARD = {"id": "GPU-0", "count": 10, "devmem": 23028, "devcore": 100, "type": "NVIDIA A10", "mode": "hami-core"}
HAMI = {"hami.io/node-nvidia-register": json.dumps([{**CARD, "health": True}])}
AS_IN_THE_GUIDE = {"volcano.sh/gpu-memory": "89424", "volcano.sh/gpu-number": "8"}
GPUS = {"nvidia.com/gpu": "10"}


@pytest.mark.parametrize(
    ("has", "annotations", "limits", "wishes", "told"),
    [
        (AS_IN_THE_GUIDE, {}, {"volcano.sh/gpu-number": "1"}, {}, ("volcano.sh/gpu-number", "gpu_memory")),
        (GPUS, {}, {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "9"}, {}, ("nvidia.com/gpu", "whole_gpu")),
        (GPUS, HAMI, {"nvidia.com/gpu": "1"}, {"nvidia.com/use-gputype": "A10"}, ("nvidia.com/gpu", "hami")),
    ],
    ids=["gpu_number", "hami", "whole_gpu"],
)
def test_a_node_that_offers_its_cards_in_another_way_is_named_with_it(has, annotations, limits, wishes, told):
    ledger = Ledger(standard_catalog(), Tables(), Settings())
    have = {**has, "pods": "110"}
    labels = {"gpu": "on"} if annotations else {}
    ledger.set_node(Node(name=NodeName("n"), labels=labels, annotations=annotations, capacity=have, allocatable=have))
    asked = pod(Container(name="c", limits=limits, requests=limits), annotations=wishes, scheduler_name="cardshare")
    shape = shape_of(asked, ledger)
    assert isinstance(shape, Shape)
    resource, way = told
    found = explain.sentence(explain.refused(ledger, shape, Policy.BINPACK))
    assert f" Nearest: n has {resource}, but offers its cards as {way}. " in found


def test_a_node_without_the_resource_is_not_named_although_it_has_other_cards():
    ledger = Ledger(standard_catalog(), Tables(), Settings())
    have = {**GPUS, "pods": "110"}
    ledger.set_node(Node(name=NodeName("n"), capacity=have, allocatable=have))
    limits = {"volcano.sh/gpu-number": "1"}
    shape = shape_of(pod(Container(name="c", limits=limits, requests=limits)), ledger)
    assert isinstance(shape, Shape)
    assert "Nearest" not in explain.sentence(explain.refused(ledger, shape, Policy.BINPACK))
