"""``kubectl cards``: the configuration that it reads from the cluster, and what holds while an edit is refused."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import yaml

from core.configuration import Source
from tests.support.worlds.cards_cluster import cards
from tests.support.worlds.controller_rig import Rig

SYSTEM = "/api/v1/namespaces/kube-system/configmaps"
OWN = "/api/v1/namespaces/cardshare-system/configmaps"
CHIP: dict[str, Any] = {"chipName": "910X", "commonWord": "Ascend910X", "resourceName": "huawei.com/Ascend910X"}
CHIP |= {"resourceMemoryName": "huawei.com/Ascend910X-memory", "memoryAllocatable": 32768}
CHIPS = yaml.safe_dump({"vnpus": {"configs": [{**CHIP, "memoryCapacity": 32768, "aiCore": 30, "templates": []}]}})
REGISTER = [{"id": "chip-0", "count": 4, "devmem": 32768, "devcore": 30, "type": "Ascend910X", "health": True}]
NODE = {
    "name": "npu-x",
    "annotations": {"hami.io/node-register-Ascend910X": json.dumps(REGISTER)},
    "capacity": {"huawei.com/Ascend910X": "4"},
}


async def put(world: Rig, maps: str, name: str, data: dict[str, str]) -> None:
    await world.client.create(maps, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})


async def write(world: Rig, name: str, data: Mapping[str, str]) -> None:
    """Write a ConfigMap of cardshare, which an installation may have already."""
    await world.ensure("/api/v1/namespaces", "cardshare-system")
    await world.ensure(OWN, name)
    await world.client.patch(f"{OWN}/{name}", {"data": data})


async def save(world: Rig, texts: Mapping[Source, str]) -> None:
    """What the controller does with the texts in force."""
    await write(world, "cardshare-last-good", {source.value: text for source, text in texts.items()})


async def test_get_reads_cards_by_what_config_maps_say_and_tells_what_cannot_be_read(rig, capsys):
    async with rig(nodes=[NODE]) as world:
        kubeconfig = str(await asyncio.to_thread(world.write_admins_kubeconfig))
        await cards(kubeconfig, "get")
        assert "chip-0" not in capsys.readouterr().out
        await put(world, SYSTEM, "hami-scheduler-device", {"device-config.yaml": CHIPS})
        await cards(kubeconfig, "get")
        said = capsys.readouterr()
        assert "chip-0" in said.out
        assert "note: " not in said.out
        await world.client.patch(f"{SYSTEM}/hami-scheduler-device", {"data": {"device-config.yaml": "vnpus: 3"}})
        await cards(kubeconfig, "get")
        assert "kube-system/hami-scheduler-device is not used: " in capsys.readouterr().out


async def test_get_shows_the_cards_by_the_texts_that_the_controller_saved_while_an_edit_is_refused(
    rig, capsys, tmp_path
):
    async with rig(nodes=[NODE]) as world:
        kubeconfig = str(await asyncio.to_thread(world.write_admins_kubeconfig))
        await put(world, SYSTEM, "hami-scheduler-device", {"device-config.yaml": "vnpus: 3"})
        await save(world, {Source.CHIPS_MAP: CHIPS})
        await cards(kubeconfig, "get")
        said = capsys.readouterr().out
        assert "chip-0" in said
        told = "kube-system/hami-scheduler-device is not used, the last good configuration stays in force: vnpus: "
        assert told in said
        # A snapshot has it too.
        file = str(tmp_path / "cluster.json.gz")
        assert await cards(kubeconfig, "snapshot", "-o", file) == 0
        await cards("", "get", "--snapshot", file)
        assert "chip-0" in capsys.readouterr().out


async def test_a_wrong_section_of_a_vendor_is_the_saved_one_for_get_too(rig, capsys):
    card = {"id": "amd-0", "count": 4, "devmem": 65536, "devcore": 100, "type": "AMD-MI300X", "health": True}
    annotations = {"hami.io/node-amd-register": json.dumps([card])}
    async with rig(nodes=[{"name": "amd", "annotations": annotations, "capacity": {"a/amd": "4"}}]) as world:
        kubeconfig = str(await asyncio.to_thread(world.write_admins_kubeconfig))
        wrong = "amd: {resourceCountName: cpu}\n"
        await put(world, SYSTEM, "hami-scheduler-device", {"device-config.yaml": wrong})
        saved = json.dumps({"version": 1, "sections": {"amd": "{resourceCountName: a/amd}"}})
        await save(world, {Source.CHIPS_MAP: wrong})
        await cards(kubeconfig, "get")
        assert "amd-0" not in capsys.readouterr().out
        await save(world, {Source.SECTIONS: saved})
        await cards(kubeconfig, "get")
        assert "amd-0" in capsys.readouterr().out


async def test_get_and_doctor_say_which_cards_are_switched_off(rig, capsys):
    register = "GPU-0,10,15360,NVIDIA-Tesla T4,true,hami-core:"
    capacity = {"volcano.sh/vgpu-number": "10", "volcano.sh/vgpu-memory": "15360", "volcano.sh/vgpu-cores": "100"}
    t4 = {"name": "t4-a", "annotations": {"volcano.sh/node-vgpu-register": register}, "capacity": capacity}
    async with rig(nodes=[t4]) as world:
        kubeconfig = str(await asyncio.to_thread(world.write_admins_kubeconfig))
        await write(world, "cardshare-settings", {"cardshare.yaml": "dialects: [gpu_memory]"})
        why = "'dialects' of cardshare.yaml in ConfigMap cardshare-system/cardshare-settings does not list it"
        note = f"vgpu is switched off: {why}; the cards of one node get no new pods by it"
        await cards(kubeconfig, "get")
        assert f"note: {note}" in capsys.readouterr().out
        await cards(kubeconfig, "doctor")
        said = capsys.readouterr().out
        assert f"CS603 note  configuration: {note}" in said
        assert f"none of 1 offers cards\n      enable a way of sharing; {note}" in said


async def test_volcanos_configuration_counts_unless_the_controller_does_not_read_it(rig, capsys, tmp_path):
    register = "GPU-0,10,15360,NVIDIA-Tesla T4,true,hami-core:"
    capacity = {"volcano.sh/vgpu-number": "10", "volcano.sh/vgpu-memory": "15360", "volcano.sh/vgpu-cores": "100"}
    t4 = {"name": "t4-a", "annotations": {"volcano.sh/node-vgpu-register": register}, "capacity": capacity}
    conf = "tiers: [{plugins: [{name: deviceshare, arguments: {deviceshare.GPUSharingEnable: true}}]}]"
    unused = "volcano-system/volcano-scheduler-configmap is not used: the controller reads only those of --trust-name"
    async with rig(nodes=[t4]) as world:
        kubeconfig = str(await asyncio.to_thread(world.write_admins_kubeconfig))
        await world.ensure("/api/v1/namespaces", "volcano-system")
        maps = "/api/v1/namespaces/volcano-system/configmaps"
        await put(world, maps, "volcano-scheduler-configmap", {"volcano-scheduler.conf": conf})
        await cards(kubeconfig, "get")
        assert "note: vgpu is switched off" in capsys.readouterr().out
        # The overlay default trusts kube-system only.
        await save(world, {Source.OWN: "policy: binpack"})
        await cards(kubeconfig, "get")
        said = capsys.readouterr().out
        assert "GPU-0" in said
        assert unused in said
        await cards(kubeconfig, "doctor")
        said = capsys.readouterr().out
        assert f"CS603 note  configuration: ConfigMap {unused}" in said
        assert "deviceshare.GPUSharingEnable" not in said
        refused = {"data": {"volcano-scheduler.conf": "tiers: nonsense"}}
        await world.client.patch(f"{maps}/volcano-scheduler-configmap", refused)
        await cards(kubeconfig, "doctor")
        said = capsys.readouterr().out
        assert f"CS603 note  configuration: ConfigMap {unused}" in said
        assert "CS602" not in said
        await world.client.patch(f"{maps}/volcano-scheduler-configmap", {"data": {"volcano-scheduler.conf": conf}})
        file = str(tmp_path / "cluster.json.gz")
        assert await cards(kubeconfig, "snapshot", "-o", file) == 0
        await cards("", "get", "--snapshot", file)
        assert unused in capsys.readouterr().out
        await save(world, {Source.SCHEDULER_MAP: conf})
        await cards(kubeconfig, "get")
        assert "note: vgpu is switched off" in capsys.readouterr().out


async def test_an_installation_of_another_name_is_read_instead_of_volcanos_text(rig, capsys, tmp_path):
    register = "GPU-0,10,15360,NVIDIA-Tesla T4,true,hami-core:"
    capacity = {"volcano.sh/vgpu-number": "10", "volcano.sh/vgpu-memory": "15360", "volcano.sh/vgpu-cores": "100"}
    t4 = {"name": "t4-a", "annotations": {"volcano.sh/node-vgpu-register": register}, "capacity": capacity}
    conf = "tiers: [{plugins: [{name: deviceshare, arguments: {deviceshare.GPUSharingEnable: true}}]}]"
    async with rig(nodes=[t4]) as world:
        kubeconfig = str(await asyncio.to_thread(world.write_admins_kubeconfig))
        for namespace in ("volcano-system", "elsewhere"):
            await world.ensure("/api/v1/namespaces", namespace)
        maps = "/api/v1/namespaces/volcano-system/configmaps"
        await put(world, maps, "volcano-scheduler-configmap", {"volcano-scheduler.conf": conf})
        own = "/api/v1/namespaces/elsewhere/configmaps"
        await put(world, own, "shares-settings", {"cardshare.yaml": "policy: spread"})
        await put(world, own, "shares-last-good", {Source.OWN.value: "policy: spread"})
        unused = "volcano-system/volcano-scheduler-configmap is not used"
        where = ("--settings-map", "elsewhere/shares-settings")
        for command in (("get",), ("fits", "--memory", "1000"), ("waiting", "-A")):
            await cards(kubeconfig, *command)
            assert unused not in capsys.readouterr().out
            await cards(kubeconfig, *command, *where)
            assert unused in capsys.readouterr().out
        file = str(tmp_path / "cluster.json.gz")
        assert await cards(kubeconfig, "snapshot", "-o", file, *where) == 0
        capsys.readouterr()
        await cards("", "get", "--snapshot", file, *where)
        said = capsys.readouterr().out
        assert unused in said
        assert "GPU-0" in said
