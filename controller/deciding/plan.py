"""What to do with one pending pod now: pure functions of pod, ledger, candidates and hand-off.

Nothing is promised here; `turns` reserves and sends what these functions answer, with no pause in between.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isfinite
from typing import Final, NamedTuple

from controller.deciding import opening
from controller.handing_over.handoff import SHORT_S, HandOff
from controller.handing_over.marks import Keys
from core.errors import quoted
from core.ledger import Placement
from core.model import NodeName, Pod
from core.placing.candidates import Candidates
from core.placing.decide import decide
from core.placing.shape import Shape
from core.waiting import Cause, Wait

# So many nodes with too long a line are looked at for one pod before it joins the line of the best.
_NODES_TRIED: Final = 8
# All annotations of an object, keys and values. Source: facts 2.3, measured on kube-apiserver v1.36.
_ANNOTATIONS_MAX_BYTES: Final = 262_144
# Left for what device plugins write to a pod later: marks that are longer than those of the assignment, and times.
_LATER_BYTES: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Nowhere:
    """No node fits. silent: nodes that would, were their plugins not silent."""

    silent: tuple[NodeName, ...] = ()


class Wish(NamedTuple):
    """A pod, all of it that decides where it fits, and what a plugin could mistake it by.

    avoid: nodes that turned its like away again and again; it goes there only where nothing else fits. barred: nodes
    that it does not go to at all. packs: it waits for a node in use rather than open an idle one. waited_s, left_s: how
    long it has waited in lines, and would have to wait where it is, infinite if it is nowhere.
    """

    pod: Pod
    shape: Shape
    keys: Keys
    avoid: frozenset[NodeName] = frozenset()
    barred: frozenset[NodeName] = frozenset()
    packs: bool = False
    waited_s: float = 0.0
    left_s: float = inf


def annotations_bytes(annotations: Mapping[str, str]) -> int:
    """What the API server counts of *annotations*: keys and values, in UTF-8."""
    return sum(len(key.encode()) + len(value.encode("utf-8", "replace")) for key, value in annotations.items())


def room_wait(annotations: Mapping[str, str], had: int, comes_to: int) -> Wait | None:
    """Why a pod has no room for its assignment; None if it has.

    Args:
        annotations: the pod's.
        had: what they come to, in bytes.
        comes_to: what they come to with the assignment.
    """
    if comes_to <= _ANNOTATIONS_MAX_BYTES - _LATER_BYTES:
        return None
    longest, value = max(annotations.items(), key=lambda one: len(one[0]) + len(one[1]))
    long = annotations_bytes({longest: value})
    text = (
        f"remove or shorten annotations; the longest is {quoted(longest)} with {long} bytes: all have {had} "
        f"bytes, and with the assignment more than the {_ANNOTATIONS_MAX_BYTES} that the API server accepts for one pod"
    )
    return Wait(Cause.TOO_LONG, text)


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


def next_step(wish: Wish, candidates: Candidates, handoff: HandOff, now_s: float) -> Placement | Nowhere:
    """Where the pod goes now, or that it goes nowhere; the hand-off remembers the nodes found crowded on the way."""
    step = step_aside(wish, candidates, handoff, now_s)
    if step is not None:
        return step
    busy = handoff.crowds.beyond(wish.keys, SHORT_S)
    crowded = _step_in_a_crowd(wish, candidates, handoff, now_s) if busy else Nowhere()
    if wish.avoid and isinstance(crowded, Nowhere):
        return next_step(wish._replace(avoid=frozenset()), candidates, handoff, now_s)
    return crowded


def step_aside(wish: Wish, candidates: Candidates, handoff: HandOff, now_s: float) -> Placement | None:
    """The best node with a short wait, or None; one with a longer wait where that is worth what the first opens.

    None, too, for a pod that had better stay where it is.
    """
    is_late = wish.packs and wish.waited_s > max(handoff.settings.turn_wait_max_s - SHORT_S, 0.0)
    nearby = _within(wish, candidates, handoff, now_s, 0.0 if is_late else SHORT_S)
    if not wish.packs or not handoff.crowds.beyond(wish.keys, SHORT_S):
        return nearby
    opened = opening.left_idle(candidates.ledger, nearby) if nearby is not None else 1.0
    if wish.waited_s + wish.left_s <= opening.worth_s(handoff.settings, opened):
        return None
    limit_s = opening.joined_s(handoff.settings, opened, wish.waited_s)
    soon = _within(wish, candidates, handoff, now_s, limit_s) if limit_s > SHORT_S else None
    if soon is None or (nearby is not None and opening.left_idle(candidates.ledger, soon) >= opened):
        return nearby
    return soon


def _within(wish: Wish, candidates: Candidates, handoff: HandOff, now_s: float, limit_s: float) -> Placement | None:
    """The best node with a wait of *limit_s* at most, of those that are not known to have a longer one, or None."""
    pod, shape, keys, *_ = wish
    out = wish.avoid | wish.barred
    for _ in range(_NODES_TRIED):
        placement = decide(candidates, pod, shape, out, handoff.crowds.beyond(keys, limit_s))
        if placement is None:
            return None
        if handoff.free(placement.node, keys):
            return placement
        wait_s = handoff.wait_s(placement.node, keys, now_s)
        # A node that turns pods away is not waited for longer than others, whatever is opened instead.
        if wait_s <= limit_s and (wait_s <= SHORT_S or handoff.closed_s(placement.node, keys, now_s) <= SHORT_S):
            return placement
        handoff.crowds.add(placement.node, keys, limit_s)
    return None


def _step_in_a_crowd(wish: Wish, candidates: Candidates, handoff: HandOff, now_s: float) -> Placement | Nowhere:
    """The best node of all, however long its line, but none whose plugin is silent."""
    out = wish.avoid | wish.barred
    silent: set[NodeName] = set()
    while (placement := decide(candidates, wish.pod, wish.shape, silent | out if out else silent)) is not None:
        if handoff.free(placement.node, wish.keys) or isfinite(handoff.wait_s(placement.node, wish.keys, now_s)):
            return placement
        silent.add(placement.node)
    return Nowhere(silent=tuple(sorted(silent)))
