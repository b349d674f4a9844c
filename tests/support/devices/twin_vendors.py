"""HAMi's other vendors in the twins' cluster: how each sells its cards. From the protocol reference, hami-vendors 1, 3.

Only those whose shares are plain: memory and cores, or whole shares, of which what a card has is the sum's limit.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """How one vendor sells its cards.

    count, memory, cores: the resources, "" for none. unit: MiB in one of memory. held: the annotations of pods with the
    entries, the first there is. register: that of nodes; form: "text", "json", or the word in ids of cards by capacity.
    mib, slots, total: what a card has of memory, shares and cores. mibs: what pods ask for, in units. percent: cores of
    pods are percent of the total. parts_needed: pods must ask for memory and cores, of one card.
    """

    word: str
    count: str
    held: tuple[str, ...]
    form: str
    memory: str = ""
    cores: str = ""
    unit: int = 1
    register: str = ""
    mib: int = 32768
    slots: int = 4
    total: int = 100
    mibs: tuple[int, ...] = (1000, 4000, 16000)
    percent: bool = False
    parts_needed: bool = False

    def asked(self, chance: Random) -> dict[str, int]:
        """The limits of a random container."""
        if not self.memory:
            return {self.count: chance.choice((1, 1, 2))}
        if not (self.parts_needed or self.percent) and chance.random() < 0.2:
            return {self.count: 2}
        cores = chance.choice((10, 50, 100) if self.parts_needed else (0, 10, 50, 100))
        scale = 100 if self.percent else self.total
        return {self.count: 1, self.memory: chance.choice(self.mibs), self.cores: cores * scale // 100}

    def written(self, card: str, mib: int | str) -> str:
        """What another scheduler writes of a share of *card*."""
        return f"{card},{self.word},{mib if self.memory else 0},0:;"

    def node(self, cards: tuple[str, ...], ill: set[int], *, garbled: bool) -> tuple[dict[str, str], dict[str, int]]:
        """(the annotations, the capacity) of a node with *cards*."""
        if self.form == "text":
            text = "".join(
                f"{uuid},{self.slots},{self.mib},{self.total},{self.word}-X,0,{str(at not in ill).lower()},{at},hami:"
                for at, uuid in enumerate(cards)
            )
            return {self.register: "," if garbled else text}, {self.count: self.slots * len(cards)}
        if self.form == "json":
            found = [
                {"id": uuid, "index": at, "count": self.slots, "devmem": self.mib, "devcore": self.total}
                | {"type": f"{self.word} X", "health": at not in ill}
                for at, uuid in enumerate(cards)
            ]
            text = "[{" if garbled else json.dumps(found)
            return {self.register: text}, {self.count: self.slots * len(cards)}
        return {}, {self.cores: self.total * len(cards), self.memory: self.mib // self.unit * len(cards)}

    def ids(self, node: str, many: int = 3) -> tuple[str, ...]:
        """So *many* cards of *node*."""
        word = self.form if self.form not in ("text", "json") else self.word
        return tuple(f"{node}-{word}-{at}" for at in range(many))


PLAIN: Final = {
    "hygon": Plain(
        word="DCU",
        count="hygon.com/dcunum",
        memory="hygon.com/dcumem",
        cores="hygon.com/dcucores",
        held=("hami.io/dcu-devices-allocated",),
        form="text",
        register="hami.io/node-dcu-register",
    ),
    "iluvatar_mr_v100": Plain(
        word="MR-V100",
        count="iluvatar.ai/MR-V100-vgpu",
        memory="iluvatar.ai/MR-V100.vMem",
        cores="iluvatar.ai/MR-V100.vCore",
        unit=256,
        mibs=(4, 16, 60),
        held=("hami.io/MR-V100-devices-allocated",),
        form="text",
        register="hami.io/node-MR-V100-register",
    ),
    "amd": Plain(
        word="AMD",
        count="amd.com/gpu",
        memory="amd.com/gpumem",
        cores="amd.com/gpucores",
        held=("hami.io/amd-devices-allocated",),
        form="json",
        register="hami.io/node-amd-register",
        total=304,
        slots=10,
        percent=True,
    ),
    "biren": Plain(
        word="Biren",
        count="birentech.com/gpu",
        # The plugin erases the second (VN-31).
        held=("hami.io/Biren-devices-to-allocate", "hami.io/Biren-devices-allocated"),
        form="json",
        register="hami.io/node-biren-register",
        slots=2,
    ),
    "vastai": Plain(
        word="Vastai",
        count="vastaitech.com/va",
        held=("hami.io/Vastai-devices-allocated",),
        form="json",
        register="hami.io/node-va-register",
        slots=1,
    ),
    "cambricon": Plain(
        word="MLU",
        count="cambricon.com/vmlu",
        memory="cambricon.com/mlu.smlu.vmemory",
        cores="cambricon.com/mlu.smlu.vcore",
        unit=256,
        mibs=(4, 16, 60),
        held=("hami.io/cambricon-mlu-devices-allocated",),
        form="cambricon-mlu",
        slots=100,
        parts_needed=True,
    ),
    "mthreads": Plain(
        word="Mthreads",
        count="mthreads.com/vgpu",
        memory="mthreads.com/sgpu-memory",
        cores="mthreads.com/sgpu-core",
        unit=512,
        mibs=(2, 16, 32),
        held=("hami.io/mthreads-vgpu-devices-allocated",),
        form="mthreads",
        mib=49152,
        slots=100,
        total=16,
    ),
}
