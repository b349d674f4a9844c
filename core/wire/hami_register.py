"""The grammar of the registers of HAMi's device plugins, and of scores of links: which cards a plugin offers.

Source: protocol reference, hami 2.1 to 2.3 and 2.6, with HN-8 and HN-16 done as they say: one bad card is left out by
itself, and scores that cannot be read count for nothing.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, NoReturn

from core.errors import InvalidRequestError, quoted
from core.names import MAX_NODE_ANNOTATION_BYTES, MAX_REGISTERED_CARDS
from core.units import FALSE, HALVES, MAX_INT32, TRUE, is_text, parse_int64

_REMEDY: Final = "restart HAMi's device plugin so that it writes its cards anew"
# A card has no more kinds of instances, and no more places for one.
_MAX_PROFILES: Final = 32
_MAX_PLACEMENTS: Final = 64
_MAX_SLICES: Final = 64
_MAX_INFO: Final = 16
# Stands where there was half of a character, which JSON's escapes can name and nothing can encode.
NO_CHARACTER: Final = "\ufffd"


class Profile(NamedTuple):
    """One kind of MIG instance: MiB, percent of cores, and where it may stand, as (start, size) in slices."""

    name: str
    memory_mib: int
    cores: int
    slices: int
    placements: tuple[tuple[int, int], ...]


class Record(NamedTuple):
    """One card as registered; absent fields are zero. position: NVML's index.

    problem: why it cannot be used, "" if it can. info: further texts of the vendor's. ring: of an Ascend chip, None
    without.
    """

    uuid: str
    position: int = 0
    slots: int = 0
    memory_mib: int = 0
    cores: int = 0
    type: str = ""
    numa: int = 0
    mode: str = ""
    healthy: bool = False
    profiles: tuple[Profile, ...] = ()
    problem: str = ""
    info: tuple[tuple[str, str], ...] = ()
    ring: int | None = None


def decode_register(text: str, field: str) -> tuple[Record, ...]:
    """Read a register in any form, sorted by index.

    Raises:
        InvalidRequestError: no list of cards, more of them than a node has, or beyond 1 MiB.
    """
    if len(text) > MAX_NODE_ANNOTATION_BYTES:
        raise InvalidRequestError(field, text, f"write no more than {MAX_NODE_ANNOTATION_BYTES} characters")
    if is_json(text):
        records = [record(one) for one in listed(text, field)]
    else:
        records = [_line(piece, at) for at, piece in enumerate(_pieces(text, field))]
    return tuple(sorted(records, key=lambda one: (one.position, one.uuid)))


def decode_whole_register(text: str, field: str) -> tuple[Record, ...]:
    """Read a register of JSON in its own order, or nothing of it, as Go does; null names no card.

    Raises:
        InvalidRequestError: a field of a card cannot be read; as `decode_register`.
    """
    try:
        return tuple([_record(one, -MAX_INT32 - 1) for one in (() if text.strip() == "null" else listed(text, field))])
    except _UnreadError as error:
        raise InvalidRequestError(field, text, f"{_REMEDY}; it has {error}") from error


def is_json(text: str) -> bool:
    """Whether a register is of JSON, and not of text."""
    return text.lstrip().startswith("[")


def figures(text: str) -> Mapping[str, tuple[int, int, int]]:
    """Slots, MiB and cores of each card of a register of JSON, by uuid; nothing of one that cannot be read."""
    try:
        found = decode_register(text, "register") if is_json(text) else ()
    except InvalidRequestError:
        return {}
    return {one.uuid: (one.slots, one.memory_mib, one.cores) for one in found if one.uuid and not one.problem}


def held_to(text: str, most: Mapping[str, tuple[int, ...]]) -> str:
    """The register *text*, of JSON, with no card but those of *most*, and no more of each."""
    kept = []
    for one in json.loads(text):
        fields = {key.lower(): value for key, value in one.items()} if isinstance(one, dict) else {}
        uuid = fields.get("id")
        if isinstance(uuid, str) and uuid in most:
            kept.append(fields | dict(zip(_FIGURES, most[uuid], strict=True)))
    return json.dumps(kept)


# What the figures of a card are called in the register.
_FIGURES: Final = ("count", "devmem", "devcore")


def decode_links(text: str) -> Mapping[str, Mapping[str, int]]:
    """By card the scores of its links to others; nothing where they cannot be read (HN-16)."""
    if not text or len(text) > MAX_NODE_ANNOTATION_BYTES:
        return {}
    try:
        found = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return {}
    links: dict[str, Mapping[str, int]] = {}
    for one in found if isinstance(found, list) and len(found) <= MAX_REGISTERED_CARDS else ():
        score = one.get("score") if isinstance(one, dict) else None
        if isinstance(one, dict) and isinstance(one.get("uuid"), str) and isinstance(score, dict):
            links.setdefault(one["uuid"], {key: value for key, value in score.items() if _is_int32(value)})
    return links


def parsed(text: str, field: str) -> Any:
    """Return what the JSON of the register *text* stands for.

    Raises:
        InvalidRequestError: it is not JSON, or beyond 1 MiB.
    """
    if len(text) > MAX_NODE_ANNOTATION_BYTES:
        raise InvalidRequestError(field, text, f"write no more than {MAX_NODE_ANNOTATION_BYTES} characters")
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as e:
        raise InvalidRequestError(field, text, _REMEDY) from e


def listed(text: str, field: str) -> list[Any]:
    """Return the entries of the register *text*, of JSON.

    Raises:
        InvalidRequestError: as `decode_register`.
    """
    if not is_json(text):
        raise InvalidRequestError(field, text, "restart the device plugin so that it writes a list in JSON")
    items: list[Any] = parsed(text, field)
    _check_number(len(items), text, field)
    return items


def _pieces(text: str, field: str) -> list[str]:
    """The cards of a text register; a piece without a comma is none."""
    found = [piece for piece in text.split(":") if "," in piece]
    if not found or ":" not in text:
        raise InvalidRequestError(field, text, _REMEDY)
    _check_number(len(found), text, field)
    return found


def _check_number(count: int, text: str, field: str) -> None:
    if count > MAX_REGISTERED_CARDS:
        raise InvalidRequestError(field, text, f"no more than {MAX_REGISTERED_CARDS} cards are read, here are {count}")


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def record(found: object) -> Record:
    """Return the card that an entry of a register of JSON names; what cannot be read of it is its problem."""
    try:
        return _record(found)
    except _UnreadError as error:
        uuid = {key.lower(): value for key, value in found.items()}.get("id") if isinstance(found, dict) else None
        return Record(uuid if isinstance(uuid, str) and is_text(uuid) else "", problem=f"its register has {error}")


def _record(found: object, least: int = 0) -> Record:
    """Return the card of an entry, of which amounts are at least *least*."""
    if not isinstance(found, dict):
        raise _UnreadError("an entry that is no card")
    fields = {key.lower(): value for key, value in found.items()}
    info = _typed(fields, "custominfo", dict, {})
    return Record(
        uuid=_text(fields, "id"),
        position=_whole(fields, "index"),
        slots=_whole(fields, "count", least),
        memory_mib=_whole(fields, "devmem", least),
        cores=_whole(fields, "devcore", least),
        type=_text(fields, "type"),
        numa=_whole(fields, "numa", -MAX_INT32 - 1),
        mode=_text(fields, "mode"),
        healthy=_typed(fields, "health", bool, False),
        profiles=tuple(_profile(one) for one in _typed(fields, "migprofiles", list, [])[:_MAX_PROFILES]),
        info=_info(info),
        ring=_ring(info.get("NetworkID")),
    )


def _ring(found: object) -> int | None:
    """Return the number of a ring; text that is no number counts as absent (ascend 10.4)."""
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return int(found) if abs(found) < 2**53 else None


def _info(found: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The texts of *found*, no more of them than any vendor has."""
    texts = [(key, value) for key, value in found.items() if isinstance(value, str) and is_text(key + value)]
    return tuple(sorted(texts)[:_MAX_INFO])


class _UnreadError(Exception):
    """A field that cannot be read, in words."""


def _typed(fields: Mapping[str, Any], key: str, kind: type[Any], absent: Any) -> Any:
    value = fields.get(key)
    if value is None:
        return absent
    if type(value) is not kind:
        raise _UnreadError(f"{quoted(str(value)[:64])} for {key}")
    return value


def _text(fields: Mapping[str, Any], key: str) -> str:
    text: str = _typed(fields, key, str, "")
    return text if is_text(text) else HALVES.sub(NO_CHARACTER, text)


def _whole(fields: Mapping[str, Any], key: str, least: int = 0) -> int:
    value: int = _typed(fields, key, int, 0)
    if not least <= value <= MAX_INT32:
        raise _UnreadError(f"{quoted(str(value))} for {key}")
    return value


def _is_int32(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_INT32


def _profile(found: object) -> Profile:
    if not isinstance(found, dict):
        raise _UnreadError("a MIG profile that is none")
    fields = {key.lower(): value for key, value in found.items()}
    places = _typed(fields, "placements", list, [])[:_MAX_PLACEMENTS]
    return Profile(
        name=_text(fields, "name"),
        memory_mib=_whole(fields, "memorymb"),
        cores=_whole(fields, "core"),
        slices=_whole(fields, "slicecount"),
        placements=tuple(_placement(one) for one in places),
    )


def _placement(found: object) -> tuple[int, int]:
    if not isinstance(found, dict):
        raise _UnreadError("a MIG placement that is none")
    fields = {key.lower(): value for key, value in found.items()}
    start, size = _whole(fields, "start"), _whole(fields, "size", 1)
    if start + size > _MAX_SLICES:
        raise _UnreadError(f"a MIG placement up to {start + size}")
    return start, size


_BOOLEANS: Final[dict[str, bool]] = {**dict.fromkeys(TRUE, True), **dict.fromkeys(FALSE, False)}
# uuid, count, memory, cores, type, NUMA node, health; index and mode since v2.5.
_FIELDS: Final = (7, 9)


def _line(piece: str, at: int) -> Record:
    fields = piece.split(",")
    if len(fields) not in _FIELDS:
        return Record(fields[0], at, problem=f"its register has {len(fields)} fields and not 7 or 9")
    uuid, count, memory, cores, kind, numa, health, *more = fields
    figures = [_figure(one) for one in (count, memory, cores, more[0] if more else str(at))]
    node = parse_int64(numa)
    if None in figures or node is None or health not in _BOOLEANS:
        return Record(uuid, at, problem=f"its register {quoted(piece[:64])} cannot be read")
    slots, mib, pct, index = (one or 0 for one in figures)
    mode = more[1] if more else ""
    return Record(uuid, index, slots, mib, pct, kind, node, mode, _BOOLEANS[health])


def _figure(text: str) -> int | None:
    value = parse_int64(text)
    return value if value is not None and 0 <= value <= MAX_INT32 else None
