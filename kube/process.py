"""What every long-running process of ours begins with: how it writes log lines, and its event loop."""

import asyncio
import sys
from collections.abc import Callable

import structlog


def configure_log() -> None:
    """Write log lines as ``key=value`` to stderr."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"]),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The loop of the extra ``speed`` where that is installed; None stands for the library's own."""
    try:
        import uvloop  # noqa: PLC0415 (an extra that may be absent)
    except ImportError:
        return None
    return uvloop.new_event_loop
