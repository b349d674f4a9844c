"""The envelopes of lists, watch events and reviews: what surrounds an object, whatever its kind.

What is inside is decoded by the function that the caller hands in; kinds of objects belong to `core/wire`.
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
    """One page of a list; *continue_token* is "" on the last."""

    items: tuple[_T, ...]
    resource_version: str
    continue_token: str = ""


class Changed(NamedTuple, Generic[_T]):
    """An object appeared, changed or went; *value* is it, as it last was."""

    kind: EventKind
    value: _T
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bookmark:
    """Nothing happened up to this version."""

    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchFailed:
    """The server ends the watch and says why, inside an answer of status 200."""

    code: int
    reason: str
    message: str


WatchEvent: TypeAlias = Changed[_T] | Bookmark | WatchFailed


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str | None = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, frozen=True):
    """Source: Kubernetes API reference, meta/v1 ListMeta. A list without objects may say `null`."""

    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Head(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    # Of a Status only:
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
    """A decoder of lists whose objects *decode* reads; it raises `UndecodableError` and nothing else.

    Args:
        decode: one object's JSON to a value; may raise `ValueError` or msgspec's errors.
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
    """A decoder of watch events whose objects *decode* reads; it raises `UndecodableError` and nothing else.

    Args:
        decode: one object's JSON to a value; may raise `ValueError` or msgspec's errors.
    """

    def decode_event(line: bytes) -> WatchEvent[_T]:
        try:
            return _decode_event(line, decode)
        except (ValueError, msgspec.MsgspecError, RecursionError) as e:
            raise UndecodableError(f"a watch event cannot be read: {printable(str(e), 256)}") from e

    return decode_event


def read_version(text: bytes) -> str:
    """The `resourceVersion` of the object in *text*.

    Raises:
        UndecodableError: it is no object.
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
