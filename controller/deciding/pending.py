"""Pods that are on no node: whether they are ours to decide, what they ask, and where in the queue that puts them."""

from collections.abc import Callable, Collection
from typing import Final

from controller.deciding.changes import asks_the_same
from controller.deciding.group_owners import FRESH_S, GroupOwners
from controller.deciding.lifecycle import Entry, Stage, Told
from controller.deciding.planner import Planner
from controller.deciding.units import waits_for_others
from controller.deciding.wake import storage_happening
from controller.grouping.groups import Groups, nameless
from core.explaining.asked import read_wish
from core.groups import GroupKey, group_of
from core.model import NO_VOLUMES, NodeName, Pod, PodUid
from core.volumes import awaited
from core.waiting import Cause, Wait, is_ours

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

    def __init__(self, planner: Planner, groups: Groups, clock: Callable[[], float]) -> None:
        self._planner: Final = planner
        self._groups: Final = groups
        self._clock: Final = clock
        self.owners: Final = GroupOwners(planner.actions, clock)
        # Pods that wait for a scheduler that is not this one: its names may come to be ours.
        self._strangers: Final[dict[PodUid, Pod]] = {}

    def changed(self, pod: Pod) -> None:
        """A pod that is on no node, and of which nothing was sent, appeared or changed."""
        self._heed_nomination(pod)
        self._take(pod)
        entry = self._planner.life.get(pod.uid)
        settings = self._planner.settings
        if pod.nominated_node and entry is not None and (settings.preemption or settings.reclaim):
            self._planner.barring.nominations.restore(entry, self._clock(), settings.preemption_wait_s)

    def _take(self, pod: Pod) -> None:
        entry = self._planner.life.get(pod.uid)
        if entry is None:
            known = self._strangers.pop(pod.uid, None)
            if self.is_ours(pod):
                text = pod.scheduled_message if is_ours(pod.scheduled_reason) else ""
                told = Told(text=text, at_s=self._clock()) if text else None
                self.read(self._planner.life.seen(pod, told))
            else:
                self._pass_by(pod)
                if known is None and pod.uid in self._strangers and (key := group_of(pod)) is not None:
                    self.group_parted(key)
            return
        if self.is_ours(pod) and asks_the_same(entry.pod, pod):
            self._planner.life.take(entry, pod)
        else:
            self._planner.life.changed(entry)
            self.reconsider(entry, pod)

    def _heed_nomination(self, pod: Pod) -> None:
        """Count a pod where another scheduler has made room for it, for as long as that says so."""
        ledger = self._planner.ledger
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
        mine = pod.scheduler_name in self._planner.settings.scheduler_names
        return mine and not (pod.finished or pod.deleting or pod.gated)

    def reconsider(self, entry: Entry, pod: Pod) -> None:
        """Decide a pod anew, as it is now; or let it go, if it is not to be decided any more."""
        if not self.is_ours(pod):
            self.drop(entry, pod)
            return
        self._planner.promises.take_back(entry)
        self._planner.life.take(entry, pod)
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
            self._planner.life.changed(entry)
            rest_s, wait = 0.0, None
        self._planner.life.take(entry, pod)
        self.read(entry, rest_s)
        if wait is None and entry.failures > _FAILURES_QUIET:
            # Of whose Binding the answer was lost again and again was told so, by every fence.
            wait = before if before is not None and before.cause is Cause.SCHEDULER_ERROR else RETRIED
        if wait is not None and entry.stage is Stage.RESTING:
            self._planner.life.hold_up(entry, wait)
            if tell:
                self._planner.unreported[pod.uid] = None

    def read(self, entry: Entry, rest_s: float = 0.0) -> None:
        """Read what the pod asks and put it where that leads, if that is a decision after *rest_s* at the earliest."""
        self._planner.wakes.leave(entry.pod.uid)
        if entry.pod.volumes is not NO_VOLUMES:
            storage = self._planner.ledger.topology.volumes.storage
            changes = [storage_happening(kind, name) for kind, name in awaited(entry.pod, storage)]
            self._planner.wakes.wait_for(entry.pod.uid, *changes)
        wish = read_wish(entry.pod, self._planner.ledger)
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
        node = self._planner.handoff.node_of(entry.pod.uid)
        if node is not None:
            self._hold(entry, _left_over(node))
            return
        self._planner.life.asks(entry, wish)
        self._planner.search.learn_of(entry.pod, wish)
        delay_s = max(rest_s, self.rest_s(entry))
        if delay_s:
            self._planner.life.back_off(entry, self._clock() + delay_s)
        else:
            self._planner.life.ready(entry)

    def _hold(self, entry: Entry, wait: Wait) -> None:
        """Keep a pod, and tell why, until it or what it waits for changes."""
        self._planner.life.asks(entry, None, wait)
        self._planner.life.hold(entry)
        self._planner.unreported[entry.pod.uid] = None

    def _awaits_group(self, entry: Entry) -> bool:
        """Let a pod rest to which Volcano's PodGroup controller may give a group.

        For a while after its creation; then for as long as its owner asks for several pods together.
        """
        if not self._groups.may_be_given(entry.pod):
            return False
        rest_s, wait = entry.pod.created_s + GROUP_GIVEN_S - self._planner.state.wall(), _AWAITS_GROUP
        if rest_s <= 0:
            members = self.owners.members(entry.pod)
            if members is None:
                rest_s, wait = _ANSWER_S, entry.wait or wait
            elif members > 1:
                rest_s, wait = FRESH_S, nameless(members, entry.pod.owner)
            else:
                return False
        self._planner.life.asks(entry, None)
        self._planner.life.back_off(entry, self._clock() + rest_s)
        self._planner.life.hold_up(entry, wait)
        self._planner.unreported[entry.pod.uid] = None
        return True

    def group_changed(self, key: GroupKey) -> None:
        """Something else is known of a group: its members may be placed now, or wait for another reason."""
        for uid in self._groups.members(key):
            entry = self._planner.life.get(uid)
            if entry is not None and entry.stage in _MAY_BE_READ:
                self.read(entry)

    def group_parted(self, key: GroupKey) -> None:
        """A member of a group left, failed, came back, or came and may not be placed: those that wait hear of it."""
        members = (self._planner.life.get(uid) for uid in self._groups.members(key))
        waiting = [entry for entry in members if entry is not None and waits_for_others(entry)]
        for at, entry in enumerate(waiting):
            self._planner.life.ready(entry)
            # To find a gang takes a look at all its members: whether it has its minimum, each of them tells.
            found = self._planner.units.gang(entry) if at == 0 else None
            if found is not None and not found.asks.inner:
                return  # all of them are decided with it

    def rest_s(self, entry: Entry) -> float:
        """How long a pod rests after its failures: not at all after the first, then longer each time."""
        if entry.failures < 2:
            return 0.0
        return float(min(FIRST_REST_S * 2.0 ** min(entry.failures - 2, 30), _LAST_REST_S))

    def drop(self, entry: Entry, pod: Pod) -> None:
        """Let a pod go that is not to be decided any more as it is now."""
        self._planner.promises.take_back(entry)
        self.forget(pod.uid)
        self._pass_by(pod)

    def forget(self, uid: PodUid) -> Entry | None:
        """Take a pod out of the queue, if it is there: it is gone, bound, or not to be decided any more."""
        self._strangers.pop(uid, None)
        self._planner.unreported.pop(uid, None)
        self._planner.state.sent.close(uid)
        self._planner.wakes.leave(uid)
        return self._planner.life.leave(uid)

    def stranger(self, namespace: str, name: str) -> Pod | None:
        """The pod of that name, if it waits and is not ours to decide."""
        pods = self._strangers.values()
        return next((pod for pod in pods if pod.name == name and pod.namespace == namespace), None)

    def waiting(self, names: Collection[str]) -> list[Pod]:
        """Pods that wait for a scheduler of one of *names*, whether or not they are to be decided now."""
        others = [pod for pod in self._strangers.values() if pod.scheduler_name in names]
        return [*(entry.pod for entry in self._planner.life), *others]

    def named(self) -> list[Pod]:
        """Pods that were not ours to decide, and whose scheduler's name is ours now."""
        names = self._planner.settings.scheduler_names
        return [pod for pod in self._strangers.values() if pod.scheduler_name in names]


def _left_over(node: NodeName) -> Wait:
    """Why a pod is not decided of which nothing was sent, and which a device plugin could serve all the same."""
    text = (
        f"is decided once its annotations are cleared: they hold an assignment on {node} that it was never bound with, "
        "and the device plugin there could serve another pod by it"
    )
    return Wait(Cause.WAITING_FOR_DECISION, text)
