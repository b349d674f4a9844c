"""Flags that more than one process takes, read alike."""

import re
from typing import Final

from core.errors import quoted

_NAMESPACE: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)


def read_namespaces(text: str, flag: str, problems: list[str]) -> frozenset[str]:
    """The namespaces that *text* lists, separated by commas; what is none is added to *problems* of *flag*."""
    found = frozenset(text.replace(",", " ").split())
    problems += [
        f"{flag}: found {quoted(name, 256)}; write names of namespaces, separated by commas"
        for name in sorted(found)
        if not _NAMESPACE.fullmatch(name)
    ]
    return found
