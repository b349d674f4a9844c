"""The annotations that HAMi's device plugins share: how they are written, and what they say.

Source: protocol reference, hami 1.9, 2.5, 5.1, 5.2 and 8, ascend 4.7; every segment counts, init containers by their
peak, sidecars beside all others (HN-1, HN-2).
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from core import hami_lock
from core.errors import InvalidRequestError
from core.model import Pod
from core.port.cards import Held
from core.port.handoff import Stamp
from core.sharing import account
from core.sharing.account import Assignment, assigned
from core.sharing.card import Card
from core.wire import entries
from core.wire.entries import Unread, Written, encode_segments

_SEPARATOR: Final = ";"
# A plugin that is done writes 2^64-1; nothing that large is a time.
_TIMES_END: Final = 2**62


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
    finish: account.Finish | None = None,
    unread: Sequence[tuple[int, str]] = (),
    marks: tuple[str, ...] = (),
    devices_max: int = entries.DEVICES_MAX,
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
    found = account.listed(pod, cards, field, segments, places, finish=finish)
    count = max(len(segments), len(pod.init_containers) + len(pod.containers))
    assignment = assigned(count, found.entries, ending, marks, [*found.unread, *unread], is_started=pod.init_done)
    return Held(assignment=assignment, closes=found.closes)


def names_any(text: str) -> bool:
    """Return whether an assignment has any entry, readable or not."""
    return bool(text.replace(":", "").replace(_SEPARATOR, "").strip())


def decode_segments(text: str, field: str, devices_max: int = entries.DEVICES_MAX) -> list[list[Written | Unread]]:
    """Read an assignment; padding without a name is dropped, the rest stays.

    Raises:
        InvalidRequestError: as `entries.decode_segments`.
    """
    # Upstream skips what has no comma, and up to v2.5 wrote ``,,0,0`` for containers without a card.
    return [
        [one for one in segment if one.name and (isinstance(one, Written) or "," in one.text)]
        for segment in entries.decode_segments(text, field, devices_max)
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
