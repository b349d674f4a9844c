"""What is to get in, as a unit: one pod, several like it, or the members of a group; and whether moves still let it in.

The latter is asked before each eviction, of the cluster as it is then.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from core.groups import GroupSpec, is_leaving
from core.ledger import Ledger
from core.model import NodeName, Phase, Pod, PodUid
from core.moving.places import MovePlaces
from core.moving.search import Movable, Move
from core.moving.who import MovablePods
from core.placing.decide import NodePolicy, shape_of
from core.placing.gang import Member, Unit
from core.placing.minimums import Division, Minimum, Path, minimum_of
from core.units import counted
from core.waiting import Cause, Wait


def unit_of(pods: Sequence[Pod], ledger: Ledger) -> Unit | Wait:
    """Return the unit of all of *pods*; or why one of them cannot be judged."""
    members = _members([(pod, ()) for pod in pods], ledger)
    return members if isinstance(members, Wait) else Unit(members=members, minimum=Minimum(members=len(members)))


def unit_of_group(spec: GroupSpec, pods: Iterable[Pod], ledger: Ledger) -> Unit | Wait:
    """Return the unit of the members of a group that are on no node; or why they cannot start together.

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
    unit = Unit(members=members, minimum=minimum_of(spec, division), held=held)
    if division.problem or not unit.is_complete:
        short = ", ".join(unit.tally(Counter(one.parts for one in members)).short())
        too_few = f"its {counted(sum(held.values()) + len(members), 'pods')} are too few for its minimum"
        return Wait(Cause.WAITING_FOR_GROUP, division.problem or f"{too_few} ({short or spec.min_member})")
    return unit


def _members(pods: Iterable[tuple[Pod, Path]], ledger: Ledger) -> tuple[Member, ...] | Wait:
    members = []
    for pod, path in pods:
        shape = shape_of(pod, ledger)
        if isinstance(shape, Wait):
            return shape
        members.append(Member(pod=pod, shape=shape, parts=path))
    return tuple(members)


class MoveReach(NamedTuple):
    """The moves that are left, with the places of the replacements as of now; why: why they help no more, or ""."""

    moves: tuple[Move, ...] = ()
    why: str = ""


def reach(
    ledger: Ledger,
    policy: NodePolicy,
    unit: Unit,
    nodes: Mapping[PodUid, NodeName],
    *,
    crowd: MovablePods,
    left: Sequence[PodUid],
) -> MoveReach:
    """Return whether the moves of *left*, in that order, let in the minimum of *unit*.

    Args:
        ledger: a fork; it is not used after this.
        policy: how nodes are chosen.
        unit: what is to get in.
        nodes: the planned node of each of its pods; no pod moves to these.
        crowd: who may move.
        left: the pods that are to move.
    """
    places, moving = MovePlaces(ledger, policy), list[tuple[Movable, NodeName]]()
    for uid in left:
        node, one = ledger.node_of(uid), crowd.movable.get(uid)
        holding = ledger.holding(uid)
        name = holding.key if holding is not None else str(uid)
        if node is None or one is None:
            why = crowd.staying.get(uid)
            return MoveReach(why=f"pod {name} may not be moved: {why or 'it is not on a node'}")
        moving.append((one, node))
    for one, _ in moving:
        ledger.release(one.pod.uid)
    targets = frozenset(nodes.values())
    for member in unit.wanted():
        node = nodes.get(member.pod.uid)
        placement = places.on(member.pod, member.shape, node) if node is not None else None
        if placement is None:
            placement = places.best(member.pod, member.shape, ledger.states.keys() - targets)
        if placement is None:
            return MoveReach(why=f"there is no room for pod {member.pod.key} any more, even after all moves")
        ledger.reserve(placement)
    moves = list[Move]()
    for one, node in moving:
        to = places.best(one.pod, one.shape, targets)
        if to is None:
            return MoveReach(why=f"there is no room elsewhere for pod {one.pod.key} any more")
        ledger.reserve(to)
        moves.append(Move(one.pod, node, to))
    return MoveReach(tuple(moves))


def room_for(ledger: Ledger, policy: NodePolicy, unit: Unit) -> tuple[NodeName, ...] | None:
    """Return the nodes that take the minimum of *unit* without a move; None if it does not fit.

    Args:
        ledger: a fork; it is not used after this.
        policy: how nodes are chosen.
        unit: what is to get in.
    """
    places, nodes = MovePlaces(ledger, policy), list[NodeName]()
    for member in unit.wanted():
        placement = places.best(member.pod, member.shape, frozenset())
        if placement is None:
            return None
        ledger.reserve(placement)
        nodes.append(placement.node)
    return tuple(dict.fromkeys(nodes))
