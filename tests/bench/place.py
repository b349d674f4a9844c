"""Pods placed per second on an API server, beside a bare client that posts the same Bindings in the same run.

N nodes x 8 cards; all P pods exist before the clock starts, which runs from the first to the last pod seen bound. One
process follows all pods once and answers every bound pod as its device plugin would. Rounds alternate: the controller
(started when its pods exist; it stands by until it knows all of them), then the bare client with that
round's Bindings, annotations included, for new pods of the same kind; then the same again. Figures are over all rounds:

  ratio                         pods_per_s over bare_per_s
  pods_per_s, bare_per_s        of the controller, of the bare client
  controller_cpu_ms_per_pod     from ready to the last pod served, the reading of all events included
  bare_cpu_ms_per_pod           of the bare client
  apiserver_cpu_ms_per_pod      while the controller placed; etcd_ and bare_apiserver_ likewise
  created_pods_per_s, p50_ms, p99_ms
                                a further run in which the pods are created, as fast as it goes, while the controller
                                runs: the rate from the first creation to the last pod bound, and from the creation of
                                a pod (its answer) to when it is seen bound
  paced_p50_ms, paced_p99_ms    the same, created at half of pods_per_s
  listing_pods_per_s, listing_served_per_s
                                a further run of 300 pods with plugins that list all pods for each pod, as the real
                                ones do: the rate from the first pod bound to the last bound, and to the last served
  group_pods_per_s, group_cpu_ms_per_pod, group_cpu_ratio
                                with --group N: as many rounds with the same pods in groups of N that are placed
                                together; the last is their CPU over that of single pods
  peer_pods_per_s, peer_cpu_ms_per_pod
                                with --peer kube-scheduler: the same pods asking one plain extended resource
"""

import argparse
import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import msgspec

from core.groups import MIN_MEMBER
from core.model import MEMBER_OF
from tests.bench import stage as staging
from tests.bench.actors import Controller, Plugins, controlling, playing
from tests.bench.plugins import Sighting
from tests.bench.results import Result, quantile
from tests.bench.stage import PEER_SCHEDULER, PODS, RefusedError, Stage, encode

# Below what any API server does that can be measured at all.
_SLOWEST_PER_S: Final = 5.0
_LISTING_PODS: Final = 300


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--nodes", type=int, default=1000, help="nodes of 8 cards each (default 1000)")
    parser.add_argument("--pods", type=int, default=2000, help="pods per run (default 2000)")
    parser.add_argument("--real", action="store_true", help="on a real kube-apiserver with etcd instead of the double")
    parser.add_argument("--policy", choices=("spread", "binpack"), default="spread")
    parser.add_argument("--peer", choices=("kube-scheduler",), help="place them by this one too; needs --real")
    parser.add_argument("--rounds", type=int, default=2, help="times that each of the two runs (default 2)")
    parser.add_argument("--in-flight", type=int, default=32, help="requests of the bare client at once (default 32)")
    parser.add_argument("--group", type=int, default=0, help="the same pods in groups of so many, too")
    parser.add_argument("--brief", action="store_true", help="only the rounds: no creating, no listing run")


@dataclass(slots=True, kw_only=True)
class _Tally:
    """What several runs of one kind came to."""

    pods: int = 0
    elapsed_s: float = 0.0
    cpu_s: float = 0.0
    apiserver_s: float = 0.0
    etcd_s: float = 0.0
    rates: list[float] = field(default_factory=list)

    def add(self, pods: int, elapsed_s: float, cpu_s: float, server_s: tuple[float, float]) -> None:
        self.pods += pods
        self.elapsed_s += elapsed_s
        self.cpu_s += cpu_s
        self.apiserver_s += server_s[0]
        self.etcd_s += server_s[1]
        self.rates.append(pods / elapsed_s)

    @property
    def per_s(self) -> float:
        return self.pods / self.elapsed_s

    def ms(self, cpu_s: float) -> float:
        return cpu_s / self.pods * 1000


class _Bench:
    """One run of the benchmark, step by step."""

    def __init__(self, args: argparse.Namespace, stage: Stage) -> None:
        self.args = args
        self.stage = stage
        self.numbers = count(1)
        self.placed = _Tally()
        self.bare = _Tally()
        self.grouped = _Tally()

    # ------------------------------------------------------------------ the rounds

    async def round(self, plugins: Plugins) -> None:
        """The controller's run, then the bare client's with the same Bindings."""
        pods = self.pods(self.args.pods)
        await staging.make_pods(self.stage.client, pods)
        async with self.controller() as controller:
            bound, cpu_s, server_s = await self.wait_bound(plugins, controller, len(pods))
        self.placed.add(len(bound), _elapsed_s(bound), cpu_s, server_s)
        await staging.delete_pods(self.stage.client)
        await self.bare_run(plugins, bound)
        await staging.delete_pods(self.stage.client)

    async def group_round(self, plugins: Plugins) -> None:
        """The controller's run, with pods in groups."""
        pods = [_of_group(pod, at, self.args) for at, pod in enumerate(self.pods(self.args.pods))]
        await staging.make_pods(self.stage.client, pods)
        async with self.controller() as controller:
            bound, cpu_s, server_s = await self.wait_bound(plugins, controller, len(pods))
        self.grouped.add(len(bound), _elapsed_s(bound), cpu_s, server_s)
        await staging.delete_pods(self.stage.client)

    async def bare_run(self, plugins: Plugins, like: Sequence[Sighting]) -> None:
        """Post Bindings like those of *like* for new pods."""
        pods = self.pods(len(like))
        await staging.make_pods(self.stage.client, pods)
        listed = await self.stage.client.send("GET", PODS)
        versions = {pod.metadata.name: pod.metadata for pod in msgspec.json.decode(listed, type=_List).items}
        todo = [(versions[pod["metadata"]["name"]], old) for pod, old in zip(pods, like, strict=True)]
        plugins.read()
        before, cpu_s = self.stage.server_cpu_s(), time.process_time()
        await staging.all_of((self.bind(meta, old) for meta, old in todo), self.args.in_flight)
        cpu_s = time.process_time() - cpu_s
        bound, server_s = await self.collect(plugins, len(pods), before)
        self.bare.add(len(bound), _elapsed_s(bound), cpu_s, server_s)

    async def bind(self, meta: "_Meta", like: Sighting) -> None:
        """One Binding, as the controller would have sent it."""
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": meta.name,
                "namespace": staging.NAMESPACE,
                "uid": meta.uid,
                "resourceVersion": meta.resource_version,
                "annotations": like.annotations,
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": like.node},
        }
        await self.stage.client.send("POST", f"{PODS}/{meta.name}/binding?timeout=5s", encode(binding))

    async def wait_bound(
        self, plugins: Plugins, controller: Controller, pods: int
    ) -> tuple[list[Sighting], float, tuple[float, float]]:
        """Wait until all are bound and served; the bound, the controller's CPU and the servers' since now."""
        if plugins.read():
            raise RefusedError("something was bound before the controller was ready")
        cpu_s, before = controller.child.cpu_s(), self.stage.server_cpu_s()
        bound, server_s = await self.collect(plugins, pods, before)
        return bound, controller.child.cpu_s() - cpu_s, server_s

    async def collect(
        self, plugins: Plugins, pods: int, before: tuple[float, float]
    ) -> tuple[list[Sighting], tuple[float, float]]:
        """All that are seen bound until *pods* are, and are served too; and the servers' CPU until then."""
        bound: list[Sighting] = []
        served = 0
        end_s = time.monotonic() + 30.0 + pods / _SLOWEST_PER_S
        while served < pods:
            for one in plugins.read():
                if one.what == "bound":
                    bound.append(one)
                else:
                    served += 1
            if time.monotonic() > end_s:
                raise RefusedError(f"{len(bound)} of {pods} pods bound, {served} served, and time is up")
            await asyncio.sleep(0.05)
        after = self.stage.server_cpu_s()
        return bound, (after[0] - before[0], after[1] - before[1])

    # ------------------------------------------------------------------ the runs apart

    async def creating(self, plugins: Plugins, *, per_s: float = 0.0) -> tuple[float, list[float]]:
        """Create the pods while the controller runs; the rate, and seconds from creation to bound, ascending."""
        pods = self.pods(self.args.pods)
        created_s: dict[str, float] = {}
        async with controlling(self.stage, policy=self.args.policy):
            plugins.read()
            start_s = time.monotonic()

            async def make(at: int, pod: dict[str, Any]) -> None:
                if per_s:
                    await asyncio.sleep(max(start_s + at / per_s - time.monotonic(), 0.0))
                await self.stage.client.send("POST", PODS, encode(pod))
                created_s[pod["metadata"]["name"]] = time.monotonic()

            await staging.all_of((make(at, pod) for at, pod in enumerate(pods)), self.args.in_flight)
            bound, _ = await self.collect(plugins, len(pods), (0.0, 0.0))
        await staging.delete_pods(self.stage.client)
        # A pod may be seen bound before its own creation has been answered.
        times = sorted(max(one.at_s - created_s[one.pod], 0.0) for one in bound)
        return len(pods) / (max(one.at_s for one in bound) - start_s), times

    async def listing(self) -> tuple[float, float]:
        """The rates with plugins that list all pods of the cluster for each pod: of pods bound, and of pods served."""
        pods = min(self.args.pods, _LISTING_PODS)
        async with playing(self.stage, "--listing") as plugins:
            await staging.make_pods(self.stage.client, self.pods(pods))
            async with self.controller() as controller:
                bound, _, _ = await self.wait_bound(plugins, controller, pods)
                served_s = time.monotonic()
        await staging.delete_pods(self.stage.client)
        return pods / _elapsed_s(bound), pods / (served_s - min(one.at_s for one in bound))

    async def peer(self, plugins: Plugins) -> tuple[float, float]:
        """kube-scheduler's rate, and its CPU milliseconds per pod from its first pod to its last."""
        real = self.stage.real
        if real is None:
            raise RefusedError("--peer needs --real")
        plugins.read()
        await staging.make_pods(self.stage.client, self.pods(self.args.pods, PEER_SCHEDULER))
        starting = asyncio.create_task(real.start_scheduler())
        bound: list[Sighting] = []
        try:
            end_s = time.monotonic() + 60.0 + self.args.pods / _SLOWEST_PER_S
            first_cpu_s, seen = 0.0, 0
            while len(bound) < self.args.pods:
                bound += [one for one in plugins.read() if one.what == "bound"]
                if bound and not seen and starting.done():
                    first_cpu_s, seen = starting.result().cpu_s(), len(bound)
                if time.monotonic() > end_s:
                    raise RefusedError(f"{len(bound)} of {self.args.pods} pods bound by kube-scheduler")
                await asyncio.sleep(0.02)
            scheduler = await starting
            cpu_s = scheduler.cpu_s() - first_cpu_s
        finally:
            await real.stop_child(await starting)
        await staging.delete_pods(self.stage.client)
        return len(bound) / _elapsed_s(bound), cpu_s / (len(bound) - seen) * 1000

    def pods(self, many: int, scheduler: str = staging.SCHEDULER) -> list[dict[str, Any]]:
        """New pods, named after their run."""
        run = next(self.numbers)
        return [staging.pod(f"run{run}-{i:06d}", i, scheduler=scheduler) for i in range(many)]

    def controller(self) -> AbstractAsyncContextManager[Controller]:
        """A controller that knows all nodes and pods, and has decided nothing yet."""
        return controlling(self.stage, policy=self.args.policy, stands_by=True)


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    uid: str
    resource_version: str


class _Item(msgspec.Struct):
    metadata: _Meta


class _List(msgspec.Struct):
    items: list[_Item]


def _of_group(pod: dict[str, Any], at: int, args: argparse.Namespace) -> dict[str, Any]:
    """*pod*, number *at*, as a member of a group that its pods alone tell of."""
    first = at - at % args.group
    said = {
        MEMBER_OF: f"{pod['metadata']['name'].partition('-')[0]}-{first}",
        MIN_MEMBER: str(min(args.group, args.pods - first)),
    }
    metadata = pod["metadata"]
    return {**pod, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), **said}}}


def _elapsed_s(bound: Sequence[Sighting]) -> float:
    times = [one.at_s for one in bound]
    return max(times) - min(times)


def run(args: argparse.Namespace) -> Iterator[Result]:
    """Measure and yield the figures that the module's text lists."""
    params = {key: getattr(args, key) for key in ("nodes", "pods", "real", "policy", "rounds", "group")}
    for metric, value, unit in staging.run_fast(lambda: _measure(args)):
        yield Result(metric=metric, value=round(value, 3), unit=unit, params=params)


async def _measure(args: argparse.Namespace) -> list[tuple[str, float, str]]:
    async with staging.stage(real=args.real) as stage:
        bench = _Bench(args, stage)
        await staging.make_nodes(stage.client, args.nodes)
        extras: list[tuple[str, float, str]] = []
        async with playing(stage) as plugins:
            for _ in range(args.rounds):
                await bench.round(plugins)
                if args.group:
                    await bench.group_round(plugins)
            if args.group:
                singly, together = bench.placed.ms(bench.placed.cpu_s), bench.grouped.ms(bench.grouped.cpu_s)
                extras += [
                    ("group_pods_per_s", bench.grouped.per_s, "1/s"),
                    ("group_cpu_ms_per_pod", together, "ms"),
                    ("group_cpu_ratio", together / singly, ""),
                ]
            if args.peer:
                rate, cpu_ms = await bench.peer(plugins)
                extras += [("peer_pods_per_s", rate, "1/s"), ("peer_cpu_ms_per_pod", cpu_ms, "ms")]
            if not args.brief:
                rate, times = await bench.creating(plugins)
                extras += [
                    ("created_pods_per_s", rate, "1/s"),
                    ("p50_ms", quantile(times, 0.5) * 1000, "ms"),
                    ("p99_ms", quantile(times, 0.99) * 1000, "ms"),
                ]
                _, times = await bench.creating(plugins, per_s=bench.placed.per_s / 2)
                extras += [
                    ("paced_p50_ms", quantile(times, 0.5) * 1000, "ms"),
                    ("paced_p99_ms", quantile(times, 0.99) * 1000, "ms"),
                ]
        if not args.brief:
            rate, served_rate = await bench.listing()
            extras += [("listing_pods_per_s", rate, "1/s"), ("listing_served_per_s", served_rate, "1/s")]
    return [*_figures(bench.placed, bench.bare), *extras]


def _figures(placed: _Tally, bare: _Tally) -> list[tuple[str, float, str]]:
    worst = min(ours / theirs for ours, theirs in zip(placed.rates, bare.rates, strict=True))
    return [
        ("ratio", placed.per_s / bare.per_s, ""),
        ("ratio_of_worst_round", worst, ""),
        ("pods_per_s", placed.per_s, "1/s"),
        ("bare_per_s", bare.per_s, "1/s"),
        ("controller_cpu_ms_per_pod", placed.ms(placed.cpu_s), "ms"),
        ("bare_cpu_ms_per_pod", bare.ms(bare.cpu_s), "ms"),
        ("apiserver_cpu_ms_per_pod", placed.ms(placed.apiserver_s), "ms"),
        ("bare_apiserver_cpu_ms_per_pod", bare.ms(bare.apiserver_s), "ms"),
        ("etcd_cpu_ms_per_pod", placed.ms(placed.etcd_s), "ms"),
    ]
