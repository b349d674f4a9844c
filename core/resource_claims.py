"""Which devices of nodes pods use through dynamic resource allocation, from ResourceClaims and ResourceSlices.

A claim names devices by driver, pool and name; a slice gives the node and the ids of such a device. `core.claimed`
finds the cards that this closes. Source: Kubernetes documentation, "Dynamic Resource Allocation".
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

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


_NO_IDS: Final[frozenset[str]] = frozenset()


class ResourceClaims:
    """The allocated claims, and the slices with their devices."""

    def __init__(self) -> None:
        """Begin with none."""
        self._slices: Final[dict[Pool, dict[str, ResourceSlice]]] = {}
        self._claims: Final[dict[str, ResourceClaim]] = {}
        # The claims that name a device of a pool.
        self._naming: Final[dict[Pool, dict[str, None]]] = {}
        self._on_node: Final[dict[NodeName, dict[str, tuple[Use, ...]]]] = {}
        # The nodes on which a claim is counted.
        self._nodes: Final[dict[str, tuple[NodeName, ...]]] = {}

    def on(self, node: NodeName) -> tuple[Use, ...]:
        """Return what is in use on *node*, by claim."""
        found = self._on_node.get(node, {})
        return tuple(use for key in sorted(found) for use in found[key])

    def claims(self) -> Iterable[ResourceClaim]:
        """Return the allocated claims."""
        return self._claims.values()

    def slices(self) -> Iterator[ResourceSlice]:
        """Yield all slices."""
        for some in self._slices.values():
            yield from some.values()

    def put_claim(self, claim: ResourceClaim) -> set[NodeName]:
        """Record an added or changed claim; return the nodes whose devices in use may have changed."""
        before = self._claims.get(claim.key)
        if before == claim or (before is None and not claim.devices):
            return set()
        touched = self.drop_claim(claim.key)
        if claim.devices:
            self._claims[claim.key] = claim
            for pool, _ in claim.devices:
                self._naming.setdefault(pool, {})[claim.key] = None
            touched |= self._count(claim)
        return touched

    def drop_claim(self, key: str) -> set[NodeName]:
        """Remove a claim; return the nodes whose devices it used."""
        claim = self._claims.pop(key, None)
        if claim is None:
            return set()
        for pool in {pool for pool, _ in claim.devices}:
            naming = self._naming[pool]
            del naming[key]
            if not naming:
                del self._naming[pool]
        return self._uncount(claim)

    def put_slice(self, found: ResourceSlice) -> set[NodeName]:
        """Record an added or changed slice; return the nodes whose devices in use may have changed."""
        # A slice cannot change its pool, so the same name in another pool is another slice.
        if self._slices.get(found.pool, {}).get(found.name) == found:
            return set()
        self._slices.setdefault(found.pool, {})[found.name] = found
        return self._count_anew(found.pool)

    def drop_slice(self, found: ResourceSlice) -> set[NodeName]:
        """Remove a slice; return the nodes whose devices in use may have changed."""
        there = self._slices.get(found.pool, {})
        if there.pop(found.name, None) is None:
            return set()
        if not there:
            del self._slices[found.pool]
        return self._count_anew(found.pool)

    # ------------------------------------------------------------------ where devices are

    def _count_anew(self, pool: Pool) -> set[NodeName]:
        touched: set[NodeName] = set()
        for key in self._naming.get(pool, ()):
            claim = self._claims[key]
            touched |= self._uncount(claim) | self._count(claim)
        return touched

    def _count(self, claim: ResourceClaim) -> set[NodeName]:
        uses: dict[NodeName, list[Use]] = {}
        for pool, name in claim.devices:
            device = self._device(pool, name)
            ids = device.ids if device is not None else _NO_IDS
            for node in self._nodes_of(claim, pool, device):
                uses.setdefault(node, []).append(Use(claim.key, pool.driver, name, ids))
        for node, some in uses.items():
            self._on_node.setdefault(node, {})[claim.key] = tuple(some)
        self._nodes[claim.key] = tuple(uses)
        return set(uses)

    def _uncount(self, claim: ResourceClaim) -> set[NodeName]:
        touched = self._nodes.pop(claim.key)
        for node in touched:
            there = self._on_node[node]
            del there[claim.key]
            if not there:
                del self._on_node[node]
        return set(touched)

    def _device(self, pool: Pool, name: str) -> Device | None:
        slices = self._slices.get(pool, {}).values()
        newest = max((one.generation for one in slices), default=0)
        found = (one.devices[name] for one in slices if one.generation == newest and name in one.devices)
        return next(found, None)

    def _nodes_of(self, claim: ResourceClaim, pool: Pool, device: Device | None) -> tuple[NodeName, ...]:
        """Return the nodes of a device; without a slice, those of the claim, or the one with the pool's name.

        Source: kube-scheduler allocates a device of a node for that one by name; drivers name pools by their nodes.
        """
        if device is not None and device.node:
            return (device.node,)
        return claim.nodes or ((NodeName(pool.name),) if device is None else ())
