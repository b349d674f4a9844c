"""PriorityClasses: how important pods and groups that name them are."""

from typing import Final, NamedTuple

import msgspec

from core.wire import reading

_NEVER: Final = "Never"


class PriorityClass(NamedTuple):
    """One class: the priority that its name stands for, and whether it lets others of a lower one be evicted."""

    name: str
    value: int
    preempts: bool = True


class _Meta(msgspec.Struct, frozen=True, gc=False):
    name: str = ""


class PriorityClassObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A PriorityClass as far as it is read. Source: Kubernetes API reference, scheduling.k8s.io/v1 PriorityClass."""

    metadata: _Meta = _Meta()
    value: int = 0
    preemption_policy: str | None = None


def priority_class_of(found: PriorityClassObject) -> PriorityClass:
    """The value of a decoded PriorityClass."""
    return PriorityClass(found.metadata.name, found.value, found.preemption_policy != _NEVER)


decode_priority_class: Final = reading.reader("PriorityClass", PriorityClassObject, priority_class_of)
