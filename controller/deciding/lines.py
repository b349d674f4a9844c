"""In which order queues have their turn, where pods of several wait: by priority, then who has least of its share.

Queues of one parent are compared with each other, from the top of the tree down. A pod of no queue stands in line with
the queue `default`. What queues deserve (`core.placing.shares`) is added up anew
after a while, and only while pods of several wait; what they hold is always as of now.
"""

from collections.abc import Callable, Mapping
from typing import Final

from controller.deciding.lifecycle import Entry, Lifecycle
from controller.grouping.books import Books
from controller.grouping.groups import Groups
from core import nodefit
from core.errors import InvalidRequestError
from core.groups import group_of
from core.ledger import Ledger
from core.model import Pod
from core.placing.shape import Shape
from core.placing.shares import Deserved, deserved
from core.placing.standing import line_of

_AGAIN_S: Final = 1.0
# Adding up takes no more than a twentieth of the time.
_REST_PER_WORK: Final = 19.0
_NEVER: Final = float("inf")

# One step for every queue from the top of the tree down: priority, the highest first, share, age and name.
Rank = tuple[tuple[int, float, int, str], ...]


class Lines:
    """The order of queues; a chore of the planner.

    Attributes:
        groups: groups and queues.
    """

    def __init__(self, groups: Groups, books: Books, ledger: Ledger, clock: Callable[[], float]) -> None:
        self.groups: Final = groups
        self._books: Final = books
        self._ledger: Final = ledger
        self._clock: Final = clock
        self._life: Lifecycle | None = None
        self._deserved = Deserved()
        self._version = -1
        self._next_s = 0.0

    def follow(self, life: Lifecycle) -> None:
        """Order the pods of *life*, which asks for that."""
        self._life = life

    def of(self, pod: Pod) -> str:
        """The queue that *pod* stands in line with."""
        key = group_of(pod)
        return line_of(self.groups.spec(key) if key is not None else None)

    def rank(self, line: str) -> Rank:
        """Whose turn is before whose: the lower one's."""
        return tuple(self._step(name) for name in self.groups.tree.path(line) or [line])

    def _step(self, name: str) -> tuple[int, float, int, str]:
        queue = self.groups.queue(name)
        share = self._deserved.share(name, self._books.held(name))
        return (0, share, 0, name) if queue is None else (-queue.priority, share, queue.created_s, name)

    def deserved(self, name: str) -> Mapping[str, float]:
        """How much queue *name* deserved when that was last added up; nothing of resources that it does not want."""
        return self._deserved.amounts.get(name, {})

    # ------------------------------------------------------------------ in time

    def bring_up_to_date(self, now_s: float) -> None:
        """Add up what queues deserve unless that was done lately, though pods of one alone wait."""
        if now_s >= self._next_s or self._version != self.groups.version:
            self.look(now_s)

    def next_s(self) -> float:
        """When to add up what queues deserve, monotonic."""
        if self._life is None or len(self._life.lines) < 2:
            return _NEVER
        return self._next_s if self._version == self.groups.version else 0.0

    def look(self, now_s: float) -> None:
        """Add up what queues deserve now."""
        if self._life is None:
            return
        started_s = self._clock()
        self._version = self.groups.version
        total = self._books.totals.amounts()
        asked = self._books.held_by_line(self._life.lines)
        for (line, shape), (entry, count) in self._waiting(self._life).items():
            self._add(asked[line], entry, shape, count)
        self._deserved = deserved(total, asked, self.groups.tree)
        self._next_s = now_s + max(_AGAIN_S, _REST_PER_WORK * (self._clock() - started_s))

    def _waiting(self, life: Lifecycle) -> dict[tuple[str, Shape], tuple[Entry, int]]:
        """One of the pods that hold nothing yet and ask the same, and how many they are."""
        found: dict[tuple[str, Shape], tuple[Entry, int]] = {}
        for entry in life:
            if entry.shape is not None and entry.placement is None:
                known = found.get((entry.line, entry.shape))
                found[entry.line, entry.shape] = (entry, 1) if known is None else (known[0], known[1] + 1)
        return found

    def _add(self, asked: dict[str, int], entry: Entry, shape: Shape, count: int) -> None:
        try:
            amounts = dict(nodefit.amounts_of(entry.pod))
        except InvalidRequestError:
            return
        for resource, amount in amounts.items():
            asked[resource] = asked.get(resource, 0) + count * amount
        if shape.dialect is not None and shape.dialect in self._ledger.metering:
            # What it comes to is known of a placement alone: it is as much as can be had.
            for resource in self._ledger.resources_of(shape.dialect) & self._ledger.uncounted:
                asked[resource] = self._books.totals.amounts().get(resource, 0)
