"""Room that is being made for pods: nodes where others were asked to leave, and who may not go there meanwhile.

Who comes before the one that the room is made for, in the order of pods, may go there all the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from controller.actions import Target, target_of
from controller.deciding.lifecycle import UNSETTLED, Entry
from controller.deciding.queue import Order
from core.groups import GroupKey, group_of
from core.model import NodeName, PodUid

_NOWHERE: Final = frozenset[NodeName]()


@dataclass(slots=True, kw_only=True)
class Nomination:
    """Nodes on which room is made for the pod *uid*, or for those that wait of its group *key*.

    victims: who was asked to leave. nominated: the pods of which their status says so. until_s: when it ends at the
    latest; quiet_s: since when nobody there is leaving, both monotonic. asking: not all were asked to leave yet.
    """

    uid: PodUid
    key: GroupKey | None
    order: Order
    nodes: frozenset[NodeName]
    victims: tuple[PodUid, ...]
    nominated: tuple[Target, ...]
    until_s: float
    quiet_s: float
    asking: bool

    def is_for(self, entry: Entry) -> bool:
        """Whether the room is made for *entry*, or its group."""
        return entry.pod.uid == self.uid or (self.key is not None and group_of(entry.pod) == self.key)


class Nominations:
    """All room that is being made."""

    def __init__(self) -> None:
        self._nominations: Final[dict[PodUid, Nomination]] = {}

    def __len__(self) -> int:
        return len(self._nominations)

    def __iter__(self) -> Iterator[Nomination]:
        return iter(tuple(self._nominations.values()))

    def get(self, uid: PodUid) -> Nomination | None:
        """The room that is made for the pod *uid*, or that it asked for in the name of its group."""
        return self._nominations.get(uid)

    def put(self, nomination: Nomination) -> None:
        """From now on room is made."""
        self._nominations[nomination.uid] = nomination

    def drop(self, nomination: Nomination) -> None:
        """No room is made any more."""
        self._nominations.pop(nomination.uid, None)

    def of(self, entry: Entry) -> Nomination | None:
        """The room that is made for *entry*, or its group."""
        if not self._nominations:
            return None
        return self._nominations.get(entry.pod.uid) or next((one for one in self if one.is_for(entry)), None)

    def barred(self, entry: Entry | None) -> frozenset[NodeName]:
        """The nodes that *entry* is not placed on now, because room is made there for another; of None all of them."""
        if not self._nominations:
            return _NOWHERE
        kept = (one.nodes for one in self if entry is None or not (one.is_for(entry) or entry.order < one.order))
        return _NOWHERE.union(*kept)

    def barred_to_new(self, priority: int) -> frozenset[NodeName]:
        """The nodes that a pod of *priority* would not be placed on were it created now."""
        return _NOWHERE.union(*(one.nodes for one in self if -priority >= one.order[0]))

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
                quiet_s=now_s,
                asking=False,
            )
        )
