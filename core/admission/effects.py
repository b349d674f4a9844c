"""CS116: parts of a pod that have no effect, or another than they suggest, because of another part.

Dialects report this for their own settings; this module reports what no component reads.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from core.admission import rules
from core.admission.rulebook import Rulebook
from core.catalog import Asked, is_crowded
from core.model import ReviewedPod
from core.warnings import AdmissionWarning, no_effect

_TOLD: Final = 8


def ineffective(pod: ReviewedPod, asked: Asked | None, book: Rulebook) -> Iterator[AdmissionWarning]:
    """Yield warnings for parts of *pod*, which requests *asked*, that do not have the suggested effect."""
    return islice(_ineffective(pod, asked, book), _TOLD)


def _ineffective(pod: ReviewedPod, asked: Asked | None, book: Rulebook) -> Iterator[AdmissionWarning]:
    if pod.labels:
        yield from misplaced(pod, book)
    if is_crowded(pod):
        return
    resource = rules.asked_resource(pod, book)
    if not resource:
        return
    if pod.annotations:
        yield from unread(pod, asked, resource, book)
    if pod.labels:
        yield from others_labels(pod, asked, book)
    if asked is not None:
        yield from book.catalog.dialects[asked.dialect].warnings(pod, asked.request, book.tables)


def misplaced(pod: ReviewedPod, book: Rulebook) -> Iterator[AdmissionWarning]:
    """Yield warnings for annotation keys among the labels, where they are not read."""
    for key in sorted(pod.labels.keys() & book.preferences):
        yield no_effect(f"label {key}", pod.labels[key], "it is read as an annotation only", "write it there")


def unread(pod: ReviewedPod, asked: Asked | None, resource: str, book: Rulebook) -> Iterator[AdmissionWarning]:
    """Yield warnings for card annotations that are not read for a pod with *resource*, and for misplaced keys."""
    recognised = frozenset[str]()
    if asked is not None:
        recognised = book.catalog.dialects[asked.dialect].recognised(asked.request, book.tables)
    for key in sorted((pod.annotations.keys() & book.preferences) - recognised):
        if pod.annotations[key].strip():
            why = f"it is not read on pods that ask for {resource}"
            yield no_effect(f"annotation {key}", pod.annotations[key], why, "leave it out")
    own_labels = book.labels.get(asked.dialect, frozenset()) if asked is not None else frozenset()
    for key in sorted(pod.annotations.keys() & own_labels):
        yield no_effect(f"annotation {key}", pod.annotations[key], "it is read as a label only", "write it there")
    for key in sorted(pod.annotations.keys() & book.resources):
        if not book.is_protected(key):
            remedy = "write it among a container's limits"
            yield no_effect(f"annotation {key}", pod.annotations[key], "it is a resource", remedy)


def others_labels(pod: ReviewedPod, asked: Asked | None, book: Rulebook) -> Iterator[AdmissionWarning]:
    """Yield warnings for labels that only another dialect reads."""
    for name, keys in book.labels.items():
        if asked is None or asked.dialect is not name:
            resources = ", ".join(sorted(book.resources_by_dialect[name]))
            for key in sorted(pod.labels.keys() & keys):
                why = f"only pods with {resources} use it"
                yield no_effect(f"label {key}", pod.labels[key], why, "leave it out")
