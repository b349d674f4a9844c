"""Common parts of codecs: one kind of error, one length limit, and shared copies of repeated text.

The caches below are pure: equal values map to one of them. They are bounded, so that an unusual cluster costs time and
not memory.
"""

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any, Final, TypeVar, cast

import msgspec

from core.errors import InvalidRequestError
from core.names import CPU, MAX_POD_ANNOTATION_BYTES
from core.units import is_in_bytes, parse_amount, parse_limit, parse_milli

_T = TypeVar("_T")
_V = TypeVar("_V")

# msgspec's errors for any bytes: wrong syntax or types, text that is not UTF-8, nesting too deep.
DECODE_ERRORS: Final = (msgspec.MsgspecError, ValueError, RecursionError)
_REMEDY: Final = "write what Kubernetes' API reference describes"
# The decoder's names of types, and plain ones.
_TYPES: Final = re.compile(r"Expected `(?P<wanted>[^`]+)`, got `(?P<got>[^`]+)`")
_WORDS: Final = {
    "object": "a mapping",
    "array": "a list",
    "str": "a text",
    "int": "a number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
}
# The decoder's words for a number below the least or above the most, and plain ones.
_LEAST: Final = re.compile(r"Expected `(?:int|float)` >= (-?[0-9.]+)")
_MOST: Final = re.compile(r"Expected `(?:int|float)` <= (-?[0-9.]+)")
_SHARED: Final = 1 << 14
# Longer text is rarely repeated, and its sender must not be able to fill the caches.
_MAX_SHARED_CHARS: Final = 2048

# Kubernetes writes quantities as text; manifests of users may have numbers.
Quantity = str | int | float


def check_length(text: str, field: str) -> None:
    """Refuse text that is longer than an annotation may be.

    Raises:
        InvalidRequestError: it is longer; names *field*.
    """
    if len(text) > MAX_POD_ANNOTATION_BYTES:
        raise InvalidRequestError(field, text, f"write no more than {MAX_POD_ANNOTATION_BYTES} characters")


def reader(what: str, struct: type[_T], build: Callable[[_T], _V]) -> Callable[[bytes], _V]:
    """Return a decoder of *what*: from JSON to *struct*, and by *build* to a value; create it once.

    The decoder raises only InvalidRequestError, on any bytes.
    """
    decoder = msgspec.json.Decoder(struct)

    def decode(text: bytes) -> _V:
        try:
            return build(decoder.decode(text))
        except DECODE_ERRORS as e:
            raise unreadable(what, e) from e

    return decode


def converter(what: str, struct: type[_T], build: Callable[[_T], _V]) -> Callable[[Mapping[str, Any]], _V]:
    """Return a decoder as `reader`, for an object that is already parsed (a YAML document, a test's mapping)."""

    def convert(obj: Mapping[str, Any]) -> _V:
        try:
            return build(msgspec.convert(obj, struct))
        except DECODE_ERRORS as e:
            raise unreadable(what, e) from e

    return convert


def unreadable(what: str, error: BaseException) -> InvalidRequestError:
    """Return the error that *what* is unreadable, with the place that the decoder names."""
    if isinstance(error, InvalidRequestError):
        return error
    if isinstance(error, RecursionError):
        return InvalidRequestError(what, "nesting that is too deep", _REMEDY)
    problem, _, place = str(error).partition(" - at `$")
    problem = _LEAST.sub(r"a number below \1", _TYPES.sub(_in_words, problem))
    problem = _MOST.sub(r"a number above \1", problem)
    return InvalidRequestError(f"{what} {place.strip('`.')}".rstrip(), problem, _REMEDY)


def _in_words(found: re.Match[str]) -> str:
    if found["got"] == "float" and "int" in found["wanted"].split(" | "):
        return "a fraction where a whole number belongs"
    wanted = dict.fromkeys(_WORDS.get(word, word) for word in found["wanted"].split(" | ") if word != "null")
    return f"{_WORDS.get(found['got'], found['got'])} where {' or '.join(wanted) or 'nothing'} belongs"


def amounts(found: Mapping[str, Quantity] | None) -> Mapping[str, str]:
    """Return quantities by resource name as text, shared with every equal mapping."""
    return shared_mapping(tuple([(key, as_written(value)) for key, value in found.items()])) if found else EMPTY


def texts(found: Mapping[str, Quantity] | None) -> Mapping[str, str]:
    """Return the same as `amounts`, or *found* itself if all its values are text."""
    if not found:
        return EMPTY
    for value in found.values():
        if not isinstance(value, str):
            return {key: as_written(one) for key, one in found.items()}
    return cast(Mapping[str, str], found)  # checked above


def quantities(found: Mapping[str, Quantity] | None, field: str) -> Mapping[str, int]:
    """Return quantities by resource name as integers: cpu in thousandths, the rest in whole units.

    Raises:
        InvalidRequestError: one of them is unreadable; names its place below *field*.
    """
    return {name: _quantity(name, as_written(value), f"{field}.{name}") for name, value in (found or {}).items()}


def limits(found: Mapping[str, Quantity] | None, field: str) -> Mapping[str, int]:
    """Return the same as `quantities`, of how much there may be: what is larger than 2^63-1 counts as that.

    Raises:
        InvalidRequestError: one of them is unreadable; names its place below *field*.
    """
    return {name: _limit(name, as_written(value), f"{field}.{name}") for name, value in (found or {}).items()}


def in_bytes(found: Mapping[str, Quantity] | None, field: str) -> Mapping[str, int]:
    """Return those of `quantities` that may be memory of cards in bytes: extended resources with a binary suffix."""
    named = {name: value for name, value in (found or {}).items() if "/" in name and is_in_bytes(as_written(value))}
    return quantities(named, field)


def _quantity(name: str, text: str, field: str) -> int:
    return parse_milli(text, field) if _is_cpu(name) else parse_amount(text, field)


def _limit(name: str, text: str, field: str) -> int:
    return parse_limit(text, field, 1000 if _is_cpu(name) else 1)


def _is_cpu(name: str) -> bool:
    return name.removeprefix("requests.").removeprefix("limits.") == CPU


def as_written(value: Quantity) -> str:
    """Return a quantity as text; a number of a manifest as the API server would store it."""
    return value if isinstance(value, str) else repr(value)


def labels(found: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return labels, shared with every object that has the same (all pods of one ReplicaSet or Job)."""
    return shared_mapping(tuple(found.items())) if found else EMPTY


def annotations(found: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return annotations with shared keys; their values differ from object to object."""
    return {sys.intern(key): value for key, value in found.items()} if found else EMPTY


def written_out(values: tuple[object, ...]) -> bytes:
    """Encode *values*, which were decoded from JSON; results are equal only if the inputs were equal."""
    return _encoder.encode(values)


_encoder: Final = msgspec.json.Encoder()

EMPTY: Final[Mapping[str, str]] = {}


def shared_mapping(items: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """Return one read-only mapping for all users of *items*, unless they are long."""
    return _shared_mapping(items) if is_short(chain.from_iterable(items)) else dict(items)


def is_short(texts: Iterable[str]) -> bool:
    """Return whether *texts* are short enough for a cache."""
    return sum(map(len, texts)) <= _MAX_SHARED_CHARS


@lru_cache(maxsize=_SHARED)
def _shared_mapping(items: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return {sys.intern(key): sys.intern(value) for key, value in items}
