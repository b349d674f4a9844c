"""Pods that fit, placed beside thousands that wait: the rate and CPU, over those without anybody waiting, in one run.

N nodes x 8 cards, each with a share in use; one controller, and plugins that answer. P pods that fit are created as
fast as it goes, the clock runs from the first creation to the last pod bound; they are deleted afterwards. First
without others; then beside B pods of S shapes, each asking for eight cards to itself, which no node has: while they are
being told why they wait, and once they have been; then without others again. R times each but for the second, of which
the times add up: machines are noisy, and one arrival is over in seconds.

  ratio                         pods_per_s once all have been told, over that without others (before and after)
  cpu_ratio                     CPU per pod without others, over that beside them: 1 is as cheap
  telling_ratio, telling_cpu_ratio
                                the same while they are told
  pods_per_s, alone_pods_per_s, cpu_ms_per_pod, alone_cpu_ms_per_pod
  refused_s                     from the last of the B pods created until all are refused
  controller_rss_mib            at its highest, in the end
"""

import argparse
import asyncio
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from tests.bench import stage as staging
from tests.bench.actors import Controller, Plugins, controlling, playing
from tests.bench.results import Result
from tests.bench.stage import CARDS, PODS, RefusedError, Stage, encode

_WAIT_S: Final = 900.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--nodes", type=int, default=1000, help="nodes of 8 cards each (default 1000)")
    parser.add_argument("--pods", type=int, default=1000, help="pods that fit, per run (default 1000)")
    parser.add_argument("--waiting", type=int, default=10_000, help="pods that fit nowhere (default 10000)")
    parser.add_argument("--shapes", type=int, default=50, help="shapes of these (default 50)")
    parser.add_argument("--real", action="store_true", help="on a real kube-apiserver with etcd instead of the double")
    parser.add_argument("--rounds", type=int, default=3, help="arrivals before, beside and after (default 3)")
    parser.add_argument("--in-flight", type=int, default=16, help="creations at once (default 16)")
    parser.add_argument("--rest", type=float, default=3.0, help="seconds of rest after each arrival (default 3)")


class _Run(NamedTuple):
    """What one arrival of pods came to."""

    per_s: float
    cpu_ms: float


class _Bench:
    def __init__(self, args: argparse.Namespace, stage: Stage, plugins: Plugins, controller: Controller) -> None:
        self.args = args
        self.stage = stage
        self.plugins = plugins
        self.controller = controller
        self.runs = 0

    async def arrive(self, many: int, *, keep: bool = False) -> _Run:
        """Create *many* pods that fit, and wait until all are bound and served; deleted afterwards unless *keep*."""
        self.runs += 1
        pods = [staging.pod(f"run{self.runs}-{i:06d}", i) for i in range(many)]
        self.plugins.read()
        cpu_s, start_s = self.controller.child.cpu_s(), time.monotonic()
        creations = (self.stage.client.send("POST", PODS, encode(pod)) for pod in pods)
        await staging.all_of(creations, self.args.in_flight)
        last_s, bound, served = start_s, 0, 0
        while served < many:
            for one in self.plugins.read():
                if one.what == "bound":
                    bound, last_s = bound + 1, max(last_s, one.at_s)
                else:
                    served += 1
            if time.monotonic() > start_s + _WAIT_S:
                raise RefusedError(f"{bound} of {many} pods bound, {served} served, and time is up")
            await asyncio.sleep(0.02)
        found = _Run(many / (last_s - start_s), (self.controller.child.cpu_s() - cpu_s) / many * 1000)
        if not keep:
            await self.delete(pod["metadata"]["name"] for pod in pods)
        return found

    async def wait(self) -> float:
        """Create the pods that fit nowhere, and wait until all are refused; how long that took after the last."""
        many = self.args.waiting
        await staging.make_pods(self.stage.client, (_waiting(i, self.args.shapes) for i in range(many)))
        start_s = time.monotonic()
        await self.until('cardshare_pending_pods{waiting_for="refused"}', many)
        return time.monotonic() - start_s

    async def until(self, series: str, least: int) -> None:
        """Wait until the sum of a metric's series, those that begin so, is large enough."""
        end_s, found = time.monotonic() + _WAIT_S, 0.0
        while found < least:
            if time.monotonic() > end_s:
                raise RefusedError(f"{series} is {found:.0f}, not {least}")
            await asyncio.sleep(0.5)
            text = await staging.text_of(f"{self.controller.url}/metrics")
            found = sum(float(value) for value in re.findall(rf"^{re.escape(series)}.* (\S+)$", text, re.MULTILINE))

    async def delete(self, names: Iterator[str]) -> None:
        """Delete pods at once; everything rests before the next clock starts."""
        body = encode({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})
        await staging.all_of((self.stage.client.send("DELETE", f"{PODS}/{name}", body) for name in names), 16)
        await asyncio.sleep(self.args.rest)


def _waiting(number: int, shapes: int) -> dict[str, Any]:
    """A pod that wants eight cards to itself, and so fits no node where a share is in use."""
    made = staging.pod(f"waits-{number:06d}", number)
    share = {
        "volcano.sh/vgpu-number": str(CARDS),
        "volcano.sh/vgpu-memory": str(20_000 + number % shapes),
        "volcano.sh/vgpu-cores": "100",
    }
    amounts = {"cpu": "500m", "memory": "1Gi", **share}
    made["spec"]["containers"][0]["resources"] = {"limits": amounts, "requests": amounts}
    return made


def run(args: argparse.Namespace) -> Iterator[Result]:
    """Measure and yield the figures that the module's text lists."""
    params = {key: getattr(args, key) for key in ("nodes", "pods", "waiting", "shapes", "rounds", "real")}
    for metric, value, unit in staging.run_fast(lambda: _measure(args)):
        yield Result(metric=metric, value=round(value, 3), unit=unit, params=params)


async def _measure(args: argparse.Namespace) -> list[tuple[str, float, str]]:
    async with staging.stage(real=args.real) as stage:
        await staging.make_nodes(stage.client, args.nodes)
        async with playing(stage) as plugins, controlling(stage, policy="spread") as controller:
            bench = _Bench(args, stage, plugins, controller)
            # Spread, these leave no node empty.
            await bench.arrive(args.nodes, keep=True)
            alone = [await bench.arrive(args.pods) for _ in range(args.rounds)]
            refused_s = await bench.wait()
            telling = await bench.arrive(args.pods)
            await bench.until("cardshare_refusals_total", args.waiting)
            told = [await bench.arrive(args.pods) for _ in range(args.rounds)]
            await bench.delete(f"waits-{i:06d}" for i in range(args.waiting))
            alone += [await bench.arrive(args.pods) for _ in range(args.rounds)]
            rss_mib = controller.child.peak_rss_mib()
    free, beside = _mean(alone), _mean(told)
    return [
        ("ratio", beside.per_s / free.per_s, ""),
        ("cpu_ratio", free.cpu_ms / beside.cpu_ms, ""),
        ("telling_ratio", telling.per_s / free.per_s, ""),
        ("telling_cpu_ratio", free.cpu_ms / telling.cpu_ms, ""),
        ("pods_per_s", beside.per_s, "1/s"),
        ("alone_pods_per_s", free.per_s, "1/s"),
        ("cpu_ms_per_pod", beside.cpu_ms, "ms"),
        ("alone_cpu_ms_per_pod", free.cpu_ms, "ms"),
        ("refused_s", refused_s, "s"),
        ("controller_rss_mib", rss_mib, "MiB"),
    ]


def _mean(runs: Sequence[_Run]) -> _Run:
    """All *runs* as one: they have equally many pods."""
    return _Run(len(runs) / sum(1 / one.per_s for one in runs), sum(one.cpu_ms for one in runs) / len(runs))
