"""HAMi's plugins for NVIDIA cards and for Ascend chips on one node serve the pod that kubelet asks for.

Both go by one lock. The one for chips drops it after every container, and without one either takes the first Pending
pod of the node by name (ascend 2.2, hami 3.3). Old ones ask whose lock it is once, and delete it some calls later,
whoever has it by then (hami 3.5). Both are played here from these pages alone. The mirror is late.
"""

import json
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.actions import Bind, Lock
from core.model import Container, Node, NodeName, Phase, Pod, PodUid
from core.port.handoff import LockWait
from tests.support.worlds.world import World, pod

LOCK, NODE = "hami.io/mutex.lock", "node-a"
GPU, CHIP = "nvidia.com/gpu", "huawei.com/Ascend310P"
# So long do five tries take at five calls a second.
LATE_S = 4.0
TO_ALLOCATE = {GPU: "hami.io/vgpu-devices-to-allocate", CHIP: "hami.io/Ascend310P-devices-to-allocate"}


class Site:
    """One node: its API server, kubelet and plugins, and a controller that hears of it late."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.count = 100
        self.lock: str | None = None
        self.pods: dict[PodUid, Pod] = {}
        self.unseen: list[Pod] = []
        # What kubelet still asks for: pods, and of each the containers with cards.
        self.asking: dict[PodUid, list[Container]] = {}
        # Of a plugin that has served a container: since when it is dropping the lock, and whether it has read it.
        self.releasing: tuple[float, str, bool] | None = None
        self.world = World(self.node())
        self.world.has_no_kind()

    # ------------------------------------------------------------------ the API server

    def node(self) -> Node:
        self.count += 1
        gpus = [{"id": f"G{at}", "index": at, "count": 10, "devmem": 16000, "devcore": 100} for at in range(2)]
        chips = [{"id": f"U{at}", "index": at, "count": 7, "devmem": 21527, "devcore": 8} for at in range(4)]
        registers = {
            "hami.io/node-nvidia-register": json.dumps([{**one, "type": "NVIDIA T4", "health": True} for one in gpus]),
            "hami.io/node-register-Ascend310P": json.dumps(
                [{**one, "type": "Ascend310P", "health": True} for one in chips]
            ),
        }
        have = {GPU: "20", CHIP: "28", "cpu": "64", "memory": "64Gi", "pods": "110"}
        locks = {} if self.lock is None else {LOCK: self.lock}
        annotations = {**registers, "hami-vnpu-core": "false", **locks}
        found: dict[str, Any] = {"annotations": annotations, "capacity": have, "allocatable": have}
        return Node(name=NodeName(NODE), resource_version=str(self.count), **found)

    def put(self, found: Pod, **changes) -> Pod:
        self.count += 1
        now = found._replace(resource_version=str(self.count), **changes)
        self.pods[now.uid] = now
        self.unseen.append(now)
        return now

    # ------------------------------------------------------------------ what happens

    def a_pod_comes(self) -> None:
        chance, self.count = self.chance, self.count + 1
        resource = chance.choice((GPU, CHIP))
        asked = {resource: "1", "nvidia.com/gpumem" if resource == GPU else f"{CHIP}-memory": "1000"}
        limits = [asked] * chance.choice((1, 1, 2, 3)) + [{"cpu": "1"}] * chance.choice((0, 0, 1))
        chance.shuffle(limits)
        made = pod(f"{chance.choice('abc')}{self.count}", limits=asked)
        self.put(made._replace(containers=tuple(Container(f"c{at}", one, one) for at, one in enumerate(limits))))

    def the_mirror_shows_a_pod(self) -> None:
        if self.unseen:
            shown = self.unseen.pop(0)
            self.world.pods[shown.uid] = shown
            self.world.scheduler.pod_changed(shown)

    def the_mirror_shows_the_node(self) -> None:
        self.world.scheduler.nodes.changed(self.node())

    def the_controller_acts(self) -> None:
        self.world.now_s += self.chance.choice((0.01, 0.3, 2.0))
        while self.releasing is not None and self.world.now_s > self.releasing[0] + LATE_S:
            self.the_plugin_goes_on()
        self.world.plan()
        for action in self.world.actions(Lock):
            self.locks(action)
        for bind in self.world.actions(Bind):
            found = self.pods[bind.pod.uid]
            self.put(found, node_name=bind.node, annotations={**found.annotations, **bind.annotations})
            self.asking[found.uid] = [one for one in found.containers if one.limits.keys() & TO_ALLOCATE]
            self.world.scheduler.outcomes.bound(bind.pod.uid, bind.attempt)

    def locks(self, action: Lock) -> None:
        locks, node = self.world.scheduler.locks, self.node()
        key = locks.owner_of(action, node)
        step = locks.step(action, node, next((one for one in self.pods.values() if one.key == key), None))
        if isinstance(step, LockWait):
            locks.not_locked(action, step.reason, 1.0)
            return
        if step is not None:
            self.lock = step.value
            locks.written(action, step)
        locks.locked(action)

    def kubelet_asks(self) -> None:
        """For the next container of the pod that it admits now, in the order in which they were bound."""
        uid = next(iter(self.asking), None)
        if uid is None or self.releasing is not None:
            return
        found, (container, *rest) = self._found(), self.asking.pop(uid)
        assert found is not None, f"the plugin finds no pod for {uid}"
        assert found.uid == uid, f"the plugin serves {found.name}, and kubelet asks for {uid}"
        (key,) = container.limits.keys() & TO_ALLOCATE
        left = found.annotations[TO_ALLOCATE[key]].split(";")
        left[next(at for at, one in enumerate(left) if one)] = ""
        text = ";".join(left)
        if key == CHIP or not any(left):
            self.put(found, annotations={**found.annotations, TO_ALLOCATE[key]: text, "hami.io/bind-phase": "success"})
            self.releasing = self.world.now_s, found.key, False
        else:
            self.put(found, annotations={**found.annotations, TO_ALLOCATE[key]: text})
        if rest:
            self.asking = {uid: rest, **self.asking}
            if self.chance.random() < 0.7:
                self.kubelet_asks()

    def the_plugin_goes_on(self) -> None:
        """It reads the lock, and if that names its pod deletes whatever lock is there later, before its call ends."""
        if self.releasing is None:
            return
        since_s, key, has_read = self.releasing
        is_own = self.lock is not None and self.lock.endswith("," + key.replace("/", ","))
        self.releasing = (since_s, key, True) if is_own and not has_read else None
        if has_read:
            self.lock = None

    def _found(self) -> Pod | None:
        """The pod that a plugin takes: the one that the lock names, else the first that it guesses."""
        if self.lock is not None:
            key = "/".join(self.lock.split(",")[1:])
            return next((one for one in self.pods.values() if one.key == key), None)
        open_ones = [
            one
            for one in self.pods.values()
            if one.node_name == NODE
            and one.phase is Phase.PENDING
            and "hami.io/bind-time" in one.annotations
            and one.annotations.get("hami.io/bind-phase") in ("allocating", "success")
        ]
        return min(open_ones, key=lambda one: (one.namespace, one.name), default=None)

    def a_pod_starts(self) -> None:
        """Images are pulled by then, which takes its time."""
        admitted = self.releasing[1] if self.releasing is not None else ""
        ready = [
            one
            for one in self.pods.values()
            if one.node_name and one.uid not in self.asking and one.key != admitted and not one.started
        ]
        if ready:
            self.put(self.chance.choice(ready), started=True, phase=Phase.RUNNING)

    def a_pod_ends(self) -> None:
        ended = [one for one in self.pods.values() if one.started and not one.finished]
        if ended:
            self.put(self.chance.choice(ended), phase=Phase.SUCCEEDED)

    def all_are_served(self) -> None:
        """Once nothing is late and everything starts, whoever fits has its turn."""
        for _ in range(400):
            while self.unseen:
                self.the_mirror_shows_a_pod()
            self.the_mirror_shows_the_node()
            self.the_controller_acts()
            self.kubelet_asks()
            self.the_plugin_goes_on()
            self.a_pod_starts()
            self.a_pod_ends()
        assert all(one.finished for one in self.pods.values())


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), length=st.integers(20, 200))
def test_a_plugin_serves_the_pod_that_kubelet_asks_for(seed, length):
    site = Site(seed)
    happenings = (
        *[site.a_pod_comes] * 4,
        *[site.the_mirror_shows_a_pod] * 12,
        *[site.the_mirror_shows_the_node] * 2,
        *[site.the_controller_acts] * 8,
        *[site.kubelet_asks] * 8,
        *[site.the_plugin_goes_on] * 4,
        site.a_pod_starts,
        site.a_pod_ends,
    )
    for _ in range(length):
        site.chance.choice(happenings)()
    site.all_are_served()
