"""Room on nodes that is kept for one who waits, and who is not placed there: whoever comes after it."""

from dataclasses import dataclass

from controller.deciding.lifecycle import Entry
from controller.deciding.queue import Order
from core.groups import GroupKey, group_of
from core.model import NodeName, PodUid


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Nodes that are kept for the pod *uid*, which stands at *order*, or for all that wait of its group *key*."""

    uid: PodUid
    key: GroupKey | None
    order: Order
    nodes: frozenset[NodeName]

    def is_for(self, entry: Entry) -> bool:
        """Whether it is kept for *entry*, or its group."""
        return entry.pod.uid == self.uid or (self.key is not None and group_of(entry.pod) == self.key)

    def is_barred_to(self, entry: Entry | None) -> bool:
        """Whether *entry* is not placed there now; None: one who comes after all others."""
        return entry is None or not (self.is_for(entry) or entry.order < self.order)

    def is_barred_to_new(self, priority: int) -> bool:
        """Whether a pod of *priority* would not be placed there were it created now."""
        return -priority >= self.order[0]
