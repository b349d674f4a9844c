"""Members that are placed together, from the object to their containers: all of them, or none."""

from sandbox.client import PatchKind
from sandbox.nodes.kubelet import RUN_SECONDS
from tests.support.worlds import volcano
from tests.support.worlds.controller_rig import PODS, pod
from tests.support.worlds.volcano import NAMES, job, path_of, shown_job, task

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


async def reaches(world, name, state, within_s=90.0):
    async def asked():
        return shown_job(await world.client.get(path_of("Job", name))).startswith(state)

    await world.until(asked, within_s)


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

            await world.until(told)
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


EIGHT = {**CARDS, "count": 8}
FULL = tuple({"name": f"t4-{at}", "plugin": EIGHT} for at in range(8))


async def test_a_gang_of_64_on_64_cards_of_which_one_is_taken_starts_nothing(rig):
    async with rig(nodes=FULL) as world:
        await volcano.install(world.client)
        await world.controller(*NAMES)
        async with volcano.playing(world.client):
            await world.add(pod("holds", WHOLE))
            await world.phase("holds")
            await volcano.create(world.client, training("gang", 64))

            async def told():
                said = [condition_of(one) for one in await members(world, "gang")]
                return len(said) == 64 and all("63 of the 64 members" in one for one in said)

            await world.until(told, 120.0)
            assert {one["spec"].get("nodeName", "") for one in await members(world, "gang")} == {""}
            await world.client.delete(f"{PODS}/holds")
            await reaches(world, "gang", "Running {running:64}", 120.0)


async def test_a_member_that_fails_comes_back_in_the_group_that_goes_on(rig):
    async with rig(nodes=NODES) as world:
        await volcano.install(world.client)
        await world.controller(*NAMES)
        async with volcano.playing(world.client):
            made = training("gang", 4)
            made["spec"]["policies"] = [{"event": "PodFailed", "action": "RestartPod"}]
            await volcano.create(world.client, made)
            await reaches(world, "gang", "Running {running:4}")
            before = {one["metadata"]["name"]: one for one in await members(world, "gang")}
            failed = {"status": {"phase": "Failed"}}
            await world.client.patch(f"{PODS}/gang-worker-2/status", failed, PatchKind.STRATEGIC)

            # The Job counts its retry before the member has gone.
            async def renewed():
                uids = {one["metadata"]["name"]: one["metadata"]["uid"] for one in await members(world, "gang")}
                return uids.get("gang-worker-2") not in {None, before["gang-worker-2"]["metadata"]["uid"]}

            await world.until(renewed)
            await reaches(world, "gang", "Running {running:4,retryCount:1}")
            after = {one["metadata"]["name"]: one for one in await members(world, "gang")}
            new = {name for name, one in after.items() if one["metadata"]["uid"] != before[name]["metadata"]["uid"]}
            assert new == {"gang-worker-2"}
            groups = {one["metadata"]["annotations"]["scheduling.k8s.io/group-name"] for one in after.values()}
            assert groups == {one["metadata"]["annotations"]["scheduling.k8s.io/group-name"] for one in before.values()}


async def test_a_gang_whose_queue_has_too_few_cards_left_is_told_and_starts_when_it_has_them(rig):
    async with rig(nodes=NODES) as world:
        await volcano.install(world.client)
        await world.controller(*NAMES)
        async with volcano.playing(world.client):
            spec = {"capability": {"volcano.sh/vgpu-memory": str(3 * 15360)}}
            queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "spec": spec}
            await volcano.create(world.client, {**queue, "metadata": {"name": "small"}})
            await volcano.create(world.client, queued(training("first", 2)))
            await reaches(world, "first", "Running {running:2}")
            await volcano.create(world.client, queued(training("second", 2)))

            async def told():
                return [said for one in await members(world, "second") if "CS530" in (said := condition_of(one))]

            said = await world.until(told)
            assert "queue small" in said[0]
            assert "of 46080 left" in said[0]
            assert {node for _, node in await nodes_of(world, "second")} == {""}
            await world.client.delete(path_of("Job", "first"))
            for name in ("first-worker-0", "first-worker-1"):
                await world.client.delete(f"{PODS}/{name}")
            await reaches(world, "second", "Running {running:2}")


async def test_members_whose_gates_are_lifted_one_by_one_start_together(rig):
    async with rig(nodes=NODES) as world:
        await world.controller()
        for name in ("a", "b", "c"):
            made = pod(name, WHOLE, annotations=TOGETHER)
            made["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
            await world.add(made)
        lifted = [{"op": "remove", "path": "/spec/schedulingGates"}]
        for name in ("a", "b"):
            await world.client.patch(f"{PODS}/{name}", lifted, PatchKind.JSON)
            await world.waits(name, "until 3 members")
        assert "nodeName" not in (await world.get("a"))["spec"]
        await world.client.patch(f"{PODS}/c", lifted, PatchKind.JSON)
        for name in ("a", "b", "c"):
            await world.phase(name)


# No kind PodGroup is installed: the pods say themselves how many belong together.
TOGETHER = {"scheduling.k8s.io/group-name": "g", "scheduling.volcano.sh/group-min-member": "3"}


def queued(made):
    """Of queue small; what is a limit alone is not in its group's minResources (groups G5), so that pods are made."""
    made["spec"]["queue"] = "small"
    for each in made["spec"]["tasks"]:
        del each["template"]["spec"]["containers"][0]["resources"]["requests"]
    return made


async def members(world, name):
    found = (await world.client.get(PODS))["items"]
    return [one for one in found if one["metadata"].get("annotations", {}).get("volcano.sh/job-name") == name]


def condition_of(one):
    conditions = one["status"].get("conditions") or ()
    return next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "")
