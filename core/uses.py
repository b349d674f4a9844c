"""Reports to a ledger, node by node, what pods use through dynamic resource allocation."""

from collections.abc import Iterable
from typing import Final

from core.claimed import is_of_cards
from core.ledger import Ledger
from core.model import NodeName
from core.resource_claims import ResourceClaim, ResourceClaims, ResourceSlice
from core.store import Store


class Uses:
    """Takes claims and slices; a node is read again only if its cards may be in use, or are no longer.

    Attributes:
        claims: the store of claims; removing a claim frees its devices.
        slices: the store of slices; without its slice, a device in use matches no known card.
    """

    def __init__(self, ledger: Ledger) -> None:
        """Begin with none."""
        known = ResourceClaims()
        self._ledger: Final = ledger
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
            self._ledger.set_uses(node, tuple(use for use in self._known.on(node) if is_of_cards(use)))
