"""The envelopes of lists, watch events and reviews for objects of any kind.

A function from the caller decodes the object itself; kinds of objects belong to `core/wire`.

The API server stores objects that the decoder refuses, even where it skips them: nested more deeply than it follows, or
with half of a surrogate pair, as the parameters of a ResourceClaim may be. Nobody here reads these parts, so they are
replaced, and a list with such an object can be read as any other.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from kube.errors import UndecodableError, printable

_T = TypeVar("_T")
_V = TypeVar("_V")


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


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    # Read of every event of every watch, in less than half the time of `ObjectMeta`.
    resource_version: str = ""


class _Head(msgspec.Struct, frozen=True):
    metadata: _Version = _Version()
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
# No field that anybody reads is nested so deeply, and the decoder follows more.
_LEVELS_MAX: Final = 128
_TOKENS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)
_PAIRS: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_KINDS: Final = {kind.value: kind for kind in EventKind}


def page_decoder(decode: Callable[[bytes], _T]) -> Callable[[bytes], ListPage[_T]]:
    """Return a decoder of lists whose objects *decode* reads; it raises only `UndecodableError`.

    Args:
        decode: converts one object's JSON to a value; may raise `ValueError` or msgspec's errors.
    """
    return partial(_read, "a list", read=partial(_decode_page, decode=decode))


def event_decoder(decode: Callable[[bytes], _T]) -> Callable[[bytes], WatchEvent[_T]]:
    """Return a decoder of watch events whose objects *decode* reads; it raises only `UndecodableError`.

    Args:
        decode: converts one object's JSON to a value; may raise `ValueError` or msgspec's errors.
    """
    return partial(_read, "a watch event", read=partial(_decode_event, decode=decode))


def read_version(text: bytes) -> str:
    """Return the `resourceVersion` of the object in *text*.

    Raises:
        UndecodableError: *text* is not an object.
    """
    return _read("an object", text, lambda found: _head_decoder.decode(found).metadata.resource_version)


def _read(what: str, text: bytes, read: Callable[[bytes], _V]) -> _V:
    try:
        return read(text)
    except (ValueError, msgspec.MsgspecError, RecursionError) as e:
        error: Exception = e
    plain = _PAIRS.sub(_whole, _shallow(text))
    if plain != text:
        try:
            return read(plain)
        except (ValueError, msgspec.MsgspecError, RecursionError) as e:
            error = e
    raise UndecodableError(f"{what} cannot be read: {printable(str(error), 256)}") from error


def _whole(escape: re.Match[bytes]) -> bytes:
    """Return an escape in a JSON text; half of a surrogate pair becomes U+FFFD, as Go reads it."""
    return b"\\ufffd" if escape["half"] else escape[0]


def _shallow(text: bytes) -> bytes:
    """Return JSON *text* with null in place of what is nested too deeply; *text* itself if nothing is."""
    kept: list[bytes] = []
    level = begin = 0
    for token in _TOKENS.finditer(text):
        first = text[token.start()]
        if first in b"[{":
            level += 1
            if level == _LEVELS_MAX:
                kept.append(text[begin : token.start()])
        elif first in b"]}":
            if level == _LEVELS_MAX:
                kept.append(b"null")
                begin = token.end()
            level -= 1
    return b"".join([*kept, text[begin:]]) if kept and level < _LEVELS_MAX else text


def _decode_page(text: bytes, decode: Callable[[bytes], _T]) -> ListPage[_T]:
    found = _list_decoder.decode(text)
    if not found.metadata.resource_version:
        # Every list has one. Taken for a list, a proxy's page would say that there are no objects.
        raise ValueError("it has no resourceVersion; look for a proxy in between")
    return ListPage(
        items=tuple([decode(bytes(raw)) for raw in found.items or ()]),
        resource_version=found.metadata.resource_version,
        continue_token=found.metadata.continue_ or "",
    )


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


def is_newer(version: str, than: str) -> bool:
    """Return whether *version* of an object is certainly later than *than*; False if that is unknown.

    Source: Kubernetes documentation, API concepts, resource versions: since 1.35 they are increasing decimal numbers
    that may be compared for order. Earlier API servers on etcd behave the same without the promise. A version that is
    not such a number has no order here, and callers must do without one.
    """
    if version == than or not (_is_number(version) and _is_number(than)):
        return False
    return (len(version), version) > (len(than), than)


def _is_number(version: str) -> bool:
    return version.isascii() and version.isdigit() and (version[0] != "0" or version == "0")
