"""Groups whose members are placed together: who of a group waits, who counts already, and what is told of the others.

A member that is on a node, is being sent to one or ended well counts; one that failed or leaves does not. Once enough
count, further members are placed like any other pod. What is decided of a gang is `core.gang`'s; the planner reserves
and sends it.
"""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

from controller.books import Books
from controller.groups import Groups
from controller.lifecycle import UNSETTLED, Entry, Lifecycle, Stage
from controller.wake import Wakes
from core import gang
from core.fairness import Budget, Over
from core.groups import GroupKey, GroupKind, GroupSpec, group_of, is_leaving, task_of
from core.model import Phase, Pod, PodUid
from core.waiting import Cause, Wait

# Where nothing is sent or reserved for a pod, and it may be decided.
_UNDECIDED: Final = (Stage.READY, Stage.REFUSED, Stage.HELD)
# Trying refused gangs again takes no more than a fifth of the time.
_PAUSE_PER_WORK: Final = 4.0
# Why a pod waits that may be decided with others of its group.
_GANGS: Final = (Cause.WAITING_FOR_GROUP, Cause.WAITING_FOR_QUEUE)
_NUMBERS_S: Final = 60.0
_NEVER: Final = float("inf")
_DIGITS: Final = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """A group of which not enough members have their places.

    waiting: those to decide. absent: members that are there and not to be decided now: gated, resting, invalid.
    """

    key: GroupKey
    spec: GroupSpec
    unit: gang.Unit
    waiting: tuple[Entry, ...]
    absent: int

    @property
    def is_complete(self) -> bool:
        """Whether its minimum would be met if all that wait were placed."""
        return self.unit.is_met(Counter(one.task for one in self.unit.members))

    def incomplete_wait(self) -> Wait:
        """Why those that wait do, while others are missing."""
        spec, unit = self.spec, self.unit
        there = len(unit.members) + sum(unit.held.values())
        text = f"waits until {spec.min_member} members of {self.key} can be placed together; {there} can be decided"
        counts = Counter(one.task for one in unit.members)
        short = [
            f"{counts[task] + unit.held.get(task, 0)} of {least} of task {task}"
            for task, least in sorted(unit.task_minimums.items())
            if unit.lacks(task, counts)
        ]
        text += f" ({', '.join(short)})" if short else ""
        if self.absent:
            text += (
                f", {self.absent} more {'is' if self.absent == 1 else 'are'} there and not ready: see why each waits"
            )
        return Wait(Cause.WAITING_FOR_GROUP, text)

    def refused_wait(self, refused: gang.Refused) -> Wait:
        """Why those that wait do, when not enough of them fit at once."""
        wanted = max(self.spec.min_member, sum(self.unit.task_minimums.values()))
        text = f"waits because {refused.fitting} of the {wanted} members of {self.key} that are wanted together fit now"
        parts = [
            f"{part.fitting} of {part.members} {f'of task {part.task}' if part.task else 'that wait'}"
            for part in refused.parts
        ]
        text += f": {', '.join(parts)}" if parts else ""
        lower = f", or set its minMember to {refused.fitting}" if 0 < refused.fitting < self.spec.min_member else ""
        text += f"; free room for {max(wanted - refused.fitting, 1)} more, ask for less{lower}"
        return Wait(Cause.WAITING_FOR_GROUP, text)


class Units:
    """Finds gangs among pods, and remembers which were refused."""

    def __init__(self, groups: Groups, life: Lifecycle, wakes: Wakes, books: Books) -> None:
        self._books: Final = books
        self._groups: Final = groups
        self._life: Final = life
        self._wakes: Final = wakes
        # Refused gangs: what was told of each, and when.
        self._refused: Final[dict[GroupKey, tuple[str, float]]] = {}
        # Pods that found a node, and of which their queue has too little left: what of.
        self._beyond: Final[dict[PodUid, tuple[Over, ...]]] = {}
        self._opened = 0
        self._next_s = 0.0
        self._work_s = 0.0
        self._begun: list[GroupKey] | None = None

    def gang(self, entry: Entry) -> Gang | None:
        """The gang that *entry* is decided with; None if it is decided alone."""
        key = group_of(entry.pod)
        found = self._gang(key) if key is not None else None
        return None if found is None or entry not in found.waiting else found

    def _gang(self, key: GroupKey) -> Gang | None:
        spec = self._groups.spec(key)
        if spec is None or spec.min_member <= 1:
            return None
        held = Counter[str]()
        waiting: list[Entry] = []
        absent = 0
        for uid, pod in self._groups.members(key).items():
            entry = self._life.get(uid)
            if _counts(pod, entry):
                held[task_of(pod)] += 1
            elif entry is not None and _may_go(entry):
                waiting.append(entry)
            elif not (is_leaving(pod) or pod.finished):
                absent += 1
        waiting.sort(key=lambda one: one.order)
        members = tuple(
            gang.Member(pod=one.pod, shape=one.shape, task=task_of(one.pod)) for one in waiting if one.shape is not None
        )
        unit = gang.Unit(members=members, min_member=spec.min_member, task_minimums=spec.task_minimums, held=held)
        if unit.is_met({}):
            return None
        return Gang(key=key, spec=spec, unit=unit, waiting=tuple(waiting), absent=absent)

    # ------------------------------------------------------------------ what was decided

    def placed(self, found: Gang) -> None:
        """Enough members have their places."""
        self._refused.pop(found.key, None)
        self._groups.placed(found.key)

    def refused(self, found: Gang, wait: Wait, now_s: float, worked_s: float) -> bool:
        """Not enough members fit, which took *worked_s* to find out; whether *wait* is to be told.

        What differs in numbers alone is told once a minute.
        """
        self._work_s += worked_s
        known = self._refused.get(found.key)
        if known is not None and now_s < known[1] + _NUMBERS_S and _words(known[0]) == _words(wait.text):
            return False
        self._refused[found.key] = wait.text, now_s
        self._groups.refused(found.key, wait.text)
        return True

    def beyond(self, entry: Entry, over: tuple[Over, ...]) -> None:
        """A queue has too little left for a pod that is decided alone."""
        self._beyond[entry.pod.uid] = over

    def waits(self, found: Gang) -> None:
        """Not enough members are there: who comes later is decided with the others."""
        self._refused.pop(found.key, None)

    # ------------------------------------------------------------------ trying again

    @property
    def is_refusing(self) -> bool:
        """Whether any gang was refused, or waits for its queue."""
        return bool(self._refused or self._beyond)

    def next_s(self) -> float:
        """When refused gangs are to be tried again, monotonic: something freed since."""
        return self._next_s if self.is_refusing and self._opened != self._wakes.opened else _NEVER

    def look(self, now_s: float) -> None:
        """Let every refused gang be tried again."""
        self._opened = self._wakes.opened
        self._next_s, self._work_s = now_s + _PAUSE_PER_WORK * self._work_s, 0.0
        for key in list(self._refused):
            found = self._gang(key)
            if found is None or not found.waiting:
                del self._refused[key]
            elif all(one.stage is not Stage.READY for one in found.waiting):
                self._life.ready(found.waiting[0])
        self._wake_beyond()

    def _wake_beyond(self) -> None:
        """Let those who wait for their queue be decided again, in their order, as far as it could have room."""
        waiting = [entry for uid in self._beyond if (entry := self._life.get(uid)) is not None]
        lacked = dict(self._beyond)
        self._beyond.clear()
        budgets: dict[GroupKey, Budget | None] = {}
        for entry in sorted(waiting, key=lambda one: one.order):
            key = group_of(entry.pod)
            if key is None or entry.stage is not Stage.HELD or entry.wait is None or entry.wait.cause not in _GANGS:
                continue
            if key not in budgets:
                budgets[key] = self._books.budget(key)
            left, over = budgets[key], lacked[entry.pod.uid]
            if left is None or not left.spend({one.resource: one.asked for one in over}):
                self._life.ready(entry)
            else:
                self._beyond[entry.pod.uid] = over

    def begun(self) -> Entry | None:
        """Who waits of a gang that was begun before this process was: those are decided before all others, once."""
        if self._begun is None:
            if self._groups.served[GroupKind.VOLCANO] is None:
                return None  # nobody knows yet which groups there are
            self._begun = list(dict.fromkeys(key for entry in self._life if (key := group_of(entry.pod)) is not None))
        while self._begun:
            found = self._gang(self._begun[-1])
            if found is not None and any(found.unit.held.values()):
                entry = next((one for one in found.waiting if one.stage is Stage.READY), None)
                if entry is not None:
                    return entry
            self._begun.pop()
        return None


def _words(text: str) -> str:
    return _DIGITS.sub("#", text)


def _may_go(entry: Entry) -> bool:
    """Whether a pod can be decided now; one that waits for others of its group is decided with them."""
    if entry.shape is None or entry.stage not in _UNDECIDED:
        return False
    return entry.stage is not Stage.HELD or (entry.wait is not None and entry.wait.cause in _GANGS)


def _counts(pod: Pod, entry: Entry | None) -> bool:
    """Whether *pod* has its place in the gang: on a node, promised one or being sent there, or ended well."""
    if pod.phase is Phase.SUCCEEDED:
        return True
    if pod.phase is Phase.FAILED or is_leaving(pod):
        return False
    return bool(pod.node_name) or (entry is not None and (entry.placement is not None or entry.stage in UNSETTLED))
