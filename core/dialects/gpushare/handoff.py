"""What the share plugin is told, and which pod it could mistake for which.

The plugin marks a pod as assigned after its first container and finds it no more for the others (O1). So a Binding says
in an annotation of ours how many containers come after the first, and admission takes the mark back, in the write that
sets it, until the last was served (`rotate`).

Source: protocol reference, nvidia 2.2 steps 8 to 11, 2.9, 5.3.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Final

from core.dialects.gpushare.requests import amounts_of
from core.dialects.gpushare.usage import encode_gpu_index
from core.model import Phase, Pod
from core.names import GPU_INDEX, SEGMENT_QUEUE
from core.port.handoff import InFlight, Progress, Stamp
from core.sharing.account import Assignment
from core.sharing.handoff import later
from core.sharing.request import Request

PREDICATE_TIME: Final = "volcano.sh/predicate-time"
ASSIGNED: Final = "volcano.sh/gpu-assigned"
_NS_PER_S: Final = 1_000_000_000
_ADMISSION_ERROR: Final = "UnexpectedAdmissionError"
# Dialect and version, then how many containers are to be served after the present one.
_QUEUE_HEAD: Final = "gpushare/1 "
_OPEN: Final = "false"


def annotations(assignment: Assignment, stamp: Stamp) -> Mapping[str, str]:
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


def confusable(request: Request, resource: str) -> frozenset[Hashable]:
    """What the plugin could mistake a pod with *request* by: the exact amount of a container."""
    return _marks(resource, request.asks[0].parts)


def _marks(resource: str, amounts: Sequence[int]) -> frozenset[Hashable]:
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
    return InFlight(pod=pod.uid, progress=Progress.WAITING, confusable=_marks(resource, amounts))
