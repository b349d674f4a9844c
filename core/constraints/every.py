"""All constraints of a ledger: `every` lists them, `Constraints` asks those that concern a pod."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, Final

from core.constraints.constraint import AskedConstraints, ChangeLog, Constraint, Obstacle, ReadScope, Signatures, View
from core.constraints.features import FEATURES
from core.constraints.node_affinity import NODE_AFFINITY
from core.constraints.ports import PORTS
from core.constraints.taints import TAINTS
from core.constraints.topology.counting import Topology, peers_constraint
from core.constraints.volumes import Volumes, reach_of_volumes, uses_of_volumes
from core.model import NodeName, Pod, PodUid
from core.nodefit import NodeFacts
from core.settings import NodeWeights
from core.waiting import Wait

# What the pods of a node hold, by the name of the constraint.
Held = Mapping[str, Any]
NOTHING_HELD: Final[Held] = {}
_NOTHING: Final[Mapping[str, Hashable]] = {}


# For each constraint, the signatures for which a node has opened; None: perhaps for all.
Freed = Mapping[str, Set[Hashable] | None]


def every(topology: Topology, volumes: Volumes) -> tuple[Constraint, ...]:
    """Return all constraints of a ledger, in the order in which obstacles are reported.

    topology, volumes: the pods of that ledger by their places, and by the volumes that they use.
    """
    return (
        TAINTS,
        NODE_AFFINITY,
        reach_of_volumes(volumes),
        FEATURES,
        PORTS,
        peers_constraint(topology),
        uses_of_volumes(volumes),
    )


class Constraints:
    """The constraints of one ledger; each function asks those by which the pod asks something."""

    def __init__(self, found: Iterable[Constraint]) -> None:
        found = tuple(found)
        self._by_name: Final = {one.name: one for one in found}
        self._of_node: Final = [one for one in found if one.reads is ReadScope.NODE]
        self._of_use: Final = [one for one in found if one.reads is ReadScope.USE]
        self._of_pods: Final = [one for one in found if one.reads is ReadScope.PODS]
        self._trackers: Final = [(one, one.tracker) for one in found if one.tracker is not None]
        self._tracker_of: Final = {one.name: tracker for one, tracker in self._trackers}
        # The fields by which a pod is asked, as a pod with their defaults has them.
        plain = Pod(uid=PodUid(""), namespace="", name="")
        self._unstated: Final = {one.name: one.stated(plain) for one in found if one.stated is not None}
        # The constraints by which pods asked something that other pods change.
        self._followed: Final[set[str]] = set()
        # What each decision asks is looked up once.
        self._filters: Final = {one.name: one.filter for one in found}
        self._scores: Final = {one.name: one.score for one in found if one.score is not None}
        self._prefers: Final = [(one, one.prefers) for one in found if one.prefers is not None]
        self._rates: Final = {one.name: one.rate for one in found if one.rate is not None}
        self._mosts: Final = {one.name: one.most for one in found if one.most is not None}
        self._rated: Final = {one.name: one.rated for one in found if one.rated is not None}
        self._drop: Final = [tracker.drop for _, tracker in self._trackers]
        self._together: Final = [one.together for one in found if one.together is not None]
        self._woken_by: Final = [(one, one.woken_by) for one in found if one.woken_by is not None]

    def asked_by(self, pod: Pod, weights: NodeWeights) -> AskedConstraints | Wait:
        """Return what *pod* asks, and prefers by *weights*; or why no node takes it, whatever is free."""
        node: list[tuple[str, Any]] = []
        for one in self._of_node:
            asked = one.signature(pod) if self._concerns(one, pod) else None
            if isinstance(asked, Wait):
                return asked
            if asked is not None:
                node.append((one.name, asked))
        preferred = [
            (one.name, found)
            for one, prefers in self._prefers
            if self._concerns(one, pod) and (found := prefers(pod, weights)) is not None
        ]
        return AskedConstraints(tuple(node), self.uses_of(pod), self.pods_of(pod), tuple(preferred))

    def uses_of(self, pod: Pod) -> Signatures:
        """Return what *pod* asks, and holds of its node once it is there, by constraints that read use."""
        return self._signatures(self._of_use, pod)

    def pods_of(self, pod: Pod) -> Signatures:
        """Return what *pod* asks now by constraints that read pods; this changes as other pods come and go."""
        found = self._signatures(self._of_pods, pod)
        self._followed.update([name for name, _ in found])
        return found

    def _signatures(self, constraints: Iterable[Constraint], pod: Pod) -> Signatures:
        found = []
        for one in constraints:
            asked = one.signature(pod) if self._concerns(one, pod) else None
            if asked is not None:
                found.append((one.name, asked))
        return tuple(found)

    def _concerns(self, one: Constraint, pod: Pod) -> bool:
        """Return whether *pod* states anything by which the constraint could concern it."""
        return one.stated is None or one.stated(pod) != self._unstated[one.name]

    def is_current(self, pod: Pod, asked: Signatures) -> bool:
        """Return whether `pods_of` *pod* is still *asked*, as far as other pods change it."""
        known = dict(asked) if asked else _NOTHING
        for one, tracker in self._trackers:
            if self._concerns(one, pod) and not tracker.is_current(pod, known.get(one.name)):
                return False
        return True

    def woken_by(self, pod: Pod) -> list[tuple[str, str]]:
        """Return (kind, name) of objects besides nodes and pods; once one changes, *pod* must be read again."""
        return [found for one, woken_by in self._woken_by if self._concerns(one, pod) for found in woken_by(pod)]

    def together(self, pods: Sequence[Pod]) -> Wait | None:
        """Return why *pods* cannot be placed together, whatever is free; None if they can."""
        waits = (one(pods) for one in self._together)
        return next((wait for wait in waits if wait is not None), None)

    # ------------------------------------------------------------------ one node

    def admits(self, asked: AskedConstraints, facts: NodeFacts) -> bool:
        """Return whether the node takes such pods, whatever its pods hold."""
        for name, one in asked.node:  # noqa: SIM110  a generator costs twice as much here
            if not self._filters[name](one, facts, None):
                return False
        return True

    def fits(self, asked: AskedConstraints, facts: NodeFacts, held: Held) -> bool:
        """Return whether the node takes such pods beside those that it has, which hold *held*."""
        for name, one in asked.use:  # noqa: SIM110  a generator costs twice as much here
            if not self._filters[name](one, facts, held.get(name)):
                return False
        return True

    def score(self, asked: AskedConstraints, facts: NodeFacts, weights: NodeWeights) -> float:
        """Return how much such pods avoid the node by its labels and taints; never above 0."""
        found = 0.0
        for name, one in asked.node:
            if name in self._scores:
                found += self._scores[name](one, facts, weights)
        return found

    def rate(self, preferred: Signatures, facts: NodeFacts, weights: NodeWeights) -> float:
        """Return how good the node is for pods that prefer that."""
        found = 0.0
        for name, one in preferred:
            found += self._rates[name](one, facts, weights)
        return found

    def most(self, preferred: Signatures, weights: NodeWeights) -> float:
        """Return what `rate` never exceeds."""
        found = 0.0
        for name, one in preferred:
            found += self._mosts[name](one, weights)
        return found

    def rated(self, preferred: Signatures) -> list[ChangeLog]:
        """Return the logs of nodes whose rate changed because of pods."""
        return [self._rated[name](one) for name, one in preferred if name in self._rated]

    # ------------------------------------------------------------------ why not

    def bars(self, asked: AskedConstraints, facts: NodeFacts) -> Iterator[Obstacle]:
        """Yield why the node does not take such pods, whatever its pods hold."""
        for name, one in (*asked.node, *asked.pods):
            yield from self._by_name[name].explain(one, facts, None)

    def conflicts(self, asked: AskedConstraints, facts: NodeFacts, held: Held) -> Iterator[Obstacle]:
        """Yield why the node does not take such pods beside those that it has, which hold *held*."""
        for name, one in asked.use:
            yield from self._by_name[name].explain(one, facts, held.get(name))

    # ------------------------------------------------------------------ pods elsewhere

    def put(self, pod: Pod, node: NodeName) -> None:
        """*pod* is on *node*, whether or not that exists."""
        for one, tracker in self._trackers:
            if self._concerns(one, pod):
                tracker.put(pod, node)
            else:
                # It may have stated something before.
                tracker.drop(pod.uid)

    def drop(self, uid: PodUid) -> None:
        """A pod is on no node."""
        for drop in self._drop:
            drop(uid)

    def seats(self, uid: PodUid) -> tuple[Any, ...]:
        """Return where a pod is, for `restore`."""
        return tuple([tracker.seat(uid) for _, tracker in self._trackers])

    def restore(self, uid: PodUid, seats: tuple[Any, ...]) -> None:
        """Put a pod back to where it was when `seats` was called; (): it was on no node."""
        if not seats:
            self.drop(uid)
        for at, seat in enumerate(seats):
            self._trackers[at][1].restore(uid, seat)

    def set_node(self, facts: NodeFacts) -> None:
        """A node was added or changed."""
        for _, tracker in self._trackers:
            tracker.set_node(facts)

    def remove_node(self, name: NodeName) -> None:
        """A node was removed."""
        for _, tracker in self._trackers:
            tracker.remove_node(name)

    def views(self, asked: AskedConstraints) -> list[View]:
        """Return the nodes that refuse such pods because of other pods, once for each constraint."""
        return [self._tracker_of[name].view(one) for name, one in asked.pods]

    def blocks(self, asked: Signatures, facts: NodeFacts, leaving_out: PodUid | None = None) -> bool:
        """Return whether other pods keep pods off the node; *leaving_out*: as if that pod were on no node."""
        if not asked:
            return False
        seats = self.seats(leaving_out) if leaving_out is not None else ()
        if leaving_out is not None:
            self.drop(leaving_out)
        try:
            return any(not self._filters[name](one, facts, None) for name, one in asked)
        finally:
            if leaving_out is not None:
                self.restore(leaving_out, seats)

    def refuses_new(self, asked: AskedConstraints, labels: Mapping[str, str]) -> bool:
        """Return whether other pods might keep such pods off a new node with *labels* and a name of its own."""
        return any(self._tracker_of[name].refuses_new(one, labels) for name, one in asked.pods)

    def freed(self) -> Freed:
        """Return the signatures, of those asked here, for which other pods have opened a node since the last call."""
        found: dict[str, Set[Hashable] | None] = {}
        for name in self._followed:
            freed = self._tracker_of[name].freed()
            if freed is None or freed:
                found[name] = freed
        return found

    # ------------------------------------------------------------------ what pods hold

    def reserved(self, held: Held, uses: Signatures) -> Held:
        """Return what the pods of a node hold with one more, which uses *uses*."""
        if not uses:
            return held
        found = dict(held)
        for name, asked in uses:
            reserve = self._by_name[name].reserve
            if reserve is not None:
                found[name] = reserve(found.get(name), asked)
        return found

    def released(self, held: Held, uses: Signatures) -> Held:
        """Return what the pods of a node hold without one, which uses *uses*."""
        if not uses:
            return held
        found = dict(held)
        for name, asked in uses:
            release = self._by_name[name].release
            if release is not None:
                left = release(found.pop(name), asked)
                if left:
                    found[name] = left
        return found


def is_among(asked: AskedConstraints, freed: Freed) -> bool:
    """Return whether a node may have opened for pods with *asked*."""
    for name, one in asked.pods:
        if name in freed:
            found = freed[name]
            if found is None or one in found:
                return True
    return False
