"""The webhook's own watch of ResourceQuotas, and who is told what is left of them."""

import asyncio
import json
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from core.admission.rulebook import rulebook
from core.catalog import standard_catalog
from core.settings import Settings, Tables
from core.wire.policies import ResourceQuota
from kube.reflector import EventKind
from webhook.inventory import STALE_S, Budgets
from webhook.metrics import Metrics
from webhook.reviews import Path, Reviewer

KEY = "requests.volcano.sh/vgpu-number"
QUOTA = ResourceQuota("team", "q", {KEY: 4}, {KEY: 1})
TOLD = f"CS317 {KEY}: 1 requested, 3 of 4 left in ResourceQuota q, 2 with this pod"
POD = {
    "metadata": {"name": "p"},
    "spec": {"schedulerName": "cardshare", "containers": [{"name": "m", "resources": {"limits": {KEY[9:]: "1"}}}]},
}


def reviewer(*quotas):
    def of(namespace):
        return [one for one in quotas if one.namespace == namespace]

    return Reviewer(rulebook(Settings(), Tables(), standard_catalog()), Metrics(), quotas_of=of)


def warned(found, of, kind=("", "v1", "Pod"), *, namespace="team", path=Path.VALIDATE, operation="CREATE", old=None):
    group, version, name = kind
    request = {
        "uid": "r",
        "kind": {"group": group, "version": version, "kind": name},
        "operation": operation,
        "namespace": namespace,
        "object": of,
        **({"oldObject": old} if old else {}),
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    response = json.loads(found.answer(path, json.dumps(review).encode()))["response"]
    assert response["allowed"]
    return [one for one in response.get("warnings", ()) if "CS317" in one]


def test_a_person_who_makes_a_pod_is_told_once_and_what_is_true_now():
    quotas = [QUOTA]
    found = Reviewer(rulebook(Settings(), Tables(), standard_catalog()), Metrics(), quotas_of=lambda _: tuple(quotas))
    assert warned(found, POD, path=Path.MUTATE) == []
    assert warned(found, POD) == [TOLD]
    quotas[0] = QUOTA._replace(used={KEY: 3})
    assert warned(found, POD) == [f"CS317 {KEY}: 1 requested, 1 of 4 left in ResourceQuota q, 0 with this pod"]
    assert found.metrics.codes["CS317"] == 2


def test_pods_of_a_controller_of_other_namespaces_and_changed_ones_are_told_nothing():
    found = reviewer(QUOTA)
    owner = {"kind": "ReplicaSet", "name": "r", "controller": True}
    made = {**POD, "metadata": {"name": "p", "ownerReferences": [owner]}}
    assert warned(found, made) == []
    assert warned(found, POD, namespace="other") == []
    assert warned(found, {**POD, "metadata": {"name": "p", "labels": {"a": "b"}}}, operation="UPDATE", old=POD) == []


def test_a_workload_is_told_for_all_its_pods():
    found = reviewer(QUOTA)
    deployment = {"metadata": {"name": "d"}, "spec": {"replicas": 5, "template": POD}}
    (told,) = warned(found, deployment, ("apps", "v1", "Deployment"))
    assert "5 requested, 3 of 4 left in ResourceQuota q; the API server rejects pods beyond it" in told


def test_what_is_no_workload_is_told_nothing():
    assert warned(reviewer(QUOTA), {"spec": 3}, ("apps", "v1", "Deployment")) == []


class Api:
    """Serves one list, then nothing."""

    async def request(self, verb, path, *, params=None, deadline_s=None, purpose=None, **_):
        quotas = [
            {
                "metadata": {"name": "q", "namespace": "team"},
                "spec": {"hard": {KEY: "4"}},
                "status": {"used": {KEY: "1"}},
            },
            {"metadata": {"name": "cpu", "namespace": "team"}, "spec": {"hard": {"requests.cpu": "4"}}},
            {"metadata": {"name": "odd", "namespace": "team"}, "spec": {"hard": {KEY: ["4"]}}},
        ]
        body = {"kind": "ResourceQuotaList", "metadata": {"resourceVersion": "5"}, "items": quotas}
        return SimpleNamespace(body=json.dumps(body).encode())

    @asynccontextmanager
    async def stream(self, path, params, *, silence_s):
        yield self._lines()

    async def _lines(self):
        await asyncio.Event().wait()
        yield b""


@pytest.mark.looptime
async def test_what_is_known_is_not_told_when_it_may_be_old_and_what_cannot_be_read_hides_no_other():
    budgets = Budgets(clock=asyncio.get_running_loop().time)
    assert budgets.of("team") == ()
    following = asyncio.create_task(budgets.follow(Api()))
    await asyncio.sleep(1)
    assert budgets.of("team") == (QUOTA,)
    changed = QUOTA._replace(hard={KEY: 8})
    await budgets.on_event(EventKind.MODIFIED, changed)
    assert budgets.of("team") == (changed,)
    await asyncio.sleep(STALE_S)
    assert budgets.of("team") == ()
    following.cancel()


async def test_a_quota_that_went_or_limits_no_cards_any_more_is_forgotten():
    budgets = Budgets()
    for gone, kind in ((QUOTA, EventKind.DELETED), (QUOTA._replace(hard={}), EventKind.MODIFIED)):
        await budgets.on_event(EventKind.ADDED, QUOTA)
        await budgets.on_event(kind, gone)
        assert budgets._quotas == {}
