"""Judges one review: a new pod is defaulted and protected, a changed pod may change only in allowed ways.

A new pod is defaulted and then judged as it would be stored. For a changed pod, only differences from the old object
are judged. Its spec is changed only back to old values, so that the same manifest can be applied twice.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from core.admission import advice, defaulting, reach, rules
from core.admission.rulebook import Rulebook
from core.admission.update import judge_change
from core.admission.verdict import ANNOTATIONS, NO_WARNINGS, NOTHING, Judged, Verdict, edits_between, first_of
from core.catalog import Asked
from core.errors import InvalidRequestError, quoted
from core.model import Container, ReviewedPod
from core.port.refusals import Violation
from core.settings import OnOtherNodes
from core.warnings import AdmissionWarning
from core.wire.patches import encode_patch
from core.wire.reviewed_pods import (
    PodObject,
    container_count,
    ephemeral_containers_of,
    pod_of,
    present_in,
    resources_in,
    server_side_applied,
)
from core.wire.reviews import Review

MAX_CONTAINERS: Final = 512


def mutate(review: Review, book: Rulebook) -> tuple[Verdict, bytes]:
    """Return (the verdict on *review*, the JSON patch of its edits or b""); idempotent.

    Anything but the creation, change or Binding of a pod is admitted unchanged. `validate` warns of a pod that is
    admitted unchanged.
    """
    found, verdict = review.object, judge(review, book).verdict
    return verdict, encode_patch(verdict.edits, present_in(found)) if verdict.edits and found is not None else b""


def validate(review: Review, book: Rulebook) -> Verdict:
    """Return the verdict on the final state of the pod in *review*; `templates.judge_workload` judges workloads.

    Requests that can never fit and warnings for an admitted pod are reported only here, so that they appear once.
    Accounts that write assignments are not judged here, because they do not complete pods.
    """
    found = review.object
    old, namespace = review.old_object, review.namespace
    if container_count(found) > MAX_CONTAINERS:
        verdict = too_many(review, book)
        if verdict is not None:
            return verdict
    if found is not None and old is not None and review.is_debugged_pod:
        return judge_ephemeral(old, found, namespace, book)
    if found is not None and old is not None and review.is_resized_pod:
        return judge_resize(old, found, namespace, book)
    if review.is_changed_pod and found is not None and book.may_assign(review.user_name, pod_of(found)):
        # Reported once, when it was first judged; denied here too, because the pod may have changed.
        return NOTHING if old is None else replace(elsewhere(pod_of(old), review, book), warnings=())
    judged = judge(review, book)
    return advice.with_warnings(judged._replace(verdict=final(judged.verdict, book)), book)


def judge_at_once(review: Review, book: Rulebook) -> Verdict:
    """Return what `mutate` and then `validate` report on *review*, for a single call without an API server."""
    return advice.with_warnings(judge(review, book), book)


def judge(review: Review, book: Rulebook) -> Judged:
    """Return the verdict on the creation, change or Binding of a pod, and the input of its warnings."""
    found, old, namespace = review.object, review.old_object, review.namespace
    if container_count(found) > MAX_CONTAINERS:
        verdict = too_many(review, book)
        if verdict is not None:
            return Judged(verdict)
    if found is not None and review.is_new_pod:
        return judge_new(pod_of(found, namespace), review.user_name, book)
    if found is not None and old is not None and review.is_changed_pod:
        before, after = pod_of(old, namespace), pod_of(found, namespace)
        judged = judge_change(before, after, review.user_name, book, partial(server_side_applied, found))
        stray = elsewhere(before, review, book) if book.may_assign(review.user_name, before) else NOTHING
        if stray is NOTHING:
            return judged
        edits = () if stray.violations else judged.verdict.edits
        return judged._replace(verdict=replace(stray, edits=edits))
    if found is not None and review.is_binding:
        return Judged(judge_binding(found, review.user_name, book))
    return NO_WARNINGS


def too_many(review: Review, book: Rulebook) -> Verdict | None:
    """CS100: no more containers are judged than a pod can have, unless the changed pod already has as many (None).

    The API server counts them only after admission, and 100 KB can hold 30,000 empty ones. Pods that do not concern
    cards are admitted with any number.
    """
    if not any(_speaks_of_cards(one, book) for one in (review.object, review.old_object)):
        return NOTHING
    count = container_count(review.object)
    if count <= container_count(review.old_object):
        return None
    return unreadable(InvalidRequestError("spec.containers", str(count), f"write no more than {MAX_CONTAINERS}"))


def _speaks_of_cards(found: PodObject | None, book: Rulebook) -> bool:
    if found is None:
        return False
    if book.reads_of(found.metadata.annotations or {}):
        return True
    return not all(map(book.resources.isdisjoint, resources_in(found)))


def elsewhere(old: ReviewedPod, review: Review, book: Rulebook) -> Verdict:
    """CS315: a device plugin may write only pods of its own node, if its token names the node."""
    node, settings = review.user_node, book.settings.admission
    if not node or node == old.node_name or not book.is_of_a_node(review.user_name):
        return NOTHING
    where = f"on node {quoted(old.node_name)}" if old.node_name else "on no node"
    if settings.plugins_on_other_nodes is OnOtherNodes.WARN:
        return Verdict(
            warnings=(AdmissionWarning("CS315", f"a device plugin of node {quoted(node)} wrote a pod that is {where}"),)
        )
    violation = Violation(
        code="CS315",
        field="userInfo",
        found=quoted(review.user_name),
        remedy=f"its token is for node {quoted(node)}, but the pod is {where}; it may write only pods of its node",
    )
    return Verdict(violations=(violation,))


def final(verdict: Verdict, book: Rulebook) -> Verdict:
    """Return *verdict* for the final state, after all webhooks, when nothing can be changed.

    Remaining changes are dropped, except that annotations from which device plugins could serve cause a denial.
    """
    keys = [key for one in verdict.edits if one.place == ANNOTATIONS for key in book.protected_of(one.values)]
    return Verdict(violations=(*verdict.violations, *first_of(keys, _forged)), warnings=verdict.warnings)


def unreadable(error: InvalidRequestError) -> Verdict:
    """Return the verdict on a review with an invalid object."""
    violation = Violation(code="CS100", field=error.field, found=error.found, remedy=error.remedy)
    return Verdict(violations=(violation,))


def judge_new(pod: ReviewedPod, user_name: str, book: Rulebook) -> Judged:
    """Return the verdict on *pod*, which *user_name* creates."""
    asks_cards = book.asks_cards(pod)
    if not asks_cards and not book.reads_of(pod.annotations):
        return Judged(NOTHING, pod)
    if rules.is_mirror(pod, user_name):
        # A mirror pod runs whatever the answer is, so only a forged assignment is removed.
        return _only_stripped(pod, book)
    defaulted, warnings = defaulting.complete(pod, book)
    asked: Asked | None = None
    scheduler_name = pod.scheduler_name
    if asks_cards:
        found, asked = rules.examine_new(defaulted, book)
        violations = (*rules.moved_twice(pod, book), *found, *rules.names_its_node(defaulted, book))
        if asked is not None and not violations:
            scheduler_name = defaulting.scheduler_of(pod, book)
            defaulted, completed = defaulting.complete_by_dialect(defaulted, asked, book)
            warnings += completed
        if violations:
            return Judged(Verdict(violations=rules.as_written(violations, pod, book), warnings=warnings))
        if book.is_ignored(pod):
            return _uncompleted(pod, defaulted, scheduler_name, book)
    return Judged(Verdict(edits=edits_between(pod, defaulted, scheduler_name), warnings=warnings), defaulted, asked)


def _only_stripped(pod: ReviewedPod, book: Rulebook) -> Judged:
    stripped, warnings = defaulting.strip_assignment(pod, book)
    return Judged(Verdict(edits=edits_between(pod, stripped), warnings=warnings))


def _uncompleted(pod: ReviewedPod, completed: ReviewedPod, scheduler_name: str, book: Rulebook) -> Judged:
    """Judge *pod*, whose label opts out of *completed*; no scheduler that could assign its share twice may get it."""
    if not book.needs_shares(pod):
        return _only_stripped(pod, book)
    violations = tuple(rules.uncompleted(pod, completed))
    if violations:
        return Judged(Verdict(violations=violations))
    stripped, warnings = defaulting.strip_assignment(pod, book)
    return Judged(Verdict(edits=edits_between(pod, stripped, scheduler_name), warnings=warnings))


def _forged(key: str) -> Violation:
    return Violation(
        code="CS301",
        field=f"annotation {key}",
        found="",
        remedy="remove it, and the webhook that adds it; only schedulers and device plugins write it",
    )


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
        was, asked = _cards(old, book), _cards(container, book)
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
    limits = defaulting.complete_container(container, book).limits
    return {key: value for key, value in limits.items() if key in book.resources}
