"""The pods of MindCluster: labels and AI cores to templates, what the plugin is told, and which pods it could confuse.

What the plugin cannot serve is refused. Where it has reported the real devices they count, not what was asked of it: it
swaps pods of one template (M-12). It knows a pod by its AI cores alone and serves the one with the smallest time.

Source: protocol reference, ascend 1.7, 1.10, 2.3 steps 5 to 11, 3.1, 3.3, 3.4, 3.8, 4.11, 5.1, 6.2
(presetVirtualDevice), D-10.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from core.dialects.mindcluster import keys
from core.dialects.mindcluster.chips import NO_VGROUP, UNKNOWN, WHOLE, Assignment, Chip, Share
from core.dialects.mindcluster.table import MindClusterTable
from core.dialects.mindcluster.templates import (
    BY_DEVICE_TYPE,
    CHIP_CPUS,
    DECISIONS,
    DVPP_VALUES,
    HIGH,
    LOW,
    NULL,
    SLICE_CORES,
    TEMPLATES,
    Choice,
    asks_whole_chips,
    row,
)
from core.errors import quoted
from core.model import AnyPod, Container, Pod, ReviewedPod
from core.names import MAX_POD_ANNOTATION_BYTES
from core.port.cards import Held
from core.port.handoff import InFlight, Progress, Stamp
from core.port.refusals import Violation
from core.settings import Tables
from core.sharing.account import later
from core.sharing.request import Figures, cards_at_start, containers_of
from core.units import counted
from core.warnings import AdmissionWarning, no_effect

_MAX_CORES: Final = 1024 * max(CHIP_CPUS)


class Request(NamedTuple):
    """AI cores, and which templates they may be; choice None = whole chips."""

    cores: int
    choice: Choice | None


def request(pod: AnyPod, tables: Tables) -> Request | tuple[Violation, ...] | None:
    """What *pod* asks; None if no AI core; violations if it may not be asked so."""
    wrong: list[Violation] = []
    asking = [(role, one, cores) for role, one in containers_of(pod) if (cores := cores_of(one, wrong, role))]
    if wrong or not asking:
        return tuple(wrong) or None
    wrong += cards_at_start(pod, keys.CORES, lambda one: cores_of(one, []))
    asked = [(one, cores) for role, one, cores in asking if role == "container"]
    if len(asked) > 1:
        field = "containers " + ", ".join([f'"{one.name}"' for one, _ in asked])
        remedy = f"only one container of a pod may ask for {keys.CORES}; use one pod for each"
        wrong.append(Violation(code="CS204", field=field, found="", remedy=remedy))
    wrong += _of_pod(pod, tables)
    found = _decided(*asked[0], pod) if asked else None
    if isinstance(found, Violation):
        wrong.append(found)
    return found if isinstance(found, Request) and not wrong else tuple(wrong)


def cores_of(container: Container, wrong: list[Violation], role: str = "container") -> int:
    """The AI cores that *container* asks for; 0 if none, or if the figure is none that a node could have."""
    return Figures(container, role, wrong).read(keys.CORES, "CS101", maximum=_MAX_CORES) or 0


def _decided(container: Container, cores: int, pod: AnyPod) -> Request | Violation:
    if asks_whole_chips(cores):
        return Request(cores, None)
    if cores not in SLICE_CORES:
        larger = [one for one in SLICE_CORES if one > cores]
        per_chip = min(CHIP_CPUS)
        chips = f"whole chips, such as {keys.CORES}: {-(-cores // per_chip) * per_chip}"
        write = row(larger[0], NULL, high=False) if larger else chips
        remedy = f"write {write}; a slice has 1, 2 or 4 AI cores, whole chips have multiples of 8 (or of 10)"
        field = f'container "{container.name}": {keys.CORES}'
        return Violation(code="CS103", field=field, found=quoted(str(cores)), remedy=remedy)
    dvpp = pod.labels.get(keys.DVPP, NULL)
    high = pod.labels.get(keys.LEVEL) == HIGH
    choice = DECISIONS.get((cores, dvpp, high))
    if choice is not None:
        return Request(cores, choice)
    usual = row(cores, NULL, high=high)
    if dvpp not in DVPP_VALUES:
        code, remedy = "CS109", f"write yes, no or null, or leave it out, which gives {usual}"
    else:
        only = f"with {counted(cores, 'AI cores')} {keys.DVPP} is null only: {usual}"
        code, remedy = "CS203", f"{only}; or ask for {row(4, dvpp, high=high)}"
    return Violation(code=code, field=f"label {keys.DVPP}", found=quoted(dvpp), remedy=remedy)


def _of_pod(pod: AnyPod, tables: Tables) -> Iterator[Violation]:
    controller = pod.labels.get(keys.CONTROLLER, "")
    if controller != keys.CONTROLLER_310P:
        why = "and the device plugin serves no pod without this label's placement"
        remedy = f"write {keys.CONTROLLER_310P}; {keys.CORES} is placed on 310P chips only, {why}"
        yield Violation(code="CS210", field=f"label {keys.CONTROLLER}", found=quoted(controller), remedy=remedy)
    if tables.of(MindClusterTable).preset_virtual_device:
        remedy = (
            "this cluster cuts its NPUs in advance; ask for those devices, "
            "or set presetVirtualDevice to false in volcano-scheduler.conf and in the device plugin"
        )
        yield Violation(code="CS211", field=keys.CORES, found="presetVirtualDevice true", remedy=remedy)


def completed(pod: ReviewedPod, request: Request, tables: Tables) -> tuple[ReviewedPod, tuple[AdmissionWarning, ...]]:
    """CS118: with what a slice is without the labels that choose it, written out."""
    defaults = {keys.LEVEL: LOW, keys.DVPP: NULL}
    if request.choice is None or defaults.keys() <= pod.labels.keys():
        return pod, ()
    return pod._replace(labels={**defaults, **pod.labels}), ()


def warnings(pod: AnyPod, request: Request, tables: Tables) -> Iterator[AdmissionWarning]:
    """CS116: labels where there is no template to choose, or the choice is the same."""
    cores, choice = request
    level, dvpp = pod.labels.get(keys.LEVEL, LOW), pod.labels.get(keys.DVPP, NULL)
    if choice is None:
        for key, found, usual in ((keys.LEVEL, level, LOW), (keys.DVPP, dvpp, NULL)):
            if found != usual:
                yield no_effect(f"label {key}", found, f"{cores} AI cores are whole chips", "leave it out")
    elif level not in (LOW, HIGH):
        yield no_effect(f"label {keys.LEVEL}", level, f"it is read as {LOW}", f"write {LOW} or {HIGH}")
    elif level == HIGH and choice == DECISIONS[cores, dvpp, False]:
        why = f"{keys.CORES}: {cores} with {keys.DVPP} {dvpp} is {choice.template.name} at any level"
        yield no_effect(f"label {keys.LEVEL}", level, why, "leave it out")


_NO_CHIPS: Final = Assignment((), Share(WHOLE, settled=True))
_NS_PER_S: Final = 1_000_000_000


def decode_assigned(text: str) -> Assignment:
    """Read ``<chip>-<template>`` or a comma list of chips, in the written order; none if it cannot be read.

    A template need not be a known one.
    """
    if len(text) > MAX_POD_ANNOTATION_BYTES:
        return _NO_CHIPS
    pieces, template = text.split(","), WHOLE
    if len(pieces) == 1 and text.count("-") == 1:
        pieces = [text.partition("-")[0]]
        # A slice that is not named is a slice of an unknown size, not the whole chip.
        template = text.partition("-")[2] or UNKNOWN
    found = [keys.whole(piece) for piece in pieces]
    chips = tuple([one for one in found if one is not None])
    return Assignment(chips, Share(template)) if len(chips) == len(found) else _NO_CHIPS


def encode_assigned(assignment: Assignment) -> str:
    """Write what a pod gets, chips ascending."""
    chips = ",".join(map(str, assignment.chips))
    return chips if assignment.share.template == WHOLE else f"{chips}-{assignment.share.template}"


def held(pod: Pod, cards: Sequence[Chip], tables: Tables) -> Held[Assignment] | None:
    """What bound *pod* holds by its annotations, whoever bound it; None if nothing of this protocol."""
    text = pod.annotations.get(keys.ASSIGNED)
    if text is None or not any(_asks(one) for one in (*pod.containers, *pod.init_containers)):
        return None
    real = pod.annotations.get(keys.REAL, "")
    assigned = decode_assigned(text)
    reported = _reported(real, assigned) if real else None
    if reported is not None:
        return Held(assignment=reported)
    if not assigned.chips:
        told = f"annotation {keys.ASSIGNED} is {quoted(text)}, which may mean any chip; delete the pod"
        return Held(assignment=_NO_CHIPS, closes=f"pod {pod.key}: {told}")
    chips = tuple(sorted(set(assigned.chips)))
    return Held(assignment=Assignment(chips, Share(_known(assigned.share.template), NO_VGROUP, bool(real))))


def _reported(text: str, assigned: Assignment) -> Assignment | None:
    """What ``AscendReal`` says; None if it cannot be read, or speaks of slices on several chips."""
    if len(text) > MAX_POD_ANNOTATION_BYTES:
        return None
    devices = [keys.decode_device(name.strip()) for name in text.split(",")]
    known = [one for one in devices if one is not None]
    if len(known) != len(devices):
        return None
    chips = tuple(sorted({one.chip for one in known}))
    if all(not one.type for one in known):
        # A plain chip name does not say how much of it a slice holds; then only the request tells.
        return Assignment(chips, Share(_known(assigned.share.template), NO_VGROUP, settled=True))
    if len(known) > 1:
        return None
    found = BY_DEVICE_TYPE.get(known[0].type)
    template = found.name if found is not None else _known(assigned.share.template)
    return Assignment(chips, Share(template, known[0].vgroup, settled=True))


def _known(template: str) -> str:
    return template if template == WHOLE or template in TEMPLATES else UNKNOWN


def _asks(container: Container) -> bool:
    return any(key.startswith(keys.VENDOR) for key in (*container.limits, *container.requests))


def annotations(assignment: Assignment, stamp: Stamp, tables: Tables) -> Mapping[str, str]:
    """What the Binding must carry: chips and template, and the time that orders pods, in nanoseconds."""
    return {keys.ASSIGNED: encode_assigned(assignment), keys.PREDICATE_TIME: str(stamp.order)}


def next_stamp(pods: Sequence[Pod], now_s: int) -> int:
    """Above the time of every pod of the node that still waits for the plugin, and above now, in nanoseconds."""
    waiting = [pod.annotations for pod in pods if keys.ASSIGNED in pod.annotations]
    return later([notes.get(keys.PREDICATE_TIME, "") for notes in waiting], now_s * _NS_PER_S)


def confusable(request: Request) -> frozenset[Hashable]:
    """What the plugin could mistake a pod with *request* by: its AI cores."""
    return frozenset({_mark(request.cores)})


def _mark(cores: int) -> Hashable:
    return (keys.CORES, cores)


def in_flight(pod: Pod, tables: Tables) -> InFlight | None:
    """*pod* as the plugin sees it: a candidate while it is annotated and its time is not overwritten."""
    if not pod.node_name or keys.ASSIGNED not in pod.annotations:
        return None
    cores = {found for one in pod.containers if (found := cores_of(one, []))}
    if not cores:
        return None
    if pod.finished:
        # The plugin passes over it by itself: there is nothing to clear.
        return InFlight(pod=pod.uid, progress=Progress.FAILED, confusable=frozenset())
    served = pod.annotations.get(keys.PREDICATE_TIME) == keys.SERVED
    if served or pod.started or pod.annotations.get(keys.REAL):
        # One that runs although its time was never overwritten could still be served for another pod.
        cleanup = None if served else {keys.PREDICATE_TIME: keys.SERVED}
        return InFlight(pod=pod.uid, progress=Progress.DONE, confusable=frozenset(), cleanup=cleanup)
    # Also while it is being deleted: kubelet may be asking for it just now, and the plugin, which passes over it, would
    # serve the next pod with as many cores in its place.
    return InFlight(pod=pod.uid, progress=Progress.WAITING, confusable=frozenset(map(_mark, cores)))


def report(pod: Pod) -> Mapping[str, str]:
    """What the plugin writes on bound *pod* when it serves it, without vGroups; {} if it has."""
    if pod.annotations.get(keys.REAL) or keys.ASSIGNED not in pod.annotations:
        return {}
    chips = decode_assigned(pod.annotations[keys.ASSIGNED]).chips
    return {keys.REAL: ",".join(f"{keys.CHIP_KIND}-{chip}" for chip in chips), keys.PREDICATE_TIME: keys.SERVED}
