"""What a pod prefers of other pods, and how good nodes are by that, kept up by what changes.

These are preferred affinity to pods, and topology spread with ScheduleAnyway. Source: Kubernetes documentation,
"Assigning Pods to Nodes" and "Pod Topology Spread Constraints"; API reference, WeightedPodAffinityTerm.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from core.constraints.constraint import FULL, ChangeFollower, ChangeLog
from core.constraints.topology.peers import ANYWHERE, Evenly, Labels, Who, evenly, who_of
from core.constraints.topology.views import ByPresence, Counter, Domain, Spreading
from core.model import NodeConstraints, NodeFacts, NodeName, Pod
from core.settings import NodeWeights

# A node without the label of a spread constraint comes after all nodes with it.
_NOWHERE: Final = 1_000_000.0
# The number of changed nodes that are logged individually.
_LOG_MAX: Final = 1 << 14

Domains = Mapping[str, Mapping[str, Mapping[NodeName, None]]]


class PreferredNear(NamedTuple):
    """The pods that a pod prefers in its domain by *key*; with a negative weight, those that it avoids."""

    weight: int
    who: Who
    key: str


class Preferred:
    """All such preferences of one pod that have a weight; equal values share their counts. The hash is computed once.

    constraints: the pod's part that its spread constraints consider.
    """

    __slots__ = ("_hash", "constraints", "near", "spread")

    def __init__(
        self,
        *,
        near: tuple[PreferredNear, ...] = (),
        spread: tuple[Evenly, ...] = (),
        constraints: NodeConstraints = ANYWHERE,
    ) -> None:
        self.near: Final = near
        self.spread: Final = spread
        self.constraints: Final = constraints
        self._hash = hash((near, spread, constraints))

    @property
    def keys(self) -> tuple[str, ...]:
        """All labels that define domains, perhaps with repetitions."""
        return (*[one.key for one in self.near], *[one.key for one in self.spread])

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Preferred)
            and self._hash == other._hash
            and self.near == other.near
            and self.spread == other.spread
            and self.constraints == other.constraints
        )


def preferred_of(pod: Pod, weights: NodeWeights) -> Preferred | None:
    """Return the preferences of *pod* about other pods that have *weights*; None if there are none."""
    wishes = pod.wishes
    near = wishes.near if weights.pod_affinity else ()
    spread = tuple(evenly(pod, wishes.spread)) if weights.pod_topology_spread else ()
    if not (near or spread):
        return None
    return Preferred(
        near=tuple(
            [PreferredNear(weight, who_of(term, pod, in_doubt=False), term.topology_key) for weight, term in near]
        ),
        spread=spread,
        constraints=pod.constraints if spread else ANYWHERE,
    )


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


class Leaning(ChangeFollower):
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
