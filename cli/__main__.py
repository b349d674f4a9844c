"""``kubectl cards get`` and ``kubectl cards explain POD``."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final, assert_never
from urllib.parse import quote

import aiohttp

from cli import cluster, text
from cli.options import Explain, Get, parse
from core.errors import InvalidRequestError
from kube.calls import Calls
from kube.credentials import choose_source
from kube.errors import ApiError, ApiNotFoundError, CredentialsError, UndecodableError
from kube.transport import Transport

_CONTROLLER_DEADLINE_S: Final = 5.0
# What a shell shows of a process that SIGPIPE ended.
_BROKEN_PIPE: Final = 128 + 13


async def run(options: Get | Explain, environ: Mapping[str, str]) -> int:
    """Do what is asked; 0 if it could be answered, 1 if there is no such thing or a server says no."""
    try:
        source = choose_source(kubeconfig=options.kubeconfig, context=options.context, environ=environ)
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
        print(f"kubectl cards: {e}", file=sys.stderr)
        return 1


async def _get(calls: Calls, options: Get) -> int:
    holdings = await cluster.fetch_holdings(calls)
    print(text.cards_table(holdings.ledger, options.nodes))
    for note in holdings.notes:
        print(f"note: {note}")
    return 0 if all(name in holdings.ledger.states for name in options.nodes) else 1


async def _explain(calls: Calls, options: Explain, namespace: str) -> int:
    try:
        pod = await cluster.fetch_pod(calls, namespace, options.pod)
    except ApiNotFoundError:
        print(f"kubectl cards: there is no pod {options.pod} in namespace {namespace}", file=sys.stderr)
        return 1
    if options.controller:
        told = await _ask_controller(options.controller, namespace, options.pod)
        if told:
            print(told)
            return 0
    if pod.node_name:
        holdings = await cluster.fetch_holdings(calls)
        print(text.where(holdings.ledger, pod))
    else:
        print(text.waiting(pod))
    events = text.events_table(await cluster.fetch_events(calls, namespace, options.pod))
    if events:
        print(events)
    return 0


async def _ask_controller(url: str, namespace: str, pod: str) -> str:
    """The controller's full explanation; "" with a note if it cannot be had."""
    path = f"{url}/v1/explain/{quote(namespace)}/{quote(pod)}"
    try:
        timeout = aiohttp.ClientTimeout(total=_CONTROLLER_DEADLINE_S)
        headers = {"Accept": "text/plain"}
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(path, headers=headers) as response:
            body = (await response.text()).strip()
            if response.status == 200:
                return body
            print(f"note: the controller answers {response.status}: {body[:300]}", file=sys.stderr)
    except (aiohttp.ClientError, TimeoutError, ValueError) as e:
        print(f"note: the controller at {url} does not answer: {e or type(e).__name__}", file=sys.stderr)
    return ""


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


if __name__ == "__main__":
    sys.exit(main())
