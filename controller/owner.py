"""Takes what the mirror shows and what calls answered, and keeps ledger, queue and hand-off true to it.

Everything here is synchronous and belongs to one task. What needs the outside is a deed, which `act` performs, and its
outcome comes back as a call. No decision is taken on a pod of which something was written and not yet settled.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from controller import plan
from controller.changes import asks_the_same, holds_the_same
from controller.deeds import Announce, Clear, Lock, ReadGroup, ReadPod, Subject, Target
from controller.documents import Documents, Place
from controller.groups import BELIEVED_S, Groups
from controller.metrics import Metrics
from controller.planner import Planner
from controller.queue import UNSETTLED, Entry, Stage
from core.catalog import Catalog
from core.decide import still_fits
from core.model import Node, NodeName, Pod, PodUid
from core.port import Complaint, LockStep, LockWait
from core.settings import DialectName, Settings, Tables
from core.wire.config_maps import ConfigMap

_SLICE: Final = 32
# The API server ends a Binding 5 s after it has received it; after this it will not be written any more.
_BINDING_ENDS_S: Final = 7.0
_FIRST_REST_S: Final = 0.25
_LAST_REST_S: Final = 60.0
# A lock that goes is told by its node; this is for what nobody tells.
_LOCK_REST_S: Final = 30.0
# Who waits no longer than this need not be told.
_SHORT_S: Final = 2.0


class Owner:
    """All that one controller knows.

    Attributes:
        planner: decides, and holds ledger, queue and hand-off.
        carded: bound pods with cards, as they were when they were last counted.
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
    ) -> None:
        self.planner: Final = Planner(
            catalog, tables, settings, metrics=metrics, clock=clock, wall=wall, read=self._read
        )
        self.ledger: Final = self.planner.ledger
        self.queue: Final = self.planner.queue
        self.handoff: Final = self.planner.handoff
        self.refusals: Final = self.planner.refusals
        self.carded: Final[dict[PodUid, Pod]] = {}
        self._catalog: Final = catalog
        self._metrics: Final = metrics
        self._clock: Final = clock
        self._wall: Final = wall
        self._seen: Final[dict[PodUid, str]] = {}
        self._complaints: Final[dict[NodeName, tuple[Complaint, ...]]] = {}
        self._groups: Final = Groups()
        self._documents: Final = Documents()
        # Nodes whose lock is being put right, and whether to look again after that.
        self._tending: Final[dict[tuple[NodeName, DialectName], bool]] = {}
        # Node -> pods that rest because it is locked for another.
        self._locked_out: Final[dict[NodeName, dict[PodUid, None]]] = {}

    # ------------------------------------------------------------------ nodes

    def nodes_replaced(self, nodes: Sequence[Node]) -> Iterator[None]:
        """These nodes, and no others, exist. Yields where others may have their turn."""
        for at, node in enumerate(nodes):
            self.node_changed(node)
            if at % _SLICE == 0:
                self.planner.keep_up()
                yield
        names = {node.name for node in nodes}
        for at, name in enumerate([name for name in self.ledger.states if name not in names]):
            self.node_gone(name)
            if at % _SLICE == 0:
                yield

    def node_changed(self, node: Node) -> None:
        """A node appeared or changed."""
        old = self.ledger.node(node.name)
        if old is not None and old.resource_version == node.resource_version and old.resource_version:
            return
        documents = self._documents.of(node.name)
        self._set_node(replace(node, documents=documents) if documents else node)

    def _set_node(self, node: Node) -> None:
        before = self.ledger.node(node.name)
        changed = self.ledger.set_node(node)
        if before is None or before.annotations != node.annotations:
            self._tend(node.name)
            if before is not None:
                self._let_in(node.name)
        if not changed:
            return
        self.refusals.note_free()
        complaints = self.ledger.states[node.name].complaints
        if complaints != self._complaints.get(node.name, ()):
            self._complain(node, complaints)

    def _complain(self, node: Node, complaints: tuple[Complaint, ...]) -> None:
        known = self._complaints.pop(node.name, ())
        if complaints:
            self._complaints[node.name] = complaints
        about = Subject(kind="Node", name=node.name, uid=node.uid)
        for one in complaints:
            if one not in known:
                message = f"{one.dialect}: {one.field}: {one.problem}; nothing new is placed there until this is mended"
                self.planner.deeds.append(Announce(about=about, reason="CardsUnusable", message=message))

    def documents_replaced(self, place: Place, maps: Sequence[ConfigMap]) -> Iterator[None]:
        """These ConfigMaps that speak of nodes, and no others, are at *place*."""
        return self._tell_nodes(self._documents.replace(place, maps))

    def documents_changed(self, place: Place, found: ConfigMap, *, gone: bool = False) -> Iterator[None]:
        """A ConfigMap that speaks of nodes appeared, changed, or is *gone*."""
        return self._tell_nodes(self._documents.change(place, found, gone=gone))

    def _tell_nodes(self, changed: set[NodeName]) -> Iterator[None]:
        for at, name in enumerate(changed):
            node = self.ledger.node(name)
            if node is not None:
                self._set_node(replace(node, documents=self._documents.of(name)))
            if at % _SLICE == 0:
                yield

    def node_gone(self, name: NodeName) -> None:
        """A node is deleted."""
        self.ledger.remove_node(name)
        self.handoff.node_gone(name)
        self._complaints.pop(name, None)

    @property
    def complaints(self) -> dict[NodeName, tuple[Complaint, ...]]:
        """What is wrong with the nodes set aside, wholly or in part."""
        return self._complaints

    # ------------------------------------------------------------------ pods

    def pods_replaced(self, pods: Sequence[Pod]) -> Iterator[None]:
        """These pods, and no others, exist. Yields where others may have their turn."""
        for at, pod in enumerate(pods):
            self.pod_changed(pod)
            if at % _SLICE == 0:
                self.planner.keep_up()
                yield
        uids = {pod.uid for pod in pods}
        yield
        for at, uid in enumerate([uid for uid in self._seen if uid not in uids]):
            self.pod_gone(uid)
            if at % _SLICE == 0:
                yield

    def pod_changed(self, pod: Pod) -> None:
        """A pod appeared or changed; told twice, it is nothing."""
        if self._seen.get(pod.uid) == pod.resource_version:
            return
        self._seen[pod.uid] = pod.resource_version
        cleanup = self.handoff.observe(pod, self._clock())
        if cleanup is not None:
            self.planner.deeds.append(Clear(pod=_target(pod), annotations=dict(cleanup.annotations)))
        if pod.node_name:
            self._bound_pod(pod)
            self._tend(NodeName(pod.node_name))
        else:
            self._pending_pod(pod)

    def pod_gone(self, uid: PodUid) -> None:
        """A pod's object does not exist any more: all that it held is free."""
        self._seen.pop(uid, None)
        self.carded.pop(uid, None)
        self._forget_entry(uid)
        node = self.handoff.node_of(uid) or self.ledger.node_of(uid)
        self.handoff.forget(uid, self._clock())
        if self.ledger.release(uid):
            self.refusals.note_free()
        if node is not None:
            self._tend(node)

    def _bound_pod(self, pod: Pod) -> None:
        entry = self._forget_entry(pod.uid)
        if entry is not None:
            self.handoff.leave(pod.uid)
            if pod.created_s:
                self._metrics.create_to_bound_s.observe(max(self._wall() - pod.created_s, 0.0))
        known = self.carded.get(pod.uid)
        if known is not None and entry is None and holds_the_same(known, pod):
            return
        if pod.finished:
            self.carded.pop(pod.uid, None)
            if self.ledger.release(pod.uid):
                self.refusals.note_free()
            return
        before = self.ledger.holding(pod.uid)
        self.ledger.count(pod)
        after = self.ledger.holding(pod.uid)
        if after is None or after.dialect is None:
            self.carded.pop(pod.uid, None)
            if before is not None and before.dialect is not None:
                self.refusals.note_free()
            return
        self.carded[pod.uid] = pod
        if before is not None and before != after:
            self.refusals.note_free()
        self._warn_of(pod, after.closes if before is None or before.closes != after.closes else "")

    def _warn_of(self, pod: Pod, closes: str) -> None:
        if pod.node_name not in self.ledger.states:
            message = (
                f"is bound to node {pod.node_name}, which does not exist; its cards are counted nowhere; "
                "delete the pod, or bring the node back"
            )
            self.planner.deeds.append(Announce(about=_about(pod), reason="NodeMissing", message=message))
        if closes:
            message = f"node {pod.node_name} takes no new shares while this pod is there: {closes}"
            self.planner.deeds.append(Announce(about=_about(pod), reason="CardsClosed", message=message))

    def _pending_pod(self, pod: Pod) -> None:
        entry = self.queue.get(pod.uid)
        if entry is None:
            if self._is_ours(pod):
                told = pod.scheduled_message if pod.scheduled_reason == "Unschedulable" else ""
                entry = Entry(pod=pod, version=pod.resource_version, told=told, told_s=self._clock())
                self._read(entry)
            return
        if entry.stage in UNSETTLED:
            return  # its Binding names the version it was decided from: the API server refuses it if that matters
        if self._is_ours(pod) and asks_the_same(entry.pod, pod):
            entry.pod, entry.version = pod, pod.resource_version
        else:
            entry.failures = 0
            self._reconsider(entry, pod)

    def _reconsider(self, entry: Entry, pod: Pod) -> None:
        """Decide a pod anew, as it is now; or let it go, if it is not to be decided any more."""
        if not self._is_ours(pod):
            self._drop(entry)
            return
        self.planner.take_back(entry)
        entry.pod, entry.version = pod, pod.resource_version
        self._read(entry)

    def _is_ours(self, pod: Pod) -> bool:
        mine = pod.scheduler_name in self.planner.settings.scheduler_names
        return mine and not (pod.finished or pod.deleting or pod.gated)

    def _read(self, entry: Entry) -> None:
        """Read what the pod asks and put it where that leads."""
        wish = plan.read_wish(entry.pod, self.ledger)
        if isinstance(wish, plan.Waits):
            entry.shape, entry.held = None, wish.text
            self.queue.hold(entry)
            self.planner.untold[entry.pod.uid] = None
            return
        group = plan.group_name(entry.pod)
        if group and not self._is_single(entry, group):
            return
        entry.shape, entry.held = wish, ""
        delay_s = self._rest_s(entry)
        if delay_s:
            self.queue.rest(entry, self._clock() + delay_s)
        else:
            self.queue.ready(entry)

    # ------------------------------------------------------------------ groups

    def _is_single(self, entry: Entry, group: str) -> bool:
        """Whether the pod's group lets it be placed alone; if not, it is put where it waits."""
        key = (entry.pod.namespace, group)
        now_s = self._clock()
        text = self._groups.text(key, now_s)
        if text == "":
            return True
        entry.shape = None
        if text is None:
            self.queue.hold(entry)
            if self._groups.ask(key, entry.pod.uid):
                self.planner.deeds.append(ReadGroup(namespace=key[0], name=key[1]))
            return False
        entry.held = text
        self.queue.rest(entry, now_s + 2.0 * BELIEVED_S)
        self.planner.untold[entry.pod.uid] = None
        return False

    def group_read(self, namespace: str, name: str, min_member: int | None, problem: str = "") -> None:
        """A PodGroup wants so many members at once; None: there is none of that name, or it cannot be read."""
        for uid in self._groups.take((namespace, name), min_member, problem, self._clock()):
            entry = self.queue.get(uid)
            if entry is not None and entry.stage is Stage.HELD:
                self._read(entry)

    # ------------------------------------------------------------------ locks of nodes

    def lock_step(self, deed: Lock, node: Node, named: Pod | None) -> LockStep | LockWait | None:
        """What is to be written to the lock of *node*, read just now; *named*: the pod that it names, if it exists."""
        entry = self._locking(deed)
        if deed.pod is not None and entry is None:
            return LockWait(reason="")
        return self._step(deed.dialect, node, entry.pod if entry is not None else None, named)

    def lock_owner(self, deed: Lock, node: Node) -> str:
        """namespace/name of the pod that the lock of *node* names, or ""."""
        lock = self.planner.locks.of(deed.dialect)
        return lock.lock_owner(node) if lock is not None else ""

    def lock_written(self, deed: Lock, step: LockStep) -> None:
        """*step* was written to the node."""
        self.planner.locks.written(deed.dialect, deed.node, step)

    def locked(self, deed: Lock) -> None:
        """The node is locked for the pod, or its lock is as it should be."""
        if deed.pod is None:
            if self._tending.pop((deed.node, deed.dialect), False):
                self._tend(deed.node)
            return
        entry = self._locking(deed)
        if entry is None or entry.placement is None:
            self.planner.bindings -= 1
            self._tend(deed.node)
        else:
            self.planner.bind(entry, entry.placement)

    def not_locked(self, deed: Lock, reason: str, rest_s: float = _LOCK_REST_S) -> None:
        """The node is locked for another, or cannot be locked: the pod is judged again when that changes."""
        if deed.pod is None:
            self._tending.pop((deed.node, deed.dialect), None)
            return
        self.planner.bindings -= 1
        entry = self._locking(deed)
        if entry is None or entry.shape is None:
            self._tend(deed.node)
            return
        self._withdraw(entry)
        self.planner.take_back(entry)
        self.handoff.crowd(deed.node, self.planner.keys(entry.shape))
        entry.held = f"has its place on {deed.node} and waits: {reason}"
        if rest_s > _SHORT_S:
            self.planner.untold[entry.pod.uid] = None
        self._locked_out.setdefault(deed.node, {})[entry.pod.uid] = None
        self.queue.rest(entry, self._clock() + min(max(rest_s, _FIRST_REST_S), _LOCK_REST_S))

    def _locking(self, deed: Lock) -> Entry | None:
        """The entry for which *deed* still is."""
        entry = self.queue.get(deed.pod.uid) if deed.pod is not None else None
        if entry is None or entry.attempt != deed.attempt or entry.stage is not Stage.LOCKING:
            return None
        return entry

    def _step(self, name: DialectName, node: Node, wanted: Pod | None, named: Pod | None) -> LockStep | LockWait | None:
        lock = self.planner.locks.of(name)
        if lock is None:
            return None
        pods: dict[PodUid, Pod] = {}
        for uid, seen in self.handoff.flights(node.name):
            entry = self.queue.get(uid)
            pod = seen if seen is not None else entry.pod if entry is not None else None
            if pod is not None:
                pods[uid] = pod
        if named is not None and (named.node_name == node.name or not (named.node_name or self._is_ours(named))):
            pods.setdefault(named.uid, named)
        return lock.lock(node, list(pods.values()), int(self._wall()), self.ledger.tables, wanted)

    def _tend(self, name: NodeName) -> None:
        """Have the locks of a node put right, if anything is wrong with them."""
        state, node = self.ledger.states.get(name), self.ledger.node(name)
        if state is None or node is None:
            return
        for dialect in self.planner.locks.among(state.offers):
            if (name, dialect) in self._tending:
                self._tending[name, dialect] = True
            elif isinstance(self._step(dialect, node, None, None), LockStep):
                self._tending[name, dialect] = False
                self.planner.deeds.append(Lock(node=name, dialect=dialect))

    def _let_in(self, name: NodeName) -> None:
        """A node's lock may have changed: whoever waits for it is judged again."""
        waiting = self._locked_out.pop(name, None)
        if waiting is None:
            return
        self.handoff.uncrowd(name)
        for uid in waiting:
            entry = self.queue.get(uid)
            if entry is not None and entry.stage is Stage.RESTING:
                self.queue.ready(entry)

    def _withdraw(self, entry: Entry) -> None:
        """The pod's Binding was certainly not written: neither its plugin nor a lock is to wait for it."""
        node = entry.placement.node if entry.placement is not None else None
        self.handoff.withdraw(entry.pod.uid, self._clock())
        if node is not None:
            self._tend(node)

    # ------------------------------------------------------------------ what calls answered

    def bound(self, uid: PodUid, attempt: int) -> None:
        """The Binding was written."""
        entry = self._answered(uid, attempt)
        if entry is not None:
            entry.failures = 0
            self.queue.set(entry, Stage.BOUND)

    def refused(self, uid: PodUid, attempt: int, *, read: bool, rest_s: float = 0.0, text: str = "") -> None:
        """The Binding was certainly not written: what was reserved is free.

        Args:
            uid: the pod.
            attempt: which of its Bindings.
            read: the pod is not as it was thought to be; it is read before it is decided again.
            rest_s: for how long to leave it alone, at least.
            text: what to tell the user, if trying again will not help.
        """
        entry = self._answered(uid, attempt)
        if entry is None:
            return
        self._withdraw(entry)
        self.planner.take_back(entry)
        entry.failures += 1
        if read:
            self.queue.set(entry, Stage.READING)
            self.planner.deeds.append(ReadPod(pod=_target(entry.pod), delay_s=self._rest_s(entry)))
            return
        if text:
            entry.held = text
            self.planner.untold[uid] = None
        self.queue.rest(entry, self._clock() + max(rest_s, self._rest_s(entry)))

    def unsure(self, uid: PodUid, attempt: int) -> None:
        """The Binding was perhaps written: everything stays reserved until the pod is read."""
        entry = self._answered(uid, attempt)
        if entry is None:
            return
        entry.failures += 1
        self.queue.set(entry, Stage.UNSURE)
        self.planner.deeds.append(ReadPod(pod=_target(entry.pod), delay_s=max(self._rest_s(entry), _FIRST_REST_S)))

    def _answered(self, uid: PodUid, attempt: int) -> Entry | None:
        """The entry that still waits for this answer; None if the mirror was faster, or the pod is gone."""
        self.planner.bindings -= 1
        entry = self.queue.get(uid)
        if entry is None or entry.attempt != attempt or entry.stage is not Stage.BINDING:
            return None
        return entry

    def pod_read(self, uid: PodUid, pod: Pod | None) -> None:
        """What a pod is now, read from the API server itself; None: it does not exist."""
        if pod is None or pod.uid != uid:
            self.pod_gone(uid)
            return
        entry = self.queue.get(uid)
        if entry is None or entry.stage not in (Stage.UNSURE, Stage.READING):
            return  # the mirror has settled it meanwhile
        if pod.node_name:
            self.pod_changed(pod)
            return
        if entry.stage is Stage.UNSURE and self._pursue(entry, pod):
            return
        self._withdraw(entry)
        self._seen[uid] = pod.resource_version
        self._reconsider(entry, pod)

    def _pursue(self, entry: Entry, pod: Pod) -> bool:
        """Go on with a Binding that may have been written; False once it certainly was not, and will not be.

        To send the same again is safe whatever became of the first: the pod is promised nothing else.
        """
        shape, placement = entry.shape, entry.placement
        same = self._is_ours(pod) and asks_the_same(entry.pod, pod)
        if same and shape and placement and still_fits(self.ledger, self.planner.policy, shape, placement):
            entry.pod, entry.version = pod, pod.resource_version
            self.planner.send(entry, placement, self.planner.keys(shape), again=True)
            return True
        if self._clock() >= self.planner.sent_s.get(pod.uid, 0.0) + _BINDING_ENDS_S:
            return False
        self.planner.deeds.append(ReadPod(pod=_target(pod), delay_s=1.0))
        return True

    def told(self, uid: PodUid, text: str, why: Hashable, base: str, version: str) -> None:
        """A condition was written: version *base* was replaced by *version*, which counts as seen."""
        entry = self.queue.get(uid)
        if entry is None:
            return
        entry.told, entry.told_why, entry.told_s = text, why, self._clock()
        if entry.version == base and entry.stage not in UNSETTLED:
            entry.version = version
            self._seen[uid] = version

    def cleared(self, uid: PodUid, *, done: bool) -> None:
        """A dead pod's annotations were cleared, or (not *done*) could not be."""
        if done:
            self.handoff.cleaned(uid, self._clock())
        else:
            self.handoff.not_cleaned(uid)

    # ------------------------------------------------------------------ keeping

    def configure(self, tables: Tables, settings: Settings) -> None:
        """Judge everything anew under another configuration."""
        self.planner.configure(tables, settings)
        for entry in [entry for entry in self.queue if entry.stage not in UNSETTLED]:
            if entry.pod.scheduler_name not in settings.scheduler_names:
                self._drop(entry)
            else:
                self.planner.take_back(entry)
                self._read(entry)
        self.refusals.note_free()

    def _rest_s(self, entry: Entry) -> float:
        """How long a pod rests after its failures: not at all after the first, then longer each time."""
        if entry.failures < 2:
            return 0.0
        return float(min(_FIRST_REST_S * 2.0 ** min(entry.failures - 2, 30), _LAST_REST_S))

    def _drop(self, entry: Entry) -> None:
        self.planner.take_back(entry)
        self._forget_entry(entry.pod.uid)

    def _forget_entry(self, uid: PodUid) -> Entry | None:
        self.planner.untold.pop(uid, None)
        self.planner.sent_s.pop(uid, None)
        return self.queue.remove(uid)


def _target(pod: Pod) -> Target:
    return Target(uid=pod.uid, namespace=pod.namespace, name=pod.name)


def _about(pod: Pod) -> Subject:
    return Subject(kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid)
