"""Bind: the Binding of a permitted pod. Some device plugins need a lock of the node before (`nodes.NodeLocks`)."""

from collections.abc import Mapping
from typing import Final

from controller.actions import Bind, Lock, target_of
from controller.deciding.cluster import ClusterState
from controller.deciding.lifecycle import Entry
from controller.deciding.reserve import Reservations
from controller.handing_over.collision import CollisionKey
from controller.handing_over.locks import Locks
from core.errors import quoted
from core.history.pods import What
from core.ledger import Placement
from core.model import Pod, container_names
from core.port.handoff import Stamp
from core.waiting import Cause, Wait

# All annotations of an object, keys and values. Source: facts 2.3, measured on kube-apiserver v1.36.
_ANNOTATIONS_MAX_BYTES: Final = 262_144
# Reserved for what device plugins write to the pod later: longer marks, and times.
_LATER_BYTES: Final = 1024


def annotations_bytes(annotations: Mapping[str, str]) -> int:
    """Return the size of *annotations* as the API server counts it: keys and values, in UTF-8."""
    return sum(len(key.encode()) + len(value.encode("utf-8", "replace")) for key, value in annotations.items())


def room_wait(annotations: Mapping[str, str], had: int, comes_to: int) -> Wait | None:
    """Return that the annotations of a pod are too long for its assignment; None if they are not.

    Args:
        annotations: the pod's.
        had: their size in bytes.
        comes_to: their size with the assignment.
    """
    if comes_to <= _ANNOTATIONS_MAX_BYTES - _LATER_BYTES:
        return None
    longest, value = max(annotations.items(), key=lambda one: len(one[0]) + len(one[1]))
    long = annotations_bytes({longest: value})
    text = (
        f"remove or shorten annotations; the longest is {quoted(longest)} with {long} bytes: all have {had} "
        f"bytes, and with the assignment more than the {_ANNOTATIONS_MAX_BYTES} that the API server accepts for one pod"
    )
    return Wait(Cause.TOO_LONG, text)


# Smaller annotations leave enough space for any assignment.
_LONG_BYTES: Final = 128 * 1024


class Binder:
    """Sends Bindings, with the locks that they need.

    Attributes:
        locks: which locks of nodes Bindings need.
    """

    def __init__(self, cluster: ClusterState, reservations: Reservations) -> None:
        self.locks: Final = Locks(cluster.ledger.catalog, cluster.settings, cluster.handoff)
        self._cluster: Final = cluster
        self._reservations: Final = reservations

    def send(self, entry: Entry, placement: Placement, keys: CollisionKey) -> None:
        """Request the lock of a reserved pod's node, if its dialect needs one, or else its Binding."""
        pod, cluster = entry.pod, self._cluster
        too_long = self._too_long(pod, placement)
        if too_long is not None:
            self._reservations.release(entry)
            cluster.hold(entry, too_long)
            return
        if placement.dialect is None:
            cluster.handoff.leave(pod.uid)
        else:
            cluster.handoff.begin(pod.uid, placement.node, keys, cluster.clock())
        if placement.dialect is None or placement.dialect not in self.locks.used:
            self.bind(entry, placement)
            return
        cluster.queue.lock(entry)
        node = placement.node
        facts, offers = cluster.ledger.states[node].facts, cluster.ledger.offered(node)
        cluster.actions.append(
            Lock(
                node=node,
                dialect=placement.dialect,
                pod=target_of(pod),
                attempt=entry.attempt,
                facts=facts,
                offers=offers,
            )
        )

    def bind(self, entry: Entry, placement: Placement) -> None:
        """Request the Binding of a pod that already counts as in flight, with the next stamp of its node."""
        cluster = self._cluster
        if entry.turn_s is not None:
            cluster.metrics.turn_wait_s.observe(cluster.clock() - entry.turn_s)
        cluster.queue.bind(entry)
        cluster.sent.send(entry.pod.uid, entry.version)
        where = cluster.ledger.described(placement)
        cluster.recording.note(entry.pod, What.SENT, where)
        cluster.actions.append(
            Bind(
                pod=target_of(entry.pod),
                attempt=entry.attempt,
                version=entry.version,
                node=placement.node,
                annotations={**self._assigned(placement, in_line=True), **cluster.ledger.told_of(placement)},
                labels=self._labels(placement),
                where=where,
            )
        )

    def _assigned(self, placement: Placement, *, in_line: bool = False) -> Mapping[str, str]:
        """Return the annotations that assign cards; *in_line*: with the next stamp of the node, which is used up."""
        if placement.dialect is None:
            return {}
        cluster, unix_s = self._cluster, int(self._cluster.wall())
        order = cluster.handoff.order(placement.node, placement.dialect, unix_s) if in_line else 0
        names = container_names(placement.asked_by) if placement.asked_by is not None else ()
        stamp = Stamp(node=placement.node, now_s=unix_s, order=order, containers=names)
        return cluster.ledger.catalog.dialects[placement.dialect].annotations(
            placement.assignment, stamp, cluster.ledger.tables
        )

    def _labels(self, placement: Placement) -> Mapping[str, str]:
        """Return the labels of a Binding."""
        if placement.dialect is None:
            return {}
        return self._cluster.ledger.catalog.dialects[placement.dialect].labels(placement.node)

    def _too_long(self, pod: Pod, placement: Placement) -> Wait | None:
        """Return that *pod*'s annotations are too long, or None; the API server does not check that in a Binding."""
        had = annotations_bytes(pod.annotations)
        if had < _LONG_BYTES:
            return None
        comes_to = annotations_bytes({**pod.annotations, **self._assigned(placement)})
        return room_wait(pod.annotations, had, comes_to)
