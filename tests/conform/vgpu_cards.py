"""The cards of a node counted once more, from the JSON alone: what properties of placements are checked against.

Nothing of `core.dialects` is used for what is judged here, so that a mistake there is not made twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from core.dialects.vgpu.table import MigModel, VgpuTable
from core.settings import Tables
from core.units import MAX_INT32

REGISTER: Final = "volcano.sh/node-vgpu-register"
IDS: Final = "volcano.sh/vgpu-ids-new"
_TRUE: Final = ("1", "t", "T", "true", "TRUE", "True")


@dataclass
class PlainCard:
    """One record of a register, and what the pods of the node hold of it."""

    uuid: str
    position: int
    count: int
    memory: int
    type: str
    healthy: bool
    mode: str
    geometry: MigModel | None
    number: int = 0
    used: int = 0
    cores: int = 0
    slices: list[tuple[str, int]] = field(default_factory=list)
    broken: bool = False

    @property
    def sound(self) -> bool:
        """Whether the register lets the card be used at all."""
        return self.healthy and 0 < self.count <= MAX_INT32 and 0 < self.memory <= MAX_INT32 and "NVIDIA" in self.type

    @property
    def overcommitted(self) -> bool:
        """Whether the card holds more than it has."""
        twice = len(set(self.slices)) != len(self.slices) or len({group for group, _ in self.slices}) > 1
        return self.used > self.memory or self.cores > 100 or self.number > self.count or twice


def plain_cards(node: Mapping[str, Any], tables: Tables) -> list[PlainCard]:
    """The cards of a register, nothing in use."""
    text = node["metadata"].get("annotations", {}).get(REGISTER, "")
    cards = []
    for position, piece in enumerate(text.split(":")):
        fields = piece.split(",")
        if len(fields) < 2:
            continue
        mode = fields[5] if len(fields) > 5 else "hami-core"
        models = [g for g in tables.of(VgpuTable).geometries if any(model in fields[3] for model in g.models)]
        cards.append(
            PlainCard(
                uuid=fields[0],
                position=position,
                count=_figure(fields[1]),
                memory=_figure(fields[2]),
                type=fields[3],
                healthy=len(fields) < 6 or fields[4] in _TRUE,
                mode=mode,
                geometry=models[0] if mode == "mig" and models else None,
            )
        )
    return cards


def count(cards: Iterable[PlainCard], ids: str, factor: int) -> None:
    """Add every entry of *ids* to the card it names."""
    by_uuid: dict[str, PlainCard] = {}
    for card in cards:
        by_uuid.setdefault(card.uuid, card)
    for _, entry in entries_of(ids):
        uuid = entry[0].partition("[")[0]
        found = by_uuid.get(uuid)
        if found is None:
            continue
        figures = [int(text) if text.isascii() and text.isdigit() else -1 for text in entry[2:4]]
        if len(figures) < 2 or not all(0 <= figure < 2**32 for figure in figures):
            found.broken = True
            continue
        found.number += 1
        found.cores += figures[1]
        found.used += figures[0] if found.mode != "mig" else _slice_size(found, entry[0], factor)


def entries_of(ids: str) -> list[tuple[int, list[str]]]:
    """(container, fields) of every entry of an assignment's text."""
    return [
        (container, piece.split(","))
        for container, segment in enumerate(ids.split(";"))
        for piece in segment.split(":")
        if piece.strip()
    ]


def sizes(geometry: MigModel, group: str) -> list[int]:
    """The memory of every position of a group, in MiB; empty for a group that does not exist."""
    found = {
        place.start: cut.memory_mib
        for one in geometry.layout
        for cut in one.profiles
        if one.name == group
        for place in cut.places
    }
    return [found[at] for at in range(len(found))]


def free_slice(card: PlainCard, memory_mib: int) -> bool:
    """Whether the card has a slice free that is large enough, in the group in use or in any if it is empty."""
    if card.geometry is None:
        return False
    taken = set(card.slices)
    groups = {group for group, _ in card.slices} or {group.name for group in card.geometry.layout}
    return any(
        size >= memory_mib and (group, position) not in taken
        for group in groups
        for position, size in enumerate(sizes(card.geometry, group))
    )


def _slice_size(card: PlainCard, card_id: str, factor: int) -> int:
    group, _, position = card_id.partition("[")[2].partition("]")[0].rpartition("-")
    found = sizes(card.geometry, group) if card.geometry is not None else []
    if not position.isdigit() or int(position) >= len(found):
        card.broken = True
        return 0
    card.slices.append((group, int(position)))
    return found[int(position)] // factor


def _figure(text: str) -> int:
    digits = text.removeprefix("+")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 40 else 0
