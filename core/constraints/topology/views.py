"""The verdicts of one `Peers` on all nodes, kept up by what changes.

Verdicts are by domain: all nodes with one value of a label.
"""

from collections.abc import Callable, Iterable
from typing import Final

from core.constraints.constraint import ChangeFollower, Obstacle, View, add
from core.constraints.node_affinity import selects
from core.constraints.taints import tolerates
from core.constraints.topology.peers import Evenly, Labels, Peers, Rule, Who
from core.model import HARD_EFFECTS, NodeConstraints, NodeFacts, NodeName

_HOSTNAME: Final = "kubernetes.io/hostname"
Domain = tuple[str, str]


class Counter:
    """How many pods are on each node, and what follows that."""

    __slots__ = ("by_node", "views")

    def __init__(self) -> None:
        self.by_node: Final[dict[NodeName, int]] = {}
        self.views: Final[dict[ChangeFollower, None]] = {}


class _Counted:
    """The common part of all parts of a view: the pods that they count, and the nodes that they refuse."""

    def __init__(self, counter: Counter) -> None:
        self.counter: Final = counter
        self.refused: Final[set[NodeName]] = set()

    @property
    def standing(self) -> int:
        """For how many nodes it keeps something."""
        return len(self.counter.by_node) + len(self.refused)


class ByPresence(_Counted):
    """Asks only whether a domain has any such pod; domains by each of *keys*."""

    def __init__(self, counter: Counter, keys: tuple[str, ...]) -> None:
        super().__init__(counter)
        self.keys: Final = keys
        self.by_domain: Final[dict[Domain, int]] = {}
        self._held: Final[dict[NodeName, tuple[tuple[Domain, ...], int]]] = {}
        self._changed: set[Domain] = set()

    def take(self, name: NodeName, facts: NodeFacts | None) -> None:
        """Count the pods of a node as it is now; None: it is gone."""
        domains, count = self._held.pop(name, ((), 0))
        for domain in domains:
            self._add(domain, -count)
        count = self.counter.by_node.get(name, 0)
        if facts is not None and count:
            domains = tuple([(key, facts.labels[key]) for key in self.keys if key in facts.labels])
            self._held[name] = domains, count
            for domain in domains:
                self._add(domain, count)

    def _add(self, domain: Domain, count: int) -> None:
        was = domain in self.by_domain
        add(self.by_domain, domain, count)
        if was != (domain in self.by_domain):
            self._changed.add(domain)

    def changed(self) -> Iterable[Domain] | None:
        """Return the domains that got their first such pod, or lost the last, since the last call."""
        changed, self._changed = self._changed, set()
        return changed


class _Apart(ByPresence):
    """The node's domain must have no such pod; *of_others*: those pods ask for that."""

    def __init__(self, counter: Counter, key: str, *, of_others: bool) -> None:
        super().__init__(counter, (key,))
        self._of_others: Final = of_others

    def refuses(self, facts: NodeFacts) -> bool:
        return self.refuses_new(facts.labels)

    def refuses_new(self, labels: Labels) -> bool:
        (key,) = self.keys
        return key in labels and (key, labels[key]) in self.by_domain

    def why(self, facts: NodeFacts) -> Obstacle:
        del facts
        whose = "anti-affinity of another pod" if self._of_others else "pod anti-affinity"
        return Obstacle(f"{whose} by {self.keys[0]}", f"shares its {self.keys[0]} with no such pod")


class _Near(ByPresence):
    """Each of the node's domains must have such a pod; *itself*: the pod itself may be the first."""

    def __init__(self, counter: Counter, keys: tuple[str, ...], *, itself: bool) -> None:
        super().__init__(counter, keys)
        self._itself: Final = itself
        self._first = True

    def changed(self) -> Iterable[Domain] | None:
        first = self._itself and not self.by_domain
        known, self._first = self._first, first
        changed = super().changed()
        return changed if known == first else None

    def refuses(self, facts: NodeFacts) -> bool:
        return not all(key in facts.labels for key in self.keys) or self._is_lonely(facts.labels)

    def refuses_new(self, labels: Labels) -> bool:
        return not all(key in labels or key == _HOSTNAME for key in self.keys) or self._is_lonely(labels)

    def _is_lonely(self, labels: Labels) -> bool:
        if self._itself and not self.by_domain:
            return False
        return not all((key, labels.get(key, "")) in self.by_domain for key in self.keys)

    def why(self, facts: NodeFacts) -> Obstacle:
        missing = next((key for key in self.keys if key not in facts.labels), None)
        if missing is not None:
            return _no_label("pod affinity", missing)
        keys = ", ".join(self.keys)
        return Obstacle(f"pod affinity by {keys}", f"shares its {keys} with such a pod")


class Spreading(_Counted):
    """A domain may have only so many such pods more than the domain with the fewest.

    Only nodes with the labels of all constraints of the pod count, and affinity and taints if it says so.
    """

    def __init__(self, counter: Counter, asked: Evenly, keys: tuple[str, ...], constraints: NodeConstraints) -> None:
        super().__init__(counter)
        self.asked: Final = asked
        self._keys: Final = keys
        self._constraints: Final = constraints
        # The nodes and pods of each domain; and for each number of pods, how many domains have it.
        self._nodes: Final[dict[str, int]] = {}
        self._pods: Final[dict[str, int]] = {}
        self._levels: Final[dict[int, int]] = {}
        self._held: Final[dict[NodeName, tuple[str, int]]] = {}
        self._changed: set[Domain] = set()
        self._least = 0

    @property
    def standing(self) -> int:
        """The nodes that count, and those refused."""
        return len(self._held) + len(self.refused)

    def take(self, name: NodeName, facts: NodeFacts | None) -> None:
        """Count the pods of a node as it is now; None: it is gone."""
        before = self._held.get(name)
        after = None
        if facts is not None and self._counts(facts):
            after = facts.labels[self.asked.key], self.counter.by_node.get(name, 0)
        if before == after:
            return
        if before is not None:
            del self._held[name]
            self._add(before[0], -before[1], -1)
        if after is not None:
            self._held[name] = after
            self._add(after[0], after[1], 1)

    def _counts(self, facts: NodeFacts) -> bool:
        if not all(key in facts.labels for key in self._keys):
            return False
        if self.asked.by_affinity and not selects(self._constraints, facts):
            return False
        return not self.asked.by_taints or not any(
            taint.effect in HARD_EFFECTS and not tolerates(self._constraints.tolerations, taint)
            for taint in facts.taints
        )

    def _add(self, value: str, pods: int, nodes: int) -> None:
        there = self._nodes.get(value, 0)
        held = self._pods.get(value, 0)
        if there:
            add(self._levels, held, -1)
        if there + nodes:
            self._nodes[value], self._pods[value] = there + nodes, held + pods
            add(self._levels, held + pods, 1)
        else:
            self._nodes.pop(value, None)
            self._pods.pop(value, None)
        self._changed.add((self.asked.key, value))

    def pods(self, value: str) -> int:
        """Return the number of such pods in the domain *value*."""
        return self._pods.get(value, 0)

    def changed_domains(self) -> Iterable[Domain]:
        """Return the domains whose number of such pods changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def _fewest(self) -> int:
        return 0 if len(self._nodes) < self.asked.min_domains else min(self._levels, default=0)

    def changed(self) -> Iterable[Domain] | None:
        """Return the domains whose verdict may have changed since the last call; None: all."""
        changed = self.changed_domains()
        known, self._least = self._least, self._fewest()
        return changed if known == self._least else None

    def refuses(self, facts: NodeFacts) -> bool:
        """Return whether it refuses a node."""
        value = facts.labels.get(self.asked.key)
        if value is None:
            return True
        return self._pods.get(value, 0) + self.asked.counts_itself - self._least > self.asked.max_skew

    def refuses_new(self, labels: Labels) -> bool:
        """Return whether it would refuse a new node with such labels and a name of its own."""
        value = labels.get(self.asked.key)
        if value is None:
            return self.asked.key != _HOSTNAME or self.asked.counts_itself > self.asked.max_skew
        least = self._least if value in self._nodes else 0
        return self._pods.get(value, 0) + self.asked.counts_itself - least > self.asked.max_skew

    def why(self, facts: NodeFacts) -> Obstacle:
        """Return why it refuses a node."""
        value = facts.labels.get(self.asked.key)
        if value is None:
            return _no_label("topology spread", self.asked.key)
        at_most = self.asked.max_skew + self._least - self.asked.counts_itself
        until = f"shares its {self.asked.key} with at most {at_most} such pods"
        return Obstacle(f"topology spread by {self.asked.key}", until)


# One term of a view. `take`: count the pods of a node as it is now (None: it is gone). `changed`: the domains whose
# verdict may have changed since the last call; None: all. `refuses`: whether it refuses a node, and `why`.
# `refuses_new`: whether it would refuse a new node with such labels and a name of its own.
Part = _Apart | _Near | Spreading


class PeersView(View):
    """The nodes that refuse pods with one `Peers`, by each of its parts."""

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[Part, ...]) -> None:
        super().__init__()
        self.parts: Final = parts

    @property
    def standing(self) -> int:
        """The number of nodes in all of its parts."""
        return sum([part.standing for part in self.parts])


def parts_of(
    peers: Peers, all_of: Callable[[tuple[Who, ...], bool], Counter], ruled_by: Callable[[Rule], Counter]
) -> tuple[Part, ...]:
    """Return one part for each term of *peers*.

    all_of: counts the pods that match all terms; if True, without those that are being deleted. ruled_by: counts the
    pods with a rule.
    """
    parts: list[Part] = []
    if peers.near:
        parts.append(_Near(all_of(peers.near, False), peers.near_keys, itself=peers.near_itself))
    parts += [_Apart(all_of((rule.who,), False), rule.key, of_others=False) for rule in peers.apart]
    parts += [_Apart(ruled_by(rule), rule.key, of_others=True) for rule in peers.kept_off]
    keys = peers.spread_keys
    parts += [Spreading(all_of((one.who,), True), one, keys, peers.constraints) for one in peers.spread]
    return tuple(parts)


def _no_label(what: str, key: str) -> Obstacle:
    return Obstacle(f"{what} (no label {key})", f"has the label {key}")
