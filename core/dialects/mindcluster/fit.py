"""Which chips of a node a request gets, and why none.

A slice goes to the fullest chip that takes it; whether it is downgraded is decided here, node by node, and is part
of the answer. Source: protocol reference, ascend 3.5 to 3.11.
"""

from collections.abc import Hashable, Sequence
from typing import Final

from core.dialects.mindcluster import chips as _chips
from core.dialects.mindcluster.chips import SPARE_BY_CORES, SPARE_WHOLE, WHOLE, Assignment, Chip, Kind, Share, fits
from core.dialects.mindcluster.pods import Request
from core.dialects.mindcluster.templates import DECISIONS, DVPP_VALUES, NO, NULL, TEMPLATES, Template
from core.port.cards import Placed, Want
from core.port.refusals import Reason, Shortfall
from core.settings import Policy
from core.units import counted

# Far more AI cores than any node has, so that scores are fine enough, and halves of them (downgraded) stay apart.
_SCALE: Final = 1 << 16
_UNIT: Final = "AI cores"


def place(cards: Sequence[Chip], request: Request, policy: Policy) -> Placed[Assignment] | None:
    """The chips that *request* gets, or None: nodes with few idle AI cores score high, downgrades half."""
    choice = request.choice
    flight = idle = 0
    for one in cards:
        flight |= one.flight
        if one.free_cores > 0 and one.there:
            idle += one.free_cores
    score = 100.0 * (_SCALE - idle) / _SCALE
    if choice is None:
        found = None if flight else _whole(cards, request.cores)
        return None if found is None else Placed(Assignment(found, Share(WHOLE)), score)
    template = choice.template
    best = _fullest(cards, template)
    if best is None and choice.downgraded is not None:
        template, score = choice.downgraded, score / 2
        best = _fullest(cards, template)
    if best is None or (flight and flight != template.bit):
        return None
    return Placed(Assignment((best.fixed.id,), Share(template.name)), score)


def shortfalls(cards: Sequence[Chip], request: Request) -> tuple[Shortfall, ...]:
    """Why `place` answers None, for the node and chip by chip."""
    flight = _chips.in_flight(cards)
    handed = ", ".join(sorted(one.name for one in TEMPLATES.values() if one.bit & flight)) or "an unknown template"
    busy = Shortfall(
        "",
        Reason.HANDOVER,
        detail=f"a slice ({handed}) is being handed over, and the device plugin tells slices apart by their cores only",
    )
    if request.choice is None:
        return _whole_shortfalls(cards, request.cores, busy if flight else None)
    template = request.choice.downgraded or request.choice.template
    found = [short for one in cards if (short := _slice_shortfall(one, template)) is not None]
    if flight and len(found) < len(cards):
        return (busy, *found)
    return tuple(found) or (busy,)


def relaxed(cards: Sequence[Chip], request: Request, reason: Reason, amount: int) -> Request | None:
    """*request* for *amount* AI cores: whole chips, or a slice that leaves DVPP as it is; None if there is no such."""
    if reason not in (Reason.CORES, Reason.CARD_COUNT):
        return None
    if request.choice is None:
        return Request(amount, None)
    choice = DECISIONS.get((amount, NULL, request.choice.downgraded is not None))
    return None if choice is None else Request(amount, choice)


def want(request: Request, kind: Hashable, policy: Policy) -> Want | None:
    """What *request* asks of a node of *kind*; see `core.dialects.mindcluster.chips.room`."""
    if not isinstance(kind, Kind):
        return None
    choice = request.choice
    if choice is None:
        number, rest = divmod(request.cores, kind.cores) if kind.cores else (0, 1)
        if rest or kind.flight:
            return None
        return Want(request.cores, SPARE_WHOLE + number, _SCALE, _SCALE)
    downgraded = choice.downgraded.bit if choice.downgraded is not None else 0
    if kind.flight and kind.flight not in (choice.template.bit, downgraded):
        return None
    return Want(request.cores, SPARE_BY_CORES[request.cores], _SCALE, _SCALE)


def stands(cards: Sequence[Chip], request: Request, assignment: Assignment) -> bool:
    """Whether the chips of *assignment* are there and hold no more than they have; whole ones are what was asked."""
    found = [one for one in cards if one.fixed.id in assignment.chips]
    if len(found) < len(assignment.chips) or not all(one.there for one in found) or _chips.overcommitted(found):
        return False
    return assignment.share.template != WHOLE or sum(one.fixed.cores for one in found) == request.cores


def _fullest(chips: Sequence[Chip], template: Template) -> Chip | None:
    """The chip with the fewest free AI cores, then AI CPUs, then the lowest id, that takes *template*."""
    best: Chip | None = None
    for one in chips:
        if (
            not one.unstable
            and one.free_cores >= template.cores
            and (
                best is None
                or (one.free_cores, one.free_cpus, one.fixed.id) < (best.free_cores, best.free_cpus, best.fixed.id)
            )
            and one.there
            and fits(one, template.cores, template.cpus, template.dvpp)
        ):
            best = one
    return best


def _whole(chips: Sequence[Chip], cores: int) -> tuple[int, ...] | None:
    if not chips:
        return None
    wanted, rest = divmod(cores, chips[0].fixed.cores)
    if rest:
        return None
    idle = [one.fixed.id for one in chips if not one.shares and one.there]
    return tuple(sorted(idle)[:wanted]) if len(idle) >= wanted else None


def _whole_shortfalls(chips: Sequence[Chip], cores: int, busy: Shortfall | None) -> tuple[Shortfall, ...]:
    per_chip = chips[0].fixed.cores if chips else 8
    wanted, rest = divmod(cores, per_chip)
    idle = sum(not one.shares and one.there for one in chips)
    if rest:
        detail = f"its chips have {per_chip} AI cores each, and {cores} is no multiple of that"
        less = min(wanted, idle) * per_chip
        if not less and idle:
            detail += f"; ask for {per_chip}"
        unit = "AI cores of idle chips" if less else ""
        return (Shortfall("", Reason.TEMPLATE, cores if less else 0, less, unit, detail),)
    if busy is not None and idle >= wanted:
        return (busy,)
    return (
        Shortfall("", Reason.CARD_COUNT, cores, idle * per_chip, "AI cores of idle chips"),
        *(Shortfall(one.title, _fault(one) or Reason.BUSY) for one in chips if one.shares or not one.there),
    )


def _slice_shortfall(one: Chip, template: Template) -> Shortfall | None:
    """What the chip lacks for *template*; None if it takes it."""
    fault = _fault(one)
    if fault is not None:
        return Shortfall(one.title, fault, detail="it holds a slice of an unknown template" if one.unread else "")
    if one.free_cores < template.cores:
        return Shortfall(one.title, Reason.CORES, template.cores, max(_chips.largest_slice(one), 0), _UNIT)
    if one.free_cpus < template.cpus:
        return Shortfall(one.title, Reason.TEMPLATE, template.cpus, max(one.free_cpus, 0), "AI CPUs")
    if not fits(one, template.cores, template.cpus, NO):
        detail = (
            f"its slices are in {one.vgroups} vGroups, so that none of {counted(template.cores, 'AI cores')} can join"
        )
        return Shortfall(one.title, Reason.TEMPLATE, detail=detail)
    if one.unstable:
        return Shortfall(one.title, Reason.HANDOVER, detail="waits for the device plugin to report the last slice")
    if not fits(one, template.cores, template.cpus, template.dvpp):
        joining = ", ".join(word for word in DVPP_VALUES if fits(one, template.cores, template.cpus, word))
        detail = f"its DVPP is taken or shared; only a slice with vnpu-dvpp {joining} can join"
        return Shortfall(one.title, Reason.TEMPLATE, detail=detail)
    return None


def _fault(one: Chip) -> Reason | None:
    if one.fixed.fault is not None:
        return one.fixed.fault
    return None if one.there else Reason.UNUSABLE
