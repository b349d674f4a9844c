"""Plugins that register the same cards in another way, or others in their places: order, slots, absences, exchanges."""

from typing import Any, Final

from tests.support.twin.machines import Kind, Machine
from tests.support.twin.sides import Side

_SPLITS: Final = (2, 3, 5, 10)


class Registers(Side):
    """Nodes whose registers change in place while pods run."""

    _spares = 0

    def act(self) -> None:
        draw, machine = self._draw, self._draw.choice(list(self._world.machines.values()))
        draw.choice((self._shuffle, self._split, self._take_out, self._replace, self._exchange))(machine)

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

    def _replace(self, machine: Machine) -> None:
        """Another card is put in the place of one, with its index, its memory perhaps; pods of the old one stay."""
        old = self._draw.choice(sorted(machine.cards))
        mib = machine.cards[old]
        if machine.kind is not Kind.ASCEND and not machine.is_cut:
            mib = self._draw.choice((mib, mib, 8000, 32000))
        self._spares += 1
        new = f"SPARE-{self._spares}"
        self._world.counts["registers: cards replaced"] += 1
        cards = {new if one == old else one: mib if one == old else have for one, have in machine.cards.items()}
        machine.reregister(cards, machine.ill.keys() & cards)

    def _exchange(self, machine: Machine) -> None:
        """Two nodes get a card of each other; they are off meanwhile, and their objects are made anew."""
        same = [
            one
            for one in self._world.machines.values()
            if one is not machine
            and (one.kind, one.model, one.is_cut, machine.is_cut) == (machine.kind, machine.model, False, False)
        ]
        if not same:
            return
        other = self._draw.choice(same)
        mine, theirs = self._draw.choice(sorted(machine.cards)), self._draw.choice(sorted(other.cards))
        if {one.name for one in (machine, other)} - self.objects("nodes").keys() or theirs in machine.cards:
            return
        self._world.counts["registers: cards exchanged"] += 1
        pairs = [(machine, mine, theirs, other.cards[theirs]), (other, theirs, mine, machine.cards[mine])]
        for one, out, new, mib in pairs:
            cards = {new if card == out else card: mib if card == out else have for card, have in one.cards.items()}
            one.renew(self._draw.choice((0.2, 3.0)), self._draw.choice((3.5, 8.0)), cards)

    @staticmethod
    def _put_in(machine: Machine, card: str, mib: int) -> None:
        machine.reregister({card: mib, **machine.cards}, machine.ill.keys())
