"""What queues deserve in the twin of gangs, by filling up, and that a queue takes back no more than that.

A queue takes only from queues that hold more than they deserve, and then holds no more than it deserves itself; none
falls below its guarantee. Both rules hold for all queues below the first parent that the two share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from controller.actions import Preempt
from core.groups import DEFAULT_QUEUE, QueueSpec
from tests.support.devices.gang_cards import CARD_MIB, Asked
from tests.support.devices.gang_evictions import Evictions
from tests.support.devices.gang_queues import QUEUES, Queues, above
from tests.support.devices.gang_state import GangState
from tests.support.worlds.world import MEMORY, NUMBER

RESOURCES: Final = ("cpu", NUMBER, MEMORY)
# Shares are found to this fraction of a unit.
_SAME: Final = 0.01
_HALVINGS: Final = 80
# What queues deserve is computed anew so often.
_OLDEST_S: Final = 1.0
_BELOW: Final = {"small": ("within",)}


class Part(NamedTuple):
    """One that shares by its weight, between what it gets at the least and at the most. due: its `deserved`, or 0."""

    weight: int
    least: float
    most: float
    due: float = 0.0


def fill(parts: Mapping[str, Part], total: float) -> dict[str, float]:
    """What each gets of *total*: first up to its `deserved`, then those without one by weight, then the rest."""
    got = {name: one.least for name, one in parts.items()}
    said = {name for name, one in parts.items() if one.due}
    for members, most in (
        (said, {name: min(parts[name].most, max(parts[name].least, parts[name].due)) for name in said}),
        (parts.keys() - said, {name: parts[name].most for name in parts.keys() - said}),
        (said, {name: parts[name].most for name in said}),
    ):
        weights = {name: parts[name].due or parts[name].weight for name in members}
        room = total - sum(amount for name, amount in got.items() if name not in members)
        low, high = 0.0, 1e9
        for _ in range(_HALVINGS):
            level = (low + high) / 2
            filled = sum(max(got[name], min(most[name], level * weights[name])) for name in members)
            low, high = (level, high) if filled <= room else (low, level)
        got |= {name: max(got[name], min(most[name], low * weights[name])) for name in members}
    return got


class Then(NamedTuple):
    """What was so at a time: what there is in all, what pods of each queue want of it; the queues, and their limits."""

    at_s: float
    total: Counter[str]
    wants: Counter[tuple[str, str]]
    queues: Mapping[str, QueueSpec]
    limits: Mapping[str, Mapping[str, int]]

    def deserved(self) -> dict[tuple[str, str], float]:
        """What each queue deserved, by queue and resource."""
        found = dict[tuple[str, str], float]()
        for resource in RESOURCES:
            of = {name: self._part(name, resource) for name in (*QUEUES, DEFAULT_QUEUE)}
            top = fill({name: of[name] for name in of if name != "within" and of[name].most}, self.total[resource])
            if of["within"].most:
                inner = {"within": of["within"]}
                if self.wants["small", resource]:
                    inner["small"] = Part(1, 0, self.wants["small", resource])
                top["within"] = fill(inner, top.get("small", 0.0))["within"]
            found.update({(name, resource): amount for name, amount in top.items()})
        return found

    def least(self, queue: str) -> dict[str, int]:
        """What was guaranteed to a queue and those below it."""
        found = dict(self.queues[queue].guarantee) if queue in self.queues else {}
        for one in _BELOW.get(queue, ()):
            for resource, amount in self.least(one).items():
                found[resource] = max(found.get(resource, 0), amount)
        return found

    def _part(self, queue: str, resource: str) -> Part:
        spec, least = self.queues.get(queue, QueueSpec(name=queue)), self.least(queue).get(resource, 0)
        want = self.wants[queue, resource] + sum(self._part(one, resource).most for one in _BELOW.get(queue, ()))
        limit = self.limits.get(queue, {}).get(resource)
        most = max(want if limit is None else min(want, limit), least)
        return Part(max(spec.weight, 1), least, most, max(spec.deserved.get(resource, 0), 0))


class Reclaims:
    """What is taken back."""

    def __init__(self, state: GangState, queues: Queues, evictions: Evictions) -> None:
        """Begin without a past."""
        self._state: Final = state
        self._queues: Final = queues
        self._evictions: Final = evictions
        self._past: list[Then] = []
        # What queues hold at the least, and at the most.
        self._held = self._most_held = Counter[tuple[str, str]]()
        # What was checked and is not sent yet.
        self._checked: list[Preempt] = []

    def before(self) -> None:
        """Note what is so before the scheduler decides."""
        now_s = self._state.world.now_s
        self._past = [one for one in self._past if one.at_s >= now_s - _OLDEST_S]
        total, wants = self._wants()
        self._past.append(Then(now_s, total, wants, dict(self._queues.shares), dict(self._queues.limits)))
        self._held, self._most_held = self._held_then()

    def after(self) -> None:
        """Check what the scheduler has just planned to take back."""
        unsent = [one for one in self._state.world.scheduler.cluster.actions if isinstance(one, Preempt)]
        for action in unsent:
            if action.victims and not any(action is one for one in self._checked):
                self._look_at(action)
        self._checked = unsent

    # ------------------------------------------------------------------ what must hold

    def _look_at(self, action: Preempt) -> None:
        state = self._state
        first = [state.asked[one.name] for one, _ in action.nominated if one.name in state.asked]
        lowest = min((one.priority for one in first), default=0) if state.preempts else -1
        blocks: dict[str, list[str]] = {}
        for target, _ in action.victims:
            if target.name in state.asked:
                group = state.asked[target.name].group
                spec = state.specs.get(group)
                blocks.setdefault(group if spec is not None and spec.is_gang else target.name, []).append(target.name)
        taken = [names for names in blocks.values() if max(state.asked[one].priority for one in names) >= lowest]
        if not taken or not first:
            return
        state.counts["taken back"] += 1
        own = self._path(first[0])
        why = {text for then in self._past for text in [self._wrong(then, own, first, taken)]}
        if "" not in why:
            names = sorted(one for block in taken for one in block)
            state.faults.append(f"{names} leave for {own}: {sorted(why)}")

    def _wrong(self, then: Then, own: tuple[str, ...], first: list[Asked], taken: list[list[str]]) -> str:
        """What is wrong with taking back, by what was so *then*; "" if nothing is."""
        state, asked, held, deserved = self._state, Counter[str](), self._most_held, then.deserved()
        for want in first:
            asked.update(amounts_of(want))
        lost: dict[str, list[Counter[str]]] = {}
        for block in taken:
            by_queue: dict[str, Counter[str]] = {}
            for name in block:
                path = self._path(state.asked[name])
                shared = next((at for at, two in enumerate(zip(own, path, strict=False)) if two[0] != two[1]), None)
                if shared is None or not state.asked[name].group:
                    return f"{name} is of {path}"
                for queue in path[shared:]:
                    by_queue.setdefault(queue, Counter()).update(amounts_of(state.asked[name]))
                for queue in own[shared:]:
                    over = [r for r in asked if self._held[queue, r] + asked[r] > deserved.get((queue, r), 0.0) + _SAME]
                    if over:
                        return f"{queue} then holds more than it deserves of {over}"
            for queue, amounts in by_queue.items():
                lost.setdefault(queue, []).append(amounts)
        for queue, losses in lost.items():
            due = {one: deserved.get((queue, one), 0.0) for one in RESOURCES}
            total = sum(losses, Counter[str]())
            if not any(
                block[one] and held[queue, one] - (total[one] - block[one]) > due[one] - _SAME
                for block in losses
                for one in asked
            ):
                return f"{queue} holds no more than it deserves: {due}"
            for one, amount in then.least(queue).items():
                if total[one] and held[queue, one] - total[one] < amount:
                    return f"{queue} is left less than {amount} of {one}"
        return ""

    def may_take(self, asked: Asked, victim: str) -> bool:
        """Whether a pod may now have *victim* leave for it, alone, because of their queues."""
        self.before()
        held, then, own = self._most_held, self._past[-1], self._path(asked)
        deserved, wants = then.deserved(), amounts_of(asked)
        loses, path = amounts_of(self._state.asked[victim]), self._path(self._state.asked[victim])
        if own[0] == path[0] or not self._state.asked[victim].group:
            return False
        if any(held[one, r] + wants[r] > deserved.get((one, r), 0.0) - _SAME for one in own for r in wants):
            return False
        return all(
            self._queues.shares[one].reclaimable
            and any(r in loses and self._held[one, r] > deserved.get((one, r), 0.0) + 1 for r in wants)
            and all(self._held[one, r] - loses.get(r, 0) >= least for r, least in then.least(one).items())
            for one in path
        )

    # ------------------------------------------------------------------ what is so

    def _path(self, asked: Asked) -> tuple[str, ...]:
        """The queues of a pod, the uppermost first."""
        return above(self._state.specs[asked.group].queue)[::-1] if asked.group else (DEFAULT_QUEUE,)

    def _held_then(self) -> tuple[Counter[tuple[str, str]], Counter[tuple[str, str]]]:
        """What queues hold at the least and at the most.

        Who is to leave, or waits for that, may or may not count: their preemption may end in the next decision.
        """
        state, found, more = self._state, Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        asked = [one for one in state.world.scheduler.cluster.actions if isinstance(one, Preempt)]
        going = self._evictions.chosen() | {one.name for action in asked for one, _ in action.victims}
        awaited = {one.name for action in (*self._evictions.planned, *asked) for one, _ in action.nominated}
        for one in state.world.pods.values():
            where = state.node_of(one)
            if one.deleting or not (where or (not one.finished and (one.name in awaited or one.nominated_node))):
                continue
            for queue in self._path(state.asked[one.name]):
                for resource, amount in amounts_of(state.asked[one.name]).items():
                    (found if where and one.name not in going else more)[queue, resource] += amount
        return found, found + more

    def _wants(self) -> tuple[Counter[str], Counter[tuple[str, str]]]:
        """What there is in all, and what the pods of each queue want of it, by queue and resource."""
        state, total, wants = self._state, Counter[str](), Counter[tuple[str, str]]()
        waiting = set[str]()
        for name, node in state.nodes.items():
            if node.ready and not node.unschedulable:
                total.update({"cpu": state.has(name, "cpu"), NUMBER: int(node.allocatable.get(NUMBER, "0"))})
                total[MEMORY] += state.has(name, MEMORY)
        for one in state.world.pods.values():
            asked, where = state.asked[one.name], state.node_of(one)
            if one.finished:
                continue
            queue = self._path(asked)[-1]
            for resource, amount in amounts_of(asked).items():
                wants[queue, resource] += amount
            if not where and asked.cards:
                waiting.add(queue)
            if where and not (state.nodes[where].ready and not state.nodes[where].unschedulable):
                total.update(amounts_of(asked))
        for queue in waiting:
            # How much a pod gets of a card is not known before it has a place: all of it counts as wanted.
            wants[queue, MEMORY] = total[MEMORY]
        return total, wants


def amounts_of(asked: Asked) -> dict[str, int]:
    """What a pod holds that queues share."""
    return {"cpu": asked.cpu * 1000} | ({NUMBER: asked.cards, MEMORY: CARD_MIB * asked.cards} if asked.cards else {})
