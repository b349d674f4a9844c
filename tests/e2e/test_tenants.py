"""What a tenant with the rights of ``edit`` in one namespace gets past webhook and policies, where all is installed."""

import asyncio
import itertools
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, Phase, given, seed, settings

from sandbox.nodes.kubelet import STOP_SECONDS
from tests.support.devices.hostile_pods import harm, is_assignment, pods
from tests.support.servers.rest import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    Answer,
    Rest,
    connect,
    eventually,
)
from tests.support.servers.stage_realapi import Installed, away

pytestmark = pytest.mark.asyncio(loop_scope="session")

Json = dict[str, Any]
RBAC = "/apis/rbac.authorization.k8s.io/v1"
# What `edit` is made of: where no controller manager runs, nobody puts them together.
EDIT = ("system:aggregate-to-edit", "system:aggregate-to-view")
FORGED = {
    "volcano.sh/vgpu-ids-new": "GPU-0,NVIDIA,1,1:",
    "volcano.sh/devices-to-allocate": "GPU-0,NVIDIA,1,1:",
    "volcano.sh/gpu-index": "1",
    "hami.io/AscendX9-devices-to-allocate": "U0,AscendX9,1,0:;",
    "huawei.com/npu-core": "0",
}
KEYS = tuple(FORGED)
SHARE = {"volcano.sh/gpu-memory": "1000"}
VGPU = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "1000"}


class Tenant:
    """Somebody who may edit one namespace."""

    def __init__(self, installed: Installed, namespace: str) -> None:
        self.api = installed.api
        self.installed = installed
        self.namespace = namespace
        self.core = f"/api/v1/namespaces/{namespace}"
        self.pods = f"{self.core}/pods"

    @asynccontextmanager
    async def rest(self, account: str = "tenant") -> AsyncIterator[Rest]:
        token = await self.api.token_for(account, self.namespace)
        async with connect(self.api.url, self.api.ca_file, token) as rest:
            yield rest

    @asynccontextmanager
    async def admin(self, name: str = "") -> AsyncIterator[Rest]:
        """An administrator, or a controller of the control plane called *name*, with its rights and more."""
        headers = []
        if name:
            account = f"system:serviceaccount:kube-system:{name}"
            headers = [("Impersonate-User", account), ("Impersonate-Group", "system:masters")]
        async with connect(self.api.url, self.api.ca_file, self.api.admin_token, headers) as rest:
            yield rest


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def tenant(installed: Installed) -> AsyncIterator[Tenant]:
    namespace = f"tenant-{secrets.token_hex(3)}"
    found = Tenant(installed, namespace)
    async with found.admin() as admin:
        await admin.made("/api/v1/namespaces", {"metadata": {"name": namespace}})
        await admin.made(f"{found.core}/serviceaccounts", {"metadata": {"name": "tenant"}})
        for role in EDIT:
            subject = {"kind": "ServiceAccount", "name": "tenant", "namespace": namespace}
            bound = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}}
            name = {"metadata": {"name": role.replace(":", "-")}, "subjects": [subject]}
            await admin.made(f"{RBAC}/namespaces/{namespace}/rolebindings", {**name, **bound})
        yield found
        await admin.delete(found.pods, {"gracePeriodSeconds": 0})
        await admin.delete(f"/api/v1/namespaces/{namespace}")


def container(limits: Json | None = None, **more: Any) -> Json:
    return {"name": "main", "image": "i", "resources": {"limits": limits or {}}, **more}


def pod(name: str, limits: Json | None = None, annotations: Json | None = None, **spec: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"containers": [container(limits)], **spec},
    }


def assigned(body: Json) -> Json:
    return {key: value for key, value in (body["metadata"].get("annotations") or {}).items() if is_assignment(key)}


async def running(rest: Rest, path: str) -> Json:
    answer = await eventually(lambda: rest.get(path), lambda one: one.body.get("status", {}).get("phase") == "Running")
    return dict(answer.body)


def drawn(count: int) -> list[Json]:
    """*count* hostile pods, the same ones in every run."""
    found: list[Json] = []

    @seed(9)
    @settings(max_examples=count, database=None, phases=[Phase.generate], suppress_health_check=[*HealthCheck])
    @given(pods())
    def draw(one: Json) -> None:
        found.append(one)

    draw()
    return found


async def test_of_hostile_pods_nothing_is_stored_that_reaches_more_than_its_share(tenant: Tenant):
    hostile = [one for one in drawn(250) if list(harm(one))]
    admitted = 0
    async with tenant.rest() as rest:
        for body in hostile:
            answer = await rest.post(f"{tenant.pods}?dryRun=All", body)
            assert answer.status in {201, 403, 422}, (body, answer)
            if answer.status == 201:
                admitted += 1
                assert list(harm(answer.body)) == [], body
    assert len(hostile) > 100
    assert 0 < admitted < len(hostile)


async def test_while_the_webhook_is_away_no_hostile_pod_is_stored_either(tenant: Tenant):
    hostile = [one for one in drawn(250) if list(harm(one))][:12]
    async with tenant.rest() as rest, away(tenant.installed.stage.product):
        answers = await asyncio.gather(*(rest.post(tenant.pods, body) for body in hostile))
        for body, answer in zip(hostile, answers, strict=True):
            assert answer.status in {403, 422, 500}, (body, answer)


WAYS: dict[str, Callable[[Rest, str, str], Any]] = {
    "merge": lambda rest, path, key: rest.patch(path, {"metadata": {"annotations": {key: FORGED[key]}}}, MERGE_PATCH),
    "strategic": lambda rest, path, key: rest.patch(
        path, {"metadata": {"annotations": {key: FORGED[key]}}}, STRATEGIC_PATCH
    ),
    "remove": lambda rest, path, key: rest.patch(path, {"metadata": {"annotations": {key: None}}}, MERGE_PATCH),
    "all": lambda rest, path, key: rest.patch(path, {"metadata": {"annotations": None}}, MERGE_PATCH),
    "json": lambda rest, path, key: rest.patch(
        path,
        [{"op": "add", "path": f"/metadata/annotations/{key.replace('/', '~1')}", "value": FORGED[key]}],
        JSON_PATCH,
    ),
    "apply": lambda rest, path, key: rest.patch(
        f"{path}?fieldManager=t&force=true",
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"annotations": {key: FORGED[key]}}},
        APPLY_PATCH,
    ),
    "status": lambda rest, path, key: rest.patch(
        f"{path}/status", {"metadata": {"annotations": {key: FORGED[key]}}}, STRATEGIC_PATCH
    ),
    "ended": lambda rest, path, key: rest.patch(f"{path}/status", {"status": {"phase": "Succeeded"}}, STRATEGIC_PATCH),
    "binding": lambda rest, path, key: rest.post(
        f"{path}/binding",
        {
            "metadata": {"name": path.rpartition("/")[2], "annotations": {key: FORGED[key]}},
            "target": {"kind": "Node", "name": "a"},
        },
    ),
    "debug": lambda rest, path, key: rest.patch(
        f"{path}/ephemeralcontainers",
        {
            "metadata": {"annotations": {key: FORGED[key]}},
            "spec": {
                "ephemeralContainers": [
                    {"name": "d", "image": "i", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
                ]
            },
        },
        STRATEGIC_PATCH,
    ),
    "resize": lambda rest, path, key: rest.patch(
        f"{path}/resize",
        {
            "metadata": {"annotations": {key: FORGED[key]}},
            "spec": {"containers": [{"name": "main", "resources": {"limits": {"volcano.sh/gpu-memory": "9000"}}}]},
        },
        STRATEGIC_PATCH,
    ),
}


@pytest.mark.parametrize("is_away", [False, True], ids=["", "webhook-away"])
async def test_no_way_of_writing_a_running_pod_moves_it_to_another_card(tenant: Tenant, is_away: bool):
    """Nor while it is being deleted with a long grace period: its containers run on."""
    name = f"runs-{secrets.token_hex(2)}"
    path = f"{tenant.pods}/{name}"
    async with tenant.rest() as rest, tenant.admin() as admin, AsyncExitStack() as stack:
        body = pod(name, SHARE, annotations={STOP_SECONDS: "600"}, terminationGracePeriodSeconds=600)
        body["metadata"]["finalizers"] = ["example.com/kept"]
        await rest.made(tenant.pods, body)
        before = await running(rest, path)
        assert assigned(before)
        if is_away:
            await stack.enter_async_context(away(tenant.installed.stage.product))
        try:
            for deleting in (False, True):
                if deleting:
                    await rest.delete(path)
                # While the webhook is away, each lasts as long as the API server waits for it: all keys are one turn.
                for keys in [KEYS] if is_away else [(key,) for key in KEYS]:
                    ways = [*itertools.product(keys, WAYS)]
                    answers: list[Answer] = await asyncio.gather(*(WAYS[way](rest, path, key) for key, way in ways))
                    found = await admin.get(path)
                    written = (deleting, dict(zip(ways, answers, strict=True)))
                    assert assigned(found.body) == assigned(before), written
                    assert found.body["status"]["phase"] == "Running", written
                    assert not found.body["spec"].get("ephemeralContainers"), written
                    assert found.body["spec"]["containers"] == before["spec"]["containers"], written
        finally:
            await stack.aclose()
            await admin.patch(path, {"metadata": {"finalizers": None}})
            await admin.delete(path, {"gracePeriodSeconds": 0})


async def test_a_manifest_with_an_assignment_is_applied_server_side_again(tenant: Tenant):
    """With and without another change; its pod, which runs by then, keeps its own assignment."""
    name = f"applied-{secrets.token_hex(2)}"
    path = f"{tenant.pods}/{name}"
    body = pod(name, SHARE, annotations={"volcano.sh/gpu-index": "1", "volcano.sh/vgpu-ids-new": "GPU-9,NVIDIA,1,1:"})
    async with tenant.rest() as rest:
        try:
            before: Json = {}
            for team in ("a", "a", "b"):
                manifest = {**body, "metadata": {**body["metadata"], "labels": {"team": team}}}
                answer = await rest.patch(f"{path}?fieldManager=flux", manifest, APPLY_PATCH)
                assert answer.status in {200, 201}, answer
                found = await running(rest, path)
                assert found["metadata"]["labels"]["team"] == team
                assert "volcano.sh/vgpu-ids-new" not in assigned(found)
                before = before or assigned(found)
                assert assigned(found) == before
        finally:
            await rest.delete(path, {"gracePeriodSeconds": 0})


async def test_a_tenants_own_accounts_are_nobody_who_is_trusted(tenant: Tenant):
    """By whatever name, and by impersonation, which `edit` allows within the namespace."""
    path = f"{tenant.pods}/waits"
    async with tenant.rest() as rest, tenant.admin() as admin:
        await rest.made(tenant.pods, pod("waits", annotations={"a": "b"}, schedulerName="nobody"))
        try:
            for name in ("volcano-device-plugin", "hami-ascend", "cardshare-controller", "ascend-device-plugin-sa-1"):
                await rest.made(f"{tenant.core}/serviceaccounts", {"metadata": {"name": name}})
                for role in EDIT:
                    subject = {"kind": "ServiceAccount", "name": name, "namespace": tenant.namespace}
                    bound = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}}
                    meta = {"metadata": {"generateName": "b-"}, "subjects": [subject]}
                    await admin.made(f"{RBAC}/namespaces/{tenant.namespace}/rolebindings", {**meta, **bound})
                async with tenant.rest(name) as forged:
                    denied = await forged.patch(path, {"metadata": {"annotations": FORGED}})
                    assert (denied.status, "CS301" in denied.message) == (422, True), denied
            trusted = "system:serviceaccount:kube-system:volcano-device-plugin"
            token = await tenant.api.token_for("tenant", tenant.namespace)
            as_trusted = [("Impersonate-User", trusted)]
            async with connect(tenant.api.url, tenant.api.ca_file, token, as_trusted) as forged:
                assert (await forged.get(path)).status == 403
            for kind in ("configmaps", "secrets"):
                assert (await rest.get(f"/api/v1/namespaces/cardshare-system/{kind}")).status == 403
        finally:
            await rest.delete(path, {"gracePeriodSeconds": 0})


LABELS = {"matchLabels": {"app": "w"}}


def templates(template: Json) -> dict[str, tuple[str, Json, str]]:
    """Path below the namespace, spec, and the controller that makes the pods, of every kind that holds a template."""
    never = {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}
    return {
        "Deployment": ("apps/v1", {"selector": LABELS, "template": template}, "replicaset-controller"),
        "ReplicaSet": ("apps/v1", {"selector": LABELS, "template": template}, "replicaset-controller"),
        "StatefulSet": (
            "apps/v1",
            {"selector": LABELS, "template": template, "serviceName": "s"},
            "statefulset-controller",
        ),
        "DaemonSet": ("apps/v1", {"selector": LABELS, "template": template}, "daemon-set-controller"),
        "Job": ("batch/v1", {"template": never}, "job-controller"),
        "CronJob": ("batch/v1", {"schedule": "@daily", "jobTemplate": {"spec": {"template": never}}}, "job-controller"),
        "ReplicationController": (
            "v1",
            {"selector": LABELS["matchLabels"], "template": template},
            "replication-controller",
        ),
        "PodTemplate": ("v1", {}, "replication-controller"),
    }


@pytest.mark.parametrize("kind", list(templates({"spec": {}})))
async def test_no_template_makes_pods_with_an_assignment_or_a_way_around_their_share(tenant: Tenant, kind: str):
    """Whatever is said of the template, its pods are judged when their controller makes them, by generated names."""
    plain = {"metadata": {"labels": {"app": "w"}, "annotations": FORGED}, "spec": pod("x", VGPU)["spec"]}
    evading = {"metadata": {"labels": {"app": "w"}}, "spec": pod("x", VGPU)["spec"]}
    evading["spec"]["containers"][0]["env"] = [{"name": "CUDA_DISABLE_CONTROL", "value": "true"}]
    group, spec, controller = templates(plain)[kind]
    where = f"/api/{group}" if group == "v1" else f"/apis/{group}"
    body: Json = {"apiVersion": group, "kind": kind, "metadata": {"generateName": "t-"}}
    body |= {"template": plain} if kind == "PodTemplate" else {"spec": spec}
    async with tenant.rest() as rest, tenant.admin(controller) as made_by:
        listed = "replicationcontrollers" if kind == "ReplicationController" else f"{kind.lower()}s"
        answer = await rest.post(f"{where}/namespaces/{tenant.namespace}/{listed}?dryRun=All", body)
        assert answer.status in {201, 403, 422}, answer
        owner = [{"apiVersion": group, "kind": kind, "name": "t", "uid": "u", "controller": True}]
        meta = {"generateName": "t-", "ownerReferences": owner, "labels": {"app": "w"}}
        forged = {"metadata": {**meta, "annotations": FORGED}, "spec": plain["spec"]}
        stored = await made_by.post(f"{tenant.pods}?dryRun=All", forged)
        assert stored.status == 201, stored
        assert assigned(stored.body) == {}
        denied = await made_by.post(f"{tenant.pods}?dryRun=All", {"metadata": meta, "spec": evading["spec"]})
        assert (denied.status, "CS304" in denied.message) == (422, True), denied
