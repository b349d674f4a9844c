"""A container that lacks what others of its pod take is not said to lack it for other pods, or on an empty card."""

from dataclasses import replace

import pytest

from core.catalog import standard_catalog
from core.explaining import explain
from core.ledger import Ledger
from core.placing.decide import NodePolicy, Shape, scan, shape_of
from core.settings import Policy, Settings
from tests.support.devices import ascend
from tests.support.devices.cards import TABLES, bound, container, pod, record, vgpu_node

NEVER = "Not even an empty node of this cluster could take it."
BESIDE = "free beside other containers of the pod"
FEWER = "Let fewer containers of one pod ask for cards."
POLICY = NodePolicy(cards=Policy.BINPACK, weight=1)


def ledger_of(node, *held):
    made = Ledger(standard_catalog(), TABLES, Settings())
    made.set_node(replace(node, allocatable={**node.allocatable, "pods": "20"}))
    for one in held:
        made.count(one)
    return made


def one_card(*held, slots=10, memory=16000):
    return ledger_of(vgpu_node(record("GPU-a", slots=slots, memory=memory)), *held)


def told(ledger, asked):
    shape = shape_of(asked, ledger)
    assert isinstance(shape, Shape), shape
    assert scan(ledger, POLICY, shape) is None
    return explain.sentence(explain.refused(ledger, shape, Policy.BINPACK))


def fits(ledger, asked):
    shape = shape_of(asked, ledger)
    assert isinstance(shape, Shape), shape
    return scan(ledger, POLICY, shape) is not None


def alike(**limits):
    return pod(container("a", **limits), container("b", **limits))


@pytest.mark.parametrize(
    ("asked", "lack", "less"),
    [
        pytest.param(alike(number=1, memory=10000), "6000 of 10000 MiB", "8000 MiB of memory", id="memory"),
        pytest.param(alike(number=1), "0 of 16000 MiB", "8000 MiB of memory", id="all memory"),
        pytest.param(alike(number=1, memory=9, cores=60), "40 of 60 %", "50 % of cores", id="cores"),
        pytest.param(
            pod(container("a", number=1, memory=9, cores=10), container("b", number=1, memory=9, cores=100)),
            "90 of 100 %",
            "90 % of cores",
            id="fewer cores than the card",
        ),
    ],
)
def test_what_is_left_beside_other_containers_is_told_with_an_equal_part_for_each(asked, lack, less):
    text = told(one_card(), asked)
    assert f"Nearest: node-a GPU-a: {lack} {BESIDE}. {NEVER} Ask for at most {less} in each container" in text
    assert "without other pods" not in text


def test_an_equal_part_is_one_with_which_the_pod_is_placed():
    assert fits(one_card(), alike(number=1, memory=8000))
    assert not fits(one_card(), alike(number=1, memory=8001))
    assert fits(one_card(), alike(number=1, memory=9, cores=50))
    two_cards = ledger_of(vgpu_node(record("GPU-a", memory=16000) + record("GPU-b", memory=16000)))
    five = [container(name, number=1, memory=6000) for name in "abcde"]
    assert told(two_cards, pod(*five)).endswith("Ask for at most 5333 MiB of memory in each container.")
    assert fits(two_cards, pod(*[container(name, number=1, memory=5333) for name in "abcde"]))


def test_beside_other_pods_an_equal_part_of_what_these_leave_is_told():
    ledger = one_card(bound("GPU-a,NVIDIA,2000,0:;"))
    text = told(ledger, alike(number=1, memory=7500))
    assert f"GPU-a: 6500 of 7500 MiB {BESIDE}. Ask for at most 7000 MiB of memory in each container, or wait" in text
    assert fits(ledger, alike(number=1, memory=7000))


@pytest.mark.parametrize(
    ("ledger", "asked", "why"),
    [
        pytest.param(
            one_card(),
            pod(container("a", number=1, memory=9, cores=100), container("b", number=1, memory=9)),
            "GPU-a: another container of the pod takes 100 % of its cores",
            id="all cores",
        ),
        pytest.param(
            one_card(slots=1),
            alike(number=1, memory=9),
            "GPU-a: other containers of the pod take its last share",
            id="shares",
        ),
        pytest.param(
            ledger_of(ascend.node("Ascend910B4", ["U0"])),
            ascend.pod("Ascend910B4", [1], [1]),
            "U0: another container of the pod takes it",
            id="chips",
        ),
    ],
)
def test_cards_that_only_other_containers_take_are_not_said_to_hold_pods(ledger, asked, why):
    text = told(ledger, asked)
    assert "1 no card left for another container of the pod. Nearest: " in text
    assert text.endswith(f"{why}. {NEVER} {FEWER}")


def test_a_card_that_other_pods_fill_is_said_to_hold_them():
    ledger = one_card(bound("GPU-a,NVIDIA,9,100:;"))
    assert "every card is held by a pod with 100 % of its cores" in told(ledger, alike(number=1, memory=9))
