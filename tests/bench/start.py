"""Cold start of the controller beside a full cluster: to its first decision, what it holds, how long its loop stalls.

N nodes x 8 cards, P pods bound and served, and some that wait. The clock starts with the process, whose start delay is
0: the 6 s for which a controller in service decides nothing after its start (a Binding of the process before it may
still be under way) are waiting and no work.

  first_decision_s   until the first pod is seen bound
  ready_s            until the controller says that it is ready
  all_placed_s       until the last of the waiting pods is seen bound
  cpu_s              of the controller until then
  peak_rss_mib       of the controller
  loop_stall_ms      the longest its event loop was late, as it measures it (cardshare_loop_lag_max_seconds)
"""

import argparse
import asyncio
import time
from collections.abc import Iterator
from typing import Any

from core.dialects.vgpu import keys
from tests.bench import stage as staging
from tests.bench.actors import Plugins, controlling, playing
from tests.bench.results import Result
from tests.bench.stage import RefusedError

_SHARE_MIB = 4096
_LIMIT_S = 300.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--nodes", type=int, default=5000, help="nodes of 8 cards each (default 5000)")
    parser.add_argument("--pods", type=int, default=20_000, help="bound pods (default 20000)")
    parser.add_argument("--waiting", type=int, default=100, help="pods that wait to be placed (default 100)")
    parser.add_argument("--real", action="store_true", help="on a real kube-apiserver with etcd instead of the double")
    parser.add_argument("--policy", choices=("spread", "binpack"), default="binpack")
    parser.add_argument("--rest", type=float, default=3.0, help="seconds measured after the last decision (default 3)")


def run(args: argparse.Namespace) -> Iterator[Result]:
    """Measure and yield the figures that the module's text lists."""
    params = {key: getattr(args, key) for key in ("nodes", "pods", "waiting", "real", "policy")}
    for metric, value, unit in staging.run_fast(lambda: measure(args)):
        yield Result(metric=metric, value=round(value, 2), unit=unit, params=params)


async def measure(args: argparse.Namespace) -> list[tuple[str, float, str]]:
    """The figures that the module's text lists: name, value, unit."""
    async with staging.stage(real=args.real) as stage:
        await staging.make_nodes(stage.client, args.nodes)
        await staging.make_pods(stage.client, (bound_pod(i, args.nodes) for i in range(args.pods)))
        await staging.make_pods(stage.client, (staging.pod(f"waiting-{i:05d}", i) for i in range(args.waiting)))
        async with playing(stage) as plugins:
            began_s = time.monotonic()
            async with controlling(stage, policy=args.policy, within_s=_LIMIT_S) as controller:
                ready_s = time.monotonic() - began_s
                bound = await _bound(plugins, args.waiting)
                cpu_s = controller.child.cpu_s()
                await asyncio.sleep(args.rest)
                stall_s = await controller.metric("cardshare_loop_lag_max_seconds")
                rss_mib = controller.child.peak_rss_mib()
    return [
        ("first_decision_s", min(bound) - began_s, "s"),
        ("ready_s", ready_s, "s"),
        ("all_placed_s", max(bound) - began_s, "s"),
        ("cpu_s", cpu_s, "s"),
        ("peak_rss_mib", rss_mib, "MiB"),
        ("loop_stall_ms", stall_s * 1000, "ms"),
    ]


async def _bound(plugins: Plugins, count: int) -> list[float]:
    """When each of *count* pods was seen bound, monotonic."""
    times: list[float] = []
    end_s = time.monotonic() + _LIMIT_S
    while len(times) < count:
        times += [one.at_s for one in plugins.read() if one.what == "bound"]
        if time.monotonic() > end_s:
            raise RefusedError(f"{len(times)} of {count} pods were placed within {_LIMIT_S:.0f} s")
        await asyncio.sleep(0.02)
    return times


def bound_pod(number: int, nodes: int) -> dict[str, Any]:
    """A pod that the vGPU plugin has served: one share of one card, spread evenly over nodes and their cards."""
    pod = staging.pod(f"bound-{number:06d}", number)
    at, card = number % nodes, number // nodes % staging.CARDS
    pod["spec"]["nodeName"] = staging.node_name(at)
    share = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": str(_SHARE_MIB), "volcano.sh/vgpu-cores": "10"}
    amounts = {"cpu": "500m", "memory": "1Gi", **share}
    pod["spec"]["containers"][0]["resources"] = {"limits": amounts, "requests": amounts}
    pod["metadata"]["annotations"] = {
        keys.NODE: staging.node_name(at),
        keys.TIME: str(2**64 - 1),
        keys.IDS: f"{staging.card_ids(at)[card]},NVIDIA,{_SHARE_MIB},10:",
        keys.TO_ALLOCATE: "",
        keys.BIND_PHASE: "success",
        keys.BIND_TIME: "1700000000",
    }
    return pod
