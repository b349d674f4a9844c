"""Filter and score: keeps the cluster ordered for each shape, and finds the best node of a pod.

Ordering a large cluster for a new shape takes long, so it is done in slices, between which other tasks run. Nothing is
reserved here; `cycle` and `bind` reserve and send what these functions return, without a pause in between.

A policy that packs keeps nodes and cards idle. But a device plugin serves one pod at a time, so all nodes in use may be
busy for a moment, and taking an idle node at once would spread the pods. So a pod waits for a node in use. The limit is
`turn_wait_max_s` times the part of a node, from 0 to 1, that its placement would open and leave unused. Other policies
do not wait.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import floor, inf, isfinite
from typing import Final, NamedTuple

from controller.handing_over.collision import CollisionKey
from controller.handing_over.handoff import SHORT_S, HandOff
from controller.metrics import Metrics
from core.constraints.constraint import NodeSet
from core.errors import NodeInvariantError
from core.explaining.refusal import impersonal
from core.ledger import Ledger, Placement
from core.model import Container, NodeConstraints, NodeName, Pod, PodUid, Toleration
from core.placing.candidates import Candidates
from core.placing.decide import (
    Found,
    Shape,
    decide,
    node_policy,
    preferred_shapes,
    room_on,
    shape_of,
    still_fits,
    takes,
)
from core.placing.kinds import Kinds
from core.placing.learning import Learning
from core.settings import Settings, Tables

# Waits are rounded down to this fraction of the longest, so that many pods share the known lines of nodes.
_PARTS: Final = 32
# A pod joins a line that takes up to this part of its remaining wait; hand-offs may take longer than expected.
_JOINED: Final = 0.9


def left_idle(ledger: Ledger, placement: Placement) -> float:
    """Return the part of its node, 0 to 1, that *placement* would open and leave unused; 0 if it opens nothing idle.

    On an idle node, this is all that the pod does not take; on a node in use, the rest of the idle cards that it opens.
    """
    if placement.dialect is None:
        return 0.0
    dialect = ledger.catalog.dialects[placement.dialect]
    cards = ledger.states[placement.node].cards(placement.dialect)
    before, after = dialect.room(cards), dialect.room(dialect.take(cards, placement.assignment))
    # An idle node counts as a whole, because some of its cards may be unhealthy.
    opened = (before.idle - after.idle) / len(cards) if before.used_ppm else 1.0
    return max(opened - (after.used_ppm - before.used_ppm) / 1_000_000, 0.0)


def worth_s(settings: Settings, part: float) -> float:
    """Return how long a pod may wait in total, rather than open a node and leave *part* of it unused."""
    return settings.turn_wait_max_s * floor(part * _PARTS) / _PARTS


def joined_s(settings: Settings, part: float, waited_s: float) -> float:
    """Return the longest line, in seconds, that a pod may join for that reason after waiting *waited_s*."""
    left = worth_s(settings, part) * _JOINED - waited_s
    step_s = settings.turn_wait_max_s / _PARTS
    return floor(left / step_s) * step_s if left > 0 else 0.0


# The tolerations that the API server's admission adds to every pod; masks depend on what pods tolerate.
# Source: Kubernetes documentation, admission controllers, DefaultTolerationSeconds.
_PLAIN: Final = NodeConstraints(
    tolerations=tuple(
        Toleration(key=f"node.kubernetes.io/{key}", operator="Exists", effect="NoExecute")
        for key in ("not-ready", "unreachable")
    )
)


class NodeSearch:
    """The nodes of the ledger, in the order in which shapes take them.

    Attributes:
        policy: scores nodes.
        candidates: the order of the nodes.
        kinds: groups of nodes that are alike.
        learning: past requests.
    """

    def __init__(self, ledger: Ledger, announce: Callable[[NodeName, str, str], None], metrics: Metrics) -> None:
        """Order the nodes of *ledger*; *announce*: writes an event on a node."""
        self._ledger: Final = ledger
        self._announce: Final = announce
        self._metrics: Final = metrics
        self._primed: Final[list[Shape]] = []
        # The ordering or learning in progress. Once the cluster is ordered for a shape, its next pod is decided even if
        # nodes have changed since; otherwise the ordering might never end.
        self._under_way: Iterator[None] | None = None
        self._prepared: Final[set[Shape]] = set()
        self._begin_anew()
        deque(self.prime(), maxlen=0)

    def _begin_anew(self) -> None:
        self.policy = node_policy(self._ledger.settings)
        self.candidates = Candidates(self._ledger, self.policy)
        self.kinds = Kinds(self._ledger)
        self.learning = Learning(self._ledger)

    def configure(self, tables: Tables, settings: Settings) -> Iterator[None]:
        """Let the ledger read everything again under another configuration, and order its nodes by that."""
        self._under_way = None
        self._prepared.clear()
        yield from self._ledger.configure(tables, settings)
        self._begin_anew()
        yield from self.prime()

    # ------------------------------------------------------------------ ordering

    def go_on(self) -> bool:
        """Do one slice of the work that must come before the next decision; return False if there is none."""
        if self._under_way is None:
            if not self.learning.is_due:
                return False
            self._under_way = self._learn()
        elif next(self._under_way, False) is False:
            self._under_way = None
        return True

    def begin(self, work: Iterator[None]) -> None:
        """Do *work*, slice by slice, before the next decision."""
        self._under_way = work

    def unprepared(self, shapes: Iterable[Shape]) -> Shape | None:
        """Return the first of *shapes* for which the cluster must be ordered before a decision, if any."""
        return next((one for one in shapes if not self._is_prepared(one)), None)

    def _is_prepared(self, shape: Shape) -> bool:
        return shape in self._prepared or all(
            map(self.candidates.is_prepared, (*preferred_shapes(self._ledger, shape), shape))
        )

    def prepared(self, shape: Shape) -> Iterator[None]:
        """Order the cluster for a new shape; yields between slices."""
        for wished in (*preferred_shapes(self._ledger, shape), shape):
            yield from self.candidates.prepare(wished)
        self._prepared.add(shape)

    def decided(self, shapes: Iterable[Shape]) -> None:
        """Note that a pod of each of *shapes* is being decided, so that later changes count again."""
        self._prepared.difference_update(shapes)

    def prime(self) -> Iterator[None]:
        """Order the cluster for pods without constraints, in each dialect, before the first such pod comes.

        While the cluster is being listed, `keep_up` updates this order change by change.
        """
        tables = self._ledger.tables
        self._primed.clear()
        for dialect in self._ledger.catalog.dialects:
            limits = dict.fromkeys(self._ledger.catalog.names(dialect, tables).resources, "1")
            probe = Pod(
                uid=PodUid(""),
                namespace="",
                name="",
                constraints=_PLAIN,
                containers=(Container(name="", limits=limits),),
            )
            shape = shape_of(probe, self._ledger)
            if isinstance(shape, Shape):
                self._primed.append(shape)
                yield from self.candidates.prepare(shape)
                self.best(shape)

    def keep_up(self) -> None:
        """Update the primed order while few nodes have changed, so that no decision must wait for it."""
        for shape in self._primed:
            if not self.learns or self.candidates.is_prepared(shape):
                self.best(shape)

    # ------------------------------------------------------------------ finding

    def best(self, shape: Shape, passed_over: frozenset[NodeName] = frozenset()) -> Found | None:
        """Return the best node for *shape*, except *passed_over*; nodes with a contradiction are set aside."""
        while True:
            try:
                return self.candidates.best(shape, passed_over)
            except NodeInvariantError as error:
                self.set_aside(error)

    def takes(self, shape: Shape, name: NodeName) -> bool:
        """Whether node *name* takes *shape* now."""
        state = self._ledger.states.get(name)
        return (
            state is not None
            and takes(self._ledger, shape, state, self.policy.cards)
            and not self._ledger.constraints.blocks(shape.asked.pods, state.facts)
        )

    def still_fits(self, shape: Shape, placement: Placement) -> bool:
        """Whether *placement*, which is reserved for a pod of *shape*, stands."""
        return still_fits(self._ledger, shape, placement)

    def room_on(self, shape: Shape, name: NodeName, most: int) -> int:
        """How many pods of *shape*, up to *most*, node *name* takes now."""
        return room_on(self._ledger, self.policy, shape, name, most)

    def set_aside(self, error: NodeInvariantError) -> None:
        """Place nothing new on the node whose recorded state is wrong; all other nodes are used as before.

        Raises:
            NodeInvariantError: the node is set aside already, or does not exist, so something else is wrong.
        """
        name = NodeName(error.node)
        if self._ledger.node(name) is None or name in self._ledger.aside:
            raise error
        self._metrics.contradictions.inc()
        why = (
            f"please report this: a placement contradicted the ledger ({impersonal(error.problem)}); nothing new is "
            "placed there until its cards or the configuration change, or the controller restarts"
        )
        self._ledger.set_aside(name, why)
        self._announce(name, "NodeSetAside", f"node {name}: {why}")

    # ------------------------------------------------------------------ learning

    @property
    def learns(self) -> bool:
        """Whether the policy uses past requests (`core.placing.pack`)."""
        return self.policy.tables is not None

    def learn_of(self, pod: Pod, shape: Shape | None = None) -> None:
        """Remember that *pod* asks *shape*, which is read from the pod if absent, if the policy uses past requests."""
        if not self.learns or self.learning.has_seen(pod.uid):
            return
        found = shape or shape_of(pod, self._ledger)
        if isinstance(found, Shape):
            self.learning.saw(pod.uid, found)

    def _learn(self) -> Iterator[None]:
        """Make tables from past requests; if they have changed, forget all scores. Yields between slices."""
        for has_moved in self.learning.learn():
            if has_moved:
                self.policy = replace(self.policy, tables=self.learning.tables)
                self.candidates.judge_anew(self.policy)
                self._prepared.clear()
            yield
        for shape in self._primed:
            yield from self.candidates.prepare(shape)


# The number of nodes with a line that is too long that are tried for one pod, before it joins the line of the best.
_NODES_TRIED: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Nowhere:
    """No node fits. silent: nodes that would, were their plugins not silent."""

    silent: tuple[NodeName, ...] = ()


class Wish(NamedTuple):
    """What the search for a node reads of one pod: its shape, its collision key, and limits on nodes and waits.

    avoid: nodes that repeatedly rejected such pods, used only if nothing else fits. barred: nodes that are never used.
    packs: it waits for a node in use rather than open an idle one. waited_s: how long it has waited in lines. left_s:
    its remaining wait in its present line, infinite if it is in none.
    """

    pod: Pod
    shape: Shape
    keys: CollisionKey
    avoid: frozenset[NodeName] = frozenset()
    barred: frozenset[NodeName] = frozenset()
    packs: bool = False
    waited_s: float = 0.0
    left_s: float = inf


def select_node(wish: Wish, candidates: Candidates, handoff: HandOff, now_s: float) -> Placement | Nowhere:
    """Return where the pod goes now, or that no node takes it; the hand-off remembers the nodes with long lines."""
    nearby = step_aside(wish, candidates, handoff, now_s)
    if nearby is not None:
        return nearby
    has_long_lines = handoff.long_lines.beyond(wish.keys, SHORT_S)
    found = _join_any_line(wish, candidates, handoff, now_s) if has_long_lines else Nowhere()
    if wish.avoid and isinstance(found, Nowhere):
        return select_node(wish._replace(avoid=frozenset()), candidates, handoff, now_s)
    return found


def step_aside(wish: Wish, candidates: Candidates, handoff: HandOff, now_s: float) -> Placement | None:
    """Return the best node with a short wait; under a policy that packs, perhaps one with a longer wait.

    None if there is none, or if the pod should stay in its present line.
    """
    is_late = wish.packs and wish.waited_s > max(handoff.settings.turn_wait_max_s - SHORT_S, 0.0)
    nearby = _within(wish, candidates, handoff, now_s, 0.0 if is_late else SHORT_S)
    long_lines = handoff.long_lines
    if not wish.packs or wish.keys not in long_lines.by_key or not long_lines.beyond(wish.keys, SHORT_S):
        return nearby
    opened = left_idle(candidates.ledger, nearby) if nearby is not None else 1.0
    if wish.waited_s + wish.left_s <= worth_s(handoff.settings, opened):
        return None
    limit_s = joined_s(handoff.settings, opened, wish.waited_s)
    soon = _within(wish, candidates, handoff, now_s, limit_s) if limit_s > SHORT_S else None
    if soon is None or (nearby is not None and left_idle(candidates.ledger, soon) >= opened):
        return nearby
    return soon


def _within(wish: Wish, candidates: Candidates, handoff: HandOff, now_s: float, limit_s: float) -> Placement | None:
    """Return the best node with a wait of *limit_s* at most; None after `_NODES_TRIED` nodes with a longer one."""
    pod, shape, keys, *_ = wish
    out, long_lines = wish.avoid | wish.barred, handoff.long_lines
    for _ in range(_NODES_TRIED):
        waits = long_lines.beyond(keys, limit_s) if keys in long_lines.by_key else None
        placement = decide(candidates, pod, shape, out, waits)
        if placement is None:
            return None
        if handoff.free(placement.node, keys):
            return placement
        wait_s = handoff.wait_s(placement.node, keys, now_s)
        # A pod joins a longer line only if the node is busy, not if it is closed after rejecting pods.
        if wait_s <= limit_s and (wait_s <= SHORT_S or handoff.closed_s(placement.node, keys, now_s) <= SHORT_S):
            return placement
        long_lines.add(placement.node, keys, limit_s)
    return None


def _join_any_line(wish: Wish, candidates: Candidates, handoff: HandOff, now_s: float) -> Placement | Nowhere:
    """Return the best node, however long its line, unless its plugin is silent."""
    out, silent = wish.avoid | wish.barred, NodeSet()
    while (placement := decide(candidates, wish.pod, wish.shape, out, silent)) is not None:
        if handoff.free(placement.node, wish.keys) or isfinite(handoff.wait_s(placement.node, wish.keys, now_s)):
            return placement
        silent.add(placement.node)
    return Nowhere(silent=tuple(sorted(silent)))
