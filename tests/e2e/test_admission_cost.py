"""What our admission costs the API server at the writes of large objects.

Each write is done in three namespaces in turn: one that is judged, one whose entries and policies have ``false`` as
their only condition, and one without any. Before the first condition of each the API server copies the objects,
whatever the condition is: what an expression costs is told by the second, what those copies cost by the third.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from statistics import fmean
from typing import Any

import pytest

from tests.support.servers.rest import STRATEGIC_PATCH, Answer, Rest, connect, eventually
from tests.support.servers.stage_realapi import Installed

pytestmark = pytest.mark.asyncio(loop_scope="session")

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
KINDS = ("mutating", "validating")
POLICIES = ("pods.cardshare.io", "bindings.cardshare.io")
# The last two are left out by our entries; the policies' bindings leave them out for this test.
NAMESPACES = JUDGED, SAYING_NO, UNJUDGED = "default", "cardshare-system", "kube-system"
MORE_AT_MOST_MS = 50.0
# What cannot be judged without a look at every key goes to the webhook, once. A loop over the keys would cost 900 ms
# and more.
REVIEWED_AT_MOST_MS = 100.0
# A busy machine makes everything dearer: there the same may cost this share of the write as it is unjudged. A loop over
# the keys would cost ten times the write.
MORE_AT_MOST, REVIEWED_AT_MOST = 0.5, 1.0
REVIEWED = frozenset(
    {
        "new pod, 20,000 annotations",
        "new pod, 500 containers",
        "new pod, 5,000 resources",
        "annotation of a pod with 20,000",
    }
)
# What other processes of the machine add, and the API server's own collector, comes to all three places alike in enough
# rounds.
ROUNDS, ROUNDS_AT_MOST = 3, 16
ASSIGNED = {"volcano.sh/vgpu-ids-new": "x"}

Json = dict[str, Any]
Write = Callable[[Rest, str], Awaitable[Answer]]
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def many_annotations() -> Json:
    """As many as fit in the 256 KiB that the API server allows."""
    return {f"k{i}": "v" for i in range(20_000)}


def pod(name: str, annotations: Json | None = None, containers: int = 1, limits: Json | None = None) -> Json:
    """A pod that asks for no cards."""
    one = {"image": "i", "resources": {"limits": limits or {}}, "securityContext": RESTRICTED}
    return {
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"containers": [{"name": f"c{i}", **one} for i in range(containers)], "schedulerName": "nobody"},
    }


def deployment(annotations: Json | None = None, owners: int = 0) -> Json:
    """A Deployment whose pods ask for no cards."""
    made = [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": f"u{i}"} for i in range(owners)]
    template = {"metadata": {"labels": {"app": "w"}, "annotations": annotations or {}}, "spec": pod("x")["spec"]}
    return {
        "metadata": {"name": "new", "ownerReferences": made},
        "spec": {"selector": {"matchLabels": {"app": "w"}}, "template": template},
    }


def created(body: Json, resource: str = "/api/v1/namespaces/{}/pods") -> Write:
    return lambda rest, namespace: rest.post(f"{resource.format(namespace)}?dryRun=All", body)


def deployed(body: Json) -> Write:
    return created(body, "/apis/apps/v1/namespaces/{}/deployments")


def patched(path: str, body: Json) -> Write:
    return lambda rest, namespace: rest.patch(
        f"/api/v1/namespaces/{namespace}/pods/{path}?dryRun=All", body, STRATEGIC_PATCH
    )


WRITTEN: Mapping[str, Write] = {
    "new pod, 20,000 annotations": created(pod("new", many_annotations())),
    "new pod, 500 containers": created(pod("new", containers=500)),
    "new pod, 5,000 resources": created(pod("new", limits={f"example.com/r{i}": "1" for i in range(5000)})),
    "new Deployment, 20,000 annotations": deployed(deployment(many_annotations())),
    "new Deployment, 5,000 owners": deployed(deployment(owners=5000)),
    "label of a pod with 20,000 annotations": patched("large", {"metadata": {"labels": {"a": "b"}}}),
    "annotation of a pod with 20,000": patched("large", {"metadata": {"annotations": {"k0": "w"}}}),
    "status of a pod with 20,000 annotations": patched("large/status", {"status": {"message": "as kubelets write"}}),
}


NEVER = {"matchConditions": [{"name": "never", "expression": "false"}]}


def selected(operator: str, *namespaces: str) -> Json:
    """Namespaces by name, as selectors have it."""
    values = {"operator": operator, "values": [*namespaces]}
    return {"namespaceSelector": {"matchExpressions": [{"key": "kubernetes.io/metadata.name", **values}]}}


def saying_no(found: Json) -> Json:
    """The same entries for the namespace of those, none of which ever matches."""
    hooks = [{**hook, **NEVER, **selected("In", SAYING_NO)} for hook in found["webhooks"]]
    return {"metadata": {"name": "saying-no"}, "webhooks": hooks}


async def say_no_by_policy(admin: Rest, name: str) -> None:
    """The policy judges only where it is measured; one that never does is in its place in the namespace of those."""
    kind, bound = f"{REGISTRATION}/validatingadmissionpolicies", f"{REGISTRATION}/validatingadmissionpolicybindings"
    policy, binding = [(await admin.get(f"{path}/{name}")).body["spec"] for path in (kind, bound)]
    left_out = {"spec": {"matchResources": selected("NotIn", SAYING_NO, UNJUDGED)}}
    assert (await admin.patch(f"{bound}/{name}", left_out)).status == 200
    no = f"saying-no.{name}"
    await admin.made(kind, {"metadata": {"name": no}, "spec": {**policy, **NEVER}})
    only = {**binding, "policyName": no, "matchResources": selected("In", SAYING_NO)}
    await admin.made(bound, {"metadata": {"name": no}, "spec": only})


async def judge_by_policy(admin: Rest, name: str) -> None:
    """The policy judges everywhere again."""
    kind, bound = f"{REGISTRATION}/validatingadmissionpolicies", f"{REGISTRATION}/validatingadmissionpolicybindings"
    await admin.patch(f"{bound}/{name}", {"spec": {"matchResources": None}})
    for path in (kind, bound):
        await admin.delete(f"{path}/saying-no.{name}")


@asynccontextmanager
async def prepared(admin: Rest) -> AsyncIterator[None]:
    """The entries that say no, and a large pod in each namespace."""
    for kind in KINDS:
        path = f"{REGISTRATION}/{kind}webhookconfigurations"
        await admin.made(path, saying_no((await admin.get(f"{path}/cardshare")).body))
    for name in POLICIES:
        await say_no_by_policy(admin, name)
    for namespace in NAMESPACES:
        await admin.made(f"/api/v1/namespaces/{namespace}/pods", pod("large", many_annotations()))
    # Registrations are learnt of by watch, and policies, which were written after them, looked at once a second.
    await eventually(
        lambda: admin.post(f"/api/v1/namespaces/{SAYING_NO}/pods?dryRun=All", pod("new", ASSIGNED)),
        lambda answer: answer.status == 201,
    )
    try:
        yield
    finally:
        for kind in KINDS:
            await admin.delete(f"{REGISTRATION}/{kind}webhookconfigurations/saying-no")
        for name in POLICIES:
            await judge_by_policy(admin, name)
        for namespace in NAMESPACES:
            await admin.delete(f"/api/v1/namespaces/{namespace}/pods/large", {"gracePeriodSeconds": 0})


async def cost_ms(installed: Installed, write: Write, rest: Rest, namespace: str) -> float:
    """CPU milliseconds of the API server for one such write."""
    before_s = installed.api.apiserver.cpu_s()
    answer = await write(rest, namespace)
    assert answer.status in {200, 201}, answer.message[:300]
    return (installed.api.apiserver.cpu_s() - before_s) * 1000


def over_the_bound(costs: Mapping[tuple[str, str], float]) -> dict[str, float]:
    """The writes that cost more than they may, and how much more they cost than beside entries that say no."""
    more = {name: costs[name, JUDGED] - costs[name, SAYING_NO] for name in WRITTEN}
    return {name: ms for name, ms in more.items() if ms > at_most_ms(name, costs[name, UNJUDGED])}


def at_most_ms(name: str, unjudged_ms: float) -> float:
    """What such a write may cost more than beside entries that say no."""
    if name in REVIEWED:
        return max(REVIEWED_AT_MOST_MS, REVIEWED_AT_MOST * unjudged_ms)
    return max(MORE_AT_MOST_MS, MORE_AT_MOST * unjudged_ms)


async def test_large_objects_cost_the_api_server_hardly_more_than_entries_that_say_no(installed: Installed):
    api = installed.api
    token = await api.token_for("dana", "default")
    rounds = {(name, where): list[float]() for name in WRITTEN for where in NAMESPACES}
    async with (
        connect(api.url, api.ca_file, api.admin_token) as admin,
        connect(api.url, api.ca_file, token) as person,
        prepared(admin),
    ):
        for made in range(1, ROUNDS_AT_MOST + 1):
            for (name, where), costs in rounds.items():
                costs.append(await cost_ms(installed, WRITTEN[name], person, where))
            means = {written: fmean(costs) for written, costs in rounds.items()}
            if made >= ROUNDS and not over_the_bound(means):
                return
    pytest.fail(f"over the bound by ms: {over_the_bound(means)}; ms of each write: {means}")
