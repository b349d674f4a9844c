"""What a constraint is: one reason why a node does not take a pod, or takes it rather than another node.

A constraint is a record of functions. `core.constraints.every` lists all of them; how to add one is described in
docs/maintainers/adding-a-constraint.md. The names are those of kube-scheduler's plugins: filter, score, reserve.
What a constraint keeps up as pods come and go is a `View` of the nodes that refuse a pod. Its changes are in a log,
like those of all sets of nodes with readers. `Constraints` asks all constraints of a ledger that concern a pod.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from core.model import NodeFacts, NodeName, Pod, PodUid
from core.settings import NodeWeights
from core.waiting import Wait

# The number of changes that a set of nodes, and a view, log individually.
_SET_LOG_MAX: Final = 1 << 10
_VIEW_LOG_MAX: Final = 1 << 12


class ChangeLog:
    """The latest changes. Beyond *most*, the older half is dropped; readers behind it must read everything again."""

    __slots__ = ("_cut", "_most", "_names")

    def __init__(self, most: int) -> None:
        self._most: Final = most
        self._names: list[NodeName] = []
        self._cut = 0

    def __len__(self) -> int:
        """Return the number of logged changes."""
        return len(self._names)

    @property
    def cursor(self) -> int:
        """The position after the last change."""
        return self._cut + len(self._names)

    def since(self, cursor: int) -> list[NodeName] | None:
        """Return the changes since *cursor*, oldest first, with repetitions; None if some were dropped."""
        return None if cursor < self._cut else self._names[cursor - self._cut :]

    def add(self, name: NodeName) -> None:
        """Log a change of *name*."""
        self._names.append(name)
        if len(self._names) > self._most:
            self._drop(len(self._names) // 2)

    def extend(self, names: Iterable[NodeName]) -> None:
        """Log changes of all *names*."""
        self._names += names
        if len(self._names) > self._most:
            self._drop(len(self._names) - self._most // 2)

    def forget(self) -> None:
        """Make every reader read everything again, because anything may have changed."""
        self._cut = self.cursor + 1
        self._names = []

    def _drop(self, count: int) -> None:
        del self._names[:count]
        self._cut += count


class NodeSet:
    """A set of nodes with many readers; log: the added and removed ones, from the first on."""

    __slots__ = ("_names", "log")

    def __init__(self, names: Iterable[NodeName] = ()) -> None:
        self._names: Final[set[NodeName]] = set()
        self.log: Final = ChangeLog(_SET_LOG_MAX)
        for name in names:
            self.add(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[NodeName]:
        return iter(self._names)

    def add(self, name: NodeName) -> None:
        """Add *name*."""
        if name not in self._names:
            self._names.add(name)
            self.log.add(name)

    def discard(self, name: NodeName) -> None:
        """Remove *name*."""
        if name in self._names:
            self._names.remove(name)
            self.log.add(name)


class ChangeFollower:
    """What is kept up as pods come and go; dirty: the nodes on which something changed since the last refresh."""

    __slots__ = ("dirty",)

    def __init__(self) -> None:
        self.dirty: dict[NodeName, None] = {}


class View(ChangeFollower):
    """The nodes that refuse pods with one signature, each with the number of its reasons.

    opened, shut: nodes that accept such pods again, or no longer, since the last `forget_changes`. log: the same, for
    readers that each remember how far they have read.
    """

    __slots__ = ("blocked", "log", "opened", "shut")

    def __init__(self) -> None:
        super().__init__()
        self.blocked: Final[dict[NodeName, int]] = {}
        self.opened: Final[set[NodeName]] = set()
        self.shut: Final[set[NodeName]] = set()
        self.log: Final = ChangeLog(_VIEW_LOG_MAX)

    def flip(self, name: NodeName, by: set[NodeName], *, refused: bool) -> None:
        """Record that the reason that refuses the nodes *by* now refuses *name*, or no longer does."""
        count = self.blocked.get(name, 0)
        if refused:
            by.add(name)
            self.blocked[name] = count + 1
            if not count:
                self._note(name, self.opened, self.shut)
            return
        by.discard(name)
        if count > 1:
            self.blocked[name] = count - 1
        else:
            del self.blocked[name]
            self._note(name, self.shut, self.opened)

    def _note(self, name: NodeName, before: set[NodeName], now: set[NodeName]) -> None:
        self.log.add(name)
        if name in before:
            before.discard(name)
        else:
            now.add(name)

    def forget_changes(self) -> None:
        """Empty `opened` and `shut`, which were read."""
        self.opened.clear()
        self.shut.clear()


_K = TypeVar("_K")
_SeatT = TypeVar("_SeatT")


class Seats(Generic[_SeatT]):
    """Where pods are, as far as a constraint needs it: a seat is its node and what it has there.

    Attributes:
        seats: the seat of each pod; only the constraint itself reads it.
    """

    def __init__(self) -> None:
        self.seats: Final[dict[PodUid, _SeatT]] = {}

    def seat(self, uid: PodUid) -> _SeatT | None:
        """Return where a pod is, for `restore`."""
        return self.seats.get(uid)

    def restore(self, uid: PodUid, seat: _SeatT | None) -> None:
        """Put a pod back to where it was when `seat` was called; None: on no node."""
        before = self.seats.get(uid)
        if before == seat:
            return
        if before is not None:
            del self.seats[uid]
            self._move(before, -1)
        if seat is not None:
            self.seats[uid] = seat
            self._move(seat, 1)

    def drop(self, uid: PodUid) -> None:
        """A pod is on no node."""
        self.restore(uid, None)

    def _move(self, seat: _SeatT, by: int) -> None:
        """Count *seat* in (1) or out (-1)."""
        raise NotImplementedError


def add(counts: dict[_K, int], key: _K, by: int) -> None:
    """Add *by*, which may be negative, to the count of *key*; there are no counts of zero."""
    left = counts.get(key, 0) + by
    if left:
        counts[key] = left
    else:
        counts.pop(key, None)


class ReadScope(StrEnum):
    """What a verdict depends on, besides the pod; this decides how long it is kept.

    NODE: labels, taints and conditions of the node; kept by node until these change. USE: also what the node's pods
    hold by this constraint; judged together with its cards. PODS: pods on any node, or other state of the cluster; kept
    up in a `View`.
    """

    NODE = "node"
    USE = "use"
    PODS = "pods"


class Obstacle(NamedTuple):
    """Why a node rejects a pod, in constant words for counting, and what ends it.

    until: words after the node's name ("is uncordoned"), or a clause if the constraint reads `ReadScope.USE`; "" if it
    lasts. Read only of one that lasts: instead, what the pod could do; labels, those of the node that differ from the
    pod's selector.
    """

    key: str
    until: str = ""
    instead: str = ""
    labels: tuple[tuple[str, str], ...] = ()


# The points of a node that meets all that a pod prefers by one constraint.
FULL: Final = 100.0

# What a pod asks by some constraints: their names and signatures.
Signatures = tuple[tuple[str, Hashable], ...]


class AskedConstraints(NamedTuple):
    """All that a pod asks by constraints, grouped by what they read; pods that ask the same have equal verdicts.

    preferred: what it prefers, for scores.
    """

    node: Signatures = ()
    use: Signatures = ()
    pods: Signatures = ()
    preferred: Signatures = ()


class PodTracker(Protocol):
    """What a constraint that reads `ReadScope.PODS` keeps for one ledger: the pods on nodes that concern it."""

    def set_node(self, facts: NodeFacts) -> None:
        """A node was added or changed."""
        ...

    def remove_node(self, name: NodeName) -> None:
        """A node was removed; its pods are tracked still."""
        ...

    def put(self, pod: Pod, node: NodeName) -> None:
        """Reserve: *pod* is on *node*, whether or not that exists."""
        ...

    def drop(self, uid: PodUid) -> None:
        """Release: a pod is on no node."""
        ...

    def seat(self, uid: PodUid) -> Any:
        """Return where a pod is, for `restore`; None if it is on no node, or does not concern the constraint."""
        ...

    def restore(self, uid: PodUid, seat: Any) -> None:
        """Put a pod back to where it was when `seat` was called."""
        ...

    def view(self, asked: Any) -> View:
        """Return the nodes that refuse such pods now; the same object as long as it is kept up."""
        ...

    def is_current(self, pod: Pod, asked: Any) -> bool:
        """Return whether the signature of *pod* is still *asked* (None: nothing), as far as other pods change it."""
        ...

    def refuses_new(self, asked: Any, labels: Mapping[str, str]) -> bool:
        """Return whether a new node with *labels* and a name of its own might refuse such pods."""
        ...

    def freed(self) -> Set[Any] | None:
        """Return the signatures for which a node has opened since the last call; None: perhaps for all."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Constraint:
    """One constraint.

    In all functions *asked* is what `signature` returned, and *held* is what `reserve` returned for the node's pods:
    None if none of them asks anything, or if the constraint reads no use.

    Attributes:
        name: unique.
        reads: what verdicts depend on.
        stated: (pod) -> all fields in which a pod asks or prefers something by it, or is tracked by it; a pod with the
            defaults there is not asked. None: every pod is asked.
        signature: (pod) -> what it asks, hashable; None: nothing; a `Wait`: no node takes it, whatever is free.
        filter: (asked, node, held) -> whether the node takes the pod. True exactly if `explain` yields nothing.
        explain: (asked, node, held) -> why it does not.
        score: (asked, node with taints, weights) -> points of 100 times a weight, never above 0: how much the pod
            avoids the node. A pod that avoids others has a `rate` below 0, and a `most` of 0.
        prefers: (pod, weights) -> what the pod prefers, hashable; None: nothing, or nothing that has a weight.
        rate: (preferred, node, weights) -> points of 100 times a weight, for a node that meets it.
        most: (preferred, weights) -> more points `rate` never gives.
        rated: (preferred) -> the log of nodes whose rate changed because of pods, the same object as long as it is kept
            up; None if `rate` reads the node alone.
        reserve: (held, asked) -> held, with one pod more.
        release: (held, asked) -> held, without that pod; nothing or an empty value if no pod is left.
        tracker: pods on nodes, for a constraint that reads `ReadScope.PODS`; it then reserves and releases.
        woken_by: (pod) -> (kind, name) of objects besides nodes and pods; once one changes, the pod is read again.
        together: (pods) -> why they cannot be placed together, whatever is free; None if they can.
    """

    name: str
    reads: ReadScope
    signature: Callable[[Pod], Hashable | Wait | None]
    filter: Callable[[Any, NodeFacts, Any], bool]
    explain: Callable[[Any, NodeFacts, Any], Iterable[Obstacle]]
    stated: Callable[[Pod], object] | None = None
    score: Callable[[Any, NodeFacts, NodeWeights], float] | None = None
    prefers: Callable[[Pod, NodeWeights], Hashable | None] | None = None
    rate: Callable[[Any, NodeFacts, NodeWeights], float] | None = None
    most: Callable[[Any, NodeWeights], float] | None = None
    rated: Callable[[Any], ChangeLog] | None = None
    reserve: Callable[[Any, Any], Any] | None = None
    release: Callable[[Any, Any], Any] | None = None
    tracker: PodTracker | None = None
    woken_by: Callable[[Pod], Iterable[tuple[str, str]]] | None = None
    together: Callable[[Sequence[Pod]], Wait | None] | None = None


# What the pods of a node hold, by the name of the constraint.
Held = Mapping[str, Any]
NOTHING_HELD: Final[Held] = {}
_NOTHING: Final[Mapping[str, Hashable]] = {}


# For each constraint, the signatures for which a node has opened; None: perhaps for all.
Freed = Mapping[str, Set[Hashable] | None]


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
        """Return how much such pods avoid the node, which has taints; never above 0."""
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
