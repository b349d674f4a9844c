"""Refusals say what was missing where, with numbers, and the smallest change."""

from typing import Any

import pytest

from core.constraints.volumes import Needs
from core.explaining import explain
from core.explaining.advice import Advice, Unwished
from core.explaining.refusal import NodeRefusal
from core.ledger import Ledger, Placement
from core.model import Container, Node, NodeConstraints, NodeName, Pod, PodUid, Requirement, Taint
from core.placing.decide import Shape, invalid
from core.port.refusals import Reason, Shortfall, Violation
from core.settings import Policy, Settings, Tables
from core.waiting import Cause, Wait
from tests.support.devices.catalogs import catalog_of
from tests.support.devices.toy import Toy, ToyRequest
from tests.support.judging.asking import asking


@pytest.fixture
def ledger():
    made = Ledger(catalog_of(Toy()), Tables(), Settings())
    made.set_node(node("n1", "a:8,a:16"))
    made.set_node(node("n2", "b:8"))
    made.set_node(node("n3", None))
    made.set_node(node("n4", "a:32", unschedulable=True))
    return made


def node(name, cards, **about):
    annotations = {} if cards is None else {"toy.example/cards": cards}
    return Node(name=NodeName(name), annotations=annotations, allocatable={"pods": "9", "cpu": "4"}, **about)


def shape(memory, *, cores=0, cards=1, kind="", cpu=0):
    amounts = (("cpu", cpu * 1000), ("pods", 1)) if cpu else (("pods", 1),)
    return Shape(
        dialect=Toy.name,
        request=ToyRequest(memory, cores, cards, kind),
        amounts=amounts,
        asked=asking(),
    )


def refused(ledger, asked):
    return explain.refused(ledger, asked, Policy.BINPACK)


def fill(ledger, name, *entries, uid="x"):
    ledger.reserve(
        Placement(
            pod=PodUid(uid), pod_key=f"d/{uid}", node=NodeName(name), dialect=Toy.name, assignment=entries,
            amounts=(("pods", 1),),
        )
    )  # fmt: skip


def test_the_sentence_counts_reasons_names_the_nearest_card_and_what_to_do(ledger):
    fill(ledger, "n1", (1, 10, 0))
    assert explain.sentence(refused(ledger, shape(12, kind="a"))) == (
        "0/4 nodes are available: 1 no card of a type that the pod accepts, 1 no cards for toy, "
        "1 too little free memory on every card, 1 unschedulable (cordoned). "
        "Nearest: n1 0: 8 of 12 MiB free. "
        "Ask for at most 8 MiB of memory, or wait until enough of a card is free, or until n4 is uncordoned."
    )


def told(made, asked):
    return explain.sentence(refused(made, asked))


def test_a_cordoned_node_that_would_take_the_pod_is_waited_for(ledger):
    for name in ("n1", "n2", "n3"):
        ledger.remove_node(NodeName(name))
    assert told(ledger, shape(12)) == (
        "0/1 nodes are available: 1 unschedulable (cordoned). Wait until n4 is uncordoned."
    )


def test_no_other_node_is_the_nearest_beside_one_that_would_take_the_pod_if_it_were_not_cordoned(ledger):
    assert told(ledger, shape(32)).endswith(
        "1 unschedulable (cordoned). Ask for at most 16 MiB of memory, or wait until n4 is uncordoned."
    )


def test_a_cordoned_node_that_is_full_is_waited_for_with_both_that_must_happen(ledger):
    ledger.set_node(node("n1", "a:8", unschedulable=True))
    fill(ledger, "n1", (0, 4, 0))
    assert told(ledger, shape(8, kind="a", cpu=1)).endswith("or until n4 is uncordoned.")
    ledger.remove_node(NodeName("n4"))
    assert told(ledger, shape(8, kind="a")).endswith(
        "1 unschedulable (cordoned). Nearest: n1 0: 4 of 8 MiB free. "
        "Wait until n1 is uncordoned and enough of a card is free."
    )


def test_a_cordoned_node_that_could_never_take_the_pod_is_no_hope(ledger):
    ledger.remove_node(NodeName("n1"))
    ledger.remove_node(NodeName("n2"))
    text = told(ledger, shape(40))
    assert "Not even an empty node of this cluster could take it." in text
    assert text.endswith("Ask for at most 32 MiB of memory; it would then wait until n4 is uncordoned.")
    fill(ledger, "n4", (0, 4, 0))
    assert told(ledger, shape(40)).endswith("it would then wait until n4 is uncordoned and has free capacity.")


def test_a_node_that_is_not_ready_is_waited_for():
    made = Ledger(catalog_of(Toy()), Tables(), Settings())
    made.set_node(node("n1", "a:8", ready=False))
    assert told(made, shape(8)) == "0/1 nodes are available: 1 not ready. Wait until n1 is ready."


TEAM = Taint(key="team", value="a", effect="NoSchedule")


@pytest.mark.parametrize(
    ("taint", "said"),
    [
        (
            Taint(key="dedicated", value="ml", effect="NoSchedule"),
            "Tolerate taint dedicated=ml:NoSchedule, or wait until n1 no longer has taint dedicated=ml:NoSchedule.",
        ),
        (
            Taint(key="node.kubernetes.io/disk-pressure", effect="NoSchedule"),
            "Wait until n1 no longer has taint node.kubernetes.io/disk-pressure:NoSchedule.",
        ),
    ],
    ids=["the operator's", "a condition's"],
)
def test_a_tainted_node_that_would_take_the_pod_is_no_lost_hope(taint, said):
    made = Ledger(catalog_of(Toy()), Tables(), Settings())
    made.set_node(node("n1", "a:8", taints=(taint,)))
    assert told(made, shape(8)) == (
        f"0/1 nodes are available: 1 taint {taint.key}{'=' * bool(taint.value)}{taint.value}:NoSchedule. {said}"
    )


def test_to_tolerate_a_taint_is_advised_only_where_that_is_enough():
    made = Ledger(catalog_of(Toy()), Tables(), Settings())
    made.set_node(node("n1", "a:8", taints=(Taint(key="dedicated", value="ml", effect="NoSchedule"),)))
    fill(made, "n1", (0, 8, 0))
    assert told(made, shape(8)).endswith(
        "Wait until n1 no longer has taint dedicated=ml:NoSchedule and enough of a card is free."
    )


@pytest.mark.parametrize(
    ("about", "said"),
    [
        (
            {"taints": (TEAM, Taint(key="x", effect="NoExecute"))},
            "Tolerate taint team=a:NoSchedule and taint x:NoExecute, "
            "or wait until n1 no longer has taint team=a:NoSchedule and no longer has taint x:NoExecute.",
        ),
        (
            {"taints": (TEAM, Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule"))}
            | {"unschedulable": True},
            "Wait until n1 is uncordoned and no longer has taint team=a:NoSchedule.",
        ),
        (
            {"taints": (Taint(key="node.kubernetes.io/unreachable", effect="NoExecute"),), "ready": False},
            "Wait until n1 is ready.",
        ),
    ],
    ids=["two taints", "a cordon with its taint, and another", "unreachable"],
)
def test_all_that_keeps_a_pod_off_a_node_is_told_once(about, said):
    made = Ledger(catalog_of(Toy()), Tables(), Settings())
    made.set_node(node("n1", "a:8", **about))
    assert told(made, shape(8)).endswith(f". {said}")


def test_a_tainted_node_without_cards_is_told_as_one_without_cards():
    made = Ledger(catalog_of(Toy()), Tables(), Settings())
    made.set_node(node("master", None, taints=(Taint(key="control-plane", effect="NoSchedule"),)))
    assert "1 no cards for toy" in told(made, shape(8))


def test_a_selector_that_no_node_meets_is_told_the_labels_that_are_there(ledger):
    ledger.set_node(node("n1", "a:8", labels={"zone": "a", "os": "linux"}))
    ledger.set_node(node("n2", "a:8", labels={"zone": "b", "os": "linux"}))
    asked = Shape(
        dialect=Toy.name,
        request=ToyRequest(1),
        amounts=(("pods", 1),),
        asked=asking(NodeConstraints(selector=(("os", "linux"), ("zone", "c")))),
    )
    assert told(ledger, asked).endswith(
        "Correct the pod's node selector or affinity (nodes with such cards have zone: a, b), or label a node."
    )


def test_no_node_is_to_be_labelled_where_a_pod_names_its_node(ledger):
    ledger.set_node(node("n1", "a:8", labels={"kubernetes.io/hostname": "n1"}))
    ledger.set_node(node("n2", None, labels={"kubernetes.io/hostname": "n2"}))
    constraints = NodeConstraints(selector=(("kubernetes.io/hostname", "n2"),))
    asked = Shape(dialect=Toy.name, request=ToyRequest(8), amounts=(("pods", 1),), asked=asking(constraints))
    ledger.remove_node(NodeName("n4"))
    assert told(ledger, asked).endswith(
        "Correct the pod's node selector or affinity (nodes with such cards have kubernetes.io/hostname: n1)."
    )


def _on_a_volume(name: str, **more: Any) -> Shape:
    """A request for 8 MiB whose volume is on the nodes with label disk=*name* only."""
    reach = ((Requirement(key="disk", operator="In", values=(name,)),),)
    asked = asking(NodeConstraints(**more), volumes=Needs(nodes=(reach,)))
    return Shape(dialect=Toy.name, request=ToyRequest(8), amounts=(("pods", 1),), asked=asked)


def test_no_node_is_to_be_labelled_where_a_volume_of_the_pod_cannot_be_reached(ledger):
    ledger.set_node(node("n1", "a:8", labels={"zone": "a", "disk": "x"}))
    ledger.set_node(node("n2", "a:4", labels={"zone": "b", "disk": "y"}))
    elsewhere = "Use a volume that nodes with such cards can reach."
    assert told(ledger, _on_a_volume("z")).endswith(elsewhere)
    assert told(ledger, _on_a_volume("z", selector=(("zone", "b"),))).endswith(elsewhere)
    # A node whose labels alone are in the way can be named by them.
    assert told(ledger, _on_a_volume("x", selector=(("zone", "b"),))).endswith(
        "Correct the pod's node selector or affinity (nodes with such cards have zone: a), or label a node."
    )


def test_what_no_empty_node_could_take_is_not_told_to_wait(ledger):
    answer = refused(ledger, shape(40))
    assert answer.never
    assert "wait" not in explain.sentence(answer).lower()
    assert "Not even an empty node of this cluster could take it." in explain.sentence(answer)


def test_a_lack_of_cpu_is_told_as_such(ledger):
    answer = refused(ledger, shape(4, cpu=5))
    assert ("insufficient cpu", 2) in answer.counts
    assert "cpu: 5 requested, 4 in total" in explain.report(answer)


def test_the_report_tells_every_card_of_the_nearest_nodes(ledger):
    fill(ledger, "n1", (1, 10, 0))
    text = explain.report(refused(ledger, shape(12)))
    assert "0: 8 of 12 MiB free" in text
    assert "1: 6 of 12 MiB free" in text


def test_a_signature_stays_while_only_numbers_move(ledger):
    fill(ledger, "n1", (1, 10, 0))
    before = refused(ledger, shape(12))
    fill(ledger, "n1", (0, 1, 0), uid="y")
    after = refused(ledger, shape(12))
    assert before != after
    assert before.signature == after.signature
    assert before.signature != refused(ledger, shape(40)).signature


def test_an_empty_cluster_says_so():
    empty = Ledger(catalog_of(Toy()), Tables(), Settings())
    assert "no nodes yet" in explain.sentence(refused(empty, shape(1)))


def test_nothing_is_said_of_every_node_where_some_do_not_refuse(ledger):
    for name in ("n2", "n3", "n4"):
        ledger.remove_node(NodeName(name))
    answer = refused(ledger, shape(8))
    assert explain.sentence(answer) == explain.report(answer) == "no node currently refuses the pod"
    ledger.set_node(node("n2", "a:2"))
    text = told(ledger, shape(8))
    assert text.startswith("0/2 nodes are available: 1 too little free memory on every card. ")
    assert "Not even an empty node" not in text


def test_long_sentences_are_cut():
    counts = tuple((f"reason {number}", 1) for number in range(500))
    assert len(explain.sentence(explain.Explanation(nodes=500, counts=counts, nearest=(), remedy=""))) == 1024


def test_a_pod_that_may_not_be_asked_so_is_told_in_the_words_of_admission():
    violation = Violation(code="CS103", field="limit x", found="'150'", remedy="write a whole number")
    assert invalid((violation,)) == Wait(Cause.INVALID, "limit x: found '150'; write a whole number")


def test_a_host_port_that_is_in_use_is_named_with_what_to_wait_for(ledger):
    port = ("TCP", "", 8080)
    for name in ("n1", "n2", "n3"):
        ledger.count(
            Pod(
                uid=PodUid(name),
                namespace="d",
                name=name,
                node_name=name,
                containers=(Container(name="c", host_ports=(port,)),),
            )
        )
    asked = shape(4)
    asked = Shape(
        dialect=asked.dialect,
        request=asked.request,
        amounts=asked.amounts,
        asked=asking(ports=(port, ("UDP", "10.0.0.1", 53))),
    )
    told = explain.sentence(refused(ledger, asked))
    assert "2 host port 8080/TCP in use" in told
    assert "Wait until no pod there listens on host port 8080/TCP" in told
    assert "Ask for" not in told


def test_too_many_cards_are_told_as_such_and_not_as_a_lack_of_memory(ledger):
    answer = refused(ledger, shape(1, cards=5))
    assert answer.remedy == "Ask for at most 2 cards in one container"


def test_a_node_whose_data_cannot_be_used_is_told_before_those_that_are_not_meant(ledger):
    ledger.set_node(node("n9", "broken"))
    asked = Shape(
        dialect=Toy.name,
        request=ToyRequest(1),
        amounts=(("pods", 1),),
        asked=asking(NodeConstraints(selector=(("zone", "x"),))),
    )
    ledger.set_node(node("n9", "broken", labels={"zone": "x"}))
    assert "Nearest: n9 card 0: 'broken'." in explain.sentence(refused(ledger, asked))


def test_types_that_are_there_are_named():
    answer = explain.summed(
        [
            NodeRefusal(
                node=NodeName("n1"),
                key="no card of a type that the pod accepts",
                shortfalls=(Shortfall("GPU-0", Reason.TYPE, detail="Tesla T4"),),
                hopeless=True,
                unwished=Unwished((Reason.TYPE,), Advice(())),
            )
        ],
        nodes=1,
    )
    assert answer.remedy == "Accept an existing type (Tesla T4)"
