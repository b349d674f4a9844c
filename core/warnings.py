"""Warnings about admitted pods, and the dialects' common wording for settings without effect."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from core.errors import quoted
from core.model import Container, ReviewedPod


class AdmissionWarning(NamedTuple):
    """One warning to the user about an admitted pod; codes as in `core.port.refusals.Violation`."""

    code: str
    text: str

    def __str__(self) -> str:
        return f"{self.code} {self.text}"


def no_effect(field: str, found: str, why: str, remedy: str) -> AdmissionWarning:
    """CS116: *field* with *found* has no effect; *why*, and the remedy."""
    return another_effect(field, found, f"it has no effect, because {why}", remedy)


def another_effect(field: str, found: str, what: str, remedy: str) -> AdmissionWarning:
    """CS116: *field* with *found* has another effect, *what*, than its words suggest; and the remedy."""
    return AdmissionWarning("CS116", f"{field}: found {quoted(found)}; {what}: {remedy}")


def all_memory(container: Container, resource: str) -> AdmissionWarning:
    """CS116: 0 of *resource*, which means all of it."""
    what = "it asks for all memory of the card"
    return another_effect(limit_of(container, resource), "0", what, "write how much you need, or leave it out")


# A CUDA context alone needs more, so a smaller amount probably means GiB.
_LEAST_MIB: Final = 64
_MIB_PER_GIB: Final = 1024


def little_memory(container: Container, resource: str, mib_per_unit: int = 1) -> Iterator[AdmissionWarning]:
    """CS119: so little of *resource*, with *mib_per_unit* MiB per unit, that GiB were probably meant."""
    text = container.amount(resource) or ""
    figure = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(_LEAST_MIB)) else 0
    if 0 < figure * mib_per_unit < _LEAST_MIB:
        yield AdmissionWarning(
            "CS119",
            f"{limit_of(container, resource)}: write {-(-figure * _MIB_PER_GIB // mib_per_unit)} for {figure} GiB; "
            f"found {quoted(text)}, which is {figure * mib_per_unit} MiB of a card, less than a process needs to start",
        )


def limit_of(container: Container, resource: str) -> str:
    """Return the location of *resource* for messages."""
    return f'container "{container.name}": limit {resource}'


def with_runtime_class(pod: ReviewedPod, name: str, why: str) -> tuple[ReviewedPod, tuple[AdmissionWarning, ...]]:
    """CS117: *pod* with the runtime class *name*, unless that is "" or it has one; and *why*."""
    if not name or pod.runtime_class:
        return pod, ()
    told = AdmissionWarning("CS117", f"spec.runtimeClassName: {name} was added, {why}")
    return pod._replace(runtime_class=name), (told,)
