"""What kubelet counts of the resources that cards count too: no pod goes where it would be turned away."""

from dataclasses import replace
from typing import Any

from core.catalog import standard_catalog
from core.explaining import explain
from core.ledger import Ledger
from core.model import NodeName, PodUid
from core.placing.decide import Shape, node_policy, shape_of, still_fits, try_decide
from core.settings import Policy, Settings
from core.waiting import Cause
from tests.support.devices.cards import TABLES, container, pod, record, vgpu_node

MEMORY = "volcano.sh/vgpu-memory"
BASE = {"pods": "20", "cpu": "64", "memory": "256Gi", "volcano.sh/vgpu-number": "20"}
RULE = node_policy(Settings())


def node(**advertised):
    """Two cards of 10,000 MiB, of which the plugin advertises so much."""
    amounts = {f"volcano.sh/vgpu-{name}": str(amount) for name, amount in advertised.items()}
    found = vgpu_node("".join(record(f"GPU-{at}", memory=10_000) for at in range(2)))
    return replace(found, name=NodeName("n"), allocatable={**found.allocatable, **BASE, **amounts})


def ledger_of(one):
    made = Ledger(standard_catalog(), TABLES, Settings())
    made.set_node(one)
    return made


def asks(name, *containers):
    return pod(*(container(**one) for one in containers), uid=PodUid(name), name=name)


def place(ledger, asked):
    shape: Any = shape_of(asked, ledger)
    assert isinstance(shape, Shape)
    found = try_decide(ledger, RULE, asked, shape)
    if found is not None:
        ledger.reserve(found)
    return found, explain.wait(explain.refused(ledger, shape, Policy.BINPACK))


def test_a_pod_waits_where_the_plugin_advertises_less_than_its_cards_have():
    ledger = ledger_of(node(memory=6000, cores=200))
    first, _ = place(ledger, asks("a", {"number": 1, "memory": 5000}))
    assert first is not None
    second, wait = place(ledger, asks("b", {"number": 1, "memory": 5000}))
    assert second is None
    assert wait.text.startswith("0/1 nodes are available: 1 kubelet counts too little volcano.sh/vgpu-memory.")
    assert f"n has 1000 of 5000 {MEMORY} free in kubelet's count (the plugin advertises 6000)" in wait.text
    assert f"Wait until other pods free {MEMORY}, or until the device plugin of n advertises as much" in wait.text
    assert place(ledger, asks("c", {"number": 1, "memory": 1000}))[0] is not None
    ledger.release(PodUid("a"))
    assert place(ledger, asks("b", {"number": 1, "memory": 5000}))[0] is not None


def test_what_not_even_an_empty_node_could_take_waits_for_its_plugin():
    ledger = ledger_of(node(memory=6000, cores=10))
    found, wait = place(ledger, asks("a", {"number": 1, "memory": 7000, "cores": 50}))
    assert found is None
    assert wait.cause is Cause.CARDS_UNUSABLE
    assert "kubelet counts too little volcano.sh/vgpu-cores, volcano.sh/vgpu-memory" in wait.text
    ledger.set_node(node(memory=20_000, cores=200))
    assert place(ledger, asks("a", {"number": 1, "memory": 7000, "cores": 50}))[0] is not None


def test_kubelet_charges_once_per_container_and_passes_over_what_nobody_advertises():
    ledger = ledger_of(node(memory=9000, cores=200))
    assert place(ledger, asks("two cards", {"number": 2, "memory": 9000}))[0] is not None
    ledger = ledger_of(node(memory=1, cores=1))
    assert place(ledger, asks("percent", {"number": 1, "percent": 50}))[0] is not None


def test_a_promise_and_a_bound_pod_count_alike_whoever_bound_it():
    ledger = ledger_of(node(memory=6000, cores=200))
    asked = asks("a", {"number": 1, "memory": 5000})
    found, _ = place(ledger, asked)
    promised = ledger.holding(asked.uid)
    assert ledger.states[NodeName("n")].used[MEMORY] == 5000
    shape: Any = shape_of(asked, ledger)
    assert still_fits(ledger, shape, found)
    held = {"volcano.sh/vgpu-ids-new": "GPU-0,NVIDIA,5000,0:"}
    assert ledger.count(asked._replace(node_name="n", annotations=held))
    assert ledger.holding(asked.uid) == promised
    assert place(ledger, asks("b", {"number": 1, "memory": 5000}))[0] is None


def test_a_node_whose_plugin_advertises_less_by_now_takes_no_promise_any_more():
    ledger = ledger_of(node(memory=20_000, cores=200))
    asked = asks("a", {"number": 1, "memory": 5000})
    found, _ = place(ledger, asked)
    ledger.set_node(node(memory=4000, cores=200))
    shape: Any = shape_of(asked, ledger)
    assert not still_fits(ledger, shape, found)
