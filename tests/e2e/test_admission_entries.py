"""What the entries of deploy/ let through to the webhook on a real API server, and what it says there."""

import signal
from typing import Any

import pytest

from tests.support.servers.rest import STRATEGIC_PATCH, Rest, connect, eventually
from tests.support.servers.stage_realapi import Installed, away

pytestmark = pytest.mark.asyncio(loop_scope="session")

CORE = "/api/v1/namespaces/default"
APPS = "/apis/apps/v1/namespaces/default"
BATCH = "/apis/batch/v1/namespaces/default"
VGPU = {"volcano.sh/vgpu-number": "1"}
WRONG = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-cores": "150"}


def template(limits: dict[str, str] | None, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "i", "resources": {"limits": limits or {}}}
    return {
        "metadata": {"labels": {"app": "w"}, "annotations": annotations or {}},
        "spec": {"containers": [container], **spec},
    }


def selected(found: dict[str, Any], **spec: Any) -> dict[str, Any]:
    labels = {"matchLabels": {"app": "w"}}
    return {"metadata": {"name": "entry"}, "spec": {"selector": labels, "template": found, **spec}}


def job(found: dict[str, Any]) -> dict[str, Any]:
    never = {**found, "spec": {**found["spec"], "restartPolicy": "Never"}}
    return {"metadata": {"name": "entry"}, "spec": {"template": never}}


def cron_job(found: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "entry"}, "spec": {"schedule": "@daily", "jobTemplate": {"spec": job(found)["spec"]}}}


WORKLOADS = {
    f"{APPS}/deployments": (selected, "spec.template"),
    f"{APPS}/replicasets": (selected, "spec.template"),
    f"{APPS}/daemonsets": (selected, "spec.template"),
    f"{APPS}/statefulsets": (lambda found: selected(found, serviceName="s"), "spec.template"),
    f"{BATCH}/jobs": (job, "spec.template"),
    f"{BATCH}/cronjobs": (cron_job, "spec.jobTemplate.spec.template"),
}


def as_person(installed: Installed):
    """Somebody whom admission does not trust."""
    return _Person(installed)


class _Person:
    def __init__(self, installed: Installed) -> None:
        self._api = installed.api

    async def __aenter__(self) -> Rest:
        token = await self._api.token_for("dana", "default")
        self._opened = connect(self._api.url, self._api.ca_file, token)
        return await self._opened.__aenter__()

    async def __aexit__(self, *args: Any) -> None:
        await self._opened.__aexit__(*args)


@pytest.mark.parametrize("path", WORKLOADS)
async def test_a_workload_hears_of_its_template_at_its_own_creation(installed: Installed, path: str):
    make, place = WORKLOADS[path]
    async with as_person(installed) as person:
        denied = await person.post(f"{path}?dryRun=All", make(template(WRONG)))
        assert denied.status == 422, denied
        assert f"CS103 {place}: container \"main\": limit volcano.sh/vgpu-cores: found '150'" in denied.message
        mended = await person.post(f"{path}?dryRun=All", make(template(VGPU, {"volcano.sh/vgpu-mode": "HAMi-core"})))
        assert mended.status == 201, mended
        assert any(f"CS104 {place}: annotation volcano.sh/vgpu-mode" in one for one in mended.warnings)
        plain = await person.post(f"{path}?dryRun=All", make(template({"cpu": "1"})))
        assert (plain.status, plain.warnings) == (201, ())


async def test_a_workload_is_scaled_and_applied_again_whatever_its_template_says(installed: Installed):
    owned = selected(template(WRONG))
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "u", "controller": True}
    ]
    path = f"{APPS}/replicasets/entry"
    async with as_person(installed) as person:
        await person.made(f"{APPS}/replicasets", owned)
        try:
            assert (await person.patch(path, {"metadata": {"ownerReferences": None}})).status == 200
            assert (await person.patch(path, {"spec": {"replicas": 3}})).status == 200
            assert (await person.patch(path, {"metadata": {"labels": {"a": "b"}}})).status == 200
            broken = {"spec": {"template": {"metadata": {"annotations": {"volcano.sh/vgpu-mode": "x"}}}}}
            assert "CS104 spec.template" in (await person.patch(path, broken)).message
        finally:
            await person.delete(path)


async def test_while_the_webhook_is_away_workloads_are_created(installed: Installed):
    async with as_person(installed) as person:
        async with away(installed.stage.product):
            answer = await person.post(f"{APPS}/deployments?dryRun=All", selected(template(WRONG)))
        assert answer.status == 201, answer


async def test_debugging_and_resizing_reach_no_other_cards(installed: Installed):
    body = template(VGPU, schedulerName="nobody")
    pod = {"metadata": {"name": "entry"}, "spec": body["spec"]}
    path = f"{CORE}/pods/entry"
    async with as_person(installed) as person:
        await person.made(f"{CORE}/pods", pod)
        try:

            async def debug(name: str, **fields: Any) -> Any:
                container = {"name": name, "image": "busybox", **fields}
                change = {"spec": {"ephemeralContainers": [container]}}
                return await person.patch(f"{path}/ephemeralcontainers", change, STRATEGIC_PATCH)

            # Privileged ones this server refuses by itself, before any webhook is asked.
            denied = await debug("b", env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])
            assert (denied.status, "CS304" in denied.message) == (422, True), denied
            assert (await debug("c")).status == 200

            async def resize(limits: dict[str, str]) -> Any:
                change = {"spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]}}
                return await person.patch(f"{path}/resize", change, STRATEGIC_PATCH)

            assert (await resize({"volcano.sh/vgpu-number": "2"})).status == 422
        finally:
            await person.delete(path, {"gracePeriodSeconds": 0})


async def test_what_no_node_could_take_is_told_with_the_clusters_figures(installed: Installed):
    pod = {
        "metadata": {"name": "entry"},
        "spec": template({**VGPU, "volcano.sh/vgpu-memory": "98304"}, schedulerName="nobody")["spec"],
    }
    async with as_person(installed) as person:
        # The webhook serves before it has listed the nodes, and says nothing of them until then.
        answer = await eventually(
            lambda: person.post(f"{CORE}/pods?dryRun=All", pod), lambda found: "CS401" in " ".join(found.warnings)
        )
        assert answer.status == 201, answer
        told = [
            one
            for one in answer.warnings
            if "CS401 as the cluster is now, this pod can never be placed" in one and "98304 MiB" in one
        ]
        assert len(told) == 1, answer


NEARLY = {
    "a resource of a plugin": ({"huawei.com/npu-cores": "2"}, {}, "did you mean huawei.com/npu-core?"),
    "a key on a pod of others": ({"cpu": "1"}, {"nvidia.com/use-gputyp": "A100"}, "nvidia.com/use-gputype?"),
    "a key on a pod with cards": (VGPU, {"volcano.sh/vgpu-mod": "mig"}, "did you mean volcano.sh/vgpu-mode?"),
}


@pytest.mark.parametrize(("limits", "annotations", "words"), NEARLY.values(), ids=NEARLY)
async def test_what_only_looks_like_a_key_is_told_of_pods_and_of_templates(
    installed: Installed, limits: dict[str, str], annotations: dict[str, str], words: str
):
    found = template(limits, annotations, schedulerName="nobody")
    pod = {"metadata": {"name": "entry", "annotations": annotations}, "spec": found["spec"]}
    deployed = selected(template(limits, annotations))
    async with as_person(installed) as person:
        for path, body in ((f"{CORE}/pods", pod), (f"{APPS}/deployments", deployed)):
            answer = await person.post(f"{path}?dryRun=All", body)
            assert answer.status == 201, answer
            assert len([one for one in answer.warnings if "CS115" in one and words in one]) == 1, answer


@pytest.mark.parametrize(
    ("limits", "key"),
    [(VGPU, "volcano.sh/vgpu-mode"), ({"nvidia.com/gpu": "1"}, "nvidia.com/use-gputype")],
    ids=["share", "whole-card"],
)
async def test_what_chooses_cards_beside_a_template_is_told_at_the_apply(
    installed: Installed, limits: dict[str, str], key: str
):
    deployed = selected(template(limits))
    deployed["metadata"]["annotations"] = {key: "mig"}
    async with as_person(installed) as person:
        answer = await person.post(f"{APPS}/deployments?dryRun=All", deployed)
        assert answer.status == 201, answer
        told = f"CS120 metadata: annotation {key}: write it in spec.template.metadata.annotations"
        assert [one for one in answer.warnings if told in one], answer


async def test_what_a_person_annotates_is_told_if_it_only_looks_like_a_key(installed: Installed):
    pod = {"metadata": {"name": "noted"}, "spec": template(VGPU, schedulerName="nobody")["spec"]}
    path = f"{CORE}/pods/noted"
    api = installed.api
    async with connect(api.url, api.ca_file, api.admin_token) as admin:
        await admin.made(f"{CORE}/pods", pod)
        try:
            for key, count in (("volcano.sh/vgpu-mod", 1), ("volcano.sh/vgpu-mode", 0), ("volcano.sh/queue-name", 0)):
                answer = await admin.patch(f"{path}?dryRun=All", {"metadata": {"annotations": {key: "mig"}}})
                assert answer.status == 200, answer
                assert len([one for one in answer.warnings if "CS115" in one]) == count, answer
        finally:
            await admin.delete(path, {"gracePeriodSeconds": 0})


async def test_while_the_webhook_is_away_what_only_looks_like_a_key_holds_up_nobody(installed: Installed):
    pod = {
        "metadata": {"name": "entry"},
        "spec": template({"huawei.com/npu-cores": "2"}, schedulerName="nobody")["spec"],
    }
    async with as_person(installed) as person, away(installed.stage.product):
        answer = await person.post(f"{CORE}/pods?dryRun=All", pod)
        assert answer.status == 201, answer


async def test_a_service_account_that_writes_an_assignment_is_told_of_on_the_pod(installed: Installed):
    pod = {"metadata": {"name": "forged"}, "spec": template(VGPU, schedulerName="nobody")["spec"]}
    path = f"{CORE}/pods/forged"
    key = "volcano.sh/vgpu-ids-new"
    async with as_person(installed) as person:
        await person.made(f"{CORE}/pods", pod)
        try:
            body = {"metadata": {"annotations": {key: "GPU-0,NVIDIA,1,1:"}}}
            for query in ("?dryRun=All", ""):
                denied = await person.patch(f"{path}{query}", body, STRATEGIC_PATCH)
                assert denied.status == 422, denied
                assert "CS301" in denied.message
            found = await eventually(
                lambda: person.get(f"{CORE}/events?fieldSelector=involvedObject.name=forged"),
                lambda answer: bool(answer.body["items"]),
            )
            (event,) = found.body["items"]
            assert (event["reason"], event["type"]) == ("AssignmentWriteDenied", "Warning")
            assert event["message"].startswith("CS301 system:serviceaccount:default:dana may not write assignments")
            assert event["message"].endswith(f"it tried to write annotation {key}")
        finally:
            await person.delete(path, {"gracePeriodSeconds": 0})


async def test_while_the_webhook_is_away_plugins_serve_pods_of_one_container(installed: Installed):
    product = installed.stage.product
    pod = {"metadata": {"name": "entry"}, "spec": template({**VGPU, "volcano.sh/vgpu-memory": "1000"})["spec"]}
    path = f"{CORE}/pods/entry"
    async with as_person(installed) as person:
        product.controller.signal(signal.SIGSTOP)
        try:
            await person.made(f"{CORE}/pods", pod)
            async with away(product):
                product.controller.signal(signal.SIGCONT)
                found = await eventually(
                    lambda: person.get(path), lambda answer: answer.body.get("status", {}).get("phase") == "Running"
                )
            assert found.body["metadata"]["annotations"]["volcano.sh/bind-phase"] == "success"
        finally:
            product.controller.signal(signal.SIGCONT)
            await person.delete(path, {"gracePeriodSeconds": 0})
