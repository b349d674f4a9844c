"""What a namespace's pods do, and what its quotas and queues leave."""

from typing import Any

import pytest

from core.catalog import standard_catalog
from core.ledger import Ledger
from core.model import Phase, Pod
from core.settings import Settings, Tables
from core.view import mine
from core.view.fits import Place
from core.view.mine import Left, Mine, mine_of
from core.view.queues import QueueAmount, Queues, QueueState
from core.wire.policies import ResourceQuota
from tests.support.worlds.world import node, pod

ON = {"volcano.sh/vgpu-ids-new": "n1-0,NVIDIA,1000,0:"}
MEMORY, NUMBER = "limits.volcano.sh/vgpu-memory", "requests.volcano.sh/vgpu-number"


def shown(*pods: Pod, quotas: Any = (), queues: Queues | None = None, own: Any = (), nodes: bool = True) -> Mine:
    ledger = Ledger(standard_catalog(), Tables(), Settings())
    if nodes:
        ledger.set_node(node("n1"))
    for one in pods:
        if one.node_name:
            ledger.count(one)
    return mine_of(Place(ledger, "default", quotas, pods), queues=queues, own=own, nodes_are_read=nodes)


def queue(name: str, parent: str = "", **capability: int) -> QueueState:
    amounts = [(one, most, 1) for one, most in capability.items()]
    return QueueState(
        name=name,
        state="Open",
        parent=parent,
        weight=1,
        priority=0,
        amounts=tuple(
            QueueAmount(resource=one, holds=holds, guarantee=None, deserved=None, capability=most)
            for one, most, holds in amounts
        ),
        waiting=0,
        next=None,
        reasons={},
    )


def test_those_that_wait_come_first_and_those_that_ended_do_not_come():
    bound = pod("a", node_name="n1", annotations=ON)
    ended = pod("c", node_name="n1", phase=Phase.SUCCEEDED)
    found = shown(bound, ended, pod("b"))
    assert [(one.pod, one.state) for one in found.pods] == [("default/b", "waits"), ("default/a", "bound")]
    assert [(one.card, one.amount) for one in found.pods[1].cards] == [("n1-0", 1000)]


def test_what_a_pod_holds_is_shown_without_its_node():
    (one,) = shown(pod("a", node_name="n1", annotations=ON), nodes=False).pods
    assert (one.text, one.cards[0].card) == ("default/a is on n1 (Pending) and holds n1-0 (1000 MiB)", "n1-0")


@pytest.mark.interpreted(reason="how many are shown at most is another number here")
def test_pods_beyond_what_is_shown_are_counted(monkeypatch):
    monkeypatch.setattr(mine, "_PODS_MAX", 1)
    found = shown(pod("a"), pod("b"))
    assert (len(found.pods), found.count) == (1, 2)


def test_quotas_leave_what_pods_do_not_hold_and_never_less_than_nothing():
    quotas = [ResourceQuota("default", "q", {MEMORY: 4000, NUMBER: 2}, {NUMBER: 3})]
    found = shown(pod("a", node_name="n1", annotations=ON), quotas=quotas)
    assert found.left == (
        Left(kind="ResourceQuota", name="q", resource=MEMORY, limit=4000, held=1000, left=3000),
        Left(kind="ResourceQuota", name="q", resource=NUMBER, limit=2, held=3, left=0),
    )


def test_queues_leave_their_capability_and_so_do_their_ancestors():
    queues = Queues(queues=(queue("all", cpu=8), queue("other", cpu=9), queue("team", parent="all", cpu=2)))
    found = shown(pod("a"), queues=queues, own={"team"})
    assert [(one.kind, one.name, one.left) for one in found.left] == [("Queue", "all", 7), ("Queue", "team", 1)]
