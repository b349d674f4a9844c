"""Judges a changed pod: only differences from the old object count."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from core import names
from core.admission import defaulting, reach, rules
from core.admission.rulebook import MOVED, Rulebook
from core.admission.verdict import ANNOTATIONS, MAX_TOLD, NO_WARNINGS, NOTHING, Judged, Verdict, edits_between, first_of
from core.catalog import Asked, is_crowded
from core.errors import quoted
from core.model import Container, ReviewedPod
from core.port.refusals import Violation
from core.settings import SERVICE_ACCOUNT, plugin_remedy
from core.warnings import AdmissionWarning, no_effect
from core.watched import VOID
from core.wire.patches import Edit
from core.wire.reviewed_pods import applied_annotations

_HIDDEN: Final = frozenset((name, VOID) for name in reach.NO_DEVICE)
_DELETING: Final = "the pod is being deleted"
# A new pod with a choice of cards gets cardshare's scheduler; no scheduler can be changed later.
_UNHEARD: Final = "the default scheduler places this pod and reads no choice of cards"
_ANEW: Final = "delete the pod and create it again with this annotation"
_CHOSEN: Final = "leave it unchanged; the pod has its cards already: delete it and create it again to choose others"


def judge_change(
    old: ReviewedPod, new: ReviewedPod, user_name: str, book: Rulebook, applied: Callable[[], Set[str]]
) -> Judged:
    """Return the verdict on the change of *old* to *new* by *user_name*; *applied*: see `protect`.

    Accounts that write assignments are never denied; `rotation` completes a plugin's write. A pod that is being deleted
    keeps its cards until it is gone, and is judged like a bound pod. The removal of a finalizer is never denied; other
    changes in that write are reverted.
    """
    if _unchanged(old, new):
        return NO_WARNINGS
    if book.may_assign(user_name, old):
        return Judged(rotation(old, new, book)) if book.is_plugin(user_name) else NO_WARNINGS
    if not (book.is_concerned_with(old) or book.is_concerned_with(new)):
        return Judged(NOTHING, new, None, old)
    guarded = protect(old, new, user_name, book, applied)
    pod, warnings, violations, asked = guarded.pod, guarded.warnings, guarded.violations, None
    if book.asks_cards(old) or book.asks_cards(new):
        pod = change_back(old, pod, book)
        preferences = wish(old, pod, book)
        pod, warnings, asked = preferences.pod, warnings + preferences.warnings, preferences.asked
        violations += preferences.violations
    if violations and not _lets_go(old, new):
        return Judged(Verdict(violations=violations, warnings=warnings))
    warnings += tuple(
        [AdmissionWarning(one.code, f"{one.field} was left unchanged; {_DELETING}") for one in violations]
    )
    return Judged(Verdict(edits=edits_between(new, pod), warnings=warnings), pod, asked, old)


def rotation(old: ReviewedPod, new: ReviewedPod, book: Rulebook) -> Verdict:
    """Return what a device plugin's write to a pod of several containers must add so that it serves the next one."""
    if names.SEGMENT_QUEUE not in old.annotations:
        return NOTHING
    for one in book.catalog.specs:
        changes = one.rotate(old.annotations, new.annotations) if one.rotate is not None else {}
        if changes:
            return Verdict(edits=(Edit(ANNOTATIONS, changes),))
    return NOTHING


@dataclass(frozen=True, slots=True)
class ProtectedUpdate:
    """The pod as it may be stored, with warnings on reverted changes and violations for forbidden ones.

    asked: its card request, None if there is none or if it is unchanged.
    """

    pod: ReviewedPod
    warnings: tuple[AdmissionWarning, ...] = ()
    violations: tuple[Violation, ...] = ()
    asked: Asked | None = None


def protect(
    old: ReviewedPod, new: ReviewedPod, user_name: str, book: Rulebook, applied: Callable[[], Set[str]]
) -> ProtectedUpdate:
    """CS301: annotations that only schedulers and device plugins write keep their values; *user_name* is warned.

    A manifest that had such a key when it was first applied has it at every apply; then the key is only dropped.
    *applied* returns the annotations that a server-side apply owns; the manifest of the apply before is not known then.
    """
    changed = book.protected_of(_changed(old, new))
    if not changed:
        return ProtectedUpdate(new)
    again = (applied() & new.annotations.keys()) | _reapplied(old, new, changed)
    keys = [key for key in changed if key != names.GPU_INDEX or not _is_wish(old, new, book, again)]
    if not keys:
        return ProtectedUpdate(new)
    warnings = tuple(
        AdmissionWarning("CS301", f"annotation {key} was left unchanged: only schedulers and plugins write it")
        for key in [key for key in keys if key in again][:MAX_TOLD]
    )
    violations = first_of([key for key in keys if key not in again], lambda key: _forged(key, new, user_name))
    return ProtectedUpdate(
        new._replace(annotations=defaulting.restored(new.annotations, old.annotations, keys)), warnings, violations
    )


def wish(old: ReviewedPod, new: ReviewedPod, book: Rulebook) -> ProtectedUpdate:
    """Judge the user's card preferences: free while the pod waits, frozen once it is settled."""
    if _is_settled(old, new):
        return _frozen(old, new, book)
    moved = _moved(old, new, book)
    defaulted, warnings = defaulting.normalise_mode(moved.pod, book)
    violations, asked = moved.violations, None
    selectors = _selectors(old, defaulted, book)
    if selectors or defaulted.containers != old.containers:
        before = frozenset(rules.examine(old, book)[0])
        found, asked = rules.examine(defaulted, book)
        violations += tuple(one for one in found if one not in before)
    if asked is not None and new.scheduler_name in defaulting.DEFAULT_SCHEDULERS:
        warnings += tuple(
            [
                no_effect(f"annotation {key}", defaulted.annotations[key], _UNHEARD, _ANEW)
                for key in selectors
                if key in defaulted.annotations
            ]
        )
    return ProtectedUpdate(defaulted, moved.warnings + warnings, violations, asked)


def change_back(old: ReviewedPod, new: ReviewedPod, book: Rulebook) -> ReviewedPod:
    """Restore stored defaults of the spec that the writer's manifest lacks.

    Nothing else changes; the API server decides which fields of a pod may change.
    """
    if new.scheduler_name in defaulting.DEFAULT_SCHEDULERS and old.scheduler_name in book.settings.scheduler_names:
        new = new._replace(scheduler_name=old.scheduler_name)
    if not new.runtime_class and old.runtime_class in book.runtime_classes:
        new = new._replace(runtime_class=old.runtime_class)
    new = new._replace(
        containers=_variables_back(old.containers, new.containers, book),
        init_containers=_variables_back(old.init_containers, new.init_containers, book),
    )
    return _resources_back(old, new, book)


def _variables_back(old: tuple[Container, ...], new: tuple[Container, ...], book: Rulebook) -> tuple[Container, ...]:
    if old == new or len(new) > names.MAX_CARD_CONTAINERS:
        return new
    stored = {one.name: one for one in old}
    return tuple([_with_hidden(stored.get(one.name), one, book) for one in new])


def _with_hidden(old: Container | None, new: Container, book: Rulebook) -> Container:
    if old is None or old.reach.env == new.reach.env or book.has_cards(old):
        return new
    hidden = [one for one in old.reach.env if one in _HIDDEN and one not in new.reach.env]
    return defaulting.with_variables(new, tuple(hidden))


def _resources_back(old: ReviewedPod, new: ReviewedPod, book: Rulebook) -> ReviewedPod:
    """Restore the stored amounts of each container whose written ones are completed to the same."""
    stored = {one.name: one for one in (*old.init_containers, *old.containers)}
    found = (*new.init_containers, *new.containers)
    if is_crowded(new) or not any(_has_other_amounts(stored.get(one.name), one, book) for one in found):
        return new
    before = {one.name: one for one in _completed(old, book)}
    inits = len(new.init_containers)
    written = [_as_written(stored.get(one.name), one, book) for one in found]
    as_written = new._replace(init_containers=tuple(written[:inits]), containers=tuple(written[inits:]))
    restored = [
        one._replace(limits=stored[one.name].limits, requests=stored[one.name].requests)
        if _has_other_amounts(stored.get(one.name), one, book) and _are_alike(before[one.name], full)
        else one
        for one, full in zip(found, _completed(as_written, book), strict=True)
    ]
    return new._replace(init_containers=tuple(restored[:inits]), containers=tuple(restored[inits:]))


def _has_other_amounts(old: Container | None, new: Container, book: Rulebook) -> bool:
    return old is not None and book.has_cards(old) and not _are_alike(old, new)


def _are_alike(one: Container, other: Container) -> bool:
    return one.limits == other.limits and one.requests == other.requests


def _as_written(old: Container | None, new: Container, book: Rulebook) -> Container:
    """Return *new* with the amount in its manifest as limit and request, if the manifest has only one of them.

    An apply sends that one, beside the other as admission completed it.
    """
    if old is None:
        return new
    limits, requests = dict(new.limits), dict(new.requests)
    for key in book.resources.intersection(limits, requests):
        if limits[key] == old.limits.get(key):
            limits[key] = requests[key]
        elif requests[key] == old.requests.get(key):
            requests[key] = limits[key]
    return new._replace(limits=limits, requests=requests)


def _completed(pod: ReviewedPod, book: Rulebook) -> tuple[Container, ...]:
    """Return the containers of *pod* with the amounts that a new pod would get, init containers first."""
    pod, _ = defaulting.complete_resources(pod, book)
    asked = book.catalog.request_of(pod, book.tables, book.settings)
    if isinstance(asked, Asked):
        pod, _ = defaulting.complete_by_dialect(pod, asked, book)
    return (*pod.init_containers, *pod.containers)


def _frozen(old: ReviewedPod, new: ReviewedPod, book: Rulebook) -> ProtectedUpdate:
    """CS305: the cards of a bound pod are fixed; an equal preference under the guides' key is dropped.

    The returned pod has the old preferences in any case.
    """
    annotations: Mapping[str, str] = new.annotations
    violations: list[Violation] = []
    for key, own in MOVED.items():
        if new.annotations.get(key) == old.annotations.get(key):
            continue
        annotations = defaulting.restored(annotations, old.annotations, (key,))
        wished = rules.items_of(old.annotations.get(own, ""))
        if key in new.annotations and rules.items_of(new.annotations[key]) != wished:
            violations.append(_too_late(key, new))
    defaulted, _ = defaulting.normalise_mode(new._replace(annotations=annotations), book)
    for key in _selectors(old, defaulted, book):
        violations.append(_too_late(key, new))
        defaulted = defaulted._replace(annotations=defaulting.restored(defaulted.annotations, old.annotations, (key,)))
    return ProtectedUpdate(defaulted, violations=tuple(violations))


def _moved(old: ReviewedPod, new: ReviewedPod, book: Rulebook) -> ProtectedUpdate:
    """CS311: the latest value wins: a preference under the guides' key replaces the one of an earlier apply."""
    annotations = dict(new.annotations)
    warnings: list[AdmissionWarning] = []
    violations: list[Violation] = []
    for key, own in MOVED.items():
        text = annotations.get(key)
        if text is None or text == old.annotations.get(key):
            continue
        if own in annotations and annotations[own] != old.annotations.get(own):
            violations += [one for one in rules.moved_twice(new, book) if key in one.field]
        del annotations[key]
        if old.annotations.get(own) != text:
            warnings.append(AdmissionWarning("CS311", f"annotation {key} was moved to {own}; write that one"))
        annotations[own] = text
    if annotations == new.annotations:
        return ProtectedUpdate(new)
    return ProtectedUpdate(new._replace(annotations=annotations), tuple(warnings), tuple(violations))


def _is_wish(old: ReviewedPod, new: ReviewedPod, book: Rulebook, again: Set[str]) -> bool:
    """Return whether a change of ``volcano.sh/gpu-index`` is a user's preference; *again*: see `protect`.

    Once the pod is settled, the key belongs to machines: `wish` then accepts only the preference that it was bound
    with.
    """
    if not book.asks_cards(old) or (names.GPU_INDEX in again and book.is_copied(again)):
        return False
    if _is_settled(old, new):
        return names.GPU_INDEX in new.annotations
    return names.GPU_INDEX not in new.annotations or names.GPU_INDEX in book.to_move(new.annotations)


def _is_settled(old: ReviewedPod, new: ReviewedPod) -> bool:
    """Return whether the pod's cards are final: it is bound or being deleted."""
    return bool(old.node_name) or new.deleting


def _lets_go(old: ReviewedPod, new: ReviewedPod) -> bool:
    """Return whether the write removes a finalizer from a pod that is being deleted, which must not be blocked."""
    return new.deleting and not set(old.finalizers) <= set(new.finalizers)


def _reapplied(old: ReviewedPod, new: ReviewedPod, keys: Sequence[str]) -> frozenset[str]:
    """Return the *keys* that the last applied manifest already had, with the value that this one has."""
    before, after = applied_annotations(old.annotations), applied_annotations(new.annotations)
    return frozenset(
        key for key in keys if key in new.annotations and before.get(key) == after.get(key) == new.annotations[key]
    )


def _unchanged(old: ReviewedPod, new: ReviewedPod) -> bool:
    return (
        old.annotations == new.annotations
        and old.containers == new.containers
        and old.init_containers == new.init_containers
        and old.scheduler_name == new.scheduler_name
        and old.runtime_class == new.runtime_class
    )


def _changed(old: ReviewedPod, new: ReviewedPod) -> list[str]:
    before, after = old.annotations, new.annotations
    return [key for key in after if before.get(key) != after[key]] + [key for key in before if key not in after]


def _selectors(old: ReviewedPod, new: ReviewedPod, book: Rulebook) -> tuple[str, ...]:
    return tuple(sorted(book.preferences.intersection(_changed(old, new))))


def _forged(key: str, new: ReviewedPod, user_name: str) -> Violation:
    remedy = "leave it unchanged; only schedulers and device plugins write it"
    if user_name.startswith(SERVICE_ACCOUNT):
        remedy += f"; {plugin_remedy(user_name)}"
    return Violation(
        code="CS301",
        field=f"annotation {key}",
        found=quoted(new.annotations[key]) if key in new.annotations else "",
        remedy=remedy,
    )


def _too_late(key: str, new: ReviewedPod) -> Violation:
    return Violation(
        code="CS305",
        field=f"annotation {key}",
        found=quoted(new.annotations[key]) if key in new.annotations else "",
        remedy=f"leave it unchanged; {_DELETING}" if new.deleting else _CHOSEN,
    )
