"""Kunlunxin's P800: whole cards, or equal slices of cards; several are linked ones (hami-vendors 3.6)."""

from collections.abc import Mapping, Sequence
from typing import Final

from core.dialects.hami_vendors.table import VendorSection
from core.dialects.hami_vendors.vendor import SHARES, Capacity, Cards, HandOff, Limits, Register, Vendor
from core.model import Container
from core.port.handoff import Stamp
from core.port.refusals import Reason
from core.port.spec import CardLists
from core.settings import DialectName
from core.sharing import order
from core.sharing.account import Assignment, Entry
from core.sharing.card import Card, Measures
from core.sharing.fit import Rules
from core.sharing.request import Ask, Request, Resources

# Cards are linked in eights: two wings of four, and each card with the one at its place in the other wing.
_EIGHT: Final = 8
_WING: Final = 4
_PAIRS: Final = ((0, 4), (1, 5), (2, 6), (3, 7))
_QUADS: Final = ((0, 1, 4, 5), (2, 3, 6, 7), (0, 2, 4, 6), (1, 3, 5, 7), (0, 3, 4, 7), (1, 2, 5, 6))
# In which order wings are tried for one card, by how many of their cards fit.
_FOR_ONE: Final = (1, 3, 2, 4)
_MIB: Final = (24576, 49152, 98304)
# The driver has so many handles, of which each card takes one and each slice another (VN-16).
_HANDLES: Final = 32
_INDEX: Final = "BAIDU_COM_DEVICE_IDX"


class _Wings(Rules):
    """Cards of one wing if there are enough, otherwise linked ones of one eight; by index (VN-12, VN-13)."""

    chooses = True
    measures = SHARES

    def choose(self, cards: Sequence[Card], slots: Sequence[int], ask: Ask, request: Request) -> Sequence[int] | None:
        """Return the first cards of the wing in which the fewest are left, or linked ones of both."""
        number = ask.number
        eights: dict[int, dict[int, int]] = {}
        for slot in sorted(slots, key=lambda slot: cards[slot].fixed.position):
            eight, at = divmod(cards[slot].fixed.position, _EIGHT)
            eights.setdefault(eight, {}).setdefault(at, slot)
        if number == _EIGHT:
            return next((list(one.values()) for one in eights.values() if len(one) == _EIGHT), None)
        wings = [[one[at] for at in one if at // _WING == side] for one in eights.values() for side in (0, 1)]
        for count in _FOR_ONE if number == 1 else range(number, _WING + 1):
            for wing in wings:
                if len(wing) == count:
                    return wing[:number]
        for one in eights.values():
            linked = _across(set(one), number)
            if linked:
                return [one[at] for at in linked]
        return None

    def unchosen(self, cards: Sequence[Card], ask: Ask) -> tuple[Reason, str]:
        """See `Rules`."""
        return Reason.LINKS, f"no {ask.number} of the cards that fit are linked with each other"


class _Bubbles(_Wings):
    """HAMi prefers nodes with partly used wings, and those on which the pod takes whole wings."""

    def prefers(self, request: Request) -> bool:
        """See `Rules`."""
        return True

    def preference(self, cards: Sequence[Card], entries: Sequence[Entry], request: Request, word: str) -> float:
        """Return more for more broken wings of the node and fewer of the pod; the reverse if pods spread."""
        chosen = [cards[one.slot].fixed.position for one in entries]
        eight = chosen[0] // _EIGHT
        used = [card.fixed.position for card in cards if card.used_slots and card.fixed.position // _EIGHT == eight]
        better = _BY_BUBBLES.get(_bubbles(chosen) - _bubbles(used), 1000.0)
        return better if word == order.BINPACK else _MOST - better if word == order.SPREAD else 0.0


_MOST: Final = 3000.0
# By how much more broken the wings of the pod are than those in use before.
_BY_BUBBLES: Final = {-1: _MOST, 0: 2000.0, 2: 0.0}
# How broken a wing is, by the number of its cards in use; 1 for other numbers.
_BROKEN: Final = {4: 0, 1: 2}


def _bubbles(positions: Sequence[int]) -> int:
    """Return how broken the two wings of an eight are if *positions* are in use."""
    left = len([one for one in positions if one % _EIGHT < _WING])
    return _BROKEN.get(left, 1) + _BROKEN.get(len(positions) - left, 1) if positions else 1


def _across(fitting: set[int], number: int) -> Sequence[int]:
    """Return *number* linked cards of both wings, leaving linked ones where two are left; () if there are none."""
    found = [one for one in (*_PAIRS, *_QUADS) if len(one) == number and fitting.issuperset(one)]
    if not found or len(fitting) != number + 2:
        return found[0] if found else ()
    return next((one for one in found if _are_linked(fitting.difference(one))), found[-1])


def _are_linked(pair: set[int]) -> bool:
    low, high = sorted(pair)
    return low // _WING == high // _WING or high - low == _WING


class _EqualSlices(_Wings):
    """Slices of one card have one size, and those of a node are no more than the driver has handles for."""

    measures = Measures(cores=False)
    restricts = True

    def restricted(self, card: Card, memory: int) -> str:
        """See `Rules`."""
        if card.used_memory == memory * card.used_slots:
            return ""
        return f"its slices have {card.used_memory // card.used_slots} MiB, and all slices of a card have one size"

    def choose(self, cards: Sequence[Card], slots: Sequence[int], ask: Ask, request: Request) -> Sequence[int] | None:
        """See `Rules`."""
        return None if _handles(cards, ask) > _HANDLES else super().choose(cards, slots, ask, request)

    def unchosen(self, cards: Sequence[Card], ask: Ask) -> tuple[Reason, str]:
        """See `Rules`."""
        if _handles(cards, ask) <= _HANDLES:
            return super().unchosen(cards, ask)
        return (
            Reason.RULE,
            f"the node would have {_handles(cards, ask)} cards and slices; at most {_HANDLES} are possible",
        )


def _handles(cards: Sequence[Card], ask: Ask) -> int:
    """Return how many handles of the driver are in use with *ask*."""
    return len(cards) + sum([card.used_slots for card in cards]) + ask.number


def _told(assignment: Assignment, stamp: Stamp, named: Resources) -> Mapping[str, str]:
    last = assignment.entries[-1].container
    return {_INDEX: ",".join([one.uuid.rpartition("-")[2] for one in assignment.entries if one.container == last])}


def _filled(named: Resources, one: Container) -> Container:
    """Return *one* with its memory rounded up to that of a slice, as HAMi's webhook does."""
    text = one.amount(named.memory) or ""
    if one.amount(named.cards) is None or not (text.isascii() and text.isdigit() and len(text) <= 10):
        return one
    more = {named.memory: str(next((size for size in _MIB if size >= int(text)), _MIB[-1]))}
    return one._replace(limits={**one.limits, **more}, requests={**one.requests, **more})


_LISTS: Final = CardLists("hami.io/use-xpu-uuid", "hami.io/no-use-xpu-uuid")
_OLD_LISTS: Final = CardLists("baidu.com/use-gpuuuid", "baidu.com/nouse-gpuuuid")

WHOLE: Final = Vendor(
    name=DialectName("kunlun"),
    maker="kunlunxin",
    word="kunlun",
    section=VendorSection("kunlun"),
    limits=Limits(
        count="kunlunxin.com/xpu",
        select=_LISTS,
        select_too=_OLD_LISTS,
        counts=(1, 2, 4, 8),
        # The annotation has the cards of one container (VN-18).
        one_container=True,
    ),
    cards=Cards(
        source=Capacity("kunlun", in_halves=True),
        rules=_Bubbles(),
        whole=(_MIB[-1], 100),
        local_ids=True,
    ),
    handoff=HandOff(
        allocated="hami.io/kunlun-allocated",
        extra_keys=(_INDEX,),
        told=_told,
        locks=False,
    ),
)
SLICES: Final = Vendor(
    name=DialectName("kunlun_xpu"),
    maker="kunlunxin",
    word="XPU",
    section=VendorSection("kunlun", names=("resourceVCountName", "resourceVMemoryName", "")),
    limits=Limits(
        count="kunlunxin.com/vxpu",
        memory="kunlunxin.com/vxpu-memory",
        select=_LISTS,
        select_too=_OLD_LISTS,
        counts=(1, 2, 4, 8),
        steps=_MIB,
        rounds_up=True,
        fill=_filled,
    ),
    cards=Cards(
        source=Register("hami.io/node-register-xpu", has_json=True),
        rules=_EqualSlices(),
    ),
    handoff=HandOff(
        allocated="hami.io/xpu-devices-allocated",
        to_allocate="hami.io/xpu-devices-to-allocate",
        accounts=("system:serviceaccount:kube-system:vxpu-device-plugin",),
        node_keys=("hami.io/node-handshake-xpu",),
    ),
)
VENDORS: Final[tuple[Vendor, ...]] = (WHOLE, SLICES)
