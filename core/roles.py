"""Implementations of optional port roles that several dialects share, and parts of them.

`HamiLocking` is for dialects whose plugin uses HAMi's node lock. `HealingByFault` is for dialects whose cards are named
tuples with `fixed`: a uuid, a fault (None for a usable card) and a problem.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from core import hami_lock, names
from core.model import Node, Pod
from core.port.cards import CardWish, Wording
from core.port.handoff import LockStep, LockWait
from core.port.optional import Healing, Locking
from core.port.refusals import PASSING, Fault, Reason
from core.port.typevars import CardT
from core.tables import Tables


class HamiLocking(Locking):
    """`Locking` by HAMi's node lock; the plugin serves the pod in the lock, whatever its request and age."""

    def lock_owner(self, node: Node) -> str:
        """See `Locking`."""
        return hami_lock.owner(node)

    @property
    def lock_key(self) -> str:
        """See `Locking`."""
        return hami_lock.LOCK

    def lock(
        self,
        node: Node,
        pods: Sequence[Pod],
        now_s: int,
        tables: Tables,
        wanted: Pod | None = None,
        *,
        seen_s: int | None = None,
        served: Sequence[Pod] = (),
        releasing: Sequence[Pod] = (),
    ) -> LockStep | LockWait | None:
        """See `Locking`."""
        if wanted is not None and self.guesses(wanted, tables) and hami_lock.misleads(node, [*pods, *served], wanted):
            return hami_lock.MISLED
        return hami_lock.step(node, pods, hami_lock.Now(now_s, seen_s), wanted, releasing)

    def guesses(self, pod: Pod, tables: Tables) -> bool:
        """Return whether the plugin releases the lock before it has served all of *pod*."""
        del pod, tables
        return False

    def next_stamp(self, pods: Sequence[Pod], now_s: int) -> int:
        """Return the current time, because the plugin uses the lock and not the age of pods."""
        del pods
        return now_s

    def confusable(self, request: object) -> frozenset[Hashable]:
        """Return any pod of the node, because the plugin serves the pod in the lock."""
        del request
        return hami_lock.ANY_POD


def worded_share(wish: CardWish, count: str, memory: str, cores: str, mib_per_unit: int) -> Wording:
    """Return *wish* as limits by resource name, and the annotation for the type; memory is rounded up to units."""
    limits = {count: str(wish.cards)}
    if wish.memory_mib is not None:
        limits[memory] = str(-(-wish.memory_mib // mib_per_unit))
    if wish.cores_pct is not None:
        limits[cores] = str(wish.cores_pct)
    return Wording(limits, {names.USE_GPU_TYPE: wish.types} if wish.types else {})


def asks_whole_cards(wish: CardWish) -> bool:
    """Return whether *wish* is only for whole cards."""
    return wish.memory_mib is None and wish.cores_pct in (None, 100)


class HealingByFault(Healing[CardT]):
    """`Healing` for cards whose fault explains why they accept nothing new."""

    def healed(self, cards: tuple[CardT, ...]) -> tuple[CardT, ...]:
        """See `Healing`."""
        return tuple([_with(card, None, "") if _fault(card) in PASSING else card for card in cards])

    def well(self, cards: tuple[CardT, ...]) -> frozenset[str]:
        """See `Healing`; cards are named by their uuids."""
        return frozenset([_uuid(card) for card in cards if _fault(card) is not Reason.UNHEALTHY])

    def kept_out(self, cards: tuple[CardT, ...], faults: Mapping[str, Fault]) -> tuple[CardT, ...]:
        """See `Healing`."""
        return tuple(
            [
                _with(card, *faults[_uuid(card)]) if _uuid(card) in faults and _fault(card) is None else card
                for card in cards
            ]
        )


def _fault(card: Any) -> Reason | None:
    fault: Reason | None = card.fixed.fault
    return fault


def _uuid(card: Any) -> str:
    uuid: str = card.fixed.uuid
    return uuid


def _with(card: Any, fault: Reason | None, problem: str) -> Any:
    return card._replace(fixed=card.fixed._replace(fault=fault, problem=problem))
