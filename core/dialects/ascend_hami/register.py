"""The grammar of a node's register: which devices of one chip type the plugin offers.

Source: protocol reference, ascend 1.4, corrected by 10.3 and 10.4.
"""

import json
from typing import Any, Final, NamedTuple, NoReturn

from core.dialects.ascend_hami.keys import NETWORK_ID
from core.errors import InvalidRequestError
from core.names import MAX_NODE_ANNOTATION_BYTES, MAX_REGISTERED_CARDS
from core.units import HALVES, MAX_INT32, is_text

# Stands where there was half of a character, which JSON's escapes can name and nothing can encode.
NO_CHARACTER: Final = "\ufffd"
_REMEDY: Final = "restart the device plugin so that it writes a JSON list of its devices"


class Record(NamedTuple):
    """One device as registered; absent fields are zero. position: its ``index``. network: its ring or None."""

    uuid: str
    position: int
    slots: int
    memory_mib: int
    cores: int
    type: str
    healthy: bool
    network: int | None


def decode_register(text: str, field: str) -> tuple[Record, ...]:
    """Read a register; keys match in any case and the last of equal ones counts, as in Go.

    Raises:
        InvalidRequestError: no JSON list of devices, more of them than a node has, a figure that is none or out of
            range, or beyond 1 MiB.
    """
    if len(text) > MAX_NODE_ANNOTATION_BYTES:
        raise InvalidRequestError(field, text, f"write no more than {MAX_NODE_ANNOTATION_BYTES} characters")
    try:
        found = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as e:
        raise InvalidRequestError(field, text, _REMEDY) from e
    if found is None:
        return ()
    if not isinstance(found, list):
        raise InvalidRequestError(field, text, _REMEDY)
    if len(found) > MAX_REGISTERED_CARDS:
        remedy = f"no more than {MAX_REGISTERED_CARDS} devices are read, here are {len(found)}"
        raise InvalidRequestError(field, text, remedy)
    return tuple(_record(one, field) for one in found)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def _record(found: object, field: str) -> Record:
    if not isinstance(found, dict):
        raise InvalidRequestError(field, _kind(found), _REMEDY)
    fields = _Fields({key.lower(): value for key, value in found.items()}, field)
    info = fields.get("custominfo", dict, {})
    for key in ("devicevendor", "mode"):
        fields.get(key, str, "")
    fields.whole("numa")
    return Record(
        uuid=_readable(fields.get("id", str, "")),
        position=fields.whole("index", least=0),
        slots=fields.whole("count"),
        memory_mib=fields.whole("devmem"),
        cores=fields.whole("devcore"),
        type=_readable(fields.get("type", str, "")),
        healthy=fields.get("health", bool, False),
        network=_network(info.get(NETWORK_ID)),
    )


def _readable(text: str) -> str:
    """*text* as Go reads it: what is half a character as the sign for one that is none."""
    return text if is_text(text) else HALVES.sub(NO_CHARACTER, text)


class _Fields:
    """One device's fields by lower-case name; null stands for absent."""

    def __init__(self, values: dict[str, Any], field: str) -> None:
        self._values = values
        self._field = field

    def get(self, key: str, kind: type[Any], absent: Any) -> Any:
        value = self._values.get(key)
        if value is None:
            return absent
        if type(value) is not kind:
            raise InvalidRequestError(f"{self._field}: {key}", _kind(value), _REMEDY)
        return value

    def whole(self, key: str, least: int = -MAX_INT32 - 1) -> int:
        value: int = self.get(key, int, 0)
        if not least <= value <= MAX_INT32:
            raise InvalidRequestError(f"{self._field}: {key}", str(value), _REMEDY)
        return value


def _kind(value: object) -> str:
    """*value*, which may be of any size, for people."""
    return value if isinstance(value, str) else f"a JSON {_KINDS.get(type(value), 'number')}"


_KINDS: Final = {dict: "object", list: "array", bool: "boolean", type(None): "null"}


def _network(value: object) -> int | None:
    """The number of a ring; anything that is no number is as good as absent (ascend 10.4)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if abs(value) < 2**53 else None
