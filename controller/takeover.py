"""What a standby keeps of the writes that are due, and what a new leader derives from its mirror.

A standby sees all that its leader sees and writes nothing. An event that it did not write is found again in the state
that called for it: so no edge is lost, and nothing is kept that is not true any more.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from controller.actions import Action, Announce, Clear, Lock, ReadOwner, ReadPod
from controller.deciding.lifecycle import Told
from controller.deciding.owner import Owner

# After so many, others may have their turn.
_SLICE: Final = 256
_KEPT_MAX: Final = 4096


class Kept:
    """Actions of a standby that its leader does, in case it stops before they are done.

    Done twice, they are done once: a lock is put right only where it is wrong, and what is cleared stays clear.
    """

    def __init__(self, given_up: Callable[[Clear], None]) -> None:
        """Begin with none; *given_up*: told of a clearing that there is no room for, so that it is asked for again."""
        self._given_up: Final = given_up
        self._actions: Final[OrderedDict[object, Action]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._actions)

    def keep(self, action: Action) -> Action | None:
        """Keep *action*, or let it go if state tells of it; itself if it only reads and is to be done now."""
        match action:
            case ReadPod() | ReadOwner():
                return action
            case Lock():
                self._actions[action.node, action.dialect] = action
            case Clear():
                self._actions[action.pod.uid] = action
            case _:
                return None
        if len(self._actions) > _KEPT_MAX:
            self._drop_oldest_clearing()
        return None

    def take(self) -> list[Action]:
        """All that is due now, oldest first."""
        actions = list(self._actions.values())
        self._actions.clear()
        return actions

    def _drop_oldest_clearing(self) -> None:
        for key, action in self._actions.items():
            if isinstance(action, Clear):
                del self._actions[key]
                self._given_up(action)
                return


def derive(owner: Owner, announcements: Iterable[Announce], now_s: float) -> Iterator[None]:
    """Have all written that is due by what the mirror shows now. Yields where others may have their turn."""
    owner.planner.actions.extend(announcements)
    for at, entry in enumerate(list(owner.life)):
        # What the leader before told stands in the pod; as it was when this process first saw it, it is old.
        if entry.pod.scheduled_message:
            before = entry.told
            if before is None or before.text != entry.pod.scheduled_message:
                owner.life.tell(entry, Told(text=entry.pod.scheduled_message, at_s=now_s))
        if at % _SLICE == 0:
            yield
    yield from owner.announce_anew()
