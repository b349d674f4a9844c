"""Plugins that register the same cards in another way: in another order, for more or fewer pods, or after a while."""

from typing import Any, Final

from tests.support.twin.machines import Kind, Machine
from tests.support.twin.sides import Side

_SPLITS: Final = (2, 3, 5, 10)


class Registers(Side):
    """Nodes whose registers change in place while pods run."""

    def act(self) -> None:
        draw, machine = self._draw, self._draw.choice(list(self._world.machines.values()))
        draw.choice((self._shuffle, self._split, self._take_out))(machine)

    def _shuffle(self, machine: Machine) -> None:
        """The cards get other indices; who has which stays."""
        names: list[Any] = sorted(machine.cards)
        self._draw.shuffle(names)
        machine.reorder(names)

    def _split(self, machine: Machine) -> None:
        """A card takes more pods from now on, or fewer; those on it stay."""
        if machine.kind is not Kind.ASCEND:
            machine.reregister(machine.cards, machine.ill.keys(), slots=self._draw.choice(_SPLITS))

    def _take_out(self, machine: Machine) -> None:
        """A card is not there for a while, and then the same one is again."""
        if len(machine.cards) < 2:
            return
        card = self._draw.choice(sorted(machine.cards))
        mib = machine.cards[card]
        machine.reregister(
            {one: have for one, have in machine.cards.items() if one != card}, machine.ill.keys() - {card}
        )
        self._world.at(self._draw.choice((0.0, 2.0, 30.0)), lambda: self._put_in(machine, card, mib))

    @staticmethod
    def _put_in(machine: Machine, card: str, mib: int) -> None:
        machine.reregister({card: mib, **machine.cards}, machine.ill.keys())
