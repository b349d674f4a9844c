"""Biren's cards, of which a container gets whole shares (hami-vendors 3.11)."""

from typing import Final

from core.dialects.hami_vendors.table import VendorSection
from core.dialects.hami_vendors.vendor import Cards, HandOff, Limits, Register, Shares, Vendor
from core.port.spec import CardLists
from core.settings import DialectName

VENDOR: Final[Vendor] = Vendor(
    name=DialectName("biren"),
    maker="biren",
    word="Biren",
    section=VendorSection("biren"),
    limits=Limits(
        count="birentech.com/gpu",
        select=CardLists("birentech.com/use-gpuuuid", "birentech.com/nouse-gpuuuid"),
    ),
    cards=Cards(
        # Registers of runc have the product name as type (VN-32).
        source=Register("hami.io/node-biren-register", has_json=True, cores=100, any_type=True),
        # They are card_0 and so on.
        local_ids=True,
        rules=Shares(),
        whole=(0, 0),
    ),
    handoff=HandOff(
        # The plugin erases the second one up to revision 331ee2b, and the first one at a379807 (VN-31).
        allocated="hami.io/Biren-devices-to-allocate",
        to_allocate="hami.io/Biren-devices-allocated",
        counts_either=True,
        elsewhere="system:serviceaccount:biren-gpu:device-plugin-sa",
    ),
)
