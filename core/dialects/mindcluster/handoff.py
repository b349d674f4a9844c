"""What MindCluster's device plugin is told, and which pod it could mistake for which.

The plugin knows a pod by its AI cores alone and serves the one with the smallest time. Source: ascend 2.3 steps 5 to
11, 3.8, D-10.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Final

from core.dialects.mindcluster import keys
from core.dialects.mindcluster.chips import Assignment
from core.dialects.mindcluster.holding import decode_assigned, encode_assigned
from core.dialects.mindcluster.requests import cores_of
from core.errors import InvalidRequestError
from core.model import Container, Pod
from core.port.handoff import InFlight, Progress, Stamp
from core.sharing.handoff import later

_NS_PER_S: Final = 1_000_000_000


def annotations(assignment: Assignment, stamp: Stamp) -> Mapping[str, str]:
    """What the Binding must carry: chips and template, and the time that orders pods, in nanoseconds."""
    return {keys.ASSIGNED: encode_assigned(assignment), keys.PREDICATE_TIME: str(stamp.order)}


def next_stamp(pods: Sequence[Pod], now_s: int) -> int:
    """Above the time of every pod of the node that still waits for the plugin, and above now, in nanoseconds."""
    waiting = [pod.annotations for pod in pods if keys.ASSIGNED in pod.annotations]
    return later([notes.get(keys.PREDICATE_TIME, "") for notes in waiting], now_s * _NS_PER_S)


def mark(cores: int) -> Hashable:
    """What the plugin knows a pod by."""
    return (keys.CORES, cores)


def in_flight(pod: Pod) -> InFlight | None:
    """*pod* as the plugin sees it: a candidate while it is annotated and its time is not overwritten."""
    if not pod.node_name or keys.ASSIGNED not in pod.annotations:
        return None
    cores = {found for one in pod.containers if (found := _cores(one)) > 0}
    if not cores:
        return None
    if pod.finished:
        # The plugin passes over it by itself: there is nothing to clear.
        return InFlight(pod=pod.uid, progress=Progress.FAILED, confusable=frozenset())
    served = pod.annotations.get(keys.PREDICATE_TIME) == keys.SERVED
    if served or pod.started or pod.annotations.get(keys.REAL):
        # One that runs although its time was never overwritten could still be served for another pod.
        cleanup = None if served else {keys.PREDICATE_TIME: keys.SERVED}
        return InFlight(pod=pod.uid, progress=Progress.DONE, confusable=frozenset(), cleanup=cleanup)
    # Also while it is being deleted: kubelet may be asking for it just now, and the plugin, which passes over it, would
    # serve the next pod with as many cores in its place.
    return InFlight(pod=pod.uid, progress=Progress.WAITING, confusable=frozenset(map(mark, cores)))


def report(pod: Pod) -> Mapping[str, str]:
    """What the plugin writes on bound *pod* when it serves it, without vGroups; {} if it has."""
    if pod.annotations.get(keys.REAL) or keys.ASSIGNED not in pod.annotations:
        return {}
    chips = decode_assigned(pod.annotations[keys.ASSIGNED]).chips
    return {keys.REAL: ",".join(f"{keys.CHIP_KIND}-{chip}" for chip in chips), keys.PREDICATE_TIME: keys.SERVED}


def _cores(container: Container) -> int:
    try:
        return cores_of(container)
    except InvalidRequestError:
        return 0
