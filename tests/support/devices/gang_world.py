"""Groups, queues and single pods through everything that goes wrong with them, judged from pods and nodes alone.

What must hold is added up here from objects and Bindings, by arithmetic of its own: cards and cpu are never promised
twice, a gang has its minimum or nothing unless something was taken from it, no queue is over its capability, no
namespace over its ResourceQuotas, and once nothing moves, whoever waits does not fit.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

from controller.actions import Bind
from core.groups import GroupKey, GroupKind, GroupSpec, QueueSpec
from core.model import Node, NodeName, Phase, Pod
from core.wire.quotas import ResourceQuota
from tests.support.worlds.world import MEMORY, NUMBER, World, node, pod

CARD_MIB: Final = 10_000
CPUS: Final = 6
GROUP: Final = "scheduling.k8s.io/group-name"
IDS: Final = "volcano.sh/vgpu-ids-new"
# Of "within" the other two are limits too: it is below "small".
QUEUES: Final = ("small", "within", "open")
_ABOVE: Final = {"small": ("small",), "within": ("within", "small"), "open": ("open",)}
# Of these the first alone has quotas, at times.
NAMESPACES: Final = ("team", "default")
_MOST_PODS: Final = 40
_AFTER_S: Final = 5.0


@dataclass(slots=True)
class Asked:
    """What one pod wants: whole cards and cpus, of which group, "" = none; in which namespace."""

    group: str
    namespace: str
    cards: int
    cpu: int


class GangWorld:
    """One cluster and its scheduler, and what happens to them."""

    def __init__(self, seed: object) -> None:
        self.chance: Final = random.Random(f"gangs/{seed}")
        self.nodes: Final[dict[str, Node]] = {}
        self.asked: Final[dict[str, Asked]] = {}
        self.specs: Final[dict[str, GroupSpec]] = {}
        # Groups that the scheduler has not been shown yet: whoever is of one waits for that, whatever fits.
        self.unseen: Final[set[str]] = set()
        self.limits: Final = {"small": {NUMBER: 4, "cpu": 9000}, "within": {"cpu": 5000}, "open": {}}
        # MiB of cards' memory in all that quotas leave the first of the namespaces, by quota.
        self.quotas: Final[dict[str, int]] = {}
        self.shares: Final = {name: QueueSpec(name=name) for name in QUEUES}
        # In some lives nodes are kept free for who waits long.
        self.keep_free_for_s: Final = self.chance.choice((0.0, 20.0))
        # Who was promised a place and not bound when last looked at: a device plugin that falls silent takes it away.
        self.promised: Final[set[str]] = set()
        # Gangs from which something was taken, and queues that were made smaller, since they were last whole.
        self.broken: Final[set[str]] = set()
        self.counts: Final = Counter[str]()
        self.faults: Final[list[str]] = []
        self.number = 0
        self.world = World(keep_free_after_s=_AFTER_S, keep_free_for_s=self.keep_free_for_s)
        for _ in range(3):
            self.add_node()
        self._show_groups()

    # ------------------------------------------------------------------ what happens

    def step(self) -> None:
        """One thing happens; then the scheduler decides, and all is looked at."""
        act = self.chance.choices(
            (self.add_pods, self.take_pod, self.end_pod, self.answer, self.add_node, self.take_node, self.change_group,
             self.change_queue, self.change_quota, self.restart, self.wait),
            (30, 8, 6, 40, 2, 1, 3, 2, 2, 1, 12),
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
        group = self.chance.choice(("", "", *self.specs, *self.specs)) or ""
        if not group and self.chance.random() < 0.4:
            group = self._new_group()
        namespace = self.specs[group].key.namespace if group else self.chance.choice(NAMESPACES)
        for _ in range(self.chance.randint(1, 4) if group else 1):
            self.number += 1
            name, cards = f"p{self.number}", self.chance.choice((0, 1, 1, 1, 2))
            asked = self.asked[name] = Asked(group, namespace, cards, self.chance.choice((1, 1, 2)))
            limits = {"cpu": str(asked.cpu)} | ({NUMBER: str(cards), MEMORY: str(CARD_MIB)} if cards else {})
            annotations = {GROUP: group} if group else {}
            priority = self.chance.choice((0, 0, 5))
            made = pod(name, limits=limits, annotations=annotations, priority=priority, namespace=namespace)
            self.world.adds(made)

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

    def _serve(self, name: str) -> None:
        if self.asked[name].cards:
            self.world.serves(name)
        else:
            self.world.shows(self.world.seen(name), started=True, phase=Phase.RUNNING)

    def _binds(self) -> list[Bind]:
        return [one for one in self.world.binds() if one.pod.name in self.asked]

    def add_node(self) -> None:
        """A node appears, or one that is there is empty and changes its cards."""
        if len(self.nodes) < 6:
            self.number += 1
            name, cards = f"n{self.number}", self.chance.choice((0, 1, 2, 4))
            made = node(name, cards=cards, memory=CARD_MIB, version=str(self.number))
            have = {**made.allocatable, "cpu": str(CPUS)}
            self.nodes[name] = replace(made, capacity=have, allocatable=have)
            self.world.scheduler.nodes.changed(self.nodes[name])

    def take_node(self) -> None:
        """A node goes with all its pods, those that are promised there too."""
        if len(self.nodes) > 2:
            name = self.chance.choice(sorted(self.nodes))
            for one in [one for one in self.world.pods.values() if self._node_of(one) == name]:
                self.take(one.name)
            del self.nodes[name]
            self.world.scheduler.nodes.gone(NodeName(name))

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
            guarantee = chance.choice(({}, {NUMBER: 2}, {"cpu": 3000}))
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
        self.world = World(*self.nodes.values(), keep_free_after_s=_AFTER_S, keep_free_for_s=self.keep_free_for_s)
        self.world.version, self.world.now_s = before.version, before.now_s
        self.world.scheduler.cluster.budgets.quotas.replaced([_quota(*one) for one in self.quotas.items()])
        shown = sorted(before.pods.values(), key=lambda _: self.chance.random())
        if self.chance.random() < 0.5:
            self._show_groups()
        self.world.adds(*shown)
        self._show_groups()

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
        ids = Counter[str]()
        for name in self.promised & self.asked.keys():
            if not self._node_of(self.world.seen(name)):
                self._break(name)
        self.promised.clear()
        self.promised.update(one.name for one in self.world.pods.values() if not one.node_name and self._node_of(one))
        for one in self.world.pods.values():
            asked, where = self.asked[one.name], self._node_of(one)
            if one.phase is Phase.SUCCEEDED:
                placed[asked.group] += 1
            if not where:
                continue
            placed[asked.group] += 1
            for resource, amount in ((NUMBER, asked.cards), ("cpu", asked.cpu * 1000)):
                taken[where, resource] += amount
            ids.update(entry.split(",")[0] for entry in one.annotations.get(IDS, "").split(":") if entry)
        self.faults.extend(f"card {card} is held {many} times" for card, many in ids.items() if many > 1)
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

    def _limited_mib(self) -> int:
        """What the pods of the namespace with quotas hold of cards' memory."""
        return sum(
            self.asked[one.name].cards * CARD_MIB
            for one in self.world.pods.values()
            if one.namespace == NAMESPACES[0] and self._node_of(one)
        )

    def _quotas_take(self, asked: Asked, count: int) -> bool:
        if asked.namespace != NAMESPACES[0] or not asked.cards or not self.quotas:
            return True
        return self._limited_mib() + asked.cards * CARD_MIB * count <= min(self.quotas.values())

    def _queued(self) -> Counter[tuple[str, str]]:
        """What each queue holds with those below it, by queue and resource."""
        found = Counter[tuple[str, str]]()
        for one in self.world.pods.values():
            asked = self.asked[one.name]
            if asked.group and self._node_of(one):
                for name in _ABOVE[self.specs[asked.group].queue]:
                    found[name, NUMBER] += asked.cards
                    found[name, "cpu"] += asked.cpu * 1000
        return found

    def _queue_takes(self, name: str, asked: Asked, count: int) -> bool:
        """Whether queue *name*, and the one above it, have room for *count* more."""
        queued = self._queued()
        more = {NUMBER: asked.cards * count, "cpu": asked.cpu * 1000 * count}
        return all(
            queued[one, resource] + more[resource] <= most
            for one in _ABOVE[name]
            for resource, most in self.limits[one].items()
            if more[resource]
        )

    def _has(self, name: str, resource: str) -> int:
        have = self.nodes[name].allocatable if name in self.nodes else {}
        return int(have.get("cpu", "0")) * 1000 if resource == "cpu" else int(have.get(NUMBER, "0")) // 10

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
        for _ in range(12):
            for bind in self._binds():
                self.world.accepts(bind)
            for one in list(self.world.pods.values()):
                if one.node_name and not one.started and not one.finished:
                    self._serve(one.name)
            self.world.passes(100.0)
            self.look()
        self.look_at_waiting()

    def look_at_waiting(self) -> None:
        """Nobody waits who fits: members of one shape, by counting what is free on nodes and in queues.

        Nodes that are kept free for somebody are nobody else's.
        """
        kept = self.world.scheduler.reservations.to(None)
        free = {
            name: [self._has(name, NUMBER), self._has(name, "cpu") // 1000] for name in self.nodes if name not in kept
        }
        for one in self.world.pods.values():
            if (where := self._node_of(one)) in free:
                free[where][0] -= self.asked[one.name].cards
                free[where][1] -= self.asked[one.name].cpu
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
            if name in self.unseen or (spec is not None and len({(one.cards, one.cpu) for one in some}) > 1):
                continue
            asked, needed = some[0], 1 if spec is None else max(spec.min_member - held[name], 1)
            room = sum(_times(cards, cpu, asked) for cards, cpu in free.values())
            if spec is not None and not self._queue_takes(spec.queue, asked, needed):
                self.counts["waiting for a queue"] += 1
                continue
            if not self._quotas_take(asked, needed):
                self.counts["waiting for a quota"] += 1
                continue
            if min(room, len(some)) >= needed:
                self.faults.append(f"{name} waits for {needed} of {asked}, and {room} fit")


def _quota(name: str, mib: int) -> ResourceQuota:
    return ResourceQuota(NAMESPACES[0], name, {f"limits.{MEMORY}": mib, "requests.cpu": 1}, {})


def _times(cards: int, cpu: int, asked: Asked) -> int:
    """How often a pod fits on a node that has so much free."""
    return min(cpu // asked.cpu, cards // asked.cards if asked.cards else cpu)
