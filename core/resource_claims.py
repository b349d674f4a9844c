"""Devices of nodes that pods use through dynamic resource allocation, as values: ResourceClaims and ResourceSlices.

A claim names devices by driver, pool and name; a slice gives the node and the ids of such a device.
`core.constraints.resource_claims` finds the cards that this closes. Source: Kubernetes documentation, "Dynamic Resource
Allocation".
"""

from collections.abc import Mapping
from typing import NamedTuple

from core.model import NodeName


class Device(NamedTuple):
    """One device of a ResourceSlice: its node, "" if it is not on a single one, and its known ids."""

    node: NodeName
    ids: frozenset[str]


class Pool(NamedTuple):
    """A driver's pool of devices."""

    driver: str
    name: str


class ResourceSlice(NamedTuple):
    """One ResourceSlice: devices of a pool by name. Only slices of a pool's highest generation count."""

    name: str
    pool: Pool
    generation: int
    devices: Mapping[str, Device]


class ResourceClaim(NamedTuple):
    """One ResourceClaim as allocated; key: namespace/name.

    devices: pool and name of each device that its pods use, exclusively or shared. nodes: the nodes that its allocation
    names, if any.
    """

    key: str
    devices: tuple[tuple[Pool, str], ...] = ()
    nodes: tuple[NodeName, ...] = ()


class Use(NamedTuple):
    """A device of a node in use through *claim*, namespace/name; ids: as in `Device`, empty if unknown."""

    claim: str
    driver: str
    device: str
    ids: frozenset[str] = frozenset()
