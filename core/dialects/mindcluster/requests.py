"""What a pod asks of MindCluster: labels and AI cores to templates, with what the plugin cannot serve refused.

Source: protocol reference, ascend 3.3, 3.4, 4.11, 6.2 (presetVirtualDevice).
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from core.dialects.mindcluster import keys
from core.dialects.mindcluster.table import MindClusterTable
from core.dialects.mindcluster.templates import (
    CHIP_CPUS,
    DECISIONS,
    DVPP_VALUES,
    HIGH,
    LOW,
    NULL,
    SLICE_CORES,
    Choice,
    asks_whole_chips,
    row,
)
from core.errors import quoted
from core.model import AnyPod, Container, ReviewedPod
from core.port.refusals import Violation
from core.settings import Tables
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
