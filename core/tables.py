"""The device configuration that dialects need besides pod and node, as values.

Each dialect has classes for its own sections in its folder, and only that dialect uses them.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar


class Section:
    """One dialect's part of the configuration, an immutable value; without arguments, it has the plugin's defaults."""

    __slots__ = ()

    @property
    def claimed(self) -> tuple[str, ...]:
        """Resources by which its plugin sells shares of cards, so that they have no other meaning."""
        return ()


_S = TypeVar("_S", bound=Section)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """Device configuration: what dialects need besides pod and node. A new version re-judges everything.

    sections: at most one of each class; a missing one has its defaults. lost: dialects whose own section is unusable.
    foreign: resources that HAMi's configuration names, and no dialect does.
    """

    version: int = 0
    sections: tuple[Section, ...] = ()
    lost: frozenset[str] = frozenset()
    foreign: frozenset[str] = frozenset()

    def of(self, kind: type[_S]) -> _S:
        """Return the section of class *kind*."""
        for one in self.sections:
            if isinstance(one, kind):
                return one
        name: Any = kind
        found: _S = _default(name)
        return found

    def is_claimed(self, resource: str) -> bool:
        """Return whether a plugin sells shares by *resource*, which then has no other meaning."""
        return any(resource in one.claimed for one in self.sections)


@lru_cache(maxsize=64)
def _default(kind: Any) -> Any:
    return kind()
