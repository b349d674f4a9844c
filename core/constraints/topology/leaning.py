"""How good nodes are for one `Preferred`, as far as other pods decide it, kept up by what changes."""

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

# What a pod gets of a node that all of one kind of preference speaks for.
FULL: Final = 100.0
# A node without the label by which pods are spread comes after all that have it.
_NOWHERE: Final = 1_000_000.0
# Of so many changed nodes it is told which they were.
_LOG_MAX: Final = 1 << 14

Domains = Mapping[str, Mapping[str, Mapping[NodeName, None]]]


class _Beside(ByPresence):
    """Whether somebody of some pods is in the node's domain."""

    def holds(self, labels: Labels) -> bool:
        """Whether somebody is."""
        (key,) = self.keys
        return key in labels and (key, labels[key]) in self.by_domain


class _Crowd(Spreading):
    """How many of some pods are in the node's domain, of as many as make the skew that is to be kept to."""

    def changed(self) -> Iterable[Domain]:
        return self.changed_domains()

    def skew(self, labels: Labels) -> float:
        """The pods of the node's domain, by the skew."""
        value = labels.get(self.asked.key)
        return _NOWHERE if value is None else self.pods(value) / max(self.asked.max_skew, 1)


class Leaning(Follower):
    """What one `Preferred` makes of all nodes; log: those that have come to be better or worse."""

    __slots__ = ("_near", "_spread", "_total", "log", "parts")

    def __init__(self, preferred: Preferred, counter_of: Callable[[Who, bool], Counter]) -> None:
        """Begin with nothing; *counter_of*: counts pods, if True without those that are being deleted."""
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
        """How many nodes stand in it, once for each of its parts."""
        return sum([part.standing for part in self.parts])

    def refresh(self, facts: Mapping[NodeName, NodeFacts], domains: Domains) -> None:
        """Take in what changed on the nodes that are dirty."""
        dirty, self.dirty = self.dirty, {}
        changed = dict(dirty)
        for part in self.parts:
            for name in dirty:
                part.take(name, facts.get(name))
            for key, value in part.changed() or ():
                changed.update(domains[key].get(value, {}))
        self.log.extend(changed)

    def points(self, weights: NodeWeights, labels: Labels) -> float:
        """How good a node with *labels* is: of affinity to pods the part of the weights that speaks for it, of 100.

        From that 100 is taken for each `maxSkew` of pods in its domain.
        """
        found = 0.0
        if self._near:
            held = sum([weight for weight, part in self._near if part.holds(labels)])
            found += weights.pod_affinity * FULL * held / self._total
        for part in self._spread:
            found -= weights.pod_topology_spread * FULL * part.skew(labels)
        return found
