"""Bind: the locks of nodes around a Binding, and the outcomes of Bindings that were sent.

Some device plugins need a lock of the node. It is taken before a Binding, and removed once no pod needs it.
`controller.handing_over.locks` has what to write to it, `act` writes it, and the outcome comes back here. A write
without an answer may take effect now or later; `lifecycle.ATTEMPTS` has the rules that settle it.
"""

from collections.abc import Mapping
from math import inf
from typing import Final

from controller.actions import Bind, Fence, Lock, ReadPod, target_of
from controller.deciding.cluster import ClusterState
from controller.deciding.lifecycle import Attempts, AttemptState, ClusterEvent, Entry, EventResource, News, Stage, Told
from controller.deciding.pending import FIRST_REST_S, Pending
from controller.deciding.reserve import Reservations
from controller.handing_over.collision import CollisionKey
from controller.handing_over.locks import Locks
from core.errors import quoted
from core.history.pods import What
from core.ledger import Placement
from core.model import Node, NodeName, Pod, PodUid, container_names
from core.port.handoff import LockQuestion, LockStep, LockWait, Stamp
from core.settings import DialectName
from core.waiting import Cause, Wait
from kube.objects import is_newer

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
            self._reservations.take_back(entry)
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


_Key = tuple[NodeName, DialectName]

# The watch of nodes shows when a lock is removed; pods are tried again after this in case it does not.
_LOCK_REST_S: Final = 30.0
# Shorter waits are not reported to users.
_SHORT_S: Final = 2.0
_SAID_SPARE: Final = 64


class NodeLocks:
    """The locks of nodes that are being taken or repaired, and the pods that wait for a lock."""

    def __init__(
        self,
        cluster: ClusterState,
        reservations: Reservations,
        pending: Pending,
        binder: Binder,
    ) -> None:
        """Begin with none."""
        self._cluster: Final = cluster
        self._reservations: Final = reservations
        self._pending: Final = pending
        self._binder: Final = binder
        # Locks that are being repaired, and whether to check again after that.
        self._tending: Final[dict[_Key, bool]] = {}
        # The value of each lock, and when this process first saw it, monotonic.
        self._said: Final[dict[_Key, tuple[str, float]]] = {}
        # Writes with an unknown outcome, by lock; all of them name the node version of the attempt.
        self._sent: Final[Attempts[_Key]] = Attempts()
        self._steps: Final[dict[_Key, list[LockStep]]] = {}

    def step(self, action: Lock, node: Node, named: Pod | None) -> LockStep | LockWait | None:
        """Return what to write to the lock of *node*, which was just read; *named*: the pod that the lock names.

        A returned step counts as sent; `written`, `refused` or `lost` must report its outcome.
        """
        entry = self._locking(action)
        if action.pod is not None and entry is None:
            return LockWait(reason="")
        key = node.name, action.dialect
        if node.resource_version != self._sent.version(key):
            self._settle(key, node)
        found = self._step(action.dialect, node, entry.pod if entry is not None else None, named)
        if isinstance(found, LockStep):
            self._send(key, node.resource_version, found)
        return found

    def _send(self, key: _Key, version: str, step: LockStep) -> None:
        if self._sent.state(key) is None:
            self._sent.send(key, version)
        else:  # of the same version, so that this write is the fence of those before it
            self._sent.hear(key, News.READ_OPEN)
        self._steps.setdefault(key, []).append(step)

    def _settle(self, key: _Key, node: Node) -> None:
        """Settle the writes to a lock, now that *node* has another version than they name: at most one took effect."""
        if self._sent.state(key) is not AttemptState.UNKNOWN:
            return
        lock, steps = self._binder.locks.used.get(key[1]), self._steps.pop(key)
        says = node.annotations.get(lock.lock_key) if lock is not None else None
        ours = next((step for step in steps if step.value == says), None)
        self._sent.hear(key, News.FOUND if ours is not None else News.PASSED)
        if ours is not None:
            self._binder.locks.written(key[1], node.name, ours)

    def owner_of(self, action: Lock, node: Node) -> str:
        """Return namespace/name of the pod that the lock of *node* names, or ""."""
        lock = self._binder.locks.used.get(action.dialect)
        return lock.lock_owner(node) if lock is not None else ""

    def written(self, action: Lock, step: LockStep) -> None:
        """Record that *step* was written to the node, so that no earlier step can be written any more."""
        key = action.node, action.dialect
        self._sent.hear(key, News.ACCEPTED if self._sent.state(key) is AttemptState.SENT else News.PASSED)
        self._steps.pop(key, None)
        self._binder.locks.written(action.dialect, action.node, step)

    def refused(self, action: Lock) -> None:
        """Record that the last step was certainly not written."""
        key = action.node, action.dialect
        self._steps[key].pop()
        if (
            self._sent.hear(key, News.REFUSED if self._sent.state(key) is AttemptState.SENT else News.LOST)
            is AttemptState.DEAD
        ):
            del self._steps[key]

    def lost(self, action: Lock) -> None:
        """Record that the last step may have been written."""
        self._sent.hear((action.node, action.dialect), News.LOST)
        # The node may have been seen to change before the answer was lost.
        self.tend(action.node)

    def gone(self, name: NodeName) -> None:
        """A node is deleted, and its locks with it."""
        for key in [key for key in self._steps if key[0] == name and self._sent.state(key) is AttemptState.UNKNOWN]:
            self._sent.close(key)
            del self._steps[key]

    def locked(self, action: Lock) -> None:
        """Send the pod's Binding, now that its node is locked; or end the repair of a lock."""
        if action.pod is None:
            if self._tending.pop((action.node, action.dialect), False):
                self.tend(action.node)
            return
        entry = self._locking(action)
        if entry is None or entry.placement is None:
            self.tend(action.node)
        elif entry.newest is not None or not self._pending.is_ours(entry.pod) or not self._stands(entry, action):
            # The pod or its cards have changed, or another scheduler places it now.
            self.withdraw(entry)
            self._reservations.take_back(entry)
            self._pending.settled(entry)
        else:
            self._binder.bind(entry, entry.placement)

    def _stands(self, entry: Entry, action: Lock) -> bool:
        """Return whether the node, which may have changed while it was being locked, still takes the pod.

        Promises to other pods in the meantime do not count, or the pod might change its cards endlessly.
        """
        ledger, placement, shape = self._cluster.ledger, entry.placement, entry.shape
        state = ledger.states.get(action.node)
        if state is None or placement is None or shape is None:
            return False
        is_same = state.facts is action.facts and ledger.offered(action.node) is action.offers
        if is_same and action.dialect not in state.closed:
            return True
        return self._cluster.search.still_fits(shape, placement)

    def not_locked(self, action: Lock, reason: str, rest_s: float = _LOCK_REST_S) -> None:
        """Let the pod wait until its node's lock changes, because the node cannot be locked now."""
        if action.pod is None:
            self._tending.pop((action.node, action.dialect), None)
            return
        entry = self._locking(action)
        if entry is None or entry.shape is None:
            self.tend(action.node)
            return
        self.withdraw(entry)
        self._reservations.take_back(entry)
        self._cluster.handoff.crowds.add(action.node, self._cluster.collision_key(entry.shape), inf)
        wait = Wait(Cause.NODE_LOCKED, f"has its place on {action.node} and waits: {reason}")
        self._pending.settled(
            entry, rest_s=min(max(rest_s, FIRST_REST_S), _LOCK_REST_S), wait=wait, tell=rest_s > _SHORT_S
        )
        if entry.stage is Stage.RESTING:
            self._cluster.requeue.wait_for(entry.pod.uid, ClusterEvent(EventResource.LOCK, action.node))

    def _locking(self, action: Lock) -> Entry | None:
        entry = self._cluster.queue.get(action.pod.uid) if action.pod is not None else None
        if entry is None or entry.attempt != action.attempt or entry.stage is not Stage.LOCKING:
            return None
        return entry

    def _step(self, name: DialectName, node: Node, wanted: Pod | None, named: Pod | None) -> LockStep | LockWait | None:
        lock = self._binder.locks.used.get(name)
        if lock is None:
            return None
        pods: dict[PodUid, Pod] = {}
        for uid, seen in self._cluster.handoff.flights(node.name):
            entry = self._cluster.queue.get(uid)
            pod = seen if seen is not None else entry.pod if entry is not None else None
            if pod is not None:
                pods[uid] = pod
        if named is not None and (
            named.node_name == node.name or not (named.node_name or self._pending.is_ours(named))
        ):
            pods.setdefault(named.uid, named)
        on_node = self._cluster.ledger.holders(node.name) if wanted is not None else ()
        carded = self._cluster.carded
        served = [carded[uid] for uid in on_node if uid in carded and uid not in pods]
        now_s, tables = int(self._cluster.wall()), self._cluster.ledger.tables
        seen_s = now_s - self._seen_for_s(name, node.name, node.annotations.get(lock.lock_key))
        releasing = self._cluster.handoff.releases.pods(node.name)
        asked = LockQuestion(list(pods.values()), now_s, tables, wanted, seen_s, served, releasing)
        return lock.lock(node, asked)

    def _seen_for_s(self, name: DialectName, node: NodeName, text: str | None) -> int:
        """Return for how long this process has seen the lock of *node* with value *text*, in seconds."""
        key = (node, name)
        if text is None:
            self._said.pop(key, None)
            return 0
        if len(self._said) > 2 * len(self._cluster.ledger.states) + _SAID_SPARE:
            for gone in [one for one in self._said if one[0] not in self._cluster.ledger.states]:
                del self._said[gone]
        said, since_s = self._said.get(key, ("", 0.0))
        if said != text:
            since_s = self._cluster.clock()
            self._said[key] = (text, since_s)
        return int(self._cluster.clock() - since_s)

    def tend(self, name: NodeName) -> None:
        """Request the repair of a node's locks, if any is wrong."""
        state, node = self._cluster.ledger.states.get(name), self._cluster.ledger.node(name)
        if state is None or node is None:
            return
        for dialect, lock in self._binder.locks.among(state.offers).items():
            if lock.lock_key not in node.annotations:
                self._cluster.handoff.unlocked(name, dialect)
            if is_newer(node.resource_version, self._sent.version((name, dialect))):
                self._settle((name, dialect), node)
            if (name, dialect) in self._tending:
                self._tending[name, dialect] = True
            elif isinstance(self._step(dialect, node, None, None), LockStep):
                self._tending[name, dialect] = False
                self._cluster.actions.append(Lock(node=name, dialect=dialect))

    def next_s(self) -> float:
        """Return when the next plugin must have given up removing its lock, monotonic."""
        return self._cluster.handoff.releases.next_s()

    def look(self, now_s: float) -> None:
        """Remove locks that plugins have left behind."""
        for node in self._cluster.handoff.gave_up(now_s):
            self.tend(node)
            self.let_in(node)

    def let_in(self, name: NodeName) -> None:
        """Queue the pods that wait for a lock of the node, which may have changed."""
        waiting = self._cluster.requeue.happened(ClusterEvent(EventResource.LOCK, name))
        if not waiting:
            return
        self._cluster.handoff.crowds.forget(name)
        for uid in waiting:
            entry = self._cluster.queue.get(uid)
            if entry is not None and entry.stage is Stage.RESTING:
                self._cluster.queue.ready(entry)

    def withdraw(self, entry: Entry) -> None:
        """Take the pod out of flight, because its Binding was certainly not written, and repair its node's lock."""
        node = entry.placement.node if entry.placement is not None else None
        self._cluster.handoff.withdraw(entry.pod.uid, self._cluster.clock())
        if node is not None:
            self.tend(node)


_NOT_SAID: Final = "the API server neither binds this pod nor gives a reason; the pod is retried"


class Outcomes:
    """Takes the outcomes of Bindings, and settles those that are unknown."""

    def __init__(self, cluster: ClusterState, reservations: Reservations, pending: Pending, locks: NodeLocks) -> None:
        self._cluster: Final = cluster
        self._reservations: Final = reservations
        self._pending: Final = pending
        self._locks: Final = locks

    # ------------------------------------------------------------------ answers

    def bound(self, uid: PodUid, attempt: int) -> None:
        """The Binding was written."""
        entry = self._waiting_for(uid, attempt, AttemptState.SENT)
        if entry is not None:
            self._cluster.sent.hear(uid, News.ACCEPTED)
            self._cluster.queue.written(entry)

    def refused(self, uid: PodUid, attempt: int, *, rest_s: float = 0.0, wait: Wait | None = None) -> None:
        """Release the pod and queue it again, because its Binding was certainly not written.

        Args:
            uid: the pod.
            attempt: the number of the Binding.
            rest_s: the minimum back-off.
            wait: what to report to the user, if a retry will not help.
        """
        entry = self._waiting_for(uid, attempt, AttemptState.SENT)
        if entry is not None:
            self._cluster.queue.failed(entry)
            self._cluster.sent.hear(uid, News.REFUSED)
            self._release(entry, rest_s=rest_s, wait=wait)
        self._let_vanish(uid)

    def contradicted(self, uid: PodUid, attempt: int) -> None:
        """Read the pod, because a 404 or 409 shows that it has changed, perhaps by an earlier Binding of its own."""
        entry = self._waiting_for(uid, attempt, AttemptState.SENT)
        if entry is not None:
            self._doubt(entry, None, delay_s=0.0)
        self._let_vanish(uid)

    def _let_vanish(self, uid: PodUid) -> None:
        """Take the pod out of flight if it is gone: without a Binding, kubelet never heard of it."""
        if self._cluster.queue.get(uid) is None:
            self._cluster.handoff.withdraw(uid, self._cluster.clock())

    def lost(self, uid: PodUid, attempt: int, error: str) -> None:
        """Keep everything reserved, because the Binding may have been written, and read the pod."""
        entry = self._waiting_for(uid, attempt, AttemptState.SENT)
        if entry is not None and entry.placement is not None:
            text = f"it is not known whether the API server has bound this pod to {entry.placement.node}: {error}"
            self._doubt(entry, Wait(Cause.SCHEDULER_ERROR, text), delay_s=FIRST_REST_S)

    def _doubt(self, entry: Entry, wait: Wait | None, *, delay_s: float) -> None:
        self._cluster.queue.failed(entry)
        self._cluster.sent.hear(entry.pod.uid, News.LOST)
        self._cluster.queue.doubt(entry, wait)
        if entry.newest is None or not self._release_if_passed(entry, entry.newest):
            self._read(entry, delay_s)

    def _read(self, entry: Entry, delay_s: float) -> None:
        delay_s = max(delay_s, self._pending.rest_s(entry))
        self._cluster.actions.append(ReadPod(pod=target_of(entry.pod), attempt=entry.attempt, delay_s=delay_s))

    def mistrust(self, entry: Entry) -> None:
        """Read a pod whose recorded state is wrong; a Binding that was sent for it counts as unknown."""
        self._cluster.queue.mistrust(entry)
        if self._cluster.sent.state(entry.pod.uid) is AttemptState.SENT:
            self._cluster.sent.hear(entry.pod.uid, News.LOST)
        self._read(entry, FIRST_REST_S)

    def _waiting_for(self, uid: PodUid, attempt: int, *states: AttemptState) -> Entry | None:
        """Return the entry that waits for this answer; None if it is settled already, or the pod is gone."""
        entry = self._cluster.queue.get(uid)
        if entry is None or entry.attempt != attempt or self._cluster.sent.state(uid) not in states:
            return None
        return entry

    # ------------------------------------------------------------------ what watches and reads show

    def seen(self, entry: Entry, pod: Pod) -> None:
        """Note a pod without a node whose Binding is unsettled; it counts once the outcome is known."""
        self._cluster.queue.note(entry, pod)
        if entry.stage is Stage.SETTLING:
            self._release_if_passed(entry, pod)

    def _release_if_passed(self, entry: Entry, pod: Pod) -> bool:
        """Release the pod if *pod*, on no node, shows that its Binding can no longer be written; return whether."""
        uid = pod.uid
        if self._cluster.sent.state(uid) is None or not is_newer(pod.resource_version, self._cluster.sent.version(uid)):
            return False
        self._cluster.sent.hear(uid, News.PASSED)
        self._release(entry)
        return True

    def read(self, uid: PodUid, attempt: int, pod: Pod) -> None:
        """Settle an attempt by *pod*, without a node, as the API server returned it after the answer was lost."""
        entry = self._cluster.queue.get(uid)
        if entry is None or entry.stage is not Stage.SETTLING or entry.attempt != attempt:
            return  # the mirror has settled it meanwhile
        state = self._cluster.sent.state(uid)
        self._cluster.queue.note(entry, pod)
        if state is None:
            self._release(entry)
        elif pod.resource_version != self._cluster.sent.version(uid):
            self._cluster.sent.hear(uid, News.PASSED)
            self._release(entry)
        elif state is AttemptState.UNKNOWN:
            self._cluster.sent.hear(uid, News.READ_OPEN)
            self._fence(entry, pod)
        else:
            self._unfenced(entry)  # the fence changed nothing

    def read_again(self, uid: PodUid, attempt: int) -> None:
        """Read the pod again, because the last read was older than what is known."""
        entry = self._cluster.queue.get(uid)
        if entry is not None and entry.stage is Stage.SETTLING and entry.attempt == attempt:
            self._read(entry, FIRST_REST_S)

    def _fence(self, entry: Entry, pod: Pod) -> None:
        wait = entry.wait or Wait(Cause.SCHEDULER_ERROR, _NOT_SAID)
        self._cluster.actions.append(
            Fence(
                pod=target_of(pod),
                attempt=entry.attempt,
                version=pod.resource_version,
                wait=wait,
                first=entry.told is None,
            )
        )

    def fenced(self, uid: PodUid, attempt: int, pod: Pod) -> None:
        """Settle an attempt by *pod*, as it is since its condition was written."""
        entry = self._waiting_for(uid, attempt, AttemptState.FENCING)
        if entry is not None:
            self._cluster.tell(entry, Told(text=pod.scheduled_message, at_s=self._cluster.clock()))
            self.read(uid, attempt, pod)

    def not_fenced(self, uid: PodUid, attempt: int) -> None:
        """Read the pod again, because its condition may not have been written."""
        entry = self._waiting_for(uid, attempt, AttemptState.FENCING)
        if entry is not None:
            self._unfenced(entry)

    def _unfenced(self, entry: Entry) -> None:
        self._cluster.queue.failed(entry)
        self._cluster.sent.hear(entry.pod.uid, News.LOST)
        self._read(entry, FIRST_REST_S)

    def _release(self, entry: Entry, *, rest_s: float = 0.0, wait: Wait | None = None) -> None:
        """Release what a dead attempt had reserved, and continue with the pod as it is now."""
        self._locks.withdraw(entry)
        self._reservations.take_back(entry)
        self._pending.settled(entry, rest_s=rest_s, wait=wait)
