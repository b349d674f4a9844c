"""The page as a process in the cluster: over TLS, with the rights that it is shipped with, for callers with a token."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from certs.files import ensure
from certs.pair import WantedPair
from sandbox.demo.processes import Running, free_port
from tests.integration.test_history import store
from tests.integration.test_web import POD, events, until
from tests.support.worlds.cards_cluster import ASSIGNED, NODES, add_pod
from tests.support.worlds.controller_rig import Rig
from tests.support.worlds.volcano import create, install

WEB = Path(__file__).parents[2] / "deploy/components/web/web.yaml"
ACCOUNT, NAMESPACE = "cardshare-web", "cardshare-system"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
EVENTS = {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]}
QUOTAS = {"apiGroups": [""], "resources": ["resourcequotas"], "verbs": ["list"]}
SEEN = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]},
    {"apiGroups": ["scheduling.volcano.sh"], "resources": ["queues"], "verbs": ["list"]},
]
OTHER = "a-secret-tenant"
SHARE = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "3000", "volcano.sh/vgpu-cores": "20"}
LARGE = {"volcano.sh/gpu-memory": "99999"}


class Served:
    """The process, and calls to it."""

    def __init__(self, url: str, plain: str, session: aiohttp.ClientSession, running: Running) -> None:
        self.url, self.plain, self.session, self.running = url, plain, session, running

    async def get(self, path: str, token: str = "", **headers: str) -> tuple[int, str]:
        shown = {"Authorization": f"Bearer {token}"} if token else {}
        async with self.session.get(self.url + path, headers={**shown, **headers}) as answer:
            return answer.status, await answer.text()

    async def fits(self, token: str) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"}
        async with self.session.post(f"{self.url}/v1/fits", json=POD, headers=headers) as answer:
            return answer.status, await answer.text()

    @asynccontextmanager
    async def updates(self, token: str, query: str = "") -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        headers = {"Authorization": f"Bearer {token}"}
        async with self.session.get(f"{self.url}/v1/feed{query}", headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            yield events(answer)


@asynccontextmanager
async def served(world: Rig, *, within_s: float | None = 240) -> AsyncIterator[Served]:
    """The page with its own account's rights."""
    documents = [one for one in yaml.safe_load_all(WEB.read_text()) if one["kind"].startswith("ClusterRole")]
    await world.apply(documents)
    kubeconfig, certs = world.folder / "web.kubeconfig", world.folder / "web-certs"
    await asyncio.to_thread(kubeconfig.write_text, await world.kubeconfig(ACCOUNT, NAMESPACE))
    await asyncio.to_thread(ensure, certs, WantedPair(dns_names=("localhost",), days=2, ca_days=9), datetime.now(UTC))
    port, plain = free_port(), free_port()
    flags = ("--listen", f"127.0.0.1:{port}", "--metrics-listen", f"127.0.0.1:{plain}", "--cert-dir", str(certs))
    running = await world.processes.start("web", "cli.web", (*flags, "--kubeconfig", str(kubeconfig)))
    await world.processes.ready(running, f"http://127.0.0.1:{plain}/readyz")
    context = ssl.create_default_context(cafile=certs / "ca.crt")
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(connector=connector) as session:
        served = Served(f"https://localhost:{port}", f"http://127.0.0.1:{plain}", session, running)

        async def is_served() -> bool:
            try:
                return (await served.get("/"))[0] == 200
            except aiohttp.ClientError:
                return False

        await world.until(is_served)
        async with asyncio.timeout(within_s):
            yield served


async def give(
    world: Rig, account: str, rules: Sequence[Mapping[str, Any]] = (), everywhere: Sequence[Mapping[str, Any]] = ()
) -> str:
    """A token of *account* of namespace default, which may do *rules* there and *everywhere* in the whole cluster."""
    subject = {"kind": "ServiceAccount", "name": account, "namespace": "default"}
    for kind, path, given in (
        ("Role", f"{RBAC}/namespaces/default", rules),
        ("ClusterRole", RBAC, everywhere),
    ):
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": account}
        await world.client.create(f"{path}/{kind.lower()}s", {"metadata": {"name": account}, "rules": list(given)})
        binding = {"metadata": {"name": account}, "roleRef": reference, "subjects": [subject]}
        await world.client.create(f"{path}/{kind.lower()}bindings", binding)
    token: str = await world.token(account, "default")
    return token


async def add_other(world: Rig) -> None:
    """A tenant beside namespace default: a pod that holds half a card, and one that is first in a queue."""
    await world.ensure("/api/v1/namespaces", OTHER)
    pods = f"/api/v1/namespaces/{OTHER}/pods"
    for name, limits, node in ((f"{OTHER}-holds", SHARE, "t4-a"), (f"{OTHER}-waits", LARGE, "")):
        container = {"name": "c", "image": "i", "resources": {"limits": limits}}
        spec = {"schedulerName": "cardshare", "containers": [container], "priority": None}
        made = await world.client.create(
            pods, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        )
        if node:
            metadata = {"name": name, "uid": made["metadata"]["uid"], "annotations": ASSIGNED}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata}
            await world.client.create(f"{pods}/{name}/binding", {**binding, "target": {"kind": "Node", "name": node}})


async def test_each_caller_sees_what_rbac_allows_and_no_name_of_another_tenant(rig):
    async with rig(nodes=NODES) as world:
        await install(world.client)
        queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "default"}}
        await create(world.client, {**queue, "spec": {"weight": 1}})
        await add_other(world)
        await add_pod(world, "a", SHARE, ASSIGNED, "t4-a")
        await add_pod(world, "waits", LARGE, {}, "")
        everywhere = await give(world, "everywhere", everywhere=[*SEEN, PODS, EVENTS])
        tenant = await give(world, "tenant", [PODS, EVENTS, QUOTAS], everywhere=SEEN)
        pods_alone = await give(world, "pods-alone", [PODS])
        nobody = await give(world, "nobody")
        async with served(world) as page:
            async with page.updates(everywhere) as updates:
                whole = await until(updates, lambda one: one["waiting"] and len(one["waiting"]["pods"]) == 2)
            seen = {"nodes": True, "home": "default", "queues": True}
            assert whole["sees"] == seen | {"namespace": "", "quotas": False}
            assert [one["next"] for one in whole["queues"]["queues"] if one["waiting"]] == [f"{OTHER}/{OTHER}-waits"]
            held = {card["id"]: card for node in whole["nodes"] for card in node["cards"]}["GPU-t4-a-1"]
            assert {one["pod"] for one in held["held_by"]} == {"default/a", f"{OTHER}/{OTHER}-holds"}

            async with page.updates(tenant) as updates:
                own = await until(updates, lambda one: one["waiting"] and one["waiting"]["pods"])
            assert own["sees"] == seen | {"namespace": "default", "quotas": True}
            assert [(one["waiting"], one["next"]) for one in own["queues"]["queues"] if one["waiting"]] == [(2, None)]
            card = {card["id"]: card for node in own["nodes"] for card in node["cards"]}["GPU-t4-a-1"]
            assert ([one["pod"] for one in card["held_by"]], card["others"]) == (["default/a"], 1)
            assert card["used"] == held["used"]
            assert (own["totals"], own["kinds"]) == (whole["totals"], whole["kinds"])
            (waits,) = own["waiting"]["pods"]
            assert (waits["pod"], waits["line"]) == ("default/waits", 2)
            assert OTHER not in json.dumps(own)
            assert (await page.fits(tenant))[0] == 403
            assert (await page.fits(everywhere))[0] == 200
            for path in (f"/v1/pods/{OTHER}/{OTHER}-holds", f"/v1/pods/{OTHER}/none", f"/v1/feed?namespace={OTHER}"):
                status, text = await page.get(path, pods_alone)
                assert (status, "may not list pods" in text) == (403, True)
            status, text = await page.get("/v1/pods/default/a", tenant)
            assert (status, json.loads(text)["node"], OTHER in text) == (200, "t4-a", False)

            async with page.updates(pods_alone) as updates:
                least = await until(updates, lambda one: one["waiting"] and one["waiting"]["pods"])
            sees = {"nodes": False, "namespace": "default", "home": "default", "queues": False, "quotas": False}
            assert least["sees"] == sees
            assert least["queues"] is None
            assert (least["nodes"], least["gone"], least["totals"], least["kinds"]) == ([], [], [], [])
            assert OTHER not in json.dumps(least)
            status, text = await page.get("/v1/pods/default/a", pods_alone)
            assert (status, json.loads(text)["events"]) == (200, [])

            for path in ("/v1/feed", "/v1/pods/default/a"):
                assert (await page.get(path, nobody))[0] == 403
                assert (await page.get(path, "stale"))[0] == 401
                assert (await page.get(path))[0] == 401
            async with page.session.get(f"{page.url}/v1/feed") as answer:
                assert answer.headers["WWW-Authenticate"] == "Bearer"
                assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
            async with page.session.get(f"{page.plain}/metrics") as answer:
                assert "cardshare_web_connections " in await answer.text()
        used = await world.used_rights(ACCOUNT, NAMESPACE)
        assert {verb for verb, _, kind, *_ in used if kind not in ("tokenreviews", "subjectaccessreviews")} <= {
            "get",
            "list",
            "watch",
        }


async def test_each_caller_has_the_pods_of_its_own_namespace_and_the_history_that_it_may_see(rig):
    async with rig(nodes=NODES) as world:
        await add_other(world)
        await add_pod(world, "a", SHARE, ASSIGNED, "t4-a")
        for namespace in ("default", OTHER):
            hard = {"limits.volcano.sh/vgpu-memory": "12000"}
            quota = {"metadata": {"name": f"of-{namespace}"}, "spec": {"hard": hard}}
            await world.client.create(f"/api/v1/namespaces/{namespace}/resourcequotas", quota)
        await store(world, at=int(time.time()) // 60 - 1, other=OTHER)
        everywhere = await give(world, "everywhere", everywhere=[*SEEN, PODS, QUOTAS])
        tenant = await give(world, "tenant", [PODS, QUOTAS], everywhere=SEEN[:1])
        pods_alone = await give(world, "pods-alone", [PODS])
        card = "/v1/history/card?node=t4-a&card=GPU-t4-a-1&protocol=vgpu"
        async with served(world) as page:
            async with page.updates(tenant) as updates:
                own = await until(updates, lambda one: one["mine"] and one["mine"]["left"])
                assert [one["pod"] for one in own["mine"]["pods"]] == ["default/a"]
                assert [(one["name"], one["held"]) for one in own["mine"]["left"]] == [("of-default", 3000)]
                day = own["trend"] or (await until(updates, lambda one: one["trend"]))["trend"]
                assert [(one["type"], one["promised"]) for one in day["cards"]] == [("T4", [1000])]
                assert [(one["queue"], one["pods"]) for one in day["waiting"]] == [(None, [2])]
                await add_pod(world, "late", LARGE, {}, "")
                later = await until(updates, lambda one: one["mine"] and one["mine"]["count"] == 2)
                assert OTHER not in json.dumps([own, later])
            async with page.updates(everywhere, f"?namespace={OTHER}") as updates:
                others = await until(updates, lambda one: one["mine"])
            assert {one["pod"].partition("/")[0] for one in others["mine"]["pods"]} == {OTHER}
            assert [one["name"] for one in others["mine"]["left"]] == [f"of-{OTHER}"]
            async with page.updates(pods_alone) as updates:
                least = await until(updates, lambda one: one["mine"])
            assert (least["mine"]["left"], least["trend"]) == ([], None)
            assert any("may not list ResourceQuotas" in note for note in least["notes"])
            assert OTHER not in json.dumps(least)
            (held,) = [one for one in least["mine"]["pods"] if one["state"] == "bound"]
            assert [one["card"] for one in held["cards"]] == ["GPU-t4-a-1"]

            status, text = await page.get("/v1/history/pods/default/old", tenant)
            assert (status, json.loads(text)["lives"][0]["events"][0]["what"]) == (200, "asked")
            for name in ("old", f"{OTHER}-holds", "none"):
                status, text = await page.get(f"/v1/history/pods/{OTHER}/{name}", tenant)
                assert (status, "may not list pods" in text) == (403, True)
            assert (await page.get("/v1/history/pods/default/none", tenant))[0] == 404
            status, text = await page.get(card, tenant)
            (change,) = json.loads(text)["changes"]
            assert [one["pod"] for one in change["card"]["held_by"]] == ["default/a"]
            assert (status, change["card"]["others"], OTHER in text) == (200, 1, False)
            assert OTHER in (await page.get(card, everywhere))[1]
            assert (await page.get(card, pods_alone))[0] == 404


async def test_a_change_arrives_by_itself_and_a_signal_ends_the_process_at_once(rig):
    async with rig(nodes=NODES) as world:
        everywhere = await give(world, "everywhere", everywhere=[*SEEN, PODS])
        async with served(world) as page, page.updates(everywhere) as updates:
            await anext(updates)
            await add_pod(world, "late", LARGE, {}, "")
            await until(updates, lambda one: one["waiting"] and one["waiting"]["pods"])
            page.running.process.terminate()
            async with asyncio.timeout(60):
                assert await page.running.process.wait() == 0
