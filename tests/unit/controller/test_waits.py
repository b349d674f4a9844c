"""Which cause each wait has."""

from controller.deciding.permit import turn_wait, unsettled_wait
from core.explaining.asked import read_wish
from core.model import NodeName
from core.settings import DialectName
from core.waiting import Cause, Wait
from tests.support.worlds.world import CORES, NUMBER, World, pod


def wish(made, **settings):
    found = read_wish(made, World(**settings).ledger)
    assert isinstance(found, Wait)
    return found.cause


def test_what_a_pod_asks_has_causes_of_its_own():
    assert wish(pod("p", limits={NUMBER: "1", CORES: "150"})) is Cause.INVALID
    assert wish(pod("p", limits={"nvidia.com/gpu": "1"}, scheduler_name="default-scheduler")) is Cause.NOT_SOLD
    assert wish(pod("p", unjudged=("pod affinity",))) is Cause.NOT_JUDGED
    assert wish(pod("p"), dialects=frozenset({DialectName("gpu_memory")})) is Cause.SWITCHED_OFF


def test_a_turn_has_causes_of_its_own():
    n1 = NodeName("n1")
    assert [one.cause for one in (turn_wait(n1), turn_wait(n1, "why"), unsettled_wait(n1))] == [
        Cause.WAITING_FOR_TURN,
        Cause.NODE_RESTS,
        Cause.WAITING_FOR_TURN,
    ]


def test_a_pod_that_waits_so_that_idle_nodes_stay_whole_is_told_for_how_long_at_most():
    assert turn_wait(NodeName("n1"), most_s=60.0).text.endswith("is opened for it, 60 s at most (turn_wait_max_s)")
    assert "turn_wait_max_s" not in turn_wait(NodeName("n1")).text
