"""The pods in flight on each node, between Binding and devices, and the lines of pods that wait their turn there.

A plugin gets no pod name, so pods that it could confuse are never in flight on one node together. A pod that must wait
is reserved and stands in the node's line; measured hand-off times predict its wait. A plugin that does not answer
closes its node for pods that it could confuse. A pod that vanished unserved counts as in flight for a while. If the
plugin uses a lock, a served pod counts until the lock is gone.
Source: protocol reference, nvidia 2.8, 2.9; architecture 6.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import nsmallest
from operator import itemgetter
from typing import Final, NamedTuple

from controller.handing_over.closed_nodes import DAEMON_SET, NodeCooldown, Plugins
from controller.handing_over.collision import RELEASE_S, CollisionKey, Collisions, LongLines, Releases, UnservedPods
from core.catalog import Catalog
from core.model import NodeName, Pod, PodUid
from core.port.handoff import InFlight, Progress
from core.settings import DialectName, Settings, Tables

# The expected hand-off time before one is measured: kubelet sees the pod, admits it and calls its plugin.
_FIRST_GUESS_S: Final = 0.5
# The weight of the newest hand-off in the running mean.
_WEIGHT: Final = 0.2
_NEVER: Final = float("inf")
# The mark of an ended pod on a node whose plugin chooses pods by time alone, until its annotations are cleared.
_RETIRING: Final = frozenset({"retiring"})
# For a shorter wait, no other node is tried.
SHORT_S: Final = 2.0
# How many pods of lines are tried on other nodes at once; those that would wait for too long have a higher limit.
_IMPATIENT_AT_ONCE: Final = 8
_LATE_AT_ONCE: Final = 16


@dataclass(slots=True)
class _Flight:
    """One pod in flight.

    begun_s: when its first Binding was sent, or it was first seen; since_s: when its last Binding was sent. pod: None
    until the watch shows it with its assignment. ours: this process sent its Binding. dead: it failed or ended before
    it was served. told: its plugin was reported as silent.
    """

    node: NodeName
    keys: CollisionKey
    begun_s: float
    since_s: float
    pod: Pod | None = None
    ours: bool = False
    dead: bool = False
    told: bool = False


@dataclass(slots=True)
class _Waiting:
    """One pod in a line. since_s: when its wait began, in any line; looked_s: when another node was last tried."""

    keys: CollisionKey
    since_s: float
    looked_s: float


@dataclass(slots=True)
class _Node:
    """The flights and the line of one node. keys_in_line: how often each key is in it. mean_s: its hand-off time."""

    flights: dict[PodUid, _Flight] = field(default_factory=dict)
    line: dict[PodUid, _Waiting] = field(default_factory=dict)
    keys_in_line: dict[CollisionKey, int] = field(default_factory=dict)
    mean_s: float | None = None

    def join(self, uid: PodUid, waiting: _Waiting) -> None:
        """Add *uid* to the end of the line."""
        self.line[uid] = waiting
        self.keys_in_line[waiting.keys] = self.keys_in_line.get(waiting.keys, 0) + 1

    def leave(self, uid: PodUid) -> None:
        """Take *uid* out of the line."""
        keys = self.line.pop(uid).keys
        self.keys_in_line[keys] -= 1
        if not self.keys_in_line[keys]:
            del self.keys_in_line[keys]


class Impatient(NamedTuple):
    """A pod in a line, with its keys, that has waited *waited_s* and is expected to wait *left_s* more there."""

    uid: PodUid
    keys: CollisionKey
    waited_s: float
    left_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    """A plugin that has not answered for *pod* in *waited_s* seconds."""

    node: NodeName
    pod: Pod | None
    uid: PodUid
    waited_s: float


class HandOff:
    """The pods in flight and in lines; only the scheduler's task uses it."""

    def __init__(
        self,
        catalog: Catalog,
        tables: Tables,
        settings: Settings,
        on_served: Callable[[PodUid], None] = lambda _: None,
    ) -> None:
        self._catalog: Final = catalog
        self._heartbeats: Final = {one.name: one.heartbeat for one in catalog.specs}
        self.tables = tables
        self.settings = settings
        self.collisions: Final = Collisions()
        self.unserved_pods: Final = UnservedPods()
        self.cooldown: Final = NodeCooldown()
        self.releases: Final = Releases()
        self.plugins: Final = Plugins(catalog)
        # The dialects whose pods need a lock on their node.
        self._locking: frozenset[DialectName] = frozenset()
        self._began_s: float | None = None
        self._nodes: dict[NodeName, _Node] = {}
        self._node_of: dict[PodUid, NodeName] = {}
        self._line_of: dict[PodUid, NodeName] = {}
        self._cleaning: dict[PodUid, str] = {}
        self._orders: dict[NodeName, dict[DialectName, int]] = {}
        self.long_lines: Final = LongLines()
        # Nodes where a flight or a closing ended since their line was last checked.
        self._ended: dict[NodeName, None] = {}
        # Nodes where pods may have been removed by force before this process watched, and until when they are closed.
        self.unwatched: Final[dict[NodeName, float]] = {}
        self._mean_s = _FIRST_GUESS_S
        self._measured = 0
        # Measured hand-off times, and nodes that opened for some pods (*opened*); the reader removes them.
        self.seconds: list[float] = []
        self._on_served: Final = on_served
        self.opened: Final[dict[NodeName, None]] = {}

    def configure(self, tables: Tables, settings: Settings) -> None:
        """Use these tables and settings from now on."""
        self.tables, self.settings = tables, settings

    def lock_for(self, dialects: frozenset[DialectName]) -> None:
        """Note that pods of *dialects* need a lock on their node."""
        self._locking = dialects

    # ------------------------------------------------------------------ what the watch shows

    def observe(self, pod: Pod, now_s: float, *, is_ours: bool = False) -> Mapping[str, str] | None:
        """Take a new or changed *pod* of any scheduler; return the annotations to clear on it, or None.

        They are cleared because its plugin will never serve it, or must not serve it by them.

        is_ours: it has no node, and this controller decides it.
        """
        name, seen = self._seen(pod)
        flight = self._flight(pod.uid)
        self._note_release(pod, name, seen, flight, now_s)
        is_plugin = pod.owner.startswith(DAEMON_SET) or pod.uid in self.plugins.keys_of
        if is_plugin and self.plugins.seen(pod, now_s):
            self._reopen(NodeName(pod.node_name))
        if name is None or seen is None:
            # A pod without a node may be shown as it was before this process's Binding, so its flight stays.
            if flight is not None and (pod.node_name or not flight.ours):
                self._end(pod.uid, now_s, served=True)
            return None
        node = NodeName(seen.node or pod.node_name)
        if not node:
            return None
        is_left_over = is_ours and not pod.node_name
        rest = dict(seen.cleanup or {}) if is_left_over or seen.progress is not Progress.WAITING else {}
        if is_left_over or seen.progress is Progress.FAILED or (seen.progress is Progress.DONE and pod.started):
            rest |= self._retirement(pod, node, name)
        if seen.progress is Progress.WAITING or (rest and (seen.confusable or seen.progress is Progress.FAILED)):
            marks = seen.confusable or _RETIRING
            self._note(pod, node, CollisionKey(name, marks), now_s, dead=seen.progress is Progress.FAILED)
        elif flight is not None:
            self._end(pod.uid, now_s, served=seen.progress is Progress.DONE)
        return self._cleanup(pod, rest)

    def _note_release(
        self, pod: Pod, name: DialectName | None, seen: InFlight | None, flight: _Flight | None, now_s: float
    ) -> None:
        """Note whether the plugin that has served *pod* may still be removing the lock of its node.

        A pod that was already served when this process began counts as served at that moment.
        """
        if self._began_s is None:
            self._began_s = now_s
        node = NodeName(pod.node_name)
        if pod.started or pod.finished:
            if self.releases.drop(node, pod.uid):
                self._reopen(node)
        elif node and name in self._locking and seen is not None and seen.progress is not Progress.WAITING:
            is_news = flight is not None and not flight.dead
            until_s = (now_s if is_news else self._began_s) + RELEASE_S
            if until_s > now_s:
                keys = flight.keys if flight is not None else CollisionKey(name, seen.confusable)
                self.releases.add(node, pod, keys, until_s)

    def _retirement(self, pod: Pod, node: NodeName, name: DialectName) -> Mapping[str, str]:
        """Return annotations that exclude *pod* from service, if its plugin chooses pods by time alone."""
        heartbeat = self._heartbeats.get(name) if self.collisions.is_blind(node, name) else None
        return heartbeat.retirement(pod) if heartbeat is not None else {}

    def progress(self, pod: Pod) -> Progress | None:
        """Return the progress of the device plugin with *pod*; None if no plugin serves it."""
        _, seen = self._seen(pod)
        return seen.progress if seen is not None else None

    def _seen(self, pod: Pod) -> tuple[DialectName, InFlight] | tuple[None, None]:
        for name in self._catalog.concerned(pod, self.tables):
            seen = self._catalog.dialects[name].in_flight(pod, self.tables)
            if seen is not None:
                return name, seen
        return None, None

    def _note(self, pod: Pod, node: NodeName, keys: CollisionKey, now_s: float, *, dead: bool) -> None:
        flight = self._flight(pod.uid)
        if flight is not None and flight.node != node:
            self._end(pod.uid, now_s, served=False)
            flight = None
        if flight is None:
            self._add(pod.uid, _Flight(node, keys, now_s, now_s, pod, dead=dead))
            return
        flight.pod = pod
        flight.dead = dead
        if flight.keys != keys:
            flight.keys = keys
            self._ended[node] = None
            if flight.told:
                self.opened[node] = None

    def _cleanup(self, pod: Pod, rest: Mapping[str, str]) -> Mapping[str, str] | None:
        if not rest or self._cleaning.get(pod.uid) == pod.resource_version:
            return None
        self._cleaning[pod.uid] = pod.resource_version
        return rest

    def cleaned(self, uid: PodUid, now_s: float) -> None:
        """End the flight of a dead pod whose annotations are cleared, so that it can no longer be confused."""
        self._cleaning.pop(uid, None)
        flight = self._flight(uid)
        if flight is not None and flight.dead:
            self._end(uid, now_s, served=False)

    def not_cleaned(self, uid: PodUid) -> None:
        """Note that clearing failed; the next change of the pod requests it again."""
        self._cleaning.pop(uid, None)

    def forget(self, uid: PodUid, now_s: float) -> None:
        """Forget a pod that is gone. Unserved, it counts for a while, because kubelet may still admit it."""
        self.plugins.gone(uid, now_s)
        self._cleaning.pop(uid, None)
        flight = self._flight(uid)
        if flight is not None and not flight.dead:
            expected_s = self._expected_s(self._nodes[flight.node])
            seen = flight.pod is not None
            self.unserved_pods.add(flight.node, uid, flight.keys, now_s, expected_s, seen=seen)
        self._end(uid, now_s, served=False)
        self.leave(uid)

    def set_blind(self, node: NodeName, dialect: DialectName, blind: bool) -> None:
        """Note whether the plugin of *dialect* on *node* cannot distinguish pods at all."""
        if self.collisions.set_blind(node, dialect, blind=blind):
            self._reopen(node)

    def node_gone(self, name: NodeName) -> None:
        """Forget a node that no longer exists, but not its pods in flight, which stay until they are gone."""
        self.long_lines.forget(name)
        self.collisions.forget(name)
        self.cooldown.forget(name)
        self.plugins.forget(name)
        self.unwatched.pop(name, None)
        self._orders.pop(name, None)
        self._ended[name] = None
        node = self._nodes.get(name)
        if node is not None:
            node.mean_s = None
            self._drop_if_empty(name, node)

    # ------------------------------------------------------------------ Bindings and lines

    def begin(self, uid: PodUid, node: NodeName, keys: CollisionKey, now_s: float) -> None:
        """Count *uid* as in flight, because its Binding is being sent."""
        self.leave(uid)
        flight = self._flight(uid)
        if flight is not None:
            flight.since_s = now_s
            if flight.told:
                flight.told = False
                self.opened[flight.node] = None
            return
        self._add(uid, _Flight(node, CollisionKey(keys.dialect, keys.marks), now_s, now_s, ours=True))

    def withdraw(self, uid: PodUid, now_s: float) -> None:
        """End the flight of *uid*, because its Binding was certainly not written."""
        flight = self._flight(uid)
        if flight is not None and flight.pod is None:
            self._end(uid, now_s, served=False)
        elif flight is not None:
            flight.ours = False  # another scheduler wrote the assignment that the watch showed
        node = self.unserved_pods.withdraw(uid)
        if node is not None:
            self._reopen(node)

    def order(self, node: NodeName, name: DialectName, now_s: int) -> int:
        """Return the ordering stamp of the next Binding on *node*, which is above all earlier ones.

        If a protocol counts in seconds, several Bindings in one second bring the stamp ahead of the clock, and seconds
        without a Binding bring it back. That is harmless, because plugins only compare stamps with each other.

        Args:
            node: where the pod goes.
            name: its dialect.
            now_s: Unix seconds.
        """
        found = self._nodes.get(node)
        pods = [flight.pod for flight in found.flights.values() if flight.pod is not None] if found else []
        orders = self._orders.setdefault(node, {})
        order = max(self._catalog.dialects[name].next_stamp(pods, now_s), orders.get(name, 0) + 1)
        orders[name] = order
        return order

    def join(self, uid: PodUid, node: NodeName, keys: CollisionKey, now_s: float, since_s: float | None = None) -> None:
        """Add reserved *uid* to the line of *node*; *since_s*: when its wait began, None: now."""
        self.leave(uid)
        self._node(node).join(uid, _Waiting(keys, now_s if since_s is None else since_s, now_s))
        self._line_of[uid] = node

    def leave(self, uid: PodUid) -> None:
        """Remove *uid* from its line, if it is in one."""
        node = self._line_of.pop(uid, None)
        if node is not None:
            found = self._nodes[node]
            found.leave(uid)
            self.long_lines.forget(node)
            self._drop_if_empty(node, found)

    # ------------------------------------------------------------------ questions

    @property
    def closes_some(self) -> bool:
        """Whether any node may be closed: nearly always none is, and this is asked for every node that is looked at."""
        return bool(self.cooldown.rests or self.plugins.away or self.unserved_pods.nodes or self.unwatched)

    def busy(self, node: NodeName, keys: CollisionKey) -> bool:
        """Return whether a pod with *keys* cannot be sent to *node* now: it is closed, or a pod in flight collides."""
        if self.closes_some and self.why_closed(node, keys):
            return True
        found = self._nodes.get(node)
        alike = self.collisions.alike
        if found is not None and any(alike(node, keys, flight.keys) for flight in found.flights.values()):
            return True
        return node in self.releases.nodes and any(alike(node, keys, others) for others in self.releases.of(node))

    def free(self, node: NodeName, keys: CollisionKey) -> bool:
        """Return whether a pod with *keys* can be sent to *node* at once: neither busy, nor a colliding pod in line."""
        if self.busy(node, keys):
            return False
        found = self._nodes.get(node)
        return found is None or not any(self.collisions.alike(node, keys, others) for others in found.keys_in_line)

    def wait_s(self, node: NodeName, keys: CollisionKey, now_s: float) -> float:
        """Return the expected wait of a new pod with *keys* on *node*, in seconds; infinite behind a silent plugin."""
        found = self._nodes.get(node)
        if found is None:
            return self.closed_s(node, keys, now_s)
        ahead = sum(count for others, count in found.keys_in_line.items() if self.collisions.alike(node, keys, others))
        return self._flights_s(node, found, keys, now_s) + self._expected_s(found) * ahead

    def _expected_s(self, node: _Node | None) -> float:
        """Return how long a hand-off is expected to take there."""
        return self._mean_s if node is None or node.mean_s is None else node.mean_s

    def closed_s(self, node: NodeName, keys: CollisionKey, now_s: float) -> float:
        """Return for how long *node* is still closed for *keys*: cooldown, absent plugin, unserved or removed pods."""
        if not self.closes_some:
            return 0.0
        found = (
            until_s for others, until_s in self.unserved_pods.of(node) if self.collisions.alike(node, keys, others)
        )
        rests_s = max(self.cooldown.left_s(node, keys, now_s), self.plugins.left_s(node, keys.dialect, now_s))
        unwatched_s = self.unwatched.get(node, now_s) - now_s if keys.dialect is not None else 0.0
        return max(max(found, default=now_s) - now_s, rests_s, unwatched_s)

    def why_closed(self, node: NodeName, keys: CollisionKey, *, in_full: bool = False) -> str:
        """Return why *node* is closed for a pod with *keys*, for people; "" if its plugin is only busy."""
        if not self.closes_some:
            return ""
        if why := self.plugins.why(node, keys.dialect) or self.cooldown.why(node, keys, in_full=in_full):
            return why
        if keys.dialect is not None and node in self.unwatched:
            return "a pod may have been removed there by force before this controller began, and may still be ending"
        if any(self.collisions.alike(node, keys, others) for others, _ in self.unserved_pods.of(node)):
            return "a pod was deleted there before it was served, and kubelet may still ask for its cards"
        return ""

    def _flights_s(self, name: NodeName, node: _Node, keys: CollisionKey, now_s: float) -> float:
        """Return how long until no pod in flight collides with *keys*; infinite behind a silent plugin."""
        mean_s, left_s = self._expected_s(node), self.closed_s(name, keys, now_s)
        for flight in node.flights.values():
            if self.collisions.alike(name, keys, flight.keys):
                waited_s = now_s - flight.since_s
                if waited_s >= self.settings.handoff_timeout_s:
                    return _NEVER
                # Past the mean, a hand-off is expected to take as long again as it has taken.
                left_s = max(left_s, mean_s - waited_s if waited_s < mean_s else waited_s)
        return left_s

    def turns(self) -> list[NodeName]:
        """Return the nodes where the turn of a waiting pod may have come, each once."""
        nodes = [node for node in self._ended if (found := self._nodes.get(node)) is not None and found.line]
        self._ended.clear()
        return nodes

    def ask_again(self, node: NodeName) -> None:
        """Include *node* in the next `turns`."""
        self._ended[node] = None

    def keys_in_line(self, node: NodeName) -> set[CollisionKey]:
        """Return the keys of the pods in the line of *node*."""
        found = self._nodes.get(node)
        return set(found.keys_in_line) if found else set()

    def line(self, node: NodeName) -> list[tuple[PodUid, CollisionKey]]:
        """Return the line of *node*, first pod first."""
        found = self._nodes.get(node)
        return [(uid, one.keys) for uid, one in found.line.items()] if found else []

    def impatient(self, now_s: float) -> list[Impatient]:
        """Return some pods in lines for which another node should be tried, each at most once per `SHORT_S`.

        These are pods whose remaining wait is longer than `SHORT_S`. Under a policy that packs, also pods whose total
        wait would exceed `turn_wait_max_s`.
        """
        packs, looked = self.settings.policy.packs, now_s - SHORT_S
        late: list[tuple[float, Impatient]] = []
        soon: list[tuple[float, Impatient]] = []
        for node in dict.fromkeys(
            node for uid, node in self._line_of.items() if packs or self._nodes[node].line[uid].looked_s <= looked
        ):
            line = self._nodes[node].line
            for uid, left_s in self._waits(node, now_s):
                waiting = line[uid]
                waited_s = now_s - waiting.since_s
                if packs and waited_s + left_s > max(self.settings.turn_wait_max_s, SHORT_S):
                    late.append((waiting.looked_s, Impatient(uid, waiting.keys, waited_s, left_s)))
                elif waiting.looked_s <= looked:
                    if left_s <= SHORT_S:
                        waiting.looked_s = now_s
                    else:
                        soon.append((waiting.looked_s, Impatient(uid, waiting.keys, waited_s, left_s)))
        # The pods that were tried longest ago come first, so that all are tried in turn.
        found = [one for _, one in nsmallest(_IMPATIENT_AT_ONCE, soon, key=itemgetter(0))]
        found += [one for _, one in sorted(late)[:_LATE_AT_ONCE]]
        for one in found:
            self._nodes[self._line_of[one.uid]].line[one.uid].looked_s = now_s
        return found

    def _waits(self, node: NodeName, now_s: float) -> Iterator[tuple[PodUid, float]]:
        """Yield the expected remaining wait of each pod in the line of *node*, in order."""
        found = self._nodes[node]
        expected_s = self._expected_s(found)
        left_s = {keys: self._flights_s(node, found, keys, now_s) for keys in found.keys_in_line}
        # The keys that collide with each key; mostly only the key itself.
        behind = {one: [other for other in left_s if self.collisions.alike(node, one, other)] for one in left_s}
        for uid, one in found.line.items():
            yield uid, left_s[one.keys]
            for other in behind[one.keys]:
                left_s[other] += expected_s

    def next_s(self) -> float:
        """Return when the next closing of a node ends, monotonic."""
        return min(self.unserved_pods.next_s(), self.cooldown.next_s(), self.plugins.next_s())

    def look(self, now_s: float) -> None:
        """End cooldowns, absences of plugins, and unserved pods whose time is over."""
        for node in (*self.cooldown.end(now_s), *self.plugins.end(now_s)):
            self._reopen(node)
        busy = [name for name, node in self._nodes.items() if any(not one.dead for one in node.flights.values())]
        for node in self.unserved_pods.end(now_s, busy, self._mean_s):
            self._reopen(node)

    def silent(self, now_s: float) -> list[Silent]:
        """Return the plugins that have become silent since the last call."""
        found: list[Silent] = []
        for name, node in self._nodes.items():
            for uid, flight in node.flights.items():
                waited_s = now_s - flight.since_s
                if not flight.told and waited_s >= self.settings.handoff_timeout_s:
                    flight.told = True
                    found.append(Silent(node=name, pod=flight.pod, uid=uid, waited_s=waited_s))
        return found

    def flights(self, node: NodeName) -> list[tuple[PodUid, Pod | None]]:
        """Return the pods in flight on *node*, each as last seen by the watch, None before."""
        found = self._nodes.get(node)
        return [(uid, flight.pod) for uid, flight in found.flights.items()] if found else []

    def node_of(self, uid: PodUid) -> NodeName | None:
        """Return the node on which *uid* is in flight, if any."""
        return self._node_of.get(uid)

    def closed_nodes(self, now_s: float) -> dict[NodeName, float]:
        """Return the nodes with a silent plugin, and for how many seconds it has been silent."""
        waited_s = {name: now_s - self._since_s(name) for name in set(self._node_of.values())}
        return {name: one_s for name, one_s in waited_s.items() if one_s >= self.settings.handoff_timeout_s}

    def _since_s(self, node: NodeName) -> float:
        """Return since when the oldest pod on *node* is in flight."""
        return min(flight.since_s for flight in self._nodes[node].flights.values())

    @property
    def in_flight(self) -> int:
        """The number of pods in flight."""
        return len(self._node_of)

    @property
    def waiting(self) -> int:
        """The number of pods that wait their turn."""
        return len(self._line_of)

    def keys_of(self, uid: PodUid) -> CollisionKey | None:
        """Return the keys of *uid*, which waits its turn; None if it is in no line."""
        node = self._line_of.get(uid)
        return self._nodes[node].line[uid].keys if node is not None else None

    def in_line(self) -> list[PodUid]:
        """Return the pods that wait their turn, on any node."""
        return list(self._line_of)

    # ------------------------------------------------------------------ internal state

    def _node(self, name: NodeName) -> _Node:
        found = self._nodes.get(name)
        if found is None:
            found = self._nodes[name] = _Node()
        return found

    def _flight(self, uid: PodUid) -> _Flight | None:
        node = self._node_of.get(uid)
        return self._nodes[node].flights.get(uid) if node is not None else None

    def _add(self, uid: PodUid, flight: _Flight) -> None:
        self._node(flight.node).flights[uid] = flight
        self._node_of[uid] = flight.node

    def _end(self, uid: PodUid, now_s: float, *, served: bool) -> None:
        name = self._node_of.pop(uid, None)
        if name is None:
            return
        node = self._nodes[name]
        flight = node.flights.pop(uid)
        if flight.told:
            self.opened[name] = None
        if served:
            self._on_served(uid)
        if served and flight.ours:
            self._measure(node, now_s - flight.since_s)
            self.unserved_pods.served(name, flight.begun_s, now_s, self._expected_s(node))
        self._ended[name] = None
        self.long_lines.forget(name)
        self._drop_if_empty(name, node)

    def watched(self, node: NodeName) -> None:
        """Open *node*: pods that were removed there before this process watched have ended."""
        del self.unwatched[node]
        self._reopen(node)

    def unlocked(self, node: NodeName, dialect: DialectName) -> None:
        """Note that *node* no longer has the lock of *dialect*, so its plugin has finished."""
        if self.releases.unlocked(node, dialect):
            self._reopen(node)

    def gave_up(self, now_s: float) -> list[NodeName]:
        """Return the nodes where a plugin has left its lock and will not remove it any more."""
        nodes = self.releases.end(now_s)
        for node in nodes:
            self._reopen(node)
        return nodes

    def _reopen(self, name: NodeName) -> None:
        """Check the line of *name* again, and report the node as opened, because something there no longer counts."""
        self._ended[name] = None
        self.long_lines.forget(name)
        self.opened[name] = None

    def _measure(self, node: _Node, took_s: float) -> None:
        self.seconds.append(took_s)
        if took_s >= self.settings.handoff_timeout_s:
            return  # the time of a silent plugin does not predict others
        node.mean_s = took_s if node.mean_s is None else node.mean_s + _WEIGHT * (took_s - node.mean_s)
        self._measured += 1
        # The first ones count as a plain mean, so that the guess is soon forgotten.
        weight = max(_WEIGHT / 4, 1.0 / self._measured)
        self._mean_s += weight * (took_s - self._mean_s)

    def _drop_if_empty(self, name: NodeName, node: _Node) -> None:
        if not node.flights and not node.line and node.mean_s is None:
            del self._nodes[name]
