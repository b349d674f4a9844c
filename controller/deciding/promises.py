"""From a place to a Binding: what a pod is promised is reserved at once, sent when it is its turn, or taken back."""

from collections.abc import Callable, Mapping
from typing import Final

from controller.actions import Bind, Lock, target_of
from controller.deciding import plan as steps
from controller.deciding.lifecycle import Entry
from controller.deciding.locks import Locks
from controller.deciding.state import State
from controller.handing_over.marks import Keys
from core.explaining import explain
from core.groups import group_of
from core.history.pods import What
from core.ledger import Placement
from core.model import Pod
from core.nodefit import Amounts
from core.placing.fairness import also_taken, taken
from core.port.handoff import Stamp
from core.settings import DialectName
from core.waiting import Wait

# Annotations that come to less than this leave room for any assignment.
_LONG_BYTES: Final = 128 * 1024


class Promises:
    """What pods are promised.

    Attributes:
        locks: which locks of nodes their Bindings need.
    """

    def __init__(self, state: State, reserved: Callable[[Entry], None]) -> None:
        """Promise nothing; *reserved*: told of every pod that has its place."""
        self.locks: Final = Locks(state.ledger.catalog, state.settings, state.handoff)
        self._state: Final = state
        self._reserved: Final = reserved

    def reserve(self, entry: Entry, placement: Placement) -> None:
        """Promise *placement*, at once and in memory."""
        life = self._state.life
        self._state.ledger.reserve(placement)
        life.reserve(entry, placement)
        self._state.recording.note(entry.pod, What.RESERVED, placement.node)
        self._reserved(entry)
        self.book(entry.pod, placement.dialect, placement.assignment, placement.amounts)
        shape = entry.shape
        if shape is not None and entry.woken is None and life.refuses(shape):
            life.wake(shape)  # the next of them may fit as well

    def book(self, pod: Pod, dialect: DialectName | None, assignment: object, amounts: Amounts) -> None:
        """Count on its queue and namespace what *pod* is promised, or holds; *amounts*: of its node, beside cards."""
        ledger, key = self._state.ledger, group_of(pod)
        if key is not None:
            self._state.books.note(pod.uid, key, taken(ledger, pod, dialect, assignment))
        else:
            self._state.books.note(pod.uid, pod.namespace, also_taken(ledger, dialect, assignment, amounts))

    def take_back(self, entry: Entry) -> None:
        """Free what is reserved for a pod that stays in the queue.

        Raises:
            InvariantError: a Binding of it may still be written.
        """
        uid, state = entry.pod.uid, self._state
        state.sent.check_settled(uid)
        state.handoff.leave(uid)
        if entry.placement is not None:
            state.life.unreserve(entry)
            state.books.drop(uid)
            state.ledger.release(uid)
            state.recording.note(entry.pod, What.RELEASED)

    # ------------------------------------------------------------------ sending

    def send(self, entry: Entry, placement: Placement, keys: Keys) -> None:
        """Have a reserved pod's node locked, if that is needed, and its Binding sent."""
        pod, state = entry.pod, self._state
        too_long = self._too_long(pod, placement)
        if too_long is not None:
            self.take_back(entry)
            state.hold(entry, too_long)
            return
        if placement.dialect is None:
            state.handoff.leave(pod.uid)
        else:
            state.handoff.begin(pod.uid, placement.node, keys, state.clock())
        if placement.dialect is None or self.locks.of(placement.dialect) is None:
            self.bind(entry, placement)
            return
        state.life.lock(entry)
        node = placement.node
        facts, offers = state.ledger.states[node].facts, state.ledger.offered(node)
        state.actions.append(
            Lock(
                node=node,
                dialect=placement.dialect,
                pod=target_of(pod),
                attempt=entry.attempt,
                facts=facts,
                offers=offers,
            )
        )

    def bind(self, entry: Entry, placement: Placement) -> None:
        """Have the Binding of a pod sent that is in flight already, with the next stamp of its node."""
        state = self._state
        if entry.turn_s is not None:
            state.metrics.turn_wait_s.observe(state.clock() - entry.turn_s)
        state.life.bind(entry)
        state.sent.send(entry.pod.uid, entry.version)
        where = explain.placed(state.ledger, placement)
        state.recording.note(entry.pod, What.SENT, where)
        state.actions.append(
            Bind(
                pod=target_of(entry.pod),
                attempt=entry.attempt,
                version=entry.version,
                node=placement.node,
                annotations={**self._assigned(placement, in_line=True), **state.ledger.told_of(placement)},
                where=where,
            )
        )

    def _assigned(self, placement: Placement, *, in_line: bool = False) -> Mapping[str, str]:
        """What the Binding says of cards; *in_line*: with the next stamp of its node, which is taken."""
        if placement.dialect is None:
            return {}
        state, unix_s = self._state, int(self._state.wall())
        order = state.handoff.order(placement.node, placement.dialect, unix_s) if in_line else 0
        stamp = Stamp(node=placement.node, now_s=unix_s, order=order)
        return state.ledger.catalog.dialects[placement.dialect].annotations(
            placement.assignment, stamp, state.ledger.tables
        )

    def _too_long(self, pod: Pod, placement: Placement) -> Wait | None:
        """Why *pod* has no room for its assignment, or None; the API server does not look at that in a Binding."""
        had = steps.annotations_bytes(pod.annotations)
        if had < _LONG_BYTES:
            return None
        comes_to = steps.annotations_bytes({**pod.annotations, **self._assigned(placement)})
        return steps.room_wait(pod.annotations, had, comes_to)
