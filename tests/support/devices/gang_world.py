"""Groups, queues and single pods through everything that goes wrong with them, judged from pods and nodes alone.

What must hold is added up here from objects and Bindings, by arithmetic of its own: cards and cpu are never promised
twice, a gang has its minimum or nothing unless something was taken from it, no queue is over its capability, no
namespace over its ResourceQuotas, no pod is placed on a node that does not take it, only pods of a lower priority are
evicted, a gang only as a whole, those that a disruption budget keeps only where nobody else helps, and once nothing
moves, whoever waits does not fit, even without those below it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from controller.actions import Bind, Lock, Preempt, Unnominate
from core.groups import GroupKey, GroupKind, GroupSpec, QueueSpec
from core.model import Node, NodeConstraints, NodeName, Phase, Pod, PodUid, Requirement, Taint
from core.port.handoff import LockWait
from core.wire.policies import DisruptionBudget, ResourceQuota
from tests.support.devices.gang_cards import CARD_MIB, Asked, Free, Kind, Offer, Share, left, shares_of, times
from tests.support.worlds.world import MEMORY, NUMBER, World, pod

GROUP: Final = "scheduling.k8s.io/group-name"
LOCK: Final = "hami.io/mutex.lock"
# Of "within" the other two are limits too: it is below "small".
QUEUES: Final = ("small", "within", "open")
_ABOVE: Final = {"small": ("small",), "within": ("within", "small"), "open": ("open",)}
# Of these the first alone has quotas, at times.
NAMESPACES: Final = ("team", "default")
APPS: Final = ("a", "b")
_MOST_PODS: Final = 40
# Members are created for this many of the latest groups.
_LATEST: Final = 8
_AFTER_S: Final = 5.0
# A pod whose eviction was refused is not chosen again for so long.
_SPARED_S: Final = 30.0
_ZONES: Final = "ab"
_TAINT: Final = (Taint(key="broken", effect="NoSchedule"),)


class GangWorld:
    """One cluster and its scheduler, and what happens to them."""

    def __init__(self, seed: object) -> None:
        self.chance: Final = random.Random(f"gangs/{seed}")
        self.nodes: Final[dict[str, Node]] = {}
        self.offers: Final[dict[str, Offer]] = {}
        # In some runs, pods ask for parts of cards, of two device plugins.
        self.parts: Final = self.chance.random() < 0.5
        self.asked: Final[dict[str, Asked]] = {}
        self.specs: Final[dict[str, GroupSpec]] = {}
        # Groups that the scheduler has not been shown yet: whoever is of one waits for that, whatever fits.
        self.unseen: Final[set[str]] = set()
        self.limits: Final = {"small": {NUMBER: 4, "cpu": 9000}, "within": {"cpu": 5000}, "open": {}}
        # MiB of cards' memory in all that quotas leave the first of the namespaces, by quota.
        self.quotas: Final[dict[str, int]] = {}
        self.shares: Final = {name: QueueSpec(name=name) for name in QUEUES}
        # In some runs, nodes are kept free for pods that waited long; in some, pods are evicted for pods before them.
        self.preempts: Final = self.chance.random() < 0.5
        self.settings: Final[dict[str, Any]] = {
            "keep_free_after_s": _AFTER_S,
            "keep_free_for_s": self.chance.choice((0.0, 20.0)),
            "preemption": self.preempts,
            "preemption_delay_s": 1.0,
            "preemption_wait_s": 60.0,
        }
        # The pods of a namespace with a label that may be evicted now, by both; pods that are evicted are in disrupted.
        self.budgets: Final[dict[tuple[str, str], int]] = {}
        self.disrupted: Final[set[str]] = set()
        # Pods whose eviction was refused, and when.
        self.refused: Final[dict[str, float]] = {}
        # Evictions that are still to be sent.
        self.evictions: Final[list[Preempt]] = []
        # The node of each pod at the last look.
        self.places: dict[str, str] = {}
        # Who was promised a place and not bound when last looked at: a device plugin that falls silent takes it away.
        self.promised: Final[set[str]] = set()
        # Gangs from which something was taken, and queues that were made smaller, since they were last whole.
        self.broken: Final[set[str]] = set()
        self.counts: Final = Counter[str]()
        self.faults: Final[list[str]] = []
        self.number = 0
        self.world = self._new_world()
        for _ in range(3):
            self.add_node()
        self._show_groups()

    # ------------------------------------------------------------------ what happens

    def step(self) -> None:
        """One thing happens; then the scheduler decides, and all is looked at."""
        act = self.chance.choices(
            (self.add_pods, self.take_pod, self.end_pod, self.answer, self.add_node, self.take_node, self.change_node,
             self.change_group, self.change_queue, self.change_quota, self.change_budget, self.restart, self.wait,
             self.evict, self.leave, self.press),
            (30, 8, 6, 40, 2, 1, 3, 3, 2, 2, 6 * self.preempts, 1, 12, 6, 6, 6 * self.preempts),
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
        group = "" if dice < 0.4 else self.chance.choice(["", *self.specs][-_LATEST:])
        if 0.4 <= dice < 0.55 or (dice >= 0.4 and not group):
            group = self._new_group()
        namespace = self.specs[group].key.namespace if group else self.chance.choice(NAMESPACES)
        zone, priorities = self.chance.choice(("", "", "", *_ZONES)), self.chance.choice(((0,), (0,), (5,), (0, 5)))
        cards = self._any_cards() if self.parts and self.chance.random() < 0.7 else None
        for _ in range(self.chance.randint(1, 4) if group else 1):
            self._add(group, namespace, zone, self.chance.choice(priorities), cards or self._any_cards())

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

    def _add(self, group: str, namespace: str, zone: str, priority: int, cards: dict[str, Any]) -> None:
        """Create a pod."""
        self.number += 1
        asked = self.asked[f"p{self.number}"] = Asked(
            group=group,
            namespace=namespace,
            cpu=self.chance.choice((1, 1, 2)),
            zone=zone,
            priority=priority,
            app=self.chance.choice(("", "", "", *APPS)),
            **cards,
        )
        fields: dict[str, Any] = {
            "annotations": {GROUP: group} if group else {},
            "labels": {"app": asked.app},
            "constraints": NodeConstraints(selector=(("zone", zone),) if zone else ()),
        }
        made = pod(f"p{self.number}", limits=asked.limits(), priority=priority, namespace=namespace, **fields)
        self.world.adds(made)

    def _any_cards(self) -> dict[str, Any]:
        chance = self.chance
        found: dict[str, Any] = {"cards": chance.choice((0, 1, 1, 1, 2))}
        if self.parts:
            found |= {"kind": chance.choice(tuple(Kind)), "mib": chance.choice((2500, 4000, 5000, CARD_MIB))}
            found |= {"cores": chance.choice((0, 0, 40, 60))}
        return found

    def _new_group(self) -> str:
        self.number += 1
        name = f"g{self.number}"
        key = GroupKey(GroupKind.VOLCANO, self.chance.choice(NAMESPACES), name)
        least, queue = self.chance.choice((1, 2, 2, 3, 4)), self.chance.choice(QUEUES)
        self.specs[name] = GroupSpec(
            key=key, uid=f"uid-{name}", resource_version=str(self.number), min_member=least, queue=queue
        )
        if self.chance.random() < 0.9:
            self.world.scheduler.cluster.groups.changed(self.specs[name])
        else:
            self.unseen.add(name)
        return name

    def take_pod(self) -> None:
        """A pod is deleted."""
        if self.asked:
            self.take(self.chance.choice(sorted(self.asked)))

    def take(self, name: str) -> None:
        """The pod *name* is deleted."""
        self._break(name)
        del self.asked[name]
        self.world.gone(name)

    def end_pod(self) -> None:
        """A running pod ends, well or not."""
        running = [one for one in self.world.pods.values() if one.started and not one.finished]
        if running:
            found = self.chance.choice(sorted(running, key=lambda one: one.name))
            phase = self.chance.choice((Phase.SUCCEEDED, Phase.FAILED))
            if phase is Phase.FAILED:
                self._break(found.name)
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
                self._break(bind.pod.name)
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
        self.number += 1
        self.nodes[name] = replace(self.nodes[name], annotations=written, resource_version=str(self.number))
        self.world.scheduler.nodes.changed(self.nodes[name])

    def _serve(self, name: str) -> None:
        before = self.world.seen(name)
        annotations = {**before.annotations, **self.asked[name].served()}
        now = self.world.shows(before, annotations=annotations, started=True, phase=Phase.RUNNING)
        lock = self.nodes[now.node_name].annotations.get(LOCK, "")
        if lock.endswith(f",{now.namespace},{name}"):
            self._annotate_node(now.node_name, LOCK, None)

    def _binds(self) -> list[Bind]:
        found = [one for one in self.world.binds() if one.pod.name in self.asked]
        # Members that are bound after the choice of victims are none of them.
        self._look_at_evictions()
        return found

    def add_node(self) -> None:
        """A node appears, or one that is there is empty and changes its cards."""
        if len(self.nodes) < 6:
            self.number += 1
            name, cards = f"n{self.number}", self.chance.choice((0, 1, 2, 4))
            offer = Offer(Kind.VGPU, cards, 10)
            if self.parts:
                offer = Offer(self.chance.choice(tuple(Kind)), cards, self.chance.choice((2, 10)))
            self.offers[name] = offer
            self.nodes[name] = offer.node(name, version=str(self.number), labels={"zone": self.chance.choice(_ZONES)})
            self.world.scheduler.nodes.changed(self.nodes[name])

    def take_node(self) -> None:
        """A node goes with all its pods, those that are promised there too."""
        if len(self.nodes) > 2:
            name = self.chance.choice(sorted(self.nodes))
            for one in [one for one in self.world.pods.values() if self._node_of(one) == name]:
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
        changes: dict[str, Any] = {**well, **self.chance.choice(ways), "labels": {"zone": self.chance.choice(_ZONES)}}
        self.number += 1
        self.nodes[name] = replace(self.nodes[name], resource_version=str(self.number), **changes)
        self.world.scheduler.nodes.changed(self.nodes[name])

    def _takes(self, name: str, asked: Asked) -> bool:
        """Whether a node takes new pods such as this."""
        one = self.nodes[name]
        is_open = one.ready and not one.unschedulable and not one.taints
        is_of_kind = not asked.cards or asked.kind is self.offers[name].kind
        return is_open and is_of_kind and asked.zone in ("", one.labels["zone"])

    # ------------------------------------------------------------------ evictions

    def evict(self) -> None:
        """Send most of the planned evictions."""
        for one in self._new_evictions():
            self.counts["preemptions"] += 1
            if not self.world.scheduler.preempting.needs(one):
                self.world.scheduler.preempting.unneeded(one)
            elif self.chance.random() < 0.1:
                for target, _ in one.victims[:1]:
                    self.refused[target.name] = self.world.now_s
                self.world.scheduler.preempting.refused(one, one.victims[0][0].uid if one.victims else None, 0.0)
            else:
                self._send_away(one)

    def _new_evictions(self) -> list[Preempt]:
        for action in self.world.actions(Unnominate):
            if action.pod.name in self.asked:
                self.world.shows(self.world.seen(action.pod.name), nominated_node="")
        found = [*self.evictions, *self.world.actions(Preempt)]
        self.evictions.clear()
        return found

    def _send_away(self, action: Preempt) -> None:
        for target, where in action.nominated:
            if target.name in self.asked and not self.world.seen(target.name).node_name:
                self.world.shows(self.world.seen(target.name), nominated_node=where)
        there = [target for target, _ in action.victims if target.name in self.asked and target.uid in self.world.pods]
        guarded = [target for target in there if target.uid in action.guarded]
        # Each is tried first; then those that budgets cover go one by one.
        dry = [target for target in guarded if not self._may_be_evicted(target.name)] if len(there) > 1 else []
        for target in dry or (*guarded, *(one for one in there if one not in guarded)):
            if self.world.seen(target.name).deleting:
                continue
            if not self._may_be_evicted(target.name):
                self.counts["evictions refused"] += 1
                self.refused[target.name] = self.world.now_s
                self.world.scheduler.preempting.refused(action, target.uid, 0.0)
                return
            self.counts["evicted"] += 1
            self._break(target.name)
            self.disrupted.add(target.name)
            for key in self._budgets_of(target.name):
                self.budgets[key] -= 1
                self._show_budget(key)
            self.world.shows(self.world.seen(target.name), deleting=True)
        self.world.scheduler.preempting.asked(action)

    def _budgets_of(self, name: str) -> list[tuple[str, str]]:
        """The disruption budgets that cover a pod."""
        key = self.asked[name].namespace, self.asked[name].app
        return [key] if key in self.budgets else []

    def _may_be_evicted(self, name: str) -> bool:
        return all(self.budgets[key] > 0 for key in self._budgets_of(name))

    def change_budget(self) -> None:
        """A disruption budget comes, goes, or allows another number of evictions."""
        key, allowed = (self.chance.choice(NAMESPACES), self.chance.choice(APPS)), self.chance.choice((None, 0, 1, 3))
        if allowed is not None:
            self.budgets[key] = allowed
            self._show_budget(key)
        elif key in self.budgets:
            self.world.scheduler.cluster.occupants.budget_gone(self._budget(key))
            del self.budgets[key]

    def _show_budget(self, key: tuple[str, str]) -> None:
        self.world.scheduler.cluster.occupants.budget_changed(self._budget(key))

    def _budget(self, key: tuple[str, str]) -> DisruptionBudget:
        namespace, app = key
        selector = (Requirement(key="app", operator="In", values=(app,)),)
        disrupted = frozenset(self.disrupted & self.asked.keys())
        return DisruptionBudget(namespace, app, selector, self.budgets[key], disrupted)

    def leave(self) -> None:
        """Remove the pods that are being deleted."""
        for one in list(self.world.pods.values()):
            if one.deleting and self.chance.random() < 0.5:
                self.take(one.name)

    def _look_at_evictions(self) -> None:
        """Check that victims come after the pods that they leave for, and that a gang leaves as a whole."""
        for action in (found := self.world.actions(Preempt)):
            first = [self.asked[one.name].priority for one, _ in action.nominated if one.name in self.asked]
            victims = {target.name for target, _ in action.victims if target.name in self.asked}
            for name in sorted(victims):
                asked, spec = self.asked[name], self.specs.get(self.asked[name].group)
                if first and asked.priority >= min(first):
                    self.faults.append(f"{name} of priority {asked.priority} is evicted for one of {min(first)}")
                if spec is None or not spec.is_gang or asked.group in self.unseen:
                    continue
                stay = sorted(
                    one.name
                    for one in self.world.pods.values()
                    if self.asked[one.name].group == asked.group
                    and one.node_name
                    and not (one.finished or one.deleting or one.name in victims)
                )
                if stay:
                    self.faults.append(f"{name} is evicted, and {stay} of its gang stay")
            self._look_at_budgets(action, victims)
        if len(found) == 1:
            self._look_at_choice(found[0])
        self.evictions.extend(found)

    def _look_at_budgets(self, action: Preempt, victims: Iterable[str]) -> None:
        """Check that it is known which victims are covered by disruption budgets."""
        covered = {f"uid-{name}" for name in victims if self._budgets_of(name) and name not in self.disrupted}
        if covered != {uid for uid in action.guarded if uid.removeprefix("uid-") in self.asked}:
            self.faults.append(f"of {sorted(victims)}, budgets cover {sorted(covered)}, not {sorted(action.guarded)}")

    def _look_at_choice(self, action: Preempt) -> None:
        """Check that no budget is broken for a single pod for which others could leave on some node."""
        many = Counter[tuple[str, str]](
            key
            for target, _ in action.victims
            if target.name in self.asked and target.name not in self.disrupted
            for key in self._budgets_of(target.name)
        )
        names = [target.name for target, _ in action.nominated if target.name in self.asked]
        if len(names) != 1 or self.asked[names[0]].group or all(self.budgets[key] >= many[key] for key in many):
            return
        self.counts["budgets broken"] += 1
        asked = self.asked[names[0]]
        closed = (
            self.world.scheduler.reservations.barred_to(None)
            | self.world.scheduler.cluster.handoff.closed_nodes(self.world.now_s).keys()
        )
        for where in [where for where in self.nodes if where not in closed and self._takes(where, asked)]:
            if self._fits_without(where, asked, self._below(where, asked)):
                self.faults.append(f"{names[0]} breaks {dict(many)}, and fits on {where} without {asked}")

    def _below(self, where: str, asked: Asked) -> list[str]:
        """Pods on a node that may be evicted for *asked*, whatever other pods are."""
        return [
            one.name
            for one in self.world.pods.values()
            if one.node_name == where
            and not (one.finished or one.deleting or self.asked[one.name].group)
            and self.world.now_s > self.refused.get(one.name, -_SPARED_S) + _SPARED_S
            and self.asked[one.name].priority < asked.priority
            and not self._budgets_of(one.name)
        ]

    def _fits_without(self, where: str, asked: Asked, gone: Iterable[str]) -> bool:
        """Whether a pod fits on a node without *gone*; not if somebody else is promised a place there."""
        out = {f"uid-{name}" for name in gone}
        on = [one for one in self.world.pods.values() if self._node_of(one) == where]
        if any(not one.node_name for one in on):
            return False
        cards, cpu = self._free(where, {uid for one in on if (uid := one.uid) not in out})
        return times(cards, cpu, asked) > 0

    def _free(self, where: str, uids: Iterable[PodUid]) -> tuple[list[Free], int]:
        """What is free of cards and cpus of a node beside the pods *uids* on it."""
        pods = [self.world.pods[uid] for uid in uids]
        shares = [share for one in pods for share in shares_of(one.annotations)]
        used = sum(self.asked[one.name].cpu for one in pods)
        return list(left(where, self.offers[where], shares).values()), self._has(where, "cpu") // 1000 - used

    def change_group(self) -> None:
        """A group wants another number of members at once, or is seen at last."""
        if self.specs:
            name = self.chance.choice(sorted(self.specs))
            self.number += 1
            least = self.chance.choice((1, 2, 3, 4))
            if least > self.specs[name].min_member:
                self.broken.add(name)
            self.specs[name] = replace(self.specs[name], min_member=least, resource_version=str(self.number))
            self.world.scheduler.cluster.groups.changed(self.specs[name])
            self.unseen.discard(name)

    def change_queue(self) -> None:
        """A queue may hold more, or less; or it has another weight, guarantee or priority."""
        name = self.chance.choice(QUEUES)
        if self.chance.random() < 0.5:
            chance = self.chance
            # Of cards in parts it depends on the cards how many pods can still come.
            guarantee = chance.choice(({}, {} if self.parts else {NUMBER: 2}, {"cpu": 3000}))
            self.shares[name] = QueueSpec(
                name=name, weight=chance.randint(1, 4), priority=chance.choice((0, 0, 1)), guarantee=guarantee
            )
        elif name == "small":
            cards = self.chance.choice((2, 4, 6))
            if cards < self.limits["small"][NUMBER]:
                self.broken.add("queue small")
            self.limits["small"] = {NUMBER: cards, "cpu": 9000}
        elif name == "within":
            cpu = self.chance.choice((3000, 5000, 7000))
            if cpu < self.limits["within"]["cpu"]:
                self.broken.add("queue within")
            self.limits["within"] = {"cpu": cpu}
        self.number += 1
        self.world.scheduler.cluster.groups.queue_changed(self._queue(name))

    def change_quota(self) -> None:
        """A quota comes, goes or is another one."""
        name, cards = self.chance.choice("ab"), self.chance.choice((None, 0, 2, 5, 9))
        quotas = self.world.scheduler.cluster.budgets.quotas
        if cards is None:
            self.quotas.pop(name, None)
            quotas.gone(_quota(name, 0))
            return
        if cards * CARD_MIB < self.quotas.get(name, cards * CARD_MIB + 1):
            self.broken.add("quotas")
        self.quotas[name] = cards * CARD_MIB
        quotas.changed(_quota(name, self.quotas[name]))

    def restart(self) -> None:
        """Another process begins with what the API server has; what was sent and not answered was not written."""
        for one in self.world.pods.values():
            if not one.node_name and self.world.ledger.node_of(one.uid):
                self._break(one.name)
        before = self.world
        self.evictions.clear()
        self.world = self._new_world()
        self.world.version, self.world.now_s = before.version, before.now_s
        self.world.scheduler.cluster.budgets.quotas.replaced([_quota(*one) for one in self.quotas.items()])
        shown = sorted(before.pods.values(), key=lambda _: self.chance.random())
        if self.chance.random() < 0.5:
            self._show_groups()
        self.world.adds(*shown)
        self._show_groups()

    def _new_world(self) -> World:
        found = World(*self.nodes.values(), **self.settings)
        found.scheduler.cluster.occupants.budgets_replaced([self._budget(key) for key in self.budgets])
        return found

    def wait(self) -> None:
        """Time passes."""
        self.world.passes(self.chance.choice((0.1, 1.0, 10.0)))

    def _show_groups(self) -> None:
        self.unseen.clear()
        self.world.groups_are(*self.specs.values(), queues=[self._queue(name) for name in QUEUES])

    def _queue(self, name: str) -> QueueSpec:
        above = _ABOVE[name][1] if name == "within" else ""
        return replace(self.shares[name], resource_version=str(self.number), capability=self.limits[name], parent=above)

    def _break(self, name: str) -> None:
        group = self.asked[name].group
        if group:
            self.broken.add(group)

    # ------------------------------------------------------------------ what must hold

    def _node_of(self, one: Pod) -> str:
        """Where a pod is, or is promised to be."""
        if one.finished:
            return ""
        return one.node_name or str(self.world.ledger.node_of(one.uid) or "")

    def look(self) -> None:
        """Note all that must not be."""
        taken = Counter[tuple[str, str]]()
        placed, least = Counter[str](), {name: spec.min_member for name, spec in self.specs.items()}
        shares = list[Share]()
        self._look_at_evictions()
        self._look_at_places()
        for name in self.promised & self.asked.keys():
            if not self._node_of(self.world.seen(name)):
                self._break(name)
        self.promised.clear()
        self.promised.update(one.name for one in self.world.pods.values() if not one.node_name and self._node_of(one))
        sent = {
            one.pod.uid: shares_of(one.annotations)
            for one in self.world.scheduler.cluster.actions
            if isinstance(one, Bind)
        }
        for one in self.world.pods.values():
            asked, where = self.asked[one.name], self._node_of(one)
            if one.phase is Phase.SUCCEEDED:
                placed[asked.group] += 1
            if not where:
                continue
            placed[asked.group] += 1
            for resource, amount in ((MEMORY, asked.cards * asked.mib), ("cpu", asked.cpu * 1000)):
                taken[where, resource] += amount
            shares += shares_of(one.annotations) or sent.get(one.uid, ())
        for where, offer in self.offers.items():
            cards = left(where, offer, shares).items()
            self.faults.extend(
                f"card {card} is sold beyond what it has: {free}" for card, free in cards if free.is_over
            )
        for (where, resource), amount in taken.items():
            if amount > self._has(where, resource):
                self.faults.append(f"{where}: {amount} of {self._has(where, resource)} {resource}")
        self._look_at_gangs(placed, least)
        queued = self._queued()
        for name, limits in self.limits.items():
            over = [one for one, most in limits.items() if queued[name, one] > most]
            if not over:
                self.broken.discard(f"queue {name}")
            elif f"queue {name}" not in self.broken:
                self.faults.append(f"queue {name} holds more than it may: {over}")

        if self._limited_mib() <= min(self.quotas.values(), default=self._limited_mib()):
            self.broken.discard("quotas")
        elif "quotas" not in self.broken:
            self.faults.append(f"{self._limited_mib()} MiB are held under quotas of {self.quotas}")

    def _look_at_places(self) -> None:
        """Check that each placed pod is on a node that takes it."""
        places = {one.name: where for one in self.world.pods.values() if (where := self._node_of(one))}
        for name, where in places.items():
            if where != self.places.get(name) and not self._takes(where, self.asked[name]):
                self.faults.append(f"{name} is placed on {where}, which does not take it: {self.asked[name]}")
        self.places = places

    def _limited_mib(self) -> int:
        """What the pods of the namespace with quotas hold of cards' memory."""
        return sum(
            self._limited_of(self.asked[one.name])
            for one in self.world.pods.values()
            if one.namespace == NAMESPACES[0] and self._node_of(one)
        )

    def _limited_of(self, asked: Asked) -> int:
        return asked.cards * asked.mib if asked.kind is Kind.VGPU else 0

    def _quotas_take(self, asked: Asked, count: int) -> bool:
        more = self._limited_of(asked) * count
        if asked.namespace != NAMESPACES[0] or not more or not self.quotas:
            return True
        return self._limited_mib() + more <= min(self.quotas.values())

    def _queued(self) -> Counter[tuple[str, str]]:
        """What each queue holds with those below it, by queue and resource."""
        found = Counter[tuple[str, str]]()
        for one in self.world.pods.values():
            asked = self.asked[one.name]
            if asked.group and self._node_of(one):
                for name in _ABOVE[self.specs[asked.group].queue]:
                    found[name, NUMBER] += asked.cards if asked.kind is Kind.VGPU else 0
                    found[name, "cpu"] += asked.cpu * 1000
        return found

    def _queue_takes(self, name: str, asked: Asked, count: int) -> bool:
        """Whether queue *name*, and the one above it, have room for *count* more."""
        queued = self._queued()
        more = {NUMBER: asked.cards * count if asked.kind is Kind.VGPU else 0, "cpu": asked.cpu * 1000 * count}
        return all(
            queued[one, resource] + more[resource] <= most
            for one in _ABOVE[name]
            for resource, most in self.limits[one].items()
            if more[resource]
        )

    def _is_left_by_others(self, name: str, asked: Asked, count: int) -> bool:
        """Whether nodes that take pods have room for *count* beside what is guaranteed to others than *name*."""
        queued, own = self._queued(), _ABOVE.get(name, ())
        taking = {where for where in self.nodes if self._takes(where, replace(asked, zone=""))}
        on = [self.asked[one.name] for one in self.world.pods.values() if self._node_of(one) in taking]
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
            if kept and more and sum(self._has(where, resource) for where in taking) - used - kept < more:
                return False
        return True

    def _has(self, name: str, resource: str) -> int:
        if name not in self.nodes:
            return 0
        if resource == "cpu":
            return int(self.nodes[name].allocatable["cpu"]) * 1000
        return self.offers[name].cards * (CARD_MIB if resource == MEMORY else 1)

    def _look_at_gangs(self, placed: Counter[str], least: dict[str, int]) -> None:
        for group, wanted in least.items():
            if placed[group] == 0 or placed[group] >= wanted:
                self.broken.discard(group)
            elif group not in self.broken:
                self.faults.append(f"gang {group} has {placed[group]} of {wanted}, and nothing was taken from it")
            self.counts["gangs placed"] += wanted > 1 and placed[group] >= wanted

    def settle(self) -> None:
        """Single pods end; all is answered and served until nothing moves; then whoever waits must not fit."""
        for one in list(self.world.pods.values()):
            if one.node_name and not self.asked[one.name].group and self.chance.random() < 0.5:
                self.take(one.name)
        quiet = 0
        for number in range(40):
            found = self._new_evictions()
            quiet = 0 if found else quiet + 1
            if number >= 12 and quiet > 1:
                break
            for action in found:
                self._send_away(action)
            for one in list(self.world.pods.values()):
                if one.deleting:
                    self.take(one.name)
            self._bind_all()
            self.world.passes(100.0)
            # Victims are searched for one pod per second.
            for _ in range(5 * self.preempts):
                self.world.passes(1.0)
            self.look()
        self.look_at_waiting()

    def look_at_waiting(self) -> None:
        """Nobody waits who fits: members of one shape, by counting what is free on nodes and in queues.

        Nodes that are kept free for somebody are nobody else's.
        """
        kept = self.world.scheduler.reservations.barred_to(None)
        # Which card a pod has that is promised one is not known before its Binding.
        promised = {self._node_of(one) for one in self.world.pods.values() if not one.node_name}
        holders: dict[str, list[PodUid]] = {name: [] for name in self.nodes if name not in kept | promised}
        for one in self.world.pods.values():
            if (where := self._node_of(one)) in holders:
                holders[where].append(one.uid)
        free = {name: self._free(name, uids) for name, uids in holders.items()}
        waiting: dict[str, list[Asked]] = {}
        held = Counter[str]()
        for one in self.world.pods.values():
            asked = self.asked[one.name]
            if one.phase is Phase.SUCCEEDED or self._node_of(one):
                held[asked.group] += 1
            elif not one.finished:
                waiting.setdefault(asked.group or one.name, []).append(asked)
        for name, some in waiting.items():
            self.counts["waiting"] += 1
            spec = self.specs.get(name)
            if name in self.unseen or (spec is not None and len({one.shape for one in some}) > 1):
                continue
            asked, needed = some[0], 1 if spec is None else max(spec.min_member - held[name], 1)
            room = sum(times(cards, cpu, asked) for node, (cards, cpu) in free.items() if self._takes(node, asked))
            if spec is not None and not self._queue_takes(spec.queue, asked, needed):
                self.counts["waiting for a queue"] += 1
                continue
            if not self._quotas_take(asked, needed):
                self.counts["waiting for a quota"] += 1
                continue
            if not self._is_left_by_others("" if spec is None else spec.queue, asked, needed):
                self.counts["waiting for what is guaranteed to others"] += 1
                continue
            if min(room, len(some)) >= needed:
                self.faults.append(f"{name} waits for {needed} of {asked}, and {room} fit")
            # Other choices of nodes for a whole group are not compared.
            if self.preempts and not kept and needed == len({one.priority for one in some}) == 1:
                self.counts["waiting for a preemption"] += 1
                for where in [where for where in free if self._takes(where, asked)]:
                    below = self._below(where, asked)
                    if self._fits_without(where, asked, below):
                        self.faults.append(f"{name} waits for {asked}, and fits on {where} without {below}")

    def _bind_all(self) -> None:
        """Write and serve all that is sent, until nothing is."""
        for _ in range(_MOST_PODS):
            self._lock()
            binds = self._binds()
            for bind in binds:
                self.world.accepts(bind)
            for one in list(self.world.pods.values()):
                if one.node_name and not one.started and not one.finished:
                    self._serve(one.name)
            if not binds:
                return


def _quota(name: str, mib: int) -> ResourceQuota:
    return ResourceQuota(NAMESPACES[0], name, {f"limits.{MEMORY}": mib, "requests.cpu": 1}, {})
