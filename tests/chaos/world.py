"""The cluster of a run: an API server, 200 nodes of every protocol with their players, and the product twice."""

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml

from certs.authority import Authority, issue, new_authority
from sandbox.client import PatchKind
from sandbox.demo.processes import Running, free_port
from sandbox.demo.product import WEBHOOK_ACCOUNT, apply, registration, shipped
from sandbox.nodes.kubelet import AdmissionOrder, KubeletSettings
from sandbox.players.registry import DEVICE_CONFIG
from tests.chaos.services import Service
from tests.support.servers.balancer import Backend, Balancer, balancer
from tests.support.servers.fault_proxy import fault_proxy
from tests.support.servers.prepared import prepare
from tests.support.servers.realapi import RealApi
from tests.support.servers.realapi_binaries import find_or_build
from tests.support.servers.request_log import write_policy
from tests.support.worlds.controller_rig import Rig
from tests.support.worlds.rig_double import double_rig
from tests.support.worlds.rig_realapi import real_rig

Json = dict[str, Any]

# Most pods ask for nodes of this pool, so that there is never enough.
POOL: Final = {"pool": "wanted"}
_DEPLOY: Final = Path(__file__).parents[2] / "deploy"
_RIGHTS: Final = ("mindcluster.yaml", "preemption.yaml")
# The priority classes of pods, and what they do to others.
CLASSES: Final[Mapping[str, Json]] = {
    "chaos-low": {"value": -100},
    "chaos-high": {"value": 100},
    "chaos-meek": {"value": 1000, "preemptionPolicy": "Never"},
}
_HOOKS: Final = tuple(
    f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/cardshare"
    for kind in ("mutating", "validating")
)
_T4: Final = {"kind": "vgpu", "model": "Tesla T4", "memory_mib": 15360}
_A100: Final = {"kind": "vgpu", "model": "NVIDIA A100-SXM4-40GB", "memory_mib": 40960, "mode": "mig"}
_MIND: Final = {"kind": "mindcluster", "report_after_s": 0.05, "retry_after_s": 0.05}
_OTHERS: Final = {"memory_mib": 32768, "count": 4}
# HAMi's configuration, which has these vendors.
_HAMI: Final[Json] = {
    "metadata": {"name": "hami-scheduler-device"},
    "data": {"device-config.yaml": "hygon: {}\namd: {}\ncambricon: {}\n"},
}
_ON_310P: Final = {"accelerator": "huawei-Ascend310P"}
_SORTS: Final[tuple[Json, ...]] = (
    {"name": "t4-{i}", "plugin": {**_T4, "count": 4}},
    {"name": "mps-{i}", "plugin": {**_T4, "mode": "mps", "count": 2}},
    {"name": "mig-{i}", "plugin": {**_A100, "count": 3}},
    {"name": "share-{i}", "plugin": {"kind": "gpushare", "memory_mib": 11178, "count": 4}},
    {"name": "number-{i}", "plugin": {"kind": "gpushare", "strategy": "number", "memory_mib": 11178, "count": 4}},
    {"name": "gpus-{i}", "plugin": {"kind": "nvidia", "model": "NVIDIA A100-SXM4-80GB", "count": 8}},
    {"name": "hami-{i}", "plugin": {"kind": "hami", "model": "NVIDIA A10", "memory_mib": 23028, "count": 4}},
    {"name": "b3-{i}", "plugin": {"kind": "ascend-hami", "chip": "Ascend910B3", "count": 8}},
    {"name": "mind-{i}", "labels": _ON_310P, "plugin": {**_MIND, "chips": 3}},
    {"name": "hygon-{i}", "plugin": {"kind": "hygon", **_OTHERS}},
    {"name": "amd-{i}", "plugin": {"kind": "amd", **_OTHERS}},
    {"name": "cambricon-{i}", "plugin": {"kind": "cambricon", **_OTHERS}},
    {"name": "mixed-1-{i}", "labels": _ON_310P, "plugins": [{**_A100, "count": 2}, {**_MIND, "chips": 2}]},
    {
        "name": "mixed-2-{i}",
        "plugins": [
            {**_T4, "count": 2},
            {"kind": "ascend-hami", "chip": "Ascend910B4-1", "count": 2},
            {"kind": "ascend-hami", "chip": "Ascend310P", "cards": [{"id": "NPU-310P-{i}"}]},
        ],
    },
)
# On a machine that does much else.
_READY_WITHIN_S: Final = 180.0
_SETTINGS: Final = "audit_round_s: 60\n"
_PREEMPTION: Final = "preemption: true\npreemption_delay_s: 2\npreemption_wait_s: {wait_s}\n"
_CONTROLLER: Final = ("--lease", "cardshare-system/cardshare-controller")


def nodes_of(count: int) -> list[Json]:
    """*count* nodes, as in a node file, every sort as often; the first of each sort is of the pool."""
    made = []
    for number in range(count):
        node: Json = json.loads(json.dumps(_SORTS[number % len(_SORTS)]).replace("{i}", str(number // len(_SORTS))))
        if number < len(_SORTS):
            node["labels"] = {**node.get("labels", {}), **POOL}
        made.append(node)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The cluster, and what can be done to it.

    settings: the folder that the controllers read their settings from. preemption: what is in them besides edits.
    """

    rig: Rig
    real: RealApi | None
    nodes: Sequence[Json]
    controllers: Sequence[Service]
    webhooks: Sequence[Service]
    settings: Path
    certs: Path
    authority: list[Authority]
    preemption: str = ""

    async def compact(self) -> None:
        """Forget the history, where there is one to forget."""
        if self.real is not None:
            await self.real.compact()

    async def write_settings(self, text: str) -> None:
        """Edit the settings, all at once."""
        await asyncio.to_thread(_replace, self.settings / "cardshare.yaml", _SETTINGS + self.preemption + text)

    async def trust(self, bundle: bytes) -> None:
        """Have the API server trust the webhooks that *bundle* vouches for."""
        for path in _HOOKS:
            found = await self.rig.client.get(path)
            for hook in found["webhooks"]:
                hook["clientConfig"]["caBundle"] = base64.b64encode(bundle).decode()
            await self.rig.client.patch(path, {"webhooks": found["webhooks"]}, PatchKind.MERGE)

    async def rotate(self, settle_s: float) -> None:
        """A new authority for the webhooks, as the certificates' keeper brings it in."""
        new = new_authority("chaos", 2, datetime.now(UTC))
        both = self.authority[0].cert_pem + new.cert_pem
        await self.trust(both)
        await asyncio.sleep(settle_s)
        await asyncio.to_thread(_write_pair, self.certs, new, both)
        await asyncio.sleep(settle_s)
        await self.trust(new.cert_pem)
        self.authority[0] = new


@asynccontextmanager
async def world(
    folder: Path, *, nodes: int, real: bool, timing: Sequence[str] = (), preemption_wait_s: int = 0
) -> AsyncIterator[World]:
    """Everything, running and ready; logs and files go to *folder*.

    timing: the controllers' flags of the lease. preemption_wait_s: how long freed capacity is reserved; 0: no pod is
    evicted for another.
    """
    specs = nodes_of(nodes)
    async with AsyncExitStack() as stack:
        server: RealApi | None = None
        kubelet = KubeletSettings(order=AdmissionOrder.SHUFFLED)
        if real:
            binaries = await asyncio.to_thread(find_or_build, os.environ)
            logs = folder / "logs"
            await asyncio.to_thread(logs.mkdir)
            server = RealApi(binaries, logs=logs, apiserver_args=write_policy(logs))
            await stack.enter_async_context(server)
            prepared = await prepare(server, folder)
            rig = await stack.enter_async_context(real_rig(prepared, folder, "chaos", specs, kubelet=kubelet))
        else:
            rig = await stack.enter_async_context(double_rig(folder, specs, kubelet=kubelet))
        await rig.ensure("/api/v1/namespaces", "mindx-dl")
        await rig.client.create("/api/v1/namespaces/kube-system/configmaps", _HAMI)
        for name in _RIGHTS:
            await rig.apply(yaml.safe_load_all(await asyncio.to_thread((_DEPLOY / name).read_text, encoding="utf-8")))
        for name, more in CLASSES.items():
            await rig.client.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, **more})
        made = World(
            rig=rig,
            real=server,
            nodes=specs,
            controllers=await _controllers(rig, stack, timing),
            webhooks=(front := await _webhooks(rig, stack)).webhooks,
            settings=rig.folder / "settings",
            certs=front.certs,
            authority=[front.authority],
            preemption=_PREEMPTION.format(wait_s=preemption_wait_s) if preemption_wait_s else "",
        )
        await made.write_settings("")
        await stack.enter_async_context(_kept([*made.controllers, *made.webhooks]))
        await _register(rig, front)
        yield made


@asynccontextmanager
async def _kept(services: Sequence[Service]) -> AsyncIterator[None]:
    """All of them, ready first, then kept going and measured."""
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(one.keep(), name=one.name) for one in services]
        running += [tasks.create_task(one.measure(), name=f"measure {one.name}") for one in services]
        for one in services:
            if not await one.until_ready(_READY_WITHIN_S):
                raise RuntimeError(f"{one.name} is not ready: {await one.get('/readyz')}")
        yield
        for task in running:
            task.cancel()


async def _controllers(rig: Rig, stack: AsyncExitStack, timing: Sequence[str]) -> list[Service]:
    starting = asyncio.Lock()
    await asyncio.to_thread((rig.folder / "settings").mkdir)
    return [await _controller(rig, stack, f"controller-{at}", timing, starting) for at in range(2)]


async def _controller(
    rig: Rig, stack: AsyncExitStack, name: str, timing: Sequence[str], starting: asyncio.Lock
) -> Service:
    proxy = await stack.enter_async_context(fault_proxy(rig.client.server, rig.ca_pem))
    kubeconfig, settings = rig.folder / f"{name}.kubeconfig", rig.folder / "settings"
    await asyncio.to_thread(kubeconfig.write_text, await rig.kubeconfig(server=proxy.url))
    flags = (*_CONTROLLER, "--identity", name, "--settings", str(settings), *timing)

    async def start() -> tuple[Running, str]:
        async with starting:  # the rig keeps but one address
            running = await rig.controller(*flags, kubeconfig=kubeconfig, wait=False, name=name)
            return running, rig.url

    return Service(name, proxy, start)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Front:
    webhooks: Sequence[Service]
    balancer: Balancer
    certs: Path
    authority: Authority


async def _webhooks(rig: Rig, stack: AsyncExitStack) -> _Front:
    certs = rig.folder / "webhook-certs"
    await asyncio.to_thread(certs.mkdir)
    authority = new_authority("chaos", 2, datetime.now(UTC))
    await asyncio.to_thread(_write_pair, certs, authority, authority.cert_pem)
    front = await stack.enter_async_context(balancer())
    made = [await _webhook(rig, stack, f"webhook-{at}", front, certs) for at in range(2)]
    return _Front(webhooks=made, balancer=front, certs=certs, authority=authority)


async def _webhook(rig: Rig, stack: AsyncExitStack, name: str, front: Balancer, certs: Path) -> Service:
    proxy = await stack.enter_async_context(fault_proxy(rig.client.server, rig.ca_pem))
    kubeconfig = rig.folder / f"{name}.kubeconfig"
    text = await rig.kubeconfig(WEBHOOK_ACCOUNT, server=proxy.url)
    await asyncio.to_thread(kubeconfig.write_text, text)
    backend = Backend(free_port(), free_port())
    flags = (
        *("--listen", f"127.0.0.1:{backend.port}", "--metrics-listen", f"127.0.0.1:{backend.plain_port}"),
        *("--cert-dir", str(certs), "--kubeconfig", str(kubeconfig), "--device-config", str(DEVICE_CONFIG)),
        *("--drain-s", "1.5"),
    )
    front.add(backend)

    async def start() -> tuple[Running, str]:
        running = await rig.processes.start(name, "webhook", flags)
        return running, f"http://127.0.0.1:{backend.plain_port}"

    return Service(name, proxy, start)


async def _register(rig: Rig, front: _Front) -> None:
    documents = await asyncio.to_thread(shipped)
    await apply(
        rig.client, registration(documents, f"https://127.0.0.1:{front.balancer.port}", front.authority.cert_pem)
    )


def _write_pair(folder: Path, authority: Authority, bundle: bytes) -> None:
    leaf = issue(authority, ("localhost",), ("127.0.0.1",), 1, datetime.now(UTC))
    for name, content in (("ca.crt", bundle), ("tls.key", leaf.key_pem), ("tls.crt", leaf.cert_pem)):
        (folder / name).write_bytes(content)


def _replace(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)
