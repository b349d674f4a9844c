"""The servers that the `admit` benchmark measures, and what /proc says of their processes."""

import argparse
import asyncio
import os
import socket
import ssl
import sys
import urllib.request
from array import array
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from certs.files import ensure
from certs.pair import WantedPair
from sandbox.demo.processes import clean_environ
from tests.bench import stage
from tests.bench.callers import Callers
from tests.support.worlds.processes import Child, Children, until

ROOT = Path(__file__).parents[2]


class Rig:
    """The servers, pinned to one core; the load has the other."""

    def __init__(self, folder: Path, args: argparse.Namespace) -> None:
        self._certs = folder / "certs"
        ensure(self._certs, WantedPair(dns_names=("localhost",), days=30, ca_days=60), datetime.now(UTC))
        self.context = ssl.create_default_context(cafile=self._certs / "ca.crt")
        self._children = Children(folder / "logs")
        self._kubeconfig = folder / "kubeconfig"
        self._args = args
        self.cores = sorted(os.sched_getaffinity(0))

    def __enter__(self) -> "Rig":
        return self

    def __exit__(self, *exc: object) -> None:
        os.sched_setaffinity(0, self.cores)
        self._children.close()

    def cluster(self, nodes: int) -> tuple[Child, Path]:
        """An API server with so many nodes of 8 cards, on our own core, and its kubeconfig."""
        argv = [sys.executable, "-m", "tests.support.servers.playing", "double", str(self._kubeconfig)]
        child = self._children.start("sandbox", argv, env=clean_environ(os.environ), cwd=ROOT)
        until("kubeconfig", lambda: str(not self._kubeconfig.exists() or ""), deadline_s=30, children=[child])
        asyncio.run(_populate(self._kubeconfig, nodes))
        return child, self._kubeconfig

    def webhook(self, cores: Sequence[int], kubeconfig: Path | None = None) -> tuple[Child, int]:
        """A webhook that knows the cluster's cards, if one is named, and its port."""
        port, plain = _free_port(), _free_port()
        inventory = ["--no-inventory"] if kubeconfig is None else ["--kubeconfig", str(kubeconfig)]
        argv = [
            "-m", "webhook", "--listen", f"127.0.0.1:{port}", "--metrics-listen", f"127.0.0.1:{plain}",
            "--cert-dir", str(self._certs), "--drain-s", "0", *inventory,
        ]  # fmt: skip
        child = self._start("webhook", cores, argv, port)
        wanted = "cardshare_webhook_inventory_known " + ("0.0" if kubeconfig is None else "1.0")
        until("webhook", partial(_missing, plain, wanted), deadline_s=30, children=[child])
        return child, port

    def echo(self, cores: Sequence[int]) -> tuple[Child, int]:
        """The bare echo and its port."""
        port = _free_port()
        pair = str(self._certs / "tls.crt"), str(self._certs / "tls.key")
        return self._start("echo", cores, ["-m", "tests.bench.admission_load", str(port), *pair], port), port

    def _start(self, name: str, cores: Sequence[int], argv: list[str], port: int) -> Child:
        os.sched_setaffinity(0, cores)
        try:
            child = self._children.start(name, [sys.executable, *argv], env=clean_environ(os.environ), cwd=ROOT)
            until(name, partial(_closed, port), deadline_s=30, children=[child])
        finally:
            os.sched_setaffinity(0, self.cores[-1:])
        return child

    def stop(self, child: Child) -> None:
        """End it."""
        self._children.stop(child)

    def load(self, port: int, calls: Iterable[bytes], seconds: float = 0.0, reviews: int = 0) -> "array[float]":
        """Latencies of a closed loop, see `Callers.load`."""
        with Callers(port, self.context, self._args.connections) as callers:
            return callers.load(calls, seconds, reviews)


def rss_mib(pid: int) -> float:
    """The memory that *pid* has now."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


async def _populate(kubeconfig: Path, nodes: int) -> None:
    async with stage.connected(kubeconfig) as client:
        await stage.make_nodes(client, nodes)


def _missing(plain_port: int, wanted: str) -> str:
    """Why the figure *wanted* does not show yet, or ""."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{plain_port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
    except OSError as e:
        return str(e)
    return "" if wanted in text else f"no {wanted}"


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
