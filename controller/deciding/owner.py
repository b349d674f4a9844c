"""Takes what the mirror shows of pods and what calls answered, and keeps ledger, queue and hand-off true to it.

Pods that are on no node, nodes and their locks have files of their own. Everything in them and here is synchronous and
belongs to one task. What needs the outside is an action, which `act` performs, and its outcome comes back as a call. No
decision is taken on a pod of which something was written and not yet settled.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from controller.actions import Announce, Clear, Subject, about_pod, target_of
from controller.deciding.changes import holds_the_same, is_served
from controller.deciding.claims import Claims
from controller.deciding.lifecycle import UNSETTLED, Entry, Told, UndefinedEventError
from controller.deciding.node_locks import NodeLocks
from controller.deciding.nodes import SLICE, Nodes
from controller.deciding.occupants import Occupants
from controller.deciding.outcomes import Outcomes
from controller.deciding.pending import Pending
from controller.deciding.planner import Planner
from controller.deciding.prebind import PreBind
from controller.deciding.preempting import Preempting
from controller.deciding.state import State
from controller.deciding.vanished import Vanished
from controller.grouping.enqueue import Enqueue
from controller.grouping.groups import Groups
from controller.grouping.jobs import Jobs
from controller.handing_over.rests import turned_away
from controller.metrics import Metrics
from controller.scheduler_names import VOLCANO
from core.catalog import Catalog
from core.groups import GroupKey, group_of
from core.history.pods import Life, What
from core.model import NodeName, Phase, Pod, PodUid
from core.port.handoff import Progress
from core.settings import Settings
from core.tables import Tables
from core.uses import Uses
from core.waiting import code_in
from core.wire.namespaces import Namespace
from kube.versions import is_newer

_CHANGED: Final = (
    "delete the pod, and check who may write assignments: its annotations name other cards than it was bound with, and "
    "it still counts on those"
)

_T = TypeVar("_T")


class Owner:
    """All that one controller knows.

    Attributes:
        planner: decides, and holds ledger, queue and hand-off.
        groups: PodGroups, queues and their members.
        jobs: Jobs of Volcano that wait for their queue.
        pending: pods that are on no node.
        locks: the locks of nodes.
        outcomes: what became of Bindings.
        nodes: the nodes, as the mirror shows them.
        vanished: pods that were removed before they ended.
        prebind: what pods need before their Bindings.
        claims: storage, as the mirror shows it.
        uses: what pods use through resource claims, as the mirror shows it.
        occupants: the pods on nodes, as far as it decides whether they leave for others.
        preempting: has them leave.
        carded: bound pods with cards, as they were last seen.
        recording: what happened to pods.
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
        self.groups: Final = Groups(self._group_changed, self._group_parted, settings.groups)
        self.groups.govern(VOLCANO.name in settings.scheduler_names, settings.groups, settings.network_tiers)
        self.jobs: Final = Jobs(self.groups, clock)
        state = State(catalog, tables, settings, self.groups, metrics=metrics, clock=clock, wall=wall)
        self.planner: Final = Planner(state, self.groups, self._read)
        self.pending: Final = Pending(self.planner, self.groups, clock)
        self.carded: Final[dict[PodUid, Pod]] = {}
        self.locks: Final = NodeLocks(self.planner, self.pending, self.carded, clock=clock, wall=wall)
        self.outcomes: Final = Outcomes(self.planner, self.pending, self.locks, clock)
        self.nodes: Final = Nodes(self.planner, self.locks, clock, wall)
        self.occupants: Final = Occupants(self.groups, clock)
        self.preempting: Final = Preempting(self.planner, self.occupants, metrics, clock)
        self.planner.chores.append(self.nodes)
        self.planner.chores.append(self.locks)
        self.prebind: Final = PreBind(self.planner, self.pending, clock)
        self.planner.chores.append(self.prebind)
        self.claims: Final = Claims(self.planner, self.pending, self.prebind)
        self.planner.chores.append(self.claims)
        self.planner.chores.append(self.preempting)
        self.planner.chores.append(Enqueue(self.groups, self.planner.ledger, clock))
        self.vanished: Final = Vanished(self.planner.ledger, self.planner.handoff)
        self.planner.chores.append(self.vanished)
        self.uses: Final = Uses(self.planner.ledger)
        self.ledger: Final = self.planner.ledger
        self.life: Final = self.planner.life
        self.handoff: Final = self.planner.handoff
        self.wakes: Final = self.planner.wakes
        self.recording: Final = self.planner.state.recording
        self._metrics: Final = metrics
        self._clock: Final = clock
        self._wall: Final = wall
        self._catalog: Final = catalog
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

    def _read(self, entry: Entry) -> None:
        self.pending.read(entry)

    def _group_changed(self, key: GroupKey) -> None:
        self.pending.group_changed(key)
        self.occupants.group_changed(key)

    def _group_parted(self, key: GroupKey) -> None:
        self.pending.group_parted(key)

    # ------------------------------------------------------------------ namespaces

    def namespaces_replaced(self, namespaces: Sequence[Namespace]) -> None:
        """These namespaces, and no others, exist."""
        self._namespaces = {one.name: one.labels for one in namespaces}
        self.ledger.topology.set_namespaces(self._namespaces)

    def namespace_changed(self, namespace: Namespace) -> None:
        """A namespace appeared or changed."""
        self._namespaces = {**self._namespaces, namespace.name: namespace.labels}
        self.ledger.topology.set_namespaces(self._namespaces)

    def namespace_gone(self, namespace: Namespace) -> None:
        """A namespace is deleted."""
        self._namespaces = {name: labels for name, labels in self._namespaces.items() if name != namespace.name}
        self.ledger.topology.set_namespaces(self._namespaces)

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
                self.planner.search.keep_up()
                yield
        uids = {pod.uid for pod in pods}
        yield
        for at, uid in enumerate([uid for uid in self._seen if uid not in uids]):
            self.pod_gone(uid)
            if at % SLICE == 0:
                yield
        if self._listed_s is None:
            self._listed_s = self._clock()
        if went_back:
            # What was fenced off is so no more: versions that were passed may be the pods' own again.
            self.take_over(self.planner.settings.scheduler_names)

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
        counted = self.carded.get(pod.uid)
        if counted is not None and is_served(counted, pod, self._marks):
            self.carded[pod.uid] = pod
            self._observe(pod)
            self.locks.tend(NodeName(pod.node_name))
            return
        self.groups.pod_changed(pod, has_place=known is not None and self._has_place(pod))
        self._observe(pod)
        if pod.node_name:
            is_new_there = pod.uid not in self._on_nodes
            self._on_nodes.add(pod.uid)
            self.occupants.put(pod)
            self._bound_pod(pod, is_new_there=is_new_there)
            self.locks.tend(NodeName(pod.node_name))
            return
        entry = self.life.get(pod.uid)
        if entry is not None and entry.stage in UNSETTLED:
            self.outcomes.seen(entry, pod)
        else:
            self.pending.changed(pod)

    def _note(self, uid: PodUid, version: str) -> None:
        """*version* is the newest that is known of a pod."""
        self._seen[uid] = version
        self.planner.state.fencing.seen(uid, version)

    def _observe(self, pod: Pod) -> None:
        """Tell the hand-off of *pod*, and have cleared what no device plugin is to go by."""
        cleanup = self.handoff.observe(pod, self._clock(), is_ours=not pod.node_name and self.pending.is_ours(pod))
        if cleanup is not None:
            version = "" if pod.node_name else pod.resource_version
            clear = Clear(pod=target_of(pod), annotations=dict(cleanup.annotations), version=version)
            self.planner.actions.append(clear)

    def has_seen(self, pod: Pod) -> bool:
        """Whether *pod* is known in just this version."""
        return self._seen.get(pod.uid) == pod.resource_version

    def has_missed(self, pod: Pod) -> bool:
        """Whether *pod* is not known, or only in an older version."""
        known = self._seen.get(pod.uid)
        return known is None or is_newer(pod.resource_version, known)

    def _has_place(self, pod: Pod) -> bool:
        """Whether *pod* is on a node, or on its way to one."""
        entry = self.life.get(pod.uid)
        return bool(pod.node_name) or (entry is not None and (entry.placement is not None or entry.stage in UNSETTLED))

    def pod_gone(self, uid: PodUid) -> None:
        """A pod's object does not exist any more: all that it held is free."""
        self._seen.pop(uid, None)
        self.planner.state.fencing.gone(uid)
        self.groups.pod_gone(uid)
        self.planner.search.learning.gone(uid)
        self._on_nodes.discard(uid)
        self.occupants.drop(uid)
        self._started.discard(uid)
        pod = self.carded.pop(uid, None)
        self.pending.forget(uid)
        self.planner.state.books.drop(uid)
        self.recording.gone(uid)
        node = self.handoff.node_of(uid) or self.ledger.node_of(uid)
        self.handoff.forget(uid, self._clock())
        state = self.ledger.states.get(node) if node is not None else None
        waits = state is not None and (self.planner.settings.removed_pod_hold_s > 0 or not state.facts.ready)
        if pod is not None and waits and self._may_run(pod):
            self.vanished.hold(uid, self._clock())
            self.wakes.tell_anew()
        elif uid not in self.vanished.uids:
            self.ledger.release(uid)
        if node is not None:
            self.locks.tend(node)

    def _may_run(self, pod: Pod) -> bool:
        """Whether *pod*, which has not ended, may have processes: what was served, kubelet starts at once."""
        return pod.started or pod.phase is Phase.RUNNING or self.handoff.progress(pod) is Progress.DONE

    def _bound_pod(self, pod: Pod, *, is_new_there: bool) -> None:
        entry, key = self.pending.forget(pod.uid), group_of(pod)
        # Bound by another: a gang may be whole by it.
        if key is not None and entry is None and is_new_there:
            self.pending.group_parted(key)
        if entry is not None:
            self.handoff.leave(pod.uid)
            self.recording.note(pod, What.BOUND, pod.node_name)
            if entry.placement is None and key is not None:
                self.pending.group_changed(key)
            if pod.created_s:
                self._metrics.create_to_bound_s.observe(max(self._wall() - pod.created_s, 0.0))
        known = self.carded.get(pod.uid)
        if known is not None or entry is not None:
            self._heed_kubelet(pod)
        if known is not None and entry is None and holds_the_same(known, pod, self._marks):
            self.carded[pod.uid] = pod
            return
        if pod.finished:
            self.recording.ended(pod)
            self.planner.state.books.drop(pod.uid)
            self.carded.pop(pod.uid, None)
            self.ledger.release(pod.uid)
            return
        before = self.ledger.holding(pod.uid)
        as_bound = self.ledger.count(pod)
        after = self.ledger.holding(pod.uid)
        if after is not None:
            self.planner.promises.book(pod, after.dialect, after.assignment, after.amounts)
            if after.dialect is not None or pod.scheduler_name in self.planner.settings.scheduler_names:
                self.planner.search.learn_of(pod)
        if after is None or after.dialect is None:
            self.carded.pop(pod.uid, None)
            return
        self.carded[pod.uid] = pod
        if pod.started:
            self._started.add(pod.uid)
        self._warn_of(pod, after.reason if before is None or before.reason != after.reason else "")
        if not as_bound:
            self._metrics.assignments_changed.inc()
            self.planner.actions.append(Announce(about=about_pod(pod), reason="AssignmentChanged", message=_CHANGED))

    def _heed_kubelet(self, pod: Pod) -> None:
        """What became of *pod*, which was not at an end when it was last seen, says how its node is."""
        holding = self.ledger.holding(pod.uid)
        if holding is None or holding.dialect is None:
            return
        now_s, rests = self._clock(), self.handoff.rests
        if pod.started and pod.uid not in self._started:
            self._started.add(pod.uid)
            rests.served(pod, holding.dialect, now_s)
        elif turned_away(pod, self.ledger.resources_of(holding.dialect)):
            self._metrics.turned_away.labels(holding.dialect).inc()
            self._tell_rest(pod, rests.failed(pod, holding.dialect, now_s))

    def _tell_rest(self, pod: Pod, rest_s: float) -> None:
        if rest_s:
            message = (
                f"its kubelet rejected pod uid {pod.uid}: {pod.status_message or pod.status_reason}; no pod of this "
                f"kind is sent there for {rest_s:.0f} s, and longer if this happens again; see the device plugin's log"
            )
            node = self.ledger.node(NodeName(pod.node_name))
            about = Subject(kind="Node", name=pod.node_name, uid=node.uid if node is not None else "")
            self.planner.actions.append(Announce(about=about, reason="PodTurnedAway", message=message))

    def _warn_of(self, pod: Pod, closes: str) -> None:
        if pod.node_name not in self.ledger.states:
            message = (
                f"is bound to node {pod.node_name}, which does not exist, so its cards are not counted; "
                "delete the pod, or restore the node"
            )
            self.planner.actions.append(Announce(about=about_pod(pod), reason="NodeMissing", message=message))
        if closes:
            message = f"node {pod.node_name} accepts no new shares while this pod is there: {closes}"
            self.planner.actions.append(Announce(about=about_pod(pod), reason="CardsClosed", message=message))

    def announce_anew(self) -> Iterator[None]:
        """Tell of all that is wrong now, whether or not it was told. Yields where others may have their turn."""
        self.nodes.announce_anew()
        for at, pod in enumerate(list(self.carded.values())):
            holding = self.ledger.holding(pod.uid)
            self._warn_of(pod, holding.reason if holding is not None else "")
            if at % SLICE == 0:
                yield

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
        self.planner.state.fencing.begin(self.pending.waiting(scheduler_names))

    def follow(self) -> None:
        """This process leads from now on, after another, whose pods may have vanished before they were listed here."""
        self.vanished.hold_nodes(self._clock() if self._listed_s is None else self._listed_s)
        self.vanished.look(self._clock())

    def record(self, lives: Sequence[Life]) -> Iterator[None]:
        """This process leads from now on: write down what happens. Yields where others may have their turn.

        lives: what the leader before remembered, oldest first; what became of them since is only known in part.
        """
        self.recording.begin(lives)
        for at, life in enumerate(lives):
            if life.uid not in self._seen and life.events[-1].what is not What.GONE:
                self.recording.gone(life.uid)
            elif life.uid in self._on_nodes and all(one.what is not What.BOUND for one in life.events):
                self.recording.known(life.uid, What.BOUND)
            if at % SLICE == 0:
                yield
        for at, entry in enumerate(list(self.life)):
            text = entry.pod.scheduled_message
            if code_in(text):
                self.recording.note(entry.pod, What.WAITS, text, code_in(text))
            if at % SLICE == 0:
                yield

    def moved(self, uid: PodUid, base: str, pod: Pod) -> None:
        """The condition of a waiting pod in version *base* was written; this is the pod since then."""
        if pod.resource_version == base:
            self.not_moved(uid)
            return
        entry = self.life.get(uid)
        if entry is not None and entry.version == base and entry.stage not in UNSETTLED:
            self.life.moved_on(entry, pod.resource_version)
            self.life.tell(entry, Told(text=pod.scheduled_message, at_s=self._clock()))
            self._note(uid, pod.resource_version)
        self.planner.state.fencing.gone(uid)

    def not_moved(self, uid: PodUid) -> None:
        """It was not, or perhaps not."""
        self.planner.state.fencing.failed(uid, self._clock())

    def settle(self) -> bool:
        """Have settled all Bindings that may still be written, whoever sent them; whether there is none."""
        return self.planner.state.fencing.want() and not self.planner.state.sent

    def told(self, uid: PodUid, text: str, why: Hashable, base: str, version: str) -> None:
        """A condition was written: version *base* was replaced by *version*, which counts as seen."""
        entry = self.life.get(uid)
        if entry is None:
            return
        self.planner.told(entry, Told(text=text, at_s=self._clock(), why=why))
        if entry.version == base and entry.stage not in UNSETTLED:
            self.life.moved_on(entry, version)
            self._note(uid, version)

    def cleared(self, uid: PodUid, *, done: bool) -> None:
        """What no device plugin is to go by was cleared on a pod, or (not *done*) could not be."""
        if done:
            self.handoff.cleaned(uid, self._clock())
        else:
            self.handoff.not_cleaned(uid)

    # ------------------------------------------------------------------ keeping

    def configure(self, tables: Tables, settings: Settings) -> Iterator[None]:
        """Judge everything anew under another configuration. Yields where others may read, but nobody may decide."""
        yield from self.planner.configure(tables, settings)
        self.groups.govern(VOLCANO.name in settings.scheduler_names, settings.groups, settings.network_tiers)
        nothing_sent = [entry for entry in self.life if entry.stage not in UNSETTLED]
        for at, entry in enumerate(nothing_sent, start=1):
            self._guarded(self._reread, entry)
            if at % SLICE == 0:
                yield
        for at, pod in enumerate(list(self.carded.values()), start=1):
            if self.planner.search.learns:
                self.planner.search.learn_of(pod)
            holding = self.ledger.holding(pod.uid)
            if holding is not None:  # resources may have other names, and other units
                self.planner.promises.book(pod, holding.dialect, holding.assignment, holding.amounts)
            if at % SLICE == 0:
                yield
        for at, pod in enumerate(self.pending.named(), start=1):
            self._observe(pod)
            self._guarded(self.pending.changed, pod)
            if at % SLICE == 0:
                yield
        self.wakes.hear_of_all()

    def _reread(self, entry: Entry) -> None:
        if entry.pod.scheduler_name not in self.planner.settings.scheduler_names:
            self.pending.drop(entry, entry.pod)
        else:
            self.planner.promises.take_back(entry)
            self.pending.read(entry)

    def _guarded(self, step: Callable[[_T], None], what: _T) -> None:
        """One step of many, of which the others go on."""
        try:
            step(what)
        except UndefinedEventError as e:
            self.mistrust(e)

    def mistrust(self, error: UndefinedEventError) -> None:
        """A pod is not what it was thought to be: have it read, and go on with all others.

        Raises:
            UndefinedEventError: this owner is strict.
        """
        if self._strict:
            raise error
        self._metrics.undefined_events.inc()
        entry = self.life.get(error.uid)
        if entry is not None:
            self.outcomes.mistrust(entry)
