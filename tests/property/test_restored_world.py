"""Random lives with a lagging mirror, lost answers, preemption, changes of the leader, and restores of etcd.

Writes are executed and answered at any time, or never. No card may be promised beyond what it has. Once all faults have
ended and everything is answered, no pod waits that fits; and once all pods are deleted, nothing is left of them.
"""

from collections import Counter, deque
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from controller.actions import Action, Announce, Bind, Clear, Fence, Preempt, ReadPod, Touch, Unnominate
from core.groups import GroupSpec, QueueSpec
from core.model import GroupKey, GroupKind, NodeName, Phase, Pod, PodUid
from tests.support.worlds.world import MEMORY, NUMBER, START_UNIX_S, World, node, pod

MIB, SLOTS = 10_000, 4
GROUP = "scheduling.k8s.io/group-name"
IDS = "volcano.sh/vgpu-ids-new"
SERVED = {"volcano.sh/devices-to-allocate": "", "volcano.sh/bind-phase": "success"}
SETTINGS: dict[str, Any] = {
    "preemption": True,
    "preemption_delay_s": 2.0,
    "preemption_wait_s": 60.0,
    "handoff_timeout_s": 60.0,
    "keep_free_for_s": 0.0,
}


class Life:
    """An API server, its kubelets and users, and one leader after another."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.now_s, self.version, self.number = 1000.0, 1000, 0
        self.pods: dict[PodUid, Pod] = {}
        self.groups: dict[str, int] = {}
        self.cards = {f"n{at}": self.chance.choice((1, 2, 4)) for at in range(4)}
        self.watch: deque[tuple[PodUid, Pod | None]] = deque()
        # Bindings that were not executed yet, and who sent them; and all other actions of the present leader.
        self.sent: list[tuple[World, Bind]] = []
        self.asked: list[Action] = []
        self.backup: tuple[dict[PodUid, Pod], int] | None = None
        self.counts = Counter[str]()
        self.world = self.leader()

    # what is stored

    def write(self, one: Pod, **changes: Any) -> Pod:
        self.version += 1
        now = one._replace(resource_version=str(self.version), **changes)
        self.pods[now.uid] = now
        self.watch.append((now.uid, now))
        return now

    def delete(self, one: Pod) -> None:
        self.version += 1
        del self.pods[one.uid]
        self.watch.append((one.uid, None))

    def fits(self, one: Pod | None, version: str) -> bool:
        return one is not None and one.resource_version == version and not one.node_name

    # leaders

    def leader(self) -> World:
        nodes = [node(name, cards=cards, memory=MIB, slots=SLOTS) for name, cards in self.cards.items()]
        self.world = World(*nodes, **SETTINGS)
        self.world.now_s = self.now_s
        self.world.has_no_kind(GroupKind.COSCHEDULING)
        self.world.has_no_kind(GroupKind.NATIVE)
        self.world.groups_are(*map(self.group, self.groups), queues=[QueueSpec(name="default")])
        self.world.scheduler.cluster.occupants.budgets_replaced(())
        self.list_all()
        return self.world

    def group(self, name: str) -> GroupSpec:
        key = GroupKey(GroupKind.VOLCANO, "default", name)
        return GroupSpec(key=key, uid=name, resource_version="1", min_member=self.groups[name], queue="default")

    def list_all(self, *, back: bool = False) -> None:
        self.watch.clear()
        self.world.pods = dict(self.pods)
        for _ in self.world.scheduler.pods_replaced([*self.pods.values()], str(self.version), has_gone_back=back):
            pass

    def restart(self) -> None:
        """The leader dies; what it sent may still be executed."""
        self.asked.clear()
        self.now_s += 20.0
        self.leader()
        self.world.scheduler.follow()
        self.world.scheduler.take_over(("cardshare",))

    def back_up(self) -> None:
        self.backup = dict(self.pods), self.version

    def restore(self) -> None:
        if self.backup is None:
            return
        self.counts["restored"] += 1
        for world, bind in self.sent:
            if world is self.world:
                world.loses(bind)
        self.sent.clear()
        newest, goes_on = self.version, self.chance.random() < 0.5
        (self.pods, self.version), self.backup = self.backup, None
        back = self.version < newest and not goes_on
        self.version = newest + 1000 if goes_on else self.version
        self.list_all(back=back)

    # users and kubelets

    def add(self) -> None:
        chance, self.number = self.chance, self.number + 1
        group, count = "", 1
        if chance.random() < 0.2:
            group, count = f"g{self.number}", chance.randint(2, 4)
            self.groups[group] = count
            self.world.scheduler.cluster.groups.changed(self.group(group))
        priority, cards, memory = chance.choice((0, 0, 5)), chance.choice((1, 1, 2)), chance.choice((2500, 5000, MIB))
        for at in range(count if len(self.pods) < 25 else 0):
            self.write(
                pod(
                    f"p{self.number}-{at}",
                    memory=memory,
                    number=cards,
                    priority=priority,
                    annotations={GROUP: group} if group else {},
                    created_s=int(START_UNIX_S + self.now_s - 1000.0),
                )
            )

    def take(self) -> None:
        if self.pods:
            one = self.pods[self.chance.choice(sorted(self.pods))]
            if one.node_name and self.chance.random() < 0.5:
                self.write(one, deleting=True)
            else:
                self.delete(one)

    def end(self, part: float = 0.5) -> None:
        for one in [one for one in self.pods.values() if one.deleting and self.chance.random() < part]:
            self.delete(self.write(one, phase=Phase.SUCCEEDED) if one.started else one)

    def serve(self, part: float = 0.6) -> None:
        for one in [one for one in self.pods.values() if one.node_name and not one.started]:
            if self.chance.random() < part:
                self.write(one, annotations={**one.annotations, **SERVED}, started=True, phase=Phase.RUNNING)

    def deliver(self, most: int = 4) -> None:
        for _ in range(min(most, len(self.watch))):
            uid, one = self.watch.popleft()
            if one is not None:
                self.world.pods[uid] = one
                self.world.scheduler.pod_changed(one)
            else:
                self.world.pods.pop(uid, None)
                self.world.scheduler.pod_gone(uid)

    def wait(self, seconds: float | None = None) -> None:
        self.now_s += self.chance.choice((0.1, 1.0, 10.0)) if seconds is None else seconds
        self.world.now_s = self.now_s

    # what the leader asks for

    def collect(self) -> None:
        self.world.plan()
        actions = self.world.scheduler.cluster.actions
        while actions:
            action = actions.popleft()
            if isinstance(action, Bind):
                self.sent.append((self.world, action))
            elif not isinstance(action, Announce):
                self.asked.append(action)

    def answer(self, *, surely: bool = False) -> None:
        """Execute and answer some of what was sent, or *surely* all of it."""
        for one in list(self.sent):
            if surely or self.chance.random() < 0.6:
                self.sent.remove(one)
                self.bind(*one, luck=1.0 if surely else self.chance.random())
        asked, self.asked = self.asked, []
        for action in asked:
            if surely or self.chance.random() < 0.7:
                self.perform(action, fails=not surely and self.chance.random() < 0.2)
            else:
                self.asked.append(action)

    def bind(self, world: World, action: Bind, luck: float) -> None:
        uid, outcomes = action.pod.uid, self.world.scheduler.outcomes
        found, is_heard = self.pods.get(uid), world is self.world
        is_done = luck > 0.1 and found is not None and self.fits(found, action.version) and not found.deleting
        if is_done and found is not None:
            self.write(found, node_name=action.node, annotations={**found.annotations, **action.annotations})
        if is_heard and luck <= 0.2:
            outcomes.lost(uid, action.attempt, "no answer")
        elif is_heard and is_done:
            outcomes.bound(uid, action.attempt)
        elif is_heard:
            outcomes.contradicted(uid, action.attempt)

    def perform(self, action: Action, *, fails: bool) -> None:
        scheduler = self.world.scheduler
        match action:
            case ReadPod():
                scheduler.pod_read(action.pod.uid, action.attempt, self.pods.get(action.pod.uid))
            case Fence() | Touch():
                self.move(action, fails=fails)
            case Clear():
                found = self.pods.get(action.pod.uid)
                if found is not None and action.version in ("", found.resource_version):
                    self.write(found, annotations={**found.annotations, **action.annotations})
                scheduler.cleared(action.pod.uid, done=found is None or action.version in ("", found.resource_version))
            case Preempt():
                self.preempt(action, fails=fails)
            case Unnominate():
                if action.pod.uid in self.pods and not fails:
                    self.write(self.pods[action.pod.uid], nominated_node="")

    def move(self, action: Fence | Touch, *, fails: bool) -> None:
        scheduler, found, uid = self.world.scheduler, self.pods.get(action.pod.uid), action.pod.uid
        now = None
        if found is not None and self.fits(found, action.version) and not fails:
            text = action.wait.message if action.wait is not None else found.scheduled_message
            now = self.write(found, scheduled_message=text)
        if isinstance(action, Touch):
            if now is None:
                scheduler.not_moved(uid)
            else:
                scheduler.moved(uid, action.version, now)
        elif now is None:
            scheduler.outcomes.not_fenced(uid, action.attempt)
        else:
            scheduler.fenced(uid, action.attempt, now)

    def preempt(self, action: Preempt, *, fails: bool) -> None:
        preempting = self.world.scheduler.preempting
        if not preempting.needs(action):
            preempting.unneeded(action)
            return
        for target, where in action.nominated:
            if target.uid in self.pods:
                self.write(self.pods[target.uid], nominated_node=where)
        for target, _ in action.victims:
            if fails:
                preempting.refused(action, target.uid)
                return
            found = self.pods.get(target.uid)
            if found is not None and not found.deleting:
                self.counts["evicted"] += 1
                self.write(found, deleting=True)
        preempting.asked(action)

    # what must hold

    def used(self) -> Counter[str]:
        """The memory that pods on nodes hold of each card."""
        found = Counter[str]()
        for one in self.pods.values():
            if one.node_name and not one.finished:
                for share in one.annotations.get(IDS, "").replace(";", ":").split(":"):
                    card, _, rest = share.partition(",")
                    found[card] += int(rest.split(",")[1]) if rest else 0
        return found

    def step(self) -> None:
        acts = (self.add, self.take, self.end, self.serve, self.deliver, self.answer, self.wait)
        rare = (self.list_all, self.restart, self.back_up, self.restore)
        self.chance.choices((*acts, *rare), (30, 8, 15, 20, 60, 60, 30, 2, 1, 4, 3))[0]()
        self.collect()
        assert max(self.used().values(), default=0) <= MIB

    def settle(self) -> None:
        """Answer everything until nothing moves."""
        for number in range(80):
            for _ in range(4):
                self.deliver(len(self.watch))
                self.answer(surely=True)
                self.serve(1.0)
                self.end(1.0)
                self.collect()
            self.wait(1.0 if number % 6 else 30.0)
            self.collect()
            assert max(self.used().values(), default=0) <= MIB

    def forgotten(self) -> Iterator[str]:
        """Yield the pods without a group that wait although a node has as many cards with enough memory free."""
        used, queue = self.used(), self.world.scheduler.cluster.queue
        for one in self.pods.values():
            entry = queue.get(one.uid)
            if one.node_name or one.finished:
                continue
            if entry is None or entry.stage.value not in ("refused", "held"):
                yield f"{one.name} is {entry.stage if entry is not None else 'not known'}"
            limits = one.containers[0].limits
            for name, cards in self.cards.items():
                free = sum(used[f"{name}-{at}"] + int(limits[MEMORY]) <= MIB for at in range(cards))
                if free >= int(limits[NUMBER]) and GROUP not in one.annotations:
                    yield f"{one.name} waits for {limits} and fits on {name}"

    def left(self) -> dict[str, int]:
        """What is left of pods."""
        scheduler, cluster = self.world.scheduler, self.world.scheduler.cluster
        sizes = {
            "holders": sum(len(cluster.ledger.holders(NodeName(name))) for name in self.cards),
            "queue": len(cluster.queue),
            "in flight": cluster.handoff.in_flight + cluster.handoff.waiting + len(cluster.handoff.unserved_pods),
            "unsettled": len(cluster.sent) + len(cluster.fencing),
            "nominations": len(scheduler.reservations.nominations),
            "known": len(cluster.carded) + len(scheduler.vanished.until_s) + len(cluster.groups.key_of),
        }
        return {name: size for name, size in sizes.items() if size}


@pytest.mark.may_block(reason="nothing runs in a loop")
@pytest.mark.parametrize("seed", [*range(8), 55, 76, 83])
def test_no_card_is_oversold_nobody_is_forgotten_and_nothing_stays_whatever_is_lost_or_restored(seed):
    life = Life(seed)
    for number in range(250):
        life.step()
        if number == 230:
            life.back_up()
    life.restore()
    life.settle()
    assert [*life.forgotten()] == []
    for one in list(life.pods.values()):
        life.delete(one)
    life.settle()
    assert life.left() == {}
