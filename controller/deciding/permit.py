"""Permit: a pod that has its place waits until nothing in flight there could be taken for it, or goes elsewhere.

Whoever removes a pod by force removes its object at once; its node's kubelet hears of it then, and gives its processes
the shortest grace period. So the pod holds its cards for some seconds more (`Vanished`); if its node is not ready,
until that is again, and then as long, because its kubelet hears of nothing until then; and no longer than its node is
there. What vanished before this process began to watch, between two leaders, it cannot know: so all nodes with cards
stay closed for as long, once the process leads.
"""

from collections.abc import Collection
from math import inf, isinf
from typing import Final, NamedTuple

from controller.deciding.bind import Binder
from controller.deciding.cluster import ClusterState
from controller.deciding.lifecycle import Entry, Stage
from controller.deciding.reserve import Reservations
from controller.deciding.score import Wish, step_aside
from controller.handing_over.collision import CollisionKey
from controller.handing_over.handoff import SHORT_S, HandOff, Impatient
from core.errors import NodeInvariantError
from core.groups import group_of
from core.ledger import Ledger, Placement
from core.model import NodeName, Pod, PodUid
from core.placing.shape import Shape
from core.waiting import Cause, Wait


def turn_wait(node: NodeName, why: str = "", *, most_s: float = 0.0) -> Wait:
    """Why a pod that has its place is not bound yet.

    Args:
        node: where its place is.
        why: what is in the way besides a plugin that is busy.
        most_s: so long it waits at most, in order that no idle node or card is opened for it; 0: it is not for that.
    """
    if why:
        return Wait(Cause.NODE_RESTS, f"has its place on {node} and waits until that node is tried again: {why}")
    text = (
        f"has its place on {node} and waits until the device plugin there has served pods that it could mistake "
        "for this one"
    )
    if most_s:
        text += f"; until then no idle node or card is opened for it, {most_s:g} s at most (turn_wait_max_s)"
    return Wait(Cause.WAITING_FOR_TURN, text)


def fenced_wait(node: NodeName) -> Wait:
    """Why a pod that has its place waits until none can be bound any more that an earlier leader sent there."""
    text = (
        f"has its place on {node} and waits until new conditions of other waiting pods are stored, so that the API "
        "server can no longer execute a Binding that an earlier leader sent for one of them"
    )
    return Wait(Cause.WAITING_FOR_TURN, text)


def unsettled_wait(node: NodeName) -> Wait:
    """Why a pod that has its place waits behind another of which it is not known what became of its Binding."""
    text = (
        f"has its place on {node} and waits until the outcome of another pod's Binding there is known; the device "
        "plugin could mistake that pod for this one"
    )
    return Wait(Cause.WAITING_FOR_TURN, text)


_LINE_PAUSE_S: Final = 0.25
_SILENCE_PAUSE_S: Final = 1.0
# Somebody who looks at a pod that waits its turn for longer than this wants to know why; at once, if the plugin is not
# only busy. It is found out anew so often.
_TELL_TURN_S: Final = 10.0
_TELL_PAUSE_S: Final = 0.5
_TOLD_AT_ONCE: Final = 256


class PluginGate:
    """Who goes to which node when."""

    def __init__(self, cluster: ClusterState, reservations: Reservations, binder: Binder) -> None:
        """Begin with nobody."""
        self._cluster: Final = cluster
        self._queue: Final = cluster.queue
        self._handoff: Final = cluster.handoff
        self._reservations: Final = reservations
        self._binder: Final = binder
        self._lines_s = 0.0
        self._silence_s = 0.0
        self._told_s = 0.0
        self._to_tell: list[PodUid] = []

    def wish(self, entry: Entry, shape: Shape, keys: CollisionKey) -> Wish:
        """What *entry* asks now, and where it would rather not go, or may not."""
        avoided, barred = self._handoff.cooldown.avoided(entry.pod), self._reservations.to(entry)
        return Wish(entry.pod, shape, keys, avoided, barred, self._packs(entry.pod))

    def _packs(self, pod: Pod) -> bool:
        """Whether *pod* waits for nodes in use so that idle ones stay whole; those that run together do not wait."""
        return self._cluster.settings.policy.packs and group_of(pod) is None

    # ------------------------------------------------------------------ going

    def go_on(self, entry: Entry) -> None:
        """What a reserved pod needed before its Binding is there: it goes where it has its place, if that stands."""
        if entry.placement is None or entry.shape is None:
            return
        if self._cluster.search.still_fits(entry.shape, entry.placement):
            self.go(entry, entry.placement, self._cluster.collision_key(entry.shape), self._cluster.clock())
            return
        self._reservations.give_up(entry)

    def go(self, entry: Entry, placement: Placement, keys: CollisionKey, now_s: float) -> None:
        """Send a reserved pod, or let it wait its turn."""
        if self._cluster.fencing.want() and self._cluster.has_room and self._handoff.free(placement.node, keys):
            self._binder.send(entry, placement, keys)
            return
        self._queue.line_up(entry, now_s)
        self._handoff.join(entry.pod.uid, placement.node, keys, now_s, entry.turn_s)
        self._handoff.ask_again(placement.node)
        self._tell(entry.pod.uid, now_s)

    # ------------------------------------------------------------------ in time

    def give(self, now_s: float) -> None:
        """Send those whose turn has come, and look whether others wait too long."""
        for node in self._handoff.turns():
            # Who is sent makes nobody free: what is busy once is so for all that wait for the same.
            open_to = self._handoff.kinds(node)
            for uid, keys in self._handoff.line(node):
                if keys not in open_to:
                    continue
                if self._handoff.busy(node, keys):
                    open_to.discard(keys)
                    if not open_to:
                        break
                elif self._cluster.has_room:
                    self._give(uid, keys)
                else:
                    self._handoff.ask_again(node)
                    break
        if now_s >= self._lines_s + _LINE_PAUSE_S:
            self._lines_s = now_s
            for one in self._handoff.impatient(now_s):
                self._try_elsewhere(one, now_s)
            self._tell_some(now_s)

    def _give(self, uid: PodUid, keys: CollisionKey) -> None:
        entry = self._queue.get(uid)
        if entry is None or entry.placement is None or entry.shape is None:
            self._handoff.leave(uid)
        elif self._cluster.search.still_fits(entry.shape, entry.placement):
            self._binder.send(entry, entry.placement, keys)
        else:
            self._reservations.give_up(entry)

    def look_for_silence(self, now_s: float) -> None:
        """Tell of device plugins that do not answer."""
        if now_s >= self._silence_s + _SILENCE_PAUSE_S:
            self._silence_s = now_s
            for one in self._handoff.silent(now_s):
                self._announce_silence(one.uid, one.node, one.pod, one.waited_s)

    def due_s(self) -> float:
        """When there is something to do although nothing happens, monotonic."""
        lines_s = self._lines_s + _LINE_PAUSE_S if self._handoff.waiting else inf
        return min(lines_s, self._silence_s + _SILENCE_PAUSE_S if self._handoff.in_flight else inf)

    def _announce_silence(self, uid: PodUid, node: NodeName, pod: Pod | None, waited_s: float) -> None:
        if self._queue.get(uid) is not None:
            return  # not known to be bound there: it is not the plugin that has not answered
        # Events of nodes are in a namespace that others read; which pod it is, the pod's own event tells.
        message = (
            f"see the log of its device plugin, or delete pod uid {uid}: the plugin has not served the pod for "
            f"{waited_s:.0f} s, and no pod that it could mistake for that one is sent there until it answers"
        )
        self._cluster.announce_node(node, "DevicePluginSilent", message)
        if pod is not None:
            message = f"the device plugin of node {node} has not served this pod for {waited_s:.0f} s; see its log"
            self._cluster.announce(pod, "DevicePluginSilent", message)

    # ------------------------------------------------------------------ going elsewhere

    def let_out(self, entry: Entry, now_s: float) -> None:
        """Let a member of a gang that stands in a long line, so that idle nodes stay whole, go to such a node."""
        if entry.stage is not Stage.TURN or entry.placement is None or entry.shape is None:
            return
        left_s = self._handoff.wait_s(entry.placement.node, self._cluster.collision_key(entry.shape), now_s)
        if left_s > SHORT_S:
            self._try_elsewhere(Impatient(entry.pod.uid, 0.0, left_s), now_s)

    def _try_elsewhere(self, one: Impatient, now_s: float) -> None:
        """Let a pod that waits too long go to the next best node, if there is one with a shorter line."""
        try:
            self._move(one, now_s)
        except NodeInvariantError as error:
            self._cluster.search.set_aside(error)
            self._decide_anew(one.uid)

    def _move(self, one: Impatient, now_s: float) -> None:
        entry = self._queue.get(one.uid)
        if entry is None or entry.placement is None or entry.shape is None:
            return
        keys = self._cluster.collision_key(entry.shape)
        node = entry.placement.node
        self._handoff.crowds.add(node, keys, SHORT_S)
        if self._cluster.gangs.is_near_others(entry.pod):
            # The next best node may be in another domain than those of the others.
            self._keep_waiting(entry, keys, node, now_s)
            return
        left_s = one.left_s if self._handoff.closed_s(node, keys, now_s) <= SHORT_S else inf
        wish = self.wish(entry, entry.shape, keys)._replace(waited_s=one.waited_s, left_s=left_s)
        placement = step_aside(wish, self._cluster.search.candidates, self._handoff, now_s)
        if placement is None:
            self._keep_waiting(entry, keys, node, now_s)
            return
        self._reservations.take_back(entry)
        self._reservations.reserve(entry, placement)
        self.go(entry, placement, keys, now_s)

    def _decide_anew(self, uid: PodUid) -> None:
        """A pod whose next place contradicted itself is decided like any other, unless it has its old place still."""
        entry = self._queue.get(uid)
        if entry is not None and entry.placement is None:
            self._queue.ready(entry)

    def _keep_waiting(self, entry: Entry, keys: CollisionKey, node: NodeName, now_s: float) -> None:
        """A pod finds no shorter line, or may not: it stays, but not behind a plugin that does not answer."""
        if isinf(self._handoff.wait_s(node, keys, now_s)):
            self._reservations.give_up(entry)

    def _tell_some(self, now_s: float) -> None:
        if not self._to_tell and now_s >= self._told_s + _TELL_PAUSE_S:
            self._to_tell, self._told_s = self._handoff.in_line(), now_s
        for uid in self._to_tell[-_TOLD_AT_ONCE:]:
            self._tell(uid, now_s)
        del self._to_tell[-_TOLD_AT_ONCE:]

    def _tell(self, uid: PodUid, now_s: float) -> None:
        """Have a pod that has waited its turn for long, or on a node that takes none, told why it waits now."""
        entry = self._queue.get(uid)
        if entry is None or entry.stage is not Stage.TURN or entry.placement is None or entry.shape is None:
            return
        node, keys = entry.placement.node, self._cluster.collision_key(entry.shape)
        is_late = entry.turn_s is not None and now_s >= entry.turn_s + _TELL_TURN_S
        if not is_late and not self._handoff.why_closed(node, keys):
            return
        wait = self.wait(entry.pod, node, keys)
        if wait != entry.wait:
            self._cluster.hold_up(entry, wait)

    def wait(self, pod: Pod, node: NodeName, keys: CollisionKey, *, in_full: bool = False) -> Wait:
        """Why *pod*, with *keys*, that has its place on *node* is not bound yet; *in_full*: for operators."""
        if self._cluster.fencing.is_under_way:
            return fenced_wait(node)
        for uid, _ in self._handoff.flights(node):
            other = self._queue.get(uid)
            if other is None or other.stage is not Stage.SETTLING or other.shape is None:
                continue
            if self._handoff.collisions.alike(node, keys, self._cluster.collision_key(other.shape)):
                return unsettled_wait(node)
        most_s = self._cluster.settings.turn_wait_max_s if self._packs(pod) else 0.0
        return turn_wait(node, self._handoff.why_closed(node, keys, in_full=in_full), most_s=most_s)


# ---------------------------------------------------------------------- who vanished


_LOOK_S: Final = 0.5


class Held(NamedTuple):
    """What *uid* holds of *node*, for *left_s* more, counted from when the node is ready; pod: its namespace/name."""

    uid: PodUid
    pod: str
    node: NodeName
    left_s: float


class Vanished:
    """Those that hold something still; a chore, which sees that it ends."""

    def __init__(self, ledger: Ledger, handoff: HandOff) -> None:
        """Begin with none."""
        self._ledger: Final = ledger
        self._handoff: Final = handoff
        self._until_s: Final[dict[PodUid, float]] = {}
        self._looked_s = -inf

    @property
    def uids(self) -> Collection[PodUid]:
        """Who holds something."""
        return self._until_s.keys()

    def held(self, now_s: float) -> list[Held]:
        """All of it."""
        found: list[Held] = []
        for uid, until_s in self._until_s.items():
            holding, node = self._ledger.holding(uid), self._ledger.node_of(uid)
            if holding is not None and node is not None:
                found.append(Held(uid, holding.key, node, max(until_s - now_s, 0.0)))
        return found

    def hold(self, uid: PodUid, now_s: float) -> None:
        """The object of *uid* has gone, and its processes may run on."""
        self._until_s[uid] = now_s + self._ledger.settings.removed_pod_hold_s

    def hold_nodes(self, listed_s: float) -> None:
        """Pods that others bound may have vanished just before they were first listed, at *listed_s*, monotonic."""
        until_s = listed_s + self._ledger.settings.removed_pod_hold_s
        for name, state in self._ledger.states.items():
            if state.offers:
                self._handoff.unwatched[name] = until_s

    def end(self, uid: PodUid) -> None:
        """Free what *uid* holds, if it does: it has ended, or its object is there again."""
        if self._until_s.pop(uid, None) is not None:
            self._ledger.release(uid)

    def next_s(self) -> float:
        """Soon, while anyone holds something."""
        return self._looked_s + _LOOK_S if self._until_s or self._handoff.unwatched else inf

    def look(self, now_s: float) -> None:
        """Free what those hold whose time is over."""
        self._looked_s = now_s
        for closed, until_s in list(self._handoff.unwatched.items()):
            node = self._ledger.node(closed)
            if node is not None and not node.ready:
                self._handoff.unwatched[closed] = now_s + self._ledger.settings.removed_pod_hold_s
            elif until_s <= now_s:
                self._handoff.watched(closed)
        for uid, until_s in list(self._until_s.items()):
            name = self._ledger.node_of(uid)
            node = self._ledger.node(name) if name is not None else None
            if node is None or (node.ready and until_s <= now_s):
                self.end(uid)
            elif not node.ready:
                self.hold(uid, now_s)
