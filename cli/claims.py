"""Which cards take nothing new because pods use them through resource claims, for what ``kubectl cards get`` shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from core.claimed import is_of_cards
from core.ledger import Ledger
from core.model import NodeName
from core.resource_claims import ResourceClaim, ResourceClaims, ResourceSlice
from core.wire.resource_claims import decode_resource_claim, decode_resource_slice
from kube.errors import ApiError, ApiNotFoundError
from kube.listing import list_all
from kube.objects import EventKind, page_decoder
from kube.reflector import Reflector
from kube.transport import Transport

CLAIMS: Final = "/apis/resource.k8s.io/v1/resourceclaims"
SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"


class _Uses:
    """Claims and slices as they are known, told to a ledger node by node."""

    def __init__(self, ledger: Ledger, changed: Callable[[], None] = lambda: None) -> None:
        self.known: Final = ResourceClaims()
        self._ledger: Final = ledger
        self._changed: Final = changed

    def tell(self, nodes: Iterable[NodeName]) -> None:
        for node in nodes:
            self._ledger.set_uses(node, tuple(use for use in self.known.on(node) if is_of_cards(use)))
        self._changed()


class _Claims:
    """`kube.reflector.Sink` of claims."""

    def __init__(self, uses: _Uses) -> None:
        self._uses: Final = uses

    async def on_replace(self, objects: Sequence[ResourceClaim], resource_version: str) -> None:
        del resource_version
        known, touched = self._uses.known, set[NodeName]()
        for key in {one.key for one in known.claims()} - {one.key for one in objects}:
            touched |= known.drop_claim(key)
        for one in objects:
            touched |= known.put_claim(one)
        self._uses.tell(touched)

    async def on_event(self, kind: EventKind, value: ResourceClaim) -> None:
        known = self._uses.known
        self._uses.tell(known.drop_claim(value.key) if kind is EventKind.DELETED else known.put_claim(value))


class _Slices:
    """`kube.reflector.Sink` of slices."""

    def __init__(self, uses: _Uses) -> None:
        self._uses: Final = uses

    async def on_replace(self, objects: Sequence[ResourceSlice], resource_version: str) -> None:
        del resource_version
        known, touched = self._uses.known, set[NodeName]()
        there = {(one.pool, one.name) for one in objects}
        for gone in [one for one in known.slices() if (one.pool, one.name) not in there]:
            touched |= known.drop_slice(gone)
        for one in objects:
            touched |= known.put_slice(one)
        self._uses.tell(touched)

    async def on_event(self, kind: EventKind, value: ResourceSlice) -> None:
        known = self._uses.known
        self._uses.tell(known.drop_slice(value) if kind is EventKind.DELETED else known.put_slice(value))


async def read_claims(transport: Transport, ledger: Ledger) -> tuple[str, ...]:
    """Tell *ledger* what pods use through resource claims; notes on why that is not known, none where it is.

    Raises:
        ApiError: nobody answers.
    """
    uses = _Uses(ledger)
    try:
        slices = await list_all(transport, SLICES, page_decoder(decode_resource_slice))
        await _Slices(uses).on_replace(slices.items, "")
        claims = await list_all(transport, CLAIMS, page_decoder(decode_resource_claim))
        await _Claims(uses).on_replace(claims.items, "")
    except ApiNotFoundError:
        return ()  # a cluster without dynamic resource allocation
    except ApiError as e:
        if not e.status:
            raise
        return (f"resource claims are not read ({e}); cards that they close are shown as others",)
    return ()


def following(
    transport: Transport, ledger: Ledger, changed: Callable[[], None]
) -> tuple[Reflector[ResourceClaim], Reflector[ResourceSlice]]:
    """What keeps *ledger* told of the same; *changed* is called after each change."""
    uses = _Uses(ledger, changed)
    return (
        Reflector(transport, CLAIMS, decode=decode_resource_claim, sink=_Claims(uses), absent_is_empty=True),
        Reflector(transport, SLICES, decode=decode_resource_slice, sink=_Slices(uses), absent_is_empty=True),
    )
