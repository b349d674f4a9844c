"""Domains and subgroups in the twin of gangs: which nodes are near each other, and who belongs to which subgroup.

Racks are in zones. A group, or a subgroup, may ask that all its members are in one of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Final

from core.groups import GroupSpec, NetworkTopology, SubGroups
from core.model import Node, Requirement

# Node labels, the smallest domains first.
TIERS: Final = ("rack", "zone")
ROLES: Final = ("", "x", "x", "x", "y")
PARTS: Final = ("", "1", "1", "1", "2", "2")
# A policy and the value of its key.
Subgroup = tuple[str, str]


def any_near(chance: random.Random) -> NetworkTopology | None:
    """How near to each other members are to be."""
    ways = (None, NetworkTopology(highest=1), NetworkTopology(highest=2), NetworkTopology(highest=3))
    return chance.choice((*ways, NetworkTopology(hard=False), NetworkTopology(highest=1)))


def any_subgroups(chance: random.Random) -> tuple[SubGroups, ...]:
    """Some policies of subgroups; the second is for those that the first does not select."""
    return tuple(
        SubGroups(
            name=role,
            selector=(Requirement(key="role", operator="In", values=(role,)),),
            keys=("part",),
            size=chance.choice((1, 2, 2)),
            least=chance.choice((0, 1, 1, 2)),
            network_topology=any_near(chance) if chance.random() < 0.4 else None,
        )
        for role in chance.choice((("x",), ("x", "y")))
    )


def subgroup_of(spec: GroupSpec, labels: Mapping[str, str]) -> Subgroup | None:
    """The subgroup of a pod with *labels*; None without one."""
    role, part = labels.get("role", ""), labels.get("part", "")
    return (role, part) if part and role in {one.name for one in spec.sub_groups} else None


def domains(asked: NetworkTopology | None, nodes: Mapping[str, Node]) -> list[set[str]] | None:
    """The nodes of each domain that members may be in together; None: they may be anywhere."""
    if asked is None or not asked.hard or asked.highest is None or asked.highest > len(TIERS):
        return None
    found: dict[tuple[str, ...], set[str]] = {}
    for name, node in nodes.items():
        rack, zone = (node.labels.get(label, "") for label in TIERS)
        if rack:
            found.setdefault(("rack", rack, zone), set()).add(name)
        if zone and asked.highest > 1:
            found.setdefault(("zone", zone), set()).add(name)
    return [*found.values()]


def domains_of_group(spec: GroupSpec, nodes: Mapping[str, Node]) -> list[set[str]] | None:
    """The nodes of each domain that all members of a group may be in together; None: they may be anywhere."""
    if not spec.topology_key:
        return domains(spec.network_topology, nodes)
    values = {value for node in nodes.values() if (value := node.labels.get(spec.topology_key, ""))}
    return [{name for name, node in nodes.items() if node.labels.get(spec.topology_key) == value} for value in values]


def are_near(where: Iterable[str], within: list[set[str]] | None) -> bool:
    """Whether one of the domains has all nodes *where*."""
    needed = set(where)
    return within is None or any(needed <= one for one in within)


def least_of(spec: GroupSpec, held: Mapping[Subgroup | None, int], there: Mapping[Subgroup | None, int]) -> int | None:
    """How many of the members that wait, *there*, a group needs at the least besides *held*; None if they are too few.

    Of a subgroup as many are placed as it lacks, or more; or none.
    """
    sizes = {one.name: one.size for one in spec.sub_groups}
    which = sorted({one for one in (*held, *there) if one is not None})
    lacks = {one: max(sizes[one[0]] - held.get(one, 0), 0) for one in which}
    ways = [[0, *range(max(lacks[one], 1), there.get(one, 0) + 1)] for one in which]
    best: int | None = None
    for chosen in product(*ways):
        whole = [one[0] for one, many in zip(which, chosen, strict=True) if many >= lacks[one]]
        if any(whole.count(one.name) < one.least for one in spec.sub_groups):
            continue
        others = max(spec.min_member - sum(held.values()) - sum(chosen), 0)
        if others <= there.get(None, 0):
            best = min(sum(chosen) + others, best if best is not None else sum(chosen) + others)
    return best
