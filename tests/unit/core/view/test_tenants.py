"""What a reader of one namespace gets names no object of another, whatever the whole answer says of it."""

from dataclasses import replace

import msgspec
import pytest

from core.view.cards import Card, Node, Share, node_for
from core.view.queues import QueueAmount, Queues, QueueState, queues_for
from core.view.waiting import Waiting, WaitingPod, WaitingQueue, WaitingReason, waiting_for

OWN, OTHER = "mine/pod", "theirs/pod"
CLAIMED = Card(
    id="c",
    protocol="vgpu",
    used=3,
    total=4,
    unit="MiB",
    note=f"it is in use through resource claim {OTHER}",
    healthy=False,
    held_by=(Share(pod=OWN, share="1 MiB"), Share(pod=OTHER, share="2 MiB"), Share(pod="mineral/pod", share="1 MiB")),
)
SHARED = replace(CLAIMED, id="d", note="mps", healthy=True, held_by=(Share(pod=OTHER, share="2 MiB"),))
NODE = Node(
    name="n",
    ready=True,
    schedulable=True,
    taints=("a:NoSchedule",),
    cards=(CLAIMED, SHARED),
    totals=(),
    warnings=(f"takes no new pods of vgpu: pod {OTHER} cannot be read",),
)


def pod(name: str) -> WaitingPod:
    return WaitingPod(
        pod=name, code="CS501", reason="", since=None, text=name, nearest="", change="", queue="q", place=2, line=2
    )  # fmt: skip


WAITING = Waiting(
    pods=(pod(OTHER), pod(OWN)),
    reasons=(WaitingReason(code="CS501", reason="", pods=2, oldest=None, first=(OTHER, OWN), change=""),),
    queues=(
        WaitingQueue(queue="q", pods=2, oldest=None, next=OTHER, reasons={"CS501": 2}),
        WaitingQueue(queue="other", pods=1, oldest=None, next=OTHER, reasons={}),
    ),
    notes=(f"pod {OTHER} is bound to a node that does not exist",),
)
AMOUNT = QueueAmount(resource="cpu", holds=5, guarantee=None, deserved=None, capability=9)
QUEUES = Queues(
    queues=tuple(
        QueueState(
            name=name, state="Open", parent="root", weight=1, priority=0, amounts=(AMOUNT,), waiting=2, next=first,
            reasons={"CS501": 2},
        )
        for name, first in (("q", OTHER), ("r", OWN), ("s", None))
    ),
    notes=(f"pod {OTHER} is bound to a node that does not exist",),
)  # fmt: skip


@pytest.mark.parametrize(
    "found",
    [node_for(NODE, "mine"), waiting_for(WAITING, "mine"), queues_for(QUEUES, "mine")],
    ids=["node", "waiting", "queues"],
)
def test_no_name_of_another_namespace_is_left(found):
    text = msgspec.json.encode(found).decode()
    assert OWN in text
    assert "theirs" not in text
    assert "mineral" not in text


def test_pods_of_other_namespaces_are_counted_and_figures_stay():
    first, second = node_for(NODE, "mine").cards
    assert (first.others, second.others) == (2, 1)
    assert (first.used, first.total, first.healthy) == (3, 4, False)
    assert second.note == "mps"
    assert node_for(node_for(NODE, "mine"), "mine") == node_for(NODE, "mine")


def test_sums_of_waiting_pods_are_those_of_the_namespace_and_places_stay():
    found = waiting_for(WAITING, "mine")
    assert [(one.pod, one.place, one.line) for one in found.pods] == [(OWN, 2, 2)]
    assert [(one.pods, one.first) for one in found.reasons] == [(1, (OWN,))]
    assert [(one.queue, one.pods, one.next) for one in found.queues] == [("q", 1, None)]


def test_what_queues_hold_stays_and_the_first_pod_only_if_it_is_ones_own():
    found = queues_for(QUEUES, "mine")
    assert [(one.name, one.waiting, one.next) for one in found.queues] == [
        ("q", 2, None),
        ("r", 2, OWN),
        ("s", 2, None),
    ]
    assert found.queues[0].amounts == (AMOUNT,)
