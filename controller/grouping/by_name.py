"""Objects of one kind by their names, as a watch shows them."""

from collections.abc import Callable, Iterable, Set
from typing import Final, Protocol, TypeVar


class Named(Protocol):
    """An object with a name."""

    @property
    def name(self) -> str:
        """Its name."""


_N = TypeVar("_N", bound=Named)


class ByName(dict[str, _N]):
    """The objects of one kind that exist."""

    def __init__(self, changed: Callable[[Set[str]], None]) -> None:
        """Begin with none; *changed*: called with the names of objects that were added, changed or removed."""
        super().__init__()
        self._changed: Final = changed

    def replaced(self, objects: Iterable[_N]) -> None:
        """Replace all objects."""
        now = {one.name: one for one in objects}
        names = {name for name in self.keys() | now.keys() if self.get(name) != now.get(name)}
        self.clear()
        self.update(now)
        if names:
            self._changed(names)

    def put(self, found: _N) -> None:
        """Add or replace one object."""
        if self.get(found.name) != found:
            self[found.name] = found
            self._changed({found.name})

    def gone(self, found: _N) -> None:
        """Remove one object."""
        if self.pop(found.name, None) is not None:
            self._changed({found.name})
