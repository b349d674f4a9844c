"""What `kubectl cards` reads of a condition is what the controller meant by it."""

import pytest

from core.catalog import standard_catalog
from core.explaining import explain
from core.ledger import Ledger
from core.placing.decide import Shape, shape_of
from core.settings import Policy, Settings, Tables
from core.waiting import Cause, Said, Wait, said_in
from tests.support.worlds.world import node, on, pod


def refused(asked, *nodes) -> explain.Explanation:
    ledger = Ledger(standard_catalog(), Tables(), Settings())
    for one in nodes:
        ledger.set_node(one)
    shape = shape_of(asked, ledger)
    assert isinstance(shape, Shape)
    return explain.refused(ledger, shape, Policy.BINPACK)


@pytest.mark.parametrize(
    ("asked", "nodes"),
    [
        (pod("p", memory=5000), [node("n1", memory=4000)]),
        (pod("p", memory=5000), [node("n1", memory=4000), node("n2", memory=9000, unschedulable=True)]),
        (pod("p", number=3), [node("n1")]),
        (pod("p", constraints=on("x")), [node("n1"), node("n2")]),
        (pod("p"), [node("n1", ready=False)]),
        (pod("p", limits={"huawei.com/Ascend910B": "1"}), [node("n1")]),
    ],
    ids=["memory", "cordoned", "cards", "selector", "not-ready", "no-such-cards"],
)
def test_nearest_and_change_are_those_of_the_refusal(asked, nodes):
    answer = refused(asked, *nodes)
    wait = explain.wait(answer)
    said = said_in(wait.message)
    assert said.nearest == explain._nearest_card(answer.nearest)
    assert said.change == (answer.remedy or wait.cause.value.remedy)


def test_what_helps_a_group_is_both_that_of_one_more_member_and_of_the_group():
    text = (
        "waits because 2 of the 4 members of its group that must start together fit now. For one more: 0/1 nodes are "
        "available: 1 too little free memory on every card. Nearest: n0 GPU-0: 1 of 2 MiB free. Ask for at most 1 MiB "
        "of memory. Free capacity for 2 more or reduce what each asks for. 2 new nodes with 1 x T4 would take those "
        "that do not fit."
    )
    assert said_in(Wait(Cause.UNSCHEDULABLE, text).message) == Said(
        "n0 GPU-0: 1 of 2 MiB free",
        "Ask for at most 1 MiB of memory; free capacity for 2 more or reduce what each asks for",
    )


def test_what_was_cut_off_ends_with_an_ellipsis():
    text = "0/1 nodes are available: 1 odd. Ask for at most 1 MiB of mem… A new node with 1 x T4 would take it."
    assert said_in(Wait(Cause.UNSCHEDULABLE, text).message) == Said("", "Ask for at most 1 MiB of mem…")


def test_a_wait_that_is_not_for_a_node_has_the_remedy_of_its_kind():
    assert said_in(Wait(Cause.CLAIM_NOT_FOUND, "waits").message) == Said("", Cause.CLAIM_NOT_FOUND.value.remedy)


def test_of_the_words_of_another_scheduler_nothing_is_read():
    assert said_in("0/4 nodes are available: 4 Insufficient memory. Nearest: x. Ask for less.") == Said()
