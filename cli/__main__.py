"""``kubectl cards get`` and ``kubectl cards explain POD``."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, assert_never

import msgspec

from cli import cluster, controller, text, view
from cli.options import Controller, Explain, Get, parse
from core.errors import InvalidRequestError, escaped
from kube.calls import Calls
from kube.credentials import choose_source, mistake_in
from kube.errors import ApiError, ApiNotFoundError, CredentialsError, UndecodableError
from kube.transport import Transport

_OK, _NOT_TOLD, _WRONG = 0, 1, 2
# What a shell shows of a process that SIGPIPE or SIGINT ended.
_BROKEN_PIPE: Final = 128 + 13
_INTERRUPTED: Final = 128 + 2


async def run(options: Get | Explain, environ: Mapping[str, str]) -> int:
    """Do what is asked.

    Returns:
        0 if it could be answered, 1 if there is no such thing or a server does not tell, 2 for a wrong kubeconfig.
    """
    kubeconfig = options.kubeconfig or _kubectls(environ)
    if mistake := mistake_in(kubeconfig=kubeconfig, context=options.context, environ=environ):
        return _failed(mistake, _WRONG)
    try:
        source = choose_source(kubeconfig=kubeconfig, context=options.context, environ=environ)
        async with Transport(source, user_agent="kubectl-cards") as transport:
            match options:
                case Get():
                    return await _get(Calls(transport), options)
                case Explain():
                    namespace = options.namespace or transport.namespace or "default"
                    return await _explain(Calls(transport), options, namespace)
                case _:
                    assert_never(options)
    except (ApiError, CredentialsError, UndecodableError, InvalidRequestError) as e:
        return _failed(str(e), _NOT_TOLD)


def _kubectls(environ: Mapping[str, str]) -> str:
    """The kubeconfig that kubectl would take of itself; "" if there is none, and it would go by the pod's account."""
    if named := environ.get("KUBECONFIG", ""):
        return named
    home = environ.get("HOME", "")
    usual = Path(home, ".kube", "config")
    return str(usual) if home and usual.is_file() else ""


async def _get(calls: Calls, options: Get) -> int:
    holdings = await cluster.fetch_holdings(calls)
    found = view.cards_of(holdings.ledger, options.nodes, holdings.notes)
    print(_json(found) if options.as_json else text.cards_table(found, all_nodes=not options.nodes))
    return _NOT_TOLD if found.missing else _OK


async def _explain(calls: Calls, options: Explain, namespace: str) -> int:
    try:
        pod = await cluster.fetch_pod(calls, namespace, options.pod)
    except ApiNotFoundError:
        return _failed(f"there is no pod {options.pod} in namespace {namespace}", _NOT_TOLD)
    told = await _ask_controller(options.controller, namespace, options.pod)
    if told is not None and not options.as_json:
        print(text.answer(pod.key, told))
        return _OK
    ledger = (await cluster.fetch_holdings(calls)).ledger if pod.node_name else None
    events = await cluster.fetch_events(calls, namespace, options.pod)
    found = view.explained(pod, events, ledger, told)
    print(_json(found) if options.as_json else text.explanation(found))
    return _OK


async def _ask_controller(named: Controller | None, namespace: str, pod: str) -> Mapping[str, Any] | None:
    """The controller's answer; None, with a note, if it cannot be had: what the API tells is an answer too."""
    if named is None:
        return None
    try:
        return await controller.ask(named, namespace, pod)
    except controller.NoAnswerError as e:
        print(f"note: {escaped(str(e))}", file=sys.stderr)
        return None


def _json(found: object) -> str:
    # ASCII alone: what a device plugin wrote is not to reach a terminal from here either.
    return json.dumps(msgspec.to_builtins(found), indent=2)


def _failed(why: str, code: int) -> int:
    print(f"kubectl cards: {escaped(why)}", file=sys.stderr)
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of ``kubectl-cards``."""
    try:
        try:
            options = parse(sys.argv[1:] if argv is None else argv, os.environ)
            return asyncio.run(run(options, os.environ))
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads (head, less) has seen enough. What is still buffered must not fail once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except KeyboardInterrupt:
        return _INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
