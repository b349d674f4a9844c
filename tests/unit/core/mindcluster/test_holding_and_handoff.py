"""What bound pods hold, what the plugin could confuse, and why a request waits."""

from typing import Any

import pytest

from core.dialects.mindcluster.chips import UNKNOWN, Assignment, Share
from core.dialects.mindcluster.dialect import MindCluster
from core.dialects.mindcluster.keys import chip_of
from core.dialects.mindcluster.pods import decode_assigned
from core.explaining.explain import refused, sentence
from core.ledger import Ledger
from core.model import Container, Phase
from core.placing.decide import shape_of
from core.port.cards import CardShare
from core.port.handoff import Progress
from core.port.refusals import Reason, Shortfall
from core.settings import Policy, Settings, Tables
from tests.support.devices.catalogs import catalog_of
from tests.support.devices.mindcluster import CORES, npu_bound, npu_chips, npu_node, npu_pod

DIALECT: Any = MindCluster()
SERVED = "18446744073709551615"


def held(core: str, real: str = "", **fields):
    return DIALECT.held(npu_bound(core, real, **fields), (), Tables())


def after(*bound: tuple[str, str], node=None):
    cards = npu_chips(node or npu_node(2))
    for core, real in bound:
        cards = DIALECT.take(cards, held(core, real).assignment)
    return cards


def waiting(cards, *asked) -> Any:
    request = DIALECT.request(npu_pod(*asked), Tables())
    assert DIALECT.place(cards, request, Policy.BINPACK) is None
    return DIALECT.shortfalls(cards, request)


def test_the_reported_device_counts_instead_of_the_one_asked_for():
    assert held("0-vir02", "Ascend310P-2c-101-1_3").assignment == Assignment((1,), Share("vir02", 3, True))
    assert held("0-vir02", "Ascend310P-2c.1cpu-101-1_3").assignment == Assignment((1,), Share("vir02_1c", 3, True))
    assert held("0,1", "Ascend310P-2,Ascend310P-3").assignment == Assignment((2, 3), Share("", settled=True))


def test_until_the_report_the_written_chip_counts_and_is_unstable():
    assert held("1-vir04").assignment == Assignment((1,), Share("vir04"))
    (first, second) = after(("1-vir04", ""))
    assert (first.unstable, second.unstable) == (False, True)


def test_a_report_that_cannot_be_read_leaves_the_written_chip():
    assert held("0-vir02", "what").assignment == Assignment((0,), Share("vir02", -1, True))


def test_a_slice_that_is_not_named_is_not_the_whole_chip():
    assert decode_assigned("0-") == Assignment((0,), Share(UNKNOWN))
    found = held("0-").assignment
    assert found == Assignment((0,), Share(UNKNOWN))
    assert DIALECT.describe(found, ()) == (CardShare("NPU 0", "a slice of an unknown template"),)
    assert after(("0-", ""))[0].unread


def test_a_chip_is_named_by_as_many_digits_as_go_reads():
    assert decode_assigned("0000000000003").chips == (3,)
    assert decode_assigned("10000000000-vir01").chips == (10_000_000_000,)
    assert chip_of("Ascend310P-2c-1000000000-10000000000_0") == 10_000_000_000
    assert not decode_assigned(str(2**63)).chips


@pytest.mark.parametrize("core", ["", "0,x", "x-vir01", "0-vir01-1", " 0", "0,1-vir01"])
def test_an_assignment_that_cannot_be_read_closes_the_node(core):
    found = held(core)
    assert "delete the pod" in found.closes
    assert found.assignment.chips == ()


def test_a_slice_of_an_unknown_template_takes_its_chip_out_of_use():
    cards = after(("0-vir08", "Ascend310P-8c-100-0_0"))
    assert not cards[0].there
    assert DIALECT.room(cards).free[0] == 8


def test_a_pod_that_asks_nothing_of_the_vendor_holds_nothing():
    bound = npu_bound("0-vir01", containers=(Container(name="c"),))
    assert DIALECT.held(bound, (), Tables()) is None
    assert DIALECT.held(npu_pod(1), (), Tables()) is None


def test_two_pods_of_one_number_of_cores_are_confusable_until_the_plugin_has_served_one():
    request = DIALECT.request(npu_pod(2, level="high"), Tables())
    flying = DIALECT.in_flight(npu_bound("0-vir02_1c", cores=2, phase=Phase.PENDING), Tables())
    assert flying.progress is Progress.WAITING
    assert flying.confusable == DIALECT.confusable(request)
    annotations = {CORES: "0-vir02_1c", "predicate-time": SERVED}
    served = DIALECT.in_flight(npu_bound("", cores=2, phase=Phase.PENDING, annotations=annotations), Tables())
    assert (served.progress, served.confusable, served.cleanup) == (Progress.DONE, frozenset(), None)


def test_a_running_pod_that_could_still_be_served_is_cleared():
    found = DIALECT.in_flight(npu_bound("0-vir01", started=True), Tables())
    assert (found.progress, dict(found.cleanup)) == (Progress.DONE, {"predicate-time": SERVED})


def test_a_pod_that_the_plugin_passes_over_has_failed():
    found = DIALECT.in_flight(npu_bound("0-vir01", phase=Phase.FAILED), Tables())
    assert (found.progress, found.confusable) == (Progress.FAILED, frozenset())


def test_a_pod_that_is_deleted_while_it_is_admitted_is_in_flight_until_it_is_gone():
    pending = npu_bound("0-vir02", cores=2, phase=Phase.PENDING, deleting=True)
    found = DIALECT.in_flight(pending, Tables())
    assert found.progress is Progress.WAITING
    assert found.confusable == DIALECT.confusable(DIALECT.request(npu_pod(2), Tables()))


def test_a_pod_without_an_assignment_is_never_served():
    assert DIALECT.in_flight(npu_bound("", annotations={}), Tables()) is None
    assert DIALECT.in_flight(npu_bound("0", node_name=""), Tables()) is None


def test_times_rise_above_every_pod_that_still_waits():
    def timed(text: str):
        return npu_bound("", annotations={CORES: "0", "predicate-time": text})

    now = 10 * 10**9
    assert DIALECT.next_stamp((), 10) == now + 1
    assert DIALECT.next_stamp((timed(str(now + 5)), timed(SERVED), timed("x")), 10) == now + 6


def test_each_chip_says_what_it_lacks():
    cards = after(("0-vir04", "Ascend310P-4c-100-0_0"), ("0-vir01", "Ascend310P-1c-101-0_1"), node=npu_node(1))
    assert waiting(cards, 4) == (Shortfall("NPU 0", Reason.CORES, 4, 2, "AI cores"),)
    ill = npu_chips(npu_node(1, unhealthy=(0,)))
    assert [short.reason for short in waiting(ill, 4)] == [Reason.UNHEALTHY]
    taken = after(("0-vir04_4c_dvpp", "Ascend310P-4c.4cpu.dvpp-100-0_0"), node=npu_node(1))
    assert "vnpu-dvpp no" in waiting(taken, 4)[0].detail
    groups = after(*(("0-vir01", f"Ascend310P-1c-10{at}-0_{at}") for at in range(3)), node=npu_node(1))
    assert "3 vGroups" in waiting(groups, 4)[0].detail
    cpus = after(*(("0-vir02", f"Ascend310P-2c-10{at}-0_{at % 2}") for at in range(3)), node=npu_node(1))
    two = after(("0-vir01", "Ascend310P-1c-109-0_0"), node=npu_node(2))
    # In the words of the request: a person who asks for AI cores is told of AI cores.
    assert waiting(two, 16)[0] == Shortfall("", Reason.CARD_COUNT, 16, 8, "AI cores of idle chips")
    assert waiting(DIALECT.take(cpus, Assignment((0,), Share("vir01", 0, True))), 1)[0].unit == "AI CPUs"


def test_pods_in_flight_are_named_as_the_reason():
    flying = after(("0-vir02_1c", ""))
    assert "vir02_1c" in waiting(flying, 4)[0].detail
    assert "vir02_1c" in waiting(flying, 8)[0].detail
    both = after(("0-vir02_1c", ""), ("1-vir02_1c", ""))
    assert {short.reason for short in waiting(both, 1)} == {Reason.HANDOVER}


def test_a_waiting_pod_is_told_the_largest_slice_that_would_fit():
    ledger = Ledger(catalog_of(DIALECT), Tables(), Settings())
    ledger.set_node(npu_node(1))
    ledger.count(npu_bound("0-vir04", "Ascend310P-4c-100-0_0", name="a", cores=4))
    ledger.count(npu_bound("0-vir01", "Ascend310P-1c-101-0_1", name="b", cores=1))
    shape: Any = shape_of(npu_pod(4), ledger)
    text = sentence(refused(ledger, shape, Policy.BINPACK))
    assert "node-a NPU 0: 2 of 4 AI cores free" in text
    assert "Ask for at most 2 AI cores, or wait until enough of a card is free" in text


def test_chips_of_another_size_are_named_as_the_reason():
    (short,) = waiting(npu_chips(npu_node(2, per_chip=10)), 8)
    assert "10 AI cores each" in short.detail


def test_people_are_told_chips_and_what_of_them():
    request = DIALECT.request(npu_pod(2, level="high"), Tables())
    placed = DIALECT.place(npu_chips(npu_node(1)), request, Policy.BINPACK)
    assert DIALECT.describe(placed.assignment, ()) == (CardShare("NPU 0", "vir02: 2 AI cores, 2 AI CPUs", 2),)
    (line,) = DIALECT.tally(after(("0-vir02", ""), node=npu_node(1)))
    assert (line.card, line.used, line.total, line.unit) == ("NPU 0", 2, 8, "AI cores")
    assert "report" in line.note


def test_more_than_a_chip_has_is_a_sentence():
    cards = after(("0", "Ascend310P-0"), ("0-vir01", "Ascend310P-1c-100-0_0"))
    assert DIALECT.overcommitted(cards) == ("NPU 0 holds 9 of 8 AI cores and 8 of 7 AI CPUs",)
