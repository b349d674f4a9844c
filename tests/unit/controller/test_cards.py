import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from controller.actions import Inbox
from controller.metrics import card_series
from controller.reporting.answers import UNKNOWN, answer
from core.dialects.hami import keys as hami_keys
from core.model import Node, NodeName
from tests.support.worlds.world import World, node, pod

VGPU = "volcano_vgpu_device"


def test_cards_have_volcanos_series_by_id_and_node():
    world = World(node("n1", cards=2))
    world.adds(pod("a", memory=4000), pod("b", memory=1000))
    world.placed()
    lines = "".join(card_series(world.ledger, per_pod=False)).splitlines()
    assert f'{VGPU}_shared_number{{devID="n1-0",NodeName="n1"}} 2' in lines
    assert f'{VGPU}_allocated_memory{{devID="n1-0",NodeName="n1"}} 5000' in lines
    assert f'{VGPU}_allocated_cores{{devID="n1-1",NodeName="n1"}} 0' in lines
    assert f'{VGPU}_memory_limit{{devID="n1-1",NodeName="n1"}} 10000' in lines
    assert lines.count(f"# TYPE {VGPU}_memory_limit gauge") == 1
    assert not any("certain_pod" in line for line in lines)


def test_series_of_pods_are_written_where_they_are_asked_for():
    world = World(node("n1", cards=2))
    world.adds(pod("a", memory=4000, number=2))
    world.placed()
    text = "".join(card_series(world.ledger, per_pod=True))
    labels = 'devID="n1-1",NodeName="n1",podName="default/a"'
    assert f"{VGPU}_memory_allocation_for_a_certain_pod{{{labels}}} 4000\n" in text


def test_series_of_hamis_pods_name_namespace_and_pod_and_add_up_containers():
    card = {"id": "GPU-a", "count": 10, "devmem": 40960, "devcore": 100, "type": "NVIDIA A10", "health": True}
    world = World(
        Node(
            name=NodeName("n1"),
            annotations={hami_keys.REGISTER: json.dumps([card])},
            allocatable={"nvidia.com/gpu": "10"},
        )
    )
    wire = "GPU-a,NVIDIA,1000,10:;GPU-a,NVIDIA,24,5:;"
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}
    held = pod("a", limits=limits, node_name=NodeName("n1"), annotations={hami_keys.ALLOCATED: wire})
    world.adds(held)
    text = "".join(card_series(world.ledger, per_pod=True))
    labels = 'device_uuid="GPU-a",node="n1",namespace="default",pod="a"'
    assert f"hami_vgpu_memory_allocated_bytes{{{labels}}} {1024 * 2**20}\n" in text
    assert f"hami_vgpu_core_allocated_ratio{{{labels}}} 15\n" in text
    assert "hami_vgpu" not in "".join(card_series(world.ledger, per_pod=False))


def test_names_that_would_break_the_text_are_escaped():
    world = World(node('n"1'))
    assert 'NodeName="n\\"1"' in "".join(card_series(world.ledger, per_pod=False))


async def test_the_answer_for_a_pod_that_waits_names_stage_place_and_reason():
    world = World(node("n1"))
    world.adds(pod("a"), pod("b"))
    world.plan()

    async def nothing(shape):
        raise AssertionError(shape)

    found = await answer(world.scheduler, Inbox(float), nothing, "default/b")
    assert (found["state"], found["node"], found["cards"]) == ("turn", "n1", [{"card": "n1-0", "share": "1000 MiB"}])
    assert "waits until the device plugin there has served" in found["text"]
    assert (await answer(world.scheduler, Inbox(float), nothing, "default/nobody"))["state"] == UNKNOWN


HOSTILE = (
    'GPU-"quoted"',
    "GPU-back\\slash",
    "GPU-line\nbreak",
    "GPU-return\rhere",
    "GPU-\x00\x1b[31mred",
    'GPU-"} 1\nforged{x="y',
    "GPU-\u2028separator\u202eturned",
    "GPU-\ud800alone",
    "GPU-" + "long" * 5000,
    "GPU-" + "long" * 5000 + "er",
    " ",
    "{}",
)


@pytest.mark.parametrize("per_pod", [False, True])
def test_whatever_a_register_says_the_exposition_can_be_parsed(per_pod):
    register = "".join(f"{uuid},10,10000,NVIDIA-T4,true,hami-core:" for uuid in (*HOSTILE, HOSTILE[0], ""))
    world = World(node("n1", annotations={"volcano.sh/node-vgpu-register": register}), node("n2"))
    if per_pod:
        world.adds(*[pod(f"p{i}", memory=9000) for i in range(len(HOSTILE) + 1)])
        world.placed()
    text = "".join(card_series(world.ledger, per_pod=per_pod))
    assert max(map(len, text.splitlines())) < 1000
    assert all(line.isprintable() for line in text.split("\n"))
    found = [one for one in text_string_to_metric_families(text.encode().decode()) if one.name.startswith(VGPU)]
    assert len(found) == (6 if per_pod else 4)
    for family in found:
        labels = [tuple(sorted(sample.labels.items())) for sample in family.samples]
        assert len(labels) == len(set(labels))
        assert all(sample.name == family.name for sample in family.samples)
    assert 'GPU-"quoted"' in {sample.labels["devID"] for sample in found[0].samples}
    assert {sample.labels["NodeName"] for sample in found[0].samples} == {"n1", "n2"}
