"""In which unit amounts of memory are written, kept beside them: it is the device plugin's, and may change.

A plugin that starts with another factor registers its cards in another unit, while the pods that it served before keep
their amounts as they are. Of cards in mode mig slices count, whatever the unit. Source: protocol reference, nvidia 4.2.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from core.dialects.vgpu import keys
from core.dialects.vgpu.cards import Card, cards_of
from core.dialects.vgpu.register import decode_register
from core.dialects.vgpu.usage import Assignment
from core.errors import InvalidRequestError
from core.model import Node, Pod
from core.names import MAX_POD_ANNOTATION_BYTES, MEMORY_UNIT
from core.settings import Tables
from core.units import MAX_INT32

# A driver reports some MiB more or less from one version to the next, never a fifth.
_MOST_IN_20: Final = 25
_LEAST_IN_20: Final = 16


class Scale(NamedTuple):
    """factor: MiB per unit as configured; cards: (uuid, memory in the units of its register), where they are known."""

    factor: int
    cards: tuple[tuple[str, int], ...] = ()


def of_node(node: Node | None, cards: Sequence[Card], tables: Tables) -> Scale:
    """What amounts mean on *node*, by its register also where its plugin is away and it offers no *cards*."""
    if not cards and node is not None:
        cards = _registered(node, tables)
    known = tuple([(card.fixed.uuid, card.fixed.memory) for card in cards if not card.fixed.layout])
    return Scale(max(tables.vgpu.memory_factor, 1), known)


def _registered(node: Node, tables: Tables) -> Sequence[Card]:
    try:
        return cards_of(decode_register(node.annotations.get(keys.REGISTER, ":")), tables.vgpu)
    except InvalidRequestError:
        return ()


def rescaled(assignment: Assignment, since: Scale, now: Scale) -> tuple[Scale, str]:
    """(the scale to keep beside *assignment*, counted by *since*; why it cannot be counted by *now*, or "")."""
    if since == now:
        return now, ""
    if since.factor != now.factor:
        return since, f"counts memory in units of {since.factor} MiB, and the configuration says {now.factor} MiB"
    before, after = dict(since.cards), dict(now.cards)
    alike = True
    for entry in assignment.entries:
        old, new = before.get(entry.uuid), after.get(entry.uuid)
        alike = alike and old == new
        if old and new and entry.memory and not _LEAST_IN_20 * old <= 20 * new <= _MOST_IN_20 * old:
            return since, f"has {entry.memory} of the {old} units that {entry.uuid} had, and it has {new} now"
    # One value for all pods of a node, where both say the same.
    return (now if alike else since), ""


def told(assignment: Assignment, scale: Scale) -> dict[str, str]:
    """What the Binding carries of *scale*: the factor, and what each entry's card has in its register."""
    memory = dict(scale.cards)
    return {MEMORY_UNIT: f"{scale.factor}:" + ",".join(str(memory.get(entry.uuid, 0)) for entry in assignment.entries)}


def read(pod: Pod, assignment: Assignment) -> Scale | None:
    """The scale that bound *pod* tells of; None if it tells of none, or of one that cannot be read."""
    text = pod.annotations.get(MEMORY_UNIT, "")
    if not text or len(text) > MAX_POD_ANNOTATION_BYTES:
        return None
    factor, _, rest = text.partition(":")
    figures = [_figure(piece) for piece in (factor, *rest.split(","))]
    if len(figures) != len(assignment.entries) + 1 or None in figures:
        return None
    first, *memory = (figure or 0 for figure in figures)
    cards = {entry.uuid: amount for entry, amount in zip(assignment.entries, memory, strict=True) if amount}
    return Scale(first, tuple(cards.items()))


def _figure(text: str) -> int | None:
    value = int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else -1
    return value if 0 <= value <= MAX_INT32 else None
