"""Pods without a node: whether this controller decides them, what they request, and their stage in the queue.

Volcano's PodGroup controller gives a pod its group, by an annotation of the pod's owner (groups 3). If it is late, the
owner is read here, so that none of these pods is placed alone. An answer is valid for `FRESH_S`.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Set
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from controller.actions import Action, ReadOwner
from controller.deciding.cluster import ClusterState
from controller.deciding.lifecycle import Entry, PodCondition, Stage, storage_event
from controller.deciding.reserve import Reservations
from core import names
from core.errors import quoted
from core.groups import MIN_MEMBER
from core.model import MEMBER_OF, GroupKey, GroupKind, NodeName, Pod, PodUid, group_of
from core.placing.decide import shape_of
from core.units import parse_int64
from core.waiting import Cause, Wait, is_ours
from kube.calls import OWNERS

# The position of the last fields of a pod: its version and its annotations.
_NOTES: Final = Pod._fields.index("resource_version")
_held: Final = attrgetter(
    "node_name", "finished", "deleting", "init_done", "labels", "containers", "init_containers", "resources"
)
_asked: Final = attrgetter(
    *("annotations", "labels", "containers", "init_containers", "constraints", "peers", "volumes", "unjudged"),
    *("overhead", "resources", "priority", "preempts", "scheduler_name", "gated"),
)


def holds_the_same(known: Pod, pod: Pod, marks: Set[str]) -> bool:
    """Return whether a bound pod holds the same: its node, and all that dialects read; *marks* do not count."""
    return _held(known) == _held(pod) and _only_marks(known, pod, marks)


def is_served(known: Pod, pod: Pod, marks: Set[str]) -> bool:
    """Return whether only *marks* changed, which device plugins write; most changes of bound pods are of this kind."""
    return known[:_NOTES] == pod[:_NOTES] and _only_marks(known, pod, marks)


def _only_marks(known: Pod, pod: Pod, marks: Set[str]) -> bool:
    return {key for key, _ in known.annotations.items() ^ pod.annotations.items()} <= marks


def asks_the_same(known: Pod, pod: Pod) -> bool:
    """Return whether a pending pod still requests the same."""
    return _asked(known) == _asked(pod)


# ---------------------------------------------------------------------- pods without a group, and their owners


FRESH_S: Final = 30.0
# A read without an answer is repeated after this long.
ASKED_AGAIN_S: Final = 10.0
_KNOWN_MAX: Final = 1024


@dataclass(slots=True)
class _Known:
    """asked_s: when the owner was last read, monotonic. members: the answer, None before the first."""

    asked_s: float
    members: int | None = None


class GroupOwners:
    """How many pods each owner, by namespace and kind/name, wants placed together."""

    def __init__(self, actions: deque[Action], clock: Callable[[], float]) -> None:
        """Begin with nothing; *actions*: receives the requests for reads."""
        self._actions: Final = actions
        self._clock: Final = clock
        self._known: Final[dict[tuple[str, str], _Known]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def members(self, pod: Pod) -> int | None:
        """Return how many pods the owner of *pod* wants placed together; 0 if it names none, None while it is read."""
        if pod.owner.partition("/")[0] not in OWNERS:
            return 0
        now_s, key = self._clock(), (pod.namespace, pod.owner)
        known = self._known.get(key)
        age_s = now_s - known.asked_s if known is not None else FRESH_S
        if known is None or age_s >= (ASKED_AGAIN_S if known.members is None else FRESH_S):
            self._forget(now_s)
            known = self._known[key] = _Known(now_s)
            self._actions.append(ReadOwner(namespace=pod.namespace, owner=pod.owner))
        return known.members

    def answered(self, namespace: str, owner: str, members: int) -> None:
        """Record that an owner wants *members* pods placed together."""
        known = self._known.get((namespace, owner))
        if known is not None:
            known.members = members

    def _forget(self, now_s: float) -> None:
        if len(self._known) >= _KNOWN_MAX:
            for key in [key for key, known in self._known.items() if now_s - known.asked_s >= FRESH_S]:
                del self._known[key]


def _asks_for_several(pod: Pod) -> Wait | None:
    """Return why *pod*, which names no group but requests several pods together, is not placed; None otherwise."""
    text = pod.annotations.get(MIN_MEMBER)
    count = parse_int64(text) if text is not None else None
    return nameless(count) if count is not None and count > 1 else None


def nameless(count: int, owner: str = "") -> Wait:
    """Return why a pod without a group waits while it or its *owner* requests *count* pods together."""
    whose = f"annotation {MIN_MEMBER} of its owner {quoted(owner, 300)}" if owner else f"its annotation {MIN_MEMBER}"
    text = (
        f"waits because {whose} asks for {count} pods together, but it names no group; wait "
        f"until Volcano's PodGroup controller names one, or set annotation {MEMBER_OF} on all pods of the group"
    )
    return Wait(Cause.WAITING_FOR_GROUP, text)


# ---------------------------------------------------------------------- pods on no node


FIRST_REST_S: Final = 0.25
_LAST_REST_S: Final = 60.0
# Fewer failures in a row are not reported, because a retry usually succeeds before a condition is written.
_FAILURES_QUIET: Final = 4
RETRIED: Final = Wait(Cause.RETRIED, "is retried with growing delays, because the last write failed")
# How long after its creation a pod may be given a group: Volcano names some thousand pods in that time.
GROUP_GIVEN_S: Final = 30.0
_AWAITS_GROUP: Final = Wait(
    Cause.WAITING_FOR_GROUP,
    "waits until Volcano's PodGroup controller names its group; it is placed alone if that does not happen within "
    f"{GROUP_GIVEN_S:.0f} s of its creation and its owner does not ask for several pods together",
)
# The interval at which pods check for an owner's answer.
_ANSWER_S: Final = 1.0
# Stages in which a pod can simply be read again: nothing is sent or reserved for it.
_MAY_BE_READ: Final = (Stage.READY, Stage.REFUSED, Stage.HELD)


class Pending:
    """Moves pods to their stage: ready, held (for the user or a group), or backing off after a failure."""

    def __init__(self, cluster: ClusterState, reservations: Reservations) -> None:
        self._cluster: Final = cluster
        self._reservations: Final = reservations
        self.owners: Final = GroupOwners(cluster.actions, cluster.clock)
        # Pods that may still be given a group, and since when that is known, monotonic.
        self._awaiting: Final[dict[PodUid, float]] = {}
        # Pending pods of other schedulers: the configuration may add their scheduler's name.
        self._strangers: Final[dict[PodUid, Pod]] = {}

    def changed(self, pod: Pod) -> None:
        """Take a new or changed pod without a node for which no write is unsettled."""
        self._heed_nomination(pod)
        self._take(pod)
        entry = self._cluster.queue.get(pod.uid)
        if entry is not None:
            self._reservations.check_nominated(entry)

    def _take(self, pod: Pod) -> None:
        entry = self._cluster.queue.get(pod.uid)
        if entry is None:
            known = self._strangers.pop(pod.uid, None)
            if self.is_ours(pod):
                text = pod.scheduled_message if pod.scheduled_reason and is_ours(pod.scheduled_reason) else ""
                condition = PodCondition(text=text, at_s=self._cluster.clock()) if text else None
                self.read(self._cluster.queue.seen(pod, condition))
            else:
                self._keep_stranger(pod)
                key = group_of(pod)
                said = known is not None and (known.gated, group_of(known)) == (pod.gated, key)
                if key is not None and not said and pod.uid in self._strangers:
                    self.group_parted(key)
            return
        if self.is_ours(pod) and asks_the_same(entry.pod, pod):
            self._cluster.queue.take(entry, pod)
        else:
            if self._asks_otherwise(entry, pod):
                self._cluster.queue.changed(entry)
            self.reconsider(entry, pod)

    def _asks_otherwise(self, entry: Entry, pod: Pod) -> bool:
        """Return whether a changed pod has begun to wait for something else; anyone may add notes that nobody reads."""
        noted = entry.pod._replace(annotations=pod.annotations)
        return (
            not asks_the_same(noted, pod)
            or group_of(noted) != group_of(entry.pod)
            or entry.shape is None
            or shape_of(noted, self._cluster.ledger) != entry.shape
        )

    def _heed_nomination(self, pod: Pod) -> None:
        """Count another scheduler's pod on its nominated node, where that scheduler frees capacity for it."""
        ledger = self._cluster.ledger
        if pod.nominated_node and not (self.is_ours(pod) or pod.finished or pod.deleting):
            ledger.nominate(pod)
        elif pod.uid in ledger.nominated:
            ledger.release(pod.uid)

    def _keep_stranger(self, pod: Pod) -> None:
        """Remember a pod of another scheduler, unless it has ended or is being deleted."""
        if not (pod.finished or pod.deleting):
            self._strangers[pod.uid] = pod

    def is_ours(self, pod: Pod) -> bool:
        """Return whether this controller must decide *pod* now."""
        mine = pod.scheduler_name in self._cluster.settings.scheduler_names
        return mine and not (pod.finished or pod.deleting or pod.gated)

    def reconsider(self, entry: Entry, pod: Pod) -> None:
        """Release a pod and read it again; or drop it, if this controller no longer decides it."""
        if not self.is_ours(pod):
            self.drop(entry, pod)
            return
        self._reservations.release(entry)
        self._cluster.queue.take(entry, pod)
        self.read(entry)

    def settled(self, entry: Entry, *, rest_s: float = 0.0, wait: Wait | None = None, reports: bool = True) -> None:
        """Continue with a pod, as it is now, after its write was settled and its reservation released.

        Args:
            entry: the pod's.
            rest_s: the minimum back-off, if its request has not changed.
            wait: why it backs off.
            reports: whether to report that to the user.
        """
        pod, before = entry.newest or entry.pod, entry.wait
        if not self.is_ours(pod):
            self.drop(entry, pod)
            return
        if not asks_the_same(entry.pod, pod) and self._asks_otherwise(entry, pod):
            self._cluster.queue.changed(entry)
            rest_s, wait = 0.0, None
        self._cluster.queue.take(entry, pod)
        self.read(entry, rest_s)
        if wait is None and entry.failures > _FAILURES_QUIET:
            # If answers were lost repeatedly, each fence has already reported that.
            wait = before if before is not None and before.cause is Cause.SCHEDULER_ERROR else RETRIED
        if wait is not None and entry.stage is Stage.RESTING:
            self._cluster.queue.hold_up(entry, wait)
            if reports:
                self._cluster.unreported[pod.uid] = None

    def read(self, entry: Entry, rest_s: float = 0.0) -> None:
        """Read the pod's request and move it to its stage; it becomes ready after *rest_s* at the earliest."""
        self._cluster.requeue.leave(entry.pod.uid)
        changes = [storage_event(kind, name) for kind, name in self._cluster.ledger.constraints.woken_by(entry.pod)]
        self._cluster.requeue.wait_for(entry.pod.uid, *changes)
        shape = shape_of(entry.pod, self._cluster.ledger)
        if isinstance(shape, Wait):
            self._hold(entry, shape)
            return
        key = group_of(entry.pod)
        wait = self._cluster.groups.wait(key) if key is not None else _asks_for_several(entry.pod)
        if wait is not None:
            self._hold(entry, wait)
            return
        if key is None and self._awaits_group(entry):
            return
        node = self._cluster.handoff.node_of(entry.pod.uid)
        if node is not None:
            self._hold(entry, _left_over(node))
            return
        self._cluster.queue.asks(entry, shape)
        self._cluster.search.learn_of(entry.pod, shape)
        delay_s = max(rest_s, self.rest_s(entry))
        if delay_s:
            self._cluster.queue.back_off(entry, self._cluster.clock() + delay_s)
        else:
            self._cluster.queue.ready(entry)

    def _hold(self, entry: Entry, wait: Wait) -> None:
        """Hold a pod, and report why, until it or what it waits for changes."""
        self._cluster.queue.asks(entry, None, wait)
        self._cluster.queue.hold(entry)
        self._cluster.unreported[entry.pod.uid] = None

    def _awaits_group(self, entry: Entry) -> bool:
        """Let a pod back off if Volcano's PodGroup controller may still give it a group; return whether.

        This lasts for `GROUP_GIVEN_S` after its creation, then for as long as its owner wants several pods together.
        """
        pod, is_served = entry.pod, self._cluster.groups.served[GroupKind.VOLCANO]
        if not (is_served and pod.owner and pod.scheduler_name == names.VOLCANO_SCHEDULER_NAME):
            return False
        now_s = self._cluster.clock()
        # If this clock is behind the API server's, the pod is no younger than it has been known here.
        known_s = now_s - self._awaiting.setdefault(pod.uid, now_s)
        rest_s = GROUP_GIVEN_S - max(self._cluster.wall() - pod.created_s, known_s)
        wait = _AWAITS_GROUP
        if rest_s <= 0:
            members = self.owners.members(pod)
            if members is None:
                rest_s, wait = _ANSWER_S, entry.wait or wait
            elif members > 1:
                rest_s, wait = FRESH_S, nameless(members, pod.owner)
            else:
                return False
        self._cluster.queue.asks(entry, None)
        self._cluster.queue.back_off(entry, now_s + rest_s)
        self._cluster.hold_up(entry, wait)
        return True

    def group_changed(self, key: GroupKey) -> None:
        """Read the members of a group again, because the group has changed."""
        for uid in self._cluster.groups.members(key):
            entry = self._cluster.queue.get(uid)
            if entry is not None and entry.stage in _MAY_BE_READ:
                self.read(entry)

    def group_parted(self, key: GroupKey) -> None:
        """Queue the waiting members of a group, because a member left, failed, came back, or cannot be placed."""
        members = (self._cluster.queue.get(uid) for uid in self._cluster.groups.members(key))
        waiting = [entry for entry in members if entry is not None and entry.waits_for_others]
        for at, entry in enumerate(waiting):
            self._cluster.queue.ready(entry)
            # Finding a gang reads all its members, so this is done for one of them only.
            found = self._cluster.gangs.gang(entry) if at == 0 else None
            if found is not None and not found.asks.inner:
                return  # all of them are decided with it

    def rest_s(self, entry: Entry) -> float:
        """Return the back-off of a pod: none after its first failure, then twice as long each time."""
        if entry.failures < 2:
            return 0.0
        return float(min(FIRST_REST_S * 2.0 ** min(entry.failures - 2, 30), _LAST_REST_S))

    def drop(self, entry: Entry, pod: Pod) -> None:
        """Release and forget a pod that this controller no longer decides."""
        self._reservations.release(entry)
        self.forget(pod.uid)
        self._keep_stranger(pod)

    def forget(self, uid: PodUid) -> Entry | None:
        """Remove a pod that is gone, bound, or another scheduler's; return its entry, if it was in the queue."""
        self._strangers.pop(uid, None)
        self._awaiting.pop(uid, None)
        self._cluster.unreported.pop(uid, None)
        self._cluster.sent.close(uid)
        self._cluster.requeue.leave(uid)
        return self._cluster.queue.leave(uid)

    def strangers(self) -> Collection[Pod]:
        """Return the pending pods of other schedulers."""
        return self._strangers.values()

    def waiting(self, names: Collection[str]) -> list[Pod]:
        """Return the pending pods of schedulers *names*, whether or not they can be decided now."""
        others = [pod for pod in self._strangers.values() if pod.scheduler_name in names]
        return [*(entry.pod for entry in self._cluster.queue), *others]

    def named(self) -> list[Pod]:
        """Return pods that belonged to another scheduler, and whose scheduler name is configured now."""
        names = self._cluster.settings.scheduler_names
        return [pod for pod in self._strangers.values() if pod.scheduler_name in names]


def of_name(pods: Iterable[Pod], key: str) -> Pod | None:
    """Return the pod with namespace/name *key* among *pods*."""
    # Building a key for each of 100,000 pods would take 30 ms.
    namespace, _, name = key.partition("/")
    return next((pod for pod in pods if pod.name == name and pod.namespace == namespace), None)


def _left_over(node: NodeName) -> Wait:
    """Return why a pod with a leftover assignment waits: a device plugin could serve another pod by it."""
    text = (
        f"is decided once its annotations are cleared: they hold an assignment on {node} that it was never bound with, "
        "and the device plugin there could serve another pod by it"
    )
    return Wait(Cause.WAITING_FOR_DECISION, text)
