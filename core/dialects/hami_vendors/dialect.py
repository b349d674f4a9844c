"""One vendor of HAMi's behind the port."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from core import hami_lock
from core.dialects.hami_vendors import (
    amd,
    biren,
    cambricon,
    enflame,
    hygon,
    iluvatar,
    kunlun,
    metax,
    mthreads,
    neuron,
    pods,
    vastai,
)
from core.dialects.hami_vendors import cards as _cards
from core.dialects.hami_vendors.table import VendorNames, section_of
from core.dialects.hami_vendors.vendor import Vendor
from core.model import AnyPod, Node, Pod, ReviewedPod
from core.names import PLACE_WISHES
from core.port.cards import CardWish, Held, Offer, Wording
from core.port.dialect import Names
from core.port.handoff import InFlight, Stamp
from core.port.refusals import Complaint, Reason, Violation
from core.port.spec import DialectSpec
from core.settings import Tables
from core.sharing import order
from core.sharing.account import Assignment
from core.sharing.card import Card
from core.sharing.dialect import ByNodeLock, NodeLock, SharedCards
from core.sharing.request import Request, Resources, odd_memory
from core.warnings import AdmissionWarning, limit_of, no_effect
from core.wire.vocabulary import DeviceSection

_STAMPS: Final = frozenset({hami_lock.TIME, hami_lock.BIND_TIME, hami_lock.BIND_PHASE})


class HamiVendor(SharedCards):
    """`Dialect` of core.port for cards of *vendor*."""

    def __init__(self, vendor: Vendor) -> None:
        """Serve *vendor*."""
        self.vendor = vendor
        self.name = vendor.name
        self.rules = vendor.cards.rules
        self.types_key = vendor.limits.types.use
        self._named = lru_cache(maxsize=8)(vendor.named)
        self._of_sizes = lru_cache(maxsize=8)(vendor.of_sizes)
        written = frozenset({vendor.handoff.to_allocate, *vendor.handoff.extra_keys}) - {""}
        self.marks = _STAMPS | written
        self._keys = self.marks | {vendor.handoff.allocated, hami_lock.NODE}
        lists = {*vendor.limits.select, *vendor.limits.select_too, *vendor.limits.types} - {""}
        self.own_wishes = frozenset(lists) | frozenset(vendor.wishes.keys)
        self._preferences = self.own_wishes | order.KEYS | PLACE_WISHES

    def named(self, tables: Tables) -> Resources:
        """Return its resources."""
        return self._named(self._section(tables) or VendorNames())

    def _section(self, tables: Tables) -> VendorNames | None:
        for one in tables.sections:
            if isinstance(one, VendorNames) and one.dialect == self.name:
                return one
        return None

    def _sold(self, tables: Tables) -> Vendor:
        """Return the vendor with the cards that device-config.yaml tells of."""
        section = self._section(tables)
        return self._of_sizes(section.sizes) if section is not None else self.vendor

    def declared(self, tables: Tables) -> tuple[Resources, ...]:
        """Return its resources, as device-config.yaml names them."""
        return (self.named(tables),) if self.is_installed(tables) else ()

    def is_installed(self, tables: Tables) -> bool:
        """Return whether HAMi's configuration names its resources; other plugins sell whole cards by the same."""
        return self._section(tables) is not None

    def names(self, tables: Tables) -> Names:
        # Kubelet counts memory and cores of some vendors, and then no cards.
        found = super().names(tables)
        return replace(
            found,
            uncounted=frozenset(found.memories) if self.vendor.limits.counts_parts else found.uncounted,
            budgeted=tuple([name for name in found.budgeted if name not in self._unmetered(tables)]),
            totals=frozenset(self.named(tables).parts) if self.vendor.limits.per_container else frozenset(),
            # Without a count nobody knows how many slices are meant (VN-27).
            fills={self.named(tables).cards: 0} if self.vendor.cards.slices else {},
            memories=found.memories if not self.vendor.cards.slices else {},
            units=found.units if self.vendor.limits.memory_mib is None else {},
            quantities=found.units if self.vendor.limits.memory_mib is not None else {},
            assignment_keys=self._keys,
            repeats={self.vendor.handoff.number_key: self.named(tables).cards}
            if self.vendor.handoff.number_key
            else {},
            # Kubelet gives them to pods without annotations, whether or not a configuration names them.
            beginnings=(self.named(tables).cards,) if self.vendor.handoff.kubelet_chooses else (),
            preferences=self._preferences if self.is_installed(tables) else frozenset(),
        )

    def _unmetered(self, tables: Tables) -> frozenset[str]:
        """Return the resources for parts of cards that assignments have in other units, of each card its own."""
        named = self.named(tables)
        if self.vendor.cards.slices:
            return frozenset(named.parts)
        return frozenset({named.cores}) if self.vendor.cards.by_share else frozenset()

    def sold(self, cards: Sequence[Card], tables: Tables) -> Mapping[str, int]:
        found = super().sold(cards, tables)
        return {name: amount for name, amount in found.items() if name not in self._unmetered(tables)}

    def metered(self, assignment: Assignment, tables: Tables) -> Mapping[str, int]:
        found = super().metered(assignment, tables)
        return {name: amount for name, amount in found.items() if name not in self._unmetered(tables)}

    def offer(self, node: Node, tables: Tables) -> Offer[Card] | Complaint | None:
        return _cards.offer(self.vendor, self.named(tables), node) if self.is_installed(tables) else None

    def identities(self, cards: Sequence[Card]) -> tuple[str, ...]:
        return () if self.vendor.cards.local_ids else super().identities(cards)

    def request(self, pod: AnyPod, tables: Tables) -> Request | tuple[Violation, ...] | None:
        section = self._section(tables)
        if section is None:
            return None
        if section.annotations:
            pod = pod._replace(annotations={**dict(section.annotations), **pod.annotations})
        return pods.request(self._sold(tables), self.named(tables), pod)

    def held(self, pod: Pod, cards: Sequence[Card], tables: Tables) -> Held[Assignment] | None:
        return pods.held(self.vendor, self.named(tables), pod, cards)

    def annotations(self, assignment: Assignment, stamp: Stamp, tables: Tables) -> Mapping[str, str]:
        return pods.annotations(self.vendor, self.named(tables), assignment, stamp)

    def in_flight(self, pod: Pod, tables: Tables) -> InFlight | None:
        return pods.in_flight(self.vendor, self.named(tables), pod)

    def confusable(self, request: object) -> frozenset[Hashable]:
        """Return one mark for all pods of a node, because nothing tells their plugin which one it serves (VN-2).

        Instances of different size are told apart.
        """
        vendor = self.vendor
        if vendor.cards.slices and isinstance(request, Request):
            return frozenset([(vendor.word, ask.memory) for ask in request.asks])
        return frozenset() if vendor.handoff.kubelet_chooses else frozenset({vendor.word})

    def completed(
        self, pod: ReviewedPod, request: Request, tables: Tables
    ) -> tuple[ReviewedPod, tuple[AdmissionWarning, ...]]:
        """Return *pod* as HAMi's webhook completes it."""
        fill, named, notes = self._sold(tables).limits.fill, self.named(tables), self.vendor.wishes.notes
        if notes is not None:
            pod = pod._replace(annotations={**pod.annotations, **notes(pod.annotations)})
        if fill is None:
            return pod, ()
        return pod._replace(
            containers=tuple([fill(named, one) for one in pod.containers]),
            init_containers=tuple([fill(named, one) for one in pod.init_containers]),
        ), ()

    def relaxed(self, cards: Sequence[Card], request: Request, reason: Reason, amount: int) -> Request | None:
        fewer = self.vendor.limits.fewer
        if reason in (Reason.CARD_COUNT, Reason.CORES) and fewer is not None:
            return request._replace(asks=tuple([fewer(ask, amount) for ask in request.asks]))
        unit = self.vendor.limits.mib_per_unit
        vendor = self._of_sizes(tuple(sorted({card.fixed.memory // unit for card in cards} - {0})))
        may_ask = pods.may_ask(vendor, request, reason, amount)
        found = super().relaxed(cards, request, reason, amount) if may_ask else None
        return pods.relaxed(self.vendor, found) if found is not None else None

    def worded(self, wish: CardWish, tables: Tables) -> Sequence[Wording]:
        found = pods.wish_of(self._sold(tables), wish)
        return super().worded(found, tables) if found is not None else ()

    def warnings(self, pod: AnyPod, request: Request, tables: Tables) -> Iterable[AdmissionWarning]:
        named = self.named(tables)
        if self.vendor.cards.slices:
            return _uncounted(pod, named)
        return odd_memory(pod, named) if named.memory and not self.vendor.limits.rounds_up else ()


def _uncounted(pod: AnyPod, named: Resources) -> Iterator[AdmissionWarning]:
    """Yield CS116 for memory and cores beside a number of slices, which alone decides (VN-24, VN-28)."""
    for one in (*pod.init_containers, *pod.containers):
        for name in named.parts:
            text = one.amount(name)
            if text not in (None, "0"):
                why = f"an instance has the memory and cores of its {named.cards} slices"
                yield no_effect(limit_of(one, name), text or "", why, "leave it out")


class LockedHamiVendor(ByNodeLock, HamiVendor):
    """The same, where the plugin finds its pod by HAMi's lock of the node."""


def _spec(vendor: Vendor) -> DialectSpec[Card, Request, Assignment]:
    port = LockedHamiVendor(vendor) if vendor.handoff.locks else HamiVendor(vendor)
    named = vendor.named(VendorNames())
    words = (*port.own_wishes, named.cards, *named.parts)
    return DialectSpec(
        port=port,
        cards=vendor.maker,
        plugin_accounts=vendor.handoff.accounts,
        card_lists=tuple([one for one in (vendor.limits.select, vendor.limits.select_too) if one.use]),
        type_lists=(vendor.limits.types,) if vendor.limits.types.use else (),
        key_prefixes=tuple(sorted({f"{word.partition('/')[0]}/" for word in words})),
        variables=vendor.handoff.variables,
        machine_keys=vendor.handoff.machine_keys,
        time_lock=vendor.handoff.time_lock,
        ignored=hami_lock.IGNORED,
        sections=(_section(vendor),),
        marks=port.marks,
        node_lock=NodeLock() if vendor.handoff.locks else None,
    )


def _usual(vendor: Vendor) -> tuple[str, str, str]:
    return vendor.limits.count, vendor.limits.memory, vendor.limits.cores


def _section(vendor: Vendor) -> DeviceSection:
    sharing = [one for one in VENDORS if one.section.key == vendor.section.key]
    keys = frozenset().union(*(one.section.keys(_usual(one)) for one in sharing))
    words = frozenset([one.section.word for one in sharing]) - {""}
    return section_of(vendor.name, vendor.section, _usual(vendor), keys, words)


VENDORS: Final[tuple[Vendor, ...]] = (
    amd.VENDOR,
    biren.VENDOR,
    cambricon.VENDOR,
    *enflame.VENDORS,
    hygon.VENDOR,
    *iluvatar.VENDORS,
    *kunlun.VENDORS,
    *metax.VENDORS,
    mthreads.VENDOR,
    neuron.VENDOR,
    vastai.VENDOR,
)
DIALECTS: Final = tuple([_spec(vendor) for vendor in VENDORS])
