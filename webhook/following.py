"""Follows objects of the API server while the webhook runs. Admission never depends on it."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Final

import structlog

from kube.credentials import choose_source
from kube.errors import CredentialsError
from kube.transport import Transport
from runtime.backoff import Backoff

_log: Final = structlog.get_logger()

_AGAIN_S: Final = 30.0


async def follow_once(
    what: str, follow: Callable[[Transport], Awaitable[None]], *, kubeconfig: str, environ: Mapping[str, str]
) -> None:
    """Run *follow* once until it returns or fails, then wait before the next try; log a failure.

    Args:
        what: plural noun for the log.
        follow: follows the objects through the given connection to the API server.
        kubeconfig: value of the flag, or "".
        environ: environment that may name the API server, see `kube.credentials.choose_source`.
    """
    try:
        async with AsyncExitStack() as stack:
            await follow(await _connected(stack, kubeconfig, environ))
    except Exception:  # noqa: BLE001 (the outermost frame of what admission must never depend on)
        _log.exception("watch failed; it is restarted", what=what)
        await asyncio.sleep(_AGAIN_S)


async def _connected(stack: AsyncExitStack, kubeconfig: str, environ: Mapping[str, str]) -> Transport:
    """Return a connection to the API server, and wait until there is one; closing *stack* closes it."""
    backoff, told = Backoff(first_s=1.0, cap_s=_AGAIN_S, jitter=random.random), ""
    while True:
        try:
            source = choose_source(kubeconfig=kubeconfig, environ=environ)
            return await stack.enter_async_context(Transport(source, user_agent="cardshare-webhook"))
        except CredentialsError as e:
            if str(e) != told:
                told = str(e)
                _log.warning("no access to the cluster; give credentials, or --no-inventory", error=told)
            await asyncio.sleep(backoff.next_s())
