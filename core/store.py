"""Takes objects of one kind from a watch into any store."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Final, Generic, TypeVar

_T = TypeVar("_T")

_SLICE: Final = 512


class Store(Generic[_T]):
    """The existing objects of one kind: a listed or changed object is put, a missing one is dropped."""

    def __init__(
        self,
        put: Callable[[_T], object],
        drop: Callable[[_T], object],
        known: Callable[[], Iterable[_T]],
        name: Callable[[_T], Hashable],
    ) -> None:
        """Prepare.

        Args:
            put: takes an added or changed object.
            drop: forgets a deleted object.
            known: returns the stored objects.
            name: returns an object's name.
        """
        self.put: Final = put
        self.drop: Final = drop
        self._known: Final = known
        self._name: Final = name

    def replaced(self, objects: Sequence[_T]) -> Iterator[None]:
        """Replace all objects. Yields so that other tasks can run."""
        for at, one in enumerate(objects, start=1):
            self.put(one)
            if at % _SLICE == 0:
                yield
        there = {self._name(one) for one in objects}
        for one in [one for one in self._known() if self._name(one) not in there]:
            self.drop(one)
