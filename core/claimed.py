"""Finds cards of a node that accept nothing new because pods use them through resource claims.

A device with an id matches the card with that id, if cards have ids. Other devices may be any card of their maker.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from core.catalog import Catalog
from core.errors import quoted
from core.port.optional import Identifying
from core.resource_claims import Use
from core.settings import DialectName

# The maker of the cards of each DRA driver or driver domain. Source: dra-driver-nvidia-gpu, k8s-dra-driver and
# ascend-dra-driver of HAMi.
MAKERS: Final = {
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
    dialect = catalog.dialects[name]
    return frozenset(dialect.identities(cards) if isinstance(dialect, Identifying) else ())


def _names_card(use: Use) -> bool:
    """Return whether the ids of *use* identify a card, so that it matches a card with an id or none."""
    return any(one.startswith(_WHOLE_CARD) for one in use.ids)


def _why(use: Use) -> str:
    return (
        f"resource claim {use.claim} has device {quoted(use.device)} of {quoted(use.driver)} there, "
        "which may be any of its cards; wait until that claim is given back"
    )
