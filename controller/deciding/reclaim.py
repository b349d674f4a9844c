"""Reclaim: from which pods a queue takes back what it deserves (setting `reclaim`). `victims` chooses among them.

A queue may reclaim while it and the queues above it hold less than they deserve, with pods that leave counted as gone
and pods that wait for evictions counted as placed.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from controller.deciding.cluster import ClusterState
from controller.deciding.reserve import Nomination, awaited
from core.constraints.quota import taken
from core.model import PodUid
from core.placing.gang import Unit
from core.placing.preemption import Crowd
from core.placing.queues import QueueTree, Reclaim

_NOTHING: Final[Mapping[str, int]] = {}


def reclaim_for(
    cluster: ClusterState, unit: Unit, line: str, crowd: Crowd, nominations: Iterable[Nomination]
) -> Reclaim | None:
    """Return from which pods queue *line* may reclaim capacity for *unit*; None if from none."""
    order, budgets = cluster.queue_order, cluster.budgets
    order.bring_up_to_date(cluster.clock())
    tree, path = order.groups.tree, _path(order.groups.tree, line)
    asked = Counter[str]()
    for one in unit.wanted():
        asked.update(taken(cluster.ledger, one.pod, None, None))
    resources = frozenset(one for one, amount in asked.items() if amount and one in order.deserved(line))
    changes = _changes(cluster, tree, crowd, nominations)

    def held(name: str, resource: str) -> int:
        return budgets.held(name).get(resource, 0) + changes[name, resource]

    room: dict[str, dict[str, float]] = {}
    for name in reversed(path):
        left = {one: order.deserved(name).get(one, 0.0) - held(name, one) for one in resources}
        if any(asked[one] > amount for one, amount in left.items()):
            break
        room[name] = left
    if not resources or not room:
        return None
    below: dict[str, tuple[str, ...]] = {}
    priorities: dict[str, tuple[int, ...]] = {}
    paths: dict[PodUid, tuple[str, ...]] = {}
    queues: dict[PodUid, tuple[int, ...]] = {}
    for uid, who in crowd.occupants.items():
        whose = budgets.queue_of(uid)
        if whose is None or who.leaving or who.stays:
            continue
        if whose not in below:
            theirs = _path(tree, whose)
            below[whose] = _below(tree, path, theirs, len(path) - len(room))
            if below[whose]:
                priorities[whose] = tuple(tree.queues[name].priority for name in theirs)
        if below[whose]:
            paths[uid], queues[uid] = below[whose], priorities[whose]
    names = {name for found in below.values() for name in found}
    return Reclaim(
        paths=paths,
        queues=queues,
        amounts=budgets.held_by,
        resources=resources,
        over={name: {one: held(name, one) - order.deserved(name).get(one, 0.0) for one in resources} for name in names},
        spare={
            name: {one: held(name, one) - amount for one, amount in tree.guaranteed.get(name, _NOTHING).items()}
            for name in names
        },
        room=room,
    )


def _path(tree: QueueTree, line: str) -> tuple[str, ...]:
    return tuple(tree.path(line)) or (line,)


def _below(tree: QueueTree, own: tuple[str, ...], other: tuple[str, ...], shared_least: int) -> tuple[str, ...]:
    """Return the queues on path *other* that *own* reclaims from; none if the two share too few queues."""
    shared = 0
    while shared < min(len(own), len(other)) and own[shared] == other[shared]:
        shared += 1
    if shared < shared_least or shared in (len(own), len(other)):
        return ()
    return other[shared:] if all(tree.queues[name].reclaimable for name in other[shared:]) else ()


def _changes(
    cluster: ClusterState, tree: QueueTree, crowd: Crowd, nominations: Iterable[Nomination]
) -> Counter[tuple[str, str]]:
    """Return the changes of what queues hold, once all leaving pods are gone and the pods that wait for them placed."""
    found = Counter[tuple[str, str]]()
    leaving = {uid for uid, who in crowd.occupants.items() if who.leaving}
    for nomination in nominations:
        leaving.update(nomination.victims)
        for entry, amounts in awaited(cluster, nomination):
            found.update({(name, one): more for name in _path(tree, entry.line) for one, more in amounts.items()})
    for uid in leaving:
        whose = cluster.budgets.queue_of(uid)
        if whose is not None:
            amounts = dict(cluster.budgets.held_by(uid))
            found.subtract({(name, one): less for name in _path(tree, whose) for one, less in amounts.items()})
    return found
