"""The controller follows the cluster's configuration: of Volcano's scheduler, and of the device plugins."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import yaml

from sandbox.demo.product import NAMESPACE, apply
from sandbox.players.registry import DEVICE_CONFIG
from tests.support.worlds.controller_rig import IDS, PODS, pod

MIG_NODE: dict[str, Any] = {
    "name": "a100-a",
    "plugin": {"kind": "vgpu", "model": "NVIDIA A100-SXM4-40GB", "memory_mib": 40960, "count": 2, "mode": "mig"},
}
VOLCANO_SYSTEM = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "volcano-system"}}
MIG = {"volcano.sh/vgpu-mode": "mig"}
CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"
SLICE = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "5000"}
LARGE = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "5121"}


async def test_a_change_of_geometries_is_judged_anew_and_running_pods_keep_their_slices(rig):
    path = f"{CONFIG_MAPS}/volcano-vgpu-device-config"
    text = DEVICE_CONFIG.read_text(encoding="utf-8")
    found = yaml.safe_load(text)
    for model in found["nvidia"]["knownMigGeometries"]:
        del model["allowedGeometries"][1:]
    async with rig(nodes=[MIG_NODE]) as world:
        await world.client.patch(path, {"data": {"device-config.yaml": yaml.safe_dump(found)}})
        await world.controller()
        await world.add(pod("small", SLICE, annotations=MIG))
        small = await world.phase("small")
        await world.add(pod("large", LARGE, annotations=MIG))
        await world.waits("large", "a100-a")
        # What cannot be read changes nothing, and the ConfigMap's readers are told.
        await world.client.patch(path, {"data": {"device-config.yaml": "nvidia: ["}})

        async def told():
            events = await world.client.list("/api/v1/namespaces/kube-system/events")
            return [event for event in events if event["reason"] == "ConfigurationRefused"]

        (event,) = await world.until(told)
        assert event["involvedObject"]["name"] == "volcano-vgpu-device-config"
        assert "cardshare_configuration_refused 1.0" in (await world.http("/metrics"))[1]
        # A layout with larger slices lets the waiting pod in, on the card that is empty.
        await world.client.patch(path, {"data": {"device-config.yaml": text}})
        large = await world.phase("large")
        (other,) = {"GPU-a100-a-0", "GPU-a100-a-1"} - {small["metadata"]["annotations"][IDS].partition("[")[0]}
        assert large["metadata"]["annotations"][IDS].startswith(f"{other}[group2-0]")
        again = await world.client.get(f"{PODS}/small")
        assert again["metadata"]["annotations"] == small["metadata"]["annotations"]
        assert again["status"]["phase"] == "Running"
        assert "cardshare_configuration_refused 0.0" in (await world.http("/metrics"))[1]


async def test_the_configuration_of_volcanos_scheduler_switches_protocols(rig):
    conf = "tiers:\n- plugins:\n  - name: deviceshare\n    arguments:\n      deviceshare.GPUNumberEnable: true\n"
    async with rig(nodes=[MIG_NODE]) as world:
        await world.client.create("/api/v1/namespaces", {"metadata": {"name": "volcano-system"}})
        path = "/api/v1/namespaces/volcano-system/configmaps"
        await world.client.create(
            path, {"metadata": {"name": "volcano-scheduler-configmap"}, "data": {"volcano-scheduler.conf": conf}}
        )

        await world.controller()
        await world.add(pod("p", SLICE, annotations=MIG))
        await world.waits(
            "p", "switched off: 'deviceshare.VGPUEnable' of volcano-scheduler.conf in ConfigMap volcano-system/"
        )
        changed = conf.replace("GPUNumberEnable", "VGPUEnable")
        await world.client.patch(f"{path}/volcano-scheduler-configmap", {"data": {"volcano-scheduler.conf": changed}})
        await world.phase("p")


async def test_what_volcanos_config_map_switches_off_is_denied_at_admission_and_not_left_to_wait(staged):
    conf = "tiers:\n- plugins:\n  - name: deviceshare\n    arguments:\n      deviceshare.GPUNumberEnable: true\n"
    place = "volcano-system/volcano-scheduler-configmap"
    why = f"'deviceshare.VGPUEnable' of volcano-scheduler.conf in ConfigMap {place} is not true"
    path = "/api/v1/namespaces/volcano-system/configmaps"
    async with staged(nodes=[MIG_NODE]) as stage:
        await apply(stage.admin, [VOLCANO_SYSTEM])
        held = {"metadata": {"name": "volcano-scheduler-configmap"}, "data": {"volcano-scheduler.conf": conf}}
        await stage.admin.create(path, held)

        async def refused():
            answer = await stage.person.apply({"apiVersion": "v1", "kind": "Pod", **pod("p", SLICE, annotations=MIG)})
            return answer if not answer.accepted else None

        answer = await until(refused)
        assert ("CS202" in answer.message, why in answer.message) == (True, True), answer
        # Switched on again, it is admitted and placed.
        changed = {"data": {"volcano-scheduler.conf": conf.replace("GPUNumberEnable", "VGPUEnable")}}
        await stage.admin.patch(f"{path}/volcano-scheduler-configmap", changed)

        async def placed():
            await stage.person.apply({"apiVersion": "v1", "kind": "Pod", **pod("q", SLICE, annotations=MIG)})
            found = await stage.person.get("q")
            return found if found and found["spec"].get("nodeName") else None

        assert (await until(placed))["spec"]["nodeName"] == "a100-a"


async def until(ask):
    async with asyncio.timeout(60):
        while not (found := await ask()):  # noqa: ASYNC110 (an API server is asked)
            await asyncio.sleep(0.2)
        return found


async def test_who_makes_a_namespace_that_is_not_trusted_configures_nothing(rig):
    conf = "tiers:\n- plugins:\n  - name: deviceshare\n    arguments:\n      deviceshare.GPUNumberEnable: true\n"
    async with rig(nodes=[MIG_NODE]) as world:
        await world.client.create("/api/v1/namespaces", {"metadata": {"name": "volcano-system"}})
        path = "/api/v1/namespaces/volcano-system/configmaps"
        squatted = {"metadata": {"name": "volcano-scheduler-configmap"}, "data": {"volcano-scheduler.conf": conf}}
        await world.client.create(path, squatted)
        await world.controller("--trust-namespaces", "kube-system")
        await world.add(pod("p", SLICE, annotations=MIG))
        await world.phase("p")
        # Nor does a namespace with the device plugins' name for their configuration, nor a text that nobody could read.
        torn = {"data": {"volcano-scheduler.conf": "tiers: 3"}}
        await world.client.patch(f"{path}/volcano-scheduler-configmap", torn)
        await world.add(pod("q", SLICE, annotations=MIG))
        await world.phase("q")
        assert "cardshare_configuration_refused 0.0" in (await world.http("/metrics"))[1]


async def test_without_a_trusted_namespace_nothing_of_others_is_read(rig):
    async with rig(nodes=[MIG_NODE]) as world:
        await world.controller("--trust-namespaces", "")
        kinds = (await world.http("/metrics"))[1]
        assert 'cardshare_lists_total{kind="pods"}' in kinds
        for kind in ("scheduler-config", "chip-config", "device-config", "chip-states", "node-states"):
            assert f'kind="{kind}"' not in kinds


async def test_hamis_config_map_is_followed_to_where_settings_name_it(rig):
    async with rig(nodes=[MIG_NODE]) as world:
        await world.client.create("/api/v1/namespaces", {"metadata": {"name": "gpu-stack"}})
        torn = {"metadata": {"name": "hami-scheduler-device"}, "data": {"device-config.yaml": "nvidia: 3"}}
        await world.client.create("/api/v1/namespaces/gpu-stack/configmaps", torn)
        file = world.folder / "cardshare.yaml"
        file.write_text("hami_config_namespace: elsewhere\n")
        await world.controller("--settings", str(file), "--trust-namespaces", "")

        async def refused(count):
            return f"cardshare_configuration_refused {count}.0" in (await world.http("/metrics"))[1]

        assert await refused(0)
        for namespace, count in (("gpu-stack", 1), ("elsewhere", 0)):
            file.write_text(f"hami_config_namespace: {namespace}\n")
            await world.until(partial(refused, count))


async def test_a_restart_with_refused_settings_runs_on_those_that_were_in_force(rig):
    async with rig(nodes=[MIG_NODE]) as world:
        await world.ensure("/api/v1/namespaces", NAMESPACE)
        maps = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
        await world.ensure(maps, "cardshare-last-good")
        settings, kept = world.folder / "edited", world.folder / "kept"
        for folder in (settings, kept):
            folder.mkdir()
        file = settings / "cardshare.yaml"
        file.write_text("scheduler_names: [cardshare, night]\n")
        keep_in = f"{NAMESPACE}/cardshare-last-good"
        flags = ("--settings", str(settings), "--last-good", str(kept), "--keep-last-good", keep_in)
        first = await world.controller(*flags)

        async def written():
            found = await world.client.get(f"{maps}/cardshare-last-good")
            return found.get("data", {}).get("cardshare.yaml")

        # What a kubelet does with a mounted ConfigMap.
        (kept / "cardshare.yaml").write_text(await world.until(written))
        first.process.terminate()
        await first.process.wait()

        file.write_text("scheduler_names: [cardshare, night]\npolizy: spread\n")
        await world.controller(*flags)
        _, figures = await world.http("/metrics")
        assert "cardshare_settings_from_before 1.0" in figures
        assert "cardshare_configuration_refused 1.0" in figures
        found = pod("p", SLICE, annotations=MIG)
        found["spec"]["schedulerName"] = "night"
        await world.add(found)
        await world.phase("p")
        assert await written() == "scheduler_names: [cardshare, night]\n"

        file.write_text("scheduler_names: [cardshare, night, day]\n")

        async def mended():
            return "cardshare_settings_from_before 0.0" in (await world.http("/metrics"))[1]

        await world.until(mended)

        async def kept_again():
            return "day" in (await written() or "")

        await world.until(kept_again)
