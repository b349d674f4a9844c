"""Deployments and Jobs as Kubernetes' own controllers make their pods: kube-controller-manager beside the API server.

Feature gates are on with which the Job controller makes groups for Jobs itself (groups 7).
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sandbox.client import ApiStatusError, PatchKind
from sandbox.demo.stage import Stage
from sandbox.nodes.kubelet import RUN_SECONDS
from tests.support.servers.fixtures_realapi import binaries_or_skip, logs_folder
from tests.support.servers.native_groups import groups_of
from tests.support.servers.prepared import prepare
from tests.support.servers.realapi import RealApi
from tests.support.servers.request_log import write_policy
from tests.support.servers.stage_prepared import real_stage
from tests.support.worlds.ending import end as end_world

pytestmark = pytest.mark.asyncio(loop_scope="module")

CARDS = {"kind": "vgpu", "model": "Tesla T4", "memory_mib": 15360, "count": 2}
NODES = ({"name": "t4-a", "plugin": CARDS}, {"name": "t4-b", "plugin": CARDS})
WHOLE = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "15360"}
_OURS = ("/apis/apps/v1/namespaces/cardshare-system/deployments", "/apis/batch/v1/namespaces/cardshare-system/jobs")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """A server with the product, and kube-controller-manager beside it; a test leaves no pods behind."""
    binaries = binaries_or_skip()
    if binaries.kube_controller_manager is None:
        pytest.skip("kube-controller-manager not found; name it with KUBE_CONTROLLER_MANAGER")
    logs, folder = logs_folder("workloads", tmp_path_factory), tmp_path_factory.mktemp("workloads")
    logs.mkdir(parents=True, exist_ok=True)
    groups = groups_of(binaries.kube_apiserver)
    groups = groups._replace(gates=f"{groups.gates},WorkloadWithJob=true")
    async with RealApi(binaries, logs=logs, apiserver_args=(*write_policy(logs), *groups.arguments)) as api:
        prepared = await prepare(api, folder)
        async with prepared.client() as admin:
            # Its processes run beside the server; pods that are made for them here would wait for ever.
            for path in _OURS:
                for one in await admin.list(path):
                    await admin.delete(f"{path}/{one['metadata']['name']}")
        await api.start_controller_manager(groups.gates, more=groups.controllers)
        async with real_stage(prepared, folder, "stage", nodes=NODES) as found:
            yield found
            await end_world(found)


def template(name, *, seconds=0.0, **more):
    annotations = {RUN_SECONDS: str(seconds)} if seconds else {}
    container = {"name": "main", "image": "i", "resources": {"limits": WHOLE}}
    metadata = {
        "labels": {"app": name, **more.pop("labels", {})},
        "annotations": {**annotations, **more.pop("say", {})},
    }
    return {"metadata": metadata, "spec": {"containers": [container], **more}}


def deployment(name, replicas, namespace="default"):
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template(name)}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def job(name, parallelism, *, completions=0, namespace="default", own=None, **more):
    spec = {
        "parallelism": parallelism,
        "completions": completions or parallelism,
        "template": template(name, restartPolicy="Never", **more),
        **(own or {}),
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def path_of(document):
    metadata = document["metadata"]
    return (
        f"/apis/{document['apiVersion']}/namespaces/{metadata['namespace']}/"
        f"{document['kind'].lower()}s/{metadata['name']}"
    )


async def until(what, deadline_s=60.0):
    """Ask *what* until it answers something true."""
    async with asyncio.timeout(deadline_s):
        while not (found := await what()):  # noqa: ASYNC110 (the cluster tells nobody)
            await asyncio.sleep(0.05)
    return found


async def pods_of(stage, name, namespace="default"):
    return await stage.admin.list(f"/api/v1/namespaces/{namespace}/pods", label_selector=f"app={name}")


async def become(stage, name, running, waiting=0, namespace="default"):
    """Wait until so many pods of *name* run, so many wait and were told why, and no others are there."""

    async def asked():
        found = await pods_of(stage, name, namespace)
        ran = list(filter(is_running, found))
        told = [one for one in found if one["status"]["phase"] == "Pending" and message_of(one).startswith("CS5")]
        return (len(found), len(ran), len(told)) == (running + waiting, running, waiting) and found

    return await until(asked)


async def end(stage, pod, phase):
    """Have a pod end so."""
    path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/status"
    await stage.admin.patch(path, {"status": {"phase": phase}}, PatchKind.STRATEGIC)


def is_running(pod):
    return pod["status"]["phase"] == "Running" and not is_leaving(pod)


def is_leaving(pod):
    return "deletionTimestamp" in pod["metadata"]


def message_of(pod):
    conditions = pod["status"].get("conditions") or ()
    return next((one.get("message", "") for one in conditions if one["type"] == "PodScheduled"), "")


async def completed(stage, manifest):
    async def asked():
        found = (await stage.admin.get(path_of(manifest))).get("status") or {}
        return found if any(one["type"] == "Complete" for one in found.get("conditions") or ()) else None

    return await until(asked)


async def removed(stage, *manifests):
    """Delete workloads and wait until nothing is left of their pods."""
    for one in manifests:
        await stage.admin.delete(path_of(one), propagation="Background")
    for one in manifests:
        name, namespace = one["metadata"]["name"], one["metadata"]["namespace"]

        async def gone(name=name, namespace=namespace):
            return not await pods_of(stage, name, namespace)

        await until(gone)


async def test_a_deployment_is_scaled_up_and_down(stage):
    found = await stage.person.apply(deployment("serves", 2))
    assert found.accepted, found.message
    first = await become(stage, "serves", running=2)
    await stage.admin.patch(path_of(deployment("serves", 2)), {"spec": {"replicas": 5}})
    pods = await become(stage, "serves", running=4, waiting=1)
    assert {one["metadata"]["uid"] for one in first} <= {one["metadata"]["uid"] for one in pods}
    # The one that waits is the first to go.
    await stage.admin.patch(path_of(deployment("serves", 2)), {"spec": {"replicas": 1}})
    await become(stage, "serves", running=1)
    await stage.person.apply(deployment("others", 3))
    await become(stage, "others", running=3)
    await removed(stage, deployment("serves", 1), deployment("others", 3))


async def test_a_pod_that_is_deleted_by_force_is_replaced_and_its_card_is_used_again(stage):
    await stage.person.apply(deployment("serves", 4))
    before = await become(stage, "serves", running=4)
    for one in before[:2]:
        await stage.admin.delete(f"/api/v1/namespaces/default/pods/{one['metadata']['name']}", grace_s=0)
    after = await become(stage, "serves", running=4)
    assert len({one["metadata"]["uid"] for one in (*before, *after)}) == 6
    await removed(stage, deployment("serves", 4))


async def test_a_job_completes_with_more_pods_than_cards(stage):
    made = job("learns", 3, completions=6, seconds=0.3)
    await stage.person.apply(made)
    assert (await completed(stage, made))["succeeded"] == 6
    await removed(stage, made)


async def test_a_pod_of_a_job_that_fails_comes_back_and_the_job_completes(stage):
    made = job("learns", 2)
    await stage.person.apply(made)
    one, other = await become(stage, "learns", running=2)
    await end(stage, one, "Failed")

    async def replaced():
        pods = await pods_of(stage, "learns")
        return next(
            (one for one in pods if is_running(one) and one["metadata"]["uid"] != other["metadata"]["uid"]), None
        )

    for one in (other, await until(replaced)):
        await end(stage, one, "Succeeded")
    status = await completed(stage, made)
    assert (status["succeeded"], status["failed"]) == (2, 1)
    await removed(stage, made)


async def test_a_job_whose_pods_name_a_group_starts_whole_or_not_at_all(stage):
    # No kind PodGroup of Coscheduling is installed: the template says how many belong together.
    say = {"scheduling.volcano.sh/group-min-member": "3"}
    labels = {"scheduling.x-k8s.io/pod-group": "learns"}
    await is_gang(stage, job("learns", 3, seconds=0.5, labels=labels, say=say))


async def test_a_job_whose_template_names_a_group_of_kubernetes_own_starts_whole_or_not_at_all(stage):
    policy = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    version = groups_of(binaries_or_skip().kube_apiserver).version
    groups = f"/apis/scheduling.k8s.io/{version}/namespaces/default/podgroups"
    api_version = f"scheduling.k8s.io/{version}"
    group = {"apiVersion": api_version, "kind": "PodGroup", "metadata": {"name": "g"}, "spec": policy}
    await stage.admin.create(groups, group)
    await is_gang(stage, job("learns", 3, seconds=0.5, schedulingGroup={"podGroupName": "g"}))
    await stage.admin.delete(f"{groups}/g")


async def test_a_job_is_a_gang_by_the_group_that_its_controller_makes(stage):
    own: dict[str, object] = {"completionMode": "Indexed"}
    if not groups_of(binaries_or_skip().kube_apiserver).is_for_every_indexed_job:
        own["scheduling"] = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    await is_gang(stage, job("learns", 3, seconds=0.5, own=own))


async def is_gang(stage, made):
    """While two of three find cards none starts; with room for all three, the Job completes."""
    await stage.person.apply(deployment("serves", 2))
    await become(stage, "serves", running=2)
    await stage.person.apply(made)
    name = made["metadata"]["name"]

    async def told():
        pods = await become(stage, name, running=0, waiting=3)
        return all("2 of the 3 members" in message_of(one) for one in pods) and pods

    pods = await until(told)
    assert {one["spec"].get("nodeName", "") for one in pods} == {""}
    await stage.admin.patch(path_of(deployment("serves", 2)), {"spec": {"replicas": 1}})
    assert (await completed(stage, made))["succeeded"] == 3
    await removed(stage, made, deployment("serves", 1))


async def test_a_namespace_that_is_deleted_leaves_nothing_and_its_cards_are_free(stage):
    await stage.admin.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
    for made in (deployment("serves", 3, "team"), job("learns", 2, namespace="team")):
        await stage.person.apply(made)
    await until(lambda: settled(stage, "team"))
    await stage.person.apply(deployment("next", 4))
    await stage.admin.delete("/api/v1/namespaces/team")

    async def gone():
        try:
            await stage.admin.get("/api/v1/namespaces/team")
        except ApiStatusError as e:
            return e.status == 404
        return False

    await until(gone, 60.0)
    await become(stage, "next", running=4)
    await removed(stage, deployment("next", 4))


async def settled(stage, namespace):
    """Whether all cards are taken by pods of *namespace*, and one of them waits."""
    found = await stage.admin.list(f"/api/v1/namespaces/{namespace}/pods")
    ran = [one for one in found if one["status"]["phase"] == "Running"]
    return len(ran) == 4 and len(found) == 5


async def test_what_a_quota_leaves_is_told_and_the_api_server_refuses_what_is_beyond_it(stage):
    await stage.admin.create("/api/v1/namespaces", {"metadata": {"name": "quota"}})
    quotas, key = "/api/v1/namespaces/quota/resourcequotas", "requests.volcano.sh/vgpu-number"
    await stage.admin.create(quotas, {"metadata": {"name": "two"}, "spec": {"hard": {key: "2"}}})

    async def counted():
        found = await stage.admin.get(f"{quotas}/two")
        return found.get("status", {}).get("used", {}).get(key) == "0"

    await until(counted)
    said = f"CS317 {key}: 3 requested, 2 of 2 left in ResourceQuota two; the API server rejects pods beyond it"

    async def told():
        await stage.person.apply(deployment("serves", 0, "quota"))
        return said in (await stage.person.apply(deployment("serves", 3, "quota"))).warnings

    await until(told)
    await become(stage, "serves", running=2, namespace="quota")

    async def refused():
        found = await stage.admin.get(path_of(deployment("serves", 3, "quota")))
        conditions = found.get("status", {}).get("conditions", ())
        return any("exceeded quota: two" in one.get("message", "") for one in conditions)

    await until(refused)
    await removed(stage, deployment("serves", 3, "quota"))
    await stage.admin.delete("/api/v1/namespaces/quota")
