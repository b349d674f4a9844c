"""cardshare installed by its overlay, on a real node: what containers have is what was assigned and asked."""

from collections.abc import Iterator

import pytest

from tests.support.node.cluster import Cluster
from tests.support.node.product import by_overlay
from tests.support.node.world import World, pod, vgpu

VGPU = tuple(vgpu(1))


@pytest.fixture(scope="module")
def world(cluster: Cluster) -> Iterator[World]:
    """The product and two cards of 32 GiB, sold by the dialect `vgpu`."""
    found = World(cluster=cluster)
    with by_overlay(cluster), found.plugin("vgpu", VGPU, model="Tesla V100-SXM2-32GB", memory_mib=32768, count=2):
        yield found


def test_a_pod_runs_with_what_it_asked_for(empty: World):
    empty.create(pod("one", vgpu(3000, 30)))
    (one,) = empty.running("one").values()
    assert one["spec"]["schedulerName"] == "cardshare"


def test_twenty_pods_at_once_each_get_their_own(empty: World):
    names = [f"p{at:02}" for at in range(20)]
    empty.create(*(pod(name, vgpu(1000 + 37 * at)) for at, name in enumerate(names)))
    empty.running(*names, within_s=90)
