"""Which nodes have the images that a pod needs, compared with kube-scheduler's ImageLocality as its source has it."""

from __future__ import annotations

import random

import pytest

from core.constraints.images import Images, Liking
from core.model import Container, Image, NodeName, Pod, PodUid

MIB = 2**20
NAMES = ("a:1", "b:1", "c:1")


def needing(*images, containers=None):
    count = len(images) if containers is None else containers
    return Pod(
        uid=PodUid("p"),
        namespace="d",
        name="p",
        images=images,
        containers=tuple(Container(name=f"c{at}") for at in range(count)),
    )


def image(name, mib):
    return Image((name, f"{name}@sha256:0"), mib * MIB)


def score(pod, there, nodes):
    """ImageLocality.Score of a node that has *there*; nodes: what each node has, size in bytes by name."""
    summed = 0
    for name in pod.images:
        if name in there:
            having = [one for one in nodes.values() if name in one]
            summed += int(max(one[name] for one in having) * (len(having) / len(nodes)))
    most = 1000 * MIB * len(pod.containers)
    return 100 * (max(min(summed, most), 23 * MIB) - 23 * MIB) // (most - 23 * MIB)


def test_a_node_with_a_large_image_of_the_pod_comes_before_others():
    images = Images()
    images.set_node(NodeName("n0"), ())
    images.set_node(NodeName("n1"), (image("a:1", 800),))
    liking = images.liking(needing("a:1"))
    assert liking is not None
    assert liking.level(NodeName("n1")) > liking.level(NodeName("n0")) == 0


@pytest.mark.parametrize(
    ("has", "pod"),
    [
        pytest.param({"n0": ("a:1", 800), "n1": ("a:1", 800)}, needing("a:1"), id="all nodes have it"),
        pytest.param({"n0": ("a:1", 800), "n1": None}, needing("b:1"), id="it is nowhere"),
        pytest.param({"n0": ("a:1", 800), "n1": None}, needing(), id="none is needed"),
        pytest.param({"n0": ("a:1", 40), "n1": None}, needing("a:1"), id="half of 40 MiB is less than 23"),
    ],
)
def test_nothing_is_kept_in_order_where_images_tell_no_node_from_another(has, pod):
    images = Images()
    for name, what in has.items():
        images.set_node(NodeName(name), (image(*what),) if what else ())
    assert images.liking(pod) is None


def test_a_name_with_a_digest_means_the_same_image():
    images = Images()
    images.set_node(NodeName("n0"), (image("a:1", 800),))
    images.set_node(NodeName("n1"), ())
    liking = images.liking(needing("a:1@sha256:0"))
    assert liking is not None
    assert list(liking.nodes()) == ["n0"]


@pytest.mark.parametrize("seed", range(60))
def test_levels_are_in_the_order_of_kube_schedulers_scores_whatever_comes_and_goes(seed):
    chance = random.Random(seed)
    images = Images(standing_max=chance.choice((4, 1000)))
    pods = [
        needing(*chance.choices((*NAMES, "d:1"), k=count), containers=max(count - chance.choice((0, 0, 1)), 1))
        for count in (1, 1, 2, 3)
    ]
    nodes: dict[str, dict[str, int]] = {}
    # Of each pod what was read before: the liking, its cursor, and the levels.
    read: dict[int, tuple[Liking, int, dict[str, int]]] = {}
    for _ in range(60):
        name = NodeName(f"n{chance.randrange(6)}")
        if name in nodes and chance.random() < 0.2:
            del nodes[name]
            images.remove_node(name)
        else:
            sizes = {one: chance.choice((30, 30, 200, 900, 1500)) for one in NAMES if chance.random() < 0.6}
            nodes[name] = {one: mib * MIB for one, mib in sizes.items()}
            images.set_node(name, tuple(image(one, mib) for one, mib in sizes.items()))
        for at, pod in enumerate(pods):
            if chance.random() < 0.3:
                continue
            wanted = {node: score(pod, there, nodes) for node, there in nodes.items()}
            liking = images.liking(pod)
            assert (liking is not None) == (len(set(wanted.values())) > 1)
            if liking is None:
                continue
            levels = {node: liking.level(NodeName(node)) for node in nodes}
            for one in nodes:
                for other in nodes:
                    assert (levels[one] < levels[other]) == (wanted[one] < wanted[other])
            assert liking.top == max(levels.values())
            assert set(liking.nodes()) == {node for node, level in levels.items() if level}
            before, cursor, known = read.get(at, (liking, -1, {}))
            if before is liking and (changed := liking.log.since(cursor)) is not None:
                assert {node for node in nodes if known.get(node, 0) != levels[node]} <= set(changed)
            read[at] = liking, liking.log.cursor, levels
