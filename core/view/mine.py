"""One namespace for those whose pods are in it: where each pod is or why it waits, and what is left for more. Pure.

Fields may be added; renaming a field or changing its meaning requires another *version*.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from core.ledger import Ledger
from core.model import Pod
from core.view.cards import VERSION
from core.view.explained import Explained, explained
from core.view.fits import LIMITS, REQUESTS, Place
from core.view.queues import Queues

QUEUE: Final = "Queue"
# More pods are only counted.
_PODS_MAX: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """How much of *resource* a ResourceQuota or a Queue leaves: *limit* less what is *held*, never below 0.

    resource: as the quota or the queue writes it; cpu of a queue in thousandths. held, left: None if unknown.
    """

    kind: str
    name: str
    resource: str
    limit: int
    held: int | None
    left: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mine:
    """The pods of *namespace* that ask for cards or are placed by cardshare, and what is left for more.

    pods: those that wait first, then by name, at most 500 of *count*; without their events. left: of the quotas of the
    namespace, and of the queues of its pods with their ancestors.
    """

    version: int = VERSION
    namespace: str
    pods: tuple[Explained, ...]
    count: int
    left: tuple[Left, ...] = ()


def mine_of(where: Place, *, queues: Queues | None, own: Collection[str], nodes_are_read: bool) -> Mine:
    """Return what *where* shows of its namespace; its pods may be on nodes or wait.

    queues: None if unknown. own: names of the queues of its pods. nodes_are_read: all nodes are in the ledger.
    """
    pods = sorted((pod for pod in where.pods if not pod.finished), key=lambda pod: (bool(pod.node_name), pod.key))
    return Mine(
        namespace=where.namespace,
        pods=tuple(_told(where.ledger, pods[:_PODS_MAX], nodes_are_read=nodes_are_read)),
        count=len(pods),
        left=(*_of_quotas(where), *(_of_queues(queues, own) if queues is not None else ())),
    )


def _told(ledger: Ledger, pods: Iterable[Pod], *, nodes_are_read: bool) -> Iterator[Explained]:
    for pod in pods:
        yield explained(pod, ledger=ledger, node_is_read=nodes_are_read)


def _of_quotas(where: Place) -> Iterator[Left]:
    for one in where.limited():
        for resource, limit in sorted(one.limits.items()):
            held = one.held.get(resource, 0)
            written = resource if resource.startswith(REQUESTS) else f"{LIMITS}{resource}"
            yield _left(one.account.kind, one.account.name, written, limit, held)


def _of_queues(queues: Queues, own: Collection[str]) -> Iterator[Left]:
    parents = {one.name: one.parent for one in queues.queues}
    names = set[str]()
    for name in own:
        while name in parents and name not in names:
            names.add(name)
            name = parents[name]  # noqa: PLW2901
    for queue in queues.queues:
        for amount in queue.amounts if queue.name in names else ():
            if amount.capability is not None:
                yield _left(QUEUE, queue.name, amount.resource, amount.capability, amount.holds)


def _left(kind: str, name: str, resource: str, limit: int, held: int | None) -> Left:
    left = None if held is None else max(limit - held, 0)
    return Left(kind=kind, name=name, resource=resource, limit=limit, held=held, left=left)
