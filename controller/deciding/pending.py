"""Pods that are on no node: whether they are ours to decide, what they ask, and where in the queue that puts them.

Volcano's PodGroup controller makes a pod's group by an annotation of its owner (groups 3). If it is late, the owner is
read here, so that none of these pods is placed alone. An answer holds for a while; what is older is forgotten.
"""

from collections import deque
from collections.abc import Callable, Collection, Set
from dataclasses import dataclass
from typing import Final

from controller.actions import Action, ReadOwner
from controller.deciding.cluster import ClusterState
from controller.deciding.lifecycle import Entry, Stage, Told, storage_event
from controller.deciding.reserve import Reservations
from controller.grouping.groups import nameless
from core.explaining.asked import read_wish
from core.groups import GroupKey, group_of
from core.model import NodeName, Pod, PodUid
from core.waiting import Cause, Wait, is_ours
from kube.calls import OWNERS

# Of a pod's fields the last: its version and its annotations.
_NOTES: Final = Pod._fields.index("resource_version")


def holds_the_same(known: Pod, pod: Pod, marks: Set[str]) -> bool:
    """Whether a bound pod holds what it held: its node, and all that a dialect reads of it, so not *marks*."""
    return (
        known.node_name == pod.node_name
        and known.finished == pod.finished
        and known.deleting == pod.deleting
        and known.init_done == pod.init_done
        and {key for key, _ in known.annotations.items() ^ pod.annotations.items()} <= marks
        and known.labels == pod.labels
        and known.containers == pod.containers
        and known.init_containers == pod.init_containers
        and known.resources == pod.resources
    )


def is_served(known: Pod, pod: Pod, marks: Set[str]) -> bool:
    """Whether nothing of a bound pod is new but *marks*, which its device plugin writes: most changes are so."""
    return (
        known[:_NOTES] == pod[:_NOTES]
        and {key for key, _ in known.annotations.items() ^ pod.annotations.items()} <= marks
    )


def asks_the_same(known: Pod, pod: Pod) -> bool:
    """Whether a pending pod asks what it asked."""
    return (
        known.annotations == pod.annotations
        and known.labels == pod.labels
        and known.containers == pod.containers
        and known.init_containers == pod.init_containers
        and known.constraints == pod.constraints
        and known.peers == pod.peers
        and known.volumes == pod.volumes
        and known.unjudged == pod.unjudged
        and known.overhead == pod.overhead
        and known.resources == pod.resources
        and known.priority == pod.priority
        and known.preempts == pod.preempts
        and known.scheduler_name == pod.scheduler_name
        and known.gated == pod.gated
    )


# ---------------------------------------------------------------------- what owners want


FRESH_S: Final = 30.0
# A read without an answer is begun again after so long.
ASKED_AGAIN_S: Final = 10.0
_KNOWN_MAX: Final = 1024


@dataclass(slots=True)
class _Known:
    """asked_s: when it was last read, monotonic; members: what it said, None before."""

    asked_s: float
    members: int | None = None


class GroupOwners:
    """What owners say, by their namespace and kind/name."""

    def __init__(self, actions: deque[Action], clock: Callable[[], float]) -> None:
        """Begin with nothing; *actions*: where reads are asked for."""
        self._actions: Final = actions
        self._clock: Final = clock
        self._known: Final[dict[tuple[str, str], _Known]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def members(self, pod: Pod) -> int | None:
        """How many pods the owner of *pod* wants placed together; 0 if it does not say; None while it is read."""
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
        """An owner says so."""
        known = self._known.get((namespace, owner))
        if known is not None:
            known.members = members

    def _forget(self, now_s: float) -> None:
        if len(self._known) >= _KNOWN_MAX:
            for key in [key for key, known in self._known.items() if now_s - known.asked_s >= FRESH_S]:
                del self._known[key]


# ---------------------------------------------------------------------- pods on no node


FIRST_REST_S: Final = 0.25
_LAST_REST_S: Final = 60.0
# After so many failures in a row users are told: one or two are over before a condition is written.
_FAILURES_QUIET: Final = 4
RETRIED: Final = Wait(Cause.RETRIED, "is retried with growing delays, because the last write failed")
# How long after its creation a pod may be given a group: Volcano names some thousand pods in that time.
GROUP_GIVEN_S: Final = 30.0
_AWAITS_GROUP: Final = Wait(
    Cause.WAITING_FOR_GROUP,
    "waits until Volcano's PodGroup controller names its group; it is placed alone if that does not happen within "
    f"{GROUP_GIVEN_S:.0f} s of its creation and its owner does not ask for several pods together",
)
# Between two looks for what an owner has answered.
_ANSWER_S: Final = 1.0
# What a pod asks may be read again there: nothing is sent or reserved for it.
_MAY_BE_READ: Final = (Stage.READY, Stage.REFUSED, Stage.HELD)


class Pending:
    """Puts pods where they wait: to be decided, for their group, after a failure, or for the user."""

    def __init__(self, cluster: ClusterState, reservations: Reservations) -> None:
        self._cluster: Final = cluster
        self._reservations: Final = reservations
        self._groups: Final = cluster.groups
        self.owners: Final = GroupOwners(cluster.actions, cluster.clock)
        # Pods that wait for a scheduler that is not this one: its names may come to be ours.
        self._strangers: Final[dict[PodUid, Pod]] = {}

    def changed(self, pod: Pod) -> None:
        """A pod that is on no node, and of which nothing was sent, appeared or changed."""
        self._heed_nomination(pod)
        self._take(pod)
        entry = self._cluster.queue.get(pod.uid)
        settings = self._cluster.settings
        if pod.nominated_node and entry is not None and (settings.preemption or settings.reclaim):
            self._reservations.nominations.restore(entry, self._cluster.clock(), settings.preemption_wait_s)

    def _take(self, pod: Pod) -> None:
        entry = self._cluster.queue.get(pod.uid)
        if entry is None:
            known = self._strangers.pop(pod.uid, None)
            if self.is_ours(pod):
                text = pod.scheduled_message if is_ours(pod.scheduled_reason) else ""
                told = Told(text=text, at_s=self._cluster.clock()) if text else None
                self.read(self._cluster.queue.seen(pod, told))
            else:
                self._pass_by(pod)
                if known is None and pod.uid in self._strangers and (key := group_of(pod)) is not None:
                    self.group_parted(key)
            return
        if self.is_ours(pod) and asks_the_same(entry.pod, pod):
            self._cluster.queue.take(entry, pod)
        else:
            self._cluster.queue.changed(entry)
            self.reconsider(entry, pod)

    def _heed_nomination(self, pod: Pod) -> None:
        """Count a pod where another scheduler has made room for it, for as long as that says so."""
        ledger = self._cluster.ledger
        if pod.nominated_node and not (self.is_ours(pod) or pod.finished or pod.deleting):
            ledger.nominate(pod)
        elif pod.uid in ledger.nominated:
            ledger.release(pod.uid)

    def _pass_by(self, pod: Pod) -> None:
        """Remember a pod that is not ours to decide, if that could change without a change of the pod."""
        if not (pod.finished or pod.deleting):
            self._strangers[pod.uid] = pod

    def is_ours(self, pod: Pod) -> bool:
        """Whether this controller is to decide *pod* now."""
        mine = pod.scheduler_name in self._cluster.settings.scheduler_names
        return mine and not (pod.finished or pod.deleting or pod.gated)

    def reconsider(self, entry: Entry, pod: Pod) -> None:
        """Decide a pod anew, as it is now; or let it go, if it is not to be decided any more."""
        if not self.is_ours(pod):
            self.drop(entry, pod)
            return
        self._reservations.take_back(entry)
        self._cluster.queue.take(entry, pod)
        self.read(entry)

    def settled(self, entry: Entry, *, rest_s: float = 0.0, wait: Wait | None = None, tell: bool = True) -> None:
        """Go on with a pod for which nothing is sent or reserved any more, as it is now.

        Args:
            entry: the pod's.
            rest_s: for how long to leave it alone, at least, if it is as it was.
            wait: why it rests then.
            tell: the user is told of that.
        """
        pod, before = entry.newest or entry.pod, entry.wait
        if not self.is_ours(pod):
            self.drop(entry, pod)
            return
        if not asks_the_same(entry.pod, pod):
            self._cluster.queue.changed(entry)
            rest_s, wait = 0.0, None
        self._cluster.queue.take(entry, pod)
        self.read(entry, rest_s)
        if wait is None and entry.failures > _FAILURES_QUIET:
            # Of whose Binding the answer was lost again and again was told so, by every fence.
            wait = before if before is not None and before.cause is Cause.SCHEDULER_ERROR else RETRIED
        if wait is not None and entry.stage is Stage.RESTING:
            self._cluster.queue.hold_up(entry, wait)
            if tell:
                self._cluster.unreported[pod.uid] = None

    def read(self, entry: Entry, rest_s: float = 0.0) -> None:
        """Read what the pod asks and put it where that leads, if that is a decision after *rest_s* at the earliest."""
        self._cluster.requeue.leave(entry.pod.uid)
        changes = [storage_event(kind, name) for kind, name in self._cluster.ledger.constraints.woken_by(entry.pod)]
        self._cluster.requeue.wait_for(entry.pod.uid, *changes)
        wish = read_wish(entry.pod, self._cluster.ledger)
        if isinstance(wish, Wait):
            self._hold(entry, wish)
            return
        key = group_of(entry.pod)
        wait = self._groups.wait(key) if key is not None else self._groups.nameless(entry.pod)
        if wait is not None:
            self._hold(entry, wait)
            return
        if key is None and self._awaits_group(entry):
            return
        node = self._cluster.handoff.node_of(entry.pod.uid)
        if node is not None:
            self._hold(entry, _left_over(node))
            return
        self._cluster.queue.asks(entry, wish)
        self._cluster.search.learn_of(entry.pod, wish)
        delay_s = max(rest_s, self.rest_s(entry))
        if delay_s:
            self._cluster.queue.back_off(entry, self._cluster.clock() + delay_s)
        else:
            self._cluster.queue.ready(entry)

    def _hold(self, entry: Entry, wait: Wait) -> None:
        """Keep a pod, and tell why, until it or what it waits for changes."""
        self._cluster.queue.asks(entry, None, wait)
        self._cluster.queue.hold(entry)
        self._cluster.unreported[entry.pod.uid] = None

    def _awaits_group(self, entry: Entry) -> bool:
        """Let a pod rest to which Volcano's PodGroup controller may give a group.

        For a while after its creation; then for as long as its owner asks for several pods together.
        """
        if not self._groups.may_be_given(entry.pod):
            return False
        rest_s, wait = entry.pod.created_s + GROUP_GIVEN_S - self._cluster.wall(), _AWAITS_GROUP
        if rest_s <= 0:
            members = self.owners.members(entry.pod)
            if members is None:
                rest_s, wait = _ANSWER_S, entry.wait or wait
            elif members > 1:
                rest_s, wait = FRESH_S, nameless(members, entry.pod.owner)
            else:
                return False
        self._cluster.queue.asks(entry, None)
        self._cluster.queue.back_off(entry, self._cluster.clock() + rest_s)
        self._cluster.hold_up(entry, wait)
        return True

    def group_changed(self, key: GroupKey) -> None:
        """Something else is known of a group: its members may be placed now, or wait for another reason."""
        for uid in self._groups.members(key):
            entry = self._cluster.queue.get(uid)
            if entry is not None and entry.stage in _MAY_BE_READ:
                self.read(entry)

    def group_parted(self, key: GroupKey) -> None:
        """A member of a group left, failed, came back, or came and may not be placed: those that wait hear of it."""
        members = (self._cluster.queue.get(uid) for uid in self._groups.members(key))
        waiting = [entry for entry in members if entry is not None and entry.waits_for_others]
        for at, entry in enumerate(waiting):
            self._cluster.queue.ready(entry)
            # To find a gang takes a look at all its members: whether it has its minimum, each of them tells.
            found = self._cluster.gangs.gang(entry) if at == 0 else None
            if found is not None and not found.asks.inner:
                return  # all of them are decided with it

    def rest_s(self, entry: Entry) -> float:
        """How long a pod rests after its failures: not at all after the first, then longer each time."""
        if entry.failures < 2:
            return 0.0
        return float(min(FIRST_REST_S * 2.0 ** min(entry.failures - 2, 30), _LAST_REST_S))

    def drop(self, entry: Entry, pod: Pod) -> None:
        """Let a pod go that is not to be decided any more as it is now."""
        self._reservations.take_back(entry)
        self.forget(pod.uid)
        self._pass_by(pod)

    def forget(self, uid: PodUid) -> Entry | None:
        """Take a pod out of the queue, if it is there: it is gone, bound, or not to be decided any more."""
        self._strangers.pop(uid, None)
        self._cluster.unreported.pop(uid, None)
        self._cluster.sent.close(uid)
        self._cluster.requeue.leave(uid)
        return self._cluster.queue.leave(uid)

    def stranger(self, namespace: str, name: str) -> Pod | None:
        """The pod of that name, if it waits and is not ours to decide."""
        pods = self._strangers.values()
        return next((pod for pod in pods if pod.name == name and pod.namespace == namespace), None)

    def waiting(self, names: Collection[str]) -> list[Pod]:
        """Pods that wait for a scheduler of one of *names*, whether or not they are to be decided now."""
        others = [pod for pod in self._strangers.values() if pod.scheduler_name in names]
        return [*(entry.pod for entry in self._cluster.queue), *others]

    def named(self) -> list[Pod]:
        """Pods that were not ours to decide, and whose scheduler's name is ours now."""
        names = self._cluster.settings.scheduler_names
        return [pod for pod in self._strangers.values() if pod.scheduler_name in names]


def _left_over(node: NodeName) -> Wait:
    """Why a pod is not decided of which nothing was sent, and which a device plugin could serve all the same."""
    text = (
        f"is decided once its annotations are cleared: they hold an assignment on {node} that it was never bound with, "
        "and the device plugin there could serve another pod by it"
    )
    return Wait(Cause.WAITING_FOR_DECISION, text)
