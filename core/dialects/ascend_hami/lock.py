"""The node lock by which the plugin is told whose turn it is: ``<RFC 3339 time>,<namespace>,<pod>``.

Source: protocol reference, ascend 1.10, 2.1 step 5, 2.2, 5.5, D-1, D-3.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from core.dialects.ascend_hami import keys
from core.dialects.ascend_hami.handoff import in_flight
from core.model import Node, Pod
from core.port import LockStep, LockWait, Progress
from core.settings import Tables

# Whoever holds a lock for longer has been lost (ascend 2.4).
EXPIRES_S: Final = 300
_MAX_CHARS: Final = 1024


class _Lock(NamedTuple):
    """A lock that was read. owner: namespace/name, "" for one that names nobody; taken_s: Unix seconds, 0 unknown."""

    owner: str
    taken_s: int


class Now(NamedTuple):
    """Unix seconds, and since when the lock says what it says, by the same clock; None: that is not known."""

    now_s: int
    seen_s: int | None = None

    def holds(self, lock: _Lock) -> bool:
        """Whether the time of *lock* is not over."""
        return self.now_s < self.until_s(lock)

    def until_s(self, lock: _Lock) -> int:
        """When it is over; a lock from the future was taken when it was first seen."""
        taken_s = lock.taken_s if self.seen_s is None else min(lock.taken_s, self.seen_s)
        return taken_s + EXPIRES_S


# What cannot be read fails every call of the plugin until somebody removes it (ascend 2.2 step 1).
_BROKEN: Final = _Lock("", 0)


def owner(node: Node) -> str:
    """namespace/name of the pod that the lock of *node* names, "" if it names none."""
    lock = _read(node)
    return lock.owner if lock is not None else ""


def step(node: Node, pods: Sequence[Pod], now: Now, wanted: Pod | None, tables: Tables) -> LockStep | LockWait | None:
    """What is to be done with the lock of *node*; see `core.port.Locking.lock`."""
    lock = _read(node)
    return _tend(lock, pods, now.now_s, tables) if wanted is None else _take(lock, pods, now, wanted, tables)


def _take(lock: _Lock | None, pods: Sequence[Pod], now: Now, wanted: Pod, tables: Tables) -> LockStep | LockWait | None:
    busy = next((pod for pod in pods if pod.uid != wanted.uid and _waits(pod, tables)), None)
    if busy is not None:
        return LockWait(reason="the device plugin is serving another pod")
    if lock is None:
        return _step(wanted, now.now_s)
    fresh = now.holds(lock)
    if lock.owner == wanted.key:
        return None if fresh else _step(wanted, now.now_s)
    if fresh and (not lock.owner or _holds(lock.owner, pods, tables)):
        # The pod that it names may be of another namespace than the one that is told.
        holder = "another pod" if lock.owner else "a scheduler that does not say for which pod"
        return LockWait(reason=f"annotation {keys.LOCK} of the node is held for {holder}", until_s=now.until_s(lock))
    return _step(wanted, now.now_s)


def _tend(lock: _Lock | None, pods: Sequence[Pod], now_s: int, tables: Tables) -> LockStep | None:
    if lock is None:
        # The plugin drops the lock after each container (D-1): for those that are left it is taken again.
        waiting = [pod for pod in pods if _waits(pod, tables)]
        served = [pod for pod in waiting if pod.annotations.get(keys.BIND_PHASE) == keys.SUCCESS]
        chosen = served or waiting
        return _step(chosen[0], now_s) if len(chosen) == 1 else None
    if lock is _BROKEN or (lock.owner and not _holds(lock.owner, pods, tables)):
        return LockStep(key=keys.LOCK, value=None)
    return None


def _holds(owner_key: str, pods: Sequence[Pod], tables: Tables) -> bool:
    """Whether the pod *owner_key* is there and still to be served, or about to be bound."""
    pod = next((one for one in pods if one.key == owner_key), None)
    if pod is None or pod.finished:
        return False
    return _waits(pod, tables) if pod.node_name else not pod.deleting


def _waits(pod: Pod, tables: Tables) -> bool:
    seen = in_flight(pod, tables)
    return seen is not None and seen.progress is Progress.WAITING


def _step(pod: Pod, now_s: int) -> LockStep:
    time = datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return LockStep(key=keys.LOCK, value=f"{time},{pod.namespace},{pod.name}")


def _read(node: Node) -> _Lock | None:
    text = node.annotations.get(keys.LOCK)
    if text is None:
        return None
    fields = text.split(",") if len(text) <= _MAX_CHARS else []
    if len(fields) not in (1, 3):
        return _BROKEN
    try:
        taken_s = int(datetime.fromisoformat(fields[0]).timestamp())
    except (ValueError, OverflowError):
        taken_s = 0
    return _Lock(f"{fields[1]}/{fields[2]}" if len(fields) == 3 else "", taken_s)
