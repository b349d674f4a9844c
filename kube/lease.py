"""A Lease (coordination.k8s.io/v1) for leader election among processes, modelled on client-go.

Every attempt ends inside the renew deadline. Only intervals that this process has measured itself count; the times in
the Lease are compared as text and never interpreted. A manual change of the Lease is waited out or repaired, never
trusted: the previous holder may continue until its own time is over.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple, NoReturn

import msgspec

from core.wire.objects import ObjectMeta
from kube.calls import JSON, MERGE_PATCH, Requester
from kube.errors import (
    ApiConflictError,
    ApiError,
    ApiForbiddenError,
    ApiNotFoundError,
    ApiUnknownError,
    printable,
)
from kube.transport import Purpose

_GROUP: Final = "/apis/coordination.k8s.io/v1"
# A longer duration in a Lease is a mistake and would exclude all candidates for that time.
MAX_DURATION_S: Final = 60.0
# client-go writes this duration when it releases a Lease; an empty holder alone may be a manual edit.
_RELEASED_S: Final = 1


class Instant(NamedTuple):
    """One moment on two clocks: seconds since boot including suspended time, and Unix seconds.

    The first continues while the process is stopped or the machine sleeps. The second also shows the pause of a virtual
    machine, which the first misses. It may jump, so it may only shorten the time for which a lease is trusted.
    """

    boot_s: float
    wall_s: float

    def since_s(self, earlier: "Instant") -> float:
        """Return the seconds since *earlier*, by the clock with the larger difference."""
        return max(self.boot_s - earlier.boot_s, self.wall_s - earlier.wall_s)


def read_clocks() -> Instant:
    """Return the current time. Without a clock that includes suspended time, the monotonic clock replaces it."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return Instant(time.clock_gettime(clock), time.time())


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds: how long a Lease is valid, how long renewal is tried, and how often."""

    duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_s: float = 2.0

    @property
    def attempt_s(self) -> float:
        """The limit for one attempt; a dead connection leaves time for a second attempt."""
        return self.renew_deadline_s / 2.0


class How(StrEnum):
    """The state of a Lease when it was acquired.

    NEW: it did not exist or never had a holder, so it does not show whether another process is still working.
    EXPIRED: its holder let it expire. RELEASED: its holder had ended its work.
    """

    NEW = "new"
    EXPIRED = "expired"
    RELEASED = "released"


class LeaseLostError(Exception):
    """This process must stop acting as the holder; the text is one line with the reason."""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    """Source: Kubernetes API reference, coordination.k8s.io/v1 LeaseSpec."""

    holder_identity: str | None = ""
    lease_duration_seconds: int | None = 0
    acquire_time: str | None = ""
    renew_time: str | None = ""
    lease_transitions: int | None = 0


class _Lease(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec | None = None


_decoder: Final = msgspec.json.Decoder(_Lease)


class Lease:
    """One Lease, as one candidate sees it.

    Attributes:
        name: namespace/name, for people.
        identity: this candidate's identity in the Lease.
        holder: the holder at the last read, or "".
        problem: why the last attempt failed, or "".
        is_forbidden: whether these credentials may not read it.
        is_known: whether the API server has said if the Lease exists.
        is_there: whether it exists, if that is known.
    """

    def __init__(
        self,
        requester: Requester,
        *,
        namespace: str,
        name: str,
        identity: str,
        timing: Timing | None = None,
        makes: bool = True,
        clocks: Callable[[], Instant] = read_clocks,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Prepare; nothing is sent yet.

        Args:
            requester: the transport.
            namespace: namespace of the Lease.
            name: name of the Lease.
            identity: unique for every process, also for the next one in the same pod.
            timing: the same for all candidates.
            makes: whether to create a missing Lease; if not, wait until another process creates it.
            clocks: returns the current time.
            jitter: returns a number from 0 to 1.
        """
        self.name: Final = f"{namespace}/{name}"
        self.identity: Final = identity
        self.holder = ""
        self.problem = ""
        self._answered_at: Instant | None = None
        self.is_forbidden = False
        self.is_known = False
        self.is_there = False
        self._makes: Final = makes
        self._requester: Final = requester
        self._collection: Final = f"{_GROUP}/namespaces/{namespace}/leases"
        self._path: Final = f"{self._collection}/{name}"
        self._object_name: Final = name
        self._timing: Final = timing or Timing()
        self._clocks: Final = clocks
        self._jitter: Final = jitter
        # The last state read, and when this process first saw it.
        self._seen: _Spec | None = None
        self._seen_at: Instant | None = None
        # When this process certainly held the Lease: the time just before the last successful renewal was sent. None:
        # not held.
        self._renewed_at: Instant | None = None
        self._version = ""
        # The write whose outcome is unknown, and the state of the Lease when this process last tried to acquire it.
        self._unsure: tuple[_Spec, Instant] | None = None
        self._how = How.NEW

    # ------------------------------------------------------------------ questions

    def left_s(self) -> float:
        """Return for how many seconds no other process can acquire it, by the worse clock; 0 or less if none."""
        if self._renewed_at is None:
            return 0.0
        return self._timing.duration_s - self._clocks().since_s(self._renewed_at)

    def is_failing(self) -> bool:
        """Return whether reads and writes have failed for as long as a holder may continue without them."""
        if not self.problem:
            return False
        answered_at = self._answered_at
        return answered_at is None or self._clocks().boot_s - answered_at.boot_s >= self._timing.renew_deadline_s

    async def acquire(self) -> How:
        """Wait without limit until this process holds the Lease."""
        while True:
            try:
                how = await self._try_to_acquire()
            except ApiError as e:
                self.problem, self.is_forbidden = str(e), isinstance(e, ApiForbiddenError)
            else:
                self.problem, self.is_forbidden = "", False
                if how is not None:
                    return how
            await asyncio.sleep(self._next_look_s())

    async def keep(self) -> NoReturn:
        """Renew the Lease until that fails for too long.

        Raises:
            LeaseLostError: another process holds it, or it was not renewed inside the renew deadline.
        """
        while True:
            wait_s = self._timing.retry_s * (1.0 - 0.25 * self._jitter())
            if self._renewed_at is not None:
                wait_s = max(min(wait_s, self._deadline_left_s(self._renewed_at)), 0.0)
            await asyncio.sleep(wait_s)
            try:
                await self._renew()
            except ApiError as e:
                self.problem = str(e)
            except LeaseLostError:
                self._renewed_at = None
                raise
            else:
                self.problem = ""

    def forget(self) -> None:
        """Know nothing of the Lease until it is read again, because `acquire` or `keep` was cancelled."""
        self.is_known = self.is_there = self.is_forbidden = False

    async def release(self, limit_s: float) -> bool:
        """Release the Lease so that the next holder need not wait; return whether that was written within *limit_s*.

        Only for a holder whose last write has ended.
        """
        if self._renewed_at is None:
            return False
        self._renewed_at = None
        now = _time_text(self._clocks())
        transitions = self._seen.lease_transitions if self._seen is not None else 0
        spec = _Spec("", _RELEASED_S, now, now, transitions)
        try:
            async with asyncio.timeout(limit_s):
                try:
                    await self._patch(spec)
                except ApiConflictError:
                    if (await self._read()).holder_identity != self.identity:
                        return False
                    await self._patch(spec)
        except (ApiError, TimeoutError) as e:
            self.problem = str(e) or f"no answer within {limit_s:g} s"
            return False
        return True

    # ------------------------------------------------------------------ acquiring

    def _next_look_s(self) -> float:
        """Return the seconds until a candidate reads again; frequent reads detect the last renewal early."""
        # Up to a quarter shorter, so that candidates do not synchronize, and never later than promised.
        look_s = 0.5 * self._timing.retry_s * (1.0 - 0.25 * self._jitter())
        over_s = self._over_in_s()
        return min(look_s, over_s) if over_s > 0.0 else look_s

    async def _try_to_acquire(self) -> How | None:
        before = self._clocks()
        try:
            seen = await self._read()
        except ApiNotFoundError:
            self.is_known, self.is_there = True, False
            return await self._create() if self._makes and self._is_over() else None
        # An old write is not enough: it could not be renewed in time.
        if self._unsure is not None and self._unsure[0] == seen and self._deadline_left_s(self._unsure[1]) > 0.0:
            self._renewed_at, self._unsure = self._unsure[1], None
            return self._how
        if not self._is_over():
            return None
        self._how = How.NEW if self._seen is None else How.RELEASED if _is_released(seen) else How.EXPIRED
        spec = self._claim(before, (seen.lease_transitions or 0) + 1)
        try:
            await self._write(spec, lambda: self._patch(spec))
        except ApiConflictError:
            return None  # another candidate was faster
        return self._how

    async def _create(self) -> How | None:
        self._how = How.NEW if self._seen is None else How.EXPIRED  # deleted, perhaps after another holder
        spec = self._claim(self._clocks(), 0)
        try:
            await self._write(spec, lambda: self._post(spec))
        except ApiConflictError:
            return None
        return self._how

    def _is_over(self) -> bool:
        """Return whether no process can hold it: it was released, or has not changed for long enough."""
        return self._over_in_s() <= 0.0

    def _over_in_s(self) -> float:
        if self._seen is None or self._seen_at is None or _is_released(self._seen):
            return 0.0  # no holder is known, or it has released the Lease
        # At least as long as this process would trust its own renewal, whatever was written by hand, because the holder
        # may not have noticed the change.
        wished_s = float(self._seen.lease_duration_seconds or 0)
        good_s = min(max(wished_s, self._timing.duration_s), MAX_DURATION_S)
        return good_s - (self._clocks().boot_s - self._seen_at.boot_s)

    # ------------------------------------------------------------------ keeping

    async def _renew(self) -> None:
        renewed_at = self._renewed_at
        if renewed_at is None:
            raise LeaseLostError(f"lease {self.name} is not held")
        left_s = self._deadline_left_s(renewed_at)
        try:
            if left_s <= 0.0:
                raise TimeoutError  # send nothing: a process that was stopped for a while must not return as holder
            async with asyncio.timeout(left_s):
                await self._renew_once()
        except TimeoutError as e:
            why = self.problem or "no answer"
            limit_s = self._timing.renew_deadline_s
            raise LeaseLostError(f"lease {self.name} could not be renewed for {limit_s:g} s: {why}") from e

    def _deadline_left_s(self, renewed_at: Instant) -> float:
        return self._timing.renew_deadline_s - (self._clocks().boot_s - renewed_at.boot_s)

    async def _renew_once(self) -> None:
        acquired = (self._seen.acquire_time if self._seen else "") or ""
        spec = self._claim(self._clocks(), (self._seen.lease_transitions if self._seen else 0) or 0, acquired)
        try:
            await self._write(spec, lambda: self._patch(spec))
        except ApiNotFoundError:
            if not self._makes:
                self.is_there = False
                raise LeaseLostError(f"lease {self.name} is gone") from None
            # The Lease was deleted while held; candidates that saw it before wait until it would have expired.
            await self._write(spec, lambda: self._post(spec))
        except ApiConflictError:
            await self._renew_changed(spec)

    async def _renew_changed(self, spec: _Spec) -> None:
        """Handle a write by another party: repair a manual edit, or give way to another holder."""
        found = await self._read()
        if found.holder_identity not in (self.identity, "", None) or _is_released(found):
            raise LeaseLostError(f"lease {self.name} is held by {quoted_identity(found.holder_identity or '')}")
        if self._unsure is not None and self._unsure[0] == found:
            self._renewed_at = self._unsure[1]
        await self._write(spec, lambda: self._patch(spec))

    def _claim(self, now: Instant, transitions: int, acquired: str = "") -> _Spec:
        text = _time_text(now)
        return _Spec(self.identity, round(self._timing.duration_s), acquired or text, text, transitions)

    # ------------------------------------------------------------------ calls

    async def _write(self, spec: _Spec, write: Callable[[], Awaitable[_Lease]]) -> None:
        """Write *spec*; it is valid from before it was sent, however long the answer takes."""
        sent_at = self._clocks()
        try:
            found = await write()
        except ApiUnknownError:
            self._unsure = (spec, sent_at)
            raise
        self._note(found)
        self._renewed_at, self._unsure = sent_at, None

    def _note(self, found: _Lease) -> _Spec:
        spec = found.spec or _Spec()
        # A Lease that was applied without a holder counts as missing, as long as no holder was seen in it.
        if spec != self._seen and not (self._seen is None and _is_unheld(spec)):
            self._seen, self._seen_at = spec, self._clocks()
        self.is_known = self.is_there = True
        self._version = found.metadata.resource_version or ""
        self.holder = spec.holder_identity or ""
        return spec

    async def _read(self) -> _Spec:
        return self._note(await self._ask("GET", self._path))

    async def _post(self, spec: _Spec) -> _Lease:
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._object_name},
            "spec": spec,
        }
        return await self._ask("POST", self._collection, body)

    async def _patch(self, spec: _Spec) -> _Lease:
        body = {"metadata": {"resourceVersion": self._version}, "spec": spec}
        return await self._ask("PATCH", self._path, body, MERGE_PATCH)

    async def _ask(self, verb: str, path: str, body: Any = None, content_type: str = JSON) -> _Lease:
        answer = await self._requester.request(
            verb,
            path,
            body=None if body is None else msgspec.json.encode(body),
            content_type=content_type,
            deadline_s=self._timing.attempt_s,
            purpose=Purpose.LEASE,
            wait_out_pause=False,
        )
        answer.check_kind(verb, path)
        self._answered_at = self._clocks()
        try:
            return _decoder.decode(answer.body)
        except (msgspec.MsgspecError, ValueError) as e:
            # The next read shows what was written.
            text = f"the Lease cannot be read: {e}"
            raise ApiUnknownError(verb=verb, path=path, status=answer.status, message=text) from e


def quoted_identity(text: str) -> str:
    """Return a holder's identity in printable form."""
    return repr(printable(text, 128)) if text else "nobody"


def _is_released(spec: _Spec) -> bool:
    return not spec.holder_identity and spec.lease_duration_seconds == _RELEASED_S


def _is_unheld(spec: _Spec) -> bool:
    """Return whether nothing in it shows that it ever had a holder."""
    return not any((spec.holder_identity, spec.lease_duration_seconds, spec.acquire_time, spec.renew_time))


def _time_text(now: Instant) -> str:
    return datetime.fromtimestamp(now.wall_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
