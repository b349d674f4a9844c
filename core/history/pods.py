"""The last events of each pod, as Kubernetes keeps its own: a repetition counts, and does not add an entry."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from core.model import PodUid

EVENTS_MAX: Final = 16
PODS_MAX: Final = 100_000
BYTES_MAX: Final = 128 * 2**20
# Of so many pods with one name is told; one that somebody makes again and again has any number.
NAMESAKES_MAX: Final = 100
# The limit of a condition's text (controller/reporting/conditions.py).
TEXT_MAX: Final = 1024
# Measured upper bounds of what an entry takes beside its text (CPython 3.11 to 3.14, 64 bit).
_EVENT_BYTES: Final = 288
_POD_BYTES: Final = 880
_CHARACTER_BYTES: Final = 4


class What(StrEnum):
    """What happened to a pod."""

    ASKED = "asked"
    WAITS = "waits"
    RESERVED = "reserved"
    RELEASED = "released"
    SENT = "sent"
    BOUND = "bound"
    SERVED = "served"
    EVICTED = "evicted"
    ENDED = "ended"
    GONE = "gone"


class PodEvent(NamedTuple):
    """One kind of event of a pod.

    first_s, last_s: when it happened first and last, Unix seconds. times: how often. change: how many changes of the
    ledger the leader had seen by then, so two events with one number were decided on the same state. code: the cause of
    a wait (docs/operators/waiting.md), else "". text: of the last time.
    """

    what: What
    first_s: int
    last_s: int
    times: int = 1
    change: int = 0
    code: str = ""
    text: str = ""


class Life(NamedTuple):
    """One pod's events, by the time when they happened last; pod: namespace/name."""

    uid: PodUid
    pod: str
    events: tuple[PodEvent, ...]


class _Kept:
    """One pod's events."""

    __slots__ = ("events", "pod", "size")

    def __init__(self, pod: str) -> None:
        self.pod: Final = pod
        self.events: Final[list[PodEvent]] = []
        self.size = _POD_BYTES + _text_bytes(pod)


class PodRecord:
    """The events of the pods that something happened to last.

    If there are too many pods, or they take too many bytes, those go first to which nothing has happened for longest.
    If one pod has too many kinds of events, those go first that happened longest ago, but never what it asked.
    """

    def __init__(self, *, pods_max: int = PODS_MAX, bytes_max: int = BYTES_MAX) -> None:
        """Remember nothing; *bytes_max*: at most as much is kept as may take so many bytes."""
        self._pods_max: Final = pods_max
        self._bytes_max: Final = bytes_max
        # The pod to which something happened last is the last.
        self._kept: Final[OrderedDict[PodUid, _Kept]] = OrderedDict()
        self._uids: Final[dict[str, list[PodUid]]] = {}
        self._bytes = 0

    def __contains__(self, uid: object) -> bool:
        return uid in self._kept

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def size_bytes(self) -> int:
        """An upper bound of what all events take."""
        return self._bytes

    def note(self, uid: PodUid, pod: str, event: PodEvent) -> None:
        """Add *event* of *pod* (namespace/name), which is not older than its others."""
        kept = self._kept.get(uid)
        if kept is None:
            kept = self._kept[uid] = _Kept(pod)
            self._bytes += kept.size
            self._uids.setdefault(pod, []).append(uid)
        else:
            self._kept.move_to_end(uid)
        self._put(kept, event)
        while len(self._kept) > self._pods_max or self._bytes > self._bytes_max:
            forgotten, dropped = self._kept.popitem(last=False)
            self._bytes -= dropped.size
            namesakes = self._uids[dropped.pod]
            namesakes.remove(forgotten)
            if not namesakes:
                del self._uids[dropped.pod]

    def _put(self, kept: _Kept, event: PodEvent) -> None:
        events, before = kept.events, kept.size
        if len(event.text) > TEXT_MAX:
            event = event._replace(text=event.text[: TEXT_MAX - 1] + "…")
        for at in range(len(events) - 1, -1, -1):
            known = events[at]
            if known.what is event.what and known.code == event.code:
                del events[at]
                kept.size -= _size(known)
                event = event._replace(first_s=known.first_s, times=known.times + event.times)
                break
        events.append(event)
        kept.size += _size(event)
        if len(events) > EVENTS_MAX:
            oldest = 1 if events[0].what is What.ASKED else 0
            kept.size -= _size(events.pop(oldest))
        self._bytes += kept.size - before

    def what(self, uid: PodUid) -> What | None:
        """Return what happened to a pod last; None if it is not remembered."""
        kept = self._kept.get(uid)
        return kept.events[-1].what if kept is not None else None

    def pod(self, uid: PodUid) -> str | None:
        """Return namespace/name of a pod; None if it is not remembered."""
        kept = self._kept.get(uid)
        return kept.pod if kept is not None else None

    def named(self, pod: str) -> list[Life]:
        """Return the last pods with the name *pod* (namespace/name), the last one last; at most `NAMESAKES_MAX`."""
        lasts = sorted(self._uids.get(pod, ()), key=lambda uid: self._kept[uid].events[-1].last_s)
        return [_life(uid, self._kept[uid]) for uid in lasts[-NAMESAKES_MAX:]]

    def newest(self) -> Iterator[Life]:
        """Yield all pods as they are when they are reached, those to which something happened last first."""
        return (_life(uid, kept) for uid, kept in reversed(list(self._kept.items())))

    def restore(self, lives: Iterable[Life]) -> None:
        """Add what an earlier leader remembered of other pods, oldest first; what is known already stays newer."""
        newer = list(self._kept)
        for life in lives:
            for event in life.events:
                self.note(life.uid, life.pod, event)
        for uid in newer:
            if uid in self._kept:
                self._kept.move_to_end(uid)


def _life(uid: PodUid, kept: _Kept) -> Life:
    return Life(uid, kept.pod, tuple(kept.events))


def _size(event: PodEvent) -> int:
    return _EVENT_BYTES + _text_bytes(event.text)


def _text_bytes(text: str) -> int:
    return len(text) if text.isascii() else _CHARACTER_BYTES * len(text)
