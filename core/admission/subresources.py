"""Judges writes to a pod's subresources: Bindings, debug containers, and resizes of containers."""

from collections.abc import Iterator

from core.admission import reach
from core.admission.defaulting import complete_container
from core.admission.rulebook import Rulebook
from core.admission.verdict import NOTHING, Verdict, first_of
from core.errors import quoted
from core.model import Container, ReviewedPod
from core.port.refusals import Violation
from core.wire.reviewed_pods import PodObject, ephemeral_containers_of, pod_of


def judge_binding(found: PodObject, user_name: str, book: Rulebook) -> Verdict:
    """CS301: a pod gets the annotations of its Binding, so they can assign cards too."""
    annotations = found.metadata.annotations or {}
    keys = book.protected_of(annotations)
    if not keys or book.may_bind(user_name):
        return NOTHING
    return Verdict(
        violations=first_of(
            keys,
            lambda key: Violation(
                code="CS301",
                field=f"annotation {key} of the Binding",
                found=quoted(annotations[key]),
                remedy="leave it out; only schedulers and device plugins write it",
            ),
        )
    )


def judge_ephemeral(old: PodObject, new: PodObject, namespace: str, book: Rulebook) -> Verdict:
    """CS303, CS304, CS307, CS310 for new containers of `kubectl debug` in a pod with cards.

    Such a container requests no cards, but it can access those of the whole node.
    """
    pod = pod_of(new, namespace)
    if not book.asks_cards(pod):
        return NOTHING
    there = {one.name for one in ephemeral_containers_of(old)}
    found = [one for one in ephemeral_containers_of(new) if one.name not in there]
    violations = tuple(one for container in found for one in reach.escaping(container, pod, book))
    return Verdict(violations=violations) if violations else NOTHING


def judge_resize(old: PodObject, new: PodObject, namespace: str, book: Rulebook) -> Verdict:
    """CS306: cpu and memory of containers may change, but their card resources are fixed with the card."""
    before, after = pod_of(old, namespace), pod_of(new, namespace)
    if not book.asks_cards(before):
        return NOTHING
    violations = tuple(_resized(before, after, book))
    return Verdict(violations=violations) if violations else NOTHING


def _resized(before: ReviewedPod, after: ReviewedPod, book: Rulebook) -> Iterator[Violation]:
    stored = {one.name: one for one in before.containers}
    for container in after.containers:
        old = stored.get(container.name)
        if old is None:
            continue
        was, asked = _cards(complete_container(old, book), book), _cards(complete_container(container, book), book)
        for key in sorted(was.keys() | asked.keys()):
            if was.get(key) != asked.get(key):
                yield Violation(
                    code="CS306",
                    field=f'container "{container.name}": limit {key}',
                    found=quoted(asked.get(key, "nothing")),
                    remedy=f"leave it at {was.get(key, 'nothing')}; a pod keeps its cards: delete it and create it "
                    "again to ask for others",
                )


def _cards(container: Container, book: Rulebook) -> dict[str, str]:
    return {key: value for key, value in container.limits.items() if key in book.resources}
