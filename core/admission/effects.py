"""CS116: what of a pod has no effect, or another than its words say, because something else of it holds.

What a protocol knows of its own words is its dialect's to tell; here stands what nobody reads.
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
    """What of *pod*, which asks *asked* of cards, has not the effect that its words have."""
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
    dialect = book.reading.get(asked.dialect) if asked is not None else None
    if asked is not None and dialect is not None:
        yield from dialect.warnings(pod, asked.request, book.tables)


def misplaced(pod: ReviewedPod, book: Rulebook) -> Iterator[AdmissionWarning]:
    """Keys of annotations among the labels, where nobody looks for them."""
    for key in sorted(pod.labels.keys() & book.preferences):
        yield no_effect(f"label {key}", pod.labels[key], "it is read as an annotation only", "write it there")


def unread(pod: ReviewedPod, asked: Asked | None, resource: str, book: Rulebook) -> Iterator[AdmissionWarning]:
    """Annotations on cards that nobody reads of a pod with *resource*, and what does not belong among annotations."""
    dialect = book.reading.get(asked.dialect) if asked is not None else None
    recognised = (
        dialect.recognised(asked.request, book.tables) if asked is not None and dialect is not None else frozenset()
    )
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
    """Labels that are read of pods of another dialect only."""
    for name, keys in book.labels.items():
        if asked is None or asked.dialect is not name:
            resources = ", ".join(sorted(book.resources_by_dialect[name]))
            for key in sorted(pod.labels.keys() & keys):
                why = f"only pods with {resources} are told by it"
                yield no_effect(f"label {key}", pod.labels[key], why, "leave it out")
