"""One vendor of HAMi's behind the port; each question is answered in a file of its own."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from core import hami_lock
from core.dialects.hami_vendors import (
    amd,
    biren,
    cambricon,
    hygon,
    iluvatar,
    mthreads,
    requests,
    usage,
    vastai,
)
from core.dialects.hami_vendors import cards as _cards
from core.dialects.hami_vendors.table import VendorNames, section_of
from core.dialects.hami_vendors.vendor import Vendor
from core.model import AnyPod, Node, Pod
from core.names import PLACE_WISHES
from core.port.cards import CardWish, Held, Offer, Wording
from core.port.handoff import InFlight, Stamp
from core.port.names import Names
from core.port.refusals import Complaint, Reason, Violation
from core.port.spec import DialectSpec
from core.sharing import wishes
from core.sharing.account import Assignment
from core.sharing.card import Card
from core.sharing.dialect import SharedCards
from core.sharing.handoff import ByNodeLock, NodeLock
from core.sharing.request import Request
from core.sharing.resources import Resources
from core.tables import Tables
from core.warnings import AdmissionWarning, all_memory, little_memory

_STAMPS: Final = frozenset({hami_lock.TIME, hami_lock.BIND_TIME, hami_lock.BIND_PHASE})


class HamiVendor(SharedCards):
    """`Dialect` of core.port for cards of *vendor*."""

    def __init__(self, vendor: Vendor) -> None:
        """Serve *vendor*."""
        self.vendor = vendor
        self.name = vendor.name
        self.rules = vendor.rules
        self.types_key = vendor.types.use
        self._named = lru_cache(maxsize=8)(vendor.named)
        written = frozenset({vendor.to_allocate, *vendor.extra_keys}) - {""}
        self.marks = _STAMPS | written
        self._keys = self.marks | {vendor.allocated, hami_lock.NODE}
        lists = {*vendor.select, *vendor.types} - {""}
        self._preferences = frozenset(lists) | wishes.KEYS | PLACE_WISHES

    def named(self, tables: Tables) -> Resources:
        """Return its resources."""
        return self._named(self._section(tables) or VendorNames())

    def _section(self, tables: Tables) -> VendorNames | None:
        for one in tables.sections:
            if isinstance(one, VendorNames) and one.dialect == self.name:
                return one
        return None

    def declared(self, tables: Tables) -> tuple[Resources, ...]:
        """Return its resources, as device-config.yaml names them."""
        return (self.named(tables),) if self.is_installed(tables) else ()

    def is_installed(self, tables: Tables) -> bool:
        """Return whether HAMi's configuration names its resources; other plugins sell whole cards by the same."""
        return self._section(tables) is not None

    def names(self, tables: Tables) -> Names:
        """See `Reads`; kubelet counts memory and cores of some vendors, and then no cards."""
        found = super().names(tables)
        return replace(
            found,
            uncounted=frozenset(found.memories) if self.vendor.counts_parts else found.uncounted,
            budgeted=tuple([name for name in found.budgeted if name != self._unmetered(tables)]),
            assignment_keys=self._keys,
            preferences=self._preferences if self.is_installed(tables) else frozenset(),
        )

    def _unmetered(self, tables: Tables) -> str:
        """Return the resource for percent of cores that assignments have in units of the card; "" if there is none."""
        return self.named(tables).cores if self.vendor.by_share else ""

    def sold(self, cards: Sequence[Card], tables: Tables) -> Mapping[str, int]:
        """See `Usual`."""
        found = super().sold(cards, tables)
        return {name: amount for name, amount in found.items() if name != self._unmetered(tables)}

    def metered(self, assignment: Assignment, tables: Tables) -> Mapping[str, int]:
        """See `Usual`."""
        found = super().metered(assignment, tables)
        return {name: amount for name, amount in found.items() if name != self._unmetered(tables)}

    def offer(self, node: Node, tables: Tables) -> Offer[Card] | Complaint | None:
        """See `Reads`."""
        return _cards.offer(self.vendor, self.named(tables), node) if self.is_installed(tables) else None

    def identities(self, cards: Sequence[Card]) -> tuple[str, ...]:
        """See `Usual`."""
        return () if self.vendor.local_ids else super().identities(cards)

    def request(self, pod: AnyPod, tables: Tables) -> Request | tuple[Violation, ...] | None:
        """See `Reads`."""
        return requests.request(self.vendor, self.named(tables), pod) if self.is_installed(tables) else None

    def held(self, pod: Pod, cards: Sequence[Card], tables: Tables) -> Held[Assignment] | None:
        """See `Reads`."""
        return usage.held(self.vendor, self.named(tables), pod, cards)

    def annotations(self, assignment: Assignment, stamp: Stamp, tables: Tables) -> Mapping[str, str]:
        """See `Usual`."""
        del tables
        return usage.annotations(self.vendor, assignment, stamp)

    def in_flight(self, pod: Pod, tables: Tables) -> InFlight | None:
        """See `Usual`."""
        del tables
        return usage.in_flight(self.vendor, pod)

    def next_stamp(self, pods: Sequence[Pod], now_s: int) -> int:
        """Return the current time: only one pod of a node is in flight."""
        del pods
        return now_s

    def confusable(self, request: object) -> frozenset[Hashable]:
        """Return one mark for all pods of a node, because nothing tells their plugin which one it serves (VN-2)."""
        del request
        return frozenset({self.vendor.word})

    def completed(self, pod: Pod, request: Request, tables: Tables) -> tuple[Pod, tuple[AdmissionWarning, ...]]:
        """Return *pod* as HAMi's webhook completes it."""
        del request
        fill, named = self.vendor.fill, self.named(tables)
        if fill is None:
            return pod, ()
        return pod._replace(
            containers=tuple([fill(named, one) for one in pod.containers]),
            init_containers=tuple([fill(named, one) for one in pod.init_containers]),
        ), ()

    def relaxed(self, cards: Sequence[Card], request: Request, reason: Reason, amount: int) -> Request | None:
        """See `Places`."""
        may_ask = requests.may_ask(self.vendor, request, reason, amount)
        return super().relaxed(cards, request, reason, amount) if may_ask else None

    def worded(self, wish: CardWish, tables: Tables) -> Sequence[Wording]:
        """See `Usual`."""
        found = requests.wish_of(self.vendor, wish)
        return super().worded(found, tables) if found is not None else ()

    def warnings(self, pod: AnyPod, request: Request, tables: Tables) -> Iterator[AdmissionWarning]:
        """Yield CS116 and CS119 for figures of memory."""
        del request
        named = self.named(tables)
        for one in (*pod.init_containers, *pod.containers) if named.memory else ():
            if one.amount(named.memory) == "0" and one.amount(named.cards) not in (None, "0"):
                yield all_memory(one, named.memory)
            yield from little_memory(one, named.memory, named.mib_per_unit)


class LockedHamiVendor(ByNodeLock, HamiVendor):
    """The same, where the plugin finds its pod by HAMi's lock of the node."""


def _spec(vendor: Vendor) -> DialectSpec[Card, Request, Assignment]:
    port = LockedHamiVendor(vendor) if vendor.locks else HamiVendor(vendor)
    return DialectSpec(
        port=port,
        cards=vendor.maker,
        plugin_accounts=vendor.accounts,
        card_lists=(vendor.select,) if vendor.select.use else (),
        machine_keys=vendor.machine_keys,
        time_lock=vendor.time_lock,
        ignored=hami_lock.IGNORED,
        sections=(section_of(vendor.name, vendor.section),),
        marks=port.marks,
        node_lock=NodeLock() if vendor.locks else None,
    )


VENDORS: Final = (
    amd.VENDOR,
    biren.VENDOR,
    cambricon.VENDOR,
    hygon.VENDOR,
    *iluvatar.VENDORS,
    mthreads.VENDOR,
    vastai.VENDOR,
)
DIALECTS: Final = tuple([_spec(vendor) for vendor in VENDORS])
