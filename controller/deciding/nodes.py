"""Nodes as the watch shows them, and the locks around Bindings that some device plugins need on them.

A lock is taken before a Binding, and removed once no pod needs it. `controller.handing_over.locks` has what to write to
it, `act` writes it, and the outcome comes back here. A write without an answer may take effect now or later;
`lifecycle.ATTEMPTS` has the rules that settle it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, Final, TypeVar

from controller.actions import Lock
from controller.deciding.bind import Binder, PluginGate
from controller.deciding.cluster import ClusterState
from controller.deciding.lifecycle import Attempts, AttemptState, ClusterEvent, Entry, EventResource, News, Stage
from controller.deciding.pending import FIRST_REST_S, Pending
from controller.deciding.reserve import Reservations
from controller.documents import Documents
from controller.handing_over.registers import STEADY_S, Flaps, Heartbeats, JoiningNodes, Registers
from controller.handing_over.vanished import Vanished
from core.model import Node, NodeName, Pod, PodUid
from core.port.handoff import LockQuestion, LockStep, LockWait
from core.port.refusals import Complaint
from core.port.spec import ConfigMapPlace
from core.settings import DialectName
from core.waiting import Cause, Wait
from core.wire.config_maps import ConfigMap
from kube.calls import is_newer

_Key = tuple[NodeName, DialectName]

# The watch of nodes shows when a lock is removed; pods are tried again after this in case it does not.
_LOCK_REST_S: Final = 30.0
# Shorter waits are not reported to users.
_SHORT_S: Final = 2.0
_SAID_SPARE: Final = 64


class NodeLocks:
    """The locks of nodes that are being taken or repaired, and the pods that wait for a lock."""

    def __init__(
        self,
        cluster: ClusterState,
        reservations: Reservations,
        pending: Pending,
        binder: Binder,
    ) -> None:
        """Begin with none."""
        self._cluster: Final = cluster
        self._reservations: Final = reservations
        self._pending: Final = pending
        self._binder: Final = binder
        # Locks that are being repaired, and whether to check again after that.
        self._tending: Final[dict[_Key, bool]] = {}
        # The value of each lock, and when this process first saw it, monotonic.
        self._said: Final[dict[_Key, tuple[str, float]]] = {}
        # Writes with an unknown outcome, by lock; all of them name the node version of the attempt.
        self._sent: Final[Attempts[_Key]] = Attempts()
        self._steps: Final[dict[_Key, list[LockStep]]] = {}

    def step(self, action: Lock, node: Node, named: Pod | None) -> LockStep | LockWait | None:
        """Return what to write to the lock of *node*, which was just read; *named*: the pod that the lock names.

        A returned step counts as sent; `written`, `refused` or `lost` must report its outcome.
        """
        entry = self._locking(action)
        if action.pod is not None and entry is None:
            return LockWait(reason="")
        key = node.name, action.dialect
        if node.resource_version != self._sent.version(key):
            self._settle(key, node)
        found = self._step(action.dialect, node, entry.pod if entry is not None else None, named)
        if isinstance(found, LockStep):
            self._send(key, node.resource_version, found)
        return found

    def _send(self, key: _Key, version: str, step: LockStep) -> None:
        if self._sent.state(key) is None:
            self._sent.send(key, version)
        else:  # of the same version, so that this write is the fence of those before it
            self._sent.hear(key, News.READ_OPEN)
        self._steps.setdefault(key, []).append(step)

    def _settle(self, key: _Key, node: Node) -> None:
        """Settle the writes to a lock, now that *node* has another version than they name: at most one took effect."""
        if self._sent.state(key) is not AttemptState.UNKNOWN:
            return
        lock, steps = self._binder.locks.used.get(key[1]), self._steps.pop(key)
        says = node.annotations.get(lock.lock_key) if lock is not None else None
        ours = next((step for step in steps if step.value == says), None)
        self._sent.hear(key, News.FOUND if ours is not None else News.PASSED)
        if ours is not None:
            self._binder.locks.written(key[1], node.name, ours)

    def owner_of(self, action: Lock, node: Node) -> str:
        """Return namespace/name of the pod that the lock of *node* names, or ""."""
        lock = self._binder.locks.used.get(action.dialect)
        return lock.lock_owner(node) if lock is not None else ""

    def written(self, action: Lock, step: LockStep) -> None:
        """Record that *step* was written to the node, so that no earlier step can be written any more."""
        key = action.node, action.dialect
        self._sent.hear(key, News.ACCEPTED if self._sent.state(key) is AttemptState.SENT else News.PASSED)
        self._steps.pop(key, None)
        self._binder.locks.written(action.dialect, action.node, step)

    def refused(self, action: Lock) -> None:
        """Record that the last step was certainly not written."""
        key = action.node, action.dialect
        self._steps[key].pop()
        if (
            self._sent.hear(key, News.REFUSED if self._sent.state(key) is AttemptState.SENT else News.LOST)
            is AttemptState.DEAD
        ):
            del self._steps[key]

    def lost(self, action: Lock) -> None:
        """Record that the last step may have been written."""
        self._sent.hear((action.node, action.dialect), News.LOST)
        # The node may have been seen to change before the answer was lost.
        self.tend(action.node)

    def gone(self, name: NodeName) -> None:
        """A node is deleted, and its locks with it."""
        for key in [key for key in self._steps if key[0] == name and self._sent.state(key) is AttemptState.UNKNOWN]:
            self._sent.close(key)
            del self._steps[key]

    def locked(self, action: Lock) -> None:
        """Send the pod's Binding, now that its node is locked; or end the repair of a lock."""
        if action.pod is None:
            if self._tending.pop((action.node, action.dialect), False):
                self.tend(action.node)
            return
        entry = self._locking(action)
        if entry is None or entry.placement is None:
            self.tend(action.node)
        elif entry.newest is not None or not self._pending.is_ours(entry.pod) or not self._stands(entry, action):
            # The pod or its cards have changed, or another scheduler places it now.
            self.withdraw(entry)
            self._reservations.release(entry)
            self._pending.settled(entry)
        else:
            self._binder.bind(entry, entry.placement)

    def _stands(self, entry: Entry, action: Lock) -> bool:
        """Return whether the node, which may have changed while it was being locked, still takes the pod.

        Promises to other pods in the meantime do not count, or the pod might change its cards endlessly.
        """
        ledger, placement, shape = self._cluster.ledger, entry.placement, entry.shape
        state = ledger.states.get(action.node)
        if state is None or placement is None or shape is None:
            return False
        is_same = state.facts is action.facts and ledger.offered(action.node) is action.offers
        if is_same and action.dialect not in state.closed:
            return True
        return self._cluster.search.still_fits(shape, placement)

    def not_locked(self, action: Lock, reason: str, rest_s: float = _LOCK_REST_S) -> None:
        """Let the pod wait until its node's lock changes, because the node cannot be locked now."""
        if action.pod is None:
            self._tending.pop((action.node, action.dialect), None)
            return
        entry = self._locking(action)
        if entry is None or entry.shape is None:
            self.tend(action.node)
            return
        self.withdraw(entry)
        self._reservations.release(entry)
        self._cluster.handoff.long_lines.add(action.node, self._cluster.collision_key(entry.shape), inf)
        wait = Wait(Cause.NODE_LOCKED, f"has its place on {action.node} and waits: {reason}")
        self._pending.settled(
            entry, rest_s=min(max(rest_s, FIRST_REST_S), _LOCK_REST_S), wait=wait, reports=rest_s > _SHORT_S
        )
        if entry.stage is Stage.RESTING:
            self._cluster.requeue.wait_for(entry.pod.uid, ClusterEvent(EventResource.LOCK, action.node))

    def _locking(self, action: Lock) -> Entry | None:
        entry = self._cluster.queue.get(action.pod.uid) if action.pod is not None else None
        if entry is None or entry.attempt != action.attempt or entry.stage is not Stage.LOCKING:
            return None
        return entry

    def _step(self, name: DialectName, node: Node, wanted: Pod | None, named: Pod | None) -> LockStep | LockWait | None:
        lock = self._binder.locks.used.get(name)
        if lock is None:
            return None
        pods: dict[PodUid, Pod] = {}
        for uid, seen in self._cluster.handoff.flights(node.name):
            entry = self._cluster.queue.get(uid)
            pod = seen if seen is not None else entry.pod if entry is not None else None
            if pod is not None:
                pods[uid] = pod
        if named is not None and (
            named.node_name == node.name or not (named.node_name or self._pending.is_ours(named))
        ):
            pods.setdefault(named.uid, named)
        on_node = self._cluster.ledger.holders(node.name) if wanted is not None else ()
        carded = self._cluster.carded
        served = [carded[uid] for uid in on_node if uid in carded and uid not in pods]
        now_s, tables = int(self._cluster.wall()), self._cluster.ledger.tables
        seen_s = now_s - self._seen_for_s(name, node.name, node.annotations.get(lock.lock_key))
        releasing = self._cluster.handoff.releases.pods(node.name)
        asked = LockQuestion(list(pods.values()), now_s, tables, wanted, seen_s, served, releasing)
        return lock.lock(node, asked)

    def _seen_for_s(self, name: DialectName, node: NodeName, text: str | None) -> int:
        """Return for how long this process has seen the lock of *node* with value *text*, in seconds."""
        key = (node, name)
        if text is None:
            self._said.pop(key, None)
            return 0
        if len(self._said) > 2 * len(self._cluster.ledger.states) + _SAID_SPARE:
            for gone in [one for one in self._said if one[0] not in self._cluster.ledger.states]:
                del self._said[gone]
        said, since_s = self._said.get(key, ("", 0.0))
        if said != text:
            since_s = self._cluster.clock()
            self._said[key] = (text, since_s)
        return int(self._cluster.clock() - since_s)

    def tend(self, name: NodeName) -> None:
        """Request the repair of a node's locks, if any is wrong."""
        state, node = self._cluster.ledger.states.get(name), self._cluster.ledger.node(name)
        if state is None or node is None:
            return
        for dialect, lock in self._binder.locks.among(state.offers).items():
            if lock.lock_key not in node.annotations:
                self._cluster.handoff.unlocked(name, dialect)
            if is_newer(node.resource_version, self._sent.version((name, dialect))):
                self._settle((name, dialect), node)
            if (name, dialect) in self._tending:
                self._tending[name, dialect] = True
            elif isinstance(self._step(dialect, node, None, None), LockStep):
                self._tending[name, dialect] = False
                self._cluster.actions.append(Lock(node=name, dialect=dialect))

    def next_s(self) -> float:
        """Return when the next plugin must have given up removing its lock, monotonic."""
        return self._cluster.handoff.releases.next_s()

    def look(self, now_s: float) -> None:
        """Remove locks that plugins have left behind."""
        for node in self._cluster.handoff.gave_up(now_s):
            self.tend(node)
            self.let_in(node)

    def let_in(self, name: NodeName) -> None:
        """Queue the pods that wait for a lock of the node, which may have changed."""
        waiting = self._cluster.requeue.happened(ClusterEvent(EventResource.LOCK, name))
        if not waiting:
            return
        self._cluster.handoff.long_lines.forget(name)
        for uid in waiting:
            entry = self._cluster.queue.get(uid)
            if entry is not None and entry.stage is Stage.RESTING:
                self._cluster.queue.ready(entry)

    def withdraw(self, entry: Entry) -> None:
        """Take the pod out of flight, because its Binding was certainly not written, and repair its node's lock."""
        node = entry.placement.node if entry.placement is not None else None
        self._cluster.handoff.withdraw(entry.pod.uid, self._cluster.clock())
        if node is not None:
            self.tend(node)


# The number of items after which other tasks run.
SLICE: Final = 32
_LOOK_S: Final = 5.0


_T = TypeVar("_T")


def sliced(step: Callable[[_T], None], items: Iterable[_T]) -> Iterator[None]:
    """Call *step* for each of *items*; yields between slices."""
    for at, one in enumerate(items):
        step(one)
        if at % SLICE == 0:
            yield


class Nodes:
    """Updates the ledger's nodes from the watch, and with what is known besides; a chore.

    Attributes:
        complaints: why nodes are set aside, for all dialects or some.
        flaps: cards that repeatedly become unhealthy.
    """

    def __init__(self, cluster: ClusterState, locks: NodeLocks, vanished: Vanished, gate: PluginGate) -> None:
        self.complaints: Final[dict[NodeName, tuple[Complaint, ...]]] = {}
        self.flaps: Final = Flaps()
        self._cluster: Final = cluster
        self._locks: Final = locks
        self._vanished: Final = vanished
        self._gate: Final = gate
        catalog = cluster.ledger.catalog
        self._documents: Final = Documents(catalog)
        self._heartbeats: Final = Heartbeats(catalog, cluster.handoff.set_blind)
        self._joining: Final = JoiningNodes(cluster.ledger, cluster.wall)
        self._registers: Final = Registers(catalog, self._tell_alternating)
        self._looked_s = cluster.clock()
        # The cards of each node that were ever healthy, by dialect.
        self._known: Final[dict[NodeName, dict[DialectName, frozenset[str]]]] = {}

    def replaced(self, nodes: Sequence[Node]) -> Iterator[None]:
        """Replace all nodes; yields between slices."""
        for _ in sliced(self.changed, nodes):
            self._cluster.search.keep_up()
            yield
        names = {node.name for node in nodes}
        yield from sliced(self.gone, [name for name in self._cluster.ledger.states if name not in names])

    def changed(self, node: Node) -> None:
        """A node appeared or changed."""
        old = self._cluster.ledger.node(node.name)
        if old is not None and old.resource_version == node.resource_version and old.resource_version:
            return
        self._set_node(self._as_it_counts(node))

    def _as_it_counts(self, node: Node) -> Node:
        """Return *node* as it counts: with documents about it, older registers, and the state of its plugins."""
        now_s = self._cluster.clock()
        documents = self._documents.of(node.name)
        node = self._joining.shown(self._heartbeats.shown(self._registers.shown(node, now_s), now_s), now_s)
        unserved = self._cluster.handoff.plugins.unserved(node.name)
        if documents or unserved:
            node = replace(node, documents=documents or node.documents, unserved=unserved)
        return node

    def _change(self, name: NodeName, **changes: Any) -> None:
        """Read a known node again, because something besides its object has changed."""
        node = self._cluster.ledger.node(name)
        if node is not None:
            self._set_node(replace(node, **changes))

    def next_s(self) -> float:
        """Return when to look next, monotonic; at once, if a plugin is back."""
        return -inf if self._cluster.handoff.plugins.returned else self._looked_s + _LOOK_S

    def look(self, now_s: float) -> None:
        """Read nodes again for which time matters: stale heartbeats, settled registers, cards that stayed healthy."""
        self._looked_s = now_s
        for name in self.flaps.end(now_s):
            self._cluster.ledger.keep_out(name, self.flaps.unsteady(name))
        for node in self._registers.steady(now_s):
            self._set_node(self._as_it_counts(node))
        for node in (*self._heartbeats.stale(self._cluster.ledger.node, now_s), *self._joining.settled(now_s)):
            self._set_node(node)
        plugins = self._cluster.handoff.plugins
        for name in (*plugins.look(now_s), *plugins.returned):
            self._change(name, unserved=plugins.unserved(name))
        plugins.returned.clear()

    def _set_node(self, node: Node) -> None:
        before = self._cluster.ledger.node(node.name)
        offers = self._cluster.ledger.offered(node.name) if before is not None else {}
        changed = self._cluster.ledger.set_node(node)
        if changed:
            self._joining.counted(node.name)
            self._came_back(node.name, offers)
        with_cards = [which for which, cards in self._cluster.ledger.offered(node.name).items() if cards]
        self._cluster.handoff.plugins.needed(node.name, with_cards, self._cluster.clock())
        if before is None:
            self._vanished.returned(node.name, self._cluster.clock())
        if before is None or before.annotations != node.annotations:
            self._locks.tend(node.name)
            if before is not None:
                self._locks.let_in(node.name)
        if not changed:
            return
        self._gate.judge(node.name)
        complaints = self._cluster.ledger.states[node.name].complaints
        if complaints != self.complaints.get(node.name, ()):
            self._complain(node, complaints)

    def _well(self, offers: Mapping[DialectName, tuple[Any, ...]]) -> dict[DialectName, frozenset[str]]:
        """Return the healthy cards of *offers* by dialect: their names, or their positions if they have none."""
        found = {}
        for which, cards in offers.items():
            well = self._cluster.ledger.catalog.dialects[which].well(cards)
            found[which] = frozenset(str(at) for at in range(len(cards))) if well is None else well
        return found

    def _came_back(self, name: NodeName, offers: Mapping[DialectName, tuple[Any, ...]]) -> None:
        """Let a node rest for dialects whose cards came back, because then the plugin has restarted.

        *offers*: its cards before. If only some of them came back and cards have names, these cards may be kept out.
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
        told = f"{one.dialect}: {one.field}: {one.problem}"
        if not one.closes:
            self._cluster.announce_node(name, "CordonIgnored", told)
            return
        message = f"{told}; nothing new is placed there until this is repaired"
        self._cluster.announce_node(name, "CardsUnusable", message)

    def _tell_alternating(self, node: Node, dialect: DialectName) -> None:
        message = (
            f"{dialect}: restart the device plugin's pod on this node: the plugin alternates between two registers, "
            f"and the smaller figures of each card count until one register has stayed for {STEADY_S / 60:.0f} minutes"
        )
        self._cluster.announce_node(node.name, "RegisterAlternates", message)

    def announce_anew(self) -> None:
        """Report all complaints, including those that were reported before."""
        for name, complaints in self.complaints.items():
            for one in complaints:
                self._announce(name, one)

    def documents_replaced(self, place: ConfigMapPlace, maps: Sequence[ConfigMap]) -> Iterator[None]:
        """Replace all ConfigMaps about nodes at *place*."""
        return sliced(self._documents_changed, self._documents.replace(place, maps))

    def documents_changed(self, place: ConfigMapPlace, found: ConfigMap, *, gone: bool = False) -> Iterator[None]:
        """Take a ConfigMap about nodes that is new, changed, or *gone*."""
        return sliced(self._documents_changed, self._documents.change(place, found, gone=gone))

    def _documents_changed(self, name: NodeName) -> None:
        self._change(name, documents=self._documents.of(name))

    def gone(self, name: NodeName) -> None:
        """A node is deleted."""
        self._joining.leaves(name)
        self._cluster.search.kinds.leaves(name)
        if self._cluster.ledger.remove_node(name):
            self._cluster.requeue.tell_anew()
            self._gate.judge(name)
        if name in self._cluster.handoff.unwatched:
            self._vanished.absent(name, self._cluster.clock())
        self._cluster.handoff.node_gone(name)
        self._locks.gone(name)
        self._heartbeats.forget(name)
        self._registers.forget(name)
        self._known.pop(name, None)
        self.flaps.forget(name)
        self.complaints.pop(name, None)
