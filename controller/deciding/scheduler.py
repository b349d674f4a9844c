"""Takes what the mirror shows of nodes and pods and what calls answered, and keeps the cluster's state true to it.

Everything here and in the files that it imports is synchronous and belongs to one task. What needs the outside is an
action, which `act` performs, and its outcome comes back as a call. No decision is taken on a pod of which something was
written and not yet settled.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from controller.actions import Clear, target_of
from controller.deciding.bind import Binder, NodeLocks, Outcomes
from controller.deciding.cluster import ClusterState
from controller.deciding.cycle import Chore, Cycle
from controller.deciding.lifecycle import UNSETTLED, Entry, Told, UndefinedEventError
from controller.deciding.pending import Pending, holds_the_same, is_served
from controller.deciding.permit import PluginGate, Vanished
from controller.deciding.prebind import Claims, PreBind
from controller.deciding.preempt import Preempting
from controller.deciding.reserve import Reservations
from controller.documents import Documents
from controller.grouping.enqueue import Enqueue
from controller.grouping.groups import Groups
from controller.grouping.jobs import Jobs
from controller.handing_over.flaps import Flaps
from controller.handing_over.node_cooldown import turned_away
from controller.handing_over.registers import STEADY_S, JoiningNodes, Registers
from controller.heartbeats import Heartbeats
from controller.metrics import Metrics
from controller.scheduler_names import VOLCANO
from core.catalog import Catalog
from core.constraints.resource_claims import Uses
from core.groups import GroupKey, group_of
from core.history.pods import Life, What
from core.model import Node, NodeName, Phase, Pod, PodUid
from core.port.handoff import Progress
from core.port.refusals import Complaint
from core.port.spec import Place
from core.settings import DialectName, Settings
from core.tables import Tables
from core.waiting import code_in
from core.wire.config_maps import ConfigMap
from core.wire.namespaces import Namespace
from kube.versions import is_newer

# After so many, others may have their turn.
SLICE: Final = 32
_LOOK_S: Final = 5.0
_CHANGED: Final = (
    "delete the pod, and check who may write assignments: its annotations name other cards than it was bound with, and "
    "it still counts on those"
)

_T = TypeVar("_T")


def _sliced(step: Callable[[_T], None], items: Iterable[_T]) -> Iterator[None]:
    """Do *step* with each of *items*; yield where others may have their turn."""
    for at, one in enumerate(items):
        step(one)
        if at % SLICE == 0:
            yield


class Nodes:
    """Keeps the ledger's nodes true to the mirror.

    Attributes:
        complaints: what is wrong with the nodes set aside, wholly or in part.
        flaps: the cards that become unhealthy again and again.
    """

    def __init__(self, cluster: ClusterState, locks: NodeLocks) -> None:
        self.complaints: Final[dict[NodeName, tuple[Complaint, ...]]] = {}
        self.flaps: Final = Flaps()
        self._cluster: Final = cluster
        self._locks: Final = locks
        catalog = cluster.ledger.catalog
        self._documents: Final = Documents(catalog)
        self._heartbeats: Final = Heartbeats(catalog, cluster.handoff.set_blind)
        self._joining: Final = JoiningNodes(cluster.ledger, cluster.wall)
        self._registers: Final = Registers(catalog, self._tell_alternating)
        cluster.handoff.plugins.tell(self._judge_anew)
        self._looked_s = cluster.clock()
        # The cards of a node that ever were well, by protocol.
        self._known: Final[dict[NodeName, dict[DialectName, frozenset[str]]]] = {}

    def replaced(self, nodes: Sequence[Node]) -> Iterator[None]:
        """These nodes, and no others, exist. Yields where others may have their turn."""
        for at, node in enumerate(nodes):
            self.changed(node)
            if at % SLICE == 0:
                self._cluster.search.keep_up()
                yield
        names = {node.name for node in nodes}
        yield from _sliced(self.gone, [name for name in self._cluster.ledger.states if name not in names])

    def changed(self, node: Node) -> None:
        """A node appeared or changed."""
        old = self._cluster.ledger.node(node.name)
        if old is not None and old.resource_version == node.resource_version and old.resource_version:
            return
        self._set_node(self._as_it_counts(node))

    def _as_it_counts(self, node: Node) -> Node:
        """*node* with what is known of it beside what it says."""
        now_s = self._cluster.clock()
        documents = self._documents.of(node.name)
        node = self._joining.shown(self._heartbeats.shown(self._registers.shown(node, now_s), now_s), now_s)
        unserved = self._cluster.handoff.plugins.unserved(node.name)
        if documents or unserved:
            node = replace(node, documents=documents or node.documents, unserved=unserved)
        return node

    def _judge_anew(self, name: NodeName) -> None:
        """Its device plugin has left it, or is back."""
        node = self._cluster.ledger.node(name)
        if node is not None:
            self._set_node(replace(node, unserved=self._cluster.handoff.plugins.unserved(name)))

    def next_s(self) -> float:
        """When to look again whether something has become old, monotonic."""
        return self._looked_s + _LOOK_S

    def look(self, now_s: float) -> None:
        """Judge those nodes anew of which something has become old, or a card has stayed well for long enough."""
        self._looked_s = now_s
        for name in self.flaps.end(now_s):
            self._cluster.ledger.keep_out(name, self.flaps.unsteady(name))
        for node in self._registers.steady(now_s):
            self._set_node(self._as_it_counts(node))
        for node in (*self._heartbeats.stale(self._cluster.ledger.node, now_s), *self._joining.settled(now_s)):
            self._set_node(node)
        for name in self._cluster.handoff.plugins.look(now_s):
            self._judge_anew(name)

    def _set_node(self, node: Node) -> None:
        before = self._cluster.ledger.node(node.name)
        offers = self._cluster.ledger.offered(node.name) if before is not None else {}
        changed = self._cluster.ledger.set_node(node)
        if changed:
            self._joining.counted(node.name)
            self._came_back(node.name, offers)
        with_cards = [which for which, cards in self._cluster.ledger.offered(node.name).items() if cards]
        self._cluster.handoff.plugins.needed(node.name, with_cards, self._cluster.clock())
        if before is None or before.annotations != node.annotations:
            self._locks.tend(node.name)
            if before is not None:
                self._locks.let_in(node.name)
        if not changed:
            return
        complaints = self._cluster.ledger.states[node.name].complaints
        if complaints != self.complaints.get(node.name, ()):
            self._complain(node, complaints)

    def _well(self, offers: Mapping[DialectName, tuple[Any, ...]]) -> dict[DialectName, frozenset[str]]:
        """The cards that are there and well, by protocol; by their order if they have no names."""
        found = {}
        for which, cards in offers.items():
            well = self._cluster.ledger.catalog.dialects[which].well(cards)
            found[which] = frozenset(str(at) for at in range(len(cards))) if well is None else well
        return found

    def _came_back(self, name: NodeName, offers: Mapping[DialectName, tuple[Any, ...]]) -> None:
        """Let the node rest for a protocol of which cards came back, having offered *offers*: its plugin has restarted.

        If some of its cards come and go while others stay, and have names, those are kept out.
        """
        before = self._well(offers)
        known, now_s = self._known.setdefault(name, {}), self._cluster.clock()
        unsteady = self.flaps.unsteady(name)
        for which, cards in self._well(self._cluster.ledger.offered(name)).items():
            back = (cards & known.get(which, frozenset())) - before.get(which, frozenset())
            known[which] = known.get(which, frozenset()) | cards
            if back:
                has_names = self._cluster.ledger.catalog.dialects[which].well(()) is not None
                single = bool(offers.get(which)) and has_names
                self._cluster.handoff.cooldown.returned(name, which, now_s, longer=not single)
                if single:
                    self.flaps.returned(name, which, back, now_s)
        kept_out = self.flaps.unsteady(name)
        if kept_out != unsteady:
            self._cluster.ledger.keep_out(name, kept_out)

    def _complain(self, node: Node, complaints: tuple[Complaint, ...]) -> None:
        known = self.complaints.pop(node.name, ())
        if complaints:
            self.complaints[node.name] = complaints
        for one in complaints:
            if one not in known:
                self._announce(node.name, one)

    def _announce(self, name: NodeName, one: Complaint) -> None:
        message = f"{one.dialect}: {one.field}: {one.problem}; nothing new is placed there until this is repaired"
        self._cluster.announce_node(name, "CardsUnusable", message)

    def _tell_alternating(self, node: Node, dialect: DialectName) -> None:
        message = (
            f"{dialect}: restart the device plugin's pod on this node: the plugin alternates between two registers, "
            f"and the smaller figures of each card count until one register has stayed for {STEADY_S / 60:.0f} minutes"
        )
        self._cluster.announce_node(node.name, "RegisterAlternates", message)

    def announce_anew(self) -> None:
        """Tell of all complaints, whether or not they were told."""
        for name, complaints in self.complaints.items():
            for one in complaints:
                self._announce(name, one)

    def documents_replaced(self, place: Place, maps: Sequence[ConfigMap]) -> Iterator[None]:
        """These ConfigMaps that speak of nodes, and no others, are at *place*."""
        return _sliced(self._documents_changed, self._documents.replace(place, maps))

    def documents_changed(self, place: Place, found: ConfigMap, *, gone: bool = False) -> Iterator[None]:
        """A ConfigMap that speaks of nodes appeared, changed, or is *gone*."""
        return _sliced(self._documents_changed, self._documents.change(place, found, gone=gone))

    def _documents_changed(self, name: NodeName) -> None:
        node = self._cluster.ledger.node(name)
        if node is not None:
            self._set_node(replace(node, documents=self._documents.of(name)))

    def gone(self, name: NodeName) -> None:
        """A node is deleted."""
        self._joining.leaves(name)
        self._cluster.search.kinds.leaves(name)
        if self._cluster.ledger.remove_node(name):
            self._cluster.requeue.tell_anew()
        self._cluster.handoff.node_gone(name)
        self._locks.gone(name)
        self._heartbeats.forget(name)
        self._registers.forget(name)
        self._known.pop(name, None)
        self.flaps.forget(name)
        self.complaints.pop(name, None)


class Scheduler:
    """All that one controller decides by, and the only one that changes it.

    Attributes:
        cluster: who holds what, who waits, and what is to be done outside.
        reservations: what pods are promised, and what nodes are kept for whom.
        jobs: Jobs of Volcano that wait for their queue.
        pending: pods that are on no node.
        binder: sends Bindings.
        locks: the locks of nodes.
        outcomes: what became of Bindings.
        gate: who waits for whom on which node.
        nodes: the nodes, as the mirror shows them.
        vanished: pods that were removed before they ended.
        prebind: what pods need before their Bindings.
        claims: storage, as the mirror shows it.
        uses: what pods use through resource claims, as the mirror shows it.
        preempting: has pods leave for others.
        cycle: decides.
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

        Args:
            catalog: the dialects.
            tables: device configuration.
            settings: the operator's.
            metrics: where to count.
            clock: monotonic seconds.
            wall: Unix seconds.
            strict: an event that a pod's stage has no place for is an error; otherwise only that pod is read anew.
        """
        groups = Groups(self._group_changed, self._group_parted, settings.groups)
        groups.govern(VOLCANO.name in settings.scheduler_names, settings.groups, settings.network_tiers)
        cluster = ClusterState(catalog, tables, settings, groups, metrics=metrics, clock=clock, wall=wall)
        self.cluster: Final = cluster
        self.jobs: Final = Jobs(groups, clock)
        self.uses: Final = Uses(cluster.ledger.set_uses)
        self.reservations: Final = Reservations(cluster)
        self.pending: Final = Pending(cluster, self.reservations)
        self.binder: Final = Binder(cluster, self.reservations)
        self.locks: Final = NodeLocks(cluster, self.reservations, self.pending, self.binder)
        self.outcomes: Final = Outcomes(cluster, self.reservations, self.pending, self.locks)
        self.gate: Final = PluginGate(cluster, self.reservations, self.binder)
        self.vanished: Final = Vanished(cluster.ledger, cluster.handoff)
        self.prebind: Final = PreBind(cluster, self.reservations, self.pending, self.gate)
        self.claims: Final = Claims(cluster, self.pending, self.prebind)
        self.preempting: Final = Preempting(cluster, self.reservations)
        self.nodes: Final = Nodes(cluster, self.locks)
        chores: tuple[Chore, ...] = (
            cluster.handoff,
            cluster.fencing,
            self.reservations.keeping_free,
            cluster.lines,
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
        self._namespaces: Mapping[str, Mapping[str, str]] = {}
        # The newest version known of each pod, and those that were ever seen on a node.
        self._seen: Final[dict[PodUid, str]] = {}
        self._on_nodes: Final[set[PodUid]] = set()
        # The pods with cards that were seen running.
        self._started: Final[set[PodUid]] = set()
        # When all pods were first listed, monotonic: what was there and went before that is not known.
        self._listed_s: float | None = None

    def _group_changed(self, key: GroupKey) -> None:
        self.pending.group_changed(key)
        self.cluster.occupants.group_changed(key)

    def _group_parted(self, key: GroupKey) -> None:
        self.pending.group_parted(key)

    # ------------------------------------------------------------------ namespaces

    def namespaces_replaced(self, namespaces: Sequence[Namespace]) -> None:
        """These namespaces, and no others, exist."""
        self._namespaces = {one.name: one.labels for one in namespaces}
        self.cluster.ledger.topology.set_namespaces(self._namespaces)

    def namespace_changed(self, namespace: Namespace) -> None:
        """A namespace appeared or changed."""
        self._namespaces = {**self._namespaces, namespace.name: namespace.labels}
        self.cluster.ledger.topology.set_namespaces(self._namespaces)

    def namespace_gone(self, namespace: Namespace) -> None:
        """A namespace is deleted."""
        self._namespaces = {name: labels for name, labels in self._namespaces.items() if name != namespace.name}
        self.cluster.ledger.topology.set_namespaces(self._namespaces)

    # ------------------------------------------------------------------ pods

    def pods_replaced(self, pods: Sequence[Pod], version: str = "", *, has_gone_back: bool = False) -> Iterator[None]:
        """These pods, and no others, exist: a full list is the truth. Yields where others may have their turn.

        Args:
            pods: all of them.
            version: of the list; "": it is newer than all that is known.
            has_gone_back: the list is older than what watches have shown, so etcd was restored from a backup.
        """
        went_back = has_gone_back
        for at, pod in enumerate(pods):
            if self._has_gone_back(pod, version, restored=has_gone_back):
                went_back = True
                self.pod_gone(pod.uid)
            self._guarded(self.pod_changed, pod)
            if at % SLICE == 0:
                self.cluster.search.keep_up()
                yield
        uids = {pod.uid for pod in pods}
        yield
        yield from _sliced(self.pod_gone, [uid for uid in self._seen if uid not in uids])
        if self._listed_s is None:
            self._listed_s = self.cluster.clock()
        if went_back:
            # What was fenced off is so no more: versions that were passed may be the pods' own again.
            self.take_over(self.cluster.settings.scheduler_names)

    def _has_gone_back(self, pod: Pod, version: str, *, restored: bool) -> bool:
        """Whether *pod*, of a list of *version*, is as it was before what is known of it.

        What is known may be newer than the list all the same: an answer to a write that came meanwhile.
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
                return  # a pod is bound once and for ever: this is older, whatever its version says
        self._note(pod.uid, pod.resource_version)
        self.vanished.end(pod.uid)
        counted = self.cluster.carded.get(pod.uid)
        if counted is not None and is_served(counted, pod, self._marks):
            self.cluster.carded[pod.uid] = pod
            self._observe(pod)
            self.locks.tend(NodeName(pod.node_name))
            return
        self.cluster.groups.pod_changed(pod, has_place=known is not None and self._has_place(pod))
        self._observe(pod)
        if pod.node_name:
            is_new_there = pod.uid not in self._on_nodes
            self._on_nodes.add(pod.uid)
            self.cluster.occupants.put(pod)
            self._bound_pod(pod, is_new_there=is_new_there)
            self.locks.tend(NodeName(pod.node_name))
            return
        entry = self.cluster.queue.get(pod.uid)
        if entry is not None and entry.stage in UNSETTLED:
            self.outcomes.seen(entry, pod)
        else:
            self.pending.changed(pod)

    def _note(self, uid: PodUid, version: str) -> None:
        """*version* is the newest that is known of a pod."""
        self._seen[uid] = version
        self.cluster.fencing.seen(uid, version)

    def _observe(self, pod: Pod) -> None:
        """Tell the hand-off of *pod*, and have cleared what no device plugin is to go by."""
        cleanup = self.cluster.handoff.observe(
            pod, self.cluster.clock(), is_ours=not pod.node_name and self.pending.is_ours(pod)
        )
        if cleanup is not None:
            version = "" if pod.node_name else pod.resource_version
            clear = Clear(pod=target_of(pod), annotations=dict(cleanup.annotations), version=version)
            self.cluster.actions.append(clear)

    def has_seen(self, pod: Pod) -> bool:
        """Whether *pod* is known in just this version."""
        return self._seen.get(pod.uid) == pod.resource_version

    def has_missed(self, pod: Pod) -> bool:
        """Whether *pod* is not known, or only in an older version."""
        known = self._seen.get(pod.uid)
        return known is None or is_newer(pod.resource_version, known)

    def _has_place(self, pod: Pod) -> bool:
        entry = self.cluster.queue.get(pod.uid)
        return bool(pod.node_name) or (entry is not None and entry.has_place)

    def pod_gone(self, uid: PodUid) -> None:
        """A pod's object does not exist any more: all that it held is free."""
        self._seen.pop(uid, None)
        self.cluster.fencing.gone(uid)
        self.cluster.groups.pod_gone(uid)
        self.cluster.search.learning.gone(uid)
        self._on_nodes.discard(uid)
        self.cluster.occupants.drop(uid)
        self._started.discard(uid)
        pod = self.cluster.carded.pop(uid, None)
        self.pending.forget(uid)
        self.cluster.budgets.drop(uid)
        self.cluster.recording.gone(uid)
        node = self.cluster.handoff.node_of(uid) or self.cluster.ledger.node_of(uid)
        self.cluster.handoff.forget(uid, self.cluster.clock())
        state = self.cluster.ledger.states.get(node) if node is not None else None
        waits = state is not None and (self.cluster.settings.removed_pod_hold_s > 0 or not state.facts.ready)
        if pod is not None and waits and self._may_run(pod):
            self.vanished.hold(uid, self.cluster.clock())
            self.cluster.requeue.tell_anew()
        elif uid not in self.vanished.uids:
            self.cluster.ledger.release(uid)
        if node is not None:
            self.locks.tend(node)

    def _may_run(self, pod: Pod) -> bool:
        """Whether *pod*, which has not ended, may have processes: what was served, kubelet starts at once."""
        return pod.started or pod.phase is Phase.RUNNING or self.cluster.handoff.progress(pod) is Progress.DONE

    def _bound_pod(self, pod: Pod, *, is_new_there: bool) -> None:
        entry, key = self.pending.forget(pod.uid), group_of(pod)
        # Bound by another: a gang may be whole by it.
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
            return
        self.cluster.carded[pod.uid] = pod
        if pod.started:
            self._started.add(pod.uid)
        self._warn_of(pod, after.reason if before is None or before.reason != after.reason else "")
        if not as_bound:
            self.cluster.metrics.assignments_changed.inc()
            self.cluster.announce(pod, "AssignmentChanged", _CHANGED)

    def _heed_kubelet(self, pod: Pod) -> None:
        """What became of *pod*, which was not at an end when it was last seen, says how its node is."""
        holding = self.cluster.ledger.holding(pod.uid)
        if holding is None or holding.dialect is None:
            return
        now_s, rests = self.cluster.clock(), self.cluster.handoff.cooldown
        if pod.started and pod.uid not in self._started:
            self._started.add(pod.uid)
            rests.served(pod, holding.dialect, now_s)
        elif turned_away(pod, self.cluster.ledger.resources_of(holding.dialect)):
            self.cluster.metrics.turned_away.labels(holding.dialect).inc()
            self._tell_rest(pod, rests.failed(pod, holding.dialect, now_s))

    def _tell_rest(self, pod: Pod, rest_s: float) -> None:
        if rest_s:
            message = (
                f"its kubelet rejected pod uid {pod.uid}: {pod.status_message or pod.status_reason}; no pod of this "
                f"kind is sent there for {rest_s:.0f} s, and longer if this happens again; see the device plugin's log"
            )
            self.cluster.announce_node(NodeName(pod.node_name), "PodTurnedAway", message)

    def _warn_of(self, pod: Pod, closes: str) -> None:
        if pod.node_name not in self.cluster.ledger.states:
            message = (
                f"is bound to node {pod.node_name}, which does not exist, so its cards are not counted; "
                "delete the pod, or restore the node"
            )
            self.cluster.announce(pod, "NodeMissing", message)
        if closes:
            message = f"node {pod.node_name} accepts no new shares while this pod is there: {closes}"
            self.cluster.announce(pod, "CardsClosed", message)

    def announce_anew(self) -> Iterator[None]:
        """Tell of all that is wrong now, whether or not it was told. Yields where others may have their turn."""
        self.nodes.announce_anew()
        yield from _sliced(self._warn_anew, list(self.cluster.carded.values()))

    def _warn_anew(self, pod: Pod) -> None:
        holding = self.cluster.ledger.holding(pod.uid)
        self._warn_of(pod, holding.reason if holding is not None else "")

    # ------------------------------------------------------------------ what calls answered

    def pod_read(self, uid: PodUid, attempt: int, pod: Pod | None) -> None:
        """What a pod is now, read from the API server itself to settle *attempt*; None: it does not exist."""
        if pod is None or pod.uid != uid:
            self.pod_gone(uid)
            return
        if uid not in self._seen:
            return  # the mirror was faster: it has gone
        if is_newer(self._seen[uid], pod.resource_version):
            self.outcomes.read_again(uid, attempt)
        elif pod.node_name:
            self.pod_changed(pod)
        else:
            self._note(uid, pod.resource_version)
            self.outcomes.read(uid, attempt, pod)

    def fenced(self, uid: PodUid, attempt: int, pod: Pod) -> None:
        """A pod's condition was written so that nothing sent before can be written any more; *pod*: since then."""
        if uid in self._seen and not is_newer(self._seen[uid], pod.resource_version):
            self._note(uid, pod.resource_version)
        self.outcomes.fenced(uid, attempt, pod)

    # ------------------------------------------------------------------ the leader before

    def take_over(self, scheduler_names: Collection[str]) -> None:
        """This process leads from now on, and the one before may have sent Bindings that are not written yet.

        scheduler_names: all that are ours by the configuration, also those given up.
        """
        self.cluster.fencing.begin(self.pending.waiting(scheduler_names))

    def follow(self) -> None:
        """This process leads from now on, after another, whose pods may have vanished before they were listed here."""
        self.vanished.hold_nodes(self.cluster.clock() if self._listed_s is None else self._listed_s)
        self.vanished.look(self.cluster.clock())

    def record(self, lives: Sequence[Life]) -> Iterator[None]:
        """This process leads from now on: write down what happens. Yields where others may have their turn.

        lives: what the leader before remembered, oldest first; what became of them since is only known in part.
        """
        self.cluster.recording.begin(lives)
        for at, life in enumerate(lives):
            if life.uid not in self._seen and life.events[-1].what is not What.GONE:
                self.cluster.recording.gone(life.uid)
            elif life.uid in self._on_nodes and all(one.what is not What.BOUND for one in life.events):
                self.cluster.recording.known(life.uid, What.BOUND)
            if at % SLICE == 0:
                yield
        for at, entry in enumerate(list(self.cluster.queue)):
            text = entry.pod.scheduled_message
            if code_in(text):
                self.cluster.recording.note(entry.pod, What.WAITS, text, code_in(text))
            if at % SLICE == 0:
                yield

    def moved(self, uid: PodUid, base: str, pod: Pod) -> None:
        """The condition of a waiting pod in version *base* was written; this is the pod since then."""
        if pod.resource_version == base:
            self.not_moved(uid)
            return
        entry = self.cluster.queue.get(uid)
        if entry is not None and entry.version == base and entry.stage not in UNSETTLED:
            self.cluster.queue.moved_on(entry, pod.resource_version)
            self.cluster.queue.tell(entry, Told(text=pod.scheduled_message, at_s=self.cluster.clock()))
            self._note(uid, pod.resource_version)
        self.cluster.fencing.gone(uid)

    def not_moved(self, uid: PodUid) -> None:
        """It was not, or perhaps not."""
        self.cluster.fencing.failed(uid, self.cluster.clock())

    def settle(self) -> bool:
        """Have settled all Bindings that may still be written, whoever sent them; whether there is none."""
        return self.cluster.fencing.want() and not self.cluster.sent

    def told(self, uid: PodUid, text: str, why: Hashable, base: str, version: str) -> None:
        """A condition was written: version *base* was replaced by *version*, which counts as seen."""
        entry = self.cluster.queue.get(uid)
        if entry is None:
            return
        self.cluster.tell(entry, Told(text=text, at_s=self.cluster.clock(), why=why))
        if entry.version == base and entry.stage not in UNSETTLED:
            self.cluster.queue.moved_on(entry, version)
            self._note(uid, version)

    def cleared(self, uid: PodUid, *, done: bool) -> None:
        """What no device plugin is to go by was cleared on a pod, or (not *done*) could not be."""
        if done:
            self.cluster.handoff.cleaned(uid, self.cluster.clock())
        else:
            self.cluster.handoff.not_cleaned(uid)

    # ------------------------------------------------------------------ keeping

    def configure(self, tables: Tables, settings: Settings) -> Iterator[None]:
        """Judge everything anew under another configuration. Yields where others may read, but nobody may decide."""
        yield from self.cluster.search.configure(tables, settings)
        self.binder.locks.configure(settings)
        self.cluster.handoff.configure(tables, settings)
        self.cluster.groups.govern(VOLCANO.name in settings.scheduler_names, settings.groups, settings.network_tiers)
        yield from _sliced(
            partial(self._guarded, self._reread),
            [entry for entry in self.cluster.queue if entry.stage not in UNSETTLED],
        )
        yield from _sliced(self._rebook, list(self.cluster.carded.values()))
        yield from _sliced(self._take_up, self.pending.named())
        self.cluster.requeue.hear_of_all()

    def _reread(self, entry: Entry) -> None:
        if entry.pod.scheduler_name not in self.cluster.settings.scheduler_names:
            self.pending.drop(entry, entry.pod)
        else:
            self.reservations.take_back(entry)
            self.pending.read(entry)

    def _rebook(self, pod: Pod) -> None:
        self.cluster.search.learn_of(pod)
        holding = self.cluster.ledger.holding(pod.uid)
        if holding is not None:  # resources may have other names, and other units
            self.reservations.book(pod, holding.dialect, holding.assignment, holding.amounts)

    def _take_up(self, pod: Pod) -> None:
        self._observe(pod)
        self._guarded(self.pending.changed, pod)

    def _guarded(self, step: Callable[[_T], None], what: _T) -> None:
        """One step of many, of which the others go on."""
        try:
            step(what)
        except UndefinedEventError as e:
            self.mistrust(e)

    def mistrust(self, error: UndefinedEventError) -> None:
        """A pod is not what it was thought to be: have it read, and go on with all others.

        Raises:
            UndefinedEventError: this scheduler is strict.
        """
        if self._strict:
            raise error
        self.cluster.metrics.undefined_events.inc()
        entry = self.cluster.queue.get(error.uid)
        if entry is not None:
            self.outcomes.mistrust(entry)
