"""A simulation that the controller does in a full cluster: its time and memory, and what decisions notice of it.

N nodes x 8 cards and P pods bound and served, on the API server double. ``POST /v1/simulate`` drains one node and adds
one, while pods are created at a steady pace; before that, the same pace without a simulation.

  simulation_s              until the answer
  child_cpu_s               of the child process that simulates
  child_peak_rss_mib        of it
  late_before, late_during  how often in a second the controller's event loop was more than 10 ms late
  p99_before_ms, p99_during_ms  from the creation of a pod until it is seen bound
"""

import argparse
import asyncio
import json
import re
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml

from certs.files import ensure
from certs.pair import WantedPair
from core.wire.changes import Change, encode_change
from sandbox.api.users import API_AUDIENCE
from sandbox.demo.processes import free_port
from tests.bench import stage as staging
from tests.bench.actors import Controller, Plugins, controlling, playing
from tests.bench.results import Result, quantile
from tests.bench.stage import RefusedError, Stage, encode
from tests.bench.start import bound_pod
from tests.support.worlds.processes import cpu_s_of

_LIMIT_S: Final = 300.0
_PACE_S: Final = 0.1
_LATE: Final = re.compile(r'^cardshare_loop_lag_seconds_bucket\{le="(0\.01|\+Inf)"\} (\S+)$', re.MULTILINE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--nodes", type=int, default=5000, help="nodes of 8 cards each (default 5000)")
    parser.add_argument("--pods", type=int, default=20_000, help="bound pods (default 20000)")
    parser.add_argument("--seconds", type=float, default=10.0, help="at that pace before it (default 10)")


def run(args: argparse.Namespace) -> Iterator[Result]:
    """Measure and yield the figures that the module's text lists."""
    params = {key: getattr(args, key) for key in ("nodes", "pods")}
    for metric, value, unit in staging.run_fast(lambda: measure(args)):
        yield Result(metric=metric, value=round(value, 2), unit=unit, params=params)


async def measure(args: argparse.Namespace) -> list[tuple[str, float, str]]:
    """The figures that the module's text lists: name, value, unit."""
    async with staging.stage(real=False) as stage:
        await staging.make_nodes(stage.client, args.nodes)
        await staging.make_pods(stage.client, (bound_pod(i, args.nodes) for i in range(args.pods)))
        certs, port = stage.logs / "certs", free_port()
        await asyncio.to_thread(
            ensure, certs, WantedPair(dns_names=("localhost",), days=2, ca_days=9), datetime.now(UTC)
        )
        flags = (f"--preview-listen=127.0.0.1:{port}", f"--cert-dir={certs}", f"--audience={API_AUDIENCE}")
        async with (
            playing(stage) as plugins,
            controlling(stage, policy="binpack", within_s=_LIMIT_S, flags=flags) as controller,
        ):
            await staging.until(partial(_listens, port), "the port", controller.child, within_s=_LIMIT_S)
            await asyncio.sleep(args.seconds / 5)  # until what begins with the process is over
            first = _Paced(stage, plugins, "before")
            before = await first.while_running(asyncio.sleep(args.seconds), controller)
            asked = asyncio.create_task(_ask(stage, port, certs / "ca.crt"))
            watched = asyncio.create_task(_child(controller.child.pid))
            second = _Paced(stage, plugins, "during")
            during = await second.while_running(asked, controller)
            watched.cancel()
            cpu_s, rss_mib = await watched
    return [
        ("simulation_s", await asked, "s"),
        ("child_cpu_s", cpu_s, "s"),
        ("child_peak_rss_mib", rss_mib, "MiB"),
        ("late_before", before, "1/s"),
        ("late_during", during, "1/s"),
        ("p99_before_ms", quantile(sorted(first.took_s), 0.99) * 1000, "ms"),
        ("p99_during_ms", quantile(sorted(second.took_s), 0.99) * 1000, "ms"),
    ]


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False


class _Paced:
    """Pods that are created at a steady pace, and how long each takes until it is seen bound."""

    def __init__(self, stage: Stage, plugins: Plugins, name: str) -> None:
        self.took_s: list[float] = []
        self._stage = stage
        self._plugins = plugins
        self._name = name

    async def while_running(self, work: Any, controller: Controller) -> float:
        """Create pods until *work* is done and all are bound; how often in a second the controller's loop was late."""
        task, began_s, late = asyncio.ensure_future(work), time.monotonic(), await _late(controller)
        made: dict[str, float] = {}
        while not task.done():
            name = f"{self._name}-{len(made):05d}"
            made[name] = time.monotonic()
            await self._stage.client.send("POST", staging.PODS, encode(staging.pod(name, len(made))))
            await asyncio.sleep(_PACE_S)
        took_s = time.monotonic() - began_s
        late = await _late(controller) - late
        end_s = time.monotonic() + _LIMIT_S
        while len(self.took_s) < len(made):
            for one in self._plugins.read():
                if one.what == "bound" and one.pod in made:
                    self.took_s.append(one.at_s - made[one.pod])
            if time.monotonic() > end_s:
                raise RefusedError(f"{len(self.took_s)} of {len(made)} pods were placed")
            await asyncio.sleep(0.02)
        return late / took_s


async def _late(controller: Controller) -> float:
    found = dict(_LATE.findall(await staging.text_of(f"{controller.url}/metrics")))
    return float(found["+Inf"]) - float(found["0.01"])


async def _ask(stage: Stage, port: int, authorities: Path) -> float:
    """Simulate, and return how long that took, in seconds."""
    config = yaml.safe_load(await asyncio.to_thread(stage.kubeconfig.read_text))
    token = config["users"][0]["user"]["token"]
    context = await asyncio.to_thread(ssl.create_default_context, cafile=str(authorities))
    change = Change(drain=(staging.node_name(0),), add_nodes=1, like=staging.node_name(1))
    began_s = time.monotonic()
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"https://127.0.0.1:{port}/v1/simulate",
            data=encode_change(change),
            headers={"Authorization": f"Bearer {token}"},
            ssl=context,
            server_hostname="localhost",
        ) as answer,
    ):
        told = await answer.read()
        if answer.status != 200 or not json.loads(told)["pods"]:
            raise RefusedError(f"simulate: {answer.status} {told[:300].decode(errors='replace')}")
    return time.monotonic() - began_s


async def _child(controller: int) -> tuple[float, float]:
    """CPU seconds and peak MiB of the controller's child, as last seen before this is cancelled."""
    cpu_s = rss_mib = 0.0
    with suppress(asyncio.CancelledError):
        while True:
            cpu_s, rss_mib = _usage(controller) or (cpu_s, rss_mib)
            await asyncio.sleep(0.05)
    return cpu_s, rss_mib


def _usage(controller: int) -> tuple[float, float] | None:
    """CPU seconds and peak MiB of the first child; None if there is none."""
    for pid in _children(controller):
        with suppress(OSError):
            peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
            if peak is not None:
                return cpu_s_of(int(pid)), int(peak[1]) / 1024
    return None


def _children(pid: int) -> list[str]:
    """The processes that the threads of a process have started. Source: proc_pid_task(5)."""
    found: list[str] = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it ended
            found += (thread / "children").read_text(encoding="ascii").split()
    return found
