"""Assignments on the wire: what a pod holds, what the vGPU plugin is told, and which pod it could mistake for which.

Each container has a segment (S24), every entry counts (S2), MIG slices count by their size. The plugin compares the
devices left in all segments with what kubelet asks for one container (P1). So a Binding shows it the first container's
segment only; the others are kept back in an annotation of ours, and whenever the plugin has erased one, admission puts
the next in its place in the same write (`rotate`).

Source: protocol reference, nvidia 1.10, 2.1, 2.4 step 9, 2.8, 2.9, 3.6, 4.2.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Final, NamedTuple

from core.dialects.vgpu import keys
from core.dialects.vgpu.cards import cards_of
from core.dialects.vgpu.requests import group_of, marks_of, matched_rules, without_group
from core.dialects.vgpu.table import VgpuTable
from core.errors import InvalidRequestError
from core.model import Node, Pod
from core.names import MAX_POD_ANNOTATION_BYTES, MEMORY_UNIT, SEGMENT_QUEUE, VGPU_REGISTER
from core.port.cards import Held
from core.port.handoff import InFlight, Progress, Stamp
from core.settings import Tables
from core.sharing import wire
from core.sharing.card import MIG, Assignment, Card, Entry, assigned
from core.sharing.request import Request
from core.sharing.slices import UNKNOWN, Slice, profile_at
from core.sharing.wire import Unread, Written, entries, later
from core.units import MAX_INT32, parse_int64
from core.wire.reading import check_length
from core.wire.vgpu_register import decode_register

_MAX_UINT32: Final = 2**32 - 1
_FIELD: Final = f"annotation {keys.IDS}"
# What the plugin writes when it is done.
_DONE_TIME: Final = str(2**64 - 1)
# Dialect and version of what is kept back, then segments as in ``devices-to-allocate``, each at its container's place.
_QUEUE_HEAD: Final = "vgpu/1 "


def decode_pod_devices(text: str) -> tuple[tuple[Written | Unread, ...], ...]:
    """Read an assignment; an empty text has no segment. What cannot be read stays, as `Unread`.

    Raises:
        InvalidRequestError: longer than an annotation of ours may be.
    """
    if not text:
        return ()
    check_length(text, _FIELD)
    return tuple(tuple(entries(segment, _MAX_UINT32)) for segment in text.split(";"))


def decode_slice_id(text: str) -> Slice | None:
    """Read the slice in ``uuid[group-position]``; None if the text has no such form."""
    inner, closing, _ = text.partition("[")[2].partition("]")
    parts = inner.split("-")
    position = parse_int64(parts[1]) if closing and len(parts) == 2 else None
    return None if position is None else Slice(parts[0], position)


def held(pod: Pod, cards: Sequence[Card], tables: Tables) -> Held[Assignment] | None:
    """Return what bound *pod* holds by its annotations, whichever scheduler bound it; None if they name no card.

    An unreadable entry takes the whole card that it names. If it names no card of the node, the node is closed, because
    it may mean any card. A readable entry for a card that is gone does not count.
    """
    text = pod.annotations.get(keys.IDS)
    if text is None:
        return None
    try:
        segments = decode_pod_devices(text)
    except InvalidRequestError as error:
        return Held(assignment=Assignment(0, (), ()), closes=f"pod {pod.key}: {error}")
    if not any(segments):
        return None
    listed = wire.listed(pod, cards, _FIELD, segments, range(len(segments)), finish=_finish)
    marks = marks_of(group_of(pod), matched_rules(pod, tables))
    found = assigned(len(segments), listed.entries, marks=marks, unread=listed.unread)
    charges = [
        one if one.memory or one.cores else one._replace(marks=without_group(one.marks)) for one in found.charges
    ]
    return Held(assignment=found._replace(charges=tuple(charges)), closes=listed.closes)


def _finish(at: int, device: int, one: Written, entry: Entry, card: Card | None) -> tuple[Entry, bool]:
    if card is None:
        return entry, True
    if card.fixed.kind.mode != MIG:
        # A slice of a card that is not cut any more, or not yet again: it takes what it says, and nothing joins it.
        return entry._replace(slice=UNKNOWN) if one.name != entry.uuid else entry, True
    # On a MIG card only slices of its layouts can be counted; all else closes the card (S32).
    place = decode_slice_id(one.name)
    profile = profile_at(card.fixed.kind.layout, place) if place is not None else None
    if profile is None:
        return entry._replace(slice=UNKNOWN), True
    return entry._replace(charge=profile.charge, slice=place, profile=profile.name), True


def annotations(assignment: Assignment, stamp: Stamp, tables: Tables) -> Mapping[str, str]:
    """What the Binding must carry for the plugin to find this pod; later containers' segments are kept back."""
    # Segments up to the last container with a card (S24), parted by semicolons.
    text = wire.wire_text(assignment, "NVIDIA").removesuffix(";")
    first = next((place for place, segment in enumerate(text.split(";")) if segment), -1)
    shown, queue = _split(text, first)
    found = {
        keys.NODE: stamp.node,
        keys.TIME: str(stamp.order),
        keys.IDS: text,
        keys.TO_ALLOCATE: shown,
        keys.BIND_PHASE: keys.ALLOCATING,
        keys.BIND_TIME: str(stamp.now_s),
    }
    if queue:
        found[SEGMENT_QUEUE] = queue
    return found


def rotate(old: Mapping[str, str], new: Mapping[str, str]) -> Mapping[str, str | None]:
    """What a plugin's write from annotations *old* to *new* must carry besides; nothing unless it erased a segment.

    The next segment is shown and the queue shortened (None = to be removed) in that write. Asked again about its own
    answer, there is nothing to do. An erasure that comes a second time, late, does not take the next segment away.
    """
    queue = old.get(SEGMENT_QUEUE, "")
    if not queue.startswith(_QUEUE_HEAD) or new.get(SEGMENT_QUEUE) != queue:
        return {}
    before, after = old.get(keys.TO_ALLOCATE, ""), new.get(keys.TO_ALLOCATE)
    if after is None or max(map(len, (queue, before, after))) > MAX_POD_ANNOTATION_BYTES:
        return {}
    if not devices_left(before) or devices_left(after):
        return {}
    if after.count(";") < before.count(";"):
        # Segments stand at their container's place, so that this value belongs to a container before this one.
        return {keys.TO_ALLOCATE: before}
    waiting = queue.removeprefix(_QUEUE_HEAD)
    pieces = waiting.split(";")
    place = next((place for place, piece in enumerate(pieces) if devices_left(piece)), -1)
    if place < 0:
        return {}
    shown, left = _split(waiting, place)
    return {keys.TO_ALLOCATE: shown, SEGMENT_QUEUE: left or None}


def next_stamp(pods: Sequence[Pod], now_s: int) -> int:
    """Above the time of every pod of the node that has devices left to allocate, and above now."""
    open_pods = [one for one in pods if one.annotations.get(keys.TO_ALLOCATE) or one.annotations.get(SEGMENT_QUEUE)]
    return later([pod.annotations.get(keys.TIME, "") for pod in open_pods], now_s)


def confusable(request: Request) -> frozenset[Hashable]:
    """The plugin knows a pod only by how many devices are left to it."""
    return frozenset(_mark(ask.number) for ask in request.asks)


def in_flight(pod: Pod, tables: Tables) -> InFlight | None:
    """*pod* as the plugin sees it: a candidate while its annotations name a node and devices are left.

    A pod that has started or was served is done; what it has left, another pod could be given, so it is cleared. One
    that is deleted before keeps what it has left until it is gone: kubelet may be asking for it just now.
    """
    node = pod.annotations.get(keys.NODE, "")
    if not node:
        return None
    text, queue = pod.annotations.get(keys.TO_ALLOCATE, ""), pod.annotations.get(SEGMENT_QUEUE, "")
    unread = max(len(text), len(queue)) > MAX_POD_ANNOTATION_BYTES
    left = 0 if unread else devices_left(text)
    queued = () if unread else _queued(queue)
    rests = ((keys.TO_ALLOCATE, left or (unread and text)), (SEGMENT_QUEUE, queue))
    cleanup = {key: "" for key, rest in rests if rest} or None
    # What waits in the queue is asked for while the pod is still being admitted: it occupies from the beginning.
    marks: frozenset[Hashable] = frozenset(_mark(number) for number in (left, *queued) if number)
    phase = pod.annotations.get(keys.BIND_PHASE, "")
    if unread or phase == keys.FAILED or pod.finished:
        return InFlight(pod=pod.uid, progress=Progress.FAILED, confusable=marks, cleanup=cleanup, node=node)
    if phase == keys.SUCCESS or pod.started or not marks:
        return InFlight(pod=pod.uid, progress=Progress.DONE, confusable=frozenset(), cleanup=cleanup, node=node)
    left_over = None if pod.node_name else cleanup
    return InFlight(pod=pod.uid, progress=Progress.WAITING, confusable=marks, cleanup=left_over, node=node)


def retirement(pod: Pod) -> Mapping[str, str]:
    """What takes *pod* out of the candidates of a plugin that goes by time alone."""
    timed = keys.NODE in pod.annotations and pod.annotations.get(keys.TIME, _DONE_TIME) != _DONE_TIME
    return {keys.TIME: _DONE_TIME} if timed else {}


def devices_left(text: str) -> int:
    """How many devices the plugin counts in ``devices-to-allocate``, whether it can read them or not."""
    return sum(1 for segment in text.split(";") for piece in segment.split(":") if "," in piece)


def _split(text: str, place: int) -> tuple[str, str]:
    """(the segment at *place* alone, the queue of those behind it or ""), each segment where it stands in *text*."""
    pieces = text.split(";")
    behind = [piece if at > place else "" for at, piece in enumerate(pieces)]
    shown = ";" * place + pieces[place] if place >= 0 else text
    return shown, _QUEUE_HEAD + ";".join(behind) if any(behind) else ""


def _queued(queue: str) -> tuple[int, ...]:
    """How many devices each segment kept back has."""
    if not queue.startswith(_QUEUE_HEAD):
        return ()
    return tuple(devices_left(piece) for piece in queue.removeprefix(_QUEUE_HEAD).split(";"))


def _mark(devices: int) -> Hashable:
    return ("vgpu devices", devices)


# A driver reports some MiB more or less from one version to the next, never a fifth.
_MOST_IN_20: Final = 25
_LEAST_IN_20: Final = 16


class Scale(NamedTuple):
    """In which unit amounts of memory are written, kept beside them: it is the device plugin's, and may change.

    A plugin that starts with another factor registers its cards in another unit, while the pods that it served before
    keep their amounts as they are. Of cards in mode mig slices count, whatever the unit.

    factor: MiB per unit as configured; cards: uuid -> memory in the units of its register, where it is known.
    """

    factor: int
    cards: Mapping[str, int]


def scale_of(node: Node | None, cards: Sequence[Card], tables: Tables) -> Scale:
    """What amounts mean on *node*, by its register also where its plugin is away and it offers no *cards*."""
    if not cards and node is not None:
        cards = _registered(node, tables)
    known = {card.fixed.uuid: card.fixed.memory for card in cards if not card.fixed.kind.layout}
    return Scale(tables.of(VgpuTable).named.mib_per_unit, known)


def _registered(node: Node, tables: Tables) -> Sequence[Card]:
    try:
        return cards_of(decode_register(node.annotations.get(VGPU_REGISTER, ":")), tables.of(VgpuTable))
    except InvalidRequestError:
        return ()


def rescaled(assignment: Assignment, since: Scale, now: Scale) -> tuple[Scale, str]:
    """(the scale to keep beside *assignment*, counted by *since*; why it cannot be counted by *now*, or "")."""
    if since.factor != now.factor:
        return since, f"counts memory in units of {since.factor} MiB, and the configuration says {now.factor} MiB"
    alike = True
    for entry in assignment.entries:
        old, new = since.cards.get(entry.uuid), now.cards.get(entry.uuid)
        alike = alike and old == new
        if old and new and entry.memory and not _LEAST_IN_20 * old <= 20 * new <= _MOST_IN_20 * old:
            return since, f"has {entry.memory} of the {old} units that {entry.uuid} had, and it has {new} now"
    # One value for all pods of a node, where both say the same.
    return (now if alike else since), ""


def scale_told(assignment: Assignment, scale: Scale) -> dict[str, str]:
    """What the Binding carries of *scale*: the factor, and what each entry's card has in its register."""
    return {MEMORY_UNIT: _scale_text(assignment, scale)}


def _scale_text(assignment: Assignment, scale: Scale) -> str:
    memory = [str(scale.cards.get(entry.uuid, 0)) for entry in assignment.entries]
    return f"{scale.factor}:{','.join(memory)}"


def scale_read(pod: Pod, assignment: Assignment, now: Scale) -> Scale | None:
    """The scale that bound *pod* tells of, *now* if it says the same; None if it tells of none that can be read."""
    text = pod.annotations.get(MEMORY_UNIT, "")
    if not text or len(text) > MAX_POD_ANNOTATION_BYTES:
        return None
    if text == _scale_text(assignment, now):
        return now
    factor, _, rest = text.partition(":")
    figures = [_figure(piece) for piece in (factor, *rest.split(","))]
    if len(figures) != len(assignment.entries) + 1 or None in figures:
        return None
    first, *memory = (figure or 0 for figure in figures)
    return Scale(first, {one.uuid: amount for one, amount in zip(assignment.entries, memory, strict=True) if amount})


def _figure(text: str) -> int | None:
    value = int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else -1
    return value if 0 <= value <= MAX_INT32 else None
