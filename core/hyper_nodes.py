"""HyperNodes of Volcano as values: nodes that a switch, a rack or a block of the network joins, by tiers.

Source: Volcano, topology/v1alpha1 hypernode_types.go (groups 4.11).
"""

from dataclasses import dataclass

from core.model import Requirement


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """Who belongs to a HyperNode: the node, or with is_inner the HyperNode, called *name*; or nodes by what is set.

    pattern: a regular expression that is found in the names of nodes. labels: what the labels of nodes meet.
    """

    name: str = ""
    is_inner: bool = False
    pattern: str = ""
    labels: tuple[Requirement, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HyperNode:
    """One domain of the network. tier: the smaller, the nearer its nodes are to each other."""

    name: str
    tier: int = 0
    tier_name: str = ""
    members: tuple[Members, ...] = ()
