"""What is told of a pod that is admitted: warnings, and the words that dialects share for what has no effect."""

from collections.abc import Iterator
from typing import Final, NamedTuple

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


# A CUDA context alone takes more; who writes less means GiB.
_LEAST_MIB: Final = 64
_MIB_PER_GIB: Final = 1024


def little_memory(container: Container, resource: str, mib_per_unit: int = 1) -> Iterator[AdmissionWarning]:
    """CS119: so little of *resource*, which counts *mib_per_unit* MiB each, that GiB were probably meant."""
    text = container.amount(resource) or ""
    figure = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(_LEAST_MIB)) else 0
    if 0 < figure * mib_per_unit < _LEAST_MIB:
        yield AdmissionWarning(
            "CS119",
            f"{limit_of(container, resource)}: write {-(-figure * _MIB_PER_GIB // mib_per_unit)} for {figure} GiB; "
            f"found {quoted(text)}, which is {figure * mib_per_unit} MiB of a card, less than a process needs to start",
        )


def limit_of(container: Container, resource: str) -> str:
    """Where *resource* stands, for people."""
    return f'container "{container.name}": limit {resource}'
