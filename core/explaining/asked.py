"""The request of a pod, or the reason why it cannot be judged as it is."""

from typing import Final, assert_never

from core.explaining import explain
from core.ledger import Ledger
from core.model import Pod
from core.placing.decide import Invalid, NotSold, Unjudged, shape_of
from core.placing.shape import Shape
from core.waiting import Cause, Wait

# The admission rule that a dialect must be enabled (docs/operators/admission-rules.md).
_SWITCHED_OFF: Final = "CS202"


def read_wish(pod: Pod, ledger: Ledger) -> Shape | Wait:
    """Return the request of *pod*, or why it is not decided until it changes."""
    shape = shape_of(pod, ledger)
    match shape:
        case Shape() | Wait():
            return shape
        case Invalid(violations=violations):
            off = any(one.code == _SWITCHED_OFF for one in violations)
            return Wait(Cause.SWITCHED_OFF if off else Cause.INVALID, explain.invalid(violations))
        case NotSold(names=what):
            return Wait(Cause.NOT_SOLD, explain.not_sold(what))
        case Unjudged(names=what):
            return Wait(Cause.NOT_JUDGED, explain.unjudged(what))
        case _:
            assert_never(shape)
