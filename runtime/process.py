"""What every long-running process begins with: how it writes log lines, its event loop, how many files it may open."""

import asyncio
import json
import logging
import re
import resource
import sys
from collections.abc import Callable, MutableMapping
from typing import Any, Final

import structlog

from runtime.options import LogFormat

# More than any port is to hold; some systems say a billion, and a table of the kernel is made that long.
_MAX_FILES: Final = 65_536
# Logs, the loop, the plain port's connections, those to the API server, and what comes while others are being closed.
_OTHER_FILES: Final = 256
_LEAST_CONNECTIONS: Final = 8
# With which a line begins.
_FIRST: Final = ("timestamp", "level", "msg")
_WORD: Final = re.compile(r"[A-Za-z0-9_./:@%+-]+", re.ASCII)
_FIGURES: Final = frozenset({bool, int, float})


def configure_log(form: LogFormat = LogFormat.LOGFMT) -> None:
    """Write log lines to stderr, one each, in ASCII: whatever they quote, none controls a terminal or ends early.

    What libraries say by way of `logging`, from warnings on, is written alike.
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
    """Time, level and message first; figures and None as they are, all else as text, several as ``a, b``.

    A processor of structlog.
    """
    del logger, method
    first = {key: event.pop(key) for key in _FIRST if key in event}
    return {key: _plain(value) for key, value in (first | dict(event)).items()}


def _plain(value: object) -> object:
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(str, sorted(value) if isinstance(value, set | frozenset) else value))
    return value if value is None or type(value) in _FIGURES else str(value)


def logfmt(logger: object, method: str, event: MutableMapping[str, Any]) -> str:
    """The line ``key=value``; a processor of structlog, behind `plain_values`."""
    del logger, method
    return " ".join(f"{key}={_logfmt_value(value)}" for key, value in event.items())


def _logfmt_value(value: object) -> str:
    if value is None:
        return ""
    # JSON's figures and strings are those of logfmt, which needs no quotes around a plain word.
    return value if isinstance(value, str) and _WORD.fullmatch(value) else json.dumps(value)


class _ToLog(logging.Handler):
    """Hands the records of `logging` to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger().log(
            record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info or None
        )


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
