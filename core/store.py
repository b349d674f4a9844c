"""How objects of one kind are taken from a watch, whoever keeps them."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Final, Generic, TypeVar

_T = TypeVar("_T")

_SLICE: Final = 512


class Store(Generic[_T]):
    """Those of one kind that exist: what is listed and what changes is put or dropped, one by one."""

    def __init__(
        self,
        put: Callable[[_T], object],
        drop: Callable[[_T], object],
        known: Callable[[], Iterable[_T]],
        name: Callable[[_T], Hashable],
    ) -> None:
        """Prepare.

        Args:
            put: takes one that appeared or changed.
            drop: forgets one that is gone.
            known: those that were put and not dropped.
            name: what one is called.
        """
        self.put: Final = put
        self.drop: Final = drop
        self._known: Final = known
        self._name: Final = name

    def replaced(self, objects: Sequence[_T]) -> Iterator[None]:
        """These, and no others, exist. Yields where others may have their turn."""
        for at, one in enumerate(objects, start=1):
            self.put(one)
            if at % _SLICE == 0:
                yield
        there = {self._name(one) for one in objects}
        for one in [one for one in self._known() if self._name(one) not in there]:
            self.drop(one)
