"""The smallest change that would let a pod in: less of one figure or of a few, each step judged as a decision is.

Only what was judged is proposed: on the cards as they are, or as they would be with nothing in use.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from core import names, nodefit
from core.candidates import Shape
from core.nodefit import NodeFacts
from core.port import Dialect, Easing, Reason, Shortfall
from core.settings import Policy
from core.units import counted

# More figures than these are not lowered together, and of each no more values are tried than these.
_FIGURES_MAX: Final = 3
_TRIED_MAX: Final = 8
# Which figure of a request answers a shortfall.
_FIGURES: Final = {
    Reason.MEMORY: Reason.MEMORY,
    Reason.LAYOUT: Reason.MEMORY,
    Reason.CORES: Reason.CORES,
    Reason.EXCLUSIVE: Reason.CORES,
    Reason.CARD_COUNT: Reason.CARD_COUNT,
}
_OF_NODE: Final = {names.MEMORY: "of the node's memory", names.EPHEMERAL_STORAGE: "of the node's ephemeral storage"}


class Less(NamedTuple):
    """One figure that is to be lowered: *asked* to *amount*, which *text* tells people. figure: what is counted."""

    figure: str
    asked: int
    amount: int
    text: str


class Advice(NamedTuple):
    """All that is to be lowered at once; nothing where the pod fits as it is."""

    parts: tuple[Less, ...]

    @property
    def size(self) -> tuple[int, float]:
        """How large a change this is: the fewer figures, then the smaller a part of what was asked, the better."""
        return len(self.parts), max(((one.asked - one.amount) / one.asked for one in self.parts), default=0.0)

    def __str__(self) -> str:
        """The words after "ask for"."""
        return "at most " + " and ".join(one.text for one in self.parts)


class Room(NamedTuple):
    """What a node has to give: of its resources others have *used*; *own* resources are those that its cards count."""

    facts: NodeFacts
    used: Mapping[str, int]
    cards: Sequence[Any]
    own: frozenset[str]


def eased(shape: Shape, room: Room, dialect: Dialect, policy: Policy) -> Advice | None:
    """What *shape* must ask less of to be placed in *room*; None if asking for less is no help."""
    parts: list[Less] = []
    most: int | None = None
    for name, wanted, free in nodefit.shortages(shape.amounts, room.facts, room.used):
        if not free:
            return None
        if name in room.own:
            most = free
        else:
            parts.append(Less(name, wanted, free, f"{shown(name, free)} {_OF_NODE.get(name, name)}"))
    found = _eased(room.cards, shape.request, dialect, policy, _FIGURES_MAX - len(parts))
    if found is None or (most is not None and not any(_counts(one) and one.amount <= most for one in found)):
        return None
    return Advice((*parts, *found))


def _counts(one: Less) -> bool:
    """Whether to lower it lowers the node's resource too: it is its figure."""
    return one.figure in (Reason.CARD_COUNT, Reason.CORES)


def _eased(
    cards: Sequence[Any], request: Any, dialect: Dialect, policy: Policy, figures: int
) -> tuple[Less, ...] | None:
    if dialect.place(cards, request, policy) is not None:
        return ()
    if figures <= 0 or not isinstance(dialect, Easing):
        return None
    steps = _steps(dialect.shortfalls(cards, request))
    lowered = [(step, dialect.eased(cards, request, figure, step.amount)) for figure, step in steps]
    for step, less in lowered:
        if less is not None and dialect.place(cards, less, policy) is not None:
            return (step,)
    first: dict[str, tuple[Less, Any]] = {}
    for step, less in lowered:
        if less is not None:
            first.setdefault(step.figure, (step, less))
    for step, less in first.values():
        more = _eased(cards, less, dialect, policy, figures - 1)
        if more is not None:
            # A figure that was lowered twice was asked as it stood at first.
            kept = {step.figure: step}
            for one in more:
                kept[one.figure] = one._replace(asked=step.asked) if one.figure == step.figure else one
            return tuple(kept.values())
    return None


def _steps(shortfalls: Sequence[Shortfall]) -> list[tuple[Reason, Less]]:
    """Every figure and value that some card, or the node, could give: the smallest change first."""
    found: dict[tuple[Reason, int], Less] = {}
    for one in shortfalls:
        figure = _FIGURES.get(one.reason)
        if figure is not None and 0 < one.free < one.wanted:
            found.setdefault((figure, one.free), Less(figure, one.wanted, one.free, _text(figure, one)))
    ordered = sorted(found.items(), key=lambda item: (-item[1].amount / item[1].asked, item[0]))
    tried: dict[Reason, int] = {}
    kept: list[tuple[Reason, Less]] = []
    for (figure, _), less in ordered:
        tried[figure] = tried.get(figure, 0) + 1
        if tried[figure] <= _TRIED_MAX:
            kept.append((figure, less))
    return kept


def _text(figure: Reason, one: Shortfall) -> str:
    if figure is Reason.CARD_COUNT:
        what = one.unit.removeprefix("idle ").removesuffix(" of idle chips")
        return f"{counted(one.free, what)} in one container"
    what = counted(one.free, one.unit)
    return what if figure in one.unit else f"{what} of {figure}"


def shown(resource: str, amount: int) -> str:
    """An amount of one of a node's resources, as manifests write it."""
    if resource == names.CPU:
        return f"{amount / 1000:g}"
    if resource in _OF_NODE:
        return f"{amount // 2**20}Mi"
    return str(amount)
