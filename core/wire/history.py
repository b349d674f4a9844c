"""The history as the leader stores it for the next one: compressed lines, the most useful first, within a size.

The first line names format, version and time. Each further line is one pod or one minute. A text with another first
line, or that cannot be read as a whole, was written by somebody else and is refused.
"""

import base64
import zlib
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Annotated, Final, NamedTuple, TypeVar

import msgspec

from core.errors import InvalidRequestError
from core.history.minutes import Key, Minute, Sums
from core.history.pods import Life, PodEvent, What
from core.model import PodUid
from core.units import time_text
from core.wire.reading import DECODE_ERRORS, unreadable

_FORMAT: Final = "cardshare-history"
_VERSION: Final = 1
# Nothing is read beyond this, however well it is compressed.
_TEXT_MAX: Final = 16 * 2**20
_BATCH_BYTES: Final = 32 * 2**10
# What ends a compressed stream.
_END_BYTES: Final = 32
_REMEDY: Final = "remove the ConfigMap's binaryData; the leader writes it again"

# The ConfigMap in which the leader stores its history, NAMESPACE/NAME, as it is shipped.
HISTORY_MAP: Final = "cardshare-system/cardshare-history"
_MINUTE_S: Final = 60
# The clocks of two nodes may differ by so much.
_AHEAD_S: Final = 300.0

_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
# Unix seconds, and minutes, up to the year 9999, after which no time can be told.
_Second = Annotated[int, msgspec.Meta(ge=0, lt=253_402_300_800)]
_Minute = Annotated[int, msgspec.Meta(ge=0, lt=253_402_300_800 // 60)]
_Event = tuple[What, _Second, _Second, _Count, _Count, str, str]
_Row = tuple[str, str, str, _Count, _Count, _Count, _Count]
_V = TypeVar("_V")


class _Head(msgspec.Struct, frozen=True):
    format: str
    version: int
    at_s: _Second


class _ConfigMap(msgspec.Struct):
    """The part of the ConfigMap that is read."""

    binaryData: dict[str, str] = {}  # noqa: N815 (the API's name)


class Stored(NamedTuple):
    """What a leader stored: pods and minutes, the last first; when, Unix seconds; and what cannot be read."""

    lives: Sequence[Life] = ()
    minutes: Sequence[Minute] = ()
    at_s: int = 0
    notes: tuple[str, ...] = ()


_map_decoder: Final = msgspec.json.Decoder(_ConfigMap)
_head_decoder: Final = msgspec.json.Decoder(_Head)
_life_decoder: Final = msgspec.json.Decoder(tuple[str, str, Annotated[list[_Event], msgspec.Meta(min_length=1)]])
_minute_decoder: Final = msgspec.json.Decoder(tuple[_Minute, list[_Row]])


def life_line(life: Life) -> bytes:
    """Return the line for one pod."""
    return msgspec.json.encode(life)


def minute_line(minute: Minute) -> bytes:
    """Return the line for one minute."""
    return msgspec.json.encode((minute.at, [(*key, *sums) for key, sums in minute.sums.items()]))


def pack(lines: Iterable[bytes], characters_max: int, at_s: int) -> Generator[None, None, str]:
    """Return *lines* compressed, in base64, or as many of the first ones as fit into *characters_max*.

    at_s: the time at which they were complete, Unix seconds. Yields between batches, so that other tasks can run.
    """
    bytes_max = characters_max // 4 * 3
    packer = zlib.compressobj()
    head = msgspec.json.encode(_Head(_FORMAT, _VERSION, at_s))
    packed, read = packer.compress(head + b"\n"), 0
    batch: list[bytes] = []
    size = 0
    for line in lines:
        batch.append(line)
        size += len(line) + 1
        if size < _BATCH_BYTES:
            continue
        longer, read = _longer(packer, packed, batch, bytes_max, read)
        if longer is None:
            batch.clear()
            break
        packer, packed = longer
        batch.clear()
        size = 0
        yield
    if batch:
        longer, _ = _longer(packer, packed, batch, bytes_max, read)
        if longer is not None:
            packer, packed = longer
    return base64.b64encode(packed + packer.flush()).decode()


def _longer(
    packer: "zlib._Compress", packed: bytes, batch: list[bytes], bytes_max: int, read: int
) -> tuple[tuple["zlib._Compress", bytes] | None, int]:
    """Return compressor and text with *batch* added; None if that would be too long to store, or to read."""
    text = b"\n".join([*batch, b""])
    more = packer.copy()
    added = packed + more.compress(text) + more.flush(zlib.Z_SYNC_FLUSH)
    read += len(text)
    if len(added) > bytes_max - _END_BYTES or read > _TEXT_MAX - _BATCH_BYTES:
        return None, read
    return (more, added), read


def read_stored(config_map: bytes, now_s: float) -> Stored:
    """Return what the JSON of a ConfigMap stores; a part that cannot be read is left out, with a note.

    So is a part from a clock that was far ahead of *now_s*: later than all others, its minutes would replace them.
    """
    try:
        data = _map_decoder.decode(config_map).binaryData
    except DECODE_ERRORS as e:
        return Stored(notes=(str(e),))
    found, notes = Stored(), list[str]()
    try:
        at_s, lives = read_lives(data.get("pods", ""))
        _check_time("its pods", at_s, now_s)
        found = found._replace(lives=lives, at_s=at_s)
    except InvalidRequestError as e:
        notes.append(str(e))
    try:
        at_s, minutes = read_minutes(data.get("minutes", ""))
        _check_time("its minutes", at_s, now_s)
        minutes = [one for one in minutes if one.at * _MINUTE_S <= now_s + _AHEAD_S]
        found = found._replace(minutes=minutes, at_s=max(at_s, found.at_s))
    except InvalidRequestError as e:
        notes.append(str(e))
    return found._replace(notes=tuple(notes))


def _check_time(what: str, at_s: int, now_s: float) -> None:
    """Refuse a part that was stored at a time that is still to come."""
    if at_s > now_s + _AHEAD_S:
        raise InvalidRequestError(what, f"stored at {time_text(at_s)}", "set the clocks of the nodes")


def read_lives(packed: str) -> tuple[int, list[Life]]:
    """Return the time and the stored pods, those to which something happened last first; 0 and none of "".

    Raises:
        InvalidRequestError: this is not what `pack` wrote.
    """
    return _read("its pods", packed, _life)


def read_minutes(packed: str) -> tuple[int, list[Minute]]:
    """Return the time and the stored minutes, the last first; 0 and none of "".

    Raises:
        InvalidRequestError: this is not what `pack` wrote.
    """
    return _read("its minutes", packed, _minute)


def _life(line: bytes) -> Life:
    uid, pod, events = _life_decoder.decode(line)
    return Life(PodUid(uid), pod, tuple(PodEvent(*one) for one in events))


def _minute(line: bytes) -> Minute:
    at, rows = _minute_decoder.decode(line)
    return Minute(at, {Key(*row[:3]): Sums(*row[3:]) for row in rows})


def _read(what: str, packed: str, read: Callable[[bytes], _V]) -> tuple[int, list[_V]]:
    if not packed:
        return 0, []
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(base64.b64decode(packed, validate=True), _TEXT_MAX)
    except (ValueError, zlib.error) as e:
        raise InvalidRequestError(what, "a text that cannot be unpacked", _REMEDY) from e
    if not unpacker.eof:
        raise InvalidRequestError(what, "a text that is cut off, or too long", _REMEDY)
    head, *lines = text.removesuffix(b"\n").split(b"\n")
    try:
        found = _head_decoder.decode(head)
        if (found.format, found.version) != (_FORMAT, _VERSION):
            raise InvalidRequestError(what, f"{found.format} {found.version}", f"it must be {_FORMAT} {_VERSION}")
        return found.at_s, [read(line) for line in lines]
    except DECODE_ERRORS as e:
        raise unreadable(what, e) from e
