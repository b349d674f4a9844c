"""The field without a network: an API server, kubelets and device plugins, step by step, around a `Scheduler`.

Written from the protocol documents (nvidia 2.2, 2.4, 5.2, 7.2; Kubernetes' kubelet), not from the controller. Every
part sees the API server's changes in order and with a lag of its own, and each takes one step at a time, so that any
interleaving can be played. What a container received is recorded with the pod that it was meant for.

- Kubelet admits pods from its own copies, one at a time, in its order, also one that is gone by then; it calls
  `Allocate` for every container that asks.
- A plugin is told no name. A call is several steps (list and choose, erase, look again and mark, answer), and the
  process may die between two of them.
"""

import random
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from controller.actions import Bind, Clear, Fence
from core.dialects.vgpu.pods import rotate
from core.model import Node, NodeName, Phase, Pod, PodUid
from sandbox.players import gpushare
from sandbox.players import vgpu_protocol as vgpu
from sandbox.players.objects import annotations_of
from sandbox.players.vgpu_protocol import Version
from tests.support.worlds.world import NUMBER, World

Json = dict[str, Any]

SHARE_MEMORY = gpushare.MEMORY
ADMISSION_ERROR = "UnexpectedAdmissionError"


class Order(StrEnum):
    """In which order kubelet admits the pods it knows of."""

    WATCH = "watch"
    CREATED = "created"
    SHUFFLED = "shuffled"


class Served(NamedTuple):
    """A container that a plugin answered for: whose it is, and whose assignment the plugin took.

    harm: one of the two was alive, so that somebody has cards that were meant for another.
    """

    node: str
    admitted: PodUid
    meant_for: PodUid
    harm: bool


class Change(NamedTuple):
    """One event of the API server's watch on pods; gone: DELETED."""

    pod: Pod
    gone: bool


class Gone(Exception):  # noqa: N818 (an answer, 404)
    """No such pod."""


class Api:
    """Pods by uid, and the log of their changes."""

    def __init__(self) -> None:
        self.pods: dict[PodUid, Pod] = {}
        self.log: list[Change] = []
        self._version = 100

    def write(self, uid: PodUid, /, **changes: Any) -> Pod:
        """Change a pod as whoever may; *annotations* are merged in.

        Raises:
            Gone: it is not there.
        """
        if uid not in self.pods:
            raise Gone(uid)
        before = self.pods[uid]
        if "annotations" in changes:
            changes["annotations"] = {**before.annotations, **changes["annotations"]}
        return self.put(before._replace(**changes))

    def annotate_as_plugin(self, uid: PodUid, notes: Mapping[str, str]) -> None:
        """A plugin's patch, with what the webhook puts into the same write (nvidia 2.8).

        Raises:
            Gone: the pod is not there.
        """
        if uid not in self.pods:
            raise Gone(uid)
        before = dict(self.pods[uid].annotations)
        after = {**before, **notes}
        for key, value in rotate(before, after).items():
            if value is None:
                after.pop(key, None)
            else:
                after[key] = value
        self.put(self.pods[uid]._replace(annotations=after))

    def put(self, pod: Pod) -> Pod:
        self._version += 1
        now = pod._replace(resource_version=str(self._version))
        self.pods[now.uid] = now
        self.log.append(Change(now, gone=False))
        return now

    def remove(self, uid: PodUid) -> None:
        if uid in self.pods:
            self.log.append(Change(self.pods.pop(uid), gone=True))

    def bind(self, action: Bind) -> str:
        """What the API server answers to a Binding: "" for written, else the reason."""
        pod = self.pods.get(action.pod.uid)
        if pod is None:
            return "NotFound"
        if pod.node_name or pod.deleting or pod.resource_version != action.version:
            return "Conflict"
        self.write(pod.uid, node_name=action.node, annotations=action.annotations)
        return ""

    def listed(self) -> list[Json]:
        """All pods as a plugin lists them: by namespace and name."""
        return [_object(pod) for pod in sorted(self.pods.values(), key=lambda one: (one.namespace, one.name))]


@dataclass(slots=True)
class Kubelet:
    """One kubelet and the plugin beside it.

    at: how much of the log it has read. pending: its own copies of pods that it has not admitted. seen: all it ever
    had.
    """

    node: NodeName
    version: Version = Version.MAIN
    order: Order = Order.WATCH
    at: int = 0
    pending: dict[PodUid, Pod] = field(default_factory=dict)
    seen: set[PodUid] = field(default_factory=set)
    running: set[PodUid] = field(default_factory=set)
    admitting: Iterator[None] | None = None
    paused: bool = False
    plugin_is_up: bool = True


class Field:
    """All of it. *chance* makes every choice.

    Attributes:
        served: every answer of a plugin.
        failed: pods that kubelet turned away, by uid.
        vanished: pods whose object was gone before kubelet admitted them.
    """

    def __init__(self, world: World, kubelets: list[Kubelet], chance: random.Random) -> None:
        self.world = world
        self.api = Api()
        self.kubelets = {one.node: one for one in kubelets}
        self.chance = chance
        self.served: list[Served] = []
        self.failed: dict[PodUid, str] = {}
        self.vanished: set[PodUid] = set()
        self._mirrored = 0
        self._sent: list[Bind] = []

    # ------------------------------------------------------------------ people

    def create(self, pod: Pod) -> None:
        self.api.put(pod)

    def delete(self, uid: PodUid, *, force: bool) -> None:
        """Delete a pod; *force*, or a grace period of 0: its object is gone at once."""
        pod = self.api.pods.get(uid)
        if pod is None:
            return
        if force or not pod.node_name:
            self.api.remove(uid)
        elif not pod.deleting:
            self.api.write(uid, deleting=True)

    # ------------------------------------------------------------------ the controller

    def mirror(self, events: int = 1) -> bool:
        """Show the controller some of what it has not seen; False if there is nothing."""
        if self._mirrored >= len(self.api.log):
            return False
        for change in self.api.log[self._mirrored : self._mirrored + events]:
            self._mirrored += 1
            if change.gone:
                self.world.scheduler.pod_gone(change.pod.uid)
            else:
                self.world.scheduler.pod_changed(change.pod)
        return True

    def control(self) -> bool:
        """Let the controller decide, and send what it sends; False if that is nothing."""
        self._sent += self.world.binds()
        for action in self.world.clears():
            self._clear(action)
        for read in self.world.reads():
            self.world.scheduler.pod_read(read.pod.uid, read.attempt, self.api.pods.get(read.pod.uid))
        for fence in self.world.fences():
            self._fence(fence)
        self.world.announced()
        return bool(self._sent)

    def _clear(self, action: Clear) -> None:
        if action.pod.uid in self.api.pods:
            self.api.write(action.pod.uid, annotations=action.annotations)
        self.world.scheduler.cleared(action.pod.uid, done=True)

    def _fence(self, action: Fence) -> None:
        pod = self.api.pods.get(action.pod.uid)
        if pod is None or pod.resource_version != action.version:
            self.world.scheduler.pod_read(action.pod.uid, action.attempt, pod)
        else:
            now = self.api.write(pod.uid, scheduled_message=action.wait.message)
            self.world.scheduler.fenced(pod.uid, action.attempt, now)

    def write_binding(self) -> bool:
        """One of the Bindings under way reaches the API server, and is answered; False if there is none."""
        if not self._sent:
            return False
        action = self._sent.pop(self.chance.randrange(len(self._sent)))
        if self.api.bind(action):
            self.world.scheduler.outcomes.contradicted(action.pod.uid, action.attempt)
        else:
            self.world.scheduler.outcomes.bound(action.pod.uid, action.attempt)
        return True

    # ------------------------------------------------------------------ kubelet

    def hear(self, kubelet: Kubelet, events: int = 1) -> bool:
        """Let a kubelet read on in its watch; False if there is nothing."""
        if kubelet.at >= len(self.api.log):
            return False
        for change in self.api.log[kubelet.at : kubelet.at + events]:
            kubelet.at += 1
            self._heed(kubelet, change)
        return True

    def _heed(self, kubelet: Kubelet, change: Change) -> None:
        pod, uid = change.pod, change.pod.uid
        if pod.node_name != kubelet.node:
            return
        if change.gone:
            if uid in kubelet.pending:
                self.vanished.add(uid)
            kubelet.running.discard(uid)
        elif uid in kubelet.running:
            if pod.deleting:
                kubelet.running.discard(uid)
                self.api.remove(uid)
        elif uid not in kubelet.seen:
            kubelet.seen.add(uid)
            kubelet.pending[uid] = pod

    def admit(self, kubelet: Kubelet) -> bool:
        """One step of a kubelet's admission; False if it has nothing to do, or does nothing."""
        if kubelet.paused:
            return False
        if kubelet.admitting is None:
            if not kubelet.pending:
                return False
            pod = kubelet.pending.pop(self._next(kubelet))
            kubelet.admitting = self._admission(kubelet, pod)
        if next(kubelet.admitting, "end") == "end":
            kubelet.admitting = None
        return True

    def _next(self, kubelet: Kubelet) -> PodUid:
        if kubelet.order is Order.SHUFFLED:
            return self.chance.choice(sorted(kubelet.pending))
        if kubelet.order is Order.CREATED:
            return min(kubelet.pending, key=lambda uid: (kubelet.pending[uid].created_s, uid))
        return next(iter(kubelet.pending))

    def _admission(self, kubelet: Kubelet, pod: Pod) -> Iterator[None]:
        problem = ""
        for container in pod.containers:
            for resource, serve in ((NUMBER, self._vgpu), (SHARE_MEMORY, self._gpushare)):
                asked = int(container.limits.get(resource, "0"))
                if asked and not problem:
                    problem = yield from serve(kubelet, pod, asked)
        uid = pod.uid
        try:
            if problem:
                self.failed[uid] = problem
                self.api.write(uid, phase=Phase.FAILED, status_reason=ADMISSION_ERROR, status_message=problem)
                return
            now = self.api.write(uid, phase=Phase.RUNNING, started=True)
        except Gone:
            return
        if now.deleting:
            self.api.remove(uid)
        else:
            kubelet.running.add(uid)

    # ------------------------------------------------------------------ plugins

    def _vgpu(self, kubelet: Kubelet, pod: Pod, asked: int) -> Generator[None, None, str]:
        """One Allocate of the vGPU plugin (nvidia 2.4 step 9): what kubelet hears, "" for an answer."""
        if not kubelet.plugin_is_up:
            return f"no healthy devices present; cannot allocate unhealthy devices {NUMBER}"
        yield
        listed = self.api.listed()
        if kubelet.version is Version.V1_11_0:
            found = vgpu.oldest_by_time(listed, kubelet.node)
        else:
            found = vgpu.oldest(listed, kubelet.node, asked)
        if found is None:
            return "cannot get valid pod"
        uid = PodUid(found["metadata"]["uid"])
        segments = vgpu.decode(annotations_of(found).get(vgpu.TO_ALLOCATE, ""))
        failed = {vgpu.BIND_PHASE: "failed", vgpu.TIME: str(vgpu.DONE_TIME)}
        yield
        try:
            _, devices = vgpu.next_request(segments, [one["name"] for one in found["spec"]["containers"]])
            if len(devices) != asked:
                raise vgpu.VgpuRequestError("device number not matched")
        except vgpu.VgpuRequestError as e:
            self._note(uid, failed)
            return str(e)
        if not kubelet.plugin_is_up:
            return "rpc error: code = Unavailable desc = error reading from server: EOF"
        try:
            self.api.annotate_as_plugin(uid, {vgpu.TO_ALLOCATE: vgpu.erase(segments)})
        except Gone:
            return "failed to erase the served devices: not found"
        yield
        if not kubelet.plugin_is_up:
            return "rpc error: code = Unavailable desc = error reading from server: EOF"
        now = self.api.pods.get(uid)
        if now is not None and "GPU" not in now.annotations.get(vgpu.TO_ALLOCATE, ""):
            self._note(uid, {vgpu.BIND_PHASE: "success", vgpu.TIME: str(vgpu.DONE_TIME)})
        self._serve(kubelet, pod.uid, uid)
        yield
        return ""

    def _gpushare(self, kubelet: Kubelet, pod: Pod, asked: int) -> Generator[None, None, str]:
        """One Allocate of the share plugin (nvidia 2.2 steps 9 and 10)."""
        if not kubelet.plugin_is_up:
            return f"no healthy devices present; cannot allocate unhealthy devices {SHARE_MEMORY}"
        yield
        pods = [one for one in self.api.listed() if one["spec"]["nodeName"] == kubelet.node]
        found = gpushare.candidate([one for one in pods if one["status"]["phase"] == "Pending"], asked)
        if found is None:
            return "failed to find candidate pod"
        uid = PodUid(found["metadata"]["uid"])
        yield
        now = self.api.pods.get(uid)
        if now is None or now.resource_version != found["metadata"]["resourceVersion"] or not kubelet.plugin_is_up:
            return "Operation cannot be fulfilled: the object has been modified"
        self._note(uid, {gpushare.ASSIGNED: "true"})
        self._serve(kubelet, pod.uid, uid)
        yield
        return ""

    def _serve(self, kubelet: Kubelet, admitted: PodUid, meant_for: PodUid) -> None:
        alive = [pod for uid in (admitted, meant_for) if (pod := self.api.pods.get(uid)) and not pod.finished]
        self.served.append(Served(kubelet.node, admitted, meant_for, harm=bool(alive) and admitted != meant_for))

    def _note(self, uid: PodUid, notes: Mapping[str, str]) -> None:
        if uid in self.api.pods:
            self.api.annotate_as_plugin(uid, notes)

    # ------------------------------------------------------------------ what came of it

    def strangers(self) -> list[Served]:
        """The containers that received what was meant for another pod, where either pod was alive."""
        return [one for one in self.served if one.harm]

    def left_over(self) -> list[str]:
        """The pods that are neither running nor ended, though everybody has had time."""
        return [pod.name for pod in self.api.pods.values() if not (pod.finished or pod.started)]

    def calm_down(self, step_s: float = 0.25, limit_s: float = 900.0) -> None:
        """Let everybody do all there is to do until nothing happens any more."""
        for kubelet in self.kubelets.values():
            kubelet.paused, kubelet.plugin_is_up = False, True
        end_s = self.world.now_s + limit_s
        quiet = 0
        while quiet < 200 and self.world.now_s < end_s:
            busy = self.mirror(1000)
            busy |= self.control()
            while self.write_binding():
                busy = True
            for kubelet in self.kubelets.values():
                busy |= self.hear(kubelet, 1000)
                while self.admit(kubelet):
                    busy = True
            quiet = 0 if busy else quiet + 1
            self.world.now_s += step_s


def register(cards: int, node: str, memory: int = 100_000) -> str:
    return "".join(f"GPU-{node}-{i},100,{memory},NVIDIA-T4,true,hami-core:" for i in range(cards))


def field_node(name: str, version: Version, *, cards: int = 4, memory: int = 100_000, shares: bool = False) -> Node:
    """A node with vGPU cards as a plugin of *version* writes it, or (*shares*) with cards of the share plugin."""
    have = {"cpu": "64", "memory": "256Gi", "pods": "500"}
    notes: dict[str, str] = {}
    if shares:
        have |= {SHARE_MEMORY: str(cards * memory), gpushare.NUMBER: str(cards)}
    else:
        have |= {NUMBER: str(cards * 100), "volcano.sh/vgpu-memory": str(cards * memory)}
        have |= {"volcano.sh/vgpu-cores": str(cards * 100)}
        notes[vgpu.REGISTER] = register(cards, name, memory)
        if version.beats:
            notes[vgpu.HANDSHAKE] = "Reported 2026-11-22 06:00:00.000000000 +0000 UTC m=+30.0"
    return Node(
        name=NodeName(name), uid=f"uid-{name}", resource_version="1", capacity=have, allocatable=have, annotations=notes
    )


def _object(pod: Pod) -> Json:
    containers = [{"name": one.name, "resources": {"limits": dict(one.limits)}} for one in pod.containers]
    metadata: Json = {
        "name": pod.name,
        "namespace": pod.namespace,
        "uid": pod.uid,
        "resourceVersion": pod.resource_version,
        "annotations": dict(pod.annotations),
    }
    if pod.deleting:
        metadata["deletionTimestamp"] = "now"
    status = {"phase": pod.phase.value, "reason": pod.status_reason}
    return {"metadata": metadata, "spec": {"nodeName": pod.node_name, "containers": containers}, "status": status}
