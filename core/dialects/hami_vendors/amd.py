"""AMD's cards, of which a container gets memory and compute units (hami-vendors 3.9)."""

from typing import Final

from core.dialects.hami_vendors.table import VendorSection
from core.dialects.hami_vendors.vendor import Cards, HandOff, Limits, Register, Vendor
from core.port.spec import CardLists
from core.settings import DialectName

VENDOR: Final[Vendor] = Vendor(
    name=DialectName("amd"),
    maker="amd",
    word="AMD",
    section=VendorSection("amd"),
    limits=Limits(
        count="amd.com/gpu",
        memory="amd.com/gpumem",
        cores="amd.com/gpucores",
        select=CardLists("amd.com/use-gpu-uuid", "amd.com/nouse-gpu-uuid"),
        types=CardLists("amd.com/use-gputype", "amd.com/nouse-gputype"),
        least_cores=1,
        # The plugin says that it is done after the first container, and never frees what init containers had (VN-36).
        one_container=True,
    ),
    cards=Cards(
        source=Register("hami.io/node-amd-register", has_json=True),
        core_unit="compute units",
        by_share=True,
    ),
    handoff=HandOff(
        allocated="hami.io/amd-devices-allocated",
        to_allocate="hami.io/amd-devices-to-allocate",
        writes_type=True,
        accounts=("system:serviceaccount:kube-system:amd-gpu-device-plugin",),
        # The last one loads the library that limits memory.
        variables=frozenset({"HIP_DEVICE_MEMORY_LIMIT", "HSA_CU_MASK", "LD_AUDIT"}),
        machine_keys=frozenset({"hami.io/amd-cu-allocated"}),
    ),
)
