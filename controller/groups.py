"""What is known of PodGroups: whether a pod of a group may be placed alone. They are read on demand, not watched."""

from typing import Final

from controller import plan
from core.model import PodUid
from core.waiting import Wait

Key = tuple[str, str]

# So long a group is believed to be what it was; a pod that waits for one asks again after twice that.
BELIEVED_S: Final = 15.0
_KNOWN_MAX: Final = 4096


class Groups:
    """Groups by (namespace, name), and the pods that wait to hear of one."""

    def __init__(self) -> None:
        # Why the group's pods wait (None = they may be placed alone), and until when that is believed.
        self._known: dict[Key, tuple[Wait | None, float]] = {}
        self._asking: dict[Key, dict[PodUid, None]] = {}

    def is_known(self, key: Key, now_s: float) -> bool:
        """Whether it is known if pods of group *key* may be placed alone."""
        known = self._known.get(key)
        return known is not None and known[1] > now_s

    def wait(self, key: Key) -> Wait | None:
        """Why pods of group *key*, which is known, wait; None if they may be placed alone."""
        return self._known[key][0]

    def ask(self, key: Key, uid: PodUid) -> bool:
        """Note that *uid* wants to hear of *key*; whether that is to be read now."""
        waiting = self._asking.setdefault(key, {})
        first = not waiting
        waiting[uid] = None
        return first

    def take(self, key: Key, min_member: int | None, problem: str, now_s: float) -> list[PodUid]:
        """Take what was read; who wants to hear of it. Arguments as of `plan.group_wait`."""
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[key] = (plan.group_wait("/".join(key), min_member, problem), now_s + BELIEVED_S)
        return list(self._asking.pop(key, {}))
