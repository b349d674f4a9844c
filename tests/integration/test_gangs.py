"""Members that are placed together, from the object to their containers: all of them, or none."""

from sandbox.nodes.kubelet import RUN_SECONDS
from tests.support import volcano
from tests.support.controller_rig import PODS, pod
from tests.support.volcano import NAMES, job, path_of, shown_job, task

CARDS = {"kind": "vgpu", "model": "Tesla T4", "memory_mib": 15360, "count": 2}
NODES = ({"name": "t4-a", "plugin": CARDS}, {"name": "t4-b", "plugin": CARDS}, {"name": "bare"})
WHOLE = {"cpu": "1", "volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "15360"}


def training(name, workers, *, seconds=0.0, ps=0):
    """Workers that want a card each, and servers that want none."""
    tasks = [task("worker", workers, limits=WHOLE)]
    tasks += [task("ps", ps, limits={"cpu": "2", "memory": "1Gi"})] if ps else []
    if seconds:
        tasks[0]["template"]["metadata"] = {"annotations": {RUN_SECONDS: str(seconds)}}
    return job(name, *tasks, minAvailable=workers + ps)


async def nodes_of(world, name):
    """Where each pod of a Job is, by its task."""
    pods = (await world.client.get(PODS))["items"]
    mine = [one for one in pods if one["metadata"]["annotations"].get("volcano.sh/job-name") == name]
    return sorted(
        (one["metadata"]["annotations"]["volcano.sh/task-spec"], one["spec"].get("nodeName", "")) for one in mine
    )


async def reaches(world, name, state):
    async def asked():
        return shown_job(await world.client.get(path_of("Job", name))).startswith(state)

    await world.until(asked, 40.0)


async def test_servers_without_cards_and_workers_with_them_run_together(rig):
    async with rig(nodes=NODES) as world:
        await volcano.install(world.client)
        await world.controller(*NAMES)
        async with volcano.playing(world.client):
            await volcano.create(world.client, training("mixed", 4, ps=1))
            await reaches(world, "mixed", "Running {running:5}")
            places = await nodes_of(world, "mixed")
            assert places[0] == ("ps", "bare")
            assert [place for task, place in places if task == "worker"] == ["t4-a", "t4-a", "t4-b", "t4-b"]


async def test_a_gang_that_does_not_fit_starts_nothing_and_runs_once_there_is_room(rig):
    async with rig(nodes=NODES) as world:
        await volcano.install(world.client)
        await world.controller(*NAMES)
        async with volcano.playing(world.client):
            for name in ("holds-a", "holds-b"):
                await world.add(pod(name, WHOLE))
                await world.phase(name)
            await volcano.create(world.client, training("gang", 3))

            async def told():
                pods = (await world.client.get(PODS))["items"]
                mine = [one for one in pods if one["metadata"]["name"].startswith("gang-")]
                said = [c["message"] for one in mine for c in one.get("status", {}).get("conditions") or ()]
                return sum("2 of the 3 members" in one for one in said) == 3

            await world.until(told, 40.0)
            assert {node for _, node in await nodes_of(world, "gang")} == {""}
            await world.client.delete(f"{PODS}/holds-a")
            await reaches(world, "gang", "Running {running:3}")


async def test_two_gangs_that_each_fit_alone_run_one_after_the_other(rig):
    async with rig(nodes=NODES) as world:
        await volcano.install(world.client)
        await world.controller(*NAMES)
        async with volcano.playing(world.client):
            for name in ("one", "two"):
                await volcano.create(world.client, training(name, 3, seconds=2.0))
            for name in ("one", "two"):
                await reaches(world, name, "Completed")
