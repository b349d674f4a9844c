"""In which order the cards of a node are tried, which of them are linked best, and how pods say so under HAMi.

Source: protocol reference, hami 1.4, 4.4 and 6, with HN-8 and HN-12: the highest index wins ties.
"""

from collections.abc import Callable, Mapping, Sequence
from math import comb
from typing import Final, NamedTuple

from core.errors import InvalidRequestError, quoted
from core.port.refusals import Violation
from core.settings import Policy
from core.sharing.card import Card
from core.sharing.request import ANY_ORDER, EVEN, Order, Weights, check_words
from core.units import MAX_INT32, TRUE, parse_count

# The words by which a pod orders cards.
BINPACK: Final = "binpack"
SPREAD: Final = "spread"
MUTEX: Final = "mutex"
NUMA: Final = "numa"
TOPOLOGY: Final = "topology-aware"
CARD_WORDS: Final[tuple[str, ...]] = (BINPACK, SPREAD, MUTEX, NUMA, TOPOLOGY)
# The words by which a pod orders nodes.
NODE_WORDS: Final[tuple[str, ...]] = (BINPACK, SPREAD)

# A card as it is compared: lower comes first, and of equal ones the card that stands first.
Rank = tuple[float, ...]
Ranking = Callable[[int, Card], Rank]
_BY_SETTINGS: Final = {Policy.BINPACK: (BINPACK,), Policy.SPREAD: (SPREAD,), Policy.INDEX: (SPREAD,)}
_SCORING: Final = (BINPACK, SPREAD, NUMA)


def is_exclusive(order: Order) -> bool:
    """Return whether only idle cards are accepted."""
    return MUTEX in order.policies


def is_linked(order: Order) -> bool:
    """Return whether cards are chosen by their links."""
    return TOPOLOGY in order.policies


def policies_of(order: Order, policy: Policy) -> tuple[str, ...]:
    """Return the pod's policies, or those of the settings if it has none."""
    return order.policies or _BY_SETTINGS[policy]


def of_nodes(order: Order, policy: Policy) -> str:
    """Return the word by which nodes compare: the pod's, or that of the settings."""
    return order.nodes or str(policy)


def ranking(order: Order, policy: Policy) -> Ranking:
    """Return how cards compare for a pod with *order* under *policy* of the settings."""
    policies = policies_of(order, policy)
    weights = order.weights
    first = policies[0]
    if len(policies) > 1 or first == NUMA:
        named = [one for one in policies if one in _SCORING] or [SPREAD]
        if order.bound:
            named.insert(0, NUMA)
        return lambda slot, card: (*(_part(one, card, weights) for one in named), -slot)
    if order.bound:
        if first == BINPACK:
            return lambda slot, card: (card.fixed.numa, -score(card, weights), -slot)
        return lambda slot, card: (-card.fixed.numa, score(card, weights), -slot)
    if first == BINPACK:
        return lambda slot, card: (-score(card, weights), -card.fixed.numa, -slot)
    if first == MUTEX:
        return lambda slot, card: (card.used_slots, -card.fixed.numa, -slot)
    return lambda slot, card: (score(card, weights), -card.fixed.numa, -slot)


def _part(policy: str, card: Card, weights: Weights) -> float:
    if policy == NUMA:
        return -card.fixed.numa
    return score(card, weights) if policy == SPREAD else -score(card, weights)


def score(card: Card, weights: Weights) -> float:
    """Return how full *card* is, before the pod is on it (HN-9)."""
    fixed = card.fixed
    # Cards are compared before it is asked whether they can be used: a register may say 0 of anything.
    if not (fixed.slots and fixed.cores and fixed.memory):
        return 0.0
    # Of whole numbers and divided once, so that cards that are equally full are equal, whatever fills them.
    cores, memory = fixed.cores * fixed.memory, fixed.slots * fixed.memory
    full = (
        weights.slot * card.used_slots * cores
        + weights.core * card.used_cores * memory
        + weights.memory * card.used_memory * fixed.slots * fixed.cores
    )
    return full / (fixed.slots * cores)


def in_groups(cards: Sequence[Card], slots: Sequence[int], order: Order) -> list[list[int]]:
    """Return *slots*, or those of each NUMA node by themselves if all cards must be of one."""
    if not order.bound:
        return [list(slots)]
    groups: dict[int, list[int]] = {}
    for slot in slots:
        groups.setdefault(cards[slot].fixed.numa, []).append(slot)
    return list(groups.values())


class Linked(NamedTuple):
    """Cards in the order in which they are tried, and how good their links are."""

    slots: list[int]
    quality: int


def linked(cards: Sequence[Card], slots: Sequence[int], number: int, asks: int = 1) -> Linked:
    """Return the *number* of *slots*, which are in order, that are linked best; a single one is linked least.

    If there are too many combinations, each next card is the best one (HN-14); the limit is for all *asks* together.
    Source: protocol reference, hami 4.6.
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
    """Return the first of the best linked combinations of *number*, and how well it is linked."""
    count = len(rows)
    best: tuple[int, ...] = ()
    most = -1
    # For each beginning of a combination: how well it is linked, and each card to it.
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
        # The last one pushed is popped first.
        for at in range(count - missing, first - 1, -1):
            row = rows[at]
            left.append(((*chosen, at), total + to_each[at], [a + b for a, b in zip(to_each, row, strict=True)]))
    return best, most


def _greedy(rows: _Rows, number: int) -> tuple[tuple[int, ...], int]:
    """Return the first card, and each next one that is linked best to those before it."""
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


NUMA_BIND: Final = "nvidia.com/numa-bind"
NODE_POLICY: Final = "hami.io/node-scheduler-policy"
CARD_POLICY: Final = "hami.io/gpu-scheduler-policy"
WEIGHTS: Final = "hami.io/device-scoring-weights"
KEYS: Final[frozenset[str]] = frozenset({NUMA_BIND, NODE_POLICY, CARD_POLICY, WEIGHTS})
_WEIGHT_REMEDY: Final = "write 'slot=1,core=1,memory=1' with whole numbers, not all of them 0"


def order_of(annotations: Mapping[str, str], violations: list[Violation]) -> Order:
    """Return how a pod with *annotations* wants cards and nodes compared; adds CS104 and CS105 to *violations*."""
    if annotations.keys().isdisjoint(KEYS):
        return ANY_ORDER
    policies = words(annotations, CARD_POLICY)
    nodes = annotations.get(NODE_POLICY, "").strip()
    check_words(CARD_POLICY, policies, CARD_WORDS, violations)
    check_words(NODE_POLICY, (nodes,) if nodes else (), NODE_WORDS, violations)
    found = Order(policies, _weights(annotations, violations), annotations.get(NUMA_BIND, "") in TRUE, nodes)
    return ANY_ORDER if found == ANY_ORDER else found


def words(annotations: Mapping[str, str], key: str) -> tuple[str, ...]:
    """Return the items of the list of words in *key*."""
    return tuple([word for item in annotations.get(key, "").split(",") if (word := item.strip())])


def _weights(annotations: Mapping[str, str], violations: list[Violation]) -> Weights:
    text = annotations.get(WEIGHTS)
    if text is None:
        return EVEN
    pairs = [[part.strip() for part in item.split("=", 1)] for item in text[:256].split(",")]
    try:
        found = {name: parse_count(figure, "", MAX_INT32) for name, figure in pairs}
    except (InvalidRequestError, ValueError):
        found = {}
    if len(pairs) != len(found) or found.keys() != set(Weights._fields) or not any(found.values()):
        violations.append(
            Violation(code="CS105", field=f"annotation {WEIGHTS}", found=quoted(text), remedy=_WEIGHT_REMEDY)
        )
        return EVEN
    return Weights(**found)
