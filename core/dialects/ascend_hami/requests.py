"""What a pod asks for in the HAMi protocol for Ascend.

Source: protocol reference, ascend 4.2, 4.3, 4.10, 4.11, with the defects H-3, H-4, H-8, H-10, H-14, H-15 done as
they say.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from core import selection
from core.dialects.ascend_hami import keys
from core.dialects.ascend_hami.cards import Cut, chips_of, trim
from core.errors import InvalidRequestError, quoted
from core.model import AnyPod, Container
from core.port.refusals import Violation
from core.selection import ANY_CARD, CardSelection
from core.sharing.request import Place, places_of
from core.tables import AscendChip, Tables
from core.units import MAX_INT32, parse_memory, unit_already, with_article

# So many dies are on a module, at indices next to each other, where chips are given by modules (ascend 4.6).
MODULE: Final = 2


class Ask(NamedTuple):
    """One container's request: *number* different chips, and of each of them the same share.

    container: its segment, init containers first. cut: None for all of a chip's memory. cores: percent (AI cores in
    template mode). initial: it ends before the containers after it start; sidecar: it starts among those and stays.
    """

    container: int
    number: int
    cut: Cut | None
    cores: int
    initial: bool = False
    sidecar: bool = False


class Request(NamedTuple):
    """All that a pod asks of the chips of one node; asks: containers, then sidecars, then init containers.

    word: the chip type. segments: how many containers the pod has in all. soft: soft slicing, else templates. paired:
    chips are given by whole modules.
    """

    word: str
    asks: tuple[Ask, ...]
    segments: int
    soft: bool = False
    selection: CardSelection = ANY_CARD
    paired: bool = False


def request(pod: AnyPod, tables: Tables) -> Request | tuple[Violation, ...] | None:
    """What *pod* asks, if the device plugin can also be told so; see `readable_request`."""
    asked = readable_request(pod, tables)
    if asked is None:
        return None
    violations = (
        *(asked if not isinstance(asked, Request) else ()),
        *(one for chip in _mentioned(pod, chips_of(tables)) for one in _unservable(pod, chip)),
    )
    if violations:
        # A figure that cannot be read may be one that the plugin cannot read either.
        return tuple(dict.fromkeys(violations))
    return asked


def readable_request(pod: AnyPod, tables: Tables) -> Request | tuple[Violation, ...] | None:
    """What *pod* asks, taken as upstream's scheduler takes it; None if nothing, violations if it cannot be placed."""
    chips = _mentioned(pod, chips_of(tables))
    if not chips:
        return None
    soft = is_soft(pod)
    found: list[tuple[AscendChip, list[Ask], list[Violation]]] = []
    for chip in chips:
        wrong: list[Violation] = []
        asks = [ask for place in places_of(pod, wrong) if (ask := _ask(place, chip, soft=soft)) is not None]
        if asks or wrong:
            found.append((chip, asks, wrong))
    if not found:
        return None
    violations = [violation for _, _, wrong in found for violation in wrong]
    if len(found) > 1:
        violations.append(
            Violation(
                code="CS206",
                field="resources",
                found=" and ".join(chip.resource for chip, _, _ in found),
                remedy="one pod uses one chip type; ask for the others in pods of their own",
            )
        )
    chip, asks, _ = found[0]
    wish = _selection(pod, chip, violations)
    if violations:
        return tuple(violations)
    asks.sort(key=lambda ask: (ask.initial, ask.sidecar))
    return Request(
        chip.common_word, tuple(asks), len(pod.init_containers) + len(pod.containers), soft, wish, chip.paired
    )


def is_soft(pod: AnyPod) -> bool:
    """Whether the pod's chips are sliced softly; any other word means templates."""
    return pod.annotations.get(keys.MODE) == keys.SOFT


def _mentioned(pod: AnyPod, chips: Sequence[AscendChip]) -> list[AscendChip]:
    """The chip types of which some container names a resource; names are compared whole."""
    names: set[str] = set()
    for container in (*pod.init_containers, *pod.containers):
        names.update(container.limits, container.requests)
    return [c for c in chips if c.resource in names or c.memory_resource in names or c.core_resource in names]


def _ask(place: Place, chip: AscendChip, *, soft: bool) -> Ask | None:
    figures = place.figures
    violations = figures.violations
    before = len(violations)
    number = figures.read(chip.resource, "CS101")
    factor = chip.memory_factor
    as_memory = partial(parse_memory, mib_per_unit=factor)
    memory = figures.read(chip.memory_resource, "CS101", maximum=MAX_INT32 // factor, parse=as_memory)
    memory = memory and memory * factor
    cores = figures.read(chip.core_resource, "CS103", maximum=100 if soft else MAX_INT32)
    if number is None and memory is None:
        return None
    if number == 0:
        if memory or cores:
            figures.wrong(
                "CS203", chip.resource, f"write {chip.resource}: 1, or leave out its memory and cores as well"
            )
        return None
    if len(violations) > before:
        return Ask(place.container, 1, None, 0)
    cut = None
    most = MODULE if chip.paired else 1
    if memory:
        cut = Cut(memory) if soft and memory <= chip.capacity_mib else trim(chip, memory)
        if cut is None:
            figures.wrong(
                "CS102",
                chip.memory_resource,
                f"{with_article(chip.common_word)} has {chip.capacity_mib} MiB; "
                f"write {chip.capacity_mib // factor} or less",
            )
        elif number and number > most and not soft and cut.template:
            figures.wrong(
                "CS207",
                chip.memory_resource,
                f"several chips can only be asked for whole: leave the memory out, or write {chip.resource}: {most}",
            )
    if chip.paired and number is not None and number % MODULE:
        figures.wrong("CS207", chip.resource, f"chips come in modules of two: write {number + 1}")
    return Ask(place.container, most if number is None else number, cut, cores or 0, place.initial, place.sidecar)


def _selection(pod: AnyPod, chip: AscendChip, violations: list[Violation]) -> CardSelection:
    found: list[frozenset[str]] = []
    for key in (keys.use_uuids(chip.common_word), keys.no_use_uuids(chip.common_word)):
        try:
            found.append(selection.decode_items(pod.annotations.get(key, ""), f"annotation {key}"))
        except InvalidRequestError as e:
            violations.append(Violation(code="CS105", field=e.field, found=e.found, remedy=e.remedy))
            found.append(frozenset())
    return CardSelection(use_uuids=found[0], no_use_uuids=found[1]) if any(found) else ANY_CARD


def _unservable(pod: AnyPod, chip: AscendChip) -> Iterable[Violation]:
    """What kubelet or the plugin would not do as asked: no count, memory that is no plain MiB, cores of a template."""
    soft = is_soft(pod)
    both = _items(pod, keys.use_uuids(chip.common_word)) & _items(pod, keys.no_use_uuids(chip.common_word))
    if both:
        yield Violation(
            code="CS206",
            field=f"annotations {keys.use_uuids(chip.common_word)} and {keys.no_use_uuids(chip.common_word)}",
            found=quoted(", ".join(sorted(both))),
            remedy="name each in one of the two only",
        )
    for role, container in _containers(pod):
        limits, requests = container.limits, container.requests
        memory = limits.get(chip.memory_resource, requests.get(chip.memory_resource))
        core = limits.get(chip.core_resource, requests.get(chip.core_resource))
        number = limits.get(chip.resource)
        if memory is not None and memory.endswith("i"):
            yield Violation(
                code="CS101",
                field=f'{role} "{container.name}": limit {chip.memory_resource}',
                found=quoted(memory),
                remedy=unit_already(memory, chip.memory_factor),
            )
        if core is not None and not soft and core.strip("0"):
            yield Violation(
                code="CS208",
                field=f'{role} "{container.name}": limit {chip.core_resource}',
                found=quoted(core),
                remedy=f"cores are shared only with annotation {keys.MODE}: {keys.SOFT}; "
                "leave them out, the template brings its own",
            )
        if number is None and (memory is not None or core is not None or chip.resource in requests):
            yield Violation(
                code="CS203",
                field=f'{role} "{container.name}": limit {chip.resource}',
                found="",
                remedy=f"write {chip.resource}: 1 as well; kubelet gives the container no chip without it",
            )


def _items(pod: AnyPod, key: str) -> frozenset[str]:
    try:
        return selection.decode_items(pod.annotations.get(key, ""), "")
    except InvalidRequestError:  # told by `_selection`
        return frozenset()


def _containers(pod: AnyPod) -> Iterable[tuple[str, Container]]:
    yield from (("init container", one) for one in pod.init_containers)
    yield from (("container", one) for one in pod.containers)
