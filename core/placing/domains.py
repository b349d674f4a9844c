"""Domains of nodes: those with the same value of a label, as of a rack or a block of the network."""

from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple

from core.ledger import Ledger
from core.model import NodeName


class Domain(NamedTuple):
    """Nodes that are near each other. name: label=value."""

    name: str
    nodes: frozenset[NodeName]


def domains(ledger: Ledger, labels: Sequence[str], home: Set[NodeName]) -> Iterator[Domain]:
    """The domains that have all of *home*, as far as it is still there: by label, of each the smallest first."""
    home &= ledger.states.keys()
    for label in labels:
        found: dict[str, set[NodeName]] = {}
        for name, state in ledger.states.items():
            value = state.facts.labels.get(label)
            if value:
                found.setdefault(value, set()).add(name)
        for value, nodes in sorted(found.items(), key=lambda one: (len(one[1]), one[0])):
            if home <= nodes:
                yield Domain(f"{label}={value}", frozenset(nodes))
