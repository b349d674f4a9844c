"""The node lock that shows HAMi's device plugins which pod to serve: ``<RFC 3339 time>,<namespace>,<pod>``.

The plugins for NVIDIA and Ascend cards read the same lock, and serve the pod that it names. This module computes for
both what they serve and how far they are.
Source: protocol reference, ascend 1.10, 2.1 step 5, 2.2, 5.5, D-1, D-3; hami 3.3 to 3.5, HN-3, HN-5, HN-18, HN-19.
"""

from collections.abc import Hashable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from core.model import Node, Phase, Pod
from core.port.handoff import InFlight, LockMark, LockQuestion, LockStep, LockWait, Progress
from core.units import time_text

LOCK: Final = "hami.io/mutex.lock"
# Pod annotations of both plugins.
NODE: Final = "hami.io/vgpu-node"
TIME: Final = "hami.io/vgpu-time"
BIND_TIME: Final = "hami.io/bind-time"
BIND_PHASE: Final = "hami.io/bind-phase"
KEYS: Final[frozenset[str]] = frozenset({NODE, TIME, BIND_TIME, BIND_PHASE})
# The label of pods that HAMi's webhook skips.
IGNORED: Final = ("hami.io/webhook", "ignore")
ALLOCATING: Final = "allocating"
SUCCESS: Final = "success"
FAILED: Final = "failed"
_PREFIX: Final = "hami.io/"
_TO_ALLOCATE: Final = "-devices-to-allocate"
# Some plugins erase this one instead (hami-vendors VN-31); all others leave it.
_ALLOCATED: Final = "-devices-allocated"

# A plugin serves the pod in the node's one lock, so only one pod may be in flight, whatever it requests.
ANY_POD: Final[frozenset[Hashable]] = frozenset({LockMark(LOCK)})
_NONE: Final[frozenset[Hashable]] = frozenset()

_MAX_CHARS: Final = 1024


class _Lock(NamedTuple):
    """A decoded lock. owner: namespace/name, "" if it names no pod; taken_s: Unix seconds, 0 if unknown."""

    owner: str
    taken_s: int


# An unreadable lock, also one with an unreadable time, makes every call of the plugin fail until it is removed (ascend
# 2.2 step 1).
_BROKEN: Final = _Lock("", 0)


def devices_left(text: str) -> bool:
    """Return whether a plugin still has devices to serve: it empties segments, and closes them again (ascend 1.10)."""
    return "," in text


def in_flight(pod: Pod) -> InFlight | None:
    """Return *pod* between its Binding and its last device; None if no plugin reads it.

    bind-phase is already ``success`` after the first container (D-1), so the remaining devices count, not the phase. A
    pod marked as failed may have been confused with another (D-2), and kubelet may be asking for a pod that is being
    deleted.
    Both count until they have ended.
    """
    phase = pod.annotations.get(BIND_PHASE)
    if not pod.node_name or phase is None:
        return None
    texts = [
        min(
            text, pod.annotations.get(key.removesuffix(_TO_ALLOCATE) + _ALLOCATED, text), key=lambda one: one.count(",")
        )
        for key, text in pod.annotations.items()
        if key.endswith(_TO_ALLOCATE) and key.startswith(_PREFIX)
    ]
    if not texts:
        return None
    if pod.finished:
        return InFlight(pod=pod.uid, progress=Progress.FAILED, confusable=_NONE)
    if pod.started or not (phase == ALLOCATING or any(map(devices_left, texts))):
        progress = Progress.FAILED if phase == FAILED else Progress.DONE
        return InFlight(pod=pod.uid, progress=progress, confusable=_NONE)
    return InFlight(pod=pod.uid, progress=Progress.WAITING, confusable=ANY_POD)


def owner(node: Node) -> str:
    """Return namespace/name of the pod in the lock of *node*, "" if there is none."""
    lock = _read(node)
    return lock.owner if lock is not None else ""


def step(node: Node, asked: LockQuestion) -> LockStep | LockWait | None:
    """Return what to do with the lock of *node*; see `core.port.handoff.NodeLock`."""
    lock, wanted = _read(node), asked.wanted
    if lock is not None and lock.owner and any(pod.key == lock.owner for pod in asked.releasing):
        return RELEASING if wanted is not None else None
    return _tend(lock, asked.pods, asked.now_s) if wanted is None else _take(lock, asked, wanted)


# Why a pod is not bound: a plugin has served another pod and has not released the lock.
RELEASING: Final = LockWait(reason="the device plugin has served a pod there, and is releasing its lock")


# Why a pod is not bound: another pod `misleads` the plugin.
MISLED: Final = LockWait(
    reason="a pod that was served there has not started yet, and the device plugin may take it for the next one "
    "between two containers with cards"
)


def misleads(node: Node, pods: Sequence[Pod], wanted: Pod) -> bool:
    """Return whether a plugin without a lock takes one of *pods* instead of *wanted* on *node* (ascend 2.2 step 2)."""
    return any(
        pod.phase is Phase.PENDING
        and (pod.namespace, pod.name) < (wanted.namespace, wanted.name)
        and BIND_TIME in pod.annotations
        and pod.annotations.get(BIND_PHASE) in (ALLOCATING, SUCCESS)
        and pod.annotations.get(NODE) == node.name
        for pod in pods
    )


def _take(lock: _Lock | None, asked: LockQuestion, wanted: Pod) -> LockStep | LockWait | None:
    busy = next((pod for pod in asked.pods if pod.uid != wanted.uid and _waits(pod)), None)
    if busy is not None:
        return LockWait(reason="the device plugin is serving another pod")
    if lock is None or not lock.taken_s:
        return _step(wanted, asked.now_s)
    until_s = asked.until_s(lock.taken_s)
    fresh = asked.now_s < until_s
    if lock.owner == wanted.key:
        return None if fresh else _step(wanted, asked.now_s)
    if fresh and (not lock.owner or _holds(lock.owner, asked.pods)):
        # The message must not name the pod, which may be in another namespace.
        holder = "another pod" if lock.owner else "a scheduler that does not say for which pod"
        return LockWait(reason=f"annotation {LOCK} of the node is held for {holder}", until_s=until_s)
    return _step(wanted, asked.now_s)


def _tend(lock: _Lock | None, pods: Sequence[Pod], now_s: int) -> LockStep | None:
    if lock is None:
        # The plugin releases the lock after each container (D-1), so it is taken again for the remaining ones.
        waiting = [pod for pod in pods if _waits(pod)]
        served = [pod for pod in waiting if pod.annotations.get(BIND_PHASE) == SUCCESS]
        chosen = served or waiting
        return _step(chosen[0], now_s) if len(chosen) == 1 else None
    if lock is _BROKEN or (lock.owner and not _holds(lock.owner, pods)):
        return LockStep(key=LOCK, value=None)
    return None


def _holds(owner_key: str, pods: Sequence[Pod]) -> bool:
    """Return whether the pod *owner_key* exists and must still be served, or is about to be bound."""
    pod = next((one for one in pods if one.key == owner_key), None)
    if pod is None or pod.finished:
        return False
    return _waits(pod) if pod.node_name else not pod.deleting


def _waits(pod: Pod) -> bool:
    seen = in_flight(pod)
    return seen is not None and seen.progress is Progress.WAITING


def _step(pod: Pod, now_s: int) -> LockStep:
    time = time_text(now_s)
    return LockStep(key=LOCK, value=f"{time},{pod.namespace},{pod.name}")


def _read(node: Node) -> _Lock | None:
    text = node.annotations.get(LOCK)
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
