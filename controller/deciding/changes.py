"""What of a pod's change matters: most of what the API server shows of a pod is of no consequence here."""

from collections.abc import Set
from typing import Final

from core.model import Pod

# Of a pod's fields the last: its version and its annotations.
_NOTES: Final = Pod._fields.index("resource_version")


def holds_the_same(known: Pod, pod: Pod, marks: Set[str]) -> bool:
    """Whether a bound pod holds what it held: its node, and all that a dialect reads of it, so not *marks*."""
    return (
        known.node_name == pod.node_name
        and known.finished == pod.finished
        and known.deleting == pod.deleting
        and known.init_done == pod.init_done
        and {key for key, _ in known.annotations.items() ^ pod.annotations.items()} <= marks
        and known.labels == pod.labels
        and known.containers == pod.containers
        and known.init_containers == pod.init_containers
        and known.resources == pod.resources
    )


def is_served(known: Pod, pod: Pod, marks: Set[str]) -> bool:
    """Whether nothing of a bound pod is new but *marks*, which its device plugin writes: most changes are so."""
    return (
        known[:_NOTES] == pod[:_NOTES]
        and {key for key, _ in known.annotations.items() ^ pod.annotations.items()} <= marks
    )


def asks_the_same(known: Pod, pod: Pod) -> bool:
    """Whether a pending pod asks what it asked."""
    return (
        known.annotations == pod.annotations
        and known.labels == pod.labels
        and known.containers == pod.containers
        and known.init_containers == pod.init_containers
        and known.constraints == pod.constraints
        and known.peers == pod.peers
        and known.volumes == pod.volumes
        and known.unjudged == pod.unjudged
        and known.overhead == pod.overhead
        and known.resources == pod.resources
        and known.priority == pod.priority
        and known.preempts == pod.preempts
        and known.scheduler_name == pod.scheduler_name
        and known.gated == pod.gated
    )
