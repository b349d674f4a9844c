"""PriorityClasses: the priority of pods and groups that name them."""

from typing import Final, NamedTuple

import msgspec

from core.wire import reading

_NEVER: Final = "Never"


class PriorityClass(NamedTuple):
    """One class: its priority, and whether pods of lower priority may be evicted for it."""

    name: str
    value: int
    preempts: bool = True


class _Meta(msgspec.Struct, frozen=True, gc=False):
    name: str = ""


class PriorityClassObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The fields that are read. Source: Kubernetes API reference, scheduling.k8s.io/v1 PriorityClass."""

    metadata: _Meta = _Meta()
    value: int = 0
    preemption_policy: str | None = None


def priority_class_of(found: PriorityClassObject) -> PriorityClass:
    """Return the value of a decoded PriorityClass."""
    return PriorityClass(found.metadata.name, found.value, found.preemption_policy != _NEVER)


decode_priority_class: Final = reading.reader("PriorityClass", PriorityClassObject, priority_class_of)
