"""Describes why a unit is refused: how many members fit, why one more does not, and what would help."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from core.explaining import explain
from core.model import NodeName
from core.placing import gang
from core.placing.decide import Shape
from core.placing.minimums import Tally
from core.waiting import Cause, Wait

_TEXT_MAX: Final = 1024
_PARTS_MAX: Final = 8


class New(NamedTuple):
    """The name of a new node that would take one shape, "" if none would, and its capacity for the shape."""

    called: str
    room: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """The members without a place: why no node takes one more, and which new nodes would.

    one: judged with all fitting members placed.
    """

    one: explain.Explanation
    news: Mapping[Shape, New]


def shortage(answer: gang.Refused, missing: Missing | None = None, silent: Sequence[NodeName] = ()) -> Wait:
    """Return why the members of a unit wait if too few fit at once; *missing*: None if nodes were not judged.

    silent: the nodes that were left out because their device plugins are silent. Reason `Unschedulable` is used only if
    new nodes would let in enough members.
    """
    topology = answer.unit.topology
    if topology is not None and topology.hard and answer.domain is None:
        return Wait(Cause.WAITING_FOR_GROUP, f"waits because {topology.why_none(answer.unit.home)}.")
    text = f"{_counts(answer)}."
    if missing is None:
        return Wait(Cause.WAITING_FOR_GROUP, f"{text} {_remedy(answer)}")
    why = explain.wait(replace(missing.one, new=""), silent)
    remedy = _remedy(answer, never=missing.one.never)
    text = f"{text} For one more: {why.text}{f' {remedy}' if remedy else ''}"
    helped = frozenset(shape for shape, new in missing.news.items() if new.called)
    if why.cause in (Cause.DEVICE_PLUGIN_SILENT, Cause.WAITING_FOR_REMOVED):
        return Wait(why.cause, _cut(text))
    if not answer.is_met_with(helped):
        return Wait(Cause.WAITING_FOR_GROUP, _cut(text))
    if missing.one.joining:
        return Wait(Cause.NODE_JOINING, _cut(text))
    help_ = _helps(answer, missing.news, helped)
    return Wait(Cause.UNSCHEDULABLE, f"{_cut(text, _TEXT_MAX - len(help_) - 1)} {help_}")


def _counts(answer: gang.Refused) -> str:
    wanted = Tally(answer.unit.minimum, {}).needed()
    of = answer.unit.minimum.name or "group"
    text = f"waits because {answer.fitting} of the {wanted} members of its {of} that must start together fit now"
    if of == "pod":
        text = "waits because no node near the other members of its group takes it now"
    if answer.domain is not None:
        text += f" in {answer.domain.name}{'' if of == 'pod' else ', where most of them do'}"
    parts = [one for one in answer.tally().short() if " subgroups of " in one]
    parts += [
        f"{part.fitting} of {part.members} {f'of {part.parts[-1]}' if part.parts else 'that wait'}"
        for part in answer.parts[:_PARTS_MAX]
    ]
    more = len(answer.parts) - _PARTS_MAX
    return f"{text}: {', '.join(parts)}{f' and {more} more' if more > 0 else ''}" if parts else text


def _remedy(answer: gang.Refused, *, never: bool = False) -> str:
    """Return what lets the members in; *never*: no node would take one more even if empty."""
    lower = f"or set {answer.unit.minimum.field} to {answer.fitting}" if _may_be_fewer(answer) else ""
    if never:
        return f"{lower[:1].upper()}{lower[1:]}." if lower else ""
    ways = f", reduce what each asks for, {lower}" if lower else " or reduce what each asks for"
    return f"Free capacity for {answer.missing} more{ways}."


def _may_be_fewer(answer: gang.Refused) -> bool:
    """Return whether a smaller minimum would allow the placement."""
    least = answer.unit.minimum
    return not least.name and 0 < answer.fitting < least.members and answer.tally().parts_are_met


def _helps(answer: gang.Refused, news: Mapping[Shape, New], helped: Set[Shape]) -> str:
    """Return how many new nodes of which kinds would suffice; members of different shapes may share nodes."""
    counts: dict[str, int] = {}
    for part in answer.parts:
        if part.shape in helped:
            called, room = news[part.shape]
            counts[called] = counts.get(called, 0) - (part.fitting - part.members) // room
    told = [f"{count} new node{'s' if count > 1 else ''} {called}" for called, count in sorted(counts.items())]
    return f"{' and '.join(told)} would take those that do not fit."


def _cut(text: str, most: int = _TEXT_MAX) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
