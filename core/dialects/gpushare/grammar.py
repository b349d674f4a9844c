"""What both modes of the share plugin have in common on the wire: annotations, card indices, totals of pods.

Source: protocol reference, nvidia 1.5, 2.2, 2.3, 4.4, 4.5, with S31 and 10.7 done as they say.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from core import selection
from core.errors import InvalidRequestError
from core.model import AnyPod, Container, Node, most_at_once
from core.names import AVOIDED_CARDS, GPU_INDEX, GPU_UNHEALTHY, MAX_POD_ANNOTATION_BYTES, WISHED_INDICES
from core.port.refusals import Violation
from core.selection import ANY_CARD, CardSelection
from core.units import MAX_AMOUNT, MAX_INT32, parse_amount, parse_count, parse_int64, unit_already
from core.warnings import AdmissionWarning, no_effect
from core.wire.reading import check_length

MEMORY_RESOURCE: Final = "volcano.sh/gpu-memory"
NUMBER_RESOURCE: Final = "volcano.sh/gpu-number"
PREDICATE_TIME: Final = "volcano.sh/predicate-time"
ASSIGNED: Final = "volcano.sh/gpu-assigned"
ASSIGNMENT_KEYS: Final = frozenset({GPU_INDEX, PREDICATE_TIME, ASSIGNED})

# No machine has more cards; a capacity beyond it is a mistake that would cost work.
MAX_CARDS: Final = 1024


class GpuIndex(NamedTuple):
    """A list of card indices as read; unreadable = at least one piece was no number."""

    indices: tuple[int, ...]
    unreadable: bool


class Capacity(NamedTuple):
    """What a node says of its cards: how many, memory of each in the plugin's unit, indices that are unhealthy.

    memory is None where the node never ran the plugin's memory mode.
    """

    cards: int
    memory: int | None
    unhealthy: frozenset[int]

    @property
    def sold_by(self) -> str:
        """The resource by which its cards are asked for: where there is memory to share, they are not sold whole."""
        return MEMORY_RESOURCE if self.memory else NUMBER_RESOURCE


class Request(NamedTuple):
    """What a pod asks of one resource, for all containers together; amounts: of each of them that asks."""

    total: int
    amounts: tuple[int, ...]
    selection: CardSelection = ANY_CARD


def unit_of(request: Request, unit: str) -> str:
    """*unit* as people are told of it: what several containers of one pod ask is counted together."""
    return f"{unit} in all" if len(request.amounts) > 1 else unit


def relaxed(request: Request, amount: int) -> Request | None:
    """*request* for *amount* in all, none of its containers left without; None where there is less than one for each.

    How people part it among the containers is their business: it is placed as one.
    """
    left = len(request.amounts)
    if amount < left:
        return None
    amounts: list[int] = []
    for asked in sorted(request.amounts):
        amounts.append(min(asked, (amount - sum(amounts)) // left))
        left -= 1
    return request._replace(total=sum(amounts), amounts=tuple(amounts))


def decode_gpu_index(text: str) -> GpuIndex:
    """Read ``gpu-index``; blanks are not allowed for, as upstream does not.

    Raises:
        InvalidRequestError: longer than an annotation of ours may be.
    """
    check_length(text, f"annotation {GPU_INDEX}")
    found = [parse_int64(piece) for piece in text.split(",")]
    return GpuIndex(tuple(index for index in found if index is not None), None in found)


def encode_gpu_index(indices: Iterable[int]) -> str:
    """Write card indices in the given order."""
    return ",".join(map(str, indices))


def decode_unhealthy(text: str) -> frozenset[int]:
    """Read ``gpu-unhealthy-ids``; pieces are trimmed (S31), those that are no numbers name no card."""
    found = (parse_int64(piece.strip()) for piece in set(text[:MAX_POD_ANNOTATION_BYTES].split(",")))
    return frozenset(index for index in found if index is not None)


def capacity_of(node: Node) -> Capacity | None:
    """What *node* says of its cards; None if it has none.

    Raises:
        InvalidRequestError: a figure is no quantity, negative, or too large.
    """
    text = node.capacity.get(NUMBER_RESOURCE)
    if text is None:
        return None
    cards = parse_count(text, f"capacity {NUMBER_RESOURCE}", MAX_CARDS)
    if not cards:
        return None
    memory = node.capacity.get(MEMORY_RESOURCE)
    return Capacity(
        cards=cards,
        memory=None if memory is None else parse_amount(memory, f"capacity {MEMORY_RESOURCE}") // cards,
        unhealthy=decode_unhealthy(node.annotations.get(GPU_UNHEALTHY, "")),
    )


def amount_of(container: Container, resource: str) -> int:
    """What *container* asks of *resource*, limits before requests; 0 if nothing.

    Raises:
        InvalidRequestError: the figure is no whole number from 0 to 2^63-1.
    """
    place, text = "limit", container.limits.get(resource)
    if text is None:
        place, text = "request", container.requests.get(resource)
    return 0 if text is None else parse_count(text, f'container "{container.name}": {place} {resource}', MAX_AMOUNT)


def total_of(pod: AnyPod, resource: str) -> int:
    """What *pod* takes of *resource* at most at once.

    Raises:
        InvalidRequestError: a figure is no whole number from 0 to 2^63-1.
    """
    total = most_at_once(pod, lambda one: amount_of(one, resource))
    if total > MAX_AMOUNT:
        raise InvalidRequestError(f"containers: {resource}", str(total), f"ask for no more than {MAX_AMOUNT} in all")
    return total


def readable_request(pod: AnyPod, resource: str) -> Request | None:
    """What *pod* asks of *resource*, its containers as many as they are; None if nothing.

    Raises:
        InvalidRequestError: a figure or a list of cards cannot be read.
    """
    total = total_of(pod, resource)
    if not total:
        return None
    for one in pod.containers if resource == MEMORY_RESOURCE and total > MAX_INT32 else ():
        text = one.amount(resource) or ""
        if text.endswith("i"):
            raise InvalidRequestError(f'container "{one.name}": limit {resource}', text, unit_already(text))
    amounts = tuple(amount for one in pod.containers if (amount := amount_of(one, resource)))
    return Request(total, amounts, wish_of(pod.annotations))


def readable_total(pod: AnyPod, resource: str) -> int:
    """As `total_of`, with what cannot be read as 0; for pods that run already."""
    try:
        return total_of(pod, resource)
    except InvalidRequestError:
        return 0


def readable_amounts(pod: AnyPod, resource: str) -> tuple[int, ...]:
    """What each container of *pod* that asks for *resource* asks, with what cannot be read left out."""
    found: list[int] = []
    for one in pod.containers:
        try:
            found.append(amount_of(one, resource))
        except InvalidRequestError:
            continue
    return tuple(amount for amount in found if amount)


def unservable(pod: AnyPod, resource: str) -> tuple[Violation, ...]:
    """What the plugin cannot serve: init containers (O7)."""
    return tuple(
        Violation(
            code="CS205",
            field=f'init container "{one.name}"',
            found="",
            remedy=f"ask for {resource} in a normal container; init containers get no card",
        )
        for one in pod.init_containers
        if amount_of(one, resource)
    )


def wish_of(annotations: Mapping[str, str]) -> CardSelection:
    """The cards that the user wants or wants left alone, by index.

    Raises:
        InvalidRequestError: one of the lists cannot be read.
    """
    wished, left = annotations.get(WISHED_INDICES), annotations.get(AVOIDED_CARDS)
    if wished is None and left is None:
        return ANY_CARD
    indices = selection.decode_indices(wished or "", f"annotation {WISHED_INDICES}")
    _, avoided = selection.avoided(left or "", f"annotation {AVOIDED_CARDS}")
    return CardSelection(indices=indices, avoided_indices=avoided) if indices or avoided else ANY_CARD


def violation_of(error: InvalidRequestError, code: str) -> Violation:
    """*error* as what is wrong with a pod."""
    return Violation(code=code, field=error.field, found=error.found, remedy=error.remedy)


def distinct(indices: Sequence[int]) -> tuple[int, ...]:
    """*indices* ascending, each once: a card named twice holds the pod once."""
    return tuple(sorted(set(indices)))


def warnings(pod: AnyPod) -> Iterator[AdmissionWarning]:
    """CS116: cards to avoid by id, where the plugin knows cards by position alone."""
    try:
        ids, _ = selection.avoided(pod.annotations.get(AVOIDED_CARDS, ""), "")
    except InvalidRequestError:
        return
    if ids:
        why = "these nodes know their cards by position, not by id"
        yield no_effect(f"annotation {AVOIDED_CARDS}", ", ".join(sorted(ids)), why, "write positions such as '0,2'")
