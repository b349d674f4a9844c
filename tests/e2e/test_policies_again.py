"""What the policies of deploy/ do on an API server from which they were removed, and over an upgrade to them."""

import asyncio
import copy
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.servers.fixtures_realapi import binaries_or_skip, logs_folder
from tests.support.servers.policies import ASSIGNMENT, PLURALS, Json, documents, pod
from tests.support.servers.realapi import RealApi
from tests.support.servers.rest import Answer, Rest, connect, eventually

CONFIG_MAPS = "/api/v1/namespaces/cardshare-system/configmaps"


@asynccontextmanager
async def server(tmp_path_factory, name: str) -> AsyncIterator[Rest]:
    """A server of its own with the namespace, and its administrator."""
    async with (
        RealApi(binaries_or_skip(), logs=logs_folder(name, tmp_path_factory)) as api,
        connect(api.url, api.ca_file, api.admin_token) as admin,
    ):
        await admin.made("/api/v1/namespaces", {"metadata": {"name": "cardshare-system"}})
        yield admin


async def hostile(admin: Rest) -> Answer:
    """What comes of a pod with an assignment."""
    return await admin.post("/api/v1/namespaces/default/pods?dryRun=All", pod("p", {ASSIGNMENT: "x"}))


async def all_seen(admin: Rest) -> None:
    """Wait until the server, which looks once a second, applies a policy that was written last."""
    name = f"later-{secrets.token_hex(2)}"
    what = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    denies = {"validations": [{"expression": f"object.metadata.name != '{name}'"}]}
    policy = {"metadata": {"name": name}, "spec": {"matchConstraints": {"resourceRules": [what]}, **denies}}
    binding = {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}}
    await admin.made(PLURALS["ValidatingAdmissionPolicy"], policy)
    await admin.made(PLURALS["ValidatingAdmissionPolicyBinding"], binding)
    asked = {"metadata": {"name": name}}
    await eventually(lambda: admin.post(f"{CONFIG_MAPS}?dryRun=All", asked), lambda answer: answer.status == 422)


async def install(admin: Rest, found: list[Json]) -> None:
    for document in found:
        await admin.made(PLURALS[document["kind"]], document)


async def test_policies_that_were_removed_and_come_back_deny_as_before(tmp_path_factory):
    """With a ConfigMap as parameter they deny nothing until the server starts anew: kubernetes/kubernetes#130887."""
    async with server(tmp_path_factory, "again") as admin:
        for _ in range(2):
            await install(admin, documents())
            await eventually(lambda: hostile(admin), lambda answer: answer.status == 403)
            for document in documents():
                await admin.delete(f"{PLURALS[document['kind']]}/{document['metadata']['name']}")
            await eventually(lambda: hostile(admin), lambda answer: answer.status == 201)
            await all_seen(admin)


def with_parameters(found: list[Json]) -> list[Json]:
    """The same policies as they were before: the accounts in a ConfigMap."""
    former = copy.deepcopy(found)
    for document in former:
        spec = document["spec"]
        if document["kind"] == "ValidatingAdmissionPolicyBinding":
            where = {"name": "cardshare-accounts", "namespace": "cardshare-system"}
            spec["paramRef"] = {**where, "parameterNotFoundAction": "Allow"}
            continue
        spec["paramKind"] = {"apiVersion": "v1", "kind": "ConfigMap"}
        for variable in spec["variables"]:
            if variable["name"] == "trustedAccounts":
                variable["expression"] = "params.?data[?'trusted-accounts'].orValue('').split('\\n')"
    return former


async def test_no_assignment_passes_while_policies_with_parameters_become_those_without(tmp_path_factory):
    """In the order in which kubectl and helm apply: a policy, then its binding; the ConfigMap goes last, or stays."""
    async with server(tmp_path_factory, "upgraded") as admin:
        await admin.made(CONFIG_MAPS, {"metadata": {"name": "cardshare-accounts"}, "data": {"trusted-accounts": "a"}})
        await install(admin, with_parameters(documents()))
        await eventually(lambda: hostile(admin), lambda answer: answer.status == 403)
        seen: list[int] = []

        async def keep_trying() -> None:
            while True:
                seen.append((await hostile(admin)).status)

        trying = asyncio.create_task(keep_trying(), name="hostile")
        try:
            for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"):
                for document in (one for one in documents() if one["kind"] == kind):
                    path = f"{PLURALS[kind]}/{document['metadata']['name']}"
                    gone = {"paramKind": None} if kind == "ValidatingAdmissionPolicy" else {"paramRef": None}
                    assert (await admin.patch(path, {"spec": {**document["spec"], **gone}})).status == 200
                await all_seen(admin)
            await admin.delete(f"{CONFIG_MAPS}/cardshare-accounts")
            await all_seen(admin)
        finally:
            trying.cancel()
        assert set(seen) == {403}
        assert len(seen) > 20
