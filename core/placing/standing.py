"""How important a pod is with its group, and which pods of one queue are decided before others. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from core.groups import DEFAULT_QUEUE, GroupSpec
from core.model import Pod
from core.wire.priority_classes import PriorityClass

# What raised a pod whose group says its priority itself: no class can have such a name.
PRIORITY_FIELD: Final = "spec.priority of its PodGroup"


class Standing(NamedTuple):
    """How important a pod is: its priority, and whether others of a lower one may be evicted for it.

    raised_by: the PriorityClass of its group that raised it above its own priority, PRIORITY_FIELD if the group names
    none, "" if it was not raised. surplus: its group
    has its minimum without it; groups of the same priority that lack members come first (Volcano, plugins/gang).
    """

    priority: int
    preempts: bool
    raised_by: str = ""
    surplus: bool = False


def standing_of(
    pod: Pod, group: GroupSpec | None, classes: Mapping[str, PriorityClass], *, surplus: bool = False
) -> Standing:
    """How important *pod* is: the larger of its own priority and the priority of its *group*'s class counts."""
    if group is None:
        return Standing(pod.priority, pod.preempts, surplus=surplus)
    preempts = pod.preempts and group.preempts
    found = classes.get(group.priority_class) if group.priority_class else None
    priority = group.priority if group.priority is not None else found.value if found is not None else pod.priority
    if priority <= pod.priority:
        return Standing(pod.priority, preempts, surplus=surplus)
    if found is not None:
        preempts = preempts and found.preempts
    return Standing(priority, preempts, group.priority_class or PRIORITY_FIELD, surplus)


def order(standing: Standing, pod: Pod) -> tuple[int, bool, int]:
    """Where *pod* stands in its line, the smallest first: priority, then groups that lack members, then age."""
    return (-standing.priority, standing.surplus, pod.created_s)


def line_of(group: GroupSpec | None) -> str:
    """The queue that pods of *group* stand in line with; those of no group stand with `default`."""
    return group.queue if group is not None and group.queue else DEFAULT_QUEUE
