"""Kubernetes quantities as integers, read with bounded work for any text.

Source: Kubernetes API reference, "Quantity" (apimachinery/pkg/api/resource).
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from core.errors import InvalidRequestError

MAX_AMOUNT: Final = 2**63 - 1
MAX_INT32: Final = 2**31 - 1
_INT64_DIGITS: Final = 19
# What Go reads as a boolean.
TRUE: Final[tuple[str, ...]] = ("1", "t", "T", "TRUE", "true", "True")
FALSE: Final[tuple[str, ...]] = ("0", "f", "F", "FALSE", "false", "False")
# No quantity in a cluster needs more characters; longer text is refused unread.
_MAX_CHARS: Final = 64

_QUANTITY: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,7}|)",
    re.ASCII,
)
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
# Surrogates: JSON's escapes can express them, but no encoding can, and neither could a compiler of this file.
HALVES: Final = re.compile(f"[{chr(0xD800)}-{chr(0xDFFF)}]")
BYTES_PER_MIB: Final = 2**20


def parse_milli(text: str, field: str) -> int:
    """Read *text* as thousandths, rounded up, 0 to 2^63-1; for CPU.

    Raises:
        InvalidRequestError: not a quantity, negative, or too large; names *field*.
    """
    return _scaled(text, field, 1000, exact=False)


def parse_amount(text: str, field: str) -> int:
    """Read *text* as whole units (bytes, pods), rounded up, 0 to 2^63-1.

    Raises:
        InvalidRequestError: not a quantity, negative, or too large; names *field*.
    """
    return _scaled(text, field, 1, exact=False)


def parse_limit(text: str, field: str, units: int = 1) -> int:
    """Read *text* as a limit in units, or in thousandths (*units* 1000), rounded up; 2^63-1 if it is larger.

    Kubernetes compares quantities of any size, and nothing in a cluster comes near that.

    Raises:
        InvalidRequestError: not a quantity, or negative; names *field*.
    """
    return _scaled(text, field, units, exact=False, capped=True)


def parse_count(text: str, field: str, maximum: int = MAX_INT32) -> int:
    """Read *text* as a whole number without rounding, 0 to *maximum*; for extended resources.

    Raises:
        InvalidRequestError: not a quantity, a fraction, negative, or above *maximum*; names *field*.
    """
    value = int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else _scaled(text, field, 1, exact=True)
    if value > maximum:
        raise InvalidRequestError(field, text, f"write a whole number no larger than {maximum}")
    return value


def parse_memory(text: str, field: str, maximum: int = MAX_INT32, mib_per_unit: int = 1) -> int:
    """Read *text* as in `parse_count`: memory of a card, in units of *mib_per_unit* MiB.

    Raises:
        InvalidRequestError: as in `parse_count`; for a text with a suffix, it gives the number of units.
    """
    try:
        return parse_count(text, field, maximum)
    except InvalidRequestError:
        if not text.endswith("i"):
            raise
        raise InvalidRequestError(field, text, unit_already(text, mib_per_unit)) from None


def is_in_bytes(text: str) -> bool:
    """Return whether the quantity *text* means bytes where memory of cards is counted in units.

    The API server adds no binary suffix, but it writes 2000000000 as 2G. 3Ki is 3072 units, as all schedulers read it.
    """
    if not text.endswith("i"):
        return False
    try:
        return parse_amount(text, "") >= BYTES_PER_MIB
    except InvalidRequestError:
        return False


def unit_already(text: str, mib_per_unit: int = 1) -> str:
    """Return the number of units to write instead of *text*, a memory quantity with a suffix; a common mistake."""
    try:
        units = -(-parse_amount(text, "") // (mib_per_unit * BYTES_PER_MIB))
    except InvalidRequestError:
        units = 0
    unit = "MiB" if mib_per_unit == 1 else f"{mib_per_unit} MiB"
    example = units if 0 < units <= MAX_INT32 else 8192
    return f"the unit is {unit} already; write a whole number such as '{example}'"


def _scaled(text: str, field: str, units: int, *, exact: bool, capped: bool = False) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 15:
        return int(text) * units
    match = _QUANTITY.fullmatch(text) if len(text) <= _MAX_CHARS else None
    if match is None or not (match["whole"] or match["part"]):
        raise InvalidRequestError(field, text, "write a whole number such as '1'")
    digits = (match["whole"] + (match["part"] or "")).lstrip("0")
    if not digits:
        return 0
    if match["sign"] == "-":
        raise InvalidRequestError(field, text, "write a number that is not negative")
    suffix = match["suffix"]
    shift = _BINARY.get(suffix, 0)
    exponent = (int(suffix[1:]) if len(suffix) > 1 and not shift else _DECIMAL.get(suffix, 0)) - len(
        match["part"] or ""
    )
    # Beyond 2^63 or below 10^-9 the exact value is irrelevant, so the power is not computed.
    if len(digits) + exponent > 40:
        if capped:
            return MAX_AMOUNT
        raise InvalidRequestError(field, text, f"write a number no larger than {MAX_AMOUNT // units}")
    numerator = (int(digits) << shift) * units
    if exponent >= 0:
        value, rest = numerator * int(10**exponent), 0
    elif exponent < -80:
        value, rest = 0, 1
    else:
        value, rest = divmod(numerator, int(10**-exponent))
    if rest and exact:
        raise InvalidRequestError(field, text, "write a whole number such as '1'")
    value += 1 if rest else 0
    if value > MAX_AMOUNT:
        if capped:
            return MAX_AMOUNT
        raise InvalidRequestError(field, text, f"write a number no larger than {MAX_AMOUNT // units}")
    return value


def parse_int64(text: str) -> int | None:
    """Read *text* as Go's ``strconv.ParseInt(text, 10, 64)`` and ``strconv.Atoi`` do; None if these reject it.

    Accepts a sign and ASCII digits with any number of leading zeros, within 64 bits, as Kubernetes and the device
    plugins do.
    Python's own ``int`` also accepts blanks, underscores and the digits of every script.
    """
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    significant = digits.lstrip("0")
    if len(significant) > _INT64_DIGITS:
        return None
    value = int(f"{text[:1] if text[:1] == '-' else ''}{significant or '0'}")
    return value if -MAX_AMOUNT - 1 <= value <= MAX_AMOUNT else None


def is_text(text: str) -> bool:
    """Return whether *text* can be encoded; JSON's escapes can contain lone surrogates, which cannot."""
    return text.isascii() or HALVES.search(text) is None


def counted(count: int, plural: str) -> str:
    """Format a count: ``3 cards``, ``1 card``."""
    return f"{count} {plural.removesuffix('s') if count == 1 else plural}"


def listed(names: Sequence[str], most: int) -> str:
    """List at most *most* of *names*: ``a, b and 3 more``."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def with_article(noun: str) -> str:
    """Add the article: ``a Tesla T4``, ``an Ascend910B4``."""
    return f"{'an' if noun[:1].upper() in 'AEIOU' else 'a'} {noun}"


def time_text(at_s: float) -> str:
    """Return Unix seconds as the API server writes a time."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
