"""How soon a gang is bound, or its group reports why it is not placed, with a controller on the double.

N nodes x 8 cards, all empty; each member asks for all cards of a node. A PodGroup and its pods are created as fast as
possible: first of N + 1 members, which is refused, then of N members, which is placed. All clocks start when the last
pod is created; no member is bound before all are decided.

  refused_s                     until the condition of the PodGroup says how many members fit
  first_bound_s, bound_s        until the first and the last member are bound
  refused_cpu_s, bound_cpu_s    the controller's CPU from the first creation on
"""

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from core.groups import MEMBER_OF
from sandbox.players.volcano_kinds import definitions
from tests.bench import stage as staging
from tests.bench.actors import Controller, controlling
from tests.bench.results import Result
from tests.bench.stage import CARD_MIB, CARDS, NAMESPACE, PODS, SCHEDULER, RefusedError, Stage, encode

_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_GROUPS: Final = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{NAMESPACE}/podgroups"
_WITHIN_S: Final = 120.0
_LOOK_EVERY_S: Final = 0.02


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--nodes", type=int, default=512, help="nodes of 8 cards each (default 512)")


def run(args: argparse.Namespace) -> Iterator[Result]:
    """Measure, and yield the figures."""

    async def main() -> dict[str, float]:
        async with staging.stage(real=False) as stage:
            for definition in await asyncio.to_thread(definitions):
                await stage.client.send("POST", _DEFINITIONS, encode(definition))
            await staging.make_nodes(stage.client, args.nodes)
            async with controlling(stage, policy="binpack", names=(SCHEDULER, "volcano")) as controller:
                return await _measured(stage, controller, args.nodes)

    for metric, value in staging.run_fast(main).items():
        yield Result(metric=metric, value=round(value, 2), unit="s", params={"nodes": args.nodes})


async def _measured(stage: Stage, controller: Controller, nodes: int) -> dict[str, float]:
    async def is_refused() -> bool:
        text = (await stage.client.send("GET", f"{_GROUPS}/waits")).decode()
        return f"{nodes} of the {nodes + 1} members" in text

    async def bound() -> int:
        pods = json.loads(await stage.client.send("GET", PODS))["items"]
        return sum(bool(one["spec"].get("nodeName")) for one in pods)

    async def is_begun() -> bool:
        return await bound() > 0

    async def is_done() -> bool:
        return await bound() == nodes

    cpu_s = controller.child.cpu_s()
    last_s = await _create(stage, "waits", nodes + 1)
    found = {"refused_s": await _until(is_refused) - last_s}
    found["refused_cpu_s"] = controller.child.cpu_s() - cpu_s
    await staging.delete_pods(stage.client)
    await stage.client.send("DELETE", f"{_GROUPS}/waits")
    cpu_s = controller.child.cpu_s()
    last_s = await _create(stage, "fits", nodes)
    found["first_bound_s"] = await _until(is_begun) - last_s
    found["bound_s"] = await _until(is_done) - last_s
    found["bound_cpu_s"] = controller.child.cpu_s() - cpu_s
    return found


async def _create(stage: Stage, name: str, members: int) -> float:
    """Create a group and its *members*; when the last was created, monotonic."""
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"minMember": members, "queue": "default"},
    }
    await stage.client.send("POST", _GROUPS, encode(group))
    await staging.make_pods(stage.client, (_member(name, at) for at in range(members)))
    return time.monotonic()


def _member(group: str, number: int) -> dict[str, Any]:
    pod = staging.pod(f"{group}-{number:04d}", number)
    pod["metadata"]["annotations"] = {MEMBER_OF: group}
    amounts = {"volcano.sh/vgpu-number": str(CARDS), "volcano.sh/vgpu-memory": str(CARD_MIB)}
    pod["spec"]["containers"][0]["resources"] = {"limits": amounts, "requests": amounts}
    return pod


async def _until(is_so: Callable[[], Awaitable[bool]]) -> float:
    """When *is_so* was first true, monotonic.

    Raises:
        RefusedError: not in time.
    """
    end_s = time.monotonic() + _WITHIN_S
    while not await is_so():
        if time.monotonic() > end_s:
            raise RefusedError(f"{is_so.__name__}: not within {_WITHIN_S:.0f} s")
        await asyncio.sleep(_LOOK_EVERY_S)
    return time.monotonic()
