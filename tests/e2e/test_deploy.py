"""The manifests on a real API server: taken without complaint, applied twice, with the rights and calls they should."""

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from core.admission.rulebook import MOVED, rulebook
from core.catalog import standard_catalog
from core.settings import Settings, Tables
from sandbox.demo.examples import ClusterChanges
from sandbox.demo.examples import find as find_examples
from sandbox.demo.stage import switched
from tests.support.servers import request_log
from tests.support.servers.hami import hamis_rights
from tests.support.servers.manifests import NAMESPACE, daily, kubectl, text_of
from tests.support.servers.rest import MERGE_PATCH, Answer, Rest, connect, eventually
from tests.support.servers.stage_realapi import CERTS_MORE, Installed, away
from tests.support.worlds.examples import broken_declarations

pytestmark = pytest.mark.asyncio(loop_scope="session")

PODS = "/api/v1/namespaces/default/pods"
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/cardshare"
PLUGIN = ("volcano-device-plugin", "kube-system")
CONTROLLER = ("cardshare-controller", NAMESPACE)
DANA = ("dana", "default")
# Such pods are those of other schedulers, unless annotations say which models they accept.
PLAIN_GPU = "nvidia.com/gpu"


def pod(name: str, *, limits: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"limits": limits} if limits else {}}
    return {"metadata": {"name": name, **metadata}, "spec": {"containers": [container], "schedulerName": "nobody"}}


def as_account(installed: Installed, account: tuple[str, str]):
    return _As(installed, account)


class _As:
    """A connection as a service account."""

    def __init__(self, installed: Installed, account: tuple[str, str]) -> None:
        self._api = installed.api
        self._account = account

    async def __aenter__(self) -> Rest:
        token = await self._api.token_for(*self._account)
        self._opened = connect(self._api.url, self._api.ca_file, token)
        return await self._opened.__aenter__()

    async def __aexit__(self, *args: Any) -> None:
        await self._opened.__aexit__(*args)


async def reviews(installed: Installed) -> int:
    """How many reviews the webhook has answered that could change the object."""
    url = f"{installed.stage.product.webhook_url}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        text = await response.text()
    found = re.findall(r"^cardshare_webhook_reviews_total\{.*path=\"/mutate\".*\} (\d+)", text, re.MULTILINE)
    return sum(int(count) for count in found)


async def test_every_manifest_is_taken_without_complaint(installed: Installed):
    assert installed.complaints == ""
    assert len(installed.applied.splitlines()) == len(installed.documents)


async def test_applied_again_certificates_and_trust_stay_as_they_are(installed: Installed):
    before = await installed.stage.admin.get(CONFIGURATION)
    said, _ = await kubectl(installed.api, "apply", "-f", "-", text=text_of(installed.documents))
    assert "created" not in said
    after = await installed.stage.admin.get(CONFIGURATION)
    assert [w["clientConfig"] for w in after["webhooks"]] == [w["clientConfig"] for w in before["webhooks"]]
    assert all(w["clientConfig"]["caBundle"] for w in after["webhooks"])
    again = await installed.runner.finish("certs-again", daily(installed.documents), CERTS_MORE)
    assert installed.certificates.count("made a new one") == 3
    assert "made a new one" not in again
    assert (await installed.stage.admin.get(CONFIGURATION))["webhooks"] == after["webhooks"]


async def test_the_pods_of_all_workloads_are_admitted_under_the_restricted_standard(installed: Installed):
    path = f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All"
    async with as_account(installed, DANA) as dana:
        refused = await dana.post(path, pod("root"))
        assert (refused.status, "PodSecurity" in refused.message) == (403, True)
        for document in installed.documents:
            spec = document.get("spec", {})
            template = spec.get("jobTemplate", {}).get("spec", {}).get("template") or spec.get("template")
            if template is not None:
                labels = template["metadata"]["labels"]
                body = {"metadata": {"name": "p", "labels": labels}, "spec": template["spec"]}
                answer = await dana.post(path, body)
                assert (answer.status, answer.warnings) == (201, ()), answer


def told_keys() -> list[str]:
    rules = rulebook(Settings(), Tables(), standard_catalog())
    by_pattern = ["huawei.com/Ascend910X", "hami.io/x-devices-to-allocate", "hami.io/x-devices-allocated"]
    return sorted({*rules.protected, *rules.preferences, *MOVED, *by_pattern})


async def test_new_pods_are_reviewed_for_every_resource_and_annotation_of_cards_and_for_nothing_else(
    installed: Installed,
):
    resources = sorted(rulebook(Settings(), Tables(), standard_catalog()).resources - {PLAIN_GPU})
    reviewed = [pod("p", limits={resource: "1"}) for resource in resources]
    reviewed += [pod("p", annotations={key: ""}) for key in told_keys()]
    in_init = pod("p")
    in_init["spec"]["initContainers"] = [
        {"name": "i", "image": "i", "resources": {"limits": {"volcano.sh/vgpu-number": "1"}}}
    ]
    left_alone = [
        pod("p"),
        pod("p", limits={PLAIN_GPU: "1", "cpu": "1"}),
        pod("p", annotations={"example.test/a": "b", "hami.io/other": "x"}),
        pod("p", labels={"volcano.sh/vgpu-node": "x"}),
    ]
    async with as_account(installed, DANA) as dana:
        for bodies, calls in (([*reviewed, in_init], 1), (left_alone, 0)):
            for body in bodies:
                before = await reviews(installed)
                answer = await dana.post(f"{PODS}?dryRun=All", body)
                assert answer.status in {201, 403, 422}, answer
                assert await reviews(installed) - before == calls, body
        before = await reviews(installed)
        body = pod("p", limits={"volcano.sh/vgpu-number": "1"})
        await dana.post("/api/v1/namespaces/kube-system/pods?dryRun=All", body)
        assert await reviews(installed) == before


async def calls_for(installed: Installed, who: Rest, path: str, body: dict[str, Any]) -> int:
    """How many reviews a create costs."""
    before = await reviews(installed)
    await who.post(path, body)
    return await reviews(installed) - before


# What HAMi's chart configures; its scheduler's rights are the other thing that admission looks at.
HAMIS = ClusterChanges(hami={"nvidia": {"resourceCountName": PLAIN_GPU}})


async def test_plain_gpus_are_hamis_while_it_is_there_and_else_cost_no_call(installed: Installed):
    path, body = f"{PODS}?dryRun=All", pod("p", limits={PLAIN_GPU: "1"})
    body["spec"]["schedulerName"] = "default-scheduler"
    deployed = {
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"app": "d"}},
            "template": {"metadata": {"labels": {"app": "d"}}, "spec": {**body["spec"], "nodeName": "n"}},
        },
    }
    deployments = "/apis/apps/v1/namespaces/default/deployments?dryRun=All"
    async with (
        as_account(installed, DANA) as dana,
        connect(installed.api.url, installed.api.ca_file, installed.api.admin_token) as admin,
    ):
        before = await reviews(installed)
        for written in (body, {**body, "spec": {**body["spec"], "nodeName": "n"}}):
            plain = await dana.post(path, written)
            assert (plain.status, plain.body["spec"].get("schedulerName")) == (201, "default-scheduler")
        assert (await dana.post(deployments, deployed)).warnings == ()
        assert await reviews(installed) == before
        async with hamis_rights(admin), switched(installed.stage, HAMIS):
            placed = await eventually(
                lambda: dana.post(path, body),
                lambda one: one.status == 201 and one.body["spec"]["schedulerName"] == "cardshare",
            )
            (container,) = placed.body["spec"]["containers"]
            assert container["resources"]["limits"] == {PLAIN_GPU: "1", "nvidia.com/gpucores": "100"}
            denied = await dana.post(path, {**body, "spec": {**body["spec"], "nodeName": "n"}})
            assert (denied.status, "CS302" in denied.message) == (422, True), denied
            denied = await dana.post(deployments, deployed)
            assert (denied.status, "CS302 spec.template" in denied.message) == (422, True), denied
            async with away(installed.stage.product):
                assert (await dana.post(path, body)).status == 500
        # The API server learns of the rights that are gone a moment later.
        await eventually(
            lambda: dana.post(path, body),
            lambda one: one.status == 201 and one.body["spec"]["schedulerName"] == "default-scheduler",
        )
        await eventually(lambda: calls_for(installed, dana, path, body), lambda calls: calls == 0)


async def test_changes_are_reviewed_where_somebody_touches_what_is_about_cards(installed: Installed):
    path = f"{PODS}/changed"
    async with (
        as_account(installed, DANA) as dana,
        as_account(installed, PLUGIN) as plugin,
        as_account(installed, CONTROLLER) as controller,
    ):
        await dana.made(PODS, pod("changed", annotations={"volcano.sh/vgpu-mode": "mig"}))
        try:

            async def reviewed(who: Rest, changes: dict[str, Any], where: str = path) -> tuple[bool, int]:
                # Not how often: an API server that patches what it remembers, and finds a later one stored, asks again.
                before = await reviews(installed)
                answer = await who.patch(where, changes)
                return await reviews(installed) > before, answer.status

            for key in told_keys():
                change = {"metadata": {"annotations": {key: "1"}}}
                dry = f"{path}?dryRun=All"
                assert (await reviewed(dana, change, dry))[0], key
                assert await reviewed(plugin, change, dry) == (False, 200), key
            assert (await reviewed(dana, {"metadata": {"annotations": {"volcano.sh/vgpu-mode": None}}}))[0]
            for harmless in (
                {"metadata": {"annotations": {"example.test/a": "b"}, "labels": {"l": "1"}}},
                {"metadata": {"finalizers": ["example.test/hold"]}},
                {"metadata": {"finalizers": None}},
                {"spec": {"activeDeadlineSeconds": 1000}},
            ):
                assert await reviewed(dana, harmless) == (False, 200), harmless
            assert await reviewed(dana, {"status": {"message": "m"}}, f"{path}/status") == (False, 200)
            kept_back = {"metadata": {"annotations": {"cardshare.io/segment-queue": "x"}}}
            assert await reviewed(controller, kept_back) == (False, 200)
            assert await reviewed(plugin, {"metadata": {"annotations": {"example.test/a": "c"}}}) == (False, 200)
            served = {"metadata": {"annotations": {"volcano.sh/bind-phase": "success"}}}
            assert await reviewed(plugin, served) == (True, 200)
            # A status is the policies', whatever it writes.
            forged = {"metadata": {"annotations": {"volcano.sh/bind-phase": "allocating"}}}
            assert await reviewed(dana, forged, f"{path}/status") == (False, 403)
        finally:
            await dana.delete(path, {"gracePeriodSeconds": 0})


async def test_while_the_webhook_is_away_only_pods_about_cards_are_refused(installed: Installed):
    share = pod("share", limits={"volcano.sh/vgpu-number": "1"})
    async with as_account(installed, DANA) as dana, as_account(installed, PLUGIN) as plugin:
        await dana.made(PODS, pod("there"))
        try:
            async with away(installed.stage.product):
                refusing = asyncio.create_task(dana.post(f"{PODS}?dryRun=All", share), name="refused")
                took_s = []
                # On a crowded machine one of them may take long; with a call of the webhook all take 5 s.
                for _ in range(5):
                    began_s = time.monotonic()
                    assert (await dana.post(f"{PODS}?dryRun=All", pod("plain"))).status == 201
                    erased = {"metadata": {"annotations": {"volcano.sh/devices-to-allocate": ""}}}
                    assert (await plugin.patch(f"{PODS}/there", erased, MERGE_PATCH)).status == 200
                    took_s.append(time.monotonic() - began_s)
                assert min(took_s) < 4
                answer: Answer = await refusing
                assert (answer.status, "failed calling webhook" in answer.message) == (500, True)
        finally:
            await dana.delete(f"{PODS}/there", {"gracePeriodSeconds": 0})
        await eventually(lambda: dana.post(f"{PODS}?dryRun=All", share), lambda found: found.status == 201)


SECRETS = ("cardshare-ca", "cardshare-webhook-tls", "cardshare-controller-tls")


async def test_each_secret_of_certificates_holds_what_its_component_needs(installed: Installed):
    core = f"/api/v1/namespaces/{NAMESPACE}/secrets"
    held = {name: (await installed.stage.admin.get(f"{core}/{name}"))["data"] for name in SECRETS}
    assert held["cardshare-ca"].keys() == {"ca.crt", "ca.key"}
    for name in SECRETS[1:]:
        assert held[name].keys() == {"tls.crt", "tls.key", "ca.crt"}
        assert held[name]["ca.crt"] == held["cardshare-ca"]["ca.crt"]
    assert held["cardshare-webhook-tls"]["tls.key"] != held["cardshare-controller-tls"]["tls.key"]


async def test_accounts_reach_nothing_beyond_their_rights(installed: Installed):
    core = f"/api/v1/namespaces/{NAMESPACE}"
    async with as_account(installed, CONTROLLER) as controller:
        for name in SECRETS:
            assert (await controller.get(f"{core}/secrets/{name}")).status == 403
        assert (await controller.get("/api/v1/configmaps")).status == 403
        assert (await controller.get(f"{core}/configmaps/cardshare-settings")).status == 403
        assert (await controller.delete(f"{PODS}/p")).status == 403
        assert (await controller.post(PODS, pod("p"))).status == 403
        assert (await controller.get(CONFIGURATION)).status == 403
    async with as_account(installed, ("cardshare-certs", NAMESPACE)) as certs:
        for name in SECRETS:
            assert (await certs.get(f"{core}/secrets/{name}")).status == 200
        assert (await certs.get(f"{core}/secrets/other")).status == 403
        assert (await certs.get(f"{core}/secrets")).status == 403
        assert (await certs.get("/api/v1/pods")).status == 403
        assert (await certs.patch(CONFIGURATION.replace("cardshare", "other"), {})).status == 403
    async with as_account(installed, ("cardshare-webhook", NAMESPACE)) as webhook:
        assert (await webhook.get("/api/v1/pods")).status == 403
        for name in SECRETS:
            assert (await webhook.get(f"{core}/secrets/{name}")).status == 403
        assert (await webhook.get(f"{core}/configmaps/cardshare-settings")).status == 403


async def test_a_manifest_applied_twice_is_taken_before_and_after_it_is_bound(installed: Installed):
    person = ("--kubeconfig", str(installed.stage.kubeconfig))
    manifest = ("-f", str(EXAMPLES / "hami-core.yaml"))
    try:
        said, _ = await kubectl(installed.api, *person, "apply", "--dry-run=server", *manifest)
        assert said == "pod/hami-pod created (server dry run)\n"
        said, _ = await kubectl(installed.api, *person, "apply", *manifest)
        assert said == "pod/hami-pod created\n"
        # kubectl calls it configured where a manifest has a number and the server a text; it is the same pod.
        await kubectl(installed.api, *person, "apply", *manifest)
        await kubectl(installed.api, *person, "wait", "--for=condition=Ready", "pod/hami-pod", "--timeout=90s")
        bound = await installed.stage.admin.get(f"{PODS}/hami-pod")
        await kubectl(installed.api, *person, "apply", *manifest)
        after = await installed.stage.admin.get(f"{PODS}/hami-pod")
        assert (after["spec"], after["metadata"]["annotations"]) == (bound["spec"], bound["metadata"]["annotations"])
        async with as_account(installed, DANA) as dana:
            query = "fieldSelector=involvedObject.name%3Dhami-pod,reason%3DScheduled"
            path = f"/api/v1/namespaces/default/events?{query}"
            await eventually(lambda: dana.get(path), lambda answer: bool(answer.body["items"]))
        described, _ = await kubectl(installed.api, *person, "describe", "pod", "hami-pod")
        assert "Scheduled" in described
    finally:
        await kubectl(installed.api, *person, "delete", "pod", "hami-pod", "--force", "--grace-period=0")


# As docs/operators/troubleshooting.md has it.
OF_THE_CONTROLLER = ("-n", NAMESPACE, "get", "pods", "-l", "app.kubernetes.io/component=controller")
THE_CONDITION = '{.items[*].status.conditions[?(@.type=="cardshare.io/ConfigurationAccepted")]'


async def test_the_controllers_pod_says_whether_the_configuration_is_in_force(installed: Installed):
    path = "/api/v1/namespaces/kube-system/configmaps/volcano-vgpu-device-config"
    admin = installed.stage.admin
    good = (await admin.get(path))["data"]

    async def shown(field: str) -> str:
        said, _ = await kubectl(installed.api, *OF_THE_CONTROLLER, "-o", f"jsonpath={THE_CONDITION}.{field}}}")
        return said

    await eventually(lambda: shown("reason"), lambda found: found == "Accepted")
    assert await shown("status") == "True"
    try:
        await admin.patch(path, {"data": {"device-config.yaml": "nvidia: {gpuMemoryFactor: -1, deviceSplits: 2}\n"}})
        await eventually(lambda: shown("reason"), lambda found: found == "Refused")
        message = "kube-system/volcano-vgpu-device-config: nvidia.gpuMemoryFactor: found '-1'; "
        assert (await shown("message")).startswith(message)
        described, _ = await kubectl(installed.api, "-n", NAMESPACE, "describe", "pod", "cardshare-controller-0")
        assert re.search(r"cardshare.io/ConfigurationAccepted +False", described)
    finally:
        await admin.patch(path, {"data": good})
    await eventually(lambda: shown("reason"), lambda found: found == "Accepted")


# What the controller asks once and does without: deploy/mindcluster.yaml grants it where that is installed.
WITHOUT_MINDCLUSTER = {("list", "configmaps", namespace, "") for namespace in ("kube-system", "mindx-dl")}


async def test_no_request_of_ours_is_forbidden(installed: Installed):
    names = ("hami-core", "gpu-memory", "waits-for-room", "never-fits")
    examples = find_examples([EXAMPLES / f"{name}.yaml" for name in names])
    assert await broken_declarations(installed.stage, examples) == []
    # What a dry run needs of the controller: to ask who asks for its preview, and whether they may.
    dry = ("--kubeconfig", str(installed.stage.kubeconfig), "create", "--dry-run=server")
    await kubectl(installed.api, *dry, "-f", str(EXAMPLES / "hami-core.yaml"))
    asked = [one for one in request_log.read(installed.logs) if one.agent.startswith("cardshare")]
    # In a namespace that ends nobody may create anything.
    found = await installed.stage.admin.get("/api/v1/namespaces")
    there = {"", *(one["metadata"]["name"] for one in found["items"] if one["status"]["phase"] == "Active")}
    refused = {
        (one.verb, one.resource, one.namespace, one.name)
        for one in asked
        if one.status in {401, 403} and one.namespace in there
    }
    assert refused <= WITHOUT_MINDCLUSTER
