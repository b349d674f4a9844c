"""The MIG part of the vGPU device plugin: known geometries, the layout of every card, and instance ids.

Source: protocol reference, nvidia 2.5 and 3.6. A change of the layout fails while instances of the card are in use, and
ends the plugin's process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import yaml

from sandbox.players.player import Card
from sandbox.players.vgpu_protocol import PluginPanicError


@dataclass(frozen=True, slots=True, kw_only=True)
class MigSlice:
    """One slice of a card in the pod's annotation: ``card[group-position]``."""

    card: str
    group: str
    position: int


def decode(device_id: str) -> MigSlice | None:
    """Decode ``card[group-position]``; return None for a card's own id and for other text."""
    card, opening, rest = device_id.partition("[")
    inner, closing, _ = rest.partition("]")
    group, dash, position = inner.partition("-")
    if not (opening and closing and dash and position.isascii() and position.isdigit()):
        return None
    return MigSlice(card=card, group=group, position=int(position))


def instance_uuid(instance: MigSlice) -> str:
    """Return the id of a slice that a container sees; constant for a position while the layout stays."""
    return f"MIG-{uuid5(NAMESPACE_OID, f'{instance.card}/{instance.group}/{instance.position}')}"


def visible_ids(device_ids: Iterable[str]) -> tuple[str, ...]:
    """Return what containers see of promised *device_ids*, each once: ids of cards, and instance ids of slices."""
    seen = []
    for device_id in device_ids:
        instance = decode(device_id)
        seen.append(device_id if instance is None else instance_uuid(instance))
    return tuple(dict.fromkeys(seen))


class Layouts:
    """The layouts of one node's cards in the driver: they outlive the plugin's process.

    Attributes:
        changes: number of layout changes of each card.
    """

    def __init__(self) -> None:
        self.changes: dict[str, int] = {}
        self._geometries: list[Any] = []
        self._groups: dict[str, str] = {}

    def read(self, device_config: str) -> None:
        """Read the geometries of device-config.yaml, as the plugin does once at its start."""
        found = yaml.safe_load(device_config) or {}
        self._geometries = (found.get("nvidia") or {}).get("knownMigGeometries") or []

    def group_of(self, card_id: str) -> str:
        """Return the current group of a card's layout, "" before the first."""
        return self._groups.get(card_id, "")

    def resolve(self, card: Card, instance: MigSlice, in_use: Collection[str]) -> str:
        """Return the id that the container sees, after applying the layout of the instance's group; "" for none.

        Args:
            card: the card in the node.
            instance: the instance in the annotation.
            in_use: cards on which another existing pod holds a slice.

        Raises:
            PluginPanicError: the layout would have to change under a pod.
        """
        group = self._group(card.model, instance.group)
        if group is None or not 0 <= instance.position < sum(one["count"] for one in group["geometries"]):
            return ""
        if self._groups.get(card.id) != instance.group:
            if card.id in in_use:
                raise PluginPanicError(
                    f"error applying MIG configuration: {card.id} is laid out as {self._groups.get(card.id)!r}, wanted "
                    f"is {instance.group!r}, and its instances are in use"
                )
            self._groups[card.id] = instance.group
            self.changes[card.id] = self.changes.get(card.id, 0) + 1
        return instance_uuid(instance)

    def memory_mib(self, model: str, instance: MigSlice) -> int:
        """Return the memory of a slice on a card of *model*; 0 if there is no such slice."""
        position = instance.position
        for profile in (self._group(model, instance.group) or {}).get("geometries", ()):
            if position < profile["count"]:
                return int(profile["memory"])
            position -= profile["count"]
        return 0

    def _group(self, model: str, name: str) -> Mapping[str, Any] | None:
        for geometry in self._geometries:
            if any(known in model for known in geometry["models"]):
                found: Mapping[str, Any] | None = next(
                    (group for group in geometry["allowedGeometries"] if str(group["group"]) == name), None
                )
                return found
        return None
