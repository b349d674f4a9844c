import pytest

from controller.deciding import score
from core.catalog import standard_catalog
from core.ledger import Ledger
from core.placing.candidates import Candidates
from core.placing.decide import Shape, decide, node_policy, shape_of
from core.settings import Policy, Settings, Tables
from tests.support.worlds.world import node, pod

SETTINGS = Settings(turn_wait_max_s=64.0)


def left_idle(*pods, on=None):
    """What the last of *pods* leaves idle of what it opens, on a node of four cards of 10,000 MiB, or *on* another."""
    ledger = Ledger(standard_catalog(), Tables(), SETTINGS)
    ledger.set_node(on or node("n1", cards=4))
    candidates = Candidates(ledger, node_policy(SETTINGS))
    left = -1.0
    for one in pods:
        shape = shape_of(one, ledger)
        assert isinstance(shape, Shape)
        placement = decide(candidates, one, shape)
        assert placement is not None
        left = score.left_idle(ledger, placement)
        ledger.reserve(placement)
    return left


@pytest.mark.parametrize(
    ("pods", "left"),
    [
        ((pod("a", memory=2500),), 15 / 16),
        ((pod("a", memory=10_000),), 3 / 4),
        ((pod("a", memory=10_000, number=4),), 0.0),
        ((pod("a", memory=2500), pod("b", memory=2500)), 0.0),
        ((pod("a", memory=10_000), pod("b", memory=2500)), 3 / 16),
        ((pod("a", memory=10_000), pod("b", memory=10_000)), 0.0),
    ],
    ids=["idle node", "a card of it", "all of it", "card in use", "idle card", "all of an idle card"],
)
def test_what_is_opened_and_not_used_is_a_part_of_the_node(pods, left):
    assert left_idle(*pods) == pytest.approx(left)


def test_an_idle_node_with_an_unhealthy_card_is_idle():
    cards = "".join(f"c{at},10,10000,NVIDIA-T4,{healthy},hami-core:" for at, healthy in enumerate(("true", "false")))
    found = left_idle(
        pod("a", memory=5000), on=node("n1", cards=2, annotations={"volcano.sh/node-vgpu-register": cards})
    )
    assert found == pytest.approx(3 / 4, abs=0.01)


def test_waits_are_worth_the_part_that_is_left_idle():
    assert [score.worth_s(SETTINGS, part) for part in (0.0, 0.25, 0.26, 1.0)] == [0.0, 16.0, 16.0, 64.0]


def test_who_joins_a_line_leaves_time_for_slower_hand_offs_and_counts_what_it_has_waited():
    assert score.joined_s(SETTINGS, 1.0, 0.0) == 56.0
    assert score.joined_s(SETTINGS, 1.0, 30.0) == 26.0
    assert score.joined_s(SETTINGS, 0.5, 30.0) == 0.0


def test_only_policies_that_pack_keep_idle_nodes_whole():
    assert [policy.packs for policy in (Policy.BINPACK, Policy.SPREAD, Policy.INDEX)] == [True, False, False]
