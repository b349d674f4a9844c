"""In which unit amounts of memory are written, kept beside them: it is the device plugin's, and may change.

A plugin that starts with another factor registers its cards in another unit, while the pods that it served before keep
their amounts as they are. Of cards in mode mig slices count, whatever the unit. Source: protocol reference, nvidia 4.2.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from core.dialects.vgpu.cards import cards_of
from core.dialects.vgpu.table import VgpuTable
from core.errors import InvalidRequestError
from core.model import Node, Pod
from core.names import MAX_POD_ANNOTATION_BYTES, MEMORY_UNIT, VGPU_REGISTER
from core.sharing.account import Assignment
from core.sharing.card import Card
from core.tables import Tables
from core.units import MAX_INT32
from core.wire.vgpu_register import decode_register

# A driver reports some MiB more or less from one version to the next, never a fifth.
_MOST_IN_20: Final = 25
_LEAST_IN_20: Final = 16


class Scale(NamedTuple):
    """factor: MiB per unit as configured; cards: uuid -> memory in the units of its register, where it is known."""

    factor: int
    cards: Mapping[str, int]


def of_node(node: Node | None, cards: Sequence[Card], tables: Tables) -> Scale:
    """What amounts mean on *node*, by its register also where its plugin is away and it offers no *cards*."""
    if not cards and node is not None:
        cards = _registered(node, tables)
    known = {card.fixed.uuid: card.fixed.memory for card in cards if not card.fixed.kind.layout}
    return Scale(tables.of(VgpuTable).named.mib_per_unit, known)


def _registered(node: Node, tables: Tables) -> Sequence[Card]:
    try:
        return cards_of(decode_register(node.annotations.get(VGPU_REGISTER, ":")), tables.of(VgpuTable))
    except InvalidRequestError:
        return ()


def rescaled(assignment: Assignment, since: Scale, now: Scale) -> tuple[Scale, str]:
    """(the scale to keep beside *assignment*, counted by *since*; why it cannot be counted by *now*, or "")."""
    if since.factor != now.factor:
        return since, f"counts memory in units of {since.factor} MiB, and the configuration says {now.factor} MiB"
    alike = True
    for entry in assignment.entries:
        old, new = since.cards.get(entry.uuid), now.cards.get(entry.uuid)
        alike = alike and old == new
        if old and new and entry.memory and not _LEAST_IN_20 * old <= 20 * new <= _MOST_IN_20 * old:
            return since, f"has {entry.memory} of the {old} units that {entry.uuid} had, and it has {new} now"
    # One value for all pods of a node, where both say the same.
    return (now if alike else since), ""


def told(assignment: Assignment, scale: Scale) -> dict[str, str]:
    """What the Binding carries of *scale*: the factor, and what each entry's card has in its register."""
    return {MEMORY_UNIT: _text(assignment, scale)}


def _text(assignment: Assignment, scale: Scale) -> str:
    memory = [str(scale.cards.get(entry.uuid, 0)) for entry in assignment.entries]
    return f"{scale.factor}:{','.join(memory)}"


def read(pod: Pod, assignment: Assignment, now: Scale) -> Scale | None:
    """The scale that bound *pod* tells of, *now* if it says the same; None if it tells of none that can be read."""
    text = pod.annotations.get(MEMORY_UNIT, "")
    if not text or len(text) > MAX_POD_ANNOTATION_BYTES:
        return None
    if text == _text(assignment, now):
        return now
    factor, _, rest = text.partition(":")
    figures = [_figure(piece) for piece in (factor, *rest.split(","))]
    if len(figures) != len(assignment.entries) + 1 or None in figures:
        return None
    first, *memory = (figure or 0 for figure in figures)
    return Scale(first, {one.uuid: amount for one, amount in zip(assignment.entries, memory, strict=True) if amount})


def _figure(text: str) -> int | None:
    value = int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else -1
    return value if 0 <= value <= MAX_INT32 else None
