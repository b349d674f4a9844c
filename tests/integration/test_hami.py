"""Shares of HAMi's plugin through controller, kubelets and plugin, each container by its own segment."""

from time import monotonic

from sandbox.nodes.kubelet import AdmissionOrder, KubeletSettings
from tests.support.worlds import hami_scheduler
from tests.support.worlds.controller_rig import PODS, pod

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
        assert monotonic() - began < 90
        cards = [received(world, name)["NVIDIA_VISIBLE_DEVICES"] for name in names]
        assert sorted(map(cards.count, set(cards))) == [10, 10, 10, 10]


OLD = {"blind_release": True}
THREE = {
    "name": "three",
    "plugins": [
        {"kind": "hami", "model": "NVIDIA A10", "memory_mib": 23028, "count": 2, **OLD},
        {"kind": "ascend-hami", "chip": "Ascend910B4-1", "count": 2, **OLD},
        {"kind": "ascend-hami", "chip": "Ascend310P", "cards": [{"id": "NPU-310P-0"}, {"id": "NPU-310P-1"}], **OLD},
    ],
}


async def test_a_crowd_of_three_old_plugins_on_one_node_loses_no_pod_to_a_late_release(rig):
    """They retry the release of the lock whoever has it by then, at five calls a second (hami 3.5)."""
    kubelet = KubeletSettings(order=AdmissionOrder.SHUFFLED, plugin_calls_per_s=5.0)
    async with rig(nodes=(THREE,), kubelet=kubelet) as world:
        await world.controller()
        asked = (
            {GPU: "1", MEMORY: "2000"},
            {"huawei.com/Ascend910B4-1": "1", "huawei.com/Ascend910B4-1-memory": "1"},
            {"huawei.com/Ascend310P": "1", "huawei.com/Ascend310P-memory": "1"},
        )
        names = [f"p{at:02d}" for at in range(16)]
        await world.add(*(pod(name, asked[at % 3]) for at, name in enumerate(names)))
        for name in names:
            await world.phase(name, deadline_s=90.0)
            assert (await world.get(name))["metadata"]["annotations"]["hami.io/bind-phase"] == "success"
        assert world.records.strangers() == []
        assert [plugin.faults.robbed for plugin in world.kubelet.plugins("three")] == [0, 0, 0]


CUT = {"kind": "hami", "mode": "mig", "model": "NVIDIA A100-SXM4-40GB", "memory_mib": 40960}


async def test_instances_are_reserved_side_by_side_and_the_largest_is_a_whole_card(rig):
    async with rig(nodes=({"name": "cut", "plugin": {**CUT, "count": 2}},)) as world:
        await world.controller()
        two = pod("two", {GPU: "1", MEMORY: "9000"})
        two["spec"]["containers"].append(
            {"name": "more", "image": "i", "resources": {"limits": {GPU: "1", MEMORY: "4000"}}}
        )
        await world.add(two)
        # The plugin's monitor shows only containers of pods with this label.
        assert (await world.phase("two"))["metadata"]["labels"] == {"hami.io/vgpu-node": "cut"}
        await world.add(pod("whole", {GPU: "1"}, annotations={"nvidia.com/vgpu-mode": "mig"}))
        await world.phase("whole")
        # Two of 2g.10gb and one of 1g.5gb, which stands at the end, leave no place for half a card.
        await world.add(pod("third", {GPU: "1", MEMORY: "9000"}))
        await world.phase("third")
        await world.add(pod("late", {GPU: "1", MEMORY: "15000"}))
        await world.waits("late", "Ask for at most 9856 MiB of memory")
        seen = {}
        for name, container in (("two", "main"), ("two", "more"), ("whole", "main"), ("third", "main")):
            env = received(world, name, container)
            assert set(env) == {"NVIDIA_VISIBLE_DEVICES"}
            seen[name, container] = env["NVIDIA_VISIBLE_DEVICES"]
        assert len(set(seen.values())) == 4
        assert all(one.startswith("MIG-") for one in seen.values())
        # Who leaves lets its place go, though another profile stood there.
        await world.client.delete(f"{PODS}/whole", grace_s=0)
        await world.phase("late")


USED_BYTES = "hami_gpu_memory_allocated_bytes{"
TWO = tuple({"name": name, "plugin": {**CARDS, "count": 2}} for name in ("first", "second"))


def named(name, memory_mib):
    found = pod(name, {GPU: "1", MEMORY: str(memory_mib)})
    found["spec"]["schedulerName"] = hami_scheduler.NAME
    return found


async def lives(world):
    """When and as what each pod began, and how often a container of it began anew."""
    return {
        one["metadata"]["name"]: (
            one["metadata"]["uid"],
            one["status"].get("startTime"),
            [each["restartCount"] for each in one["status"].get("containerStatuses", ())],
        )
        for one in await world.client.list(PODS)
    }


async def test_from_hamis_scheduler_to_us_and_back_no_pod_begins_anew_and_every_mib_is_counted(rig):
    async with rig(nodes=TWO) as world:
        hami = hami_scheduler.HamiScheduler(world)
        await hami.start()
        for name, memory_mib in (("a", 30000), ("b", 20001), ("c", 12345), ("d", 40960), ("e", 999)):
            await world.add(named(name, memory_mib))
            await hami.place(name, memory_mib)
            await world.phase(name)
        began = await lives(world)
        assert {tuple(restarts) for _, _, restarts in began.values()} == {(0,)}
        running = await world.controller("--scheduler-name", "cardshare", "--scheduler-name", hami_scheduler.NAME)
        why = "pod kube-system/hami-scheduler (label app.kubernetes.io/component=hami-scheduler) is there"

        async def told():
            return (await world.http("/readyz"))[1]

        async def left_alone():
            return f"pods with schedulerName hami-scheduler are ignored here: {why}" in await told()

        await world.until(left_alone)
        # Two schedulers for one name: what names HAMi's is HAMi's while it is there, all else is ours.
        await world.add(named("early", 500), pod("ours", {GPU: "1", MEMORY: "100"}))
        await world.phase("ours")
        assert not (await world.get("early"))["spec"].get("nodeName")
        await hami.stop()
        await world.phase("early")
        _, figures = await world.http("/metrics", accept="*/*")
        used = sum(float(line.split()[1]) for line in figures.splitlines() if line.startswith(USED_BYTES)) / 2**20
        assert used == 4 * 40960 - sum(room.free_mib for room in await hami.rooms())
        assert "ignored here" not in await told()
        # Whoever asks for just what is left gets it, card by card; then there is nothing.
        left = [room.free_mib for room in await hami.rooms() if room.free_mib]
        for at, free_mib in enumerate(left):
            await world.add(named(f"rest-{at}", free_mib))
            await world.phase(f"rest-{at}")
        assert {room.free_mib for room in await hami.rooms()} == {0}
        await world.add(named("more", 1))
        await world.waits("more", "MiB")
        # And back: HAMi's scheduler finds by its own accounts what one of our pods leaves, and no more.
        assert await world.processes.stop(running) == 0
        for name in ("more", "early"):
            await world.client.delete(f"{PODS}/{name}", grace_s=0)
        await hami.start()
        assert [room.free_mib for room in await hami.rooms()] == [500, 0, 0, 0]
        await world.add(named("back", 500))
        await hami.place("back", 500)
        await world.phase("back")
        ended = await lives(world)
        assert {name: ended[name] for name in began} == began
        assert {tuple(restarts) for _, _, restarts in ended.values()} == {(0,)}
