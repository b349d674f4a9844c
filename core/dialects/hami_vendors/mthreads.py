"""Mthreads' cards, of which the containers of a pod share one, or get whole ones (hami-vendors 3.4)."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from core.dialects.hami_vendors.table import VendorSection
from core.dialects.hami_vendors.vendor import Capacity, Cards, HandOff, Limits, Vendor
from core.model import Container
from core.port.handoff import Stamp
from core.port.spec import CardLists
from core.settings import DialectName
from core.sharing.account import Assignment
from core.sharing.fit import Rules
from core.sharing.request import Resources

# What a whole card has, of memory where the configuration does not say it: that of an MTT S4000.
_CORES: Final = 16
_UNITS: Final = (96,)
# The cards that can be shared, by the index that the plugin takes for the card's own (VN-40).
_BOUND: Final = "mthreads.com/sgpu.cores"
_KEYS: Final = ("mthreads.com/gpu-index", "mthreads.com/predicate-node", "mthreads.com/predicate-time")
# Of a container with several; HAMi's webhook writes it.
_NUMBER: Final = "mthreads.com/request-gpu-num"


class _OneCard(Rules):
    on_one_card = True


def _told(assignment: Assignment, stamp: Stamp, named: Resources) -> Mapping[str, str]:
    last = assignment.entries[-1].container
    indices = [one.uuid.rpartition("-")[2] for one in assignment.entries if one.container == last]
    told = dict(zip(_KEYS, (",".join(indices), stamp.node, str(stamp.now_s * 1_000_000_000)), strict=True))
    return {**told, _NUMBER: str(len(indices))} if len(indices) > 1 else told


def _filled(sizes: tuple[int, ...], named: Resources, one: Container) -> Container:
    """Return *one* with all memory and cores of its cards if it names no part of one, as HAMi's webhook does.

    Of several cards, 0 means all too, and kubelet must ask the plugin for them. If there are several *sizes* of cards,
    only the cores are written, because it is not known yet which size the container gets.
    """
    text = one.amount(named.cards) or ""
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else 0
    if number == 1 and one.amount(named.memory) is not None:
        return one
    wanted = {named.memory: sizes[0] * number if len(sizes) == 1 else 0, named.cores: _CORES * number}
    absent = (None,) if number == 1 else (None, "0")
    more = {key: str(figure) for key, figure in wanted.items() if figure and one.amount(key) in absent}
    return one._replace(limits={**one.limits, **more}, requests={**one.requests, **more}) if more else one


def _sized(usual: Limits, sizes: tuple[int, ...]) -> Limits:
    """Return the limits for cards of *sizes*: of each, a power of 2 from 2, or all (HAMi's pull request 2988)."""
    parts = {1 << power for power in range(1, sizes[-1].bit_length()) if 1 << power < sizes[-1]}
    return replace(usual, steps=tuple(sorted(parts.union(sizes))), fill=partial(_filled, sizes))


VENDOR: Final[Vendor] = Vendor(
    name=DialectName("mthreads"),
    maker="mthreads",
    word="Mthreads",
    section=VendorSection("mthreads", sizes="memoryPerCard"),
    limits=Limits(
        count="mthreads.com/vgpu",
        memory="mthreads.com/sgpu-memory",
        cores="mthreads.com/sgpu-core",
        mib_per_unit=512,
        select=CardLists("mthreads.ai/use-gpuuuid", "mthreads.ai/nouse-gpuuuid"),
        all_cores=False,
        most_cores=_CORES,
        per_container=True,
        steps=(2, 4, 8, 16, 32, 64, *_UNITS),
        several_are_whole=True,
        counts_parts=True,
        fill=partial(_filled, _UNITS),
    ),
    cards=Cards(
        source=Capacity("mthreads", has_cores=True, slots=100, cores=_CORES, indices=_BOUND),
        core_unit="sixteenths",
        rules=_OneCard(),
    ),
    handoff=HandOff(
        allocated="hami.io/mthreads-vgpu-devices-allocated",
        extra_keys=(*_KEYS, _NUMBER),
        told=_told,
        number_key=_NUMBER,
        locks=False,
    ),
    sized=_sized,
)
