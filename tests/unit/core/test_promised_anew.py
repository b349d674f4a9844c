"""A promise under another configuration: counted as its Binding will be, not as it was when it was made."""

from dataclasses import replace

import pytest

from core.catalog import standard_catalog
from core.dialects.ascend_hami.table import SHIPPED_CHIPS, AscendTable
from core.dialects.vgpu.table import ExclusiveRules, MigModel, VgpuTable
from core.ledger import Ledger, Placement
from core.model import Node, NodeName, Phase, Pod
from core.placing.decide import Shape, node_policy, shape_of, try_decide
from core.port.handoff import Stamp
from core.settings import Settings, Tables
from core.sharing.slices import numbered
from tests.support.devices import ascend, mindcluster
from tests.support.devices.cards import (
    A100,
    A100_LAYOUTS,
    NUMBER,
    TABLES,
    container,
    pod,
    record,
    share_node,
    vgpu_node,
)

EVERYTHING = {"pods": "110", "cpu": "64", "memory": "256Gi"}
SETTINGS = Settings()
TEAM, TIER = (frozenset({(key, "a")}) for key in ("team", "tier"))
# Another order of layouts, of which one has another name: what a card is laid out as is no more what it was.
SWAPPED = MigModel(
    models=A100_LAYOUTS.models,
    layout=(numbered("renamed", [("1g.5gb", 5120, 7)]), *reversed(A100_LAYOUTS.layout[1:])),
)
MIG_NODE = vgpu_node(record("GPU-0", memory=40960, model=A100, mode="mig"))
PLAIN_NODE = vgpu_node("".join(record(f"GPU-{at}") for at in range(2)))
GROUPED = {"scheduling.k8s.io/group-name": "g", "volcano.sh/vgpu-podgroup-policy": "spread"}
ASKING = {"labels": {"team": "a"}}

CASES = {
    "rules": (
        PLAIN_NODE,
        pod(container(number=1, memory=100), **ASKING),
        Tables(sections=(ExclusiveRules(rules=(TEAM, TIER)),)),
        Tables(sections=(ExclusiveRules(rules=(TIER, TEAM)),)),
    ),
    "a rule that is gone": (
        PLAIN_NODE,
        pod(container(number=2, memory=100), **ASKING),
        Tables(sections=(ExclusiveRules(rules=(TIER, TEAM)),)),
        Tables(sections=(ExclusiveRules(rules=(TIER,)),)),
    ),
    "a rule that is new": (
        PLAIN_NODE,
        pod(container(number=1, memory=100), **ASKING, annotations=GROUPED),
        Tables(),
        Tables(sections=(ExclusiveRules(rules=(TEAM,)),)),
    ),
    "layouts": (
        MIG_NODE,
        pod(container(number=1, memory=5000)),
        TABLES,
        Tables(sections=(VgpuTable(geometries=(SWAPPED,)),)),
    ),
    "factor": (
        PLAIN_NODE,
        pod(container(number=1, memory=100)),
        Tables(),
        Tables(sections=(VgpuTable(named=VgpuTable().named._replace(mib_per_unit=10)),)),
    ),
    "gpu memory": (
        share_node({"volcano.sh/gpu-memory": "16000", "volcano.sh/gpu-number": "2"}),
        pod(container()._replace(limits={"volcano.sh/gpu-memory": "100"})),
        Tables(),
        TABLES,
    ),
    "gpu number": (
        share_node({"volcano.sh/gpu-number": "2"}),
        pod(container()._replace(limits={"volcano.sh/gpu-number": "1"})),
        Tables(),
        TABLES,
    ),
    "ascend": (
        ascend.node("Ascend310P", ("U0", "U1")),
        ascend.pod("Ascend310P", (1, 3072), (1, None)),
        Tables(),
        Tables(sections=(AscendTable(chips=tuple(reversed(SHIPPED_CHIPS))),)),
    ),
    "mindcluster": (mindcluster.npu_node(), mindcluster.npu_pod(1), Tables(), TABLES),
}


def ledger_with(node: Node, tables: Tables) -> Ledger:
    ledger = Ledger(standard_catalog(), tables, SETTINGS)
    have = {**EVERYTHING, **node.allocatable}
    ledger.set_node(replace(node, allocatable=have, capacity={**EVERYTHING, **node.capacity}))
    return ledger


def promised(ledger: Ledger, asking: Pod) -> Placement:
    shape = shape_of(asking, ledger)
    assert isinstance(shape, Shape), shape
    placement = try_decide(ledger, node_policy(SETTINGS), asking, shape)
    assert placement is not None
    ledger.reserve(placement)
    return placement


def as_bound(ledger: Ledger, asking: Pod, placement: Placement) -> Pod:
    assert placement.dialect is not None
    dialect = ledger.catalog.dialects[placement.dialect]
    stamp = Stamp(node=placement.node, now_s=1, order=1)
    said = dialect.annotations(placement.assignment, stamp, ledger.tables)
    return asking._replace(node_name=placement.node, phase=Phase.PENDING, annotations={**asking.annotations, **said})


@pytest.mark.parametrize("case", CASES)
def test_a_promise_counts_under_another_configuration_as_its_binding_will(case):
    node, asking, before, after = CASES[case]
    ledger, twin = ledger_with(node, before), ledger_with(node, before)
    placement = promised(ledger, asking)
    twin.count(as_bound(twin, asking, placement))
    fork = ledger.fork()
    for one in (ledger, twin, fork):
        list(one.configure(after, SETTINGS))
    states = [one.states[NodeName(node.name)] for one in (ledger, twin, fork)]
    assert states[0].offers == states[1].offers == states[2].offers
    assert states[0].closed == states[1].closed
    assert states[0].used == states[1].used

    ledger.reserve(placement)
    assert ledger.states[NodeName(node.name)] is states[0]
    ledger.count(as_bound(twin, asking, placement))
    assert ledger.states[NodeName(node.name)].offers == states[1].offers
    ledger.release(placement.pod)
    assert ledger.states[NodeName(node.name)].offers == ledger_with(node, after).states[NodeName(node.name)].offers


def test_another_pod_of_the_rule_is_kept_off_a_card_that_is_promised_under_the_old_order_of_rules():
    ledger = ledger_with(vgpu_node(record("GPU-0")), Tables(sections=(ExclusiveRules(rules=(TEAM,)),)))
    promised(ledger, pod(container(number=1, memory=100), **ASKING))
    list(ledger.configure(Tables(sections=(ExclusiveRules(rules=(TIER, TEAM)),)), SETTINGS))
    other = pod(container(number=1, memory=100), uid="q", name="q", **ASKING)
    shape = shape_of(other, ledger)
    assert isinstance(shape, Shape)
    assert try_decide(ledger, node_policy(SETTINGS), other, shape) is None


def test_a_promise_of_a_resource_that_is_renamed_still_holds_its_card():
    ledger = ledger_with(vgpu_node(record("GPU-0", slots=1)), Tables())
    placement = promised(ledger, pod(container(number=1, memory=100)))
    list(
        ledger.configure(
            Tables(sections=(VgpuTable(named=VgpuTable().named._replace(cards=f"{NUMBER}-new")),)), SETTINGS
        )
    )
    list(ledger.configure(Tables(), SETTINGS))
    holding = ledger.holding(placement.pod)
    assert holding is not None
    assert holding.assignment is not None
    assert ledger.states[placement.node].cards(placement.dialect)[0].used_slots == 1
