"""What a pod asks for of the share plugin: one amount for all of its containers, which get the same cards.

Source: protocol reference, nvidia 3.11, 3.12, 4.4, with O7 done as it says.
"""

from typing import Final

from core import names, selection
from core.dialects.gpushare.cards import NUMBER, Mode
from core.errors import InvalidRequestError
from core.model import AnyPod, Container, most_at_once
from core.port.refusals import Reason, Violation
from core.sharing.order import MUTEX
from core.sharing.request import (
    ANY_ORDER,
    Ask,
    Figures,
    Order,
    Request,
    cards_at_start,
    miscounted,
    places_of,
    selection_of,
)
from core.units import MAX_AMOUNT, parse_count, parse_memory

_IDLE_CARDS: Final = Order(policies=(MUTEX,))


def amount_of(one: Container, resource: str) -> int:
    """Return what *one* asks of *resource*; 0 if nothing, or nothing that can be read."""
    return Figures(one, "container", []).read(resource, "CS101", maximum=MAX_AMOUNT) or 0


def amounts_of(pod: AnyPod, resource: str) -> tuple[int, ...]:
    """Return what each container of *pod* that asks for *resource* asks."""
    return tuple([amount for one in pod.containers if (amount := amount_of(one, resource))])


def total_of(pod: AnyPod, resource: str) -> int:
    """Return what *pod* takes of *resource* at most at once."""
    return most_at_once(pod, lambda one: amount_of(one, resource))


def request(pod: AnyPod, mode: Mode) -> Request | tuple[Violation, ...] | None:
    """Return what *pod* asks; None if nothing; violations if it cannot be placed, or not be served as asked."""
    asked = readable_request(pod, mode)
    if not isinstance(asked, Request):
        return asked
    violations = cards_at_start(pod, mode.resource, lambda one: amount_of(one, mode.resource))
    number, indices = asked.asks[0].number, asked.selection.indices
    if mode is NUMBER and indices and len(indices) != number:
        violations.append(miscounted(pod, "exactly", mode.resource, number))
    return tuple(violations) or asked


def readable_request(pod: AnyPod, mode: Mode) -> Request | tuple[Violation, ...] | None:
    """Return what *pod* asks, as upstream reads it; None if nothing; violations if that cannot be read."""
    violations: list[Violation] = []
    for place in places_of(pod, violations):
        place.figures.read(mode.resource, "CS101", parse=parse_count if mode is NUMBER else parse_memory)
    total = total_of(pod, mode.resource)
    if violations or not total:
        return tuple(violations) or None
    wishes = {key: pod.annotations[key] for key in names.PLACE_WISHES if key in pod.annotations}
    # These cards have no ids.
    chosen = selection_of(wishes, "", "", violations).without(Reason.UUID)
    if violations:
        return tuple(violations)
    parts = amounts_of(pod, mode.resource)
    number, memory, order = (total, 1, _IDLE_CARDS) if mode is NUMBER else (1, total, ANY_ORDER)
    ask = Ask(0, number, memory, percent=0, cores=0, parts=parts)
    return Request((ask,), segments=max(1, len(parts)), selection=chosen, order=order)


def unheard_ids(pod: AnyPod) -> frozenset[str]:
    """Return the ids among the cards that *pod* avoids, which the plugin's nodes do not know."""
    try:
        return selection.avoided(pod.annotations.get(names.AVOIDED_CARDS, ""), "")[0]
    except InvalidRequestError:
        return frozenset()
