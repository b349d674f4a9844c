"""Promises of lists and watches: pages, selectors, versions, and what is said when history is gone."""

import asyncio
import json
from typing import Any
from urllib.parse import quote

from tests.support.promises.promises import Rows, World, promise, said
from tests.support.servers.rest import connect


async def _names(world: World, query: str) -> list[Any]:
    answer = await world.rest.get(f"{world.pods}?{query}")
    if answer.status >= 400:
        return said(answer)[:2]
    return [one["metadata"]["name"] for one in answer.body["items"]]


@promise
async def a_list_has_a_version_and_items_without_kind(world: World) -> Rows:
    made = await world.pod("b")
    await world.pod("a")
    found = (await world.rest.get(world.pods)).body
    kinds = [("kind" in one, "apiVersion" in one) for one in found["items"]]
    newer = int(found["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    return [[found["kind"], found["apiVersion"]], kinds, [one["metadata"]["name"] for one in found["items"]], newer]


@promise
async def a_list_comes_in_pages_of_one_moment(world: World) -> Rows:
    rows: Rows = []
    for name in ("a", "b", "c", "d", "e"):
        await world.pod(name)
    query, versions = "limit=2", set()
    while True:
        found = (await world.rest.get(f"{world.pods}?{query}")).body
        metadata = found["metadata"]
        versions.add(metadata["resourceVersion"])
        names = [one["metadata"]["name"] for one in found["items"]]
        rows.append([names, metadata.get("remainingItemCount"), bool(metadata.get("continue"))])
        if not metadata.get("continue"):
            break
        await world.pod(f"later-{len(rows)}")
        query = f"limit=2&continue={quote(metadata['continue'])}"
    rows.append(["versions", len(versions)])
    rows.append(["at zero", len(await _names(world, "limit=2&resourceVersion=0"))])
    rows.append(["no token", *said(await world.rest.get(f"{world.pods}?limit=2&continue=nonsense"))[:2]])
    selected = (await world.rest.get(f"{world.pods}?limit=1&labelSelector=a")).body["metadata"]
    rows.append(["selected", selected.get("remainingItemCount"), bool(selected.get("continue"))])
    return rows


@promise
async def labels_select(world: World) -> Rows:
    await world.pod("a", labels={"app": "x", "tier": "1"})
    await world.pod("b", labels={"app": "y"})
    await world.pod("c")
    rows: Rows = []
    for selector in (
        *("app=x", "app==x", "app!=x", "app", "!app", "app in (x,y)", "app notin (x)", "app=x,tier=1"),
        *("app=", "", "app in x", "a b", "=x"),
    ):
        rows.append([selector, await _names(world, f"labelSelector={quote(selector)}")])
    return rows


@promise
async def fields_select(world: World) -> Rows:
    await world.pod("a", {"nodeName": "n1"})
    await world.pod("b", {"schedulerName": "cardshare"})
    await world.rest.patch(f"{world.pods}/a/status", {"status": {"phase": "Succeeded"}})
    rows: Rows = []
    for selector in (
        *("metadata.name=a", "spec.nodeName=n1", "spec.nodeName=", "spec.nodeName!=", "status.phase!=Succeeded"),
        *("spec.schedulerName=cardshare", "status.phase=Pending,spec.nodeName=", "metadata.namespace=default"),
        *("spec.priority=1", "metadata.labels=a", "x"),
    ):
        rows.append([selector, await _names(world, f"fieldSelector={quote(selector)}")])
    return rows


@promise
async def a_list_of_a_version_to_come_ends_with_an_error(world: World) -> Rows:
    answer = await world.rest.get(f"{world.pods}?resourceVersion=99999999999")
    wrong = await world.rest.get(f"{world.pods}?resourceVersion=x")
    return [[answer.status, answer.body["reason"]], [wrong.status]]


async def _watched(world: World, query: str, *, limit_s: float = 60.0) -> list[list[Any]]:
    """Type and name of each event, up to the pod `marker`, a bookmark's end or an error."""
    found: list[list[Any]] = []
    async for event in world.rest.watch(f"{world.pods}?watch=1&{query}", limit_s=limit_s):
        thing = event["object"]
        if event["type"] == "ERROR":
            found.append(["ERROR", thing["code"], thing["reason"]])
            break
        name = thing["metadata"].get("name")
        if name == "marker":
            break
        found.append([event["type"], name, "kind" in thing])
        if event["type"] == "BOOKMARK":
            found.append([thing["metadata"].get("annotations"), sorted(thing)])
            break
    return found


@promise
async def a_watch_goes_on_from_a_version(world: World) -> Rows:
    version = (await world.rest.get(world.pods)).body["metadata"]["resourceVersion"]
    await world.pod("a", labels={"app": "x"})
    await world.rest.patch(f"{world.pods}/a", {"metadata": {"labels": {"app": "y"}}})
    await world.rest.patch(f"{world.pods}/a", {"metadata": {"labels": {"app": "x"}}})
    await world.bind("a")
    await world.rest.delete(f"{world.pods}/a", {"gracePeriodSeconds": 0})
    await world.pod("marker", labels={"app": "x"})
    rows: Rows = [["all", *await _watched(world, f"resourceVersion={version}")]]
    # What leaves a selection is told as deleted, what enters it as added.
    rows.append(["of x", *await _watched(world, f"resourceVersion={version}&labelSelector=app%3Dx")])
    unbound = f"resourceVersion={version}&fieldSelector={quote('spec.nodeName=')}"
    rows.append(["unbound", *await _watched(world, unbound)])
    rows.append(["wrong version", (await world.rest.get(f"{world.pods}?watch=1&resourceVersion=x")).status])
    return rows


@promise
async def a_watch_from_before_an_event_begins_with_it_in_the_same_bytes(world: World) -> Rows:
    version = (await world.rest.get(world.pods)).body["metadata"]["resourceVersion"]
    await world.pod("a", labels={"b": "1", "a": "2"})
    await world.rest.patch(f"{world.pods}/a", {"metadata": {"annotations": {"d": "3", "c": "4"}}})
    await world.bind("a")
    await world.rest.delete(f"{world.pods}/a", {"gracePeriodSeconds": 0})

    async def sent(since: str) -> list[bytes]:
        path = f"{world.pods}?watch=1&allowWatchBookmarks=true&resourceVersion={since}&timeoutSeconds=2"
        return [line async for line in world.rest.lines(path) if json.loads(line)["type"] != "BOOKMARK"]

    first = await sent(version)
    versions = [json.loads(line)["object"]["metadata"]["resourceVersion"] for line in first]
    return [
        [json.loads(first[at])["type"], await sent(before) == first[at:]]
        for at, before in enumerate([version, *versions[:-1]])
    ]


@promise
async def a_watch_without_a_version_begins_with_what_is_there(world: World) -> Rows:
    await world.pod("a")
    await world.pod("marker")
    return [await _watched(world, "timeoutSeconds=3"), await _watched(world, "resourceVersion=0&timeoutSeconds=3")]


@promise
async def a_watch_ends_after_its_time(world: World) -> Rows:
    began_s = asyncio.get_running_loop().time()
    found = await _watched(world, "timeoutSeconds=1")
    took_s = asyncio.get_running_loop().time() - began_s
    return [found, took_s > 0.8]


@promise
async def a_list_is_streamed_and_its_end_told(world: World) -> Rows:
    await world.pod("a")
    good = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=5"
    wrong = await world.rest.get(f"{world.pods}?watch=1&sendInitialEvents=true")
    return [await _watched(world, good), [wrong.status, wrong.body["reason"]]]


@promise
async def what_is_forgotten_is_expired(world: World) -> Rows:
    rows: Rows = []
    version = (await world.pod("a"))["metadata"]["resourceVersion"]
    await world.pod("b")
    page = (await world.rest.get(f"{world.pods}?limit=1")).body["metadata"]
    assert world.server.forget is not None, "this server cannot be made to forget"
    await world.server.forget()
    server = world.server
    async with connect(server.url, server.ca_file, server.token) as rest:
        events = [
            event async for event in rest.watch(f"{world.pods}?watch=1&resourceVersion={version}&timeoutSeconds=3")
        ]
        rows.append(["watch", *[[e["type"], e["object"]["code"], e["object"]["reason"]] for e in events]])
        rows.append(["from now", (await rest.get(world.pods)).status])
        following = f"limit=1&continue={quote(page['continue'])}"
        rows.append(["page", *said(await rest.get(f"{world.pods}?{following}"))[:2]])
    return rows
