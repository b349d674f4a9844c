"""What is a broken promise, and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.demo.examples import Expectation, Outcome
from sandbox.demo.outcomes import Sighting, Told, complaints

IDS = "GPU-a-0,NVIDIA,3000,50:"


def placed(**changes: Any) -> Expectation:
    return Expectation(**{"pod": "p", "outcome": Outcome.PLACED, **changes})


def running(annotations: dict[str, str] | None = None, visible: str = "GPU-a-0", phase: str = "Running") -> Sighting:
    env = {"NVIDIA_VISIBLE_DEVICES": visible, "LIMIT": "3000m"}
    return Sighting(
        pod={
            "metadata": {"annotations": {"volcano.sh/vgpu-ids-new": IDS} if annotations is None else annotations},
            "spec": {"nodeName": "node-a"},
            "status": {"phase": phase, "reason": "Because", "message": "of that"},
        },
        env_by_container={"c": env},
    )


def pending(message: str = "") -> Sighting:
    condition = {"type": "PodScheduled", "status": "False", "message": message}
    return Sighting(
        pod={"metadata": {}, "spec": {}, "status": {"phase": "Pending", "conditions": [condition] if message else []}}
    )


HELD = Expectation(
    pod="p",
    outcome=Outcome.PLACED,
    node=("node-*",),
    cards=("GPU-*-0",),
    same_cards_as="q",
    env={"LIMIT": "3000?"},
)
SAME = {"q": ("node-a", ("GPU-a-0",))}


def test_a_pod_that_is_all_that_was_declared_has_no_complaints():
    assert complaints(HELD, running(), SAME) == ()


@pytest.mark.parametrize(
    ("expected", "seen", "complaint"),
    [
        pytest.param(placed(node=("b-*",)), running(), "placed on node-a, not on b-*", id="node"),
        pytest.param(placed(cards=2), running(), "it holds 1 cards (GPU-a-0), not 2", id="count"),
        pytest.param(placed(cards=("GPU-a-1",)), running(), "cards GPU-a-0, not GPU-a-1", id="card"),
        pytest.param(placed(same_cards_as="r"), running(), "not the cards of r", id="shared"),
        pytest.param(placed(env={"LIMIT": "1m"}), running(), "received LIMIT='3000m', not '1m'", id="env"),
        pytest.param(
            placed(), running(visible="GPU-a-1"), "sees the cards 'GPU-a-1', promised were 'GPU-a-0'", id="swap"
        ),
        pytest.param(placed(), running(visible=""), "promised were 'GPU-a-0'", id="nothing-received"),
        pytest.param(placed(), running(phase="Failed"), "Failed, not Running: Because of that", id="failed"),
        pytest.param(placed(), pending("no room"), "not placed: no room", id="waits"),
        pytest.param(placed(), Sighting(denial="bad"), "denied: bad", id="denied"),
        pytest.param(placed(), Sighting(), "the pod does not exist", id="gone"),
        pytest.param(placed(warning=("careful",)), running(), "no warning says 'careful'", id="warning"),
        pytest.param(placed(annotations={"k": "v"}), running(), "annotation k is None", id="annotation"),
    ],
)
def test_a_broken_placement_is_named(expected, seen, complaint):
    (told,) = complaints(expected, seen, SAME)
    assert complaint in told


def test_indices_are_compared_with_what_the_container_sees():
    assert complaints(placed(cards=("0", "2")), running({"volcano.sh/gpu-index": "0,2"}, visible="0,2"), {}) == ()
    assert complaints(placed(), running({"volcano.sh/gpu-index": "1"}, visible="0"), {})


def test_waiting_needs_the_reason_and_no_node():
    waits = Expectation(pod="p", outcome=Outcome.WAITING, reason=("room", "40000"))
    assert complaints(waits, pending("no room for 40000"), {}) == ()
    assert complaints(waits, pending("no room"), {}) == ("the reason does not say '40000': no room",)
    assert complaints(waits, pending(), {}) == ("nothing says why it waits",)
    assert complaints(waits, running(), {}) == ("it was placed on node-a and should wait",)


def test_denial_needs_its_words():
    denied = Expectation(pod="p", outcome=Outcome.DENIED, reason=("cores",))
    assert complaints(denied, Sighting(denial="cores: found 150"), {}) == ()
    assert complaints(denied, Sighting(denial="no"), {}) == ("the denial does not say 'cores': no",)
    assert complaints(denied, running(), {}) == ("it was admitted and should have been denied",)


def test_a_forged_value_must_be_gone_but_the_key_may_be_written_anew():
    stripped = Expectation(pod="p", outcome=Outcome.STRIPPED, stripped=("k",))
    forged = {"metadata": {"annotations": {"k": "forged"}}}
    own = running({"k": "ours"}).pod
    assert complaints(stripped, Sighting(pod=own, manifest=forged), {}) == ()
    assert complaints(stripped, Sighting(pod=running({"k": "forged"}).pod, manifest=forged), {}) == (
        "the forged annotation k is still there: forged",
    )
    assert complaints(stripped, Sighting(pod=own, manifest={}), {}) == (
        "the manifest forges no k, so that this cannot be checked",
    )


def test_who_left_for_another_is_gone_and_was_told():
    evicted = Expectation(pod="p", outcome=Outcome.EVICTED, events={"Preempted": "by pod * on node-a"})
    told = (
        Told(reason="Scheduled", message="by pod x on node-a"),
        Told(reason="Preempted", message="by pod x on node-a"),
    )
    assert complaints(evicted, Sighting(events=told), {}) == ()
    assert complaints(evicted, Sighting(events=told[:1]), {}) == (
        "no event Preempted says 'by pod * on node-a'; said was: nothing",
    )
    assert complaints(evicted, Sighting(pod=running().pod, events=told), {}) == ("it is still there",)
    assert complaints(placed(events={"Scheduled": "to *"}), running(), SAME) == (
        "no event Scheduled says 'to *'; said was: nothing",
    )
