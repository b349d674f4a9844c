"""What pods and units that were refused wait by: all that ask the same are refused alike, and woken one by one."""

from collections.abc import Iterable
from dataclasses import dataclass

from core.placing.fairness import Account
from core.placing.gang import Together
from core.placing.shape import Shape


@dataclass(frozen=True, slots=True)
class Capped:
    """A shape that nodes would take, and of which one of the accounts that limit it has too little left."""

    limits: tuple[Account, ...]
    shape: Shape


Ask = Shape | Together | Capped


def shapes_of(ask: Ask) -> Iterable[Shape]:
    """The shapes of all who ask so."""
    match ask:
        case Shape():
            return (ask,)
        case Together():
            return ask.shapes
        case Capped(shape=shape):
            return (shape,)
