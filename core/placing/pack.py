"""What free room of cards and nodes is worth: tables of the policy `pack`, learnt from the pods that ask.

Two things are lost when a share is placed. A hole that is left on a card may be of a size that few pods ask for: how
much of it is expected never to be sold is found by dynamic programming over the sizes that pods do ask (`losses`).
And cards may be left on a node whose cpu or memory is used up: then nobody can take them (stranding). A pod goes where
the sum of both grows least. Cards are measured in steps, a hundredth each, whatever their unit.

The tables are made of all pods that asked, those that found no room too; older ones count less.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from core import names
from core.nodefit import Amounts

# A card has so many steps.
STEPS: Final = 100
# So many pods are looked ahead. Beyond 100 the tables believe that every hole is sold one day, and packing gets worse.
_ROUNDS: Final = 60
# Tables are made anew after so many pods, and then after every so many.
_FIRST: Final = (50, 100, 200, 400, 800)
_EVERY: Final = 1000
# A pod counts half of one that asked so many pods later.
_HALF_LIFE: Final = 20_000
# What counts less than this is forgotten.
_FORGOTTEN: Final = 1 / 64
# From which part of what the cluster has on all pods ask for a resource so that it would run out before the cards do,
# and how fast that counts; how much more of it a step of a card is then said to need, and what keeping it is worth.
_SCARCE_FROM: Final = 0.97
_SCARCE_OVER: Final = 0.05
_SCARCE_MORE: Final = 0.1
_SCARCE_KEPT: Final = 0.01
# Tables that differ by less than this part lead to the same places, nearly always.
_MOVED: Final = 0.01


class Asked(NamedTuple):
    """What a pod asks: *steps* of each of so many *cards* (0 and 0 without), and of its node."""

    steps: int
    cards: int
    amounts: Amounts


def steps_asked(amount: int, total: int) -> int:
    """How many steps of a card of *total* a share of *amount* takes, the last in part."""
    return min(-(-amount * STEPS // max(total, 1)), STEPS)


def steps_free(free: int, total: int) -> int:
    """How many whole steps are left of a card of *total* with *free* left."""
    return max(min(free * STEPS // max(total, 1), STEPS), 0)


def losses(parts: Mapping[int, float]) -> tuple[float, ...]:
    """How many steps of a card are expected never to be sold, by the steps that are free of it, 0 to `STEPS`.

    In every round a pod comes, and is taken or left to another card, whichever leads to more.

    Args:
        parts: steps asked of one card -> the part of pods with cards that ask so many; they sum up to 1.
    """
    sold = [0.0] * (STEPS + 1)
    for _ in range(_ROUNDS):
        coming = [0.0] * (STEPS + 1)
        for asked, part in parts.items():
            for free, now in enumerate(sold):
                taken = asked + sold[free - asked] if asked <= free else 0.0
                coming[free] += part * max(now, taken)
        sold = coming
    return tuple(free - expected for free, expected in enumerate(sold))


class Tables(NamedTuple):
    """What is known at one moment.

    loss: as `losses`. per_step: of each resource of a node that can run out, how much goes with one step of a card.
    scarce: 0 to 1, how surely such a resource runs out before the cards do.
    """

    loss: tuple[float, ...]
    per_step: tuple[tuple[str, float], ...]
    scarce: float = 0.0

    def lost(self, free: Iterable[int], left: Mapping[str, int]) -> float:
        """How many steps of a node's cards are expected never to be sold.

        Args:
            free: the free steps of each card.
            left: what is left of the node's resources, by name.
        """
        holes, total = 0.0, 0
        for steps in free:
            holes += self.loss[steps]
            total += steps
        if not total:
            return 0.0
        carried = min((left.get(name, 0) / per_step for name, per_step in self.per_step), default=total)
        return holes + max(total - carried, 0.0)

    def score(
        self, before: Iterable[int], left: Mapping[str, int], after: Iterable[int], left_after: Mapping[str, int]
    ) -> float:
        """How good it is to place a pod on a node that is *before* and *after* it as `lost` has it; more is better."""
        free = tuple(after)
        return self.lost(before, left) - self.lost(free, left_after) + _SCARCE_KEPT * self.scarce * sum(free)

    def is_like(self, other: "Tables") -> bool:
        """Whether *other* says nearly the same, so that scores need not be computed anew."""
        near = all(abs(one - two) <= _MOVED * STEPS for one, two in zip(self.loss, other.loss, strict=True))
        mine, others = dict(self.per_step), dict(other.per_step)
        return (
            near
            and mine.keys() == others.keys()
            and all(abs(mine[name] - others[name]) <= _MOVED * mine[name] for name in mine)
            and abs(self.scarce - other.scarce) <= _MOVED
        )


# Before pods were seen no hole is lost, and ten cores go with a card.
NOTHING_KNOWN: Final = Tables((0.0,) * (STEPS + 1), ((names.CPU, 10_000 / STEPS),))


class Mix:
    """The pods that asked, counted by what they ask."""

    def __init__(self, resources: tuple[str, ...]) -> None:
        """Begin with none; *resources* of nodes can run out."""
        self._resources: Final = resources
        self._counts: Final[dict[Asked, float]] = {}
        self._seen = 0

    def add(self, asked: Asked) -> bool:
        """A pod asks *asked*; True when tables are to be made anew."""
        self._counts[asked] = self._counts.get(asked, 0.0) + 1.0
        self._seen += 1
        if self._seen % _EVERY == 0:
            self._age()
            return True
        return self._seen in _FIRST

    def _age(self) -> None:
        older = 0.5 ** (_EVERY / _HALF_LIFE)
        for asked, count in list(self._counts.items()):
            if count * older < _FORGOTTEN:
                del self._counts[asked]
            else:
                self._counts[asked] = count * older

    def tables(self, have: Mapping[str, int], cards: int) -> Tables:
        """What the pods so far tell of a cluster with *cards* cards that has *have* of each resource."""
        parts: dict[int, float] = {}
        steps = 0.0
        beside, of_all = dict.fromkeys(self._resources, 0.0), dict.fromkeys(self._resources, 0.0)
        # In one order, so that the same pods make the same tables to the last bit.
        for asked, count in sorted(self._counts.items()):
            for name, amount in asked.amounts:
                if name in beside:
                    of_all[name] += count * amount
                    beside[name] += count * amount * bool(asked.cards)
            if asked.cards:
                parts[asked.steps] = parts.get(asked.steps, 0.0) + count
                steps += count * asked.steps * asked.cards
        if not steps:
            return NOTHING_KNOWN
        with_cards = sum(parts.values())
        scarce = {name: _scarcity(of_all[name] / steps, have.get(name, 0), cards) for name in self._resources}
        per_step = tuple(
            (name, beside[name] / steps * (1.0 + _SCARCE_MORE * scarce[name]))
            for name in self._resources
            if beside[name]
        )
        loss = losses({asked: count / with_cards for asked, count in parts.items()})
        return Tables(loss, per_step, max(scarce.values(), default=0.0))


def _scarcity(asked_per_step: float, have: int, cards: int) -> float:
    """How surely a resource of nodes runs out before the cards do, 0 to 1."""
    if not have or not cards:
        return 0.0
    pressure = asked_per_step / (have / (cards * STEPS))
    return min(max((pressure - _SCARCE_FROM) / _SCARCE_OVER, 0.0), 1.0)
