"""Why a pod waits: refusals as facts, then as sentences, and the smallest change that would let it in.

A refusal is judged node by node (`refusal_on`), which a caller may do in slices; `summed` adds them up into counts
per reason and the few nearest nodes; `sentence` and `report` make prose of that. Nothing else in the core does. What
is advised was judged on the node that it is for (`core.advice`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from core import advice, names, nodefit, spelling
from core.advice import Advice, Room
from core.candidates import Shape, judge
from core.ledger import Ledger, NodeState, Placement
from core.model import NodeName
from core.port import Healing, Reason, Shortfall, Violation
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
    Reason.UNHEALTHY: "no healthy card that fits",
    Reason.UUID: "no card of a UUID that the pod accepts",
    Reason.INDEX: "no card at an index that the pod accepts",
    Reason.MODE: "no card in the mode that the pod asks for",
    Reason.TYPE: "no card of a type that the pod accepts",
    Reason.GROUP: "every card holds a member of the pod's group",
    Reason.RULE: "every card holds a pod of the same exclusive rule",
    Reason.LAYOUT: "no card whose MIG layout has such a slice left",
    Reason.TEMPLATE: "no card with such a slice left",
    Reason.HANDOVER: "a slice of a card is being handed over",
    Reason.BUSY: "no idle card",
    Reason.CARD_COUNT: "too few cards",
    Reason.UNUSABLE: "only cards that cannot be used",
}
# How a card is told of that one of these refuses.
_SAID: Final = {
    Reason.UUID: "not one of the cards that the pod accepts",
    Reason.INDEX: "not at a position that the pod accepts",
    Reason.BUSY: "in use",
}
_SELECTORS: Final = (Reason.TYPE, Reason.UUID, Reason.INDEX, Reason.MODE)
# So many names of cards or types are written out.
_LISTED: Final = 6
# Which reason speaks for a node whose cards lack different things: the one nearest to fitting.
_NEARNESS: Final = {reason: at for at, reason in enumerate(_WHY)}


_Distance = tuple[bool, int, float, int, float, str]
# Stands behind every change that helps.
_NO_CHANGE: Final = (99, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRefusal:
    """One node, why it cannot take the pod (key: constant words to count by), and its cards with numbers.

    hopeless: not even with nothing in use could it; its numbers are then those of the empty node. barred: it keeps the
    pod off for now; the rest is as if it let it in. absent: resources that it has none of, in words. now: what to ask
    less of to be placed there as it is; once_empty: the same were it empty, of a hopeless node. wait: what must happen,
    otherwise. tolerate: a taint that the pod could tolerate instead. mend: what must be mended before all of the node's
    cards can be judged. passed_over: the pod's own node selector or affinity is what refuses; labels: what a node with
    such cards has under the keys of the former.
    """

    node: NodeName
    key: str
    detail: str = ""
    shortfalls: tuple[Shortfall, ...] = ()
    hopeless: bool = False
    barred: bool = False
    absent: tuple[str, ...] = ()
    now: Advice | None = None
    once_empty: Advice | None = None
    wait: str = ""
    tolerate: str = ""
    mend: str = ""
    passed_over: bool = False
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Why no node fits: how many nodes for each reason (most frequent first), the nearest, what would help.

    remedy is the smallest change that lets the pod in, or "". never: no node could take it even if it were empty.
    faulty: nodes have cards that cannot be judged as they are, of which that is not said.
    """

    nodes: int
    counts: tuple[tuple[str, int], ...]
    nearest: tuple[NodeRefusal, ...]
    remedy: str
    never: bool = False
    faulty: bool = False

    @property
    def signature(self) -> tuple[tuple[str, ...], str]:
        """Equal as long as only numbers moved."""
        return tuple(key for key, _ in self.counts), _without_digits(self.remedy)

    @property
    def words(self) -> str:
        """What the nearest node, or its card, complains of in words of its own."""
        if not self.nearest:
            return ""
        short = _telling(self.nearest[0].shortfalls)
        return _without_digits(self.nearest[0].detail if short is None else short.detail)


def refusal_on(ledger: Ledger, shape: Shape, state: NodeState, policy: Policy) -> NodeRefusal | None:
    """Why this node cannot take *shape*, or None if it can."""
    refusal = _refusal_on(ledger, shape, state, policy)
    absent = _absent(ledger, shape, state) if refusal is not None else ()
    return replace(refusal, absent=absent) if refusal is not None and absent else refusal


def _refusal_on(ledger: Ledger, shape: Shape, state: NodeState, policy: Policy) -> NodeRefusal | None:
    facts = state.facts
    mismatch = nodefit.mismatch(shape.constraints, facts)
    if mismatch is not None:
        keys = [key for key, _ in shape.constraints.selector if key in facts.labels and state.offers.get(shape.dialect)]
        labels = tuple((key, facts.labels[key]) for key in keys)
        return NodeRefusal(node=facts.name, key=mismatch, hopeless=True, passed_over=True, labels=labels)
    inside = _refusal_inside(ledger, shape, state, policy)
    barred = nodefit.barred(shape.constraints.tolerations, facts)
    if barred is None or (inside is not None and not state.offers.get(shape.dialect)):
        return inside
    return _barred(facts.name, barred, inside)


def _barred(name: NodeName, key: str, inside: NodeRefusal | None) -> NodeRefusal:
    """A node that keeps the pod off for now; *inside*: why it could not take it otherwise."""
    taint = key.removeprefix("taint ")
    opened = {nodefit.NOT_READY: "is ready", nodefit.CORDONED: "is uncordoned"}.get(key, f"is rid of taint {taint}")
    wait = f"{name} {opened}"
    # Those of Kubernetes' own tell of a condition, which pods are to wait out.
    tolerate = taint if taint != key and "kubernetes.io/" not in taint else ""
    if inside is None:
        return NodeRefusal(node=name, key=key, barred=True, wait=wait, tolerate=tolerate)
    if inside.wait:
        wait += f" and {inside.wait}"
    return replace(inside, key=key, barred=True, now=None, wait=wait, tolerate=tolerate)


def _refusal_inside(ledger: Ledger, shape: Shape, state: NodeState, policy: Policy) -> NodeRefusal | None:
    """Why a node that lets such pods in cannot take *shape*, or None if it can."""
    name = state.facts.name
    if not state.offers.get(shape.dialect):
        complaint = next((c for c in state.complaints if c.dialect == shape.dialect), None)
        if complaint is not None:
            return NodeRefusal(
                node=name,
                key="device data that cannot be used",
                detail=complaint.problem,
                hopeless=True,
                mend=f"the device data of {name} can be used",
            )
        return NodeRefusal(node=name, key=f"no cards for {shape.dialect}", hopeless=True)
    if shape.dialect in state.closed:
        detail, wait = state.closed[shape.dialect], f"{name} is open to new shares"
        return NodeRefusal(node=name, key="closed to new shares", detail=detail, wait=wait)
    if judge(shape, state, ledger.catalog.dialects[shape.dialect], policy) is not None:
        return None
    return _short(ledger, shape, state, policy)


def _short(ledger: Ledger, shape: Shape, state: NodeState, policy: Policy) -> NodeRefusal:
    """A node that has too little of something: what, and what would help."""
    dialect, facts, cards = ledger.catalog.dialects[shape.dialect], state.facts, state.offers[shape.dialect]
    empty = ledger.empty_cards(facts.name, shape.dialect)
    shortfalls = advice.shortfalls(cards, shape.request, dialect, policy)
    if_empty = advice.shortfalls(empty, shape.request, dialect, policy)
    lacking = nodefit.shortages(shape.amounts, facts, state.used)
    own = dialect.resources(ledger.tables)
    now = advice.eased(shape, Room(facts, state.used, cards, shortfalls, own), dialect, policy)
    once_empty = advice.eased(shape, Room(facts, {}, empty, if_empty, own), dialect, policy)
    # What the cards count themselves is told by their shortfalls.
    beyond = tuple(one for one in nodefit.shortages(shape.amounts, facts, {}) if one[0] not in own)
    hardest = _names(beyond) or ("" if shortfalls else _names(lacking))
    key = f"insufficient {hardest}" if hardest else _key(shortfalls)
    if once_empty is not None and not once_empty.parts:
        return NodeRefusal(
            node=facts.name,
            key=key,
            detail=_amounts(lacking, "free"),
            shortfalls=shortfalls,
            now=now,
            wait=_wait(shortfalls, [name for name, _, _ in lacking if name not in own]),
        )
    if isinstance(dialect, Healing) and any(one.reason is Reason.UNHEALTHY for one in if_empty):
        if_well = advice.shortfalls(dialect.healed(empty), shape.request, dialect, policy)
        if not beyond and not if_well:
            wait = f"an unhealthy card of {facts.name} is well again"
            return NodeRefusal(node=facts.name, key=key, shortfalls=if_empty, now=now, wait=wait)
        if_empty = if_well or if_empty
    unusable = not beyond and any(one.reason is Reason.UNUSABLE for one in if_empty)
    return NodeRefusal(
        node=facts.name,
        key=key if hardest else _key(if_empty),
        detail=_amounts(beyond, "there"),
        shortfalls=if_empty,
        hopeless=True,
        now=now,
        once_empty=once_empty,
        mend=f"the cards of {facts.name} that cannot be used now can be" if unusable else "",
    )


def _names(lacking: nodefit.Shortages) -> str:
    return ", ".join(name for name, _, _ in lacking)


def _amounts(lacking: nodefit.Shortages, of: str) -> str:
    shown = advice.shown
    return "; ".join(
        f"{name}: {shown(name, wanted)} wanted, {shown(name, free)} {of}" for name, wanted, free in lacking
    )


def _absent(ledger: Ledger, shape: Shape, state: NodeState) -> tuple[str, ...]:
    """Resources that the node has none of, with what was probably meant."""
    found = [resource for resource, _ in shape.amounts if not state.facts.allocatable.get(resource)]
    if not found:
        return ()
    known = ledger.catalog.resources(ledger.tables)
    meant = [(one, spelling.meant(one, known - {one})) for one in found]
    return tuple(f"{one} (did you mean {other}?)" if other else one for one, other in meant)


def _wait(shortfalls: Sequence[Shortfall], lacking: Sequence[str]) -> str:
    """What must happen for the node to take the pod as it is; *lacking*: what it has too little of beside cards."""
    reasons = {short.reason for short in shortfalls}
    if Reason.HANDOVER in reasons:
        cards = "the slice is handed over"
    elif Reason.CARD_COUNT in reasons:
        cards = "enough cards are free"
    else:
        cards = "a card empties" if reasons or not lacking else ""
    freed = ", ".join(name for name in lacking if name != names.PODS)
    others = f"other pods free {freed}" if freed else "other pods end" if lacking else ""
    return " and ".join(part for part in (cards, others) if part)


@dataclass(slots=True)
class _There:
    """What cards and labels there are that a pod's selectors pass over, and whether nothing else refuses any card."""

    by_reason: dict[Reason, set[str]] = field(default_factory=dict)
    labels: dict[str, set[str]] = field(default_factory=dict)
    positions: int = 0
    others: bool = False
    passed_over: bool = False

    def add(self, refusal: NodeRefusal) -> None:
        """Look at the cards of one more node."""
        for one in refusal.shortfalls:
            if one.reason in _SELECTORS:
                self.by_reason.setdefault(one.reason, set()).add(_name_of(one))
            else:
                self.others = self.others or one.reason is not Reason.UNUSABLE
        self.passed_over = self.passed_over or refusal.passed_over
        for key, value in refusal.labels:
            self.labels.setdefault(key, set()).add(value)
        places = sum(one.unit == "position" for one in refusal.shortfalls)
        self.positions = max(self.positions, len({one.card for one in refusal.shortfalls}) if places else 0)

    def remedy(self) -> str:
        """What the pod could name instead."""
        if self.others:
            return ""
        if Reason.UUID in self.by_reason:
            return f"Name cards that are there ({_listed(self.by_reason[Reason.UUID])}), or leave their list out"
        if Reason.INDEX in self.by_reason and self.positions:
            return f"Name positions that are there (0 to {self.positions - 1}), or leave their list out"
        types, found = self.by_reason.get(Reason.TYPE, set()) - {""}, []
        if types:
            found.append(f"Name types that are there ({_listed(types)})")
        if Reason.MODE in self.by_reason:
            found.append("leave the mode out, or name one that a card is in")
        if self.passed_over and not self.by_reason:
            has = " and ".join(f"{key}: {_listed(values)}" for key, values in self.labels.items())
            there = f" (nodes with such cards have {has})" if has else ""
            found.append(f"correct the pod's node selector or affinity{there}, or label a node")
        return ", or ".join(found)


def summed(refusals: Iterable[NodeRefusal]) -> Refused:
    """The refusals of all nodes as counts, the nearest nodes, and the smallest change."""
    counts: dict[str, int] = {}
    nearest: list[tuple[_Distance, NodeRefusal]] = []
    total = 0
    never = True
    absent: set[str] | None = None
    now: Advice | None = None
    once_empty: tuple[Advice, str] | None = None
    # The node that would take the pod as it is, were it to let it in.
    shut: NodeRefusal | None = None
    mend = ""
    there = _There()
    for refusal in refusals:
        total += 1
        never = never and refusal.hopeless
        absent = set(refusal.absent) if absent is None else absent & set(refusal.absent)
        counts[refusal.key] = counts.get(refusal.key, 0) + 1
        if refusal.now is not None and (now is None or refusal.now.size < now.size):
            now = refusal.now
        if refusal.once_empty is not None and (once_empty is None or refusal.once_empty.size < once_empty[0].size):
            once_empty = refusal.once_empty, refusal.wait
        if refusal.barred and not refusal.shortfalls and not refusal.detail and not refusal.hopeless:
            shut = refusal if shut is None or refusal.node < shut.node else shut
        mend = min(mend or refusal.mend, refusal.mend or mend)
        there.add(refusal)
        nearest.append((_distance(refusal), refusal))
        if len(nearest) > 64:
            nearest = sorted(nearest, key=lambda pair: pair[0])[:_NEAREST]
    best = tuple(refusal for _, refusal in sorted(nearest, key=lambda pair: pair[0])[:_NEAREST])
    ordered = tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
    never = never and total > 0
    if absent:
        remedy = f"No node offers {' or '.join(sorted(absent))}: leave it out, or ask the cluster's operator"
    elif never:
        parts = ["" if best[0].mend else there.remedy(), f"wait until {mend}" if mend else ""]
        remedy = _never_remedy(now, once_empty) or _capital(", or ".join(part for part in parts if part))
    else:
        waits = [next((one for one in best if one.wait), None), shut]
        remedy = _remedy(now, [one for one in dict.fromkeys(waits) if one is not None]) or there.remedy()
    return Refused(nodes=total, counts=ordered, nearest=best, remedy=remedy, never=never, faulty=bool(mend))


def _remedy(now: Advice | None, waits: Sequence[NodeRefusal]) -> str:
    """To ask for less, or to wait for what mends one of *waits*."""
    parts = [f"ask for {now}"] if now is not None else []
    parts += [f"tolerate taint {one.tolerate}" for one in waits if one.tolerate]
    if waits:
        parts.append("wait until " + ", or until ".join(one.wait for one in waits))
    return _capital(", or ".join(parts))


def _never_remedy(now: Advice | None, once_empty: tuple[Advice, str] | None) -> str:
    """What an empty node would take and when, and how much of that at once."""
    if once_empty is None:
        return ""
    less = f"Ask for {once_empty[0]}"
    if str(now) == str(once_empty[0]):
        return less
    wait = once_empty[1] or "room frees"
    return f"{less}; with {now} it would be placed now" if now is not None else f"{less}; it then waits until {wait}"


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
    # Where the nearest cannot be judged, nothing is said of those that can.
    if answer.never and not answer.nearest[0].mend:
        on = " on the cards that can be used now" if answer.faulty else ""
        text += f" Not even an empty node of this cluster could take it{on}."
    if answer.remedy:
        text += f" {answer.remedy}."
    return text if len(text) <= _SENTENCE_MAX else text[: _SENTENCE_MAX - 1] + "…"


def report(answer: Refused) -> str:
    """The full text on demand: every reason with its count, the nearest nodes card by card."""
    lines = [f"No node fits ({answer.nodes} looked at{', and none would if it were empty' if answer.never else ''}):"]
    lines += [f"  {count:>5}  {key}" for key, count in answer.counts]
    for refusal in answer.nearest:
        lines.append(f"{refusal.node}: {refusal.key}" + (f" ({refusal.detail})" if refusal.detail else ""))
        lines += [f"    {_card(short, hopeless=refusal.hopeless)}" for short in refusal.shortfalls]
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
    telling = _telling(shortfalls)
    return _WHY[telling.reason] if telling is not None else "no card fits"


def _distance(refusal: NodeRefusal) -> _Distance:
    """How far a node is from fitting: those that could once they empty first, then the smallest change, or lack.

    Names settle ties.
    """
    size = refusal.once_empty.size if refusal.once_empty is not None else _NO_CHANGE if refusal.hopeless else (0, 0.0)
    short = _telling(refusal.shortfalls)
    if short is None:
        return (refusal.hopeless, *size, 2 if refusal.detail else 3, 0.0, refusal.node)
    if _lacks(short):
        return (refusal.hopeless, *size, 0, _lack(short), refusal.node)
    return (refusal.hopeless, *size, 1, float(_NEARNESS[short.reason]), refusal.node)


def _telling(shortfalls: Sequence[Shortfall]) -> Shortfall | None:
    """The shortfall that speaks for a node: too few cards where some fit, else the card that lacks least."""
    few = next((one for one in shortfalls if one.reason is Reason.CARD_COUNT and _lacks(one)), None)
    lacking = [one for one in shortfalls if _lacks(one)]
    if few is not None or not shortfalls:
        return few
    if lacking:
        return min(lacking, key=lambda one: (_lack(one), one.card))
    return min(shortfalls, key=lambda one: (_NEARNESS[one.reason], one.card))


def _lacks(short: Shortfall) -> bool:
    if short.reason is Reason.CARD_COUNT:
        return short.free > 0
    return short.reason in _AMOUNTS and short.wanted > 0


def _lack(short: Shortfall) -> float:
    return (short.wanted - short.free) / short.wanted


def _nearest_card(nearest: Sequence[NodeRefusal]) -> str:
    for refusal in nearest:
        short = _telling(refusal.shortfalls)
        if short is not None:
            return f"{refusal.node} {_card(short, hopeless=refusal.hopeless)}"
        if refusal.detail:
            return f"{refusal.node} {refusal.detail}"
    return ""


def _card(short: Shortfall, *, hopeless: bool) -> str:
    where = f"{short.card}: " if short.card else ""
    if short.wanted or short.free:
        unit = short.unit.removeprefix("idle ").removesuffix(" of idle chips") if hopeless else short.unit
        text = f"{where}{short.free} of {short.wanted}{' ' * bool(unit)}{unit} {'there' if hopeless else 'free'}"
        return text if short.reason in (*_AMOUNTS, Reason.CARD_COUNT) else f"{text} ({short.reason})"
    if short.reason is Reason.TYPE and short.detail:
        return f"{where}its type is {short.detail}"
    return where + (short.detail or _SAID.get(short.reason, short.reason))


def _name_of(short: Shortfall) -> str:
    return short.detail if short.reason is Reason.TYPE else short.card


def _listed(words: Iterable[str]) -> str:
    ordered = sorted(words)
    more = f" and {len(ordered) - _LISTED} more" if len(ordered) > _LISTED else ""
    return ", ".join(ordered[:_LISTED]) + more


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _without_digits(text: str) -> str:
    return "".join("#" if char.isdigit() else char for char in text)
