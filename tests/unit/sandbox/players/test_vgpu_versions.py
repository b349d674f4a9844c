"""The vGPU player as the releases of the plugin that differ in what they write and whom they serve (nvidia 7.2)."""

from __future__ import annotations

import pytest

from sandbox.nodes.plugin_port import AllocateError
from sandbox.players.registry import build
from sandbox.players.vgpu import NUMBER, VgpuPlugin
from sandbox.players.vgpu_protocol import Version
from tests.support.servers.memory_api import MemoryApi

NODE = "/api/v1/nodes/node-a"
REGISTER, HANDSHAKE = "volcano.sh/node-vgpu-register", "volcano.sh/node-vgpu-handshake"
OLD = pytest.mark.parametrize("version", [Version.V1_11_0, Version.V1_12_0])


def plugin(api: MemoryApi, version: Version, count: int = 4) -> VgpuPlugin:
    api.add_node("node-a")
    made = build("vgpu", "node-a", {"count": count, "version": version.value}, api)
    assert isinstance(made, VgpuPlugin)
    return made


def assigned(devices: int, time: int) -> dict[str, str]:
    return {
        "volcano.sh/vgpu-node": "node-a",
        "volcano.sh/vgpu-time": str(time),
        "volcano.sh/devices-to-allocate": "".join(f"GPU-node-a-{i},NVIDIA,{time},10:" for i in range(devices)),
        "volcano.sh/bind-phase": "allocating",
    }


@OLD
async def test_old_versions_rewrite_the_handshake_and_name_the_cards_in_any_order(version):
    api = MemoryApi()
    player = plugin(api, version)
    await player.start()
    seen = set()
    for _ in range(20):
        await player.beat()
        seen.add((api.annotations(NODE)[REGISTER], api.annotations(NODE)[HANDSHAKE]))
    assert len({register for register, _ in seen}) > 1
    assert len({tuple(sorted(register.split(":"))) for register, _ in seen}) == 1
    assert len({handshake for _, handshake in seen}) == 20
    assert all(handshake.startswith("Reported 2") for _, handshake in seen)
    assert player.beat_s == 30.0


async def test_main_writes_no_handshake_and_leaves_that_of_the_version_before():
    api = MemoryApi()
    player = plugin(api, Version.MAIN)
    await player.start()
    assert HANDSHAKE not in api.annotations(NODE)
    await player.become(Version.V1_12_0)
    left = api.annotations(NODE)[HANDSHAKE]
    await player.become(Version.MAIN)
    assert (api.annotations(NODE)[HANDSHAKE], player.beat_s) == (left, 0.0)


@pytest.mark.parametrize("version", list(Version))
async def test_only_v1_11_0_takes_a_pod_of_another_number_of_devices(version):
    api = MemoryApi()
    older = api.add_pod("older", annotations=assigned(2, 5), uid="u-older")
    newer = api.add_pod("newer", annotations=assigned(1, 6), uid="u-newer")
    player = plugin(api, version)
    if version is Version.V1_11_0:
        with pytest.raises(AllocateError, match="device number not matched"):
            await player.allocate(NUMBER, 1)
        assert (api.annotations(older)["volcano.sh/bind-phase"], player.meant_for) == ("failed", "")
        return
    await player.allocate(NUMBER, 1)
    assert (api.annotations(newer)["volcano.sh/bind-phase"], player.meant_for) == ("success", "u-newer")


async def test_v1_11_0_marks_an_unrelated_pod_failed_where_it_finds_none():
    api = MemoryApi()
    unrelated = api.add_pod("a", annotations={}, node="node-b")
    with pytest.raises(AllocateError, match="device request not found"):
        await plugin(api, Version.V1_11_0).allocate(NUMBER, 1)
    assert api.annotations(unrelated)["volcano.sh/bind-phase"] == "failed"
