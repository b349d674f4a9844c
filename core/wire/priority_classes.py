"""PriorityClasses: the priority of pods and groups that name them."""

from typing import Final, NamedTuple

import msgspec

from core.wire import reading

_NEVER: Final = "Never"


class PriorityClass(NamedTuple):
    """One class: its priority, and whether pods of lower priority may be evicted for it.

    is_default: pods that name no class get it; of several such classes the lowest.
    """

    name: str
    value: int
    preempts: bool = True
    is_default: bool = False


class _Meta(msgspec.Struct, frozen=True, gc=False):
    name: str = ""


class PriorityClassObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The fields that are read. Source: Kubernetes API reference, scheduling.k8s.io/v1 PriorityClass."""

    metadata: _Meta = _Meta()
    value: int = 0
    preemption_policy: str | None = None
    global_default: bool | None = None


def priority_class_of(found: PriorityClassObject) -> PriorityClass:
    """Return the value of a decoded PriorityClass."""
    preempts = found.preemption_policy != _NEVER
    return PriorityClass(found.metadata.name, found.value, preempts, bool(found.global_default))


decode_priority_class: Final = reading.reader("PriorityClass", PriorityClassObject, priority_class_of)
