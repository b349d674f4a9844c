"""Groups of Kubernetes' own, on an API server that serves them, behind feature gates, in its version (groups 7)."""

import pytest
import pytest_asyncio

from tests.support.servers.fixtures_realapi import binaries_or_skip, logs_folder
from tests.support.servers.native_groups import groups_of
from tests.support.servers.prepared import prepare
from tests.support.servers.realapi import RealApi
from tests.support.servers.request_log import write_policy
from tests.support.servers.stage_prepared import real_stage
from tests.support.worlds.controller_rig import NODES, PODS, share
from tests.support.worlds.frameworks import CARDS, frameworks, play
from tests.support.worlds.rig_realapi import real_rig

# What JobSet's guides switch on beside the gates of groups.
MORE_GATES = ",TopologyAwareWorkloadScheduling=true,DRAWorkloadResourceClaims=true"


def group(name, version):
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    return {"apiVersion": f"scheduling.k8s.io/{version}", "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def member(name, of):
    container = {"name": "main", "image": "i", "resources": {"limits": share(1000)}}
    spec = {"schedulerName": "cardshare", "schedulingGroup": {"podGroupName": of}, "containers": [container]}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def native(tmp_path_factory):
    """One server for all tests."""
    logs = logs_folder("native-groups", tmp_path_factory)
    logs.mkdir(parents=True, exist_ok=True)
    binaries = binaries_or_skip()
    found = groups_of(binaries.kube_apiserver)
    arguments = (*write_policy(logs), *found._replace(gates=found.gates + MORE_GATES).arguments)
    async with RealApi(binaries, logs=logs, apiserver_args=arguments) as api:
        yield await prepare(api, tmp_path_factory.mktemp("native"))


@pytest.fixture
async def world(native, tmp_path):
    async with real_rig(native, tmp_path, "native-groups", NODES[:1]) as found:
        await found.controller()
        yield found


async def test_members_wait_for_their_group_and_it_is_told_that_they_have_their_places(world):
    version, condition, *_ = groups_of(binaries_or_skip().kube_apiserver)
    groups = f"/apis/scheduling.k8s.io/{version}/namespaces/default/podgroups"
    await world.add(member("a", "g"), member("b", "g"))
    assert (await world.get("a"))["spec"]["schedulingGroup"] == {"podGroupName": "g"}
    told = await world.waits("a", "PodGroup (scheduling.k8s.io) default/g', which does not exist")
    assert told["reason"] == "GroupNotFound"
    await world.client.create(groups, group("g", version))
    for name in "ab":
        await world.phase(name)

    async def scheduled():
        found = await world.client.get(f"{groups}/g")
        conditions = (found.get("status") or {}).get("conditions") or ()
        return [one["status"] for one in conditions if one["type"] == condition]

    assert await world.until(scheduled) == ["True"]
    for name in "ab":
        await world.client.delete(f"{PODS}/{name}", grace_s=0)


async def test_what_frameworks_make_of_native_groups_becomes_what_their_page_says(native, tmp_path):
    version = groups_of(native.api.binaries.kube_apiserver).version
    for framework in frameworks():
        if framework.native:
            nodes, name = CARDS[framework.cards].nodes(), f"native-{framework.version}"
            async with real_stage(native, tmp_path / name, name, nodes=nodes) as stage:
                await play(stage.admin, framework, version)
