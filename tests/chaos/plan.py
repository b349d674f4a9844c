"""Which fault begins when: drawn from the seed alone, so that a run can be repeated."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

# Between the beginnings of two faults, in seconds.
LEAST_S: Final = 2.0
MOST_S: Final = 5.0


class Kind(StrEnum):
    """What goes wrong."""

    CONTROLLER_KILLED = "controller killed"
    CONTROLLER_STOPPED = "controller stopped for a while"
    CONTROLLER_ENDED = "controller asked to end"
    WEBHOOK_KILLED = "webhook killed"
    WEBHOOK_STOPPED = "webhook stopped for a while"
    WEBHOOK_ENDED = "webhook asked to end"
    CALLS_LATE = "calls late"
    CALLS_REFUSED = "calls answered 429, 500 or 403"
    CALLS_SWALLOWED = "calls and watches swallowed"
    ANSWERS_LOST = "calls carried out, answers lost"
    ANSWERS_HALF = "answers cut in half"
    BINDINGS_LATE = "Bindings cut off and carried out later"
    WATCH_HELD = "watch held back"
    WATCH_DOUBLED = "watch says all twice"
    WATCH_CUT = "watches cut off"
    COMPACTED = "history compacted"
    CERTIFICATES_ROTATED = "certificates rotated"
    PLUGIN_SILENT = "plugin silent"
    PLUGIN_DEAD = "plugin dead, then back"
    PLUGIN_FAILS = "plugin fails calls"
    CARD_ILL = "card becomes unhealthy, then well"
    NODE_NOT_READY = "node not ready, then ready"
    NODE_CORDONED = "node cordoned, then not"
    NODE_DELETED = "node deleted, then back"
    SETTINGS_EDITED = "settings edited"
    SETTINGS_SPOILT = "settings that cannot be used, then good ones"


# How many of each go into one draw.
_MORE: Final = {Kind.BINDINGS_LATE: 4, Kind.ANSWERS_LOST: 2, Kind.CALLS_REFUSED: 2, Kind.WATCH_HELD: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A fault: when it begins, in seconds from the start, and the seed of all else that it draws."""

    at_s: float
    kind: Kind
    seed: int


def plan(seed: int, seconds: float) -> Iterator[Planned]:
    """The faults of a run of so many *seconds*; every kind comes before any comes much more often than it should."""
    chance = random.Random(seed)
    at_s, bag = 0.0, list[Kind]()
    while (at_s := at_s + chance.uniform(LEAST_S, MOST_S)) < seconds:
        if not bag:
            bag = [kind for kind in Kind for _ in range(_MORE.get(kind, 1))]
            chance.shuffle(bag)
        yield Planned(at_s=at_s, kind=bag.pop(), seed=chance.getrandbits(32))
