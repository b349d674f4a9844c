"""How many nodes a burst of one-share pods takes, and how long its pods wait, where plugins serve one after the other.

N empty nodes x 8 cards and P pods of one size that exist before the controller decides; the device plugin of each node
serves its pods one by one, each in --seconds. Figures:

  nodes_used         nodes that hold a pod when all are bound
  nodes_used_ratio   the same over the nodes that the pods take one at a time, each decided when the last was served
  pods_per_s         from the first to the last pod seen bound
  wait_max_s         the longest that a pod was bound after the first
  wait_p50_s         the median of that
"""

import argparse
import asyncio
import time
from collections.abc import Iterator
from typing import Any, Final

from core.catalog import standard_catalog
from core.ledger import Ledger
from core.model import PodUid
from core.placing.candidates import Candidates
from core.placing.decide import Shape, decide, node_policy, shape_of
from core.settings import Policy, Settings, Tables
from core.wire.nodes import decode_node
from core.wire.pods import decode_pod
from tests.bench import stage as staging
from tests.bench.actors import Plugins, controlling, playing
from tests.bench.plugins import Sighting
from tests.bench.results import Result, quantile
from tests.bench.stage import RefusedError, encode

# Below what any controller does that packs at all.
_SLOWEST_PER_S: Final = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--nodes", type=int, default=1000, help="empty nodes of 8 cards each (default 1000)")
    parser.add_argument("--pods", type=int, default=2000, help="pods of one share (default 2000)")
    parser.add_argument("--seconds", type=float, default=0.05, help="a plugin serves a pod in so long (default 0.05)")
    parser.add_argument("--policy", choices=("binpack", "spread"), default="binpack")
    parser.add_argument("--real", action="store_true", help="on a real kube-apiserver with etcd instead of the double")


def run(args: argparse.Namespace) -> Iterator[Result]:
    """Measure and yield the figures that the module's text lists."""
    params = {key: getattr(args, key) for key in ("nodes", "pods", "seconds", "policy", "real")}
    bound: list[Sighting] = staging.run_fast(lambda: _burst(args))
    nodes = len({one.node for one in bound})
    first_s = min(one.at_s for one in bound)
    waits_s = sorted(one.at_s - first_s for one in bound)
    least = _one_at_a_time(args)
    for metric, value, unit in (
        ("nodes_used", nodes, ""),
        ("nodes_used_ratio", nodes / least, ""),
        ("pods_per_s", len(bound) / waits_s[-1], "1/s"),
        ("wait_max_s", waits_s[-1], "s"),
        ("wait_p50_s", quantile(waits_s, 0.5), "s"),
    ):
        yield Result(metric=metric, value=round(value, 3), unit=unit, params=params)


def _pod(at: int) -> dict[str, Any]:
    return staging.pod(f"burst-{at:06d}", 0)


async def _burst(args: argparse.Namespace) -> list[Sighting]:
    """Every pod when it was seen bound."""
    async with staging.stage(real=args.real) as stage:
        await staging.make_nodes(stage.client, args.nodes)
        async with playing(stage, f"--seconds={args.seconds}") as plugins:
            await staging.make_pods(stage.client, (_pod(at) for at in range(args.pods)))
            async with controlling(stage, policy=args.policy, stands_by=True):
                return await _until_bound(plugins, args)


async def _until_bound(plugins: Plugins, args: argparse.Namespace) -> list[Sighting]:
    bound: list[Sighting] = []
    end_s = time.monotonic() + 180.0 + args.pods / _SLOWEST_PER_S
    while len(bound) < args.pods:
        bound += [one for one in plugins.read() if one.what == "bound"]
        if time.monotonic() > end_s:
            raise RefusedError(f"{len(bound)} of {args.pods} pods bound, and time is up")
        await asyncio.sleep(0.05)
    return bound


def _one_at_a_time(args: argparse.Namespace) -> int:
    """How many nodes the pods take if each is decided when the one before is served."""
    settings = Settings(policy=Policy(args.policy))
    ledger = Ledger(standard_catalog(), Tables(), settings)
    for at in range(args.nodes):
        ledger.set_node(decode_node(encode(staging.node(at))))
    candidates = Candidates(ledger, node_policy(settings))
    nodes = set()
    for at in range(args.pods):
        pod = decode_pod(encode(_pod(at)))._replace(uid=PodUid(f"uid-{at}"))
        shape = shape_of(pod, ledger)
        placement = decide(candidates, pod, shape) if isinstance(shape, Shape) else None
        if placement is None:
            raise RefusedError("the pods do not fit the nodes")
        ledger.reserve(placement)
        nodes.add(placement.node)
    return len(nodes)
