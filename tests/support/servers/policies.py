"""A real API server with the policies of deploy/ in force and no webhook at all, seen by anybody."""

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio
import yaml

from tests.support.servers.realapi import RealApi
from tests.support.servers.rest import STRATEGIC_PATCH, Rest, connect, eventually

Json = dict[str, Any]
BASE = Path(__file__).parents[3] / "deploy/base"
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
PLURALS = {
    "ValidatingAdmissionPolicy": f"{REGISTRATION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{REGISTRATION}/validatingadmissionpolicybindings",
}
NODE_NAME = "authentication.kubernetes.io/node-name"
ASSIGNMENT = "volcano.sh/vgpu-ids-new"
REGISTER = "volcano.sh/node-vgpu-register"
PLUGIN = "system:serviceaccount:kube-system:volcano-device-plugin"
CONTROLLER = "system:serviceaccount:cardshare-system:cardshare-controller"
HAMI = "system:serviceaccount:kube-system:hami-ascend"
MINDCLUSTER = "system:serviceaccount:kube-system:ascend-device-plugin-sa-310p"
VOLCANO = "system:serviceaccount:volcano-system:volcano-scheduler"
USER = "dana"


def documents() -> list[Json]:
    return list(yaml.safe_load_all((BASE / "policy.yaml").read_text()))


class Cluster:
    """A server with the policies, seen by anybody."""

    def __init__(self, api: RealApi, namespace: str, node: str) -> None:
        self._api = api
        self.pods = f"/api/v1/namespaces/{namespace}/pods"
        self.node = node

    def cpu_s(self) -> float:
        """CPU seconds of the API server until now."""
        return self._api.apiserver.cpu_s()

    @asynccontextmanager
    async def user(
        self, name: str, *, node: str = "", groups: Sequence[str] = (), extra: Mapping[str, str] | None = None
    ) -> AsyncIterator[Rest]:
        """*name*, whom RBAC lets do everything; node: of the token."""
        headers = [("Impersonate-User", name), ("Impersonate-Group", "system:masters")]
        headers += [("Impersonate-Group", group) for group in groups]
        if node:
            headers.append((f"Impersonate-Extra-{quote(NODE_NAME, safe='')}", node))
        async with connect(self._api.url, self._api.ca_file, self._api.admin_token, headers) as rest:
            yield rest

    @asynccontextmanager
    async def kubelet(self, node: str = "") -> AsyncIterator[Rest]:
        async with self.user(f"system:node:{node or self.node}", groups=("system:nodes",)) as rest:
            yield rest


def pod(name: str, annotations: Json | None = None, limits: Json | None = None, **spec: Any) -> Json:
    container = {"name": "main", "image": "i", "resources": {"limits": limits or {}}}
    return {
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"containers": [container], "schedulerName": "nobody", **spec},
    }


def annotated(key: str, value: str | None = "x") -> Json:
    return {"metadata": {"annotations": {key: value}}}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def guarded(realapi: RealApi) -> AsyncIterator[RealApi]:
    """The shared server with the policies in force, and without them afterwards."""
    async with connect(realapi.url, realapi.ca_file, realapi.admin_token) as admin:
        for document in documents():
            await admin.made(PLURALS[document["kind"]], document)
        try:
            await eventually(
                lambda: admin.post("/api/v1/namespaces/default/pods?dryRun=All", pod("p", {ASSIGNMENT: "x"})),
                lambda answer: answer.status == 403,
            )
            await nodes_are_guarded(realapi, admin)
            yield realapi
        finally:
            for document in documents():
                await admin.delete(f"{PLURALS[document['kind']]}/{document['metadata']['name']}")


async def nodes_are_guarded(api: RealApi, admin: Rest) -> None:
    name = f"probe-{secrets.token_hex(4)}"
    await admin.made("/api/v1/nodes", {"metadata": {"name": name}})
    cluster, path = Cluster(api, "default", name), f"/api/v1/nodes/{name}?dryRun=All"
    # Two policies, each of which the server obeys a moment after it was made.
    async with cluster.user(PLUGIN, node="another") as plugin, cluster.user(CONTROLLER) as controller:
        await eventually(lambda: plugin.patch(path, annotated("a"), STRATEGIC_PATCH), lambda one: bool(one.warnings))
        await eventually(lambda: controller.patch(path, annotated("a"), STRATEGIC_PATCH), lambda one: one.status == 403)
    await admin.delete(f"/api/v1/nodes/{name}")


@pytest.fixture
def cluster(guarded: RealApi, namespace: str, node: str) -> Cluster:
    return Cluster(guarded, namespace, node)
