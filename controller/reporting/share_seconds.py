"""To whom the time of cards goes: every second of every card is some namespace's, idle, or stranded; none is lost.

Of a card a pod is charged the larger of its parts of memory and cores. Where the pods of a card hold more than all of
it in that way, each is charged as much less. What nobody holds is idle while something could be placed there, and
stranded while nothing could.

Integers throughout: parts of a card in millionths, time in ms, so that what is summed up are billionths of a second. A
node is looked at when its cards changed, and at no other time.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple, NoReturn

from core import names
from core.errors import escaped
from core.ledger import Ledger
from core.model import NodeName
from core.node_state import NodeState
from core.port.cards import Tally
from core.settings import DialectName

CARD: Final = 1_000_000
NAME: Final = "cardshare_card_seconds_total"
TEXT: Final = "Seconds of cards, by whose they were; all together are the seconds of all cards."
LABELS: Final = ("dialect", "part", "namespace", "owner")
_BILLION: Final = 1_000_000_000
_PERCENT: Final = CARD // 100
_NEEDED: Final = (names.CPU, names.MEMORY, names.PODS)
# Series of owners that are gone for so long are not shown any more.
_KEPT_MS: Final = 3_600_000
# A node that changes many times is looked at once in so long.
_EVERY_S: Final = 5.0
# After a start all nodes are new to it: decisions come first.
_SLICE_S: Final = 0.005
_REST_S: Final = 0.02


def now_ms() -> int:
    """The clock of all that is summed up here."""
    return time.monotonic_ns() // 1_000_000


class Part(StrEnum):
    """What becomes of a part of a card."""

    HELD = "held"
    IDLE = "idle"
    STRANDED = "stranded"


class Payee(NamedTuple):
    """Whose it is; namespace and owner are empty where nobody's, owner also where owners are not told apart."""

    dialect: DialectName
    part: Part
    namespace: str = ""
    owner: str = ""


Shares = Mapping[Payee, int]


class CardTime:
    """Sums up, for each payee, what it has of cards over time."""

    def __init__(self) -> None:
        """Begin with no card."""
        self._rate: Final[dict[Payee, int]] = {}
        self._sum: Final[dict[Payee, int]] = {}
        self._since_ms: Final[dict[Payee, int]] = {}

    def change(self, before: Shares, after: Shares, at_ms: int) -> None:
        """From *at_ms* on some cards are shared as in *after*, no more as in *before*."""
        for payee in before.keys() | after.keys():
            more = after.get(payee, 0) - before.get(payee, 0)
            if more:
                self._settle(payee, at_ms)
                self._rate[payee] = self._rate.get(payee, 0) + more

    def sums(self, at_ms: int) -> Mapping[Payee, int]:
        """Billionths of a card's second until *at_ms*; who has had nothing for an hour is forgotten."""
        for payee in [one for one, since_ms in self._since_ms.items() if at_ms - since_ms > _KEPT_MS]:
            if not self._rate[payee]:
                del self._rate[payee], self._sum[payee], self._since_ms[payee]
        return {payee: done + self._rate[payee] * (at_ms - self._since_ms[payee]) for payee, done in self._sum.items()}

    def _settle(self, payee: Payee, at_ms: int) -> None:
        passed_ms = at_ms - self._since_ms.get(payee, at_ms)
        self._sum[payee] = self._sum.get(payee, 0) + self._rate.get(payee, 0) * passed_ms
        self._since_ms[payee] = at_ms


class _Seen(NamedTuple):
    """What a node's shares follow from, and they themselves."""

    offers: object
    closed: object
    is_full: bool
    by_owner: bool
    shares: Shares


_NOTHING: Final = _Seen(None, None, False, False, {})


class ShareSeconds:
    """Follows the cards of a ledger."""

    def __init__(self, ledger: Callable[[], Ledger]) -> None:
        """Prepare for the ledger that *ledger* answers, which may become another one."""
        self._ledger: Final = ledger
        self._time: Final = CardTime()
        self._seen: Final[dict[NodeName, _Seen]] = {}
        self._due: Final[dict[NodeName, None]] = {}
        self._cursor: tuple[Ledger, int] | None = None
        self._by_owner = False

    async def run(self, counts: Callable[[], bool], by_owner: Callable[[], bool]) -> NoReturn:
        """Follow the ledger while *counts* says so; *by_owner* says whether owners are told apart."""
        while True:
            if counts():
                until_s = time.monotonic() + _SLICE_S
                for _ in self.follow(now_ms(), by_owner=by_owner()):
                    if time.monotonic() >= until_s:
                        break
            else:
                self.pause(now_ms())
            await asyncio.sleep(_REST_S if self._due else _EVERY_S)

    def follow(self, at_ms: int, *, by_owner: bool) -> Iterator[None]:
        """Take in what changed since the last time, a node at a step; what is left then is taken in the next time."""
        ledger = self._ledger()
        if by_owner != self._by_owner:
            self._by_owner, self._cursor = by_owner, None
        self._due.update(dict.fromkeys(self._changed(ledger)))
        while self._due:
            name = next(iter(self._due))
            del self._due[name]
            state, seen = ledger.states.get(name), self._seen.pop(name, _NOTHING)
            found = _NOTHING
            if state is not None:
                why = (state.closed, is_full(state), by_owner)
                if state.offers is seen.offers and why == seen[1:4]:
                    self._seen[name] = seen
                    continue
                found = _Seen(state.offers, *why, shares_of(ledger, name, by_owner=by_owner))
                self._seen[name] = found
            self._time.change(seen.shares, found.shares, at_ms)
            yield

    def _changed(self, ledger: Ledger) -> Sequence[NodeName]:
        known = self._cursor
        changed = ledger.changes_since(known[1]) if known is not None and known[0] is ledger else None
        self._cursor = (ledger, ledger.cursor)
        return changed if changed is not None else [*self._seen, *ledger.states]

    def pause(self, at_ms: int) -> None:
        """Count nothing from *at_ms* on, until the next `follow`: another process does."""
        for seen in self._seen.values():
            self._time.change(seen.shares, {}, at_ms)
        self._seen.clear()
        self._due.clear()
        self._cursor = None

    def series(self, at_ms: int) -> Iterator[str]:
        """The series in Prometheus' text format; seconds to nine decimals, which is exact."""
        yield f"# HELP {NAME} {TEXT}\n# TYPE {NAME} counter\n"
        for payee, total in self._time.sums(at_ms).items():
            labels = ",".join(f'{key}="{_escaped(value)}"' for key, value in zip(LABELS, payee, strict=True))
            yield f"{NAME}{{{labels}}} {total // _BILLION}.{total % _BILLION:09}\n"


def is_full(state: NodeState) -> bool:
    """Whether no pod can come to a node for want of something else than cards."""
    facts = state.facts
    if facts.unschedulable or not facts.ready:
        return True
    return any(state.used.get(one, 0) >= facts.allocatable[one] for one in _NEEDED if one in facts.allocatable)


def shares_of(ledger: Ledger, name: NodeName, *, by_owner: bool) -> Shares:
    """Whose the cards of one node are, in millionths of a card; in all, a million for each."""
    state = ledger.states[name]
    found: Counter[Payee] = Counter()
    for dialect in _sold_by(ledger, name):
        port, cards = ledger.catalog.dialects[dialect], state.offers[dialect]
        closed = is_full(state) or bool(state.closed.get(dialect))
        tallies = {one.card: one for one in port.tally(cards)}
        wishes = _wishes(ledger, name, dialect, tallies, by_owner=by_owner)
        for card, tally in tallies.items():
            size = CARD * (tally.total if tally.mode == "whole" else 1)
            of_card = wishes.get(card, {})
            charged = fitted([min(one, size) for one in of_card.values()], size)
            for payee, part in zip(of_card, charged, strict=True):
                found[payee] += part
            is_sold = tally.used >= tally.total or (tally.cores_pct or 0) >= 100
            rest = Part.STRANDED if closed or is_sold or not tally.healthy else Part.IDLE
            found[Payee(dialect, rest)] += size - sum(charged)
    return {payee: part for payee, part in found.items() if part}


def fitted(wishes: Sequence[int], size: int) -> list[int]:
    """*wishes* if all together are no more than *size*; else what they are of *size* in proportion, adding up to it."""
    total = sum(wishes)
    if total <= size:
        return list(wishes)
    parts = [one * size // total for one in wishes]
    lost = sorted(range(len(wishes)), key=lambda at: (-(wishes[at] * size % total), at))
    for at in lost[: size - sum(parts)]:
        parts[at] += 1
    return parts


def _sold_by(ledger: Ledger, name: NodeName) -> Iterator[DialectName]:
    """Of the dialects that sell the same cards of a node, the one that is in use, or the first."""
    offers = ledger.states[name].offers
    held = {part.dialect for one in ledger.holders(name).values() for part in one.parts}
    told: dict[str, list[DialectName]] = {}
    for spec in ledger.catalog.specs:
        if offers.get(spec.name):
            told.setdefault(spec.cards, []).append(spec.name)
    for rivals in told.values():
        yield next((one for one in rivals if one in held), rivals[0])


def _wishes(
    ledger: Ledger, name: NodeName, dialect: DialectName, tallies: Mapping[str, Tally], *, by_owner: bool
) -> Mapping[str, Mapping[Payee, int]]:
    """By card, what each payee's pods hold of it in millionths: of each pod the larger of memory and cores."""
    port, cards = ledger.catalog.dialects[dialect], ledger.states[name].offers[dialect]
    found: dict[str, Counter[Payee]] = {}
    for uid, holding in ledger.holders(name).items():
        held: dict[str, list[int]] = {}
        for part in holding.parts:
            if part.dialect != dialect or part.assignment is None:
                continue
            for share in port.describe(part.assignment, cards):
                # A slice is named behind its card.
                card = share.card if share.card in tallies else share.card.partition("[")[0]
                if card in tallies:
                    sums = held.setdefault(card, [0, 0])
                    sums[0] += _of_memory(share.amount, tallies[card])
                    sums[1] += (share.cores_pct or 0) * _PERCENT
        if not held:
            continue
        pod = ledger.asked_by(uid) if by_owner else None
        payee = Payee(dialect, Part.HELD, holding.key.partition("/")[0], pod.owner if pod is not None else "")
        for card, both in held.items():
            found.setdefault(card, Counter())[payee] += max(both)
    return found


def _of_memory(amount: int | None, tally: Tally) -> int:
    """Millionths of a card; all of it where nobody can tell."""
    if tally.mode == "whole":
        return CARD * (tally.total if amount is None else amount)
    return CARD if amount is None or tally.total <= 0 else amount * CARD // tally.total


def _escaped(value: Any) -> str:
    return escaped(str(value)).replace("\\", r"\\").replace('"', r"\"")
