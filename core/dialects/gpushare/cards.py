"""The cards of a node under the share plugin, and what is in use on them; the same for both of its modes."""

from collections.abc import Sequence
from typing import NamedTuple

from core.dialects.gpushare.grammar import (
    MEMORY_RESOURCE,
    NUMBER_RESOURCE,
    Capacity,
    decode_gpu_index,
    distinct,
    readable_amounts,
    readable_total,
)
from core.errors import InvalidRequestError
from core.model import Pod
from core.names import GPU_INDEX
from core.port.cards import Held
from core.port.refusals import Reason


class Kind(NamedTuple):
    """What cards have in common that answer alike: protocol, and memory in the plugin's unit."""

    mode: str
    memory: int


class Card(NamedTuple):
    """One card by its index, with how much of its memory and how many pods are on it.

    memory and used_memory are in the plugin's unit (MiB unless its factor says otherwise); fault: None if usable.
    """

    position: int
    kind: Kind
    memory: int
    fault: Reason | None
    used_memory: int = 0
    pods: int = 0

    @property
    def title(self) -> str:
        """How people are told of the card."""
        return f"GPU {self.position}"


class Assignment(NamedTuple):
    """The cards of one pod by index, ascending, and the memory it takes of each of them.

    containers: how many containers the plugin must serve before the pod has all that it asked for.
    """

    indices: tuple[int, ...]
    memory: int
    containers: int = 1


def unit_of(reason: Reason) -> str:
    """What a refused card is told in, beside amounts: its place among the node's cards."""
    return "position" if reason is Reason.INDEX else ""


def cards_of(capacity: Capacity, mode: str) -> tuple[Card, ...]:
    """The cards of a node, nothing in use; unhealthy ones are there to be told of, not to be used."""
    memory = capacity.memory or 0
    kind = Kind(mode, memory)
    return tuple(
        Card(index, kind, memory, Reason.UNHEALTHY if index in capacity.unhealthy else None)
        for index in range(capacity.cards)
    )


def held(pod: Pod, cards: Sequence[Card], resource: str) -> Held[Assignment] | None:
    """What bound *pod* holds by its ``gpu-index``; on a node without cards only if it asks for *resource*.

    On the cards of one mode a pod of the other is counted too, which then closes them: see `core.ledger`. A piece that
    cannot be read may mean any card: the rest counts, and the node is closed (nvidia 10.7).
    """
    text = pod.annotations.get(GPU_INDEX)
    if not text:
        return None
    memory, number = readable_total(pod, MEMORY_RESOURCE), readable_total(pod, NUMBER_RESOURCE)
    asked = {MEMORY_RESOURCE: memory, NUMBER_RESOURCE: number}
    if not asked[resource] and not (cards and (memory or number)):
        return None
    containers = max(1, len(readable_amounts(pod, MEMORY_RESOURCE)) or len(readable_amounts(pod, NUMBER_RESOURCE)))
    try:
        found = decode_gpu_index(text)
    except InvalidRequestError as error:
        return Held(assignment=Assignment((), memory, containers), closes=f"pod {pod.key}: {error}")
    closes = f"pod {pod.key}: annotation {GPU_INDEX} is '{text[:64]}', which may mean any card; delete the pod"
    return Held(
        assignment=Assignment(distinct(found.indices), memory, containers),
        closes=closes if found.unreadable else "",
    )


def take(cards: tuple[Card, ...], assignment: Assignment) -> tuple[Card, ...]:
    """The cards after *assignment* is in use on them; indices that do not exist count nowhere."""
    return _moved(cards, assignment, 1)


def give_back(cards: tuple[Card, ...], assignment: Assignment) -> tuple[Card, ...]:
    """The cards after *assignment* is given back; undoes `take` exactly."""
    return _moved(cards, assignment, -1)


def _moved(cards: tuple[Card, ...], assignment: Assignment, sign: int) -> tuple[Card, ...]:
    after = list(cards)
    for index in assignment.indices:
        # A node lists all its cards, so that an index is a place in the tuple.
        if 0 <= index < len(after):
            position, kind, memory, fault, used_memory, pods = after[index]
            after[index] = Card(position, kind, memory, fault, used_memory + sign * assignment.memory, pods + sign)
    return tuple(after)
