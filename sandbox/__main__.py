"""``python -m sandbox``: the embedded cluster by itself, until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import functools
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from core.errors import quoted
from kube.listening import cannot_listen
from sandbox.client import ApiStatusError
from sandbox.cluster import ClusterSettings, running_cluster
from sandbox.join import KubeconfigError, WrittenRecords, client_of, joined
from sandbox.nodes.kubelet import AdmissionOrder, KubeletSettings
from sandbox.nodes.nodefile import NodeFileError, NodeSpec, read_text
from sandbox.nodes.records import Records
from sandbox.players.hardware import OptionsError


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
    players = {"all": None, "none": frozenset[str]()}.get(
        arguments.players, frozenset(kind.strip() for kind in arguments.players.split(","))
    )
    return ClusterSettings(
        host=host.strip("[]") or "127.0.0.1",
        port=int(port),
        enforces_rbac=arguments.authorization == "rbac",
        players=players,
        kubelet=KubeletSettings(
            order=AdmissionOrder(arguments.admission_order),
            seed=int(arguments.seed),
            admission_delay_s=float(arguments.admission_delay),
        ),
    )


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
    """Write *text* at once and for the owner alone: it holds a token."""
    beside = path.with_name(path.name + ".new")
    beside.unlink(missing_ok=True)
    beside.touch(mode=0o600)
    beside.write_bytes(text)
    beside.replace(path)


def main() -> int:
    """Run until SIGTERM or SIGINT; 2 for a configuration that cannot be used."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    arguments = _parser(os.environ).parse_args()
    try:
        nodes = read_text(Path(arguments.nodes).read_text()) if arguments.nodes else ()
        settings = _settings(arguments)
    except (OSError, ValueError) as e:
        kind = f"{arguments.nodes}: " if isinstance(e, NodeFileError) else ""
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


def _join(nodes: tuple[NodeSpec, ...], settings: ClusterSettings, arguments: argparse.Namespace) -> int:
    try:
        asyncio.run(_play(nodes, settings, arguments.join, arguments.records_out))
    except OptionsError as e:
        print(f"sandbox: {arguments.nodes}: {e}", file=sys.stderr)
        return 2
    except (KubeconfigError, OSError) as e:
        print(f"sandbox: --join: {e}", file=sys.stderr)
        return 2
    except ApiStatusError as e:
        print(f"sandbox: --join {arguments.join}: the API server refuses: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
