"""Judges a workload: the rules of pods apply to its templates, so that users see the result when they apply it.

A workload is never changed, because its pods are changed at their creation. Changes are reported as warnings. Only
requests that no change could fix are denied, so that the error appears at once and not in a ReplicaSet's events.
"""

from collections.abc import Iterator
from typing import Final

from core.admission import advice, defaulting, rules
from core.admission.rulebook import MOVED, Rulebook
from core.admission.verdict import NOTHING, Judged, Verdict
from core.errors import quoted
from core.groups import MIN_MEMBER
from core.model import MEMBER_OF, ReviewedPod
from core.names import MAX_CARD_CONTAINERS, VOLCANO_SCHEDULER_NAME
from core.port.refusals import Violation
from core.units import parse_int64
from core.warnings import AdmissionWarning
from core.wire.reviewed_pods import container_count, pod_of
from core.wire.templates import MAX_TASKS, ReviewedWorkload, Template

# Codes whose cause may disappear before pods are created, whatever the template contains.
_CHANGEABLE: Final = ("CS202", "CS211", "CS4")

# The work limit of one workload, in containers of templates that have too many; containers that are judged cost eight
# times as much. A template itself costs as much as a container.
_WORK_MAX: Final = 768
_WORK_OF_ONE: Final = 8
_TOO_MANY: Final = "CS220"
_UNREAD: Final = (
    "and the parts after it were not checked, because it has too many containers; its pods are checked when created"
)


def judge_workload(found: ReviewedWorkload, namespace: str, book: Rulebook) -> Verdict:
    """Return the verdict on *found*; an unchanged, deleted or controller-made workload is admitted."""
    if found.deleting or found.made:
        return NOTHING
    before = {one.field: one for one in found.before}
    work = 0
    warnings: list[AdmissionWarning] = []
    violations: list[Violation] = []
    asking: list[Template] = []
    for template in found.templates:
        old = before.get(template.field)
        if old is not None and old.pod == template.pod:
            continue
        work += _work(template) + (_work(old) if old is not None else 0)
        if work > _WORK_MAX:
            warnings.append(AdmissionWarning(_TOO_MANY, f"{template.field} {_UNREAD}"))
            break
        if book.asks_cards(pod_of(template.pod, namespace)):
            asking.append(template)
        known = frozenset(_violations(old, namespace, book)[1]) if old is not None else frozenset[Violation]()
        told, wrong = _violations(template, namespace, book)
        warnings += told
        for one in wrong:
            if one in known or one.code.startswith(_CHANGEABLE):
                warnings.append(AdmissionWarning(one.code, f"{one}; pods of this template will be denied"))
            else:
                violations.append(one)
    warnings += (
        *_beside(found, asking, book),
        *_too_few(found, asking),
        *_too_late(found, asking),
        *_apart(found, asking, book),
        *_stuck(found, asking),
    )
    if not warnings and not violations:
        return NOTHING
    return Verdict(violations=tuple(violations), warnings=tuple(warnings))


_TOLD: Final = 4


def _beside(found: ReviewedWorkload, asking: list[Template], book: Rulebook) -> Iterator[AdmissionWarning]:
    """CS120: card preferences among the annotations of a workload instead of its template."""
    keys = sorted(found.annotations.keys() & {*book.preferences, *MOVED}) if asking else []
    for key in keys[:_TOLD]:
        lacking = [one.field for one in asking if key not in (one.pod.metadata.annotations or {})]
        if lacking:
            yield AdmissionWarning(
                "CS120",
                f"metadata: annotation {key}: write it in {lacking[0]}.metadata.annotations; pods do not get the "
                "annotations of their workload",
            )


def _too_few(found: ReviewedWorkload, asking: list[Template]) -> Iterator[AdmissionWarning]:
    """CS221: a Volcano Job that requires more pods together than it creates."""
    made = sum([one.replicas for one in found.templates])
    if asking and found.least is not None and found.least > made:
        yield _more_than_made("spec.minAvailable", found.least, made)
    for one in asking:
        if one.least is not None and one.least > one.replicas:
            yield _more_than_made(f"{one.field.removesuffix('.template')}.minAvailable", one.least, one.replicas)


def _too_late(found: ReviewedWorkload, asking: list[Template]) -> Iterator[AdmissionWarning]:
    """CS223: a Volcano Job that requires pods together, but creates some only after others are ready (groups 2.7)."""
    later = [one.field.removesuffix(".template") for one in found.templates if one.later]
    if not asking or not later or len(found.templates) >= MAX_TASKS:
        return  # perhaps not all of its tasks were read
    at_first = sum(one.replicas for one in found.templates if not one.later)
    least = _together(found)
    if least > at_first > 0:
        told = "none" if found.least is None else f"'{least}'"
        yield AdmissionWarning(
            "CS223",
            f"spec.minAvailable: found {told}; write {at_first} or less: {least} pods start together, but those of "
            f"{', '.join(later[:_TOLD])} are created only after the tasks in dependsOn are ready, so no pod starts",
        )


def _apart(found: ReviewedWorkload, asking: list[Template], book: Rulebook) -> Iterator[AdmissionWarning]:
    """CS224: tasks without cards of a Volcano Job whose pods start together, but with another scheduler (groups 6)."""
    if not asking or len(found.templates) < 2 or _together(found) < 2:
        return
    # Volcano's webhook has the same default.
    name = found.scheduler or VOLCANO_SCHEDULER_NAME
    first, owned = _naming(asking[0], name), book.settings.scheduler_names
    wanted = defaulting.scheduler_of(first, book) if book.needs_shares(first) else first.scheduler_name
    with_cards = {one.field for one in asking}
    for one in found.templates if wanted in owned else ():
        written = _naming(one, name).scheduler_name
        if one.field not in with_cards and written not in owned:
            yield AdmissionWarning(
                "CS224",
                f"{one.field}.spec.schedulerName: found {quoted(written)}; write {quoted(wanted)}: another scheduler "
                "starts these pods alone, even if the pods with cards do not fit",
            )


def _naming(one: Template, scheduler: str) -> ReviewedPod:
    pod = pod_of(one.pod)
    return pod if pod.scheduler_name else pod._replace(scheduler_name=scheduler)


def _together(found: ReviewedWorkload) -> int:
    """Return how many pods of a Volcano Job start together; Volcano's webhook has the same default."""
    if found.least is not None:
        return found.least
    return sum(one.replicas if one.least is None else one.least for one in found.templates)


def _more_than_made(field: str, least: int, made: int) -> AdmissionWarning:
    remedy = f"write no more than {made}, or create more pods"
    return AdmissionWarning("CS221", f"{field}: found '{least}'; {remedy}: with {made} pods, none is placed")


def _stuck(found: ReviewedWorkload, asking: list[Template]) -> Iterator[AdmissionWarning]:
    """CS222: a Deployment whose update never starts, because its group needs more pods than are created at first.

    Volcano's PodGroup controller creates a group for each ReplicaSet, and an update is another ReplicaSet (groups 3).
    """
    rollout = found.rollout
    if rollout is None:
        return
    for one in asking:
        pod = pod_of(one.pod)
        written = found.annotations.get(MIN_MEMBER) or pod.annotations.get(MIN_MEMBER) or ""
        least = parse_int64(written) or 0
        at_first = rollout.surge + rollout.unavailable
        if pod.scheduler_name != VOLCANO_SCHEDULER_NAME or MEMBER_OF in pod.annotations or at_first >= least:
            continue
        yield AdmissionWarning(
            "CS222",
            f"spec.strategy.rollingUpdate.maxSurge: found {quoted(rollout.max_surge)}; write "
            f"{least - rollout.unavailable} or more, or strategy type Recreate: annotation {MIN_MEMBER} requires "
            f"{least} pods together, but an update first creates {at_first} and waits for these, so it never ends",
        )


def _work(template: Template) -> int:
    count = container_count(template.pod)
    return count if count > MAX_CARD_CONTAINERS else (1 + count) * _WORK_OF_ONE


def _violations(template: Template, namespace: str, book: Rulebook) -> tuple[list[AdmissionWarning], list[Violation]]:
    """Return (warnings, violations) of *template*, each with its location."""
    # Whatever namespace a template names, its pods are created in the workload's.
    pod = pod_of(template.pod, namespace)._replace(namespace=namespace)
    verdict = advice.with_warnings(_judged(pod, book), book)
    return [AdmissionWarning(one.code, f"{template.field}: {one.text}") for one in verdict.warnings], [
        Violation(code=one.code, field=f"{template.field}: {one.field}", found=one.found, remedy=one.remedy)
        for one in verdict.violations
    ]


def _judged(pod: ReviewedPod, book: Rulebook) -> Judged:
    if not book.is_concerned_with(pod):
        return Judged(NOTHING, pod)
    defaulted, warnings = defaulting.complete(pod, book)
    if not book.asks_cards(pod):
        return Judged(Verdict(warnings=warnings), defaulted)
    found, asked = rules.examine_new(defaulted, book)
    violations = (*rules.moved_twice(pod, book), *found, *rules.names_its_node(defaulted, book))
    if asked is not None and not violations and book.is_ignored(pod) and book.needs_shares(pod):
        violations = tuple(rules.uncompleted(pod, defaulting.complete_by_dialect(defaulted, asked, book)[0]))
    return Judged(Verdict(violations=rules.as_written(violations, pod, book), warnings=warnings), defaulted, asked)
