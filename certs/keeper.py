"""``python -m certs run``: checks Secrets and bundles every few seconds, and repairs them.

A deleted Secret is restored with its former content, because webhooks still serve that pair and callers trust its
authority.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

from certs.cluster import Done, Held, Kept, Place, Remembered, keep
from certs.figures import Figures
from certs.secrets import ClusterCalls
from kube.errors import ApiError, CredentialsError, UndecodableError

# Maximum interval between tries while the API server does not answer.
_MAX_PAUSE_S: Final = 30.0

SAYS: Final = {
    Done.MADE: "made a new one",
    Done.PUT_BACK: "put back what it had",
    Done.TAKEN_OVER: "took over the authority that lay beside a pair",
    Done.COMPLETED: "holds the pair and what it trusts now, and nothing else",
}


class Keeper:
    """Maintains the Secrets of one place and the bundles that trust them while it runs."""

    def __init__(
        self,
        calls: ClusterCalls,
        place: Place,
        figures: Figures,
        *,
        every_s: float,
        clock: Callable[[], datetime],
        tell: Callable[[str], object],
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """Prepare; *tell* receives one line for each change and each problem."""
        self._calls: Final = calls
        self._place: Final = place
        self._figures: Final = figures
        self._every_s: Final = every_s
        self._clock: Final = clock
        self._tell: Final = tell
        self._sleep: Final = sleep
        self._remembered: Remembered = {}
        self._told = ""

    async def run(self) -> None:
        """Check, repair and pause until cancelled."""
        pause_s = self._every_s
        while True:
            pause_s = self._every_s if await self.look() else min(2 * pause_s, max(_MAX_PAUSE_S, self._every_s))
            await self._sleep(pause_s)

    async def look(self) -> bool:
        """Repair what is wrong; return False if the API server prevents it."""
        now = self._clock()
        try:
            kept = await keep(self._calls, self._place, now, remembered=self._remembered, sleep=self._sleep)
        except (ApiError, CredentialsError, UndecodableError) as e:
            self._figures.failed(str(e), now)
            self._trouble(str(e))
            return False
        is_first, self._remembered = not self._remembered, {one.secret: one.stored for one in kept.secrets}
        self._figures.looked(kept, now)
        self._report(kept, is_first=is_first)
        self._trouble("; ".join(kept.problems.values()))
        return True

    def _report(self, kept: Kept, *, is_first: bool) -> None:
        for name in kept.patched:
            self._tell(f"{name}: trusts the authority again")
        for one in kept.secrets:
            if line := told_of(one, self._place.namespace):
                self._tell(line)
            elif is_first:
                self._tell(f"Secret {self._place.namespace}/{one.secret}: {one.found.text}")

    def _trouble(self, problem: str) -> None:
        if problem and problem != self._told:
            self._tell(problem)
        elif self._told and not problem:
            self._tell("all is healthy again")
        self._told = problem


def told_of(one: Held, namespace: str) -> str:
    """Return a line about the action on a Secret, or "" if there was none."""
    if one.done is Done.KEPT:
        return ""
    return f"Secret {namespace}/{one.secret}: was {one.found.text}; {SAYS[one.done]}"
