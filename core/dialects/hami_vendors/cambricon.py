"""Cambricon's MLUs in dynamic sMLU mode: one container of a pod gets one profile of one card (hami-vendors 3.1)."""

from collections.abc import Mapping
from typing import Final

from core.dialects.hami_vendors.table import VendorSection
from core.dialects.hami_vendors.vendor import Capacity, Cards, HandOff, Limits, Vendor
from core.port.handoff import Stamp
from core.port.spec import CardLists
from core.settings import DialectName
from core.sharing.account import Assignment
from core.sharing.request import Resources

_UNIT_MIB: Final = 256
_PROFILE: Final = "CAMBRICON_DSMLU_PROFILE"
# HAMi has written the first since v2.7; the plugin reads the second (VN-4).
_ASSIGNED: Final = ("CAMBRICON_DSMLU_ASSIGNED", "CAMBRICON_DSMLU_ASSIGHED")


def _told(assignment: Assignment, stamp: Stamp, named: Resources) -> Mapping[str, str]:
    first = assignment.entries[0]
    index = first.uuid.rpartition("-")[2]
    profile = f"{index}_{first.cores}_{first.memory // _UNIT_MIB}"
    return {**dict.fromkeys(_ASSIGNED, "false"), _PROFILE: profile}


VENDOR: Final[Vendor] = Vendor(
    name=DialectName("cambricon"),
    maker="cambricon",
    word="MLU",
    section=VendorSection("cambricon"),
    limits=Limits(
        count="cambricon.com/vmlu",
        memory="cambricon.com/mlu.smlu.vmemory",
        cores="cambricon.com/mlu.smlu.vcore",
        mib_per_unit=_UNIT_MIB,
        select=CardLists("cambricon.com/use-gpuuuid", "cambricon.com/nouse-gpuuuid"),
        counts=(1,),
        companions=True,
        one_container=True,
        counts_parts=True,
    ),
    cards=Cards(source=Capacity("cambricon-mlu", has_cores=True, slots=100)),
    handoff=HandOff(
        allocated="hami.io/cambricon-mlu-devices-allocated",
        to_allocate="hami.io/cambricon-mlu-devices-to-allocate",
        extra_keys=(*_ASSIGNED, _PROFILE),
        told=_told,
        locks=False,
        time_lock="cambricon.com/dsmlu.lock",
        served_keys=_ASSIGNED,
        accounts=("system:serviceaccount:kube-system:cambricon-device-plugin",),
        machine_keys=frozenset({"CAMBRICON_DSMLU_PROFILE_INSTANCE"}),
    ),
)
