"""What a pod asks for in the HAMi protocol for Ascend.

Source: protocol reference, ascend 4.2, 4.3, 4.10, 4.11, with the defects H-3, H-4, H-8, H-10, H-14, H-15 done as
they say.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from core import selection
from core.dialects.ascend_hami import keys
from core.dialects.ascend_hami.cards import Cut, chips_of, trim
from core.errors import InvalidRequestError, quoted
from core.model import AnyPod, Container
from core.port.refusals import Violation
from core.selection import ANY_CARD, CardSelection
from core.tables import AscendChip, Tables
from core.units import MAX_INT32, parse_count, parse_memory, unit_already, with_article

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
    found = [(chip, *_asks_of(pod, chip, soft=soft)) for chip in chips]
    found = [one for one in found if one[1] or one[2]]
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
    return Request(chip.common_word, asks, len(pod.init_containers) + len(pod.containers), soft, wish, chip.paired)


def is_soft(pod: AnyPod) -> bool:
    """Whether the pod's chips are sliced softly; any other word means templates."""
    return pod.annotations.get(keys.MODE) == keys.SOFT


def _mentioned(pod: AnyPod, chips: Sequence[AscendChip]) -> list[AscendChip]:
    """The chip types of which some container names a resource; names are compared whole."""
    names: set[str] = set()
    for container in (*pod.init_containers, *pod.containers):
        names.update(container.limits, container.requests)
    return [c for c in chips if c.resource in names or c.memory_resource in names or c.core_resource in names]


def _asks_of(pod: AnyPod, chip: AscendChip, *, soft: bool) -> tuple[tuple[Ask, ...], list[Violation]]:
    violations: list[Violation] = []
    early: list[Ask] = []
    sidecars: list[Ask] = []
    for position, container in enumerate(pod.init_containers):
        ask = _ask(_Figures(container, "init container", violations), position, chip, soft=soft)
        if ask is not None and container.sidecar:
            sidecars.append(ask._replace(sidecar=True))
        elif ask is not None:
            early.append(ask._replace(initial=True))
    offset = len(pod.init_containers)
    asks = [
        ask
        for position, container in enumerate(pod.containers)
        if (ask := _ask(_Figures(container, "container", violations), offset + position, chip, soft=soft)) is not None
    ]
    return (*asks, *sidecars, *early), violations


def _ask(read: "_Figures", position: int, chip: AscendChip, *, soft: bool) -> Ask | None:
    violations = read.violations
    before = len(violations)
    number = read(chip.resource, "CS101")
    factor = chip.memory_factor
    memory = read(chip.memory_resource, "CS101", MAX_INT32 // factor, partial(parse_memory, mib_per_unit=factor))
    memory = memory and memory * factor
    cores = read(chip.core_resource, "CS103", 100 if soft else MAX_INT32)
    if number is None and memory is None:
        return None
    if number == 0:
        if memory or cores:
            read.wrong("CS203", chip.resource, f"write {chip.resource}: 1, or leave out its memory and cores as well")
        return None
    if len(violations) > before:
        return Ask(position, 1, None, 0)
    cut = None
    most = MODULE if chip.paired else 1
    if memory:
        cut = Cut(memory) if soft and memory <= chip.capacity_mib else trim(chip, memory)
        if cut is None:
            read.wrong(
                "CS102",
                chip.memory_resource,
                f"{with_article(chip.common_word)} has {chip.capacity_mib} MiB; "
                f"write {chip.capacity_mib // factor} or less",
            )
        elif number and number > most and not soft and cut.template:
            read.wrong(
                "CS207",
                chip.memory_resource,
                f"several chips can only be asked for whole: leave the memory out, or write {chip.resource}: {most}",
            )
    if chip.paired and number is not None and number % MODULE:
        read.wrong("CS207", chip.resource, f"chips come in modules of two: write {number + 1}")
    return Ask(position, most if number is None else number, cut, cores or 0)


class _Figures:
    """Reads one container's figures, limits before requests, and notes what is wrong with them."""

    def __init__(self, container: Container, role: str, violations: list[Violation]) -> None:
        self._container = container
        self._role = role
        self.violations = violations

    def __call__(
        self,
        resource: str,
        code: str,
        maximum: int = MAX_INT32,
        parse: Callable[[str, str, int], int] = parse_count,
    ) -> int | None:
        text, place = self._text(resource)
        if text is None:
            return None
        try:
            return parse(text, self._field(place, resource), maximum)
        except InvalidRequestError as e:
            self.violations.append(Violation(code=code, field=e.field, found=e.found, remedy=e.remedy))
            return None

    def wrong(self, code: str, resource: str, remedy: str) -> None:
        """Note that what is written of *resource* cannot be asked."""
        text, place = self._text(resource)
        field = self._field(place, resource)
        self.violations.append(Violation(code=code, field=field, found=quoted(text or ""), remedy=remedy))

    def _text(self, resource: str) -> tuple[str | None, str]:
        text = self._container.limits.get(resource)
        return (self._container.requests.get(resource), "request") if text is None else (text, "limit")

    def _field(self, place: str, resource: str) -> str:
        return f'{self._role} "{self._container.name}": {place} {resource}'


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
