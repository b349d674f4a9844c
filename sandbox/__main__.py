"""``python -m sandbox``: runs the embedded cluster alone until a signal ends it."""

from __future__ import annotations

import argparse
import asyncio
import functools
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import structlog

from core.errors import ConfigError
from kube.exchange import cause_of
from runtime import flags
from runtime.flags import flag
from runtime.listening import Address, cannot_listen
from runtime.process import stop_event
from sandbox.client import ApiStatusError
from sandbox.cluster import (
    ClusterSettings,
    KubeconfigError,
    WrittenRecords,
    client_of,
    joined,
    running_cluster,
    write_private,
)
from sandbox.nodes.kubelet import AdmissionOrder, KubeletSettings
from sandbox.nodes.nodefile import NodeFileError, NodeSpec, read_text
from sandbox.nodes.plugin_port import Records
from sandbox.players.player import OptionsError
from sandbox.players.registry import KINDS


def _are_players(text: str) -> bool:
    return text in {"all", "none"} or {kind.strip() for kind in text.split(",")} <= KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The flags."""

    nodes: str = flag(flags.FILE, "file that lists the nodes (YAML); without it the cluster has none")
    kubeconfig_out: str = flag(flags.FILE, "where to write a kubeconfig of an administrator")
    join: str = flag(flags.FILE, "kubeconfig of an administrator of another cluster: play the nodes there")
    records_out: str = flag(flags.FILE, "with --join: keeps what containers received from device plugins (JSON)")
    listen: Address = flag(flags.ADDRESS, "address and port to listen on; port 0 takes a free one", "127.0.0.1:0")
    players: str = flag(
        flags.judged(_are_players, f"write all, none, or some of {', '.join(sorted(KINDS))}", "KINDS"),
        "device plugins to play: all, none, or kinds separated by commas",
        "all",
    )
    admission_order: AdmissionOrder = flag(
        flags.one_of(AdmissionOrder), "order in which kubelets admit waiting pods", "created"
    )
    admission_delay: float = flag(flags.seconds(0, 3600), "how long a kubelet waits before it admits a pod", "0")
    seed: int = flag(flags.whole(0, 10**18), "seed of the shuffled order", "0")
    authorization: str = flag(
        flags.one_of(("record", "rbac")), "record: note who asked for what; rbac: refuse it too", "record"
    )

    @property
    def settings(self) -> ClusterSettings:
        players = frozenset(kind.strip() for kind in self.players.split(","))
        return ClusterSettings(
            host=self.listen.host or "127.0.0.1",
            port=self.listen.port,
            enforces_rbac=self.authorization == "rbac",
            players={"all": None, "none": frozenset[str]()}.get(self.players, players),
            kubelet=KubeletSettings(order=self.admission_order, seed=self.seed, admission_delay_s=self.admission_delay),
        )


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Options:
    """Read the command line and the environment; see `runtime.flags.parse`."""
    parser = argparse.ArgumentParser(
        prog="python -m sandbox",
        description="Runs a Kubernetes cluster in one process: an API server that kubectl can talk to, kubelets, and "
        "device plugins.",
    )
    return flags.parse(parser, Options, argv, environ)


async def _run(nodes: tuple[NodeSpec, ...], settings: ClusterSettings, kubeconfig_path: str) -> None:
    stop = stop_event()
    async with running_cluster(nodes, settings) as cluster:
        if kubeconfig_path:
            await asyncio.to_thread(write_private, Path(kubeconfig_path), cluster.kubeconfig().encode())
        print(f"sandbox ready: {cluster.url}, {len(nodes)} nodes", flush=True)
        await stop.wait()


async def _play(
    nodes: tuple[NodeSpec, ...], settings: ClusterSettings, kubeconfig_path: str, records_path: str
) -> None:
    stop = stop_event()
    write = functools.partial(write_private, Path(records_path))
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


def main() -> int:
    """Run until SIGTERM or SIGINT; return 2 for an unusable configuration, 1 if the server to join does not answer."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        arguments = parse(sys.argv[1:], os.environ)
    except ConfigError as e:
        return _failed("\nsandbox: ".join(e.problems))
    try:
        nodes = read_text(Path(arguments.nodes).read_text()) if arguments.nodes else ()
    except OSError as e:
        return _failed(f"--nodes: {_plain(e)}")
    except ValueError as e:
        kind = f"{arguments.nodes}: " if isinstance(e, NodeFileError | UnicodeDecodeError) else ""
        return _failed(f"{kind}{e}")
    try:
        if arguments.join:
            asyncio.run(_play(nodes, arguments.settings, arguments.join, arguments.records_out))
        else:
            asyncio.run(_run(nodes, arguments.settings, arguments.kubeconfig_out))
    except OptionsError as e:
        return _failed(f"{arguments.nodes}: {e}")
    except KubeconfigError as e:
        return _failed(f"--join: {e}")
    except aiohttp.ClientError as e:
        return _failed(f"--join {arguments.join}: {cause_of(e)}; see whether that server runs", 1)
    except ApiStatusError as e:
        return _failed(f"--join {arguments.join}: the API server refuses: {e}", 1)
    except OSError as e:
        if arguments.join:
            return _failed(f"--join: {_plain(e)}")
        return _failed(f"{e.filename}: {e.strerror}" if e.filename else cannot_listen("--listen", arguments.listen, e))
    return 0


def _failed(why: str, code: int = 2) -> int:
    print(f"sandbox: {why}", file=sys.stderr)
    return code


def _plain(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{(error.strerror or str(error)).lower()}"


if __name__ == "__main__":
    sys.exit(main())
