"""Quantities as the API server reads and rewrites them.

Separate from `core.units` on purpose: the double must show what the real server does with unusual text, including text
that the product rejects.
"""

from __future__ import annotations

import re
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_UP, Context, Decimal, localcontext
from typing import Final

_SYNTAX: Final = re.compile(
    r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)(?:([eE])([+-]?[0-9]+)|(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|))"
)
# Whole numbers without a suffix, optionally with an exponent.
_KEPT: Final = re.compile(r"\+?([0-9]+)\.?(?:[eE]\+?0*([0-9]*))?")
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_SUFFIXES: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_MOST_BINARY: Final = Decimal(2**63 - 1)
# Larger exponents do not occur in practice. The limit is the double's own: a real server computes with far larger ones,
# for minutes.
_MOST_EXPONENT: Final = 9999


class QuantityError(ValueError):
    """The text is not a quantity."""


def value_of(text: object) -> Decimal:
    """Return the exact value of a quantity (number or text) in its unit.

    Raises:
        QuantityError: *text* is not a quantity.
    """
    return _read(text)[0]


def canonical(text: object) -> str:
    """Return the quantity as the API server writes it: ``1000k`` as ``1M``, ``0.5Gi`` as ``512Mi``.

    Rounds up to thousandths, as the defaulting of resource lists does. A text whose digits stay the same is kept as
    written, including a plus sign, trailing dot and capital E. Measured on a real API server.

    Raises:
        QuantityError: *text* is not a quantity.
    """
    value, form = _read(text)
    written = str(text).strip()
    if value > 0 and (kept := _KEPT.fullmatch(written)) and int(kept[1][-3:]) and not int(kept[2] or 0) % 3:
        return written
    with localcontext(_exact(written)):
        value = value.quantize(Decimal("0.001"), rounding=ROUND_CEILING if value > 0 else ROUND_UP)
        if value == 0:
            return "0"
        if form == "binary" and value == value.to_integral_value() and abs(value) >= 1024:
            return _binary(int(value))
        return _decimal(value, exponent_form=form == "exponent")


def is_whole(value: Decimal) -> bool:
    """Return whether the API server considers *value* a whole number.

    For more than 18 digits, it checks the thousandths in 64 bits, which overflow, so it rejects some whole numbers.
    Measured on a real API server.
    """
    if len(value.as_tuple().digits) <= 18:
        return value == value.to_integral_value()
    with localcontext(_exact(str(value))):
        left = (value * 1000).to_integral_value(rounding=ROUND_CEILING) % 2**64
        return int(left if left < 2**63 else left - 2**64) % 1000 == 0


def _exact(text: str) -> Context:
    """Return a context in which no value of *text* is rounded."""
    return Context(prec=len(text) + 2 * _MOST_EXPONENT + 100, Emax=MAX_EMAX, Emin=MIN_EMIN)


def _read(text: object) -> tuple[Decimal, str]:
    found = _SYNTAX.fullmatch(str(text).strip()) if isinstance(text, str | int | float) else None
    if found is None or isinstance(text, bool):
        raise QuantityError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    sign, digits, exponent_sign, exponent, suffix = found.groups()
    with localcontext(_exact(found[0])):
        value = Decimal(digits) * (-1 if sign == "-" else 1)
        if exponent_sign:
            return value.scaleb(_exponent(exponent)), "exponent"
        if suffix in _BINARY:
            value *= 1024 ** _BINARY[suffix]
            return min(max(value, -_MOST_BINARY), _MOST_BINARY), "binary"
        return value.scaleb(_DECIMAL[suffix]), "decimal"


def _exponent(text: str) -> int:
    size = text.lstrip("+-").lstrip("0")
    if len(size) > len(str(_MOST_EXPONENT)):
        raise QuantityError(f"an exponent of {len(size)} digits is out of bounds")
    return int(size or 0) * (-1 if text.startswith("-") else 1)


def _binary(value: int) -> str:
    for suffix, power in reversed(_BINARY.items()):
        if value % 1024**power == 0:
            return f"{value // 1024**power}{suffix}"
    return str(value)


def _decimal(value: Decimal, *, exponent_form: bool) -> str:
    digits, exponent = f"{value.scaleb(3):f}".partition(".")[0], -3
    while digits.endswith("000"):
        digits, exponent = digits[:-3], exponent + 3
    if not exponent_form:
        # There is no suffix beyond exa, and the API server omits it: measured.
        return f"{digits}{_SUFFIXES.get(exponent, '')}"
    return f"{digits}e{exponent}" if exponent else digits
