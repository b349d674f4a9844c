"""Parses the message of a condition that `explain` and `shortage` wrote.

The message is the only part of the decision for readers who may only read pods.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

from core.waiting import cause_of, code_in

_AVAILABLE: Final = re.compile(r"\b0/\d+ nodes are available: ")
# A sentence starts with a capital or a figure; a shortened one ends with an ellipsis.
_ENDS: Final = re.compile(r"\. (?=[A-Z0-9])|\.$|(?<=…) ")
_NEAREST: Final = "Nearest: "
_HOPELESS: Final = "Not even an empty node "
_BUYS: Final = re.compile(r"(?:A|\d+) new nodes? ")


class Said(NamedTuple):
    """The parts of a message after its code: the nearest node or card, and the smallest change that lets the pod in.

    Each is "" if the message does not have it.
    """

    nearest: str = ""
    change: str = ""


# Pods with equal requests wait with the same message.
@lru_cache(maxsize=1024)
def said_in(message: str) -> Said:
    """Return the parts of *message*; if no node refuses the pod, *change* is the remedy for its cause."""
    cause = cause_of(code_in(message))
    if cause is None:
        return Said()
    found = _AVAILABLE.search(message)
    if found is None:
        return Said(change=cause.value.remedy)
    nearest, changes = "", list[str]()
    for sentence in _ENDS.split(message[found.end() :])[1:]:
        if sentence.startswith(_NEAREST):
            nearest = sentence.removeprefix(_NEAREST)
        elif sentence and not sentence.startswith(_HOPELESS) and not _BUYS.match(sentence):
            changes.append(sentence if not changes else sentence[:1].lower() + sentence[1:])
    return Said(nearest, "; ".join(changes) or cause.value.remedy)
