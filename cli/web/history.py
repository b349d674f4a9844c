"""Follows the record that the controller stores: the chart of the last day, and what happened to a pod."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Final, NoReturn

from cli.history import History
from cli.reads import Reads
from cli.why import stored_why, why_of_api
from core.history.minutes import MinuteRecord
from core.view.history import Why
from core.view.trend import Trend, trend

# The leader stores the record once a minute.
_EVERY_S: Final = 30.0
_NOTHING_YET: Final = "the controller has stored nothing of this pod yet"


class Remembering:
    """The stored record, with the minutes that this process has seen in it. found: None before it was read."""

    def __init__(self, transport: Reads, config_map: str, *, wall: Callable[[], float] = time.time) -> None:
        """Prepare; *config_map*: NAMESPACE/NAME; *wall*: Unix seconds."""
        self.found: Trend | None = None
        self._transport: Final = transport
        self._history: Final = History(transport, config_map, wall=wall)
        self._wall: Final = wall
        self._minutes: Final = MinuteRecord()

    async def run(self, tell: Callable[[], None]) -> NoReturn:
        """Read until cancelled; call *tell* if the chart differs.

        Minutes that were read are kept, because a ConfigMap has no room for a day of many queues.
        """
        while True:
            stored = await self._history.stored()
            self._minutes.restore(stored.minutes)
            chart = partial(trend, as_of_s=stored.at_s or None, notes=stored.notes)
            found = await asyncio.to_thread(chart, tuple(self._minutes.newest()), self._wall())
            if found != self.found:
                self.found = found
                tell()
            await asyncio.sleep(_EVERY_S)

    async def why(self, namespace: str, name: str, *, reads_events: bool) -> Why:
        """Return what happened to a pod, as ``kubectl cards why``.

        Raises:
            ApiError: there is no such pod, or it cannot be read, and nothing of it is stored.
        """
        found = await stored_why(self._history, namespace, name)
        if found.lives:
            return found
        reason = "; ".join(found.notes) or _NOTHING_YET
        return await why_of_api(self._transport, namespace, name, reason, reads_events=reads_events)
