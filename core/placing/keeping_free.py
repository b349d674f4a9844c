"""Which nodes to keep free for a unit that waits too long behind smaller ones: as few as it needs, the least used.

If pods come and go, the next small pod takes at once what another has freed, and a large one waits forever. On nodes
that take no other pods, free capacity adds up until the unit fits.
"""

from collections.abc import Iterator, Sequence, Set

from core.ledger import Ledger
from core.model import NodeName
from core.node_state import NodeState
from core.placing.decide import NodePolicy, Shape, placed_on, takes
from core.placing.domains import domains
from core.placing.gang import Member, Refused, Unit, put


def nodes_for(
    ledger: Ledger,
    policy: NodePolicy,
    unit: Unit,
    refused: Refused | None = None,
    *,
    passed_over: Set[NodeName] = frozenset(),
) -> frozenset[NodeName]:
    """Nodes on which the minimum of *unit* would be placed once they are empty; none if all nodes are too few.

    Of a unit that must be in one domain, nodes of the one that takes most of it now, else of the first that would do;
    none if its subgroups must be in domains of their own.

    Args:
        ledger: a fork that is not used after this.
        policy: how nodes are chosen.
        unit: what waits.
        refused: where its members fitted when it was last tried: those places stay as they are.
        passed_over: nodes that are not to be among them.
    """
    if not unit.is_bound:
        return _nodes_for(ledger, policy, unit, refused, passed_over)
    if unit.topology is None or any(one.near.hard for one in unit.inner.values()):
        return frozenset()
    best = refused.domain if refused is not None else None
    others = (one for one in domains(ledger, unit.topology, unit.home) if one != best)
    for domain in (best, *others) if best is not None else others:
        with ledger.trial():
            outside = passed_over | (ledger.states.keys() - domain.nodes)
            found = _nodes_for(ledger, policy, unit, refused if domain == best else None, outside)
        if found:
            return found
    return frozenset()


def _nodes_for(
    ledger: Ledger, policy: NodePolicy, unit: Unit, refused: Refused | None, passed_over: Set[NodeName]
) -> frozenset[NodeName]:
    if refused is not None and any(placement.node in passed_over for placement in refused.placements):
        refused = None
    kept = {placement.node for placement in refused.placements} if refused is not None else set()
    if refused is not None:
        put(ledger, policy, refused)
    left = [one for one in unit.wanted() if ledger.node_of(one.pod.uid) is None]
    for name in _by_use(ledger, passed_over):
        if not left:
            break
        if any(_would_take(ledger, policy, shape, name) for shape in {one.shape for one in left}):
            found = _fill(ledger, policy, name, left, unit)
            if len(found) < len(left):
                kept.add(name)
            left = found
    return frozenset(kept) if not left else frozenset()


def _by_use(ledger: Ledger, passed_over: Set[NodeName]) -> Iterator[NodeName]:
    """Return all other nodes, by the number of pods that would have to end, then by name."""
    counts = sorted((len(ledger.holders(name)), name) for name in ledger.states if name not in passed_over)
    return (name for _, name in counts)


def _would_take(ledger: Ledger, policy: NodePolicy, shape: Shape, name: NodeName) -> bool:
    """Return whether node *name* would take *shape* if it had no pods."""
    state: NodeState = ledger.states[name]._replace(offers=ledger.offered(name), used={}, closed={})
    return takes(ledger, shape, state, policy.cards)


def _fill(ledger: Ledger, policy: NodePolicy, name: NodeName, members: Sequence[Member], unit: Unit) -> list[Member]:
    """Empty node *name*, except for members of *unit*, and place *members* there; return those that do not fit."""
    own = {one.pod.uid for one in unit.members}
    with ledger.trial() as trial:
        for uid in [uid for uid in ledger.holders(name) if uid not in own]:
            ledger.release(uid)
        left = []
        full: set[Shape] = set()
        for one in members:
            placement = placed_on(ledger, policy, one.pod, one.shape, name) if one.shape not in full else None
            if placement is None:
                full.add(one.shape)
                left.append(one)
            else:
                ledger.reserve(placement)
        if len(left) < len(members):
            trial.keep()
    return left
