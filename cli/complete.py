"""Shell completion for ``kubectl cards``.

kubectl runs a plugin's ``kubectl_complete-NAME`` for it. Source: `kubectl plugin --help`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from cli.__main__ import fetch_names
from cli.options import COMMON, FLAGS
from kube.errors import ApiError, CredentialsError, UndecodableError

# Cobra's directive NoFileComp: do not offer file names.
_NO_FILES: Final = ":4"
# A person waits at the prompt.
_DEADLINE_S: Final = 3.0

Names = Callable[[str, Mapping[str, str]], Awaitable[Sequence[str]]]


async def candidates(words: Sequence[str], fetch_names: Names) -> list[str]:
    """Return the completions of the last of *words*, which may be partial.

    Args:
        words: the words after ``kubectl cards``, the last one as typed so far.
        fetch_names: returns the names of "nodes", "namespaces" or "pods" for the given flags.
    """
    *before, begun = words or [""]
    flags, plain = _read(before)
    command = plain[0] if plain else ""
    known = (COMMON | FLAGS.get(command, {})).values()
    valued = next((flag for flag in known if before and before[-1] in flag.names and flag.metavar), None)
    if valued is not None:
        found: Sequence[str] = valued.kind.words
        if "--namespace" in valued.names:
            found = await fetch_names("namespaces", flags)
        elif valued.metavar == "NODE":
            found = await fetch_names("nodes", flags)
    elif begun.startswith("-"):
        found = [name for flag in known for name in flag.names if name.startswith("--")]
    elif not command:
        found = list(FLAGS)
    elif command == "get":
        found = [name for name in await fetch_names("nodes", flags) if name not in plain]
    else:
        found = await fetch_names("pods", flags) if command in ("explain", "why") and len(plain) == 1 else ()
    return sorted(one for one in found if one.startswith(begun))


def _read(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the flags' values by long name, and the words that are neither flag nor value."""
    by_name = {name: flag for of in (COMMON, *FLAGS.values()) for flag in of.values() for name in flag.names}
    values: dict[str, str] = {}
    plain: list[str] = []
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        flag = by_name.get(name)
        if flag is not None and flag.metavar:
            values[flag.names[-1]] = value if equals else next(rest, "")
        elif not word.startswith("-"):
            plain.append(word)
    return values, plain


def main() -> int:
    """Entry point of ``kubectl_complete-cards``: after any failure it prints nothing, because a shell expects names."""

    async def within(words: Sequence[str]) -> list[str]:
        return await asyncio.wait_for(
            candidates(words, lambda kind, flags: fetch_names(kind, flags, os.environ)), _DEADLINE_S
        )

    try:
        found = asyncio.run(within(sys.argv[1:]))
    except (ApiError, CredentialsError, UndecodableError, OSError, ValueError, KeyboardInterrupt):
        found = []
    sys.stdout.write("\n".join([*found, _NO_FILES, ""]))
    return 0
