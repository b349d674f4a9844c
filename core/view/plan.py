"""Which few pods to move so that others fit: the file of ``kubectl cards plan``, which ``apply`` carries out. Pure.

Fields may be added; renaming a field or changing its meaning requires another *version*.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from core.explaining import explain
from core.ledger import Ledger, Placement
from core.model import NodeName, Pod, PodUid, Toleration, group_of
from core.moving.search import Limits, Move, Search, search
from core.moving.units import MoveReach, reach, room_for, unit_of
from core.moving.who import MovablePods, Rights, budget_of, crowd_of
from core.placing.decide import NodePolicy, node_policy, scan
from core.placing.gang import Unit
from core.port.cards import CardWish, Wording
from core.units import counted
from core.view.cards import VERSION
from core.view.fits import ways_of, written
from core.waiting import Cause, Wait

_NO_WAY: Final = "no node offers cards that a pod could ask for in this way; see kubectl cards get"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMove:
    """One eviction. pod: namespace/name; owner: the kind/name of the controller that replaces it.

    group: its PodGroup, "" if none. budget: the PodDisruptionBudget that selects it, "" if none. cards: what it holds.
    to_node, to_cards: the place of its replacement.
    """

    pod: str
    uid: str
    owner: str
    priority: int
    group: str
    budget: str
    from_node: str
    cards: str
    to_node: str
    to_cards: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPlace:
    """The place of one pod that gets in. pod: namespace/name, "" for a pod that does not exist yet; uid: likewise."""

    pod: str
    uid: str
    node: str
    cards: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStaying:
    """How many *pods* on nodes may not be moved, for one *reason*."""

    reason: str
    pods: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The answer of ``plan``.

    asked: what room is made for, as given. cluster: the uid of the cluster's namespace kube-system, "" if it may not be
    listed. state: the resourceVersion of the pods that the plan was made from.
    newest_s: when the newest of them was created, Unix seconds. gain: the effect, or why there is none, in one
    sentence. helps: False if no moves were found. why: why it does not fit now.
    protocol: of the cards, "" for existing pods. limits, annotations, namespace: what a pod of the asked shape writes,
    and where; empty for existing pods. places: where pods get in. moves: in their order. is_fewest: no smaller number
    of moves helps. priority, jobs, moves_max, per_namespace_max: the limits of the plan. staying: who may not be moved.
    """

    version: int = VERSION
    asked: str
    cluster: str = ""
    state: str = ""
    newest_s: int = 0
    gain: str
    helps: bool
    why: str = ""
    protocol: str = ""
    limits: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    namespace: str = ""
    places: tuple[PlannedPlace, ...] = ()
    moves: tuple[PlannedMove, ...] = ()
    is_fewest: bool = False
    priority: int = 0
    jobs: bool = False
    moves_max: int = 0
    per_namespace_max: int = 0
    staying: tuple[PlannedStaying, ...] = ()
    notes: tuple[str, ...] = ()


class Ground(NamedTuple):
    """What a plan is made from: a ledger in which all *pods* on nodes are counted, and what decides who may move.

    state: the resourceVersion of the pods. newest_s: when the newest pod was created, Unix seconds.
    """

    ledger: Ledger
    pods: Sequence[Pod]
    rights: Rights
    limits: Limits = Limits()
    state: str = ""
    newest_s: int = 0
    notes: tuple[str, ...] = ()

    @property
    def policy(self) -> NodePolicy:
        """The policy for choosing nodes, as far as the settings define it."""
        return node_policy(self.ledger.settings)

    def crowd(self) -> MovablePods:
        """Return who may move."""
        return crowd_of(self.ledger, self.pods, self.rights)


def plan_for_pods(ground: Ground, asked: str, unit: Unit) -> Plan:
    """Return the moves that let in the pods of *unit*, which exist; *asked*: how the user named them."""
    crowd = ground.crowd()
    answer = search(ground.ledger.fork(), ground.policy, unit, crowd.movable, ground.limits)
    return _plan(ground, asked, crowd, answer, unit, is_there=True)


def plan_for_wish(ground: Ground, asked: str, wish: CardWish, many: int, namespace: str) -> Plan:
    """Return the moves that let in *many* pods with *wish*, in the protocol that needs the fewest.

    If none helps, it explains a protocol whose nodes could take such a pod if they were empty, if there is one.
    """
    crowd = ground.crowd()
    best: tuple[tuple[bool, bool, int], Plan] | None = None
    for way in ways_of(ground.ledger, wish, namespace):
        unit = wished(ground.ledger, way.wording, many, namespace)
        if isinstance(unit, Wait):
            continue
        answer = search(ground.ledger.fork(), ground.policy, unit, crowd.movable, ground.limits)
        if answer.found is not None:
            cost = False, False, len(answer.found.moves)
        else:
            wait = _wait(ground, unit)
            cost = True, wait is not None and wait.cause is Cause.NEVER_FITS, 0
        if best is None or cost < best[0]:
            found = _plan(ground, asked, crowd, answer, unit, is_there=False)
            wording = way.wording
            best = (
                cost,
                replace(
                    found,
                    protocol=str(way.protocol),
                    limits=wording.limits,
                    annotations=wording.annotations,
                    namespace=namespace,
                ),
            )
    return best[1] if best is not None else replace(_empty(ground, asked, crowd), gain=_NO_WAY)


def wished(
    ledger: Ledger, wording: Wording, many: int, namespace: str, tolerations: tuple[Toleration, ...] = ()
) -> Unit | Wait:
    """Return *many* pods with *wording* and *tolerations* as a unit."""
    pod = written(ledger, namespace, wording)
    pod = pod._replace(constraints=replace(pod.constraints, tolerations=tolerations))
    return unit_of([pod._replace(uid=PodUid(f"{pod.uid}-{at}")) for at in range(many)], ledger)


def still_helps(ground: Ground, plan: Plan, unit: Unit, left: Sequence[PodUid]) -> MoveReach:
    """Return whether the moves of *left* still let in *unit* as *plan* says, on the ledger as it is now.

    Budgets are the API server's to judge at each eviction: while a replacement starts, they allow none.
    """
    rights = replace(ground.rights, budgets=())
    nodes = [NodeName(place.node) for place in plan.places]
    by_uid = {PodUid(place.uid): NodeName(place.node) for place in plan.places if place.uid}
    spare = [node for node, place in zip(nodes, plan.places, strict=True) if not place.uid]
    for member in unit.members:
        if member.pod.uid not in by_uid and spare:
            by_uid[member.pod.uid] = spare.pop(0)
    crowd = crowd_of(ground.ledger, ground.pods, rights)
    return reach(ground.ledger.fork(), ground.policy, unit, by_uid, crowd=crowd, left=left)


def nodes_with_room(ground: Ground, unit: Unit) -> tuple[NodeName, ...] | None:
    """Return the nodes that take the minimum of *unit* without a move now; None if it does not fit."""
    return room_for(ground.ledger.fork(), ground.policy, unit)


# ---------------------------------------------------------------------- values


def _empty(ground: Ground, asked: str, crowd: MovablePods) -> Plan:
    counts = Counter(str(reason) for reason in crowd.staying.values())
    return Plan(
        asked=asked,
        state=ground.state,
        newest_s=ground.newest_s,
        gain="",
        helps=False,
        priority=ground.rights.priority,
        jobs=ground.rights.jobs,
        moves_max=ground.limits.moves,
        per_namespace_max=ground.limits.per_namespace,
        staying=tuple(PlannedStaying(reason=reason, pods=many) for reason, many in counts.most_common()),
        notes=ground.notes,
    )


def _plan(ground: Ground, asked: str, crowd: MovablePods, answer: Search, unit: Unit, *, is_there: bool) -> Plan:
    plan, found = _empty(ground, asked, crowd), answer.found
    if found is None:
        return replace(plan, gain=_no_gain(crowd, answer, ground.limits), why=_why(ground, unit))
    if not unit.members or not found.placements:
        done = "all of its pods are" if not unit.members else "its minimum is"
        more = "; for one pod more, write --for pod" if unit.members else ""
        gain = f"nothing to do: {done} on nodes already{more}"
        return replace(plan, gain=gain, helps=True, is_fewest=True)
    pods = {one.pod.uid: one.pod for one in unit.members}
    places = tuple(_place(ground.ledger, one, pods[one.pod] if is_there else None) for one in found.placements)
    nodes = list(dict.fromkeys(one.node for one in places))
    where = f"{counted(len(places), 'pods')} on {counted(len(nodes), 'nodes')}: {', '.join(nodes)}"
    if found.moves:
        gain = f"{counted(len(found.moves), 'moves')} {'makes' if len(found.moves) == 1 else 'make'} room for {where}"
    else:
        gain = f"no move is needed; there is room now for {where}"
    moves = tuple(_moves(ground, found.moves))
    why = _why(ground, unit) if moves else ""
    return replace(plan, gain=gain, helps=True, why=why, places=places, moves=moves, is_fewest=found.is_fewest)


def _no_gain(crowd: MovablePods, answer: Search, limits: Limits) -> str:
    if answer.gave_up:
        return f"no moves were found before the search reached its limit of {answer.looks} looks"
    if not crowd.movable:
        return "no pod may be moved; see staying"
    many = counted(len(crowd.movable), "pods")
    within = f"within --moves {limits.moves} and --per-namespace {limits.per_namespace}"
    return f"no moves help: {many} may move, and that does not make enough room {within}"


def _why(ground: Ground, unit: Unit) -> str:
    wait = _wait(ground, unit)
    return wait.text if wait is not None else ""


def _wait(ground: Ground, unit: Unit) -> Wait | None:
    """Return why the first pod of *unit* that fits nowhere now does not fit; None if each fits."""
    ledger = ground.ledger
    for member in unit.wanted():
        shape = member.shape.beside(ledger.constraints.pods_of(member.pod))
        if scan(ledger, ground.policy, shape) is None:
            return explain.wait(explain.refused(ledger, shape, ground.policy.cards))
    return None


def _place(ledger: Ledger, placement: Placement, pod: Pod | None) -> PlannedPlace:
    return PlannedPlace(
        pod=pod.key if pod is not None else "",
        uid=pod.uid if pod is not None else "",
        node=placement.node,
        cards=_cards(ledger, placement),
    )


def _moves(ground: Ground, moves: Sequence[Move]) -> Iterator[PlannedMove]:
    ledger = ground.ledger
    owners = {pod.uid: pod for pod in ground.pods}
    for move in moves:
        pod, holding = owners[move.pod.uid], ledger.holding(move.pod.uid)
        group = group_of(pod)
        held = ""
        if holding is not None and holding.dialect is not None:
            cards = ledger.states[move.origin].cards(holding.dialect)
            shares = ledger.catalog.dialects[holding.dialect].describe(holding.assignment, cards)
            held = ", ".join(f"{one.card} ({one.text})" for one in shares)
        yield PlannedMove(
            pod=pod.key,
            uid=pod.uid,
            owner=pod.owner,
            priority=pod.priority,
            group=group.name if group is not None else "",
            budget=budget_of(pod, ground.rights.budgets),
            from_node=move.origin,
            cards=held,
            to_node=move.placement.node,
            to_cards=_cards(ledger, move.placement),
        )


def _cards(ledger: Ledger, placement: Placement) -> str:
    if placement.dialect is None:
        return ""
    cards = ledger.states[placement.node].cards(placement.dialect)
    shares = ledger.catalog.dialects[placement.dialect].describe(placement.assignment, cards)
    return ", ".join(f"{one.card} ({one.text})" for one in shares)
