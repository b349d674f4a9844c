"""HN-31: after a restart of kubelet two loops of HAMi's plugin write what each knows; the smaller figures count."""

import json

import pytest

from controller.handing_over.registers import BACK_WITHIN_S, STEADY_S
from core.model import NodeName
from core.settings import DialectName
from tests.support.worlds.world import World, node

HAMI = DialectName("hami")
REGISTER = "hami.io/node-nvidia-register"


def card(uuid, index, **changed):
    found = {"id": uuid, "index": index, "count": 10, "devmem": 40960, "devcore": 100, "type": "NVIDIA A100"}
    return found | {"mode": "hami-core", "health": True} | changed


OLD = [card("GPU-a", 0), card("GPU-b", 1)]
# After the files changed: split 4, scaling 2.
NEW = [card("GPU-a", 0, count=4, devmem=81920), card("GPU-b", 1, count=4, devmem=81920)]


class Written:
    """A node whose register is written again and again."""

    def __init__(self):
        self.version = 0
        self.world = World()
        self.write(OLD)

    def write(self, register, *, text=None):
        self.version += 1
        annotations = {REGISTER: json.dumps(register) if text is None else text}
        have = {"nvidia.com/gpu": "20", "cpu": "64", "pods": "110"}
        made = node("n1", version=str(self.version), annotations=annotations, capacity=have, allocatable=have)
        self.world.scheduler.nodes.changed(made)

    @property
    def figures(self):
        cards = self.world.ledger.offered(NodeName("n1")).get(HAMI, ())
        return {one.fixed.uuid: (one.fixed.slots, one.fixed.memory) for one in cards}

    @property
    def told(self):
        return [one.message for one in self.world.announced() if one.reason == "RegisterAlternates"]


def alternates(*registers):
    found = Written()
    for register in registers:
        found.world.passes(30.0)
        found.write(register)
    return found


def test_a_register_that_changes_once_counts_as_it_is_and_nobody_is_told():
    found = alternates(OLD, NEW, NEW, [*reversed(NEW)])
    assert found.figures == {"GPU-a": (4, 81920), "GPU-b": (4, 81920)}
    assert found.told == []


@pytest.mark.parametrize("last", [OLD, NEW], ids=["old", "new"])
def test_of_two_that_are_written_in_turns_the_smaller_figures_count_and_it_is_told_once(last):
    found = alternates(NEW, OLD, NEW, OLD, last)
    assert found.figures == {"GPU-a": (4, 40960), "GPU-b": (4, 40960)}
    (told,) = found.told
    assert "the plugin alternates between two registers" in told
    assert "restart the device plugin's pod on this node" in told


def test_the_order_of_cards_is_no_change():
    found = alternates([*reversed(OLD)], OLD, [*reversed(OLD)])
    assert (found.figures, found.told) == ({"GPU-a": (10, 40960), "GPU-b": (10, 40960)}, [])


def test_a_card_that_one_of_them_does_not_name_takes_nothing():
    found = alternates(OLD[:1], OLD)
    assert found.figures == {"GPU-a": (10, 40960)}


def test_health_is_as_last_written():
    ill = [card("GPU-a", 0, count=4), card("GPU-b", 1, count=4, health=False)]
    found = alternates(ill, OLD, ill)
    cards = found.world.ledger.offered(NodeName("n1"))[HAMI]
    assert [(one.fixed.slots, bool(one.fixed.fault)) for one in cards] == [(4, False), (4, True)]


def test_what_stays_counts_again_after_ten_minutes():
    found = alternates(NEW, OLD, NEW)
    found.world.passes(STEADY_S - 10.0)
    assert found.figures["GPU-a"] == (4, 40960)
    found.world.passes(20.0)
    assert found.figures["GPU-a"] == (4, 81920)
    # And another change is only that.
    found.write(OLD)
    assert found.figures["GPU-a"] == (10, 40960)


def test_what_comes_back_after_long_is_another_configuration():
    found = alternates(NEW)
    found.world.passes(BACK_WITHIN_S + 1.0)
    found.write(OLD)
    assert (found.figures["GPU-a"], found.told) == ((10, 40960), [])


@pytest.mark.parametrize("text", ["", "[", "[3]", "GPU-a,10,40960,100,NVIDIA-A100,0,true:", "[null"])
def test_what_cannot_be_read_is_passed_over(text):
    found = alternates(NEW)
    found.write(None, text=text)
    found.write(OLD)
    assert found.figures["GPU-a"] == (4, 40960)


@pytest.mark.parametrize("annotations", [{REGISTER: "["}, {}], ids=["cannot be read", "is gone"])
def test_a_node_whose_register_is_away_stays_as_it_was_last_shown_when_the_smaller_figures_end(annotations):
    found = alternates(NEW, OLD, NEW)
    cordoned = node("n1", cards=0, version="9", annotations=annotations, unschedulable=True)
    found.world.scheduler.nodes.changed(cordoned)
    found.world.passes(STEADY_S + 10.0)
    assert found.world.ledger.node(NodeName("n1")) == cordoned
    assert found.figures == {}
