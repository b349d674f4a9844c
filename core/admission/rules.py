"""The rules that deny. Each is a pure function from a defaulted pod to violations with stable codes.

Dialects judge the values of their protocols (CS101 to CS106, CS201 to CS205); this module has the common rules.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from core import hami_lock, names, selection
from core.admission.defaulting import plain, scheduler_of
from core.admission.reach import beyond_share
from core.admission.rulebook import MOVED, Rulebook
from core.catalog import Asked, is_crowded
from core.errors import InvalidRequestError, quoted
from core.model import Container, ReviewedPod
from core.port.refusals import Violation
from core.settings import NeverFits
from core.warnings import AdmissionWarning

Violations = tuple[Violation, ...]

# A card's id as written by plugins: GPU-<uuid>, MIG-<uuid>, Ascend310P-0, a position.
_CARD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}", re.ASCII)
# An item of a type list: a product name, with ``*`` at its end for a prefix.
_TYPE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._/()+-]{0,127}\*?", re.ASCII)
_MIRROR: Final = "kubernetes.io/config.mirror"
# Only kubelets may create a mirror pod.
NODE_PREFIX: Final = "system:node:"


def examine(pod: ReviewedPod, rules: Rulebook) -> tuple[Violations, Asked | None]:
    """Return (violations in *pod*'s card request, the request if cardshare places it)."""
    asked = rules.catalog.request_of(pod, rules.tables, rules.settings)
    if asked is None:
        # A limit of 0 requests nothing, whatever stands among the requests.
        return (*_values(pod, rules), *_unequal(pod, rules)), None
    if isinstance(asked, Asked):
        return (*_values(pod, rules), *_containers(pod, rules)), asked
    return (*asked, *_values(pod, rules), *_containers(pod, rules)), None


def examine_new(pod: ReviewedPod, rules: Rulebook) -> tuple[Violations, Asked | None]:
    """Return the result of `examine` for a pod whose scheduler is not set yet.

    As cardshare's pod it may request more: whole GPUs are placed here only for pods that name this scheduler.
    """
    found, asked = examine(pod, rules)
    scheduler_name = scheduler_of(pod, rules)
    if asked is None or found or scheduler_name == pod.scheduler_name:
        return found, asked
    if len(rules.catalog.dialects_of(pod, rules.tables)) == 1:
        return found, asked
    found = examine(pod._replace(scheduler_name=scheduler_name), rules)[0]
    return found, None if found else asked


def never_fits(pod: ReviewedPod, asked: Asked, rules: Rulebook) -> Violation | None:
    """CS401 to CS406: no node of the cluster could take the pod, even when empty; None if uncertain."""
    if rules.stock is None or rules.settings.admission.never_fits_in(pod.namespace) is NeverFits.OFF:
        return None
    dialect = rules.catalog.dialects[asked.dialect]
    return rules.stock.never_fits(dialect, asked.request, pod.as_pod(), rules.tables, asked_resource(pod, rules))


def asked_resource(pod: ReviewedPod, rules: Rulebook) -> str:
    """Return a card resource with a request above 0 in *pod*, "" if there is none."""
    found = {
        key
        for one in (*pod.containers, *pod.init_containers)
        if rules.has_cards(one)
        for key in rules.resources.intersection((*one.limits, *one.requests))
        if plain(one.limits.get(key) or one.requests.get(key) or "0") != "0"
    }
    return min(found, default="")


def warned(found: Violation) -> AdmissionWarning:
    """Return the warning about a pod that can never fit but is admitted."""
    return AdmissionWarning(found.code, f"as the cluster is now, this pod can never be placed: {found}")


def denies_what_never_fits(pod: ReviewedPod, rules: Rulebook) -> bool:
    """Return whether a pod that can never fit is denied; otherwise its owner is warned."""
    return rules.settings.admission.never_fits_in(pod.namespace) is NeverFits.DENY


def names_its_node(pod: ReviewedPod, rules: Rulebook) -> Violations:
    """CS302: a pod with nodeName bypasses every scheduler, so it gets no cards; one that requests 0 needs none."""
    if not (pod.node_name and asked_resource(pod, rules)):
        return ()
    return (
        Violation(
            code="CS302",
            field="spec.nodeName",
            found=quoted(pod.node_name),
            remedy=f"leave it out and write nodeSelector {names.HOSTNAME_LABEL}; the scheduler assigns cards",
        ),
    )


def uncompleted(pod: ReviewedPod, completed: ReviewedPod) -> Iterator[Violation]:
    """CS319: what *pod* lacks and *completed* has, if a label opts out of defaulting."""
    wanted: list[tuple[str, str, str | None]] = []
    for one, full in zip(
        (*pod.init_containers, *pod.containers), (*completed.init_containers, *completed.containers), strict=True
    ):
        where = f'container "{one.name}"'
        more = sorted(full.limits.keys() - one.limits.keys() - one.requests.keys())
        wanted += [(f"{where}: limit {key}", full.limits[key], None) for key in more]
        wanted += [(f"{where}: env {name}", value or "", None) for name, value in full.reach.env[len(one.reach.env) :]]
    if completed.runtime_class != pod.runtime_class:
        wanted.append(("spec.runtimeClassName", completed.runtime_class or "", pod.runtime_class))
    for place, before, after in (
        ("annotation", pod.annotations, completed.annotations),
        ("label", pod.labels, completed.labels),
    ):
        wanted += [
            (f"{place} {key}", after[key], before.get(key)) for key in sorted(after) if before.get(key) != after[key]
        ]
    for field, value, found in wanted:
        remedy = f"write {quoted(value)}, or remove label {_IGNORED}, which turns defaulting off"
        yield Violation(code="CS319", field=field, found=quoted(found) if found else "nothing", remedy=remedy)


_IGNORED: Final = ": ".join(hami_lock.IGNORED)


def is_mirror(pod: ReviewedPod, user_name: str) -> bool:
    """Return whether *pod* is a mirror of a static pod, which runs whatever the answer is."""
    return _MIRROR in pod.annotations and user_name.startswith(NODE_PREFIX)


def contradictions(pod: ReviewedPod, rules: Rulebook) -> Iterator[Violation]:
    """CS206: the same card is both wanted and unwanted, or selected in two ways."""
    for use, no_use in (
        *rules.card_lists,
        (names.WISHED_INDICES, names.AVOIDED_CARDS),
        *((one.use, names.AVOIDED_CARDS) for one in rules.card_lists),
    ):
        if use not in pod.annotations or no_use not in pod.annotations:
            continue
        both = items_of(pod.annotations[use]) & items_of(pod.annotations[no_use])
        if both:
            yield _in_both(use, no_use, both)
    for use, no_use in rules.type_lists:
        wanted = pod.annotations.get(use, "")
        same = _types_of(wanted) & _types_of(pod.annotations.get(no_use, ""))
        if same:
            yield _in_both(
                use, no_use, frozenset(one for one in items_of(wanted) if not _types_of(one).isdisjoint(same))
            )


def _types_of(text: str) -> frozenset[selection.TypePattern]:
    """Return the types of a list as they are compared, whatever their case; none if it is too long."""
    try:
        return selection.decode_types(text, "")
    except InvalidRequestError:
        return frozenset()


def _in_both(use: str, no_use: str, both: frozenset[str]) -> Violation:
    return Violation(
        code="CS206",
        field=f"annotations {use} and {no_use}",
        found=quoted(", ".join(sorted(both))),
        remedy="name each in one of the two only",
    )


def moved_twice(pod: ReviewedPod, rules: Rulebook) -> Violations:
    """CS206: a key that must move, beside a different value under its target key."""
    violations: Violations = ()
    for key in rules.to_move(pod.annotations):
        own = MOVED[key]
        found, wished = pod.annotations[key], pod.annotations.get(own)
        if wished is not None and items_of(found) != items_of(wished):
            remedy = f"write {own} only"
            violations += (
                Violation(code="CS206", field=f"annotations {key} and {own}", found=quoted(found), remedy=remedy),
            )
    return violations


def as_written(found: Violations, pod: ReviewedPod, rules: Rulebook) -> Violations:
    """Name the key that the user wrote in *pod* in what was *found* under the key to which its value moves."""
    fields = {
        f"annotation {MOVED[key]}": f"annotation {key}"
        for key in rules.to_move(pod.annotations)
        if MOVED[key] not in pod.annotations
    }
    return tuple(replace(one, field=fields[one.field]) if one.field in fields else one for one in found)


def lists(pod: ReviewedPod, rules: Rulebook) -> Violations:
    """CS107, CS108: invalid items in a list of cards or types."""
    keys = pod.annotations
    found: list[Violation] = []
    for key in sorted(rules.listing_cards.intersection(keys)):
        found += _bad_items(pod, key, _CARD, "CS107", "write ids of cards such as 'GPU-03f69c50', joined by ','")
    for key in [key for pair in rules.type_lists for key in pair if key in keys]:
        found += _bad_items(pod, key, _TYPE, "CS108", "write types of cards such as 'A100,V100'")
    return tuple(found)


def unequal(container: Container, rules: Rulebook) -> Violations:
    """CS207: cards cannot be overcommitted, so a request must equal its limit."""
    limits, requests = container.limits, container.requests
    named = rules.resources.intersection(limits, requests)
    wrong = [key for key in named if limits[key] != requests[key] and plain(limits[key]) != plain(requests[key])]
    return tuple(
        [
            Violation(
                code="CS207",
                field=f'container "{container.name}": request {key}',
                found=quoted(requests[key]),
                remedy=f"write the limit's {quoted(limits[key])}, or the limit alone",
            )
            for key in sorted(wrong)
        ]
    )


def unmeasured(pod: ReviewedPod, rules: Rulebook) -> Iterator[Violation]:
    """CS213: a count of cards alone, or with a percentage, would bypass a quota on their memory."""
    for one in (*pod.containers, *pod.init_containers):
        for count, memory in rules.memories.items():
            text = one.amount(count)
            if text is not None and plain(text) != "0" and plain(one.amount(memory) or "0") == "0":
                yield Violation(
                    code="CS213",
                    field=f'container "{one.name}": limit {memory}',
                    found="nothing" if one.amount(memory) is None else quoted(one.amount(memory) or ""),
                    remedy=f"write it in MiB; namespace {pod.namespace} requires it with {count}",
                )


def _values(pod: ReviewedPod, rules: Rulebook) -> Violations:
    keys = pod.annotations
    if rules.listing.isdisjoint(keys):
        return ()
    found = lists(pod, rules)
    if rules.refusing.isdisjoint(keys):
        return found
    return (*found, *contradictions(pod, rules))


def _unequal(pod: ReviewedPod, rules: Rulebook) -> list[Violation]:
    return [
        violation
        for one in (*pod.containers, *pod.init_containers)
        if rules.has_cards(one)
        for violation in unequal(one, rules)
    ]


def _containers(pod: ReviewedPod, rules: Rulebook) -> Violations:
    if is_crowded(pod):
        return ()
    found = _unequal(pod, rules)
    if rules.settings.admission.requires_memory(pod.namespace):
        found += unmeasured(pod, rules)
    return (*found, *beyond_share(pod, rules))


def _bad_items(pod: ReviewedPod, key: str, grammar: re.Pattern[str], code: str, remedy: str) -> Violations:
    wrong = [item for item in items_of(pod.annotations[key]) if not grammar.fullmatch(item)]
    if not wrong:
        return ()
    return (Violation(code=code, field=f"annotation {key}", found=quoted(min(wrong)), remedy=remedy),)


def items_of(text: str) -> frozenset[str]:
    """Return the items of a comma-separated list; none if it is too long, which the dialect rejects."""
    try:
        return selection.decode_items(text, "")
    except InvalidRequestError:
        return frozenset()
