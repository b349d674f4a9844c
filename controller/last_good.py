"""Saves the texts in force in a ConfigMap of cardshare, for a start whose current texts are refused.

The ConfigMap is mounted where both processes read it at such a start. Only the leader writes it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog

from controller.config import PodName
from core.configuration import Source
from kube.calls import Calls, namespace_path
from kube.errors import ApiError
from runtime.backoff import Backoff

_log: Final = structlog.get_logger()
_LOOK_S: Final = 1.0


class LastGood:
    """Writes the texts whenever they change."""

    def __init__(
        self,
        calls: Calls,
        where: PodName,
        good: Mapping[Source, str],
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Prepare; *good*: the texts in force, which is read repeatedly."""
        self._calls: Final = calls
        self._where: Final = where
        self._good: Final = good
        self._sleep: Final = sleep

    async def run(self) -> None:
        """Keep the ConfigMap up to date until cancelled."""
        backoff = Backoff(first_s=1.0, cap_s=60.0, jitter=lambda: 0.0)
        kept: dict[Source, str] | None = None
        told = ""
        path = f"{namespace_path(self._where.namespace)}/configmaps/{self._where.name}"
        while True:
            good = dict(self._good)
            if good == kept:
                await self._sleep(_LOOK_S)
                continue
            try:
                await self._calls.patch(path, {"data": {source.value: good.get(source) for source in Source}})
            except ApiError as e:
                if str(e) != told:
                    told = str(e)
                    _log.warning("the configuration in force cannot be saved", config_map=str(self._where), error=told)
                await self._sleep(backoff.next_s())
                continue
            kept, told = good, ""
            backoff.reset()
            _log.info("configuration in force saved", config_map=str(self._where))
