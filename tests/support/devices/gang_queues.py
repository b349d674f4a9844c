"""Queues and quotas in the twin of gangs: how they change, what they hold, and what they have left."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Final

from core.groups import QueueSpec
from core.wire.policies import ResourceQuota
from tests.support.devices.gang_cards import CARD_MIB, Asked, Kind
from tests.support.devices.gang_state import NAMESPACES, GangState
from tests.support.worlds.world import MEMORY, NUMBER

# Of "within" the other two are limits too: it is below "small".
QUEUES: Final = ("small", "within", "open")
_ABOVE: Final = {"small": ("small",), "within": ("within", "small"), "open": ("open",)}


def above(name: str) -> tuple[str, ...]:
    """A queue and those above it."""
    return _ABOVE.get(name, (name,))


class Queues:
    """What queues may hold, and what quotas leave the first of the namespaces.

    Attributes:
        limits: the capability of each queue, by resource.
        quotas: MiB of cards' memory in all, by quota.
        shares: all else of each queue.
    """

    def __init__(self, state: GangState, *, parts: bool) -> None:
        """Begin with limits; *parts*: pods ask for parts of cards."""
        self.limits: Final = {"small": {NUMBER: 4, "cpu": 9000}, "within": {"cpu": 5000}, "open": {}}
        self.quotas: Final[dict[str, int]] = {}
        self.shares: Final = {name: QueueSpec(name=name) for name in QUEUES}
        self._state: Final = state
        self._parts: Final = parts

    def specs(self) -> list[QueueSpec]:
        """All queues."""
        return [self._queue(name) for name in QUEUES]

    def quota_specs(self) -> list[ResourceQuota]:
        """All quotas."""
        return [_quota(*one) for one in self.quotas.items()]

    def change_queue(self) -> None:
        """A queue may hold more, or less; or it has another weight, guarantee or priority."""
        chance = self._state.chance
        name = chance.choice(QUEUES)
        if chance.random() < 0.5:
            # Of cards in parts it depends on the cards how many pods can still come.
            guarantee = chance.choice(({}, {} if self._parts else {NUMBER: 2}, {"cpu": 3000}))
            self.shares[name] = QueueSpec(
                name=name,
                weight=chance.randint(1, 4),
                priority=chance.choice((0, 0, 1)),
                guarantee=guarantee,
                deserved=chance.choice(({}, {MEMORY: 2 * CARD_MIB}, {"cpu": 6000})) if self._state.reclaims else {},
                reclaimable=chance.random() < 0.8,
            )
        elif name == "small":
            cards = chance.choice((2, 4, 6))
            if cards < self.limits["small"][NUMBER]:
                self._state.broken.add("queue small")
            self.limits["small"] = {NUMBER: cards, "cpu": 9000}
        elif name == "within":
            cpu = chance.choice((3000, 5000, 7000))
            if cpu < self.limits["within"]["cpu"]:
                self._state.broken.add("queue within")
            self.limits["within"] = {"cpu": cpu}
        self._state.next_version()
        self._state.world.scheduler.cluster.groups.queue_changed(self._queue(name))

    def change_quota(self) -> None:
        """A quota comes, goes or is another one."""
        chance = self._state.chance
        name, cards = chance.choice("ab"), chance.choice((None, 0, 2, 5, 9))
        quotas = self._state.world.scheduler.cluster.budgets.quotas
        if cards is None:
            self.quotas.pop(name, None)
            quotas.gone(_quota(name, 0))
            return
        if cards * CARD_MIB < self.quotas.get(name, cards * CARD_MIB + 1):
            self._state.broken.add("quotas")
        self.quotas[name] = cards * CARD_MIB
        quotas.changed(_quota(name, self.quotas[name]))

    def _queue(self, name: str) -> QueueSpec:
        above = _ABOVE[name][1] if name == "within" else ""
        return replace(
            self.shares[name], resource_version=str(self._state.number), capability=self.limits[name], parent=above
        )

    # ------------------------------------------------------------------ what must hold

    def look(self) -> None:
        """Check that no queue holds more than its capability, and no namespace more than its quotas."""
        broken, faults, queued = self._state.broken, self._state.faults, self.queued()
        for name, limits in self.limits.items():
            over = [one for one, most in limits.items() if queued[name, one] > most]
            if not over:
                broken.discard(f"queue {name}")
            elif f"queue {name}" not in broken:
                faults.append(f"queue {name} holds more than it may: {over}")
        if self.limited_mib() <= min(self.quotas.values(), default=self.limited_mib()):
            broken.discard("quotas")
        elif "quotas" not in broken:
            faults.append(f"{self.limited_mib()} MiB are held under quotas of {self.quotas}")

    def limited_mib(self) -> int:
        """What the pods of the namespace with quotas hold of cards' memory."""
        return sum(
            _limited_of(self._state.asked[one.name])
            for one in self._state.world.pods.values()
            if one.namespace == NAMESPACES[0] and self._state.node_of(one)
        )

    def quotas_take(self, asked: Asked, count: int) -> bool:
        """Whether quotas have room for *count* more pods such as this."""
        more = _limited_of(asked) * count
        if asked.namespace != NAMESPACES[0] or not more or not self.quotas:
            return True
        return self.limited_mib() + more <= min(self.quotas.values())

    def queued(self) -> Counter[tuple[str, str]]:
        """What each queue holds with those below it, by queue and resource."""
        found, state = Counter[tuple[str, str]](), self._state
        for one in state.world.pods.values():
            asked = state.asked[one.name]
            if asked.group and state.node_of(one):
                for name in _ABOVE[state.specs[asked.group].queue]:
                    found[name, NUMBER] += asked.cards if asked.kind is Kind.VGPU else 0
                    found[name, "cpu"] += asked.cpu * 1000
        return found

    def takes(self, name: str, asked: Asked, count: int) -> bool:
        """Whether queue *name*, and the one above it, have room for *count* more."""
        queued = self.queued()
        more = {NUMBER: asked.cards * count if asked.kind is Kind.VGPU else 0, "cpu": asked.cpu * 1000 * count}
        return all(
            queued[one, resource] + more[resource] <= most
            for one in _ABOVE[name]
            for resource, most in self.limits[one].items()
            if more[resource]
        )

    def is_left_by_others(self, name: str, asked: Asked, count: int) -> bool:
        """Whether nodes that take pods have room for *count* beside what is guaranteed to others than *name*."""
        state, queued, own = self._state, self.queued(), _ABOVE.get(name, ())
        taking = {where for where in state.nodes if state.takes(where, replace(asked, zone=""))}
        on = [state.asked[one.name] for one in state.world.pods.values() if state.node_of(one) in taking]
        for resource, more, used in (
            (NUMBER, asked.cards * count, sum(one.cards for one in on)),
            ("cpu", asked.cpu * count * 1000, sum(one.cpu for one in on) * 1000),
        ):
            due = {
                one: max(share.guarantee.get(resource, 0) - queued[one, resource], 0)
                for one, share in self.shares.items()
            }
            due["small"] = max(due["small"], due["within"])
            others = [one for one in QUEUES if one not in own and (one != "within" or name == "small")]
            kept = sum(due[one] for one in others)
            if kept and more and sum(state.has(where, resource) for where in taking) - used - kept < more:
                return False
        return True


def _limited_of(asked: Asked) -> int:
    return asked.cards * asked.mib if asked.kind is Kind.VGPU else 0


def _quota(name: str, mib: int) -> ResourceQuota:
    return ResourceQuota(NAMESPACES[0], name, {f"limits.{MEMORY}": mib, "requests.cpu": 1}, {})
