"""Which cause each wait has."""

from controller.handing_over.collision import NO_COLLISION
from core.model import NodeName
from core.placing.decide import shape_of
from core.settings import DialectName, Policy
from core.waiting import Cause, Wait
from tests.support.worlds.world import CORES, NUMBER, World, node, pod


def wish(made, **settings):
    found = shape_of(made, World(**settings).ledger)
    assert isinstance(found, Wait)
    return found.cause


def test_what_a_pod_asks_has_causes_of_its_own():
    assert wish(pod("p", limits={NUMBER: "1", CORES: "150"})) is Cause.INVALID
    assert wish(pod("p", limits={"nvidia.com/gpu": "1"}, scheduler_name="default-scheduler")) is Cause.NOT_SOLD
    assert wish(pod("p", unjudged=("pod affinity",))) is Cause.NOT_JUDGED
    assert wish(pod("p"), dialects=frozenset({DialectName("gpu_memory")})) is Cause.SWITCHED_OFF


def test_a_pod_that_waits_so_that_idle_nodes_stay_whole_is_told_for_how_long_at_most():
    for policy, is_told in ((Policy.BINPACK, True), (Policy.SPREAD, False)):
        gate = World(node("n1"), policy=policy, turn_wait_max_s=60.0).scheduler.gate
        wait = gate.wait(pod("p"), NodeName("n1"), NO_COLLISION)
        assert wait.cause is Cause.WAITING_FOR_TURN
        assert wait.text.endswith("is opened for it, 60 s at most (turn_wait_max_s)") is is_told
