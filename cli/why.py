"""``kubectl cards why``: fetches what happened to a pod, and formats it for a terminal.

The sources are the controller, the ConfigMap in which its leader stores its record, and the conditions and events of
the pod.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Final

from cli import cluster, controller
from cli.cluster import Reads
from cli.options import Controller
from cli.text import UNKNOWN, aligned, noted
from core.errors import escaped
from core.history.pods import NAMESAKES_MAX, What
from core.view.history import Happened, PodLife, Why, why, why_by_api
from core.wire.history import HISTORY_MAP, Stored, read_stored
from kube.calls import Calls
from kube.errors import ApiError, ApiForbiddenError, ApiNotFoundError

_INSTEAD: Final = "this is what the pod's conditions and events say, and events expire"
_NONE: Final = "--controller is missing"
_NOTHING: Final = "the controller remembers nothing of this pod"


async def fetch_why(
    transport: Reads, asked: Controller | None, namespace: str, name: str, history_map: str = HISTORY_MAP
) -> Why:
    """Return what happened to the pods of that name; a note says why the controller did not answer.

    Args:
        transport: reads the API.
        asked: the controller; None: none is asked.
        namespace: of the pods.
        name: of the pods.
        history_map: the ConfigMap in which the controller stores its history, NAMESPACE/NAME.

    Raises:
        ApiError: the pod cannot be read, which is asked for only if the controller remembers nothing.
    """
    reason = _NONE
    if asked is not None:
        try:
            found = await controller.ask_why(asked, namespace, name)
        except controller.NoAnswerError as e:
            reason = str(e)
        else:
            if found.lives:
                return found
            reason = _NOTHING
    if reason != _NOTHING:
        found = await stored_why(History(transport, history_map), namespace, name)
        if found.lives:
            return found
    return await why_of_api(transport, namespace, name, reason)


async def stored_why(history: History, namespace: str, name: str) -> Why:
    """Return what the stored record says of the pods of that name, the last one last; notes say why not all of it."""
    stored, pod = await history.stored(), f"{namespace}/{name}"
    lives = [life for life in reversed(stored.lives) if life.pod == pod]
    return why(pod, lives[-NAMESAKES_MAX:], as_of_s=stored.at_s or None, notes=stored.notes)


async def why_of_api(
    transport: Reads, namespace: str, name: str, reason: str = _NOTHING, *, reads_events: bool = True
) -> Why:
    """Return what the conditions of a pod say, and its events if they may be read; *reason*: why that is shown.

    Raises:
        ApiError: the pod cannot be read.
    """
    pod = await cluster.fetch_pod(Calls(transport), namespace, name)
    events = await cluster.fetch_events(transport, pod) if reads_events else cluster.Events(())
    return why_by_api(pod, events.items, (f"{reason}; {_INSTEAD}", *filter(None, (events.unread,))))


# The leader stores it once a minute.
_AGAIN_S: Final = 20.0


class History:
    """The stored record. It is read again if somebody asks 20 s after the last time."""

    def __init__(
        self, transport: Reads, config_map: str = HISTORY_MAP, *, wall: Callable[[], float] = time.time
    ) -> None:
        """Prepare; *config_map*: NAMESPACE/NAME; *wall*: Unix seconds."""
        self._calls: Final = Calls(transport)
        self._config_map: Final = config_map
        self._wall: Final = wall
        self._reading: Final = asyncio.Lock()
        self._stored = Stored()
        self._read_s = 0.0

    async def stored(self) -> Stored:
        """Return what is stored; its notes say why that is nothing, or not all."""
        async with self._reading:
            if not 0.0 <= self._wall() - self._read_s < _AGAIN_S:
                self._stored = await self._read()
                self._read_s = self._wall()
            return self._stored

    async def _read(self) -> Stored:
        where = f"ConfigMap {self._config_map}"
        try:
            text = await self._calls.get_config_map(*self._config_map.split("/"))
        except ApiNotFoundError:
            return Stored(notes=(f"{where} does not exist; the controller stores its history there",))
        except ApiForbiddenError:
            return Stored(notes=(f"reading {where} is forbidden; the controller stores its history there",))
        except ApiError as e:
            return Stored(notes=(f"{where} cannot be read ({e})",))
        found = await asyncio.to_thread(read_stored, text, self._wall())
        if not found.at_s and not found.notes:
            return Stored(notes=(f"the controller has stored no history in {where} yet",))
        return found._replace(notes=tuple(f"{where} is not used: {note}" for note in found.notes))


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
    return noted(lines, found.notes)


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
