"""``python -m controller.simulating``: simulates one change and ends; see `controller.simulating.simulator`.

It reads a `SimulationRequest` as JSON, and writes the answer. It sends only lists to the API server.
"""

import os

if __name__ == "__main__":
    # First, so that loading the code does not delay the process that waits for it.
    os.nice(19)

import asyncio
import logging
import resource
import signal
import sys
import time

import msgspec
import structlog

from controller.simulating.changes import UnusableChangeError
from controller.simulating.reading import ExitStatus, SimulationRequest, UnreadableClusterError, read
from controller.simulating.simulate import simulate
from core.catalog import standard_catalog
from core.configuration import decode, merge
from core.view.simulated import Simulated
from kube.credentials import choose_source
from kube.errors import ApiError, CredentialsError
from kube.transport import Transport

# The caller reads the whole answer into memory.
_ANSWER_MAX_BYTES = 16 * 2**20


async def answer(request: SimulationRequest) -> Simulated:
    """Return what would happen.

    Raises:
        UnusableChangeError: the change cannot be made.
        UnreadableClusterError, ApiError, CredentialsError: the cluster cannot be read.
    """
    catalog = standard_catalog()
    parts = {text.source: decode(text, catalog) for text in request.texts}
    found = merge(parts, catalog, request.scheduler_names, request.hami_config)
    source = choose_source(kubeconfig=request.kubeconfig, environ=os.environ)
    async with Transport(source, user_agent="cardshare-simulation") as transport:
        cluster, notes = await read(
            transport,
            found.tables,
            found.settings,
            wall_s=time.time(),
            trusted=frozenset(request.trusted),
            promised=request.promised,
        )
    return await simulate(cluster, request.change, notes)


def main() -> int:
    """Answer once; return an `ExitStatus`."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=SimulationRequest)
    signal.alarm(request.limit_s)
    resource.setrlimit(resource.RLIMIT_DATA, (request.memory_bytes, request.memory_bytes))
    # Notes report what cannot be read.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    status, told = ExitStatus.OK, b""
    try:
        told = msgspec.json.encode(asyncio.run(answer(request)))
        if len(told) > _ANSWER_MAX_BYTES:
            status, told = ExitStatus.TOO_LONG, f"the answer has more than {_ANSWER_MAX_BYTES} bytes".encode()
    except* UnusableChangeError as group:
        status, told = ExitStatus.UNUSABLE, _first(group)
    except* (UnreadableClusterError, ApiError, CredentialsError) as group:
        status, told = ExitStatus.UNREADABLE, _first(group)
    except* MemoryError:
        status = ExitStatus.NO_MEMORY
    sys.stdout.buffer.write(told)
    return status


def _first(group: BaseExceptionGroup[Exception]) -> bytes:
    one = group.exceptions[0]
    return _first(one) if isinstance(one, BaseExceptionGroup) else str(one).encode()


if __name__ == "__main__":
    sys.exit(main())
