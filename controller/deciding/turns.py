"""Turns: a pod that has its place waits until nothing in flight there could be taken for it, or goes elsewhere."""

from collections.abc import Callable
from math import inf, isinf
from typing import Final

from controller.actions import Announce, Subject, about_pod
from controller.deciding import plan as steps
from controller.deciding.barring import Barring
from controller.deciding.lifecycle import Entry, Stage
from controller.deciding.promises import Promises
from controller.deciding.search import Search
from controller.deciding.state import State
from controller.deciding.units import Units
from controller.handing_over.handoff import SHORT_S, Impatient
from controller.handing_over.marks import Keys
from core.errors import NodeInvariantError
from core.groups import group_of
from core.ledger import Placement
from core.model import NodeName, Pod, PodUid
from core.placing.decide import still_fits
from core.placing.shape import Shape
from core.waiting import Wait

_LINE_PAUSE_S: Final = 0.25
_SILENCE_PAUSE_S: Final = 1.0
# Somebody who looks at a pod that waits its turn for longer than this wants to know why; at once, if the plugin is not
# only busy. It is found out anew so often.
_TELL_TURN_S: Final = 10.0
_TELL_PAUSE_S: Final = 0.5
_TOLD_AT_ONCE: Final = 256


def _needs_nothing(entry: Entry, placement: Placement) -> bool:
    return False


class Turns:
    """Who goes to which node when.

    Attributes:
        prepares: begins what a reserved pod needs before its Binding; False if that is nothing.
    """

    def __init__(self, state: State, search: Search, promises: Promises, barring: Barring, units: Units) -> None:
        """Begin with nobody."""
        self.prepares: Callable[[Entry, Placement], bool] = _needs_nothing
        self._state: Final = state
        self._life: Final = state.life
        self._handoff: Final = state.handoff
        self._search: Final = search
        self._promises: Final = promises
        self._barring: Final = barring
        self._units: Final = units
        self._lines_s = 0.0
        self._silence_s = 0.0
        self._told_s = 0.0
        self._to_tell: list[PodUid] = []

    def wish(self, entry: Entry, shape: Shape, keys: Keys) -> steps.Wish:
        """What *entry* asks now, and where it would rather not go, or may not."""
        avoided, barred = self._handoff.rests.avoided(entry.pod), self._barring.to(entry)
        return steps.Wish(entry.pod, shape, keys, avoided, barred, self._packs(entry.pod))

    def _packs(self, pod: Pod) -> bool:
        """Whether *pod* waits for nodes in use so that idle ones stay whole; those that run together do not wait."""
        return self._state.settings.policy.packs and group_of(pod) is None

    # ------------------------------------------------------------------ going

    def place(self, entry: Entry, placement: Placement, keys: Keys, now_s: float) -> None:
        """Promise a pod its place, and let it go there once it has all that it needs for that."""
        self._promises.reserve(entry, placement)
        if not self.prepares(entry, placement):
            self._go(entry, placement, keys, now_s)

    def go_on(self, entry: Entry) -> None:
        """What a reserved pod needed before its Binding is there: it goes where it has its place, if that stands."""
        if entry.placement is None or entry.shape is None:
            return
        if still_fits(self._state.ledger, self._search.policy, entry.shape, entry.placement):
            self._go(entry, entry.placement, self._state.keys(entry.shape), self._state.clock())
            return
        self._promises.take_back(entry)
        self._life.ready(entry)

    def _go(self, entry: Entry, placement: Placement, keys: Keys, now_s: float) -> None:
        """Send a reserved pod, or let it wait its turn."""
        if self._state.fencing.want() and self._state.has_room and self._handoff.free(placement.node, keys):
            self._promises.send(entry, placement, keys)
            return
        self._life.line_up(entry, now_s)
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
                elif self._state.has_room:
                    self._give(uid, keys)
                else:
                    self._handoff.ask_again(node)
                    break
        if now_s >= self._lines_s + _LINE_PAUSE_S:
            self._lines_s = now_s
            for one in self._handoff.impatient(now_s):
                self._try_elsewhere(one, now_s)
            self._tell_some(now_s)

    def _give(self, uid: PodUid, keys: Keys) -> None:
        entry = self._life.get(uid)
        if entry is None or entry.placement is None or entry.shape is None:
            self._handoff.leave(uid)
        elif still_fits(self._state.ledger, self._search.policy, entry.shape, entry.placement):
            self._promises.send(entry, entry.placement, keys)
        else:
            self._promises.take_back(entry)
            self._life.ready(entry)

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
        if self._life.get(uid) is not None:
            return  # not known to be bound there: it is not the plugin that has not answered
        found = self._state.ledger.node(node)
        # Events of nodes are in a namespace that others read; which pod it is, the pod's own event tells.
        message = (
            f"see the log of its device plugin, or delete pod uid {uid}: the plugin has not served the pod for "
            f"{waited_s:.0f} s, and no pod that it could mistake for that one is sent there until it answers"
        )
        about = Subject(kind="Node", name=node, uid=found.uid if found is not None else "")
        self._state.actions.append(Announce(about=about, reason="DevicePluginSilent", message=message))
        if pod is not None:
            message = f"the device plugin of node {node} has not served this pod for {waited_s:.0f} s; see its log"
            self._state.actions.append(Announce(about=about_pod(pod), reason="DevicePluginSilent", message=message))

    # ------------------------------------------------------------------ going elsewhere

    def let_out(self, entry: Entry, now_s: float) -> None:
        """Let a member of a gang that stands in a long line, so that idle nodes stay whole, go to such a node."""
        if entry.stage is not Stage.TURN or entry.placement is None or entry.shape is None:
            return
        left_s = self._handoff.wait_s(entry.placement.node, self._state.keys(entry.shape), now_s)
        if left_s > SHORT_S:
            self._try_elsewhere(Impatient(entry.pod.uid, 0.0, left_s), now_s)

    def _try_elsewhere(self, one: Impatient, now_s: float) -> None:
        """Let a pod that waits too long go to the next best node, if there is one with a shorter line."""
        try:
            self._move(one, now_s)
        except NodeInvariantError as error:
            self._search.set_aside(error)
            self._decide_anew(one.uid)

    def _move(self, one: Impatient, now_s: float) -> None:
        entry = self._life.get(one.uid)
        if entry is None or entry.placement is None or entry.shape is None:
            return
        keys = self._state.keys(entry.shape)
        node = entry.placement.node
        self._handoff.crowds.add(node, keys, SHORT_S)
        if self._units.is_near_others(entry.pod):
            # The next best node may be in another domain than those of the others.
            self._keep_waiting(entry, keys, node, now_s)
            return
        left_s = one.left_s if self._handoff.closed_s(node, keys, now_s) <= SHORT_S else inf
        wish = self.wish(entry, entry.shape, keys)._replace(waited_s=one.waited_s, left_s=left_s)
        placement = steps.step_aside(wish, self._search.candidates, self._handoff, now_s)
        if placement is None:
            self._keep_waiting(entry, keys, node, now_s)
            return
        self._promises.take_back(entry)
        self._promises.reserve(entry, placement)
        self._go(entry, placement, keys, now_s)

    def _decide_anew(self, uid: PodUid) -> None:
        """A pod whose next place contradicted itself is decided like any other, unless it has its old place still."""
        entry = self._life.get(uid)
        if entry is not None and entry.placement is None:
            self._life.ready(entry)

    def _keep_waiting(self, entry: Entry, keys: Keys, node: NodeName, now_s: float) -> None:
        """A pod finds no shorter line, or may not: it stays, but not behind a plugin that does not answer."""
        if isinf(self._handoff.wait_s(node, keys, now_s)):
            self._promises.take_back(entry)
            self._life.ready(entry)

    def _tell_some(self, now_s: float) -> None:
        """Have some of those that wait their turn told why; all of them in turn."""
        if not self._to_tell and now_s >= self._told_s + _TELL_PAUSE_S:
            self._to_tell, self._told_s = self._handoff.in_line(), now_s
        for uid in self._to_tell[-_TOLD_AT_ONCE:]:
            self._tell(uid, now_s)
        del self._to_tell[-_TOLD_AT_ONCE:]

    def _tell(self, uid: PodUid, now_s: float) -> None:
        """Have a pod that has waited its turn for long, or on a node that takes none, told why it waits now."""
        entry = self._life.get(uid)
        if entry is None or entry.stage is not Stage.TURN or entry.placement is None or entry.shape is None:
            return
        node, keys = entry.placement.node, self._state.keys(entry.shape)
        is_late = entry.turn_s is not None and now_s >= entry.turn_s + _TELL_TURN_S
        if not is_late and not self._handoff.why_closed(node, keys):
            return
        wait = self.wait(entry.pod, node, keys)
        if wait != entry.wait:
            self._life.hold_up(entry, wait)
            self._state.unreported[uid] = None

    def wait(self, pod: Pod, node: NodeName, keys: Keys, *, in_full: bool = False) -> Wait:
        """Why *pod*, with *keys*, that has its place on *node* is not bound yet; *in_full*: for operators."""
        if self._state.fencing.is_under_way:
            return steps.fenced_wait(node)
        for uid, _ in self._handoff.flights(node):
            other = self._life.get(uid)
            if other is None or other.stage is not Stage.SETTLING or other.shape is None:
                continue
            if self._handoff.marks.alike(node, keys, self._state.keys(other.shape)):
                return steps.unsettled_wait(node)
        most_s = self._state.settings.turn_wait_max_s if self._packs(pod) else 0.0
        return steps.turn_wait(node, self._handoff.why_closed(node, keys, in_full=in_full), most_s=most_s)
