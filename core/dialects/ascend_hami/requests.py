"""What a pod asks for in the HAMi protocol for Ascend.

Source: protocol reference, ascend 4.2, 4.3, 4.10, 4.11, with the defects H-3, H-4, H-8, H-10, H-14, H-15 done as
they say.
"""

from collections.abc import Iterable, Sequence
from functools import partial

from core import selection
from core.dialects.ascend_hami import keys
from core.dialects.ascend_hami.cards import WHOLE_CHIP, chips_of, trim
from core.dialects.ascend_hami.table import AscendChip
from core.errors import InvalidRequestError, quoted
from core.model import AnyPod
from core.port.refusals import Reason, Violation
from core.selection import ANY_CARD, CardSelection
from core.sharing import request as _request
from core.sharing import slices
from core.sharing.card import Card
from core.sharing.request import Ask, Place, Request, containers_of, places_of
from core.tables import Tables
from core.units import MAX_INT32, parse_memory, unit_already, with_article


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
        tuple(asks),
        len(pod.init_containers) + len(pod.containers),
        wish,
        # A whole chip may be one of a soft node.
        (keys.SOFT_MODE,) if soft else (keys.TEMPLATE_MODE,) if any(map(_is_cut, asks)) else (),
        marks=marks_of(soft=soft),
        type=chip.common_word,
    )


def marks_of(*, soft: bool) -> tuple[str, ...]:
    """What a pod carries to its chips: soft shares and templates are never on one chip (H-12)."""
    return (keys.SOFT_MODE if soft else keys.TEMPLATE_MODE,)


def _is_cut(ask: Ask) -> bool:
    return ask.profile is not None and ask.profile.name not in ("", WHOLE_CHIP)


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
        return Ask(place.container, 1, 0, 100, 0)
    cut = slices.WHOLE
    most = keys.MODULE if chip.paired else 1
    if memory:
        trimmed = trim(chip, memory)
        if trimmed is None:
            figures.wrong(
                "CS102",
                chip.memory_resource,
                f"{with_article(chip.common_word)} has {chip.capacity_mib} MiB; "
                f"write {chip.capacity_mib // factor} or less",
            )
        else:
            cut = trimmed
        if number and number > most and not soft and cut.name not in ("", WHOLE_CHIP):
            figures.wrong(
                "CS207",
                chip.memory_resource,
                f"several chips can only be asked for whole: leave the memory out, or write {chip.resource}: {most}",
            )
    if chip.paired and number is not None and number % keys.MODULE:
        figures.wrong("CS207", chip.resource, f"chips come in modules of two: write {number + 1}")
    return Ask(
        place.container,
        most if number is None else number,
        (memory or 0) if soft else cut.charge,
        0 if memory else 100,
        cores or 0,
        place.initial,
        place.sidecar,
        profile=None if soft else cut,
    )


def relaxed(cards: Sequence[Card], request: Request, reason: Reason, amount: int) -> Request | None:
    """*request*, no container asking for more than *amount*: chips, MiB (a template, in template mode), cores."""
    soft = keys.SOFT_MODE in request.modes
    kinds = [card.fixed.kind for card in cards if card.fixed.kind.type == request.type]
    match reason:
        case Reason.MODE:
            # Whole chips instead of soft shares without figures.
            if not soft or any(ask.memory or ask.cores for ask in request.asks):
                return None
            asks = tuple([ask._replace(profile=slices.WHOLE) for ask in request.asks])
            return request._replace(asks=asks, modes=(), marks=marks_of(soft=False))
        case Reason.UUID | Reason.CORES:
            pass
        case Reason.CARD_COUNT:
            if any(amount % kind.module for kind in kinds):
                return None
        case Reason.TYPE | Reason.INDEX | Reason.UNORDERED:
            return None
        case _ if not soft:
            found = [one for kind in kinds if kind.templates for one in kind.templates.profiles if one.charge == amount]
            if not found:
                return None
            asks = tuple(
                [
                    ask._replace(memory=amount, percent=0, profile=found[0])
                    if ask.percent or ask.memory > amount
                    else ask
                    for ask in request.asks
                ]
            )
            return request._replace(asks=asks, modes=(keys.TEMPLATE_MODE,))
        case _:
            pass
    return _request.relaxed(request, reason, amount, 1)


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
    # What cannot be read of them is told already.
    wish = _selection(pod, chip, [])
    both = wish.use_uuids & wish.no_use_uuids
    if both:
        yield Violation(
            code="CS206",
            field=f"annotations {keys.use_uuids(chip.common_word)} and {keys.no_use_uuids(chip.common_word)}",
            found=quoted(", ".join(sorted(both))),
            remedy="name each in one of the two only",
        )
    for role, container in containers_of(pod):
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
