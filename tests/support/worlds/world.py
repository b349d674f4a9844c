"""The controller's scheduler without an outside: builds nodes and pods, answers its actions, and moves its clock."""

from collections.abc import Generator, Mapping, Sequence
from typing import Any, TypeVar

from controller.actions import Action, Announce, Bind, Clear, Fence, ReadPod, Touch
from controller.deciding.lifecycle import Entry
from controller.deciding.scheduler import Scheduler
from controller.metrics import Metrics
from core import audit
from core.catalog import Catalog, standard_catalog
from core.groups import GroupSpec, QueueSpec
from core.ledger import Ledger
from core.model import Container, GroupKind, Node, NodeConstraints, NodeName, Phase, Pod, PodUid
from core.settings import Settings, Tables
from core.waiting import Wait

NUMBER, MEMORY, CORES = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"
START_UNIX_S = 1_800_000_000
_Answer = TypeVar("_Answer")


def node(name: str, *, cards: int = 1, memory: int = 10_000, slots: int = 10, version: str = "1", **fields) -> Node:
    """A node with vGPU cards named ``<name>-0``, ``<name>-1`` and so on."""
    register = "".join(f"{name}-{i},{slots},{memory},NVIDIA-T4,true,hami-core:" for i in range(cards))
    have = {NUMBER: str(cards * slots), MEMORY: str(cards * memory), CORES: str(cards * 100)}
    have |= {"cpu": "64", "memory": "256Gi", "pods": "110"}
    given: dict[str, Any] = {
        "annotations": {"volcano.sh/node-vgpu-register": register},
        "capacity": have,
        "allocatable": have,
    }
    return Node(name=NodeName(name), uid=f"uid-{name}", resource_version=version, **(given | fields))


def pod(name: str, *, memory: int = 1000, number: int = 1, limits: Mapping[str, str] | None = None, **fields) -> Pod:
    """A pending pod that asks for *memory* MiB on each of *number* cards."""
    if limits is None:
        limits = {NUMBER: str(number), MEMORY: str(memory)}
    given: dict[str, Any] = {
        "uid": PodUid(f"uid-{name}"),
        "namespace": "default",
        "name": name,
        "resource_version": "1",
        "scheduler_name": "cardshare",
        "created_s": START_UNIX_S,
        "containers": (Container(name="main", limits=limits, requests=limits),),
    }
    return Pod(**(given | fields))


def on(name: str) -> NodeConstraints:
    """Constraints that only node *name* meets, if it carries the label."""
    return NodeConstraints(selector=(("name", name),))


def finished(steps: Generator[object, None, _Answer]) -> _Answer:
    """What *steps* return in the end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: _Answer = end.value
            return answer


# All that a test made, for the audit in its end.
made: list["World"] = []


class World:
    """A scheduler, its clock, and the API server's side of what it does."""

    def __init__(
        self,
        *nodes: Node,
        catalog: Catalog | None = None,
        strict: bool = True,
        scheduler: type[Scheduler] = Scheduler,
        **settings,
    ) -> None:
        self.now_s = 1000.0
        # By how much the wall clock is behind that of the API server.
        self.behind_s = 0.0
        self.metrics = Metrics()
        self.scheduler: Scheduler = scheduler(
            catalog or standard_catalog(),
            Tables(),
            Settings(**settings),
            metrics=self.metrics,
            clock=lambda: self.now_s,
            wall=lambda: START_UNIX_S + self.now_s - 1000.0 - self.behind_s,
            strict=strict,
        )
        self.pods: dict[PodUid, Pod] = {}
        self.version = 100
        made.append(self)
        for one in nodes:
            self.scheduler.nodes.changed(one)

    @property
    def ledger(self) -> Ledger:
        return self.scheduler.cluster.ledger

    def configures(self, **settings) -> None:
        """Have the scheduler judge everything anew under *settings*."""
        for _ in self.scheduler.configure(self.ledger.tables, Settings(**settings)):
            pass

    def audited(self) -> list[str]:
        """Where the ledger differs from one that is made anew of the pods as they were shown."""
        ledger, queue, found = self.ledger, self.scheduler.cluster.queue, list[str]()
        for name in ledger.states:
            node = ledger.node(name)
            assert node is not None
            pods = [ledger.counted(one.uid) or one for one in self.pods.values() if one.node_name == name]
            fresh = audit.rebuilt(ledger.catalog, ledger.tables, ledger.settings, [node], pods)
            reserved = {uid for uid in ledger.holders(name) if queue.get(uid) is not None} | ledger.nominated
            reserved |= set(self.scheduler.vanished.until_s)
            found += audit.differences(ledger, fresh, name, reserved=reserved, unsettled=())
        return found

    # what the mirror shows

    def shows(self, shown: Pod, **changes) -> Pod:
        """Show *shown* as it is after *changes*, in a new version."""
        self.version += 1
        now = shown._replace(**({"resource_version": str(self.version)} | changes))
        self.pods[now.uid] = now
        self.scheduler.pod_changed(now)
        return now

    def adds(self, *pods: Pod) -> None:
        for one in pods:
            self.shows(one)

    def gone(self, name: str, *, by_force: bool = False) -> None:
        """Show that a pod has gone, after its end if it was started, unless it is removed *by_force*."""
        pod = self.pods.get(PodUid(f"uid-{name}"))
        if pod is not None and pod.started and not (pod.finished or by_force):
            self.shows(pod, phase=Phase.SUCCEEDED)
        self.pods.pop(PodUid(f"uid-{name}"), None)
        self.scheduler.pod_gone(PodUid(f"uid-{name}"))

    def seen(self, name: str) -> Pod:
        return self.pods[PodUid(f"uid-{name}")]

    def groups_are(
        self, *specs: GroupSpec, queues: Sequence[QueueSpec] = (), kind: GroupKind = GroupKind.VOLCANO
    ) -> None:
        """Show the groups of *kind*, which is installed, and for Volcano's the queues."""
        if kind is GroupKind.VOLCANO:
            self.scheduler.cluster.groups.queues_replaced(queues, served=True)
        for _ in self.scheduler.cluster.groups.replaced(kind, specs, served=True):
            pass

    def has_no_kind(self, kind: GroupKind = GroupKind.VOLCANO) -> None:
        """Show that a kind of groups is not installed."""
        for _ in self.scheduler.cluster.groups.replaced(kind, (), served=False):
            pass

    # what the scheduler does

    def plan(self) -> None:
        """Let the scheduler decide all that it can decide now."""
        while self.scheduler.cycle.plan(self.now_s + 1.0):
            pass

    def passes(self, seconds: float) -> None:
        """Let time pass, and whatever is due be done."""
        self.now_s += seconds
        self.plan()

    def actions(self, *kinds: type[Action]) -> list[Any]:
        """Take out the actions of *kinds*; the others stay."""
        found = [action for action in self.scheduler.cluster.actions if isinstance(action, kinds)]
        rest = [action for action in self.scheduler.cluster.actions if not isinstance(action, kinds)]
        self.scheduler.cluster.actions.clear()
        self.scheduler.cluster.actions.extend(rest)
        return found

    def binds(self) -> list[Bind]:
        """Decide, and take out the Bindings that are to be sent."""
        self.plan()
        return self.actions(Bind)

    def announced(self) -> list[Announce]:
        return self.actions(Announce)

    def reads(self) -> list[ReadPod]:
        return self.actions(ReadPod)

    def reads_back(self, found: Pod | None) -> None:
        """Answer the one read that is to be made with *found*."""
        (read,) = self.reads()
        if found is not None:
            self.pods[found.uid] = found
        self.scheduler.pod_read(read.pod.uid, read.attempt, found)

    def fences(self) -> list[Fence]:
        return self.actions(Fence)

    def writes_fence(self) -> Pod:
        """The one condition that is to be written is, and the scheduler told of the pod as it is then."""
        (fence,) = self.fences()
        self.version += 1
        before = self.pods[fence.pod.uid]
        assert before.resource_version == fence.version
        now = before._replace(resource_version=str(self.version), scheduled_message=fence.wait.message)
        self.pods[now.uid] = now
        self.scheduler.fenced(fence.pod.uid, fence.attempt, now)
        return now

    def moves(self, *names: str) -> list[str]:
        """Write the conditions by which waiting pods are moved, or those of *names* alone; of which pods."""
        moved = []
        for move in self.actions(Touch):
            before = self.pods[move.pod.uid]
            if (names and move.pod.name not in names) or before.resource_version != move.version:
                self.scheduler.not_moved(move.pod.uid)
                continue
            self.version += 1
            text = move.wait.message if move.wait is not None else before.scheduled_message
            now = before._replace(resource_version=str(self.version), scheduled_message=text)
            self.pods[now.uid] = now
            self.scheduler.moved(move.pod.uid, move.version, now)
            moved.append(move.pod.name)
        return moved

    def loses(self, bind: Bind, error: str = "no answer") -> None:
        """Nothing certain is heard of *bind*."""
        self.scheduler.outcomes.lost(bind.pod.uid, bind.attempt, error)

    def clears(self) -> list[Clear]:
        return self.actions(Clear)

    # what the cluster does

    def accepts(self, bind: Bind) -> Pod:
        """The Binding is written; the scheduler is told, the mirror shows it."""
        self.scheduler.outcomes.bound(bind.pod.uid, bind.attempt)
        return self.shows_bound(bind)

    def shows_bound(self, bind: Bind) -> Pod:
        before = self.pods[bind.pod.uid]
        return self.shows(before, node_name=bind.node, annotations={**before.annotations, **bind.annotations})

    def serves(self, name: str) -> Pod:
        """The device plugin serves a vGPU pod, and it starts."""
        before = self.seen(name)
        done = {"volcano.sh/devices-to-allocate": "", "volcano.sh/bind-phase": "success"}
        return self.shows(
            before, annotations={**before.annotations, **done}, started=True, ready=True, phase=Phase.RUNNING
        )

    def placed(self) -> dict[str, str]:
        """Run until nothing moves: pod name -> node of every pod that is bound."""
        while binds := self.binds():
            for bind in binds:
                self.accepts(bind)
                self.serves(bind.pod.name)
        return {one.name: one.node_name for one in self.pods.values() if one.node_name}

    def holders(self, name: str) -> set[str]:
        """The pods that hold something on a node."""
        return set(self.ledger.holders(NodeName(name)))

    def entry(self, name: str) -> Entry:
        """The queue's entry of a pod that is in it."""
        found = self.scheduler.cluster.queue.get(PodUid(f"uid-{name}"))
        assert found is not None
        return found

    def wait(self, name: str) -> Wait:
        """Why a pod that is in the queue waits."""
        found = self.entry(name).wait
        assert found is not None
        return found

    def stage(self, name: str) -> str:
        entry = self.scheduler.cluster.queue.get(PodUid(f"uid-{name}"))
        return entry.stage.value if entry is not None else "none"
