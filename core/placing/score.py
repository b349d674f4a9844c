"""Which of two nodes that both fit is better: a policy is a pure function of what was placed and of the node.

Scores are upstream's raw device scores times the configured weight, unrounded: upstream rounds before it weighs,
which makes nodes equal that are not. What the pod prefers of nodes, and of pods there, is added. Equal scores are
settled by the images that the pod needs and a node has (`core.constraints.images`), then by the node's used share (the
fullest node first under binpack, else the emptiest), then by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from core import names, nodefit
from core.constraints.topology.leaning import FULL
from core.constraints.topology.preferred import Preferred
from core.model import NodeName
from core.nodefit import NodeFacts
from core.placing.pack import NO_HOLE_VALUES, HoleValues
from core.settings import NodeWeights, Policy, Settings

# More than ties of one level can differ by: these are a million at most, of either sign.
_LEVEL: Final = 4_000_000


class Rank(NamedTuple):
    """How good a node is; the smallest is the best: score negated, then ties."""

    minus_score: float
    tie_ppm: int
    name: NodeName

    def at(self, level: int) -> "Rank":
        """The same of a node of *level* among those of the same score: it comes before all that are of a lower one."""
        return self._replace(tie_ppm=self.tie_ppm - level * _LEVEL) if level else self


@dataclass(frozen=True, slots=True)
class NodePolicy:
    """How nodes compare: the card policy, the weight of device scores (0: ties alone decide), other weights.

    tables: by what is lost on a node and a card, not by device scores; then the first of equal nodes by name is taken.
    """

    cards: Policy
    weight: int
    others: NodeWeights = field(default_factory=NodeWeights)
    tables: HoleValues | None = None

    def rank(self, score: float, tie_ppm: int, name: NodeName) -> Rank:
        """Where a node stands whose placement scored *score*."""
        return Rank(-score * self.weight, tie_ppm, name)

    def tie_ppm(self, used_ppm: int) -> int:
        """What settles equal scores, of a node whose cards are used to *used_ppm* millionths.

        One whose cards hold more than they have is as full as a full one.
        """
        if self.tables is not None:
            return 0
        full = min(used_ppm, 1_000_000)
        return -full if self.cards is Policy.BINPACK else full


def node_policy(settings: Settings) -> NodePolicy:
    """The policy that *settings* ask for; a weight below 0 counts as 0."""
    is_pack = settings.policy is Policy.PACK
    cards = Policy.BINPACK if is_pack else settings.policy
    tables = NO_HOLE_VALUES if is_pack else None
    return NodePolicy(cards, max(settings.schedule_weight, 0), settings.node_weights, tables)


def preferred_labels(weights: NodeWeights, preferred: Preferred, facts: NodeFacts) -> float:
    """How good a node is by its labels, for a pod that prefers some: see decision 0013.

    That is 100 times the fraction of the weights of preferred node affinity that it meets, times the weight of node
    affinity.
    """
    if not preferred.nodes:
        return 0.0
    met = sum([weight for weight, term in preferred.nodes if nodefit.is_any((term,), facts)])
    return weights.node_affinity * FULL * met / (sum([weight for weight, _ in preferred.nodes]) or 1)


def most_of_others(policy: NodePolicy, preferred: Preferred | None) -> float:
    """By how much a node may at most be better than its cards make it, for a pod that has *preferred*.

    What `resource_score`, `preferred_labels` and the pods there could add, rounded up; taints add nothing.
    """
    weights = policy.others
    of_resources = (weights.binpack, weights.least_requested, weights.most_requested, weights.balanced)
    most = sum([abs(one) for one in of_resources])
    if preferred is not None:
        most += abs(weights.node_affinity) + abs(weights.pod_affinity)
    return most * FULL * (1 + 1e-9)


def rounded(score: float) -> int:
    """A device score as upstream reports it: rounded half up to a whole number (nvidia.md 3.13)."""
    return int(score + 0.5)


def resource_score(
    weights: NodeWeights,
    wanted: tuple[tuple[str, int], ...],
    allocatable: Mapping[str, int],
    used: Mapping[str, int],
) -> float:
    """What a node's own resources add to its score, if *wanted* were placed there too.

    binpack: 100 x the weighted mean, over the resources asked for, of the share in use afterwards. least_requested
    and most_requested: the mean free or used share of cpu and memory, 0 to 100; balanced: 100 less 100 x half the
    difference of the two shares. Source: Volcano, plugins/binpack and plugins/nodeorder.
    """
    after = {name: used.get(name, 0) + amount for name, amount in wanted}
    score = 0.0
    if weights.binpack:
        counted = [(name, weight) for name, weight in weights.resources if weight > 0 and name in after]
        total = sum(weight for _, weight in counted)
        if total:
            shares = sum(weight * _share(after[name], allocatable.get(name, 0)) for name, weight in counted)
            score += weights.binpack * 100.0 * shares / total
    if weights.least_requested or weights.most_requested or weights.balanced:
        cpu, memory = (
            _share(after.get(name, used.get(name, 0)), allocatable.get(name, 0)) for name in (names.CPU, names.MEMORY)
        )
        mean = (cpu + memory) / 2
        score += weights.least_requested * 100.0 * (1 - mean) + weights.most_requested * 100.0 * mean
        score += weights.balanced * 100.0 * (1 - abs(cpu - memory) / 2)
    return score


def _share(used: int, total: int) -> float:
    return min(used / total, 1.0) if total > 0 else 0.0
