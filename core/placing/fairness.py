"""What queues and namespaces hold and may hold, as a hard limit, cards in their own units. Pure.

A queue is limited by its capability, on every resource, and by what is guaranteed to others; a namespace by its
ResourceQuotas, on what HAMi's scheduler holds by them (hami 5.4): memory and cores of cards under ``limits.``, which no
API server counts.

Volcano counts what pods write; of a card's memory and cores a container writes what it wants on each of its cards. Here
it counts as often as there are cards, and a percentage as what it comes to on the card it lands on.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from core import nodefit
from core.errors import InvalidRequestError
from core.ledger import Ledger
from core.model import Pod
from core.nodefit import Amounts
from core.settings import DialectName


def taken(ledger: Ledger, pod: Pod, dialect: DialectName | None, assignment: object) -> dict[str, int]:
    """What *pod* takes of queue and namespace with *assignment*, by resource: cpu in thousandths, the rest whole."""
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


class Account(NamedTuple):
    """Of whom no more may be taken than a limit says: a queue, or a namespace by one of its ResourceQuotas.

    kind, name: of the object that says it, or of the queue to which the rest is not guaranteed. namespace: the quota's;
    "" of a queue.
    """

    kind: str
    name: str
    namespace: str = ""

    @property
    def freed_with(self) -> "Account":
        """The account that is told of when there may be more left: of what is not guaranteed, one for all queues."""
        return self if self.kind != GUARANTEED else Account(GUARANTEED, "")


QUEUE: Final = "queue"
QUOTA: Final = "ResourceQuota"
# What is free and not guaranteed to other queues.
GUARANTEED: Final = "guarantee"


class Limited(NamedTuple):
    """An account, how much of which resource it may hold, and how much it holds."""

    account: Account
    limits: Mapping[str, int]
    held: Mapping[str, int]


class Over(NamedTuple):
    """An account has too little left of one resource: so much is *asked*, and *left* of *limit*.

    beside: how much others of the same unit take that were placed before; it is not in *left* any more.
    """

    account: Account
    resource: str
    asked: int
    left: int
    limit: int
    beside: int = 0


@dataclass(slots=True)
class Budget:
    """What may still be taken of all accounts that limit a unit: (account, resource) -> (left, limit)."""

    left: dict[tuple[Account, str], tuple[int, int]]
    spent: Counter[str] = field(default_factory=Counter)

    def spend(self, amounts: Mapping[str, int]) -> tuple[Over, ...]:
        """Take *amounts*, or say of what there is too little; then nothing is taken."""
        over = self.lacks(amounts)
        if not over:
            for (account, resource), (left, limit) in self.left.items():
                self.left[account, resource] = left - amounts.get(resource, 0), limit
            self.spent.update(amounts)
        return over

    def lacks(self, amounts: Mapping[str, int]) -> tuple[Over, ...]:
        """Of what there is too little for *amounts*, account by account."""
        return tuple(
            Over(account, resource, amounts[resource], max(left, 0), limit, self.spent[resource])
            for (account, resource), (left, limit) in self.left.items()
            if amounts.get(resource, 0) > max(left, 0)
        )

    def copy(self) -> "Budget":
        """The same, to be spent apart."""
        return Budget(dict(self.left))


def budget(limited: Iterable[Limited]) -> Budget | None:
    """What is left of all of *limited*; None: no limit."""
    left = {
        (one.account, resource): (limit - one.held.get(resource, 0), limit)
        for one in limited
        for resource, limit in one.limits.items()
    }
    return Budget(left) if left else None
