"""What containers of one pod take of cards together: what runs at the same time adds up, what ends before does not.

An init container ends before the next one in the list starts; a sidecar starts in its place and stays (KEP-753). Every
moment of a pod's life is laid out here anew, and what it holds then is added up.
"""

import json
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from core import model
from core.catalog import standard_catalog
from core.dialects.gpushare.pods import total_of
from core.dialects.whole_gpu.pool import gpus_of
from core.ledger import Ledger
from core.model import Container, Node, NodeName, Pod, PodUid
from core.placing.decide import Shape, node_policy, shape_of, try_decide
from core.settings import Settings, Tables
from core.sharing.account import Entry
from sandbox.players import hami_instances
from tests.support.devices import ascend

TOTAL_MIB = 16_000
ROOM = {"pods": "20", "cpu": "64"}
# Memory and cores of a share by HAMi's names, and of one of a chip that is cut softly.
SHARE = ("nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores")
CHIP = tuple(f"huawei.com/Ascend910B3{suffix}" for suffix in ("", "-memory", "-core"))
RULE = node_policy(Settings())


def some_pod(chance, names, amounts, most):
    """A pod that asks by *names*, with up to *most* init containers and sidecars in any order."""
    count, memory, cores = names

    def container(name, **fields):
        limits = {count: "1", memory: str(chance.choice(amounts)), cores: str(chance.choice((0, 10, 30)))}
        asks = chance.random() < 0.85
        return Container(name, limits=limits if asks else {}, **fields)

    inits = [container(f"i{at}", sidecar=chance.random() < 0.4) for at in range(chance.randint(0, most))]
    soft = {"huawei.com/vnpu-mode": "hami-core"} if names is CHIP else {}
    return Pod(
        uid=PodUid("p"),
        namespace="ns",
        name="p",
        scheduler_name="cardshare",
        annotations=soft,
        containers=tuple(container(f"c{at}") for at in range(chance.randint(1, 2))),
        init_containers=tuple(inits),
    )


def moments(pod):
    """Which containers run together, by their places in the list, at every moment of the pod's life."""
    sidecars: list[int] = []
    for at, one in enumerate(pod.init_containers):
        yield [*sidecars, at]
        if one.sidecar:
            sidecars.append(at)
    first = len(pod.init_containers)
    yield [*sidecars, *range(first, first + len(pod.containers))]


def most(pod, resource):
    """The most of *resource* that is taken at any moment."""
    every = (*pod.init_containers, *pod.containers)
    return max(sum(int(every[at].limits.get(resource, "0")) for at in running) for running in moments(pod))


def memory_of(entry):
    return entry.memory if isinstance(entry, Entry) else entry.memory_mib


def peaks(pod, entries):
    """Of each card the most memory, cores and shares that *entries* take of it at any moment."""
    found: dict[str, list[int]] = {}
    for running in moments(pod):
        at_once: Counter[tuple[str, int]] = Counter()
        for one in entries:
            if one.container in running:
                for at, amount in enumerate((memory_of(one), one.cores, 1)):
                    at_once[one.uuid, at] += amount
        for uuid in {one.uuid for one in entries}:
            now = [at_once[uuid, at] for at in range(3)]
            found[uuid] = list(map(max, found.get(uuid, [0, 0, 0]), now))
    return found


def hami_node(cards):
    register = [
        {"id": f"GPU-{at}", "index": at, "count": 10, "devmem": TOTAL_MIB, "devcore": 100, "type": "NVIDIA L40S"}
        | {"mode": "hami-core", "health": True}
        for at in range(cards)
    ]
    annotations = {"hami.io/node-nvidia-register": json.dumps(register)}
    allocatable = {**ROOM, "nvidia.com/gpu": str(10 * cards)}
    return Node(name=NodeName("n"), annotations=annotations, labels={"gpu": "on"}, allocatable=allocatable)


def chip_node(chips):
    node = ascend.node("Ascend910B3", [f"U{at}" for at in range(chips)], soft=True)
    return replace(node, allocatable={**node.allocatable, **ROOM})


def cut_node():
    """Two cards in mode mig, as HAMi's plugin registers them."""
    cards = [
        {"id": f"GPU-{at}", "index": at, "count": 7, "devmem": 40960, "devcore": 100, "type": "NVIDIA A100"}
        | {"mode": "mig", "health": True, "migProfiles": hami_instances.profiles()}
        for at in range(2)
    ]
    return replace(hami_node(2), annotations={"hami.io/node-nvidia-register": json.dumps(cards)})


def placed(node, pod):
    ledger = Ledger(standard_catalog(), Tables(), Settings())
    ledger.set_node(node)
    shape: Any = shape_of(pod, ledger)
    if isinstance(shape, Shape) and shape.dialect is not None:
        return shape, try_decide(ledger, RULE, pod, shape)
    return None, None


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("names", [SHARE, CHIP], ids=["hami", "ascend"])
def test_of_several_cards_each_loses_what_is_taken_of_it_at_the_worst_moment(names, seed):
    chance, told = random.Random(seed), 0
    for _ in range(150):
        pod = some_pod(chance, names, (2000, 5000, 8000, 15_000), 3)
        every = (*pod.init_containers, *pod.containers)
        _, found = placed(hami_node(3) if names is SHARE else chip_node(len(every)), pod)
        if found is not None:
            told += 1
            charges = {one.uuid: [one.memory, one.cores, one.slots] for one in found.assignment.charges}
            assert charges == peaks(pod, found.assignment.entries)
    assert told > 20


@pytest.mark.parametrize("seed", range(8))
def test_no_two_containers_that_run_together_have_one_instance_and_those_that_do_not_may(seed):
    chance, shared = random.Random(seed), 0
    for _ in range(150):
        pod = some_pod(chance, SHARE, (4000, 4000, 9000), 3)
        _, found = placed(cut_node(), pod)
        if found is None:
            continue
        instances = {one.container: (one.uuid, one.slice) for one in found.assignment.entries}
        for running in moments(pod):
            together = [instances[at] for at in running if at in instances]
            assert len(together) == len(set(together)), pod
        shared += len(set(instances.values())) < len(instances)
    assert shared > 10


@pytest.mark.parametrize("seed", range(4))
def test_whole_cards_memory_and_what_nodes_have_add_up_alike(seed):
    chance = random.Random(seed)
    for _ in range(150):
        pod = some_pod(chance, SHARE, (1, 2, 5), 4)
        assert gpus_of(pod, []) == most(pod, SHARE[0])
        assert total_of(pod, SHARE[1]) == most(pod, SHARE[1])
        amounts = dict(model.amounts_of(pod))
        assert [amounts.get(name, 0) for name in SHARE] == [most(pod, name) for name in SHARE]
