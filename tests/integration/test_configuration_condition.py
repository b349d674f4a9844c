"""What the controller's own pod says of the configuration."""

from __future__ import annotations

from typing import Any

from core.names import CONFIGURATION_ACCEPTED
from tests.support.worlds.controller_rig import pod

MIG_NODE: dict[str, Any] = {
    "name": "a100-a",
    "plugin": {"kind": "vgpu", "model": "NVIDIA A100-SXM4-40GB", "memory_mib": 40960, "count": 2, "mode": "mig"},
}
MIG = {"volcano.sh/vgpu-mode": "mig"}
SLICE = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "5000"}
OWN = "/api/v1/namespaces/default/pods/controller-0"
DEVICES = "/api/v1/namespaces/kube-system/configmaps/volcano-vgpu-device-config"
ALL_KNOWN = "scheduler_names: [cardshare]\n"


async def accepted(world, status, reason):
    """The condition of the controller's own pod, once it says that."""

    async def asked():
        for one in (await world.client.get(OWN)).get("status", {}).get("conditions", ()):
            if one["type"] == CONFIGURATION_ACCEPTED and (one["status"], one["reason"]) == (status, reason):
                return one
        return None

    return await world.until(asked)


async def test_the_controllers_own_pod_says_whether_the_configuration_is_in_force(rig, tmp_path):
    settings = tmp_path / "settings"
    settings.mkdir()
    (settings / "cardshare.yaml").write_text(ALL_KNOWN)
    async with rig(nodes=[MIG_NODE]) as world:
        await world.add({**pod("controller-0", {}), "status": {}})
        await world.controller("--pod", "default/controller-0", "--settings", str(settings))
        first = await accepted(world, "True", "Accepted")
        # Of others' formats: noted, and all else is in force.
        text = (await world.client.get(DEVICES))["data"]["device-config.yaml"]
        noted = text.replace("nvidia:\n", "nvidia:\n  gpuMemoryFacto: 3\n", 1)
        await world.client.patch(DEVICES, {"data": {"device-config.yaml": noted}})
        second = await accepted(world, "True", "AcceptedWithNotes")
        assert "volcano-vgpu-device-config: nvidia.gpuMemoryFacto: unknown, has no effect" in second["message"]
        assert second["lastTransitionTime"] == first["lastTransitionTime"]
        # Refused, with every problem of every text; what was in force stays, and pods are placed by it.
        await world.client.patch(DEVICES, {"data": {"device-config.yaml": "nvidia: [\n"}})
        (settings / "cardshare.yaml").write_text("polizy: spread\nbind_in_flight_max: 0\n")
        await accepted(world, "False", "Refused")

        async def told_of_all():
            found = (await accepted(world, "False", "Refused"))["message"]
            return found if "polizy" in found and "device-config.yaml" in found else ""

        message = await world.until(told_of_all)
        for words in ("did you mean 'policy'?", "bind_in_flight_max: found '0'", "the last good configuration stays"):
            assert words in message
        await world.add(pod("small", SLICE, annotations=MIG))
        await world.phase("small")
        await world.client.patch(DEVICES, {"data": {"device-config.yaml": text}})
        (settings / "cardshare.yaml").write_text(ALL_KNOWN)
        await accepted(world, "True", "Accepted")


async def test_a_pod_that_cannot_be_told_is_no_reason_to_stop(rig, tmp_path):
    async with rig(nodes=[MIG_NODE]) as world:
        running = await world.controller("--pod", "default/gone")

        async def said():
            return "the condition of this pod cannot be written" in running.log_tail(100)

        await world.until(said)
        await world.add(pod("small", SLICE, annotations=MIG))
        await world.phase("small")
