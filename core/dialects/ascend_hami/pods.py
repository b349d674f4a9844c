"""The pods of HAMi's protocol for Ascend: what they ask for and hold, and how far the plugin is with them.

Source: protocol reference, ascend 1.5, 1.6, 1.9, 2.1 steps 6 to 9, 2.2, 4.2, 4.3, 4.7, 4.10, 4.11, 5.1, 5.2, 5.4, with
the defects H-3, H-4, H-8, H-10, H-14, H-15 done as they say; every segment counts (H-1).
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from core import hami_lock
from core.dialects.ascend_hami import keys
from core.dialects.ascend_hami.cards import chips_of, trim
from core.dialects.ascend_hami.table import SHIPPED_CHIPS, WHOLE_CHIP, AscendChip
from core.errors import quoted
from core.model import AnyPod, Container, Pod, ReviewedPod
from core.port.cards import Held
from core.port.dialect import CardStock
from core.port.handoff import InFlight, Stamp
from core.port.refusals import Reason, Violation
from core.selection import CardSelection
from core.settings import Tables
from core.sharing import account, refused, slices
from core.sharing.account import Assignment, Entry, Written
from core.sharing.card import Card
from core.sharing.request import (
    Ask,
    Place,
    Request,
    containers_of,
    judged,
    places_of,
    selection_of,
    uncounted_shares,
)
from core.sharing.slices import Profile
from core.units import MAX_INT32, unit_already, with_article
from core.warnings import AdmissionWarning, all_memory, limit_of, no_effect, with_runtime_class
from core.wire.hami_reservations import templates


def request(pod: AnyPod, tables: Tables) -> Request | tuple[Violation, ...] | None:
    """What *pod* asks, if the device plugin can also be told so; see `readable_request`."""
    chips = _mentioned(pod, tables)
    if not chips:
        return None
    # A figure that cannot be read may be one that the plugin cannot read either.
    return judged(readable_request(pod, tables), [wrong for chip in chips for wrong in _unservable(pod, chip)])


def readable_request(pod: AnyPod, tables: Tables) -> Request | tuple[Violation, ...] | None:
    """What *pod* asks, taken as upstream's scheduler takes it; None if nothing, violations if it cannot be placed."""
    soft = is_soft(pod)
    violations: list[Violation] = []
    found: list[tuple[AscendChip, list[Ask]]] = []
    for chip in _mentioned(pod, tables):
        before = len(violations)
        asks = [ask for place in places_of(pod, violations) if (ask := _ask(place, chip, soft=soft)) is not None]
        if asks or len(violations) > before:
            found.append((chip, asks))
    if not found:
        return None
    if len(found) > 1:
        names = " and ".join(chip.named.cards for chip, _ in found)
        remedy = "one pod uses one chip type; ask for the others in pods of their own"
        violations.append(Violation(code="CS206", field="resources", found=names, remedy=remedy))
    chip, asks = found[0]
    wish = _selection(pod, chip, violations)
    word = pod.annotations.get(keys.MODE, "")
    if word.strip().lower() in keys.ENPU_WORDS:
        remedy = f"write {keys.SOFT} or {keys.TEMPLATE}, or leave it out; only HAMi's own scheduler serves ENPU"
        violations.append(Violation(code="CS104", field=f"annotation {keys.MODE}", found=quoted(word), remedy=remedy))
    if violations:
        return tuple(violations)
    # A whole chip may be one of a soft node.
    is_cut = any(ask.profile is not None and ask.profile.name not in ("", WHOLE_CHIP) for ask in asks)
    return Request(
        tuple(sorted(asks, key=lambda ask: (ask.initial, ask.sidecar))),
        len(pod.init_containers) + len(pod.containers),
        wish,
        (keys.SOFT_MODE,) if soft else (keys.TEMPLATE_MODE,) if is_cut or word == keys.TEMPLATE else (),
        marks=marks_of(soft=soft),
        type=chip.named.type,
        mib_per_unit=chip.named.mib_per_unit,
    )


def marks_of(*, soft: bool) -> tuple[str, ...]:
    """What a pod carries to its chips: soft shares and templates are never on one chip (H-12)."""
    return (keys.SOFT_MODE if soft else keys.TEMPLATE_MODE,)


def is_soft(pod: AnyPod) -> bool:
    """Whether the pod's chips are sliced softly; any other word means templates."""
    return pod.annotations.get(keys.MODE) == keys.SOFT


def _mentioned(pod: AnyPod, tables: Tables) -> list[AscendChip]:
    """The chip types of which some container names a resource; names are compared whole."""
    names: set[str] = set()
    for one in (*pod.init_containers, *pod.containers):
        names.update(one.limits, one.requests)
    return [c for c in chips_of(tables) if c.named.cards in names or c.named.memory in names or c.named.cores in names]


def _ask(place: Place, chip: AscendChip, *, soft: bool) -> Ask | None:
    figures, factor = place.figures, chip.named.mib_per_unit
    before = len(figures.violations)
    number = figures.read(chip.named.cards, "CS101")
    memory = figures.mib(chip.named.memory, factor)
    cores = figures.read(chip.named.cores, "CS103", maximum=100 if soft else MAX_INT32)
    if len(figures.violations) > before or number == 0 or (number is None and memory is None):
        return None
    most = keys.MODULE if chip.paired else 1
    cut = slices.WHOLE
    if memory:
        trimmed = trim(chip, memory)
        if trimmed is None:
            write = f"write {chip.capacity_mib // factor} or less"
            remedy = f"{with_article(chip.named.type)} has {chip.capacity_mib} MiB; {write}"
            figures.wrong("CS102", chip.named.memory, remedy)
        else:
            cut = trimmed
    if number is None:
        number = most
    elif number > most and not soft and cut.name not in ("", WHOLE_CHIP):
        remedy = f"several chips can only be asked for whole: leave the memory out, or write {chip.named.cards}: {most}"
        figures.wrong("CS207", chip.named.memory, remedy)
    if number % most:
        figures.wrong("CS207", chip.named.cards, f"chips come in modules of two: write {number + 1}")
    return Ask(
        place.container,
        number,
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
        case Reason.TYPE | Reason.INDEX | Reason.UNORDERED:
            return None
        case Reason.MODE:
            # Whole chips instead of soft shares without figures.
            if not soft or any(ask.memory or ask.cores for ask in request.asks):
                return None
            asks = tuple([ask._replace(profile=slices.WHOLE) for ask in request.asks])
            return request._replace(asks=asks, modes=(), marks=marks_of(soft=False))
        case Reason.CARD_COUNT if any(amount % kind.module for kind in kinds):
            return None
        case Reason.UUID | Reason.CORES | Reason.CARD_COUNT:
            pass
        case _ if not soft:
            cuts = [one for kind in kinds if kind.templates for one in kind.templates.profiles if one.charge == amount]
            if not cuts:
                return None
            asks = tuple([_cut_to(ask, cuts[0]) for ask in request.asks])
            return request._replace(asks=asks, modes=(keys.TEMPLATE_MODE,))
        case _:
            pass
    return refused.relaxed(request, reason, amount, 1)


def _cut_to(ask: Ask, cut: Profile) -> Ask:
    is_more = ask.percent or ask.memory > cut.charge
    return ask._replace(memory=cut.charge, percent=0, profile=cut) if is_more else ask


def _selection(pod: AnyPod, chip: AscendChip, violations: list[Violation]) -> CardSelection:
    use, avoid = lists = keys.lists(chip.named.type)
    # The words that select NVIDIA cards mean nothing here.
    given = {key: pod.annotations[key] for key in lists if key in pod.annotations}
    return selection_of(given, use, avoid, violations)


def _unservable(pod: AnyPod, chip: AscendChip) -> Iterator[Violation]:
    """What kubelet or the plugin would not do as asked: no count, memory that is no plain MiB, cores of a template."""
    # What cannot be read of them is told already.
    wish = _selection(pod, chip, [])
    both = ", ".join(sorted(wish.use_uuids & wish.no_use_uuids))
    if both:
        field = "annotations {} and {}".format(*keys.lists(chip.named.type))
        yield Violation(code="CS206", field=field, found=quoted(both), remedy="name each in one of the two only")
    wrong: list[Violation] = []
    for place in places_of(pod, wrong):
        memory, cores = place.figures.text(chip.named.memory), place.figures.text(chip.named.cores)
        if memory.endswith("i"):
            place.figures.wrong("CS101", chip.named.memory, unit_already(memory, chip.named.mib_per_unit))
        if cores.strip("0") and not is_soft(pod):
            remedy = f"cores are shared only with annotation {keys.MODE}: {keys.SOFT}; leave them out, the template "
            place.figures.wrong("CS208", chip.named.cores, remedy + "brings its own")
    yield from wrong
    yield from uncounted_shares(containers_of(pod), chip.named, implied=True)


def recognised(request: Request, tables: Tables) -> frozenset[str]:
    """Return the preferences that are read of a pod with *request*: of lists, those of its own chip type."""
    return frozenset({keys.MODE, *keys.lists(request.type)})


def completed(pod: ReviewedPod, request: Request, tables: Tables) -> tuple[ReviewedPod, tuple[AdmissionWarning, ...]]:
    """Return *pod* with the runtime class of its chip type."""
    names = {one.named.type: one.runtime_class for one in chips_of(tables)}
    return with_runtime_class(pod, names.get(request.type, ""), f"from device-config.yaml for {request.type}")


def warnings(pod: AnyPod, request: Request, tables: Tables) -> Iterator[AdmissionWarning]:
    """Yield CS116 for *pod*."""
    word = pod.annotations.get(keys.MODE, "")
    if word not in ("", keys.SOFT, keys.TEMPLATE):
        why = f"the words that are read are {keys.SOFT} and {keys.TEMPLATE}, and the chip is cut by templates"
        yield no_effect(f"annotation {keys.MODE}", word, why, f"write {keys.SOFT}, or leave it out")
    for chip in chips_of(tables):
        for one in (*pod.init_containers, *pod.containers):
            if one.amount(chip.named.memory) == "0" and one.amount(chip.named.cards) not in (None, "0"):
                yield all_memory(one, chip.named.memory)


def advice(
    pod: AnyPod, request: Request, tables: Tables, stock: CardStock[Request] | None
) -> Iterator[AdmissionWarning]:
    """Yield CS114 for *pod*, unless its chips are sliced softly."""
    for chip in chips_of(tables) if not is_soft(pod) else ():
        for one in (*pod.init_containers, *pod.containers):
            yield from _trimmed(one, chip)


def _trimmed(one: Container, chip: AscendChip) -> Iterator[AdmissionWarning]:
    """Yield that a container gets the next larger template.

    The figure is left as it was written: scheduler and device plugin read both alike, and a second apply is no change.
    """
    text = one.limits.get(chip.named.memory, "")
    factor = chip.named.mib_per_unit
    wanted_mib = factor * int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else 0
    cut = trim(chip, wanted_mib) if wanted_mib else None
    # What is no whole number of units cannot be asked for to the MiB.
    if cut is not None and cut.charge // factor * factor > wanted_mib:
        given, just = f"{cut.charge} MiB ({cut.name})", cut.charge // factor
        why = f"found {quoted(text)}; chips are sliced by templates: it gets {given}"
        text = f"{limit_of(one, chip.named.memory)}: {why}; write {just} to request exactly that"
        yield AdmissionWarning("CS114", text)


# No pod has more of one type: a node has 16 chips, and hardly a pod has eight containers that use all of them.
_DEVICES_MAX: Final = 128


def held(pod: Pod, cards: Sequence[Card], tables: Tables) -> Held[Assignment] | None:
    """Return what bound *pod* holds by its annotations, whoever bound it; None if they name no device."""
    if not pod.annotations:
        return None
    words = [word for key, text in pod.annotations.items() if (word := keys.word_of(key)) and account.names_any(text)]
    if not words:
        return None
    chips = chips_of(tables)
    known = [one for one in chips if one.named.type in words]
    found = [(one.named.type, part) for one in known if (part := _of_chip(pod, cards, one)) is not None]
    # Chips that nobody configured are held all the same; HAMi writes GPUs in the same way (nvidia 8), which are not.
    others = set(words) - {one.named.type for one in known}
    if not found and not any(word.startswith(keys.ASCEND) for word in others):
        return None
    parts = [part for _, part in found]
    assignment = Assignment(
        segments=max([one.assignment.segments for one in parts], default=0),
        entries=tuple([entry for one in parts for entry in one.assignment.entries]),
        charges=tuple(sorted([charge for one in parts for charge in one.assignment.charges])),
        type=found[0][0] if found else min(others),
    )
    closes = next((one.closes for one in parts if one.closes), "") or _unnamed(pod, [word for word, _ in found], chips)
    return Held(assignment=assignment, closes=closes)


def _of_chip(pod: Pod, cards: Sequence[Card], chip: AscendChip) -> Held[Assignment] | None:
    """Return the same for one chip type."""
    soft = is_soft(pod)
    written = {} if soft else templates(pod.annotations.get(keys.runtime_info(chip.named.type), ""))

    def finish(at: int, device: int, one: Written, entry: Entry, card: Card | None) -> tuple[Entry, bool]:
        cut = _cut_of(chip, written.get(entry.uuid, ""), entry.memory)
        profile, counted = (WHOLE_CHIP, ()) if cut is None else (cut.name, cut.counted)
        return entry._replace(profile=profile, counted=counted), True

    return account.held(
        pod,
        cards,
        keys.allocated(chip.named.type),
        (chip.named.cards,),
        finish=None if soft else finish,
        marks=marks_of(soft=soft),
        devices_max=_DEVICES_MAX,
    )


def _cut_of(chip: AscendChip, name: str, memory_mib: int) -> Profile | None:
    """Return the template *name* by which the plugin cut a chip; if it is unknown, the one for *memory_mib*.

    The configuration may have other templates since; the driver knows it all the same, and the slice stays as it is.
    """
    if name:
        alike = (chip, *[one for one in SHIPPED_CHIPS if one.named.type == chip.named.type])
        for one in alike:
            for template in one.templates:
                if template.name == name:
                    return template
    return trim(chip, memory_mib)


def _unnamed(pod: Pod, words: Collection[str], chips: Sequence[AscendChip]) -> str:
    """Return why the node is closed if *pod* requests chips of a type and its annotations name none."""
    for chip in chips:
        if chip.named.type not in words and any(
            one.amount(chip.named.cards) not in (None, "0") for one in pod.containers
        ):
            return f"pod {pod.key} asks for {chip.named.cards}, and nothing says which chips it uses; delete the pod"
    return ""


def annotations(assignment: Assignment, stamp: Stamp, tables: Tables) -> Mapping[str, str]:
    """Return the eight annotations that the Binding must carry."""
    word = assignment.type
    assigned = (keys.to_allocate(word), keys.allocated(word))
    # One object per device in the order of the segments (ascend 1.6).
    info = json.dumps([_told(one) for one in assignment.entries], separators=(",", ":"), ensure_ascii=False)
    more = {keys.runtime_info(word): info, keys.PREDICATE_TIME: str(stamp.now_s)}
    return account.bound(assigned, account.wire_text(assignment, word), stamp) | more


def _told(entry: Entry) -> dict[str, Any]:
    share = {"temp": entry.profile} if entry.profile else {"memory": entry.memory, "core": entry.cores}
    return {"UUID": entry.uuid, **{key: value for key, value in share.items() if value not in (0, WHOLE_CHIP)}}


def in_flight(pod: Pod, tables: Tables) -> InFlight | None:
    """Return *pod* between its Binding and its last device; None if the plugin never looks at it."""
    if any(keys.to_allocate(chip.named.type) in pod.annotations for chip in chips_of(tables)):
        return hami_lock.in_flight(pod)
    return None
