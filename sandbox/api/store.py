"""The API server double's storage: objects in key order, one revision counter, and recent changes for watches.

A stored object is never changed: a write stores a new one. So readers, watchers and cached text share it without
copies.
`server` and `validation` have the rules for writes.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from sandbox.api.errors import StatusError, bad_request, expired
from sandbox.api.resources import ResourceType
from sandbox.api.selectors import Selection, field_text

Json = dict[str, Any]

# The field that lists and watches of a resource select so often that scans would be the double's main work.
_INDEXED: Final[Mapping[str, str]] = {"pods": "spec.nodeName", "events": "involvedObject.name"}
_TOKEN: Final = re.compile(r"c-[0-9a-f]+")
_KEPT_LISTS: Final = 64
# A watcher with this backlog is disconnected, as the real server does with slow clients.
_WATCH_BACKLOG: Final = 200_000
_ENCODER: Final = msgspec.json.Encoder()


class Stored:
    """One version of one object, and its JSON, created once on demand."""

    __slots__ = ("_raw", "key", "obj", "revision")

    def __init__(self, key: str, obj: Json, revision: int) -> None:
        self.key = key
        self.obj = obj
        self.revision = revision
        self._raw: bytes | None = None

    @property
    def raw(self) -> bytes:
        """The object as JSON."""
        if self._raw is None:
            self._raw = _ENCODER.encode(self.obj)
        return self._raw


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One change: ADDED, MODIFIED or DELETED, the current (or last) state and the one before."""

    type: str
    revision: int
    now: Stored
    before: Stored | None

    def seen_through(self, selection: Selection) -> tuple[str, Stored] | None:
        """Return the change as a watch with *selection* must report it; leaving the selection is a deletion."""
        is_in = self.type != "DELETED" and selection.matches(self.now.obj)
        was_in = self.before is not None and selection.matches(self.before.obj)
        if is_in:
            return ("MODIFIED" if was_in else "ADDED"), self.now
        if was_in and self.before is not None:
            return "DELETED", self.now if self.type == "DELETED" else _restamped(self.before, self.revision)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A part of a list: *token* continues it ("" at the end), *remaining* counts the rest."""

    items: tuple[Stored, ...]
    revision: int
    token: str = ""
    remaining: int = 0


class Watcher:
    """The unsent events of one watch; the store fills it, and the connection empties it.

    A watch may begin at a revision that the store has not reached: it gets what comes after it.
    """

    __slots__ = ("_wake", "pending", "selection", "since", "slow")

    def __init__(self, selection: Selection, since: int) -> None:
        self.selection = selection
        self.since = since
        self.pending: deque[tuple[str, Stored]] = deque()
        self.slow = False
        self._wake = asyncio.Event()

    def offer(self, event: Event) -> None:
        """Add a change if it is selected."""
        if event.revision <= self.since:
            return
        seen: tuple[str, Stored] | None
        if self.selection.everything and not self.selection.namespace:
            seen = (event.type, event.now)
        else:
            seen = event.seen_through(self.selection)
        if seen is None:
            return
        self.slow = self.slow or len(self.pending) >= _WATCH_BACKLOG
        self.pending.append(seen)
        self._wake.set()

    def stop(self) -> None:
        """Wake the connection for the last time."""
        self.slow = True
        self._wake.set()

    async def wait(self) -> None:
        """Wait until there is something to send; the caller sets the time limit."""
        await self._wake.wait()

    def take(self) -> tuple[tuple[str, Stored], ...]:
        """Return everything that is unsent."""
        taken = tuple(self.pending)
        self.pending.clear()
        self._wake.clear()
        return taken


@dataclass(slots=True, kw_only=True)
class _Collection:
    """The objects of one resource; *keys* are sorted as in etcd."""

    ring: deque[Event]
    index_path: str = ""
    keys: list[str] = field(default_factory=list)
    by_key: dict[str, Stored] = field(default_factory=dict)
    by_field: dict[str, set[str]] = field(default_factory=dict)
    watchers: set[Watcher] = field(default_factory=set)
    floor: int = 0
    changed: int = 0

    def put(self, stored: Stored) -> Stored | None:
        before = self.by_key.get(stored.key)
        if before is None:
            insort(self.keys, stored.key)
        self.by_key[stored.key] = stored
        self._index(before, stored)
        return before

    def drop(self, key: str) -> None:
        before = self.by_key.pop(key)
        del self.keys[bisect_left(self.keys, key)]
        self._index(before, None)

    def _index(self, before: Stored | None, now: Stored | None) -> None:
        if not self.index_path:
            return
        old = None if before is None else field_text(before.obj, self.index_path)
        new = None if now is None else field_text(now.obj, self.index_path)
        if old == new:
            return
        if old is not None and before is not None:
            self.by_field[old].discard(before.key)
            if not self.by_field[old]:
                del self.by_field[old]
        if new is not None and now is not None:
            self.by_field.setdefault(new, set()).add(now.key)

    def select(self, selection: Selection) -> Iterator[Stored]:
        keys: list[str]
        wanted = selection.exactly(self.index_path) if self.index_path else None
        if wanted is not None:
            keys = sorted(self.by_field.get(wanted, ()))
        elif selection.namespace:
            low = bisect_left(self.keys, selection.namespace + "/")
            keys = self.keys[low : bisect_right(self.keys, selection.namespace + "0")]
        else:
            keys = self.keys
        if selection.everything:
            return (self.by_key[key] for key in keys)
        return (self.by_key[key] for key in keys if selection.matches(self.by_key[key].obj))


class Store:
    """All objects of the double. Only the event loop's thread may use it; no call awaits."""

    def __init__(self, *, events_kept: int = 20_000) -> None:
        self._revision = 0
        self._events_kept = events_kept
        self._collections: dict[str, _Collection] = {}
        self._lists: OrderedDict[str, tuple[int, tuple[Stored, ...]]] = OrderedDict()

    @property
    def revision(self) -> int:
        return self._revision

    def get(self, resource: str, namespace: str, name: str) -> Stored | None:
        """Return the object of that name, if there is one."""
        return self._of(resource).by_key.get(key_of(namespace, name))

    def count(self, resource: str) -> int:
        """Return how many objects the resource has."""
        return len(self._of(resource).keys)

    def changed(self, resource: str) -> int:
        """Return the revision of the resource's last change; derived data is valid while it stays the same."""
        return self._of(resource).changed

    def write(self, resource: str, obj: Json) -> Stored:
        """Store *obj* (new, or replacing the one of its name) under the next revision.

        *obj* then belongs to the store. An object equal to the stored one is not written again.
        """
        collection = self._of(resource)
        metadata = obj["metadata"]
        key = key_of(metadata.get("namespace", ""), metadata["name"])
        before = collection.by_key.get(key)
        if before is not None:
            metadata["resourceVersion"] = before.obj["metadata"]["resourceVersion"]
            if obj == before.obj:
                return before
        self._revision += 1
        metadata["resourceVersion"] = str(self._revision)
        stored = Stored(key, obj, self._revision)
        collection.put(stored)
        kind = "ADDED" if before is None else "MODIFIED"
        self._tell(collection, Event(type=kind, revision=self._revision, now=stored, before=before))
        return stored

    def remove(self, resource: str, namespace: str, name: str, final: Json | None = None) -> Stored:
        """Remove the object; return its last state (*final*, if given) under the revision of its deletion.

        Raises:
            KeyError: there is none.
        """
        collection = self._of(resource)
        before = collection.by_key[key_of(namespace, name)]
        self._revision += 1
        last = _restamped(before if final is None else Stored(before.key, final, 0), self._revision)
        collection.drop(before.key)
        self._tell(collection, Event(type="DELETED", revision=self._revision, now=last, before=before))
        return last

    def select(self, resource: str, selection: Selection | None = None) -> Iterator[Stored]:
        """Yield the currently selected objects in key order."""
        return self._of(resource).select(selection or Selection())

    def page(self, resource: str, selection: Selection, limit: int = 0, token: str = "") -> Page:
        """Return a list or its next part; the parts together are the list at the revision of the first.

        Raises:
            StatusError: 410, the list that *token* continues is no longer kept; 400, *token* is invalid.
        """
        if token:
            if not _TOKEN.fullmatch(token):
                raise bad_request("continue key is not valid: it was not given out by this server")
            if token not in self._lists:
                raise expired("The provided continue parameter is too old to display a consistent list result.")
            revision, items = self._lists[token]
        else:
            revision, items = self._revision, tuple(self.select(resource, selection))
        if limit <= 0 or len(items) <= limit:
            return Page(items=items, revision=revision)
        rest = items[limit:]
        following = "c-" + f"{revision}-{limit}-{len(rest)}-{rest[0].key}".encode().hex()
        self._lists[following] = (revision, rest)
        while len(self._lists) > _KEPT_LISTS:
            self._lists.popitem(last=False)
        return Page(items=items[:limit], revision=revision, token=following, remaining=len(rest))

    def watch(self, resource: str, selection: Selection, since: int) -> Watcher:
        """Follow a resource after the revision *since* until `unwatch`.

        Raises:
            StatusError: 410, changes since then are no longer kept.
        """
        collection = self._of(resource)
        if since < collection.floor:
            raise expired(f"too old resource version: {since} ({collection.floor})")
        watcher = Watcher(selection, since)
        missed: list[Event] = []
        for event in reversed(collection.ring):
            if event.revision <= since:
                break
            missed.append(event)
        for event in reversed(missed):
            watcher.offer(event)
        collection.watchers.add(watcher)
        return watcher

    def unwatch(self, resource: str, watcher: Watcher) -> None:
        self._of(resource).watchers.discard(watcher)

    def end_watches(self) -> None:
        """Wake every watch so that its connection ends; for a clean stop, and for tests that interrupt them."""
        for collection in self._collections.values():
            for watcher in collection.watchers:
                watcher.stop()

    def compact(self, revision: int | None = None) -> None:
        """Drop changes up to *revision* (default: all): watches from there, and continued lists, get 410."""
        floor = self._revision if revision is None else revision
        self._lists.clear()
        for collection in self._collections.values():
            collection.floor = max(collection.floor, floor)
            while collection.ring and collection.ring[0].revision <= floor:
                collection.ring.popleft()

    def check_reached(self, revision: int) -> None:
        """Refuse a read at a future revision.

        Raises:
            StatusError: 504 with ``Retry-After: 1``, as in the real server.
        """
        if revision > self._revision:
            message = f"Timeout: Too large resource version: {revision}, current: {self._revision}"
            raise StatusError(504, "Timeout", message, {"Retry-After": "1"})

    def _of(self, resource: str) -> _Collection:
        collection = self._collections.get(resource)
        if collection is None:
            ring: deque[Event] = deque(maxlen=self._events_kept)
            collection = _Collection(ring=ring, index_path=_INDEXED.get(resource, ""))
            self._collections[resource] = collection
        return collection

    def _tell(self, collection: _Collection, event: Event) -> None:
        if len(collection.ring) == self._events_kept:
            collection.floor = collection.ring[0].revision
        collection.ring.append(event)
        collection.changed = event.revision
        for watcher in collection.watchers:
            watcher.offer(event)


def to_stored(kind: ResourceType, obj: Mapping[str, Any]) -> Json:
    """Return *obj* of *kind* in its stored form; its type comes first, so that lists can omit it."""
    rest = {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}
    return {"kind": kind.kind, "apiVersion": kind.api_version, **rest}


def shown(kind: ResourceType, obj: Mapping[str, Any]) -> Json:
    """Return a stored object in the form of *kind*."""
    if obj.get("apiVersion") == kind.api_version:
        return dict(obj)
    return {**obj, "kind": kind.kind, "apiVersion": kind.api_version}


def shown_raw(kind: ResourceType, stored: Stored) -> bytes:
    """Return a stored object as JSON of *kind*; the shared text if it is the same."""
    if stored.obj.get("apiVersion") == kind.api_version:
        return stored.raw
    return msgspec.json.encode(shown(kind, stored.obj))


def list_item(kind: ResourceType, stored: Stored) -> bytes:
    """Return the same inside a list, where objects of built-in kinds omit their kind."""
    raw = shown_raw(kind, stored)
    prefix = f'{{"kind":"{kind.kind}","apiVersion":"{kind.api_version}",'.encode()
    return b"{" + raw[len(prefix) :] if not kind.custom and raw.startswith(prefix) else raw


def key_of(namespace: str, name: str) -> str:
    """Return the key by which objects of one resource are sorted, as in etcd."""
    return f"{namespace}/{name}" if namespace else name


def _restamped(stored: Stored, revision: int) -> Stored:
    metadata = {**stored.obj["metadata"], "resourceVersion": str(revision)}
    return Stored(stored.key, {**stored.obj, "metadata": metadata}, revision)
