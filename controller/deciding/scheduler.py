"""Takes what the watches show of pods, and the outcomes of actions, and updates the cluster state.

All code in `controller/deciding` is synchronous and runs in one task. Anything that needs the outside is an action;
`act` performs it, and the outcome comes back as a call. No pod is decided while a write for it is unsettled.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

from controller.actions import Clear, target_of
from controller.deciding.bind import Binder, Outcomes, PluginGate
from controller.deciding.cluster import ClusterState
from controller.deciding.cycle import Chore, Cycle
from controller.deciding.lifecycle import UNSETTLED, Entry, PodCondition, Stage, UndefinedEventError
from controller.deciding.nodes import SLICE, NodeLocks, Nodes, sliced
from controller.deciding.pending import Pending, holds_the_same, is_served
from controller.deciding.prebind import Claims, PreBind
from controller.deciding.preempt import Preempting
from controller.deciding.reserve import Reservations
from controller.grouping.by_name import ByName
from controller.grouping.enqueue import Enqueue, Jobs
from controller.grouping.groups import Groups
from controller.handing_over.closed_nodes import is_by_topology, remedy_of, turned_away
from controller.handing_over.vanished import Vanished
from controller.metrics import Metrics
from controller.scheduler_names import VOLCANO
from core.catalog import Catalog
from core.constraints.resource_claims import Uses
from core.history.pods import Life, What
from core.kueue import POD_SET
from core.model import GroupKey, NodeName, Phase, Pod, PodUid, group_of
from core.port.handoff import Progress
from core.settings import Settings, Tables
from core.waiting import code_in
from core.wire.policies import Namespace
from kube.calls import is_newer

_T = TypeVar("_T")
_CHANGED: Final = (
    "delete the pod, and check who may write assignments: its annotations name other cards than it was bound with, and "
    "it still counts on those"
)


class Scheduler:
    """Makes all parts that decide, and takes the news for them; only its own task calls it.

    Attributes:
        cluster: the state that all parts share.
        namespaces: the namespaces, as the watch shows them.
        reservations: promises, and nodes reserved for waiting pods.
        jobs: Jobs of Volcano that wait for their queue.
        pending: pods without a node.
        binder: sends Bindings.
        locks: the locks of nodes.
        outcomes: settles Bindings.
        gate: placed pods that wait their turn on a node.
        nodes: the nodes, as the watch shows them.
        vanished: pods that were removed before they ended.
        prebind: binds volume claims before Bindings.
        claims: storage, as the watches show it.
        uses: what pods use through resource claims, as the watches show it.
        preempting: evicts pods for others.
        cycle: the scheduling cycle.
    """

    def __init__(
        self,
        catalog: Catalog,
        tables: Tables,
        settings: Settings,
        *,
        metrics: Metrics,
        clock: Callable[[], float],
        wall: Callable[[], float],
        strict: bool = True,
    ) -> None:
        """Begin with nothing.

        *strict*: an event that is undefined for a pod's stage is an error; otherwise only that pod is read again.
        """
        groups = Groups(self._group_changed, self._group_parted, settings.groups)
        cluster = ClusterState(catalog, tables, settings, groups, metrics=metrics, clock=clock, wall=wall)
        self._govern(cluster, settings)
        self.cluster: Final = cluster
        self.jobs: Final = Jobs(groups, clock)
        self.uses: Final = Uses(cluster.ledger.set_uses)
        self.reservations: Final = Reservations(cluster)
        self.pending: Final = Pending(cluster, self.reservations)
        self.binder: Final = Binder(cluster, self.reservations)
        self.locks: Final = NodeLocks(cluster, self.reservations, self.pending, self.binder)
        self.outcomes: Final = Outcomes(cluster, self.reservations, self.pending, self.locks.withdraw)
        self.gate: Final = PluginGate(cluster, self.reservations, self.binder)
        self.vanished: Final = Vanished(cluster.ledger, cluster.handoff)
        self.prebind: Final = PreBind(cluster, self.reservations, self.pending, self.gate)
        self.claims: Final = Claims(cluster, self.pending, self.prebind)
        self.preempting: Final = Preempting(cluster, self.reservations)
        self.nodes: Final = Nodes(cluster, self.locks, self.vanished, self.gate)
        chores: tuple[Chore, ...] = (
            cluster.handoff,
            cluster.fencing,
            self.reservations.keeping_free,
            cluster.queue_order,
            self.nodes,
            self.locks,
            self.prebind,
            self.claims,
            self.preempting,
            Enqueue(groups, cluster.ledger, clock),
            self.vanished,
        )
        self.cycle: Final = Cycle(
            cluster, self.reservations, pending=self.pending, gate=self.gate, prebind=self.prebind, chores=chores
        )
        self._strict: Final = strict
        self._marks: Final = catalog.marks()
        self.namespaces: Final[ByName[Namespace]] = ByName(
            lambda _: cluster.ledger.topology.set_namespaces({one.name: one.labels for one in self.namespaces.values()})
        )
        # The newest known version of each pod, and the pods that were ever seen on a node.
        self._seen: Final[dict[PodUid, str]] = {}
        self._on_nodes: Final[set[PodUid]] = set()
        # The pods with cards that were seen running.
        self._started: Final[set[PodUid]] = set()
        # When all pods were first listed, monotonic; pods that vanished before are unknown.
        self._listed_s: float | None = None

    def _group_changed(self, key: GroupKey) -> None:
        self.pending.group_changed(key)
        self.cluster.occupants.group_changed(key)
        self.cluster.budgets.group_changed(key)

    def _group_parted(self, key: GroupKey) -> None:
        self.pending.group_parted(key)

    # ------------------------------------------------------------------ pods

    def pods_replaced(self, pods: Sequence[Pod], version: str = "", *, has_gone_back: bool = False) -> Iterator[None]:
        """Replace all pods: a full list always counts. Yields between slices.

        Args:
            pods: all pods that exist.
            version: the version of the list; "": newer than all known versions.
            has_gone_back: the list is older than what watches have shown, so etcd was restored from a backup.
        """
        went_back = has_gone_back
        for at, pod in enumerate(pods):
            if self._has_gone_back(pod, version, restored=has_gone_back):
                went_back = True
                self.pod_gone(pod.uid)
            self._guarded(self.pod_changed, pod)
            entry = self.cluster.queue.get(pod.uid)
            if entry is not None and entry.stage is Stage.BOUND:
                # The list is from before the Binding, or the restored etcd does not have it and no watch will show it.
                self.outcomes.mistrust(entry)
            if at % SLICE == 0:
                self.cluster.search.keep_up()
                yield
        uids = {pod.uid for pod in pods}
        yield
        yield from sliced(self.pod_gone, [uid for uid in self._seen if uid not in uids])
        if self._listed_s is None:
            self._listed_s = self.cluster.clock()
        if went_back:
            # Fences no longer hold, because pods may have versions again that they had passed.
            self.take_over(self.cluster.settings.scheduler_names)

    def _has_gone_back(self, pod: Pod, version: str, *, restored: bool) -> bool:
        """Return whether *pod*, in a list of *version*, is older than the known one because etcd was restored.

        The known pod may also be newer than the list because a write was answered meanwhile; that does not count.
        """
        known = self._seen.get(pod.uid)
        if known is None:
            return False
        if pod.uid in self._on_nodes and not pod.node_name and (restored or is_newer(pod.resource_version, known)):
            return True
        if restored:
            return known != pod.resource_version
        return is_newer(known, pod.resource_version) and not is_newer(known, version)

    def pod_changed(self, pod: Pod) -> None:
        """A pod appeared or changed. The same version twice has no effect."""
        known = self._seen.get(pod.uid)
        if known is not None:
            if known == pod.resource_version or is_newer(known, pod.resource_version):
                return
            if pod.uid in self._on_nodes and not pod.node_name:
                return  # a Binding is final, so this event is outdated, even if its version is newer
        self._note_version(pod.uid, pod.resource_version)
        if pod.uid in self.vanished.until_s:
            self.vanished.end(pod.uid)
        counted = self.cluster.carded.get(pod.uid)
        if counted is not None and is_served(counted, pod, self._marks):
            self.cluster.carded[pod.uid] = pod
            self._observe(pod)
            self.locks.tend(NodeName(pod.node_name))
            return
        entry = self.cluster.queue.get(pod.uid)
        has_place = bool(pod.node_name) or (entry is not None and entry.has_place)
        if group_of(pod) is not None or pod.uid in self.cluster.groups.key_of:
            self.cluster.groups.pod_changed(pod, has_place=known is not None and has_place)
        self._observe(pod)
        if pod.node_name:
            is_new_there = pod.uid not in self._on_nodes
            self._on_nodes.add(pod.uid)
            self.cluster.occupants.put(pod)
            self._bound_pod(pod, is_new_there=is_new_there)
            self.locks.tend(NodeName(pod.node_name))
            return
        if entry is not None and entry.stage in UNSETTLED:
            self.outcomes.seen(entry, pod)
        else:
            self.pending.changed(pod)

    def _note_version(self, uid: PodUid, version: str) -> None:
        """Record the newest known *version* of a pod."""
        self._seen[uid] = version
        self.cluster.fencing.seen(uid, version)

    def _observe(self, pod: Pod) -> None:
        """Pass *pod* to the hand-off, and request that annotations are cleared that no plugin may use any more."""
        cleanup = self.cluster.handoff.observe(
            pod, self.cluster.clock(), is_ours=not pod.node_name and self.pending.is_ours(pod)
        )
        if cleanup is not None:
            version = "" if pod.node_name else pod.resource_version
            self.cluster.actions.append(Clear(pod=target_of(pod), annotations=cleanup, version=version))

    def knows(self, uid: PodUid) -> bool:
        """Return whether a pod exists, as the mirror shows it."""
        return uid in self._seen

    def has_seen(self, pod: Pod) -> bool:
        """Return whether *pod* is known in exactly this version."""
        return self._seen.get(pod.uid) == pod.resource_version

    def has_sent(self, uid: PodUid) -> bool:
        """Return whether this process or an earlier leader may have bound a pod, unseen by the watch before."""
        if uid in self.cluster.fencing:
            return True
        entry = self.cluster.queue.get(uid)
        # If the answer was lost, a read may have shown its node, which ends its entry before the watch gets there.
        return uid in self._on_nodes if entry is None else entry.attempt > 0

    def has_missed(self, pod: Pod) -> bool:
        """Return whether *pod* is unknown, or known only in an older version."""
        known = self._seen.get(pod.uid)
        return known is None or is_newer(pod.resource_version, known)

    def pod_gone(self, uid: PodUid) -> None:
        """Forget a pod that no longer exists, and release its cards, unless its processes may still run."""
        self._seen.pop(uid, None)
        self.cluster.fencing.gone(uid)
        self.cluster.budgets.drop(uid)  # while its group still names its queue
        self.cluster.groups.pod_gone(uid)
        self.cluster.search.learning.gone(uid)
        self._on_nodes.discard(uid)
        self.cluster.occupants.drop(uid)
        self._started.discard(uid)
        pod = self.cluster.carded.pop(uid, None)
        self.cluster.of_kueue.pop(uid, None)
        self.pending.forget(uid)
        self.cluster.recording.gone(uid)
        node = self.cluster.handoff.node_of(uid) or self.cluster.ledger.node_of(uid)
        self.cluster.handoff.forget(uid, self.cluster.clock())
        state = self.cluster.ledger.states.get(node) if node is not None else None
        waits = state is not None and (self.cluster.settings.removed_pod_hold_s > 0 or not state.facts.ready)
        if pod is not None and waits and self._may_run(pod):
            self.vanished.hold(uid, self.cluster.clock())
            self.cluster.requeue.tell_anew()
        elif uid not in self.vanished.until_s:
            if pod is not None and node is not None and state is None and self._may_run(pod):
                self.vanished.absent(node, self.cluster.clock())
            self.cluster.ledger.release(uid)
        if node is not None:
            self.locks.tend(node)

    def _may_run(self, pod: Pod) -> bool:
        """Return whether *pod*, which has not ended, may have processes; kubelet starts served pods at once."""
        return pod.started or pod.phase is Phase.RUNNING or self.cluster.handoff.progress(pod) is Progress.DONE

    def _bound_pod(self, pod: Pod, *, is_new_there: bool) -> None:
        entry, key = self.pending.forget(pod.uid), group_of(pod)
        # Another scheduler bound it, and this may complete a gang.
        if key is not None and entry is None and is_new_there:
            self.pending.group_parted(key)
        if entry is not None:
            self.cluster.handoff.leave(pod.uid)
            self.cluster.recording.note(pod, What.BOUND, pod.node_name)
            if entry.placement is None and key is not None:
                self.pending.group_changed(key)
            if pod.created_s:
                self.cluster.metrics.create_to_bound_s.observe(max(self.cluster.wall() - pod.created_s, 0.0))
        known = self.cluster.carded.get(pod.uid)
        if known is not None or entry is not None:
            self._heed_kubelet(pod)
        if known is not None and entry is None and holds_the_same(known, pod, self._marks):
            self.cluster.carded[pod.uid] = pod
            return
        if pod.finished:
            self.cluster.recording.ended(pod)
            self.cluster.budgets.drop(pod.uid)
            self.cluster.carded.pop(pod.uid, None)
            self.cluster.of_kueue.pop(pod.uid, None)
            self.cluster.ledger.release(pod.uid)
            return
        before = self.cluster.ledger.holding(pod.uid)
        as_bound = self.cluster.ledger.count(pod)
        after = self.cluster.ledger.holding(pod.uid)
        if after is not None:
            self.reservations.book(pod, after.dialect, after.assignment, after.amounts)
            if after.dialect is not None or pod.scheduler_name in self.cluster.settings.scheduler_names:
                self.cluster.search.learn_of(pod)
        if after is None or after.dialect is None:
            self.cluster.carded.pop(pod.uid, None)
            if POD_SET in pod.labels and pod.scheduler_name in self.cluster.settings.scheduler_names:
                self.cluster.of_kueue[pod.uid] = pod
            return
        self.cluster.carded[pod.uid] = pod
        if pod.started:
            self._started.add(pod.uid)
        self._warn_of(pod, after.closed_text(pod.node_name) if before is None or before.reason != after.reason else "")
        if not as_bound:
            self.cluster.metrics.assignments_changed.inc()
            self.cluster.announce(pod, "AssignmentChanged", _CHANGED)

    def _heed_kubelet(self, pod: Pod) -> None:
        """Update the cooldown of a node: *pod* was started there, or rejected by its kubelet."""
        holding = self.cluster.ledger.holding(pod.uid)
        if holding is None or holding.dialect is None:
            return
        now_s, rests = self.cluster.clock(), self.cluster.handoff.cooldown
        if pod.started and pod.uid not in self._started:
            self._started.add(pod.uid)
            rests.served(pod, holding.dialect, frozenset(holding.amounts), now_s)
        elif pod.phase is Phase.FAILED and turned_away(pod, self.cluster.ledger.resources_of(holding.dialect)):
            self.cluster.metrics.turned_away.labels(holding.dialect).inc()
            self._tell_rest(pod, rests.failed(pod, holding.dialect, frozenset(holding.amounts), now_s))

    def _tell_rest(self, pod: Pod, rest_s: float) -> None:
        if rest_s:
            whom = "that asks for the same" if is_by_topology(pod) else "of this kind"
            message = (
                f"its kubelet rejected pod uid {pod.uid}: {pod.status_message or pod.status_reason}; no pod {whom} "
                f"is sent there for {rest_s:.0f} s, and longer if this happens again; {remedy_of(pod)}"
            )
            self.cluster.announce_node(NodeName(pod.node_name), "PodTurnedAway", message)

    def _warn_of(self, pod: Pod, closed: str) -> None:
        if pod.node_name not in self.cluster.ledger.states:
            message = (
                f"is bound to node {pod.node_name}, which does not exist, so its cards are not counted; "
                "delete the pod, or restore the node"
            )
            self.cluster.announce(pod, "NodeMissing", message)
        if closed:
            self.cluster.announce(pod, "CardsClosed", closed)

    def announce_anew(self) -> Iterator[None]:
        """Report all present problems, including those reported before; yields between slices."""
        self.nodes.announce_anew()
        yield from sliced(self._warn_anew, list(self.cluster.carded.values()))

    def _warn_anew(self, pod: Pod) -> None:
        holding = self.cluster.ledger.holding(pod.uid)
        self._warn_of(pod, holding.closed_text(pod.node_name) if holding is not None else "")

    # ------------------------------------------------------------------ answers

    def pod_read(self, uid: PodUid, attempt: int, pod: Pod | None) -> None:
        """Take a pod that was read from the API server to settle *attempt*; None: it does not exist."""
        if pod is None or pod.uid != uid:
            self.pod_gone(uid)
            return
        if uid not in self._seen:
            return  # the watch has already shown that it is gone
        if is_newer(self._seen[uid], pod.resource_version):
            self.outcomes.read_again(uid, attempt)
        elif pod.node_name:
            self.pod_changed(pod)
        else:
            self._note_version(uid, pod.resource_version)
            self.outcomes.read(uid, attempt, pod)

    def fenced(self, uid: PodUid, attempt: int, pod: Pod) -> None:
        """Take *pod*, as it is since its condition was written as a fence for *attempt*."""
        if uid in self._seen and not is_newer(self._seen[uid], pod.resource_version):
            self._note_version(uid, pod.resource_version)
        self.outcomes.fenced(uid, attempt, pod)

    # ------------------------------------------------------------------ a change of leader

    def stand_by(self) -> None:
        """Follow the cluster without deciding: do what falls due by time, and drop news that only decisions read."""
        cluster, now_s = self.cluster, self.cluster.clock()
        cluster.search.keep_up()
        self.vanished.look(now_s)
        cluster.handoff.look(now_s)
        self.locks.look(now_s)
        self.claims.look(now_s)
        self.reservations.nominations.forget(lambda uid: cluster.queue.get(uid) is not None)
        # Before its first decision no pod is refused or in a line, so none of these can wake one.
        for news in (cluster.ledger.opened, cluster.handoff.opened, cluster.budgets.freed):
            news.clear()
        cluster.handoff.turns()
        cluster.handoff.seconds.clear()
        cluster.ledger.constraints.freed()

    def take_over(self, scheduler_names: Collection[str]) -> None:
        """Begin to lead after a leader whose Bindings may still be written.

        scheduler_names: all configured names, including those given up.
        """
        self.cluster.fencing.begin(self.pending.waiting(scheduler_names))

    def follow(self) -> None:
        """Begin to lead after another leader, whose pods may have vanished before they were listed here."""
        self.vanished.hold_nodes(self.cluster.clock() if self._listed_s is None else self._listed_s)
        self.vanished.look(self.cluster.clock())

    def record(self, lives: Sequence[Life]) -> Iterator[None]:
        """Begin to record pods' events, as the leader; yields between slices.

        lives: the record of the last leader, oldest first; later events of these pods are only known in part.
        """
        self.cluster.recording.begin()
        yield from self.remember(lives)
        for at, entry in enumerate(list(self.cluster.queue)):
            text = entry.pod.scheduled_message
            if code_in(text):
                self.cluster.recording.note(entry.pod, What.WAITS, text, code_in(text))
            if at % SLICE == 0:
                yield

    def remember(self, lives: Sequence[Life]) -> Iterator[None]:
        """Add the record of the last leader, as `record`; not of pods with events since. Yields between slices."""
        recording = self.cluster.recording
        lives = [life for life in lives if life.uid not in recording.pods]
        recording.pods.restore(lives)
        for at, life in enumerate(lives):
            if life.uid not in self._seen and life.events[-1].what is not What.GONE:
                recording.gone(life.uid)
            elif life.uid in self._on_nodes and all(one.what is not What.BOUND for one in life.events):
                recording.known(life.uid, What.BOUND)
            if at % SLICE == 0:
                yield

    def moved(self, uid: PodUid, base: str, pod: Pod) -> None:
        """Take *pod*, as it is since its condition was written over version *base*, to fence off earlier leaders."""
        if pod.resource_version == base:
            self.not_moved(uid)
            return
        entry = self.cluster.queue.get(uid)
        if entry is not None and entry.version == base and entry.stage not in UNSETTLED:
            self.cluster.queue.moved_on(entry, pod.resource_version)
            self.cluster.queue.set_condition(entry, PodCondition(text=pod.scheduled_message, at_s=self.cluster.clock()))
            self._note_version(uid, pod.resource_version)
        self.cluster.fencing.gone(uid)

    def not_moved(self, uid: PodUid, why: str = "") -> None:
        """Schedule another such write, because the last one may have had no effect; *why*: as in `Fencing.failed`."""
        self.cluster.fencing.failed(uid, self.cluster.clock(), why)

    def settle(self) -> bool:
        """Request that all Bindings with an unknown outcome are settled; return whether none is left."""
        return self.cluster.fencing.want() and not self.cluster.sent

    def condition_written(self, uid: PodUid, text: str, why: Hashable, base: str, version: str) -> None:
        """Record that a condition was written, which replaced version *base* of the pod by *version*."""
        entry = self.cluster.queue.get(uid)
        if entry is None:
            return
        self.cluster.set_condition(entry, PodCondition(text=text, at_s=self.cluster.clock(), why=why))
        if entry.version == base and entry.stage not in UNSETTLED:
            self.cluster.queue.moved_on(entry, version)
            self._note_version(uid, version)
            self.reservations.check_nominated(entry)  # the watch's event of this version is passed over

    def cleared(self, uid: PodUid, *, done: bool) -> None:
        """Record that a pod's leftover annotations were cleared, or if not *done*, that this failed."""
        if done:
            self.cluster.handoff.cleaned(uid, self.cluster.clock())
        else:
            self.cluster.handoff.not_cleaned(uid)

    # ------------------------------------------------------------------ configuration and repair

    def configure(self, tables: Tables, settings: Settings) -> Iterator[None]:
        """Read everything again under another configuration; yields between slices, while nothing is decided."""
        yield from self.cluster.search.configure(tables, settings)
        self.binder.locks.configure(settings)
        self.cluster.handoff.configure(tables, settings)
        self._govern(self.cluster, settings)
        yield from sliced(
            partial(self._guarded, self._reread),
            [entry for entry in self.cluster.queue if entry.stage not in UNSETTLED],
        )
        yield from sliced(self._rebook, list(self.cluster.carded.values()))
        yield from sliced(self._take_up, self.pending.named())
        self.cluster.requeue.hear_of_all()

    def _govern(self, cluster: ClusterState, settings: Settings) -> None:
        cluster.groups.govern(
            VOLCANO.name in settings.scheduler_names,
            settings.groups,
            settings.network_tiers,
            cluster.ledger.words.units,
        )

    def _reread(self, entry: Entry) -> None:
        if entry.pod.scheduler_name not in self.cluster.settings.scheduler_names:
            self.pending.drop(entry, entry.pod)
        else:
            self.reservations.release(entry)
            self.pending.read(entry)

    def _rebook(self, pod: Pod) -> None:
        self.cluster.search.learn_of(pod)
        holding = self.cluster.ledger.holding(pod.uid)
        if holding is not None:  # names and units of resources may have changed
            self.reservations.book(pod, holding.dialect, holding.assignment, holding.amounts)

    def _take_up(self, pod: Pod) -> None:
        self._observe(pod)
        self._guarded(self.pending.changed, pod)

    def _guarded(self, step: Callable[[_T], None], what: _T) -> None:
        """Do one step of several; an undefined event of one pod does not stop the others."""
        try:
            step(what)
        except UndefinedEventError as e:
            self.mistrust(e)

    def mistrust(self, error: UndefinedEventError) -> None:
        """Read the pod of an undefined event again, and continue with all others.

        Raises:
            UndefinedEventError: this scheduler is strict.
        """
        if self._strict:
            raise error
        self.cluster.metrics.undefined_events.inc()
        entry = self.cluster.queue.get(error.uid)
        if entry is not None:
            self.outcomes.mistrust(entry)
