"""Groups, queues and single pods through everything that goes wrong with them, judged from pods and nodes alone.

What must hold is added up here from objects and Bindings, by arithmetic of its own: cards and cpu are never promised
twice, a gang has its minimum or nothing unless something was taken from it, subgroups likewise, groups and subgroups
are in one domain, no queue is over its capability, no namespace over its ResourceQuotas, no pod is placed on a node
that does not take it, only pods of a lower priority are evicted or those that a queue may take back, a gang only as a
whole, those that a disruption budget keeps only where nobody else helps, and once nothing moves, whoever waits does
not fit, even without those below it. Each of these is judged in a file of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from controller.actions import Bind, Lock
from core.model import Node, NodeConstraints, NodeName, Phase, Taint
from core.port.handoff import LockWait
from tests.support.devices.gang_cards import CARD_MIB, Asked, Kind, Offer, Share, left, shares_of
from tests.support.devices.gang_claims import Claims
from tests.support.devices.gang_domains import PARTS, ROLES, TIERS
from tests.support.devices.gang_evictions import Evictions
from tests.support.devices.gang_groups import Gangs
from tests.support.devices.gang_queues import Queues
from tests.support.devices.gang_reclaim import Reclaims
from tests.support.devices.gang_state import APPS, NAMESPACES, ZONES, GangState
from tests.support.devices.gang_waiting import Waiting
from tests.support.worlds.world import MEMORY, World, pod

GROUP: Final = "scheduling.k8s.io/group-name"
LOCK: Final = "hami.io/mutex.lock"
_MOST_PODS: Final = 40
# Members are created for this many of the latest groups.
_LATEST: Final = 8
_AFTER_S: Final = 5.0
_TAINT: Final = (Taint(key="broken", effect="NoSchedule"),)


class _Watched(World):
    """A scheduler whose decisions are looked at one by one, where queues take back."""

    def __init__(self, taking: Reclaims | None, *nodes: Node, **settings: Any) -> None:
        super().__init__(*nodes, **settings)
        self._taking: Final = taking

    def plan(self) -> None:
        if self._taking is None:
            super().plan()
            return
        self._taking.before()
        super().plan()
        self._taking.after()


class GangWorld(GangState):
    """One cluster and its scheduler, and what happens to them."""

    def __init__(self, seed: object) -> None:
        super().__init__(seed)
        # In some runs, pods ask for parts of cards, of two device plugins.
        self.parts: Final = not self.reclaims and self.chance.random() < 0.5
        # In some runs, nodes are kept free for pods that waited long.
        self.settings: Final[dict[str, Any]] = {
            "keep_free_after_s": _AFTER_S,
            "keep_free_for_s": self.chance.choice((0.0, 20.0)),
            "preemption": self.preempts,
            "reclaim": self.reclaims,
            "preemption_delay_s": 1.0,
            "preemption_wait_s": 60.0,
            "network_tiers": TIERS,
        }
        self.claims: Final = Claims(self)
        self.gangs: Final = Gangs(self)
        self.queues: Final = Queues(self, parts=self.parts)
        self.evictions: Final = Evictions(self)
        self.taking: Final = Reclaims(self, self.queues, self.evictions)
        self.waiting: Final = Waiting(self, self.queues, self.evictions, self.taking)
        # What members of a group ask for, in runs in which groups are divided.
        self.templates: Final[dict[str, tuple[dict[str, Any], int, str]]] = {}
        # The node of each pod at the last look.
        self.places: dict[str, str] = {}
        # Who was promised a place and not bound when last looked at: a device plugin that falls silent takes it away.
        self.promised: Final[set[str]] = set()
        self.world = self._new_world()
        for _ in range(3):
            self.add_node()
        self._show_groups()

    # ------------------------------------------------------------------ what happens

    def step(self) -> None:
        """One thing happens; then the scheduler decides, and all is looked at."""
        act = self.chance.choices(
            (self.add_pods, self.take_pod, self.end_pod, self.answer, self.add_node, self.take_node, self.change_node,
             self.gangs.change, self.queues.change_queue, self.queues.change_quota, self.evictions.change_budget,
             self.restart, self.wait, self.evictions.send, self.leave, self.press, self.claims.change),
            (30, 8, 6, 40, 2, 1, 3, 3, 2, 2, 6 * self.evicts, 1, 12, 6, 6, 6 * self.preempts, 4 * self.claims_cards),
        )[0]  # fmt: skip
        self.counts[act.__name__] += 1
        act()
        self.world.plan()
        self.look()

    def add_pods(self) -> None:
        """A pod, or some of a group."""
        if len(self.asked) >= _MOST_PODS:
            self.take_pod()
            return
        dice = self.chance.random()
        alone = 0.15 if self.divides else 0.4
        group = "" if dice < alone else self.chance.choice(["", *self.specs][-_LATEST:])
        if alone <= dice < alone + 0.15 or (dice >= alone and not group):
            group = self.gangs.new()
        namespace = self.specs[group].key.namespace if group else self.chance.choice(NAMESPACES)
        zone, priorities = self.chance.choice(("", "", "", *ZONES)), self.chance.choice(((0,), (0,), (5,), (0, 5)))
        cards = self._any_cards() if self.parts and self.chance.random() < 0.7 else None
        cpu = 0
        if self.divides and group:
            # Mostly alike: only then it is counted how many of them fit.
            cards, cpu, zone = self.templates.setdefault(group, (self._any_cards() | {"cards": 1}, 1, zone))
        for _ in range(self.chance.randint(1, 4 + 3 * self.divides) if group else 1):
            self._add(group, namespace, zone, self.chance.choice(priorities), cards or self._any_cards(), cpu)

    def press(self) -> None:
        """Some pods come, and then one that others may have to leave for."""
        if len(self.asked) >= _MOST_PODS:
            self.take_pod()
            return
        cards = self._any_cards() | {"cards": 1}
        for priority in (0, 1, 0, 1, 9):
            self._add("", self.chance.choice(NAMESPACES), "", priority, cards)
            self._bind_all()
        for _ in range(3):
            self.world.passes(1.0)
            self.look()

    def _add(self, group: str, namespace: str, zone: str, priority: int, cards: dict[str, Any], cpu: int = 0) -> None:
        """Create a pod."""
        self.number += 1
        is_divided = bool(group) and bool(self.specs[group].sub_groups)
        asked = self.asked[f"p{self.number}"] = Asked(
            group=group,
            namespace=namespace,
            cpu=cpu or self.chance.choice((1, 1, 2)),
            zone=zone,
            priority=priority,
            app=self.chance.choice(("", "", "", *APPS)),
            role=self.chance.choice(ROLES) if is_divided else "",
            part=self.chance.choice(PARTS) if is_divided else "",
            **cards,
        )
        fields: dict[str, Any] = {
            "annotations": {GROUP: group} if group else {},
            "labels": asked.labels,
            "constraints": NodeConstraints(selector=(("zone", zone),) if zone else ()),
        }
        made = pod(f"p{self.number}", limits=asked.limits(), priority=priority, namespace=namespace, **fields)
        self.world.adds(made)

    def _any_cards(self) -> dict[str, Any]:
        chance = self.chance
        found: dict[str, Any] = {"cards": chance.choice((0, 1, 1, 1, 1 if self.reclaims else 2))}
        if self.parts:
            found |= {"kind": chance.choice(tuple(Kind)), "mib": chance.choice((2500, 4000, 5000, CARD_MIB))}
            found |= {"cores": chance.choice((0, 0, 40, 60))}
        return found

    def take_pod(self) -> None:
        """A pod is deleted."""
        if self.asked:
            self.take(self.chance.choice(sorted(self.asked)))

    def take(self, name: str) -> None:
        """The pod *name* is deleted."""
        self.breaks(name)
        del self.asked[name]
        self.world.gone(name)

    def end_pod(self) -> None:
        """A running pod ends, well or not."""
        running = [one for one in self.world.pods.values() if one.started and not one.finished]
        if running:
            found = self.chance.choice(sorted(running, key=lambda one: one.name))
            phase = self.chance.choice((Phase.SUCCEEDED, Phase.FAILED))
            if phase is Phase.FAILED:
                self.breaks(found.name)
            self.world.shows(found, phase=phase)

    def answer(self) -> None:
        """What was sent is written, mostly, and served at some time."""
        self._lock(0.9)
        for bind in self._binds():
            chance = self.chance.random()
            if chance < 0.85:
                self.world.accepts(bind)
                if self.chance.random() < 0.8:
                    self._serve(bind.pod.name)
            else:
                self.breaks(bind.pod.name)
                self.evictions.rejected.add(bind.pod.name)
                self.world.scheduler.outcomes.refused(bind.pod.uid, bind.attempt)
        for one in list(self.world.pods.values()):
            if one.node_name and not one.started and not one.finished and self.chance.random() < 0.5:
                self._serve(one.name)

    def _lock(self, chance: float = 1.0) -> None:
        """Do what is planned with locks of nodes; a write arrives by *chance*."""
        self.world.plan()
        locks = self.world.scheduler.locks
        for action in self.world.actions(Lock):
            if action.node not in self.nodes:
                locks.not_locked(action, "its node is gone")
                continue
            node = self.nodes[action.node]
            owner = locks.owner_of(action, node)
            is_another = action.pod is None or owner != action.pod.key
            named = next((one for one in self.world.pods.values() if one.key == owner and is_another), None)
            step = locks.step(action, node, named)
            if isinstance(step, LockWait):
                locks.not_locked(action, step.reason, 1.0)
            elif step is not None and self.chance.random() >= chance:
                locks.refused(action)
                locks.not_locked(action, "the write was refused", 1.0)
            else:
                if step is not None:
                    self._annotate_node(action.node, step.key, step.value)
                    locks.written(action, step)
                locks.locked(action)

    def _annotate_node(self, name: str, key: str, value: str | None) -> None:
        notes = {**self.nodes[name].annotations, key: value}
        written = {key: value for key, value in notes.items() if value is not None}
        self.nodes[name] = replace(self.nodes[name], annotations=written, resource_version=self.next_version())
        self.world.scheduler.nodes.changed(self.nodes[name])

    def _serve(self, name: str) -> None:
        before = self.world.seen(name)
        annotations = {**before.annotations, **self.asked[name].served()}
        now = self.world.shows(before, annotations=annotations, started=True, ready=True, phase=Phase.RUNNING)
        lock = self.nodes[now.node_name].annotations.get(LOCK, "")
        if lock.endswith(f",{now.namespace},{name}"):
            self._annotate_node(now.node_name, LOCK, None)

    def _binds(self) -> list[Bind]:
        found = [one for one in self.world.binds() if one.pod.name in self.asked]
        self.evictions.look()
        self._look_at_places(found)
        return found

    def add_node(self) -> None:
        """A node appears, or one that is there is empty and changes its cards."""
        if len(self.nodes) < 6 + 2 * self.divides:
            self.number += 1
            name, cards = f"n{self.number}", self.chance.choice((0, 1, 2, 4))
            offer = Offer(Kind.VGPU, cards, 10)
            if self.parts:
                offer = Offer(self.chance.choice(tuple(Kind)), cards, self.chance.choice((2, 10)))
            self.offers[name] = offer
            self.nodes[name] = offer.node(name, version=str(self.number), labels=self.any_labels())
            self.world.scheduler.nodes.changed(self.nodes[name])
            if self.claims_cards:
                self.claims.show(name)

    def take_node(self) -> None:
        """A node goes with all its pods, those that are promised there too."""
        if len(self.nodes) > 2:
            name = self.chance.choice(sorted(self.nodes))
            for one in [one for one in self.world.pods.values() if self.node_of(one) == name]:
                self.take(one.name)
            del self.nodes[name]
            self.world.scheduler.nodes.gone(NodeName(name))

    def change_node(self) -> None:
        """A node is labelled, cordoned, tainted or not ready, or all of that has ended; its pods stay."""
        name, well = self.chance.choice(sorted(self.nodes)), {"unschedulable": False, "taints": (), "ready": True}
        ways: tuple[dict[str, Any], ...] = (
            {"unschedulable": True},
            {"taints": _TAINT},
            {"ready": False},
            {},
            {},
            {},
            {},
        )
        changes: dict[str, Any] = {**well, **self.chance.choice(ways), "labels": self.any_labels()}
        self.nodes[name] = replace(self.nodes[name], resource_version=self.next_version(), **changes)
        self.world.scheduler.nodes.changed(self.nodes[name])

    # ------------------------------------------------------------------ evictions

    def leave(self) -> None:
        """Remove the pods that are being deleted."""
        for one in list(self.world.pods.values()):
            if one.deleting and self.chance.random() < 0.5:
                self.take(one.name)

    def restart(self) -> None:
        """Another process begins with what the API server has; what was sent and not answered was not written."""
        for one in self.world.pods.values():
            if not one.node_name and self.world.ledger.node_of(one.uid):
                self.breaks(one.name)
        before = self.world
        self.evictions.planned.clear()
        self.world = self._new_world()
        self.world.version, self.world.now_s = before.version, before.now_s
        if self.claims_cards:
            self.claims.show_all()
        self.world.scheduler.cluster.budgets.quotas.replaced(self.queues.quota_specs())
        shown = sorted(before.pods.values(), key=lambda _: self.chance.random())
        if self.chance.random() < 0.5:
            self._show_groups()
        self.world.adds(*shown)
        self._show_groups()

    def _new_world(self) -> World:
        found = _Watched(self.taking if self.reclaims else None, *self.nodes.values(), **self.settings)
        found.scheduler.cluster.occupants.budgets_replaced(self.evictions.specs())
        return found

    def wait(self) -> None:
        """Time passes."""
        self.world.passes(self.chance.choice((0.1, 1.0, 10.0)))

    def _show_groups(self) -> None:
        self.unseen.clear()
        self.world.groups_are(*self.specs.values(), queues=self.queues.specs())

    # ------------------------------------------------------------------ what must hold

    def look(self) -> None:
        """Note all that must not be."""
        taken = Counter[tuple[str, str]]()
        shares = list[Share]()
        self.evictions.look()
        self._look_at_places(one for one in self.world.scheduler.cluster.actions if isinstance(one, Bind))
        for name in self.promised & self.asked.keys():
            if not self.node_of(self.world.seen(name)):
                self.breaks(name)
        self.promised.clear()
        self.promised.update(one.name for one in self.world.pods.values() if not one.node_name and self.node_of(one))
        sent = {
            one.pod.uid: shares_of(one.annotations)
            for one in self.world.scheduler.cluster.actions
            if isinstance(one, Bind)
        }
        for one in self.world.pods.values():
            asked, where = self.asked[one.name], self.node_of(one)
            if not where:
                continue
            for resource, amount in ((MEMORY, asked.cards * asked.mib), ("cpu", asked.cpu * 1000)):
                taken[where, resource] += amount
            shares += shares_of(one.annotations) or sent.get(one.uid, ())
        for where, offer in self.offers.items():
            cards = left(where, offer, shares).items()
            self.faults.extend(
                f"card {card} is sold beyond what it has: {free}" for card, free in cards if free.is_over
            )
        for (where, resource), amount in taken.items():
            if amount > self.has(where, resource):
                self.faults.append(f"{where}: {amount} of {self.has(where, resource)} {resource}")
        self.gangs.look()
        self.queues.look()

    def _look_at_places(self, sent: Iterable[Bind]) -> None:
        """Check that each pod that was placed is on a node that takes it, and that its gang can start."""
        places = self.placed()
        new = {name for name, where in places.items() if where != self.places.get(name)}
        for name in sorted(new):
            if not self.takes(places[name], self.asked[name]):
                self.faults.append(f"{name} is placed on {places[name]}, which does not take it: {self.asked[name]}")
        self.claims.look_at_new(places, new, sent)
        self.gangs.look_at_new(places, new, new - self.places.keys(), self.evictions.chosen())
        self.evictions.rejected.difference_update(new)
        self.places = places

    def settle(self) -> None:
        """Single pods end; all is answered and served until nothing moves; then whoever waits must not fit."""
        for one in list(self.world.pods.values()):
            if one.node_name and not self.asked[one.name].group and self.chance.random() < 0.5:
                self.take(one.name)
        quiet = 0
        is_bound = False
        for number in range(40):
            found = self.evictions.new()
            is_kept = self.world.scheduler.reservations.keeping_free.kept is not None
            quiet = 0 if found or is_bound else quiet + (not is_kept)
            # Six searches for victims begin in a round, so one is too few for all who wait, once the last pod is bound.
            if number >= 12 and quiet > 2:
                break
            for action in found:
                if self.world.scheduler.preempting.needs(action):
                    self.evictions.send_away(action)
                else:
                    self.world.scheduler.preempting.unneeded(action)
            for one in list(self.world.pods.values()):
                if one.deleting:
                    self.take(one.name)
            is_bound = self._bind_all()
            # Not always as long, or who has a turn while a node is kept free for another might have each turn then.
            self.world.passes(100.0 + 20.0 * (number % 3))
            # Victims are searched for one pod per second.
            for _ in range(5 * self.evicts):
                self.world.passes(1.0)
            self.look()
        self.waiting.look()

    def _bind_all(self) -> bool:
        """Write and serve all that is sent, until nothing is; return whether anything was."""
        is_bound = False
        for _ in range(_MOST_PODS):
            self._lock()
            binds = self._binds()
            for bind in binds:
                self.world.accepts(bind)
            for one in list(self.world.pods.values()):
                if one.node_name and not one.started and not one.finished:
                    self._serve(one.name)
            if not binds:
                break
            is_bound = True
        return is_bound
