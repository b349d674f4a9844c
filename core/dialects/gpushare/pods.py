"""The pods of the share plugin: one amount for all containers, which get the same cards, and its assignment.

The plugin marks a pod as assigned after its first container and finds it no more for the others (O1). So a Binding says
in an annotation of ours how many containers come after the first, and admission takes the mark back, in the write that
sets it, until the last was served (`rotate`).

Source: protocol reference, nvidia 1.5, 2.2 steps 8 to 11, 2.9, 3.11, 3.12, 4.4, 4.5, 5.3, with 10.7 and O7 done as they
say.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final

from core import names, selection
from core.dialects.gpushare.cards import MEMORY, NUMBER, Mode, name_of
from core.errors import InvalidRequestError
from core.model import AnyPod, Container, Phase, Pod, most_at_once
from core.names import GPU_INDEX, SEGMENT_QUEUE
from core.port.cards import Held
from core.port.handoff import InFlight, Progress, Stamp
from core.port.refusals import Reason, Violation
from core.settings import Tables
from core.sharing.account import Assignment, Entry, assigned, later
from core.sharing.card import Card
from core.sharing.order import MUTEX
from core.sharing.request import (
    ANY_ORDER,
    Ask,
    Figures,
    Order,
    Request,
    cards_at_start,
    miscounted,
    places_of,
    selection_of,
)
from core.units import MAX_AMOUNT, parse_count, parse_int64, parse_memory
from core.wire.reading import check_length

_IDLE_CARDS: Final = Order(policies=(MUTEX,))


def amount_of(one: Container, resource: str) -> int:
    """Return what *one* asks of *resource*; 0 if nothing, or nothing that can be read."""
    return Figures(one, "container", []).read(resource, "CS101", maximum=MAX_AMOUNT) or 0


def amounts_of(pod: AnyPod, resource: str) -> tuple[int, ...]:
    """Return what each container of *pod* that asks for *resource* asks."""
    return tuple([amount for one in pod.containers if (amount := amount_of(one, resource))])


def total_of(pod: AnyPod, resource: str) -> int:
    """Return what *pod* takes of *resource* at most at once."""
    return most_at_once(pod, lambda one: amount_of(one, resource))


def request(pod: AnyPod, mode: Mode) -> Request | tuple[Violation, ...] | None:
    """Return what *pod* asks; None if nothing; violations if it cannot be placed, or not be served as asked."""
    asked = readable_request(pod, mode)
    if not isinstance(asked, Request):
        return asked
    violations = cards_at_start(pod, mode.resource, lambda one: amount_of(one, mode.resource))
    number, indices = asked.asks[0].number, asked.selection.indices
    if mode is NUMBER and indices and len(indices) != number:
        violations.append(miscounted(pod, "exactly", mode.resource, number))
    return tuple(violations) or asked


def readable_request(pod: AnyPod, mode: Mode) -> Request | tuple[Violation, ...] | None:
    """Return what *pod* asks, as upstream reads it; None if nothing; violations if that cannot be read."""
    violations: list[Violation] = []
    for place in places_of(pod, violations):
        place.figures.read(mode.resource, "CS101", parse=parse_count if mode is NUMBER else parse_memory)
    total = total_of(pod, mode.resource)
    if violations or not total:
        return tuple(violations) or None
    wishes = {key: pod.annotations[key] for key in names.PLACE_WISHES if key in pod.annotations}
    # These cards have no ids.
    chosen = selection_of(wishes, "", "", violations).without(Reason.UUID)
    if violations:
        return tuple(violations)
    parts = amounts_of(pod, mode.resource)
    number, memory, order = (total, 1, _IDLE_CARDS) if mode is NUMBER else (1, total, ANY_ORDER)
    ask = Ask(0, number, memory, percent=0, cores=0, parts=parts)
    return Request((ask,), segments=max(1, len(parts)), selection=chosen, order=order)


def unheard_ids(pod: AnyPod) -> frozenset[str]:
    """Return the ids among the cards that *pod* avoids, which the plugin's nodes do not know."""
    try:
        return selection.avoided(pod.annotations.get(names.AVOIDED_CARDS, ""), "")[0]
    except InvalidRequestError:
        return frozenset()


def decode_gpu_index(text: str) -> list[int | None]:
    """Read ``gpu-index``, None for a piece that is no number; blanks are not allowed for, as upstream does not.

    Raises:
        InvalidRequestError: longer than an annotation of ours may be.
    """
    check_length(text, f"annotation {GPU_INDEX}")
    return [parse_int64(piece) for piece in text.split(",")]


def encode_gpu_index(indices: Iterable[int]) -> str:
    """Write card indices in the given order."""
    return ",".join(map(str, indices))


def held(pod: Pod, cards: Sequence[Card], mode: Mode) -> Held[Assignment] | None:
    """Return what bound *pod* holds by its ``gpu-index``; on a node without cards only if it asks in *mode*.

    On the cards of one mode a pod of the other is counted too, which then closes them: see `core.ledger`. A piece that
    cannot be read may mean any card: the rest counts, and the node is closed. A card that is named twice holds the pod
    once.
    """
    text = pod.annotations.get(GPU_INDEX)
    if not text:
        return None
    memory, number = total_of(pod, MEMORY.resource), total_of(pod, NUMBER.resource)
    if not (memory if mode is MEMORY else number) and not (cards and (memory or number)):
        return None
    containers = max(1, len(amounts_of(pod, MEMORY.resource)) or len(amounts_of(pod, NUMBER.resource)))
    try:
        found = decode_gpu_index(text)
    except InvalidRequestError as error:
        return Held(assignment=Assignment(containers, (), ()), closes=f"pod {pod.key}: {error}")
    charge = memory if mode is MEMORY else 1
    # A node lists all of its cards, so an index is a slot.
    indices = sorted({index for index in found if index is not None})
    entries = [Entry(index, name_of(index), 0, charge, 0, charge) for index in indices]
    closes = f"pod {pod.key}: annotation {GPU_INDEX} is '{text[:64]}', which may mean any card; delete the pod"
    return Held(assignment=assigned(containers, entries), closes=closes if None in found else "")


PREDICATE_TIME: Final = "volcano.sh/predicate-time"
ASSIGNED: Final = "volcano.sh/gpu-assigned"
_NS_PER_S: Final = 1_000_000_000
_ADMISSION_ERROR: Final = "UnexpectedAdmissionError"
# Dialect and version, then how many containers are to be served after the present one.
_QUEUE_HEAD: Final = "gpushare/1 "
_OPEN: Final = "false"


def annotations(assignment: Assignment, stamp: Stamp, tables: Tables) -> Mapping[str, str]:
    """What the Binding must carry: the cards, and the time that orders pods, in nanoseconds."""
    indices = [one.slot for one in assignment.entries]
    found = {GPU_INDEX: encode_gpu_index(indices), PREDICATE_TIME: str(stamp.order)}
    if assignment.segments > 1:
        found[SEGMENT_QUEUE] = f"{_QUEUE_HEAD}{assignment.segments - 1}"
    return found


def rotate(old: Mapping[str, str], new: Mapping[str, str]) -> Mapping[str, str | None]:
    """What a plugin's write from annotations *old* to *new* must carry besides; nothing unless it marks the pod.

    The mark is taken back and one container less is counted (None = to be removed) in that write. Asked again about
    its own answer, there is nothing to do.
    """
    queue = old.get(SEGMENT_QUEUE, "")
    if not queue.startswith(_QUEUE_HEAD) or new.get(SEGMENT_QUEUE) != queue:
        return {}
    if old.get(ASSIGNED, _OPEN) != _OPEN or new.get(ASSIGNED, _OPEN) == _OPEN:
        return {}
    text = queue.removeprefix(_QUEUE_HEAD)
    left = int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else 0
    if not left:
        return {}
    return {ASSIGNED: _OPEN, SEGMENT_QUEUE: f"{_QUEUE_HEAD}{left - 1}" if left > 1 else None}


def next_stamp(pods: Sequence[Pod], now_s: int) -> int:
    """Above the time of every pod of the node that still waits for the plugin, and above now, in nanoseconds."""
    return later([pod.annotations.get(PREDICATE_TIME, "") for pod in pods if not _is_assigned(pod)], now_s * _NS_PER_S)


def _is_assigned(pod: Pod) -> bool:
    """Whether the plugin has answered for *pod*."""
    return pod.annotations.get(ASSIGNED, _OPEN) != _OPEN


def marks(resource: str, amounts: Sequence[int]) -> frozenset[Hashable]:
    """Return the key by which the plugin could confuse pods: the exact amount of each container."""
    return frozenset([(resource, amount) for amount in amounts])


def in_flight(pod: Pod, resource: str) -> InFlight | None:
    """*pod* as the plugin sees it: pending on a node, not yet assigned; by every amount of its containers."""
    amounts = amounts_of(pod, resource)
    if not amounts or not pod.node_name:
        return None
    if pod.finished or pod.status_reason == _ADMISSION_ERROR:
        # The plugin passes over such pods by itself: there is nothing to clear.
        return InFlight(pod=pod.uid, progress=Progress.FAILED, confusable=frozenset())
    if _is_assigned(pod) or pod.started or pod.phase is not Phase.PENDING:
        return InFlight(pod=pod.uid, progress=Progress.DONE, confusable=frozenset())
    # Also while it is being deleted: kubelet may be asking for it just now, and the plugin, which passes over it, would
    # serve the next pod of that amount in its place.
    return InFlight(pod=pod.uid, progress=Progress.WAITING, confusable=marks(resource, amounts))
