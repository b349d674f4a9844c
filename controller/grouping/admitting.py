"""Decides which PodGroups may have their pods created: it limits the waiting pods and promises no place. Pure.

A group is admitted if its queue exists and is open, and if its `minResources` fit into the cluster's capacity, into the
capability of its queue and of the queues above, and beside what is guaranteed to other queues. A part of the cluster's
capacity may be promised twice (`overcommit-factor`). No group blocks another. Source: Volcano, actions/enqueue, plugins
overcommit, proportion and capacity (groups 4.3), as one rule (groups G10).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from core import names
from core.constraints.quota import QUOTA_WORDS, shown
from core.groups import ROOT_QUEUE, GroupSpec, QueueSpec
from core.placing.queues import QueueTree

FACTOR_PCT: Final = 120


def compared(amounts: Mapping[str, int]) -> dict[str, int]:
    """Return the *amounts* that nodes provide, without those that only ResourceQuotas count."""
    return {
        name: amount
        for name, amount in amounts.items()
        if amount
        and not name.startswith(QUOTA_WORDS)
        and (name in names.NATIVE_RESOURCES or "/" in name or name.startswith("hugepages-"))
    }


def add(sums: dict[str, int], more: Mapping[str, int], times: int = 1) -> None:
    """Add *more* to *sums*, *times* times."""
    for name, amount in more.items():
        sums[name] = sums.get(name, 0) + times * amount


def excess(asked: Mapping[str, int], held: Mapping[str, int]) -> dict[str, int]:
    """Return the part of *asked* that is not *held* yet."""
    return {name: amount - held.get(name, 0) for name, amount in asked.items() if amount > held.get(name, 0)}


@dataclass(slots=True, kw_only=True)
class Headroom:
    """The capacity for admitted groups, and what counts against it.

    total: allocatable of ready nodes. sold: capacity of their cards in resources that no node advertises; computed only
    when a group names one. used: use by their pods; a resource without use is compared with the total alone. waiting:
    requests of admitted groups beyond what they hold. queued: by queue, what the admitted groups of it and of those
    below it hold or request, whichever is more. tree: how queues stand below each other.
    factor_pct: how much of the cluster may be promised; None = any.
    """

    total: Mapping[str, int]
    used: Mapping[str, int]
    sold: Callable[[], Mapping[str, int]] = dict
    waiting: dict[str, int] = field(default_factory=dict)
    queued: dict[str, dict[str, int]] = field(default_factory=dict)
    tree: QueueTree = field(default_factory=QueueTree)
    factor_pct: int | None = FACTOR_PCT

    def count(self, queue: str, asked: Mapping[str, int], held: Mapping[str, int]) -> None:
        """Count an admitted group of *queue* with its minimum request and its holdings."""
        more = excess(asked, held)
        add(self.waiting, more)
        for name in self.tree.path(queue) or [queue]:
            sums = self.queued.setdefault(name, {})
            add(sums, held)
            add(sums, more)

    def in_total(self, name: str) -> int:
        """Return how much of resource *name* nodes have."""
        # Plugins advertise no memory or cores of HAMi's kind, so their cards are counted instead.
        return self.total.get(name, 0) or (0 if name in names.NATIVE_RESOURCES else self.sold().get(name, 0))


def refusal(spec: GroupSpec, queues: Mapping[str, QueueSpec], room: Headroom, held: Mapping[str, int]) -> str:
    """Return why *spec*, whose members already hold *held*, is not admitted now; "" if it is."""
    queue = queues.get(spec.queue)
    closed = queue_problem(spec.queue, queue)
    if closed or queue is None:
        return closed
    if spec.min_resources is None:
        return ""
    asked = excess(compared(spec.min_resources), held)
    above = [queues[name] for name in reversed(room.tree.path(queue.name)) if name in queues] or [queue]
    beyond = (_beyond_capability(one, asked, room.queued.get(one.name, {})) for one in above)
    return next(filter(None, beyond), "") or _beyond_guarantees(queue.name, asked, room) or _beyond_cluster(asked, room)


def queue_problem(name: str, queue: QueueSpec | None) -> str:
    """Return why a queue admits nothing: it is missing, unreadable, closed or not supported; "" if it is usable."""
    if queue is None:
        return f"queue {name} does not exist; create it, or name another in the job's spec.queue"
    if queue.unread:
        return f"queue {name} cannot be read: {queue.unread}"
    if queue.problems:
        what = ", ".join(queue.problems)
        return f"queue {name} asks for {what}, which cardshare does not support; leave it out, or name another"
    if not queue.is_open:
        return f"queue {name} is {queue.state}; open it, or name another"
    return ""


def _beyond_capability(queue: QueueSpec, asked: Mapping[str, int], held: Mapping[str, int]) -> str:
    short = _short(asked, queue.capability, held)
    return f"queue {queue.name} has too little capacity: {short}" if short else ""


def _beyond_guarantees(queue: str, asked: Mapping[str, int], room: Headroom) -> str:
    """Return what *queue*, or one above it, may not hold because it is guaranteed to others; "" if nothing.

    At each level of the tree, a queue may hold what is not guaranteed to the other queues of its parent.
    """
    limits = {name: room.in_total(name) for name in room.tree.sums.get(ROOT_QUEUE, {}).keys() & asked.keys()}
    parent = ROOT_QUEUE
    for one in room.tree.path(queue):
        sums, own = room.tree.sums.get(parent, {}), room.tree.guaranteed.get(one, {})
        limits = {name: max(most - sums.get(name, 0), 0) + own.get(name, 0) for name, most in limits.items()}
        short = _short(asked, limits, room.queued.get(one, {}))
        if short:
            text = f"the rest is guaranteed to other queues: {short} for queue {one}"
            return f"{text}; ask for less, wait until its groups end, or lower the spec.guarantee of another queue"
        parent = one
    return ""


def _short(asked: Mapping[str, int], limits: Mapping[str, int], held: Mapping[str, int]) -> str:
    """Return what of *asked* is too much beside what is *held* already."""
    return "; ".join(
        f"{shown(name, amount)} {name} requested, {shown(name, max(limits[name] - held.get(name, 0), 0))} of "
        f"{shown(name, limits[name])} left"
        for name, amount in sorted(asked.items())
        if name in limits and held.get(name, 0) + amount > limits[name]
    )


def _beyond_cluster(asked: Mapping[str, int], room: Headroom) -> str:
    if room.factor_pct is None:
        return ""
    short = []
    for name, amount in sorted(asked.items()):
        total = room.in_total(name)
        if name not in names.NATIVE_RESOURCES:
            # Free amounts of cards are not counted here; only the total is checked.
            if amount > total:
                short.append(f"{shown(name, amount)} {name} requested, {shown(name, total)} in total")
            continue
        left = total * room.factor_pct // 100 - room.used.get(name, 0) - room.waiting.get(name, 0)
        if amount > left:
            short.append(f"{shown(name, amount)} {name} requested, {shown(name, max(left, 0))} available")
    return f"the cluster has too little for its minResources: {'; '.join(short)}" if short else ""


def order(specs: Iterable[GroupSpec], queues: Mapping[str, QueueSpec]) -> list[GroupSpec]:
    """Return the groups in admission order: by priority of their queue, then age, then name."""

    def key(spec: GroupSpec) -> tuple[int, int, str, str]:
        queue = queues.get(spec.queue)
        return (-(queue.priority if queue is not None else 0), spec.created_s, spec.key.namespace, spec.key.name)

    return sorted(specs, key=key)
