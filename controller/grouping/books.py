"""What the pods of each queue and namespace hold, promised and bound, and what is left of what limits them.

Kept change by change: an account is asked for every decision on one of its pods. Of namespaces without a quota on cards
no sums are kept.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from typing import Final

from controller.grouping.admitting import shown
from controller.grouping.groups import Groups
from controller.grouping.quotas import Quotas
from core.groups import DEFAULT_QUEUE, GroupKey, QueueSpec, group_of
from core.model import Pod, PodUid
from core.placing.fairness import QUEUE, QUOTA, Account, Budget, Limited, Over, budget
from core.waiting import Cause, Wait

# What is held by pods of no queue that is there is added up under this name.
_LOOSE: Final = ""
_KEPT_MAX: Final = 4096
_NOTHING: Final[Mapping[str, int]] = {}

# Whose pods are held to the same limits: a group, or the namespace of a pod of no group.
Spender = GroupKey | str


def spender_of(pod: Pod) -> Spender:
    """By which *pod* is counted."""
    return group_of(pod) or pod.namespace


class Books:
    """Who of which group and namespace holds what.

    Attributes:
        quotas: what limits namespaces.
        freed: accounts that may have more left than before; the reader takes them out.
    """

    def __init__(self, groups: Groups, budgeted: Callable[[], Set[str]]) -> None:
        """Begin with nothing; *budgeted*: the resources that a quota limits here."""
        self.quotas: Final = Quotas(self._quota_changed)
        self._groups: Final = groups
        self._budgeted: Final = budgeted
        self._held: Final[dict[PodUid, tuple[Spender, Mapping[str, int]]]] = {}
        self._by_spender: Final[dict[Spender, dict[str, int]]] = {}
        # What each namespace holds that has a quota, from when it was first asked.
        self._of_namespace: Final[dict[str, dict[str, int]]] = {}
        # What is held is the same for many: it is kept once.
        self._kept: Final[dict[tuple[tuple[str, int], ...], Mapping[str, int]]] = {}
        # What each queue holds with those below it, and as of which version of groups and queues.
        self._sums: dict[str, dict[str, int]] = {}
        # The same without those below it.
        self._own: dict[str, dict[str, int]] = {}
        self._version = -1
        self.freed: Final[dict[Account, None]] = {}

    def note(self, uid: PodUid, spender: Spender, amounts: Mapping[str, int]) -> None:
        """*uid*, one of *spender*'s, holds *amounts*, and nothing else."""
        known = self._held.get(uid)
        if known == (spender, amounts):
            return
        self.drop(uid)
        if len(self._kept) > _KEPT_MAX:
            self._kept.clear()
        amounts = self._kept.setdefault(tuple(amounts.items()), amounts)
        self._held[uid] = spender, amounts
        self._add(spender, amounts, 1)

    def drop(self, uid: PodUid) -> None:
        """*uid* holds nothing any more."""
        known = self._held.pop(uid, None)
        if known is not None:
            self._add(*known, -1)
            self.freed.update(dict.fromkeys(self.limits(known[0])))

    def held(self, line: str) -> Mapping[str, int]:
        """What pods of queue *line* hold, promised and bound; of `default`, those of no queue too."""
        if self._version != self._groups.version:
            self._add_up()
        found = self._sums.get(line, _NOTHING)
        loose = self._sums.get(_LOOSE, _NOTHING)
        if line != DEFAULT_QUEUE or not loose:
            return found
        both = dict(found)
        _sum(both, loose, 1)
        return both

    def held_by_line(self, lines: Iterable[str]) -> dict[str, dict[str, int]]:
        """What pods of each queue hold, those of queues below it not among them: of all that hold, and of *lines*."""
        if self._version != self._groups.version:
            self._add_up()
        found: dict[str, dict[str, int]] = {line: {} for line in lines}
        for name, amounts in self._own.items():
            _sum(found.setdefault(name if name != _LOOSE else DEFAULT_QUEUE, {}), amounts, 1)
        return found

    def free_all(self) -> None:
        """Any account that limits somebody may have more left, whatever was missed."""
        self.freed.update((Account(QUEUE, name), None) for name in self._groups.queues)
        self.freed.update((Account(QUOTA, *one), None) for one in self.quotas.names())

    def limits(self, spender: Spender) -> tuple[Account, ...]:
        """The accounts that limit what pods of *spender* may take."""
        queues = tuple(Account(QUEUE, one.name) for one in self._above(spender) if one.capability)
        namespace = _namespace(spender)
        quotas = self.quotas.of(namespace)
        return (*queues, *(Account(QUOTA, name, namespace) for name in quotas)) if quotas else queues

    def budget(self, spender: Spender, *, without: Collection[PodUid] = ()) -> Budget | None:
        """What pods of *spender* may still take, once those *without* have left; None where nothing limits them."""
        if not self.limits(spender):
            return None
        left = budget(self._limited(spender))
        if left is not None:
            for other, amounts in (self._held[uid] for uid in without if uid in self._held):
                for account in self.limits(other):
                    left.free(account, amounts)
        return left

    def _limited(self, spender: Spender) -> Iterable[Limited]:
        if self._version != self._groups.version:
            self._add_up()
        for queue in self._above(spender):
            yield Limited(Account(QUEUE, queue.name), queue.capability, self._sums.get(queue.name, _NOTHING))
        namespace = _namespace(spender)
        for name, limits in self.quotas.of(namespace).items():
            counted = {one: limit for one, limit in limits.items() if one in self._budgeted()}
            yield Limited(Account(QUOTA, name, namespace), counted, self._held_in(namespace))

    def _held_in(self, namespace: str) -> Mapping[str, int]:
        """What pods of *namespace* hold, added up when that is first asked."""
        found = self._of_namespace.get(namespace)
        if found is None:
            found = self._of_namespace[namespace] = {}
            for spender, amounts in self._by_spender.items():
                if _namespace(spender) == namespace:
                    _sum(found, amounts, 1)
        return found

    def _quota_changed(self, account: Account) -> None:
        self.freed[account] = None
        if not self.quotas.of(account.namespace):
            self._of_namespace.pop(account.namespace, None)

    def _add(self, spender: Spender, amounts: Mapping[str, int], times: int) -> None:
        _sum(self._by_spender.setdefault(spender, {}), amounts, times)
        if not any(self._by_spender[spender].values()):
            del self._by_spender[spender]
        if self._version == self._groups.version:
            self._count(spender, amounts, times)
        in_namespace = self._of_namespace.get(_namespace(spender))
        if in_namespace is not None:
            _sum(in_namespace, amounts, times)

    def _add_up(self) -> None:
        self._version = self._groups.version
        self._sums, self._own = {}, {}
        for spender, amounts in self._by_spender.items():
            self._count(spender, amounts, 1)

    def _count(self, spender: Spender, amounts: Mapping[str, int], times: int) -> None:
        """Add to its queue, and to those above it, what pods of *spender* hold."""
        names = [queue.name for queue in self._above(spender)] or [_LOOSE]
        _sum(self._own.setdefault(names[0], {}), amounts, times)
        for name in names:
            _sum(self._sums.setdefault(name, {}), amounts, times)

    def _above(self, spender: Spender) -> list[QueueSpec]:
        """The queue of *spender*, and those above it; each once, whatever their parents say."""
        spec = self._groups.spec(spender) if isinstance(spender, GroupKey) else None
        found: dict[str, QueueSpec] = {}
        name = spec.queue if spec is not None else ""
        while (queue := self._groups.queue(name)) is not None and name not in found:
            found[name] = queue
            name = queue.parent
        return list(found.values())


def over_wait(over: tuple[Over, ...]) -> Wait:
    """Why a pod waits of which its queue or namespace has too little left, with the remainder."""
    first = over[0].account
    told = [
        f"{shown(one.resource, one.asked + one.beside)} {one.resource} asked, "
        f"{shown(one.resource, one.left + one.beside)} of {shown(one.resource, one.limit)} left"
        for one in over
        if one.account == first
    ]
    whose = f" of namespace {first.namespace}" if first.namespace else ""
    text = (
        f"waits because {first.kind} {first.name}{whose} has no room for it: {'; '.join(told)}; "
        "ask for less, or wait until its pods end"
    )
    return Wait(Cause.WAITING_FOR_QUOTA if first.kind == QUOTA else Cause.WAITING_FOR_QUEUE, text)


def _namespace(spender: Spender) -> str:
    return spender if isinstance(spender, str) else spender.namespace


def _sum(sums: dict[str, int], more: Mapping[str, int], times: int) -> None:
    for name, amount in more.items():
        sums[name] = sums.get(name, 0) + times * amount
