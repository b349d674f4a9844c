"""What is told of one namespace's pods names no pod of another: conditions, events, previews."""

from __future__ import annotations

import json

import pytest

from controller.actions import Inbox
from controller.reporting.answers import answer, preview
from core.explaining import explain
from core.explaining.refusal import impersonal, refusal_on
from core.model import PodUid
from tests.support.worlds.world import NUMBER, World, node, pod

SECRET = "merger-with-acme"
IDS = "volcano.sh/vgpu-ids-new"
GPU = "nvidia.com/gpu"


def secret(name, **fields):
    return pod(f"{SECRET}-{name}", namespace=SECRET, **fields)._replace(uid=PodUid("0f6b"))


def whole(name, **fields):
    """A pod with a whole GPU of another way of sharing the same cards."""
    limits = {GPU: "1"}
    return secret(name, scheduler_name="default-scheduler", limits=limits, **fields)


def with_gpus(found):
    amounts = {**found.allocatable, GPU: "1"}
    return node(found.name, version="2", allocatable=amounts, capacity=amounts, labels={"nvidia.com/gpu.product": "T4"})


def torn(world):
    world.shows(secret("torn", scheduler_name="default-scheduler", annotations={IDS: f"x {SECRET}"}), node_name="n1")


def unassigned(world):
    world.shows(secret("plain", scheduler_name="default-scheduler"), node_name="n1")


def rival(world):
    world.scheduler.nodes.changed(with_gpus(node("n1")))
    world.shows(whole("gpu"), node_name="n1")


def served(world):
    """A pod that the device plugin does not serve, so that no other of its kind may go there."""
    world.adds(secret("slow"))
    (bind,) = world.binds()
    world.accepts(bind)


def full(world):
    world.adds(secret("large", memory=10_000))
    (bind,) = world.binds()
    bound = world.accepts(bind)
    world.shows(bound, annotations={**bound.annotations, "volcano.sh/bind-phase": "success"}, started=True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("its cards are in use as vgpu by pod a-b/c.d-1", "its cards are in use as vgpu by another pod"),
        (
            "pod a/b: annotation volcano.sh/gpu-index is 'x', which may mean any card; delete the pod",
            "delete the pod there with unknown card use (kubectl cards get names it)",
        ),
        ("annotation volcano.sh/node-vgpu-register: no card", "annotation volcano.sh/node-vgpu-register: no card"),
    ],
)
def test_a_pods_name_is_left_out(text, said):
    assert impersonal(text) == said


@pytest.mark.parametrize("why", [torn, unassigned, rival, served, full], ids=lambda why: why.__name__)
async def test_no_text_of_one_namespace_names_a_pod_of_another(why):
    world = World(node("n1"))
    why(world)
    # Their own events may name them.
    about_them = [one for one in world.announced() if one.about.namespace == SECRET]
    assert why in {rival, served, full} or about_them
    mine = pod("mine", memory=1000)
    world.adds(mine)
    texts = [str(one) for one in world.announced() if one.about.namespace != SECRET]
    for _ in range(400):
        world.passes(1.0)
        texts += [one.message for one in world.announced() if one.about.namespace != SECRET]
    entry = world.scheduler.cluster.queue.get(mine.uid)
    assert entry is not None
    texts.append(entry.wait.text if entry.wait is not None else "")

    async def explained(shape):
        refusals = [
            found
            for state in world.ledger.states.values()
            if (found := refusal_on(world.ledger, shape, state, world.scheduler.cluster.search.policy.cards))
            is not None
        ]
        return explain.summed(refusals, len(world.ledger.states)), 0.0

    inbox = Inbox(lambda: 0.0)
    if entry.shape is not None:
        refused, _ = await explained(entry.shape)
        texts += [explain.sentence(refused), explain.report(refused), repr(refused)]
    document = {
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {
            "schedulerName": "cardshare",
            "containers": [{"name": "c", "resources": {"limits": {NUMBER: "1", "volcano.sh/vgpu-memory": "1000"}}}],
        },
    }
    texts.append(json.dumps(await preview(world.scheduler, inbox, explained, json.dumps(document).encode())))
    shown = await answer(world.scheduler, inbox, explained, mine.key)
    assert any(texts)
    assert not [text for text in texts if SECRET in text]
    if why in {torn, unassigned, rival}:
        assert SECRET in shown["text"], "who may ask for all of it is told which pod it is"
