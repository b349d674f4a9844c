"""Reviews per second of the webhook's process over TLS, beside a bare echo, and the time of one answer in process.

The reviews create pods of some workloads in turn, as controllers do; mutate_unseen_p50_us is the same for pods that
share nothing with an earlier one.

Server and echo run alternately on one core, loaded from another by ready bytes; ratio is the echo's CPU time per
review over ours, both to the nanosecond, so that the machine's speed and the load's own cost drop out. ratio_unseen is
the same where every review is of a workload that was not seen before.

--rate: an open loop of /mutate and /validate in turn, with an inventory of --nodes nodes; latencies from when a call
was due, beside those of the echo.
--reviews: so many in one go, half of them of workloads that were not seen before, and what memory grew.
"""

import argparse
import gc
import tempfile
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Final

from core.admission.rulebook import rulebook
from core.catalog import standard_catalog
from core.settings import Settings, Tables
from tests.bench import admission_load
from tests.bench.admit_rig import Rig, rss_mib
from tests.bench.callers import Callers
from tests.bench.results import Result, quantile
from tests.support.worlds.processes import Child
from webhook.metrics import Metrics
from webhook.reviews import Path as ReviewPath
from webhook.reviews import Reviewer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=3.0, help="of load in each round (default 3)")
    parser.add_argument("--rounds", type=int, default=3, help="of echo and webhook in turn (default 3)")
    parser.add_argument("--workloads", type=int, default=64, help="whose pods are created in turn (default 64)")
    parser.add_argument("--answers", type=int, default=20_000, help="answered in process (default 20000)")
    parser.add_argument("--rate", type=float, default=0.0, help="calls a second of an open loop, measured too")
    parser.add_argument("--nodes", type=int, default=1000, help="of 8 cards each, known at that rate (default 1000)")
    parser.add_argument("--reviews", type=int, default=0, help="in one go, to see whether memory grows")
    parser.add_argument("--unseen", type=int, default=2_000, help="of these, pods of new workloads (default 2000)")


@dataclass(slots=True)
class _Load:
    """What one server did over all rounds."""

    calls: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    generator_s: float = 0.0
    latencies_s: "array[float]" = field(default_factory=lambda: array("d"))

    @property
    def per_s(self) -> float:
        """Calls a second."""
        return self.calls / self.seconds

    @property
    def cpu_us(self) -> float:
        """CPU time of one call, in microseconds."""
        return self.cpu_s / self.calls * 1e6

    @property
    def generator_us(self) -> float:
        """What one call cost on our side."""
        return self.generator_s / self.calls * 1e6


def run(args: argparse.Namespace) -> Iterator[Result]:
    """Measure and yield what the module says."""
    bodies = [admission_load.review_of(admission_load.share_pod(workload)) for workload in range(args.workloads)]
    calls = [admission_load.call_of(body) for body in bodies]
    params = {
        "connections": args.connections,
        "seconds": args.seconds,
        "workloads": args.workloads,
        "bytes": len(bodies[0]),
    }
    with tempfile.TemporaryDirectory() as folder, Rig(Path(folder), args) as rig:
        for figures in _figures(rig, args, calls, bodies):
            for metric, value, unit in figures:
                yield Result(metric=metric, value=value, unit=unit, params=params)


_Found = tuple[str, float, str]
# More than is remembered: by the time the first comes again it is forgotten.
_UNSEEN_ON_THE_WIRE: Final = 12_000


def _figures(
    rig: Rig, args: argparse.Namespace, calls: Sequence[bytes], bodies: Sequence[bytes]
) -> Iterator[Iterable[_Found]]:
    yield _in_process(args, bodies)
    yield _beside_echo(rig, args, calls)
    if args.rate:
        yield _at_rate(rig, args, bodies)
    if args.reviews:
        yield _growth(rig, args, calls)


def _in_process(args: argparse.Namespace, bodies: Sequence[bytes]) -> Iterator[_Found]:
    unseen = [admission_load.review_of(admission_load.share_pod(10_000 + number)) for number in range(args.unseen)]
    yield "mutate_p50_us", round(_median_us(bodies, args.answers), 1), "us"
    yield "mutate_unseen_p50_us", round(_median_us(unseen, args.unseen), 1), "us"


def _median_us(bodies: Sequence[bytes], answers: int) -> float:
    """The median time from a review's bytes to its answer's, in microseconds; *bodies* in turn."""
    reviewer = Reviewer(rulebook(Settings(), Tables(), standard_catalog()), Metrics())
    times: list[float] = []
    for body in islice(cycle(bodies), answers):
        began = time.perf_counter()
        reviewer.answer(ReviewPath.MUTATE, body)
        times.append(time.perf_counter() - began)
    times.sort()
    return quantile(times, 0.5) * 1e6


def _beside_echo(rig: Rig, args: argparse.Namespace, calls: Sequence[bytes]) -> Iterator[_Found]:
    webhook, port = rig.webhook(rig.cores[:1])
    echo, echo_port = rig.echo(rig.cores[:1])
    unseen = list(islice(admission_load.unseen_calls(), _UNSEEN_ON_THE_WIRE))
    ours, bare, new = _Load(), _Load(), _Load()
    for one in (port, echo_port):
        rig.load(one, cycle(calls), 0.5)
    for _ in range(args.rounds):
        _round(rig, bare, echo, echo_port, cycle(calls), args.seconds)
        _round(rig, ours, webhook, port, cycle(calls), args.seconds)
    # Afterwards, for they fill what is remembered.
    turn = cycle(unseen)
    for _ in range(args.rounds):
        _round(rig, new, webhook, port, turn, args.seconds)
    times = sorted(ours.latencies_s)
    yield "reviews_per_s", round(ours.per_s), "1/s"
    yield "echo_per_s", round(bare.per_s), "1/s"
    yield "cpu_us_per_review", round(ours.cpu_us, 1), "us"
    yield "cpu_us_per_unseen_review", round(new.cpu_us, 1), "us"
    yield "cpu_us_per_echo", round(bare.cpu_us, 1), "us"
    yield "ratio", round(bare.cpu_us / ours.cpu_us, 3), ""
    yield "ratio_unseen", round(bare.cpu_us / new.cpu_us, 3), ""
    yield "generator_us", round(ours.generator_us, 1), "us"
    yield "p50_ms", round(quantile(times, 0.5) * 1e3, 2), "ms"
    yield "p99_ms", round(quantile(times, 0.99) * 1e3, 2), "ms"
    yield "peak_rss_mib", round(webhook.peak_rss_mib(), 1), "MiB"
    rig.stop(webhook)
    rig.stop(echo)


def _at_rate(rig: Rig, args: argparse.Namespace, bodies: Sequence[bytes]) -> Iterator[_Found]:
    """As an API server asks: of every pod twice, of one that knows the cluster's cards."""
    calls = [admission_load.call_of(body, path) for body in bodies for path in ReviewPath]
    cluster, kubeconfig = rig.cluster(args.nodes)
    webhook, port = rig.webhook(rig.cores[:1], kubeconfig=kubeconfig)
    echo, echo_port = rig.echo(rig.cores[:1])
    found: dict[int, list[float]] = {echo_port: [], port: []}
    for one in found:
        rig.load(one, cycle(calls), 0.5)
    for _ in range(args.rounds):
        for one, latencies_s in found.items():
            gc.collect()
            with Callers(one, rig.context, args.connections) as callers:
                latencies_s.extend(callers.load_at(cycle(calls), args.seconds, args.rate))
    memory_mib = rss_mib(webhook.pid)
    for child in (webhook, echo, cluster):
        rig.stop(child)
    yield "open_loop_rate", args.rate, "1/s"
    yield "open_loop_rss_mib", round(memory_mib, 1), "MiB"
    ours, bare = sorted(found[port]), sorted(found[echo_port])
    for name, times in (("open_loop", ours), ("open_loop_echo", bare)):
        yield f"{name}_p50_ms", round(quantile(times, 0.5) * 1e3, 3), "ms"
        yield f"{name}_p99_ms", round(quantile(times, 0.99) * 1e3, 3), "ms"
        yield f"{name}_max_ms", round(times[-1] * 1e3, 3), "ms"
    yield "open_loop_p99_over_echo_ms", round((quantile(ours, 0.99) - quantile(bare, 0.99)) * 1e3, 3), "ms"


def _growth(rig: Rig, args: argparse.Namespace, calls: Sequence[bytes]) -> Iterator[_Found]:
    webhook, port = rig.webhook(rig.cores[:1])
    turn = chain.from_iterable(zip(cycle(calls), admission_load.unseen_calls(), strict=False))
    # What is remembered at most, and what a process keeps of its first reviews, is no growth.
    rig.load(port, turn, reviews=max(args.reviews // 10, 2 * _UNSEEN_ON_THE_WIRE))
    before_mib = rss_mib(webhook.pid)
    answered = len(rig.load(port, turn, reviews=args.reviews))
    after_mib = rss_mib(webhook.pid)
    rig.stop(webhook)
    yield "reviews", answered, "1"
    yield "rss_before_mib", round(before_mib, 1), "MiB"
    yield "rss_after_mib", round(after_mib, 1), "MiB"
    yield "rss_growth_mib", round(after_mib - before_mib, 1), "MiB"


def _round(rig: Rig, found: _Load, child: Child, port: int, calls: Iterable[bytes], seconds: float) -> None:
    gc.collect()
    before_s = child.cpu_s()
    began, own_s = time.perf_counter(), time.process_time()
    latencies_s = rig.load(port, calls, seconds)
    found.seconds += time.perf_counter() - began
    found.generator_s += time.process_time() - own_s
    found.cpu_s += child.cpu_s() - before_s
    found.calls += len(latencies_s)
    found.latencies_s += latencies_s
