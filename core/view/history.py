"""What happened: to one pod (``kubectl cards why``), and to cards and queues in the last day. Pure.

Fields may be added; renaming a field or changing its meaning requires another *version*.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from core.history.minutes import MINUTES_MAX, Key, Minute, Sums
from core.history.pods import Life, What
from core.model import Pod
from core.units import time_text
from core.view.cards import VERSION
from core.view.explained import Event
from core.waiting import code_in

_MINUTE_S: Final = 60
_OF_EVENTS: Final = {"FailedScheduling": What.WAITS, "Scheduled": What.BOUND, "Preempted": What.EVICTED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """One kind of event of a pod.

    what: ``asked``, ``waits``, ``reserved``, ``released`` (its place was given back), ``sent`` (its Binding),
    ``bound``, ``served`` (by its device plugin), ``evicted``, ``ended``, ``gone``, or ``event`` for another event of
    Kubernetes. first, last: when it happened first and last, "" if unknown. times: how often. change: how many changes
    of nodes and their holders the leader had seen by then, None if unknown. code: the cause of a wait
    (docs/operators/waiting.md), else "". text: of the last time.
    """

    what: str
    first: str
    last: str
    times: int
    change: int | None
    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLife:
    """The events of one pod, by their last times. uid: of the pod, "" if unknown."""

    uid: str
    events: tuple[Happened, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """The answer of ``why``: what happened to the pods of one name, the last one last.

    source: ``controller`` for its record, else ``conditions``: what the pod's conditions and events say. state:
    ``remembered``, or ``unknown`` if there is no pod. as_of: the record may lack what happened after this time; None if
    it is complete.
    """

    version: int = VERSION
    pod: str
    state: str
    source: str
    lives: tuple[PodLife, ...]
    as_of: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The figures of one dialect, type of cards and queue, a figure for each minute; None for an unknown one.

    queue: of the pods, "" for cards that no pod uses. type: "" for waiting pods. ``*``: several, added up. promised_ms:
    what pods hold or are promised, in thousandths of a card second. idle_ms: what a pod could still get. stranded_ms:
    what no pod can get. waiting: pods at the minute's end. A list is None if it does not apply.
    """

    dialect: str
    type: str
    queue: str
    promised_ms: tuple[int | None, ...] | None
    idle_ms: tuple[int | None, ...] | None
    stranded_ms: tuple[int | None, ...] | None
    waiting: tuple[int | None, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """The minutes of the last day. since: when the first of them begins, None if there are none; minutes: how many.

    as_of: the record may lack what happened after this time; None if it is complete.
    """

    version: int = VERSION
    since: str | None
    minutes: int
    series: tuple[Series, ...]
    as_of: str | None = None
    notes: tuple[str, ...] = ()


def why(pod: str, lives: Iterable[Life], *, as_of_s: float | None = None, notes: Sequence[str] = ()) -> Why:
    """Return what the record says of *pod* (namespace/name); *as_of_s*: Unix seconds, None for now."""
    found = tuple(
        PodLife(
            uid=life.uid,
            events=tuple(
                Happened(
                    what=one.what.value,
                    first=time_text(one.first_s),
                    last=time_text(one.last_s),
                    times=one.times,
                    change=one.change or None,
                    code=one.code,
                    text=one.text,
                )
                for one in life.events
            ),
        )
        for life in lives
    )
    return Why(
        pod=pod,
        state="remembered" if found else "unknown",
        source="controller",
        lives=found,
        as_of=None if as_of_s is None else time_text(as_of_s),
        notes=tuple(notes),
    )


def day(minutes: Sequence[Minute], *, as_of_s: float | None = None, notes: Sequence[str] = ()) -> Day:
    """Return *minutes* by key; those that are not there are unknown. At most a day before the last is shown."""
    as_of = None if as_of_s is None else time_text(as_of_s)
    if not minutes:
        return Day(since=None, minutes=0, series=(), as_of=as_of, notes=tuple(notes))
    by_time = {one.at: one.sums for one in minutes}
    last = max(by_time)
    first = max(min(by_time), last - MINUTES_MAX + 1)
    times = range(first, last + 1)
    keys = sorted({key for at, sums in by_time.items() if at >= first for key in sums})
    series = tuple(_series(key, [by_time.get(at) for at in times]) for key in keys)
    return Day(since=time_text(first * _MINUTE_S), minutes=len(times), series=series, as_of=as_of, notes=tuple(notes))


def _series(key: Key, minutes: Sequence[Mapping[Key, Sums] | None]) -> Series:
    none = Sums()
    rows = [None if sums is None else sums.get(key, none) for sums in minutes]

    def column(at: int) -> tuple[int | None, ...] | None:
        found = tuple(None if row is None else row[at] for row in rows)
        return found if any(found) else None

    return Series(
        dialect=key.dialect,
        type=key.type,
        queue=key.queue,
        promised_ms=column(0),
        idle_ms=column(1),
        stranded_ms=column(2),
        waiting=column(3),
    )


def why_by_api(pod: Pod, events: Sequence[Event], notes: Sequence[str] = ()) -> Why:
    """Return what the conditions of *pod* and its *events* say, if no controller answers."""
    found: list[Happened] = []

    def add(what: str, at: str, text: str = "", code: str = "", times: int = 1) -> None:
        first = at if times == 1 else ""  # of a repeated one, only the last time is known
        found.append(Happened(what=what, first=first, last=at, times=times, change=None, code=code, text=text))

    if pod.created_s:
        add(What.ASKED.value, time_text(pod.created_s))
    for event in events:
        what = _OF_EVENTS.get(event.reason)
        text = event.message if what is not None else f"{event.reason}: {event.message}"
        add(what.value if what is not None else "event", event.time, text, code_in(event.message), event.count)
    if pod.node_name and all(one.what != What.BOUND.value for one in found):
        add(What.BOUND.value, time_text(pod.start_s) if pod.start_s else "", pod.node_name)
    is_told = any(one.what == What.WAITS.value and one.text == pod.scheduled_message for one in found)
    if pod.scheduled_message and not pod.node_name and not is_told:
        add(What.WAITS.value, "", pod.scheduled_message, code_in(pod.scheduled_message))
    if pod.finished:
        add(What.ENDED.value, "", ": ".join(filter(None, (pod.phase, pod.status_reason, pod.status_message))))
    found.sort(key=lambda one: (not one.last, one.last))
    life = PodLife(uid=pod.uid, events=tuple(found))
    return Why(pod=pod.key, state="remembered", source="conditions", lives=(life,), notes=tuple(notes))
