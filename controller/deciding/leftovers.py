"""Room that evictions for one pod leave over: a pod that fits there needs no evictions of its own."""

from collections.abc import Iterable, Set
from typing import Final

from controller.deciding.asks import Ask
from controller.deciding.lifecycle import Entry
from controller.deciding.nominations import Nomination
from controller.deciding.occupants import Occupants
from controller.deciding.planner import Planner
from core.ledger import Ledger, Placement
from core.model import NodeName, Pod, PodUid
from core.placing.decide import placed_on
from core.placing.shape import Shape

# So many nodes are looked at for one pod at most, because nothing else is decided meanwhile.
_LOOKED_AT_MAX: Final = 32
# Of more pods it is not remembered that they waited in vain.
_VAIN_MAX: Final = 4096


class Leftovers:
    """Finds room for single pods on nodes that are being cleared for pods before them."""

    def __init__(self, planner: Planner, occupants: Occupants) -> None:
        """Begin with nothing known."""
        self._planner: Final = planner
        self._occupants: Final = occupants
        # Where pods of a shape do not fit beside those for whom others leave.
        self._full: Final[set[tuple[Shape, NodeName]]] = set()
        self._vain: Final[set[PodUid]] = set()

    def place(self, ask: Ask, entry: Entry, closed: Set[NodeName]) -> Placement | None:
        """Return where *entry*, which asks *ask*, fits once all have left and been placed; not on *closed* nodes."""
        barring = self._planner.barring
        if not isinstance(ask, Shape) or entry.pod.uid in self._vain:
            return None
        rooms: dict[NodeName, list[Nomination]] = {}
        for one in barring.nominations:
            for name in one.nodes:
                rooms.setdefault(name, []).append(one)
        kept, fork = barring.keeping_free.kept, None
        out = closed | kept.nodes if kept is not None and kept.is_barred_to(entry) else closed
        unknown = [name for name in rooms if name not in out and (ask, name) not in self._full]
        for name in unknown[:_LOOKED_AT_MAX]:
            those = rooms[name]
            # Where more than one node is cleared, it is open which of the pods goes where.
            if not all(len(one.nodes) == 1 and one.is_barred_to(entry) for one in those):
                continue
            fork = fork or self._planner.ledger.fork()
            placement = self._beside(fork, name, those, entry.pod, ask)
            if placement is not None:
                return placement
            self._full.add((ask, name))
        return None

    def forget(self, nodes: Set[NodeName]) -> None:
        """Forget what is known of *nodes*, because a nomination on them ended."""
        self._full.difference_update([one for one in self._full if one[1] in nodes])

    def in_vain(self, uid: PodUid) -> None:
        """Find no room any more for a pod that waited for what was left in vain: others may have to leave for it."""
        if len(self._vain) >= _VAIN_MAX:
            self._vain.clear()
        self._vain.add(uid)

    def _beside(
        self, ledger: Ledger, name: NodeName, those: Iterable[Nomination], pod: Pod, shape: Shape
    ) -> Placement | None:
        if name not in ledger.states:
            return None
        with ledger.trial():
            victims = {uid for one in those for uid in one.victims}
            for uid in tuple(ledger.holders(name)):
                if uid in victims or self._occupants.is_leaving(uid):
                    ledger.release(uid)
            for target in (target for one in those for target in one.nominated):
                other = self._planner.life.get(target.uid)
                if other is None or other.placement is not None:
                    continue
                placement = self._fits(ledger, name, other.pod, other.shape) if other.shape is not None else None
                if placement is None:
                    return None
                ledger.reserve(placement)
            return self._fits(ledger, name, pod, shape)

    def _fits(self, ledger: Ledger, name: NodeName, pod: Pod, shape: Shape) -> Placement | None:
        if not ledger.topology.is_current(pod, shape.peers):
            shape = shape.beside(ledger.topology.peers_of(pod))
        return placed_on(ledger, self._planner.search.policy, pod, shape, name)
