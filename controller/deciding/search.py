"""Finds the best node: keeps the cluster ordered for the shapes that ask, and learns what they ask where that counts.

To order a large cluster for a shape takes long, so it is done in slices between which others have their turn.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from controller.actions import Announce, Subject
from controller.deciding.state import State
from core.errors import NodeInvariantError
from core.explaining.refusal import impersonal
from core.model import Container, NodeConstraints, NodeName, Pod, PodUid, Toleration
from core.placing.candidates import Candidates
from core.placing.decide import preferred_shapes, shape_of
from core.placing.kinds import Kinds
from core.placing.learning import Learning
from core.placing.rooms import room_on
from core.placing.score import node_policy
from core.placing.shape import Found, Shape, takes
from core.settings import Settings
from core.tables import Tables

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

    def __init__(self, state: State) -> None:
        """Have nothing ordered; `prime` begins."""
        self._state: Final = state
        self._ledger: Final = state.ledger
        self._primed: Final[list[Shape]] = []
        # What is being ordered or learnt, and shapes that it was ordered for whose next pod is decided whatever has
        # changed since: so there is an end to the ordering.
        self._under_way: Iterator[None] | None = None
        self._prepared: Final[set[Shape]] = set()
        self._begin_anew()

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
        for dialect in self._ledger.catalog.dialects.values():
            limits = dict.fromkeys(dialect.resources(tables), "1")
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
            and takes(shape, state, self._ledger.catalog.judging(shape.dialect), self.policy.cards)
            and not self._ledger.topology.refuses(shape.peers, name)
        )

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
        self._state.metrics.contradictions.inc()
        why = (
            f"please report this: a placement contradicted the ledger ({impersonal(error.problem)}); nothing new is "
            "placed there until its cards or the configuration change, or the controller restarts"
        )
        self._ledger.set_aside(name, why)
        about = Subject(kind="Node", name=name, uid=node.uid)
        self._state.actions.append(Announce(about=about, reason="NodeSetAside", message=f"node {name}: {why}"))

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
