"""Quantities as the API server reads and rewrites them.

Kept apart from `core.units` on purpose: the double has to show what the real server does with odd text, also where the
product refuses it.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, ROUND_UP, Decimal, localcontext
from typing import Final

_SYNTAX: Final = re.compile(
    r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)(?:([eE])([+-]?[0-9]+)|(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|))"
)
# Whole numbers without a suffix, perhaps with an exponent.
_KEPT: Final = re.compile(r"\+?([0-9]+)\.?(?:[eE]\+?([0-9]+))?")
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_SUFFIXES: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_MOST_BINARY: Final = Decimal(2**63 - 1)
# Exponents beyond this are no quantities of anything; the bound keeps the arithmetic small.
_MOST_EXPONENT: Final = 400


class QuantityError(ValueError):
    """The text is no quantity."""


def value_of(text: object) -> Decimal:
    """The exact value of a quantity (number or text) in its unit.

    Raises:
        QuantityError: *text* is no quantity.
    """
    return _read(text)[0]


def canonical(text: object) -> str:
    """The quantity as the API server writes it back: ``1000k`` as ``1M``, ``0.5Gi`` as ``512Mi``.

    Rounds up to thousandths, as the defaulting of resource lists does. What needs no other digits stays as it was
    written, plus sign, trailing dot and capital E included. Measured on a real API server.

    Raises:
        QuantityError: *text* is no quantity.
    """
    value, form = _read(text)
    if value > 0 and (kept := _KEPT.fullmatch(str(text).strip())) and int(kept[1]) % 1000 and not int(kept[2] or 0) % 3:
        return str(text).strip()
    with localcontext(prec=800):
        value = value.quantize(Decimal("0.001"), rounding=ROUND_CEILING if value > 0 else ROUND_UP)
        if value == 0:
            return "0"
        if form == "binary" and value == value.to_integral_value() and abs(value) >= 1024:
            return _binary(int(min(value, _MOST_BINARY)))
        return _decimal(value, exponent_form=form == "exponent")


def _read(text: object) -> tuple[Decimal, str]:
    found = _SYNTAX.fullmatch(str(text).strip()) if isinstance(text, str | int | float) else None
    if found is None or isinstance(text, bool):
        raise QuantityError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    sign, digits, exponent_sign, exponent, suffix = found.groups()
    with localcontext(prec=800):
        value = Decimal(digits) * (-1 if sign == "-" else 1)
        if exponent_sign:
            if abs(int(exponent)) > _MOST_EXPONENT:
                raise QuantityError(f"the exponent of {text} is out of bounds")
            return value.scaleb(int(exponent)), "exponent"
        if suffix in _BINARY:
            return value * 1024 ** _BINARY[suffix], "binary"
        return value.scaleb(_DECIMAL[suffix]), "decimal"


def _binary(value: int) -> str:
    for suffix, power in reversed(_BINARY.items()):
        if value % 1024**power == 0:
            return f"{value // 1024**power}{suffix}"
    return str(value)


def _decimal(value: Decimal, *, exponent_form: bool) -> str:
    exponent, digits = -3, int(value.scaleb(3))
    while digits % 1000 == 0 and (exponent_form or exponent < max(_SUFFIXES)):
        digits, exponent = digits // 1000, exponent + 3
    if not exponent_form:
        return f"{digits}{_SUFFIXES[exponent]}"
    return f"{digits}e{exponent}" if exponent else str(digits)
