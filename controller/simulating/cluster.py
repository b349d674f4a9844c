"""A whole cluster in memory that can be changed and decided: the controller's own scheduler, with played writes.

How it is used::

    cluster = await read(source, tables, settings, wall_s=now)  # controller.simulating.reading; or Cluster(...)
    cluster.settle()                    # everything that the controller would do now is done
    cluster.add_pods(pods)              # then change it,
    cluster.drain(NodeName("gpu-3"))
    cluster.settle()                    # and see what becomes of that
    cluster.pods[uid].node_name         # where a pod is
    cluster.scheduler.cluster.ledger.fork()         # the ledger, for searches of your own

Time is virtual and passes only in `settle`. API server, kubelets and device plugins are played: each Binding succeeds,
each bound pod starts at once, each eviction within its disruption budget succeeds, and the controllers of Jobs,
Deployments and others replace evicted pods at once. A pod that waits for a volume keeps its place.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from controller.actions import (
    Action,
    Bind,
    Clear,
    Fence,
    Lock,
    Preempt,
    ReadOwner,
    ReadPod,
    Touch,
)
from controller.deciding.scheduler import Scheduler
from controller.metrics import Metrics
from core.admission.rulebook import Rulebook, rulebook
from core.catalog import standard_catalog
from core.constraints.topology.peers import meets
from core.groups import GroupSpec
from core.model import Node, NodeName, Phase, Pod, PodUid
from core.moving.who import replacement_of
from core.placing.crowd import is_counted
from core.port.handoff import LockStep, LockWait
from core.settings import Settings, Tables
from core.wire.policies import DisruptionBudget

# The clock at the beginning; monotonic clocks do not begin at 0.
_BEGIN_S: Final = 1000.0
# The simulation ends if nothing happened for this long.
_QUIET_S: Final = 10.0
# A limit for what never ends, such as pods that are evicted for each other. Heartbeats are not played, and are stale
# after 120 s (controller.handing_over.registers).
_TIME_MAX_S: Final = 100.0
# Waiting before an eviction does not change who is evicted.
_PREEMPTION_DELAY_S: Final = 1.0
_TICK_S: Final = 0.001
# Above every version of an API server.
_FIRST_VERSION: Final = 1 << 62
_UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
# Pods of these owners belong to their node, and are not replaced elsewhere.
_OF_NODE: Final = ("DaemonSet/", "Node/")


class RememberingScheduler(Scheduler):
    """A scheduler that remembers all pods, as last seen.

    Attributes:
        pods: by uid.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """See `Scheduler`."""
        self.pods: Final[dict[PodUid, Pod]] = {}
        super().__init__(*args, **kwargs)

    def pod_changed(self, pod: Pod) -> None:
        """See `Scheduler.pod_changed`."""
        self.pods[pod.uid] = pod
        super().pod_changed(pod)

    def pod_gone(self, uid: PodUid) -> None:
        """See `Scheduler.pod_gone`."""
        self.pods.pop(uid, None)
        super().pod_gone(uid)


class SimulatedCluster:
    """A cluster in memory; see the module.

    Attributes:
        metrics: what the controller counts.
        scheduler: the controller's state: ledger, groups, queues and waiting pods.
        replaced: the pod that an evicted or drained pod was replaced by, by uid.
        ended: pods that were evicted or drained and that nothing replaces, as last seen.
        preempted: for evicted pods, the uid of the pod that they left for.
    """

    def __init__(self, tables: Tables, settings: Settings, *, wall_s: float) -> None:
        """Begin without nodes and pods; *wall_s*: Unix seconds."""
        self._now_s = _BEGIN_S
        self.metrics: Final = Metrics()
        self.scheduler: Final = RememberingScheduler(
            standard_catalog(),
            tables,
            self._simulated(settings),
            metrics=self.metrics,
            clock=lambda: self._now_s,
            wall=lambda: wall_s + self._now_s - _BEGIN_S,
            strict=False,
        )
        self.replaced: Final[dict[PodUid, PodUid]] = {}
        self.ended: Final[dict[PodUid, Pod]] = {}
        self.preempted: Final[dict[PodUid, PodUid]] = {}
        specs = self.scheduler.cluster.ledger.catalog.specs
        self._reports: Final = [one.report for one in specs if one.report is not None]
        self._wall_s: Final = wall_s
        self._version = _FIRST_VERSION
        self._numbers = 0
        self._book: Rulebook | None = None
        # How many members are placed together, by namespace and kind/name of the owner that added them.
        self._minimums: Final[dict[tuple[str, str], int]] = {}
        self._plays: Final[Mapping[type[Action], Callable[[Any], None]]] = {
            Bind: self._bind,
            Lock: self._lock,
            Clear: self._clear,
            Fence: self._fence,
            Touch: self._move,
            ReadPod: self._read_pod,
            ReadOwner: self._read_owner,
            Preempt: self._preempt,
        }

    @property
    def pods(self) -> Mapping[PodUid, Pod]:
        """All pods by uid."""
        return self.scheduler.pods

    @property
    def now_s(self) -> int:
        """The time in the cluster, Unix seconds."""
        return int(self._wall_s + self._now_s - _BEGIN_S)

    @property
    def book(self) -> Rulebook:
        """The rules of admission."""
        ledger = self.scheduler.cluster.ledger
        if self._book is None or self._book.settings is not ledger.settings:
            self._book = rulebook(ledger.settings, ledger.tables, ledger.catalog)
        return self._book

    def node(self, name: NodeName) -> Node | None:
        """Return the node *name*."""
        return self.scheduler.cluster.ledger.node(name)

    @staticmethod
    def _simulated(settings: Settings) -> Settings:
        return replace(settings, preemption_delay_s=min(settings.preemption_delay_s, _PREEMPTION_DELAY_S))

    # ------------------------------------------------------------------ changes

    def configure(self, settings: Settings) -> Iterator[None]:
        """Decide under other *settings*, after the last step; bound pods stay."""
        return self.scheduler.configure(self.scheduler.cluster.ledger.tables, self._simulated(settings))

    def begin(self) -> None:
        """Complete what was in progress when the cluster was read.

        Bound pods start, pods that are being deleted are gone, and device plugins release the locks of nodes.
        """
        for pod in list(self.pods.values()):
            if pod.deleting:
                self._end(pod)
            elif pod.node_name and not pod.finished and not pod.started:
                self._start(pod)
        for name in list(self.scheduler.cluster.ledger.states):
            self.unlock(name)

    def promise(self, uid: PodUid, node: NodeName, annotations: Mapping[str, str]) -> None:
        """Bind a pod where it has its place; one that is gone or bound stays as it is."""
        pod = self.pods.get(uid)
        if pod is not None and not (pod.node_name or pod.finished or pod.deleting) and self.node(node) is not None:
            self._show(pod._replace(node_name=node, annotations={**pod.annotations, **annotations}))

    def add_pods(self, pods: Iterable[Pod]) -> None:
        """Add pending pods, or change pods of the same uid."""
        for pod in pods:
            self._show(pod)

    def add_group(self, group: GroupSpec) -> None:
        """Add a PodGroup; its kind counts as installed."""
        self.scheduler.cluster.groups.served[group.key.kind] = True
        self.scheduler.cluster.groups.changed(replace(group, resource_version=self._next_version()))

    def set_node(self, node: Node) -> None:
        """Add *node*, or replace the node of that name; its pods stay."""
        self.scheduler.nodes.changed(replace(node, resource_version=self._next_version()))

    def cordon(self, name: NodeName) -> None:
        """Let no new pods go to node *name*."""
        self.set_node(replace(self._existing(name), unschedulable=True))

    def uncordon(self, name: NodeName) -> None:
        """Let new pods go to node *name* again."""
        node = self._existing(name)
        taints = tuple(one for one in node.taints if one.key != _UNSCHEDULABLE)
        self.set_node(replace(node, unschedulable=False, taints=taints))

    def drain(self, name: NodeName) -> None:
        """Cordon node *name* and evict its pods, except those of DaemonSets and of the node itself."""
        self.cordon(name)
        for pod in self.on(name):
            if not pod.owner.startswith(_OF_NODE):
                self.evict(pod.uid)

    def remove_node(self, name: NodeName) -> None:
        """Remove node *name* and all its pods; those with a controller are replaced."""
        self._existing(name)
        pods = self.on(name)
        self.scheduler.nodes.gone(name)
        for pod in pods:
            self.evict(pod.uid)

    def on(self, name: NodeName) -> list[Pod]:
        """Return the pods on node *name* that have not ended."""
        return [pod for pod in self.pods.values() if pod.node_name == name and not pod.finished]

    def evict(self, uid: PodUid) -> None:
        """End a pod; its controller replaces it, if it has one."""
        pod = self.pods[uid]
        self._end(pod)
        if not pod.owner or pod.owner.startswith(_OF_NODE):
            self.ended[uid] = pod
            return
        new = self._anew(pod)
        self.replaced[uid] = new.uid
        self._show(new)

    def place_anew(self) -> None:
        """Take all pods of this scheduler from their nodes, and let them wait again, as old as they are."""
        names = self.scheduler.cluster.settings.scheduler_names
        pods = [pod for pod in self.pods.values() if pod.node_name and pod.scheduler_name in names and not pod.finished]
        for pod in pods:
            self._end(pod)
        for pod in pods:
            new = self._anew(pod)._replace(created_s=pod.created_s)
            self.replaced[pod.uid] = new.uid
            self._show(new)

    def _anew(self, pod: Pod) -> Pod:
        """Return *pod* as its controller creates it again."""
        self._numbers += 1
        uid = PodUid(f"{pod.uid}+{self._numbers}")
        return replacement_of(pod, self.book)._replace(uid=uid, created_s=self.now_s)

    def _existing(self, name: NodeName) -> Node:
        node = self.node(name)
        if node is None:
            raise LookupError(name)
        return node

    # ------------------------------------------------------------------ deciding

    def settle(self) -> None:
        """Decide, and play what follows, until nothing happens any more."""
        for _ in self.settling():
            pass

    def settling(self) -> Iterator[None]:
        """Settle in steps of one decision each; between two of them, other work may run."""
        cycle, end_s = self.scheduler.cycle, self._now_s + _TIME_MAX_S
        until_s = self._now_s + _QUIET_S
        while True:
            # Deciding is faster than any answer, so all pods are decided before one of them is bound.
            while cycle.plan(self._now_s):
                yield
            if self._play():
                until_s = self._now_s + _QUIET_S
            elif (due_s := cycle.next_due_s()) > min(until_s, end_s):
                return
            else:
                self._now_s = max(due_s, self._now_s + _TICK_S)
            yield

    def _play(self) -> bool:
        """Play the pending writes; return whether one of them was more than an event."""
        actions, has_played = self.scheduler.cluster.actions, False
        while actions:
            action = actions.popleft()
            play = self._plays.get(type(action))
            if play is not None:
                play(action)
                has_played = True
        return has_played

    def _bind(self, action: Bind) -> None:
        pod = self.pods.get(action.pod.uid)
        if pod is None:
            self.scheduler.outcomes.refused(action.pod.uid, action.attempt)
            return
        self.scheduler.outcomes.bound(pod.uid, action.attempt)
        bound = self._show(pod._replace(node_name=action.node, annotations={**pod.annotations, **action.annotations}))
        self._start(bound)
        self.unlock(action.node)

    def _lock(self, action: Lock) -> None:
        locks, node = self.scheduler.locks, self.node(action.node)
        if node is None:
            locks.not_locked(action, "its node does not exist")
            return
        step = locks.step(action, node, None)
        match step:
            case LockWait():
                locks.not_locked(action, step.reason)
                return
            case LockStep():
                locks.written(action, step)
                self._annotate(node, step.key, step.value)
        locks.locked(action)

    def unlock(self, name: NodeName) -> None:
        """Device plugins release their locks of node *name*."""
        node, state = self.node(name), self.scheduler.cluster.ledger.states.get(name)
        if node is None or state is None:
            return
        for lock in self.scheduler.binder.locks.among(state.offers).values():
            if lock.lock_key in node.annotations:
                node = self._annotate(node, lock.lock_key, None)

    def _annotate(self, node: Node, key: str, value: str | None) -> Node:
        annotations = {other: text for other, text in node.annotations.items() if other != key}
        changed = replace(node, annotations=annotations if value is None else {**annotations, key: value})
        self.set_node(changed)
        return self._existing(node.name)

    def _clear(self, action: Clear) -> None:
        pod = self.pods.get(action.pod.uid)
        if pod is not None:
            self._show(pod._replace(annotations={**pod.annotations, **action.annotations}))
        self.scheduler.cleared(action.pod.uid, done=True)

    def _fence(self, action: Fence) -> None:
        pod = self.pods.get(action.pod.uid)
        if pod is not None:
            now = pod._replace(resource_version=self._next_version(), scheduled_message=action.wait.message)
            self.scheduler.pods[pod.uid] = now
            self.scheduler.fenced(pod.uid, action.attempt, now)

    def _move(self, action: Touch) -> None:
        pod = self.pods.get(action.pod.uid)
        if pod is None:
            self.scheduler.not_moved(action.pod.uid)
            return
        now = pod._replace(resource_version=self._next_version())
        self.scheduler.pods[pod.uid] = now
        self.scheduler.moved(pod.uid, action.version, now)

    def _read_pod(self, action: ReadPod) -> None:
        self.scheduler.pod_read(action.pod.uid, action.attempt, self.pods.get(action.pod.uid))

    def _read_owner(self, action: ReadOwner) -> None:
        members = self._minimums.get((action.namespace, action.owner), 0)
        self.scheduler.pending.owners.answered(action.namespace, action.owner, members)

    def _preempt(self, action: Preempt) -> None:
        """Evict all victims, or none if a disruption budget does not allow one of them."""
        preempting = self.scheduler.preempting
        allowed = {(one.namespace, one.name): one.allowed for one in self._budgets()}
        pods = [pod for victim, _ in action.victims if (pod := self.pods.get(victim.uid)) is not None]
        for pod in pods:
            covering = [
                one for one in self._budgets() if one.namespace == pod.namespace and meets(pod.labels, one.selector)
            ]
            if not is_counted(covering, pending=pod.phase is Phase.PENDING, ready=pod.ready):
                continue
            for budget in covering:
                allowed[budget.namespace, budget.name] -= 1
                if len(covering) > 1 or allowed[budget.namespace, budget.name] < 0:
                    preempting.refused(action, pod.uid, by_budget=True)
                    return
        for pod in pods:
            self.preempted[pod.uid] = action.nomination
            self.evict(pod.uid)
        for budget in self._budgets():
            self.scheduler.cluster.occupants.budget_changed(
                budget._replace(allowed=max(allowed[budget.namespace, budget.name], 0))
            )
        preempting.asked(action)

    def _budgets(self) -> tuple[DisruptionBudget, ...]:
        return tuple((self.scheduler.cluster.occupants.disruption_budgets or {}).values())

    # ------------------------------------------------------------------ what the API server shows

    def _next_version(self) -> str:
        self._version += 1
        return str(self._version)

    def _show(self, pod: Pod) -> Pod:
        now = pod._replace(resource_version=self._next_version())
        self.scheduler.pod_changed(now)
        return now

    def _start(self, pod: Pod) -> None:
        """Kubelet starts *pod*, once the device plugin has served it."""
        for report in self._reports:
            pod = pod._replace(annotations={**pod.annotations, **report(pod)})
        self._show(pod._replace(started=True, ready=True, phase=Phase.RUNNING, start_s=pod.start_s or self.now_s))

    def _end(self, pod: Pod) -> None:
        """The processes of *pod* end, then its object is removed."""
        if pod.node_name and not pod.finished:
            self._show(pod._replace(phase=Phase.SUCCEEDED))
        self.scheduler.pod_gone(pod.uid)
