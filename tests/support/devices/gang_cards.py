"""Cards in the twin of gangs: what pods ask of them, what nodes offer, and what is free, by arithmetic of its own."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

from core.model import Node
from tests.support.worlds.world import CORES, MEMORY, NUMBER, node

CARD_MIB: Final = 10_000
CPUS: Final = 6


class Kind(StrEnum):
    """Whose device plugin serves a node."""

    VGPU = "vgpu"
    HAMI = "hami"


_RESOURCES: Final = {
    Kind.VGPU: (NUMBER, MEMORY, CORES),
    Kind.HAMI: ("nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"),
}
_ASSIGNED: Final = ("volcano.sh/vgpu-ids-new", "hami.io/vgpu-devices-allocated")
_SERVED: Final[Mapping[Kind, Mapping[str, str]]] = {
    Kind.VGPU: {"volcano.sh/devices-to-allocate": "", "volcano.sh/bind-phase": "success"},
    Kind.HAMI: {"hami.io/vgpu-devices-to-allocate": "", "hami.io/bind-phase": "success"},
}


@dataclass(slots=True, kw_only=True)
class Asked:
    """What one pod wants: parts of different cards, each of so many MiB and percent of its cores, and cpus.

    group, zone: "" for none. app: a label, by which disruption budgets cover it. role, part: labels that say its
    subgroup.
    """

    group: str
    namespace: str
    cards: int
    cpu: int
    zone: str
    priority: int
    kind: Kind = Kind.VGPU
    mib: int = CARD_MIB
    cores: int = 0
    app: str = ""
    role: str = ""
    part: str = ""

    @property
    def shape(self) -> tuple[object, ...]:
        """Equal for pods that fit in the same places."""
        return self.kind, self.cards, self.mib, self.cores, self.cpu, self.zone

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its pod."""
        return {"app": self.app, "role": self.role, "part": self.part}

    def limits(self) -> dict[str, str]:
        """The limits of its container."""
        amounts = (self.cards, self.mib, self.cores)
        asked = zip(_RESOURCES[self.kind], amounts, strict=True) if self.cards else ()
        return {"cpu": str(self.cpu)} | {name: str(amount) for name, amount in asked if amount}

    def served(self) -> dict[str, str]:
        """The annotations that its device plugin writes when it has served it."""
        return dict(_SERVED[self.kind]) if self.cards else {}


class Offer(NamedTuple):
    """The cards of a node: how many, and how many pods each takes."""

    kind: Kind = Kind.VGPU
    cards: int = 0
    slots: int = 10

    def node(self, name: str, *, version: str, labels: Mapping[str, str]) -> Node:
        """A node that has them."""
        made = node(name, cards=self.cards, memory=CARD_MIB, slots=self.slots, version=version, labels=labels)
        have = {**made.allocatable, "cpu": str(CPUS)}
        changes: dict[str, Any] = {}
        if self.kind is Kind.HAMI:
            have = {word: amount for word, amount in have.items() if word not in _RESOURCES[Kind.VGPU]}
            have[_RESOURCES[Kind.HAMI][0]] = str(self.cards * self.slots)
            one = {"count": self.slots, "devmem": CARD_MIB, "devcore": 100, "type": "NVIDIA A100", "mode": "hami-core"}
            register = [{"id": f"{name}-{at}", "index": at, "health": True, **one} for at in range(self.cards)]
            changes["annotations"] = {"hami.io/node-nvidia-register": json.dumps(register)}
        return replace(made, capacity=have, allocatable=have, **changes)


class Share(NamedTuple):
    """A part of one card."""

    card: str
    mib: int
    cores: int


def shares_of(annotations: Mapping[str, str]) -> list[Share]:
    """What *annotations* say that a pod holds; entries are id, type, MiB, cores (nvidia 1.10; hami 1.9)."""
    text = ":".join(annotations.get(key, "") for key in _ASSIGNED).replace(";", ":")
    entries = [entry.split(",") for entry in text.split(":") if entry]
    return [Share(fields[0], int(fields[2]), int(fields[3])) for fields in entries]


class Free(NamedTuple):
    """What is free of one card."""

    mib: int
    cores: int
    slots: int

    @property
    def is_over(self) -> bool:
        """Whether more is in use than there is."""
        return min(self) < 0

    def times(self, asked: Asked) -> int:
        """How often it has what a pod asks of a card; once its cores are taken, never (nvidia 3.5)."""
        if self.cores <= 0:
            return 0
        return min(self.slots, self.mib // asked.mib, self.cores // asked.cores if asked.cores else self.slots)


def left(name: str, offer: Offer, shares: Iterable[Share]) -> dict[str, Free]:
    """What is free of the cards of node *name* beside *shares*, some of which may be elsewhere."""
    found = {f"{name}-{at}": Free(CARD_MIB, 100, offer.slots) for at in range(offer.cards)}
    for card, mib, cores in shares:
        if card in found:
            now = found[card]
            found[card] = Free(now.mib - mib, now.cores - cores, now.slots - 1)
    return found


def times(cards: Sequence[Free], cpu: int, asked: Asked) -> int:
    """How many pods fit on a node with *cards* and so many cpus, each on different cards."""
    most = cpu // asked.cpu
    if not asked.cards:
        return most
    room = [one.times(asked) for one in cards]
    return next((many for many in range(most, 0, -1) if sum(min(one, many) for one in room) >= many * asked.cards), 0)
