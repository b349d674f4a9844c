"""A service account that writes an assignment is denied, and the pod's event tells of it, by the shipped rights."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from sandbox.client import ApiClient, ApiStatusError
from sandbox.demo.product import apply
from tests.support.worlds.controller_rig import PODS

NODES = [{"name": "t4-a", "plugin": {"kind": "vgpu", "model": "Tesla T4", "memory_mib": 15360, "count": 1}}]
KEY = "volcano.sh/vgpu-ids-new"
SPEC: dict[str, Any] = {
    "schedulerName": "nobody",
    "containers": [{"name": "c", "image": "i", "resources": {"limits": {"volcano.sh/vgpu-number": "1"}}}],
}
POD = {"metadata": {"name": "p"}, "spec": SPEC}
ROLES = "rbac.authorization.k8s.io"
FORGER = {"kind": "ServiceAccount", "namespace": "team", "name": "forger"}
ACCOUNT = (
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "forger", "namespace": "team"}},
    {
        "apiVersion": f"{ROLES}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "forger"},
        "roleRef": {"apiGroup": ROLES, "kind": "ClusterRole", "name": "forger"},
        "subjects": [FORGER],
    },
    {
        "apiVersion": f"{ROLES}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "forger"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "get", "patch"]}],
    },
)


async def test_the_pod_tells_of_the_account(staged):
    async with staged(nodes=NODES) as stage:
        await apply(stage.admin, ACCOUNT)
        answer = await stage.admin.create("/api/v1/namespaces/team/serviceaccounts/forger/token", {"spec": {}})
        async with stage.admin.as_user(answer["status"]["token"]) as forger:
            await until(lambda: _may_read(forger))
            await forger.create(PODS, POD)
            for _ in range(3):
                with pytest.raises(ApiStatusError, match="CS301"):
                    await forger.patch(f"{PODS}/p", {"metadata": {"annotations": {KEY: "GPU-0,NVIDIA,1,1:"}}})
            (event,) = await until(lambda: _denials(stage.admin))
    assert event["involvedObject"]["name"] == "p"
    assert event["message"].startswith("CS301 system:serviceaccount:team:forger may not write assignments")
    assert event["message"].endswith(f"it tried to write annotation {KEY}")


async def test_who_makes_the_namespace_of_volcanos_scheduler_assigns_nothing(staged):
    squatter = {"kind": "ServiceAccount", "namespace": "volcano-system", "name": "volcano-scheduler"}
    rules = [{"apiGroups": [""], "resources": ["pods", "pods/binding"], "verbs": ["create", "get", "patch"]}]
    account = (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "volcano-system"}},
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "volcano-scheduler", "namespace": "volcano-system"},
        },
        {**ACCOUNT[2], "subjects": [squatter]},
        {**ACCOUNT[3], "rules": rules},
    )
    theirs = {"metadata": {"name": "p"}, "spec": {**SPEC, "schedulerName": "volcano"}}
    forged = {KEY: "GPU-0,NVIDIA,1,1:"}
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "annotations": forged},
        "target": {"kind": "Node", "name": "t4-a"},
    }
    async with staged(nodes=NODES) as stage:
        await apply(stage.admin, account)
        path = "/api/v1/namespaces/volcano-system/serviceaccounts/volcano-scheduler/token"
        answer = await stage.admin.create(path, {"spec": {}})
        async with stage.admin.as_user(answer["status"]["token"]) as forger:
            await until(lambda: _may_read(forger))
            await forger.create(PODS, theirs)
            with pytest.raises(ApiStatusError, match="CS301"):
                await forger.patch(f"{PODS}/p", {"metadata": {"annotations": forged}})
            with pytest.raises(ApiStatusError, match="CS301"):
                await forger.create(f"{PODS}/p/binding", binding)
        found = await stage.admin.get(f"{PODS}/p")
    assert found["metadata"].get("annotations", {}).get(KEY) != forged[KEY]


async def until(ask):
    async with asyncio.timeout(60):
        while not (found := await ask()):  # noqa: ASYNC110 (the cluster tells nobody)
            await asyncio.sleep(0.05)
    return found


async def _may_read(forger: ApiClient) -> bool:
    """A right is in force a moment after it was given."""
    try:
        await forger.get(f"{PODS}/nobody")
    except ApiStatusError as e:
        return e.status == 404
    return True


async def _denials(admin: ApiClient) -> list[Mapping[str, Any]]:
    events = await admin.list("/api/v1/namespaces/default/events")
    return [event for event in events if event["reason"] == "AssignmentWriteDenied"]
