"""Shares of HAMi's plugin through controller, kubelets and plugin, each container by its own segment."""

from time import monotonic

from sandbox.nodes.kubelet import AdmissionOrder, KubeletSettings
from tests.support.worlds.controller_rig import pod

LOCK = "hami.io/mutex.lock"
GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
CARDS = {"kind": "hami", "model": "NVIDIA A100-SXM4-40GB", "memory_mib": 40960}
NODES = ({"name": "shared", "plugin": {**CARDS, "count": 4, "delay_s": 0.1}},)


def received(world, name, container="main"):
    return world.records.of(f"default/{name}")[container]


async def test_every_container_gets_its_own_cards_and_limits_and_no_lock_is_left(rig):
    kubelet = KubeletSettings(order=AdmissionOrder.NEWEST_FIRST)
    async with rig(nodes=NODES, kubelet=kubelet) as world:
        node = "/api/v1/nodes/shared"
        # Left behind by another scheduler, for a pod that does not exist any more.
        dead = "2099-01-01T00:00:00Z,default,dead"
        await world.client.patch(node, {"metadata": {"annotations": {LOCK: dead}}})
        await world.controller()
        two = pod("two", {GPU: "1", MEMORY: "3072", CORES: "30"})
        plain = {"name": "plain", "image": "i"}
        second = {"name": "second", "image": "i", "resources": {"limits": {GPU: "2", MEMORY: "6144"}}}
        two["spec"]["containers"] += [plain, second]
        await world.add(two, pod("one", {GPU: "1", MEMORY: "1000"}))
        for name in ("two", "one"):
            await world.phase(name)
        first = received(world, "two")
        assert (first["CUDA_DEVICE_MEMORY_LIMIT_0"], first["CUDA_DEVICE_SM_LIMIT"]) == ("3072m", "30")
        more = received(world, "two", "second")
        assert (more["CUDA_DEVICE_MEMORY_LIMIT_0"], more["CUDA_DEVICE_MEMORY_LIMIT_1"]) == ("6144m", "6144m")
        assert len(more["NVIDIA_VISIBLE_DEVICES"].split(",")) == 2
        assert received(world, "one")["CUDA_DEVICE_MEMORY_LIMIT_0"] == "1000m"

        async def unlocked():
            return LOCK not in (await world.client.get(node))["metadata"]["annotations"]

        await world.until(unlocked)


async def test_forty_pods_onto_one_node_whose_plugin_answers_in_100_ms(rig):
    async with rig(nodes=NODES) as world:
        await world.controller()
        names = [f"p{n:02d}" for n in range(40)]
        began = monotonic()
        await world.add(*(pod(name, {GPU: "1", MEMORY: "4000"}) for name in names))
        for name in names:
            await world.phase(name)
        # The plugin itself takes 4 s of it; the rest is left for a crowded machine.
        assert monotonic() - began < 45
        cards = [received(world, name)["NVIDIA_VISIBLE_DEVICES"] for name in names]
        assert sorted(map(cards.count, set(cards))) == [10, 10, 10, 10]
