"""Hygon's DCUs (protocol reference, hami-vendors 3.2)."""

from typing import Final

from core.dialects.hami_vendors.table import VendorSection
from core.dialects.hami_vendors.vendor import Cards, HandOff, Limits, Register, Vendor
from core.port.spec import CardLists
from core.settings import DialectName

VENDOR: Final[Vendor] = Vendor(
    name=DialectName("hygon"),
    maker="hygon",
    word="DCU",
    section=VendorSection("hygon", has_factor=True),
    limits=Limits(
        count="hygon.com/dcunum",
        memory="hygon.com/dcumem",
        cores="hygon.com/dcucores",
        select=CardLists("hygon.com/use-gpuuuid", "hygon.com/nouse-gpuuuid"),
        types=CardLists("hygon.com/use-dcutype", "hygon.com/nouse-dcutype"),
        several_are_whole=True,
    ),
    cards=Cards(source=Register("hami.io/node-dcu-register")),
    handoff=HandOff(
        allocated="hami.io/dcu-devices-allocated",
        to_allocate="hami.io/dcu-devices-to-allocate",
        captures=True,
        accounts=("system:serviceaccount:kube-system:dcu-device-plugin",),
        node_keys=("hami.io/node-handshake-dcu",),
    ),
)
