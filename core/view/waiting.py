"""The waiting pods: why, since when, what would help, and their queue positions; ``kubectl cards waiting``. Pure.

Fields may be added; renaming a field or changing its meaning requires another *version*.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from core.groups import GroupSpec, is_leaving, line_of, progress_of
from core.model import GroupKey, GroupKind, Phase, Pod, group_of, order
from core.placing.queues import standing_of
from core.units import time_text
from core.view.cards import VERSION
from core.view.explained import why_it_waits
from core.waiting import cause_of, code_in, said_in
from core.wire.policies import PriorityClass

# The number of listed pods for each reason.
_FIRST: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPod:
    """One waiting pod (namespace/name).

    code: the cause (docs/operators/waiting.md), "" if another scheduler reports it. reason: of the condition
    PodScheduled, "" if there is none. since: its creation time, None if unknown. text: as in ``explain``. nearest: the
    card or node that is closest to taking it, "" if the text names none. change: the smallest change that would let it
    in, "" if the text names none. queue: its queue, None if unknown or if another scheduler decides. place: its
    position in that queue, from 1, of *line* pods; None if unknown, or if the pod has scheduling gates and is not in
    the queue.
    """

    pod: str
    code: str
    reason: str
    since: str | None
    text: str
    nearest: str
    change: str
    queue: str | None
    place: int | None
    line: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingReason:
    """How many *pods* wait for one reason. oldest: since when the first of them waits, None if unknown.

    first: the names of those that wait longest. change: what helps against this kind of wait.
    """

    code: str
    reason: str
    pods: int
    oldest: str | None
    first: tuple[str, ...]
    change: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingQueue:
    """How many *pods* of one queue wait, by reason; queue: None for pods with an unknown queue.

    next: the first in the queue, None if unknown. oldest: since when the first of them waits.
    """

    queue: str | None
    pods: int
    oldest: str | None
    next: str | None
    reasons: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The answer of ``waiting``: the pods, longest wait first, and sums by reason and by queue."""

    version: int = VERSION
    pods: tuple[WaitingPod, ...]
    reasons: tuple[WaitingReason, ...] = ()
    queues: tuple[WaitingQueue, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """What determines the queue of each pod, and its position.

    unread: the kinds of groups that may not be read. members: by group, how many members are on nodes or ended
    successfully.
    classes: by name. is_complete: everything that positions depend on was read, including pods of all namespaces.
    """

    groups: Mapping[GroupKey, GroupSpec] = field(default_factory=dict)
    unread: Collection[GroupKind] = ()
    members: Mapping[GroupKey, int] = field(default_factory=dict)
    classes: Mapping[str, PriorityClass] = field(default_factory=dict)
    is_complete: bool = True

    def group(self, pod: Pod) -> GroupSpec | None:
        """Return the group of *pod*; None if it has none, or if the group does not exist."""
        key = group_of(pod)
        return self.groups.get(key) if key is not None else None

    def queue(self, pod: Pod) -> str | None:
        """Return the queue of *pod*; None if unknown."""
        key = group_of(pod)
        return None if key is not None and key.kind in self.unread else line_of(self.group(pod))

    def order(self, pod: Pod) -> tuple[tuple[int, int, int], str]:
        """Return the sort key of *pod* in its queue; pods created in the same second are ordered by name."""
        spec = self.group(pod)
        placed = self.members.get(spec.key, 0) if spec is not None else 0
        return order(standing_of(pod, spec, self.classes, progress=progress_of(spec, placed)), pod), pod.key


def waits(pod: Pod) -> bool:
    """Return whether *pod* is on no node and has not ended."""
    return not pod.node_name and not pod.finished and not pod.deleting


def has_place(pod: Pod) -> bool:
    """Return whether *pod* counts for the minimum of its group: it is on a node, or ended successfully."""
    if pod.phase is Phase.SUCCEEDED:
        return True
    return bool(pod.node_name) and pod.phase is not Phase.FAILED and not is_leaving(pod)


def waiting(
    pods: Iterable[Pod],
    lines: Lines,
    *,
    is_ours: Callable[[Pod], bool],
    namespace: str = "",
    notes: Sequence[str] = (),
) -> Waiting:
    """Return the waiting *pods*, only of *namespace* if given; positions count the pods of all namespaces.

    is_ours: whether cardshare schedules a pod; others are listed without a queue.
    """
    found = [pod for pod in pods if waits(pod)]
    places = _places([pod for pod in found if is_ours(pod) and not pod.gated], lines)
    shown = sorted((pod for pod in found if not namespace or pod.namespace == namespace), key=_age)
    listed = tuple(_waiting_pod(pod, places, lines.queue(pod) if is_ours(pod) else None) for pod in shown)
    return Waiting(pods=listed, reasons=_by_reason(listed), queues=_by_queue(listed, places), notes=tuple(notes))


def waiting_for(found: Waiting, namespace: str) -> Waiting:
    """Return *found* for a reader who may see only pods of *namespace*: it names no object of another namespace."""
    own = f"{namespace}/"
    listed = tuple(pod for pod in found.pods if pod.pod.startswith(own))
    first = {one.queue: one.next for one in found.queues if one.queue and one.next and one.next.startswith(own)}
    return Waiting(pods=listed, reasons=_by_reason(listed), queues=_by_queue(listed, _Places({}, first)))


class _Places(NamedTuple):
    """The position of each queued pod and the length of its queue; and the first pod of each queue."""

    of: Mapping[str, tuple[int, int]]
    first: Mapping[str, str]


def _places(pods: Sequence[Pod], lines: Lines) -> _Places:
    in_line: dict[str, list[Pod]] = {}
    for pod in pods if lines.is_complete else ():
        queue = lines.queue(pod)
        if queue is not None:
            in_line.setdefault(queue, []).append(pod)
    for line in in_line.values():
        line.sort(key=lines.order)
    return _Places(
        {pod.key: (at, len(line)) for line in in_line.values() for at, pod in enumerate(line, start=1)},
        {queue: line[0].key for queue, line in in_line.items()},
    )


def _age(pod: Pod) -> tuple[bool, int, str]:
    return not pod.created_s, pod.created_s, pod.key


def _waiting_pod(pod: Pod, places: _Places, queue: str | None) -> WaitingPod:
    said, (place, line) = said_in(pod.scheduled_message), places.of.get(pod.key, (None, None))
    return WaitingPod(
        pod=pod.key,
        code=code_in(pod.scheduled_message),
        reason=pod.scheduled_reason,
        since=time_text(pod.created_s) if pod.created_s else None,
        text=why_it_waits(pod),
        nearest=said.nearest,
        change=said.change,
        queue=queue,
        place=place,
        line=line,
    )


def _by_reason(pods: Sequence[WaitingPod]) -> tuple[WaitingReason, ...]:
    found: dict[tuple[str, str], list[WaitingPod]] = {}
    for one in pods:
        found.setdefault((one.code, one.reason), []).append(one)
    return tuple(
        WaitingReason(
            code=code,
            reason=reason,
            pods=len(those),
            oldest=those[0].since,
            first=tuple(one.pod for one in those[:_FIRST]),
            change=cause.value.remedy if (cause := cause_of(code)) is not None else "",
        )
        for (code, reason), those in sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    )


def _by_queue(pods: Sequence[WaitingPod], places: _Places) -> tuple[WaitingQueue, ...]:
    found: dict[str | None, list[WaitingPod]] = {}
    for one in pods:
        found.setdefault(one.queue, []).append(one)
    return tuple(
        WaitingQueue(
            queue=queue,
            pods=len(those),
            oldest=those[0].since,
            next=places.first.get(queue) if queue is not None else None,
            reasons=dict(sorted(Counter(one.code or one.reason for one in those).items())),
        )
        for queue, those in sorted(found.items(), key=lambda item: (-len(item[1]), item[0] or ""))
    )
