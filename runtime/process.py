"""The start of every long-running process: log format, event loop, and limit of open files."""

import asyncio
import json
import logging
import re
import resource
import signal
import sys
from collections.abc import Callable, MutableMapping
from typing import Any, Final

import structlog

from core.errors import ConfigError
from runtime.flags import LogFormat

# More than any port may hold. Some systems allow a billion files, and the kernel would make a table of that size.
_MAX_FILES: Final = 65_536
# For logs, the loop, the plain port, the API server, and new connections while others close.
_OTHER_FILES: Final = 256
_LEAST_CONNECTIONS: Final = 8
# The first keys of a line.
_FIRST: Final = ("timestamp", "level", "msg")
# How uvloop's error ends if a closed connection is written to.
_CLOSED: Final = "; the handler is closed"
_WORD: Final = re.compile(r"[A-Za-z0-9_./:@%+-]+", re.ASCII)
_FIGURES: Final = frozenset({bool, int, float})


def configure_log(form: LogFormat = LogFormat.LOGFMT) -> None:
    """Write one ASCII log line per event to stderr; quoted text cannot control a terminal or break a line.

    Library messages that go through `logging`, from warnings on, have the same format.
    """
    render = structlog.processors.JSONRenderer() if form is LogFormat.JSON else logfmt
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.EventRenamer("msg"),
            plain_values,
            render,
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(handlers=[_ToLog(logging.WARNING)])


def plain_values(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Put time, level and message first, and join the items of collections as ``a, b``.

    Figures and None stay as they are; other values become text. A processor of structlog.
    """
    del logger, method
    first = {key: event.pop(key) for key in _FIRST if key in event}
    return {key: _plain(value) for key, value in (first | dict(event)).items()}


def _plain(value: object) -> object:
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(str, sorted(value) if isinstance(value, set | frozenset) else value))
    return value if value is None or type(value) in _FIGURES else str(value)


def logfmt(logger: object, method: str, event: MutableMapping[str, Any]) -> str:
    """Format the line as ``key=value`` pairs; a structlog processor that runs after `plain_values`."""
    del logger, method
    return " ".join(f"{key}={_logfmt_value(value)}" for key, value in event.items())


def _logfmt_value(value: object) -> str:
    if value is None:
        return ""
    # logfmt writes figures and strings as JSON does, but a plain word needs no quotes.
    return value if isinstance(value, str) and _WORD.fullmatch(value) else json.dumps(value)


class _ToLog(logging.Handler):
    """Passes records of `logging` to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger().log(
            record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info or None
        )


def stop_event() -> asyncio.Event:
    """Return an event of the running loop that SIGTERM and SIGINT set."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


def raise_file_limit() -> int:
    """Raise the limit of open files to the maximum allowed, and return it; the soft limit is usually 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return most
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


def connections_of(wanted: int, files: int) -> int:
    """Return how many connections a port may hold with *files* open files; the process needs some files itself."""
    return max(_LEAST_CONNECTIONS, min(wanted, files - _OTHER_FILES))


def problems(group: BaseExceptionGroup[ConfigError]) -> list[str]:
    """Return every problem of the errors in *group*."""
    found: list[str] = []
    for one in group.exceptions:
        found += problems(one) if isinstance(one, BaseExceptionGroup) else list(one.problems)
    return found


def first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error in *group* that is no group."""
    one = group.exceptions[0]
    return first(one) if isinstance(one, BaseExceptionGroup) else one


def fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the event loop of the extra ``speed`` if it is installed; None = the default loop."""
    try:
        import uvloop  # noqa: PLC0415 (an extra that may be absent)
    except ImportError:
        return None

    def made() -> asyncio.AbstractEventLoop:
        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        loop.set_exception_handler(_unless_of_a_lost_connection)
        return loop

    return made


def _unless_of_a_lost_connection(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log the error in *context*, unless it only says that a connection was lost.

    uvloop's TLS writes what is left, such as the end of a handshake, to a connection that has just been closed. It
    then closes its own side and reports a RuntimeError, where an OSError would be passed over.
    """
    error = context.get("exception")
    if not ("protocol" in context and isinstance(error, RuntimeError) and str(error).endswith(_CLOSED)):
        loop.default_exception_handler(context)
