"""Cards that take nothing new for a reason that passes: `core.port.optional.Healing` for dialects that keep it alike.

Their cards are named tuples whose `fixed` has a uuid, a fault (None for a card that can be used) and a problem.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from core.port.refusals import PASSING, Fault, Reason

_CardT = TypeVar("_CardT")


def healed(cards: tuple[_CardT, ...]) -> tuple[_CardT, ...]:
    """*cards* as they would be if those that may get over it by themselves were well."""
    return tuple([_with(card, None, "") if _fault(card) in PASSING else card for card in cards])


def well(cards: tuple[_CardT, ...]) -> frozenset[str]:
    """The uuids of those that are not said to be unhealthy."""
    return frozenset(_uuid(card) for card in cards if _fault(card) is not Reason.UNHEALTHY)


def kept_out(cards: tuple[_CardT, ...], faults: Mapping[str, Fault]) -> tuple[_CardT, ...]:
    """*cards* with nothing new for those that are named in *faults* and could be used."""
    return tuple(
        [
            _with(card, *faults[_uuid(card)]) if _uuid(card) in faults and _fault(card) is None else card
            for card in cards
        ]
    )


def _fault(card: Any) -> Reason | None:
    fault: Reason | None = card.fixed.fault
    return fault


def _uuid(card: Any) -> str:
    uuid: str = card.fixed.uuid
    return uuid


def _with(card: Any, fault: Reason | None, problem: str) -> Any:
    return card._replace(fixed=card.fixed._replace(fault=fault, problem=problem))
