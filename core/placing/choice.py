"""Why a placed pod is served as it is: the best node of every way, or by what is lost, compared on demand."""

from collections.abc import Sequence

from core.ledger import Ledger, Placement
from core.placing.decide import Found, NodePolicy, Shape, scan, shapes_by_way
from core.placing.pack import STEPS
from core.port.dialect import AnyDialect


def compared(ledger: Ledger, policy: NodePolicy, shape: Shape, placement: Placement) -> str:
    """One sentence: the way taken, and for each other way its best node now, were the pod not placed; "" if no choice.

    Looks at every node once per way.
    """
    ways = shapes_by_way(ledger, shape)
    state = ledger.states.get(placement.node)
    if shape.dialect is None or not ways or state is None:
        return ""
    dialect = ledger.catalog.dialects[shape.dialect]
    taken = _way(dialect, placement.assignment, state.cards(placement.dialect))
    before = ledger.fork()
    before.release(placement.pod)
    here = _on(before, policy, shape, placement)
    preference = ledger.settings.mode_preference
    told = [f"{taken} on {placement.node}" + (" (preferred by settings)" if taken in preference else "")]
    for way, held in ways.items():
        if way == taken:
            continue
        found = scan(before, policy, held)
        if found is None:
            told.append(f"{way} fits on no node")
            continue
        cards = before.states[found.node].cards(shape.dialect)
        # Cards that answer to two words are not told of twice.
        if _way(dialect, found.placed.assignment, cards) != way:
            continue
        share = "; ".join(dict.fromkeys(one.text for one in dialect.describe(found.placed.assignment, cards)))
        told.append(f"{way} on {found.node} {_verdict(here, found, way, preference)}: {share}")
    return "; ".join(told)


def _way(dialect: AnyDialect, assignment: object, cards: Sequence[object]) -> str:
    """The mode of the first card of *assignment*; "" if its cards are gone."""
    modes = {one.card: one.mode for one in dialect.tally(cards)}
    return next((modes[one.whole] for one in dialect.describe(assignment, cards) if one.whole in modes), "")


def _on(before: Ledger, policy: NodePolicy, shape: Shape, placement: Placement) -> Found | None:
    """What the pod would be promised on its own node if it were not there yet."""
    others = before.states.keys() - {placement.node}
    return scan(before, policy, shape, others)


def _verdict(here: Found | None, other: Found, way: str, preference: tuple[str, ...]) -> str:
    if here is None:
        return "would fit now"
    if other.rank.minus_score == here.rank.minus_score:
        return "scores the same"
    if other.rank.minus_score > here.rank.minus_score:
        return "scores lower"
    return "scores higher" + ("" if way in preference or not preference else ", but is not preferred")


def packed(ledger: Ledger, policy: NodePolicy, shape: Shape, placement: Placement) -> str:
    """One sentence: what of cards is lost where a pod is, and what would be lost on the best other node, as known now.

    "" where nothing is decided by that. Looks at every node.
    """
    if policy.tables is None or placement.node not in ledger.states:
        return ""
    if placement.dialect is None or not ledger.catalog.dialects[placement.dialect].packs(shape.request):
        return ""
    before = ledger.fork()
    before.release(placement.pod)
    here = _on(before, policy, shape, placement)
    other = scan(before, policy, shape, frozenset({placement.node}))
    told = f"{_cost(here)} on {placement.node}" if here is not None else f"it would not fit on {placement.node} now"
    if other is None:
        return f"{told}; no other node takes it"
    same = here is not None and other.placed.score == here.placed.score
    return f"{told}; the best other node is {other.node}, with {'as much' if same else _cost(other)}"


def _cost(found: Found) -> str:
    return f"{max(-found.placed.score, 0.0) / STEPS:.3f} cards' worth of capacity"
