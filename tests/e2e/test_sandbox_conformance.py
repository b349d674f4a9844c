"""The API server double and a real one are asked the same, and must answer alike.

What is compared is what a client decides by: status, reason, the fields in question, the order of events. Texts for
people are compared where the product shows them on.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sandbox.client import ApiClient, ApiStatusError, PatchKind
from sandbox.cluster import ClusterSettings, running_cluster

NAMESPACE = "conformance"
UNIQUE = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|(?<=object meta: )[0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two servers, with a namespace that is its scenario's own."""

    client: ApiClient
    namespace: str

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    @property
    def maps(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps"


async def outcome(call, look=lambda answer: "ok", *, text=False):
    """What a client learns from a call: what it looks at, or status and reason."""
    try:
        return look(await call)
    except ApiStatusError as e:
        return (e.status, e.reason, UNIQUE.sub("#", e.message)) if text else (e.status, e.reason)


def pod(name="p", limits=None, requests=None, **spec):
    resources = {key: value for key, value in (("limits", limits), ("requests", requests)) if value}
    container = {"name": "c", "image": "i:1", "resources": resources}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def with_metadata(**metadata):
    return {**pod(), "metadata": {"name": "x", **metadata}}


def binding(node="n", **metadata):
    return {"metadata": {"name": "p", **metadata}, "target": {"kind": "Node", "name": node}}


def limits_of(answer):
    return answer["spec"]["containers"][0]["resources"]


QUANTITIES = (
    *("1e3", "+1", "1E", "1024", "9223372036854775808", "1e308", "1.10", "0.5Gi", "1024.000Mi", "1000k", "1n", " 1"),
    *("-0", "1Ki", "1000", "1500Mi", "100", "3000", "1e-3", "1u", ".5", "5.", "+1000", "12e6", "1E3", "abc", "", "-1"),
)


async def quantities(side):
    return [
        (
            resource,
            text,
            await outcome(side.client.create(side.pods, pod(limits={resource: text}), {"dryRun": "All"}), limits_of),
        )
        for resource in ("example.com/x", "cpu")
        for text in QUANTITIES
    ]


BODIES = {
    "limit missing": pod(requests={"example.com/x": "1"}),
    "unequal": pod(limits={"example.com/x": "2"}, requests={"example.com/x": "1"}),
    "cpu above limit": pod(limits={"cpu": "1"}, requests={"cpu": "2"}),
    "fraction": pod(limits={"example.com/x": "500m"}),
    "no domain": pod(limits={"gpu": "1"}),
    "no containers": {"metadata": {"name": "x"}, "spec": {}},
    "no image": {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c"}]}},
    "name": pod("Bad_Name"),
    "annotation key": with_metadata(annotations={"bad key!": ""}),
    "annotation size": with_metadata(annotations={"k": "x" * 262_144}),
    "annotation type": with_metadata(annotations={"k": True}),
    "label value": with_metadata(labels={"k": "a b"}),
    "label type": with_metadata(labels={"k": 1}),
    "finalizer": with_metadata(finalizers=["nonsense"]),
    "version": with_metadata(resourceVersion="1"),
    "another namespace": with_metadata(namespace="other"),
    "another kind": {**pod(), "kind": "Node", "apiVersion": "v1"},
    "containers no list": {"metadata": {"name": "x"}, "spec": {"containers": {"name": "c"}}},
    "priority class": pod(priorityClassName="none"),
    "unknown field": {**pod(), "bogus": 1},
}


async def refusals(side):
    strict = {"fieldValidation": "Strict"}
    return [(label, await outcome(side.client.create(side.pods, body, strict))) for label, body in BODIES.items()]


async def bindings(side):
    client, pods = side.client, side.pods
    path = f"{pods}/p/binding"
    said = [await outcome(client.create(path, binding()), text=True)]
    await client.create(pods, pod())
    bodies = (binding(uid="zz"), binding(resourceVersion="1"), binding(""), {"metadata": {"name": "p"}, "target": {}})
    said += [await outcome(client.create(path, body), text=True) for body in bodies]
    said.append(
        await outcome(
            client.create(path, binding(annotations={"bad key!": "1"}, labels={"a": "b"})), lambda a: a["status"]
        )
    )
    bound = await client.get(f"{pods}/p")
    conditions = [(c["type"], c["status"]) for c in bound["status"]["conditions"]]
    said += [bound["metadata"]["annotations"], bound["metadata"]["labels"], bound["spec"]["nodeName"], conditions]
    said.append(bound["metadata"].get("generation"))
    said.append(await outcome(client.create(path, binding("m")), text=True))
    said.append(await outcome(client.patch(f"{pods}/p/status", {"status": {"message": "m"}})))
    said.append(await outcome(client.patch(f"{pods}/p", {"metadata": {"labels": {"c": "d"}}})))
    said.append(await outcome(client.patch(f"{pods}/p", {"metadata": {"annotations": None}})))
    await client.create(pods, pod("g", schedulingGates=[{"name": "x.io/g"}]))
    said.append(await outcome(client.create(f"{pods}/g/binding", binding() | {"metadata": {"name": "g"}}), text=True))
    await client.delete(f"{pods}/p")
    said.append(await outcome(client.create(path, binding("m")), text=True))
    return [str(item).replace(side.namespace, "NS") for item in said]


async def updates(side):
    client, path = side.client, f"{side.pods}/p"
    await client.create(side.pods, pod())
    image = {"spec": {"containers": [{"name": "c", "image": "j:2"}]}}
    status = {"status": {"phase": "Running"}, "spec": {"schedulerName": "x"}, "metadata": {"annotations": {"a": "b"}}}
    calls = {
        "node": client.patch(path, {"spec": {"nodeName": "n"}}),
        "scheduler": client.patch(path, {"spec": {"schedulerName": "x"}}),
        "selector": client.patch(path, {"spec": {"nodeSelector": {"a": "b"}}}),
        "image": client.patch(path, image, PatchKind.STRATEGIC),
        "status by the main path": client.patch(path, {"status": {"phase": "Running"}}),
        "status": client.patch(f"{path}/status", status),
        "test": client.patch(path, [{"op": "test", "path": "/metadata/name", "value": "q"}], PatchKind.JSON),
        "remove": client.patch(path, [{"op": "remove", "path": "/metadata/labels/q"}], PatchKind.JSON),
        "old version": client.patch(path, {"metadata": {"resourceVersion": "1", "labels": {"a": "b"}}}),
        "uid": client.patch(path, {"metadata": {"uid": "x"}}),
        "uid of status": client.patch(f"{path}/status", {"metadata": {"uid": "x"}, "status": {"message": "m"}}),
        "put without version": client.update(path, {**pod(), "metadata": {"name": "p", "uid": "x"}}),
        "missing": client.patch(f"{side.pods}/none", {}),
        "map": client.create(side.maps, {"metadata": {"name": "m"}, "data": {"a": "b"}}),
        "put": client.update(f"{side.maps}/m", {"metadata": {"name": "m"}, "data": {"a": "c"}}),
        "put old": client.update(f"{side.maps}/m", {"metadata": {"name": "m", "resourceVersion": "1"}}),
        "put other name": client.update(f"{side.maps}/m", {"metadata": {"name": "n"}}),
    }

    def seen(answer):
        metadata, spec = answer["metadata"], answer.get("spec", {})
        return (
            metadata.get("generation"),
            metadata.get("annotations"),
            spec.get("schedulerName"),
            answer.get("status", {}).get("phase"),
        )

    return [(label, await outcome(call, seen)) for label, call in calls.items()]


async def events_of(side, since, **params):
    """What a watch of a second tells of the pods, as far as it is the same everywhere."""
    seen: list[Any] = []
    query = {"timeoutSeconds": "1", **params}
    async for event in side.client.watch(side.pods, resource_version=since, params=query):
        metadata = event.object["metadata"]
        if event.type != "BOOKMARK":
            grace_s = metadata.get("deletionGracePeriodSeconds")
            seen.append((event.type, metadata["name"], grace_s, metadata.get("labels")))
    return seen


async def lives(side):
    client, pods = side.client, side.pods
    since = (await client.get(pods))["metadata"]["resourceVersion"]
    await client.create(pods, pod("bound", nodeName="n"))
    await client.create(pods, pod("free"))
    await client.patch(f"{pods}/free", {"metadata": {"labels": {"app": "x"}}})
    await client.patch(f"{pods}/free", {"metadata": {"labels": {"app": "x"}}})
    await client.delete(f"{pods}/bound")
    again = await outcome(client.delete(f"{pods}/bound"), lambda a: a["metadata"]["deletionGracePeriodSeconds"])
    shorter = await outcome(
        client.delete(f"{pods}/bound", grace_s=5), lambda a: a["metadata"]["deletionGracePeriodSeconds"]
    )
    another = await outcome(client.delete(f"{pods}/bound", grace_s=0, uid="x"))
    await client.patch(f"{pods}/free", {"metadata": {"finalizers": ["example.com/hold"]}})
    await client.delete(f"{pods}/free")
    await client.delete(f"{pods}/bound", grace_s=0)
    await client.patch(f"{pods}/free", {"metadata": {"finalizers": None}})
    await client.create(pods, pod("brief"))
    gone = await outcome(client.delete(f"{pods}/brief"), lambda a: a["metadata"].get("deletionGracePeriodSeconds"))
    await client.create(pods, pod("ended", nodeName="n"))
    await client.patch(f"{pods}/ended/status", {"status": {"phase": "Succeeded"}})
    await client.delete(f"{pods}/ended")
    everything = await events_of(side, since)
    selected = await events_of(side, since, labelSelector="app=x")
    return [again, shorter, another, gone, everything, selected]


async def lists(side):
    client, pods = side.client, side.pods
    for name in ("b", "a", "c"):
        await client.create(pods, pod(name, nodeName="n" if name == "a" else ""))
    page = await client.get(pods, {"limit": "2"})
    rest = await client.get(pods, {"limit": "2", "continue": page["metadata"]["continue"]})

    def names(answer):
        return [item["metadata"]["name"] for item in answer["items"]]

    return [
        names(page),
        names(rest),
        page["metadata"]["remainingItemCount"],
        "continue" in rest["metadata"],
        "kind" in page["items"][0],
        await outcome(client.get(pods, {"fieldSelector": "spec.nodeName=n"}), names),
        await outcome(client.get(pods, {"fieldSelector": "spec.nodeName!=,status.phase=Pending"}), names),
        await outcome(client.get(pods, {"fieldSelector": "spec.hostname=n"})),
        await outcome(client.get(pods, {"labelSelector": "a b"})),
        await outcome(client.get(pods, {"resourceVersion": "99999999"})),
        await outcome(client.get(pods, {"resourceVersion": "0", "limit": "1"}), names),
        await outcome(client.get(f"{pods}/none"), text=True),
        await outcome(client.get("/apis/nope.io/v1/things"), text=True),
        await outcome(anext(client.watch(pods, params={"sendInitialEvents": "true"}))),
    ]


SCENARIOS = (quantities, refusals, bindings, updates, lives, lists)


@asynccontextmanager
async def side(client, name) -> AsyncIterator[Side]:
    namespace = f"{NAMESPACE}-{name}"
    await client.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    yield Side(client=client, namespace=namespace)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[scenario.__name__ for scenario in SCENARIOS])
async def test_the_double_answers_as_the_real_server(realapi, scenario):
    ca_pem = await asyncio.to_thread(Path(realapi.ca_file).read_bytes)
    name = scenario.__name__
    async with (
        ApiClient(server=realapi.url, token=realapi.admin_token, ca_pem=ca_pem, timeout_s=30) as real,
        side(real, name) as there,
        running_cluster(settings=ClusterSettings(kubelet=None)) as cluster,
        side(cluster.admin, name) as here,
    ):
        assert await scenario(here) == await scenario(there)
