"""Why a pod waits: refusals as facts, then as sentences, and the smallest change that would let it in.

A refusal is judged node by node (`refusal_on`), which a caller may do in slices; `summed` adds them up into counts
per reason and the few nearest nodes; `sentence` and `report` make prose of that. Nothing else in the core does.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from core import names, nodefit
from core.candidates import Shape, judge
from core.ledger import Ledger, NodeState, Placement
from core.model import NodeName
from core.port import Reason, Shortfall, Violation
from core.settings import Policy

# How many nodes a refusal names with their numbers; the rest are counted.
_NEAREST: Final = 3
_SENTENCE_MAX: Final = 1024
# A shortfall of these can be answered by asking for less.
_AMOUNTS: Final = (Reason.MEMORY, Reason.CORES)

_WHY: Final = {
    Reason.MEMORY: "too little free memory on every card",
    Reason.CORES: "too few free cores on every card",
    Reason.SLOTS: "no card with a free slot",
    Reason.EXCLUSIVE: "no card to itself",
    Reason.UNHEALTHY: "only unhealthy cards",
    Reason.TYPE: "no card of a type that the pod accepts",
    Reason.UUID: "no card that the pod names by UUID",
    Reason.INDEX: "no card at the index that the pod names",
    Reason.MODE: "no card in the mode that the pod asks for",
    Reason.GROUP: "every card holds a member of the pod's group",
    Reason.RULE: "every card holds a pod of the same exclusive rule",
    Reason.LAYOUT: "no card whose MIG layout has such a slice left",
    Reason.TEMPLATE: "no card with such a slice left",
    Reason.BUSY: "cards in use",
    Reason.CARD_COUNT: "too few cards",
    Reason.UNUSABLE: "cards that cannot be used",
    Reason.TOPOLOGY: "cards not connected as needed",
}
# Which reason speaks for a node whose cards lack different things: the one nearest to fitting.
_NEARNESS: Final = {reason: at for at, reason in enumerate(_WHY)}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRefusal:
    """One node, why it cannot take the pod (key: constant words to count by), and its cards with numbers.

    hopeless: not even with all of its cards empty could it.
    """

    node: NodeName
    key: str
    detail: str = ""
    shortfalls: tuple[Shortfall, ...] = ()
    hopeless: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Why no node fits: how many nodes for each reason (most frequent first), the nearest, what would help.

    remedy is the smallest change that lets the pod in, or "". never: no node could take it even if it were empty.
    """

    nodes: int
    counts: tuple[tuple[str, int], ...]
    nearest: tuple[NodeRefusal, ...]
    remedy: str
    never: bool = False

    @property
    def signature(self) -> tuple[tuple[str, ...], str]:
        """Equal as long as only numbers moved."""
        return tuple(key for key, _ in self.counts), _without_digits(self.remedy)


def refusal_on(ledger: Ledger, shape: Shape, state: NodeState, policy: Policy) -> NodeRefusal | None:
    """Why this node cannot take *shape*, or None if it can."""
    name = state.facts.name
    kept_out = nodefit.admits(shape.constraints, state.facts)
    if kept_out is not None:
        return NodeRefusal(node=name, key=kept_out, hopeless=True)
    cards = state.offers.get(shape.dialect)
    if not cards:
        complaint = next((c for c in state.complaints if c.dialect == shape.dialect), None)
        if complaint is not None:
            return NodeRefusal(node=name, key="device data that cannot be used", detail=complaint.problem)
        return NodeRefusal(node=name, key=f"no cards for {shape.dialect}", hopeless=True)
    if shape.dialect in state.closed:
        return NodeRefusal(node=name, key="closed to new shares", detail=state.closed[shape.dialect])
    dialect = ledger.catalog.dialects[shape.dialect]
    if judge(shape, state, dialect, policy) is not None:
        return None
    if dialect.place(cards, shape.request, policy) is None:
        shortfalls = dialect.shortfalls(cards, shape.request)
        hopeless = dialect.place(ledger.empty_cards(name, shape.dialect), shape.request, policy) is None
        return NodeRefusal(node=name, key=_key(shortfalls), shortfalls=shortfalls, hopeless=hopeless)
    lacking = nodefit.shortages(shape.amounts, state.facts, state.used)
    return NodeRefusal(
        node=name,
        key="insufficient " + ", ".join(resource for resource, _, _ in lacking),
        detail="; ".join(
            f"{resource}: {_shown(resource, wanted)} wanted, {_shown(resource, free)} free"
            for resource, wanted, free in lacking
        ),
    )


def summed(refusals: Iterable[NodeRefusal]) -> Refused:
    """The refusals of all nodes as counts, the nearest nodes, and the smallest change."""
    counts: dict[str, int] = {}
    nearest: list[tuple[tuple[float, float, str], NodeRefusal]] = []
    total = 0
    never = True
    for refusal in refusals:
        total += 1
        never = never and refusal.hopeless
        counts[refusal.key] = counts.get(refusal.key, 0) + 1
        nearest.append((_distance(refusal), refusal))
        if len(nearest) > 64:
            nearest = sorted(nearest, key=lambda pair: pair[0])[:_NEAREST]
    best = tuple(refusal for _, refusal in sorted(nearest, key=lambda pair: pair[0])[:_NEAREST])
    ordered = tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
    never = never and total > 0
    return Refused(nodes=total, counts=ordered, nearest=best, remedy=_remedy(best, never), never=never)


def refused(ledger: Ledger, shape: Shape, policy: Policy) -> Refused:
    """Why no node fits *shape*, judged over all nodes at once."""
    found = (refusal_on(ledger, shape, state, policy) for state in ledger.states.values())
    return summed(refusal for refusal in found if refusal is not None)


def sentence(answer: Refused) -> str:
    """The short form, for conditions and events: counts per reason, the nearest card, what to do."""
    if not answer.nodes:
        return "0/0 nodes are available: the cluster has no nodes yet"
    why = ", ".join(f"{count} {key}" for key, count in answer.counts)
    text = f"0/{answer.nodes} nodes are available: {why}."
    near = _nearest_card(answer.nearest)
    if near:
        text += f" Nearest: {near}."
    if answer.never:
        text += " Not even an empty node of this cluster could take it."
    if answer.remedy:
        text += f" {answer.remedy}."
    return text if len(text) <= _SENTENCE_MAX else text[: _SENTENCE_MAX - 1] + "…"


def report(answer: Refused) -> str:
    """The full text on demand: every reason with its count, the nearest nodes card by card."""
    lines = [f"No node fits ({answer.nodes} looked at{', and none would if it were empty' if answer.never else ''}):"]
    lines += [f"  {count:>5}  {key}" for key, count in answer.counts]
    for refusal in answer.nearest:
        lines.append(f"{refusal.node}: {refusal.key}" + (f" ({refusal.detail})" if refusal.detail else ""))
        lines += [f"    {_card(short)}" for short in refusal.shortfalls]
    if answer.remedy:
        lines.append(f"What would help: {answer.remedy}.")
    return "\n".join(lines)


def invalid(violations: Sequence[Violation]) -> str:
    """A pod that may not be asked so, in the words of admission."""
    return "; ".join(str(violation) for violation in violations)


def unjudged(what: Sequence[str]) -> str:
    """A pod that asks for what is not judged yet."""
    return f"waits because cardshare does not judge this yet: {', '.join(what)}; remove it, or use another scheduler"


def placed(ledger: Ledger, placement: Placement) -> str:
    """Where a pod went, card by card: ``gpu-3: GPU-0 (4096 MiB, 25 % cores)``."""
    state = ledger.states.get(placement.node)
    cards = state.offers.get(placement.dialect, ()) if state is not None else ()
    entries = ledger.catalog.dialects[placement.dialect].describe(placement.assignment, cards)
    return f"{placement.node}: " + ", ".join(f"{card} ({what})" for card, what in entries)


def _key(shortfalls: Sequence[Shortfall]) -> str:
    if not shortfalls:
        return "no card fits"
    nearest = min(shortfalls, key=lambda short: _NEARNESS[short.reason])
    return _WHY[nearest.reason]


def _distance(refusal: NodeRefusal) -> tuple[float, float, str]:
    """How far a node is from fitting: cards that lack an amount first, the smallest lack first; names settle ties."""
    lacks = [
        (short.wanted - short.free) / short.wanted
        for short in refusal.shortfalls
        if short.reason in _AMOUNTS and short.wanted > 0
    ]
    if lacks:
        return (0.0, min(lacks), refusal.node)
    if refusal.shortfalls:
        return (1.0, float(min(_NEARNESS[short.reason] for short in refusal.shortfalls)), refusal.node)
    return (2.0 if refusal.detail and not refusal.hopeless else 3.0, 0.0, refusal.node)


def _nearest_card(nearest: Sequence[NodeRefusal]) -> str:
    for refusal in nearest:
        lacking = [s for s in refusal.shortfalls if s.reason in _AMOUNTS and s.wanted > 0]
        if lacking:
            short = min(lacking, key=lambda s: ((s.wanted - s.free) / s.wanted, s.card))
            return f"{refusal.node} {_card(short)}"
        if refusal.shortfalls:
            short = min(refusal.shortfalls, key=lambda s: (_NEARNESS[s.reason], s.card))
            return f"{refusal.node} {_card(short)}"
        if refusal.detail:
            return f"{refusal.node} {refusal.detail}"
    return ""


def _card(short: Shortfall) -> str:
    where = f"{short.card}: " if short.card else ""
    if short.wanted or short.free:
        unit = f" {short.unit}" if short.unit else ""
        text = f"{where}{short.free} of {short.wanted}{unit} free"
        return f"{text} ({short.reason})" if short.reason not in _AMOUNTS else text
    return where + (short.detail or short.reason)


def _remedy(nearest: Sequence[NodeRefusal], never: bool) -> str:
    for refusal in nearest:
        for short in refusal.shortfalls:
            if short.reason is Reason.CARD_COUNT and short.free > 0:
                less = f"Ask for at most {short.free} {short.unit.removeprefix('idle ')} in one container"
                return less + ("" if never else ", or wait for more")
        for reason in _AMOUNTS:
            frees = [s for s in refusal.shortfalls if s.reason is reason and s.wanted > 0]
            if frees:
                best = max(frees, key=lambda s: (s.free, s.card))
                what = best.unit if reason in best.unit else f"{best.unit} of {reason}"
                less = f"ask for at most {best.free} {what}" if best.free > 0 else ""
                # Where no card would do even if it were empty, waiting is no advice.
                wait = "" if never else "wait until a card empties"
                return _capital(", or ".join(part for part in (less, wait) if part))
        waits = (Reason.SLOTS, Reason.EXCLUSIVE, Reason.BUSY)
        if not never and any(short.reason in waits for short in refusal.shortfalls):
            return "Wait until a card empties"
    types = {s.detail for refusal in nearest for s in refusal.shortfalls if s.reason is Reason.TYPE and s.detail}
    return f"Types that are there: {', '.join(sorted(types))}" if types else ""


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _shown(resource: str, amount: int) -> str:
    if resource == names.CPU:
        return f"{amount / 1000:g}"
    if resource in (names.MEMORY, names.EPHEMERAL_STORAGE):
        return f"{amount // 2**20}Mi"
    return str(amount)


def _without_digits(text: str) -> str:
    return "".join("#" if char.isdigit() else char for char in text)
