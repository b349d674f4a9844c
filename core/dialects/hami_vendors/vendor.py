"""What a vendor of HAMi's declares of its cards; everything else is the same for all of them.

Source: protocol reference, hami-vendors 1, 2 and 3.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from core.dialects.hami_vendors.table import VendorNames, VendorSection
from core.model import Container, Pod
from core.port.handoff import Stamp
from core.port.spec import CardLists
from core.settings import DialectName
from core.sharing.account import Assignment
from core.sharing.card import Measures
from core.sharing.resources import Resources
from core.sharing.rules import Rules
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

    key: the annotation. has_json: it is a list of objects, otherwise text. cores: of each card, 0 if it says so itself.
    any_type: cards belong to the vendor whatever their type, otherwise only if their type contains its word (VN-32).
    """

    key: str
    has_json: bool = False
    cores: int = 0
    any_type: bool = False


class Capacity(NamedTuple):
    """Cards from the capacity of the node: as many as it has of the count, or of cores divided by *cores* (VN-7).

    They are called ``<node>-<word>-<index>``. has_cores: the latter; the memory is in the capacity too. slots, cores:
    of each card.
    """

    word: str
    has_cores: bool = False
    slots: int = 1
    cores: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """One type of cards.

    What it is called:
        name: the dialect. maker: whose cards they are; types of one maker sell the same cards (VN-15). word: the type
        in assignments and registers.
    What containers ask for:
        count, memory, cores: the usual names of the resources, "" for none. mib_per_unit: MiB in a unit of memory.
        section: of device-config.yaml, where they may have other names. default_cores: for containers that name none;
        least_cores, most_cores: what they may name, of a card. per_container: memory and cores are those of all its
        cards together. steps: the amounts of memory that a container may ask for, in units, () for any. counts: the
        numbers of cards that it may ask for, () for any. companions: it must name memory and cores. several_are_whole:
        it gets several cards only whole. one_container: only one container of a pod may have cards, and no init
        container. counts_parts: kubelet counts memory and cores, not cards. fill: completes a container as HAMi's
        webhook does. select: lists of ids of cards; types: of their types.
    Where cards come from:
        source. local_ids: ids of cards tell only those of one node apart. group: the group of a card. whole: a
        container gets whole shares of cards, and for each of them these figures of memory and cores are written; None:
        it gets memory and cores. core_unit: what a card has of cores, "" for percent; by_share: containers ask for
        percent of them. rules: what decides otherwise.
    How they are handed over:
        allocated, to_allocate: the annotations with the assignment, as schedulers count it and as the plugin reads it,
        "" for none. counts_either: some pods have only the second. writes_type: the assignment has the card's type.
        extra_keys, told: further annotations of a Binding. locks: the plugin finds its pod by HAMi's lock of the node.
        time_lock: the lock of another kind. served: whether the plugin has served a pod, where it says so. captures: it
        takes pods that have ended for those to serve (VN-34). accounts: of the plugin. machine_keys: what it writes
        besides.
    """

    name: DialectName
    maker: str
    word: str
    section: VendorSection
    count: str
    source: Register | Capacity
    allocated: str
    memory: str = ""
    cores: str = ""
    mib_per_unit: int = 1
    to_allocate: str = ""
    counts_either: bool = False
    select: CardLists = _NO_LISTS
    types: CardLists = _NO_LISTS
    default_cores: int = 100
    least_cores: int = 0
    most_cores: int = 100
    counts_parts: bool = False
    several_are_whole: bool = False
    one_container: bool = False
    whole: tuple[int, int] | None = None
    core_unit: str = ""
    by_share: bool = False
    writes_type: bool = False
    extra_keys: tuple[str, ...] = ()
    told: Callable[[Assignment, Stamp], Mapping[str, str]] | None = None
    locks: bool = True
    served: Callable[[Pod], bool] | None = None
    captures: bool = False
    accounts: tuple[str, ...] = ()
    machine_keys: frozenset[str] = frozenset()
    time_lock: str = ""
    local_ids: bool = False
    rules: Rules = _RULES
    group: Callable[[Record], str] | None = None
    counts: tuple[int, ...] = ()
    companions: bool = False
    per_container: bool = False
    steps: tuple[int, ...] = ()
    fill: Callable[[Resources, Container], Container] | None = None

    def named(self, found: VendorNames) -> Resources:
        """Return its resources by the names *found* in device-config.yaml."""
        return Resources(
            found.cards or self.count,
            self.memory and (found.memory or self.memory),
            self.cores and (found.cores or self.cores),
            mib_per_unit=found.mib_per_unit or self.mib_per_unit,
        )
