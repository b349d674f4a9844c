"""What a condition's message says, part by part: read back from what `explain` and `shortage` wrote.

The message is all that whoever may only read pods has of the controller's decision.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

from core.waiting import cause_of, code_in

_AVAILABLE: Final = re.compile(r"\b0/\d+ nodes are available: ")
# A sentence of ours begins with a capital or a figure; one that was cut off ends with an ellipsis.
_ENDS: Final = re.compile(r"\. (?=[A-Z0-9])|\.$|(?<=…) ")
_NEAREST: Final = "Nearest: "
_HOPELESS: Final = "Not even an empty node "
_BUYS: Final = re.compile(r"(?:A|\d+) new nodes? ")


class Said(NamedTuple):
    """What a message says besides its code: the nearest node or card, and the smallest change that lets the pod in.

    Each is "" if the message names none.
    """

    nearest: str = ""
    change: str = ""


# Pods that ask the same wait with the same message.
@lru_cache(maxsize=1024)
def said_in(message: str) -> Said:
    """What *message* says; of a pod that no node keeps off, *change* is what helps against its kind of wait."""
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
