"""``python -m sandbox``: runs the embedded cluster alone until a signal ends it."""

from __future__ import annotations

import argparse
import asyncio
import functools
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import aiohttp
import structlog

from core.errors import quoted
from kube.causes import cause_of
from runtime.listening import cannot_listen
from sandbox.client import ApiStatusError
from sandbox.cluster import ClusterSettings, running_cluster
from sandbox.join import KubeconfigError, WrittenRecords, client_of, joined
from sandbox.nodes.kubelet import AdmissionOrder, KubeletSettings
from sandbox.nodes.nodefile import NodeFileError, NodeSpec, read_text
from sandbox.nodes.records import Records
from sandbox.players.hardware import OptionsError
from sandbox.players.registry import KINDS

_KINDS_TOLD: Final = ", ".join(sorted(KINDS))
_SEED_DIGITS: Final = 18
_DELAY_MAX_S: Final = 3600.0


def _parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sandbox",
        description="Runs a Kubernetes cluster in one process: an API server that kubectl can talk to, kubelets, and "
        "device plugins. Every flag can be given as CARDSHARE_<FLAG> in the environment; a flag wins.",
    )

    def flag(name: str, default: str, text: str, **more: Sequence[str]) -> None:
        variable = "CARDSHARE_" + name.strip("-").replace("-", "_").upper()
        found = environment.get(variable, default)
        parser.add_argument(name, default=found, help=text, **more)  # type: ignore[arg-type]  # only choices is passed

    flag("--nodes", "", "file that lists the nodes (YAML); without it the cluster has none")
    flag("--kubeconfig-out", "", "where to write a kubeconfig of an administrator")
    flag("--join", "", "kubeconfig of an administrator of another cluster: play the nodes there instead of here")
    flag("--records-out", "", "with --join: file to keep what containers received from device plugins (JSON)")
    flag("--listen", "127.0.0.1:0", "address and port to listen on; port 0 takes a free one")
    flag("--players", "all", "device plugins to play: all, none, or kinds separated by commas")
    flag("--admission-order", "created", "order in which kubelets admit waiting pods", choices=list(AdmissionOrder))
    flag("--admission-delay", "0", "seconds that a kubelet waits before it admits a pod")
    flag("--seed", "0", "seed of the shuffled order")
    flag(
        "--authorization", "record", "record: note who asked for what; rbac: refuse it too", choices=["record", "rbac"]
    )
    return parser


def _settings(arguments: argparse.Namespace) -> ClusterSettings:
    host, colon, port = arguments.listen.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"--listen: found {quoted(arguments.listen)}; write an address such as '127.0.0.1:6443'")
    kinds = {kind.strip() for kind in arguments.players.split(",")}
    if arguments.players not in {"all", "none"} and not kinds <= KINDS:
        raise ValueError(f"--players: found {quoted(arguments.players)}; write all, none, or some of {_KINDS_TOLD}")
    players = {"all": None, "none": frozenset[str]()}.get(arguments.players, frozenset(kinds))
    return ClusterSettings(
        host=host.strip("[]") or "127.0.0.1",
        port=int(port),
        enforces_rbac=arguments.authorization == "rbac",
        players=players,
        kubelet=KubeletSettings(
            order=AdmissionOrder(arguments.admission_order),
            seed=_seed(arguments.seed),
            admission_delay_s=_delay(arguments.admission_delay),
        ),
    )


def _seed(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > _SEED_DIGITS:
        raise ValueError(f"--seed: found {quoted(text)}; write a whole number such as '0'")
    return int(text)


def _delay(text: str) -> float:
    try:
        delay_s = float(text)
    except ValueError:
        delay_s = -1.0
    if not 0.0 <= delay_s <= _DELAY_MAX_S:
        raise ValueError(f"--admission-delay: found {quoted(text)}; write seconds from 0 to {_DELAY_MAX_S:g}")
    return delay_s


async def _run(nodes: tuple[NodeSpec, ...], settings: ClusterSettings, kubeconfig_path: str) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with running_cluster(nodes, settings) as cluster:
        if kubeconfig_path:
            await asyncio.to_thread(_write_private, Path(kubeconfig_path), cluster.kubeconfig().encode())
        print(f"sandbox ready: {cluster.url}, {len(nodes)} nodes", flush=True)
        await stop.wait()


async def _play(
    nodes: tuple[NodeSpec, ...], settings: ClusterSettings, kubeconfig_path: str, records_path: str
) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    write = functools.partial(_write_private, Path(records_path))
    records = await asyncio.to_thread(WrittenRecords, write) if records_path else Records()
    async with (
        client_of(Path(kubeconfig_path)) as admin,
        joined(admin, nodes, settings.kubelet or KubeletSettings(), settings.players, records) as kubelet,
        asyncio.TaskGroup() as tasks,
    ):
        playing = tasks.create_task(kubelet.run(), name="kubelet")
        print(f"sandbox joined: {admin.server}, {len(nodes)} nodes", flush=True)
        await stop.wait()
        playing.cancel()


def _write_private(path: Path, text: bytes) -> None:
    """Write *text* atomically and only readable for the owner, because it holds a token."""
    beside = path.with_name(path.name + ".new")
    beside.unlink(missing_ok=True)
    beside.touch(mode=0o600)
    beside.write_bytes(text)
    beside.replace(path)


def main() -> int:
    """Run until SIGTERM or SIGINT; return 2 for an unusable configuration."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    arguments = _parser(os.environ).parse_args()
    try:
        nodes = read_text(Path(arguments.nodes).read_text()) if arguments.nodes else ()
        settings = _settings(arguments)
    except OSError as e:
        print(f"sandbox: --nodes: {_plain(e)}", file=sys.stderr)
        return 2
    except ValueError as e:
        kind = f"{arguments.nodes}: " if isinstance(e, NodeFileError | UnicodeDecodeError) else ""
        print(f"sandbox: {kind}{e}", file=sys.stderr)
        return 2
    if arguments.join:
        return _join(nodes, settings, arguments)
    try:
        asyncio.run(_run(nodes, settings, arguments.kubeconfig_out))
    except OptionsError as e:
        print(f"sandbox: {arguments.nodes}: {e}", file=sys.stderr)
        return 2
    except OSError as e:
        told = f"{e.filename}: {e.strerror}" if e.filename else cannot_listen("--listen", arguments.listen, e)
        print(f"sandbox: {told}", file=sys.stderr)
        return 2
    return 0


def _plain(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{(error.strerror or str(error)).lower()}"


def _join(nodes: tuple[NodeSpec, ...], settings: ClusterSettings, arguments: argparse.Namespace) -> int:
    try:
        asyncio.run(_play(nodes, settings, arguments.join, arguments.records_out))
    except OptionsError as e:
        print(f"sandbox: {arguments.nodes}: {e}", file=sys.stderr)
        return 2
    except KubeconfigError as e:
        print(f"sandbox: --join: {e}", file=sys.stderr)
        return 2
    except aiohttp.ClientError as e:
        print(f"sandbox: --join {arguments.join}: {cause_of(e)}; see whether that server runs", file=sys.stderr)
        return 1
    except OSError as e:
        print(f"sandbox: --join: {_plain(e)}", file=sys.stderr)
        return 2
    except ApiStatusError as e:
        print(f"sandbox: --join {arguments.join}: the API server refuses: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
