"""Permit and Bind: a placed pod waits until its device plugin can mistake no pod in flight for it; then it is bound.

A pod that waits too long goes to another node. Some device plugins need a lock of the node before a Binding
(`nodes.NodeLocks`). Until the outcome of a Binding is known, nothing is decided about its pod.
"""

from collections.abc import Callable, Mapping
from math import inf, isinf
from typing import Final

from controller.actions import Bind, Fence, Lock, ReadPod, target_of
from controller.deciding.cluster import ClusterState
from controller.deciding.lifecycle import AttemptState, Entry, News, PodCondition, Stage
from controller.deciding.pending import FIRST_REST_S, Pending
from controller.deciding.reserve import Reservations
from controller.deciding.score import Wish, step_aside
from controller.handing_over.collision import CollisionKey
from controller.handing_over.handoff import SHORT_S, Impatient
from controller.handing_over.locks import Locks
from core.errors import NodeInvariantError, quoted
from core.history.pods import What
from core.ledger import Placement
from core.model import NodeName, Pod, PodUid, container_names, group_of
from core.placing.decide import Shape
from core.port.handoff import Stamp
from core.waiting import Cause, Wait
from kube.calls import is_newer

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


# ---------------------------------------------------------------------- waiting for a turn


_BUSY: Final = "the device plugin there has served pods that it could mistake for this one"
_FENCED: Final = (
    "new conditions of other waiting pods are stored, so that the API server can no longer execute a Binding that an "
    "earlier leader sent for one of them"
)
_UNSETTLED: Final = (
    "the outcome of another pod's Binding there is known; the device plugin could mistake that pod for this one"
)


def turn_wait(node: NodeName, until: str = _BUSY, cause: Cause = Cause.WAITING_FOR_TURN) -> Wait:
    """Return why a pod with its place on *node* is not bound yet; *until*: what it waits for."""
    return Wait(cause, f"has its place on {node} and waits until {until}")


_LINE_PAUSE_S: Final = 0.25
_SILENCE_PAUSE_S: Final = 1.0
# A pod that waits its turn for longer than this gets the reason in its condition; at once, if its node is closed. The
# reasons are checked again at the interval below.
_TELL_TURN_S: Final = 10.0
_TELL_PAUSE_S: Final = 0.5
_TOLD_AT_ONCE: Final = 256


class PluginGate:
    """Decides when a placed pod may be bound: whether it is sent now, waits in the line of its node, or moves."""

    def __init__(self, cluster: ClusterState, reservations: Reservations, binder: Binder) -> None:
        """Begin without waiting pods."""
        self._cluster: Final = cluster
        self._reservations: Final = reservations
        self._binder: Final = binder
        self._lines_s = 0.0
        self._silence_s = 0.0
        self._told_s = 0.0
        self._to_tell: list[PodUid] = []

    def wish(self, entry: Entry, shape: Shape, keys: CollisionKey) -> Wish:
        """Return what the search needs about *entry*, with the nodes to avoid and those that it may not use."""
        cooldown = self._cluster.handoff.cooldown
        avoided = cooldown.avoided(entry.pod) if cooldown.rows else frozenset[NodeName]()
        return Wish(entry.pod, shape, keys, avoided, self._reservations.barred_to(entry), self._packs(entry.pod))

    def _packs(self, pod: Pod) -> bool:
        """Return whether *pod* waits for a node in use to keep others idle; members of groups do not."""
        return self._cluster.settings.policy.packs and group_of(pod) is None

    # ------------------------------------------------------------------ permit

    def resume(self, entry: Entry) -> None:
        """Continue with a reserved pod after pre-bind: permit it if its node still takes it."""
        if entry.placement is None or entry.shape is None:
            return
        if self._cluster.search.still_fits(entry.shape, entry.placement):
            self.permit(entry, entry.placement, self._cluster.collision_key(entry.shape), self._cluster.clock())
        else:
            self._decide_with_gang(entry)

    def permit(self, entry: Entry, placement: Placement, keys: CollisionKey, now_s: float) -> None:
        """Send the Binding of a reserved pod, or put the pod into the line of its node."""
        if self._cluster.fencing.want() and self._cluster.may_bind and self._cluster.handoff.free(placement.node, keys):
            self._binder.send(entry, placement, keys)
            return
        self._cluster.queue.line_up(entry, now_s)
        self._cluster.handoff.join(entry.pod.uid, placement.node, keys, now_s, entry.turn_s)
        self._cluster.handoff.ask_again(placement.node)
        self._tell(entry.pod.uid, now_s)

    # ------------------------------------------------------------------ in time

    def allow_waiting(self, now_s: float) -> None:
        """Send the pods whose turn has come, and move some that wait too long."""
        for node in self._cluster.handoff.turns():
            # Sending a pod frees no other: once a key is busy, it is busy for all pods with that key.
            open_to = self._cluster.handoff.keys_in_line(node)
            for uid, keys in self._cluster.handoff.line(node):
                if keys not in open_to:
                    continue
                if self._cluster.handoff.busy(node, keys):
                    open_to.discard(keys)
                    if not open_to:
                        break
                elif self._cluster.fencing.want() and self._cluster.may_bind:
                    self._allow(uid, keys)
                else:
                    self._cluster.handoff.ask_again(node)
                    break
        if now_s >= self._lines_s + _LINE_PAUSE_S:
            self._lines_s = now_s
            for one in self._cluster.handoff.impatient(now_s):
                self._try_elsewhere(one, now_s)
            self._tell_some(now_s)

    def _allow(self, uid: PodUid, keys: CollisionKey) -> None:
        entry = self._cluster.queue.get(uid)
        if entry is None or entry.placement is None or entry.shape is None:
            self._cluster.handoff.leave(uid)
        elif self._cluster.search.still_fits(entry.shape, entry.placement):
            self._binder.send(entry, entry.placement, keys)
        else:
            self._decide_with_gang(entry)

    def judge(self, node: NodeName) -> None:
        """Decide again the pods in the line of *node* that it no longer takes, because it has changed."""
        for uid, _ in self._cluster.handoff.line(node):
            entry = self._cluster.queue.get(uid)
            if entry is None or entry.placement is None or entry.placement.node != node or entry.shape is None:
                continue
            if not self._cluster.search.still_fits(entry.shape, entry.placement):
                self._decide_with_gang(entry)

    def _decide_with_gang(self, entry: Entry) -> None:
        """Decide *entry* again, and all unsent members of its gang if too few would start without it."""
        self._reservations.give_up(entry)
        key = group_of(entry.pod)
        if key is None or self._cluster.gangs.is_met(key):
            return
        for uid in self._cluster.groups.members(key):
            other = self._cluster.queue.get(uid)
            if other is not None and other.placement is not None and other.stage in (Stage.PREPARING, Stage.TURN):
                self._reservations.give_up(other)

    def look_for_silence(self, now_s: float) -> None:
        """Report device plugins that do not answer, by events."""
        if now_s >= self._silence_s + _SILENCE_PAUSE_S:
            self._silence_s = now_s
            for one in self._cluster.handoff.silent(now_s):
                self._announce_silence(one.uid, one.node, one.pod, one.waited_s)

    def due_s(self) -> float:
        """Return when to look again if no event comes before, monotonic."""
        lines_s = self._lines_s + _LINE_PAUSE_S if self._cluster.handoff.waiting else inf
        return min(lines_s, self._silence_s + _SILENCE_PAUSE_S if self._cluster.handoff.in_flight else inf)

    def _announce_silence(self, uid: PodUid, node: NodeName, pod: Pod | None, waited_s: float) -> None:
        if self._cluster.queue.get(uid) is not None:
            return  # it is not known to be bound, so the plugin need not have heard of it
        # Users of other namespaces read the events of nodes, so only the pod's own event has its name.
        message = (
            f"see the log of its device plugin, or delete pod uid {uid}: the plugin has not served the pod for "
            f"{waited_s:.0f} s, and no pod that it could mistake for that one is sent there until it answers"
        )
        self._cluster.announce_node(node, "DevicePluginSilent", message)
        if pod is not None:
            message = f"the device plugin of node {node} has not served this pod for {waited_s:.0f} s; see its log"
            self._cluster.announce(pod, "DevicePluginSilent", message)

    # ------------------------------------------------------------------ going elsewhere

    def let_out(self, entry: Entry, now_s: float) -> None:
        """Let a member of a gang leave a long line for an idle node, which a policy that packs would spare."""
        if entry.stage is not Stage.TURN or entry.placement is None or entry.shape is None:
            return
        keys = self._cluster.collision_key(entry.shape)
        left_s = self._cluster.handoff.wait_s(entry.placement.node, keys, now_s)
        if left_s > SHORT_S:
            self._try_elsewhere(Impatient(entry.pod.uid, keys, 0.0, left_s), now_s)

    def _try_elsewhere(self, one: Impatient, now_s: float) -> None:
        """Move a pod that waits too long to the next best node with a shorter line, if any."""
        try:
            self._move(one, now_s)
        except NodeInvariantError as error:
            self._cluster.search.set_aside(error)
            self._decide_anew(one.uid)

    def _move(self, one: Impatient, now_s: float) -> None:
        entry = self._cluster.queue.get(one.uid)
        if entry is None or entry.placement is None or entry.shape is None:
            return
        keys, node = one.keys, entry.placement.node
        self._cluster.handoff.long_lines.add(node, keys, SHORT_S)
        if self._cluster.gangs.is_near_others(entry.pod):
            # The next best node may be in another domain than those of the others.
            self._keep_waiting(entry, keys, node, now_s)
            return
        left_s = one.left_s if self._cluster.handoff.closed_s(node, keys, now_s) <= SHORT_S else inf
        wish = self.wish(entry, entry.shape, keys)._replace(waited_s=one.waited_s, left_s=left_s)
        placement = step_aside(wish, self._cluster.search.candidates, self._cluster.handoff, now_s)
        if placement is None:
            self._keep_waiting(entry, keys, node, now_s)
            return
        self._reservations.release(entry)
        self._reservations.reserve(entry, placement)
        self.permit(entry, placement, keys, now_s)

    def _decide_anew(self, uid: PodUid) -> None:
        """Decide a pod again whose move failed by a contradiction, unless it still has its old place."""
        entry = self._cluster.queue.get(uid)
        if entry is not None and entry.placement is None:
            self._cluster.queue.ready(entry)

    def _keep_waiting(self, entry: Entry, keys: CollisionKey, node: NodeName, now_s: float) -> None:
        """Leave a pod in its line, unless the plugin there does not answer: then it is decided again."""
        if isinf(self._cluster.handoff.wait_s(node, keys, now_s)):
            self._reservations.give_up(entry)

    def _tell_some(self, now_s: float) -> None:
        if not self._to_tell and now_s >= self._told_s + _TELL_PAUSE_S:
            self._to_tell, self._told_s = self._cluster.handoff.in_line(), now_s
        for uid in self._to_tell[-_TOLD_AT_ONCE:]:
            self._tell(uid, now_s)
        del self._to_tell[-_TOLD_AT_ONCE:]

    def _tell(self, uid: PodUid, now_s: float) -> None:
        """Report why a pod waits, if it has waited long or its node is closed."""
        entry, keys = self._cluster.queue.get(uid), self._cluster.handoff.keys_of(uid)
        if entry is None or entry.stage is not Stage.TURN or entry.placement is None or keys is None:
            return
        is_late = entry.turn_s is not None and now_s >= entry.turn_s + _TELL_TURN_S
        if not (is_late or self._cluster.handoff.closes_some):
            return
        node = entry.placement.node
        why = self._cluster.handoff.why_closed(node, keys)
        if not (is_late or why):
            return
        wait = self._wait(entry.pod, node, keys, why)
        if wait != entry.wait:
            self._cluster.hold_up(entry, wait)

    def wait(self, pod: Pod, node: NodeName, keys: CollisionKey, *, in_full: bool = False) -> Wait:
        """Return why *pod*, placed on *node*, is not bound yet; *in_full*: with details for operators."""
        return self._wait(pod, node, keys, self._cluster.handoff.why_closed(node, keys, in_full=in_full))

    def _wait(self, pod: Pod, node: NodeName, keys: CollisionKey, why: str) -> Wait:
        """Return the same; *why*: why *node* is closed for it, "" if it is not."""
        if self._cluster.fencing.is_under_way:
            return turn_wait(node, _FENCED)
        for uid, _ in self._cluster.handoff.flights(node):
            other = self._cluster.queue.get(uid)
            if other is None or other.stage is not Stage.SETTLING or other.shape is None:
                continue
            if self._cluster.handoff.collisions.alike(node, keys, self._cluster.collision_key(other.shape)):
                return turn_wait(node, _UNSETTLED)
        if why:
            return turn_wait(node, f"that node is tried again: {why}", Cause.NODE_RESTS)
        most_s = self._cluster.settings.turn_wait_max_s
        if not (most_s and self._packs(pod)):
            return turn_wait(node)
        text = f"{_BUSY}; until then no idle node or card is opened for it, {most_s:g} s at most (turn_wait_max_s)"
        return turn_wait(node, text)


# ---------------------------------------------------------------------- what became of Bindings


_NOT_SAID: Final = "the API server neither binds this pod nor gives a reason; the pod is retried"


class Outcomes:
    """Takes the outcomes of Bindings, and settles those that are unknown, by the rules of `lifecycle.ATTEMPTS`."""

    def __init__(
        self, cluster: ClusterState, reservations: Reservations, pending: Pending, withdraw: Callable[[Entry], None]
    ) -> None:
        """*withdraw*: takes a pod out of flight, and repairs the lock of its node."""
        self._cluster: Final = cluster
        self._reservations: Final = reservations
        self._pending: Final = pending
        self._withdraw: Final = withdraw

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
                first=entry.condition is None,
            )
        )

    def fenced(self, uid: PodUid, attempt: int, pod: Pod) -> None:
        """Settle an attempt by *pod*, as it is since its condition was written."""
        entry = self._waiting_for(uid, attempt, AttemptState.FENCING)
        if entry is not None:
            self._cluster.set_condition(entry, PodCondition(text=pod.scheduled_message, at_s=self._cluster.clock()))
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
        self._withdraw(entry)
        self._reservations.release(entry)
        self._pending.settled(entry, rest_s=rest_s, wait=wait)
