"""Annotations that assign cards, as HAMi's device plugins share them: how they are written, and what they say.

An entry is ``name,type,memory,cores`` followed by a colon. Each dialect defines the meaning of its fields.

Source: protocol reference, hami 1.9, 2.5, 5.1, 5.2 and 8, ascend 4.7; every segment counts, init containers by their
peak, sidecars beside all others (HN-1, HN-2).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from core import hami_lock
from core.errors import InvalidRequestError
from core.model import Pod
from core.port.cards import Held
from core.port.handoff import Stamp
from core.sharing.account import Assignment, Entry, assigned, record
from core.sharing.card import Card
from core.units import MAX_INT32
from core.wire.reading import check_length

_SEPARATOR: Final = ";"
# A plugin that is done writes 2^64-1; nothing that large is a time.
_TIMES_END: Final = 2**62
# A pod has no more containers with cards, and hardly one of them has more cards than a node.
DEVICES_MAX: Final = 512


class Written(NamedTuple):
    """One entry, in the terms and units of its writer."""

    name: str
    type: str
    memory: int
    cores: int


class Unread(NamedTuple):
    """One entry that is not empty but unreadable; name is its first field."""

    name: str
    text: str


def entries(segment: str, most: int) -> Iterator[Written | Unread]:
    """Yield the entries of one container; their figures are whole numbers up to *most*."""
    for piece in segment.split(":"):
        if piece.strip():
            yield _entry(piece, most)


def segments_of(text: str, field: str, devices_max: int = DEVICES_MAX) -> list[list[Written | Unread]]:
    """Read an assignment of one segment for each container, each closed by a semicolon.

    Raises:
        InvalidRequestError: longer than an annotation may be, or of more than *devices_max* devices.
    """
    check_length(text, field)
    if max(text.count(":"), text.count(_SEPARATOR)) > devices_max:
        raise InvalidRequestError(field, text, f"no more than {devices_max} devices of one pod are read")
    pieces = text.split(_SEPARATOR)
    if not pieces[-1].strip():
        pieces.pop()
    return [list(entries(piece, MAX_INT32)) for piece in pieces]


def encode_segments(segments: Iterable[Iterable[tuple[str, str, int, int]]]) -> str:
    """Return the text of an assignment, one segment for each container, empty ones included."""
    written = ["".join([f"{name},{kind},{memory},{cores}:" for name, kind, memory, cores in one]) for one in segments]
    return "".join([one + _SEPARATOR for one in written])


def _entry(piece: str, most: int) -> Written | Unread:
    name, *others = piece.split(",")
    if len(others) >= 3:
        memory, cores = _figure(others[1], most), _figure(others[2], most)
        if memory is not None and cores is not None:
            return Written(name, others[0], memory, cores)
    return Unread(name, piece)


def _figure(text: str, most: int) -> int | None:
    if text.isascii() and text.isdigit() and len(text) <= 64:
        value = int(text)
        return value if value <= most else None
    return None


# Completes an entry: its segment, its device there, what is written, the entry so far, and its card, if it is there.
# False: the entry does not say what it takes.
Finish = Callable[[int, int, Written, Entry, Card | None], tuple[Entry, bool]]


class Listed(NamedTuple):
    """The entries of an assignment; unread: (slot, uuid) of cards of which nobody knows what it takes.

    closes: as in `Held`.
    """

    entries: list[Entry]
    unread: list[tuple[int, str]]
    closes: str


def listed(
    pod: Pod,
    cards: Sequence[Card],
    field: str,
    segments: Sequence[Sequence[Written | Unread]],
    places: Sequence[int],
    *,
    finish: Finish | None = None,
) -> Listed:
    """Return what *segments* of *field* list, each for the container in *places*; *finish* completes an entry."""
    by_uuid = {card.fixed.uuid: slot for slot, card in reversed(tuple(enumerate(cards)))}
    found: list[Entry] = []
    unread: list[tuple[int, str]] = []
    closes = ""
    for at, segment in enumerate(segments):
        for device, one in enumerate(segment):
            uuid = one.name if one.name in by_uuid else one.name.partition("[")[0]
            slot = by_uuid.get(uuid, -1)
            if isinstance(one, Unread):
                if slot < 0 and cards:
                    told = f"'{one.text[:64]}', which cannot be read and names no card of the node; delete the pod"
                    closes = closes or f"pod {pod.key}: {field} holds {told}"
                unread.append((slot, uuid))
                continue
            memory = one.memory
            entry = record(Entry, (slot, uuid, places[at], memory, one.cores, memory, None, "", (), ""))
            if finish is not None:
                entry, is_known = finish(at, device, one, entry, cards[slot] if slot >= 0 else None)
                if not is_known:
                    unread.append((slot, uuid))
            # Shares of cards that are gone close nothing: whoever comes back is registered as it then is.
            found.append(entry)
    return record(Listed, (found, unread, closes))


def wire_text(assignment: Assignment, card_type: str, whole: tuple[int, int] | None = None) -> str:
    """Return what HAMi's plugins read of *assignment*: one segment for each container, empty ones included.

    Args:
        assignment: what a pod gets.
        card_type: the type of cards of which *assignment* tells none.
        whole: the memory and cores of every entry, None for those in *assignment*.
    """
    segments: list[list[Written]] = [[] for _ in range(assignment.segments)]
    for one in assignment.entries:
        memory, cores = whole or (one.memory, one.cores)
        segments[one.container].append(Written(one.name, one.told or card_type, memory, cores))
    return encode_segments(segments)


def bound(assigned: Sequence[str], text: str, stamp: Stamp) -> dict[str, str]:
    """Return what a Binding carries for HAMi's plugins: *text* by each key of *assigned*, and whom the lock is for."""
    now = str(stamp.now_s)
    return dict.fromkeys(assigned, text) | {
        hami_lock.NODE: stamp.node,
        hami_lock.TIME: now,
        hami_lock.BIND_TIME: now,
        hami_lock.BIND_PHASE: hami_lock.ALLOCATING,
    }


def later(times: Iterable[str], now: int) -> int:
    """Return the first time after *now* and all *times*, as written; what cannot be read as a time does not count."""
    latest = now
    for text in times:
        if text.isascii() and text.isdigit() and len(text) <= 19:
            time = int(text)
            if latest < time < _TIMES_END:
                latest = time
    return latest + 1


def held(
    pod: Pod,
    cards: Sequence[Card],
    key: str,
    counts: Collection[str],
    *,
    finish: Finish | None = None,
    unread: Sequence[tuple[int, str]] = (),
    marks: tuple[str, ...] = (),
    devices_max: int = DEVICES_MAX,
) -> Held[Assignment] | None:
    """Return what bound *pod* holds of *cards* by its annotation *key*, whoever bound it; None if it names no card.

    A card that the node does not have is kept and counts on none. An entry that cannot be read closes the card that it
    names, or the node if it names none.

    Args:
        pod: the pod.
        cards: those of its node.
        key: the annotation.
        counts: the resources by which its containers ask for cards.
        finish: completes an entry.
        unread: (slot, uuid) of further cards of which nobody knows what *pod* takes.
        marks: what *pod* puts on its cards.
        devices_max: of how many entries no assignment has more; a longer one closes the node.
    """
    text = pod.annotations.get(key)
    if text is None or not names_any(text):
        return None
    field = f"annotation {key}"
    try:
        segments = decode_segments(text, field, devices_max)
    except InvalidRequestError as error:
        return Held(assignment=Assignment(0, (), ()), closes=f"pod {pod.key}: {error}")
    if not any(segments):
        return None
    places, ending = _places(pod, segments, counts)
    found = listed(pod, cards, field, segments, places, finish=finish)
    count = max(len(segments), len(pod.init_containers) + len(pod.containers))
    assignment = assigned(count, found.entries, ending, marks, [*found.unread, *unread], is_started=pod.init_done)
    return Held(assignment=assignment, closes=found.closes)


def names_any(text: str) -> bool:
    """Return whether an assignment has any entry, readable or not."""
    return bool(text.replace(":", "").replace(_SEPARATOR, "").strip())


def decode_segments(text: str, field: str, devices_max: int = DEVICES_MAX) -> list[list[Written | Unread]]:
    """Read an assignment; padding without a name is dropped, the rest stays.

    Raises:
        InvalidRequestError: as `segments_of`.
    """
    # Upstream skips what has no comma, and up to v2.5 wrote ``,,0,0`` for containers without a card.
    return [
        [one for one in segment if one.name and (isinstance(one, Written) or "," in one.text)]
        for segment in segments_of(text, field, devices_max)
    ]


def _places(
    pod: Pod, segments: Sequence[Sequence[object]], counts: Collection[str]
) -> tuple[Sequence[int], frozenset[int]]:
    """Of which container of *pod* each segment is (hami 5.2), and which of those end before the others start."""
    inits, apps, number = len(pod.init_containers), len(pod.containers), len(segments)
    ends = frozenset([at for at, one in enumerate(pod.init_containers) if not one.sidecar])
    if number == inits + apps:
        return range(number), ends
    of_apps = range(inits, inits + number)
    if number == apps or not inits:
        return of_apps, frozenset()
    asking = [
        at
        for at, one in enumerate((*pod.init_containers, *pod.containers))
        if any(one.amount(count) not in (None, "0") for count in counts)
    ]
    filled = [at for at, segment in enumerate(segments) if segment]
    if len(filled) != len(asking):
        return of_apps, frozenset()
    moved = dict(zip(filled, asking, strict=True))
    return [moved.get(at, at) for at in range(number)], ends
