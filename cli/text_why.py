"""Formats what happened to a pod for a terminal; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

from cli.text import UNKNOWN, aligned
from core.errors import escaped
from core.history.pods import What
from core.view.history import Happened, PodLife, Why

# A sentence for each kind of event; {} is its text.
_SENTENCES: Final[Mapping[str, tuple[str, str]]] = {
    What.ASKED: ("it was created", "it was created and asked for {}"),
    What.WAITS: ("it waited", "it waited: {}"),
    What.RESERVED: ("a place was reserved for it", "a place on node {} was reserved for it"),
    What.RELEASED: ("its place was given back", "its place was given back: {}"),
    What.SENT: ("its Binding was sent", "its Binding was sent, with {}"),
    What.BOUND: ("it was bound", "it was bound: {}"),
    What.SERVED: ("its device plugin gave it its cards", "its device plugin gave it its cards: {}"),
    What.EVICTED: ("it was evicted", "it was evicted: {}"),
    What.ENDED: ("it ended", "it ended: {}"),
    What.GONE: ("it was deleted", "it was deleted: {}"),
}


def story(found: Why) -> str:
    """Format *found*: for each pod of the name, in one line how long it waited, and its events with headings."""
    lines: list[str] = []
    for life in found.lives:
        if lines:
            lines.append("")
        lines += [escaped(_summary(found.pod, life)), *aligned([("TIME", "WHAT HAPPENED"), *_rows(life)])]
    if found.as_of is not None:
        lines.append(escaped(f"note: this was stored at {found.as_of}; what happened later may be missing"))
    return "\n".join([*lines, *(escaped(f"note: {note}") for note in found.notes)])


def _summary(pod: str, life: PodLife) -> str:
    times = {one.what: one for one in life.events}
    asked, bound = times.get(What.ASKED), times.get(What.BOUND)
    if bound is None:
        return f"{pod} was not bound while this was recorded"
    began, ended = _time(asked.first if asked is not None else ""), _time(bound.last)
    if began is None or ended is None:
        return f"{pod} was bound"
    waited_s = round((ended - began).total_seconds())
    return f"{pod} was bound {_duration(max(waited_s, 0))} after its creation"


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def _duration(seconds: int) -> str:
    hours, minutes = divmod(seconds // 60, 60)
    parts = ((hours, "h"), (minutes, "min"), (seconds % 60, "s"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number) or "0 s"


def _rows(life: PodLife) -> Iterator[tuple[str, str]]:
    for one in life.events:
        yield one.last or UNKNOWN, _sentence(one)


def _sentence(one: Happened) -> str:
    bare, full = _SENTENCES.get(one.what, ("something happened", "{}"))
    words = full.format(one.text) if one.text else bare
    if one.times <= 1:
        return words
    return f"{words} ({one.times} times since {one.first})" if one.first else f"{words} ({one.times} times)"
