"""How good nodes are for one `Preferred` because of other pods, kept up by what changes."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from core.change_log import ChangeLog
from core.constraints.topology.peers import Labels, Who
from core.constraints.topology.preferred import Preferred
from core.constraints.topology.views import ByPresence, Counter, Domain, Spreading
from core.constraints.views import Follower
from core.model import NodeName
from core.nodefit import NodeFacts
from core.settings import NodeWeights

# The points of a node that meets all preferences of one kind.
FULL: Final = 100.0
# A node without the label of a spread constraint comes after all nodes with it.
_NOWHERE: Final = 1_000_000.0
# The number of changed nodes that are logged individually.
_LOG_MAX: Final = 1 << 14

Domains = Mapping[str, Mapping[str, Mapping[NodeName, None]]]


class _Beside(ByPresence):
    """Whether the node's domain has such a pod."""

    def holds(self, labels: Labels) -> bool:
        """Return whether it does."""
        (key,) = self.keys
        return key in labels and (key, labels[key]) in self.by_domain


class _Crowd(Spreading):
    """How many such pods the node's domain has, in multiples of `maxSkew`."""

    def changed(self) -> Iterable[Domain]:
        return self.changed_domains()

    def skew(self, labels: Labels) -> float:
        """Return the pods of the node's domain divided by `maxSkew`."""
        value = labels.get(self.asked.key)
        return _NOWHERE if value is None else self.pods(value) / max(self.asked.max_skew, 1)


class Leaning(Follower):
    """How pods with one `Preferred` rate all nodes; log: nodes that became better or worse."""

    __slots__ = ("_near", "_spread", "_total", "log", "parts")

    def __init__(self, preferred: Preferred, counter_of: Callable[[Who, bool], Counter]) -> None:
        """Begin empty; *counter_of*: counts pods; if True, without those that are being deleted."""
        super().__init__()
        self._near: Final = [(one.weight, _Beside(counter_of(one.who, False), (one.key,))) for one in preferred.near]
        keys = tuple(dict.fromkeys([one.key for one in preferred.spread]))
        constraints = preferred.constraints
        self._spread: Final = [_Crowd(counter_of(one.who, True), one, keys, constraints) for one in preferred.spread]
        self._total: Final = sum([abs(weight) for weight, _ in self._near]) or 1
        self.parts: Final[tuple[_Beside | _Crowd, ...]] = (*[part for _, part in self._near], *self._spread)
        self.log: Final = ChangeLog(_LOG_MAX)

    @property
    def standing(self) -> int:
        """The number of nodes in all of its parts."""
        return sum([part.standing for part in self.parts])

    def refresh(self, facts: Mapping[NodeName, NodeFacts], domains: Domains) -> None:
        """Apply the changes on dirty nodes."""
        dirty, self.dirty = self.dirty, {}
        changed = dict(dirty)
        for part in self.parts:
            for name in dirty:
                part.take(name, facts.get(name))
            for key, value in part.changed() or ():
                changed.update(domains[key].get(value, {}))
        self.log.extend(changed)

    def points(self, weights: NodeWeights, labels: Labels) -> float:
        """Return how good a node with *labels* is.

        That is 100 times the fraction of the weights of affinity that it meets, less 100 for each `maxSkew` of pods in
        its domain.
        """
        found = 0.0
        if self._near:
            held = sum([weight for weight, part in self._near if part.holds(labels)])
            found += weights.pod_affinity * FULL * held / self._total
        for part in self._spread:
            found -= weights.pod_topology_spread * FULL * part.skew(labels)
        return found
