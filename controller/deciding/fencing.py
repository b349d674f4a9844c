"""Fences off what earlier leaders sent: moves every pod that one of them may have bound before anybody else gets room.

A Binding names the version of the pod that it was decided from, and the API server writes it in that version only, at
whatever time it arrives. So a pod that was waiting when this leader began, and is in the same version still, may be
bound by an earlier leader at any moment; once it is in another version it never is. Whoever began to wait later is
unknown to earlier leaders, which send nothing any more. The first pod that is to get room has them all moved, by a
write of their conditions that names their version, and goes once that is done. A write that fails, or of which the
outcome is not known, is tried again: what the pod is then, its answer or the mirror says.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import Final

from controller.actions import Action, Move, target_of
from core.model import Pod, PodUid
from core.waiting import Cause, Wait

# At a time. It takes less than Bindings, and ends sooner.
_AT_ONCE: Final = 64
# A condition tells seconds: what was written in the same one changes nothing.
_FIRST_REST_S: Final = 1.0
_LAST_REST_S: Final = 15.0

# Of a pod that nobody has told yet why it waits.
UNTOLD: Final = Wait(
    Cause.WAITING_FOR_DECISION,
    "will be decided by the current leader; no earlier request can bind it any more",
)


@dataclass(slots=True)
class _Unmoved:
    pod: Pod
    tries: int = 0


class Fencing:
    """The waiting pods that an earlier leader may have sent a Binding of; a chore, which tries again."""

    def __init__(self, actions: deque[Action]) -> None:
        """Begin with none; *actions*: what is to be done outside."""
        self._actions: Final = actions
        self._unmoved: Final[dict[PodUid, _Unmoved]] = {}
        self._to_move: Final[deque[PodUid]] = deque()
        self._under_way: Final[set[PodUid]] = set()
        self._resting: Final[list[tuple[float, PodUid]]] = []
        self._is_wanted = False

    def __len__(self) -> int:
        return len(self._unmoved)

    def begin(self, waiting: Iterable[Pod]) -> None:
        """This process leads from now on; *waiting*: the pods that an earlier leader may have wanted to bind."""
        for pod in waiting:
            self._unmoved[pod.uid] = _Unmoved(pod)
            self._to_move.append(pod.uid)

    @property
    def is_under_way(self) -> bool:
        """Whether pods are being moved, so that nobody gets room."""
        return self._is_wanted and bool(self._unmoved)

    def want(self) -> bool:
        """Somebody is to get room: have all moved; whether none is left to be."""
        if not self._unmoved:
            return True
        self._is_wanted = True
        self._send()
        return False

    # ------------------------------------------------------------------ what becomes of pods

    def seen(self, uid: PodUid, version: str) -> None:
        """The pod is in *version* now, or is bound in it."""
        found = self._unmoved.get(uid)
        if found is not None and found.pod.resource_version != version:
            self.gone(uid)

    def gone(self, uid: PodUid) -> None:
        """The pod does not exist any more, or cannot be bound in the version that it was in."""
        self._unmoved.pop(uid, None)
        self._end(uid)

    def failed(self, uid: PodUid, now_s: float) -> None:
        """The pod's condition was not written, or perhaps not, or it says what it said before."""
        found = self._unmoved.get(uid)
        if found is not None:
            rest_s = min(_FIRST_REST_S * 2.0 ** min(found.tries, 10), _LAST_REST_S)
            found.tries += 1
            heappush(self._resting, (now_s + rest_s, uid))
        self._end(uid)

    def _end(self, uid: PodUid) -> None:
        self._under_way.discard(uid)
        if self._is_wanted:
            self._send()

    def _send(self) -> None:
        while self._to_move and len(self._under_way) < _AT_ONCE:
            uid = self._to_move.popleft()
            found = self._unmoved.get(uid)
            if found is not None:
                self._under_way.add(uid)
                pod = found.pod
                wait = None if pod.scheduled_message else UNTOLD
                self._actions.append(Move(pod=target_of(pod), version=pod.resource_version, wait=wait))

    # ------------------------------------------------------------------ time

    def next_s(self) -> float:
        """When the next one is tried again, monotonic."""
        return self._resting[0][0] if self._resting else inf

    def look(self, now_s: float) -> None:
        """Try again what is due."""
        while self._resting and self._resting[0][0] <= now_s:
            self._to_move.append(heappop(self._resting)[1])
        self._send()
