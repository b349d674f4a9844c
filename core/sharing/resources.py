"""The resources by which containers ask for shared cards, as a dialect declares them."""

from typing import NamedTuple

from core import names
from core.port.cards import CardWish, Wording


class Resources(NamedTuple):
    """The names for one kind of cards: how many *cards*, and of each *memory*, *cores* and *percentage* of its memory.

    A name is "" if the protocol has none. mib_per_unit: MiB per unit of *memory*.
    """

    cards: str = ""
    memory: str = ""
    cores: str = ""
    percentage: str = ""
    mib_per_unit: int = 1

    @property
    def parts(self) -> tuple[str, ...]:
        """The names for a part of a card."""
        return tuple([one for one in (self.memory, self.cores, self.percentage) if one])


def has_words(wish: CardWish, named: Resources, types: str) -> bool:
    """Return whether the protocol has a resource for each part of *wish*, and an annotation *types* if it needs one."""
    lacks = (wish.memory_mib is not None and not named.memory) or (wish.cores_pct is not None and not named.cores)
    return not (lacks or (wish.types and not types))


def worded(wish: CardWish, named: Resources, types: str = names.USE_GPU_TYPE) -> Wording:
    """Return *wish*, which `has_words`, as limits and the annotation *types*; memory is rounded up to units."""
    limits = {named.cards: str(wish.cards)}
    if wish.memory_mib is not None:
        limits[named.memory] = str(-(-wish.memory_mib // named.mib_per_unit))
    if wish.cores_pct is not None:
        limits[named.cores] = str(wish.cores_pct)
    return Wording(limits, {types: wish.types} if wish.types else {})
