"""What became of the Bindings that were sent: takes answers and reads, and releases what certainly was not written.

Source of the rules: `settling`.
"""

from collections.abc import Callable
from typing import Final

from controller.actions import Fence, ReadPod, target_of
from controller.deciding.lifecycle import Entry, Stage, Told
from controller.deciding.node_locks import NodeLocks
from controller.deciding.pending import FIRST_REST_S, Pending
from controller.deciding.planner import Planner
from controller.deciding.settling import News, State
from core.model import Pod, PodUid
from core.waiting import Cause, Wait
from kube.versions import is_newer

_NOT_SAID: Final = "the API server neither binds this pod nor gives a reason; the pod is retried"


class Outcomes:
    """Settles Bindings."""

    def __init__(self, planner: Planner, pending: Pending, locks: NodeLocks, clock: Callable[[], float]) -> None:
        self._planner: Final = planner
        self._pending: Final = pending
        self._locks: Final = locks
        self._clock: Final = clock
        self._life: Final = planner.life
        self._sent: Final = planner.state.sent

    # ------------------------------------------------------------------ answers

    def bound(self, uid: PodUid, attempt: int) -> None:
        """The Binding was written."""
        entry = self._waiting_for(uid, attempt, State.SENT)
        if entry is not None:
            self._sent.hear(uid, News.ACCEPTED)
            self._life.written(entry)

    def refused(self, uid: PodUid, attempt: int, *, rest_s: float = 0.0, wait: Wait | None = None) -> None:
        """The Binding was certainly not written, and nothing else is wrong with the pod.

        Args:
            uid: the pod.
            attempt: which of its Bindings.
            rest_s: for how long to leave it alone, at least.
            wait: what to tell the user, if trying again will not help.
        """
        entry = self._waiting_for(uid, attempt, State.SENT)
        if entry is not None:
            self._life.failed(entry)
            self._sent.hear(uid, News.REFUSED)
            self._release(entry, rest_s=rest_s, wait=wait)
        self._let_vanish(uid)

    def contradicted(self, uid: PodUid, attempt: int) -> None:
        """The API server says that the pod is not as it was thought to be: perhaps a Binding of ours is why."""
        entry = self._waiting_for(uid, attempt, State.SENT)
        if entry is not None:
            self._doubt(entry, None, delay_s=0.0)
        self._let_vanish(uid)

    def _let_vanish(self, uid: PodUid) -> None:
        """The Binding was not written, and the pod may have gone meanwhile: then kubelet never heard of it."""
        if self._life.get(uid) is None:
            self._planner.handoff.withdraw(uid, self._clock())

    def lost(self, uid: PodUid, attempt: int, error: str) -> None:
        """The Binding was perhaps written: everything stays reserved until that is known."""
        entry = self._waiting_for(uid, attempt, State.SENT)
        if entry is not None and entry.placement is not None:
            text = f"it is not known whether the API server has bound this pod to {entry.placement.node}: {error}"
            self._doubt(entry, Wait(Cause.SCHEDULER_ERROR, text), delay_s=FIRST_REST_S)

    def _doubt(self, entry: Entry, wait: Wait | None, *, delay_s: float) -> None:
        self._life.failed(entry)
        self._sent.hear(entry.pod.uid, News.LOST)
        self._life.doubt(entry, wait)
        if entry.newest is None or not self._has_passed(entry, entry.newest):
            self._read(entry, delay_s)

    def _read(self, entry: Entry, delay_s: float) -> None:
        delay_s = max(delay_s, self._pending.rest_s(entry))
        self._planner.actions.append(ReadPod(pod=target_of(entry.pod), attempt=entry.attempt, delay_s=delay_s))

    def mistrust(self, entry: Entry) -> None:
        """We are wrong about a pod: it is read, and what was sent for it is over when that is settled."""
        self._life.mistrust(entry)
        if self._sent.state(entry.pod.uid) is State.SENT:
            self._sent.hear(entry.pod.uid, News.LOST)
        self._read(entry, FIRST_REST_S)

    def _waiting_for(self, uid: PodUid, attempt: int, *states: State) -> Entry | None:
        """The entry that waits for this answer; None if it was settled otherwise, or the pod is gone."""
        entry = self._life.get(uid)
        if entry is None or entry.attempt != attempt or self._sent.state(uid) not in states:
            return None
        return entry

    # ------------------------------------------------------------------ what the pod is

    def seen(self, entry: Entry, pod: Pod) -> None:
        """The mirror shows, on no node, a pod of which something was sent: that counts once the outcome is known."""
        self._life.note(entry, pod)
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
        entry = self._life.get(uid)
        if entry is None or entry.stage is not Stage.SETTLING or entry.attempt != attempt:
            return  # the mirror has settled it meanwhile
        state = self._sent.state(uid)
        self._life.note(entry, pod)
        if state is None:
            self._release(entry)
        elif pod.resource_version != self._sent.version(uid):
            self._sent.hear(uid, News.PASSED)
            self._release(entry)
        elif state is State.UNKNOWN:
            self._sent.hear(uid, News.READ_OPEN)
            self._fence(entry, pod)
        else:
            self._unfenced(entry)  # the fence changed nothing

    def read_again(self, uid: PodUid, attempt: int) -> None:
        """What was read is older than what is known."""
        entry = self._life.get(uid)
        if entry is not None and entry.stage is Stage.SETTLING and entry.attempt == attempt:
            self._read(entry, FIRST_REST_S)

    def _fence(self, entry: Entry, pod: Pod) -> None:
        wait = entry.wait or Wait(Cause.SCHEDULER_ERROR, _NOT_SAID)
        self._planner.actions.append(
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
        entry = self._waiting_for(uid, attempt, State.FENCING)
        if entry is not None:
            self._planner.told(entry, Told(text=pod.scheduled_message, at_s=self._clock()))
            self.read(uid, attempt, pod)

    def not_fenced(self, uid: PodUid, attempt: int) -> None:
        """The condition was not written, or perhaps not: the pod is read again."""
        entry = self._waiting_for(uid, attempt, State.FENCING)
        if entry is not None:
            self._unfenced(entry)

    def _unfenced(self, entry: Entry) -> None:
        self._life.failed(entry)
        self._sent.hear(entry.pod.uid, News.LOST)
        self._read(entry, FIRST_REST_S)

    def _release(self, entry: Entry, *, rest_s: float = 0.0, wait: Wait | None = None) -> None:
        """Free what was promised for an attempt that is dead, and go on with the pod as it is now."""
        self._locks.withdraw(entry)
        self._planner.promises.take_back(entry)
        self._pending.settled(entry, rest_s=rest_s, wait=wait)
