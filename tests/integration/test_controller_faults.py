"""What the controller does when Bindings are lost on the way: a real process behind a proxy that spoils calls."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from tests.support.servers.fault_proxy import Fault, FaultProxy, fault_proxy
from tests.support.worlds.controller_rig import NODES, PODS, OpensRig, Rig, pod, promised, share


@asynccontextmanager
async def faulty(
    rig: OpensRig, nodes: Sequence[Mapping[str, Any]] = NODES[:1]
) -> AsyncIterator[tuple[Rig, FaultProxy]]:
    """A controller whose way to the API server is through the proxy."""
    async with rig(nodes=nodes) as world, fault_proxy(world.client.server, world.ca_pem) as proxy:
        kubeconfig = world.folder / "proxied"
        await asyncio.to_thread(kubeconfig.write_text, await world.kubeconfig(server=proxy.url))
        await world.controller(kubeconfig=kubeconfig)
        yield world, proxy


async def outcomes(world, **wanted):
    """Wait until Bindings were counted as *wanted*: a pod may run before its controller has read the answer."""

    async def counted():
        _, text = await world.http("/metrics")
        lines = [line for line in text.splitlines() if line.startswith("cardshare_binds_total{")]
        found[:] = [{line.split('"')[1]: int(float(line.rpartition(" ")[2])) for line in lines}]
        return all(found[0].get(outcome, 0) == count for outcome, count in wanted.items())

    found: list[dict[str, int]] = []
    try:
        await world.until(counted)
    except TimeoutError:
        pytest.fail(f"{found}, not {wanted}")
    return found[0]


@pytest.mark.parametrize("kind", ["cut-after", "half", "cut-before", "500", "503"])
async def test_a_binding_whose_answer_is_lost_is_settled_and_promised_once(rig, kind):
    async with faulty(rig) as (world, proxy):
        proxy.faults.append(Fault("POST", "/p/binding", kind))
        await world.add(pod("p", share(3000)))
        found = await world.phase("p")
        env = world.records.of("default/p")["main"]
        assert [(env["NVIDIA_VISIBLE_DEVICES"], 3000)] == promised(found)
        await outcomes(world, unknown=1, bound=0 if kind in ("cut-after", "half") else 1)


@pytest.mark.parametrize("kind", ["late", "twice", "expired", "cut"])
async def test_whatever_becomes_of_watches_and_calls_each_pod_is_bound_once(rig, kind):
    async with faulty(rig) as (world, proxy):
        if kind == "late":
            proxy.lag_s = 1.0
        elif kind == "twice":
            proxy.doubled.add("")
        elif kind == "expired":
            proxy.faults += [Fault("GET", ending, "expired", times=2) for ending in ("/pods", "/nodes")]
        proxy.cut_watches()
        names = [f"p{at}" for at in range(5)]
        await world.add(*(pod(name, share(4000)) for name in names))
        for name in names:
            await world.phase(name)
        assert await outcomes(world, bound=5) == {"bound": 5}
        assert sum(path.endswith("/binding") for _, _, path in proxy.seen) == 5


async def test_a_share_is_given_to_nobody_while_a_binding_of_it_may_still_be_written(rig):
    async with faulty(rig) as (world, proxy):
        proxy.faults.append(Fault("POST", "/first/binding", "late", delay_s=3.0, times=99))
        await world.add(pod("first", share(15000)))
        await world.until(lambda: _asked(proxy, "first"))
        await world.add(pod("second", share(15000)), pod("third", share(15000)))
        await world.phase("second")
        await world.phase("third")
        await world.until(lambda: written_late(world, proxy))
        assert set((await used(world)).values()) == {15000}


async def test_a_throttled_controller_leaves_the_api_server_alone_as_long_as_it_was_asked_to(rig):
    async with faulty(rig) as (world, proxy):
        proxy.faults.append(Fault("POST", "/p/binding", "429", headers={"Retry-After": "2"}))
        await world.add(pod("p", share(3000)))
        await world.phase("p")
        first, second = proxy.times("POST", "/p/binding")
        assert second - first >= 2.0
        await outcomes(world, throttled=1)


async def test_a_pod_deleted_and_made_again_under_its_name_is_another_pod(rig):
    async with faulty(rig) as (world, proxy):
        proxy.faults.append(Fault("POST", "/p/binding", "503"))
        await world.add(pod("p", share(3000)))
        await world.until(lambda: _asked(proxy, "p"))
        await world.client.delete(f"{PODS}/p", grace_s=0)
        await world.add(pod("p", share(5000)))
        assert promised(await world.phase("p"))[0][1] == 5000


CROWDED = ({"name": "t4-a", "plugin": {"kind": "vgpu", "model": "Tesla T4", "memory_mib": 15360, "count": 1}},)


async def used(world):
    """Card -> MiB promised there in the API server's objects."""
    found: dict[str, int] = {}
    for one in await world.client.list(PODS):
        for card, memory in promised(one):
            found[card] = found.get(card, 0) + memory
    return found


@pytest.mark.parametrize("status", ["429", "409"])
async def test_a_binding_written_late_is_not_forgotten_when_the_next_is_refused(rig, status):
    async with faulty(rig, nodes=CROWDED) as (world, proxy):
        proxy.faults.append(Fault("POST", "/first/binding", "late", delay_s=0.95))
        proxy.faults.append(Fault("POST", "/first/binding", status, times=99))
        await world.add(pod("first", share(15000)))
        await world.until(lambda: _asked(proxy, "first"))
        await world.add(pod("second", share(15000)))
        await world.until(lambda: written_late(world, proxy))
        # Decided after all that became of the first.
        await world.add(pod("small", share(100)))
        await world.phase("small")
        assert max((await used(world)).values()) <= 15100


async def test_a_binding_that_is_answered_500_for_ever_is_told_and_keeps_no_card_from_others(rig):
    async with faulty(rig, nodes=CROWDED) as (world, proxy):
        proxy.faults.append(Fault("POST", "/first/binding", "500", times=999))
        await world.add(pod("first", share(15000)))
        told = await world.waits("first", "it is not known whether the API server has bound this pod")
        assert told["reason"] == "SchedulerError"
        await world.add(pod("second", share(15000)))
        await world.phase("second")
        first = await world.waits("first", "too little free memory")
        assert first["reason"] == "Unschedulable"


async def written_late(world, proxy):
    """Whether a Binding was written late; until then no more is promised of a card than its total."""
    assert set((await used(world)).values()) <= {15000}
    return proxy.late_answers


async def _asked(proxy, name):
    return proxy.times("POST", f"/{name}/binding")


HOOKED = "hooked"
HOOKED_PODS = f"/api/v1/namespaces/{HOOKED}/pods"
HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


@asynccontextmanager
async def away():
    """Where nobody listens."""
    yield "https://127.0.0.1:1/"


@asynccontextmanager
async def silent():
    """Where somebody listens and never answers."""
    over = asyncio.Event()

    async def listen(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        over.set()
        server.close()


async def hook(world, url, *resources):
    """Somebody's webhook, which must be asked at *url* before these are written in namespace `HOOKED`."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": list(resources)}
    entry = {
        "name": "away.example.test",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": url},
        "sideEffects": "None",
        "timeoutSeconds": 30,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": HOOKED}},
        "rules": [rule],
    }
    await world.ensure(HOOKS, "away", webhooks=[entry])


async def conditions(world, namespace, name):
    """What a pod is told."""
    found = await world.client.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
    return found["status"].get("conditions", ())


@pytest.mark.parametrize(
    ("hooked", "resources"),
    [(away, ("pods/binding",)), (away, ("pods/binding", "pods/status")), (silent, ("pods/binding", "pods/status"))],
    ids=["told", "untold", "silent"],
)
async def test_a_pod_that_a_missing_webhook_keeps_from_its_node_keeps_no_card_from_others(rig, hooked, resources):
    async with rig(nodes=CROWDED) as world, hooked() as url:
        await world.ensure("/api/v1/namespaces", HOOKED)
        await hook(world, url, *resources)
        await world.controller()
        first = pod("first", share(15000))
        first["metadata"]["namespace"] = HOOKED
        await world.client.create(HOOKED_PODS, first)

        async def refused():
            _, text = await world.http("/metrics")
            return any(f'cardshare_binds_total{{outcome="{one}"}} 1.0' in text for one in ("refused", "unknown"))

        await world.until(refused)
        await world.add(pod("second", share(15000)))
        await world.phase("second")
        if "pods/status" not in resources:
            (told,) = await world.until(partial(conditions, world, HOOKED, "first"))
            assert "away.example.test" in told["message"] or "too little free memory" in told["message"]
        await world.client.delete(f"{HOOKS}/away")
        await world.client.delete(f"{PODS}/second", grace_s=0)

        async def running():
            return (await world.client.get(f"{HOOKED_PODS}/first"))["status"].get("phase") == "Running"

        await world.until(running)
