"""Whether moves still let a unit in, as the cluster is now: asked before each eviction."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from core.ledger import Ledger
from core.model import NodeName, PodUid
from core.moving.places import Places
from core.moving.search import Movable, Move
from core.moving.who import Crowd
from core.placing.gang import Unit
from core.placing.score import NodePolicy


class Reach(NamedTuple):
    """The moves that are left, with the places of the replacements as of now; why: why they help no more, or ""."""

    moves: tuple[Move, ...] = ()
    why: str = ""


def reach(
    ledger: Ledger,
    policy: NodePolicy,
    unit: Unit,
    nodes: Mapping[PodUid, NodeName],
    *,
    crowd: Crowd,
    left: Sequence[PodUid],
) -> Reach:
    """Return whether the moves of *left*, in that order, let in the minimum of *unit*.

    Args:
        ledger: a fork; it is not used after this.
        policy: how nodes are chosen.
        unit: what is to get in.
        nodes: the planned node of each of its pods; no pod moves to these.
        crowd: who may move.
        left: the pods that are to move.
    """
    places, moving = Places(ledger, policy), list[tuple[Movable, NodeName]]()
    for uid in left:
        node, one = ledger.node_of(uid), crowd.movable.get(uid)
        holding = ledger.holding(uid)
        name = holding.key if holding is not None else str(uid)
        if node is None or one is None:
            why = crowd.staying.get(uid)
            return Reach(why=f"pod {name} may not be moved: {why or 'it is not on a node'}")
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
            return Reach(why=f"there is no room for pod {member.pod.key} any more, even after all moves")
        ledger.reserve(placement)
    moves = list[Move]()
    for one, node in moving:
        to = places.best(one.pod, one.shape, targets)
        if to is None:
            return Reach(why=f"there is no room elsewhere for pod {one.pod.key} any more")
        ledger.reserve(to)
        moves.append(Move(one.pod, node, to))
    return Reach(tuple(moves))


def room_for(ledger: Ledger, policy: NodePolicy, unit: Unit) -> tuple[NodeName, ...] | None:
    """Return the nodes that take the minimum of *unit* without a move; None if it does not fit.

    Args:
        ledger: a fork; it is not used after this.
        policy: how nodes are chosen.
        unit: what is to get in.
    """
    places, nodes = Places(ledger, policy), list[NodeName]()
    for member in unit.wanted():
        placement = places.best(member.pod, member.shape, frozenset())
        if placement is None:
            return None
        ledger.reserve(placement)
        nodes.append(placement.node)
    return tuple(dict.fromkeys(nodes))
