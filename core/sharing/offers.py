"""What a node offers of shared cards."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from core.errors import InvalidRequestError, quoted
from core.model import Node
from core.port.cards import Offer
from core.port.refusals import Complaint, Reason
from core.settings import DialectName
from core.sharing.card import Card
from core.units import is_text, parse_amount
from core.wire.hami_register import NO_CHARACTER

_Record = TypeVar("_Record")
# What separates entries and fields of an assignment, and what stands for half a character.
_SYNTAX: Final = frozenset(",:;[" + NO_CHARACTER)


def allocatable(node: Node, resource: str) -> int:
    """Return how much of *resource* is allocatable on *node*; 0 of what is absent or cannot be read."""
    try:
        return parse_amount(node.allocatable.get(resource, "0"), resource)
    except InvalidRequestError:
        return 0


def registered(
    dialect: DialectName, text: str, key: str, decode: Callable[[str, str], tuple[_Record, ...]]
) -> tuple[_Record, ...] | Complaint:
    """Return the cards in the register *text* of annotation *key*; a complaint if it cannot be read or names none."""
    field = f"annotation {key}"
    try:
        records = decode(text, field)
    except InvalidRequestError as error:
        return Complaint(dialect=dialect, field=error.field, problem=f"found {error.found}; {error.remedy}")
    return records or Complaint(dialect=dialect, field=field, problem="it names no card")


def offered(dialect: DialectName, cards: Sequence[Card], complaints: Sequence[Complaint] = ()) -> Offer[Card]:
    """Return the offer of *cards*, with *complaints* and one for each card that cannot be used."""
    unusable = [
        Complaint(dialect=dialect, field=f"card {quoted(card.fixed.uuid)}", problem=card.fixed.problem)
        for card in cards
        if card.fixed.fault is Reason.UNUSABLE
    ]
    return Offer(cards=tuple(cards), complaints=(*complaints, *unusable))


def misnamed(uuid: str, *, repeated: bool = False) -> str:
    """Return why an assignment cannot name the card *uuid*, for people; "" if it can."""
    if repeated or not uuid:
        return "the register names it twice" if uuid else "it has no uuid"
    if _SYNTAX.isdisjoint(uuid) and is_text(uuid):
        return ""
    return f"its id {quoted(uuid)} cannot be written into an assignment"
