"""Room that is being made for pods, on nodes where others were asked to leave."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Final

from controller.actions import Target, target_of
from controller.deciding.lifecycle import UNSETTLED, Entry
from controller.deciding.room import Room
from core.groups import GroupKey, group_of
from core.model import NodeName, PodUid


@dataclass(frozen=True, slots=True, kw_only=True)
class Nomination(Room):
    """Nodes on which room is made.

    victims: who was asked to leave. nominated: the pods of which their status says so. until_s: when it ends at the
    latest; quiet_s: since when nobody there is leaving, both monotonic. asking: not all were asked to leave yet. whose:
    which pods *victims* are, in words.
    """

    victims: tuple[PodUid, ...]
    nominated: tuple[Target, ...]
    until_s: float
    asking: bool
    quiet_s: float = inf
    whose: str = "of a lower priority"


class Nominations:
    """All room that is being made."""

    def __init__(self) -> None:
        self._nominations: Final[dict[PodUid, Nomination]] = {}
        # The pods in whose names room is made for their groups.
        self._by_group: Final[dict[GroupKey, PodUid]] = {}

    def __len__(self) -> int:
        return len(self._nominations)

    def __iter__(self) -> Iterator[Nomination]:
        return iter(tuple(self._nominations.values()))

    def get(self, uid: PodUid) -> Nomination | None:
        """The room that is made for the pod *uid*, or that it asked for in the name of its group."""
        return self._nominations.get(uid)

    def put(self, nomination: Nomination) -> None:
        """From now on room is made so."""
        self._nominations[nomination.uid] = nomination
        if nomination.key is not None:
            self._by_group[nomination.key] = nomination.uid

    def drop(self, nomination: Nomination) -> None:
        """No room is made any more."""
        self._nominations.pop(nomination.uid, None)
        if nomination.key is not None:
            self._by_group.pop(nomination.key, None)

    def of(self, entry: Entry) -> Nomination | None:
        """The room that is made for *entry*, or its group."""
        found = self._nominations.get(entry.pod.uid)
        if found is not None or not self._by_group:
            return found
        key = group_of(entry.pod)
        uid = self._by_group.get(key) if key is not None else None
        return self._nominations[uid] if uid is not None else None

    def restore(self, entry: Entry, now_s: float, wait_s: float) -> None:
        """Go on keeping the room of which the pod's own status says that it is being made."""
        pod = entry.pod
        if entry.placement is not None or entry.stage in UNSETTLED or self.of(entry) is not None:
            return
        self.put(
            Nomination(
                uid=pod.uid,
                key=None,
                order=entry.order,
                nodes=frozenset({NodeName(pod.nominated_node)}),
                victims=(),
                nominated=(target_of(pod),),
                until_s=now_s + wait_s,
                asking=False,
            )
        )
