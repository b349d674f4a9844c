"""The writes that a standby remembers, and those that a new leader derives from its mirror.

A standby sees all that its leader sees and writes nothing. If an event was not written, the state that called for it
still shows it. So no change is lost, and nothing outdated is kept.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from controller.actions import Action, Announce, Clear, Lock, ReadOwner, ReadPod
from controller.deciding.lifecycle import Told
from controller.deciding.scheduler import Scheduler

# The number of pods after which other tasks run.
_SLICE: Final = 256
_KEPT_MAX: Final = 4096


class Kept:
    """Actions that the leader performs, remembered by a standby in case the leader stops before they are done.

    The actions are idempotent: a lock is repaired only if it is wrong, and cleared annotations stay cleared.
    """

    def __init__(self, given_up: Callable[[Clear], None]) -> None:
        """Begin with none; *given_up*: called for a clearing without space, so that it is requested again."""
        self._given_up: Final = given_up
        self._actions: Final[OrderedDict[object, Action]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._actions)

    def keep(self, action: Action) -> Action | None:
        """Remember *action*, or drop it if the state shows the need for it; return it if it only reads."""
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
        """Return and remove all remembered actions, oldest first."""
        actions = list(self._actions.values())
        self._actions.clear()
        return actions

    def _drop_oldest_clearing(self) -> None:
        for key, action in self._actions.items():
            if isinstance(action, Clear):
                del self._actions[key]
                self._given_up(action)
                return


def derive(scheduler: Scheduler, announcements: Iterable[Announce], now_s: float) -> Iterator[None]:
    """Start all writes that the mirror shows to be due. Yields so that other tasks can run."""
    scheduler.cluster.actions.extend(announcements)
    for at, entry in enumerate(list(scheduler.cluster.queue)):
        # The previous leader's message is in the pod; it is as old as this process's first sight of it.
        if entry.pod.scheduled_message:
            before = entry.told
            if before is None or before.text != entry.pod.scheduled_message:
                scheduler.cluster.queue.tell(entry, Told(text=entry.pod.scheduled_message, at_s=now_s))
        if at % _SLICE == 0:
            yield
    yield from scheduler.announce_anew()
