"""Reads what the controller remembers from the ConfigMap in which its leader stores it, with the user's own rights."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from cli.reads import Reads
from core.wire.history import HISTORY_MAP, Stored, read_stored
from kube.calls import Calls
from kube.errors import ApiError, ApiForbiddenError, ApiNotFoundError

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
