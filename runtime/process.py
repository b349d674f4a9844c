"""What every long-running process begins with: how it writes log lines, its event loop, how many files it may open."""

import asyncio
import resource
import sys
from collections.abc import Callable, MutableMapping
from typing import Any, Final

import structlog

# More than any port is to hold; some systems say a billion, and a table of the kernel is made that long.
_MAX_FILES: Final = 65_536
# Logs, the loop, the plain port's connections, those to the API server, and what comes while others are being closed.
_OTHER_FILES: Final = 256
_LEAST_CONNECTIONS: Final = 8


def configure_log() -> None:
    """Write log lines as ``key=value`` to stderr."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            plain_lists,
            structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"]),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def plain_lists(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Values that are several as people write them, ``a, b``; a processor of structlog."""
    del logger, method
    for key, value in event.items():
        if isinstance(value, list | tuple | set | frozenset):
            event[key] = ", ".join(map(str, sorted(value) if isinstance(value, set | frozenset) else value))
    return event


def raise_file_limit() -> int:
    """Take as many files as the process may have, and say how many: a soft limit is usually 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return most
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


def connections_of(wanted: int, files: int) -> int:
    """How many connections a port may hold where the process has *files*, the rest of it needing some too."""
    return max(_LEAST_CONNECTIONS, min(wanted, files - _OTHER_FILES))


def fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The loop of the extra ``speed`` where that is installed; None stands for the library's own."""
    try:
        import uvloop  # noqa: PLC0415 (an extra that may be absent)
    except ImportError:
        return None
    return uvloop.new_event_loop
