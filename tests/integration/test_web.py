"""``kubectl cards web``: what the page is served, to whom, and that it follows the cluster."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp
import pytest
from yarl import URL

from cli.options import Web, parse
from cli.web.feed import Feed, Sees, Update
from cli.web.local import serve
from core.configuration import OWN_MAP
from core.model import MEMBER_OF
from core.units import time_text
from kube.credentials import choose_source
from kube.kinds import QUEUES_PATH, VOLCANO_VERSION
from kube.transport import Response, Transport
from tests.integration.test_history import store
from tests.support.worlds.cards_cluster import ASSIGNED, add_event, add_pod, cards, cluster, give
from tests.support.worlds.volcano import create, install

PODS = "/api/v1/namespaces/default/pods"
VGPU = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "3000", "volcano.sh/vgpu-cores": "50"}


class Page:
    """What a browser does with the page's address."""

    def __init__(self, address: str, session: aiohttp.ClientSession) -> None:
        self.root, _, self.key = address.partition("#key=")
        self.session = session

    @property
    def shown(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    async def get(self, path: str, **headers: str) -> aiohttp.ClientResponse:
        answer = await self.session.get(self.root + path.lstrip("/"), headers={**self.shown, **headers})
        await answer.read()
        return answer

    @asynccontextmanager
    async def updates(self) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        async with self.session.get(f"{self.root}v1/feed", headers=self.shown) as answer:
            assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
            yield events(answer)


async def events(answer: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    # A line of an event is longer than what aiohttp takes for one.
    text = b""
    async for part in answer.content.iter_any():
        *whole, text = (text + part).split(b"\n\n")
        for one in whole:
            yield json.loads(one.removeprefix(b"data: "))


@asynccontextmanager
async def served(
    kubeconfig: str,
    namespace: str = "",
    *,
    browser: bool = False,
    within_s: float | None = 240,
    settings_map: str = OWN_MAP,
) -> AsyncIterator[Page]:
    addresses: asyncio.Queue[str] = asyncio.Queue()
    source = choose_source(kubeconfig=kubeconfig, context="", environ={})
    options = Web(kubeconfig=kubeconfig, context="", browser=browser, namespace=namespace, settings_map=settings_map)
    async with Transport(source, user_agent="test") as transport, aiohttp.ClientSession() as session:
        serving = asyncio.create_task(serve(transport, options, addresses.put_nowait))
        try:
            async with asyncio.timeout(within_s):
                yield Page(await addresses.get(), session)
        finally:
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving


async def until(updates: AsyncIterator[dict[str, Any]], condition: Any) -> dict[str, Any]:
    async for update in updates:
        if condition(update):
            return update
    raise AssertionError("the feed ended")


async def test_its_figures_are_those_of_get_and_waiting(rig, capsys):
    async with cluster(rig) as (world, kubeconfig):
        await add_pod(world, "a", VGPU, ASSIGNED, "t4-a")
        await add_pod(world, "b", {"volcano.sh/gpu-memory": "99999"}, {}, "")
        async with served(kubeconfig) as page, page.updates() as updates:
            first = await anext(updates)
        capsys.readouterr()
        await cards(kubeconfig, "get", "-o", "json")
        shown = json.loads(capsys.readouterr().out)
        assert {node["name"]: node for node in first["nodes"]} == {node["name"]: node for node in shown["nodes"]}
        assert first["totals"] == shown["totals"]
        await cards(kubeconfig, "waiting", "-A", "-o", "json")
        assert first["waiting"] == json.loads(capsys.readouterr().out)
        (kind,) = (one for one in first["kinds"] if one["type"] == "Tesla T4")
        assert (kind["cards"], kind["used"], kind["free"], kind["largest"]) == (2, 3000, 27720, 15360)
        assert (kind["stranded"], kind["fragmented_pct"]) == (0, 45)
        assert first["sees"] == {"nodes": True, "namespace": "", "home": "default", "queues": True, "quotas": True}


async def test_what_changes_comes_by_itself_and_nothing_else(rig):
    async with cluster(rig) as (world, kubeconfig), served(kubeconfig) as page, page.updates() as updates:
        first = await anext(updates)
        assert len(first["nodes"]) == 4
        await add_pod(world, "a", VGPU, ASSIGNED, "t4-a")
        update = await until(updates, lambda one: one["nodes"])
        assert [node["name"] for node in update["nodes"]] == ["t4-a"]
        assert update["gone"] == []
        await add_pod(world, "b", {"volcano.sh/gpu-memory": "99999"}, {}, "")
        update = await until(updates, lambda one: one["waiting"] and one["waiting"]["pods"])
        assert [pod["pod"] for pod in update["waiting"]["pods"]] == ["default/b"]
        await world.client.delete("/api/v1/nodes/plain")
        update = await until(updates, lambda one: one["gone"])
        assert (update["nodes"], update["gone"]) == ([], ["plain"])


async def test_a_node_goes_from_the_page_however_much_changed_with_it(rig, monkeypatch):
    monkeypatch.setattr("core.ledger._LOG_MAX", 2)  # as after a night in which a laptop slept
    async with cluster(rig) as (world, kubeconfig), served(kubeconfig) as page, page.updates() as updates:
        assert len((await anext(updates))["nodes"]) == 4
        await world.client.delete("/api/v1/nodes/plain")
        for label in "abc":
            for name in ("t4-a", "share-a"):
                await world.client.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {"x": label}}})
        update = await until(updates, lambda one: one["gone"])
        assert update["gone"] == ["plain"]


async def test_nothing_is_kept_for_a_page_that_was_closed(rig, monkeypatch):
    ended, updates_of = asyncio.Event(), Feed.updates

    async def watched(feed: Feed, sees: Sees) -> AsyncIterator[Update]:
        try:
            async for one in updates_of(feed, sees):
                yield one
        finally:
            ended.set()

    monkeypatch.setattr(Feed, "updates", watched)
    async with cluster(rig) as (_, kubeconfig), served(kubeconfig) as page:
        async with page.updates() as updates:
            await anext(updates)
            assert not ended.is_set()
        async with asyncio.timeout(60):  # nothing changes in the cluster
            await ended.wait()


async def test_places_in_line_follow_groups_and_members(rig):
    async with cluster(rig) as (world, kubeconfig):
        await install(world.client)
        await world.served(QUEUES_PATH)
        for name, node in (("placed", "plain"), ("a-waits", ""), ("b-alone", "")):
            await add_pod(world, name, {"volcano.sh/gpu-memory": "99999"} if not node else {}, {}, node)
        for name in ("placed", "a-waits"):
            await join(world, name)
        async with served(kubeconfig) as page, page.updates() as updates:
            assert places(await anext(updates)) == {"default/a-waits": 1, "default/b-alone": 2}
            group = {"apiVersion": VOLCANO_VERSION, "kind": "PodGroup", "metadata": {"name": "g"}}
            await create(world.client, {**group, "spec": {"minMember": 1}})
            update = await until(updates, lambda one: one["waiting"])
            assert places(update) == {"default/b-alone": 1, "default/a-waits": 2}  # whose group has its minimum
            await world.client.delete(f"{PODS}/placed")
            update = await until(updates, lambda one: one["waiting"])
            assert places(update) == {"default/a-waits": 1, "default/b-alone": 2}


async def join(world: Any, pod: str) -> None:
    """Make *pod* a member of group `g`."""
    await world.client.patch(f"{PODS}/{pod}", {"metadata": {"annotations": {MEMBER_OF: "g"}}})


def places(update: dict[str, Any]) -> dict[str, int | None]:
    return {one["pod"]: one["place"] for one in update["waiting"]["pods"]}


async def test_an_answer_that_is_no_json_is_said_and_ends_nothing(rig, capsys, caplog, monkeypatch):
    # A proxy whose login has expired answers with its own page.
    asks = Transport.request

    async def request(transport: Transport, verb: str, path: str, **more: Any) -> Response:
        answer = await asks(transport, verb, path, **more)
        is_log_in = path.rsplit("/", 1)[-1] in {"podgroups", "events", "queues"}
        return replace(answer, body=b"<html>") if is_log_in else answer

    async with cluster(rig) as (world, kubeconfig):
        await install(world.client)
        await world.served(QUEUES_PATH)
        await add_pod(world, "a", {"volcano.sh/gpu-memory": "99999"}, {}, "")
        await join(world, "a")
        monkeypatch.setattr(Transport, "request", request)
        async with served(kubeconfig) as page, page.updates() as updates:
            update = await anext(updates)
            assert update["waiting"]["pods"][0]["queue"] is None
            assert [
                note for note in update["notes"] if note.startswith("PodGroups of scheduling.volcano.sh are not read")
            ]
            answer = await page.get("/v1/pods/default/a")
            assert answer.status == 502
            assert "cannot be read" in await answer.text()
    assert "Traceback" not in capsys.readouterr().err + caplog.text


async def test_a_pod_is_what_explain_says_of_it(rig, capsys):
    async with cluster(rig) as (world, kubeconfig):
        await add_pod(world, "a", VGPU, ASSIGNED, "t4-a")
        created = await world.client.get("/api/v1/namespaces/default/pods/a")
        await add_event(world, "a", uid=created["metadata"]["uid"], message="no")
        async with served(kubeconfig) as page:
            answer = await page.get("/v1/pods/default/a")
            shown = await answer.json()
            assert (await page.get("/v1/pods/default/none")).status == 404
        capsys.readouterr()
        await cards(kubeconfig, "explain", "a", "-o", "json")
        assert shown == json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("sees_nodes", [True, False])
async def test_own_pods_are_what_explain_says_and_follow_the_cluster(rig, capsys, sees_nodes):
    async with cluster(rig) as (world, kubeconfig):
        await add_pod(world, "a", VGPU, ASSIGNED, "t4-a")
        hard = {"limits.volcano.sh/vgpu-memory": "12000"}
        await world.client.create(
            "/api/v1/namespaces/default/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}}
        )
        watch = ["get", "list", "watch"]
        await give(world, "person", [{"apiGroups": [""], "resources": ["pods", "resourcequotas"], "verbs": watch}])
        own = kubeconfig if sees_nodes else await world.write_kubeconfig("person")
        async with served(own, "default") as page, page.updates() as updates:
            update = await until(updates, lambda one: one["mine"] and one["mine"]["pods"][0]["phase"] == "Running")
            capsys.readouterr()
            await cards(own, "explain", "a", "-o", "json")
            assert update["mine"]["pods"] == [json.loads(capsys.readouterr().out)]
            (left,) = update["mine"]["left"]
            assert (left["name"], left["held"], left["left"]) == ("q", 3000, 9000)
            await add_pod(world, "b", VGPU, {}, "")
            update = await until(updates, lambda one: one["mine"] and one["mine"]["count"] == 2)
            assert [one["pod"] for one in update["mine"]["pods"]] == ["default/b", "default/a"]
            await world.client.delete(f"{PODS}/a")
            update = await until(updates, lambda one: one["mine"] and one["mine"]["count"] == 1)
            assert update["mine"]["left"][0]["left"] == 12000


async def test_the_history_of_a_pod_is_what_why_says(rig, capsys):
    async with cluster(rig) as (world, kubeconfig):
        await add_pod(world, "a", VGPU, ASSIGNED, "t4-a")
        await store(world, at=int(time.time()) // 60)
        async with served(kubeconfig) as page:
            for name in ("a", "old"):
                shown = await (await page.get(f"/v1/history/pods/default/{name}")).json()
                capsys.readouterr()
                await cards(kubeconfig, "why", name, "-o", "json")
                said = json.loads(capsys.readouterr().out)
                assert shown | {"notes": []} == said | {"notes": []}
                assert shown["source"] == ("controller" if name == "old" else "conditions")
            assert (await page.get("/v1/history/pods/default/none")).status == 404


async def test_with_settings_of_another_name_the_record_is_the_one_beside_them(rig, capsys):
    settings_map = "cardshare-system/shares-settings"
    async with cluster(rig) as (world, kubeconfig):
        await store(world, "shares-history", at=int(time.time()) // 60)
        async with served(kubeconfig, settings_map=settings_map) as page:
            shown = await page.get("/v1/history/pods/default/old")
            assert shown.status == 200
            assert (await shown.json())["source"] == "controller"
        assert await cards(kubeconfig, "why", "old", "-o", "json", "--settings-map", settings_map) == 0
        assert json.loads(capsys.readouterr().out)["source"] == "controller"


async def test_the_last_day_is_that_of_the_record_or_it_is_said_that_it_cannot_be_read(rig):
    async with cluster(rig) as (world, kubeconfig):
        await seeing(world, [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list", "watch"]}])
        async with served(await world.write_kubeconfig("person")) as page, page.updates() as updates:
            day = (await until(updates, lambda one: one["trend"]))["trend"]
            assert (day["observed"], day["notes"][0].partition(" is forbidden")[1]) == ([], " is forbidden")
        at = int(time.time()) // 60 - 1
        await store(world, at=at)
        async with served(kubeconfig) as page, page.updates() as updates:
            day = (await until(updates, lambda one: one["trend"]))["trend"]
            assert (day["since"], day["observed"], day["notes"]) == (time_text(at * 60), [1], [])
            (of_cards,), (waits,) = day["cards"], day["waiting"]
            assert (of_cards["type"], of_cards["promised"], of_cards["stranded"]) == ("T4", [1000], [0])
            assert (waits["queue"], waits["pods"]) == ("team", [2])


async def test_a_card_tells_what_it_was_since_the_page_began(rig):
    async with cluster(rig) as (world, kubeconfig), served(kubeconfig) as page, page.updates() as updates:
        await until(updates, lambda one: one["nodes"])
        await add_pod(world, "a", VGPU, ASSIGNED, "t4-a")
        await until(updates, lambda one: one["nodes"])
        path = "/v1/history/card?node=t4-a&protocol=vgpu&card="
        found = await (await page.get(f"{path}GPU-t4-a-1")).json()
        states = [(one["card"]["used"], [share["pod"] for share in one["card"]["held_by"]]) for one in found["changes"]]
        assert states == [(0, []), (3000, ["default/a"])]
        assert len((await (await page.get(f"{path}GPU-t4-a-0")).json())["changes"]) == 1
        assert (await page.get(f"{path}none")).status == 404


async def test_its_findings_are_those_of_doctor_as_far_as_nodes_and_pods_show_them(rig, capsys):
    pods = "/api/v1/namespaces/kube-system/pods"
    spec = {
        "serviceAccountName": "volcano-device-plugin",
        "nodeName": "t4-a",
        "containers": [{"name": "c", "image": "i"}],
    }
    plugin = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plugin"}, "spec": spec}
    not_ready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    async with cluster(rig) as (world, kubeconfig):
        await world.client.create(pods, plugin)
        async with served(kubeconfig) as page, page.updates() as updates:
            await until(updates, lambda one: one["findings"])
            await world.client.patch(f"{pods}/plugin/status", not_ready)
            update = await until(updates, lambda one: one["findings"] and one["findings"]["count"] == 2)
        capsys.readouterr()
        await cards(kubeconfig, "doctor", "-o", "json")
        told = json.loads(capsys.readouterr().out)["findings"]
        assert [one["code"] for one in update["findings"]["findings"]] == ["CS612", "CS615"]
        assert update["findings"]["findings"] == [one for one in told if one["code"] in {"CS612", "CS615"}]


async def test_its_queues_are_those_of_the_command_and_follow_the_cluster(rig, capsys):
    async with cluster(rig) as (world, kubeconfig):
        await install(world.client)
        await world.served(QUEUES_PATH)
        queue = {"apiVersion": VOLCANO_VERSION, "kind": "Queue", "metadata": {"name": "team"}}
        await create(world.client, {**queue, "spec": {"weight": 1, "capability": {"volcano.sh/vgpu-number": "4"}}})
        group = {"apiVersion": VOLCANO_VERSION, "kind": "PodGroup", "metadata": {"name": "g"}}
        await create(world.client, {**group, "spec": {"minMember": 1, "queue": "team"}})
        async with served(kubeconfig) as page, page.updates() as updates:
            assert holds(await anext(updates)) == 0
            for name, node in (("placed", "t4-a"), ("waits", "")):
                await add_pod(world, name, VGPU, ASSIGNED, node)
                await join(world, name)
            shown = await until(updates, lambda one: one["queues"] and one["queues"]["queues"][-1]["waiting"])
        assert holds(shown) == 1
        capsys.readouterr()
        await cards(kubeconfig, "queues", "-o", "json")
        assert shown["queues"] == json.loads(capsys.readouterr().out)


def holds(update: dict[str, Any]) -> int:
    """How many cards the last queue holds."""
    (amount,) = (
        one for one in update["queues"]["queues"][-1]["amounts"] if one["resource"] == "volcano.sh/vgpu-number"
    )
    found: int = amount["holds"]
    return found


async def test_who_may_not_see_queues_is_told_so_and_sees_the_rest(rig):
    async with cluster(rig) as (world, _):
        await install(world.client)
        await world.served(QUEUES_PATH)
        await seeing(world, [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list", "watch"]}])
        async with served(await world.write_kubeconfig("person")) as page, page.updates() as updates:
            update = await until(updates, lambda one: any("Queues" in note for note in one["notes"]))
            assert (update["queues"], update["stale"]) == (None, "")


POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"volcano.sh/vgpu-memory": "4000"}}}]},
}


async def ask_fits(page: Page, manifest: str, **headers: str) -> tuple[int, str]:
    answer = await page.session.post(f"{page.root}v1/fits", data=manifest, headers={**page.shown, **headers})
    return answer.status, await answer.text()


async def test_what_fits_is_what_the_command_says(rig, capsys, tmp_path):
    file = tmp_path / "pod.json"
    file.write_text(json.dumps(POD))
    async with cluster(rig) as (world, kubeconfig):
        await add_pod(world, "a", VGPU, ASSIGNED, "t4-a")
        hard = {"limits.volcano.sh/vgpu-memory": "12000"}
        quota = {"metadata": {"name": "q"}, "spec": {"hard": hard}}
        await world.client.create("/api/v1/namespaces/default/resourcequotas", quota)
        async with served(kubeconfig) as page, page.updates() as updates:
            await anext(updates)
            status, shown = await ask_fits(page, file.read_text())
        assert status == 200
        capsys.readouterr()
        await cards(kubeconfig, "fits", "-f", str(file), "-o", "json")
        assert json.loads(shown) == json.loads(capsys.readouterr().out)
        assert json.loads(shown)["ways"][0]["pods"] == 2  # beside the 3000 MiB of a


async def test_how_much_fits_is_what_the_command_says(rig, capsys):
    async with cluster(rig) as (world, kubeconfig):
        await add_pod(world, "a", VGPU, ASSIGNED, "t4-a")
        async with served(kubeconfig) as page, page.updates() as updates:
            await anext(updates)
            asked = f"{page.root}v1/fits?memory=10000&cards=1"
            shown = await (await page.session.post(asked, headers=page.shown)).json()
            wrong = await page.session.post(f"{page.root}v1/fits?memory=lots", headers=page.shown)
            assert (wrong.status, await wrong.text()) == (400, "memory: write a whole number from 1 to 99999999\n")
        capsys.readouterr()
        await cards(kubeconfig, "fits", "--memory", "10000", "--cards", "1", "-o", "json")
        assert shown == json.loads(capsys.readouterr().out)


async def test_a_question_that_is_none_is_refused_and_one_of_another_site(rig):
    async with cluster(rig) as (_, kubeconfig), served(kubeconfig) as page, page.updates() as updates:
        await anext(updates)
        pod = json.dumps(POD)
        assert (await ask_fits(page, pod, Origin="http://elsewhere.example"))[0] == 403
        assert (await ask_fits(page, pod, Authorization=""))[0] == 401
        assert (await ask_fits(page, pod, Origin=page.root.rstrip("/")))[0] == 200
        assert await ask_fits(page, "a" * 300_000) == (413, "the manifest is too long; send at most 256 KiB\n")
        assert await ask_fits(page, "") == (400, "no pod in it asks for cards\n")
        assert (await ask_fits(page, "# a pod\nkind: [\n"))[1].startswith("line 2: ")


async def test_who_may_see_one_namespace_sees_that_and_no_cards(rig):
    async with cluster(rig) as (world, kubeconfig):
        await add_pod(world, "b", {"volcano.sh/gpu-memory": "99999"}, {}, "")
        rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
        await give(world, "person", rules)
        async with served(await world.write_kubeconfig("person"), "default") as page, page.updates() as updates:
            first = await anext(updates)
        (mine,) = first["mine"]["pods"]
        assert (mine["pod"], mine["state"]) == ("default/b", "waits")
        sees = {"nodes": False, "namespace": "default", "home": "default", "queues": True, "quotas": True}
        assert first["sees"] == sees
        assert (first["nodes"], first["totals"], first["kinds"]) == ([], [], [])
        assert [pod["pod"] for pod in first["waiting"]["pods"]] == ["default/b"]
        assert first["waiting"]["pods"][0]["place"] is None
        assert await cards(kubeconfig, "get") == 0


async def test_it_says_why_it_does_not_follow_the_pods_of_one_namespace(rig):
    async with cluster(rig) as (world, _):
        await give(world, "person", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}])
        async with served(await world.write_kubeconfig("person"), "default") as page, page.updates() as updates:
            update = await until(updates, lambda one: one["stale"])
        assert update["stale"].startswith("forbidden: watch pods")


async def seeing(world: Any, rules: list[dict[str, Any]]) -> None:
    """Let the account `person` do what *rules* say, in the whole cluster."""
    path, account = "/apis/rbac.authorization.k8s.io/v1", {"kind": "ServiceAccount", "name": "person"}
    await world.client.create(f"{path}/clusterroles", {"metadata": {"name": "person"}, "rules": rules})
    binding = {
        "metadata": {"name": "person"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "person"},
        "subjects": [account | {"namespace": "default"}],
    }
    await world.client.create(f"{path}/clusterrolebindings", binding)


async def test_it_is_live_with_the_rights_that_its_page_names(rig):
    async with cluster(rig) as (world, _):
        await seeing(world, [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list", "watch"]}])
        async with served(await world.write_kubeconfig("person")) as page, page.updates() as updates:
            update = await until(updates, lambda one: any("resource claims" in note for note in one["notes"]))
            assert update["stale"] == ""


async def test_it_shows_a_cluster_that_has_no_node_yet(rig):
    async with cluster(rig) as (world, kubeconfig):
        for name in [one["metadata"]["name"] for one in (await world.client.get("/api/v1/nodes"))["items"]]:
            await world.client.delete(f"/api/v1/nodes/{name}")
        async with served(kubeconfig) as page, page.updates() as updates:
            first = await anext(updates)
            assert (first["nodes"], first["waiting"]["pods"], first["stale"]) == ([], [], "")


async def test_without_the_key_or_by_another_name_nothing_is_shown(rig):
    async with cluster(rig) as (_, kubeconfig), served(kubeconfig) as page:
        assert (await page.get("/v1/feed", Authorization="")).status == 401
        assert (await page.get("/v1/pods/default/a", Authorization="Bearer x")).status == 401
        for path in ("/", "/v1/feed"):
            assert (await page.get(path, Host="elsewhere.example:80")).status == 421
        answer = await page.get("/", Authorization="")
        assert answer.status == 200
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'")
        assert answer.headers["Cache-Control"] == "no-store"
        assert "Set-Cookie" not in answer.headers


async def test_it_shows_the_cluster_while_the_browser_is_run_in_the_foreground(rig, tmp_path, monkeypatch):
    # As one that BROWSER names is: the call returns once it is closed.
    closed = threading.Event()
    monkeypatch.setattr("webbrowser.open", lambda _url: closed.wait(400))
    monkeypatch.setenv("HOME", str(tmp_path))
    async with cluster(rig) as (_, kubeconfig), served(kubeconfig, browser=True) as page, page.updates() as updates:
        try:
            async with asyncio.timeout(200):
                assert (await anext(updates))["nodes"]
        finally:
            closed.set()


def led_to(url: str) -> tuple[str, int]:
    """Where the file at *url* leads, and the permissions of its folder."""
    file = Path(urlsplit(url).path)
    return file.read_text().partition("url=")[2].rstrip('">'), file.parent.stat().st_mode & 0o777


async def test_the_browser_gets_the_key_by_a_file_that_others_cannot_read(rig, tmp_path, monkeypatch):
    opened: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    monkeypatch.setattr("webbrowser.open", lambda url: loop.call_soon_threadsafe(opened.put_nowait, url))
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr("cli.web.local._FILE_S", 5.0)
    async with cluster(rig) as (_, kubeconfig):
        async with served(kubeconfig, browser=True) as page:
            url = await opened.get()
            assert page.key not in url  # everybody sees the arguments of processes
            assert led_to(url) == (f"{page.root}#key={page.key}", 0o700)
            while list(home.iterdir()):  # noqa: ASYNC110 (it goes by itself, for who closes the terminal)
                await asyncio.sleep(0.05)
        async with served(kubeconfig, browser=True):
            await opened.get()
        assert not list(home.iterdir())
        monkeypatch.setenv("HOME", str(tmp_path / "none"))
        async with served(kubeconfig, browser=True) as page:
            assert (await page.get("/")).status == 200
        assert opened.empty()


@pytest.mark.parametrize("path", ["/page/none.js", "/page/__init__.py", "/page/..%2f..%2f__main__.py", "/other"])
async def test_nothing_but_the_page_is_served(rig, path):
    async with cluster(rig) as (_, kubeconfig), served(kubeconfig) as page:
        answer = await page.session.get(f"{page.root.rstrip('/')}{path}", headers=page.shown)
        assert answer.status == 404
        assert "nosniff" in answer.headers["X-Content-Type-Options"]


@pytest.mark.parametrize("up", ["", "..%2F..%2F..%2F..%2F..%2F..%2F..%2F..%2F..%2F..%2F..%2F..%2F..%2F..%2F..%2F.."])
async def test_no_other_file_of_the_user_is_served(rig, tmp_path, up):
    own = tmp_path / "own.html"
    own.write_text("private")
    async with cluster(rig) as (_, kubeconfig), served(kubeconfig) as page:
        url = URL(f"{page.root}page/{up}{quote(str(own), safe='')}", encoded=True)
        answer = await page.session.get(url)
        assert (answer.status, await answer.text()) == (404, "no such file\n")


async def test_what_makes_no_sense_is_answered_and_writes_nothing_to_the_terminal(rig, capsys, caplog):
    async with cluster(rig) as (_, kubeconfig), served(kubeconfig) as page:
        assert (await page.get(f"/page/{'a' * 300}.js")).status == 404
        host = page.root.removeprefix("http://").rstrip("/")
        reader, writer = await asyncio.open_connection(*host.split(":"))
        writer.write(f"GET /v1/feed HTTP/1.1\r\nHost: {host}\r\nAuthorization: ".encode() + b"Bearer \xff\r\n\r\n")
        assert (await reader.readline()).split()[1] == b"401"
        writer.close()
    assert "Traceback" not in capsys.readouterr().err + caplog.text


@contextmanager
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


async def test_a_port_that_is_taken_is_one_line(rig, capsys):
    async with cluster(rig) as (_, kubeconfig):
        with taken_port() as port:
            assert await cards(kubeconfig, "web", "--no-browser", "--port", str(port)) == 2
        assert f"--port {port}: " in capsys.readouterr().err


@pytest.mark.parametrize("port", ["x", "-1", "65536", "१"])
def test_a_port_that_is_none_is_one_line(port, capsys):
    with pytest.raises(SystemExit):
        parse(["web", f"--port={port}"], {})
    assert "write a number from 0 to 65535" in capsys.readouterr().err
