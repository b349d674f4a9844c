"""A namespace's ResourceQuota in HAMi's spelling, which no API server counts: pods beyond it wait, and go on later."""

from tests.support.worlds import hami_scheduler
from tests.support.worlds.controller_rig import PODS, pod

GPU, MEMORY, PERCENTAGE = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"
CARDS = {"kind": "hami", "model": "NVIDIA A100-SXM4-40GB", "memory_mib": 40960, "count": 2}
NODES = ({"name": "shared", "plugin": CARDS},)


def hard(mib):
    return {"metadata": {"name": "team"}, "spec": {"hard": {f"limits.{MEMORY}": str(mib)}}}


async def test_pods_beyond_the_quota_wait_and_go_on_when_others_end_or_it_is_raised(rig):
    async with rig(nodes=NODES) as world:
        await world.client.create(QUOTAS, hard(20000))
        await world.controller()
        await world.add(pod("two", {GPU: "2", MEMORY: "4000"}), pod("part", {GPU: "1", PERCENTAGE: "25"}))
        for name in ("two", "part"):
            await world.phase(name)
        # 2 x 4000 MiB, and a quarter of 40960.
        await world.add(pod("late", {GPU: "1", MEMORY: "2000"}), pod("later", {GPU: "1", MEMORY: "9000"}))
        told = (
            f"waits because ResourceQuota team of namespace default has too little capacity: 2000 {MEMORY} requested, "
        )
        await world.waits("late", f"{told}1760 of 20000 left; ask for less, or wait until its pods end")
        conditions = (await world.get("late"))["status"]["conditions"]
        assert "WaitingForQuota" in [one.get("reason") for one in conditions]
        await world.client.delete(f"{PODS}/two", grace_s=0)
        await world.phase("late")
        await world.waits("later", f"9000 {MEMORY} requested, ")
        await world.client.patch(f"{QUOTAS}/team", hard(22000))
        await world.phase("later")
        await world.client.delete(f"{QUOTAS}/team")


async def test_what_hamis_scheduler_bound_counts_after_it_is_gone(rig):
    async with rig(nodes=NODES) as world:
        await world.client.create(QUOTAS, hard(10000))
        hami = hami_scheduler.HamiScheduler(world)
        await hami.start()
        theirs = pod("theirs", {GPU: "1", MEMORY: "4000"})
        theirs["spec"]["schedulerName"] = hami_scheduler.NAME
        await world.add(theirs)
        await hami.place("theirs", 4000)
        await world.phase("theirs")
        await hami.stop()
        await world.controller()
        await world.add(pod("ours", {GPU: "1", MEMORY: "6001"}))
        await world.waits("ours", f"6001 {MEMORY} requested, 6000 of 10000 left")
        await world.client.delete(f"{QUOTAS}/team")
        await world.phase("ours")
