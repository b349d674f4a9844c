"""What is told of a pod that is admitted: warnings, and the words that dialects share for what has no effect."""

from typing import NamedTuple

from core.errors import quoted
from core.model import Container


class AdmissionWarning(NamedTuple):
    """One thing that the user is told although the pod is admitted; codes as in `core.port.refusals.Violation`."""

    code: str
    text: str

    def __str__(self) -> str:
        return f"{self.code} {self.text}"


def no_effect(field: str, found: str, why: str, remedy: str) -> AdmissionWarning:
    """CS116: *field* with *found* is not what its words say, *why*, and what to do about it."""
    return another_effect(field, found, f"it has no effect, because {why}", remedy)


def another_effect(field: str, found: str, what: str, remedy: str) -> AdmissionWarning:
    """CS116: *field* with *found* does *what*, not what its words say, and what to do about it."""
    return AdmissionWarning("CS116", f"{field}: found {quoted(found)}; {what}: {remedy}")


def all_memory(container: Container, resource: str) -> AdmissionWarning:
    """CS116: 0 of *resource*, which means all of it."""
    what = "it asks for all memory of the card"
    return another_effect(limit_of(container, resource), "0", what, "write how much you need, or leave it out")


def limit_of(container: Container, resource: str) -> str:
    """Where *resource* stands, for people."""
    return f'container "{container.name}": limit {resource}'
