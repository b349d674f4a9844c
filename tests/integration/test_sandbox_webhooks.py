"""The API server double calls webhooks over TLS and treats their answers as the real one was measured to do."""

import asyncio
import base64
import json
import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import aiohttp
import msgspec
import pytest
from aiohttp import web

from certs.authority import issue, new_authority
from sandbox.client import ApiStatusError
from sandbox.cluster import ClusterSettings, running_cluster

PODS = "/api/v1/namespaces/default/pods"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations"
SETTINGS = ClusterSettings(kubelet=None)
NOW = datetime.now(UTC)


def pod(name="p", labels=None, generated=False):
    metadata = {"generateName": name} if generated else {"name": name}
    return {
        "metadata": {**metadata, "labels": labels or {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"example.com/x": "1000k"}}}]},
    }


def answer(review, allowed=True, patch=None, **more):
    response = {"uid": review["request"]["uid"], "allowed": allowed, **more}
    if patch is not None:
        text = base64.b64encode(json.dumps(patch).encode()).decode()
        response |= {"patch": text, "patchType": "JSONPatch"}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def add(path, value):
    return {"op": "add", "path": path, "value": value}


class Hook:
    """A webhook server whose answer is a function of the review; keeps what it was asked."""

    def __init__(self):
        self.reviews = []
        self.requests = []
        self.respond = answer
        self.authority = new_authority("hooks", 1, NOW)

    @asynccontextmanager
    async def serving(self, tmp_path, *names):
        leaf = issue(self.authority, names, ("127.0.0.1",), 1, NOW)
        cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"
        cert.write_bytes(leaf.cert_pem)
        key.write_bytes(leaf.key_pem)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(cert, key)
        app = web.Application(client_max_size=2**23)
        app.router.add_post("/{name}", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        self.port = runner.addresses[0][1]
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _handle(self, request):
        review = msgspec.json.decode(await request.read())
        self.reviews.append(review)
        self.requests.append(request)
        said = self.respond(review)
        if asyncio.iscoroutine(said):
            said = await said
        return said if isinstance(said, web.Response) else web.json_response(said)

    def config(self, name="h.example.com", path="mutate", **changes):
        return {
            "name": name,
            "clientConfig": {
                "url": f"https://127.0.0.1:{self.port}/{path}",
                "caBundle": base64.b64encode(self.authority.cert_pem).decode(),
            },
            "rules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE", "UPDATE"]}
            ],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail",
            "timeoutSeconds": 1,
            **changes,
        }


@pytest.fixture
async def hook(tmp_path):
    async with Hook().serving(tmp_path) as served:
        yield served


@asynccontextmanager
async def cluster_with(*webhooks, kind="mutating"):
    async with running_cluster(settings=SETTINGS) as cluster:
        await cluster.admin.create(CONFIGURATIONS.format(kind), {"metadata": {"name": "c"}, "webhooks": list(webhooks)})
        yield cluster.admin


async def refused(call):
    with pytest.raises(ApiStatusError) as caught:
        await call
    return caught.value


async def test_a_webhook_sees_the_completed_object_before_its_name_is_made(hook):
    async with cluster_with(hook.config()) as client:
        made = await client.create(PODS, pod("job-", generated=True))
    (review,) = hook.reviews
    request = review["request"]
    assert "name" not in request
    # The server itself begins an object only after the webhooks.
    assert request["object"]["metadata"] == {"generateName": "job-", "namespace": "default", "labels": {"app": "x"}}
    assert request["object"]["status"] == {}
    assert made["metadata"]["name"].startswith("job-")
    resources = request["object"]["spec"]["containers"][0]["resources"]
    assert resources == {"limits": {"example.com/x": "1M"}, "requests": {"example.com/x": "1M"}}
    assert (request["operation"], request["namespace"], request["dryRun"]) == ("CREATE", "default", False)
    assert request["userInfo"]["username"] == "sandbox-admin"
    (http,) = hook.requests
    assert (http.query["timeout"], http.headers["User-Agent"]) == ("1s", "kube-apiserver-admission")


async def test_the_object_comes_before_validation_and_is_validated_after_the_patch(hook):
    body = pod()
    body["spec"]["containers"][0]["resources"] = {"limits": {"example.com/x": "-1"}}
    hook.respond = lambda review: answer(
        review, patch=[add("/spec/containers/0/resources", {"limits": {"example.com/x": "1k"}})]
    )
    async with cluster_with(hook.config()) as client:
        made = await client.create(PODS, body)
        assert made["spec"]["containers"][0]["resources"]["requests"] == {"example.com/x": "1k"}
        hook.respond = lambda review: answer(review, patch=[add("/metadata/labels/a", "not a label!")])
        assert (await refused(client.create(PODS, pod("q")))).status == 422


def _slow(review):
    async def late():
        await asyncio.sleep(3)
        return answer(review)

    return late()


def _changed(**changes):
    def respond(review):
        said = answer(review, patch=[add("/metadata/labels/a", "b")])
        said["response"] |= changes
        return said

    return respond


def _without_uid(review):
    said = answer(review)
    del said["response"]["uid"]
    return said


BAD_ANSWERS = {
    "slow": _slow,
    "other-uid": _changed(uid="another"),
    "no-uid": _without_uid,
    "no-patch-type": _changed(patchType=None),
    "bad-base64": _changed(patch="*"),
    "status-500": lambda review: web.Response(status=500),
    "html": lambda review: web.Response(text="<html>", content_type="text/html"),
    "other-version": lambda review: {**answer(review), "apiVersion": "admission.k8s.io/v1beta1"},
    "no-response": lambda review: {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"},
}


@pytest.mark.parametrize("respond", BAD_ANSWERS.values(), ids=BAD_ANSWERS)
async def test_a_bad_answer_fails_the_request_or_is_ignored(hook, respond):
    hook.respond = respond
    ignoring = hook.config(failurePolicy="Ignore", objectSelector={"matchLabels": {"soft": "yes"}})
    strict = hook.config(name="s.example.com", objectSelector={"matchLabels": {"soft": "no"}})
    async with cluster_with(ignoring, strict) as client:
        error = await refused(client.create(PODS, pod(labels={"soft": "no"})))
        assert error.status == 500
        assert 'failed calling webhook "s.example.com"' in error.message
        made = await client.create(PODS, pod(labels={"soft": "yes"}))
        assert made["metadata"]["labels"] == {"soft": "yes"}


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
async def test_a_patch_that_does_not_apply_fails_under_either_policy(hook, policy):
    hook.respond = lambda review: answer(review, patch=[{"op": "remove", "path": "/metadata/annotations/none"}])
    async with cluster_with(hook.config(failurePolicy=policy)) as client:
        assert (await refused(client.create(PODS, pod()))).status == 500


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
async def test_a_denial_is_told_with_its_code_under_either_policy(hook, policy):
    status = {"code": 422, "message": "write whole MiB", "reason": "Invalid"}
    hook.respond = lambda review: answer(review, allowed=False, status=status)
    async with cluster_with(hook.config(failurePolicy=policy)) as client:
        error = await refused(client.create(PODS, pod()))
    assert error.status == 422
    assert error.message == 'admission webhook "h.example.com" denied the request: write whole MiB'


async def test_warnings_are_shown_and_long_ones_cut(hook):
    hook.respond = lambda review: answer(review, warnings=['say "ä"', "two\nlines", "x" * 5000])
    async with running_cluster(settings=SETTINGS) as cluster:
        config = {"metadata": {"name": "c"}, "webhooks": [hook.config()]}
        await cluster.admin.create(CONFIGURATIONS.format("mutating"), config)
        context = ssl.create_default_context(cadata=cluster.ca_pem.decode())
        from sandbox.cluster import ADMIN

        headers = {"Authorization": f"Bearer {cluster.api.tokens.issue(ADMIN)}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.post(cluster.url + PODS, json=pod(), ssl=context) as response,
        ):
            warnings = response.headers.getall("Warning")
    assert warnings == ['299 - "say \\"ä\\""', f'299 - "{"x" * 256}"']


async def test_an_earlier_webhook_is_asked_again_after_a_later_one_changed_the_object(hook):
    def respond(review):
        if hook.requests[-1].path == "/second":
            return answer(review, patch=[add("/metadata/labels/second", "x")])
        return answer(review)

    hook.respond = respond
    again = hook.config("a.example.com", "first", reinvocationPolicy="IfNeeded")
    never = hook.config("b.example.com", "never")
    async with cluster_with(
        again, never, hook.config("c.example.com", "second", reinvocationPolicy="IfNeeded")
    ) as client:
        await client.create(PODS, pod())
    assert [request.path for request in hook.requests] == ["/first", "/never", "/second", "/first"]
    assert hook.reviews[-1]["request"]["object"]["metadata"]["labels"] == {"app": "x", "second": "x"}


async def test_validating_webhooks_see_the_final_object_and_may_deny(hook):
    hook.respond = lambda review: answer(review, allowed="bad" not in review["request"]["object"]["metadata"]["labels"])
    async with cluster_with(hook.config(), kind="validating") as client:
        await client.create(PODS, pod())
        error = await refused(client.create(PODS, pod("q", labels={"bad": "1"})))
        assert (error.status, error.message) == (
            400,
            'admission webhook "h.example.com" denied the request without explanation',
        )
        await client.patch(f"{PODS}/p", {"metadata": {"labels": {"x": "y"}}})
    update = hook.reviews[-1]["request"]
    assert (update["operation"], update["oldObject"]["metadata"]["labels"]) == ("UPDATE", {"app": "x"})


async def test_a_subresource_is_sent_only_to_those_who_ask_for_it(hook):
    status = hook.config("s.example.com", "status")
    status["rules"][0]["resources"] = ["pods/status", "pods/binding"]
    async with cluster_with(hook.config(), status) as client:
        await client.create(PODS, pod())
        await client.patch(f"{PODS}/p/status", {"status": {"message": "m"}})
        await client.create(f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"name": "n"}})
    assert [request.path for request in hook.requests] == ["/mutate", "/status", "/status"]
    assert hook.reviews[2]["request"]["kind"]["kind"] == "Binding"
    assert hook.reviews[1]["request"]["subResource"] == "status"


async def test_namespaces_are_selected_by_their_labels(hook):
    selector = {
        "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}]
    }
    async with cluster_with(hook.config(namespaceSelector=selector)) as client:
        await client.create("/api/v1/namespaces/kube-system/pods", pod())
        assert hook.reviews == []
        await client.create(PODS, pod())
        assert len(hook.reviews) == 1


async def test_a_webhook_is_told_how_to_delete_and_with_which_options_to_write(hook):
    config = hook.config()
    config["rules"][0]["operations"] = ["*"]
    async with cluster_with(config) as client:
        await client.create(PODS, pod(labels={}), {"fieldManager": "me"})
        await client.delete(f"{PODS}/p", grace_s=5)
    created, deleted = (review["request"] for review in hook.reviews)
    assert created["options"] == {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me"}
    assert deleted["options"]["gracePeriodSeconds"] == 5
    assert (deleted["object"], deleted["oldObject"]["metadata"]["name"]) == (None, "p")


async def test_an_empty_map_reaches_no_webhook(hook):
    body = pod()
    body["metadata"] |= {"labels": {}, "annotations": {}}
    async with cluster_with(hook.config()) as client:
        await client.create(PODS, body)
    assert hook.reviews[0]["request"]["object"]["metadata"] == {"name": "p", "namespace": "default"}


async def test_a_dry_run_says_so_and_no_webhook_may_have_side_effects_then(hook):
    async with cluster_with(hook.config()) as client:
        await client.create(PODS, pod(), {"dryRun": "All"})
        assert hook.reviews[-1]["request"]["dryRun"] is True
        config = {"metadata": {"name": "d"}, "webhooks": [hook.config(sideEffects="Some")]}
        assert (await refused(client.create(CONFIGURATIONS.format("validating"), config))).status == 422


async def test_a_certificate_of_another_authority_fails_the_call(hook):
    config = hook.config()
    config["clientConfig"]["caBundle"] = base64.b64encode(new_authority("x", 1, NOW).cert_pem).decode()
    async with cluster_with(config) as client:
        error = await refused(client.create(PODS, pod()))
    assert error.status == 500
    assert hook.reviews == []


async def test_a_service_is_called_by_its_cluster_name_at_its_address(tmp_path):
    async with Hook().serving(tmp_path, "hook.kube-system.svc") as hook:
        config = hook.config()
        service = {"namespace": "kube-system", "name": "hook", "path": "/mutate"}
        config["clientConfig"] = {"service": service, "caBundle": config["clientConfig"]["caBundle"]}
        async with cluster_with(config) as client:
            services = "/api/v1/namespaces/kube-system/services"
            assert "not found" in (await refused(client.create(PODS, pod()))).message
            await client.create(services, {"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443}]}})
            assert "no endpoints available" in (await refused(client.create(PODS, pod()))).message
            address = {"sandbox.cardshare.io/address": f"127.0.0.1:{hook.port}"}
            await client.patch(f"{services}/hook", {"metadata": {"annotations": address}})
            await client.create(PODS, pod())
            spec = {
                "type": "ExternalName",
                "externalName": "127.0.0.1",
                "ports": [{"port": 443, "targetPort": hook.port}],
            }
            await client.patch(f"{services}/hook", {"metadata": {"annotations": None}, "spec": spec})
            await client.create(PODS, pod("q"))
        assert len(hook.reviews) == 2


async def test_a_big_pod_reaches_the_webhook_before_it_is_refused(hook):
    body = pod()
    body["spec"]["containers"][0]["args"] = ["x" * 2_000_000]
    async with cluster_with(hook.config()) as client:
        assert (await refused(client.create(PODS, body))).message == "etcdserver: request is too large"
    assert len(hook.reviews) == 1
