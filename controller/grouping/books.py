"""What the pods of each queue hold, promised and bound, and what is left of a queue and of those above it.

Kept change by change: a queue is asked for every decision on one of its pods.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from controller.grouping.admitting import shown
from controller.grouping.groups import Groups
from core.groups import DEFAULT_QUEUE, GroupKey, QueueSpec
from core.model import PodUid
from core.placing.fairness import Budget, Over, budget
from core.waiting import Cause, Wait

# What is held by pods of no queue that is there is added up under this name.
_LOOSE: Final = ""
_KEPT_MAX: Final = 4096
_NOTHING: Final[Mapping[str, int]] = {}


class Books:
    """Who of which group holds what.

    Attributes:
        freed: queues of which less is held than before; the reader takes them out.
    """

    def __init__(self, groups: Groups) -> None:
        self._groups: Final = groups
        self._held: Final[dict[PodUid, tuple[GroupKey | None, Mapping[str, int]]]] = {}
        self._by_group: Final[dict[GroupKey | None, dict[str, int]]] = {}
        # What is held is the same for many: it is kept once.
        self._kept: Final[dict[tuple[tuple[str, int], ...], Mapping[str, int]]] = {}
        # What each queue holds with those below it, and as of which version of groups and queues.
        self._sums: dict[str, dict[str, int]] = {}
        self._version = -1
        self.freed: Final[dict[str, None]] = {}

    def note(self, uid: PodUid, key: GroupKey | None, amounts: Mapping[str, int]) -> None:
        """*uid*, a member of *key*, or of no group, holds *amounts*, and nothing else."""
        known = self._held.get(uid)
        if known == (key, amounts):
            return
        self.drop(uid)
        if len(self._kept) > _KEPT_MAX:
            self._kept.clear()
        amounts = self._kept.setdefault(tuple(amounts.items()), amounts)
        self._held[uid] = key, amounts
        self._add(key, amounts, 1)

    def drop(self, uid: PodUid) -> None:
        """*uid* holds nothing any more."""
        known = self._held.pop(uid, None)
        if known is not None:
            self._add(*known, -1)
            self.freed.update((queue.name, None) for queue in self._above(known[0]))

    def held(self, line: str) -> Mapping[str, int]:
        """What pods of queue *line* hold, promised and bound; of `default`, those of no queue too."""
        if self._version != self._groups.version:
            self._add_up()
        found = self._sums.get(line, _NOTHING)
        loose = self._sums.get(_LOOSE, _NOTHING)
        if line != DEFAULT_QUEUE or not loose:
            return found
        both = dict(found)
        _sum(both, loose, 1)
        return both

    @property
    def queues(self) -> Iterable[str]:
        """All queues that are there, by name."""
        return self._groups.queues

    def is_limited(self, key: GroupKey) -> bool:
        """Whether a queue limits what members of *key* may take."""
        return any(queue.capability for queue in self._above(key))

    def budget(self, key: GroupKey, *, without: Collection[PodUid] = ()) -> Budget | None:
        """What members of *key* may still take, once those *without* have left; None where no queue limits them."""
        queues = self._above(key)
        if not any(queue.capability for queue in queues):
            return None
        if self._version != self._groups.version:
            self._add_up()
        left = budget(queues, self._sums)
        if left is not None:
            for key_of, amounts in (self._held[uid] for uid in without if uid in self._held):
                for name in self._names(key_of):
                    left.free(name, amounts)
        return left

    def _add(self, key: GroupKey | None, amounts: Mapping[str, int], times: int) -> None:
        _sum(self._by_group.setdefault(key, {}), amounts, times)
        if not any(self._by_group[key].values()):
            del self._by_group[key]
        if self._version == self._groups.version:
            for name in self._names(key):
                _sum(self._sums.setdefault(name, {}), amounts, times)

    def _add_up(self) -> None:
        self._version = self._groups.version
        self._sums = {}
        for key, amounts in self._by_group.items():
            for name in self._names(key):
                _sum(self._sums.setdefault(name, {}), amounts, 1)

    def _names(self, key: GroupKey | None) -> list[str]:
        """By which names what members of *key* hold is added up."""
        return [queue.name for queue in self._above(key)] or [_LOOSE]

    def _above(self, key: GroupKey | None) -> list[QueueSpec]:
        """The queue of *key*, and those above it; each once, whatever their parents say."""
        spec = self._groups.spec(key) if key is not None else None
        found: dict[str, QueueSpec] = {}
        name = spec.queue if spec is not None else ""
        while (queue := self._groups.queue(name)) is not None and name not in found:
            found[name] = queue
            name = queue.parent
        return list(found.values())


def over_wait(over: tuple[Over, ...]) -> Wait:
    """Why a pod waits of which the queue has too little left, with the remainder."""
    first = over[0].queue
    told = [
        f"{shown(one.resource, one.asked + one.beside)} {one.resource} asked, "
        f"{shown(one.resource, one.left + one.beside)} of {shown(one.resource, one.limit)} left"
        for one in over
        if one.queue == first
    ]
    text = (
        f"waits because queue {first} has no room for it: {'; '.join(told)}; ask for less, or wait until its pods end"
    )
    return Wait(Cause.WAITING_FOR_QUEUE, text)


def _sum(sums: dict[str, int], more: Mapping[str, int], times: int) -> None:
    for name, amount in more.items():
        sums[name] = sums.get(name, 0) + times * amount
