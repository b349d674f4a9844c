"""Watch streams: changes since a revision, then every new change, with bookmarks and an end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from sandbox.api import requests
from sandbox.api.errors import StatusError, internal
from sandbox.api.resources import ResourceType
from sandbox.api.selectors import Selection
from sandbox.api.store import Store, Stored, Watcher

Json = dict[str, Any]

# The real server ends a watch without timeoutSeconds after 30 to 60 minutes.
_DEFAULT_END_S: Final = 1800
_INITIAL_END: Final = {"k8s.io/initial-events-end": "true"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The parameters of a watch; *since* None = start with the current objects, reported as ADDED."""

    selection: Selection
    since: int | None
    initial: bool
    bookmarks: bool
    marks_initial_end: bool
    end_s: float


def read_wish(query: Mapping[str, str], selection: Selection) -> Wish:
    """Read the query of a watch.

    Raises:
        StatusError: 400 or 422, contradictory parameters.
    """
    version = query.get("resourceVersion") or ""
    streamed = query.get("sendInitialEvents")
    if streamed is not None and query.get("resourceVersionMatch") != "NotOlderThan":
        message = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        raise StatusError(
            422, "Invalid", f'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: {message}'
        )
    if version and not version.isdigit():
        # Measured: a list rejects such a version with 400, a watch fails.
        raise internal(f'strconv.ParseUint: parsing "{version}": invalid syntax')
    from_now = version in ("", "0")
    end_s = requests.whole_number(query, "timeoutSeconds")
    return Wish(
        selection=selection,
        since=None if from_now else requests.whole_number(query, "resourceVersion"),
        initial=requests.is_true(streamed) if streamed is not None else from_now,
        bookmarks=requests.is_true(query.get("allowWatchBookmarks")),
        marks_initial_end=requests.is_true(streamed),
        end_s=float(end_s or random.uniform(1, 2) * _DEFAULT_END_S),  # noqa: S311  (spreads load, hides nothing)
    )


def line(kind: str, raw: bytes) -> bytes:
    """Return one encoded event."""
    return b'{"type":"' + kind.encode() + b'","object":' + raw + b"}\n"


class Stream:
    """One watch of one resource. *encode* returns the JSON of a stored object for this client."""

    def __init__(
        self, store: Store, kind: ResourceType, wish: Wish, encode: Callable[[Stored], bytes], bookmark_s: float
    ) -> None:
        self._store = store
        self._kind = kind
        self._wish = wish
        self._encode = encode
        self._bookmark_s = bookmark_s

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the bytes to send, until the watch ends. An expired revision is reported as an event."""
        try:
            watcher, first = self._begin()
        except StatusError as e:
            if e.code != 410:
                raise
            # Measured: HTTP 200, then an ERROR event with code 410.
            yield line("ERROR", msgspec.json.encode(e.status()))
            return
        try:
            if first:
                yield first
            async with aclosing(self._follow(watcher)) as following:
                async for chunk in following:
                    yield chunk
        finally:
            self._store.unwatch(self._kind.resource, watcher)

    def _begin(self) -> tuple[Watcher, bytes]:
        wish = self._wish
        if wish.since is not None and not wish.initial:
            return self._store.watch(self._kind.resource, wish.selection, wish.since), b""
        now = self._store.revision
        there = self._store.select(self._kind.resource, wish.selection) if wish.initial else ()
        lines = [line("ADDED", self._encode(stored)) for stored in there]
        if wish.marks_initial_end:
            lines.append(self._bookmark(_INITIAL_END))
        return self._store.watch(self._kind.resource, wish.selection, now), b"".join(lines)

    async def _follow(self, watcher: Watcher) -> AsyncGenerator[bytes, None]:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._wish.end_s
        bookmark = loop.time() + self._bookmark_s
        while loop.time() < end:
            try:
                async with asyncio.timeout_at(min(end, bookmark)):
                    await watcher.wait()
            except TimeoutError:
                pass
            events = watcher.take()
            if events:
                yield b"".join([line(kind, self._encode(stored)) for kind, stored in events])
            if watcher.slow:
                return
            if loop.time() >= min(bookmark, end):
                bookmark = loop.time() + self._bookmark_s
                # kube-apiserver's watch cache withholds bookmarks, too, before the revision that a watch begins at.
                if self._wish.bookmarks and self._store.revision >= watcher.since:
                    yield self._bookmark({})

    def _bookmark(self, annotations: Mapping[str, str]) -> bytes:
        metadata: Json = {"resourceVersion": str(self._store.revision), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        obj: Json = {"kind": self._kind.kind, "apiVersion": self._kind.api_version, "metadata": metadata}
        if self._kind.resource in ("pods", "nodes"):
            # An empty object of the kind has these two.
            obj |= {"spec": {}, "status": {}}
        return line("BOOKMARK", msgspec.json.encode(obj))
