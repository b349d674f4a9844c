"""Keeps what happened: observes each whole minute, stores the record for the next leader, and answers from it.

A standby answers from what the leader stored last. A stored record that cannot be read is reported and ignored.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

import msgspec
import structlog

from controller.actions import Inbox
from controller.deciding.lifecycle import Stage
from controller.deciding.scheduler import Scheduler
from controller.reporting.share_seconds import ShareSeconds, now_ms
from controller.reporting.work import Work
from core.card_time import CardTimePart, Payee
from core.errors import quoted
from core.history.minutes import Key, Minute, MinuteRecord, Sums
from core.history.pods import NAMESAKES_MAX
from core.view.history import day, why
from core.wire.history import Stored, life_line, minute_line, pack, read_stored
from kube.calls import Calls, namespace_path
from kube.errors import ApiError
from runtime.flags import ObjectName

_log: Final = structlog.get_logger()

# Together so much that the object stays under 256 KiB with its metadata.
PODS_CHARACTERS: Final = 176 * 2**10
MINUTES_CHARACTERS: Final = 64 * 2**10
_NOWHERE: Final = (
    "this process stands by and no ConfigMap has its leader's record; ask the leader, or set --keep-history"
)
_MINUTE_S: Final = 60.0
_LATE_S: Final = 1.0
_READ_S: Final = 3.0
_AGAIN_S: Final = 0.2
# A standby reads again what its leader stored when it is asked after this long.
_STORED_S: Final = 20.0
_BILLION_PER_MS: Final = 1_000_000
_WAITS: Final = frozenset(
    {Stage.READY, Stage.REFUSED, Stage.HELD, Stage.RESTING, Stage.PREPARING, Stage.TURN},
)


class History:
    """The record of one process.

    Attributes:
        minutes: what was observed of each minute.
        calls: reads and, in a leader, writes the stored record; None before there is a connection.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        inbox: Inbox,
        share_seconds: ShareSeconds,
        where: ObjectName | None,
        *,
        wall: Callable[[], float] = time.time,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        """Prepare; *where*: the ConfigMap that stores the record, if any. *clock_ms*: the clock of *share_seconds*."""
        self.minutes: Final = MinuteRecord()
        self.calls: Calls | None = None
        self._scheduler: Final = scheduler
        self._inbox: Final = inbox
        self._share_seconds: Final = share_seconds
        self._where: Final = where
        self._wall: Final = wall
        self._clock_ms: Final = clock_ms
        # The card time of all payees at the beginning of a minute, and which minute (Unix).
        self._before: tuple[int, Mapping[Payee, int]] | None = None
        self._told = ""
        # What the leader before this one stored; of a standby, what its leader stored when that was read last.
        self._stored = Stored()
        self._read_s = 0.0
        # Whether the API server has not shown it, and may yet: a leader stores nothing over it.
        self._is_unread = False

    # ------------------------------------------------------------------ what a leader stored

    async def take_over(self) -> None:
        """Read what the leader before stored, and record from now on."""
        self._stored = stored = await self._read()
        self.minutes.restore(stored.minutes)
        await self._inbox.put_and_wait(lambda: self._scheduler.record(tuple(reversed(stored.lives))))

    async def _catch_up(self) -> bool:
        """Read what could not be read at the start; return whether a leader may store its own over it."""
        if self._is_unread:
            stored = await self._read()
            if self._is_unread:
                return False
            self._stored = stored
            self.minutes.restore(stored.minutes)
            await self._inbox.put_and_wait(lambda: self._scheduler.remember(tuple(reversed(stored.lives))))
        return True

    async def _read(self) -> Stored:
        """Return what is stored; whatever is wrong with it is a note, and a line in the log."""
        if self._where is None or self.calls is None:
            return Stored()
        found, self._is_unread = Stored(), False
        try:
            text = await self._fetch(self.calls, self._where)
            found = await asyncio.to_thread(read_stored, text, self._wall())
        except ApiError as e:
            found, self._is_unread = Stored(notes=(f"it cannot be read: {e}",)), e.retryable
        except TimeoutError:
            found, self._is_unread = Stored(notes=("it cannot be read: no answer in time",)), True
        notes = tuple(
            f"what an earlier leader stored in ConfigMap {self._where} is not used: {why}" for why in found.notes
        )
        for note in notes:
            _log.warning("stored history not used", reason=note)
        self._read_s = self._wall()
        return found._replace(notes=notes)

    async def _fetch(self, calls: Calls, where: ObjectName) -> bytes:
        """Return the ConfigMap. One failed call is no reason to give up: a leader begins without what it shows."""
        failed: ApiError | None = None
        try:
            async with asyncio.timeout(_READ_S):
                while True:
                    try:
                        return await calls.get_config_map(where.namespace, where.name)
                    except ApiError as e:
                        if not e.retryable:
                            raise
                        failed = e
                    await asyncio.sleep(max(_AGAIN_S, failed.retry_after_s or 0.0))
        except TimeoutError:
            if failed is not None:
                raise failed from None
            raise

    # ------------------------------------------------------------------ answers

    async def why(self, pod: str) -> dict[str, Any]:
        """Return what happened to the pods that are, or were, called *pod* (namespace/name)."""
        if self._scheduler.cluster.recording.is_on:
            found = why(pod, self._scheduler.cluster.recording.pods.named(pod), notes=self._stored.notes)
        else:
            stored = await self._of_leader()
            lives = [life for life in reversed(stored.lives) if life.pod == pod]
            found = why(pod, lives[-NAMESAKES_MAX:], as_of_s=stored.at_s or None, notes=stored.notes)
        text = "" if found.lives else f"nothing is remembered of a pod {quoted(pod, 320)}"
        return {**msgspec.to_builtins(found), "text": text}

    async def day(self) -> dict[str, Any]:
        """Return the minutes of the last day."""
        if self._scheduler.cluster.recording.is_on:
            stored = self._stored._replace(minutes=tuple(self.minutes.newest()), at_s=0)
        else:
            stored = await self._of_leader()
        found = await asyncio.to_thread(day, stored.minutes, as_of_s=stored.at_s or None, notes=stored.notes)
        return await asyncio.to_thread(msgspec.to_builtins, found)

    async def _of_leader(self) -> Stored:
        if self._where is None:
            return Stored(notes=(_NOWHERE,))
        if not 0.0 <= self._wall() - self._read_s < _STORED_S:  # the clock may be set back
            self._stored = await self._read()
        return self._stored

    # ------------------------------------------------------------------ each minute

    async def run(self) -> NoReturn:
        """Observe and store until cancelled; only the leader calls this."""
        stored_s = float(self._stored.at_s)
        while True:
            # Minutes end a little late, so that a write is due again after a minute.
            # The clock may be set back.
            is_stored = 0.0 <= self._wall() - stored_s < _MINUTE_S - _LATE_S
            if self._where is not None and self.calls is not None and not is_stored and await self._catch_up():
                stored_s = self._wall()
                await self._store(self.calls, self._where)
            await asyncio.sleep(_MINUTE_S - self._wall() % _MINUTE_S)
            await self.observe()

    async def observe(self) -> None:
        """Record the minute that has just ended, unless its beginning was not observed."""
        now = round(self._wall() / _MINUTE_S)
        sums, before = self._share_seconds.sums(self._clock_ms()), self._before
        self._before = (now, sums) if self._share_seconds.is_whole else None
        if before is None or before[0] != now - 1 or self._before is None:
            return
        found = _spent(before[1], sums)
        for key, pods in (await self._waiting()).items():
            found[key] = found.get(key, Sums()).plus(Sums(waiting=pods))
        self.minutes.put(Minute(now - 1, found))

    async def _waiting(self) -> Mapping[Key, int]:
        work, found = Work(time.monotonic), Counter[Key]()
        for entry in list(self._scheduler.cluster.queue):
            if entry.stage in _WAITS:
                dialect = entry.shape.dialect if entry.shape is not None else None
                found[Key(dialect or "", "", entry.line)] += 1
            await work.give_way()
        return found

    async def _store(self, calls: Calls, where: ObjectName) -> None:
        work, now_s = Work(time.monotonic), int(self._wall())
        pods = await work.result(
            pack(map(life_line, self._scheduler.cluster.recording.pods.newest()), PODS_CHARACTERS, now_s)
        )
        minutes = await work.result(pack(map(minute_line, self.minutes.newest()), MINUTES_CHARACTERS, now_s))
        body = {"binaryData": {"pods": pods, "minutes": minutes}}
        try:
            await calls.patch(f"{namespace_path(where.namespace)}/configmaps/{where.name}", body)
        except ApiError as e:
            if str(e) != self._told:
                self._told = str(e)
                _log.warning("the history cannot be stored", config_map=str(where), error=self._told)
        else:
            self._told = ""


def _spent(before: Mapping[Payee, int], after: Mapping[Payee, int]) -> dict[Key, Sums]:
    """Return the card time between two sums, by key; thousandths of card seconds, which add up over minutes."""
    found: dict[Key, list[int]] = {}
    for payee, total in after.items():
        at = (CardTimePart.HELD, CardTimePart.IDLE, CardTimePart.STRANDED).index(payee.part)
        sums = found.setdefault(Key(payee.dialect, payee.type, payee.queue), [0, 0, 0])
        sums[at] += total // _BILLION_PER_MS - before.get(payee, 0) // _BILLION_PER_MS
    return {key: Sums(*sums) for key, sums in found.items() if any(sums)}
