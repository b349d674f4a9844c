"""Lists one kind in pages, or lists and watches it and restores the consumer's view after every failure.

The caller passes the decoder of an object and the consumer; the reflector keeps only a resourceVersion. Every full
list arrives as a whole, so the consumer finds missed deletions by comparison.

If etcd was restored from a backup, its versions may have gone back. An API server accepts a watch from a version that
it has not reached. It sends nothing, not even bookmarks, until it gets there, and never what changed before
(kubernetes/kubernetes#107457). API servers are stopped for a restore, so the watches break. After each watch that did
not end at its time, the next one also lists one object, because this answer shows the current version. The server may
have reached the version again by other changes, so that watch begins one event earlier, and must begin with that event.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final, Generic, NamedTuple, NoReturn, Protocol, TypeAlias, TypeVar, assert_never

import msgspec

from kube.calls import ListPage, Requester, head_decoder, is_newer, page_decoder, read_json, read_version
from kube.errors import (
    ApiError,
    ApiForbiddenError,
    ApiGoneError,
    ApiNotFoundError,
    ApiRefusedError,
    ApiThrottledError,
    ApiUnreachableError,
    UndecodableError,
    from_event,
)
from kube.transport import Purpose
from runtime.backoff import Backoff

_T = TypeVar("_T")
_T_contra = TypeVar("_T_contra", contravariant=True)


class EventKind(StrEnum):
    """What happened to an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Changed(NamedTuple, Generic[_T]):
    """An object was added, changed or deleted; *value* is its last state."""

    kind: EventKind
    value: _T
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bookmark:
    """No change up to this version."""

    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchFailed:
    """The server ends the watch with a reason, inside an answer with status 200."""

    code: int
    reason: str
    message: str


WatchEvent: TypeAlias = Changed[_T] | Bookmark | WatchFailed


class _Event(msgspec.Struct, frozen=True):
    """Source: Kubernetes API reference, meta/v1 WatchEvent."""

    type: str
    object: msgspec.Raw


_event_decoder: Final = msgspec.json.Decoder(_Event)


_KINDS: Final = {kind.value: kind for kind in EventKind}


def event_decoder(decode: Callable[[bytes], _T]) -> Callable[[bytes], WatchEvent[_T]]:
    """Return a decoder of watch events whose objects *decode* reads; it raises only `UndecodableError`.

    Args:
        decode: converts one object's JSON to a value; may raise `ValueError` or msgspec's errors.
    """
    return partial(read_json, "a watch event", read=partial(_decode_event, decode=decode))


def _decode_event(line: bytes, decode: Callable[[bytes], _T]) -> WatchEvent[_T]:
    event = _event_decoder.decode(line)
    head = head_decoder.decode(event.object)
    kind = _KINDS.get(event.type)
    if kind is not None:
        return Changed(kind=kind, value=decode(bytes(event.object)), resource_version=head.metadata.resource_version)
    if event.type == "BOOKMARK":
        return Bookmark(resource_version=head.metadata.resource_version)
    if event.type == "ERROR":
        return WatchFailed(code=head.code or 0, reason=head.reason or "", message=head.message or "")
    raise ValueError(f"event type {event.type!r}")


# Objects in one page of a list; decoding 500 pods takes less than 20 ms.
_PAGE: Final = 500
# A watch that delivered an event, or lived this long before it ended or broke, was good: continue at once.
_GOOD_WATCH_S: Final = 0.5
_GOOD_BROKEN_WATCH_S: Final = 10.0
# If a server closes every watch after one event, this limits the requests to five a second.
_REST_S: Final = 0.2
_NO_REST_AFTER_S: Final = 5.0
# A watch that lived for this share of its time ended as planned.
_PLANNED_SHARE: Final = 0.8
# A server counts the time of a watch from when the request arrived, so a watch lasts longer here, except for rounding.
_ROUNDED_S: Final = 1.0
# After this many failures in a row, the server may be unable to serve the version.
_FAILURES_BEFORE_LIST: Final = 5
# If a list younger than this must be repeated, the next one waits, because a full list is the most expensive call.
_GOOD_LIST_S: Final = 30.0
_EVENTS_PER_TURN: Final = 64


async def list_all(
    source: Requester,
    path: str,
    decode: Callable[[bytes], ListPage[_T]],
    *,
    selectors: Mapping[str, str] | None = None,
    deadline_s: float = 30.0,
) -> ListPage[_T]:
    """Return every object under *path* at one version, together with that version.

    Args:
        source: the transport.
        path: path of the collection, such as `/api/v1/pods`.
        decode: decodes one page.
        selectors: `labelSelector`, `fieldSelector`.
        deadline_s: limit for one page.

    Raises:
        ApiError: the API server does not answer, refuses, or dropped the version between two pages (410).
        UndecodableError: *decode* cannot read a page.
    """
    items: list[_T] = []
    params = {**(selectors or {}), "limit": str(_PAGE)}
    while True:
        answer = await source.request("GET", path, params=params, deadline_s=deadline_s, purpose=Purpose.CALLS)
        page = decode(answer.body)
        items.extend(page.items)
        if not page.continue_token:
            return ListPage(items=tuple(items), resource_version=page.resource_version)
        params["continue"] = page.continue_token


class Sink(Protocol[_T_contra]):
    """The consumer. Slow handlers slow the server down, because nothing is queued in between.

    An `ApiError` raised by a handler would count as the watch's own; any other exception ends the run.
    """

    async def on_replace(self, objects: Sequence[_T_contra], resource_version: str) -> None:
        """Replace all known objects."""
        ...

    async def on_event(self, kind: EventKind, value: _T_contra) -> None:
        """Record that one object was added, changed or deleted. The same event may arrive twice."""
        ...


class Source(Requester, Protocol):
    """The part of `kube.transport.Transport` that a reflector needs."""

    def stream(
        self, path: str, params: Mapping[str, str], *, silence_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """See `Transport.stream`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Timeouts and waits of a reflector.

    Attributes:
        page_limit: objects in one page of a list.
        list_deadline_s: limit for one page.
        watch_s: minimum time after which the server ends a watch; up to a quarter is added at random.
        silence_s: a connection counts as dead after this long without an event or bookmark (sent about once a minute).
        first_wait_s, last_wait_s: the back-off between failing requests.
        last_list_wait_s: the longest wait between full lists that do not help.
    """

    page_limit: int = _PAGE
    list_deadline_s: float = 30.0
    watch_s: float = 240.0
    silence_s: float = 120.0
    first_wait_s: float = 1.0
    last_wait_s: float = 8.0
    last_list_wait_s: float = 30.0


@dataclass(slots=True, kw_only=True)
class Counters:
    """Event counts; lists: started lists, replaced: which of them was the last to reach the consumer, 0 for none."""

    lists: int = 0
    replaced: int = 0
    watch_restarts: int = 0
    undecodable: int = 0
    expired: int = 0
    failures: int = 0


class _Last(NamedTuple):
    """The last event; before: the version up to which everything was delivered before it."""

    line: bytes
    before: str


@dataclass(slots=True, kw_only=True)
class _Progress:
    """The progress of one watch.

    Attributes:
        seconds: after them the server ends it.
        is_reached: whether the server is known to have reached *version*; if not, a watch from there may be blind.
        again: the event with which it must begin, because it was delivered before; None: with any.
        requests: how many requests it has cost.
    """

    version: str
    started_s: float
    seconds: int
    is_reached: bool
    again: _Last | None = None
    opened: bool = False
    requests: int = 1

    def good(self, first_version: str, now_s: float, *, broken: bool) -> bool:
        """Return whether it delivered an event, or lived long enough to count as working."""
        enough_s = _GOOD_BROKEN_WATCH_S if broken else _GOOD_WATCH_S
        return self.version != first_version or (self.opened and now_s - self.started_s >= enough_s)


class Reflector(Generic[_T]):
    """Keeps *sink* informed about the objects under *path*.

    Attributes:
        state: why the view may be stale, for readiness ("forbidden: list nodes: ..."), or "".
        path: the path that the last list used.
        synced: set once a full list was delivered; stays set.
        last_seen_monotonic: when the server last sent anything, by the given clock; 0.0 before.
        version: the resourceVersion up to which everything was delivered, or "".
        current_s: by the same clock, when the view was last known to be complete: an event or a bookmark arrived, a
            watch ended as planned, or a list started that was later delivered. Opening a watch does not count, because
            events may be held back in it. 0.0 before.
        counters: what happened so far.
    """

    def __init__(
        self,
        source: Source,
        path: str,
        *,
        decode: Callable[[bytes], _T],
        sink: Sink[_T],
        selectors: Mapping[str, str] | None = None,
        pace: Pace | None = None,
        absent_is_empty: bool = False,
        older: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Prepare; `run` sends the first request.

        Args:
            source: the transport.
            path: path of the collection, such as `/api/v1/pods`.
            decode: converts one object's JSON to a value; may raise `ValueError` or msgspec's errors.
            sink: the consumer.
            selectors: `labelSelector`, `fieldSelector`.
            pace: limits and waits.
            absent_is_empty: a 404 of the list means that the kind is not installed, so there are no objects.
            older: alternative paths if *path* is not served; the first one served counts.
            clock: monotonic seconds.
            jitter: returns a number from 0 to 1.
        """
        self.state = ""
        self.synced = asyncio.Event()
        self.last_seen_monotonic = 0.0
        self.version = ""
        self.current_s = 0.0
        self.counters = Counters()
        self._source = source
        self.path = path
        self._paths = (path, *older)
        self._kind = path.rsplit("/", 1)[-1]
        self._decode_list = page_decoder(decode)
        self._decode_event = event_decoder(decode)
        self._sink = sink
        self._selectors = dict(selectors or {})
        self._pace = pace or Pace()
        self._absent_is_empty = absent_is_empty
        self._clock = clock
        self._jitter = jitter
        self._requests = Backoff(first_s=self._pace.first_wait_s, cap_s=self._pace.last_wait_s, jitter=jitter)
        self._lists = Backoff(first_s=self._pace.first_wait_s, cap_s=self._pace.last_list_wait_s, jitter=jitter)
        self._listed_at_s: float | None = None
        self._last: _Last | None = None  # since the last list
        self._waited = False  # whether it waited since the last request, because that one failed
        self._scope: asyncio.Timeout | None = None
        self._wants_list = False

    async def run(self) -> NoReturn:
        """List and watch until cancelled, or until the sink raises."""
        while True:
            version = await self._list()
            await self._watch(version)

    def list_again(self) -> None:
        """End the current watch, if any, and list again."""
        self._wants_list = True
        if self._scope is not None:
            self._scope.reschedule(0.0)

    # -- list ---------------------------------------------------------------------------------------------------

    async def _list(self) -> str:
        """Deliver one full list, however long that takes; return its version."""
        while True:
            await self._rest_before_list()
            try:
                objects, version = await self._find()
            except (ApiError, UndecodableError, ValueError) as e:
                if isinstance(e, ApiNotFoundError) and self._absent_is_empty:
                    await self._without_kind()
                else:
                    await self._fail("list", e)
                continue
            begun_s = self._listed_at_s or 0.0
            await self._sink.on_replace(objects, version)
            self._last = None
            self.version, self.current_s = version, begun_s
            self.counters.replaced = self.counters.lists
            self.state = ""
            self.synced.set()
            return version

    async def _find(self) -> tuple[list[_T], str]:
        """Return a full list from the first path that is served."""
        *newer, last = self._paths
        for self.path in newer:
            try:
                return await self._fetch()
            except ApiNotFoundError:
                continue
        self.path = last
        return await self._fetch()

    async def _fetch(self) -> tuple[list[_T], str]:
        self._listed_at_s = self._clock()
        self.counters.lists += 1
        objects: list[_T] = []
        params = {**self._selectors, "limit": str(self._pace.page_limit)}
        while True:
            page = self._decode_list(await self._page(params))
            objects.extend(page.items)
            if not page.continue_token:
                return objects, page.resource_version
            params["continue"] = page.continue_token
            # Decoding a page blocks the loop longest, so other tasks run between pages.
            await asyncio.sleep(0)

    async def _page(self, params: Mapping[str, str]) -> bytes:
        """Return one page of a list; if the server asks for time before a later page, wait and ask for it again."""
        while True:
            try:
                answer = await self._source.request(
                    "GET",
                    self.path,
                    params=params,
                    deadline_s=self._pace.list_deadline_s,
                    purpose=Purpose.WATCHES,
                )
            except ApiThrottledError as e:
                if "continue" not in params:
                    raise
                await self._fail("list", e)
            else:
                self.last_seen_monotonic = self._clock()
                return answer.body

    async def _rest_before_list(self) -> None:
        waited, self._waited = self._waited, False
        if self._listed_at_s is None or waited:
            return
        if self._clock() - self._listed_at_s >= _GOOD_LIST_S:
            self._lists.reset()
            return
        await asyncio.sleep(self._lists.next_s())

    async def _without_kind(self) -> None:
        await self._sink.on_replace((), "")
        self.version, self.current_s = "", self._clock()
        self.state = ""
        self.synced.set()
        self._waited = True
        await asyncio.sleep(self._pace.last_list_wait_s * (1.0 - 0.25 * self._jitter()))

    # -- watch --------------------------------------------------------------------------------------------------

    async def _watch(self, version: str) -> None:
        """Follow from *version* on, over several watches if needed, until only a list can help."""
        failures = 0
        is_reached = True
        while True:
            if self._wants_list:
                self._wants_list, self._waited = False, True
                return
            self._waited = False
            progress = _Progress(
                version=version,
                started_s=self._clock(),
                seconds=self._watch_seconds(),
                is_reached=is_reached,
                again=None if is_reached else self._last,
            )
            error: ApiError | None = None
            try:
                await self._follow(progress)
            except ApiGoneError:
                self.counters.expired += 1
                return
            except UndecodableError as e:
                self.counters.undecodable += 1
                self.state = f"unreadable: watch {self._kind}: {e}"
                return
            except ApiError as e:
                error = e
            if self._wants_list:
                continue
            lived_s = self._clock() - progress.started_s
            as_planned = error is None and lived_s >= _PLANNED_SHARE * self._pace.watch_s
            self.counters.watch_restarts += not as_planned
            is_reached = error is None and progress.again is None and lived_s >= progress.seconds - _ROUNDED_S
            if progress.good(version, self._clock(), broken=error is not None):
                # Only a good watch resets the back-off; a successful list does not show that watches work.
                self._requests.reset()
                failures = 0
                await asyncio.sleep(_REST_S if lived_s < _NO_REST_AFTER_S else 0.0)
            else:
                failures += 1
                await self._fail("watch", error, requests=progress.requests)
                if error is not None and _only_a_list_helps(error, failures):
                    return
            version = progress.version

    async def _follow(self, progress: _Progress) -> None:
        """Run one watch to its end; *progress* shows how far it came, also after an exception."""
        try:
            async with asyncio.timeout(None) as self._scope:
                await self._read_lines(progress)
        except TimeoutError:
            pass  # a list is requested instead
        finally:
            self._scope = None

    async def _read_lines(self, progress: _Progress) -> None:
        async with self._source.stream(
            self.path, self._watch_params(progress), silence_s=self._pace.silence_s
        ) as lines:
            progress.opened = True
            self.last_seen_monotonic = self._clock()
            if not progress.is_reached:
                # Only now, because the server may have been another one before.
                await self._check_reached(progress)
            self.state = ""
            turn = 0
            async for line in lines:
                came_s = self.last_seen_monotonic = self._clock()
                if progress.again is None:
                    self.version = progress.version = await self._take(line, progress.version) or progress.version
                elif line == progress.again.line:
                    progress.again = None
                else:
                    message = f"the server's changes up to {progress.version} are others now: etcd was restored"
                    raise from_event("GET", self.path, 410, "Expired", message)
                self.current_s = came_s
                turn += 1
                if turn % _EVENTS_PER_TURN == 0:
                    await asyncio.sleep(0)  # reading a burst never waits, so yield to other tasks
            if self._clock() - progress.started_s >= _GOOD_WATCH_S:
                self.current_s = self._clock()  # when the server ends a watch, it has sent all its events

    async def _check_reached(self, progress: _Progress) -> None:
        """Make sure that the server has reached the version of the watch.

        Raises:
            ApiError: it has not (410), or does not answer.
            UndecodableError: its answer cannot be read.
        """
        progress.requests += 1
        answer = await self._source.request(
            "GET",
            self.path,
            params={**self._selectors, "limit": "1"},
            deadline_s=self._pace.list_deadline_s,
            # All kinds may ask at once, each beside its watch.
            purpose=Purpose.CALLS,
        )
        current = read_version(answer.body)
        if is_newer(progress.version, current):
            message = f"the server's version went back from {progress.version} to {current}: etcd was restored"
            raise from_event("GET", self.path, 410, "Expired", message)
        progress.is_reached = True

    async def _take(self, line: bytes, before: str) -> str:
        """Deliver one event, which came after version *before*; return its version."""
        try:
            event = self._decode_event(line)
        except ValueError as e:
            raise UndecodableError(str(e)) from e
        match event:
            case Changed(kind=kind, value=value, resource_version=version):
                await self._sink.on_event(kind, value)
                self._last = _Last(line, before)
                return version
            case Bookmark(resource_version=version):
                return version
            case WatchFailed(code=code, reason=reason, message=message):
                raise from_event("GET", self.path, code, reason, message)
            case _:
                assert_never(event)

    def _watch_seconds(self) -> int:
        # Randomized, so that the watches of all kinds, opened together, do not always end together.
        return round(self._pace.watch_s * (1.0 + 0.25 * self._jitter()))

    def _watch_params(self, progress: _Progress) -> dict[str, str]:
        return {
            **self._selectors,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": progress.again.before if progress.again is not None else progress.version,
            "timeoutSeconds": str(progress.seconds),
        }

    # -- failure ------------------------------------------------------------------------------------------------

    async def _fail(self, doing: str, error: Exception | None, *, requests: int = 1) -> None:
        """Report the failure, then wait for each of its *requests*: longer each time, or as long as the server asks."""
        self._waited = True
        self.counters.failures += 1
        wait_s = sum(self._requests.next_s() for _ in range(requests))
        if error is None:
            self.state = f"failing: {doing} {self._kind}: each ends at once"
        else:
            self.counters.undecodable += isinstance(error, UndecodableError)
            self.state = f"{_word(error)}: {doing} {self._kind}: {_text(error)}"
            wait_s = max(wait_s, min(getattr(error, "retry_after_s", None) or 0.0, self._pace.last_list_wait_s))
        await asyncio.sleep(wait_s)


def _only_a_list_helps(error: ApiError, failures: int) -> bool:
    if isinstance(error, ApiForbiddenError | ApiThrottledError | ApiUnreachableError):
        return False
    return isinstance(error, ApiRefusedError) or failures >= _FAILURES_BEFORE_LIST


def _word(error: Exception) -> str:
    match error:
        case ApiForbiddenError():
            return "forbidden"
        case ApiUnreachableError():
            return "unreachable"
        case ApiThrottledError():
            return "throttled"
        case ApiNotFoundError():
            return "not found"
        case ApiError():
            return "failing"
        case _:
            return "unreadable"


def _text(error: Exception) -> str:
    return error.message if isinstance(error, ApiError) else str(error)
