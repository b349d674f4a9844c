"""Pods that are on no node: whether they are ours to decide, what they ask, and where in the queue that puts them."""

from collections.abc import Callable
from typing import Final

from controller import plan
from controller.changes import asks_the_same
from controller.deeds import ReadGroup
from controller.groups import BELIEVED_S, Groups
from controller.lifecycle import UNSETTLED, Entry, Stage, Told
from controller.planner import Planner
from core.model import Pod, PodUid

FIRST_REST_S: Final = 0.25
_LAST_REST_S: Final = 60.0


class Pending:
    """Puts pods where they wait: to be decided, for their group, after a failure, or for the user."""

    def __init__(self, planner: Planner, clock: Callable[[], float]) -> None:
        self._planner: Final = planner
        self._clock: Final = clock
        self._groups: Final = Groups()

    def changed(self, pod: Pod) -> None:
        """A pod that is on no node appeared or changed."""
        entry = self._planner.life.get(pod.uid)
        if entry is None:
            if self.is_ours(pod):
                text = pod.scheduled_message if pod.scheduled_reason == "Unschedulable" else ""
                told = Told(text=text, at_s=self._clock()) if text else None
                self.read(self._planner.life.seen(pod, told))
            return
        if entry.stage in UNSETTLED:
            return  # its Binding names the version it was decided from: the API server refuses it if that matters
        if self.is_ours(pod) and asks_the_same(entry.pod, pod):
            self._planner.life.take(entry, pod)
        else:
            self._planner.life.changed(entry)
            self.reconsider(entry, pod)

    def is_ours(self, pod: Pod) -> bool:
        """Whether this controller is to decide *pod* now."""
        mine = pod.scheduler_name in self._planner.settings.scheduler_names
        return mine and not (pod.finished or pod.deleting or pod.gated)

    def reconsider(self, entry: Entry, pod: Pod) -> None:
        """Decide a pod anew, as it is now; or let it go, if it is not to be decided any more."""
        if not self.is_ours(pod):
            self.drop(entry)
            return
        self._planner.take_back(entry)
        self._planner.life.take(entry, pod)
        self.read(entry)

    def read(self, entry: Entry) -> None:
        """Read what the pod asks and put it where that leads."""
        wish = plan.read_wish(entry.pod, self._planner.ledger)
        if isinstance(wish, plan.Waits):
            self._planner.life.asks(entry, None, wish.text)
            self._planner.life.hold(entry)
            self._planner.untold[entry.pod.uid] = None
            return
        group = plan.group_name(entry.pod)
        if group and not self._is_single(entry, group):
            return
        self._planner.life.asks(entry, wish)
        delay_s = self.rest_s(entry)
        if delay_s:
            self._planner.life.back_off(entry, self._clock() + delay_s)
        else:
            self._planner.life.ready(entry)

    def _is_single(self, entry: Entry, group: str) -> bool:
        """Whether the pod's group lets it be placed alone; if not, it is put where it waits."""
        key = (entry.pod.namespace, group)
        now_s = self._clock()
        text = self._groups.text(key, now_s)
        if text == "":
            return True
        self._planner.life.asks(entry, None, text or "")
        if text is None:
            self._planner.life.hold(entry)
            if self._groups.ask(key, entry.pod.uid):
                self._planner.deeds.append(ReadGroup(namespace=key[0], name=key[1]))
            return False
        self._planner.life.back_off(entry, now_s + 2.0 * BELIEVED_S)
        self._planner.untold[entry.pod.uid] = None
        return False

    def group_read(self, namespace: str, name: str, min_member: int | None, problem: str = "") -> None:
        """A PodGroup wants so many members at once; None: there is none of that name, or it cannot be read."""
        for uid in self._groups.take((namespace, name), min_member, problem, self._clock()):
            entry = self._planner.life.get(uid)
            if entry is not None and entry.stage is Stage.HELD:
                self.read(entry)

    def rest_s(self, entry: Entry) -> float:
        """How long a pod rests after its failures: not at all after the first, then longer each time."""
        if entry.failures < 2:
            return 0.0
        return float(min(FIRST_REST_S * 2.0 ** min(entry.failures - 2, 30), _LAST_REST_S))

    def drop(self, entry: Entry) -> None:
        """Let a pod go that is not to be decided any more."""
        self._planner.take_back(entry)
        self.forget(entry.pod.uid)

    def forget(self, uid: PodUid) -> Entry | None:
        """Take a pod out of the queue, if it is there."""
        self._planner.untold.pop(uid, None)
        self._planner.sent_s.pop(uid, None)
        return self._planner.life.leave(uid)
