"""Handing over by the node lock that HAMi's device plugins share, and by a time that orders pods."""

from collections.abc import Callable, Hashable, Iterable
from typing import Final

from core import hami_lock
from core.model import Node, Pod
from core.port.handoff import LockQuestion, LockStep, LockWait
from core.tables import Tables

# A plugin that is done writes 2^64-1; nothing that large is a time.
_TIMES_END: Final = 2**62


def later(times: Iterable[str], now: int) -> int:
    """Return the first time after *now* and all *times*, as written; what cannot be read as a time does not count."""
    latest = now
    for text in times:
        if text.isascii() and text.isdigit() and len(text) <= 19:
            time = int(text)
            if latest < time < _TIMES_END:
                latest = time
    return latest + 1


class NodeLock:
    """HAMi's lock of a node: the plugin serves the pod in the lock, whatever its request and age.

    guesses: returns whether the plugin releases the lock before it has served all of a pod.
    """

    def __init__(self, guesses: Callable[[Pod, Tables], bool] = lambda pod, tables: False) -> None:
        self._guesses: Final = guesses

    @property
    def lock_key(self) -> str:
        """See `core.port.handoff.NodeLock`."""
        return hami_lock.LOCK

    def lock_owner(self, node: Node) -> str:
        """See `core.port.handoff.NodeLock`."""
        return hami_lock.owner(node)

    def lock(self, node: Node, asked: LockQuestion) -> LockStep | LockWait | None:
        """See `core.port.handoff.NodeLock`."""
        wanted = asked.wanted
        beside = [*asked.pods, *asked.served]
        if wanted is not None and self._guesses(wanted, asked.tables) and hami_lock.misleads(node, beside, wanted):
            return hami_lock.MISLED
        return hami_lock.step(node, asked)


class ByNodeLock:
    """What a dialect answers whose plugin finds its pod by that lock."""

    def confusable(self, request: object) -> frozenset[Hashable]:
        """Return any pod of the node, because the plugin serves the pod in the lock."""
        return hami_lock.ANY_POD
