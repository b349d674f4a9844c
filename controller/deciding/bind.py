"""Bind: the locks of nodes around a Binding, and what became of the Bindings that were sent.

Some device plugins want a lock of the node: it is taken before a Binding, and put right when nobody needs it. What is
to be written to it is the dialect's to say (`Locks`); `act` writes it, and its outcome comes back here. What was sent
and not answered may be written now or later: the rules by which that is settled are `lifecycle.ATTEMPTS`.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import inf
from typing import Final

from controller.actions import Bind, Fence, Lock, ReadPod, target_of
from controller.deciding.cluster import ClusterState
from controller.deciding.lifecycle import Attempts, AttemptState, ClusterEvent, Entry, EventResource, News, Stage, Told
from controller.deciding.pending import FIRST_REST_S, Pending
from controller.deciding.reserve import Reservations
from controller.handing_over.collision import CollisionKey
from controller.handing_over.handoff import HandOff
from core.catalog import Catalog
from core.errors import quoted
from core.explaining import explain
from core.hami_lock import RELEASING
from core.history.pods import What
from core.ledger import Placement
from core.model import Node, NodeName, Pod, PodUid
from core.port.handoff import LockStep, LockWait, NodeLock, Stamp
from core.settings import DialectName, Settings
from core.tables import Tables
from core.waiting import Cause, Wait
from kube.versions import is_newer

# All annotations of an object, keys and values. Source: facts 2.3, measured on kube-apiserver v1.36.
_ANNOTATIONS_MAX_BYTES: Final = 262_144


# Left for what device plugins write to a pod later: marks that are longer than those of the assignment, and times.
_LATER_BYTES: Final = 1024


def annotations_bytes(annotations: Mapping[str, str]) -> int:
    """What the API server counts of *annotations*: keys and values, in UTF-8."""
    return sum(len(key.encode()) + len(value.encode("utf-8", "replace")) for key, value in annotations.items())


def room_wait(annotations: Mapping[str, str], had: int, comes_to: int) -> Wait | None:
    """Why a pod has no room for its assignment; None if it has.

    Args:
        annotations: the pod's.
        had: what they come to, in bytes.
        comes_to: what they come to with the assignment.
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


# Annotations that come to less than this leave room for any assignment.
_LONG_BYTES: Final = 128 * 1024


_EXPIRES_S: Final = 300


class TimeLock:
    """The lock of Volcano's scheduler: a node annotation that holds the time it was taken, and no owner.

    Which one is ours is known by what was written; after a restart it is another's until it expires.
    """

    def __init__(self, key: str) -> None:
        self._key: Final = key
        self._written: dict[NodeName, str] = {}

    def written(self, node: NodeName, step: LockStep) -> None:
        """*step* was written to *node*."""
        if step.value is None:
            self._written.pop(node, None)
        else:
            self._written[node] = step.value

    def lock_owner(self, node: Node) -> str:
        """It names nobody."""
        del node
        return ""

    @property
    def lock_key(self) -> str:
        """See `core.port.handoff.NodeLock`."""
        return self._key

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
        """See `core.port.handoff.NodeLock`; one pod of ours at a time is in flight on a node."""
        del tables, served
        value = node.annotations.get(self._key)
        ours = value is not None and value == self._written.get(node.name)
        other = next((pod for pod in pods if wanted is None or pod.uid != wanted.uid), None)
        is_leaving = ours and bool(releasing)
        if wanted is None:
            return LockStep(key=self._key, value=None) if ours and other is None and not is_leaving else None
        if other is not None:
            return LockWait(reason="the device plugin is serving another pod")
        if is_leaving:
            return RELEASING
        # A time that is ahead of ours locks the node for no longer than from when it was first seen.
        taken_s = 0 if value is None or ours else min(_taken_s(value), now_s if seen_s is None else seen_s)
        if now_s - taken_s < _EXPIRES_S:
            reason = f"annotation {self._key} of the node is held by another scheduler"
            return LockWait(reason=reason, until_s=taken_s + _EXPIRES_S)
        time = datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return LockStep(key=self._key, value=time)


class Locks:
    """The locks that are in use under these settings."""

    def __init__(self, catalog: Catalog, settings: Settings, handoff: HandOff) -> None:
        self._catalog: Final = catalog
        self._handoff: Final = handoff
        self._timed: Final = {one.name: TimeLock(one.time_lock) for one in catalog.specs if one.time_lock}
        self._used: dict[DialectName, NodeLock] = {}
        self.configure(settings)

    def configure(self, settings: Settings) -> None:
        """Use those of *settings* from now on."""
        used: dict[DialectName, NodeLock] = {
            one.name: one.node_lock for one in self._catalog.specs if one.node_lock is not None
        }
        if settings.node_lock:
            used |= self._timed
        self._used = used
        self._handoff.lock_for(frozenset(used))

    def of(self, name: DialectName) -> NodeLock | None:
        """The lock that pods of one dialect need, if any."""
        return self._used.get(name)

    def among(self, offered: Mapping[DialectName, object]) -> dict[DialectName, NodeLock]:
        """The dialects with a lock of those that a node offers."""
        return {name: lock for name, lock in self._used.items() if name in offered}

    def written(self, name: DialectName, node: NodeName, step: LockStep) -> None:
        """*step* was written to *node*."""
        timed = self._timed.get(name)
        if timed is not None:
            timed.written(node, step)


def _taken_s(text: str) -> int:
    """When the lock was taken, Unix seconds; 0 for what is no time, so that it has expired."""
    try:
        time = datetime.fromisoformat(text)
        return int(time.timestamp()) if time.tzinfo is not None else 0
    except (ValueError, OverflowError):
        return 0


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
        """Have a reserved pod's node locked, if that is needed, and its Binding sent."""
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
        if placement.dialect is None or self.locks.of(placement.dialect) is None:
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
        """Have the Binding of a pod sent that is in flight already, with the next stamp of its node."""
        cluster = self._cluster
        if entry.turn_s is not None:
            cluster.metrics.turn_wait_s.observe(cluster.clock() - entry.turn_s)
        cluster.queue.bind(entry)
        cluster.sent.send(entry.pod.uid, entry.version)
        where = explain.placed(cluster.ledger, placement)
        cluster.recording.note(entry.pod, What.SENT, where)
        cluster.actions.append(
            Bind(
                pod=target_of(entry.pod),
                attempt=entry.attempt,
                version=entry.version,
                node=placement.node,
                annotations={**self._assigned(placement, in_line=True), **cluster.ledger.told_of(placement)},
                where=where,
            )
        )

    def _assigned(self, placement: Placement, *, in_line: bool = False) -> Mapping[str, str]:
        """What the Binding says of cards; *in_line*: with the next stamp of its node, which is taken."""
        if placement.dialect is None:
            return {}
        cluster, unix_s = self._cluster, int(self._cluster.wall())
        order = cluster.handoff.order(placement.node, placement.dialect, unix_s) if in_line else 0
        stamp = Stamp(node=placement.node, now_s=unix_s, order=order)
        return cluster.ledger.catalog.dialects[placement.dialect].annotations(
            placement.assignment, stamp, cluster.ledger.tables
        )

    def _too_long(self, pod: Pod, placement: Placement) -> Wait | None:
        """Why *pod* has no room for its assignment, or None; the API server does not look at that in a Binding."""
        had = annotations_bytes(pod.annotations)
        if had < _LONG_BYTES:
            return None
        comes_to = annotations_bytes({**pod.annotations, **self._assigned(placement)})
        return room_wait(pod.annotations, had, comes_to)


_Key = tuple[NodeName, DialectName]

# A lock that goes is told by its node; this is for what nobody tells.
_LOCK_REST_S: Final = 30.0
# Who waits no longer than this need not be told.
_SHORT_S: Final = 2.0
_SAID_SPARE: Final = 64


class NodeLocks:
    """Which nodes are being locked or unlocked, and which pods wait for that."""

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
        # Nodes whose lock is being put right, and whether to look again after that.
        self._tending: Final[dict[_Key, bool]] = {}
        # What each lock says, and since when we have seen it say so, monotonic.
        self._said: Final[dict[_Key, tuple[str, float]]] = {}
        # What was sent and may be written, by lock; all of it names the version of the node that the attempt names.
        self._sent: Final[Attempts[_Key]] = Attempts()
        self._steps: Final[dict[_Key, list[LockStep]]] = {}

    def step(self, action: Lock, node: Node, named: Pod | None) -> LockStep | LockWait | None:
        """What is to be written to the lock of *node*, read just now; *named*: the pod that it names, if it exists.

        A step counts as sent; what became of it is told by `written`, `refused` or `lost`.
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
        """*node* is in another version than what was sent to its lock names: one of that was written, or nothing."""
        if self._sent.state(key) is not AttemptState.UNKNOWN:
            return
        lock, steps = self._binder.locks.of(key[1]), self._steps.pop(key)
        says = node.annotations.get(lock.lock_key) if lock is not None else None
        ours = next((step for step in steps if step.value == says), None)
        self._sent.hear(key, News.FOUND if ours is not None else News.PASSED)
        if ours is not None:
            self._binder.locks.written(key[1], node.name, ours)

    def owner_of(self, action: Lock, node: Node) -> str:
        """namespace/name of the pod that the lock of *node* names, or ""."""
        lock = self._binder.locks.of(action.dialect)
        return lock.lock_owner(node) if lock is not None else ""

    def written(self, action: Lock, step: LockStep) -> None:
        """*step* was written to the node, and nothing that was sent before it can be any more."""
        key = action.node, action.dialect
        self._sent.hear(key, News.ACCEPTED if self._sent.state(key) is AttemptState.SENT else News.PASSED)
        self._steps.pop(key, None)
        self._binder.locks.written(action.dialect, action.node, step)

    def refused(self, action: Lock) -> None:
        """The step that was sent last was certainly not written."""
        key = action.node, action.dialect
        self._steps[key].pop()
        if (
            self._sent.hear(key, News.REFUSED if self._sent.state(key) is AttemptState.SENT else News.LOST)
            is AttemptState.DEAD
        ):
            del self._steps[key]

    def lost(self, action: Lock) -> None:
        """The step that was sent last was perhaps written."""
        self._sent.hear((action.node, action.dialect), News.LOST)
        # The node may have been seen to change before the answer was lost.
        self.tend(action.node)

    def gone(self, name: NodeName) -> None:
        """A node is deleted, and its locks with it."""
        for key in [key for key in self._steps if key[0] == name and self._sent.state(key) is AttemptState.UNKNOWN]:
            self._sent.close(key)
            del self._steps[key]

    def locked(self, action: Lock) -> None:
        """The node is locked for the pod, or its lock is as it should be."""
        if action.pod is None:
            if self._tending.pop((action.node, action.dialect), False):
                self.tend(action.node)
            return
        entry = self._locking(action)
        if entry is None or entry.placement is None:
            self.tend(action.node)
        elif entry.newest is not None or not self._pending.is_ours(entry.pod) or not self._stands(entry, action):
            # A Binding would name a version that is past, or cards that have changed, or is not ours to send any more.
            self.withdraw(entry)
            self._reservations.take_back(entry)
            self._pending.settled(entry)
        else:
            self._binder.bind(entry, entry.placement)

    def _stands(self, entry: Entry, action: Lock) -> bool:
        """Whether the node, which may have changed while it was locked, takes the pod still.

        What others were promised there meanwhile is no reason to choose other cards, again and again.
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
        """The node is locked for another, or cannot be locked: the pod is judged again when that changes."""
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
        lock = self._binder.locks.of(name)
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
        return lock.lock(
            node, list(pods.values()), now_s, tables, wanted, seen_s=seen_s, served=served, releasing=releasing
        )

    def _seen_for_s(self, name: DialectName, node: NodeName, text: str | None) -> int:
        """For how long, by our own clock, the lock of *node* was seen to say *text*."""
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
        """Have the locks of a node put right, if anything is wrong with them."""
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
        """When the next plugin must have given up dropping its lock, monotonic."""
        return self._cluster.handoff.releases.next_s()

    def look(self, now_s: float) -> None:
        """Drop what locks plugins have left behind."""
        for node in self._cluster.handoff.gave_up(now_s):
            self.tend(node)
            self.let_in(node)

    def let_in(self, name: NodeName) -> None:
        """A node's lock may have changed: whoever waits for it is judged again."""
        waiting = self._cluster.requeue.happened(ClusterEvent(EventResource.LOCK, name))
        if not waiting:
            return
        self._cluster.handoff.crowds.forget(name)
        for uid in waiting:
            entry = self._cluster.queue.get(uid)
            if entry is not None and entry.stage is Stage.RESTING:
                self._cluster.queue.ready(entry)

    def withdraw(self, entry: Entry) -> None:
        """The pod's Binding was certainly not written: neither its plugin nor a lock is to wait for it."""
        node = entry.placement.node if entry.placement is not None else None
        self._cluster.handoff.withdraw(entry.pod.uid, self._cluster.clock())
        if node is not None:
            self.tend(node)


_NOT_SAID: Final = "the API server neither binds this pod nor gives a reason; the pod is retried"


class Outcomes:
    """Settles Bindings."""

    def __init__(self, cluster: ClusterState, reservations: Reservations, pending: Pending, locks: NodeLocks) -> None:
        self._cluster: Final = cluster
        self._reservations: Final = reservations
        self._pending: Final = pending
        self._locks: Final = locks
        self._queue: Final = cluster.queue
        self._sent: Final = cluster.sent

    # ------------------------------------------------------------------ answers

    def bound(self, uid: PodUid, attempt: int) -> None:
        """The Binding was written."""
        entry = self._waiting_for(uid, attempt, AttemptState.SENT)
        if entry is not None:
            self._sent.hear(uid, News.ACCEPTED)
            self._queue.written(entry)

    def refused(self, uid: PodUid, attempt: int, *, rest_s: float = 0.0, wait: Wait | None = None) -> None:
        """The Binding was certainly not written, and nothing else is wrong with the pod.

        Args:
            uid: the pod.
            attempt: which of its Bindings.
            rest_s: for how long to leave it alone, at least.
            wait: what to tell the user, if trying again will not help.
        """
        entry = self._waiting_for(uid, attempt, AttemptState.SENT)
        if entry is not None:
            self._queue.failed(entry)
            self._sent.hear(uid, News.REFUSED)
            self._release(entry, rest_s=rest_s, wait=wait)
        self._let_vanish(uid)

    def contradicted(self, uid: PodUid, attempt: int) -> None:
        """The API server says that the pod is not as it was thought to be: perhaps a Binding of ours is why."""
        entry = self._waiting_for(uid, attempt, AttemptState.SENT)
        if entry is not None:
            self._doubt(entry, None, delay_s=0.0)
        self._let_vanish(uid)

    def _let_vanish(self, uid: PodUid) -> None:
        """The Binding was not written, and the pod may have gone meanwhile: then kubelet never heard of it."""
        if self._queue.get(uid) is None:
            self._cluster.handoff.withdraw(uid, self._cluster.clock())

    def lost(self, uid: PodUid, attempt: int, error: str) -> None:
        """The Binding was perhaps written: everything stays reserved until that is known."""
        entry = self._waiting_for(uid, attempt, AttemptState.SENT)
        if entry is not None and entry.placement is not None:
            text = f"it is not known whether the API server has bound this pod to {entry.placement.node}: {error}"
            self._doubt(entry, Wait(Cause.SCHEDULER_ERROR, text), delay_s=FIRST_REST_S)

    def _doubt(self, entry: Entry, wait: Wait | None, *, delay_s: float) -> None:
        self._queue.failed(entry)
        self._sent.hear(entry.pod.uid, News.LOST)
        self._queue.doubt(entry, wait)
        if entry.newest is None or not self._has_passed(entry, entry.newest):
            self._read(entry, delay_s)

    def _read(self, entry: Entry, delay_s: float) -> None:
        delay_s = max(delay_s, self._pending.rest_s(entry))
        self._cluster.actions.append(ReadPod(pod=target_of(entry.pod), attempt=entry.attempt, delay_s=delay_s))

    def mistrust(self, entry: Entry) -> None:
        """We are wrong about a pod: it is read, and what was sent for it is over when that is settled."""
        self._queue.mistrust(entry)
        if self._sent.state(entry.pod.uid) is AttemptState.SENT:
            self._sent.hear(entry.pod.uid, News.LOST)
        self._read(entry, FIRST_REST_S)

    def _waiting_for(self, uid: PodUid, attempt: int, *states: AttemptState) -> Entry | None:
        """The entry that waits for this answer; None if it was settled otherwise, or the pod is gone."""
        entry = self._queue.get(uid)
        if entry is None or entry.attempt != attempt or self._sent.state(uid) not in states:
            return None
        return entry

    # ------------------------------------------------------------------ what the pod is

    def seen(self, entry: Entry, pod: Pod) -> None:
        """The mirror shows, on no node, a pod of which something was sent: that counts once the outcome is known."""
        self._queue.note(entry, pod)
        if entry.stage is Stage.SETTLING:
            self._has_passed(entry, pod)

    def _has_passed(self, entry: Entry, pod: Pod) -> bool:
        """Whether *pod*, on no node, shows that what was sent is over; then it is released."""
        uid = pod.uid
        if self._sent.state(uid) is None or not is_newer(pod.resource_version, self._sent.version(uid)):
            return False
        self._sent.hear(uid, News.PASSED)
        self._release(entry)
        return True

    def read(self, uid: PodUid, attempt: int, pod: Pod) -> None:
        """What the pod is now, on no node, read from the API server itself after the answer was lost."""
        entry = self._queue.get(uid)
        if entry is None or entry.stage is not Stage.SETTLING or entry.attempt != attempt:
            return  # the mirror has settled it meanwhile
        state = self._sent.state(uid)
        self._queue.note(entry, pod)
        if state is None:
            self._release(entry)
        elif pod.resource_version != self._sent.version(uid):
            self._sent.hear(uid, News.PASSED)
            self._release(entry)
        elif state is AttemptState.UNKNOWN:
            self._sent.hear(uid, News.READ_OPEN)
            self._fence(entry, pod)
        else:
            self._unfenced(entry)  # the fence changed nothing

    def read_again(self, uid: PodUid, attempt: int) -> None:
        """What was read is older than what is known."""
        entry = self._queue.get(uid)
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
        """The pod's condition was written; this is the pod since then."""
        entry = self._waiting_for(uid, attempt, AttemptState.FENCING)
        if entry is not None:
            self._cluster.tell(entry, Told(text=pod.scheduled_message, at_s=self._cluster.clock()))
            self.read(uid, attempt, pod)

    def not_fenced(self, uid: PodUid, attempt: int) -> None:
        """The condition was not written, or perhaps not: the pod is read again."""
        entry = self._waiting_for(uid, attempt, AttemptState.FENCING)
        if entry is not None:
            self._unfenced(entry)

    def _unfenced(self, entry: Entry) -> None:
        self._queue.failed(entry)
        self._sent.hear(entry.pod.uid, News.LOST)
        self._read(entry, FIRST_REST_S)

    def _release(self, entry: Entry, *, rest_s: float = 0.0, wait: Wait | None = None) -> None:
        """Free what was promised for an attempt that is dead, and go on with the pod as it is now."""
        self._locks.withdraw(entry)
        self._reservations.take_back(entry)
        self._pending.settled(entry, rest_s=rest_s, wait=wait)
