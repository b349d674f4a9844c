"""Volcano's Jobs without Volcano's scheduler: its job controller is played, all else is real."""

from contextlib import asynccontextmanager

from sandbox.client import PatchKind
from sandbox.nodes.kubelet import RUN_SECONDS
from sandbox.players.volcano_protocol import JobAction
from tests.support.worlds import volcano
from tests.support.worlds.controller_rig import NODES, PODS
from tests.support.worlds.volcano import NAMES, job, path_of, shown_group, shown_job, task

GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"


def sharing_job(name="gpu-sharing-job", *, replicas=2, seconds=0.5, queue="training", **more):
    """The guide's Job of two inference servers that share a card, which end."""
    limits = {"cpu": "2", "memory": "4Gi", "volcano.sh/gpu-memory": "4096"}
    made = task("inference", replicas, limits=limits)
    if seconds:
        made["template"]["metadata"] = {"annotations": {RUN_SECONDS: str(seconds)}}
    return job(name, made, minAvailable=replicas, queue=queue, **more)


def queue(name, **spec):
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


@asynccontextmanager
async def played(rig):
    """A world with one node, the controller, and Volcano's controllers, which are played."""
    async with rig(nodes=NODES[1:]) as world:
        await volcano.install(world.client)
        await world.controller(*NAMES)
        async with volcano.playing(world.client):
            yield world


async def state_of(world, name):
    return shown_job(await world.client.get(path_of("Job", name)))


async def reaches(world, name, state):
    async def asked():
        found = await state_of(world, name)
        return found if found.startswith(state) else None

    return await world.until(asked)


async def end(world, name):
    """Have both pods of a Job end well."""
    done = {"status": {"phase": "Succeeded"}}
    for at in range(2):
        await world.client.patch(f"{PODS}/{name}-inference-{at}/status", done, PatchKind.STRATEGIC)


async def group_of(world, name):
    """The PodGroup of a Job; empty until it is made."""
    found = await world.client.get(path_of("Job", name))
    groups = (await world.client.get(GROUPS))["items"]
    return next((one for one in groups if one["metadata"]["name"] == f"{name}-{found['metadata']['uid']}"), {})


async def test_a_job_runs_from_its_creation_to_its_end(rig):
    async with played(rig) as world:
        await volcano.create(world.client, queue("training", weight=1))
        await volcano.create(world.client, sharing_job(seconds=0))
        await reaches(world, "gpu-sharing-job", "Running {running:2}")
        pods = (await world.client.get(PODS))["items"]
        assert {one["spec"]["nodeName"] for one in pods} == {"share-a"}

        async def counted():
            return shown_group(await group_of(world, "gpu-sharing-job")) == "Running {running:2} Scheduled"

        await world.until(counted)
        await end(world, "gpu-sharing-job")
        await reaches(world, "gpu-sharing-job", "Completed")

        async def no_group_is_left():
            return (await world.client.get(GROUPS))["items"] == []

        await world.until(no_group_is_left)


async def test_the_queues_without_which_jobs_fail_are_made_and_made_again(rig):
    async with rig(nodes=NODES[1:]) as world:
        await world.controller(*NAMES)
        await volcano.install(world.client)

        async def queues():
            found = (await world.client.get("/apis/scheduling.volcano.sh/v1beta1/queues"))["items"]
            return {one["metadata"]["name"]: one["spec"].get("reclaimable") for one in found}

        async def both():
            return await queues() == {"root": False, "default": True}

        await world.until(both)
        await world.client.delete(path_of("Queue", "default"))
        await world.until(both)


async def test_a_job_waits_for_room_in_its_queue_and_says_so(rig):
    async with played(rig) as world:
        await volcano.create(world.client, queue("small", capability={"cpu": "5"}))
        await volcano.create(world.client, sharing_job("first", queue="small", seconds=0))
        await reaches(world, "first", "Running {running:2}")
        await volcano.create(world.client, sharing_job("second", queue="small", seconds=0.1))

        async def told():
            group = await group_of(world, "second")
            return [one["message"] for one in (group.get("status") or {}).get("conditions") or ()]

        assert await world.until(told) == ["queue small has too little capacity: 4 cpu requested, 1 of 5 left"]
        assert await state_of(world, "second") == "Pending {}"

        async def allocated():
            found = await world.client.get(path_of("Queue", "small"))
            return (found.get("status") or {}).get("allocated", {}).get("volcano.sh/gpu-memory") == "8192"

        await world.until(allocated)
        await end(world, "first")
        await reaches(world, "second", "Completed")


async def test_partitions_of_a_job_start_whole(rig):
    async with played(rig) as world:
        await volcano.create(world.client, queue("training"))
        made = sharing_job("j", replicas=4, seconds=0)
        policy = {"totalPartitions": 2, "partitionSize": 2, "minPartitions": 1}
        made["spec"]["tasks"][0] |= {"partitionPolicy": policy, "minAvailable": 2}
        made["spec"]["minAvailable"] = 2
        await volcano.create(world.client, made)
        await reaches(world, "j", "Running {running:4}")
        group = await group_of(world, "j")
        assert group["spec"]["subGroupPolicy"][0]["minSubGroups"] == 1


async def test_what_is_not_supported_is_refused_by_name(rig):
    async with rig(nodes=NODES[1:]) as world:
        await volcano.install(world.client)
        await world.controller(*NAMES)
        about = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "g"}}
        spec = {"minMember": 1, "queue": "default", "subGroupPolicy": [{"name": "w"}, {"name": "w"}]}
        await volcano.create(world.client, {**about, "spec": spec})

        async def told():
            conditions = ((await world.client.get(f"{GROUPS}/g")).get("status") or {}).get("conditions") or ()
            return [(one["reason"], "spec.subGroupPolicy with one name twice" in one["message"]) for one in conditions]

        assert await world.until(told) == [("NotSupported", True)]


async def test_a_member_that_fails_has_the_job_started_anew_with_another_group(rig):
    async with played(rig) as world:
        policies = [{"event": "PodFailed", "action": "RestartJob"}]
        await volcano.create(world.client, queue("training"))
        await volcano.create(world.client, sharing_job("j", seconds=0, policies=policies))
        await reaches(world, "j", "Running {running:2}")
        before = (await group_of(world, "j"))["metadata"]["uid"]
        failed = {"status": {"phase": "Failed"}}
        await world.client.patch(f"{PODS}/j-inference-0/status", failed, PatchKind.STRATEGIC)
        await reaches(world, "j", "Running {running:2,version:1,retryCount:1}")
        after = await group_of(world, "j")
        assert after["metadata"]["uid"] != before


async def test_a_group_that_somebody_deletes_is_admitted_again(rig):
    async with played(rig) as world:
        await volcano.create(world.client, queue("training"))
        await volcano.create(world.client, sharing_job("j", seconds=0))
        await reaches(world, "j", "Running {running:2}")
        group = await group_of(world, "j")
        await world.client.delete(f"{GROUPS}/{group['metadata']['name']}")
        await end(world, "j")
        await reaches(world, "j", "Completed")


async def test_more_replicas_are_placed_without_a_new_admission(rig):
    async with played(rig) as world:
        await volcano.create(world.client, queue("training"))
        await volcano.create(world.client, sharing_job("j", seconds=0))
        await reaches(world, "j", "Running {running:2}")
        spec = (await world.client.get(path_of("Job", "j")))["spec"]
        more = {"tasks": [{**spec["tasks"][0], "replicas": 4}], "minAvailable": 4}
        await world.client.patch(path_of("Job", "j"), {"spec": more})
        await reaches(world, "j", "Running {running:4}")


async def test_a_pod_of_volcanos_scheduler_that_no_job_made_has_a_group_of_its_own(rig):
    async with played(rig) as world:
        alone = sharing_job("p", replicas=1)["spec"]["tasks"][0]["template"]
        alone["spec"]["schedulerName"] = "volcano"
        made = {"metadata": {"name": "p", **alone["metadata"]}, "spec": alone["spec"]}
        uid = (await world.client.create(PODS, made))["metadata"]["uid"]

        async def shown():
            groups = (await world.client.get(GROUPS))["items"]
            return [shown_group(one) for one in groups if one["metadata"]["name"] == f"podgroup-{uid}"]

        async def completed():
            return await shown() == ["Completed {succeeded:1} Scheduled"]

        await world.until(completed)


def member(name, *, owner=None, annotations=None):
    limits = {"cpu": "1", "volcano.sh/gpu-memory": "1000"}
    container = {"name": "c", "image": "i", "resources": {"limits": limits, "requests": limits}}
    metadata = {"name": name, "annotations": annotations or {}} | ({"ownerReferences": [owner]} if owner else {})
    return {"metadata": metadata, "spec": {"schedulerName": "volcano", "containers": [container]}}


async def test_pods_of_an_owner_that_come_before_their_group_run_and_count_for_it(rig):
    async with played(rig) as world:
        made = await world.client.create(
            "/apis/apps/v1/namespaces/default/replicasets",
            {
                "metadata": {"name": "rs1", "annotations": {"scheduling.volcano.sh/group-min-member": "2"}},
                "spec": {
                    "replicas": 2,
                    "selector": {"matchLabels": {"a": "b"}},
                    "template": {"metadata": {"labels": {"a": "b"}}, "spec": member("t")["spec"]},
                },
            },
        )
        uid = made["metadata"]["uid"]
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs1", "uid": uid, "controller": True}
        await world.add(*(member(name, owner=owner) for name in ("rs1-1", "rs1-2")))
        # Whichever is seen first with its annotation, and whichever without.
        for name in ("rs1-1", "rs1-2"):
            await world.phase(name)

        # The pods may run before anybody has made their group.
        async def running():
            groups = {one["metadata"]["name"]: shown_group(one) for one in await world.client.list(GROUPS)}
            return groups.get(f"podgroup-{uid}") == "Running {running:2} Scheduled"

        await world.until(running)


async def test_a_group_that_is_there_before_its_pods_is_admitted_and_waits_for_as_many_as_it_wants(rig):
    async with played(rig) as world:
        group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "spec": {"minMember": 2}}
        await world.client.create(GROUPS, {**group, "metadata": {"name": "set-0-1"}})
        named = {"scheduling.k8s.io/group-name": "set-0-1"}
        await world.add(member("set-0", annotations=named))
        await world.waits("set-0", "until 2 members")

        async def said():
            (group,) = await world.client.list(GROUPS)
            return [
                (one["type"], one["reason"], one["message"])
                for one in group.get("status", {}).get("conditions", ())
                if one["status"] == "True"
            ]

        async def lacks():
            return [one for one in await said() if one[:2] == ("Unschedulable", "NotEnoughTasks")]

        ((_, _, message),) = await world.until(lacks)
        assert message.startswith(
            "waits until 2 members of PodGroup default/set-0-1 can be placed together; 1 is ready"
        )
        await world.add(member("set-0-1", annotations=named))
        for name in ("set-0", "set-0-1"):
            await world.phase(name)

        async def begun():
            return [kind for kind, *_ in await said()] == ["Scheduled"]

        await world.until(begun)


async def test_a_job_of_a_queue_that_does_not_exist_says_so_and_runs_once_it_does(rig):
    async with played(rig) as world:
        await volcano.create(world.client, sharing_job("j", queue="late", seconds=0))

        async def told():
            events = await world.client.list("/api/v1/namespaces/default/events")
            return [
                one["message"]
                for one in events
                if (one["involvedObject"]["kind"], one["involvedObject"].get("name")) == ("Job", "j")
            ]

        assert await world.until(told) == [
            "waits because queue late does not exist; create it, or name another in the job's spec.queue"
        ]
        await volcano.create(world.client, queue("late"))
        await reaches(world, "j", "Running {running:2}")


async def test_a_job_that_is_aborted_and_resumed_has_another_group_and_runs_again(rig):
    async with rig(nodes=NODES[1:]) as world:
        await volcano.install(world.client)
        await world.controller(*NAMES)
        async with volcano.playing(world.client) as controllers:
            await volcano.create(world.client, queue("training"))
            await volcano.create(world.client, sharing_job("j", seconds=0))
            await reaches(world, "j", "Running {running:2}")
            before = (await group_of(world, "j"))["metadata"]["uid"]
            for action, state in ((JobAction.ABORT, "Aborted"), (JobAction.RESUME, "Running {running:2")):
                await controllers.command("default", "j", action)
                await reaches(world, "j", state)
            assert (await group_of(world, "j"))["metadata"]["uid"] != before
