"""The envelopes of lists, watch events and reviews for objects of any kind.

A function from the caller decodes the object itself; kinds of objects belong to `core/wire`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from kube.errors import UndecodableError, printable

_T = TypeVar("_T")


class EventKind(StrEnum):
    """What happened to an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPage(Generic[_T]):
    """One page of a list; *continue_token* is "" on the last page."""

    items: tuple[_T, ...]
    resource_version: str
    continue_token: str = ""


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


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str | None = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, frozen=True):
    """Source: Kubernetes API reference, meta/v1 ListMeta. An empty list may be `null`."""

    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Head(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    # Only in a Status:
    code: int | None = 0
    reason: str | None = ""
    message: str | None = ""


class _Event(msgspec.Struct, frozen=True):
    """Source: Kubernetes API reference, meta/v1 WatchEvent."""

    type: str
    object: msgspec.Raw


_list_decoder: Final = msgspec.json.Decoder(_List)
_event_decoder: Final = msgspec.json.Decoder(_Event)
_head_decoder: Final = msgspec.json.Decoder(_Head)
_KINDS: Final = {kind.value: kind for kind in EventKind}


def page_decoder(decode: Callable[[bytes], _T]) -> Callable[[bytes], ListPage[_T]]:
    """Return a decoder of lists whose objects *decode* reads; it raises only `UndecodableError`.

    Args:
        decode: converts one object's JSON to a value; may raise `ValueError` or msgspec's errors.
    """

    def decode_page(text: bytes) -> ListPage[_T]:
        try:
            found = _list_decoder.decode(text)
            return ListPage(
                items=tuple([decode(bytes(raw)) for raw in found.items or ()]),
                resource_version=found.metadata.resource_version,
                continue_token=found.metadata.continue_ or "",
            )
        except (ValueError, msgspec.MsgspecError, RecursionError) as e:
            raise UndecodableError(f"a list cannot be read: {printable(str(e), 256)}") from e

    return decode_page


def event_decoder(decode: Callable[[bytes], _T]) -> Callable[[bytes], WatchEvent[_T]]:
    """Return a decoder of watch events whose objects *decode* reads; it raises only `UndecodableError`.

    Args:
        decode: converts one object's JSON to a value; may raise `ValueError` or msgspec's errors.
    """

    def decode_event(line: bytes) -> WatchEvent[_T]:
        try:
            return _decode_event(line, decode)
        except (ValueError, msgspec.MsgspecError, RecursionError) as e:
            raise UndecodableError(f"a watch event cannot be read: {printable(str(e), 256)}") from e

    return decode_event


def read_version(text: bytes) -> str:
    """Return the `resourceVersion` of the object in *text*.

    Raises:
        UndecodableError: *text* is not an object.
    """
    try:
        return _head_decoder.decode(text).metadata.resource_version
    except (ValueError, msgspec.MsgspecError, RecursionError) as e:
        raise UndecodableError(f"an object cannot be read: {printable(str(e), 256)}") from e


def _decode_event(line: bytes, decode: Callable[[bytes], _T]) -> WatchEvent[_T]:
    event = _event_decoder.decode(line)
    head = _head_decoder.decode(event.object)
    kind = _KINDS.get(event.type)
    if kind is not None:
        return Changed(kind=kind, value=decode(bytes(event.object)), resource_version=head.metadata.resource_version)
    if event.type == "BOOKMARK":
        return Bookmark(resource_version=head.metadata.resource_version)
    if event.type == "ERROR":
        return WatchFailed(code=head.code or 0, reason=head.reason or "", message=head.message or "")
    raise ValueError(f"event type {event.type!r}")
