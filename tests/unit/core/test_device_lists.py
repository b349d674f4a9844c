"""Which kubelets list the devices of a pod, and how many a pod has."""

import pytest

from core.device_lists import DEVICES_MAX, device_count, listed_on
from core.model import Container, Node, NodeName, Pod, PodUid

MEMORY, NUMBER = "volcano.sh/vgpu-memory", "volcano.sh/vgpu-number"


def node(version: str) -> Node:
    return Node(name=NodeName("a"), kubelet_version=version, allocatable={MEMORY: "65536", "cpu": "4"})


@pytest.mark.parametrize("version", ["v1.36.1", "v1.36.0+k3s1", "v1.37.0-alpha.1", "v2.0.0"])
def test_a_kubelet_of_1_36_or_newer_lists_what_its_node_has(version):
    assert listed_on(node(version), (MEMORY, NUMBER)) == {MEMORY}


@pytest.mark.parametrize("version", ["v1.35.9", "v1.9.0", "", "unknown"])
def test_an_older_kubelet_and_one_that_says_no_version_list_nothing(version):
    assert listed_on(node(version), (MEMORY, NUMBER)) == frozenset()


def test_devices_of_all_containers_and_resources_count_together():
    limits = {MEMORY: "12k", NUMBER: "1"}
    one, other = (Container(name=name, limits=limits, requests=limits) for name in "ab")
    pod = Pod(uid=PodUid("u"), namespace="n", name="p", containers=(one, other))
    assert device_count(pod, (MEMORY, NUMBER)) == 24_002 > DEVICES_MAX
    assert device_count(pod, (NUMBER,)) == 2


def test_what_is_no_quantity_counts_nothing():
    broken = Container(name="a", limits={MEMORY: "much"}, requests={})
    assert device_count(Pod(uid=PodUid("u"), namespace="n", name="p", containers=(broken,)), (MEMORY,)) == 0
