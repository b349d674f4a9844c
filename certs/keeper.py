"""``python -m certs run``: looks at Secret and bundles every few seconds, and puts right what somebody broke.

A Secret that is deleted comes back with the pair that it had: webhooks serve that one still, and it is trusted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

from certs.cluster import ClusterCalls, Kept, Place, keep
from certs.pair import Stored, Wanted
from kube.errors import ApiError, CredentialsError, UndecodableError

# An API server that does not answer is asked again after this at the latest.
_MAX_PAUSE_S: Final = 30.0


class Keeper:
    """Keeps one Secret and the bundles that trust it, for as long as it runs."""

    def __init__(
        self,
        calls: ClusterCalls,
        place: Place,
        wanted: Wanted,
        *,
        every_s: float,
        clock: Callable[[], datetime],
        tell: Callable[[str], object],
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """Prepare; *tell* takes a line for each change and each trouble, once."""
        self._calls: Final = calls
        self._place: Final = place
        self._wanted: Final = wanted
        self._every_s: Final = every_s
        self._clock: Final = clock
        self._tell: Final = tell
        self._sleep: Final = sleep
        self._remembered: Stored | None = None
        self._told = ""

    async def run(self) -> None:
        """Look, put right and rest, until cancelled."""
        pause_s = self._every_s
        while True:
            pause_s = self._every_s if await self.look() else min(2 * pause_s, max(_MAX_PAUSE_S, self._every_s))
            await self._sleep(pause_s)

    async def look(self) -> bool:
        """Put right what is not as it should be; False if the API server does not let that be done."""
        try:
            kept = await keep(
                self._calls, self._place, self._wanted, self._clock(), remembered=self._remembered, sleep=self._sleep
            )
        except (ApiError, CredentialsError, UndecodableError) as e:
            self._trouble(str(e))
            return False
        self._remembered, before = kept.stored, self._remembered
        self._report(kept, before)
        self._trouble("; ".join(kept.problems))
        return True

    def _report(self, kept: Kept, before: Stored | None) -> None:
        secret = f"Secret {self._place.namespace}/{self._place.secret}"
        for name in kept.patched:
            self._tell(f"{name}: trusts the Secret's authority again")
        if kept.written:
            same = "put back the pair that it had" if kept.stored == before else "made a new pair"
            self._tell(f"{secret}: was {kept.found.text}; {same}")
        elif before is None:
            self._tell(f"{secret}: {kept.found.text}")

    def _trouble(self, problem: str) -> None:
        if problem and problem != self._told:
            self._tell(problem)
        elif self._told and not problem:
            self._tell("all is well again")
        self._told = problem
