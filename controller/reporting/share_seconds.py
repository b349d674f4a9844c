"""Accounts the time of cards (`core.card_time`), and reports it as a series for Prometheus.

A node is read only when its cards have changed.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from core.card_time import CardTime, Payee, Shares, is_full, shares_of
from core.errors import escaped
from core.ledger import Ledger
from core.model import NodeName, Pod

NAME: Final = "cardshare_card_seconds_total"
TEXT: Final = "Seconds of cards, by holder; together they are the seconds of all cards."
LABELS: Final = ("dialect", "part", "namespace", "owner")
_BILLION: Final = 1_000_000_000
# A node that changes often is read at most once in this interval.
_EVERY_S: Final = 5.0
# After a start all nodes are unread, but decisions have priority.
_SLICE_S: Final = 0.005
_REST_S: Final = 0.02


def now_ms() -> int:
    """The clock of all sums here, in milliseconds."""
    return time.monotonic_ns() // 1_000_000


class _Seen(NamedTuple):
    """A node's shares, and the values that determine them."""

    offers: object
    closed: object
    is_full: bool
    by_owner: bool
    shares: Shares


_NOTHING: Final = _Seen(None, None, False, False, {})


class ShareSeconds:
    """Accounts the cards of a ledger."""

    def __init__(self, ledger: Callable[[], Ledger], queue_of: Callable[[Pod], str] = lambda _: "") -> None:
        """Prepare for the ledger that *ledger* returns, which may change; *queue_of*: the queue of a pod."""
        self._ledger: Final = ledger
        self._queue_of: Final = queue_of
        self._time: Final = CardTime()
        self._seen: Final[dict[NodeName, _Seen]] = {}
        self._due: Final[dict[NodeName, None]] = {}
        self._cursor: tuple[Ledger, int] | None = None
        self._by_owner = False
        # Whether every node was read since the last pause.
        self.is_whole = False

    async def run(self, counts: Callable[[], bool], by_owner: Callable[[], bool]) -> NoReturn:
        """Follow the ledger while *counts* returns True; *by_owner*: whether owners are accounted separately."""
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
        """Read the changed nodes, one per step; the rest is read in the next call."""
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
                found = _Seen(state.offers, *why, shares_of(ledger, name, by_owner=by_owner, queue_of=self._queue_of))
                self._seen[name] = found
            self._time.change(seen.shares, found.shares, at_ms)
            yield
        self.is_whole = True

    def _changed(self, ledger: Ledger) -> Sequence[NodeName]:
        known = self._cursor
        changed = ledger.changes_since(known[1]) if known is not None and known[0] is ledger else None
        self._cursor = (ledger, ledger.cursor)
        return changed if changed is not None else [*self._seen, *ledger.states]

    def pause(self, at_ms: int) -> None:
        """Account nothing from *at_ms* until the next `follow`, because another process does."""
        for seen in self._seen.values():
            self._time.change(seen.shares, {}, at_ms)
        self._seen.clear()
        self._due.clear()
        self._cursor = None
        self.is_whole = False

    def sums(self, at_ms: int) -> Mapping[Payee, int]:
        """Return what each payee held until *at_ms*, in billionths of a card second since this process began."""
        return self._time.sums(at_ms)

    def series(self, at_ms: int) -> Iterator[str]:
        """Yield the series in Prometheus' text format; seconds with nine decimals, which is exact."""
        yield f"# HELP {NAME} {TEXT}\n# TYPE {NAME} counter\n"
        sums: Counter[tuple[str, ...]] = Counter()
        for payee, total in self.sums(at_ms).items():
            sums[payee[: len(LABELS)]] += total
        for values, total in sums.items():
            labels = ",".join(f'{key}="{_escaped(value)}"' for key, value in zip(LABELS, values, strict=True))
            yield f"{NAME}{{{labels}}} {total // _BILLION}.{total % _BILLION:09}\n"


def _escaped(value: Any) -> str:
    return escaped(str(value)).replace("\\", r"\\").replace('"', r"\"")
