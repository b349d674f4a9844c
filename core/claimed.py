"""Which cards of a node take nothing new because pods use them through resource claims, whoever placed those.

A device is the card of the same id, where cards have ids; what cannot be matched so may be any card of its maker.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from core.catalog import Catalog
from core.errors import quoted
from core.port.optional import Identifying
from core.resource_claims import Use
from core.settings import DialectName

# By driver of dynamic resource allocation, or its domain, whose cards it hands out. Source: dra-driver-nvidia-gpu,
# k8s-dra-driver and ascend-dra-driver of HAMi.
MAKERS: Final = {
    "nvidia.com": "nvidia",
    "hami-core-gpu.project-hami.io": "nvidia",
    "huawei.com": "ascend",
    "ascend.project-hami.io": "ascend",
}
# So NVIDIA's ids of whole cards begin; those of parts of cards do not.
_WHOLE_CARD: Final = "GPU-"
# Their devices are no cards: channels between nodes.
_NO_CARDS: Final = frozenset({"compute-domain.nvidia.com"})


class Claimed(NamedTuple):
    """What takes nothing new on a node, by dialect, and why: cards by their ids, and dialects as a whole."""

    cards: Mapping[DialectName, Mapping[str, str]] = {}
    dialects: Mapping[DialectName | None, str] = {}


_NOTHING: Final = Claimed()


def is_of_cards(use: Use) -> bool:
    """Whether *use* could be of a card at all: it has an id, or its driver is one of those that hand out cards."""
    return bool(use.ids) or maker_of(use.driver) is not None


def maker_of(driver: str) -> str | None:
    """Whose cards *driver* hands out; None if no cards that anybody sells here."""
    domains = (driver, driver.partition(".")[2])
    return None if driver in _NO_CARDS else next((MAKERS[one] for one in domains if one in MAKERS), None)


def closed_by_claims(uses: Sequence[Use], offers: Mapping[DialectName, tuple[Any, ...]], catalog: Catalog) -> Claimed:
    """What *uses* of a node's devices close of what it *offers*; the first that closes a thing says why."""
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
    """Whether the ids of *use* say which card it is, so that it is one of those with ids or none of them."""
    return any(one.startswith(_WHOLE_CARD) for one in use.ids)


def _why(use: Use) -> str:
    return (
        f"resource claim {use.claim} has device {quoted(use.device)} of {quoted(use.driver)} there, "
        "which may be any of its cards; wait until that claim is given back"
    )
