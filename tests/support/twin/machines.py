"""Nodes: what a kubelet and a device plugin do, by the protocol pages, over the API server alone.

A plugin is told no name: it finds its pod by annotations, time, count or lock (nvidia 2.4; hami 3.3, 3.4; ascend 2.2),
and takes whomever these show it. Calls are steps, with others' between them; a plugin makes 5 requests/s once its
bucket is empty. Kubelet admits one pod at a time and keeps its own account; it never asks who placed a pod.
"""

import json
from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from sandbox.players import ascend_hami_protocol as hami
from sandbox.players import vgpu_protocol as vgpu
from sandbox.players.objects import annotations_of
from tests.support.twin.api import Api, Event, Json, RefusedError, Target
from tests.support.twin.clock import CLOCK

Steps = Generator[float, None, Any]

SLOTS = 10
_ASCEND_SLOTS = 7
ENDED = ("Succeeded", "Failed")
# A node that is not heard of for so long is not Ready any more (node-monitor-grace-period before Kubernetes 1.32).
SILENT_S = 40.0
_STATUS_S = 10.0
# Requests of a plugin: so many at once, and so many a second (hami 3.4).
_BURST, _PER_S = 10.0, 5.0
# How often its own reports, which go by the same bucket, come first.
_OTHER_SHARE = 0.15
ASCEND = "Ascend310P"
ASCEND_MIB = 21527
# The templates of a chip that are configured by default.
TEMPLATES = ("vir01", "vir02", "vir04")
# Which instances a pod has on cards in mode MIG of HAMi's plugin.
RESERVED = "hami.io/vgpu-mig-allocations"


class Kind(StrEnum):
    """Whose device plugin serves a node."""

    VGPU = "vgpu"
    HAMI = "hami"
    ASCEND = "ascend"

    @property
    def resource(self) -> str:
        """What kubelet counts."""
        return {"vgpu": "volcano.sh/vgpu-number", "hami": "nvidia.com/gpu", "ascend": f"huawei.com/{ASCEND}"}[self]

    @property
    def assigned(self) -> str:
        """The annotation that says which cards a pod has."""
        words = {"hami": "hami.io/vgpu-devices-allocated", "ascend": f"hami.io/{ASCEND}-devices-allocated"}
        return words.get(self, vgpu.IDS)

    @property
    def phase(self) -> str:
        """The annotation that says how far its plugin is with a pod."""
        return vgpu.BIND_PHASE if self is Kind.VGPU else hami.BIND_PHASE

    @property
    def to_allocate(self) -> str:
        """The annotation from which a plugin takes what it gives."""
        words = {"hami": hami.to_allocate("vgpu"), "ascend": hami.to_allocate(ASCEND)}
        return words.get(self, vgpu.TO_ALLOCATE)


class Share(NamedTuple):
    """A part of one card.

    place: of a slice in mode MIG, its group and position, or with HAMi's plugin start+size; of a chip, its template.
    """

    card: str
    mib: int
    cores: int
    place: str = ""


# By group, (MiB, how many) of each kind of slice that a card then has.
Geometry = Mapping[str, list[tuple[int, int]]]


class Profile(NamedTuple):
    """One kind of instance of HAMi's plugin in mode MIG; size: how many places it takes, starts: from which on."""

    name: str
    mib: int
    cores: int
    size: int
    starts: tuple[int, ...]


def share_of(card: str, mib: int, cores: int) -> Share:
    """Read the id of a card or slice."""
    card, _, place = card.partition("[")
    return Share(card, mib, cores, place.removesuffix("]"))


class AllocateError(Exception):
    """What kubelet hears; *blames*: the plugin was well, and did not find the pod, or what was meant for it."""

    def __init__(self, text: str, *, blames: bool) -> None:
        super().__init__(text)
        self.blames = blames


@dataclass(slots=True)
class Proc:
    """What kubelet has made of one pod. shares: what its containers were given; runs: they are there."""

    key: str
    uid: str
    shares: list[Share] = field(default_factory=list)
    devices: int = 0
    runs: bool = False
    ends: bool = False
    # Its API object was removed while nobody could know that its kubelet was not heard of.
    is_excused: bool = False


class Machine:
    """One node.

    cards: id to MiB. geometry: how cards can be cut into slices, profiles: of HAMi's plugin; empty: not in mode MIG.
    slots: how many pods one card takes. ill: cards that the plugin calls unhealthy, and since when. excused: of cards
    that became smaller, what may be in use still, as `judge.Use`. changed_until_s: until when others may count on what
    was. templates: those that chips are cut by, as configured. factor: MiB in a unit of memory of Volcano's plugin.
    units: by uid, the factor with which a pod was served. doubtful: uids of pods that may have been placed by another
    one. procs: by uid, as kubelet's process table has them. refused: (key, text) of pods on this node that the plugin,
    being well, did not find. swapped: of pods that were served for another.
    """

    def __init__(
        self,
        name: str,
        kind: Kind,
        cards: Mapping[str, int],
        api: Api,
        world: Any,
        *,
        blind_release: bool = False,
    ) -> None:
        self.name = name
        self.kind = kind
        self.cards = dict(cards)
        self.model = ASCEND if kind is Kind.ASCEND else "Tesla T4"
        self.geometry: Geometry = {}
        self.profiles: tuple[Profile, ...] = ()
        self.slots = _ASCEND_SLOTS if kind is Kind.ASCEND else SLOTS
        self.templates: tuple[str, ...] = TEMPLATES
        self.factor = 1
        self.units: dict[str, int] = {}
        self.doubtful: set[str] = set()
        self.ill: dict[str, float] = {}
        self.excused: dict[str, Any] = {}
        self.changed_until_s = 0.0
        self.procs: dict[str, Proc] = {}
        self.plugin_up = True
        self.kubelet_up = True
        self.cut_until_s = 0.0
        self.slow_images_s = 0.0
        self.refused: list[tuple[str, str]] = []
        self.swapped: list[str] = []
        self._tokens = _BURST
        self._tokens_s = 0.0
        self.blind_release = blind_release
        self._api = api
        self._world = world
        self._latest: dict[str, Json] = {}
        self._queue: list[str] = []
        self._done: set[str] = set()
        self._is_admitting = False
        self._admitted = ""
        self._seen_s = 0.0
        self._silent_from_s = 0.0
        self._is_starting = False
        self._watch = 0

    @property
    def is_cut(self) -> bool:
        """Whether its cards are in mode MIG."""
        return bool(self.geometry or self.profiles)

    # ------------------------------------------------------------------ the node's object

    def register(self) -> None:
        """Make the node."""
        self._create(self._register(), is_up=True)
        self._world.spawn(self._beat())

    def _create(self, annotations: Mapping[str, str], *, is_up: bool) -> None:
        labels = {"kubernetes.io/hostname": self.name, "gpu": "on"}
        node = {
            "metadata": {"name": self.name, "labels": labels, "annotations": dict(annotations)},
            "spec": {},
            "status": {"conditions": [self._ready("True")], **self._room(registered=is_up)},
        }
        self._api.create("nodes", node)

    def _register(self) -> dict[str, str]:
        if self.kind is Kind.VGPU:
            mode = "mig" if self.geometry else "hami-core"
            model = f"NVIDIA-{self.model}"
            text = "".join(
                f"{card},{self.slots},{mib // self.factor},{model},{str(card not in self.ill).lower()},{mode}:"
                for card, mib in self.cards.items()
            )
            return {vgpu.REGISTER: text}
        if self.kind is Kind.HAMI:
            profiles = [
                {
                    "name": one.name,
                    "memoryMB": one.mib,
                    "core": one.cores,
                    "sliceCount": one.size,
                    "placements": [{"start": start, "size": one.size} for start in one.starts],
                }
                for one in self.profiles
            ]
            found: list[Json] = [
                {
                    "id": card,
                    "index": at,
                    "count": self.slots,
                    "devmem": mib,
                    "devcore": 100,
                    "type": f"NVIDIA-{self.model}",
                    "mode": "mig" if profiles else "hami-core",
                    "health": card not in self.ill,
                    **({"migProfiles": profiles} if profiles else {}),
                }
                for at, (card, mib) in enumerate(self.cards.items())
            ]
            return {"hami.io/node-nvidia-register": json.dumps(found)}
        found = [
            {
                "id": card,
                "index": at,
                "count": self.slots,
                "devmem": mib,
                "devcore": 8,
                "type": ASCEND,
                "health": card not in self.ill,
                "devicepairscore": {},
            }
            for at, (card, mib) in enumerate(self.cards.items())
        ]
        return {f"hami.io/node-register-{ASCEND}": json.dumps(found), "hami-vnpu-core": "false"}

    def _room(self, *, registered: bool) -> Json:
        count = len(self.cards.keys() - self.ill)
        found = {self.kind.resource: count * self.slots}
        if self.kind is Kind.VGPU:
            found |= {
                "volcano.sh/vgpu-memory": sum(mib // self.factor for mib in self.cards.values()),
                "volcano.sh/vgpu-cores": 100 * len(self.cards),
            }
        texts = {key: str(value if registered else 0) for key, value in found.items()}
        room = {"cpu": "64", "memory": "256Gi", "pods": "110", **texts}
        return {"capacity": room, "allocatable": room}

    def _ready(self, status: str) -> Json:
        return {"type": "Ready", "status": status, "reason": "Kubelet", "lastHeartbeatTime": self._world.now_text()}

    def _beat(self) -> Steps:
        """Kubelet's account of its node, every ten seconds; the node controller says when it is not heard of."""
        while True:
            yield _STATUS_S * (0.9 + 0.2 * self._world.draw.random())
            if self.is_heard:
                notes = self._register() if self.plugin_up and not self._is_starting else {}
                status = {"conditions": [self._ready("True")], **self._account()}
                self._write_node({"metadata": {"annotations": notes}, "status": status})

    def _account(self) -> Json:
        return self._room(registered=self.plugin_up and self.kubelet_up)

    def _write_node(self, changes: Json) -> None:
        if self.name in self._api.objects["nodes"]:
            self._api.write("nodes", self.name, changes)

    @property
    def is_heard(self) -> bool:
        """Whether kubelet is there, and reaches the API server."""
        return self.kubelet_up and CLOCK.now_s >= self.cut_until_s

    @property
    def is_ready(self) -> bool:
        """What the node's object says."""
        node = self._api.objects["nodes"].get(self.name)
        return node is not None and any(
            one["type"] == "Ready" and one["status"] == "True" for one in node["status"]["conditions"]
        )

    # ------------------------------------------------------------------ faults

    def stop_plugin(self, seconds: float) -> None:
        """The plugin's process ends; kubelet tells it with its next account."""
        self.plugin_up = False

        def start() -> None:
            self.plugin_up = True
            if self.is_heard:
                self._write_node({"status": self._account()})

        self._world.at(seconds, start)

    def restart_kubelet(self, seconds: float, plugin_s: float) -> None:
        """Kubelet is away, then back without plugins until these have registered again."""
        self.kubelet_up = False

        def back() -> None:
            self.kubelet_up = True
            self.plugin_up = False
            self._write_node({"status": {"conditions": [self._ready("True")], **self._account()}})
            self.relist()

        def plugin() -> None:
            self.plugin_up = True
            self._write_node({"status": self._account()})

        self._world.at(seconds, back)
        self._world.at(seconds + plugin_s, plugin)

    def cut(self, seconds: float) -> None:
        """Kubelet does not reach the API server."""
        self.cut_until_s = max(self.cut_until_s, CLOCK.now_s + seconds)
        begun_s = self._silent_from_s = CLOCK.now_s

        def silent() -> None:
            if not self.is_heard and self._silent_from_s == begun_s:
                self._write_node({"status": {"conditions": [self._ready("Unknown")]}})

        def back() -> None:
            if self.is_heard:
                self._write_node({"status": {"conditions": [self._ready("True")], **self._account()}})
                self.relist()

        self._world.at(SILENT_S, silent)
        self._world.at(seconds, back)

    def close(self, changes: Json, seconds: float) -> None:
        """An operator cordons or taints the node for a while: it takes no new pods."""
        self._write_node({"spec": changes})
        self._world.at(seconds, self._open)

    def _open(self) -> None:
        self._write_node({"spec": {"unschedulable": None, "taints": None}})

    def reregister(self, cards: Mapping[str, int], ill: Collection[str] = (), *, slots: int = 0) -> None:
        """The plugin names other cards from now on, or other memory or *slots*, or calls some unhealthy."""
        self.changed_until_s = CLOCK.now_s + CLOCK.late_s
        self._world.judge.excuse(self)
        self.cards = dict(cards)
        self.slots = slots or self.slots
        self.ill = {card: self.ill.get(card, CLOCK.now_s) for card in ill}
        if self.plugin_up and self.is_heard:
            self._write_node({"metadata": {"annotations": self._register()}, "status": self._account()})

    def rescale(self, factor: int) -> None:
        """The plugin starts with another unit of memory: it goes by this one for every pod that it serves from now."""
        self.doubtful |= {
            pod["metadata"]["uid"]
            for pod in self._api.objects["pods"].values()
            if pod["spec"].get("nodeName") == self.name and pod["metadata"]["uid"] not in self.units
        }
        self.factor = factor
        if self.plugin_up and self.is_heard:
            self._write_node({"metadata": {"annotations": self._register()}, "status": self._account()})

    def shares(self, pod: Json) -> list[Share]:
        """What a pod has by its annotations, in MiB."""
        found = shares_of(pod, self.kind.assigned)
        factor = self.units.get(pod["metadata"]["uid"], self.factor)
        return [one._replace(mib=one.mib * factor) for one in found] if self.kind is Kind.VGPU else found

    def reorder(self, cards: Collection[str]) -> None:
        """The plugin names its cards in the order of *cards*."""
        self.cards = {card: self.cards[card] for card in cards}
        if self.plugin_up and self.is_heard:
            self._write_node({"metadata": {"annotations": self._register()}})

    def registered(self) -> tuple[dict[str, str], Json]:
        """What the plugin writes on the node, and what kubelet does."""
        return self._register(), self._account()

    def renew(self, seconds: float, plugin_s: float, cards: Mapping[str, int] | None = None) -> None:
        """The node's object is deleted, and made anew when kubelet starts; *cards*: on another machine of that name."""
        if self.name not in self._api.objects["nodes"]:
            return
        self.kubelet_up = self.plugin_up = False
        self._is_starting = True
        self._api.delete(Target("nodes", "", self.name, ""), {})
        if cards is not None:
            # Whoever turns off a machine ends its pods.
            self.procs.clear()
            for key, pod in list(self._api.objects["pods"].items()):
                if pod["spec"].get("nodeName") == self.name:
                    self._world.delete(key, force=True)
            self.reregister(cards)
        self._world.at(seconds, self._start)
        self._world.at(seconds + plugin_s, self._start_plugin)

    def _start(self) -> None:
        self.kubelet_up = True
        if self.name not in self._api.objects["nodes"]:
            self._create({}, is_up=False)
        self.relist()

    def _start_plugin(self) -> None:
        if self._is_starting and self.is_heard:
            self._is_starting, self.plugin_up = False, True
            self._write_node({"metadata": {"annotations": self._register()}, "status": self._account()})

    def heal(self) -> None:
        """Whatever is broken is mended at once."""
        if self._is_starting:
            self._start()
            self._is_starting = False
        self._open()
        cut = not self.is_heard
        self.plugin_up = self.kubelet_up = True
        self.cut_until_s = min(self.cut_until_s, CLOCK.now_s)
        self._write_node({"status": {"conditions": [self._ready("True")], **self._account()}})
        if self.ill or self.changed_until_s:
            # Some cards stay unhealthy as long as the node is not made anew.
            self.reregister(self.cards, [card for card in self.ill if sum(card.encode()) % 2])
        if cut:
            self.relist()

    # ------------------------------------------------------------------ kubelet

    def hear(self, event: Event, pod: Json) -> None:
        """A change of a pod of this node is on its way to kubelet."""
        at_s = max(self._seen_s, CLOCK.now_s + 0.002 + 0.2 * self._world.draw.random() ** 3)
        self._seen_s = at_s
        watch = self._watch

        def arrive() -> None:
            if watch == self._watch:
                self._see(event.kind == "DELETED", pod)

        self._world.at(at_s - CLOCK.now_s, arrive)

    def end_watch(self) -> None:
        """The API server is another one: what it told is lost on the way."""
        self._watch += 1

    def relist(self) -> None:
        """Kubelet compares what it runs with a full list."""
        there = {
            pod["metadata"]["uid"]: pod
            for pod in self._api.objects["pods"].values()
            if pod["spec"].get("nodeName") == self.name
        }
        for uid, pod in list(self._latest.items()):
            if uid not in there:
                self._see(True, pod)
        for uid, proc in list(self.procs.items()):
            if uid not in there and uid not in self._latest:
                self._end_soon(proc)
        for pod in there.values():
            self._see(False, pod)

    def _see(self, gone: bool, pod: Json) -> None:
        if not self.is_heard:
            return
        uid = pod["metadata"]["uid"]
        if gone:
            self._latest.pop(uid, None)
            self._done.discard(uid)
            proc = self.procs.get(uid)
            if proc is not None:
                self._end_soon(proc)
            return
        self._latest[uid] = pod
        if pod["metadata"].get("deletionTimestamp"):
            self._world.spawn(self._terminate(uid))
        elif pod["status"].get("phase") not in ENDED and uid not in self._done and uid not in self._queue:
            self._queue.append(uid)
            if not self._is_admitting:
                self._is_admitting = True
                self._world.spawn(self._admit_all())

    def _end_soon(self, proc: Proc) -> None:
        """Its object is gone: kubelet's shortest grace period, and some (ran: 2.2 s)."""
        if not proc.ends:
            proc.ends = True
            self._world.at(1.0 + 1.5 * self._world.draw.random(), lambda: self._gone(proc.uid))

    def _gone(self, uid: str) -> None:
        self.procs.pop(uid, None)
        self._latest.pop(uid, None)

    def _terminate(self, uid: str) -> Steps:
        # Kubelet takes one change after the other: it ends a pod once it has admitted it.
        while self._admitted == uid:
            yield 0.05
        proc = self.procs.get(uid)
        if proc is not None and proc.ends:
            return
        if proc is not None:
            proc.ends = True
            yield 0.2 + 3.0 * self._world.draw.random()
        elif uid in self._done or uid in self._queue:
            yield 0.2
        while not self.is_heard:
            yield 1.0
        pod = self._latest.get(uid)
        self._gone(uid)
        if pod is None:
            return
        key = _key(pod)
        self._set_status(key, uid, {"phase": "Failed", "reason": "Deleted"})
        yield 0.02 + 0.1 * self._world.draw.random()
        while not self.is_heard:
            yield 1.0
        there = self._api.objects["pods"].get(key)
        if there is not None and there["metadata"]["uid"] == uid:
            meta = pod["metadata"]
            self._api.delete(Target("pods", meta["namespace"], meta["name"], ""), {"gracePeriodSeconds": 0})

    def _admit_all(self) -> Steps:
        try:
            while self._queue:
                at = self._world.draw.randrange(len(self._queue)) if self._world.draw.random() < 0.2 else 0
                uid = self._queue.pop(at)
                while not self.kubelet_up:
                    yield 0.5
                pod = self._latest.get(uid)
                if uid in self.procs:  # it was here before, and is being ended
                    self._queue.append(uid)
                    yield 0.3
                    continue
                if pod is None or uid in self._done or pod["metadata"].get("deletionTimestamp"):
                    continue
                self._done.add(uid)
                self._admitted = uid
                yield from self._admit(pod)
                self._admitted = ""
                yield 0.002
        finally:
            self._is_admitting, self._admitted = False, ""

    def _admit(self, pod: Json) -> Steps:
        key, uid = _key(pod), pod["metadata"]["uid"]
        proc = Proc(key, uid)
        try:
            for container in pod["spec"]["containers"]:
                asked = int(container.get("resources", {}).get("limits", {}).get(self.kind.resource, 0))
                if not asked:
                    continue
                self._check_account(asked)
                proc.devices += asked
                self.procs[uid] = proc
                meant, shares = yield from self._allocate(asked)
                self._world.counts["operations: containers served"] += 1
                if meant != uid:
                    self._world.dirty.add(self.name)
                    self.swapped.append(f"{self.name}: {key} ({uid}) was served what was meant for {meant}: {shares}")
                proc.shares += shares
        except AllocateError as e:
            self._gone(uid)
            self._world.counts["pods refused by kubelet or plugin"] += 1
            if e.blames and self._is_there(key, uid):
                self._world.dirty.add(self.name)
                self.refused.append((key, f"{self.name}: {key} ({uid}) was refused: {e}"))
            failed = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": str(e)}
            self._world.spawn(self._tell(key, uid, failed))
            return
        if uid in self._latest:
            self.procs.setdefault(uid, proc)
            self._world.spawn(self._run(proc))
        else:
            self.procs.pop(uid, None)

    def _is_there(self, key: str, uid: str) -> bool:
        """Whether an object says that the pod is on this node; one that was removed meanwhile has lost nothing."""
        pod = self._api.objects["pods"].get(key)
        return pod is not None and pod["metadata"]["uid"] == uid and pod["spec"].get("nodeName") == self.name

    def _check_account(self, asked: int) -> None:
        if not self.plugin_up:
            raise AllocateError(
                f"no healthy devices present; cannot allocate unhealthy devices {self.kind.resource}", blames=False
            )
        used = sum(proc.devices for proc in self.procs.values())
        if used + asked > len(self.cards.keys() - self.ill) * self.slots:
            blames = CLOCK.now_s >= self.changed_until_s
            raise AllocateError(f"Allocate failed: requested {asked}, available too few", blames=blames)

    def _run(self, proc: Proc) -> Steps:
        """Pull the image, run, and end some time."""
        draw = self._world.draw
        yield 0.05 + 2.0 * draw.random() ** 2 + self.slow_images_s * draw.random()
        if proc.ends or proc.uid not in self.procs:
            return
        proc.runs = True
        self._world.dirty.add(self.name)
        yield from self._tell(proc.key, proc.uid, {"phase": "Running"})
        yield self._world.lifetime_s(proc.key)
        if proc.ends or self.procs.pop(proc.uid, None) is None:
            return
        yield from self._tell(proc.key, proc.uid, {"phase": draw.choice(ENDED)})

    def _tell(self, key: str, uid: str, status: Json) -> Steps:
        yield 0.005 + 0.1 * self._world.draw.random()
        while not self.is_heard:
            yield 0.5
        self._set_status(key, uid, status)

    def _set_status(self, key: str, uid: str, status: Json) -> None:
        pod = self._api.objects["pods"].get(key)
        if pod is not None and pod["metadata"]["uid"] == uid and pod["status"].get("phase") not in ENDED:
            self._api.write("pods", key, {"status": status})

    # ------------------------------------------------------------------ device plugins

    def _allocate(self, asked: int) -> Generator[float, None, tuple[str, list[Share]]]:
        """(uid of the pod whose assignment was taken, what was given)."""
        meant, shares = yield from (self._vgpu(asked) if self.kind is Kind.VGPU else self._hami(asked))
        return meant, shares

    def _call(self) -> Steps:
        """One request of a plugin takes a while; and it may have died."""
        self._tokens = min(_BURST, self._tokens + (CLOCK.now_s - self._tokens_s) * _PER_S)
        self._tokens_s = CLOCK.now_s
        wait_s = max(1.0 - self._tokens, 0.0) / _PER_S
        if self._world.draw.random() < _OTHER_SHARE:
            wait_s += 1.0 / _PER_S
        self._tokens -= 1.0
        yield wait_s + 0.003 + 0.01 * self._world.draw.random()
        if not self.plugin_up:
            raise AllocateError("rpc error: code = Unavailable desc = error reading from server: EOF", blames=False)

    def _pods(self) -> list[Json]:
        return [pod for _, pod in sorted(self._api.objects["pods"].items())]

    def _annotate(self, pod: Mapping[str, Any], notes: Mapping[str, str | None]) -> None:
        there = self._api.objects["pods"].get(_key(pod))
        if there is None:
            raise AllocateError("pods not found", blames=False)
        self._api.write("pods", _key(pod), {"metadata": {"annotations": dict(notes)}})

    def _vgpu(self, asked: int) -> Steps:
        yield from self._call()
        pod = vgpu.oldest(self._pods(), self.name, asked)
        if pod is None:
            raise AllocateError("cannot get valid pod", blames=True)
        segments = vgpu.decode(annotations_of(pod).get(vgpu.TO_ALLOCATE, ""))
        done = {vgpu.TIME: str(vgpu.DONE_TIME)}
        try:
            _, devices = vgpu.next_request(segments, [one["name"] for one in pod["spec"]["containers"]])
        except vgpu.VgpuRequestError as e:
            self._annotate(pod, {vgpu.BIND_PHASE: "failed", **done})
            raise AllocateError(str(e), blames=True) from e
        if len(devices) != asked:
            self._annotate(pod, {vgpu.BIND_PHASE: "failed", **done})
            raise AllocateError("device number not matched", blames=True)
        self.units[pod["metadata"]["uid"]] = self.factor
        shares = [share_of(one.id, one.mem * self.factor, one.cores) for one in devices]
        self._lay_out(shares)
        yield from self._call()
        self._annotate(pod, {vgpu.TO_ALLOCATE: vgpu.erase(segments)})
        yield from self._call()
        now = self._api.objects["pods"].get(_key(pod))
        if now is not None and "GPU" not in annotations_of(now).get(vgpu.TO_ALLOCATE, ""):
            yield from self._call()
            self._annotate(pod, {vgpu.BIND_PHASE: "success", **done})
        return pod["metadata"]["uid"], shares

    def _lay_out(self, shares: Collection[Share]) -> None:
        """Cut cards anew if they are cut otherwise, which ends whatever is on them (nvidia 2.5)."""
        for share in shares:
            group = share.place.partition("-")[0]
            for proc in self.procs.values():
                if any(one.card == share.card and one.place.partition("-")[0] != group for one in proc.shares):
                    self._world.dirty.add(self.name)
                    self.swapped.append(f"{self.name}: {share} is to be cut out of a card that {proc.key} is on")

    def slice_mib(self, place: str) -> int:
        """What a slice has; 0 if there is none of this name."""
        group, _, at = place.partition("-")
        sizes = [mib for mib, count in self.geometry.get(group, ()) for _ in range(count)]
        return sizes[int(at)] if at.isdigit() and int(at) < len(sizes) else 0

    def _hami(self, asked: int) -> Steps:
        if self.kind is Kind.HAMI:  # GetPreferredAllocation
            yield from self._call()
            yield from self._call()
        yield from self._call()
        node = self._api.objects["nodes"].get(self.name)
        lock = annotations_of(node).get(hami.LOCK) if node is not None else None
        named = self._locked(lock) if lock is not None else None
        yield from self._call()
        pod: Any
        if named is not None:
            pod = self._api.objects["pods"].get("/".join(named))
            if pod is None:
                raise AllocateError(f"pods {named[1]} not found", blames=True)
        else:
            pod = hami.guess([one for one in self._pods() if one["spec"].get("nodeName") == self.name], self.name)
            if pod is None:
                raise AllocateError(f"no binding pod found on node {self.name}", blames=True)
        try:
            position, segments, devices = self._next(pod, asked)
        except hami.HamiRequestError as e:
            yield from self._end(pod, "failed")
            raise AllocateError(f"{e} (of {_key(pod)})", blames=True) from e
        yield from self._call()
        left = hami.erase(segments, position)
        self._annotate(pod, {self.kind.to_allocate: left})
        yield from self._call()
        shares = [Share(one.id, int(one.fields[2]), int(one.fields[3])) for one in devices]
        if self.profiles:
            shares = self._instances(pod, position, shares)
        if self.kind is Kind.ASCEND:
            temps = _temps(pod)
            shares = [one._replace(place=temps.get(one.card, "")) for one in shares]
        # The plugin for Ascend ends with every container (D-1).
        if self.kind is Kind.ASCEND or "NVIDIA" not in left:
            yield from self._end(pod, "success")
        return pod["metadata"]["uid"], shares

    def _instances(self, pod: Json, container: int, shares: list[Share]) -> list[Share]:
        """Make the instances that are reserved for a container, and say so on the pod (hami 1.9, 3.4)."""
        notes = annotations_of(pod)
        there = json.loads(notes.get(RESERVED, "[]"))
        mine = sorted((one for one in there if one["containerIndex"] == container), key=lambda one: one["deviceIndex"])
        try:
            if [one["gpuUUID"] for one in mine] != [one.card for one in shares]:
                raise AllocateError(f"MIG reservations {mine} do not match {shares}", blames=False)
            made = [share._replace(place=_place_of(one)) for share, one in zip(shares, mine, strict=True)]
            for share in made:
                start, size = map(int, share.place.split("+"))
                if not any(start in one.starts and size == one.size for one in self.profiles):
                    raise AllocateError(f"failed to create MIG instance {share}", blames=False)
        except AllocateError as e:
            raise AllocateError(str(e), blames=CLOCK.now_s >= self.changed_until_s) from e
        for one in mine:
            one.update(migUUID="MIG-1", gpuInstanceID=1, computeInstanceID=0)
        self._annotate(pod, {RESERVED: json.dumps(there)})
        return made

    def _locked(self, lock: str) -> tuple[str, str] | None:
        try:
            return hami.locked_pod(lock)
        except hami.HamiRequestError as e:
            raise AllocateError(str(e), blames=True) from e

    def _next(self, pod: Json, asked: int) -> tuple[int, Any, Any]:
        notes = annotations_of(pod)
        if self.kind.to_allocate not in notes:
            raise hami.HamiRequestError(f"annotation {self.kind.to_allocate} not found")
        segments = hami.decode(notes[self.kind.to_allocate])
        position, _, devices = hami.next_request(segments, hami.container_names(pod))
        if len(devices) != asked:
            raise hami.HamiRequestError(f"device number not matched: asked {asked}, assigned {len(devices)}")
        return position, segments, devices

    def _end(self, pod: Json, phase: str) -> Steps:
        yield from self._call()
        self._annotate(pod, {hami.BIND_PHASE: phase})
        yield from self._release(pod)

    def _release(self, pod: Json) -> Steps:
        """Drop the lock by compare-and-swap; before HAMi 36080fe7 a later try does not ask whose it is (hami 3.5)."""
        for attempt in range(5):
            yield from self._call()
            node = self._api.objects["nodes"].get(self.name)
            if node is None:
                return
            lock = annotations_of(node).get(hami.LOCK)
            if lock is None:
                return
            if not hami.releases(lock, pod) and not (self.blind_release and attempt):
                return
            version = node["metadata"]["resourceVersion"]
            yield from self._call()
            try:
                self._api.write("nodes", self.name, {"metadata": {"annotations": {hami.LOCK: None}}}, version=version)
            except RefusedError:
                yield 0.1
                continue
            return


def _key(pod: Mapping[str, Any]) -> str:
    meta = pod["metadata"]
    return f"{meta['namespace']}/{meta['name']}"


def shares_of(pod: Json, key: str) -> list[Share]:
    """What a pod's annotation *key* says that it has; entries are id, type, MiB, cores (nvidia 1.10; hami 1.9)."""
    notes = pod["metadata"].get("annotations") or {}
    reserved = json.loads(notes[RESERVED]) if key == Kind.HAMI.assigned and RESERVED in notes else ()
    places = {(one["containerIndex"], one["deviceIndex"]): _place_of(one) for one in reserved}
    temps = _temps(pod) if key == Kind.ASCEND.assigned else {}
    found = []
    for container, segment in enumerate(notes.get(key, "").split(";")):
        entries = [fields for entry in segment.split(":") if len(fields := entry.split(",")) >= 4]
        for device, fields in enumerate(entries):
            share = share_of(fields[0], int(fields[2]), int(fields[3]))
            place = temps.get(share.card, share.place)
            found.append(share._replace(place=places.get((container, device), place)))
    return found


def _temps(pod: Json) -> dict[str, str]:
    """By chip, the template by which the plugin cuts it: one a pod and chip, the last that is named (ascend D-8)."""
    told = json.loads((pod["metadata"].get("annotations") or {}).get(f"huawei.com/{ASCEND}", "[]"))
    return {one["UUID"]: one.get("temp", "") for one in told}


def _place_of(reservation: Json) -> str:
    place = reservation["placement"]
    return f"{place['start']}+{place['size']}"
