"""What ``kubectl cards`` is asked to do, read from the command line; the environment is handed in."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

CONTROLLER_VARIABLE = "CARDSHARE_CONTROLLER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Get:
    """Show the cards of *nodes* (all, if none is named) and who holds what."""

    nodes: tuple[str, ...]
    kubeconfig: str
    context: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explain:
    """Say where a pod stands; namespace "" is that of the kubeconfig; controller is a URL or ""."""

    pod: str
    namespace: str
    controller: str
    kubeconfig: str
    context: str


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Get | Explain:
    """Read the command line.

    Raises:
        SystemExit: ``--help``, or what cannot be understood.
    """
    found = _parser().parse_args(argv)
    if found.command == "get":
        return Get(nodes=tuple(found.nodes), kubeconfig=found.kubeconfig, context=found.context)
    return Explain(
        pod=found.pod,
        namespace=found.namespace,
        controller=(found.controller or environ.get(CONTROLLER_VARIABLE, "")).rstrip("/"),
        kubeconfig=found.kubeconfig,
        context=found.context,
    )


def _parser() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--kubeconfig", default="", help="kubeconfig file; default as kubectl: KUBECONFIG")
    shared.add_argument("--context", default="", help="a context of it other than the current one")
    parser = argparse.ArgumentParser(
        prog="kubectl cards", description="The GPUs and NPUs of the cluster, who holds them, and why a pod waits."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    get = commands.add_parser("get", parents=[shared], help="cards, how much of each is in use, and by whom")
    get.add_argument("nodes", nargs="*", metavar="NODE", help="only these nodes")
    explain = commands.add_parser("explain", parents=[shared], help="where a pod was put, or why it waits")
    explain.add_argument("pod", metavar="POD", help="name of the pod")
    explain.add_argument("-n", "--namespace", default="", help="its namespace; default that of the kubeconfig")
    explain.add_argument(
        "--controller",
        default="",
        metavar="URL",
        help=f"the controller's address, for the full reasons node by node ({CONTROLLER_VARIABLE})",
    )
    return parser
