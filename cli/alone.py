"""Lets one ``kubectl cards apply`` at a time move pods in a cluster, by a Lease in the namespace kube-system."""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from cli.cluster import Reads
from kube.lease import Lease, LeaseLostError, Timing, quoted_identity

# The same for all who may apply plans, whatever the namespace of cardshare.
NAMESPACE: Final = "kube-system"
NAME: Final = "cardshare-apply"
TIMING: Final = Timing()
_LOOK_S: Final = 0.05
_RELEASE_S: Final = 2.0


class NotAloneError(Exception):
    """Another process moves pods, or may; the text is one line with the reason."""


@asynccontextmanager
async def alone(transport: Reads, say: Callable[[str], None]) -> AsyncIterator[Callable[[], bool]]:
    """Hold the Lease until the end of the block, which is cancelled if it is lost.

    The block gets a function that returns whether no other process can hold it now: after the machine has slept, or a
    long search, the block may run before the loss is noticed.

    Args:
        transport: connection to the API server.
        say: prints a line.

    Raises:
        NotAloneError: another process holds it, it cannot be read or written, or it was lost.
    """
    identity = f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4().hex[:6]}"
    lease = Lease(transport, namespace=NAMESPACE, name=NAME, identity=identity, timing=TIMING)
    await _acquire(lease, say)
    body, lost = asyncio.current_task(), list[LeaseLostError]()

    async def keep() -> None:
        try:
            await lease.keep()
        except LeaseLostError as e:
            lost.append(e)
            if body is not None:
                body.cancel()

    keeping = asyncio.create_task(keep(), name="keep the Lease")
    try:
        yield lambda: lease.left_s() > 0.0
    except asyncio.CancelledError:
        if body is None or not lost:
            raise
        body.uncancel()
        raise NotAloneError(f"another kubectl cards apply may run: {lost[0]}") from lost[0]
    finally:
        keeping.cancel()
        await lease.release(_RELEASE_S)


async def _acquire(lease: Lease, say: Callable[[str], None]) -> None:
    acquiring = asyncio.create_task(lease.acquire())
    has_said = False
    try:
        # A holder that was killed counts for this long.
        async with asyncio.timeout(TIMING.duration_s + TIMING.retry_s):
            while not acquiring.done():
                await asyncio.wait([acquiring], timeout=_LOOK_S)
                if lease.is_forbidden:
                    break
                if lease.holder not in ("", lease.identity) and not has_said:
                    has_said = True
                    say(f"waiting for another kubectl cards apply: {quoted_identity(lease.holder)}")
    except TimeoutError:
        pass
    finally:
        acquiring.cancel()
    if acquiring.done() and not acquiring.cancelled():
        return
    if lease.problem:
        raise NotAloneError(f"Lease {lease.name} keeps plans from being applied at once, and: {lease.problem}")
    raise NotAloneError(f"another kubectl cards apply runs: {quoted_identity(lease.holder)}; wait until it has ended")
