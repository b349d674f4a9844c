"""Accounts the time of cards: every second of every card is held by a namespace, idle, or stranded.

A pod is charged the larger of its fractions of memory and cores. If the charges of a card's pods exceed the card, all
are reduced in proportion. The rest of a card is idle if a pod could be placed there, and stranded if not.

All values are integers: fractions of a card in millionths and time in ms, so sums are in billionths of a second.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from core import names
from core.ledger import Ledger
from core.model import NodeName, Pod
from core.node_state import NodeState
from core.port.cards import WHOLE, Tally
from core.settings import DialectName

CARD: Final = 1_000_000
_PERCENT: Final = CARD // 100
_NEEDED: Final = (names.CPU, names.MEMORY, names.PODS)
# A payee without a share for this long is forgotten.
_KEPT_MS: Final = 3_600_000


class CardTimePart(StrEnum):
    """The use of a part of a card."""

    HELD = "held"
    IDLE = "idle"
    STRANDED = "stranded"


class Payee(NamedTuple):
    """The owner of a part, and the type of its cards.

    namespace, owner and queue are "" for none, owner also if owners are not distinguished.
    """

    dialect: DialectName
    part: CardTimePart
    namespace: str = ""
    owner: str = ""
    type: str = ""
    queue: str = ""


Shares = Mapping[Payee, int]


class CardTime:
    """Sums each payee's share of cards over time."""

    def __init__(self) -> None:
        """Begin without cards."""
        self._rate: Final[dict[Payee, int]] = {}
        self._sum: Final[dict[Payee, int]] = {}
        self._since_ms: Final[dict[Payee, int]] = {}

    def change(self, before: Shares, after: Shares, at_ms: int) -> None:
        """From *at_ms* on, some cards are shared as in *after* instead of *before*."""
        for payee in before.keys() | after.keys():
            more = after.get(payee, 0) - before.get(payee, 0)
            if more:
                self._settle(payee, at_ms)
                self._rate[payee] = self._rate.get(payee, 0) + more

    def sums(self, at_ms: int) -> Mapping[Payee, int]:
        """Return sums in billionths of a card second until *at_ms*; forget payees without a share for an hour."""
        for payee in [one for one, since_ms in self._since_ms.items() if at_ms - since_ms > _KEPT_MS]:
            if not self._rate[payee]:
                del self._rate[payee], self._sum[payee], self._since_ms[payee]
        return {payee: done + self._rate[payee] * (at_ms - self._since_ms[payee]) for payee, done in self._sum.items()}

    def _settle(self, payee: Payee, at_ms: int) -> None:
        passed_ms = at_ms - self._since_ms.get(payee, at_ms)
        self._sum[payee] = self._sum.get(payee, 0) + self._rate.get(payee, 0) * passed_ms
        self._since_ms[payee] = at_ms


def takes_none(state: NodeState, dialect: DialectName) -> bool:
    """Return whether no pod can get a card of *dialect* on a node: it is full, not ready, cordoned, or closed to it."""
    return is_full(state) or bool(state.closed.get(dialect))


def is_sold(tally: Tally) -> bool:
    """Return whether no pod can get a share of a card: its memory or its cores are all held, or it is unhealthy."""
    return tally.used >= tally.total or (tally.cores_pct or 0) >= 100 or not tally.healthy


def is_full(state: NodeState) -> bool:
    """Return whether a node can take no pod because another resource than cards is used up."""
    facts = state.facts
    if facts.unschedulable or not facts.ready:
        return True
    return any(state.used.get(one, 0) >= facts.allocatable[one] for one in _NEEDED if one in facts.allocatable)


def shares_of(
    ledger: Ledger, name: NodeName, *, by_owner: bool, queue_of: Callable[[Pod], str] = lambda _: ""
) -> Shares:
    """Return the shares of one node's cards, in millionths of a card; they add up to a million for each card.

    queue_of: the queue for which a pod counts.
    """
    state = ledger.states[name]
    found: dict[Payee, int] = {}
    for dialect in _sold_by(ledger, name):
        port, cards = ledger.catalog.dialects[dialect], state.offers[dialect]
        closed = takes_none(state, dialect)
        tallies = {one.card: one for one in port.tally(cards)}
        wishes = _wishes(ledger, name, dialect, tallies, by_owner=by_owner, queue_of=queue_of)
        idle: dict[str, int] = {}
        stranded: dict[str, int] = {}
        for card, tally in tallies.items():
            rest = size = CARD * tally.cards
            of_card = wishes.get(card)
            if of_card is not None:
                charged = fitted([min(one, size) for one in of_card.values()], size)
                for payee, part in zip(of_card, charged, strict=True):
                    found[payee] = found.get(payee, 0) + part
                rest -= sum(charged)
            left = stranded if closed or is_sold(tally) else idle
            left[tally.label] = left.get(tally.label, 0) + rest
        for use, by_type in ((CardTimePart.IDLE, idle), (CardTimePart.STRANDED, stranded)):
            for label, part in by_type.items():
                found[Payee(dialect, use, type=label)] = part
    return {payee: part for payee, part in found.items() if part}


def fitted(wishes: Sequence[int], size: int) -> list[int]:
    """Return *wishes* if their sum is at most *size*; otherwise reduce them in proportion so that they add up to it."""
    total = sum(wishes)
    if total <= size:
        return list(wishes)
    parts = [one * size // total for one in wishes]
    lost = sorted(range(len(wishes)), key=lambda at: (-(wishes[at] * size % total), at))
    for at in lost[: size - sum(parts)]:
        parts[at] += 1
    return parts


def _sold_by(ledger: Ledger, name: NodeName) -> Iterator[DialectName]:
    """Yield, for each group of dialects that sell the same cards of a node, the one in use, or the first."""
    offers = ledger.states[name].offers
    held = {part.dialect for one in ledger.holders(name).values() for part in one.parts}
    told: dict[str, list[DialectName]] = {}
    for spec in ledger.catalog.specs:
        if offers.get(spec.name):
            told.setdefault(spec.cards, []).append(spec.name)
    for rivals in told.values():
        yield next((one for one in rivals if one in held), rivals[0])


def _wishes(
    ledger: Ledger,
    name: NodeName,
    dialect: DialectName,
    tallies: Mapping[str, Tally],
    *,
    by_owner: bool,
    queue_of: Callable[[Pod], str],
) -> Mapping[str, Mapping[Payee, int]]:
    """Return, by card, the millionths that each payee's pods hold: for each pod the larger of memory and cores."""
    port, cards = ledger.catalog.dialects[dialect], ledger.states[name].offers[dialect]
    found: dict[str, Counter[Payee]] = {}
    for uid, holding in ledger.holders(name).items():
        held: dict[str, list[int]] = {}
        for part in holding.parts:
            if part.dialect != dialect or part.assignment is None:
                continue
            for share in port.describe(part.assignment, cards):
                card = share.whole
                if card in tallies:
                    sums = held.setdefault(card, [0, 0])
                    sums[0] += _of_memory(share.amount, tallies[card])
                    sums[1] += (share.cores_pct or 0) * _PERCENT
        if not held:
            continue
        pod, namespace = ledger.asked_by(uid), holding.key.partition("/")[0]
        owner = pod.owner if pod is not None and by_owner else ""
        queue = queue_of(pod) if pod is not None else ""
        for card, both in held.items():
            payee = Payee(dialect, CardTimePart.HELD, namespace, owner, tallies[card].label, queue)
            found.setdefault(card, Counter())[payee] += max(both)
    return found


def _of_memory(amount: int | None, tally: Tally) -> int:
    """Return millionths of a card; all of it if the amount is unknown."""
    if tally.mode == WHOLE:
        return CARD * (tally.total if amount is None else amount)
    return CARD if amount is None or tally.total <= 0 else amount * CARD // tally.total
