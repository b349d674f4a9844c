"""cardshare installed by its overlay, on a real node: what containers have is what was assigned and asked."""

import time
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from typing import Any

import pytest

from tests.support.node.api import RefusedError
from tests.support.node.cluster import NODE, Cluster
from tests.support.node.load import creates
from tests.support.node.product import by_overlay, leader, pods, restarts, unstarted, until_ready
from tests.support.node.reached import NAMESPACE, until_answered
from tests.support.node.waiting import wait
from tests.support.node.world import World, assignments, pod, vgpu

Json = dict[str, Any]

VGPU = tuple(vgpu(1))
# The lease's 15 s, and two looks at it: docs/operators/controller.md.
LEADER_GONE_S = 17.0
# What a slow machine adds to it, in starts of a pod, measured beside it: the next leader first reads what was written.
SLOWER = 10


@pytest.fixture(scope="module")
def world(cluster: Cluster) -> Iterator[World]:
    """The product and two cards, sold by the dialect `vgpu`.

    Cards and pods are small: a kubelet that starts looks up each device among those of every pod, for seconds.
    """
    found = World(cluster=cluster)
    with by_overlay(cluster), found.plugin("vgpu", VGPU, model="NVIDIA A10", memory_mib=2400, count=2):
        yield found


def test_twenty_pods_at_once_each_get_their_own(empty: World):
    names = [f"p{at:02}" for at in range(20)]
    empty.create(*(pod(name, vgpu(100 + 4 * at)) for at, name in enumerate(names)))
    empty.running(*names)


def test_containers_and_cards_of_one_pod_have_shares_of_their_own(empty: World):
    empty.create(pod("two", vgpu(70), vgpu(80, 10)), pod("cards", vgpu(120, cards=2)))
    empty.running("two", "cards")


def test_a_container_that_ends_is_started_again_with_the_same_share(empty: World):
    empty.create(pod("a", vgpu(70)), pod("b", vgpu(71)))
    before = empty.running("a", "b")
    empty.kill("a", "b")
    wait("restarts", lambda: "" if all(restarted(one) for one in empty.read().values()) else "none yet")
    assert assignments(empty.running("a", "b")) == assignments(before)


def test_a_kubelet_that_is_killed_finds_pods_bound_meanwhile_and_those_that_run_keep_theirs(empty: World):
    empty.create(pod("before", vgpu(80)))
    before = empty.running("before")
    with empty.cluster.without_kubelet():
        empty.create(pod("goes", vgpu(93)))
        bound(empty, "goes")
        empty.cluster.api.delete(f"{empty.path}/goes", 0)
        empty.create(pod("stays", vgpu(90)))
    empty.running("before", "stays")
    assert assignments(empty.read("before")) == assignments(before)


def test_no_create_is_lost_while_webhooks_are_rolled_and_evicted(empty: World):
    cluster = empty.cluster
    with creates(cluster.api, empty.namespace) as found:
        found.more(10)
        cluster.kubectl("-n", NAMESPACE, "rollout", "restart", "deployment/cardshare-webhook")
        cluster.kubectl("-n", NAMESPACE, "rollout", "status", "deployment/cardshare-webhook")
        for name in pods(cluster, "webhook"):
            wait("an eviction", partial(unevicted, cluster, name))
            wait("another pod", partial(there, cluster, name))
            until_ready(cluster)
        found.more(10)
    assert found.lost == []


def test_a_webhook_that_is_killed_is_missed_until_it_is_ready_again_at_most(empty: World):
    """Its Service leads to it until kubelet and kube-proxy know, and the API server tries a call once."""
    cluster = empty.cluster
    with creates(cluster.api, empty.namespace) as found:
        killed = pods(cluster, "webhook")[0]
        begun = {killed: restarts(cluster)[killed]}
        found.more(10)
        empty.kill(killed)
        wait("a restart", lambda: unstarted(cluster, begun))
        until_ready(cluster)
        ready_s = time.monotonic()
        found.more(20)
    assert [one for one in found.lost if "failed calling webhook" not in one] == []
    assert found.last_lost_s < ready_s


def test_the_leader_killed_the_next_pod_is_placed_in_time(empty: World):
    begun_s = time.monotonic()
    empty.create(pod("before", vgpu(50)))
    empty.running("before")
    start_s = time.monotonic() - begun_s
    empty.kill(leader(empty.cluster))
    begun_s = time.monotonic()
    empty.create(pod("after", vgpu(60)))
    bound(empty, "after")
    assert time.monotonic() - begun_s < LEADER_GONE_S + SLOWER * start_s
    empty.running("after")
    until_ready(empty.cluster)


def test_after_a_reboot_pods_that_are_made_anew_run(empty: World):
    empty.create(pod("before", vgpu(70)))
    empty.running("before")
    begun = restarts(empty.cluster)
    empty.reboot()
    # Until kubelet reports, the API server has the state from before.
    wait("restarts", lambda: unstarted(empty.cluster, begun))
    until_ready(empty.cluster)
    until_answered(empty.cluster)
    wait("the plugin", lambda: "" if empty.allocatable().get(VGPU[0]) else f"{NODE} offers none")
    # Kubelet admits pods of before without its plugins, and may reject them; somebody makes them anew.
    empty.remove()
    empty.create(pod("after", vgpu(70)), pod("more", vgpu(1200)))
    empty.running("after", "more")


def bound(world: World, name: str) -> None:
    """Wait until a pod is bound, whether or not it runs."""
    wait("a Binding", lambda: "" if world.read(name)[name]["spec"].get("nodeName") else "none")


def unevicted(cluster: Cluster, name: str) -> str:
    """Evict a pod of the webhook, as `kubectl drain` does; why that may not be yet, or ""."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": NAMESPACE}}
    try:
        cluster.api.create(f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction", body)
    except RefusedError as e:
        if e.status != HTTPStatus.TOO_MANY_REQUESTS:
            raise
        return str(e)
    return ""


def there(cluster: Cluster, name: str) -> str:
    """Whether a pod of the webhook is there still."""
    return name if name in pods(cluster, "webhook") else ""


def restarted(one: Json) -> bool:
    """Whether a container of the pod was started again."""
    return any(status["restartCount"] for status in one["status"]["containerStatuses"])
