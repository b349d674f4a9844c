"""What is to get in, as a unit: one pod, several like it, or the members of a group that wait."""

from collections import Counter
from collections.abc import Iterable, Sequence

from core.explaining.asked import read_wish
from core.groups import GroupSpec, is_leaving
from core.ledger import Ledger
from core.model import Phase, Pod
from core.placing.gang import Member, Unit
from core.placing.minimums import Division, Minimum, Path, minimum_of
from core.waiting import Wait


def unit_of(pods: Sequence[Pod], ledger: Ledger) -> Unit | Wait:
    """Return the unit of all of *pods*; or why one of them cannot be judged."""
    members = _members([(pod, ()) for pod in pods], ledger)
    return members if isinstance(members, Wait) else Unit(members=members, minimum=Minimum(members=len(members)))


def unit_of_group(spec: GroupSpec, pods: Iterable[Pod], ledger: Ledger) -> Unit | Wait:
    """Return the unit of the members of a group that are on no node; or why one of them cannot be judged.

    Args:
        spec: the group; without a network topology.
        pods: all members.
        ledger: who holds what.
    """
    held, waiting = Counter[Path](), list[tuple[Pod, Path]]()
    division = Division(spec)
    for pod in sorted(pods, key=lambda one: (-one.priority, one.created_s, one.name)):
        path, _ = division.of(pod)
        if pod.phase is Phase.SUCCEEDED or (pod.node_name and not pod.finished and not is_leaving(pod)):
            held[path] += 1
        elif not (pod.finished or is_leaving(pod) or pod.gated):
            waiting.append((pod, path))
    members = _members(waiting, ledger)
    if isinstance(members, Wait):
        return members
    return Unit(members=members, minimum=minimum_of(spec, division), held=held)


def _members(pods: Iterable[tuple[Pod, Path]], ledger: Ledger) -> tuple[Member, ...] | Wait:
    members = []
    for pod, path in pods:
        shape = read_wish(pod, ledger)
        if isinstance(shape, Wait):
            return shape
        members.append(Member(pod=pod, shape=shape, parts=path))
    return tuple(members)
