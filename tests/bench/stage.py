"""What the benchmarks with an API server share: the server, its nodes and pods, and a client without any comfort.

The client sends ready bytes over kept connections and decodes nothing it does not need: what it costs is the least that
a Python program pays for these writes.
"""

import asyncio
import base64
import json
import os
import shutil
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import uvloop
import yaml

from sandbox.demo.processes import clean_environ
from tests.support.servers.realapi import RealApi
from tests.support.servers.realapi_binaries import find_or_build
from tests.support.worlds.processes import Child, Children

ROOT: Final = Path(__file__).resolve().parents[2]
NAMESPACE: Final = "default"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
SCHEDULER: Final = "cardshare"
PEER_SCHEDULER: Final = "default-scheduler"
PEER_RESOURCE: Final = "example.com/card"
CARDS: Final = 8
CARD_MIB: Final = 32_768
# Shares of one card, in MiB: what the pods ask in turn.
SHARES_MIB: Final = (2_048, 4_096, 8_192)
_TRIES: Final = 100

encode: Final = msgspec.json.Encoder().encode


class RefusedError(Exception):
    """The API server did not do what the benchmark needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """An API server for one benchmark. apiserver, etcd: for their CPU; the double has no etcd."""

    kubeconfig: Path
    logs: Path
    children: Children
    client: "Client"
    apiserver: Child
    etcd: Child | None
    real: RealApi | None

    def server_cpu_s(self) -> tuple[float, float]:
        """CPU seconds of API server and etcd so far."""
        return self.apiserver.cpu_s(), self.etcd.cpu_s() if self.etcd is not None else 0.0

    def start(self, name: str, module: str, *arguments: str) -> Child:
        """Start one of our modules as a process; its output goes to `<logs>/<name>.log`."""
        return self.children.start(
            name, [sys.executable, "-m", module, *arguments], env=clean_environ(os.environ), cwd=ROOT
        )


class Client:
    """Raw requests to one API server."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def send(
        self, verb: str, path: str, body: bytes | None = None, content_type: str = "application/json"
    ) -> bytes:
        """Send and read the whole answer.

        Raises:
            RefusedError: the answer is an error.
        """
        headers = {"Content-Type": content_type} if body is not None else None
        async with self._session.request(verb, self._url + path, data=body, headers=headers) as answer:
            text = await answer.read()
            if answer.status >= 300:
                raise RefusedError(f"{verb} {path}: {answer.status} {text[:300].decode(errors='replace')}")
            return text

    async def lines(self, path: str) -> AsyncIterator[bytes]:
        """The lines of a watch."""
        async with self._session.get(self._url + path, timeout=aiohttp.ClientTimeout(total=None)) as answer:
            if answer.status != 200:
                raise RefusedError(f"GET {path}: {answer.status}")
            async for line in answer.content:
                yield line


def run_fast(main: Callable[[], Awaitable[Any]]) -> Any:
    """Run *main* on the quickest loop there is."""

    async def outer() -> Any:
        return await main()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(outer())


@asynccontextmanager
async def connected(kubeconfig: Path, connections: int = 64) -> AsyncIterator[Client]:
    """A client of the cluster that *kubeconfig* names."""
    config = yaml.safe_load(await asyncio.to_thread(kubeconfig.read_text))
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=context, limit=connections, keepalive_timeout=60.0),
        headers={"Authorization": f"Bearer {user['token']}", "Accept-Encoding": "identity"},
        timeout=aiohttp.ClientTimeout(total=120),
        read_bufsize=2**22,
    ) as session:
        yield Client(session, cluster["server"])


@asynccontextmanager
async def stage(*, real: bool) -> AsyncIterator[Stage]:
    """Start an API server, the real one or the double, and end everything afterwards; the logs stay if it fails."""
    logs = Path(tempfile.mkdtemp(prefix="cardshare-bench-"))
    try:
        async with _real(logs) if real else _double(logs) as found:
            yield found
    except BaseException:
        sys.stderr.write(f"bench: the logs are in {logs}\n")
        raise
    await asyncio.to_thread(shutil.rmtree, logs)


@asynccontextmanager
async def _real(logs: Path) -> AsyncIterator[Stage]:
    binaries = await asyncio.to_thread(find_or_build, os.environ)
    async with RealApi(binaries, logs=logs) as api, connected(api.kubeconfig) as client:
        yield Stage(
            kubeconfig=api.kubeconfig,
            logs=logs,
            children=api.children,
            client=client,
            apiserver=api.apiserver,
            etcd=api.etcd,
            real=api,
        )


@asynccontextmanager
async def _double(logs: Path) -> AsyncIterator[Stage]:
    children = Children(logs)
    try:
        kubeconfig = logs / "kubeconfig"
        argv = [sys.executable, "-m", "tests.support.servers.playing", "double", str(kubeconfig)]
        server = children.start("sandbox", argv, env=clean_environ(os.environ), cwd=ROOT)
        await until(kubeconfig.exists, "the double", server, within_s=30.0)
        async with connected(kubeconfig) as client:
            yield Stage(
                kubeconfig=kubeconfig,
                logs=logs,
                children=children,
                client=client,
                apiserver=server,
                etcd=None,
                real=None,
            )
    finally:
        await asyncio.to_thread(children.close)


async def until(ready: Callable[[], bool], what: str, child: Child, *, within_s: float, pause_s: float = 0.02) -> None:
    """Wait until *ready*.

    Raises:
        RefusedError: not in time, or *child* ended.
    """
    end_s = time.monotonic() + within_s
    while not ready():
        if child.exit_code is not None or time.monotonic() > end_s:
            raise RefusedError(f"{what}: not within {within_s:.0f} s\n{child.log_tail()}")
        await asyncio.sleep(pause_s)


async def all_of(works: Iterable[Awaitable[object]], at_once: int) -> None:
    """Do all, *at_once* at a time."""
    left = iter(works)

    async def worker() -> None:
        for work in left:
            await work

    async with asyncio.TaskGroup() as tasks:
        for _ in range(at_once):
            tasks.create_task(worker())


async def make_nodes(client: Client, count: int) -> None:
    """Create *count* nodes of 8 cards each, as kubelet and the vGPU plugin show them."""
    await all_of((client.send("POST", "/api/v1/nodes", encode(node(i))) for i in range(count)), 16)


async def make_pods(client: Client, pods: Iterable[dict[str, Any]], at_once: int = 16) -> None:
    """Create *pods*."""
    await all_of((client.send("POST", PODS, encode(pod)) for pod in pods), at_once)


async def delete_pods(client: Client) -> None:
    """Delete all pods at once and wait until there are none; the embedded cluster deletes no collection."""
    options = encode({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})
    names = [one["metadata"]["name"] for one in json.loads(await client.send("GET", PODS))["items"]]
    await all_of((client.send("DELETE", f"{PODS}/{name}", options) for name in names), 16)
    for _ in range(_TRIES):
        if not json.loads(await client.send("GET", PODS + "?limit=1"))["items"]:
            return
        await asyncio.sleep(0.1)
    raise RefusedError("pods remain that were deleted")


async def version(client: Client) -> str:
    """A version to watch pods from: now."""
    return str(json.loads(await client.send("GET", "/api/v1/pods?limit=1"))["metadata"]["resourceVersion"])


def card_ids(number: int) -> list[str]:
    """The ids of a node's cards."""
    return [f"GPU-{number:05d}0000-0000-4000-8000-{card:012d}" for card in range(CARDS)]


def node_name(number: int) -> str:
    """The name of a node."""
    return f"node-{number:05d}"


def node(number: int) -> dict[str, Any]:
    """A node with 8 cards of 32 GiB that the vGPU plugin has registered, and a peer's plain resource."""
    register = "".join(f"{card},10,{CARD_MIB},NVIDIA-Tesla V100-SXM2-32GB,true,hami-core:" for card in card_ids(number))
    amounts = {
        "cpu": "128",
        "memory": "1024Gi",
        "pods": "250",
        "volcano.sh/vgpu-number": str(10 * CARDS),
        "volcano.sh/vgpu-memory": str(CARDS * CARD_MIB),
        "volcano.sh/vgpu-cores": str(100 * CARDS),
        PEER_RESOURCE: str(10 * CARDS),
    }
    name = node_name(number)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"},
            "annotations": {"volcano.sh/node-vgpu-register": register},
        },
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def pod(name: str, number: int, *, scheduler: str = SCHEDULER) -> dict[str, Any]:
    """A pod that asks for a share of one card; for the peer, for one of its plain resource."""
    share = {
        "volcano.sh/vgpu-number": "1",
        "volcano.sh/vgpu-memory": str(SHARES_MIB[number % len(SHARES_MIB)]),
        "volcano.sh/vgpu-cores": "10",
    }
    extended = {PEER_RESOURCE: "1"} if scheduler == PEER_SCHEDULER else share
    amounts = {"cpu": "500m", "memory": "1Gi", **extended}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": "bench"}},
        "spec": {
            "schedulerName": scheduler,
            "containers": [
                {
                    "name": "train",
                    "image": "registry.example/train:1",
                    "command": ["sleep", "infinity"],
                    "resources": {"limits": amounts, "requests": amounts},
                }
            ],
        },
    }


async def answers(client: aiohttp.ClientSession, url: str) -> bool:
    """Whether *url* answers 200."""
    with suppress(aiohttp.ClientError, OSError):
        async with client.get(url) as answer:
            return answer.status == 200
    return False


async def text_of(url: str) -> str:
    """What *url* answers."""
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return await answer.text()


async def until_ready(child: Child, url: str, *, within_s: float) -> None:
    """Wait until *url* answers 200.

    Raises:
        RefusedError: not in time, or *child* ended.
    """
    end_s = time.monotonic() + within_s
    async with aiohttp.ClientSession() as session:
        while not await answers(session, url):
            if child.exit_code is not None or time.monotonic() > end_s:
                raise RefusedError(f"{url}: not ready within {within_s:.0f} s\n{child.log_tail()}")
            await asyncio.sleep(0.05)
