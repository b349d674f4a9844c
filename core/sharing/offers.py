"""What a node offers of shared cards."""

from collections.abc import Sequence

from core.errors import InvalidRequestError, quoted
from core.model import Node
from core.port.cards import Offer
from core.port.refusals import Complaint, Reason
from core.settings import DialectName
from core.sharing.card import Card
from core.units import parse_amount


def allocatable(node: Node, resource: str) -> int:
    """Return how much of *resource* is allocatable on *node*; 0 of what is absent or cannot be read."""
    try:
        return parse_amount(node.allocatable.get(resource, "0"), resource)
    except InvalidRequestError:
        return 0


def offered(dialect: DialectName, cards: Sequence[Card], complaints: Sequence[Complaint] = ()) -> Offer[Card]:
    """Return the offer of *cards*, with *complaints* and one for each card that cannot be used."""
    unusable = [
        Complaint(dialect=dialect, field=f"card {quoted(card.fixed.uuid)}", problem=card.fixed.problem)
        for card in cards
        if card.fixed.fault is Reason.UNUSABLE
    ]
    return Offer(cards=tuple(cards), complaints=(*complaints, *unusable))
