"""A cluster of `twin_world` whose machines change too: cards are added, lost, replaced, and have other memory.

A generator of its own, so that the lives of `World` stay as they are, seed by seed.
"""

from __future__ import annotations

from dataclasses import replace

from tests.support.devices.twin_vendors import PLAIN
from tests.support.devices.twin_world import World

_MIB = (4000, 8000, 15360, 24060, 40536, 81920)


class ShiftingWorld(World):
    """See `World`; its judge knows a machine as it is now, and judges who comes, not who is there."""

    def __init__(self, seed: int | str) -> None:
        super().__init__(seed)
        self._operations = (*self._operations, (self.shift, 1.0))
        self._weights = tuple(weight for _, weight in self._operations)
        self._names = 0

    def shift(self) -> None:
        """A machine is given more cards, or fewer, or another one, or such with other memory, and says so."""
        site, chance = self._site(), self.chance
        machine = site.machine
        gpus, npus, cards = machine.gpus, machine.npus, machine.cards
        self._names += 1
        new = f"NEW-{self._names}"
        # One card's memory is computed from the sum of all by one protocol, so all have the same (nvidia 2.2).
        match chance.choice(("more", "fewer", "other", "memory")):
            case "more" if len(gpus or npus or cards) < 4:
                gpus = (*gpus, (new, gpus[0][1])) if gpus else ()
                npus, cards = (*npus, new) if npus else (), (*cards, new) if cards else ()
            case "fewer" if len(gpus or npus or cards) > 1:
                gpus, npus, cards = gpus[:-1], npus[:-1], cards[:-1]
            case "other":
                gpus = (*gpus[:-1], (new, gpus[0][1])) if gpus else ()
                npus, cards = (*npus[:-1], new) if npus else (), (*cards[:-1], new) if cards else ()
            case "memory" if not machine.model:
                mib = chance.choice(_MIB)
                gpus = tuple((uuid, mib) for uuid, _ in gpus)
        if machine.vendor and not PLAIN[machine.vendor].register:
            # Without a register, cards are named by node and position (hami-vendors 3).
            cards = PLAIN[machine.vendor].ids(site.name, len(cards))
        site.machine = replace(machine, gpus=gpus, npus=npus, cards=cards)
        site.ill &= set(range(len(gpus or npus or cards)))
        self.twin.machines = {**self.twin.machines, site.name: site.machine}
        self._set(site)
