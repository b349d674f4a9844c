"""Volcano's Jobs whose queue does not exist: its job controller creates no PodGroup and reports nothing (G1)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from controller.grouping.groups import Groups
from core.wire.volcano_jobs import JobSpec

# A queue that is applied together with its Jobs may be seen after them.
_PATIENCE_S: Final = 2.0
# Events expire after an hour.
_AGAIN_S: Final = 1800.0
# Further Jobs are recorded when they change, or at the next list.
_MAX: Final = 1000


@dataclass(slots=True)
class _Noticed:
    """due_s: time of the next report, monotonic."""

    job: JobSpec
    due_s: float


class Jobs:
    """The Jobs that wait for their queue."""

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
        return self._groups.queue(job.queue) is not None
