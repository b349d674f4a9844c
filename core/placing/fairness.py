"""What queues hold and may hold: capability as a hard limit, on every resource, cards in their own units. Pure.

Volcano counts what pods write; of a card's memory and cores a container writes what it wants on each of its cards. Here
it counts as often as there are cards, and a percentage as what it comes to on the card it lands on.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from core import nodefit
from core.errors import InvalidRequestError
from core.groups import QueueSpec
from core.ledger import Ledger
from core.model import Pod
from core.nodefit import Amounts
from core.settings import DialectName


def taken(ledger: Ledger, pod: Pod, dialect: DialectName | None, assignment: object) -> dict[str, int]:
    """What *pod* takes of its queue with *assignment*: cpu in thousandths, the rest whole, by resource."""
    try:
        amounts = dict(nodefit.amounts_of(pod))
    except InvalidRequestError:
        amounts = {}
    protocol = ledger.metering.get(dialect) if dialect is not None else None
    if protocol is not None and assignment is not None:
        amounts.update(protocol.metered(assignment, ledger.tables))
    return amounts


def also_taken(ledger: Ledger, dialect: DialectName | None, assignment: object, amounts: Amounts) -> Mapping[str, int]:
    """The same of a pod of no queue, which is only compared with others: *amounts* of its node, and what is metered."""
    protocol = ledger.metering.get(dialect) if dialect is not None else None
    found = dict(amounts)
    if protocol is not None and assignment is not None:
        found.update(protocol.metered(assignment, ledger.tables))
    return found


class Over(NamedTuple):
    """A queue has too little left of one resource: so much is *asked*, and *left* of *limit*.

    beside: how much others of the same unit take that were placed before; it is not in *left* any more.
    """

    queue: str
    resource: str
    asked: int
    left: int
    limit: int
    beside: int = 0


@dataclass(slots=True)
class Budget:
    """What may still be taken of a queue and of those above it: (queue, resource) -> (left, limit)."""

    left: dict[tuple[str, str], tuple[int, int]]
    spent: Counter[str] = field(default_factory=Counter)

    def spend(self, amounts: Mapping[str, int]) -> tuple[Over, ...]:
        """Take *amounts*, or say of what there is too little; then nothing is taken."""
        over = self.lacks(amounts)
        if not over:
            for (queue, resource), (left, limit) in self.left.items():
                self.left[queue, resource] = left - amounts.get(resource, 0), limit
            self.spent.update(amounts)
        return over

    def lacks(self, amounts: Mapping[str, int]) -> tuple[Over, ...]:
        """Of what there is too little for *amounts*, queue by queue."""
        return tuple(
            Over(queue, resource, amounts[resource], max(left, 0), limit, self.spent[resource])
            for (queue, resource), (left, limit) in self.left.items()
            if amounts.get(resource, 0) > max(left, 0)
        )

    def free(self, queue: str, amounts: Mapping[str, int]) -> None:
        """*amounts* are held of *queue* no more."""
        for resource, amount in amounts.items():
            if (queue, resource) in self.left:
                left, limit = self.left[queue, resource]
                self.left[queue, resource] = left + amount, limit

    def copy(self) -> "Budget":
        """The same, to be spent apart."""
        return Budget(dict(self.left))


def budget(queues: Iterable[QueueSpec], held: Mapping[str, Mapping[str, int]]) -> Budget | None:
    """What is left of *queues*, one and those above it, which *held* so much with those below them; None: no limit."""
    left = {
        (queue.name, resource): (limit - held.get(queue.name, {}).get(resource, 0), limit)
        for queue in queues
        for resource, limit in queue.capability.items()
    }
    return Budget(left) if left else None
