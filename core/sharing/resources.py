"""The resources by which containers ask for shared cards, as a dialect declares them."""

from collections.abc import Iterator
from typing import NamedTuple

from core.model import AnyPod
from core.port.cards import CardWish, Wording
from core.warnings import AdmissionWarning, all_memory, little_memory


class Resources(NamedTuple):
    """The names for one kind of cards: how many *cards*, and of each *memory*, *cores* and *percentage* of its memory.

    A name is "" if the protocol has none. mib_per_unit: MiB per unit of *memory*. type: the only type of
    these cards, "" for any.
    """

    cards: str = ""
    memory: str = ""
    cores: str = ""
    percentage: str = ""
    mib_per_unit: int = 1
    type: str = ""

    @property
    def all(self) -> tuple[str, ...]:
        """All of its names."""
        return (self.cards, *self.parts) if self.cards else self.parts

    @property
    def parts(self) -> tuple[str, ...]:
        """The names for a part of a card."""
        return tuple([one for one in (self.memory, self.cores, self.percentage) if one])


def worded(wish: CardWish, named: Resources, types: str) -> Wording | None:
    """Return *wish* as limits, and the annotation *types*; None if the protocol has no word for a part of it.

    Memory is rounded up to units; without a resource that counts cards, it is of one card. A type is in the names
    themselves if these are of one type.
    """
    if named.type:
        wanted = [one.strip().lower() for one in wish.types.split(",") if one.strip()]
        if wanted and not any(one in named.type.lower() for one in wanted):
            return None
        wish = wish._replace(types="")
    lacks = (wish.memory_mib is not None and not named.memory) or (wish.cores_pct is not None and not named.cores)
    uncounted = not named.cards and (wish.cards != 1 or wish.memory_mib is None)
    if lacks or uncounted or (wish.types and not types):
        return None
    limits = {named.cards: str(wish.cards)} if named.cards else {}
    if wish.memory_mib is not None:
        limits[named.memory] = str(-(-wish.memory_mib // named.mib_per_unit))
    if wish.cores_pct is not None:
        limits[named.cores] = str(wish.cores_pct)
    return Wording(limits, {types: wish.types} if wish.types else {})


def odd_memory(pod: AnyPod, named: Resources, *, none_is_all: bool = True) -> Iterator[AdmissionWarning]:
    """Yield CS116 and CS119 for amounts of memory of *pod* that give more, or less, than they seem to.

    none_is_all: 0 gives all memory of a card.
    """
    for one in (*pod.init_containers, *pod.containers):
        written = {name: one.amount(name) for name in (named.memory, named.percentage) if name}
        has_cards = one.amount(named.cards) not in (None, "0")
        if none_is_all and has_cards and all(text in (None, "0") for text in written.values()):
            yield from [all_memory(one, name) for name, text in written.items() if text == "0"]
        yield from little_memory(one, named.memory, named.mib_per_unit)
