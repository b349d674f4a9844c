"""Limits of queues and namespaces: how much their pods may hold on all nodes together, cards in their own units.

No node refuses a pod for that: once a node is found, a `Budget` is spent. A queue is limited by its capability, on
every resource, and by what is guaranteed to others. A namespace is limited by its ResourceQuotas, on what HAMi's
scheduler counts by them (hami 5.4): memory and cores of cards under ``limits.``, which no API server counts.

Volcano counts what pods write; of a card's memory and cores a container writes what it wants on each of its cards. Here
it counts as often as there are cards, and a percentage as what it comes to on the card it lands on.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from core import model, names
from core.errors import InvalidRequestError
from core.model import Pod
from core.settings import DialectName
from core.units import BYTES_PER_MIB
from core.waiting import Cause, Wait

# Prefixes of the keys of ResourceQuotas; minResources of a Job also uses plain names.
QUOTA_WORDS: Final = ("requests.", "limits.", "count/")


class Meters(Protocol):
    """What the use of cards is computed with: `core.ledger.Ledger`."""

    def metered(self, dialect: DialectName | None, assignment: object) -> Mapping[str, int]:
        """Return what *assignment* takes of queue and namespace."""
        ...


def taken(ledger: Meters, pod: Pod, dialect: DialectName | None, assignment: object) -> dict[str, int]:
    """Return what *pod* takes of queue and namespace with *assignment*: cpu in thousandths, the rest whole."""
    try:
        amounts = dict(model.amounts_of(pod))
    except InvalidRequestError:
        amounts = {}
    amounts.update(ledger.metered(dialect, assignment))
    return amounts


class Account(NamedTuple):
    """What has limits: a queue, or a namespace by one of its ResourceQuotas.

    kind, name: of the object with the limits, or of the queue to which the rest is not guaranteed. namespace: the
    quota's; "" for a queue.
    """

    kind: str
    name: str
    namespace: str = ""

    @property
    def freed_with(self) -> "Account":
        """The account that is reported when more may be left; what is not guaranteed has one for all queues."""
        return self if self.kind != GUARANTEED else Account(GUARANTEED, "")


QUEUE: Final = "queue"
QUOTA: Final = "ResourceQuota"
# What is free and not guaranteed to other queues.
GUARANTEED: Final = "guarantee"


class Units(Protocol):
    """The resources for memory of cards: `core.catalog.Words`, `core.admission.rulebook.Rulebook`."""

    @property
    def units(self) -> Mapping[str, int]:
        """The MiB of a unit of each."""

    @property
    def quantities(self) -> Mapping[str, int]:
        """The same of those that containers may write as bytes."""


def in_units(resource: str, limit: int, named: Units, *, in_bytes: bool) -> int:
    """Return the *limit* of a quota in the units in which use is counted; part of a unit is none.

    Nobody means 68719476736 MiB by ``64Gi`` (*in_bytes*). Where containers may write bytes, a quota may write them
    without a suffix too: no namespace has as many units as a MiB has bytes.
    """
    if resource not in named.units:
        return limit
    if not in_bytes and (resource not in named.quantities or limit < BYTES_PER_MIB):
        return limit
    return limit // (named.units[resource] * BYTES_PER_MIB)


class Limited(NamedTuple):
    """An account, how much of which resource it may hold, and how much it holds."""

    account: Account
    limits: Mapping[str, int]
    held: Mapping[str, int]


class Over(NamedTuple):
    """An account has too little left of one resource: so much is *asked*, and *left* of *limit*.

    beside: how much other pods of the same unit take that were placed before; *left* does not include it.
    """

    account: Account
    resource: str
    asked: int
    left: int
    limit: int
    beside: int = 0


@dataclass(slots=True)
class Budget:
    """What a unit may still take of its accounts: (account, resource) -> (left, limit)."""

    left: dict[tuple[Account, str], tuple[int, int]]
    spent: Counter[str] = field(default_factory=Counter)

    def spend(self, amounts: Mapping[str, int]) -> tuple[Over, ...]:
        """Take *amounts*; or return the resources of which too little is left, and take nothing."""
        over = self.lacks(amounts)
        if not over:
            for (account, resource), (left, limit) in self.left.items():
                self.left[account, resource] = left - amounts.get(resource, 0), limit
            self.spent.update(amounts)
        return over

    def lacks(self, amounts: Mapping[str, int]) -> tuple[Over, ...]:
        """Return the resources of which too little is left for *amounts*, account by account."""
        return tuple(
            Over(account, resource, amounts[resource], max(left, 0), limit, self.spent[resource])
            for (account, resource), (left, limit) in self.left.items()
            if amounts.get(resource, 0) > max(left, 0)
        )

    def copy(self) -> "Budget":
        """Return the same, to be spent separately."""
        return Budget(dict(self.left))


def budget(limited: Iterable[Limited]) -> Budget | None:
    """Return what is left of all of *limited*; None: no limit."""
    left = {
        (one.account, resource): (limit - one.held.get(resource, 0), limit)
        for one in limited
        for resource, limit in one.limits.items()
    }
    return Budget(left) if left else None


def over_wait(over: tuple[Over, ...], *, together: bool = False) -> Wait:
    """Return why a pod waits whose queue or namespace has too little left, with the remainder.

    together: the amounts are those of several pods, which start together.
    """
    # A queue above that is full too has pods of the first, so one account of each kind says what to do.
    firsts: dict[str, Account] = {}
    for one in over:
        firsts.setdefault(one.account.kind, one.account)
    first, *others = [
        _too_little(account, [one for one in over if one.account == account], together=together)
        for account in firsts.values()
    ]
    text = "".join((f"waits because {first}", *(f". {one[:1].upper()}{one[1:]}" for one in others)))
    return Wait(Cause.WAITING_FOR_QUOTA if over[0].account.kind == QUOTA else Cause.WAITING_FOR_QUEUE, text)


def _too_little(account: Account, over: Sequence[Over], *, together: bool) -> str:
    """Return that *account* has too little left, how much, and the remedy."""
    by = " by the pods that start together" if together else ""
    told = "; ".join(
        f"{shown(one.resource, one.asked + one.beside)} {one.resource} requested{by}, "
        f"{shown(one.resource, one.left + one.beside)} of {shown(one.resource, one.limit)} left"
        for one in over
    )
    if account.kind == GUARANTEED:
        return (
            f"the free capacity is guaranteed to other queues: {told}; ask for less, wait until pods end, or lower "
            "the spec.guarantee of a queue"
        )
    whose = f" of namespace {account.namespace}" if account.namespace else ""
    never = any(one.asked + one.beside > one.limit for one in over)
    return (
        f"{account.kind} {account.name}{whose} has too little capacity: {told}; ask for less, or "
        f"{'have its limit raised' if never else 'wait until its pods end'}"
    )


def shown(name: str, amount: int) -> str:
    """Return an amount as Kubernetes writes it."""
    for word in QUOTA_WORDS:
        name = name.removeprefix(word)
    if name == names.CPU:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    for suffix, size in (("Gi", 2**30), ("Mi", 2**20)):
        if name in (names.MEMORY, names.EPHEMERAL_STORAGE) and amount and amount % size == 0:
            return f"{amount // size}{suffix}"
    return str(amount)
