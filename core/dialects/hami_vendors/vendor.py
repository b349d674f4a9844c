"""What a vendor of HAMi's declares of its cards; everything else is the same for all of them.

Source: protocol reference, hami-vendors 1, 2 and 3.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from core.dialects.hami_vendors.table import VendorNames, VendorSection
from core.model import AnyPod, Container, Pod
from core.port.handoff import Stamp
from core.port.refusals import Violation
from core.port.spec import CardLists
from core.settings import DialectName
from core.sharing.account import Assignment, Entry, Written
from core.sharing.card import Card, Kind, Measures
from core.sharing.fit import Rules
from core.sharing.request import Ask, Place, Request, Resources
from core.wire.hami_register import Record

_RULES: Final = Rules()
# What people are told of whole shares.
SHARES: Final = Measures(unit="shares", cores=False)


class Shares(Rules):
    """Whole shares: they have neither memory nor cores of their own."""

    measures = SHARES


_NO_LISTS: Final = CardLists("", "")


class Register(NamedTuple):
    """Cards from an annotation of the node.

    key: the annotation. has_json: it is a list of objects, otherwise text; read: it has a form of its own, which this
    reads, with the node's name. cores: of each card, 0 if it says so itself. any_type: cards belong to the vendor
    whatever their type, otherwise only if their type contains its word (VN-32).
    """

    key: str
    has_json: bool = False
    cores: int = 0
    any_type: bool = False
    read: Callable[[str, str, str], tuple[Record, ...]] | None = None


class Capacity(NamedTuple):
    """Cards from the capacity of the node: as many as it has of the count, or of cores divided by *cores* (VN-7).

    They are called ``<node>-<word>-<index>``. has_cores: the latter; the memory is in the capacity too. slots, cores:
    of each card. in_halves: the second half of the cards is at the second NUMA node. shares_cores: the cores in the
    capacity are divided among the cards, as slots and memory. labels, notes: of the node, kept with each card.
    indices: the label with the index of each card, separated by dashes; without it, they count from 0.
    """

    word: str
    has_cores: bool = False
    slots: int = 1
    cores: int = 100
    in_halves: bool = False
    shares_cores: bool = False
    labels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    indices: str = ""


def _nothing(record: Record) -> str:
    return ""


class Codec(NamedTuple):
    """What an entry of an assignment says, where that is not what the card loses.

    written: an entry as it is written. read: completes an entry of a pod as *account.Finish*. told: what an assignment
    needs to know of a card.
    """

    written: Callable[[Entry], Entry]
    read: Callable[[Pod, Resources, Entry, Written, Card | None], tuple[Entry, bool]]
    told: Callable[[Record], str] = _nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What containers can request.

    count, memory, cores: the usual names of the resources, "" for none. mib_per_unit: MiB in a unit of memory;
    memory_mib: reads an amount of memory that is not a number of units.
    all_cores: containers without cores get all of their cards, otherwise none. least_cores, most_cores: the allowed
    cores of a card.
    per_container: memory and cores are those of all its cards together. steps: the amounts of memory that a container
    may ask for, in units, () for any; rounds_up: others become the next one. No memory is the last one, which is all of
    a card, and cores follow.
    counts: the numbers of cards that it may ask for, () for any. companions: it must name memory and cores.
    several_are_whole: it gets several cards only whole. one_container: only one container of a pod may have cards, and
    no init container. counts_parts: kubelet counts memory and cores, not cards.
    select: lists of ids of cards; select_too: another pair of them, which counts too; types: of their types.
    fill: completes a container as HAMi's webhook does. asks: reads what containers ask for, if they can ask for cores
    without cards; fewer: lowers what one asks.
    """

    count: str
    memory: str = ""
    cores: str = ""
    mib_per_unit: int = 1
    memory_mib: Callable[[str, str, int], int] | None = None
    all_cores: bool = True
    least_cores: int = 0
    most_cores: int = 100
    per_container: bool = False
    steps: tuple[int, ...] = ()
    rounds_up: bool = False
    counts: tuple[int, ...] = ()
    companions: bool = False
    several_are_whole: bool = False
    one_container: bool = False
    counts_parts: bool = False
    select: CardLists = _NO_LISTS
    select_too: CardLists = _NO_LISTS
    types: CardLists = _NO_LISTS
    fill: Callable[[Resources, Container], Container] | None = None
    asks: Callable[[Resources, Sequence[Place]], list[Ask]] | None = None
    fewer: Callable[[Ask, int], Ask] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What else pods can request.

    keys: the annotations for it. adapt: completes the request. marks: what a pod with such annotations puts on its
    cards. notes: the annotations that HAMi's webhook adds. unservable: what to write instead if the plugin does not
    serve a pod with so many cards for one container, "" if it does.
    """

    keys: tuple[str, ...] = ()
    adapt: Callable[[AnyPod, Request, list[Violation]], Request] | None = None
    marks: Callable[[Mapping[str, str]], tuple[str, ...]] | None = None
    notes: Callable[[Mapping[str, str]], Mapping[str, str]] | None = None
    unservable: Callable[[AnyPod, int], str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cards:
    """What cards are, and how they are shared.

    source: where they come from. local_ids: ids of cards are unique only on their node. group: the group of a card;
    policy: what its pods have in common.
    whole: a container gets whole shares of cards, and for each of them these figures of memory and cores are written;
    None: it gets memory and cores. slices: the count is the number of slices of one card. core_unit: the unit of a
    card's cores, "" for percent; by_share: containers ask for percent of them. kind: completes what cards have in
    common. rules: what the vendor does differently.
    """

    source: Register | Capacity
    local_ids: bool = False
    group: Callable[[Record], str] | None = None
    policy: Callable[[Record], str] | None = None
    whole: tuple[int, int] | None = None
    slices: bool = False
    core_unit: str = ""
    by_share: bool = False
    kind: Callable[[Kind], Kind] | None = None
    rules: Rules = _RULES


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOff:
    """How cards are handed over to the device plugin.

    allocated, to_allocate: the annotations with the assignment, as schedulers count it and as the plugin reads it, ""
    for none. counts_either: the plugin erases one of both, which one depends on its version. writes_type: the
    assignment has the card's type. codec: what else is written of an entry. extra_keys, told: further annotations of a
    Binding. number_key: that of them which HAMi's webhook writes too, with the number of cards.
    locks: the plugin finds its pod by HAMi's lock of the node; then to_allocate is
    ``hami.io/NAME-devices-to-allocate``, by which `core.hami_lock` sees who waits. kubelet_chooses: the plugin looks
    for no pod, because kubelet chooses the cards; only their number counts. time_lock: the lock of another kind.
    served_keys: one of them is true once the plugin has served a pod. captures: it also serves pods that have ended
    (VN-34).
    accounts: of the plugin, in kube-system; elsewhere: its account in a namespace that not every cluster has, so that
    operators add it. variables: those by which it limits a container. machine_keys: what it writes of pods besides;
    node_keys: of its node, besides the register and the lock.
    """

    allocated: str
    to_allocate: str = ""
    counts_either: bool = False
    writes_type: bool = False
    codec: Codec | None = None
    extra_keys: tuple[str, ...] = ()
    number_key: str = ""
    told: Callable[[Assignment, Stamp, Resources], Mapping[str, str]] | None = None
    locks: bool = True
    kubelet_chooses: bool = False
    time_lock: str = ""
    served_keys: tuple[str, ...] = ()
    captures: bool = False
    accounts: tuple[str, ...] = ()
    elsewhere: str = ""
    variables: frozenset[str] = frozenset()
    machine_keys: frozenset[str] = frozenset()
    node_keys: tuple[str, ...] = ()


_NO_WISHES: Final = Wishes()


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """One type of cards.

    name: the dialect. maker: whose cards they are; types of one maker sell the same cards (VN-15). word: the type in
    assignments and registers. section: of device-config.yaml, where the resources may have other names. sized: returns
    the limits for whole cards with these units of memory, in ascending order; None: memory of any size is the same.
    """

    name: DialectName
    maker: str
    word: str
    section: VendorSection
    limits: Limits
    cards: Cards
    handoff: HandOff
    wishes: Wishes = _NO_WISHES
    sized: Callable[[Limits, tuple[int, ...]], Limits] | None = None

    def of_sizes(self, sizes: tuple[int, ...]) -> "Vendor":
        """Return this vendor for whole cards with these units of memory, in ascending order; (): as usual."""
        return replace(self, limits=self.sized(self.limits, sizes)) if self.sized is not None and sizes else self

    def named(self, found: VendorNames) -> Resources:
        """Return its resources by the names *found* in device-config.yaml."""
        usual = self.limits
        return Resources(
            found.cards or usual.count,
            usual.memory and (found.memory or usual.memory),
            usual.cores and (found.cores or usual.cores),
            mib_per_unit=found.mib_per_unit or usual.mib_per_unit,
        )
