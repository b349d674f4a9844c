"""How many pods of one shape a node takes, remembered until the node changes.

This holds for pods that mind no other pods, and that no setting prefers to serve in one of several ways: then no other
node matters.
"""

from collections.abc import Iterable, Set
from typing import Final

from core.ledger import Ledger
from core.model import NodeName, Pod, PodUid
from core.placing.decide import placed_on, preferred_shapes
from core.placing.score import NodePolicy
from core.placing.shape import Shape

# Least recently used shapes are forgotten beyond this number; each has an entry for every node that was counted.
_SHAPES_MAX: Final = 16


class Rooms:
    """Counts of one ledger under one policy; make a new one when the policy changes."""

    def __init__(self, ledger: Ledger, policy: NodePolicy) -> None:
        self._ledger: Final = ledger
        self._policy: Final = policy
        # shape -> node -> (version of its state, up to how many were counted, how many it takes)
        self._known: Final[dict[Shape, dict[NodeName, tuple[int, int, int]]]] = {}

    def counts(self, shape: Shape, pods: Iterable[Pod]) -> bool:
        """Return whether the counts of *shape* say how many of *pods* fit on several nodes together."""
        if shape.asked.pods or preferred_shapes(self._ledger, shape):
            return False
        return all(self._ledger.constraints.is_current(pod, ()) for pod in pods)

    def on(self, shape: Shape, nodes: Set[NodeName], most: int) -> int:
        """Return how many pods of *shape*, up to *most* on each node, fit on *nodes* now."""
        known = self._known.pop(shape, {})
        while len(self._known) >= _SHAPES_MAX:
            del self._known[next(iter(self._known))]
        self._known[shape] = known
        states, found = self._ledger.states, 0
        for name in nodes:
            state = states.get(name)
            if state is None:
                continue
            one = known.get(name)
            if one is None or one[0] != state.version or one[1] < most:
                many = room_on(self._ledger, self._policy, shape, name, most)
                one = known[name] = state.version, most, many
            found += min(one[2], most)
        return found


def room_on(ledger: Ledger, policy: NodePolicy, shape: Shape, name: NodeName, most: int) -> int:
    """Return how many pods of *shape*, up to *most*, node *name* takes now, one after the other."""
    with ledger.trial():
        for count in range(most):
            placement = placed_on(ledger, policy, _probe(count), shape, name)
            if placement is None:
                return count
            ledger.reserve(placement)
    return most


def _probe(number: int) -> Pod:
    return Pod(uid=PodUid(f"probe-{number}"), namespace="", name="probe")
