"""The annotations that HAMi's device plugins share: how they are written, and what they say.

Source: protocol reference, hami 1.9, 2.5, 5.1, 5.2 and 8, ascend 4.7; every segment counts, init containers by their
peak, sidecars beside all others (HN-1, HN-2).
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from core import hami_lock
from core.errors import InvalidRequestError
from core.model import Pod
from core.port.cards import Held
from core.port.handoff import Stamp
from core.sharing.account import Assignment, Entry, assigned
from core.sharing.card import Card
from core.wire import entries
from core.wire.entries import Unread, Written, encode_segments

_SEPARATOR: Final = ";"


def wire_text(assignment: Assignment, card_type: str, whole: tuple[int, int] | None = None) -> str:
    """Return what HAMi's plugins read of *assignment*: one segment for each container, empty ones included.

    Args:
        assignment: what a pod gets.
        card_type: the type of cards that have none of their own in *assignment*.
        whole: the memory and cores of every entry, None for those in *assignment*.
    """
    segments: list[list[Written]] = [[] for _ in range(assignment.segments)]
    for one in assignment.entries:
        memory, cores = whole or (one.memory, one.cores)
        segments[one.container].append(Written(one.uuid, one.type or card_type, memory, cores))
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


# Completes an entry: its segment, its device there, what is written, the entry so far, and its card, if it is there.
# False: the entry does not say what it takes.
Finish = Callable[[int, int, Written, Entry, Card | None], tuple[Entry, bool]]


def held(
    pod: Pod,
    cards: Sequence[Card],
    key: str,
    counts: Collection[str],
    *,
    finish: Finish | None = None,
    unread: Sequence[tuple[int, str]] = (),
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
    """
    text = pod.annotations.get(key)
    if text is None or not text.replace(":", "").replace(_SEPARATOR, "").strip():
        return None
    field = f"annotation {key}"
    try:
        segments = decode_segments(text, field)
    except InvalidRequestError as error:
        return Held(assignment=Assignment(0, (), ()), closes=f"pod {pod.key}: {error}")
    if not any(segments):
        return None
    by_uuid = {card.fixed.uuid: slot for slot, card in reversed(tuple(enumerate(cards)))}
    places, ending = _places(pod, segments, counts)
    found: list[Entry] = []
    unknown: list[tuple[int, str]] = []
    closes = ""
    for at, segment in enumerate(segments):
        for device, one in enumerate(segment):
            uuid = one.name.partition("[")[0]
            slot = by_uuid.get(uuid, -1)
            if isinstance(one, Unread):
                if slot < 0 and cards:
                    told = f"'{one.text[:64]}', which cannot be read and names no card of the node; delete the pod"
                    closes = closes or f"pod {pod.key}: {field} holds {told}"
                unknown.append((slot, uuid))
                continue
            entry = Entry(slot, uuid, places[at], one.memory, one.cores, one.memory)
            if finish is not None:
                entry, is_known = finish(at, device, one, entry, cards[slot] if slot >= 0 else None)
                if not is_known:
                    unknown.append((slot, uuid))
            found.append(entry)
    # Shares of cards that are gone close nothing: whoever comes back is registered as it then is.
    count = max(len(segments), len(pod.init_containers) + len(pod.containers))
    assignment = assigned(count, found, ending, unread=[*unknown, *unread], is_started=pod.init_done)
    return Held(assignment=assignment, closes=closes)


def decode_segments(text: str, field: str) -> list[list[Written | Unread]]:
    """Read an assignment; padding without a name is dropped, the rest stays.

    Raises:
        InvalidRequestError: as `entries.decode_segments`.
    """
    # Upstream skips what has no comma, and up to v2.5 wrote ``,,0,0`` for containers without a card.
    return [
        [one for one in segment if one.name and _has_fields(one)] for segment in entries.decode_segments(text, field)
    ]


def _has_fields(one: Written | Unread) -> bool:
    return isinstance(one, Written) or "," in one.text


def _places(
    pod: Pod, segments: Sequence[Sequence[object]], counts: Collection[str]
) -> tuple[dict[int, int], frozenset[int]]:
    """Of which container of *pod* each segment is (hami 5.2), and which of those end before the others start."""
    inits, apps = len(pod.init_containers), len(pod.containers)
    ends = frozenset([at for at, one in enumerate(pod.init_containers) if not one.sidecar])
    plain = {at: at for at in range(len(segments))}
    if len(segments) == inits + apps:
        return plain, ends
    if len(segments) == apps or not inits:
        return {at: inits + at for at in range(len(segments))}, frozenset()
    asking = [
        at
        for at, one in enumerate((*pod.init_containers, *pod.containers))
        if any(one.amount(count) not in (None, "0") for count in counts)
    ]
    filled = [at for at, segment in enumerate(segments) if segment]
    if len(filled) == len(asking):
        return {**plain, **dict(zip(filled, asking, strict=True))}, ends
    return {at: inits + at for at in range(len(segments))}, frozenset()
