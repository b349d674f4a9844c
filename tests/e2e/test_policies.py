"""What the policies of deploy/ let whom write of pods on a real API server where there is no webhook at all."""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from core.settings import CONTROLLER_ACCOUNT
from tests.support.servers.hami import hamis_rights
from tests.support.servers.policies import (
    ASSIGNMENT,
    NODE_NAME,
    PLUGIN,
    PLURALS,
    USER,
    VOLCANO,
    Cluster,
    Json,
    annotated,
    pod,
)
from tests.support.servers.realapi import RealApi
from tests.support.servers.rest import APPLY_PATCH, JSON_PATCH, STRATEGIC_PATCH, Answer, Rest, connect, eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

KNOWN = (ASSIGNMENT, "volcano.sh/gpu-index", "predicate-time", "huawei.com/Ascend910A")
# Those of chip models that nobody knows yet too.
KEYS = (*KNOWN, "huawei.com/AscendX9", "hami.io/X9-devices-to-allocate")


@asynccontextmanager
async def variable(
    admin: Rest, name: str, expression: str, ask: Callable[[], Awaitable[Answer]], status: int
) -> AsyncIterator[None]:
    """The variable *name* of the policies that have it is *expression* meanwhile; then *ask* is answered *status*."""
    usual = (await ask()).status
    before = {}
    for policy in ("pods.cardshare.io", "bindings.cardshare.io"):
        path = f"{PLURALS['ValidatingAdmissionPolicy']}/{policy}"
        variables = (await admin.get(path)).body["spec"]["variables"]
        if name in {one["name"] for one in variables}:
            before[path] = variables
    for path, variables in before.items():
        now = [{**one, "expression": expression} if one["name"] == name else one for one in variables]
        await admin.patch(path, {"spec": {"variables": now}})
    try:
        await eventually(ask, lambda answer: answer.status == status)
        yield
    finally:
        for path, variables in before.items():
            await admin.patch(path, {"spec": {"variables": variables}})
        await eventually(ask, lambda answer: answer.status == usual)


@pytest.mark.parametrize("key", KEYS)
async def test_nobody_but_schedulers_and_plugins_creates_a_pod_with_an_assignment(cluster: Cluster, key: str):
    async with cluster.user(USER) as user, cluster.user(CONTROLLER_ACCOUNT) as controller:
        denied = await user.post(cluster.pods, pod("p", {key: "x"}))
        assert (denied.status, "CS301" in denied.message) == (403, True), denied
        assert (await user.post(f"{cluster.pods}?dryRun=All", pod("p", {"volcano.sh/vgpu-mode": "mig"}))).status == 201
        await controller.made(cluster.pods, pod("p", {key: "x"}))


@pytest.mark.parametrize("key", KEYS)
async def test_nobody_but_schedulers_and_plugins_changes_an_assignment(cluster: Cluster, key: str):
    path = f"{cluster.pods}/p"
    async with (
        cluster.user(USER) as user,
        cluster.kubelet() as kubelet,
        cluster.user(CONTROLLER_ACCOUNT) as controller,
        cluster.user(PLUGIN) as plugin,
    ):
        await user.made(cluster.pods, pod("p"))
        assert (await controller.patch(path, annotated(key, "old"))).status == 200
        for writer in (user, kubelet):
            for value in ("new", None):
                for where in (path, f"{path}/status"):
                    denied = await writer.patch(where, annotated(key, value), STRATEGIC_PATCH)
                    assert (denied.status, "CS301" in denied.message) == (403, True), (where, value, denied)
        assert (await user.patch(path, {"metadata": {"labels": {"a": "b"}}})).status == 200
        assert (await user.patch(path, annotated("example.com/a"))).status == 200
        status = {"status": {"phase": "Running", "message": "m"}}
        assert (await kubelet.patch(f"{path}/status", status, STRATEGIC_PATCH)).status == 200
        assert (await plugin.patch(path, annotated(key, "served"), STRATEGIC_PATCH)).status == 200


@pytest.mark.parametrize("key", KEYS)
async def test_no_way_of_writing_a_pod_brings_an_assignment_past_the_policy(cluster: Cluster, key: str):
    path = f"{cluster.pods}/p"
    applied = {"apiVersion": "v1", "kind": "Pod", **annotated(key)}
    pointer = f"/metadata/annotations/{key.replace('/', '~1')}"
    async with cluster.user(USER) as user:
        await user.made(cluster.pods, pod("p", {"example.com/a": "b"}))
        whole = (await user.get(path)).body
        whole["metadata"]["annotations"][key] = "x"
        for denied in (
            await user.patch(f"{path}?fieldManager=m&force=true", applied, APPLY_PATCH),
            await user.patch(f"{path}/status?fieldManager=m&force=true", applied, APPLY_PATCH),
            await user.patch(path, [{"op": "add", "path": pointer, "value": "x"}], JSON_PATCH),
            await user.patch(path, {"metadata": {"annotations": {key: "x", "$patch": "replace"}}}, STRATEGIC_PATCH),
            await user.put(path, whole),
            await user.put(f"{path}/status", whole),
        ):
            assert (denied.status, "CS301" in denied.message) == (403, True), denied
        # These subresources let nothing of a pod's metadata through.
        debug = {"spec": {"ephemeralContainers": [{"name": "d", "image": "i"}]}}
        resize = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "1"}}}]}}
        for where, body in (("ephemeralcontainers", debug), ("resize", resize), ("resize", {})):
            await user.patch(f"{path}/{where}", {**annotated(key), **body}, STRATEGIC_PATCH)
        await user.post(f"{path}/eviction?dryRun=All", {"metadata": {"name": "p", "annotations": {key: "x"}}})
        assert (await user.get(path)).body["metadata"]["annotations"] == {"example.com/a": "b"}


def binding(name: str, node: str, annotations: Json) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "annotations": annotations},
        "target": {"kind": "Node", "name": node},
    }


async def test_another_scheduler_assigns_cards_to_pods_that_name_it_alone_and_only_once_it_is_named(cluster: Cluster):
    its, other = f"{cluster.pods}/its", f"{cluster.pods}/other"
    assigned = binding("its", cluster.node, {ASSIGNMENT: "x"})
    async with cluster.user(USER) as user, cluster.user(VOLCANO) as volcano:
        await user.made(cluster.pods, pod("its", schedulerName="volcano"))
        await user.made(cluster.pods, pod("other", schedulerName="cardshare"))
        # Whoever makes a namespace volcano-system has this account.
        for denied in (
            await volcano.patch(its, annotated(ASSIGNMENT)),
            await volcano.patch(f"{its}/status", annotated(ASSIGNMENT), STRATEGIC_PATCH),
            await volcano.post(f"{its}/binding", assigned),
        ):
            assert (denied.status, "CS301" in denied.message) == (403, True), denied

        def assign() -> Awaitable[Answer]:
            return volcano.patch(its, annotated(ASSIGNMENT, secrets.token_hex(2)))

        async with variable(user, "schedulerAccounts", f"['volcano={VOLCANO}']", assign, 200):
            assert (await volcano.patch(other, annotated(ASSIGNMENT))).status == 403
            # The policy of Bindings was changed after that of pods, and is heeded no earlier.
            await eventually(lambda: volcano.post(f"{its}/binding", assigned), lambda one: one.status == 201)


async def test_a_binding_assigns_cards_only_if_a_scheduler_makes_it(cluster: Cluster):
    large = {f"k{i}": "v" for i in range(500)}
    async with cluster.user(USER) as user, cluster.user(CONTROLLER_ACCOUNT) as controller:
        for name in ("a", "b"):
            await user.made(cluster.pods, pod(name))
        for key in KEYS:
            for annotations in ({key: "x"}, {key: "x", **large}):
                # A Binding may also be made by itself, beside pods.
                for where in (f"{cluster.pods}/a/binding", f"{cluster.pods.removesuffix('pods')}bindings"):
                    denied = await user.post(where, binding("a", cluster.node, annotations))
                    assert (denied.status, "CS301" in denied.message) == (403, True), (key, where, denied)
        plain, assigning = ({"example.com/a": "b"}, {ASSIGNMENT: "x"})
        assert (await user.post(f"{cluster.pods}/a/binding", binding("a", cluster.node, plain))).status == 201
        assert (await controller.post(f"{cluster.pods}/b/binding", binding("b", cluster.node, assigning))).status == 201


async def test_a_pod_with_very_many_annotations_is_held_to_the_keys_that_are_known(cluster: Cluster):
    large = {f"k{i}": "v" for i in range(20_000)}
    path = f"{cluster.pods}/p"
    async with cluster.user(USER) as user:
        for key in KNOWN:
            assert (await user.post(cluster.pods, pod("p", {**large, key: "x"}))).status == 403, key
        await user.made(cluster.pods, pod("p", large))
        assert (await user.patch(path, annotated("k0", "w"))).status == 200
        for key in KNOWN:
            for where in (path, f"{path}/status"):
                assert (await user.patch(where, annotated(key), STRATEGIC_PATCH)).status == 403, (where, key)


async def test_a_pod_with_hundreds_of_annotations_is_held_to_keys_that_nobody_knows_yet(cluster: Cluster):
    many = {f"k{i}": "v" for i in range(1000)}
    path = f"{cluster.pods}/p"
    async with cluster.user(USER) as user, cluster.kubelet() as kubelet:
        await user.made(cluster.pods, pod("p", many))
        for key in KEYS:
            assert (await user.post(cluster.pods, pod("q", {**many, key: "x"}))).status == 403, key
            for writer, where in ((user, path), (user, f"{path}/status"), (kubelet, f"{path}/status")):
                assert (await writer.patch(where, annotated(key), STRATEGIC_PATCH)).status == 403, (where, key)
        assert (await user.patch(f"{path}/status", annotated("k0", "w"), STRATEGIC_PATCH)).status == 200


async def test_the_annotations_of_a_pod_with_thousands_are_not_changed_through_its_status(cluster: Cluster):
    """Nobody could look at each: so nodes and network plugins, which write there, leave them all as they are."""
    many = {f"k{i}": "v" for i in range(1025)}
    path = f"{cluster.pods}/p"
    async with (
        cluster.user(USER) as user,
        cluster.kubelet() as kubelet,
        cluster.user(CONTROLLER_ACCOUNT) as controller,
        cluster.user(PLUGIN) as plugin,
    ):
        await user.made(cluster.pods, pod("p", many))
        for key, value in (("huawei.com/AscendX9", "x"), ("k0", "w"), ("k0", None)):
            denied = await kubelet.patch(f"{path}/status", annotated(key, value), STRATEGIC_PATCH)
            assert (denied.status, "1024 annotations" in denied.message) == (403, True), denied
        status = {"status": {"phase": "Running", "message": "m"}}
        assert (await kubelet.patch(f"{path}/status", status, STRATEGIC_PATCH)).status == 200
        for writer in (controller, plugin):
            assert (
                await writer.patch(f"{path}/status", annotated("huawei.com/AscendX9"), STRATEGIC_PATCH)
            ).status == 200


WISHES = ("volcano.sh/vgpu-mode", "nvidia.com/use-gputype", "cardshare.io/gpu-index", "huawei.com/vnpu-mode")


@pytest.mark.parametrize("key", WISHES)
async def test_what_a_pod_says_of_its_cards_stays_once_it_is_bound_and_is_not_said_by_a_status(
    cluster: Cluster, key: str
):
    limits = {"volcano.sh/vgpu-number": "1"}
    bound, waits, plain = [f"{cluster.pods}/{name}" for name in ("bound", "waits", "plain")]
    async with (
        cluster.user(USER) as user,
        cluster.kubelet() as kubelet,
        cluster.user(CONTROLLER_ACCOUNT) as controller,
    ):
        await user.made(cluster.pods, pod("bound", {key: "old"}, limits, nodeName=cluster.node))
        await user.made(cluster.pods, pod("waits", {key: "old"}, limits))
        await user.made(cluster.pods, pod("plain", {key: "old"}, nodeName=cluster.node))
        for value in ("new", None):
            for writer, where in (
                (user, bound),
                (user, f"{bound}/status"),
                (kubelet, f"{bound}/status"),
                (kubelet, f"{waits}/status"),
            ):
                denied = await writer.patch(where, annotated(key, value), STRATEGIC_PATCH)
                assert (denied.status, "CS305" in denied.message) == (403, True), (where, value, denied)
        for writer, where in ((user, waits), (user, plain), (kubelet, f"{plain}/status"), (controller, bound)):
            assert (await writer.patch(where, annotated(key, "new"), STRATEGIC_PATCH)).status == 200, where


async def test_what_a_pod_says_of_its_cards_stays_while_it_is_being_deleted(cluster: Cluster):
    limits = {"volcano.sh/vgpu-number": "1"}
    body = pod("p", {"volcano.sh/vgpu-mode": "mig"}, limits)
    body["metadata"]["finalizers"] = ["example.com/kept"]
    path = f"{cluster.pods}/p"
    async with cluster.user(USER) as user:
        await user.made(cluster.pods, body)
        await user.delete(path)
        denied = await user.patch(path, annotated("volcano.sh/vgpu-mode", "mps"))
        assert (denied.status, "CS305" in denied.message) == (403, True), denied
        assert (await user.patch(path, {"metadata": {"finalizers": None}})).status == 200


ENDED = {"status": {"phase": "Failed"}}


@pytest.mark.parametrize("resource", ["volcano.sh/vgpu-number", "nvidia.com/gpu", "huawei.com/AscendX9"])
async def test_only_its_kubelet_and_the_control_plane_end_a_pod_that_holds_cards(cluster: Cluster, resource: str):
    async with (
        cluster.user(USER) as user,
        cluster.user(PLUGIN) as plugin,
        cluster.user(CONTROLLER_ACCOUNT) as controller,
        cluster.kubelet() as kubelet,
        cluster.user("system:serviceaccount:kube-system:pod-garbage-collector") as collector,
        # A name alone is no kubelet's.
        cluster.user(f"system:node:{cluster.node}") as forged,
        cluster.kubelet("node-of-somebody") as neighbour,
    ):
        for name in ("a", "b"):
            await user.made(cluster.pods, pod(name, limits={resource: "1"}, nodeName=cluster.node))
        path = f"{cluster.pods}/a/status"
        for writer in (user, plugin, controller, forged, neighbour):
            denied = await writer.patch(path, ENDED, STRATEGIC_PATCH)
            assert (denied.status, "CS316" in denied.message) == (403, True), denied
        assert (await user.patch(path, {"status": {"message": "m"}}, STRATEGIC_PATCH)).status == 200
        assert (await kubelet.patch(path, ENDED, STRATEGIC_PATCH)).status == 200
        assert (await user.patch(path, {"status": {"message": "n"}}, STRATEGIC_PATCH)).status == 200
        assert (await collector.patch(f"{cluster.pods}/b/status", ENDED, STRATEGIC_PATCH)).status == 200


async def test_without_a_webhook_hamis_cards_are_given_by_schedulers_for_shares_alone(cluster: Cluster):
    plain = {"nvidia.com/gpu": "1"}
    default: Json = {"schedulerName": "default-scheduler"}
    on_a_node: Json = {"nodeName": cluster.node}
    ignored = pod("p", limits=plain, **default)
    ignored["metadata"]["labels"] = {"hami.io/webhook": "ignore"}
    written = [
        (pod("p", limits=plain, **default), "CS321"),
        (pod("p", limits=plain, **on_a_node), "CS302"),
        (pod("p", limits=plain, schedulerName="hami-scheduler"), ""),
        (pod("p", limits=plain, schedulerName="cardshare"), ""),
        (pod("p", limits={"cpu": "1"}, **default), ""),
        (ignored, ""),
    ]
    path = f"{cluster.pods}?dryRun=All"
    async with cluster.user(USER) as user:
        for body, _ in written:
            assert (await user.post(path, body)).status == 201
        async with hamis_rights(user):
            await eventually(lambda: user.post(path, written[0][0]), lambda answer: answer.status == 403)
            for body, code in written:
                answer = await user.post(path, body)
                assert (answer.status, code in answer.message) == (403 if code else 201, True), answer


async def test_anybody_ends_a_pod_without_cards_or_without_a_node(cluster: Cluster):
    async with cluster.user(USER) as user:
        await user.made(cluster.pods, pod("plain", nodeName=cluster.node))
        await user.made(cluster.pods, pod("waits", limits={"volcano.sh/vgpu-number": "1"}))
        for name in ("plain", "waits"):
            assert (await user.patch(f"{cluster.pods}/{name}/status", ENDED, STRATEGIC_PATCH)).status == 200


async def test_a_plugin_of_another_node_is_denied_where_the_policy_says_so(cluster: Cluster):
    path = f"{cluster.pods}/p"
    async with (
        cluster.user(USER) as admin,
        cluster.user(PLUGIN, node=cluster.node) as own,
        cluster.user(PLUGIN, node="node-of-somebody") as other,
        cluster.user(PLUGIN) as unknown,
        cluster.user(CONTROLLER_ACCOUNT, node="node-of-somebody") as controller,
    ):
        await admin.made(cluster.pods, pod("p", nodeName=cluster.node))
        await admin.made(cluster.pods, pod("unbound"))
        assert (await other.patch(path, annotated(ASSIGNMENT, "1"))).status == 200

        def assign() -> Awaitable[Answer]:
            return other.patch(path, annotated(ASSIGNMENT, secrets.token_hex(2)))

        async with variable(admin, "pluginsOnOtherNodes", "'deny'", assign, 403):
            denied = await other.patch(path, {"metadata": {"labels": {"a": "b"}}})
            assert (denied.status, "CS315" in denied.message) == (403, True), denied
            assert (await other.patch(f"{cluster.pods}/unbound", annotated(ASSIGNMENT))).status == 403
            for i, writer in enumerate((own, unknown, controller)):
                assert (await writer.patch(path, annotated(ASSIGNMENT, f"by {i}"))).status == 200


async def test_an_account_that_the_policy_names_is_trusted_within_moments(cluster: Cluster):
    async with cluster.user(USER) as admin, cluster.user("system:serviceaccount:mine:writer-7") as writer:
        await admin.made(cluster.pods, pod("p"))
        path = f"{cluster.pods}/p"
        assert (await writer.patch(path, annotated(ASSIGNMENT))).status == 403

        def assign() -> Awaitable[Answer]:
            return writer.patch(path, annotated(ASSIGNMENT, secrets.token_hex(2)))

        async with variable(admin, "trustedAccounts", "['system:serviceaccount:mine:writer-*']", assign, 200):
            assert (await admin.patch(path, annotated(ASSIGNMENT, "2"))).status == 403


async def test_the_token_of_a_plugins_pod_says_of_which_node_it_is(guarded: RealApi, node: str, namespace: str):
    async with connect(guarded.url, guarded.ca_file, guarded.admin_token) as admin:
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        await admin.made(accounts, {"metadata": {"name": "plugin"}})
        made = await admin.made(
            f"/api/v1/namespaces/{namespace}/pods", pod("plugin", nodeName=node, serviceAccountName="plugin")
        )
        bound = {"kind": "Pod", "apiVersion": "v1", "name": "plugin", "uid": made["metadata"]["uid"]}
        answer = await admin.post(
            f"{accounts}/plugin/token", {"spec": {"boundObjectRef": bound, "expirationSeconds": 600}}
        )
        token = answer.body["status"]["token"]
    async with connect(guarded.url, guarded.ca_file, token) as plugin:
        review = await plugin.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
        assert review.body["status"]["userInfo"]["extra"][NODE_NAME] == [node]
