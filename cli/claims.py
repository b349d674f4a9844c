"""Finds cards that are unavailable because pods use them through resource claims, for ``kubectl cards get``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from cli.reads import Reads
from core.constraints.resource_claims import Uses
from core.ledger import Ledger
from core.resource_claims import ResourceClaim, ResourceSlice
from core.store import Store
from core.wire.resource_claims import decode_resource_claim, decode_resource_slice
from kube.errors import ApiError, ApiNotFoundError
from kube.listing import list_all
from kube.objects import EventKind, page_decoder
from kube.reflector import Reflector
from kube.transport import Transport

CLAIMS: Final = "/apis/resource.k8s.io/v1/resourceclaims"
SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"


_T = TypeVar("_T")


class Keeping(Generic[_T]):
    """A `kube.reflector.Sink` that stores objects of one kind; calls *changed* after each change."""

    def __init__(self, store: Store[_T], changed: Callable[[], None]) -> None:
        self._store: Final = store
        self._changed: Final = changed

    async def on_replace(self, objects: Sequence[_T], resource_version: str) -> None:
        """Replace all objects."""
        del resource_version
        for _ in self._store.replaced(objects):
            pass
        self._changed()

    async def on_event(self, kind: EventKind, value: _T) -> None:
        """Put or drop one object."""
        (self._store.drop if kind is EventKind.DELETED else self._store.put)(value)
        self._changed()


async def read_claims(transport: Reads, ledger: Ledger) -> tuple[str, ...]:
    """Tell *ledger* what pods use through resource claims; notes on why that is not known, none where it is.

    Raises:
        ApiError: the server does not answer.
    """
    uses = Uses(ledger.set_uses)
    try:
        for one in (await list_all(transport, SLICES, page_decoder(decode_resource_slice))).items:
            uses.slices.put(one)
        for claim in (await list_all(transport, CLAIMS, page_decoder(decode_resource_claim))).items:
            uses.claims.put(claim)
    except ApiNotFoundError:
        return ()  # a cluster without dynamic resource allocation
    except ApiError as e:
        if not e.status:
            raise
        return (unread(str(e)),)
    return ()


def unread(why: str) -> str:
    """Return the note that resource claims cannot be read."""
    return f"resource claims are not read ({why}); cards that they close are shown as others"


def following(
    transport: Transport, ledger: Ledger, changed: Callable[[], None]
) -> tuple[Reflector[ResourceClaim], Reflector[ResourceSlice]]:
    """Return reflectors that keep the same data in *ledger* up to date; *changed* is called after each change."""
    uses = Uses(ledger.set_uses)
    claims, slices = Keeping(uses.claims, changed), Keeping(uses.slices, changed)
    return (
        Reflector(transport, CLAIMS, decode=decode_resource_claim, sink=claims, absent_is_empty=True),
        Reflector(transport, SLICES, decode=decode_resource_slice, sink=slices, absent_is_empty=True),
    )
