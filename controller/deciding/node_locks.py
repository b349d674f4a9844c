"""The locks of nodes, as some device plugins want them: taken before a Binding, and put right when nobody needs them.

What is to be written to a lock is the dialect's to say (`locks`); `act` writes it, and its outcome comes back here.
What was sent and not answered may be on the node now or later: the rules by which that is settled are in `settling`.
"""

from collections.abc import Callable, Mapping
from math import inf
from typing import Final

from controller.actions import Lock
from controller.deciding.lifecycle import Entry, Stage
from controller.deciding.pending import FIRST_REST_S, Pending
from controller.deciding.planner import Planner
from controller.deciding.settling import Attempts, News, State
from controller.deciding.wake import Happening, What
from core.model import Node, NodeName, Pod, PodUid
from core.placing.decide import still_fits
from core.port.handoff import LockStep, LockWait
from core.settings import DialectName
from core.waiting import Cause, Wait
from kube.versions import is_newer

_Key = tuple[NodeName, DialectName]

# A lock that goes is told by its node; this is for what nobody tells.
_LOCK_REST_S: Final = 30.0
# Who waits no longer than this need not be told.
_SHORT_S: Final = 2.0
_SAID_SPARE: Final = 64


class NodeLocks:
    """Which nodes are being locked or unlocked, and which pods wait for that."""

    def __init__(
        self,
        planner: Planner,
        pending: Pending,
        carded: Mapping[PodUid, Pod],
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        """Begin; carded: bound pods with cards, as they were last seen."""
        self._planner: Final = planner
        self._pending: Final = pending
        self._carded: Final = carded
        self._clock: Final = clock
        self._wall: Final = wall
        # Nodes whose lock is being put right, and whether to look again after that.
        self._tending: Final[dict[_Key, bool]] = {}
        # What each lock says, and since when we have seen it say so, monotonic.
        self._said: Final[dict[_Key, tuple[str, float]]] = {}
        # What was sent and may be written, by lock; all of it names the version of the node that the attempt names.
        self._sent: Final[Attempts[_Key]] = Attempts()
        self._steps: Final[dict[_Key, list[LockStep]]] = {}

    def step(self, action: Lock, node: Node, named: Pod | None) -> LockStep | LockWait | None:
        """What is to be written to the lock of *node*, read just now; *named*: the pod that it names, if it exists.

        A step counts as sent; what became of it is told by `written`, `refused` or `lost`.
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
        """*node* is in another version than what was sent to its lock names: one of that was written, or nothing."""
        if self._sent.state(key) is not State.UNKNOWN:
            return
        lock, steps = self._planner.promises.locks.of(key[1]), self._steps.pop(key)
        says = node.annotations.get(lock.lock_key) if lock is not None else None
        ours = next((step for step in steps if step.value == says), None)
        self._sent.hear(key, News.FOUND if ours is not None else News.PASSED)
        if ours is not None:
            self._planner.promises.locks.written(key[1], node.name, ours)

    def owner_of(self, action: Lock, node: Node) -> str:
        """namespace/name of the pod that the lock of *node* names, or ""."""
        lock = self._planner.promises.locks.of(action.dialect)
        return lock.lock_owner(node) if lock is not None else ""

    def written(self, action: Lock, step: LockStep) -> None:
        """*step* was written to the node, and nothing that was sent before it can be any more."""
        key = action.node, action.dialect
        self._sent.hear(key, News.ACCEPTED if self._sent.state(key) is State.SENT else News.PASSED)
        self._steps.pop(key, None)
        self._planner.promises.locks.written(action.dialect, action.node, step)

    def refused(self, action: Lock) -> None:
        """The step that was sent last was certainly not written."""
        key = action.node, action.dialect
        self._steps[key].pop()
        if self._sent.hear(key, News.REFUSED if self._sent.state(key) is State.SENT else News.LOST) is State.DEAD:
            del self._steps[key]

    def lost(self, action: Lock) -> None:
        """The step that was sent last was perhaps written."""
        self._sent.hear((action.node, action.dialect), News.LOST)
        # The node may have been seen to change before the answer was lost.
        self.tend(action.node)

    def gone(self, name: NodeName) -> None:
        """A node is deleted, and its locks with it."""
        for key in [key for key in self._steps if key[0] == name and self._sent.state(key) is State.UNKNOWN]:
            self._sent.close(key)
            del self._steps[key]

    def locked(self, action: Lock) -> None:
        """The node is locked for the pod, or its lock is as it should be."""
        if action.pod is None:
            if self._tending.pop((action.node, action.dialect), False):
                self.tend(action.node)
            return
        entry = self._locking(action)
        if entry is None or entry.placement is None:
            self.tend(action.node)
        elif entry.newest is not None or not self._pending.is_ours(entry.pod) or not self._stands(entry, action):
            # A Binding would name a version that is past, or cards that have changed, or is not ours to send any more.
            self.withdraw(entry)
            self._planner.promises.take_back(entry)
            self._pending.settled(entry)
        else:
            self._planner.promises.bind(entry, entry.placement)

    def _stands(self, entry: Entry, action: Lock) -> bool:
        """Whether the node, which may have changed while it was locked, takes the pod still.

        What others were promised there meanwhile is no reason to choose other cards, again and again.
        """
        ledger, placement, shape = self._planner.ledger, entry.placement, entry.shape
        state = ledger.states.get(action.node)
        if state is None or placement is None or shape is None:
            return False
        is_same = state.facts is action.facts and ledger.offered(action.node) is action.offers
        if is_same and action.dialect not in state.closed:
            return True
        return still_fits(ledger, self._planner.search.policy, shape, placement)

    def not_locked(self, action: Lock, reason: str, rest_s: float = _LOCK_REST_S) -> None:
        """The node is locked for another, or cannot be locked: the pod is judged again when that changes."""
        if action.pod is None:
            self._tending.pop((action.node, action.dialect), None)
            return
        entry = self._locking(action)
        if entry is None or entry.shape is None:
            self.tend(action.node)
            return
        self.withdraw(entry)
        self._planner.promises.take_back(entry)
        self._planner.handoff.crowds.add(action.node, self._planner.state.keys(entry.shape), inf)
        wait = Wait(Cause.NODE_LOCKED, f"has its place on {action.node} and waits: {reason}")
        self._pending.settled(
            entry, rest_s=min(max(rest_s, FIRST_REST_S), _LOCK_REST_S), wait=wait, tell=rest_s > _SHORT_S
        )
        if entry.stage is Stage.RESTING:
            self._planner.wakes.wait_for(entry.pod.uid, Happening(What.LOCK, action.node))

    def _locking(self, action: Lock) -> Entry | None:
        """The entry for which *action* still is."""
        entry = self._planner.life.get(action.pod.uid) if action.pod is not None else None
        if entry is None or entry.attempt != action.attempt or entry.stage is not Stage.LOCKING:
            return None
        return entry

    def _step(self, name: DialectName, node: Node, wanted: Pod | None, named: Pod | None) -> LockStep | LockWait | None:
        lock = self._planner.promises.locks.of(name)
        if lock is None:
            return None
        pods: dict[PodUid, Pod] = {}
        for uid, seen in self._planner.handoff.flights(node.name):
            entry = self._planner.life.get(uid)
            pod = seen if seen is not None else entry.pod if entry is not None else None
            if pod is not None:
                pods[uid] = pod
        if named is not None and (
            named.node_name == node.name or not (named.node_name or self._pending.is_ours(named))
        ):
            pods.setdefault(named.uid, named)
        on_node = self._planner.ledger.holders(node.name) if wanted is not None else ()
        served = [self._carded[uid] for uid in on_node if uid in self._carded and uid not in pods]
        now_s, tables = int(self._wall()), self._planner.ledger.tables
        seen_s = now_s - self._seen_for_s(name, node.name, node.annotations.get(lock.lock_key))
        releasing = self._planner.handoff.releases.pods(node.name)
        return lock.lock(
            node, list(pods.values()), now_s, tables, wanted, seen_s=seen_s, served=served, releasing=releasing
        )

    def _seen_for_s(self, name: DialectName, node: NodeName, text: str | None) -> int:
        """For how long, by our own clock, the lock of *node* was seen to say *text*."""
        key = (node, name)
        if text is None:
            self._said.pop(key, None)
            return 0
        if len(self._said) > 2 * len(self._planner.ledger.states) + _SAID_SPARE:
            for gone in [one for one in self._said if one[0] not in self._planner.ledger.states]:
                del self._said[gone]
        said, since_s = self._said.get(key, ("", 0.0))
        if said != text:
            since_s = self._clock()
            self._said[key] = (text, since_s)
        return int(self._clock() - since_s)

    def tend(self, name: NodeName) -> None:
        """Have the locks of a node put right, if anything is wrong with them."""
        state, node = self._planner.ledger.states.get(name), self._planner.ledger.node(name)
        if state is None or node is None:
            return
        for dialect, lock in self._planner.promises.locks.among(state.offers).items():
            if lock.lock_key not in node.annotations:
                self._planner.handoff.unlocked(name, dialect)
            if is_newer(node.resource_version, self._sent.version((name, dialect))):
                self._settle((name, dialect), node)
            if (name, dialect) in self._tending:
                self._tending[name, dialect] = True
            elif isinstance(self._step(dialect, node, None, None), LockStep):
                self._tending[name, dialect] = False
                self._planner.actions.append(Lock(node=name, dialect=dialect))

    def next_s(self) -> float:
        """When the next plugin must have given up dropping its lock, monotonic."""
        return self._planner.handoff.releases.next_s()

    def look(self, now_s: float) -> None:
        """Drop what locks plugins have left behind."""
        for node in self._planner.handoff.gave_up(now_s):
            self.tend(node)
            self.let_in(node)

    def let_in(self, name: NodeName) -> None:
        """A node's lock may have changed: whoever waits for it is judged again."""
        waiting = self._planner.wakes.happened(Happening(What.LOCK, name))
        if not waiting:
            return
        self._planner.handoff.crowds.forget(name)
        for uid in waiting:
            entry = self._planner.life.get(uid)
            if entry is not None and entry.stage is Stage.RESTING:
                self._planner.life.ready(entry)

    def withdraw(self, entry: Entry) -> None:
        """The pod's Binding was certainly not written: neither its plugin nor a lock is to wait for it."""
        node = entry.placement.node if entry.placement is not None else None
        self._planner.handoff.withdraw(entry.pod.uid, self._clock())
        if node is not None:
            self.tend(node)
