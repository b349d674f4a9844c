"""Flags that several processes share."""

import argparse
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from core.errors import quoted

_NAMESPACE: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)
_LOG_FORMAT: Final = "--log-format"
_LOG_FORMAT_VARIABLE: Final = "CARDSHARE_LOG_FORMAT"


class LogFormat(StrEnum):
    """The format of a process's log lines."""

    JSON = "json"
    LOGFMT = "logfmt"


def add_log_format(parser: argparse.ArgumentParser) -> None:
    """Add ``--log-format`` to *parser*."""
    parser.add_argument(
        _LOG_FORMAT,
        metavar=" | ".join(LogFormat),
        help=f"log format (default {LogFormat.JSON}) [{_LOG_FORMAT_VARIABLE}]",
    )


def read_log_format(flags: argparse.Namespace, environ: Mapping[str, str], problems: list[str]) -> LogFormat:
    """Return the log format from *flags* or the environment; an invalid one is added to *problems*."""
    text = flags.log_format if flags.log_format is not None else environ.get(_LOG_FORMAT_VARIABLE) or LogFormat.JSON
    if text in list(LogFormat):
        return LogFormat(text)
    problems.append(
        f"{_LOG_FORMAT} ({_LOG_FORMAT_VARIABLE}): found {quoted(text, 256)}; write {' or '.join(LogFormat)}"
    )
    return LogFormat.JSON


def read_config_map(text: str, flag: str, problems: list[str]) -> str:
    """Return the ConfigMap NAMESPACE/NAME in *text*, or ""; an invalid one is added to *problems* with *flag*."""
    namespace, _, name = text.partition("/")
    if text and not (_NAMESPACE.fullmatch(namespace) and _NAME.fullmatch(name)):
        problems.append(f"{flag}: found {quoted(text, 256)}; write NAMESPACE/NAME")
        return ""
    return text


def read_namespaces(text: str, flag: str, problems: list[str]) -> frozenset[str]:
    """Return the comma-separated namespaces in *text*; invalid ones are added to *problems* with *flag*."""
    found = frozenset(text.replace(",", " ").split())
    problems += [
        f"{flag}: found {quoted(name, 256)}; write names of namespaces, separated by commas"
        for name in sorted(found)
        if not _NAMESPACE.fullmatch(name)
    ]
    return found
