"""Who is between its Binding and its devices, node by node, as the device plugins see it.

A plugin is told no name: what it could mistake one pod for is not in flight on its node together. A pod for such a node
is reserved there and waits its turn, if that is short; how long hand-offs take is measured. A plugin that stays silent
closes its node for what it would confuse. A pod that vanishes unserved counts as in flight for a while; so does
a pod that was served, until its plugin has dropped the lock of the node, if it goes by one.
Source: protocol reference, nvidia 2.8, 2.9; architecture 6.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import nsmallest
from operator import itemgetter
from typing import Final, NamedTuple

from controller.handing_over.collision import CollisionKey, Collisions
from controller.handing_over.crowds import Crowds
from controller.handing_over.node_cooldown import NodeCooldown
from controller.handing_over.plugins import Plugins
from controller.handing_over.releases import RELEASE_S, Releases
from controller.handing_over.unserved_pods import UnservedPods
from core.catalog import Catalog
from core.model import NodeName, Pod, PodUid
from core.port.handoff import InFlight, Progress
from core.settings import DialectName, Settings
from core.tables import Tables

# Until one is measured: kubelet hears of the pod, admits it and asks its plugin.
_FIRST_GUESS_S: Final = 0.5
# How much the newest hand-off counts in the running mean.
_WEIGHT: Final = 0.2
_NEVER: Final = float("inf")
# What is left of a dead pod for a plugin that goes by time alone.
_RETIRING: Final = frozenset({"retiring"})
# A wait that is not worth looking for another node.
SHORT_S: Final = 2.0
# Each of them is decided anew, all in one go; more of those who would wait for too long.
_IMPATIENT_AT_ONCE: Final = 8
_LATE_AT_ONCE: Final = 16


@dataclass(slots=True)
class _Flight:
    """One pod in flight. pod is None until the mirror has shown it with its annotations; ours: we saw it begin.

    begun_s: when its first Binding was sent, or it was first seen; since_s: when the last one was.
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
    """One reserved pod in a node's line. since_s: it waits since then, here or elsewhere; looked_s: seen to last."""

    keys: CollisionKey
    since_s: float
    looked_s: float


@dataclass(slots=True)
class _Node:
    """What is known of one node. kinds: how many of its line have which keys: few, where the line is long."""

    flights: dict[PodUid, _Flight] = field(default_factory=dict)
    line: dict[PodUid, _Waiting] = field(default_factory=dict)
    kinds: dict[CollisionKey, int] = field(default_factory=dict)
    mean_s: float | None = None

    def join(self, uid: PodUid, waiting: _Waiting) -> None:
        """Add *uid* to the end of the line."""
        self.line[uid] = waiting
        self.kinds[waiting.keys] = self.kinds.get(waiting.keys, 0) + 1

    def leave(self, uid: PodUid) -> None:
        """Take *uid* out of the line."""
        keys = self.line.pop(uid).keys
        self.kinds[keys] -= 1
        if not self.kinds[keys]:
            del self.kinds[keys]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanup:
    """Annotations to clear on a pod that its plugin will never serve, or is not to serve by them."""

    pod: Pod
    annotations: tuple[tuple[str, str], ...]


class Impatient(NamedTuple):
    """A pod in line that has waited *waited_s* and would have to wait *left_s* more where it is."""

    uid: PodUid
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
    """What is in flight, and who waits for it; belongs to the scheduler of the ledger."""

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
        self.crowds: Final = Crowds()
        # Nodes where something ended since their line was looked at.
        self._ended: dict[NodeName, None] = {}
        # Nodes where pods may have been removed by force before anybody here watched, and until when they are closed.
        self.unwatched: Final[dict[NodeName, float]] = {}
        self._mean_s = _FIRST_GUESS_S
        self._measured = 0
        # What was measured, and the nodes that may be free for what they were not; the reader takes them out.
        self.seconds: list[float] = []
        self._on_served: Final = on_served
        self.opened: Final[dict[NodeName, None]] = {}

    def configure(self, tables: Tables, settings: Settings) -> None:
        """Go by these from now on."""
        self.tables, self.settings = tables, settings

    def lock_for(self, dialects: frozenset[DialectName]) -> None:
        """From now on pods of *dialects* need a lock on their node."""
        self._locking = dialects

    # ------------------------------------------------------------------ what the mirror shows

    def observe(self, pod: Pod, now_s: float, *, is_ours: bool = False) -> Cleanup | None:
        """Take *pod* as it is now, whoever placed it; what is to be cleared on it, or None.

        is_ours: it is on no node, and nobody else is to bind it.
        """
        name, seen = self._seen(pod)
        flight = self._flight(pod.uid)
        self._note_release(pod, name, seen, flight, now_s)
        if self.plugins.seen(pod, now_s):
            self._reopen(NodeName(pod.node_name))
        if name is None or seen is None:
            # On no node it may be shown as it was before our Binding, and not without what it was known by.
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
        """Note whether the plugin that has answered for *pod* may still be dropping the lock of its node.

        A pod that was served before this process began may have been served just then.
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
        """What a plugin that goes by time alone must read of *pod*, which is not to be served any more."""
        heartbeat = self._heartbeats.get(name) if self.collisions.is_blind(node, name) else None
        return heartbeat.retirement(pod) if heartbeat is not None else {}

    def progress(self, pod: Pod) -> Progress | None:
        """How far its device plugin is with *pod*; None if it serves no such pods."""
        _, seen = self._seen(pod)
        return seen.progress if seen is not None else None

    def _seen(self, pod: Pod) -> tuple[DialectName, InFlight] | tuple[None, None]:
        for name, dialect in self._catalog.dialects.items():
            seen = dialect.in_flight(pod, self.tables)
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

    def _cleanup(self, pod: Pod, rest: Mapping[str, str]) -> Cleanup | None:
        if not rest or self._cleaning.get(pod.uid) == pod.resource_version:
            return None
        self._cleaning[pod.uid] = pod.resource_version
        return Cleanup(pod=pod, annotations=tuple(rest.items()))

    def cleaned(self, uid: PodUid, now_s: float) -> None:
        """The pod's annotations are known to be cleared: it can be mistaken for nothing any more."""
        self._cleaning.pop(uid, None)
        flight = self._flight(uid)
        if flight is not None and flight.dead:
            self._end(uid, now_s, served=False)

    def not_cleaned(self, uid: PodUid) -> None:
        """Clearing failed; the next look at the pod asks for it again."""
        self._cleaning.pop(uid, None)

    def forget(self, uid: PodUid, now_s: float) -> None:
        """The pod is gone; kubelet may admit it all the same."""
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
        """Note whether the plugin of *dialect* on *node* may tell no pod from another."""
        if self.collisions.set_blind(node, dialect, blind=blind):
            self._reopen(node)

    def node_gone(self, name: NodeName) -> None:
        """Nobody waits for a node that does not exist; its pods stay known until they are gone too."""
        self.crowds.forget(name)
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

    # ------------------------------------------------------------------ what we do

    def begin(self, uid: PodUid, node: NodeName, keys: CollisionKey, now_s: float) -> None:
        """A Binding for *uid* is being sent: from now on it may be in flight."""
        self.leave(uid)
        flight = self._flight(uid)
        if flight is not None:
            flight.since_s = now_s
            if flight.told:
                flight.told = False
                self.opened[flight.node] = None
            return
        self._add(uid, _Flight(node, keys, now_s, now_s, ours=True))

    def withdraw(self, uid: PodUid, now_s: float) -> None:
        """The Binding was certainly not written."""
        flight = self._flight(uid)
        if flight is not None and flight.pod is None:
            self._end(uid, now_s, served=False)
        elif flight is not None:
            flight.ours = False  # what is left of it somebody else wrote
        node = self.unserved_pods.withdraw(uid)
        if node is not None:
            self._reopen(node)

    def order(self, node: NodeName, name: DialectName, now_s: int) -> int:
        """The ordering stamp of the next Binding on *node*: above every one before it.

        Of a protocol that counts seconds, more Bindings than seconds take it ahead of the clock, by one each; it falls
        back by one in every second without a Binding. Plugins compare stamps with each other alone.

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
        """Let reserved *uid* wait its turn on *node*; *since_s*: it has waited since then, if not from now on."""
        self.leave(uid)
        self._node(node).join(uid, _Waiting(keys, now_s if since_s is None else since_s, now_s))
        self._line_of[uid] = node

    def leave(self, uid: PodUid) -> None:
        """*uid* waits no longer, for whatever reason."""
        node = self._line_of.pop(uid, None)
        if node is not None:
            found = self._nodes[node]
            found.leave(uid)
            self.crowds.forget(node)
            self._drop_if_empty(node, found)

    # ------------------------------------------------------------------ asking

    def busy(self, node: NodeName, keys: CollisionKey) -> bool:
        """Whether *node* is closed, its plugin away, or something in flight could be mistaken for a pod with *keys*."""
        if keys.dialect is not None and node in self.unwatched:
            return True
        if self.cooldown.is_resting(node, keys.dialect) or self.plugins.is_away(node, keys.dialect):
            return True
        found = self._nodes.get(node)
        alike = self.collisions.alike
        if found is not None and any(alike(node, keys, flight.keys) for flight in found.flights.values()):
            return True
        if any(alike(node, keys, others) for others in self.releases.of(node)):
            return True
        return any(alike(node, keys, others) for others, _ in self.unserved_pods.of(node))

    def free(self, node: NodeName, keys: CollisionKey) -> bool:
        """Whether a pod with *keys* that comes to *node* now need not wait, neither for a plugin nor in a line."""
        if self.busy(node, keys):
            return False
        found = self._nodes.get(node)
        return found is None or not any(self.collisions.alike(node, keys, others) for others in found.kinds)

    def wait_s(self, node: NodeName, keys: CollisionKey, now_s: float) -> float:
        """How long a pod with *keys* that comes to *node* now would wait for its turn; infinite behind a silence."""
        found = self._nodes.get(node)
        if found is None:
            return self.closed_s(node, keys, now_s)
        ahead = sum(count for others, count in found.kinds.items() if self.collisions.alike(node, keys, others))
        return self._flights_s(node, found, keys, now_s) + self._expected_s(found) * ahead

    def _expected_s(self, node: _Node | None) -> float:
        """How long a hand-off takes there."""
        return self._mean_s if node is None or node.mean_s is None else node.mean_s

    def closed_s(self, node: NodeName, keys: CollisionKey, now_s: float) -> float:
        """How long until it rests no more, has its plugin, and no unserved pod could be taken for one with *keys*."""
        found = (
            until_s for others, until_s in self.unserved_pods.of(node) if self.collisions.alike(node, keys, others)
        )
        rests_s = max(one.left_s(node, keys.dialect, now_s) for one in (self.cooldown, self.plugins))
        unwatched_s = self.unwatched.get(node, now_s) - now_s if keys.dialect is not None else 0.0
        return max(max(found, default=now_s) - now_s, rests_s, unwatched_s)

    def why_closed(self, node: NodeName, keys: CollisionKey, *, in_full: bool = False) -> str:
        """Why a pod with *keys* waits on *node* for more than a plugin that is busy, for people, or ""."""
        if why := self.plugins.why(node, keys.dialect) or self.cooldown.why(node, keys.dialect, in_full=in_full):
            return why
        if keys.dialect is not None and node in self.unwatched:
            return "a pod may have been removed there by force before this controller began, and may still be ending"
        if any(self.collisions.alike(node, keys, others) for others, _ in self.unserved_pods.of(node)):
            return "a pod was deleted there before it was served, and kubelet may still ask for its cards"
        return ""

    def _flights_s(self, name: NodeName, node: _Node, keys: CollisionKey, now_s: float) -> float:
        """How long until nothing in flight could be mistaken for a pod with *keys*; infinite behind a silence."""
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
        """The nodes where somebody's turn may have come; each is told once."""
        nodes = [node for node in self._ended if (found := self._nodes.get(node)) is not None and found.line]
        self._ended.clear()
        return nodes

    def ask_again(self, node: NodeName) -> None:
        """Name *node* in the next `turns` as well."""
        self._ended[node] = None

    def kinds(self, node: NodeName) -> set[CollisionKey]:
        """By what plugins could mistake those who wait on *node*."""
        found = self._nodes.get(node)
        return set(found.kinds) if found else set()

    def line(self, node: NodeName) -> list[tuple[PodUid, CollisionKey]]:
        """Who waits on *node*, longest first."""
        found = self._nodes.get(node)
        return [(uid, one.keys) for uid, one in found.line.items()] if found else []

    def impatient(self, now_s: float) -> list[Impatient]:
        """Some who have more than a short wait behind and before them, each once per such time.

        A line that moves is not left: its nodes are as busy as others. Under a policy that packs, where lines are
        longer, some of those, too, who would come to wait for longer than settings allow.
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
                    late.append((waiting.looked_s, Impatient(uid, waited_s, left_s)))
                elif waiting.looked_s <= looked:
                    if left_s <= SHORT_S:
                        waiting.looked_s = now_s
                    else:
                        soon.append((waiting.looked_s, Impatient(uid, waited_s, left_s)))
        # Who was looked at longest ago comes first, so that all are in turn.
        found = [one for _, one in nsmallest(_IMPATIENT_AT_ONCE, soon, key=itemgetter(0))]
        found += [one for _, one in sorted(late)[:_LATE_AT_ONCE]]
        for one in found:
            self._nodes[self._line_of[one.uid]].line[one.uid].looked_s = now_s
        return found

    def _waits(self, node: NodeName, now_s: float) -> Iterator[tuple[PodUid, float]]:
        """How long each of the line of *node* has still to wait, longest in line first."""
        found = self._nodes[node]
        expected_s = self._expected_s(found)
        left_s = {keys: self._flights_s(node, found, keys, now_s) for keys in found.kinds}
        # Who waits for whom: most of them for themselves alone.
        behind = {one: [other for other in left_s if self.collisions.alike(node, one, other)] for one in left_s}
        for uid, one in found.line.items():
            yield uid, left_s[one.keys]
            for other in behind[one.keys]:
                left_s[other] += expected_s

    def next_s(self) -> float:
        """When the next rest ends, or an unserved pod's time, or kubelet is believed of a plugin, monotonic."""
        return min(self.unserved_pods.next_s(), self.cooldown.next_s(), self.plugins.next_s())

    def look(self, now_s: float) -> None:
        """End what has lasted long enough."""
        for node in (*self.cooldown.end(now_s), *self.plugins.end(now_s)):
            self._reopen(node)
        busy = [name for name, node in self._nodes.items() if any(not one.dead for one in node.flights.values())]
        for node in self.unserved_pods.end(now_s, busy, self._mean_s):
            self._reopen(node)

    def silent(self, now_s: float) -> list[Silent]:
        """The plugins that have become silent since this was last asked."""
        found: list[Silent] = []
        for name, node in self._nodes.items():
            for uid, flight in node.flights.items():
                waited_s = now_s - flight.since_s
                if not flight.told and waited_s >= self.settings.handoff_timeout_s:
                    flight.told = True
                    found.append(Silent(node=name, pod=flight.pod, uid=uid, waited_s=waited_s))
        return found

    def flights(self, node: NodeName) -> list[tuple[PodUid, Pod | None]]:
        """What is in flight on *node*: each pod as the mirror last showed it, None before it has."""
        found = self._nodes.get(node)
        return [(uid, flight.pod) for uid, flight in found.flights.items()] if found else []

    def node_of(self, uid: PodUid) -> NodeName | None:
        """The node on which *uid* is in flight."""
        return self._node_of.get(uid)

    def closed_nodes(self, now_s: float) -> dict[NodeName, float]:
        """The nodes closed by a silent plugin, and for how long it has been silent."""
        return {
            name: max(now_s - flight.since_s for flight in node.flights.values())
            for name, node in self._nodes.items()
            if any(now_s - flight.since_s >= self.settings.handoff_timeout_s for flight in node.flights.values())
        }

    @property
    def in_flight(self) -> int:
        """How many pods are in flight."""
        return len(self._node_of)

    @property
    def waiting(self) -> int:
        """How many pods wait their turn."""
        return len(self._line_of)

    def in_line(self) -> list[PodUid]:
        """Who waits for a turn, on any node."""
        return list(self._line_of)

    # ------------------------------------------------------------------ keeping

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
        self.crowds.forget(name)
        self._drop_if_empty(name, node)

    def watched(self, node: NodeName) -> None:
        """Whoever was removed from *node* before anybody here watched has ended."""
        del self.unwatched[node]
        self._reopen(node)

    def unlocked(self, node: NodeName, dialect: DialectName) -> None:
        """*node* was seen without the lock of *dialect*: its plugin has dropped it."""
        if self.releases.unlocked(node, dialect):
            self._reopen(node)

    def gave_up(self, now_s: float) -> list[NodeName]:
        """The nodes where a plugin has not dropped its lock by now, and will not."""
        nodes = self.releases.end(now_s)
        for node in nodes:
            self._reopen(node)
        return nodes

    def _reopen(self, name: NodeName) -> None:
        """Something that counted as in flight there does no more."""
        self._ended[name] = None
        self.crowds.forget(name)
        self.opened[name] = None

    def _measure(self, node: _Node, took_s: float) -> None:
        self.seconds.append(took_s)
        if took_s >= self.settings.handoff_timeout_s:
            return  # how long it was silent says nothing of how long it takes
        node.mean_s = took_s if node.mean_s is None else node.mean_s + _WEIGHT * (took_s - node.mean_s)
        self._measured += 1
        # The first ones count as a plain mean, so that the guess is soon forgotten.
        weight = max(_WEIGHT / 4, 1.0 / self._measured)
        self._mean_s += weight * (took_s - self._mean_s)

    def _drop_if_empty(self, name: NodeName, node: _Node) -> None:
        if not node.flights and not node.line and node.mean_s is None:
            del self._nodes[name]
