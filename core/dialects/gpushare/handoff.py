"""What the share plugin is told, and which pod it could mistake for which.

The plugin marks a pod as assigned after its first container and finds it no more for the others (O1). So a Binding says
in an annotation of ours how many containers come after the first, and admission takes the mark back, in the write that
sets it, until the last was served (`rotate`).

Source: protocol reference, nvidia 2.2 steps 8 to 11, 2.9, 5.3.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Final

from core.dialects.gpushare.cards import Assignment
from core.dialects.gpushare.grammar import ASSIGNED, PREDICATE_TIME, amount_of, encode_gpu_index
from core.errors import InvalidRequestError
from core.model import Container, Phase, Pod
from core.names import GPU_INDEX, SEGMENT_QUEUE
from core.port.handoff import InFlight, Progress, Stamp

_TIMES_END: Final = 2**62
_NS_PER_S: Final = 1_000_000_000
_ADMISSION_ERROR: Final = "UnexpectedAdmissionError"
# Dialect and version, then how many containers are to be served after the present one.
_QUEUE_HEAD: Final = "gpushare/1 "
_OPEN: Final = "false"


def annotations(assignment: Assignment, stamp: Stamp) -> Mapping[str, str]:
    """What the Binding must carry: the cards, and the time that orders pods, in nanoseconds."""
    found = {GPU_INDEX: encode_gpu_index(assignment.indices), PREDICATE_TIME: str(stamp.order)}
    if assignment.containers > 1:
        found[SEGMENT_QUEUE] = f"{_QUEUE_HEAD}{assignment.containers - 1}"
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
    latest = now_s * _NS_PER_S
    for pod in pods:
        text = pod.annotations.get(PREDICATE_TIME, "")
        if text.isascii() and text.isdigit() and len(text) <= 19 and not is_assigned(pod):
            time = int(text)
            if latest < time < _TIMES_END:
                latest = time
    return latest + 1


def is_assigned(pod: Pod) -> bool:
    """Whether the plugin has answered for *pod*."""
    return pod.annotations.get(ASSIGNED, _OPEN) != _OPEN


def mark(resource: str, amount: int) -> Hashable:
    """What the plugin knows a container by: the exact amount it asks for."""
    return (resource, amount)


def in_flight(pod: Pod, resource: str) -> InFlight | None:
    """*pod* as the plugin sees it: pending on a node, not yet assigned; by every amount of its containers."""
    amounts = {amount for one in pod.containers if (amount := _amount(one, resource)) > 0}
    if not amounts or not pod.node_name:
        return None
    if pod.finished or pod.status_reason == _ADMISSION_ERROR:
        # The plugin passes over such pods by itself: there is nothing to clear.
        return InFlight(pod=pod.uid, progress=Progress.FAILED, confusable=frozenset())
    if is_assigned(pod) or pod.started or pod.phase is not Phase.PENDING:
        return InFlight(pod=pod.uid, progress=Progress.DONE, confusable=frozenset())
    # Also while it is being deleted: kubelet may be asking for it just now, and the plugin, which passes over it, would
    # serve the next pod of that amount in its place.
    marks = frozenset(mark(resource, amount) for amount in amounts)
    return InFlight(pod=pod.uid, progress=Progress.WAITING, confusable=marks)


def _amount(container: Container, resource: str) -> int:
    try:
        return amount_of(container, resource)
    except InvalidRequestError:
        return 0
