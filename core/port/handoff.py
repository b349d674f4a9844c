"""What passes between a placement and the device plugin that serves it."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from core.model import NodeName, PodUid


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What the hand-off supplies for a Binding: node name, Unix seconds and nanoseconds, the ordering stamp.

    order is the value that makes the plugin find this pod last among those in flight on the node
    (seconds for vGPU, nanoseconds for the share plugin and MindCluster); see `Dialect.next_stamp`.
    """

    node: NodeName
    now_s: int
    order: int


class Progress(StrEnum):
    """Where a pod stands between its Binding and its devices."""

    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"


class LockMark(NamedTuple):
    """What all pods have in common whose plugins, of whatever dialect, go by the lock *key* of their node."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """One pod that the device plugin could still serve.

    confusable: what the plugin could mistake it by; two pods of a node and dialect with a common element are never in
    flight together, nor two of any dialects with a common `LockMark`.
    cleanup: annotations to clear on a pod that will never be served (a dead one stays a candidate); of one that waits
    on no node, where nobody is about to bind it by them.
    node: whose plugin looks for it, where its annotations say so; "" = the node that it is bound to.
    """

    pod: PodUid
    progress: Progress
    confusable: frozenset[Hashable]
    cleanup: Mapping[str, str] | None = None
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockStep:
    """One annotation to write to a node, value None to remove it.

    Sent as a merge patch with the node's resourceVersion, so that of two writers one loses (409): then the node is
    read and asked about again.
    """

    key: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LockWait:
    """The node is locked for another: why, and the Unix second from which on the lock is anybody's (0: not known)."""

    reason: str
    until_s: int = 0
