"""What a pod asks of MindCluster: labels and AI cores to templates, with what the plugin cannot serve refused.

Source: protocol reference, ascend 3.3, 3.4, 6.2 (presetVirtualDevice).
"""

from typing import Final, NamedTuple

from core.dialects.mindcluster import keys
from core.dialects.mindcluster.table import MindClusterTable
from core.dialects.mindcluster.templates import (
    CHIP_CPUS,
    DECISIONS,
    DVPP_VALUES,
    HIGH,
    NULL,
    SLICE_CORES,
    Choice,
    asks_whole_chips,
    row,
)
from core.errors import InvalidRequestError, quoted
from core.model import AnyPod, Container
from core.port.refusals import Violation
from core.tables import Tables
from core.units import counted, parse_count

_MAX_CORES: Final = 1024 * max(CHIP_CPUS)


class Request(NamedTuple):
    """AI cores, and which templates they may be; choice None = whole chips."""

    cores: int
    choice: Choice | None


def request_of(pod: AnyPod, tables: Tables) -> Request | tuple[Violation, ...] | None:
    """What *pod* asks; None if no AI core; violations if it may not be asked so."""
    try:
        asked = [(one, cores) for one in pod.containers if (cores := cores_of(one))]
        first = [one.name for one in pod.init_containers if cores_of(one)]
    except InvalidRequestError as error:
        return (Violation(code="CS101", field=error.field, found=error.found, remedy=error.remedy),)
    if not asked and not first:
        return None
    violations = [
        Violation(
            code="CS205",
            field=f'init container "{name}"',
            found="",
            remedy=f"ask for {keys.CORES} in a normal container; init containers get no NPU",
        )
        for name in first
    ]
    if len(asked) > 1:
        violations.append(_several([one.name for one, _ in asked]))
    violations += _labels(pod, tables)
    if asked:
        container, cores = asked[0]
        found = _decided(container, cores, pod)
        if isinstance(found, Request) and not violations:
            return found
        if isinstance(found, Violation):
            violations.append(found)
    return tuple(violations)


def cores_of(container: Container) -> int:
    """The AI cores that *container* asks for, limits before requests; 0 if none.

    Raises:
        InvalidRequestError: the figure is no whole number that a node could have.
    """
    place, text = "limit", container.limits.get(keys.CORES)
    if text is None:
        place, text = "request", container.requests.get(keys.CORES)
    if text is None:
        return 0
    return parse_count(text, f'container "{container.name}": {place} {keys.CORES}', _MAX_CORES)


def _decided(container: Container, cores: int, pod: AnyPod) -> Request | Violation:
    field = f'container "{container.name}": {keys.CORES}'
    if cores not in SLICE_CORES:
        if asks_whole_chips(cores):
            return Request(cores, None)
        larger = [one for one in SLICE_CORES if one > cores]
        remedy = (
            f"write {row(larger[0], NULL, high=False)}"
            if larger
            else f"write whole chips, such as {_chips_above(cores)}"
        )
        return Violation(
            code="CS103",
            field=field,
            found=quoted(str(cores)),
            remedy=f"{remedy}; a slice has 1, 2 or 4 AI cores, whole chips have multiples of 8 (or of 10)",
        )
    dvpp = pod.labels.get(keys.DVPP, NULL)
    high = pod.labels.get(keys.LEVEL) == HIGH
    if dvpp not in DVPP_VALUES:
        return Violation(
            code="CS109",
            field=f"label {keys.DVPP}",
            found=quoted(dvpp),
            remedy=f"write yes, no or null, or leave it out, which gives {row(cores, NULL, high=high)}",
        )
    choice = DECISIONS.get((cores, dvpp, high))
    if choice is not None:
        return Request(cores, choice)
    return Violation(
        code="CS203",
        field=f"label {keys.DVPP}",
        found=quoted(dvpp),
        remedy=f"with {counted(cores, 'AI cores')} {keys.DVPP} is null only: {row(cores, NULL, high=high)}; "
        f"or ask for {row(4, dvpp, high=high)}",
    )


def _labels(pod: AnyPod, tables: Tables) -> list[Violation]:
    found: list[Violation] = []
    if pod.labels.get(keys.CONTROLLER) != keys.CONTROLLER_310P:
        found.append(
            Violation(
                code="CS210",
                field=f"label {keys.CONTROLLER}",
                found=quoted(pod.labels.get(keys.CONTROLLER, "")),
                remedy=f"write {keys.CONTROLLER_310P}; {keys.CORES} is placed on 310P chips only, "
                "and the device plugin serves no pod without this label's placement",
            )
        )
    if tables.of(MindClusterTable).preset_virtual_device:
        found.append(
            Violation(
                code="CS211",
                field=keys.CORES,
                found="presetVirtualDevice true",
                remedy="this cluster cuts its NPUs in advance; ask for those devices, "
                "or set presetVirtualDevice to false in volcano-scheduler.conf and in the device plugin",
            )
        )
    return found


def _several(names: list[str]) -> Violation:
    return Violation(
        code="CS204",
        field="containers " + ", ".join(f'"{name}"' for name in names),
        found="",
        remedy=f"only one container of a pod may ask for {keys.CORES}; use one pod for each",
    )


def _chips_above(cores: int) -> str:
    per_chip = min(CHIP_CPUS)
    return f"{keys.CORES}: {-(-cores // per_chip) * per_chip}"
