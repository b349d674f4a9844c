"""How queues stand below each other, and what is guaranteed to each with those below it. Pure.

Source: Volcano, docs/design/hierarchical-queue-on-capacity-plugin.md. All queues stand below `root`: one without a
parent, or whose parent does not exist, stands there, and so do those whose parents lead back to themselves.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from core.groups import ROOT_QUEUE, QueueSpec


class QueueTree:
    """The queues by their parents.

    Attributes:
        queues: by name, `root` not among them.
        guaranteed: queue -> resource -> the larger of its own guarantee and the sum of its children's; queues without
            any guarantee are left out.
        sums: parent -> resource -> what is guaranteed to its children in all.
    """

    def __init__(self, queues: Iterable[QueueSpec] = ()) -> None:
        """Take up *queues*, in any order."""
        self.queues: Final = {one.name: one for one in queues if one.name != ROOT_QUEUE}
        self._parents: Final = {name: self._parent(name) for name in self.queues}
        self._children: Final[dict[str, list[str]]] = {}
        for name, parent in sorted(self._parents.items()):
            self._children.setdefault(parent, []).append(name)
        self.guaranteed: Final[dict[str, Mapping[str, int]]] = {}
        self.sums: Final[dict[str, dict[str, int]]] = {}
        for name in reversed(self._downwards()):
            self._guarantee(name)

    def _parent(self, name: str) -> str:
        parent = above = self.queues[name].parent
        seen: set[str] = set()
        while above in self.queues and above not in seen:
            if above == name:
                return ROOT_QUEUE
            seen.add(above)
            above = self.queues[above].parent
        return parent if parent in self.queues else ROOT_QUEUE

    def _downwards(self) -> list[str]:
        found = list(self._children.get(ROOT_QUEUE, ()))
        for name in found:
            found += self._children.get(name, ())
        return found

    def _guarantee(self, name: str) -> None:
        own, below = self.queues[name].guarantee, self.sums.get(name, {})
        amounts = {one: max(own.get(one, 0), below.get(one, 0)) for one in sorted(own.keys() | below.keys())}
        amounts = {one: amount for one, amount in amounts.items() if amount}
        if amounts:
            self.guaranteed[name] = amounts
            sums = self.sums.setdefault(self._parents[name], {})
            for one, amount in amounts.items():
                sums[one] = sums.get(one, 0) + amount

    def parent(self, name: str) -> str:
        """The queue above *name*; `root` of one that is not known."""
        return self._parents.get(name, ROOT_QUEUE)

    def children(self, name: str) -> list[str]:
        """The queues right below *name*, in order."""
        return self._children.get(name, [])

    def path(self, name: str) -> list[str]:
        """*name* and the queues above it, the uppermost first, without `root`; nothing of a queue that is not known."""
        found: list[str] = []
        while name in self.queues:
            found.append(name)
            name = self._parents[name]
        return found[::-1]
