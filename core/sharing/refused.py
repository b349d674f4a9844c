"""Why a request gets no cards of a node, card by card with numbers, and which lower request would."""

from collections.abc import Sequence
from typing import Final

from core.port.refusals import Reason, Shortfall
from core.settings import CARD_POLICIES
from core.sharing import slices
from core.sharing.account import UNREAD
from core.sharing.card import Card
from core.sharing.fit import OTHER_CONTAINER, Rules, Stuck, picks_of, refusal, wanted
from core.sharing.order import Rank
from core.sharing.request import Ask, Request

# Why a card refuses a container because of what other containers of the pod take, not other pods.
_OF_CONTAINERS: Final = {
    Reason.EXCLUSIVE: "it needs a card that no other container of the pod uses",
    Reason.PROMISED: "another container of the pod takes 100 % of its cores",
    Reason.SLOTS: "other containers of the pod take its last share",
    Reason.BUSY: OTHER_CONTAINER,
}


def shortfalls(rules: Rules, cards: Sequence[Card], request: Request) -> tuple[Shortfall, ...]:
    """Return why `place` returns None: each card that refuses the first container without cards, in numbers."""
    # The cards of the first containers depend on the policy, and so does what is left for the next ones.
    for policy in CARD_POLICIES:
        picks = picks_of(rules, cards, request, policy)
        if isinstance(picks, Stuck):
            return _shortfalls(rules, cards, picks, request)
    return ()


def _shortfalls(rules: Rules, before: Sequence[Card], stuck: Stuck, request: Request) -> tuple[Shortfall, ...]:
    found: list[Shortfall] = []
    fitting: list[tuple[Rank, int]] = []
    for slot, card in enumerate(stuck.cards):
        reason = refusal(rules, card, stuck.ask, request)
        if reason is None:
            fitting.append(((0.0,), slot))
        else:
            short = _shortfall(rules, card, stuck.ask, request, reason)
            found.append(short if card is before[slot] else _beside(rules, before[slot], stuck.ask, request, short))
    if fitting or not found:
        # Some cards fit, but not as many as one container wants.
        most = max([len(group) for group in rules.groups(stuck.cards, fitting, request)], default=0)
        where = rules.together(stuck.cards, request)
        if rules.chooses and most >= stuck.ask.number:
            reason, told = rules.unchosen(stuck.cards, stuck.ask)
            found.insert(0, Shortfall("", reason, detail=told))
        else:
            each, unit = rules.counted(stuck.ask)
            number = stuck.ask.number * each
            found.insert(0, Shortfall("", Reason.CARD_COUNT, number, most * each, unit, where, per_card=each))
    return tuple(found)


def _beside(rules: Rules, before: Card, ask: Ask, request: Request, short: Shortfall) -> Shortfall:
    """Return *short* of a card that was as *before* until other containers of the pod took their shares."""
    reason = short.reason
    if reason is Reason.EXCLUSIVE and not before.used_slots and short.free < short.wanted:
        return short._replace(reason=Reason.CORES, detail="", alone=before.fixed.cores)
    if reason in (Reason.MEMORY, Reason.LAYOUT, Reason.CORES):
        alone = _shortfall(rules, before, ask, request, reason).free
        return short._replace(alone=alone) if alone > short.free else short
    if reason in _OF_CONTAINERS and refusal(rules, before, ask, request) is not reason:
        return Shortfall(short.card, Reason.CONTAINERS, detail=_OF_CONTAINERS[reason])
    return short


_CONFLICT: Final = "slices are in use that cannot exist together"


def _shortfall(rules: Rules, card: Card, ask: Ask, request: Request, reason: Reason) -> Shortfall:
    fixed, kind = card.fixed, card.fixed.kind
    uuid, factor = fixed.uuid, kind.factor
    mib = max(factor, request.mib_per_unit)
    spare = max(fixed.cores - card.used_cores, 0)
    special = rules.shortfall(card, ask, request, reason)
    if special is not None:
        return special
    match reason:
        case Reason.MEMORY:
            free = max(fixed.memory - card.used_memory, 0) * factor
            # A card that is cut gives only whole slices.
            free = min(free, slices.largest_free_mib(kind.layout, card.slices)) if kind.layout else free
            unit = ask.unit(rules.measures.unit)
            return Shortfall(uuid, reason, wanted(ask, card) * factor, free, unit, mib_per_unit=mib)
        case Reason.LAYOUT:
            free = slices.largest_free_mib(kind.layout, card.slices)
            unit = rules.measures.unit
            return Shortfall(uuid, reason, wanted(ask, card) * factor, free, unit, _laid_out(card), mib)
        case Reason.CORES if kind.by_share:
            return Shortfall(uuid, reason, ask.cores, spare * 100 // fixed.cores, "%")
        case Reason.CORES:
            return Shortfall(uuid, reason, ask.cores, spare, kind.unit)
        case Reason.EXCLUSIVE:
            return Shortfall(uuid, reason, ask.cores, spare, kind.unit, "needs a card of its own")
        case Reason.PROMISED:
            return Shortfall(uuid, reason, detail="all of its cores are promised to the pods there")
        case Reason.BUSY:
            return Shortfall(uuid, reason, detail=fixed.problem or "the pod needs a card that no other pod uses")
        case Reason.SLOTS:
            return Shortfall(uuid, reason, 1, max(fixed.slots - card.used_slots, 0), "shares")
        case Reason.MODE:
            wish = " or ".join(request.modes)
            return Shortfall(uuid, reason, detail=fixed.problem or f"wants {wish}, the card is in {kind.mode}")
        case Reason.TYPE:
            return Shortfall(uuid, reason, detail=fixed.label)
        case Reason.INDEX:
            return Shortfall(uuid, reason, unit="position", detail=f"it is card {fixed.position}")
        case Reason.UNUSABLE:
            return Shortfall(uuid, reason, detail=fixed.problem or (UNREAD if card.unread else _CONFLICT))
        case Reason.RULE if fixed.fault is None:
            return Shortfall(uuid, reason, detail=rules.restricted(card, wanted(ask, card)))
        case _:
            return Shortfall(uuid, reason, detail=fixed.problem)


def _laid_out(card: Card) -> str:
    if not card.slices:
        return "no slice is so large"
    if card.slices[0].group:
        return f"the card is laid out as {card.slices[0].group}"
    return f"slices are at {', '.join([slices.shown(one) for one in card.slices])}"


def relaxed(request: Request, reason: Reason, amount: int, mib_per_unit: int) -> Request | None:
    """Return *request* with at most *amount* for each container: cards, percent of cores, or MiB; see `Judging`."""
    match reason:
        case Reason.MODE:
            return request._replace(modes=())
        case Reason.TYPE | Reason.UUID | Reason.INDEX | Reason.UNORDERED:
            return request._replace(selection=request.selection.without(reason))
        case Reason.CORES:
            return request._replace(asks=tuple([ask._replace(cores=min(ask.cores, amount)) for ask in request.asks]))
        case Reason.CARD_COUNT:
            asks = [ask._replace(number=min(ask.number, amount)) for ask in request.asks]
        case _:
            amount //= mib_per_unit
            if not amount:
                return None
            asks = [
                ask._replace(memory=amount, percent=0) if ask.percent or ask.memory > amount else ask
                for ask in request.asks
            ]
    if any(len(ask.parts) > amount for ask in asks):
        return None
    return request._replace(asks=tuple([ask._replace(parts=_parted(ask.parts, amount)) for ask in asks]))


def _parted(parts: tuple[int, ...], amount: int) -> tuple[int, ...]:
    """Return *parts* with the largest of them lowered, so that their sum is at most *amount*; none becomes 0."""
    found: list[int] = []
    for at, one in enumerate(sorted(parts)):
        found.append(min(one, (amount - sum(found)) // (len(parts) - at)))
    return tuple(found)
