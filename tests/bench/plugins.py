"""The device plugins of a benchmark: one process that follows all pods once and answers each as its plugin would.

Per bound pod it makes the two writes that the vGPU plugin makes: the served segment erased, then the phase success.
With --listing it also makes the plugin's reads: all pods of the cluster, the pod again, its node. With --seconds S the
pods of one node are served one after the other, each in S. With --kubelets, evicted pods end at once, as if their
containers ended at the first signal. It prints a line of JSON for every pod when it is first seen bound, with the time,
and one when it is served. With --telling it also prints one for each reason that a pod's condition gives for waiting.

    python -m tests.bench.plugins --kubeconfig F [--listing] [--seconds S] [--kubelets] [--telling]
"""

import argparse
import asyncio
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Final

import msgspec

from sandbox.players import vgpu_protocol as protocol
from tests.bench.stage import Client, connected, encode, run_fast, version

_AT_ONCE: Final = 64
_STRATEGIC: Final = "application/strategic-merge-patch+json"


class _Meta(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    deletion_timestamp: str = ""


class _Condition(msgspec.Struct, gc=False):
    type: str
    status: str
    message: str = ""


class _Status(msgspec.Struct, gc=False):
    conditions: list[_Condition] = msgspec.field(default_factory=list)


class _Spec(msgspec.Struct, gc=False, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct, gc=False):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.metadata.namespace}/pods/{self.metadata.name}"


class _Event(msgspec.Struct, gc=False):
    type: str
    object: _Pod


class Sighting(msgspec.Struct, gc=False):
    """One line of the output. what: bound, served or told. at_s: monotonic, the same clock in every process."""

    what: str
    pod: str
    at_s: float
    node: str = ""
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    message: str = ""


_decode: Final = msgspec.json.Decoder(_Event).decode


async def _main(kubeconfig: Path, *, listing: bool, seconds: float, kubelets: bool, telling: bool) -> None:
    room = asyncio.Semaphore(_AT_ONCE)
    turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
    seen: set[str] = set()
    told: dict[str, str] = {}
    leaving: set[str] = set()
    async with connected(kubeconfig, _AT_ONCE + 1) as client, asyncio.TaskGroup() as tasks:
        since = await version(client)
        print("ready", flush=True)
        while True:  # the server ends a watch that is too slow for it
            async for line in client.lines(f"/api/v1/pods?watch=true&resourceVersion={since}&timeoutSeconds=3600"):
                event = _decode(line)
                pod = event.object
                since = pod.metadata.resource_version
                if event.type == "ERROR":
                    raise SystemExit(line.decode())
                uid = pod.metadata.uid
                if event.type == "DELETED":
                    told.pop(uid, None)
                    continue
                if not pod.spec.node_name:
                    if telling and (message := _why(pod)) != told.get(uid, ""):
                        told[uid] = message
                        _tell("told", pod, message)
                    continue
                if kubelets and pod.metadata.deletion_timestamp and uid not in leaving:
                    leaving.add(uid)
                    tasks.create_task(_end(client, pod, room))
                if uid in seen:
                    continue
                seen.add(uid)
                _tell("bound", pod)
                if pod.metadata.annotations.get(protocol.TO_ALLOCATE):
                    turn = turns[pod.spec.node_name] if seconds else None
                    tasks.create_task(_serve_in_turn(client, pod, room, turn, listing=listing, seconds=seconds))


async def _serve_in_turn(
    client: Client, pod: _Pod, room: asyncio.Semaphore, turn: asyncio.Lock | None, *, listing: bool, seconds: float
) -> None:
    if turn is None:
        await _serve(client, pod, room, listing=listing)
        return
    async with turn:
        await asyncio.sleep(seconds)
        await _serve(client, pod, room, listing=listing)


async def _serve(client: Client, pod: _Pod, room: asyncio.Semaphore, *, listing: bool) -> None:
    path = pod.path
    segments = protocol.decode(pod.metadata.annotations[protocol.TO_ALLOCATE])
    async with room:
        if listing:
            await client.send("GET", "/api/v1/pods")
        await _annotate(client, path, {protocol.TO_ALLOCATE: protocol.erase(segments)})
        if listing:
            await client.send("GET", path)
        await _annotate(client, path, {protocol.BIND_PHASE: "success", protocol.TIME: str(protocol.DONE_TIME)})
        if listing:
            await client.send("GET", f"/api/v1/nodes/{pod.spec.node_name}")
    _tell("served", pod)


async def _annotate(client: Client, path: str, annotations: dict[str, str]) -> None:
    await client.send("PATCH", path, encode({"metadata": {"annotations": annotations}}), _STRATEGIC)


async def _end(client: Client, pod: _Pod, room: asyncio.Semaphore) -> None:
    """Do as kubelet does once the containers of *pod* have ended."""
    async with room:
        await client.send("PATCH", f"{pod.path}/status", encode({"status": {"phase": "Failed"}}), _STRATEGIC)
        await client.send("DELETE", pod.path, encode({"gracePeriodSeconds": 0}))


def _why(pod: _Pod) -> str:
    """Why *pod* waits, as its condition says."""
    said = (one.message for one in pod.status.conditions if (one.type, one.status) == ("PodScheduled", "False"))
    return next(said, "")


def _tell(what: str, pod: _Pod, message: str = "") -> None:
    bound = what == "bound"
    line = Sighting(
        what=what,
        pod=pod.metadata.name,
        at_s=time.monotonic(),
        node=pod.spec.node_name if bound else "",
        annotations=pod.metadata.annotations if bound else {},
        message=message,
    )
    sys.stdout.write(encode(line).decode() + "\n")


def main() -> None:
    """Run until ended."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.plugins")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--listing", action="store_true")
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--kubelets", action="store_true")
    parser.add_argument("--telling", action="store_true")
    options = vars(parser.parse_args())
    run_fast(lambda: _main(**options))


if __name__ == "__main__":
    main()
