"""The API server double answers over HTTPS what a real one was measured to answer."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from sandbox.api.users import User
from sandbox.client import ApiStatusError, PatchKind
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


async def test_a_pod_is_completed_created_and_listed_without_its_kind():
    async with api() as client:
        created = await client.create(PODS, pod())
        assert created["status"]["phase"] == "Pending"
        assert created["spec"]["schedulerName"] == "default-scheduler"
        (listed,) = await client.list(PODS)
        # The real server leaves them out of lists of built-in kinds.
        assert "kind" not in listed
        assert listed["metadata"]["uid"] == created["metadata"]["uid"]
        assert (await refused(client.create(PODS, pod()))).reason == "AlreadyExists"


async def test_one_binding_carries_everything_in_one_version():
    async with api() as client:
        created = await client.create(PODS, pod())
        metadata = created["metadata"]
        body = binding(uid=metadata["uid"], version=metadata["resourceVersion"], a="1")
        assert (await client.create(f"{PODS}/p/binding", body))["status"] == "Success"
        bound = await client.get(f"{PODS}/p")
        assert bound["spec"]["nodeName"] == "n1"
        assert bound["metadata"]["annotations"] == {"a": "1"}
        assert bound["status"]["conditions"][0]["type"] == "PodScheduled"
        assert int(bound["metadata"]["resourceVersion"]) == int(metadata["resourceVersion"]) + 1


async def test_of_six_bindings_at_once_one_wins_and_only_its_annotations_are_there():
    async with api() as client:
        await client.create(PODS, pod())

        async def attempt(i):
            try:
                await client.create(f"{PODS}/p/binding", binding(f"n{i}", who=str(i)))
            except ApiStatusError as e:
                return e.status
            return 201

        answers = await asyncio.gather(*(attempt(i) for i in range(6)))
        assert sorted(answers) == [201, 409, 409, 409, 409, 409]
        winner = answers.index(201)
        bound = await client.get(f"{PODS}/p")
        assert (bound["spec"]["nodeName"], bound["metadata"]["annotations"]) == (f"n{winner}", {"who": str(winner)})


async def test_a_bad_key_of_a_binding_is_stored_and_spoils_later_writes_until_it_is_removed():
    async with api() as client:
        await client.create(PODS, pod())
        await client.create(f"{PODS}/p/binding", binding(**{"bad key!": "x", "big": "y" * 300_000}))
        status = {"status": {"message": "m"}}
        labels = {"metadata": {"labels": {"a": "b"}}}
        assert (await refused(client.patch(f"{PODS}/p/status", status))).status == 422
        assert (await refused(client.patch(f"{PODS}/p", labels))).status == 422
        repaired = {"metadata": {"annotations": {"bad key!": None, "big": None}}}
        await client.patch(f"{PODS}/p", repaired)
        await client.patch(f"{PODS}/p/status", status)


async def test_of_five_patches_with_one_version_one_is_written():
    async with api() as client:
        version = (await client.create(PODS, pod()))["metadata"]["resourceVersion"]

        async def attempt(i):
            try:
                metadata = {"resourceVersion": version, "labels": {"n": str(i)}}
                await client.patch(f"{PODS}/p", {"metadata": metadata})
            except ApiStatusError as e:
                return e.status
            return 200

        assert sorted(await asyncio.gather(*(attempt(i) for i in range(5)))) == [200, 409, 409, 409, 409]


async def test_status_and_spec_are_written_apart():
    async with api() as client:
        await client.create(PODS, pod())
        await client.patch(f"{PODS}/p", {"status": {"phase": "Running"}})
        assert (await client.get(f"{PODS}/p"))["status"]["phase"] == "Pending"
        body = {"status": {"phase": "Running"}, "spec": {"nodeName": "n"}, "metadata": {"annotations": {"a": "b"}}}
        changed = await client.patch(f"{PODS}/p/status", body, PatchKind.STRATEGIC)
        assert (changed["status"]["phase"], changed["spec"].get("nodeName")) == ("Running", None)
        assert changed["metadata"]["annotations"] == {"a": "b"}


async def test_a_failing_test_operation_is_invalid_and_no_conflict():
    async with api() as client:
        await client.create(PODS, pod())
        operation = [{"op": "test", "path": "/metadata/name", "value": "q"}]
        error = await refused(client.patch(f"{PODS}/p", operation, PatchKind.JSON))
        assert (error.status, error.reason) == (422, "Invalid")


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


async def test_a_watch_ends_after_its_timeout():
    async with api() as client:
        async with asyncio.timeout(5):
            events = [event.type async for event in client.watch(PODS, params={"timeoutSeconds": "1"})]
        assert set(events) <= {"BOOKMARK"}


async def test_a_streamed_list_ends_with_its_bookmark():
    async with api() as client:
        await client.create(PODS, pod("a"))
        params = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "timeoutSeconds": "1"}
        events = [event async for event in client.watch(PODS, params=params)]
        assert [event.type for event in events[:2]] == ["ADDED", "BOOKMARK"]
        assert events[1].object["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        del params["resourceVersionMatch"]
        with pytest.raises(ApiStatusError, match="NotOlderThan"):
            await anext(client.watch(PODS, params=params))


async def test_a_compacted_revision_is_an_error_event_and_a_compacted_token_a_status():
    async with running_cluster(settings=SETTINGS) as cluster:
        client = cluster.admin
        version = (await client.create(PODS, pod("a")))["metadata"]["resourceVersion"]
        await client.create(PODS, pod("b"))
        page = await client.get(PODS, {"limit": "1"})
        assert page["metadata"]["remainingItemCount"] == 1
        cluster.api.store.compact()
        with pytest.raises(ApiStatusError) as caught:
            await anext(client.watch(PODS, resource_version=version))
        assert (caught.value.status, caught.value.reason) == (410, "Expired")
        following = {"limit": "1", "continue": page["metadata"]["continue"]}
        assert (await refused(client.get(PODS, following))).status == 410


async def test_a_list_at_a_revision_to_come_times_out_and_zero_ignores_the_limit():
    async with api() as client:
        await client.create(PODS, pod("a"))
        await client.create(PODS, pod("b"))
        assert (await refused(client.get(PODS, {"resourceVersion": "999999"}))).status == 504
        assert len((await client.get(PODS, {"resourceVersion": "0", "limit": "1"}))["items"]) == 2


async def test_grace_and_finalizers_delay_the_end_of_a_pod():
    async with api() as client:
        held = pod(nodeName="n1")
        held["metadata"]["finalizers"] = ["example.com/hold"]
        await client.create(PODS, held)
        marked = await client.delete(f"{PODS}/p")
        assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
        assert (await refused(client.create(f"{PODS}/p/binding", binding()))).status == 409
        more = {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
        assert (await refused(client.patch(f"{PODS}/p", more))).status == 422
        await client.delete(f"{PODS}/p", grace_s=0)
        assert (await client.get(f"{PODS}/p"))["metadata"]["deletionGracePeriodSeconds"] == 0
        await client.patch(f"{PODS}/p", {"metadata": {"finalizers": None}})
        assert (await refused(client.get(f"{PODS}/p"))).status == 404


async def test_an_unbound_pod_goes_at_once_and_only_the_one_that_was_meant():
    async with api() as client:
        uid = (await client.create(PODS, pod()))["metadata"]["uid"]
        assert (await refused(client.delete(f"{PODS}/p", uid="another"))).status == 409
        await client.delete(f"{PODS}/p", uid=uid)
        assert (await refused(client.get(f"{PODS}/p"))).status == 404


async def test_a_dry_run_changes_nothing():
    async with api() as client:
        dry = {"dryRun": "All"}
        made = await client.create(PODS, pod(), dry)
        assert made["metadata"]["uid"]
        assert await client.list(PODS) == ()
        await client.create(PODS, pod())
        changed = await client.patch(f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}}, params=dry)
        assert changed["metadata"]["labels"] == {"a": "b"}
        await client.create(f"{PODS}/p/binding", binding(), dry)
        await client.delete(f"{PODS}/p", params=dry)
        there = await client.get(f"{PODS}/p")
        assert ("labels" in there["metadata"], there["spec"].get("nodeName")) == (False, None)


async def test_a_collection_is_deleted_by_selector():
    async with api() as client:
        for name, app in (("a", "x"), ("b", "y")):
            body = pod(name)
            body["metadata"]["labels"] = {"app": app}
            await client.create(PODS, body)
        await client.delete(PODS, params={"labelSelector": "app=x"})
        assert [p["metadata"]["name"] for p in await client.list(PODS)] == ["b"]


async def test_a_budget_without_disruptions_forbids_eviction():
    async with api() as client:
        body = pod()
        body["metadata"]["labels"] = {"app": "x"}
        await client.create(PODS, body)
        budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        selector = {"selector": {"matchLabels": {"app": "x"}}}
        await client.create(budgets, {"metadata": {"name": "b"}, "spec": selector})
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
        assert (await refused(client.create(f"{PODS}/p/eviction", eviction))).status == 429
        await client.patch(f"{budgets}/b/status", {"status": {"disruptionsAllowed": 1}})
        await client.create(f"{PODS}/p/eviction", eviction)
        assert await client.list(PODS) == ()


async def test_custom_resources_come_and_go_with_their_definition():
    definition = {
        "metadata": {"name": "queues.scheduling.volcano.sh"},
        "spec": {
            "group": "scheduling.volcano.sh",
            "scope": "Cluster",
            "names": {"kind": "Queue", "plural": "queues", "shortNames": ["q"]},
            "versions": [{"name": "v1beta1", "served": True, "storage": True, "subresources": {"status": {}}}],
        },
    }
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    queues = "/apis/scheduling.volcano.sh/v1beta1/queues"
    async with api() as client:
        assert (await refused(client.list(queues))).status == 404
        await client.create(crds, definition)
        await client.create(queues, {"metadata": {"name": "q"}, "spec": {"weight": 1}, "status": {"x": 1}})
        made = await client.patch(f"{queues}/q", {"spec": {"weight": 2}, "status": {"x": 1}})
        assert (made["metadata"]["generation"], made.get("status")) == (2, None)
        assert (await client.patch(f"{queues}/q/status", {"status": {"x": 1}}))["status"] == {"x": 1}
        assert (await refused(client.patch(f"{queues}/q", {}, PatchKind.STRATEGIC))).status == 415
        await client.delete(f"{crds}/queues.scheduling.volcano.sh")
        assert (await refused(client.list(queues))).status == 404


async def test_one_event_is_shown_in_both_groups():
    async with api() as client:
        event = {
            "metadata": {"name": "e"},
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
            "message": "no room",
            "reason": "FailedScheduling",
            "reportingComponent": "cardshare",
        }
        await client.create("/api/v1/namespaces/default/events", event)
        shown = await client.get("/apis/events.k8s.io/v1/namespaces/default/events/e")
        assert (shown["note"], shown["regarding"]["name"], shown["reportingController"]) == (
            "no room",
            "p",
            "cardshare",
        )
        selected = await client.list("/api/v1/events", field_selector="involvedObject.name=p,reason=FailedScheduling")
        assert len(selected) == 1


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


async def test_a_body_over_three_mebibytes_and_an_object_over_etcds_limit_are_refused():
    async with api() as client:
        maps = "/api/v1/namespaces/default/configmaps"
        assert (
            await refused(client.create(maps, {"metadata": {"name": "a"}, "data": {"x": "y" * 3_200_000}}))
        ).status == 413
        error = await refused(client.create(maps, {"metadata": {"name": "a"}, "data": {"x": "y" * 2_000_000}}))
        assert (error.status, error.message) == (500, "etcdserver: request is too large")
        await client.create(maps, {"metadata": {"name": "a"}, "data": {"x": "y" * 1_400_000}})


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
