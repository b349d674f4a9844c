"""Cards of HAMi's other vendors whose plugins know of no lock, through controller, kubelets and plugins."""

from sandbox.demo.outcomes import unseen
from tests.support.worlds.controller_rig import PODS, pod

MAPS = "/api/v1/namespaces/kube-system/configmaps"
SECTIONS = "cambricon: {}\nmthreads: {}\nkunlun: {}\nawsneuron: {}\n"
ASKED = {
    "cambricon": {
        "cambricon.com/vmlu": "1",
        "cambricon.com/mlu.smlu.vmemory": "8",
        "cambricon.com/mlu.smlu.vcore": "20",
    },
    "kunlun": {"kunlunxin.com/xpu": "2"},
    "mthreads": {"mthreads.com/vgpu": "1", "mthreads.com/sgpu-memory": "8", "mthreads.com/sgpu-core": "4"},
    "neuron": {"aws.amazon.com/neuroncore": "1"},
}


async def test_plugins_that_take_whoever_waits_serve_each_pod_with_its_own_cards(rig):
    nodes = [{"name": kind, "plugin": {"kind": kind, "memory_mib": 16384, "count": 6}} for kind in ASKED]
    async with rig(nodes=nodes) as world:
        body = {"metadata": {"name": "hami-scheduler-device"}, "data": {"device-config.yaml": SECTIONS}}
        await world.client.create(MAPS, {"apiVersion": "v1", "kind": "ConfigMap", **body})
        await world.controller()
        pods = {f"{kind}-{at}": pod(f"{kind}-{at}", limits) for at in range(3) for kind, limits in ASKED.items()}
        await world.add(*pods.values())
        for name in pods:
            await world.phase(name)
            seen = world.records.of(f"default/{name}")
            assert unseen(await world.client.get(f"{PODS}/{name}"), list(seen.values())) == ""
