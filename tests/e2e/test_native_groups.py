"""Groups of Kubernetes' own, on an API server that serves them (1.36, behind feature gates; groups 7)."""

import pytest

from tests.support.servers.fixtures_realapi import binaries_or_skip, logs_folder
from tests.support.servers.prepared import prepare
from tests.support.servers.realapi import RealApi
from tests.support.servers.request_log import write_policy
from tests.support.worlds.controller_rig import NODES, PODS, share
from tests.support.worlds.rig_realapi import real_rig

GATES = (
    "--feature-gates=GenericWorkload=true,GangScheduling=true",
    "--runtime-config=scheduling.k8s.io/v1alpha2=true",
)
GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"


def group(name):
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    return {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def member(name, of):
    container = {"name": "main", "image": "i", "resources": {"limits": share(1000)}}
    spec = {"schedulerName": "cardshare", "schedulingGroup": {"podGroupName": of}, "containers": [container]}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


@pytest.fixture
async def world(tmp_path, tmp_path_factory):
    logs = logs_folder("native-groups", tmp_path_factory)
    logs.mkdir(parents=True, exist_ok=True)
    arguments = (*write_policy(logs), *GATES)
    async with RealApi(binaries_or_skip(), logs=logs, apiserver_args=arguments) as api:
        prepared = await prepare(api, tmp_path)
        async with real_rig(prepared, tmp_path, "native-groups", NODES[:1]) as found:
            await found.controller()
            yield found


async def test_members_wait_for_their_group_and_it_is_told_that_they_have_their_places(world):
    await world.add(member("a", "g"), member("b", "g"))
    assert (await world.get("a"))["spec"]["schedulingGroup"] == {"podGroupName": "g"}
    told = await world.waits("a", "PodGroup (scheduling.k8s.io) default/g', which does not exist")
    assert told["reason"] == "GroupNotFound"
    await world.client.create(GROUPS, group("g"))
    for name in "ab":
        await world.phase(name)

    async def scheduled():
        found = await world.client.get(f"{GROUPS}/g")
        conditions = (found.get("status") or {}).get("conditions") or ()
        return [one["status"] for one in conditions if one["type"] == "PodGroupScheduled"]

    assert await world.until(scheduled) == ["True"]
    for name in "ab":
        await world.client.delete(f"{PODS}/{name}", grace_s=0)
