"""Cards of a node that accept nothing new because pods use them through resource claims.

A device with an id matches the card with that id, if cards have ids. Other devices may be any card of their maker. The
ledger closes these cards for all pods alike, so no pod asks anything by this constraint.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from core.catalog import Catalog
from core.claims import Device, Pool, ResourceClaim, ResourceSlice, Use
from core.errors import quoted
from core.model import NodeName
from core.settings import DialectName
from core.store import Store

# The maker of the cards of each DRA driver or driver domain; of other makers no driver is known. Source:
# dra-driver-nvidia-gpu, k8s-gpu-dra-driver of AMD, k8s-dra-driver and ascend-dra-driver of HAMi.
MAKERS: Final = {
    "amd.com": "amd",
    "nvidia.com": "nvidia",
    "hami-core-gpu.project-hami.io": "nvidia",
    "huawei.com": "ascend",
    "ascend.project-hami.io": "ascend",
}
# Prefix of NVIDIA's ids of whole cards; ids of parts of cards have others.
_WHOLE_CARD: Final = "GPU-"
# Their devices are not cards but channels between nodes.
_NO_CARDS: Final = frozenset({"compute-domain.nvidia.com"})


class Claimed(NamedTuple):
    """What accepts nothing new on a node, with reasons: cards by id, and whole dialects."""

    cards: Mapping[DialectName, Mapping[str, str]] = {}
    dialects: Mapping[DialectName | None, str] = {}


_NOTHING: Final = Claimed()
_NO_IDS: Final[frozenset[str]] = frozenset()


def is_of_cards(use: Use) -> bool:
    """Return whether *use* may concern a card: it has an id, or its driver allocates cards."""
    return bool(use.ids) or maker_of(use.driver) is not None


def maker_of(driver: str) -> str | None:
    """Return the maker of the cards that *driver* allocates; None if no dialect sells them."""
    domains = (driver, driver.partition(".")[2])
    return None if driver in _NO_CARDS else next((MAKERS[one] for one in domains if one in MAKERS), None)


def closed_by_claims(uses: Sequence[Use], offers: Mapping[DialectName, tuple[Any, ...]], catalog: Catalog) -> Claimed:
    """Return what *uses* of a node's devices close in its *offers*; the first use of a card is its reason."""
    if not uses:
        return _NOTHING
    makers = {one.name: one.cards for one in catalog.specs}
    ids = {name: found for name, cards in offers.items() if (found := _ids(catalog, name, cards))}
    closed: dict[DialectName, dict[str, str]] = {}
    whole: dict[DialectName | None, str] = {}
    for use in uses:
        matched = {name: here & use.ids for name, here in ids.items() if not here.isdisjoint(use.ids)}
        maker = next((makers[name] for name in matched), maker_of(use.driver))
        for name in offers:
            for card in sorted(matched.get(name, ())):
                closed.setdefault(name, {}).setdefault(card, f"it is in use through resource claim {use.claim}")
            if name not in matched and makers[name] == maker and not (name in ids and _names_card(use)):
                whole.setdefault(name, _why(use))
    return Claimed(closed, whole)


def _ids(catalog: Catalog, name: DialectName, cards: Sequence[Any]) -> frozenset[str]:
    return frozenset(catalog.dialects[name].identities(cards))


def _names_card(use: Use) -> bool:
    """Return whether the ids of *use* identify a card, so that it matches a card with an id or none."""
    return any(one.startswith(_WHOLE_CARD) for one in use.ids)


def _why(use: Use) -> str:
    return (
        f"resource claim {use.claim} has device {quoted(use.device)} of {quoted(use.driver)} there, "
        "which may be any of its cards; wait until that claim is given back"
    )


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


class Uses:
    """Takes claims and slices, and reports what is used of nodes; only what may be cards is reported.

    Attributes:
        claims: the store of claims; removing a claim frees its devices.
        slices: the store of slices; without its slice, a device in use matches no known card.
    """

    def __init__(self, set_uses: Callable[[NodeName, tuple[Use, ...]], object]) -> None:
        """Begin with none; *set_uses*: called with all that is used of a node, if that may have changed."""
        known = ResourceClaims()
        self._set_uses: Final = set_uses
        self._known: Final = known
        self.claims: Final = Store[ResourceClaim](
            lambda one: self._tell(known.put_claim(one)),
            lambda one: self._tell(known.drop_claim(one.key)),
            known.claims,
            lambda one: one.key,
        )
        self.slices: Final = Store[ResourceSlice](
            lambda one: self._tell(known.put_slice(one)),
            lambda one: self._tell(known.drop_slice(one)),
            known.slices,
            lambda one: (one.pool, one.name),
        )

    def _tell(self, nodes: Iterable[NodeName]) -> None:
        for node in nodes:
            self._set_uses(node, tuple(use for use in self._known.on(node) if is_of_cards(use)))
