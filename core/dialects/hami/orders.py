"""In which order the cards of a node are visited.

Source: protocol reference, hami 4.4, with HN-8 done as it says: ties go to the highest index.
"""

from collections.abc import Callable, Sequence
from math import comb
from typing import Final, NamedTuple

from core.dialects.hami import keys
from core.dialects.hami.cards import Card
from core.dialects.hami.requests import Order, Weights
from core.settings import Policy

# A card as it is compared: lower comes first.
Rank = tuple[float, ...]
Ranking = Callable[[int, Card], Rank]
_BY_SETTINGS: Final = {
    Policy.BINPACK: (keys.BINPACK,),
    Policy.SPREAD: (keys.SPREAD,),
    Policy.INDEX: (keys.SPREAD,),
}
_SCORING: Final = (keys.BINPACK, keys.SPREAD, keys.NUMA)


def policies_of(order: Order, policy: Policy) -> tuple[str, ...]:
    """The pod's policies, or those of the settings where it has none."""
    return order.policies or _BY_SETTINGS[policy]


def ranking(order: Order, policy: Policy) -> Ranking:
    """How cards compare for a pod with *order* under *policy* of the settings."""
    policies = policies_of(order, policy)
    weights = order.weights
    first = policies[0]
    if len(policies) > 1 or first == keys.NUMA:
        named = [one for one in policies if one in _SCORING] or [keys.SPREAD]
        if order.bound:
            named.insert(0, keys.NUMA)
        return lambda slot, card: (*(_part(one, card, weights) for one in named), -slot)
    if order.bound:
        if first == keys.BINPACK:
            return lambda slot, card: (card.fixed.numa, -score(card, weights), -slot)
        return lambda slot, card: (-card.fixed.numa, score(card, weights), -slot)
    if first == keys.BINPACK:
        return lambda slot, card: (-score(card, weights), -card.fixed.numa, -slot)
    if first == keys.MUTEX:
        return lambda slot, card: (card.used_slots, -card.fixed.numa, -slot)
    return lambda slot, card: (score(card, weights), -card.fixed.numa, -slot)


def _part(policy: str, card: Card, weights: Weights) -> float:
    if policy == keys.NUMA:
        return -card.fixed.numa
    return score(card, weights) if policy == keys.SPREAD else -score(card, weights)


def score(card: Card, weights: Weights) -> float:
    """How full *card* is, before the pod is on it (HN-9)."""
    fixed, slots, memory, cores, _, _ = card
    if not fixed.slots:
        return 0.0
    return (
        weights.slot * slots / fixed.slots + weights.core * cores / fixed.cores + weights.memory * memory / fixed.memory
    )


class Linked(NamedTuple):
    """Cards in the order in which they were visited, and how good their links are."""

    slots: list[int]
    quality: int


def linked(cards: Sequence[Card], slots: Sequence[int], number: int, asks: int = 1) -> Linked:
    """*number* of *slots*, which are in order: those that are linked best; one alone is that which is linked least.

    Source: protocol reference, hami 4.6. Where all combinations are too many, each next card is the best one (HN-14):
    a request of several *asks* has no more of them than one.
    """
    names = [cards[slot].fixed.uuid for slot in slots]
    rows = [[links.get(name, 0) for name in names] for links in [dict(cards[slot].fixed.links) for slot in slots]]
    if number == 1:
        sums = [sum(row) - row[at] for at, row in enumerate(rows)]
        least = min(sums)
        return Linked([slots[sums.index(least)]], -least)
    few = comb(len(slots), number) * number * asks <= _STEPS_MAX
    chosen, quality = _best(rows, number) if few else _greedy(rows, number)
    return Linked([slots[at] for at in chosen], quality)


# Any 4 of 16 cards are 1,820 combinations of 4 steps: half a millisecond.
_STEPS_MAX: Final = 8000
_Rows = Sequence[Sequence[int]]


def _best(rows: _Rows, number: int) -> tuple[tuple[int, ...], int]:
    """The first of the combinations of *number* that are linked best, and how well."""
    count = len(rows)
    best: tuple[int, ...] = ()
    most = -1
    # Of each beginning: how well it is linked, and each card to it.
    left: list[tuple[tuple[int, ...], int, Sequence[int]]] = [((), 0, (0,) * count)]
    while left:
        chosen, total, to_each = left.pop()
        first = chosen[-1] + 1 if chosen else 0
        missing = number - len(chosen)
        if missing == 1:
            link = max(to_each[first:])
            if total + link > most:
                best, most = (*chosen, to_each.index(link, first)), total + link
            continue
        # The last that is put on is the first that is taken off.
        for at in range(count - missing, first - 1, -1):
            row = rows[at]
            left.append(((*chosen, at), total + to_each[at], [a + b for a, b in zip(to_each, row, strict=True)]))
    return best, most


def _greedy(rows: _Rows, number: int) -> tuple[tuple[int, ...], int]:
    """The first card, and each next one that is linked best to those before it."""
    chosen, total = [0], 0
    to_each = list(rows[0])
    left = list(range(1, len(rows)))
    while len(chosen) < number:
        best = max(left, key=to_each.__getitem__)
        total += to_each[best]
        to_each = [a + b for a, b in zip(to_each, rows[best], strict=True)]
        chosen.append(best)
        left.remove(best)
    return tuple(chosen), total
