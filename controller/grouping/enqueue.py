"""What becomes of PodGroups and Volcano's Jobs before they have pods."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from controller.grouping.admitting import add
from controller.grouping.groups import Groups
from core.ledger import Ledger
from core.wire.groups import JobSpec

# Interval between checks while pods come and go; summing 5,000 nodes takes some milliseconds.
_PAUSE_S: Final = 0.5
# Interval between checks after a change of a group or queue.
_SOON_S: Final = 0.05
# Checks take no more than a fifth of the time, however many groups wait; everyone may create groups.
_REST_PER_WORK: Final = 4.0
_NEVER: Final = float("inf")
# A queue that is applied together with its Jobs may be seen after them.
_PATIENCE_S: Final = 2.0
# Events expire after an hour.
_AGAIN_S: Final = 1800.0
# Further Jobs are recorded when they change, or at the next list.
_MAX: Final = 1000


class Enqueue:
    """Admits waiting PodGroups after changes that could help one; a chore of the cycle."""

    def __init__(self, groups: Groups, ledger: Ledger, clock: Callable[[], float]) -> None:
        self._groups: Final = groups
        self._ledger: Final = ledger
        self._clock: Final = clock
        self._looked_s = -_NEVER
        self._rest_s = 0.0
        self._cursor = -1
        self._version = -1
        self._sums: tuple[dict[str, int], dict[str, int]] = ({}, {})
        self._sold: dict[str, int] | None = None

    def next_s(self) -> float:
        """Return the earliest time of the next check, monotonic."""
        groups = self._groups
        if not groups.wanting or groups.queues_served is None:
            return _NEVER
        if groups.version != self._version:
            return self._looked_s + max(_SOON_S, self._rest_s)
        return self._looked_s + max(_PAUSE_S, self._rest_s) if self._ledger.cursor != self._cursor else _NEVER

    def look(self, now_s: float) -> None:
        """Admit the groups that fit."""
        began_s = self._clock()
        if now_s >= self._looked_s + _PAUSE_S or self._cursor < 0:
            self._cursor = self._ledger.cursor
            self._sums, self._sold = self._add_up(), None
        self._looked_s, self._version = now_s, self._groups.version
        self._groups.admit(*self._sums, self._cards)
        self._rest_s = (1.0 + _REST_PER_WORK) * (self._clock() - began_s)

    def _add_up(self) -> tuple[dict[str, int], dict[str, int]]:
        total: dict[str, int] = {}
        used: dict[str, int] = {}
        for state in self._ledger.states.values():
            if state.facts.ready and not state.facts.unschedulable:
                add(total, state.facts.allocatable)
                add(used, state.used)
        return total, used

    def _cards(self) -> dict[str, int]:
        """Return the amounts of metered resources on cards of schedulable nodes; computed on demand."""
        if self._sold is None:
            self._sold = {}
            for state in self._ledger.states.values():
                if state.facts.ready and not state.facts.unschedulable:
                    for name, dialect in self._ledger.catalog.dialects.items():
                        add(self._sold, dialect.sold(state.offers.get(name, ()), self._ledger.tables))
        return self._sold


@dataclass(slots=True)
class _Noticed:
    """due_s: time of the next report, monotonic."""

    job: JobSpec
    due_s: float


class Jobs:
    """The Jobs that wait for their queue.

    Volcano's Jobs whose queue does not exist: its job controller creates no PodGroup and reports nothing (G1).
    """

    def __init__(self, groups: Groups, clock: Callable[[], float]) -> None:
        """Begin with none; *groups* has the queues."""
        self._groups: Final = groups
        self._clock: Final = clock
        self._noticed: Final[dict[str, _Noticed]] = {}

    def __len__(self) -> int:
        return len(self._noticed)

    def replaced(self, jobs: Sequence[JobSpec]) -> None:
        """Replace all known Jobs."""
        for uid in self._noticed.keys() - {one.uid for one in jobs}:
            del self._noticed[uid]
        for one in jobs:
            self.changed(one)

    def changed(self, job: JobSpec) -> None:
        """Record that a Job was added or changed."""
        if job.begun or self._is_there(job):
            self._noticed.pop(job.uid, None)
        elif job.uid not in self._noticed and len(self._noticed) < _MAX:
            self._noticed[job.uid] = _Noticed(job, self._clock() + _PATIENCE_S)

    def gone(self, job: JobSpec) -> None:
        """Record that a Job was deleted."""
        self._noticed.pop(job.uid, None)

    def to_tell(self) -> Iterator[JobSpec]:
        """Yield the Jobs whose missing queue must be reported now."""
        if not self._groups.queues_served:
            return
        now_s = self._clock()
        for uid, noticed in list(self._noticed.items()):
            if self._is_there(noticed.job):
                del self._noticed[uid]
            elif noticed.due_s <= now_s:
                noticed.due_s = now_s + _AGAIN_S
                yield noticed.job

    def _is_there(self, job: JobSpec) -> bool:
        return job.queue in self._groups.queues
