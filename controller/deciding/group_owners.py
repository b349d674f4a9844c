"""How many pods their owners want placed together, for pods that name no group.

Volcano's PodGroup controller makes the group by an annotation of the owner (groups 3). If it is late, the owner is read
here, so that none of these pods is placed alone. An answer holds for a while; what is older is forgotten.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from controller.actions import Action, ReadOwner
from core.model import Pod
from kube.calls import OWNERS

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
