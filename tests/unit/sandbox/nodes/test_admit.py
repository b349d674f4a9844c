"""What a kubelet decides about a pod."""

from decimal import Decimal

from sandbox.nodes.admit import Ask, asks, requests, shortage

VGPU = "volcano.sh/vgpu-number"


def container(name, sidecar=False, **resources):
    named = {VGPU if key == "vgpu" else key: str(value) for key, value in resources.items()}
    spec = {"name": name, "resources": {"limits": named, "requests": named}}
    return {**spec, "restartPolicy": "Always"} if sidecar else spec


def pod(*containers, init=()):
    return {"spec": {"initContainers": list(init), "containers": list(containers)}}


def test_plugins_are_asked_container_by_container_init_containers_first():
    found = pod(container("a", vgpu=1), container("b", cpu=1), container("c", vgpu=2), init=[container("i", vgpu=3)])
    assert list(asks(found, [VGPU])) == [
        Ask(container="i", resource=VGPU, count=3),
        Ask(container="a", resource=VGPU, count=1),
        Ask(container="c", resource=VGPU, count=2),
    ]


def test_a_limit_of_zero_asks_for_nothing():
    assert list(asks(pod(container("a", vgpu=0)), [VGPU])) == []


def test_a_pod_needs_its_sum_or_its_largest_first_step():
    init = [container("big", cpu=5), container("side", sidecar=True, cpu=1), container("late", cpu=3)]
    assert requests(pod(container("a", cpu=1), container("b", cpu=1), init=init))["cpu"] == 5
    assert requests(pod(container("a", cpu=3), container("b", cpu=2), init=init))["cpu"] == 6


def test_a_shortage_tells_the_numbers():
    short = shortage({VGPU: Decimal(2), "pods": Decimal(1)}, [{VGPU: Decimal(3)}], {VGPU: "4", "pods": "110"})
    assert short is not None
    assert short.reason == f"OutOf{VGPU}"
    assert short.message.endswith(f"resource: {VGPU}, requested: 2, used: 3, capacity: 4")


def test_an_extended_resource_that_the_node_does_not_know_is_left_out():
    assert shortage({"volcano.sh/vgpu-cores": Decimal(50)}, [], {}) is None
    short = shortage({"cpu": Decimal(1)}, [], {})
    assert short is not None
    assert short.reason == "OutOfcpu"
