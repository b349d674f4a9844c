"""What an audit finds: in a ledger as it stands, and between it and one made of the API server's objects."""

import json
from dataclasses import replace

import pytest

from core import audit
from core.audit import Fault
from core.catalog import standard_catalog
from core.ledger import Ledger
from core.model import Container, Node, NodeName, Phase, Pod, PodUid
from core.settings import DialectName, Settings, Tables

REGISTER = "volcano.sh/node-vgpu-register"
IDS = "volcano.sh/vgpu-ids-new"
VGPU = DialectName("vgpu")
SHARES = {"volcano.sh/vgpu-number": "90", "volcano.sh/vgpu-memory": "90000", "volcano.sh/vgpu-cores": "900"}


def node(name, *cards, **more):
    register = "".join(f"{card},10,15360,NVIDIA-Tesla T4,true,hami-core:" for card in cards)
    amounts = {"pods": "110", **(SHARES if cards else {}), **more}
    return Node(
        name=NodeName(name),
        resource_version="1",
        annotations={REGISTER: register} if cards else {},
        allocatable=amounts,
        capacity=amounts,
    )


def bound(name, ids, on="n1", **fields):
    limits = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "1"} if ids is not None else {}
    return Pod(
        uid=PodUid(name),
        namespace="team",
        name=name,
        node_name=on,
        phase=Phase.RUNNING,
        annotations={IDS: ids} if ids else {},
        containers=(Container(name="c", limits=limits),),
        **fields,
    )


def rebuilt(nodes, pods):
    return audit.rebuilt(standard_catalog(), Tables(), Settings(), nodes, pods)


def found(nodes, *pods, foreign=()):
    return [(one.fault, one.node, one.text) for one in audit.faults(rebuilt(nodes, pods), foreign)]


def test_a_sound_cluster_has_no_findings():
    pods = [bound("a", "GPU-0,NVIDIA,15000,0:"), bound("b", "GPU-1,NVIDIA,15000,0:"), bound("c", None)]
    assert found([node("n1", "GPU-0", "GPU-1"), node("n2", "GPU-2")], *pods) == []


def test_a_card_over_its_total_is_told_with_its_holders():
    [(fault, where, text)] = found(
        [node("n1", "GPU-0")], bound("a", "GPU-0,NVIDIA,9000,0:"), bound("b", "GPU-0,NVIDIA,9000,0:")
    )
    assert (fault, where) == (Fault.OVERCOMMITTED, "n1")
    assert "18000" in text
    assert "team/a, team/b" in text


def test_where_another_scheduler_put_one_of_them_it_is_named():
    pods = [bound("a", "GPU-0,NVIDIA,9000,0:"), bound("b", "GPU-0,NVIDIA,9000,0:")]
    [(fault, _, text)] = found([node("n1", "GPU-0")], *pods, foreign={"b"})
    assert fault is Fault.FOREIGN_OVERCOMMIT
    assert "bound by another scheduler are among its holders: team/b" in text


def test_a_holder_that_cannot_be_read_is_told():
    assert [fault for fault, _, _ in found([node("n1", "GPU-0")], bound("a", ""))] == [Fault.UNREADABLE_HOLDER]


def test_cards_held_in_two_protocols_are_told():
    whole = Pod(
        uid=PodUid("w"),
        namespace="team",
        name="w",
        node_name="n1",
        phase=Phase.RUNNING,
        containers=(Container(name="c", limits={"nvidia.com/gpu": "1"}),),
    )
    one = node("n1", "GPU-0", **{"nvidia.com/gpu": "1"})
    assert Fault.SOLD_TWICE in [fault for fault, _, _ in found([one], bound("a", "GPU-0,NVIDIA,9000,0:"), whole)]


def test_what_events_are_made_of_counts_pods_and_names_none():
    gpus = Container(name="c", limits={"nvidia.com/gpu": "1"})
    whole = bound("w", None)._replace(containers=(gpus,))
    over = [bound(name, "GPU-0,NVIDIA,9000,0:") for name in ("a", "b")]
    one = node("n1", "GPU-0", **{"nvidia.com/gpu": "1"})
    nobody: tuple[PodUid, ...] = ()
    for foreign in (nobody, (PodUid("b"),)):
        findings = audit.faults(rebuilt([one], [*over, whole]), foreign)
        told = {each.fault: each.event for each in findings}
        assert all("team/" in each.text for each in findings)
        assert not [event for event in told.values() if "team/" in event]
        assert "by 2 pods and as whole_gpu by one pod;" in told[Fault.SOLD_TWICE] or (
            "by one pod and as vgpu by 2 pods;" in told[Fault.SOLD_TWICE]
        )
    assert "among its holders: one pod; delete one of them" in told[Fault.FOREIGN_OVERCOMMIT]


def test_a_card_that_two_nodes_register_is_told():
    [(fault, where, text)] = found([node("n1", "GPU-0"), node("n2", "GPU-0", "GPU-1")])
    assert (fault, where) == (Fault.DUPLICATE_CARD, "n1")
    assert "GPU-0 is registered by n1, n2" in text


def test_a_card_that_one_node_registers_in_two_protocols_is_no_fault():
    gpu = {"id": "GPU-0", "count": 10, "devmem": 15360, "devcore": 100, "type": "Tesla T4", "health": True}
    both = node("n1", "GPU-0", **{"nvidia.com/gpu": "10"})
    both = replace(both, annotations={**both.annotations, "hami.io/node-nvidia-register": json.dumps([gpu])})
    assert {VGPU, DialectName("hami")} <= rebuilt([both], []).states[NodeName("n1")].offers.keys()
    assert found([both]) == []


def test_a_pod_on_a_node_that_does_not_exist_is_told():
    [(fault, where, _)] = found([node("n1", "GPU-0")], bound("a", "GPU-0,NVIDIA,9000,0:", on="gone"))
    assert (fault, where) == (Fault.MISSING_NODE, "gone")


def test_a_pod_without_cards_on_a_node_that_does_not_exist_is_no_fault():
    assert found([node("n1", "GPU-0")], bound("a", None, on="gone")) == []


class Lived:
    """A ledger that lived, and one made anew of the same objects."""

    def __init__(self):
        self.nodes = [node("n1", "GPU-0", "GPU-1")]
        self.pods = [bound("a", "GPU-0,NVIDIA,9000,0:"), bound("b", "GPU-1,NVIDIA,9000,0:")]
        self.ledger = rebuilt(self.nodes, self.pods)

    def differences(self, *pods, reserved=(), unsettled=()):
        fresh = rebuilt(self.nodes, pods or self.pods)
        return audit.differences(self.ledger, fresh, NodeName("n1"), reserved=reserved, unsettled=unsettled)


@pytest.fixture
def lived():
    return Lived()


def test_a_ledger_that_is_true_does_not_differ(lived):
    assert lived.differences() == ()


def test_a_pod_that_was_missed_is_named(lived):
    assert lived.differences(*lived.pods, bound("c", "GPU-0,NVIDIA,10,0:")) == (
        "pod team/c is bound there and not counted",
    )


def test_a_pod_that_is_gone_is_named_unless_it_is_promised_or_not_settled(lived):
    assert lived.differences(lived.pods[0]) == ("pod team/b is counted there and not bound",)
    assert lived.differences(lived.pods[0], reserved={"b"}) == ()
    assert lived.differences(lived.pods[0], unsettled={"b"}) == ()


def test_a_pod_that_holds_another_card_is_named(lived):
    [text] = lived.differences(lived.pods[0], bound("b", "GPU-0,NVIDIA,9000,0:"))
    assert text.startswith("pod team/b is counted as")


def test_a_state_that_is_not_the_sum_of_its_holders_is_found(lived):
    ledger: Ledger = lived.ledger
    state = ledger.states[NodeName("n1")]
    ledger.states[NodeName("n1")] = state._replace(offers={**state.offers, VGPU: state.offers[VGPU][::-1]})
    assert lived.differences() == ("the cards offered as vgpu are not the sum of what is held",)
    ledger.states[NodeName("n1")] = state._replace(used={**state.used, "pods": 7})
    [text] = lived.differences()
    assert "counted as {'pods': 7," in text
