"""The players of Volcano's controllers print the states that real ones were seen to print (groups 11).

A script stands in for the scheduler and for kubelets: it writes phases of PodGroups, binds, and moves pods.
"""

import asyncio
from contextlib import asynccontextmanager

from sandbox.client import ApiStatusError, PatchKind
from sandbox.cluster import ClusterSettings, running_cluster
from sandbox.players.volcano_protocol import JobAction
from tests.support.worlds import volcano
from tests.support.worlds.volcano import job, path_of, shown_job, task

PODS = "/api/v1/namespaces/default/pods"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
QUEUES = [
    {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}}
    for name in ("default", "later")
]
CPU = {"cpu": "1"}


class Script:
    """What a scheduler and kubelets would write, and what is to be seen of it."""

    def __init__(self, client, controllers):
        self.client, self.controllers = client, controllers

    async def until(self, what, wanted):
        """Wait until *what* answers *wanted*; fails with what it answered last."""
        seen = None
        try:
            async with asyncio.timeout(60):
                while (seen := await what()) != wanted:  # noqa: ASYNC110 (the cluster tells nobody)
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"{seen} instead of {wanted}") from None

    async def job(self, state, name="j"):
        await self.until(lambda: self._job(name), state)

    async def _job(self, name):
        return shown_job(await self.client.get(path_of("Job", name)))

    async def stays(self, state, name="j"):
        """The Job is in *state*, and still is once a Job that came later has its group."""
        await self.job(state, name)
        await volcano.create(self.client, job("later", task("w", 1), queue="later"))
        await self.has_group("later")
        assert await self._job(name) == state
        await self.client.delete(path_of("Job", "later"))

    async def pods(self, *wanted):
        """Wait until these pods, and no others, are there: name, phase, and ``-`` for one that is being deleted."""

        async def seen():
            found = (await self.client.get(PODS))["items"]
            return sorted(
                f"{one['metadata']['name']} {one['status']['phase']}"
                + (" -" if one["metadata"].get("deletionTimestamp") else "")
                for one in found
            )

        await self.until(seen, sorted(wanted))

    async def group(self, name="j"):
        """The Job's PodGroup; None if there is none."""
        found = (await self.client.get(GROUPS))["items"]
        return next((one for one in found if one["metadata"]["name"].startswith(f"{name}-")), None)

    async def has_group(self, name="j", *, but=""):
        """Wait for a PodGroup of another uid than *but*."""

        async def seen():
            found = await self.group(name)
            return found is not None and found["metadata"]["uid"] != but

        await self.until(seen, True)
        return await self.group(name)

    async def admits(self, phase="Inqueue"):
        found = await self.has_group()
        await self.client.patch(f"{GROUPS}/{found['metadata']['name']}", {"status": {"phase": phase}})

    async def binds(self, *names):
        for name in names:
            target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
            await self.client.create(f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": target})

    async def moves(self, phase, *names):
        for name in names:
            await self.client.patch(f"{PODS}/{name}/status", {"status": {"phase": phase}}, PatchKind.STRATEGIC)

    async def removes(self, *names):
        """What kubelet does once the containers have ended."""
        for name in names:
            await self.client.delete(f"{PODS}/{name}", grace_s=0)

    async def runs(self, *names):
        await self.binds(*names)
        await self.moves("Running", *names)


@asynccontextmanager
async def script(*tasks, **spec):
    async with running_cluster(settings=ClusterSettings(kubelet=None)) as cluster:
        client = cluster.admin
        await client.create("/api/v1/nodes", {"metadata": {"name": "n1"}})
        await volcano.install(client)
        for queue in QUEUES:
            await volcano.create(client, queue)
        async with volcano.playing(client) as controllers:
            if tasks:
                await volcano.create(client, job("j", *tasks, **spec))
            yield Script(client, controllers)


def two(**more):
    """A task of two pods of one core each, as a request alone."""
    made = task("w", 2, **more)
    made["template"]["spec"]["containers"][0]["resources"] = {"requests": CPU}
    return made


async def test_two_pods_that_need_each_other():
    async with script(two(), minAvailable=2) as it:
        await it.stays("Pending {}")
        await it.pods()
        group = await it.has_group()
        spec = group["spec"]
        assert (spec["minMember"], spec["minTaskMember"], spec["queue"]) == (2, {"w": 2}, "default")
        assert spec["minResources"] == {"pods": "2", "count/pods": "2", "cpu": "2", "requests.cpu": "2"}
        assert group.get("status") in (None, {})
        await it.admits()
        await it.job("Pending {pending:2}")
        await it.pods("j-w-0 Pending", "j-w-1 Pending")
        await it.binds("j-w-0", "j-w-1")
        await it.moves("Running", "j-w-0")
        await it.job("Pending {pending:1,running:1}")
        await it.moves("Running", "j-w-1")
        await it.job("Running {running:2}")
        await it.moves("Succeeded", "j-w-0")
        await it.job("Running {running:1,succeeded:1}")
        await it.moves("Succeeded", "j-w-1")
        await it.job("Completed {version:1}")
        await it.pods("j-w-0 Succeeded", "j-w-1 Succeeded")
        await it.until(it.group, None)


async def test_a_pod_carries_what_the_controller_finds_it_by():
    async with script(two(), minAvailable=2) as it:
        await it.admits()
        await it.pods("j-w-0 Pending", "j-w-1 Pending")
        found = (await it.client.get(f"{PODS}/j-w-0"))["metadata"]
        group = await it.group()
        both = {"volcano.sh/job-name": "j", "volcano.sh/task-spec": "w", "volcano.sh/task-index": "0"}
        both |= {"volcano.sh/queue-name": "default"}
        assert found["labels"] == {**both, "volcano.sh/job-namespace": "default"}
        assert found["annotations"] == {
            **both,
            "scheduling.k8s.io/group-name": group["metadata"]["name"],
            "volcano.sh/job-version": "0",
            "volcano.sh/job-retry-count": "0",
            "volcano.sh/template-uid": "j-w",
        }
        (owner,) = found["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("Job", "j")
        assert owner["controller"]
        assert owner["blockOwnerDeletion"]


async def test_a_member_that_fails_without_a_policy_is_kept_and_the_job_fails_in_the_end():
    async with script(two(), minAvailable=2) as it:
        await it.admits()
        await it.pods("j-w-0 Pending", "j-w-1 Pending")
        await it.runs("j-w-0", "j-w-1")
        await it.moves("Failed", "j-w-0")
        await it.stays("Running {running:1,failed:1}")
        await it.pods("j-w-0 Failed", "j-w-1 Running")
        await it.moves("Succeeded", "j-w-1")
        await it.job("Failed {version:1}")
        await it.until(it.group, None)


async def test_restart_pod_keeps_the_group():
    policies = [{"event": "PodFailed", "action": "RestartPod"}]
    async with script(two(policies=policies), minAvailable=2) as it:
        await it.admits()
        await it.pods("j-w-0 Pending", "j-w-1 Pending")
        await it.runs("j-w-0", "j-w-1")
        await it.job("Running {running:2}")
        before = await it.group()
        await it.moves("Failed", "j-w-0")
        await it.pods("j-w-0 Pending", "j-w-1 Running")
        await it.job("Pending {pending:1,running:1,retryCount:1}")
        after = await it.group()
        assert (after["metadata"]["uid"], after["status"]["phase"]) == (before["metadata"]["uid"], "Inqueue")


async def test_restart_job_makes_the_group_anew_and_waits_for_it():
    policies = [{"event": "PodFailed", "action": "RestartJob"}]
    async with script(two(), minAvailable=2, policies=policies, maxRetry=3) as it:
        await it.admits()
        await it.pods("j-w-0 Pending", "j-w-1 Pending")
        await it.runs("j-w-0", "j-w-1")
        await it.job("Running {running:2}")
        before = (await it.group())["metadata"]["uid"]
        await it.moves("Failed", "j-w-0")
        group = await it.has_group(but=before)
        assert group.get("status") in (None, {})
        await it.pods("j-w-1 Running -")
        await it.stays("Restarting {terminating:1,version:1,retryCount:1}")
        await it.removes("j-w-1")
        await it.stays("Restarting {terminating:1,version:1,retryCount:1}")
        await it.admits()
        await it.job("Pending {pending:2,version:1,retryCount:1}")
        made = (await it.client.get(f"{PODS}/j-w-0"))["metadata"]["annotations"]
        assert (made["volcano.sh/job-version"], made["volcano.sh/job-retry-count"]) == ("1", "1")


async def test_more_replicas_need_no_new_admission():
    async with script(two(), minAvailable=2) as it:
        await it.admits()
        await it.pods("j-w-0 Pending", "j-w-1 Pending")
        await it.runs("j-w-0", "j-w-1")
        await it.admits("Running")
        await it.job("Running {running:2}")
        found = await it.client.get(path_of("Job", "j"))
        tasks = [{**found["spec"]["tasks"][0], "replicas": 4}]
        await it.client.patch(path_of("Job", "j"), {"spec": {"tasks": tasks, "minAvailable": 4}})
        await it.pods("j-w-0 Running", "j-w-1 Running", "j-w-2 Pending", "j-w-3 Pending")
        await it.job("Pending {pending:2,running:2}")
        group = await it.group()
        assert (group["spec"]["minMember"], group["spec"]["minResources"]["cpu"]) == (4, "4")
        assert (group["spec"]["minTaskMember"], group["status"]["phase"]) == ({"w": 2}, "Running")
        tasks = [{**found["spec"]["tasks"][0], "replicas": 1}]
        await it.client.patch(path_of("Job", "j"), {"spec": {"tasks": tasks, "minAvailable": 1}})
        await it.pods("j-w-0 Running", "j-w-1 Running -")


async def test_a_phase_that_is_moved_back_freezes_the_job():
    async with script(two(), minAvailable=2) as it:
        await it.admits()
        await it.pods("j-w-0 Pending", "j-w-1 Pending")
        await it.runs("j-w-0", "j-w-1")
        await it.job("Running {running:2}")
        await it.admits("Pending")
        await it.removes("j-w-1")
        await it.pods("j-w-0 Running")
        await it.stays("Running {running:2}")
        await it.admits("Running")
        await it.pods("j-w-0 Running", "j-w-1 Pending")
        await it.job("Pending {pending:1,running:1}")


async def test_a_queue_that_is_closed_keeps_a_restart_from_its_group():
    policies = [{"event": "PodFailed", "action": "RestartJob"}]
    async with script(two(), minAvailable=2, policies=policies) as it:
        await it.admits()
        await it.pods("j-w-0 Pending", "j-w-1 Pending")
        await it.runs("j-w-0", "j-w-1")
        await it.job("Running {running:2}")
        await it.client.patch(path_of("Queue", "default") + "/status", {"status": {"state": "Closing"}})
        await it.moves("Failed", "j-w-0")
        await it.pods("j-w-1 Running -")
        await it.stays("Restarting {terminating:1,version:1,retryCount:1}")
        assert await it.group() is None


async def test_a_deleted_group_is_noticed_with_the_next_event_of_a_pod():
    async with script(two(), minAvailable=2) as it:
        await it.admits()
        await it.pods("j-w-0 Pending", "j-w-1 Pending")
        await it.runs("j-w-0", "j-w-1")
        await it.job("Running {running:2}")
        group = await it.group()
        await it.client.delete(f"{GROUPS}/{group['metadata']['name']}")
        await it.stays("Running {running:2}")
        assert await it.group() is None
        await it.moves("Succeeded", "j-w-0")
        again = await it.has_group()
        assert again.get("status") in (None, {})
        await it.stays("Running {running:2}")
        await it.moves("Succeeded", "j-w-1")
        await it.stays("Running {running:2}")
        await it.admits()
        await it.job("Completed {version:1}")


async def test_a_missing_queue_ends_the_job():
    async with running_cluster(settings=ClusterSettings(kubelet=None)) as cluster:
        await volcano.install(cluster.admin)
        async with volcano.playing(cluster.admin, retries=4) as controllers:
            await volcano.create(cluster.admin, job("j", two()))
            await Script(cluster.admin, controllers).job("Terminated {version:2}")


async def test_abort_and_resume():
    async with script(task("w", 1, limits=CPU)) as it:
        await it.admits()
        await it.pods("j-w-0 Pending")
        await it.runs("j-w-0")
        await it.job("Running {running:1}")
        await it.controllers.command("default", "j", JobAction.ABORT)
        await it.pods("j-w-0 Running -")
        await it.until(it.group, None)
        await it.removes("j-w-0")

        async def phase():
            return (await it.client.get(path_of("Job", "j")))["status"]["state"]["phase"]

        await it.until(phase, "Aborted")
        await it.controllers.command("default", "j", JobAction.RESUME)
        group = await it.has_group()
        assert group.get("status") in (None, {})
        await it.until(phase, "Restarting")
        await it.pods()
        await it.admits()
        await it.pods("j-w-0 Pending")
        await it.until(phase, "Pending")
        assert (await it.client.get(f"{PODS}/j-w-0"))["metadata"]["annotations"]["volcano.sh/job-retry-count"] == "1"


async def test_pods_of_an_owner_share_a_group_that_comes_after_them():
    async with script() as it:
        sets = "/apis/apps/v1/namespaces/default/replicasets"
        least = {"scheduling.volcano.sh/group-min-member": "2"}
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        made = await it.client.create(
            sets,
            {
                "metadata": {"name": "rs1", "annotations": least},
                "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template},
            },
        )
        uid = made["metadata"]["uid"]
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs1", "uid": uid, "controller": True}
        limits = {"cpu": "1", "volcano.sh/vgpu-number": "1"}
        for name in ("rs1-1", "rs1-2"):
            container = {"name": "c", "image": "i", "resources": {"limits": limits, "requests": limits}}
            spec = {"schedulerName": "volcano", "containers": [container]}
            await it.client.create(PODS, {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": spec})

        async def named():
            found = (await it.client.get(PODS))["items"]
            return {(one["metadata"].get("annotations") or {}).get("scheduling.k8s.io/group-name") for one in found}

        await it.until(named, {f"podgroup-{uid}"})
        group = await it.client.get(f"{GROUPS}/podgroup-{uid}")
        assert (group["status"], group["spec"]["minMember"]) == ({"phase": "Pending"}, 2)
        assert group["spec"]["minResources"]["volcano.sh/vgpu-number"] == "2"
        assert group["metadata"]["ownerReferences"][0]["name"] == "rs1"


async def test_a_bare_pod_gets_a_group_of_its_own():
    async with script() as it:
        spec = {"schedulerName": "volcano", "containers": [{"name": "c", "image": "i"}]}
        made = await it.client.create(PODS, {"metadata": {"name": "p"}, "spec": spec})

        async def phase():
            try:
                found = await it.client.get(f"{GROUPS}/podgroup-{made['metadata']['uid']}")
            except ApiStatusError:
                return None
            return found["status"]["phase"], found["spec"]["minMember"]

        await it.until(phase, ("Pending", 1))
