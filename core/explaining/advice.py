"""Finds the smallest change that would let a pod in: smaller figures, each judged like a decision.

Only judged changes are proposed: for the cards as they are, or for the cards without any use.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from core import model, names
from core.model import NodeFacts
from core.placing.decide import Shape
from core.port.dialect import AnyJudging
from core.port.refusals import WISHES, Reason, Shortfall
from core.settings import Policy
from core.units import counted

# Limits: figures that are lowered together, and values that are tried for each.
_FIGURES_MAX: Final = 3
_TRIED_MAX: Final = 8
# The number of containers that are advised to share one card in equal parts.
_PARTS_MAX: Final = 4
# The figure of a request that answers each shortfall.
_FIGURES: Final = {
    Reason.MEMORY: Reason.MEMORY,
    Reason.LAYOUT: Reason.MEMORY,
    Reason.CORES: Reason.CORES,
    Reason.EXCLUSIVE: Reason.CORES,
    Reason.CARD_COUNT: Reason.CARD_COUNT,
}
# Suffixes of units that count the requests of all containers together, and requests of whole chips.
_IN_ALL: Final = " in all"
_WHOLE_CHIPS: Final = " of idle chips"
_OF_NODE: Final = {names.MEMORY: "of the node's memory", names.EPHEMERAL_STORAGE: "of the node's ephemeral storage"}


class Less(NamedTuple):
    """One figure to lower, from *asked* to *amount* in *unit*; figure: a `Reason`, or a resource of nodes.

    mib_per_unit: MiB per unit in manifests, if *unit* is MiB. each: several containers take it of one card. overhead:
    what the RuntimeClass adds to a resource of nodes, beside the other figures.
    """

    figure: str
    unit: str
    asked: int
    amount: int
    mib_per_unit: int = 1
    each: bool = False
    overhead: int = 0

    @property
    def text(self) -> str:
        """The proposed amount, for people."""
        if not self.each:
            return self._amount
        # A container without cores is not limited, and need not be.
        return f"{self._amount} in each container{' with cores' if self.figure is Reason.CORES else ''}"

    @property
    def _amount(self) -> str:
        if not isinstance(self.figure, Reason):
            beside = f" (its RuntimeClass adds {shown(self.figure, self.overhead)})" if self.overhead else ""
            return f"{shown(self.figure, self.amount)} {_OF_NODE.get(self.figure, self.figure)}{beside}"
        if self.mib_per_unit > 1:
            return f"{counted(self.amount // self.mib_per_unit, 'units')} of {self.figure} ({self.amount} {self.unit})"
        unit = self.unit.removeprefix("idle ").removesuffix(_WHOLE_CHIPS)
        what = counted(self.amount, unit.removesuffix(_IN_ALL))
        if unit.endswith(_IN_ALL):
            return f"{what} in all"
        if self.figure is Reason.CARD_COUNT:
            return f"{what} in one container"
        return what if self.figure in self.unit else f"{what} of {self.figure}"


class Advice(NamedTuple):
    """All figures to lower together; empty if the pod fits unchanged."""

    parts: tuple[Less, ...]

    @property
    def size(self) -> tuple[int, float]:
        """The size of the change: fewer figures first, then a smaller fraction of the request."""
        return len(self.parts), max(((one.asked - one.amount) / one.asked for one in self.parts), default=0.0)

    def __str__(self) -> str:
        """Return the words after "ask for"."""
        texts = [one.text for one in self.parts]
        return "at most " + " and ".join(part for part in (", ".join(texts[:-1]), texts[-1]) if part)


class Unwished(NamedTuple):
    """*wishes* of a pod to drop or change, and other figures to lower; see `unwished`."""

    wishes: tuple[Reason, ...]
    less: Advice

    @property
    def size(self) -> tuple[int, int, float]:
        """The size of the change: fewer wishes and figures first."""
        return (len(self.wishes), *self.less.size)


class NodeCapacity(NamedTuple):
    """The capacity of a node: others use *used* of its resources; its cards count *own* resources.

    shortfalls: why the cards do not take the pod; empty if they do. accounts: by figure, how many units are free in
    kubelet's account of what the cards also count, if its device plugin advertises that.
    """

    facts: NodeFacts
    used: Mapping[str, int]
    cards: Sequence[Any]
    shortfalls: tuple[Shortfall, ...]
    own: frozenset[str]
    accounts: Mapping[str, int] = {}


def shortfalls(cards: Sequence[Any], request: Any, dialect: AnyJudging, policy: Policy) -> tuple[Shortfall, ...]:
    """Return why *cards* do not take *request*; empty if they do."""
    return dialect.shortfalls(cards, request) if dialect.place(cards, request, policy) is None else ()


def relaxed(
    shape: Shape, room: NodeCapacity, dialect: AnyJudging, policy: Policy, request: Any = None
) -> Advice | None:
    """Return what *shape* must reduce to be placed in *room*; None if that does not help.

    request: its card request, if not the current one; the shortfalls are for that.
    """
    request = shape.request if request is None else request
    parts: list[Less] = []
    own: list[tuple[int, int]] = []
    overhead = dict(shape.overhead)
    for name, wanted, free in model.shortages(shape.amounts, room.facts, room.used):
        more = overhead.get(name, 0)
        # Memory is shown in MiB.
        if free - more < (2**20 if name in _OF_NODE else 1):
            return None
        if name in room.own:
            own.append((wanted, free))
        else:
            parts.append(Less(name, "", wanted - more, free - more, overhead=more))
    found: tuple[Less, ...] | None = ()
    if room.shortfalls:
        left = _FIGURES_MAX - len(parts)
        found = _Search(room.cards, dialect, policy).parts(request, room.shortfalls, left)
    if found is None or not all(any(_lowers(one, *lack) for one in found) for lack in own):
        return None
    if any(one.amount // one.mib_per_unit > room.accounts.get(one.figure, one.amount) for one in found):
        return None
    for _, wanted, free in model.account_shortages(shape.accounted, room.facts, room.used):
        if not any(_lowers_account(one, wanted, free) for one in found):
            return None
    return Advice((*parts, *found))


def unwished(shape: Shape, room: NodeCapacity, dialect: AnyJudging, policy: Policy) -> Unwished | None:
    """Return the wishes that exclude *shape* from *room*: one of them, or else all; None if more must change."""
    in_the_way = _wishes_in(room.shortfalls)
    found = [_without((wish,), shape, room, dialect, policy) for wish in in_the_way]
    alone = min((one for one in found if one is not None), key=lambda one: one.size, default=None)
    if alone is not None and not alone.less.parts:
        return alone
    together, request = list[Reason](), shape.request
    while in_the_way and request is not None:
        for wish in in_the_way:
            request = dialect.relaxed(room.cards, request, wish, 0) if request is not None else None
        together += in_the_way
        left = dialect.shortfalls(room.cards, request) if request is not None else ()
        in_the_way = [wish for wish in _wishes_in(left) if wish not in together]
    all_of_them = _without(tuple(together), shape, room, dialect, policy) if len(together) > 1 else None
    return min((one for one in (alone, all_of_them) if one is not None), key=lambda one: one.size, default=None)


def _wishes_in(short: Sequence[Shortfall]) -> list[Reason]:
    there = {one.reason for one in short}
    return [wish for wish in WISHES if wish in there]


def _without(
    wishes: tuple[Reason, ...], shape: Shape, room: NodeCapacity, dialect: AnyJudging, policy: Policy
) -> Unwished | None:
    request: Any = shape.request
    for wish in wishes:
        request = dialect.relaxed(room.cards, request, wish, 0)
        if request is None:
            return None
    left = room._replace(shortfalls=shortfalls(room.cards, request, dialect, policy))
    less = relaxed(shape, left, dialect, policy, request)
    return None if less is None else Unwished(wishes, less)


def _lowers(one: Less, wanted: int, free: int) -> bool:
    """Return whether it lowers a resource of the node from *wanted* to at most *free*."""
    asked, amount = one.asked // one.mib_per_unit, one.amount // one.mib_per_unit
    return amount <= free and (one.figure in (Reason.CARD_COUNT, Reason.CORES) or asked == wanted)


def _lowers_account(one: Less, wanted: int, free: int) -> bool:
    """Return the same for a resource that cards count; kubelet charges it per container, memory in its own unit."""
    return one.figure in (Reason.MEMORY, Reason.CORES) and one.amount * wanted <= free * one.asked


class _Search(NamedTuple):
    """The cards for which a request is lowered."""

    cards: Sequence[Any]
    dialect: AnyJudging
    policy: Policy

    def parts(self, request: Any, short: Sequence[Shortfall], figures: int) -> tuple[Less, ...] | None:
        """Return at most *figures* figures to lower, so that the cards, which fall *short*, take *request*."""
        first: dict[Reason, tuple[Less, Any]] = {}
        for figure, step in _steps(short) if figures > 0 else ():
            less = self.dialect.relaxed(self.cards, request, figure, step.amount)
            if less is None:
                continue
            if self.dialect.place(self.cards, less, self.policy) is not None:
                return (step,)
            first.setdefault(figure, (step, less))
        for step, less in first.values() if figures > 1 else ():
            more = self.parts(less, self.dialect.shortfalls(self.cards, less), figures - 1)
            if more is not None:
                return _joined(step, more)
        return None


def _joined(step: Less, more: Sequence[Less]) -> tuple[Less, ...]:
    """Combine both; a figure that was lowered twice keeps its first request."""
    kept = {step.figure: step}
    for one in more:
        kept[one.figure] = one._replace(asked=step.asked) if one.figure == step.figure else one
    return tuple(kept.values())


def _steps(shortfalls: Sequence[Shortfall]) -> list[tuple[Reason, Less]]:
    """Return every figure and value that some card or the node could provide, the smallest change first."""
    found: dict[tuple[Reason, int], Less] = {}
    for one in shortfalls:
        # Fewer whole chips are available if they have other sizes.
        figure = Reason.CARD_COUNT if one.unit.endswith(_WHOLE_CHIPS) else _FIGURES.get(one.reason)
        # Containers of one card could also have equal parts of it.
        parts = [one.alone // n for n in range(2, _PARTS_MAX + 1)] if one.alone else []
        for free in (one.free, *parts):
            # A fraction of a unit cannot be requested.
            amount = free - free % one.mib_per_unit
            if figure is not None and 0 < amount < one.wanted and (figure, amount) not in found:
                found[figure, amount] = Less(figure, one.unit, one.wanted, amount, one.mib_per_unit, each=one.alone > 0)
    tried: dict[Reason, int] = {}
    kept: list[tuple[Reason, Less]] = []
    for (figure, _), less in sorted(found.items(), key=lambda item: (-item[1].amount / item[1].asked, item[0])):
        tried[figure] = tried.get(figure, 0) + 1
        if tried[figure] <= (_TRIED_MAX * _PARTS_MAX if less.each else _TRIED_MAX):
            kept.append((figure, less))
    return kept


def shown(resource: str, amount: int) -> str:
    """Return an amount of a node's resource as in manifests."""
    if resource == names.CPU:
        return f"{amount / 1000:g}"
    if resource in _OF_NODE:
        return f"{amount // 2**20}Mi"
    return str(amount)
