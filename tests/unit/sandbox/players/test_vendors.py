"""Players of plugins that know of no lock, against an API server in memory."""

import pytest

from sandbox.nodes.plugin_port import AllocateError
from sandbox.players.registry import build
from sandbox.players.vendors import SEEN
from tests.support.servers.memory_api import MemoryApi

CORES, MEMORY = "cambricon.com/mlu.smlu.vcore", "cambricon.com/mlu.smlu.vmemory"
LIMITS = {"cambricon.com/vmlu": "1", CORES: "20", MEMORY: "2k"}
NOTES = {
    "hami.io/cambricon-mlu-devices-allocated": "node-a-cambricon-mlu-1,MLU,512000,20:;",
    "CAMBRICON_DSMLU_ASSIGHED": "false",
    "CAMBRICON_DSMLU_PROFILE": "1_20_2000",
}


def plugin(api, kind="cambricon", **options):
    api.add_node("node-a")
    return build(kind, "node-a", {"count": 2, "memory_mib": 24576, **options}, api)


async def test_the_capacity_has_the_cores_and_the_units_of_memory_of_all_cards():
    api = MemoryApi()
    await plugin(api).start()
    assert api.objects["/api/v1/nodes/node-a"]["status"]["capacity"] == {CORES: "200", MEMORY: "192"}


async def test_a_pod_is_served_by_one_call_for_each_resource_and_says_so():
    api = MemoryApi()
    made = plugin(api)
    path = api.add_pod("a", annotations=NOTES, limits=(LIMITS,), uid="u")
    assert await made.allocate(CORES, 20) == {SEEN: "node-a-cambricon-mlu-1"}
    assert api.annotations(path)["CAMBRICON_DSMLU_ASSIGHED"] == "false"
    assert await made.allocate(MEMORY, 2000) == {SEEN: "node-a-cambricon-mlu-1"}
    assert (api.annotations(path)["CAMBRICON_DSMLU_ASSIGHED"], made.meant_for) == ("true", "u")
    with pytest.raises(AllocateError, match="0 pods wait"):
        await made.allocate(CORES, 20)


# Source: hami-vendors 3.1, VN-4.
@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"CAMBRICON_DSMLU_ASSIGHED": None, "CAMBRICON_DSMLU_ASSIGNED": "false"}, "0 pods wait"),
        ({"CAMBRICON_DSMLU_PROFILE": None}, "cannot be read"),
        ({"CAMBRICON_DSMLU_PROFILE": "1_20"}, "cannot be read"),
        ({"CAMBRICON_DSMLU_PROFILE": "2_20_2000"}, "is of no card"),
    ],
)
async def test_cambricons_plugin_goes_by_its_own_annotations_alone(given, problem):
    api = MemoryApi()
    made = plugin(api)
    notes = {key: text for key, text in {**NOTES, **given}.items() if text is not None}
    api.add_pod("a", annotations=notes, limits=(LIMITS,), uid="u")
    with pytest.raises(AllocateError, match=problem):
        await made.allocate(CORES, 20)


async def test_a_share_is_made_where_its_profile_says():
    api = MemoryApi()
    made = plugin(api)
    api.add_pod("a", annotations={**NOTES, "CAMBRICON_DSMLU_PROFILE": "0_20_2000"}, limits=(LIMITS,), uid="u")
    assert await made.allocate(CORES, 20) == {SEEN: "node-a-cambricon-mlu-0"}


async def test_two_pods_that_wait_are_one_too_many():
    api = MemoryApi()
    made = plugin(api)
    for name in ("a", "b"):
        api.add_pod(name, annotations=NOTES, limits=(LIMITS,), uid=name)
    with pytest.raises(AllocateError, match="2 pods wait"):
        await made.allocate(CORES, 20)


async def test_a_call_for_another_pod_is_refused():
    api = MemoryApi()
    made = plugin(api, "kunlun")
    notes = {"hami.io/kunlun-allocated": "node-a-kunlun-0,kunlun,98304,100:;"}
    api.add_pod("a", annotations=notes, limits=({"kunlunxin.com/xpu": "1"},), uid="u")
    with pytest.raises(AllocateError, match="the pod that waits wants 1 kunlunxin"):
        await made.allocate("kunlunxin.com/xpu", 2)
    assert await made.allocate("kunlunxin.com/xpu", 1) == {SEEN: "node-a-kunlun-0"}
