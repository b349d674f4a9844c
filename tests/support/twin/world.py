"""A cluster in virtual time: an API server, nodes, users, and two whole controllers, with whatever befalls them.

All follows from the seed. One thing happens at a time: a message arrives, a node or a user takes a step, or a process
runs one callback of its event loop; it may be killed between any two.
"""

import asyncio
import heapq
import itertools
import random
import sys
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from controller.config import Config, parse
from controller.run import Controller
from core.errors import ConfigError
from kube.lease import LeaseLostError
from tests.support.twin import clock
from tests.support.twin.api import Api, Event, Json, Target
from tests.support.twin.clock import CLOCK
from tests.support.twin.judge import GROUP, NATIVE, Judge, told
from tests.support.twin.kueue import Kueue
from tests.support.twin.limits import KEY, Admissions, Limits
from tests.support.twin.loops import new_loop
from tests.support.twin.machines import ENDED, Kind, Machine
from tests.support.twin.network import Line, Network
from tests.support.twin.sides import Side

_ENVIRON = {"KUBERNETES_SERVICE_HOST": "twin.invalid"}
# Kubelet gives a process so long to end after SIGTERM (deploy/base/controller.yaml).
_GRACE_S = 30.0
# Kubelet starts a process that ended at once again after this.
_AGAIN_S = 5.0
# Backs off and closed nodes open again within this.
_SETTLE_TURNS = 70
TOLD_S = 1.5
GROUPS = "podgroups.scheduling.volcano.sh"
NATIVES = "podgroups.scheduling.k8s.io"


class _Simulated(Controller):
    """The controller itself, with nothing but its connection replaced, and without what measures the machine."""

    def __init__(self, config: Config, network: Network) -> None:
        super().__init__(config, _ENVIRON)
        self._network = network

    async def _connect(self, stack: Any) -> Any:
        transport = await stack.enter_async_context(self._network.transport())
        self._process.connection = ""
        return transport

    async def _measure_lag(self) -> None:
        await asyncio.Event().wait()

    def _garbage(self) -> Any:
        return _Idle()


class _Idle:
    async def run(self) -> None:
        await asyncio.Event().wait()


class Seat:
    """A replica: one process after another."""

    def __init__(self, world: "World", number: int) -> None:
        self.number = number
        self.line = Line()
        self.paused_until_s = 0.0
        self.kill_after: int | None = None
        self.loop: Any = None
        self.network: Any = None
        self.controller: Any = None
        self._world = world
        self._stop: Any = None
        self._main: Any = None

    @property
    def alive(self) -> bool:
        return self.loop is not None

    @property
    def leads(self) -> bool:
        """What the process itself thinks; only to aim faults at."""
        return self.alive and bool(self.controller._process.leads)

    def start(self) -> None:
        world = self._world
        skew_s = world.draw.choice(world.skews)
        self.loop = loop = new_loop(skew_s)
        self.network = Network(world.api, loop, self.line, world.draw, world.at, world.counts)
        more = ("--kueue",) if world.kueue is not None else ()
        flags = (
            "--settings",
            str(world.settings),
            "--identity",
            f"c{self.number}",
            "--trust-namespaces",
            "kube-system",
        )
        config = parse((*flags, *more), _ENVIRON)
        try:
            self.controller = _Simulated(config, self.network)
        except ConfigError:
            world.counts["ends: settings that cannot be read"] += 1
            self.loop = None
            world.at(_AGAIN_S, lambda: None if self.alive else self.start())
            return
        self._stop = asyncio.Event()
        self._main = loop.create_task(self.controller._until(self._stop), name="main")
        self.kill_after = None
        self.paused_until_s = 0.0

    def kill(self, again_s: float | None = None) -> None:
        """SIGKILL; and start again."""
        if not self.alive:
            return
        self._end(again_s)

    def terminate(self) -> None:
        """SIGTERM."""
        if self.alive and not self._stop.is_set():
            main = self._main
            self.loop.call_soon(self._stop.set)
            self._world.at(_GRACE_S, lambda: self.kill() if self._main is main else None)

    def _end(self, again_s: float | None) -> None:
        self.network.kill()
        # Kept, so that nothing of it is finalized while another runs.
        self._world.graveyard.append((self.loop, self._main, self.controller))
        self.loop = self._main = self.controller = None
        wait_s = self._world.draw.uniform(0.5, 12.0) if again_s is None else again_s
        self._world.at(wait_s, lambda: None if self.alive else self.start())

    def next_s(self) -> float:
        if self.loop is None:
            return float("inf")
        return max(float(self.loop.next_s()), self.paused_until_s)

    def run(self) -> None:
        """Run what is due, to the end or to its own."""
        while self.loop is not None and CLOCK.now_s >= self.paused_until_s and self.loop.run_one():
            if self.kill_after is not None:
                self.kill_after -= 1
                if self.kill_after <= 0:
                    self.kill()
                    return
            if self._main is not None and self._main.done():
                self._ended()
                return

    def _ended(self) -> None:
        main, loop = self._main, self.loop
        error = None if main.cancelled() else main.exception()
        wrong = [one for one in _flat(error) if not isinstance(one, LeaseLostError | asyncio.CancelledError)]
        self._world.counts["ends: lease lost" if error is not None and not wrong else "ends: clean"] += 1
        for one in wrong:
            self._world.find("ended", f"controller {self.number} ended with {one!r}")
        for text in loop.troubles:
            self._world.find("ended", f"controller {self.number}: {text}")
        self._end(None)


def _flat(error: BaseException | None) -> list[BaseException]:
    if error is None:
        return []
    if isinstance(error, BaseExceptionGroup):
        return [found for one in error.exceptions for found in _flat(one)]
    return [error]


class World:
    """One cluster and its life.

    counts: operations, faults and ends, by kind. finds: what must not be, each with its time; machines: by name.
    """

    def __init__(self, seed: str, settings: Path) -> None:
        clock.begin()
        random.seed(seed)
        uuid.uuid4 = lambda: uuid.UUID(int=random.getrandbits(128), version=4)
        sys.unraisablehook = lambda _: None  # what killed processes leave behind
        warnings.filterwarnings("ignore", "coroutine .* was never awaited")
        self.draw = random.Random(seed)
        # By name, how many members a group wants at least, and how many were created.
        self.groups: dict[str, int] = {}
        self.members: Counter[str] = Counter()
        self.settings = settings
        self.counts: Counter[str] = Counter()
        self.finds: list[tuple[str, str]] = []
        self.graveyard: list[Any] = []
        self.machines: dict[str, Machine] = {}
        self.dirty: set[str] = set()
        self.trace: Callable[[str], None] | None = None
        self.api = Api(self.now_text)
        self.api.listeners.append(self._changed)
        self.judge = Judge(self)
        # From which the clock of a process is drawn: by how much it is ahead.
        self.skews: tuple[float, ...] = (0.0, 0.0, -30.0, 45.0)
        self.kueue: Kueue | None = None
        # What else pods ask for and nodes have; each says what it must not come to.
        self.sides: list[Side] = []
        self.limits = Limits(self)
        self.admissions = Admissions(self, self.judge, self.limits)
        self.api.on_workload = self.admissions.meddled
        self.seats = [Seat(self, 0), Seat(self, 1)]
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._names = itertools.count()
        self._holder = ""
        self._locks: dict[str, str] = {}

    # ------------------------------------------------------------------ time

    @staticmethod
    def now_text() -> str:
        """Now, as the API server writes it."""
        return datetime.fromtimestamp(clock.wall_s(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def at(self, delay_s: float, what: Callable[[], None]) -> None:
        """Have *what* done in *delay_s*."""
        heapq.heappush(self._heap, (CLOCK.now_s + delay_s, next(self._numbers), what))

    def spawn(self, steps: Generator[float, None, Any]) -> None:
        """Have *steps* taken; each says after how many seconds the next is."""

        def go_on() -> None:
            try:
                delay_s = next(steps)
            except StopIteration:
                return
            self.counts["operations: steps"] += 1
            self.at(delay_s, go_on)

        go_on()

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Let *seconds* pass; True at once when *until* is so."""
        end_s = CLOCK.now_s + seconds
        while True:
            next_s = self._heap[0][0] if self._heap else float("inf")
            seat = min(self.seats, key=Seat.next_s)
            seat_s = seat.next_s()
            at_s = min(next_s, seat_s)
            if at_s > end_s:
                CLOCK.now_s = end_s
                return until() if until is not None else False
            CLOCK.now_s = max(CLOCK.now_s, at_s)
            if seat_s <= next_s:
                seat.run()
            else:
                heapq.heappop(self._heap)[2]()
                if self.dirty:
                    self.judge.look()
                if until is not None and until():
                    return True

    @property
    def operations(self) -> int:
        """Requests that were executed, and steps of nodes, users and faults."""
        return self.counts["requests"] + self.counts["operations: steps"]

    def find(self, kind: str, text: str) -> None:
        """Something is as it must not be; told once a kind and text."""
        if self.trace is not None:
            self.trace(f"FOUND {kind}: {text}")
        if (kind, text) not in {(one, told.partition(" s: ")[2]) for one, told in self.finds}:
            self.finds.append((kind, f"{CLOCK.now_s:.3f} s: {text}"))

    def _changed(self, resource: str, event: Event, obj: Json) -> None:
        if self.trace is not None and resource == "pods":
            self.trace(_told(event, obj))
        if self.trace is not None and resource == "nodes":
            self._trace_lock(event.key, obj)
        if resource == "leases" and obj["spec"].get("holderIdentity") != self._holder:
            self._holder = obj["spec"].get("holderIdentity")
            self.counts["changes of the leader"] += 1
            if self.trace is not None:
                self.trace(f"lease {event.key}: held by {self._holder!r}")
        for seat in self.seats:
            if seat.network is not None and seat.network.alive:
                seat.network.tell(resource, event)
        self.limits.heed(resource, event, obj)
        self.admissions.heed(resource, event, obj)
        if resource != "pods":
            return
        node = obj["spec"].get("nodeName")
        if node in self.machines:
            machine = self.machines[node]
            if event.kind == "DELETED":
                self._excuse(machine, obj)
            machine.hear(event, obj)
            self.dirty.add(node)

    def _trace_lock(self, node: str, obj: Json) -> None:
        lock = obj["metadata"]["annotations"].get("hami.io/mutex.lock", "")
        if self.trace is not None and self._locks.get(node, "") != lock:
            self._locks[node] = lock
            self.trace(f"{node}: lock {lock!r}")

    @staticmethod
    def _excuse(machine: Machine, pod: Json) -> None:
        """Nobody can know that a kubelet does not hear of a removal, as long as its node is Ready."""
        proc = machine.procs.get(pod["metadata"]["uid"])
        if proc is not None and not machine.is_heard and machine.is_ready:
            proc.is_excused = True

    # ------------------------------------------------------------------ what there is

    def set_up(self, text: str) -> None:
        """Edit the settings of both controllers."""
        self.settings.write_text(text, encoding="utf-8")

    def add_node(self, name: str, kind: Kind, cards: dict[str, int], **more: Any) -> Machine:
        machine = self.machines[name] = Machine(name, kind, cards, self.api, self, **more)
        machine.register()
        return machine

    def lifetime_s(self, key: str) -> float:
        """For how long a pod's processes run."""
        del key
        return self.draw.expovariate(1 / 60.0)

    def add_pod(
        self, kind: Kind, asks: list[tuple[int, int, int]], *, name: str = "", priority: int = 0, **more: Any
    ) -> str:
        """Create a pod of ours; *asks*: (cards, MiB each, cores each) of every container. Its key."""
        name = name or f"p{next(self._names)}"
        spec = spec_of(kind, asks, priority=priority)
        if more.get("is_gated"):
            spec["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
        annotations = dict(more.get("annotations", {}))
        if group := more.get("group", ""):
            annotations[GROUP] = group
            self.members[group] += 1
        self.create_pod(name, spec, labels=more.get("labels", {}), annotations=annotations)
        return f"default/{name}"

    def create_pod(self, name: str, spec: Json, **meta: Any) -> Json:
        """Create a pod as it is written; the object."""
        body = {"metadata": {"labels": {}, "annotations": {}, **meta, "name": name}, "spec": spec}
        for side in self.sides:
            side.dress(body)
        return self.api.create("pods", {**body, "status": {"phase": "Pending"}}, "default")

    def add_like(self, spec: Json, labels: Json, group: str) -> None:
        """Create another pod of *group* with the same *spec*, as whoever made one that was evicted does."""
        self.members[group] += 1
        body = {"metadata": {"labels": labels, "annotations": {GROUP: group}, "name": f"p{next(self._names)}"}}
        self.api.create("pods", {**body, "spec": spec, "status": {"phase": "Pending"}}, "default")

    def limit_memory(self, mib: int | None) -> None:
        """Limit the memory of Volcano's cards that the namespace's pods hold; None: no more."""
        name = "default/team"
        if mib is None:
            if name in self.api.objects["resourcequotas"]:
                self.api.delete(Target("resourcequotas", "default", "team", ""), {})
        elif name in self.api.objects["resourcequotas"]:
            self.api.write("resourcequotas", name, {"spec": {"hard": {KEY: str(mib)}}})
        else:
            self.api.create(
                "resourcequotas", {"metadata": {"name": "team"}, "spec": {"hard": {KEY: str(mib)}}}, "default"
            )

    def add_group(self, members: int, queue: str = "default") -> str:
        """Create a PodGroup of Volcano that wants so many *members* at least; its name."""
        name = f"g{next(self._names)}"
        self.groups[name] = members
        queues = self.api.objects["queues"]
        if "default" not in queues:
            state = {"spec": {"weight": 1}, "status": {"state": "Open"}}
            self.api.create("queues", {"metadata": {"name": "default"}, **state})
        spec = {"minMember": members, "queue": queue}
        self.api.create(GROUPS, {"metadata": {"name": name}, "spec": spec, "status": {}}, "default")
        return name

    def wanted(self, group: str) -> int | None:
        """How many members *group* wants at least; None if etcd was restored to before its creation."""
        if group.startswith(NATIVE):
            found = self.api.objects[NATIVES].get(f"default/{group.removeprefix(NATIVE)}")
            return found["spec"]["schedulingPolicy"]["gang"]["minCount"] if found is not None else None
        found = self.api.objects[GROUPS].get(f"default/{group}")
        return found["spec"]["minMember"] if found is not None else None

    def wanted_of_tasks(self, group: str) -> dict[str, int]:
        """How many members of each task a group wants at least: none if it wants more of them than of all (G11)."""
        found = self.api.objects[GROUPS].get(f"default/{group}", {"spec": {}})["spec"]
        tasks = found.get("minTaskMember") or {}
        return tasks if sum(tasks.values()) <= found.get("minMember", 0) else {}

    def ungate(self, key: str) -> None:
        """Somebody, as Kueue does, lets a pod go."""
        if self.pod(key) is not None:
            self.api.write("pods", key, {"spec": {"schedulingGates": None}})

    def pod(self, key: str) -> Json | None:
        return self.api.objects["pods"].get(key)

    def node_of(self, key: str) -> str:
        pod = self.pod(key)
        return pod["spec"].get("nodeName", "") if pod is not None else ""

    def delete(self, key: str, *, force: bool = False) -> None:
        """A user deletes a pod."""
        if self.pod(key) is not None:
            namespace, _, name = key.partition("/")
            self.api.delete(Target("pods", namespace, name, ""), {"gracePeriodSeconds": 0} if force else {})

    def end_pod(self, key: str) -> None:
        """The processes of a pod end by themselves."""
        pod = self.api.objects["pods"][key]
        machine = self.machines[self.node_of(key)]
        machine.procs.pop(pod["metadata"]["uid"], None)
        self.api.write("pods", key, {"status": {"phase": "Succeeded"}})

    def restore(self, backup: Any, *, bump: bool) -> None:
        """The API servers are stopped, etcd is restored, and they are started again: what was on the way is lost."""
        self.counts["fault: etcd restored"] += 1
        self.api.restore(backup, bump=bump)
        for seat in self.seats:
            if seat.network is not None:
                seat.network.reset()
        for machine in self.machines.values():
            for uid, proc in machine.procs.items():
                pod = self.api.objects["pods"].get(proc.key)
                if pod is None or pod["metadata"]["uid"] != uid or pod["spec"].get("nodeName") != machine.name:
                    proc.is_excused = True  # no object tells of it
        self.limits.resync()
        self.admissions.resync()
        self._tidy()
        for machine in self.machines.values():
            machine.end_watch()
            machine.relist()
        self.dirty |= self.machines.keys()

    def _tidy(self) -> None:
        """The operator ends what the backup has halfway, or its kubelet not any more: nobody could make sense of it."""
        for key, pod in list(self.api.objects["pods"].items()):
            machine = self.machines.get(pod["spec"].get("nodeName", ""))
            if machine is not None and pod["status"].get("phase") not in ENDED:
                if pod["metadata"]["uid"] not in machine.procs:
                    self.delete(key, force=True)
                elif pod["metadata"]["annotations"].get(machine.kind.phase) != "success":
                    self.delete(key)

    @property
    def leader(self) -> Seat | None:
        return next((seat for seat in self.seats if seat.leads), None)

    def settle(self) -> None:
        """No more faults; find whoever is forgotten, and whether one who fits nowhere is told so at once."""
        self.calm()
        self.run(30.0)
        missing: list[str] = []
        for _ in range(_SETTLE_TURNS):
            missing = self.judge.forgotten() + (self.admissions.forgotten() if self.kueue is not None else [])
            missing += [text for side in self.sides for text in side.forgotten()]
            if not missing or self.finds:
                break
            self.run(10.0)
        for text in missing:
            self.find("forgotten", text)
        for text in self.judge.lonely():
            self.find("lonely", text)
        if not self.finds and self.machines:
            probe = self.add_pod(next(iter(self.machines.values())).kind, [(1, 10**6, 0)])
            self.run(TOLD_S)
            if not told(self.api.objects["pods"][probe]):
                self.find("untold", f"{probe} fits nowhere, and has no condition after {TOLD_S} s")
            self.delete(probe)

    def calm(self) -> None:
        """No more faults."""
        if self.kueue is not None:
            self.kueue.is_calm = True
        for machine in self.machines.values():
            machine.heal()
        for seat in self.seats:
            seat.line.calm()
            seat.paused_until_s = min(seat.paused_until_s, CLOCK.now_s)
            seat.kill_after = None


def spec_of(kind: Kind, asks: list[tuple[int, int, int]], *, priority: int = 0) -> Json:
    """The spec of a pod of ours; *asks*: (cards, MiB each, cores each) of every container."""
    return {
        "schedulerName": "cardshare",
        "priority": priority,
        "containers": [
            {
                "name": f"c{at}",
                "image": "i",
                "resources": {"limits": _limits(kind, *one), "requests": _limits(kind, *one)},
            }
            for at, one in enumerate(asks)
        ],
    }


def _limits(kind: Kind, cards: int, mib: int, cores: int) -> dict[str, str]:
    if kind is Kind.VGPU:
        found = {"volcano.sh/vgpu-number": cards, "volcano.sh/vgpu-memory": mib, "volcano.sh/vgpu-cores": cores}
    elif kind is Kind.HAMI:
        found = {"nvidia.com/gpu": cards, "nvidia.com/gpumem": mib, "nvidia.com/gpucores": cores}
    else:
        found = {kind.resource: cards, f"{kind.resource}-memory": mib}
    return {key: str(value) for key, value in found.items() if value}


def _told(event: Event, obj: Json) -> str:
    status = obj["status"]
    phase = f"{status.get('phase')} {status.get('reason', '')}"
    why: Json = next((one for one in status.get("conditions", ()) if one["type"] == "PodScheduled"), {})
    deleting = " deleting" if obj["metadata"].get("deletionTimestamp") else ""
    return (
        f"{event.kind} {event.key} v{event.version} on {obj['spec'].get('nodeName')!r} {phase}{deleting} "
        f"{obj['metadata'].get('annotations', {})} {why.get('reason', '')} {why.get('message', '')[:160]}"
    )
