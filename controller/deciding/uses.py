"""What pods use of nodes by dynamic resource allocation, as the mirror shows it, told to the ledger node by node."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from core.claimed import is_of_cards
from core.ledger import Ledger
from core.model import NodeName
from core.resource_claims import ResourceClaim, ResourceClaims, ResourceSlice

_SLICE: Final = 512


class Uses:
    """Takes claims and slices; a node is read anew only where cards of it may be in use, or are no more."""

    def __init__(self, ledger: Ledger) -> None:
        """Begin with none."""
        self._ledger: Final = ledger
        self._known: Final = ResourceClaims()

    def claims_replaced(self, claims: Sequence[ResourceClaim]) -> Iterator[None]:
        """These claims, and no others, exist. Yields where others may have their turn."""
        for at, one in enumerate(claims, start=1):
            self.claim_changed(one)
            if at % _SLICE == 0:
                yield
        there = {one.key for one in claims}
        for gone in [one for one in self._known.claims if one.key not in there]:
            self.claim_gone(gone)

    def claim_changed(self, claim: ResourceClaim) -> None:
        """A claim appeared or changed."""
        self._tell(self._known.put_claim(claim))

    def claim_gone(self, claim: ResourceClaim) -> None:
        """A claim is gone, and its devices with it."""
        self._tell(self._known.drop_claim(claim.key))

    def slices_replaced(self, slices: Sequence[ResourceSlice]) -> Iterator[None]:
        """These slices, and no others, exist. Yields where others may have their turn."""
        for at, one in enumerate(slices, start=1):
            self.slice_changed(one)
            if at % _SLICE == 0:
                yield
        there = {(one.pool, one.name) for one in slices}
        for gone in [one for one in self._known.slices if (one.pool, one.name) not in there]:
            self.slice_gone(gone)

    def slice_changed(self, found: ResourceSlice) -> None:
        """A slice appeared or changed."""
        self._tell(self._known.put_slice(found))

    def slice_gone(self, found: ResourceSlice) -> None:
        """A slice is gone: of devices that are in use still, nobody knows which cards they are."""
        self._tell(self._known.drop_slice(found))

    def _tell(self, nodes: Iterable[NodeName]) -> None:
        for node in nodes:
            self._ledger.set_uses(node, tuple(use for use in self._known.on(node) if is_of_cards(use)))
