"""Defaulting and correction. Each step is a pure function from a pod to the changed pod and warnings."""

from collections.abc import Collection, Mapping
from operator import is_
from typing import Final

from core import names
from core.admission import reach
from core.admission.rulebook import MOVED, Rulebook
from core.admission.verdict import MAX_TOLD
from core.catalog import Asked, is_crowded
from core.errors import InvalidRequestError, quoted
from core.model import Container, ReviewedPod
from core.units import MAX_INT32, is_in_bytes, listed, parse_count
from core.warnings import AdmissionWarning
from core.watched import VOID

Warnings = tuple[AdmissionWarning, ...]
_NONE: Final[Warnings] = ()
# The schedulerName of pods that name no scheduler.
DEFAULT_SCHEDULERS: Final = frozenset({"", names.DEFAULT_SCHEDULER_NAME})


def complete(pod: ReviewedPod, rules: Rulebook) -> tuple[ReviewedPod, Warnings]:
    """Run every step that does not depend on another rule's result; idempotent."""
    told: Warnings = ()
    for step in (move_preferences, strip_assignment, normalise_mode, default_mode, complete_resources):
        pod, warnings = step(pod, rules)
        told += warnings
    return pod, told


def move_preferences(pod: ReviewedPod, rules: Rulebook) -> tuple[ReviewedPod, Warnings]:
    """CS311: a preference that the guides put under a machine's key moves to a user's key.

    An existing preference stays; `rules.contradictions` checks whether both agree.
    """
    found = rules.to_move(pod.annotations)
    if not found or not rules.asks_cards(pod):
        return pod, _NONE
    annotations = dict(pod.annotations)
    warnings = []
    for key in found:
        text = annotations.pop(key)
        if MOVED[key] not in annotations:
            annotations[MOVED[key]] = text
        warnings.append(AdmissionWarning("CS311", f"annotation {key} was moved to {MOVED[key]}; write that one"))
    return pod._replace(annotations=annotations), tuple(warnings)


def strip_assignment(pod: ReviewedPod, rules: Rulebook) -> tuple[ReviewedPod, Warnings]:
    """CS301: a new pod has no cards yet, so an assignment on it is removed; device plugins would serve from it."""
    keys = [key for key in rules.protected_of(pod.annotations) if not _is_repeated(pod, key, rules)]
    if not keys:
        return pod, _NONE
    annotations = without(pod.annotations, keys)
    named = listed([quoted(key)[1:-1] for key in keys], MAX_TOLD)
    warning = AdmissionWarning("CS301", f"removed, because only schedulers and device plugins write it: {named}")
    return pod._replace(annotations=annotations), (warning,)


def _is_repeated(pod: ReviewedPod, key: str, rules: Rulebook) -> bool:
    """Return whether annotation *key* repeats what a container requests; HAMi's scheduler does not write it again."""
    resource = rules.repeats.get(key)
    return resource is not None and any(one.amount(resource) == pod.annotations[key] for one in pod.containers)


def normalise_mode(pod: ReviewedPod, rules: Rulebook) -> tuple[ReviewedPod, Warnings]:
    """CS104: a mode is trimmed and lower-cased; an empty one is removed."""
    told: Warnings = ()
    for key, words in rules.modes.values():
        text = pod.annotations.get(key)
        if text is None or text in words:
            continue
        word = text.strip().lower()
        if word == text and word:
            continue
        annotations = {other: value for other, value in pod.annotations.items() if other != key}
        if word:
            annotations[key] = word
            told += (AdmissionWarning("CS104", f"annotation {key}: {quoted(text)} was read as {quoted(word)}"),)
        pod = pod._replace(annotations=annotations)
    return pod, told


def default_mode(pod: ReviewedPod, rules: Rulebook) -> tuple[ReviewedPod, Warnings]:
    """CS111: set the namespace's mode on pods without one whose cards support modes."""
    mode = rules.settings.admission.default_mode.get(pod.namespace)
    if mode is None:
        return pod, _NONE
    told: Warnings = ()
    for name, (key, words) in rules.modes.items():
        if mode in words and key not in pod.annotations and _asks(pod, rules.resources_by_dialect[name]):
            pod = pod._replace(annotations={**pod.annotations, key: mode})
            told += (
                AdmissionWarning(
                    "CS111", f"annotation {key}: {mode} was added, the default of namespace {pod.namespace}"
                ),
            )
    return pod, told


def complete_resources(pod: ReviewedPod, rules: Rulebook) -> tuple[ReviewedPod, Warnings]:
    """CS112: default to one card, a pair, or HAMi's number if only a share is given; equalize limits and requests."""
    if is_crowded(pod) or not rules.asks_cards(pod):
        return pod, _NONE
    containers = tuple([complete_container(one, rules) for one in pod.containers])
    init_containers = tuple([complete_container(one, rules) for one in pod.init_containers])
    if all(map(is_, containers, pod.containers)) and all(map(is_, init_containers, pod.init_containers)):
        return pod, _NONE
    return pod._replace(containers=containers, init_containers=init_containers), _NONE


def complete_container(container: Container, rules: Rulebook) -> Container:
    """Return one container as `complete_resources` completes it; the same object if nothing changes."""
    if not rules.has_cards(container):
        return container
    named = rules.resources.intersection((*container.limits, *container.requests))
    limits, requests = dict(container.limits), dict(container.requests)
    for key in sorted(named):
        limit, request = limits.get(key), requests.get(key)
        as_written = str if key in rules.quantities else plain
        limits[key] = as_written(limit if limit is not None else request or "")
        requests[key] = limits[key] if request is None else as_written(request)
        count = rules.counts.get(key, key)
        fill = rules.fills.get(count, 1)
        if count not in named and fill:
            limits[count] = requests[count] = str(fill)
    for count in rules.paired.intersection(limits):
        if limits[count] == requests[count] == "1":
            limits[count] = requests[count] = "2"
    if limits == container.limits and requests == container.requests:
        return container
    return container._replace(limits=limits, requests=requests)


def hide_devices(pod: ReviewedPod, rules: Rulebook) -> ReviewedPod:
    """CS313: if configured, make container runtimes hide all devices from containers without card requests.

    An image may set the variables itself, which is invisible here; variables of the pod override them.
    """
    if not rules.settings.admission.hide_devices or not rules.asks_cards(pod):
        return pod
    return pod._replace(
        containers=tuple([_without_devices(one, rules) for one in pod.containers]),
        init_containers=tuple([_without_devices(one, rules) for one in pod.init_containers]),
    )


def _without_devices(container: Container, rules: Rulebook) -> Container:
    named = {name for name, _ in container.reach.env}
    more = tuple([(name, VOID) for name in reach.NO_DEVICE if name not in named])
    return container if rules.has_cards(container) else with_variables(container, more)


def with_variables(container: Container, more: tuple[tuple[str, str], ...]) -> Container:
    """Return *container* with additional variables; the same object if there are none."""
    if not more:
        return container
    return container._replace(reach=container.reach._replace(env=(*container.reach.env, *more)))


def scheduler_of(pod: ReviewedPod, rules: Rulebook) -> str:
    """Return the scheduler for a pod with shares: cardshare, if it names none."""
    return rules.own_scheduler() if pod.scheduler_name in DEFAULT_SCHEDULERS else pod.scheduler_name


def complete_by_dialect(pod: ReviewedPod, asked: Asked, rules: Rulebook) -> tuple[ReviewedPod, Warnings]:
    """Return *pod*, which requests *asked*, with the additions of its dialect, whatever its scheduler."""
    return rules.catalog.dialects[asked.dialect].completed(hide_devices(pod, rules), asked.request, rules.tables)


def plain(text: str) -> str:
    """Return a quantity of cards as a plain whole number; bytes and other quantities stay as written.

    Otherwise "1Gi" of a memory counted in MiB would be reported to the user as a number that they never wrote.
    """
    if (text.isascii() and text.isdigit() and (text[0] != "0" or text == "0")) or is_in_bytes(text):
        return text
    try:
        return str(parse_count(text, "", MAX_INT32))
    except InvalidRequestError:
        return text


def restored(found: Mapping[str, str], previous: Mapping[str, str], keys: Collection[str]) -> Mapping[str, str]:
    """Return *found* with *keys* as in *previous*."""
    return {**without(found, keys), **{key: previous[key] for key in keys if key in previous}}


def without(found: Mapping[str, str], keys: Collection[str]) -> dict[str, str]:
    """Return *found* without *keys*."""
    left = dict(found)
    for key in keys:
        left.pop(key, None)
    return left


def _asks(pod: ReviewedPod, resources: frozenset[str]) -> bool:
    return any(not (resources.isdisjoint(one.limits) and resources.isdisjoint(one.requests)) for one in pod.containers)
