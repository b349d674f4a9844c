"""The API server double answers over HTTPS what a real one was measured to answer."""

from contextlib import asynccontextmanager

import pytest

from sandbox.api.users import User
from sandbox.client import ApiStatusError
from sandbox.cluster import ADMIN, ClusterSettings, running_cluster

PODS = "/api/v1/namespaces/default/pods"
SETTINGS = ClusterSettings(kubelet=None, bookmark_s=0.2)


def pod(name="p", **spec):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


def binding(node="n1", uid="", version="", **annotations):
    metadata = {"name": "p", "annotations": annotations}
    if uid:
        metadata["uid"] = uid
    if version:
        metadata["resourceVersion"] = version
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": {"kind": "Node", "name": node}}


@asynccontextmanager
async def api(**changes):
    settings = ClusterSettings(kubelet=None, bookmark_s=0.2, **changes)
    async with running_cluster(settings=settings) as cluster:
        yield cluster.admin


async def refused(call):
    with pytest.raises(ApiStatusError) as caught:
        await call
    return caught.value


async def test_a_watch_goes_on_from_a_list_and_tells_bookmarks():
    async with api() as client:
        version = (await client.get(PODS))["metadata"]["resourceVersion"]
        await client.create(PODS, pod("a"))
        seen = []
        async for event in client.watch(PODS, resource_version=version, params={"timeoutSeconds": "5"}):
            seen.append((event.type, event.object["metadata"].get("name")))
            if len(seen) == 1:
                await client.delete(f"{PODS}/a")
            if event.type == "BOOKMARK":
                assert event.object["metadata"]["resourceVersion"] == str(int(version) + 3)
                break
        assert seen == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("BOOKMARK", None)]


async def test_a_budget_without_disruptions_forbids_eviction():
    async with api() as client:
        running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        body = pod()
        body["metadata"]["labels"] = {"app": "x"}
        await client.create(PODS, body)
        await client.patch(f"{PODS}/p/status", {"status": running})
        budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        selector = {"selector": {"matchLabels": {"app": "x"}}}
        await client.create(budgets, {"metadata": {"name": "b"}, "spec": selector})
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
        assert (await refused(client.create(f"{PODS}/p/eviction", eviction))).status == 429
        await client.patch(f"{budgets}/b/status", {"status": {"disruptionsAllowed": 1}})
        await client.create(budgets, {"metadata": {"name": "c"}, "spec": selector})
        await client.patch(f"{budgets}/c/status", {"status": {"disruptionsAllowed": 1}})
        answer = await client.create(f"{PODS}/p/eviction", eviction)
        assert (answer["status"], answer["code"]) == ("Failure", 500)
        assert len(await client.list(PODS)) == 1
        await client.delete(f"{budgets}/c")
        await client.create(f"{PODS}/p/eviction", eviction)
        assert await client.list(PODS) == ()
        # It allowed one eviction. It counts neither pods that do not run nor, if it says so, those that are not ready.
        await client.create(PODS, body)
        await client.patch(f"{PODS}/p/status", {"status": running})
        assert (await refused(client.create(f"{PODS}/p/eviction", eviction))).status == 429
        await client.patch(f"{budgets}/b", {"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}})
        assert (await refused(client.create(f"{PODS}/p/eviction", eviction))).status == 429
        for status in ({"phase": "Pending"}, {**running, "conditions": []}):
            await client.patch(f"{PODS}/p/status", {"status": status})
            await client.create(f"{PODS}/p/eviction", eviction)
            await client.create(PODS, body)


async def test_nobody_without_a_token_is_answered_and_a_revoked_one_no_longer():
    async with running_cluster(settings=SETTINGS) as cluster:
        token = cluster.api.tokens.issue(ADMIN)
        from sandbox.client import ApiClient

        for known, expected in ((token, None), ("nonsense", 401)):
            async with ApiClient(server=cluster.url, token=known, ca_pem=cluster.ca_pem) as client:
                if expected is None:
                    await client.list(PODS)
                    cluster.api.tokens.revoke(token)
                assert (await refused(client.list(PODS))).status == 401


async def test_requests_are_recorded_and_refused_by_rbac():
    viewer = User(name="viewer")
    group = "rbac.authorization.k8s.io"
    role = {"metadata": {"name": "view"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]}
    bound = {
        "metadata": {"name": "view"},
        "subjects": [{"kind": "User", "name": "viewer"}],
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "view"},
    }
    settings = ClusterSettings(kubelet=None, enforces_rbac=True)
    async with running_cluster(settings=settings) as cluster, cluster.client(viewer) as client:
        assert (await refused(client.list(PODS))).status == 403
        await cluster.admin.create(f"/apis/{group}/v1/namespaces/default/roles", role)
        await cluster.admin.create(f"/apis/{group}/v1/namespaces/default/rolebindings", bound)
        await client.list(PODS)
        error = await refused(client.create(PODS, pod()))
        assert 'User "viewer" cannot create resource "pods" in API group "" in the namespace "default"' in error.message
        assert (await refused(client.list("/api/v1/pods"))).status == 403
        assert cluster.api.recorder.used_by("viewer") == {("list", "", "pods", ""), ("create", "", "pods", "")}
        review = {
            "spec": {
                "user": "viewer",
                "resourceAttributes": {"verb": "list", "resource": "pods", "namespace": "default"},
            }
        }
        answer = await cluster.admin.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        assert answer["status"] == {"allowed": True}


async def test_a_rule_for_one_name_holds_for_lists_that_select_it():
    group, path = "rbac.authorization.k8s.io", "/api/v1/namespaces/default/configmaps"
    rule = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["mine"], "verbs": ["list"]}
    bound = {
        "metadata": {"name": "one"},
        "subjects": [{"kind": "User", "name": "viewer"}],
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "one"},
    }
    settings = ClusterSettings(kubelet=None, enforces_rbac=True)
    async with running_cluster(settings=settings) as cluster, cluster.client(User(name="viewer")) as client:
        roles = f"/apis/{group}/v1/namespaces/default/"
        await cluster.admin.create(roles + "roles", {"metadata": {"name": "one"}, "rules": [rule]})
        await cluster.admin.create(roles + "rolebindings", bound)
        await client.list(path, field_selector="metadata.name=mine")
        assert (await refused(client.list(path, field_selector="metadata.name=other"))).status == 403
        assert (await refused(client.list(path))).status == 403


async def test_a_service_accounts_token_is_good_for_its_audience_only():
    async with api() as client:
        path = "/api/v1/namespaces/default/serviceaccounts/default/token"
        asked = {"spec": {"audiences": ["cardshare"], "expirationSeconds": 600}}
        token = (await client.create(path, asked))["status"]["token"]
        reviews = "/apis/authentication.k8s.io/v1/tokenreviews"

        async def review(*audiences):
            return (await client.create(reviews, {"spec": {"token": token, "audiences": audiences}}))["status"]

        status = await review("cardshare", "other")
        assert (status["authenticated"], status["audiences"]) == (True, ["cardshare"])
        assert status["user"]["username"] == "system:serviceaccount:default:default"
        assert "authenticated" not in await review("other")


async def test_a_namespace_takes_its_objects_with_it():
    async with api() as client:
        assert (await refused(client.create("/api/v1/namespaces/new/pods", pod()))).status == 404
        await client.create("/api/v1/namespaces", {"metadata": {"name": "new"}})
        await client.create("/api/v1/namespaces/new/pods", pod())
        await client.delete("/api/v1/namespaces/new")
        assert (await refused(client.get("/api/v1/namespaces/new"))).status == 404
        assert await client.list("/api/v1/pods") == ()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (PODS, {"metadata": [], "spec": {}}),
        (PODS, {"metadata": {"name": "x"}, "spec": "none"}),
        (PODS, {"metadata": {"name": "x"}}),
        (f"{PODS}/p/binding", {"metadata": "x", "target": {"name": "n"}}),
        (f"{PODS}/p/binding", {"metadata": {}, "target": "n"}),
        (f"{PODS}/p/eviction", {"deleteOptions": {"gracePeriodSeconds": "soon"}}),
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {"metadata": {"name": "x"}, "spec": {}}),
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {"metadata": {"name": "x"}}),
    ],
)
async def test_a_malformed_body_is_the_callers_fault(path, body):
    async with api() as client:
        await client.create(PODS, pod())
        assert 400 <= (await refused(client.create(path, body))).status < 500
        await client.get("/apis")
