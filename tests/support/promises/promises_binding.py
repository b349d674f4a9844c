"""Promises of the Binding subresource, on which all placing rests."""

import asyncio
from collections.abc import Mapping
from typing import Final

from tests.support.promises.promises import Json, Rows, World, promise, said
from tests.support.promises.promises_hook import Respond, add, answer_of, registered, serving


@promise
async def a_binding_puts_everything_into_one_version(world: World) -> Rows:
    before = await world.pod("p", annotations={"kept": "1", "changed": "old"}, labels={"kept": "1"})
    meta = before["metadata"]
    answer = await world.bind(
        "p",
        uid=meta["uid"],
        resourceVersion=meta["resourceVersion"],
        annotations={"changed": "new", "added": "2"},
        labels={"added": "2"},
    )
    await world.pod("marker")
    rows: Rows = [[answer.status, answer.body.get("kind"), answer.body.get("status")]]
    path = f"{world.pods}?watch=1&resourceVersion={meta['resourceVersion']}&timeoutSeconds=5"
    async for event in world.rest.watch(path):
        found = event["object"]
        if found["metadata"]["name"] == "marker":
            break
        conditions = [(c["type"], c["status"], "lastTransitionTime" in c) for c in found["status"]["conditions"]]
        rows.append(
            [event["type"], found["spec"]["nodeName"], found["metadata"]["annotations"], found["metadata"]["labels"]]
        )
        rows.append([conditions, found["status"]["phase"], "nodeName" in before["spec"]])
    return rows


@promise
async def a_binding_is_refused_for_what_the_pod_is(world: World) -> Rows:
    rows: Rows = []
    made = await world.pod("p")
    rows.append(["other uid", *said(await world.bind("p", uid="00000000-0000-0000-0000-000000000000"))])
    rows.append(["other version", *said(await world.bind("p", resourceVersion="1"))])
    await world.rest.patch(f"{world.pods}/p", {"metadata": {"labels": {"a": "b"}}})
    old = {"uid": made["metadata"]["uid"], "resourceVersion": made["metadata"]["resourceVersion"]}
    rows.append(["version before a change", *said(await world.bind("p", **old))])
    rows.append(["no such pod", *said(await world.bind("q"))])
    empty = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": ""}}
    rows.append(["no node", *said(await world.rest.post(f"{world.pods}/p/binding", empty))])
    nowhere = {"metadata": {"name": "p"}}
    rows.append(["no target", *said(await world.rest.post(f"{world.pods}/p/binding", nowhere))])
    other = {"metadata": {"name": "p"}, "target": {"kind": "Rack", "name": "r"}}
    rows.append(["a target that is no node", *said(await world.rest.post(f"{world.pods}/p/binding", other))])
    after = (await world.rest.get(f"{world.pods}/p")).body
    rows.append(["still unbound", "nodeName" not in after["spec"]])
    rows.append(["no such node", *said(await world.bind("p", "no-such-node"))])
    rows.append(["bound to another", *said(await world.bind("p", "n2"))])
    rows.append(["bound to the same", *said(await world.bind("p", "no-such-node"))])
    await world.pod("gated", {"schedulingGates": [{"name": "example.test/gate"}]})
    rows.append(["gated", *said(await world.bind("gated"))])
    await world.pod("going", finalizers=["example.test/hold"])
    await world.rest.delete(f"{world.pods}/going")
    rows.append(["being deleted", *said(await world.bind("going"))])
    await world.rest.patch(f"{world.pods}/going", {"metadata": {"finalizers": None}})
    return rows


@promise
async def of_bindings_at_once_one_wins_with_its_annotations_alone(world: World) -> Rows:
    made = await world.pod("p")
    uid = made["metadata"]["uid"]
    answers = await asyncio.gather(
        *(world.bind("p", f"n{i}", uid=uid, annotations={f"from-{i}": "x"}) for i in range(6))
    )
    statuses = [answer.status for answer in answers]
    after = (await world.rest.get(f"{world.pods}/p")).body
    winner = statuses.index(201)
    return [
        sorted(statuses),
        after["metadata"]["annotations"] == {f"from-{winner}": "x"},
        after["spec"]["nodeName"] == f"n{winner}",
    ]


@promise
async def what_a_binding_writes_is_not_judged_but_spoils_later_writes(world: World) -> Rows:
    rows: Rows = []
    await world.pod("p")
    annotations = {"bad key!": "x", "big": "y" * 300_000}
    rows.append(["bound", *said(await world.bind("p", annotations=annotations))])
    status = {"status": {"message": "m"}}
    labels = {"metadata": {"labels": {"a": "b"}}}
    rows.append(["status", (await world.rest.patch(f"{world.pods}/p/status", status)).status])
    rows.append(["labels", (await world.rest.patch(f"{world.pods}/p", labels)).status])
    repaired = {"metadata": {"annotations": {"bad key!": None, "big": None}}}
    rows.append(["repaired", (await world.rest.patch(f"{world.pods}/p", repaired)).status])
    rows.append(["status", (await world.rest.patch(f"{world.pods}/p/status", status)).status])
    return rows


@promise
async def the_node_of_a_pod_is_written_by_its_binding_or_its_creation_alone(world: World) -> Rows:
    rows: Rows = []
    await world.pod("p")
    node = {"spec": {"nodeName": "n2"}}
    rows.append(["patched, unbound", (await world.rest.patch(f"{world.pods}/p", node)).status])
    await world.bind("p")
    rows.append(["patched, bound", (await world.rest.patch(f"{world.pods}/p", node)).status])
    gone = {"spec": {"nodeName": None}}
    rows.append(["unbound again", (await world.rest.patch(f"{world.pods}/p", gone)).status])
    created = await world.pod("q", {"nodeName": "n3"}, annotations={"volcano.sh/vgpu-node": "n3"})
    rows.append(
        ["created", created["spec"]["nodeName"], created["metadata"]["annotations"], created["status"]["phase"]]
    )
    rows.append([condition["type"] for condition in created["status"].get("conditions", ())])
    return rows


@promise
async def a_binding_for_show_and_one_with_a_time_limit(world: World) -> Rows:
    rows: Rows = []
    await world.pod("p")
    rows.append(["dry run", *said(await world.bind("p", query="?dryRun=All", annotations={"a": "b"}))])
    after = (await world.rest.get(f"{world.pods}/p")).body
    rows.append(["unchanged", "nodeName" not in after["spec"], "annotations" not in after["metadata"]])
    rows.append(["limited", *said(await world.bind("p", query="?timeout=5s"))])
    return rows


_ACTS: Final[Mapping[str, Respond]] = {
    "change": lambda review: answer_of(review, patch=[add("/metadata/annotations", {"by": "webhook"})]),
    "judge": lambda review: answer_of(
        review,
        allowed="forged" not in review["request"]["object"]["metadata"]["annotations"],
        status={"code": 422, "message": "forged"},
    ),
}


def _of_bindings(entry: Json, expression: str) -> Json:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["bindings", "pods/binding"]}
    condition = {"name": "told", "expression": expression}
    return {**entry, "rules": [{**rule, "operations": ["CREATE"]}], "matchConditions": [condition]}


@promise
async def a_binding_is_shown_to_webhooks_whichever_way_it_comes(world: World) -> Rows:
    rows: Rows = []
    async with serving(world, _ACTS) as hook:
        changing = _of_bindings(hook.entry("c", "change", world), "object.target.?name.orValue('') == 'changed'")
        carrying = "request.userInfo.username == 'admin' && object.metadata.?annotations.orValue({}).exists(k, k != '')"
        judging = _of_bindings(hook.entry("j", "judge", world), carrying)
        async with registered(world, hook, [changing]), registered(world, hook, [judging], "validating"):
            await world.pod("p")
            await world.pod("q")
            bindings, forged = f"{world.core}/bindings", {"forged": "x"}
            named = {"metadata": {"name": "p", "annotations": forged}, "target": {"kind": "Node", "name": "n1"}}
            rows.append(["denied", *said(await world.bind("p", annotations=forged))])
            rows.append(["dry run", *said(await world.bind("p", query="?dryRun=All", annotations=forged))])
            rows.append(["the older way", *said(await world.rest.post(bindings, named))])
            rows.append(["no such pod", *said(await world.bind("none", annotations=forged))])
            rows.append(["another's name", *said(await world.rest.post(f"{world.pods}/q/binding", named))])
            nowhere = named | {"target": {"kind": "Node", "name": ""}}
            rows.append(["no node", *said(await world.rest.post(f"{world.pods}/p/binding", nowhere))])
            unnamed = {"metadata": {"annotations": forged}, "target": named["target"]}
            rows.append(["no name", *said(await world.rest.post(f"{world.pods}/p/binding", unnamed))])
            rows.append(["no name, the older way", *said(await world.rest.post(bindings, unnamed))])
            after = (await world.rest.get(f"{world.pods}/p")).body
            rows.append(["unbound", "nodeName" not in after["spec"], "annotations" not in after["metadata"]])
            rows.append(["carries nothing", *said(await world.bind("q"))])
            rows.append(["changed", *said(await world.bind("p", "changed", annotations={"own": "1"}))])
            after = (await world.rest.get(f"{world.pods}/p")).body
            rows.append([after["spec"]["nodeName"], after["metadata"]["annotations"]])
        told = ("operation", "name", "namespace", "kind", "resource", "subResource", "dryRun", "oldObject", "options")
        for act, request, _ in hook.reviews:
            found = request["object"]
            metadata = {key: text for key, text in found["metadata"].items() if key != "managedFields"}
            rows.append([act, *(request.get(key) for key in told), sorted(found), metadata, found["target"]])
    return rows
