"""Assignments: what they say on the wire, what they take of chips, and what is left.

Source: protocol reference, ascend 4.7, 5.1, 5.2, 5.4; every segment counts (H-1), init containers by their peak.
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from core.dialects.ascend_hami import keys
from core.dialects.ascend_hami.cards import Card, Cut, Kind, chips_of, cores_total, trim
from core.dialects.ascend_hami.requests import is_soft
from core.errors import InvalidRequestError
from core.model import Pod
from core.port.cards import CardShare, Held, Hole, NodeRoom, Tally
from core.port.refusals import Reason
from core.tables import AscendChip, Tables
from core.wire.entries import Unread, Written, decode_segments, encode_segments

# No pod has more of one type: a node has 16 chips, and hardly a pod has eight containers that use all of them.
_DEVICES_MAX: Final = 128


class Entry(NamedTuple):
    """One device of one container, as the wire has it."""

    container: int
    uuid: str
    memory_mib: int
    cores: int
    template: str = ""


class Charge(NamedTuple):
    """What one chip loses to the pod at its peak; cuts: shares in template mode, unread: entries that cannot be read.

    slot: where the chip stood among the node's cards, a hint only.
    """

    slot: int
    uuid: str
    slots: int
    memory: int
    cores: int
    ai_core: int
    ai_cpu: int
    cuts: int
    unread: int = 0


class Assignment(NamedTuple):
    """What one pod holds on one node: entries by container, charges by chip; segments: its containers in all."""

    word: str
    soft: bool
    segments: int
    entries: tuple[Entry, ...]
    charges: tuple[Charge, ...]


def charge_of(slot: int, uuid: str, cut: Cut, cores: int, *, soft: bool) -> Charge:
    """What one share takes of its chip."""
    return Charge(slot, uuid, 1, cut.memory_mib, cores, cut.ai_core, cut.ai_cpu, 0 if soft else 1)


def held(pod: Pod, cards: Sequence[Card], tables: Tables) -> Held[Assignment] | None:
    """What bound *pod* holds by its annotations, whoever bound it; None if they name no device.

    A device that the node does not have is kept and counts on no card, as do those of a chip type that nobody
    configured. An entry that cannot be read closes the chip that it names, or the node if it names none.
    """
    if not pod.annotations:
        return None
    words = {
        word: text
        for key, text in pod.annotations.items()
        if key.startswith(keys.PREFIX) and (word := keys.word_of(key)) and _names_any(text)
    }
    if not words:
        return None
    found = [(chip, words[chip.common_word]) for chip in chips_of(tables) if chip.common_word in words]
    # Chips that nobody configured are held all the same; HAMi writes GPUs in the same way (nvidia 8), which are not.
    if not found and not any(word.startswith(keys.ASCEND) for word in words):
        return None
    soft = is_soft(pod)
    slots = {card.fixed.uuid: slot for slot, card in enumerate(cards)}
    entries: list[Entry] = []
    charges: list[Charge] = []
    count, closes = 0, ""
    for chip, text in found:
        try:
            segments = decode_segments(text, f"annotation {keys.allocated(chip.common_word)}", _DEVICES_MAX)
        except InvalidRequestError as e:
            closes = closes or f"pod {pod.key}: {e}"
            continue
        count = max(count, len(segments))
        entries += _entries(segments, chip, soft=soft)
        charges += _charges(pod, segments, chip, slots, soft=soft)
        closes = closes or (_closes(pod, chip, segments, slots) if cards else "")
    closes = closes or _unnamed(pod, words, tables)
    assignment = Assignment(
        found[0][0].common_word if found else min(words), soft, count, tuple(entries), tuple(sorted(charges))
    )
    return Held(assignment=assignment, closes=closes)


def _names_any(text: str) -> bool:
    """Whether an assignment has any entry, readable or not."""
    return bool(text.replace(":", "").replace(";", "").strip())


def _unnamed(pod: Pod, words: Collection[str], tables: Tables) -> str:
    """Why the node is closed where *pod* asks for chips of a type of which it names none."""
    for chip in chips_of(tables):
        if chip.common_word not in words and any(
            one.amount(chip.resource) not in (None, "0") for one in pod.containers
        ):
            return f"pod {pod.key} asks for {chip.resource}, and nothing says which chips it uses; delete the pod"
    return ""


def _entries(segments: Sequence[Sequence[Written | Unread]], chip: AscendChip, *, soft: bool) -> list[Entry]:
    return [
        Entry(container, one.name, one.memory, one.cores, _cut(one, chip, soft=soft).template)
        for container, segment in enumerate(segments)
        for one in segment
        if isinstance(one, Written)
    ]


def _cut(one: Written, chip: AscendChip, *, soft: bool) -> Cut:
    """What an entry stands for: the memory that it books, and the template that the plugin was told with it."""
    cut = None if soft else trim(chip, one.memory)
    return Cut(one.memory) if cut is None else cut._replace(memory_mib=one.memory)


def _charges(
    pod: Pod, segments: Sequence[Sequence[Written | Unread]], chip: AscendChip, slots: dict[str, int], *, soft: bool
) -> list[Charge]:
    """The peak on every chip: what runs together is added, what runs one after the other is not (ascend 5.4)."""
    initial = _initial(pod, segments)
    peaks: dict[str, Charge] = {}
    beside: dict[str, Charge] = {}
    # Sidecars stay; an init container runs beside those that came before it; all the others run beside them all.
    for container, segment in enumerate(segments):
        alone = container in initial
        for one in segment:
            charge = _one(one, chip, slots, soft=soft)
            running = _sum(beside.get(charge.uuid), charge)
            if not alone:
                beside[charge.uuid] = running
            peaks[charge.uuid] = _peak(peaks.get(charge.uuid), running)
    return list(peaks.values())


def _initial(pod: Pod, segments: Sequence[Sequence[Written | Unread]]) -> frozenset[int]:
    """The positions of init containers that end; none where segments do not stand for all containers (VC)."""
    inits = pod.init_containers
    if not inits or len(segments) != len(inits) + len(pod.containers):
        return frozenset()
    return frozenset(position for position, one in enumerate(inits) if not one.sidecar)


def _one(one: Written | Unread, chip: AscendChip, slots: dict[str, int], *, soft: bool) -> Charge:
    slot = slots.get(one.name, -1)
    if isinstance(one, Unread):
        return Charge(slot, one.name, 0, 0, 0, 0, 0, 0, 1)
    return charge_of(slot, one.name, _cut(one, chip, soft=soft), one.cores, soft=soft)


def _sum(first: Charge | None, second: Charge) -> Charge:
    if first is None:
        return second
    return Charge(first.slot, first.uuid, *(a + b for a, b in zip(first[2:], second[2:], strict=True)))


def _peak(first: Charge | None, second: Charge) -> Charge:
    if first is None:
        return second
    return Charge(first.slot, first.uuid, *(max(a, b) for a, b in zip(first[2:], second[2:], strict=True)))


def _closes(pod: Pod, chip: AscendChip, segments: Sequence[Sequence[Written | Unread]], slots: dict[str, int]) -> str:
    for segment in segments:
        for one in segment:
            if isinstance(one, Unread) and one.name not in slots:
                return (
                    f"pod {pod.key}: annotation {keys.allocated(chip.common_word)} holds '{one.text[:64]}', which "
                    "cannot be read and names no device of the node; delete the pod"
                )
    return ""


def wire_text(assignment: Assignment) -> str:
    """The value of both device annotations: one segment per container, empty ones included (ascend 4.7)."""
    word, count = assignment.word, assignment.segments
    segments: list[list[Written]] = [[] for _ in range(count)]
    for container, uuid, memory, cores, _ in assignment.entries:
        segments[container].append(Written(uuid, word, memory, cores))
    return encode_segments(segments)


def take(cards: tuple[Card, ...], assignment: Assignment) -> tuple[Card, ...]:
    """The cards after *assignment* is in use on them; devices that are gone count nowhere."""
    return _changed(cards, assignment, 1)


def give_back(cards: tuple[Card, ...], assignment: Assignment) -> tuple[Card, ...]:
    """The cards after *assignment* is given back; undoes `take` exactly."""
    return _changed(cards, assignment, -1)


def _changed(cards: tuple[Card, ...], assignment: Assignment, sign: int) -> tuple[Card, ...]:
    after = list(cards)
    for charge in assignment.charges:
        slot = _slot(after, charge)
        if slot < 0:
            continue
        _, _, slots, memory, cores, ai_core, ai_cpu, cuts, unread = charge
        card = after[slot]
        after[slot] = Card(
            card.fixed,
            card.used_slots + sign * slots,
            card.used_memory + sign * memory,
            card.used_cores + sign * cores,
            card.used_ai_core + sign * ai_core,
            card.used_ai_cpu + sign * ai_cpu,
            card.cuts + sign * cuts,
            card.unread + sign * unread,
        )
    return tuple(after)


def _slot(cards: list[Card], charge: Charge) -> int:
    slot = charge.slot
    if 0 <= slot < len(cards) and cards[slot].fixed.uuid == charge.uuid:
        return slot
    return next((slot for slot, card in enumerate(cards) if card.fixed.uuid == charge.uuid), -1)


def room(cards: Sequence[Card]) -> NodeRoom:
    """What bounds need: cards that can take nothing more have no room."""
    idle = used = total = 0
    kinds: list[Kind] = []
    frees: list[int] = []
    spares: list[int] = []
    for card in cards:
        fixed, used_slots, used_memory = card.fixed, card.used_slots, card.used_memory
        used += used_memory
        total += fixed.memory
        if fixed.fault is not None or card.unread:
            continue
        if not used_slots:
            idle += 1
        if used_memory >= fixed.memory or used_slots >= fixed.slots:
            continue
        # What is left beside memory: AI CPUs, or AI cores if CPUs are unknown; percent of cores on a soft node.
        if fixed.soft:
            spare = max(fixed.cores, 100) - card.used_cores
        elif fixed.ai_cpu:
            spare = fixed.ai_cpu - card.used_ai_cpu
        else:
            spare = fixed.ai_core - card.used_ai_core
        kinds.append(fixed.kind)
        frees.append(fixed.memory - used_memory)
        spares.append(max(spare, 0))
    return NodeRoom(idle, used * 1_000_000 // total if total else 0, kinds, frees, spares)


def holes(cards: Sequence[Card]) -> tuple[Hole, ...]:
    """What is left of each chip to be sold: of its memory, and of cores (soft) or AI cores and AI CPUs (templates)."""
    found: list[Hole] = []
    for card in cards:
        fixed = card.fixed
        is_open = fixed.fault is None and not card.unread and card.used_slots < fixed.slots
        left = [(fixed.ai_core, card.used_ai_core), (fixed.ai_cpu, card.used_ai_cpu)]
        if fixed.soft:
            left = [(max(fixed.cores, 100), card.used_cores)]
        spare_pct = min([100, *[(total - used) * 100 // total for total, used in left if total]])
        found.append(Hole(fixed.kind, fixed.memory - card.used_memory if is_open else 0, fixed.memory, spare_pct))
    return tuple(found)


def overcommitted(cards: Sequence[Card]) -> tuple[str, ...]:
    """The cards that hold more than they have, in numbers."""
    found: list[str] = []
    for card in cards:
        fixed = card.fixed
        if fixed.fault is Reason.UNUSABLE:
            continue
        cores = max(cores_total(fixed, soft=fixed.soft), fixed.cores)
        for used, total, unit in (
            (card.used_memory, fixed.memory, "MiB"),
            (card.used_slots, fixed.slots, "shares"),
            (card.used_cores, cores, "% of its cores" if fixed.soft else "cores"),
            (card.used_ai_core, fixed.ai_core or card.used_ai_core, "AI cores"),
            (card.used_ai_cpu, fixed.ai_cpu or card.used_ai_cpu, "AI CPUs"),
        ):
            if used > total:
                found.append(f"{fixed.uuid} holds {used} {unit} of {total}")
    return tuple(found)


def tally(cards: Sequence[Card]) -> tuple[Tally, ...]:
    """Every card with its memory in use in MiB, for people."""
    return tuple(
        Tally(
            card=card.fixed.uuid,
            label=card.fixed.word,
            used=card.used_memory,
            total=card.fixed.memory,
            unit="MiB",
            cores_pct=card.used_cores if card.fixed.soft else None,
            note=card.fixed.problem or ("soft slicing" if card.fixed.soft else ""),
            mode="soft" if card.fixed.soft else "template",
            healthy=card.fixed.fault is None,
        )
        for card in cards
    )


def described(assignment: Assignment) -> tuple[CardShare, ...]:
    """What each entry holds of its chip, for people."""
    soft = assignment.soft
    return (
        *(
            CardShare(one.uuid, _share(one, soft=soft), one.memory_mib, one.cores if soft else None)
            for one in assignment.entries
        ),
        *(
            CardShare(one.uuid, "an entry that cannot be read: the whole chip")
            for one in assignment.charges
            if one.unread
        ),
    )


def _share(entry: Entry, *, soft: bool) -> str:
    share = f"{entry.memory_mib} MiB"
    if soft:
        return f"{share}, {entry.cores} % cores" if entry.cores else share
    return f"{share} as {entry.template}" if entry.template else f"{share}, the whole chip"
