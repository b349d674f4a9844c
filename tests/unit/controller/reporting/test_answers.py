import asyncio

import pytest

from controller.actions import Inbox
from controller.reporting.answers import answer
from core.explaining.explain import Explanation
from core.model import NodeName, Phase
from core.settings import DialectName, Settings
from core.waiting import Cause, Wait
from core.wire.policies import DisruptionBudget
from tests.support.worlds.world import World, node, pod

HELD = {"volcano.sh/vgpu-ids-new": "n1-0,NVIDIA,1000,0:"}


async def unasked(shape):
    raise AssertionError(shape)


async def test_a_bound_pod_is_told_its_node_its_cards_and_why_that_mode():
    world = World(node("n1"), node("n2"))
    world.adds(pod("p", node_name="n1", annotations=HELD))
    found = await answer(world.scheduler, Inbox(float), unasked, "default/p")
    assert (found["state"], found["node"]) == ("bound", "n1")
    assert found["text"].startswith("is bound to n1: n1-0 (1000 MiB)\nThe mode was chosen: hami-core on n1")


async def test_a_bound_pod_whose_node_is_gone_is_told_so():
    world = World(node("n1"))
    world.adds(pod("p", node_name="n1", annotations=HELD))
    world.scheduler.nodes.gone(NodeName("n1"))
    found = await answer(world.scheduler, Inbox(float), unasked, "default/p")
    assert found["text"] == "is bound to node n1, which does not exist; delete the pod, or restore the node"


async def test_nothing_is_told_of_a_pod_while_another_configuration_is_taken():
    world = World(*[node(f"n{i}") for i in range(40)])
    world.adds(pod("p", node_name="n39", annotations=HELD))
    inbox = Inbox(float)
    another = Settings(dialects=frozenset({DialectName("gpu_memory")}))
    inbox.put(lambda: world.scheduler.configure(world.ledger.tables, another))
    inbox.work(0.0)
    answering = asyncio.create_task(answer(world.scheduler, inbox, unasked, "default/p"))
    while inbox.work(0.0):
        assert not answering.done()
        await asyncio.sleep(0)
    assert (await answering)["state"] == "bound"


async def test_a_pod_that_waits_for_a_node_that_rests_is_told_what_its_kubelet_said_and_what_its_owner_avoids():
    world = World(node("n1"))
    for name in ("p0", "p1", "p2"):
        world.adds(pod(name, owner="ReplicaSet/web"))
        (bind,) = world.binds()
        world.accepts(bind)
        said = {"status_reason": "UnexpectedAdmissionError", "status_message": "no healthy devices present"}
        world.shows(world.seen(name), phase=Phase.FAILED, **said)
        for clear in world.clears():
            world.scheduler.cleared(clear.pod.uid, done=True)
        world.passes(20.0 if name != "p2" else 0.0)
    world.adds(pod("next", owner="ReplicaSet/web"))
    assert world.binds() == []
    found = await answer(world.scheduler, Inbox(float), unasked, "default/next")
    assert (found["state"], found["avoided_nodes"]) == ("turn", ["n1"])
    assert "its kubelet rejected a pod, 3 times in a row: no healthy devices present" in found["text"]
    assert found["text"].endswith("nodes rejected its owner's last pods: n1.")


async def test_a_process_that_decides_nothing_says_so_of_pods_that_are_to_be_decided():
    world = World(node("n1"))
    world.shows(pod("p", scheduled_reason="NeverFits", scheduled_message="CS502 too large"))
    idle = Wait(Cause.NOT_LEADING, "waits for another process")
    found = await answer(world.scheduler, Inbox(float), unasked, "default/p", idle=idle)
    assert (found["state"], found["code"], found["reason"]) == ("ready", "CS560", "NotLeading")
    assert found["text"] == "waits for another process\nIts condition says: CS502 too large"
    found = await answer(world.scheduler, Inbox(float), unasked, "default/p")
    assert (found["code"], found["text"]) == ("CS510", "is about to be decided")


async def test_a_pod_whose_schedulers_name_is_given_up_is_told_so_and_any_other_stranger_nothing():
    world = World(node("n1"))
    world.adds(pod("v", scheduler_name="volcano"), pod("x", scheduler_name="other"))
    found = await answer(world.scheduler, Inbox(float), unasked, "default/v", given_up=("volcano",))
    assert (found["state"], found["code"], found["reason"]) == ("not ours", "CS562", "NameGivenUp")
    for name in ("default/x", "default/v"):
        given_up = ("volcano",) if name == "default/x" else ()
        found = await answer(world.scheduler, Inbox(float), unasked, name, given_up=given_up)
        assert found["state"] == "unknown"


BUDGET = DisruptionBudget("default", "b", ())


async def refused_by_all(shape):
    return Explanation(nodes=1, counts=(("too few cards", 1),), nearest=(), remedy=""), 0.0


@pytest.mark.parametrize(
    ("settings", "budgets", "fields", "state", "when"),
    [
        ({}, (), {}, "off", "preemption is off."),
        ({}, (), {"preempts": False}, "never", "its preemptionPolicy is Never."),
        ({"preemption": True}, (), {}, "on", "they will be evicted once it has been refused for 300 s."),
        ({"preemption": True}, (BUDGET,), {}, "on", "a disruption budget forbids it: b allows 0 of 1 eviction."),
    ],
)
async def test_who_would_leave_for_a_pod_is_told_beforehand(settings, budgets, fields, state, when):
    world = World(node("n1"), **settings)
    world.scheduler.cluster.occupants.budgets_replaced(budgets)
    held = {"volcano.sh/vgpu-ids-new": "n1-0,NVIDIA,10000,0:"}
    world.adds(pod("low", memory=10_000, node_name="n1", annotations=held, phase=Phase.RUNNING, ready=True))
    world.adds(pod("high", memory=10_000, priority=1, **fields))
    world.plan()
    found = await answer(world.scheduler, Inbox(float), refused_by_all, "default/high")
    pods = {"pods": ["default/low"], "pods_of_others": 0}
    assert found["preemption"] == {"state": state, **pods, "nodes": ["n1"], "breaks_budgets": len(budgets)}
    assert found["text"].endswith(f"\n1 pod of a lower priority holds its capacity on n1: default/low; {when}")
    # Of nobody who would leave, nothing is told.
    world.adds(pod("equal", memory=10_000))
    world.plan()
    assert "preemption" not in await answer(world.scheduler, Inbox(float), refused_by_all, "default/equal")


async def test_pods_of_other_namespaces_that_would_leave_are_counted_and_not_named():
    world = World(node("n1", cards=2))
    for name, namespace, card in (("secret", "tenant", 0), ("low", "default", 1)):
        held = {"volcano.sh/vgpu-ids-new": f"n1-{card},NVIDIA,10000,0:"}
        world.adds(pod(name, memory=10_000, node_name="n1", annotations=held, namespace=namespace))
    world.adds(pod("high", memory=10_000, number=2, priority=1))
    world.plan()
    found = await answer(world.scheduler, Inbox(float), refused_by_all, "default/high")
    assert (found["preemption"]["pods"], found["preemption"]["pods_of_others"]) == (["default/low"], 1)
    assert "hold its capacity on n1: default/low and 1 of other namespaces; preemption is off." in found["text"]
    assert "secret" not in str(found)
