"""A pod that somebody bound without saying which cards it uses: its node is closed until it is gone."""

from dataclasses import replace

import pytest

from core.catalog import standard_catalog
from core.ledger import Ledger
from core.model import Container, Node, NodeName, Phase, Pod, PodUid
from core.placing.decide import Shape, node_policy, scan, shape_of
from core.settings import DialectName, Settings, Tables
from tests.support.devices import ascend, mindcluster
from tests.support.worlds.world import node as vgpu_node

NAME = NodeName("node-a")
EVERYTHING = {"pods": "110", "cpu": "64", "memory": "256Gi"}


def share_node(**resources: str) -> Node:
    have = {**EVERYTHING, **resources}
    return Node(name=NAME, allocatable=have, capacity=have)


def asking(**limits: str) -> Pod:
    named = {name.replace("__", "/").replace("_", "-"): amount for name, amount in limits.items()}
    one = Container(name="main", limits=named, requests=named)
    return Pod(uid=PodUid("uid-a"), namespace="default", name="a", containers=(one,))


CASES = {
    DialectName("vgpu"): (
        vgpu_node("node-a"),
        asking(**{"volcano.sh__vgpu_number": "1", "volcano.sh__vgpu_memory": "100"}),
    ),
    DialectName("gpu_memory"): (
        share_node(**{"volcano.sh/gpu-memory": "16000", "volcano.sh/gpu-number": "2"}),
        asking(**{"volcano.sh__gpu_memory": "100"}),
    ),
    DialectName("gpu_number"): (
        share_node(**{"volcano.sh/gpu-number": "2"}),
        asking(**{"volcano.sh__gpu_number": "1"}),
    ),
    DialectName("ascend_hami"): (
        ascend.node("Ascend310P", ("U0", "U1")),
        ascend.pod("Ascend310P", (1, 3072)),
    ),
    DialectName("mindcluster"): (mindcluster.npu_node(), mindcluster.npu_pod(1)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_node_takes_no_new_shares_while_a_pod_without_an_assignment_is_there(name: DialectName):
    node, pod = CASES[name]
    ledger = Ledger(standard_catalog(), Tables(), Settings())
    have = {**EVERYTHING, **node.allocatable}
    ledger.set_node(replace(node, allocatable=have, capacity={**EVERYTHING, **node.capacity}))
    shape = shape_of(pod, ledger)
    assert isinstance(shape, Shape)
    policy = node_policy(Settings())
    assert scan(ledger, policy, shape) is not None
    cards = ledger.states[node.name].offers[name]

    stranger = pod._replace(uid=PodUid("uid-x"), name="x", node_name=node.name)
    ledger.count(stranger)
    assert "default/x asks for" in ledger.states[node.name].closed[name]
    assert scan(ledger, policy, shape) is None
    # The node's device data may come after the pod.
    ledger.remove_node(node.name)
    ledger.set_node(replace(node, allocatable=have, capacity={**EVERYTHING, **node.capacity}))
    assert name in ledger.states[node.name].closed
    assert ledger.states[node.name].offers[name] == cards

    ledger.count(stranger._replace(phase=Phase.FAILED))
    assert ledger.states[node.name].closed == {}
    assert scan(ledger, policy, shape) is not None


def test_a_pod_without_shares_closes_nothing():
    ledger = Ledger(standard_catalog(), Tables(), Settings())
    node, _ = CASES[DialectName("vgpu")]
    ledger.set_node(node)
    ledger.count(asking(cpu="1")._replace(node_name=node.name))
    assert ledger.states[node.name].closed == {}


NUMBERS = {
    DialectName("vgpu"): ("volcano.sh/vgpu-number", ("volcano.sh/vgpu-memory", "volcano.sh/vgpu-memory-percentage")),
    DialectName("ascend_hami"): (
        "huawei.com/Ascend310P",
        ("huawei.com/Ascend310P-memory", "huawei.com/Ascend310P-core"),
    ),
    DialectName("gpu_memory"): ("volcano.sh/gpu-memory", ()),
    DialectName("gpu_number"): ("volcano.sh/gpu-number", ()),
    DialectName("mindcluster"): ("huawei.com/npu-core", ()),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_pod_that_asks_for_no_card_closes_nothing_whatever_share_of_it_it_names(name: DialectName):
    number, shares = NUMBERS[name]
    for amounts, closes in (
        ({number: "0"}, False),
        ({number: "0", **dict.fromkeys(shares, "50")}, False),
        ({number: "0k", **dict.fromkeys(shares, "50")}, False),
        ({number: "zero"}, True),
        ({number: "1", **dict.fromkeys(shares, "50")}, True),
        *(((dict.fromkeys(shares, "50")), True) for _ in shares[:1]),
    ):
        ledger = Ledger(standard_catalog(), Tables(), Settings())
        node, pod = CASES[name]
        ledger.set_node(node)
        one = Container(name="main", limits=amounts, requests=amounts)
        ledger.count(pod._replace(containers=(one,), init_containers=(), node_name=node.name))
        assert (name in ledger.states[node.name].closed) is closes, amounts
        ledger.count(pod._replace(containers=(Container(name="x"),), init_containers=(one,), node_name=node.name))
        assert (name in ledger.states[node.name].closed) is closes, amounts
