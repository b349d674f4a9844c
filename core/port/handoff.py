"""Values exchanged between a placement and the device plugin that serves it."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from core.model import Node, NodeName, Pod, PodUid
from core.settings import Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The hand-off's input to a Binding: node name, Unix seconds and nanoseconds, the ordering stamp.

    containers: the names of the pod's containers, init containers first, where they are known.
    order: the value with which the plugin finds this pod last among those in flight on the node (seconds for vGPU,
    nanoseconds for the share plugin and MindCluster); see `Dialect.next_stamp`.
    """

    node: NodeName
    now_s: int
    order: int
    containers: tuple[str, ...] = ()


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


# A lock that is held for longer is abandoned (ascend 2.4), if it was seen for longer than a scheduler takes from its
# lock to its Binding. Source: HAMi v2.9, charts/hami/templates/scheduler/configmap.yaml (`httpTimeout`).
_LOCK_EXPIRES_S: Final = 300
_LOCK_SEEN_S: Final = 30


class LockQuestion(NamedTuple):
    """What decides about a node's lock besides the node.

    pods: those in flight on the node, those being bound to it now, and the pod that `lock_owner` names, if it exists
    and another scheduler will bind it; a pod of cardshare whose Binding was not written is not among them.
    wanted: the pod that is to be bound, if there is one.
    seen_s: since when the lock is unchanged, by the clock of *now_s*: a later time in it is wrong; None: unknown.
    served: with *wanted*, the pods with cards on the node that are not in flight.
    releasing: pods that were served or failed so recently that the plugin may still release their lock. Such a lock is
    left alone, because old plugins then delete any lock.
    """

    pods: Sequence[Pod]
    now_s: int
    tables: Tables
    wanted: Pod | None = None
    seen_s: int | None = None
    served: Sequence[Pod] = ()
    releasing: Sequence[Pod] = ()

    def until_s(self, taken_s: int) -> int:
        """Return when a lock that says *taken_s* counts as abandoned.

        The clock here may be wrong, and that of its holder, so what was seen of it counts too.
        """
        if self.seen_s is None:
            return taken_s + _LOCK_EXPIRES_S
        return max(min(taken_s, self.seen_s) + _LOCK_EXPIRES_S, self.seen_s + _LOCK_SEEN_S)


class NodeLock(Protocol):
    """A lock on a node by which a device plugin finds its pod, or two schedulers avoid each other.

    - Before a Binding is sent: call `lock` with the pod as *wanted*. None: the lock names it, continue. A step: write
      it, then continue (409, or an unknown outcome: read the node, call again). A wait: the pod waits its turn.
    - When a Binding was certainly not written, and whenever the node's lock, or a pod of this dialect that is or was on
      the node, changes or is removed: call `lock` without *wanted*. A step: write it.
    """

    def lock_owner(self, node: Node) -> str:
        """Return namespace/name of the pod for which the node is locked, "" if there is none or it is unknown."""

    @property
    def lock_key(self) -> str:
        """The node annotation that is the lock."""

    def lock(self, node: Node, asked: LockQuestion) -> LockStep | LockWait | None:
        """Return what to write to the node's lock now, or why the wanted pod must wait; None: nothing."""
