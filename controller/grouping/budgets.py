"""Accounts what the pods of each queue and namespace hold, promised and bound, and what remains of the limits.

The sums are updated with every change, because each decision asks for the account of its pod. There are no sums for
namespaces without a quota on cards.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from controller.grouping.groups import Groups
from core.constraints.quota import GUARANTEED, QUEUE, QUOTA, Account, Budget, Limited, budget, in_units
from core.groups import DEFAULT_QUEUE, ROOT_QUEUE, QueueSpec
from core.ledger import Ledger
from core.model import GroupKey, NodeFacts, NodeName, Pod, PodUid, group_of
from core.placing.queues import QueueTree
from core.wire.policies import ResourceQuota

_LIMITS: Final = "limits."
_NONE: Final[Mapping[str, Mapping[str, int]]] = {}
# The name for pods without an existing queue, and the name for the sum of all pods.
_LOOSE: Final = ""
_ALL: Final = "*"
# The account for capacity that becomes available to everyone when nodes grow or guarantees shrink.
_UNRESERVED: Final = Account(GUARANTEED, "")
_KEPT_MAX: Final = 4096
_NOTHING: Final[Mapping[str, int]] = {}

# The unit with common limits: a group, or the namespace of a pod without a group.
Spender = GroupKey | str


class Totals:
    """The capacity of schedulable nodes, and the holdings on other nodes, so that total minus holdings is what is free.

    Only changed nodes are counted again.
    """

    def __init__(self, ledger: Ledger, held: Callable[[PodUid], Mapping[str, int]]) -> None:
        """Begin with nothing; *held*: returns what a pod holds of its queue."""
        self._ledger: Final = ledger
        self._held: Final = held
        self._cursor = -1
        # The amounts of each node, and the facts that determine them; None if the node's pods determine them.
        self._nodes: Final[dict[NodeName, tuple[NodeFacts | None, Mapping[str, int]]]] = {}
        self._amounts: Final[dict[str, int]] = {}
        self._grew = False

    def amounts(self) -> Mapping[str, int]:
        """Return the current amounts by resource."""
        names = self._ledger.changes_since(self._cursor)
        self._cursor = self._ledger.cursor
        for name in dict.fromkeys((*self._nodes, *self._ledger.states) if names is None else names):
            self._count(name)
        return self._amounts

    def has_grown(self) -> bool:
        """Return whether any amount has grown since the last call."""
        self.amounts()
        grew, self._grew = self._grew, False
        return grew

    def _count(self, name: NodeName) -> None:
        state = self._ledger.states.get(name)
        facts, before = self._nodes.pop(name, (None, _NOTHING))
        now: Mapping[str, int] = _NOTHING
        if state is not None:
            takes_pods = state.facts.ready and not state.facts.unschedulable
            if not (takes_pods and facts is state.facts):
                now = state.facts.allocatable if takes_pods else self._held_on(name)
            else:
                now = before
            self._nodes[name] = state.facts if takes_pods else None, now
        if now is before:
            return
        _sum(self._amounts, before, -1)
        _sum(self._amounts, now, 1)
        self._grew = self._grew or any(amount > before.get(resource, 0) for resource, amount in now.items())

    def _held_on(self, name: NodeName) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for uid in self._ledger.holders(name):
            _sum(found, self._held(uid), 1)
        return found


class Quotas:
    """Limits of namespaces on the resources of cards.

    ResourceQuotas that limit cards in HAMi's spelling, from the watch (hami 5.4).

    Quotas with scopes are ignored: HAMi counts all pods for them, Kubernetes only some.
    """

    def __init__(self, changed: Callable[[Account], None]) -> None:
        """Begin with none; *changed*: called for every quota whose limits changed."""
        self._changed: Final = changed
        self._limits: Final[dict[str, dict[str, Mapping[str, int]]]] = {}
        # All of them, also those that limit no cards.
        self._all: Final[dict[tuple[str, str], ResourceQuota]] = {}

    def all_of(self, namespace: str) -> list[ResourceQuota]:
        """Return the quotas of *namespace*."""
        return [one for (where, _), one in self._all.items() if where == namespace]

    def of(self, namespace: str) -> Mapping[str, Mapping[str, int]]:
        """Return the limits by quota of *namespace*, by resource."""
        return self._limits.get(namespace, _NONE)

    def in_bytes(self, namespace: str, name: str) -> frozenset[str]:
        """Return the keys of a quota whose limits have a binary suffix."""
        return self._all[namespace, name].in_bytes

    def names(self) -> list[tuple[str, str]]:
        """Return (name, namespace) of all quotas with limits."""
        return [(name, namespace) for namespace, names in self._limits.items() for name in names]

    def replaced(self, quotas: Sequence[ResourceQuota]) -> None:
        """Replace all quotas."""
        there = {(one.namespace, one.name) for one in quotas}
        for name, namespace in self.names():
            if (namespace, name) not in there:
                self._put(namespace, name, {})
        for gone in self._all.keys() - there:
            del self._all[gone]
        for one in quotas:
            self.changed(one)

    def changed(self, quota: ResourceQuota) -> None:
        """Record that a quota was added or changed."""
        before = self._all.get((quota.namespace, quota.name))
        self._all[quota.namespace, quota.name] = quota
        limits = {
            key.removeprefix(_LIMITS): amount
            for key, amount in sorted(quota.hard.items())
            if key.startswith(_LIMITS) and not quota.scoped
        }
        self._put(quota.namespace, quota.name, limits)
        if limits and before is not None and before.in_bytes != quota.in_bytes:
            self._changed(Account(QUOTA, quota.name, quota.namespace))

    def gone(self, quota: ResourceQuota) -> None:
        """Record that a quota was deleted."""
        self._all.pop((quota.namespace, quota.name), None)
        self._put(quota.namespace, quota.name, {})

    def _put(self, namespace: str, name: str, limits: Mapping[str, int]) -> None:
        known = self._limits.get(namespace, {})
        if known.get(name, {}) == limits:
            return
        if limits:
            self._limits[namespace] = known | {name: limits}
        elif len(known) > 1:
            del known[name]
        else:
            del self._limits[namespace]
        self._changed(Account(QUOTA, name, namespace))


def spender_of(pod: Pod) -> Spender:
    """Return the unit that accounts for *pod*."""
    return group_of(pod) or pod.namespace


class Budgets:
    """What each group and namespace holds.

    Attributes:
        quotas: limits of namespaces.
        totals: capacity of nodes.
        freed: accounts that may have more left than before; the cycle removes them.
        moved: queues whose holdings have changed; `QueueOrder` removes them.
    """

    def __init__(self, groups: Groups, ledger: Ledger) -> None:
        """Begin with nothing."""
        self.quotas: Final = Quotas(self._quota_changed)
        self.totals: Final = Totals(ledger, self.held_by)
        self._groups: Final = groups
        self._ledger: Final = ledger
        self._held: Final[dict[PodUid, tuple[Spender, Mapping[str, int]]]] = {}
        self._by_spender: Final[dict[Spender, dict[str, int]]] = {}
        # What each namespace with a quota holds, from its first query on.
        self._of_namespace: Final[dict[str, dict[str, int]]] = {}
        # Many pods hold the same amounts, so equal mappings are shared.
        self._kept: Final[dict[tuple[tuple[str, int], ...], Mapping[str, int]]] = {}
        # What each queue and its descendants hold.
        self._sums: dict[str, dict[str, int]] = {}
        # The same without descendants, which pods without a queue do not have.
        self._own: dict[str, dict[str, int]] = {}
        # Unused guarantees of each queue and its descendants, and their sums by parent.
        self._unused: dict[str, Mapping[str, int]] = {}
        self._unused_below: dict[str, dict[str, int]] = {}
        # The queues in which the holdings of each spender are counted: its own and those above it.
        self._counted_in: Final[dict[Spender, list[str]]] = {}
        self._tree = QueueTree()
        self.freed: Final[dict[Account, None]] = {}
        self.moved: Final[set[str]] = set()

    def note(self, uid: PodUid, spender: Spender, amounts: Mapping[str, int]) -> None:
        """Record that *uid*, which belongs to *spender*, holds exactly *amounts*."""
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
        """Record that *uid* holds nothing any more."""
        known = self._held.pop(uid, None)
        if known is not None:
            self._add(*known, -1)
            self.freed.update((one.freed_with, None) for one in self.limits(known[0]))

    def held(self, line: str) -> Mapping[str, int]:
        """Return what pods of queue *line* hold, promised and bound; `default` includes pods without a queue."""
        self._heed_queues()
        found = self._sums.get(line, _NOTHING)
        loose = self._sums.get(_LOOSE, _NOTHING)
        if line != DEFAULT_QUEUE or not loose:
            return found
        both = dict(found)
        _sum(both, loose, 1)
        return both

    def held_by_line(self, lines: Iterable[str]) -> dict[str, dict[str, int]]:
        """Return what pods of each queue hold, without descendants: for all queues with holdings, and for *lines*."""
        self._heed_queues()
        found: dict[str, dict[str, int]] = {line: {} for line in lines}
        for name, amounts in self._own.items():
            _sum(found.setdefault(name, {}), amounts, 1)
        if _LOOSE in self._sums:
            _sum(found.setdefault(DEFAULT_QUEUE, {}), self._sums[_LOOSE], 1)
        return found

    def allocated(self) -> dict[str, dict[str, int]]:
        """Return what pods of every queue and its descendants hold, by resource; cards in their own units."""
        self._heed_queues()
        sums = {name: self._sums.get(name, _NOTHING) for name in self._groups.queues}
        return {name: {one: amount for one, amount in held.items() if amount} for name, held in sums.items()}

    def hear(self) -> None:
        """Add to `freed` what nodes that have grown, changed guarantees, and groups that left their queue leave."""
        self._heed_queues()
        if self._tree.guaranteed and self.totals.has_grown():
            self.freed[_UNRESERVED] = None

    def group_changed(self, key: GroupKey) -> None:
        """Count what group *key* holds in the queue that it names now."""
        amounts, before = self._by_spender.get(key), self._counted_in.get(key)
        if amounts is None or before is None or self._tree is not self._groups.tree or before == self._queues_of(key):
            return
        self._count(key, amounts, -1)
        del self._counted_in[key]
        self._count(key, amounts, 1)
        self.freed.update({Account(QUEUE, name): None for name in before})
        self.freed[_UNRESERVED] = None

    def free_all(self) -> None:
        """Mark all limiting accounts as possibly freed, after missed changes."""
        self.freed[_UNRESERVED] = None
        self.freed.update((Account(QUEUE, name), None) for name in self._groups.queues)
        self.freed.update((Account(QUOTA, *one), None) for one in self.quotas.names())

    def limits(self, spender: Spender) -> tuple[Account, ...]:
        """Return the accounts that limit the pods of *spender*."""
        queues = tuple(Account(QUEUE, one.name) for one in self._above(spender) if one.capability)
        if self._groups.tree.guaranteed:
            queues = (*queues, Account(GUARANTEED, self._line(spender)))
        namespace = _namespace(spender)
        quotas = self.quotas.of(namespace)
        return (*queues, *(Account(QUOTA, name, namespace) for name in quotas)) if quotas else queues

    def sharing(self, spender: Spender) -> Callable[[Spender], bool]:
        """Return a question for now: whether pods of another spender and of *spender* leave something to each other."""
        own = frozenset(one.freed_with for one in self.limits(spender))
        # Many of one queue and namespace are asked for.
        known: dict[tuple[str, str], bool] = {}

        def shares(other: Spender) -> bool:
            alike = self._groups.queue_of(other) if isinstance(other, GroupKey) else "", _namespace(other)
            if alike not in known:
                known[alike] = not own.isdisjoint(one.freed_with for one in self.limits(other))
            return known[alike]

        return shares

    def spender_of(self, uid: PodUid) -> Spender | None:
        """Return whose holdings those of *uid* are; None if it holds nothing."""
        known = self._held.get(uid)
        return known[0] if known is not None else None

    def budget(
        self,
        spender: Spender,
        *,
        without: Collection[PodUid] = (),
        beside: Iterable[tuple[Spender, Mapping[str, int]]] = (),
    ) -> Budget | None:
        """Return what pods of *spender* may still take; None if nothing limits them.

        Args:
            spender: whose pods they are.
            without: pods that have left by then.
            beside: what others will have taken by then.
        """
        if not self.limits(spender):
            return None
        changes = [(*self._held[uid], -1) for uid in without if uid in self._held]
        changes += [(other, amounts, 1) for other, amounts in beside]
        for other, amounts, times in changes:
            self._add(other, amounts, times)
        left = budget(self._limited(spender))
        for other, amounts, times in changes:
            self._add(other, amounts, -times)
        return left

    def _limited(self, spender: Spender) -> Iterable[Limited]:
        self._heed_queues()
        for queue in self._above(spender):
            yield Limited(Account(QUEUE, queue.name), queue.capability, self._sums.get(queue.name, _NOTHING))
        if self._groups.tree.guaranteed:
            yield self._unreserved(spender)
        namespace = _namespace(spender)
        for name, limits in self.quotas.of(namespace).items():
            words, in_bytes = self._ledger.words, self.quotas.in_bytes(namespace, name)
            counted = {
                one: in_units(one, limit, words, in_bytes=f"{_LIMITS}{one}" in in_bytes)
                for one, limit in limits.items()
                if one in words.budgeted
            }
            yield Limited(Account(QUOTA, name, namespace), counted, self._held_in(namespace))

    def _unreserved(self, spender: Spender) -> Limited:
        """Return the limit for pods of *spender* that keeps the guarantees of other queues.

        At each level of the tree, unused guarantees of the other queues are reserved for them.
        """
        tree, total, held = self._groups.tree, self.totals.amounts(), self._sums.get(_ALL, _NOTHING)
        limits = {one: total[one] for one in tree.sums[ROOT_QUEUE] if one in total}
        left = {one: limit - held.get(one, 0) for one, limit in limits.items()}
        parent = ROOT_QUEUE
        for name in (*tree.path(self._line(spender)), ""):
            own, all_of_them = self._unused.get(name, _NOTHING), self._unused_below.get(parent, _NOTHING)
            for one, free in left.items():
                mine = own.get(one, 0)
                left[one] = max(free - all_of_them.get(one, 0) + mine, mine)
            parent = name
        account = Account(GUARANTEED, self._line(spender))
        return Limited(account, limits, {one: limits[one] - free for one, free in left.items()})

    def _line(self, spender: Spender) -> str:
        above = self._above(spender)
        return above[0].name if above else DEFAULT_QUEUE

    def queue_of(self, uid: PodUid) -> str | None:
        """Return the queue that accounts for *uid*; None for a pod without a queue or holdings."""
        known = self._held.get(uid)
        above = self._above(known[0]) if known is not None else ()
        return above[0].name if above else None

    def held_by(self, uid: PodUid) -> Mapping[str, int]:
        """Return what *uid* holds, promised or bound."""
        known = self._held.get(uid)
        return known[1] if known is not None else _NOTHING

    def _held_in(self, namespace: str) -> Mapping[str, int]:
        """Return what pods of *namespace* hold; summed on the first query."""
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
        if isinstance(spender, GroupKey):
            self._groups.queues_unreported = True
        if self._tree is self._groups.tree:
            self._count(spender, amounts, times)
        if not any(self._by_spender[spender].values()):
            del self._by_spender[spender]
            self._counted_in.pop(spender, None)
        in_namespace = self._of_namespace.get(_namespace(spender))
        if in_namespace is not None:
            _sum(in_namespace, amounts, times)

    def _heed_queues(self) -> None:
        """Add up again if queues have changed, which is rare: every group is counted."""
        if self._tree is self._groups.tree:
            return
        self._tree = tree = self._groups.tree
        before, self._sums, self._own = self._sums, {}, {}
        self._unused, self._unused_below = {}, {}
        self._counted_in.clear()
        self.moved.clear()
        for name in sorted(tree.guaranteed, key=lambda one: -len(tree.path(one))):
            self._note_unused(name)
        for spender, amounts in self._by_spender.items():
            self._count(spender, amounts, 1)
        self.freed[_UNRESERVED] = None
        for name, held in before.items():
            now = self._sums.get(name, _NOTHING)
            if any(amount > now.get(one, 0) for one, amount in held.items()):
                self.freed[Account(QUEUE, name)] = None

    def _count(self, spender: Spender, amounts: Mapping[str, int], times: int) -> None:
        """Add the holdings of *spender* to the queue in which it is counted, and to those above that."""
        names = self._counted_in.get(spender)
        if names is None:
            names = self._counted_in[spender] = self._queues_of(spender)
        if names[0] != _LOOSE:
            _sum(self._own.setdefault(names[0], {}), amounts, times)
        for name in names:
            _sum(self._sums.setdefault(name, {}), amounts, times)
        self.moved.update(names)
        tree = self._groups.tree
        if tree.guaranteed:
            _sum(self._sums.setdefault(_ALL, {}), amounts, times)
            for name in reversed(tree.path(names[0] or DEFAULT_QUEUE)):
                self._note_unused(name)

    def _queues_of(self, spender: Spender) -> list[str]:
        return [queue.name for queue in self._above(spender)] or [_LOOSE]

    def _note_unused(self, name: str) -> None:
        """Sum the unused guarantees of queue *name*; its descendants must be done before."""
        held, below = self.held(name), self._unused_below.get(name, _NOTHING)
        guaranteed = self._groups.tree.guaranteed.get(name, _NOTHING)
        now = {one: max(amount - held.get(one, 0), below.get(one, 0), 0) for one, amount in guaranteed.items()}
        sums = self._unused_below.setdefault(self._groups.tree.parent(name), {})
        _sum(sums, self._unused.get(name, _NOTHING), -1)
        _sum(sums, now, 1)
        self._unused[name] = now

    def _above(self, spender: Spender) -> list[QueueSpec]:
        """Return the queue of *spender* and its ancestors, each once even if their parents form a cycle."""
        if not isinstance(spender, GroupKey):
            return []
        found: dict[str, QueueSpec] = {}
        name = self._groups.queue_of(spender)
        while (queue := self._groups.queues.get(name)) is not None and name not in found:
            found[name] = queue
            name = queue.parent
        return list(found.values())


def _namespace(spender: Spender) -> str:
    return spender if isinstance(spender, str) else spender.namespace


def _sum(sums: dict[str, int], more: Mapping[str, int], times: int) -> None:
    for name, amount in more.items():
        sums[name] = sums.get(name, 0) + times * amount
