"""Assignments on the wire: what a pod holds, and what a Binding says.

Source: protocol reference, ascend 4.7, 5.1, 5.2, 5.4; every segment counts (H-1), init containers by their peak.
"""

from collections.abc import Collection, Sequence
from typing import Final

from core.dialects.ascend_hami import keys
from core.dialects.ascend_hami.cards import WHOLE_CHIP, chips_of, trim
from core.dialects.ascend_hami.requests import is_soft, marks_of
from core.dialects.ascend_hami.table import AscendChip
from core.errors import InvalidRequestError
from core.model import Pod
from core.port.cards import Held
from core.sharing.account import Assignment, Charge, Entry, assigned
from core.sharing.card import Card
from core.tables import Tables
from core.wire.entries import Unread, Written, decode_segments

# No pod has more of one type: a node has 16 chips, and hardly a pod has eight containers that use all of them.
_DEVICES_MAX: Final = 128


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
        some = _of_chip(pod, segments, chip, slots)
        count = max(count, len(segments))
        entries += some.entries
        charges += some.charges
        closes = closes or (_closes(pod, chip, segments, slots) if cards else "")
    closes = closes or _unnamed(pod, words, tables)
    word = found[0][0].common_word if found else min(words)
    assignment = Assignment(count, tuple(entries), tuple(sorted(charges)), word)
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


def _of_chip(
    pod: Pod, segments: Sequence[Sequence[Written | Unread]], chip: AscendChip, slots: dict[str, int]
) -> Assignment:
    """What the entries of one chip type take: the peak of what runs together (ascend 5.4)."""
    soft = is_soft(pod)
    entries: list[Entry] = []
    unread: list[tuple[int, str]] = []
    for container, segment in enumerate(segments):
        for one in segment:
            slot = slots.get(one.name, -1)
            if isinstance(one, Unread):
                unread.append((slot, one.name))
                continue
            # What an entry stands for: the memory that it books, and the template that the plugin was told with it.
            entry = Entry(slot, one.name, container, one.memory, one.cores, one.memory)
            if not soft:
                cut = trim(chip, one.memory)
                entry = entry._replace(profile=cut.name if cut else WHOLE_CHIP, counted=cut.counted if cut else ())
            entries.append(entry)
    return assigned(len(segments), entries, _initial(pod, segments), marks_of(soft=soft), unread)


def _initial(pod: Pod, segments: Sequence[Sequence[Written | Unread]]) -> frozenset[int]:
    """The positions of init containers that end; none where segments do not stand for all containers (VC)."""
    inits = pod.init_containers
    if not inits or len(segments) != len(inits) + len(pod.containers):
        return frozenset()
    return frozenset(position for position, one in enumerate(inits) if not one.sidecar)


def _closes(pod: Pod, chip: AscendChip, segments: Sequence[Sequence[Written | Unread]], slots: dict[str, int]) -> str:
    for segment in segments:
        for one in segment:
            if isinstance(one, Unread) and one.name not in slots:
                return (
                    f"pod {pod.key}: annotation {keys.allocated(chip.common_word)} holds '{one.text[:64]}', which "
                    "cannot be read and names no device of the node; delete the pod"
                )
    return ""
