"""Reviews per second of the webhook's process over TLS, beside a bare echo, and the time of one answer in process.

The reviews create pods of some workloads in turn, as controllers do; mutate_unseen_p50_us is the same for pods that
share nothing with an earlier one.

Server and echo run alternately on one core, loaded from another by ready bytes; ratio is the echo's CPU time per
review over ours, both read from /proc, so that the machine's speed and the load's own cost drop out. ratio_unseen is
the same where every review is of a workload that was not seen before.

--rate: an open loop, latencies from when a call was due. --workers: how many times the reviews of one worker several
answer, with the load's own cost beside it, for both share the cores. --reviews: so many in one go, and what
memory grew.
"""

import argparse
import asyncio
import gc
import os
import socket
import ssl
import sys
import tempfile
import time
import urllib.request
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

from certs.files import ensure
from certs.pair import Wanted
from core.admission.rulebook import rulebook
from core.catalog import standard_catalog
from core.settings import Settings, Tables
from tests.bench import admission_load
from tests.bench.results import Result, quantile
from tests.support.processes import Child, Children, until
from webhook.__main__ import fast_loop
from webhook.metrics import Metrics
from webhook.reviews import Path as ReviewPath
from webhook.reviews import Reviewer

ROOT = Path(__file__).parents[2]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=3.0, help="of load in each round (default 3)")
    parser.add_argument("--rounds", type=int, default=3, help="of echo and webhook in turn (default 3)")
    parser.add_argument("--workloads", type=int, default=64, help="whose pods are created in turn (default 64)")
    parser.add_argument("--answers", type=int, default=20_000, help="answered in process (default 20000)")
    parser.add_argument("--rate", type=float, default=0.0, help="calls a second of an open loop, measured too")
    parser.add_argument("--workers", type=int, default=1, help="measured beside one worker")
    parser.add_argument("--reviews", type=int, default=0, help="in one go, to see whether memory grows")
    parser.add_argument("--unseen", type=int, default=2_000, help="of these, pods of new workloads (default 2000)")


@dataclass(slots=True)
class _Load:
    """What one server did over all rounds."""

    calls: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    generator_s: float = 0.0
    latencies_s: list[float] = field(default_factory=list)

    @property
    def cpu_us(self) -> float:
        """CPU time of one call, in microseconds."""
        return self.cpu_s / self.calls * 1e6


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
    unseen = [admission_load.call_of(body) for body in _unseen(_UNSEEN_ON_THE_WIRE)]
    with tempfile.TemporaryDirectory() as folder, _Rig(Path(folder), args) as rig:
        found = list(_beside_echo(rig, args, calls, unseen))
        if args.rate:
            found += _at_rate(rig, args, calls)
        if args.reviews:
            found += _growth(rig, args, calls)
        if args.workers > 1:
            found += _several(rig, args, calls)
    found += [
        ("mutate_p50_us", round(_in_process(bodies, args.answers), 1), "us"),
        ("mutate_unseen_p50_us", round(_in_process(_unseen(args.unseen), args.unseen), 1), "us"),
    ]
    for metric, value, unit in found:
        yield Result(metric=metric, value=value, unit=unit, params=params)


# More than a worker remembers: by the time the first comes again it is forgotten.
_UNSEEN_ON_THE_WIRE: Final = 12_000

_Found = tuple[str, float, str]


class _Rig:
    """The servers, pinned to one core; the load has the other."""

    def __init__(self, folder: Path, args: argparse.Namespace) -> None:
        self._certs = folder / "certs"
        ensure(self._certs, Wanted(dns_names=("localhost",), days=30, ca_days=60), datetime.now(UTC))
        self.context = ssl.create_default_context(cafile=self._certs / "ca.crt")
        self._children = Children(folder / "logs")
        self._args = args
        self.cores = sorted(os.sched_getaffinity(0))

    def __enter__(self) -> "_Rig":
        return self

    def __exit__(self, *exc: object) -> None:
        os.sched_setaffinity(0, self.cores)
        self._children.close()

    def webhook(self, cores: Sequence[int], workers: int = 1) -> tuple[Child, int]:
        """A webhook and its port."""
        port, plain = _free_port(), _free_port()
        argv = [
            "-m", "webhook", "--listen", f"127.0.0.1:{port}", "--metrics-listen", f"127.0.0.1:{plain}",
            "--cert-dir", str(self._certs), "--no-inventory", "--drain-s", "0", "--workers", str(workers),
        ]  # fmt: skip
        child = self._start(f"webhook-{workers}", cores, argv, port)
        until("all workers", partial(_missing, plain, workers), deadline_s=30, children=[child])
        return child, port

    def echo(self, cores: Sequence[int]) -> tuple[Child, int]:
        """The bare echo and its port."""
        port = _free_port()
        pair = str(self._certs / "tls.crt"), str(self._certs / "tls.key")
        return self._start("echo", cores, ["-m", "tests.bench.admission_load", str(port), *pair], port), port

    def _start(self, name: str, cores: Sequence[int], argv: list[str], port: int) -> Child:
        environ = {**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": str(ROOT)}
        os.sched_setaffinity(0, cores)
        try:
            child = self._children.start(name, [sys.executable, *argv], env=environ, cwd=ROOT)
            until(name, partial(_closed, port), deadline_s=30, children=[child])
        finally:
            os.sched_setaffinity(0, self.cores[-1:])
        return child

    def stop(self, child: Child) -> None:
        """End it."""
        self._children.stop(child)

    def load(self, port: int, calls: Sequence[bytes], seconds: float, reviews: int | None = None) -> list[float]:
        """Latencies of a closed loop."""
        return _run(admission_load.load(port, self.context, calls, self._args.connections, seconds, reviews=reviews))


def _run(work: Coroutine[Any, Any, list[float]]) -> list[float]:
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        return runner.run(work)


def _beside_echo(
    rig: _Rig, args: argparse.Namespace, calls: Sequence[bytes], unseen: Sequence[bytes]
) -> Iterator[_Found]:
    webhook, port = rig.webhook(rig.cores[:1])
    echo, echo_port = rig.echo(rig.cores[:1])
    ours, bare, new = _Load(), _Load(), _Load()
    for one in (port, echo_port):
        rig.load(one, calls, 0.5)
    for _ in range(args.rounds):
        _round(rig, bare, echo, echo_port, calls, args.seconds)
        _round(rig, ours, webhook, port, calls, args.seconds)
    # Afterwards, for they fill what is remembered.
    for _ in range(args.rounds):
        _round(rig, new, webhook, port, unseen, args.seconds)
    ours.latencies_s.sort()
    yield "reviews_per_s", round(ours.calls / ours.seconds), "1/s"
    yield "echo_per_s", round(bare.calls / bare.seconds), "1/s"
    yield "cpu_us_per_review", round(ours.cpu_us, 1), "us"
    yield "cpu_us_per_unseen_review", round(new.cpu_us, 1), "us"
    yield "cpu_us_per_echo", round(bare.cpu_us, 1), "us"
    yield "ratio", round(bare.cpu_us / ours.cpu_us, 3), ""
    yield "ratio_unseen", round(bare.cpu_us / new.cpu_us, 3), ""
    yield "generator_us", round(ours.generator_s / ours.calls * 1e6, 1), "us"
    yield "p50_ms", round(quantile(ours.latencies_s, 0.5) * 1e3, 2), "ms"
    yield "p99_ms", round(quantile(ours.latencies_s, 0.99) * 1e3, 2), "ms"
    yield "peak_rss_mib", round(webhook.peak_rss_mib(), 1), "MiB"
    rig.stop(webhook)
    rig.stop(echo)


def _at_rate(rig: _Rig, args: argparse.Namespace, calls: Sequence[bytes]) -> Iterator[_Found]:
    webhook, port = rig.webhook(rig.cores[:1])
    rig.load(port, calls, 0.5)
    gc.collect()
    times = sorted(
        _run(admission_load.load_at(port, rig.context, calls, args.connections, args.seconds * args.rounds, args.rate))
    )
    rig.stop(webhook)
    yield "open_loop_rate", args.rate, "1/s"
    yield "open_loop_p50_ms", round(quantile(times, 0.5) * 1e3, 3), "ms"
    yield "open_loop_p99_ms", round(quantile(times, 0.99) * 1e3, 3), "ms"
    yield "open_loop_max_ms", round(times[-1] * 1e3, 3), "ms"


def _growth(rig: _Rig, args: argparse.Namespace, calls: Sequence[bytes]) -> Iterator[_Found]:
    webhook, port = rig.webhook(rig.cores[:1])
    # What a process keeps of its first reviews is no growth.
    rig.load(port, calls, 0, max(args.reviews // 10, 1))
    before = _rss_mib(webhook.pid)
    answered = len(rig.load(port, calls, 0, args.reviews))
    after = _rss_mib(webhook.pid)
    rig.stop(webhook)
    yield "reviews", answered, "1"
    yield "rss_before_mib", round(before, 1), "MiB"
    yield "rss_after_mib", round(after, 1), "MiB"


def _several(rig: _Rig, args: argparse.Namespace, calls: Sequence[bytes]) -> Iterator[_Found]:
    """One worker and several, each free to use all cores, beside a load that is too."""
    rates: list[float] = []
    largest = 0.0
    for workers in (1, args.workers):
        webhook, port = rig.webhook(rig.cores, workers)
        os.sched_setaffinity(0, rig.cores)
        rig.load(port, calls, 0.5)
        found = _Load()
        for _ in range(args.rounds):
            _round(rig, found, webhook, port, calls, args.seconds)
        rates.append(found.calls / found.seconds)
        processes = _children_of(webhook.pid) or [webhook.pid]
        largest = max(largest, *map(_rss_mib, processes))
        rig.stop(webhook)
    yield "one_worker_per_s", round(rates[0]), "1/s"
    yield f"workers_{args.workers}_per_s", round(rates[1]), "1/s"
    yield "workers_gain", round(rates[1] / rates[0], 3), ""
    yield "largest_worker_rss_mib", round(largest, 1), "MiB"


def _round(rig: _Rig, found: _Load, child: Child, port: int, calls: Sequence[bytes], seconds: float) -> None:
    gc.collect()
    cpu_s, began, own_s = _cpu_s(child.pid), time.perf_counter(), time.process_time()
    latencies_s = rig.load(port, calls, seconds)
    found.seconds += time.perf_counter() - began
    found.generator_s += time.process_time() - own_s
    found.cpu_s += _cpu_s(child.pid) - cpu_s
    found.calls += len(latencies_s)
    found.latencies_s += latencies_s


def _unseen(count: int) -> list[bytes]:
    return [admission_load.review_of(admission_load.share_pod(10_000 + workload)) for workload in range(count)]


def _in_process(bodies: Sequence[bytes], answers: int) -> float:
    """The median time from a review's bytes to its answer's, in microseconds; *bodies* in turn."""
    reviewer = Reviewer(rulebook(Settings(), Tables(), standard_catalog()), Metrics())
    times: list[float] = []
    for body in islice(cycle(bodies), answers):
        began = time.perf_counter()
        reviewer.answer(ReviewPath.MUTATE, body)
        times.append(time.perf_counter() - began)
    times.sort()
    return quantile(times, 0.5) * 1e6


def _cpu_s(pid: int) -> float:
    """CPU seconds of all threads of *pid* and of what it started, to the nanosecond. Source: proc(5), schedstat."""
    found = 0
    for one in (pid, *_children_of(pid)):
        for task in Path(f"/proc/{one}/task").iterdir():
            found += int((task / "schedstat").read_text(encoding="ascii").split()[0])
    return found / 1e9


def _children_of(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


def _rss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


def _missing(plain_port: int, workers: int) -> str:
    """Why not all workers answer yet, or ""."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{plain_port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
    except OSError as e:
        return str(e)
    return "" if f"cardshare_webhook_workers {workers}.0" in text else "workers are missing"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _closed(port: int) -> str:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError as e:
        return str(e)
    return ""
