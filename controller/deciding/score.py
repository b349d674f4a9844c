"""Filter and score: keeps the cluster ordered for the shapes that ask, and finds where a pod goes now.

To order a large cluster for a shape takes long, so it is done in slices between which others have their turn. Nothing
is promised here; `cycle` and `permit` reserve and send what these functions answer, with no pause in between.

A policy that packs is asked for so that some nodes and cards stay wholly free. Device plugins serve pods one after the
other, so that for a moment every node in use is busy; who then takes the next idle one spreads. What a placement opens
and leaves unused is a part of its node, from 0 to 1; a pod waits for a node in use for that part of
`turn_wait_max_s` and no longer. A policy that does not pack opens nothing at any cost.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import floor, inf, isfinite
from typing import Final, NamedTuple

from controller.actions import Action, Announce, Subject
from controller.handing_over.collision import CollisionKey
from controller.handing_over.handoff import SHORT_S, HandOff
from controller.metrics import Metrics
from core.errors import NodeInvariantError
from core.explaining.refusal import impersonal
from core.ledger import Ledger, Placement
from core.model import Container, NodeConstraints, NodeName, Pod, PodUid, Toleration
from core.placing.candidates import Candidates
from core.placing.decide import decide, preferred_shapes, shape_of, still_fits
from core.placing.kinds import Kinds
from core.placing.learning import Learning
from core.placing.rooms import room_on
from core.placing.score import node_policy
from core.placing.shape import Found, Shape, takes
from core.settings import Settings
from core.tables import Tables

# Waits are compared in so many parts of the longest, so that what is known of crowded nodes serves many pods.
_PARTS: Final = 32
# Who joins a line leaves this part of its time for hand-offs that take longer than was expected.
_JOINED: Final = 0.9


def left_idle(ledger: Ledger, placement: Placement) -> float:
    """How much of its node *placement* takes out of idleness and does not use, 0 to 1; 0 where nothing idle is opened.

    Of an idle node all that the pod does not take, of idle cards on a node in use the rest of these cards.
    """
    if placement.dialect is None:
        return 0.0
    dialect = ledger.catalog.dialects[placement.dialect]
    cards = ledger.states[placement.node].cards(placement.dialect)
    before, after = dialect.room(cards), dialect.room(dialect.take(cards, placement.assignment))
    # Of an idle node some cards may be unhealthy.
    opened = (before.idle - after.idle) / len(cards) if before.used_ppm else 1.0
    return max(opened - (after.used_ppm - before.used_ppm) / 1_000_000, 0.0)


def worth_s(settings: Settings, part: float) -> float:
    """How long a pod may wait altogether rather than open so that *part* of a node is left idle."""
    return settings.turn_wait_max_s * floor(part * _PARTS) / _PARTS


def joined_s(settings: Settings, part: float, waited_s: float) -> float:
    """How long a line may be that a pod joins rather than open so, which has *waited_s* behind it."""
    left = worth_s(settings, part) * _JOINED - waited_s
    step_s = settings.turn_wait_max_s / _PARTS
    return floor(left / step_s) * step_s if left > 0 else 0.0


# What the API server's admission gives to every pod that does not tolerate it by itself; masks are apart by what
# pods tolerate. Source: Kubernetes documentation, admission controllers, DefaultTolerationSeconds.
_PLAIN: Final = NodeConstraints(
    tolerations=tuple(
        Toleration(key=f"node.kubernetes.io/{key}", operator="Exists", effect="NoExecute")
        for key in ("not-ready", "unreachable")
    )
)


class Search:
    """The nodes of the ledger, in the order in which shapes take them.

    Attributes:
        policy: by which nodes are scored.
        candidates: the order of the nodes.
        kinds: the nodes that are alike.
        learning: what pods asked.
    """

    def __init__(self, ledger: Ledger, actions: deque[Action], metrics: Metrics) -> None:
        """Order the nodes of *ledger*; *actions*: what is to be done outside."""
        self._ledger: Final = ledger
        self._actions: Final = actions
        self._metrics: Final = metrics
        self._primed: Final[list[Shape]] = []
        # What is being ordered or learnt, and shapes that it was ordered for whose next pod is decided whatever has
        # changed since: so there is an end to the ordering.
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
        """Have the ledger judge everything anew under another configuration, and order it by that."""
        self._under_way = None
        self._prepared.clear()
        yield from self._ledger.configure(tables, settings)
        self._begin_anew()
        yield from self.prime()

    # ------------------------------------------------------------------ ordering

    def go_on(self) -> bool:
        """Do one slice of what has to be done before anybody is decided; False if there is nothing."""
        if self._under_way is None:
            if not self.learning.is_due:
                return False
            self._under_way = self._learn()
        elif next(self._under_way, False) is False:
            self._under_way = None
        return True

    def begin(self, work: Iterator[None]) -> None:
        """Have *work* done, slice by slice, before anybody else is decided."""
        self._under_way = work

    def unprepared(self, shapes: Iterable[Shape]) -> Shape | None:
        """The first of *shapes* for which the cluster has to be ordered before a pod of it is decided."""
        return next((one for one in shapes if not self._is_prepared(one)), None)

    def _is_prepared(self, shape: Shape) -> bool:
        return shape in self._prepared or all(
            map(self.candidates.is_prepared, (*preferred_shapes(self._ledger, shape), shape))
        )

    def prepared(self, shape: Shape) -> Iterator[None]:
        """Order the cluster for pods like none before; the first of them is decided when that is done."""
        for wished in (*preferred_shapes(self._ledger, shape), shape):
            yield from self.candidates.prepare(wished)
        self._prepared.add(shape)

    def decided(self, shapes: Iterable[Shape]) -> None:
        """Pods of *shapes* are decided: what changes from now on counts."""
        self._prepared.difference_update(shapes)

    def prime(self) -> Iterator[None]:
        """Read the cluster for pods without constraints of their own, before the first of these pods.

        Where the cluster is not listed yet, they are kept up change by change (`keep_up`).
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
        """Bring what is kept of nodes up to date while little has changed."""
        for shape in self._primed:
            if not self.learns or self.candidates.is_prepared(shape):
                self.best(shape)

    # ------------------------------------------------------------------ finding

    def best(self, shape: Shape, passed_over: frozenset[NodeName] = frozenset()) -> Found | None:
        """The best node for *shape*, but none of those *passed_over*; nodes about which we are wrong are set aside."""
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
        return still_fits(self._ledger, self.policy, shape, placement)

    def room_on(self, shape: Shape, name: NodeName, most: int) -> int:
        """How many pods of *shape*, up to *most*, node *name* takes now."""
        return room_on(self._ledger, self.policy, shape, name, most)

    def set_aside(self, error: NodeInvariantError) -> None:
        """Place nothing new on a node about which we are wrong; all others go on.

        Raises:
            NodeInvariantError: it was set aside already, or is not there: then it is not the node that is wrong.
        """
        name = NodeName(error.node)
        node = self._ledger.node(name)
        if node is None or name in self._ledger.aside:
            raise error
        self._metrics.contradictions.inc()
        why = (
            f"please report this: a placement contradicted the ledger ({impersonal(error.problem)}); nothing new is "
            "placed there until its cards or the configuration change, or the controller restarts"
        )
        self._ledger.set_aside(name, why)
        about = Subject(kind="Node", name=name, uid=node.uid)
        self._actions.append(Announce(about=about, reason="NodeSetAside", message=f"node {name}: {why}"))

    # ------------------------------------------------------------------ learning

    @property
    def learns(self) -> bool:
        """Whether nodes are chosen by what pods ask (`core.placing.pack`)."""
        return self.policy.tables is not None

    def learn_of(self, pod: Pod, shape: Shape | None = None) -> None:
        """*pod* asks *shape*, which is read where it is not given; nothing is remembered where nothing is learnt."""
        if not self.learns or self.learning.has_seen(pod.uid):
            return
        wish = shape or shape_of(pod, self._ledger)
        if isinstance(wish, Shape):
            self.learning.saw(pod.uid, wish)

    def _learn(self) -> Iterator[None]:
        """Choose by what the pods up to now ask, if that has changed; what was judged before is judged anew."""
        for has_moved in self.learning.learn():
            if has_moved:
                self.policy = replace(self.policy, tables=self.learning.tables)
                self.candidates.judge_anew(self.policy)
                self._prepared.clear()
            yield
        for shape in self._primed:
            yield from self.candidates.prepare(shape)


# So many nodes with too long a line are looked at for one pod before it joins the line of the best.
_NODES_TRIED: Final = 8


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
    keys: CollisionKey
    avoid: frozenset[NodeName] = frozenset()
    barred: frozenset[NodeName] = frozenset()
    packs: bool = False
    waited_s: float = 0.0
    left_s: float = inf


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
    opened = left_idle(candidates.ledger, nearby) if nearby is not None else 1.0
    if wish.waited_s + wish.left_s <= worth_s(handoff.settings, opened):
        return None
    limit_s = joined_s(handoff.settings, opened, wish.waited_s)
    soon = _within(wish, candidates, handoff, now_s, limit_s) if limit_s > SHORT_S else None
    if soon is None or (nearby is not None and left_idle(candidates.ledger, soon) >= opened):
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
