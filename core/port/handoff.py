"""Values exchanged between a placement and the device plugin that serves it."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from core.model import NodeName, PodUid


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The hand-off's input to a Binding: node name, Unix seconds and nanoseconds, the ordering stamp.

    order: the value with which the plugin finds this pod last among those in flight on the node (seconds for vGPU,
    nanoseconds for the share plugin and MindCluster); see `Dialect.next_stamp`.
    """

    node: NodeName
    now_s: int
    order: int


class Progress(StrEnum):
    """The state of a pod between its Binding and its devices."""

    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"


class LockMark(NamedTuple):
    """A mark shared by all pods whose plugins, of any dialect, use the lock *key* of their node."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """One pod that the device plugin could still serve.

    confusable: by what the plugin could confuse it; two pods of a node and dialect with a common element are never in
    flight together, nor two pods of any dialects with a common `LockMark`.
    cleanup: annotations to clear on a pod that will never be served (a dead one stays a candidate); for an unbound pod,
    valid only while no Binding by them is expected.
    node: the node whose plugin looks for it, if its annotations name one; "" = the node that it is bound to.
    """

    pod: PodUid
    progress: Progress
    confusable: frozenset[Hashable]
    cleanup: Mapping[str, str] | None = None
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockStep:
    """One annotation to write to a node; value None removes it.

    It is sent as a merge patch with the node's resourceVersion, so that one of two writers loses (409); then the node
    is read and judged again.
    """

    key: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LockWait:
    """The node is locked for another pod: the reason, and the Unix second when the lock expires (0: unknown)."""

    reason: str
    until_s: int = 0
