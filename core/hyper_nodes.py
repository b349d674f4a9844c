"""HyperNodes of Volcano as values: nodes of a switch, a rack or a block of the network, by tiers.

Source: Volcano, topology/v1alpha1 hypernode_types.go (groups 4.11).
"""

from dataclasses import dataclass

from core.model import Requirement


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """Members of a HyperNode: the node *name*, or with is_inner the HyperNode *name*; or the matching nodes.

    pattern: a regular expression that matches node names. labels: requirements on node labels.
    """

    name: str = ""
    is_inner: bool = False
    pattern: str = ""
    labels: tuple[Requirement, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HyperNode:
    """One domain of the network. tier: a smaller tier means that its nodes are closer together."""

    name: str
    tier: int = 0
    tier_name: str = ""
    members: tuple[Members, ...] = ()
