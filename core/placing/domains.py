"""Domains of nodes that are near each other, as those of a rack or a block of the network, by tiers.

Tiers are node labels, or HyperNodes of Volcano. A domain of a lower tier is narrower: its nodes are nearer.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol

from core.groups import HyperNode, NetworkTopology
from core.ledger import Ledger
from core.model import NodeName, Requirement, required_labels, satisfies

Labels = Mapping[str, str]
# Of more nodes it is not remembered in which HyperNodes they are.
_KNOWN_MAX: Final = 1 << 16
_NO_TEXTS: Final = frozenset[str]()


class Domain(NamedTuple):
    """Nodes that are near each other. name: as people are told."""

    name: str
    nodes: frozenset[NodeName]


class Network(Protocol):
    """Which nodes are near each other. Equal ones say the same, as long as nodes have the same labels."""

    @property
    def tiers(self) -> Mapping[int, Set[str]]:
        """What each tier is called, by its number."""

    def around(self, node: NodeName, labels: Labels) -> Iterable[tuple[int, tuple[str, ...]]]:
        """The domains of a node: tier, and what tells the domain from others."""

    def domain(self, key: tuple[str, ...]) -> str:
        """What people are told of the domain *key*."""

    def domains(self, highest: int) -> str:
        """What people are told of the domains up to tier *highest*."""


@dataclass(frozen=True, slots=True)
class LabelTiers:
    """Tiers by node labels, the narrowest first, which is tier 1.

    Nodes are in one domain of a tier if they have the same values of its label and of all those of higher tiers.
    """

    labels: tuple[str, ...] = ()

    @property
    def tiers(self) -> Mapping[int, Set[str]]:
        """A tier is called as its label."""
        return {number: frozenset((label,)) for number, label in enumerate(self.labels, start=1)}

    def around(self, node: NodeName, labels: Labels) -> Iterator[tuple[int, tuple[str, ...]]]:
        """By their values; a node without a label is in no domain of that tier."""
        values = tuple([labels.get(label, "") for label in self.labels])
        for at, value in enumerate(values):
            if value:
                yield at + 1, values[at:]

    def domain(self, key: tuple[str, ...]) -> str:
        """Label=value, that of the domain's tier first."""
        labels = self.labels[-len(key) :]
        return ", ".join(f"{label}={value}" for label, value in zip(labels, key, strict=True) if value)

    def domains(self, highest: int) -> str:
        """By the labels."""
        return f"domain of node label {' or '.join(self.labels[:highest])}"


class HyperNodes:
    """Tiers by HyperNodes: a HyperNode has the nodes that it names, and those of the HyperNodes that it names.

    Two of them are equal only if they are the same object.
    """

    def __init__(self, hyper_nodes: Iterable[HyperNode], before: "HyperNodes | None" = None) -> None:
        """Read *hyper_nodes*; *before*: the former ones, mostly the same, with the matches of their patterns."""
        self._all: Final = {one.name: one for one in hyper_nodes}
        self._tiers: Final[dict[int, set[str]]] = {}
        self._named: Final[dict[str, list[str]]] = {}
        self._above: Final[dict[str, list[str]]] = {}
        self._patterns: Final[dict[str, list[str]]] = {}
        # By a label that a node must have; None: of those that ask for no value of a label.
        self._labelled: Final[dict[tuple[str, str] | None, list[tuple[tuple[Requirement, ...], str]]]] = {}
        # Which patterns a node was compared with, and which of them matched.
        self._matched: Final[dict[NodeName, tuple[Set[str], list[str]]]] = {} if before is None else before._matched
        self._around: Final[dict[NodeName, tuple[Labels, tuple[tuple[int, tuple[str, ...]], ...]]]] = {}
        for one in self._all.values():
            self._tiers.setdefault(one.tier, set()).update((one.tier_name,) if one.tier_name else ())
            for members in one.members:
                if members.pattern:
                    self._patterns.setdefault(members.pattern, []).append(one.name)
                elif members.labels is not None:
                    for label in required_labels(members.labels):
                        self._labelled.setdefault(label, []).append((members.labels, one.name))
                elif members.name:
                    index = self._above if members.is_inner else self._named
                    index.setdefault(members.name, []).append(one.name)
        self._texts: Final = frozenset(self._patterns)
        known = {} if before is None else before._compiled
        self._compiled: Final[dict[str, re.Pattern[str]]] = {
            text: known.get(text) or re.compile(text) for text in self._patterns
        }

    @property
    def tiers(self) -> Mapping[int, Set[str]]:
        """A tier is called as its HyperNodes say."""
        return self._tiers

    def around(self, node: NodeName, labels: Labels) -> Sequence[tuple[int, tuple[str, ...]]]:
        """The HyperNodes that a node is in; found once, until its labels change."""
        known = self._around.get(node)
        if known is None or known[0] is not labels:
            if len(self._around) >= _KNOWN_MAX:
                self._around.clear()  # of nodes that are gone, most likely
            found = sorted((self._all[name].tier, (name,)) for name in self._found(node, labels))
            known = self._around[node] = labels, tuple(found)
        return known[1]

    def _found(self, node: NodeName, labels: Labels) -> Set[str]:
        left = [*self._named.get(node, ())]
        left += [name for text in self._matching(node) for name in self._patterns[text]]
        for label in (None, *labels.items()):
            for asked, name in self._labelled.get(label, ()):
                if all(satisfies(labels, one) for one in asked):
                    left.append(name)
        found = set[str]()
        while left:
            name = left.pop()
            if name not in found:
                found.add(name)
                left += self._above.get(name, ())
        return found

    def _matching(self, node: NodeName) -> list[str]:
        """The patterns that match the name of a node; compared with those alone that are new."""
        done, found = self._matched.get(node, (_NO_TEXTS, []))
        if done is not self._texts:
            if len(self._matched) >= _KNOWN_MAX:
                self._matched.clear()
            found = [text for text in found if text in self._texts]
            found += [text for text in sorted(self._texts - done) if self._compiled[text].search(node)]
            self._matched[node] = self._texts, found
        return found

    def domain(self, key: tuple[str, ...]) -> str:
        """By its name."""
        return f"HyperNode {key[0]}"

    def domains(self, highest: int) -> str:
        """By the tier."""
        return f"HyperNode of tier {highest} or lower"


@dataclass(frozen=True, slots=True)
class Near:
    """That nodes are in one domain of *network*, of tier *highest* or lower.

    hard: otherwise that is preferred, and any nodes will do. problem: why no domain will ever do, "" if one may.
    """

    network: Network
    highest: int
    hard: bool = True
    problem: str = ""

    def why_none(self, home: Set[NodeName]) -> str:
        """Why there is no domain to try that has all of *home*."""
        if self.problem:
            return self.problem
        called = self.network.domains(self.highest)
        return f"no {called} has all nodes of its members" if home else f"no node is in a {called}"


def near(asked: NetworkTopology, network: Network) -> Near | None:
    """What *asked* means in *network*; None if it means nothing there.

    The tier above the highest is the whole cluster, as in Volcano; mode hard without a tier is no limit (groups 4.11).
    """
    tiers = network.tiers
    found = Near(network, max(tiers, default=0))
    highest = asked.highest
    if not (asked.hard and (highest is not None or asked.highest_name)):
        return replace(found, hard=False) if tiers else None
    if not tiers:
        problem = "no tiers of the network are known; create HyperNodes, or set network_tiers in cardshare.yaml"
        return replace(found, problem=problem)
    if highest is None:
        named = [number for number, names in tiers.items() if asked.highest_name in names]
        if not named:
            return replace(found, problem=f"no tier of the network is called {asked.highest_name!r}")
        highest = max(named)
    if highest < min(tiers):
        return replace(found, problem=f"the lowest tier of the network is {min(tiers)}; allow that or a higher one")
    return Near(network, min(highest, found.highest), hard=highest <= found.highest)


def by_label(label: str) -> Near:
    """One value of a node label."""
    return Near(LabelTiers((label,)), 1)


def domains(ledger: Ledger, asked: Near, home: Set[NodeName] = frozenset()) -> Iterator[Domain]:
    """The domains that have all of *home*, as far as it is still there: of each tier the smallest first."""
    if asked.problem:
        return
    home &= ledger.states.keys()
    network, found = asked.network, dict[tuple[int, tuple[str, ...]], set[NodeName]]()
    for name, state in ledger.states.items():
        for one in network.around(name, state.facts.labels):
            if one[0] <= asked.highest:
                found.setdefault(one, set()).add(name)
    for (_, key), nodes in sorted(found.items(), key=lambda one: (one[0][0], len(one[1]), one[0][1])):
        if home <= nodes:
            yield Domain(network.domain(key), frozenset(nodes))
