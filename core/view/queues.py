"""The queues: what their pods hold, their limits, and their waiting pods; ``kubectl cards queues``. Pure.

Fields may be added; renaming a field or changing its meaning requires another *version*.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from core.constraints.quota import taken
from core.groups import DEFAULT_QUEUE, QueueSpec
from core.ledger import Ledger
from core.model import Pod, group_of
from core.placing.queues import QueueTree
from core.view.cards import VERSION
from core.view.waiting import Lines, Waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueAmount:
    """One resource of a queue, cpu in thousandths, the rest in whole units.

    holds: what pods of the queue and its descendants hold; None if unknown. guarantee: the larger of its own and the
    sum of its children's. deserved, capability: as specified. None if absent.
    """

    resource: str
    holds: int | None
    guarantee: int | None
    deserved: int | None
    capability: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """One queue. state: as written by Volcano's controller, "" if absent. parent: its parent queue.

    amounts: card resources, and resources with limits. waiting: number of its own waiting pods, by *reasons*. next: the
    first pod in the queue. Both are None if unknown.
    """

    name: str
    state: str
    parent: str
    weight: int
    priority: int
    amounts: tuple[QueueAmount, ...]
    waiting: int | None
    next: str | None
    reasons: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Queues:
    """The answer of ``queues``, by name."""

    version: int = VERSION
    queues: tuple[QueueState, ...]
    notes: tuple[str, ...] = ()


def queues_for(found: Queues, namespace: str) -> Queues:
    """Return *found* for a reader who may see only pods of *namespace*: it names no object of another namespace."""
    own = f"{namespace}/"
    queues = (one if one.next and one.next.startswith(own) else replace(one, next=None) for one in found.queues)
    return Queues(queues=tuple(queues))


def queues_of(
    queues: Iterable[QueueSpec],
    ledger: Ledger,
    pods: Iterable[Pod],
    *,
    lines: Lines,
    waiting: Waiting,
    notes: Sequence[str] = (),
) -> Queues:
    """Return the state of *queues*; *waiting* has the waiting pods.

    pods: all pods with a group that are counted in *ledger*; others may be among them.
    """
    tree = QueueTree([one.in_units(ledger.words.units) for one in queues])
    held = held_by_queue(tree, ledger, pods, lines) if not lines.unread else None
    by_name = {one.queue: one for one in waiting.queues}
    is_known = None not in by_name or lines.is_complete
    found: list[QueueState] = []
    for name, queue in sorted(tree.queues.items()):
        those = by_name.get(name)
        found.append(
            QueueState(
                name=name,
                state=queue.state,
                parent=tree.parent(name),
                weight=queue.weight,
                priority=queue.priority,
                amounts=tuple(_amounts(queue, tree, ledger, None if held is None else held.get(name, {}))),
                waiting=(those.pods if those is not None else 0) if is_known else None,
                next=those.next if those is not None and is_known else None,
                reasons=those.reasons if those is not None and is_known else {},
            )
        )
    return Queues(queues=tuple(found), notes=tuple(notes))


def held_by_queue(tree: QueueTree, ledger: Ledger, pods: Iterable[Pod], lines: Lines) -> dict[str, dict[str, int]]:
    """Return, by queue, what its pods and those of its descendants hold; pods without a queue count for `default`.

    pods: as for `queues_of`.
    """
    grouped = {pod.uid: pod for pod in pods if group_of(pod) is not None}
    found: dict[str, dict[str, int]] = {}
    for uid, holding in ledger.held():
        amounts: Mapping[str, int]
        pod = grouped.get(uid)
        if pod is not None:
            amounts = taken(ledger, pod, holding.dialect, holding.assignment)
        else:
            amounts = {**dict(holding.amounts), **ledger.metered(holding.dialect, holding.assignment)}
        group = lines.group(pod) if pod is not None else None
        # Pods without a queue count only for `default`, whatever its ancestors.
        for name in (tree.path(group.queue) if group is not None else []) or [DEFAULT_QUEUE]:
            sums = found.setdefault(name, {})
            for resource, amount in amounts.items():
                sums[resource] = sums.get(resource, 0) + amount
    return found


def _amounts(
    queue: QueueSpec, tree: QueueTree, ledger: Ledger, held: Mapping[str, int] | None
) -> Iterable[QueueAmount]:
    guaranteed = tree.guaranteed.get(queue.name, {})
    limited = guaranteed.keys() | queue.deserved.keys() | queue.capability.keys()
    of_cards = {name for name, amount in (held or {}).items() if amount and name in ledger.words.resources}
    for name in sorted(limited | of_cards):
        yield QueueAmount(
            resource=name,
            holds=None if held is None else held.get(name, 0),
            guarantee=guaranteed.get(name),
            deserved=queue.deserved.get(name),
            capability=queue.capability.get(name),
        )
