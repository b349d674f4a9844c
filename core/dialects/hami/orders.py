"""In which order the cards of a node are visited.

Source: protocol reference, hami 4.4, with HN-8 done as it says: ties go to the highest index.
"""

from collections.abc import Callable, Sequence
from itertools import combinations
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
    Policy.PACK: (keys.BINPACK,),
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


def linked(cards: Sequence[Card], slots: Sequence[int], number: int) -> Linked:
    """*number* of *slots*, which are in order: those that are linked best; one alone is that which is linked least.

    Source: protocol reference, hami 4.6; where there are too many combinations each next card is the best one (HN-14).
    """
    links = {slot: dict(cards[slot].fixed.links) for slot in slots}
    names = {slot: cards[slot].fixed.uuid for slot in slots}

    def pair(one: int, other: int) -> int:
        return links[one].get(names[other], 0)

    if number == 1:
        sums = {one: sum(pair(one, other) for other in slots if other != one) for one in slots}
        least = min(slots, key=lambda one: sums[one])
        return Linked([least], -sums[least])
    few = comb(len(slots), number) <= _MAX_COMBINATIONS
    found = combinations(slots, number) if few else iter([_greedy(slots, number, pair)])
    best = Linked([], -1)
    for chosen in found:
        total = sum(pair(one, other) for at, one in enumerate(chosen) for other in chosen[at + 1 :])
        if total > best.quality:
            best = Linked(list(chosen), total)
    return best


# Of 16 cards any 4.
_MAX_COMBINATIONS: Final = 2000


def _greedy(slots: Sequence[int], number: int, pair: Callable[[int, int], int]) -> tuple[int, ...]:
    chosen = [slots[0]]
    left = list(slots[1:])
    while len(chosen) < number:
        best = max(left, key=lambda slot: sum(pair(one, slot) for one in chosen))
        chosen.append(best)
        left.remove(best)
    return tuple(chosen)
