"""What ``kubectl cards`` is asked to do, read from the command line; the environment is handed in."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from core.errors import quoted

_URL: Final = re.compile(r"https://[A-Za-z0-9.\[\]:-]{1,253}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Get:
    """Show the cards of *nodes* (all, if none is named) and who holds what."""

    nodes: tuple[str, ...]
    kubeconfig: str
    context: str
    as_json: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """Where the controller answers, what proves it, and what to show it.

    ca_file: PEM, "" = what the system trusts. server_name: in its certificate, "" = the host of the URL.
    """

    url: str
    token_file: str = ""
    ca_file: str = ""
    server_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explain:
    """Say where a pod stands; namespace "" is that of the kubeconfig; controller None = only what the API tells."""

    pod: str
    namespace: str
    controller: Controller | None
    kubeconfig: str
    context: str
    as_json: bool = False


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Get | Explain:
    """Read the command line.

    Raises:
        SystemExit: ``--help``, or what cannot be understood.
    """
    parser = _parser()
    found = parser.parse_args(argv)
    command: argparse.ArgumentParser = found.parser
    as_json = found.output == "json"
    if found.command == "get":
        if "" in found.nodes:
            command.error("NODE: found ''; write the name of a node, or none for all nodes")
        return Get(nodes=tuple(found.nodes), kubeconfig=found.kubeconfig, context=found.context, as_json=as_json)

    def text(flag: str) -> str:
        return str(getattr(found, flag) or environ.get(f"CARDSHARE_{flag.upper()}", ""))

    url = text("controller").rstrip("/")
    # A token is not to be shown to whoever listens on the way.
    if url and not _URL.fullmatch(url):
        command.error(f"--controller: found {quoted(url, 256)}; write https://host:port")
    for flag in ("token_file", "controller_ca", "tls_server_name") if not url else ():
        if getattr(found, flag):
            command.error(f"--{flag.replace('_', '-')}: of no use without --controller; give it too")
    if not found.pod:
        command.error("POD: found ''; write the name of a pod")
    return Explain(
        pod=found.pod,
        namespace=found.namespace,
        controller=Controller(
            url=url,
            token_file=text("token_file"),
            ca_file=text("controller_ca"),
            server_name=text("tls_server_name"),
        )
        if url
        else None,
        kubeconfig=found.kubeconfig,
        context=found.context,
        as_json=as_json,
    )


def _parser() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "--kubeconfig", default="", help="kubeconfig file; default as kubectl: KUBECONFIG, ~/.kube/config"
    )
    shared.add_argument("--context", default="", help="a context of it other than the current one")
    shared.add_argument("-o", "--output", choices=("text", "json"), default="text", help="json: for scripts")
    parser = argparse.ArgumentParser(
        prog="kubectl cards",
        description="The GPUs and NPUs of the cluster, who holds them, and why a pod waits.",
        epilog="Exit status: 0 answered; 1 there is no such pod or node, or the API server does not tell; "
        "2 the command or the kubeconfig is wrong.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    get = commands.add_parser("get", parents=[shared], help="cards, how much of each is in use, and by whom")
    get.set_defaults(parser=get)
    get.add_argument("nodes", nargs="*", metavar="NODE", help="only these nodes")
    explain = commands.add_parser(
        "explain",
        parents=[shared],
        help="where a pod was put, or why it waits",
        epilog="Every flag of the controller's has a variable: CARDSHARE_CONTROLLER, CARDSHARE_TOKEN_FILE, "
        "CARDSHARE_CONTROLLER_CA, CARDSHARE_TLS_SERVER_NAME.",
    )
    explain.set_defaults(parser=explain)
    explain.add_argument("pod", metavar="POD", help="name of the pod")
    explain.add_argument("-n", "--namespace", default="", help="its namespace; default that of the kubeconfig")
    for flag, metavar, told in (
        ("--controller", "URL", "https://host:port of the controller's --preview-listen, for the reasons node by node"),
        ("--token-file", "FILE", "token to show it: kubectl create token --audience cardshare-controller"),
        ("--controller-ca", "FILE", "PEM that proves it; what the system trusts by default"),
        ("--tls-server-name", "NAME", "name in its certificate, where the URL has another, as for a port-forward"),
    ):
        explain.add_argument(flag, default="", metavar=metavar, help=told)
    return parser
