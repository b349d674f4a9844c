"""Vastai's cards: whole ones, or dies, of which a container gets those of one board (hami-vendors 3.11)."""

from collections.abc import Sequence
from typing import Final

from core.dialects.hami_vendors.table import VendorSection
from core.dialects.hami_vendors.vendor import SHARES, Cards, HandOff, Limits, Register, Vendor
from core.port.refusals import Reason
from core.port.spec import CardLists
from core.settings import DialectName
from core.sharing import order
from core.sharing.card import Card
from core.sharing.fit import Rules
from core.sharing.request import Ask, Request
from core.wire.hami_register import Record


class _Boards(Rules):
    """Dies of one board first; a pod that wants idle cards gets idle boards."""

    chooses = True
    measures = SHARES

    def choose(self, cards: Sequence[Card], slots: Sequence[int], ask: Ask, request: Request) -> Sequence[int] | None:
        """Return the first cards, or of dies those of the boards with the most; of equal ones the lowest (VN-22)."""
        number = ask.number
        if order.is_exclusive(request.order):
            busy = {card.fixed.group for card in cards if card.used_slots and card.fixed.group}
            slots = [slot for slot in slots if cards[slot].fixed.group not in busy]
        if len(slots) < number:
            return None
        if number in (1, len(slots)) or not cards[slots[0]].fixed.group:
            return slots[:number]
        boards: dict[str, list[int]] = {}
        for slot in slots:
            boards.setdefault(cards[slot].fixed.group, []).append(slot)
        largest = sorted(boards, key=lambda board: (-len(boards[board]), len(board), board))
        return [slot for board in largest for slot in boards[board]][:number]

    def unchosen(self, cards: Sequence[Card], ask: Ask) -> tuple[Reason, str]:
        """See `Rules`."""
        return Reason.RULE, "a board with a die in use is not idle"


def _board(record: Record) -> str:
    """Return the board of a die, itself if it names none (VN-33); "" for a card."""
    info = dict(record.info)
    return (info.get("AIC") or record.uuid) if info.get("DeviceStrategy") == "die" else ""


VENDOR: Final[Vendor] = Vendor(
    name=DialectName("vastai"),
    maker="vastai",
    word="Vastai",
    section=VendorSection("vastai"),
    limits=Limits(
        count="vastaitech.com/va",
        select=CardLists("vastaitech.com/use-gpuuuid", "vastaitech.com/nouse-gpuuuid"),
    ),
    cards=Cards(
        source=Register("hami.io/node-va-register", has_json=True, cores=100),
        local_ids=True,
        whole=(0, 0),
        group=_board,
        rules=_Boards(),
    ),
    handoff=HandOff(
        allocated="hami.io/Vastai-devices-allocated",
        to_allocate="hami.io/Vastai-devices-to-allocate",
        accounts=("system:serviceaccount:kube-system:hami-vastai",),
        node_keys=("hami.io/node-handshake-va",),
    ),
)
