"""A cluster is read into memory once, from what answers lists."""

import json

import pytest

from controller.simulating.reading import Promised, UnreadableClusterError, _Once, read
from core.errors import InvariantError
from core.model import NodeName, PodUid
from core.settings import Settings, Tables
from kube.errors import from_event
from kube.transport import Response
from tests.support.worlds.world import MEMORY, NUMBER, START_UNIX_S

NODE = {
    "metadata": {
        "name": "n1",
        "resourceVersion": "5",
        "annotations": {"volcano.sh/node-vgpu-register": "GPU-1,10,10000,NVIDIA-T4,true,hami-core:"},
    },
    "status": {
        "allocatable": {NUMBER: "10", MEMORY: "10000", "volcano.sh/vgpu-cores": "100", "cpu": "8", "pods": "110"},
        "capacity": {NUMBER: "10", MEMORY: "10000", "volcano.sh/vgpu-cores": "100", "cpu": "8", "pods": "110"},
    },
}

CHIPS = {
    "metadata": {
        "name": "n2",
        "resourceVersion": "6",
        "labels": {"accelerator": "huawei-Ascend310P"},
        "annotations": {"baseDeviceInfos": '{"Ascend310P-0": {}}', "huawei.com/Ascend310P": "Ascend310P-0"},
    },
    "status": {
        "allocatable": {"huawei.com/npu-core": "8", "cpu": "8", "pods": "110"},
        "capacity": {"huawei.com/npu-core": "8", "cpu": "8", "pods": "110"},
    },
}


def pod(name, memory):
    limits = {NUMBER: "1", MEMORY: memory}
    spec = {"schedulerName": "cardshare", "containers": [{"name": "c", "resources": {"limits": limits}}]}
    return {"metadata": {"name": name, "namespace": "team", "uid": name, "resourceVersion": "7"}, "spec": spec}


class Lists:
    """Answers lists by path: objects, or a status."""

    def __init__(self, **found):
        self.found = {f"/api/v1/{kind}": one for kind, one in found.items()}

    async def request(self, verb, path, **sending):
        found = self.found.get(path, 404)
        if isinstance(found, int):
            raise from_event(verb, path, found, "", "so it is")
        body = {"metadata": {"resourceVersion": "9"}, "items": found}
        return Response(status=200, headers={}, body=json.dumps(body).encode())


async def read_in(lists, **settings):
    return await read(lists, Tables(), Settings(**settings), wall_s=START_UNIX_S)


async def test_all_that_is_listed_is_there_and_decided():
    found, notes = await read_in(
        Lists(nodes=[NODE], pods=[pod("a", "6000"), pod("b", "6000")], namespaces=[], resourcequotas=[])
    )
    found.settle()
    assert {one.name: one.node_name for one in found.pods.values()} == {"a": "n1", "b": ""}
    assert [one for one in notes if "forbidden" in one] == []


async def test_a_promised_place_is_kept_unless_the_pod_has_another():
    assigned = {"volcano.sh/vgpu-node": "n1", "volcano.sh/vgpu-ids-new": "GPU-1,NVIDIA,9000,0:"}
    lists = Lists(nodes=[NODE], pods=[pod("a", "6000"), pod("b", "9000")], namespaces=[], resourcequotas=[])
    promised = [Promised(PodUid(uid), NodeName("n1"), assigned) for uid in ("b", "gone")]
    found, _ = await read(lists, Tables(), Settings(), wall_s=START_UNIX_S, promised=promised)
    found.settle()
    assert {one.name: one.node_name for one in found.pods.values()} == {"a": "", "b": "n1"}
    with pytest.raises(InvariantError, match="a simulation has called POST /x"):
        await _Once(lists).request("POST", "/x")


async def test_what_may_not_be_listed_is_noted():
    found, notes = await read_in(Lists(nodes=[NODE], pods=[pod("a", "6000")], namespaces=403, resourcequotas=403))
    found.settle()
    assert [one.node_name for one in found.pods.values()] == ["n1"]
    assert "namespaces are not read and do not count: so it is" in notes


@pytest.mark.parametrize("has_chips", [False, True])
async def test_documents_about_nodes_are_missed_only_where_a_node_has_such_cards(has_chips):
    lists = Lists(nodes=[CHIPS] if has_chips else [NODE], pods=[], namespaces=[], resourcequotas=[])
    for namespace in ("kube-system", "mindx-dl"):
        lists.found[f"/api/v1/namespaces/{namespace}/configmaps"] = 403
    _, notes = await read_in(lists)
    missed = [one for one in notes if one.startswith("ConfigMaps of namespace")]
    assert len(missed) == (3 if has_chips else 0)


@pytest.mark.parametrize(
    "lists", [Lists(nodes=403, pods=[], resourcequotas=[]), Lists(nodes=[], pods=[], resourcequotas=500)]
)
async def test_a_cluster_that_cannot_be_read_is_an_error(lists):
    with pytest.raises(UnreadableClusterError, match="cannot be listed: so it is"):
        await read_in(lists)


async def test_a_missing_right_without_which_nothing_is_told_is_named_with_a_remedy():
    with pytest.raises(UnreadableClusterError, match=r"^pods cannot be listed: so it is; give this account the right"):
        await read_in(Lists(nodes=[], pods=403, namespaces=[], resourcequotas=[]))


async def test_disruption_budgets_are_read_if_pods_may_be_evicted():
    lists = Lists(nodes=[NODE], pods=[], namespaces=[], resourcequotas=[])
    lists.found["/apis/policy/v1/poddisruptionbudgets"] = [
        {
            "metadata": {"name": "all", "namespace": "team"},
            "spec": {"selector": {}},
            "status": {"disruptionsAllowed": 1},
        }
    ]
    found, _ = await read_in(lists, preemption=True)
    assert found.scheduler.cluster.occupants.disruption_budgets


async def test_a_file_without_quotas_is_no_cluster_and_ends():
    with pytest.raises(UnreadableClusterError, match="resourcequotas cannot be listed: "):
        await read_in(Lists(nodes=[NODE], pods=[], namespaces=[]))
