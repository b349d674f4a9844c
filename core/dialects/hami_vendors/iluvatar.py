"""Iluvatar's cards: one dialect for each type of chip, which have registers of their own (hami-vendors 3.3)."""

from typing import Final

from core.dialects.hami_vendors.table import VendorSection
from core.dialects.hami_vendors.vendor import Cards, HandOff, Limits, Register, Vendor
from core.model import Container
from core.port.spec import CardLists
from core.settings import DialectName
from core.sharing.request import Resources
from core.watched import CONTAINER_NAME

_CORES: Final = 100


def _filled(named: Resources, one: Container) -> Container:
    """Return *one* with all cores of several cards, and its name, as HAMi's webhook does."""
    text = one.amount(named.cards) or "0"
    if text == "0":
        return one
    if CONTAINER_NAME not in {name for name, _ in one.reach.env}:
        one = one._replace(reach=one.reach._replace(env=(*one.reach.env, (CONTAINER_NAME, one.name))))
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else 0
    if number < 2:
        return one
    # In limits and requests, which an API server wants equal (VN-9); also instead of those of one card.
    more = {named.cores: str(_CORES * number)}
    return one._replace(limits={**one.limits, **more}, requests={**one.requests, **more})


def _vendor(chip: str) -> Vendor:
    return Vendor(
        name=DialectName(f"iluvatar_{chip.lower().replace('-', '_')}"),
        maker=f"iluvatar {chip}",
        word=chip,
        section=VendorSection("iluvatars", chip),
        limits=Limits(
            count=f"iluvatar.ai/{chip}-vgpu",
            memory=f"iluvatar.ai/{chip}.vMem",
            cores=f"iluvatar.ai/{chip}.vCore",
            mib_per_unit=256,
            select=CardLists(f"hami.io/use-{chip}-uuid", f"hami.io/no-use-{chip}-uuid"),
            all_cores=False,
            several_are_whole=True,
            fill=_filled,
        ),
        cards=Cards(
            source=Register(f"hami.io/node-{chip}-register"),
        ),
        handoff=HandOff(
            allocated=f"hami.io/{chip}-devices-allocated",
            to_allocate=f"hami.io/{chip}-devices-to-allocate",
        ),
    )


VENDORS: Final[tuple[Vendor, ...]] = tuple([_vendor(chip) for chip in ("MR-V100", "MR-V50", "BI-V150", "BI-V100")])
