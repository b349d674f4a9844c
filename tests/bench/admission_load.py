"""Ready reviews sent over TLS by a bare protocol, and an echo to compare with: the tools of the `admit` benchmark.

The client builds nothing while it measures: every connection sends the next ready bytes as soon as it is answered.
"""

import asyncio
import json
import ssl
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle
from typing import Any, Final, cast

import msgspec
from aiohttp import web

from webhook.__main__ import fast_loop

_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length:"
_OK: Final = b"HTTP/1.1 200 "


def share_pod(workload: int = 0, number: int = 0) -> dict[str, Any]:
    """A pod as the controller of *workload* creates it, its *number*; one of its two containers has a vGPU."""
    env = [{"name": f"SETTING_{i}", "value": "a value of usual length"} for i in range(8)]
    mounts = [{"name": "kube-api-access", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]

    def container(name: str, limits: Mapping[str, str]) -> dict[str, Any]:
        return {
            "name": name,
            "image": "registry.example/team/service:1.2.3",
            "env": env,
            "ports": [{"containerPort": 8080, "protocol": "TCP"}],
            "resources": {"limits": dict(limits), "requests": {"cpu": "500m", "memory": "1Gi"}},
            "volumeMounts": mounts,
            "livenessProbe": {"httpGet": {"path": "/live", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10},
            "terminationMessagePath": "/dev/termination-log",
            "imagePullPolicy": "IfNotPresent",
        }

    name = f"service-{workload}-7d4b9c"
    share = {"volcano.sh/vgpu-memory": str(3000 + workload), "volcano.sh/vgpu-cores": "50", "cpu": "1", "memory": "2Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-{number:05d}",
            "generateName": f"{name}-",
            "namespace": "team-a",
            "labels": {"app": f"service-{workload}", "pod-template-hash": "7d4b9c"},
            "annotations": {"volcano.sh/vgpu-mode": "hami-core", "nvidia.com/use-gputype": "A100,V100"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": "service-7d4b9c",
                    "uid": "u",
                    "controller": True,
                }
            ],
            "managedFields": [
                {
                    "manager": "kube-controller-manager",
                    "operation": "Update",
                    "apiVersion": "v1",
                    "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:spec": {"f:containers": {f"k:{i}": {"f:name": {}} for i in range(20)}}},
                }
            ],
        },
        "spec": {
            "volumes": [{"name": "kube-api-access", "projected": {"sources": [{"configMap": {"name": "root-ca"}}]}}],
            "containers": [container("main", share), container("sidecar", {"cpu": "1"})],
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "serviceAccountName": "default",
            "tolerations": [
                {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute"}
                for key in ("not-ready", "unreachable")
            ],
        },
        "status": {},
    }


def review_of(pod: Mapping[str, Any]) -> bytes:
    """The API server's question about the creation of *pod*."""
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
        "requestResource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "",
        "namespace": "team-a",
        "operation": "CREATE",
        "userInfo": {
            "username": "system:serviceaccount:kube-system:replicaset-controller",
            "uid": "5f1b",
            "groups": ["system:serviceaccounts", "system:authenticated"],
        },
        "object": pod,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    return json.dumps(review, separators=(",", ":")).encode()


def call_of(body: bytes) -> bytes:
    """*body* as the API server's client sends it."""
    head = (
        "POST /mutate?timeout=10s HTTP/1.1\r\nHost: cardshare-webhook.cardshare-system.svc:443\r\n"
        "User-Agent: kube-apiserver-admission\r\nAccept: application/json, */*\r\n"
        f"Content-Length: {len(body)}\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
    )
    return head.encode() + body


class _Caller(asyncio.Protocol):
    """One connection: sends a call, waits for the whole answer, and sends the next."""

    def __init__(
        self,
        calls: Iterator[bytes],
        latencies_s: list[float],
        ended: Callable[[BaseException], None],
        free: Callable[["_Caller"], None] | None = None,
    ) -> None:
        self._calls = calls
        self._latencies_s = latencies_s
        self._ended = ended
        self._free = free
        self._received = bytearray()
        self._sent_s = 0.0
        self._transport: asyncio.Transport | None = None
        self.running = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are of the interface and not of the class.
        self._transport = cast(asyncio.Transport, transport)
        self._next()

    def _next(self) -> None:
        if self._free is not None:
            self._free(self)
        else:
            self.send(time.perf_counter())

    def send(self, due_s: float) -> None:
        """Send the next call, which was due then."""
        assert self._transport is not None
        self._sent_s = due_s
        self._transport.write(next(self._calls))

    def data_received(self, data: bytes) -> None:
        received = self._received
        if not received and data.startswith(_OK) and data.endswith(b"}}"):
            # Mostly an answer comes in one piece, and the measured must not wait for the measuring.
            self._latencies_s.append(time.perf_counter() - self._sent_s)
            if self.running:
                self._next()
            return
        received += data
        head = received.find(_END)
        if head < 0:
            return
        if not received.startswith(_OK):
            self._ended(RuntimeError(f"answered {bytes(received[:200])!r}"))
            return
        lower = bytes(received[:head]).lower()
        at = lower.index(_LENGTH) + len(_LENGTH)
        if len(received) < head + len(_END) + int(lower[at:].split(b"\r\n", 1)[0]):
            return
        self._latencies_s.append(time.perf_counter() - self._sent_s)
        received.clear()
        if self.running:
            self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.running:
            self._ended(exc or ConnectionResetError("the server closed a connection under load"))

    def stop(self) -> None:
        self.running = False
        if self._transport is not None:
            self._transport.abort()


async def load(
    port: int,
    context: ssl.SSLContext,
    calls: Sequence[bytes],
    connections: int,
    seconds: float,
    *,
    reviews: int | None = None,
) -> list[float]:
    """Send *calls* in turn over *connections* for *seconds*; every call's time from sent to answered.

    With *reviews*, so many instead, however long it takes.
    """
    latencies_s: list[float] = []
    broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    turn = cycle(calls)
    callers = [_Caller(turn, latencies_s, partial(_break, broken)) for _ in range(connections)]
    await _connect(callers, port, context)
    latencies_s.clear()
    try:
        while reviews is not None and len(latencies_s) < reviews and not broken.done():  # noqa: ASYNC110 (counted by many)
            await asyncio.sleep(0.1)
        await asyncio.wait_for(asyncio.shield(broken), 0.0 if reviews is not None else seconds)
    except TimeoutError:
        pass
    finally:
        for caller in callers:
            caller.stop()
    found = list(latencies_s)
    await asyncio.sleep(0)
    return found


async def load_at(
    port: int, context: ssl.SSLContext, calls: Sequence[bytes], connections: int, seconds: float, rate: float
) -> list[float]:
    """Send *calls* in turn, *rate* of them a second whatever becomes of those before (an open loop).

    A call's time begins when it is due, also if every connection is busy then.
    """
    latencies_s: list[float] = []
    loop = asyncio.get_running_loop()
    broken: asyncio.Future[None] = loop.create_future()
    idle: deque[_Caller] = deque()
    due: deque[float] = deque()
    turn = cycle(calls)

    def free(caller: _Caller) -> None:
        if due:
            caller.send(due.popleft())
        else:
            idle.append(caller)

    callers = [_Caller(turn, latencies_s, partial(_break, broken), free) for _ in range(connections)]
    await _connect(callers, port, context)
    began_s, sent = time.perf_counter(), 0
    try:
        while (passed_s := time.perf_counter() - began_s) < seconds and not broken.done():
            while sent < passed_s * rate:
                at_s = began_s + sent / rate
                sent += 1
                if idle:
                    idle.popleft().send(at_s)
                else:
                    due.append(at_s)
            await asyncio.sleep(0.0005)
        while len(latencies_s) < sent and not broken.done():  # noqa: ASYNC110 (counted by many)
            await asyncio.sleep(0.01)
        if broken.done():
            broken.result()
    finally:
        for caller in callers:
            caller.stop()
    return list(latencies_s)


def _break(broken: asyncio.Future[None], error: BaseException) -> None:
    if not broken.done():
        broken.set_exception(error)


async def _connect(callers: Sequence["_Caller"], port: int, context: ssl.SSLContext) -> None:
    loop = asyncio.get_running_loop()
    for caller in callers:
        await loop.create_connection(
            partial(_itself, caller), "127.0.0.1", port, ssl=context, server_hostname="localhost"
        )


def _itself(caller: _Caller) -> _Caller:
    return caller


class _Uid(msgspec.Struct):
    uid: str


class _Question(msgspec.Struct):
    request: _Uid


class _Response(msgspec.Struct):
    uid: str
    allowed: bool


class _Answer(msgspec.Struct, rename="camel"):
    response: _Response
    api_version: str = "admission.k8s.io/v1"
    kind: str = "AdmissionReview"


async def _echo(port: int, cert: str, key: str) -> None:
    """Serve the least that is an answer: the uid back."""
    decode, encode = msgspec.json.Decoder(_Question).decode, msgspec.json.Encoder().encode

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        question = decode(await request.read())
        body = encode(_Answer(_Response(question.request.uid, True)))
        return web.Response(body=body, content_type="application/json")

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    runner = web.ServerRunner(web.Server(handle, access_log=None, keepalive_timeout=120))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context, backlog=1024).start()
    await asyncio.Event().wait()


def main() -> None:
    """``python -m tests.bench.admission_load PORT CERT KEY``: the echo, on the loop that the webhook would use."""
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        runner.run(_echo(int(sys.argv[1]), sys.argv[2], sys.argv[3]))


if __name__ == "__main__":
    main()
