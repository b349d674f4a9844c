"""Why one node cannot take a pod, as facts: what refuses it, in numbers, and what would let it in.

Temporary obstacles (a cordon, a taint, an unhealthy card) are judged as if absent. Advice was judged on its node
(`core.explaining.advice`). `core.explaining.explain` turns the facts into text.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from core import model, names
from core.constraints.constraint import Obstacle
from core.constraints.taints import TAINT
from core.explaining import advice
from core.explaining.advice import Advice, NodeCapacity, Unwished
from core.inventory import at_its_best
from core.ledger import Ledger
from core.model import NodeFacts, NodeName
from core.node_state import NodeState
from core.placing.decide import Shape, judge
from core.port.dialect import Names
from core.port.refusals import DESERTED, PASSING, Reason, Shortfall
from core.settings import Policy

# A smaller request can answer a shortfall of these.
AMOUNTS: Final = (Reason.MEMORY, Reason.CORES)

WHY: Final = {
    Reason.MEMORY: "too little free memory on every card",
    Reason.CORES: "too few free cores on every card",
    Reason.SLOTS: "no card with a free slot",
    Reason.EXCLUSIVE: "no card without other pods",
    Reason.PROMISED: "every card is held by a pod with 100 % of its cores",
    Reason.UNSTEADY: "every card that fits has become unhealthy repeatedly",
    Reason.CLAIMED: "every card that fits is in use through a resource claim",
    Reason.CORDONED: "only cordoned cards",
    Reason.UNHEALTHY: "no healthy card that fits",
    Reason.UNORDERED: "no card with a stable position",
    Reason.UUID: "no card with a UUID that the pod accepts",
    Reason.INDEX: "no card at an index that the pod accepts",
    Reason.MODE: "no card in the mode that the pod asks for",
    Reason.TYPE: "no card of a type that the pod accepts",
    Reason.GROUP: "every card holds a member of the pod's group",
    Reason.RULE: "a rule keeps the pod off every card",
    Reason.LINKS: "too few of the cards that fit are linked with each other",
    Reason.LAYOUT: "no card with such a MIG slice left",
    Reason.TEMPLATE: "no card with such a slice left",
    Reason.HANDOVER: "a slice of a card is being handed over",
    Reason.BUSY: "no idle card",
    Reason.CONTAINERS: "no card left for another container of the pod",
    Reason.CARD_COUNT: "too few cards",
    Reason.UNUSABLE: "only unusable cards",
}
_JOINING: Final = "new, with no cards registered yet"
_AWAY: Final = "without cards that kubelet can allocate now"
_LEFT: Final = "without its device plugin, which runs on other nodes"
# The form of a pod's name in sentences: namespace and name.
_NAMED_POD: Final = re.compile(r"\bpod [a-z0-9.-]+/[a-z0-9.-]+")
_UNTOLD: Final = "delete the pod there with unknown card use (kubectl cards get names it)"
# The order in which reasons represent a node whose cards lack different things: closest to fitting first.
NEARNESS: Final = {reason: at for at, reason in enumerate(WHY)}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRefusal:
    """Why one node cannot take the pod (key: constant words for counting), and its cards with numbers.

    hopeless: it could not even if unused; its numbers are then those of the empty node. barred: it currently accepts no
    such pods; the rest is judged as if it did. absent: resources that it does not have; offered: its resources that
    sell cards; asked: those by which the pod asks for them.
    now: what to reduce for a placement on the node as it is; once_empty: the same for a hopeless node when empty. wait:
    what must happen otherwise. tolerate: the taints whose toleration would suffice. repair: what must be repaired
    before all of the node's cards can be judged. instead: what the pod could do to be placed there, if the node has
    the capacity and a constraint refuses the pod; labels: its labels that differ from the pod's selector. joining: its
    cards may be registered soon. away: its kubelet knows such cards, and has none now. held: it will take the pod in
    some seconds, when the cards of a force-deleted pod are free.
    """

    node: NodeName
    key: str
    detail: str = ""
    shortfalls: tuple[Shortfall, ...] = ()
    hopeless: bool = False
    barred: bool = False
    absent: tuple[str, ...] = ()
    offered: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    now: Advice | None = None
    once_empty: Advice | None = None
    unwished: Unwished | None = None
    wait: str = ""
    tolerate: str = ""
    repair: str = ""
    instead: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    joining: bool = False
    away: bool = False
    held: bool = False


def refusal_on(ledger: Ledger, shape: Shape, state: NodeState, policy: Policy) -> NodeRefusal | None:
    """Return why this node cannot take *shape*, or None if it can."""
    refusal = _refusal_on(ledger, shape, state, policy)
    if refusal is None:
        return None
    there = state.facts.allocatable
    # A resource with an amount of 0 is known to kubelet.
    absent = tuple([resource for resource, _ in shape.amounts if resource not in there])
    if not absent:
        return refusal
    sold = ledger.words.resources
    offered = tuple([one for one in there if there[one] and one in sold])
    asked = tuple([resource for resource, _ in shape.amounts if resource in sold])
    return replace(refusal, absent=absent, offered=offered, asked=asked)


def _refusal_on(ledger: Ledger, shape: Shape, state: NodeState, policy: Policy) -> NodeRefusal | None:
    facts = state.facts
    bars = list(ledger.constraints.bars(shape.asked, facts))
    lasting = [one for one in bars if not one.until]
    if lasting:
        key = lasting[0].key
        if not _takes_empty(ledger, shape, state, policy) or not all(one.instead for one in lasting):
            return NodeRefusal(node=facts.name, key=key, hopeless=True)
        # The last is the hardest: no label that the pod selects brings its volume there.
        return NodeRefusal(
            node=facts.name, key=key, hopeless=True, instead=lasting[-1].instead, labels=lasting[-1].labels
        )
    inside = _or_held_back(ledger, shape, _refusal_inside(ledger, shape, state, policy), policy)
    inside = _or_away(ledger, shape, inside)
    if not bars or (inside is not None and not state.cards(shape.dialect)):
        return inside
    return _barred(facts.name, bars, inside)


def _takes_empty(ledger: Ledger, shape: Shape, state: NodeState, policy: Policy) -> bool:
    """Return whether the unused node has the capacity for *shape*, whatever its labels and conditions."""
    empty = ledger.empty_cards(state.facts.name, shape.dialect)
    dialect = ledger.catalog.judging(shape.dialect)
    return dialect.place(empty, shape.request, policy) is not None and not model.shortages(
        shape.amounts, state.facts, {}
    )


def _or_held_back(ledger: Ledger, shape: Shape, refusal: NodeRefusal | None, policy: Policy) -> NodeRefusal | None:
    """Return *refusal*, which is not permanent if the node would take *shape* with its full capacity allocatable."""
    node = ledger.node(refusal.node) if refusal is not None and refusal.hopeless else None
    if refusal is None or node is None or shape.dialect is None:
        return refusal
    own = ledger.resources_of(shape.dialect)
    if all(node.capacity.get(key) == node.allocatable.get(key) for key in own):
        return refusal
    best = at_its_best(replace(node, capacity={key: text for key, text in node.capacity.items() if key in own}))
    raised = sorted(key for key in own if best.allocatable.get(key) != node.allocatable.get(key))
    if not raised:
        return refusal
    cards = ledger.catalog.offers(best, ledger.tables, ledger.settings)[0].get(shape.dialect, ())
    if not cards:
        return refusal
    cards = ledger.catalog.dialects[shape.dialect].healed(cards)
    takes = ledger.catalog.judging(shape.dialect).place(cards, shape.request, policy) is not None
    if not takes or model.shortages(shape.amounts, model.facts_of(best), {}):
        # Cards that could not be judged with the current allocatable are judged now.
        is_judged = not ledger.empty_cards(refusal.node, shape.dialect)
        return replace(refusal, repair="") if is_judged else refusal
    wait = f"all {' and '.join(raised)} of {refusal.node} are allocatable again"
    return replace(refusal, hopeless=False, once_empty=None, unwished=None, repair="", wait=wait)


def _barred(name: NodeName, bars: Sequence[Obstacle], inside: NodeRefusal | None) -> NodeRefusal:
    """Return the refusal of a node that accepts no such pods now; *inside*: why it could not take it otherwise."""
    wait = f"{name} {' and '.join(dict.fromkeys(one.until for one in bars))}"
    if inside is None:
        # Kubernetes' own taints express a condition, which pods should wait out.
        keys = [one.key for one in bars]
        own = all(key.startswith(TAINT) and "kubernetes.io/" not in key for key in keys)
        tolerate = " and ".join(keys) if own else ""
        return NodeRefusal(node=name, key=bars[0].key, barred=True, wait=wait, tolerate=tolerate)
    if inside.wait:
        wait += f" and {inside.wait}"
    elif inside.now != inside.once_empty:
        wait += " and has free capacity"
    return replace(inside, key=bars[0].key, barred=True, now=None, wait=wait)


def _refusal_inside(ledger: Ledger, shape: Shape, state: NodeState, policy: Policy) -> NodeRefusal | None:
    """Return why a node that accepts such pods cannot take *shape*, or None if it can."""
    name = state.facts.name
    if not state.cards(shape.dialect):
        complaint = next((c for c in state.complaints if c.dialect == shape.dialect and c.closes), None)
        if complaint is not None:
            return NodeRefusal(
                node=name,
                key="invalid device data",
                detail=impersonal(complaint.problem),
                hopeless=True,
                repair=f"the device data of {name} is valid",
            )
        if state.facts.joining and not state.facts.leaving:
            wait = f"the device plugin of {name} has registered its cards"
            return NodeRefusal(node=name, key=_JOINING, barred=True, wait=wait, joining=True)
        key = f"no cards for {shape.dialect}"
        return NodeRefusal(node=name, key=key, detail=_in_another_way(ledger, shape, state), hopeless=True)
    if shape.dialect is not None and state.closed.get(shape.dialect) == DESERTED:
        repair = f"the device plugin of {name} runs there again"
        return NodeRefusal(node=name, key=_LEFT, detail=DESERTED, hopeless=True, repair=repair)
    takes = judge(ledger, shape, state._replace(closed={}), policy)
    short = None if takes is not None else _short(ledger, shape, state, policy)
    if shape.dialect not in state.closed:
        return short
    if short is not None and short.hopeless:
        return replace(short, now=None)
    wait = f"{name} accepts new shares" + (f" and {short.wait}" if short is not None else "")
    return NodeRefusal(node=name, key="closed to new shares", detail=impersonal(state.closed[shape.dialect]), wait=wait)


def _in_another_way(ledger: Ledger, shape: Shape, state: NodeState) -> str:
    """Return that a node has the pod's resource, but offers these cards in another way; "" if it does not."""
    if shape.dialect is None:
        return ""
    own = ledger.resources_of(shape.dialect)
    has = [one for one, _ in shape.amounts if one in own and state.facts.allocatable.get(one)]
    others = sorted(one for one in ledger.catalog.rivals[shape.dialect] if state.offers.get(one))
    return f"has {', '.join(has)}, but offers its cards as {', '.join(others)}" if has and others else ""


def _or_away(ledger: Ledger, shape: Shape, refusal: NodeRefusal | None) -> NodeRefusal | None:
    """Return *refusal*, or that the node's kubelet has none of its cards, healthy or not, and may have them again.

    A resource stays in the status of a node with amount 0 while its device plugin is not registered. After a restart of
    kubelet its capacity is 0 too, so nothing shows what the node will have.
    Source: Kubernetes, pkg/kubelet/cm/devicemanager (`GetCapacity`, `readCheckpoint`).
    """
    node = ledger.node(refusal.node) if refusal is not None and shape.dialect is not None else None
    if refusal is None or node is None:
        return refusal
    own = ledger.resources_of(shape.dialect)
    none = [one for one, _ in shape.amounts if one in own and node.allocatable.get(one) == "0"]
    if not none:
        return refusal
    detail = f"has 0 of {', '.join(none)}"
    if any(node.capacity.get(one, "0") != "0" for one in none):
        # It was judged with its full capacity.
        return refusal if refusal.hopeless else replace(refusal, key=_AWAY, detail=detail, shortfalls=(), away=True)
    repair = f"the device plugin of {node.name} has registered with kubelet again (if that takes minutes, see its pod)"
    return NodeRefusal(node=node.name, key=_AWAY, detail=detail, hopeless=True, repair=repair, away=True)


def impersonal(text: str) -> str:
    """Return *text* without the name of a pod, which may be in another namespace than the waiting pod.

    Operators find the name in the node's warnings in ``kubectl cards get``, and in events of the pod itself.
    """
    found = _NAMED_POD.search(text)
    if found is None:
        return text
    return f"{text[: found.start()]}another pod" if found.start() else _UNTOLD


def _short(ledger: Ledger, shape: Shape, state: NodeState, policy: Policy) -> NodeRefusal:
    """Return the refusal of a node with too little of something, and what would help."""
    dialect, facts, cards = ledger.catalog.judging(shape.dialect), state.facts, state.cards(shape.dialect)
    empty = ledger.empty_cards(facts.name, shape.dialect)
    shortfalls = advice.shortfalls(cards, shape.request, dialect, policy)
    if_empty = shortfalls if cards == empty else advice.shortfalls(empty, shape.request, dialect, policy)
    lacking = model.shortages(shape.amounts, facts, state.used)
    own = ledger.resources_of(shape.dialect)
    in_use = list(ledger.constraints.conflicts(shape.asked, facts, state.held))
    free = NodeCapacity(facts, state.used, cards, shortfalls, own, _accounts(ledger, shape, facts, state.used))
    all_of_it = NodeCapacity(facts, {}, empty, if_empty, own, _accounts(ledger, shape, facts, {}))
    once_empty = advice.relaxed(shape, all_of_it, dialect, policy)
    # Trying changes is most of the cost of a refusal.
    now = None if in_use else once_empty if free == all_of_it else advice.relaxed(shape, free, dialect, policy)
    # The cards' shortfalls cover what they count themselves.
    beyond = tuple(one for one in model.shortages(shape.amounts, facts, {}) if one[0] not in own)
    account = model.account_shortages(shape.accounted, facts, state.used)
    lasting = model.account_shortages(shape.accounted, facts, {})
    if not beyond and ((account and not shortfalls) or (lasting and not if_empty)):
        others = [name for name in _names_of(lacking) if name not in own]
        return _without_account(facts, account, lasting, _wait((), [*others, *_names_of(account)], in_use))
    hardest = _names(beyond) or ("" if shortfalls else _names(lacking))
    key = f"insufficient {hardest}" if hardest else _key(shortfalls)
    if in_use and not hardest and not shortfalls:
        key = in_use[0].key
    if once_empty is not None and not once_empty.parts:
        return NodeRefusal(
            node=facts.name,
            key=key,
            detail=_amounts(lacking, "free"),
            shortfalls=shortfalls,
            now=now,
            wait=_wait(shortfalls, [name for name in _names_of(lacking) if name not in own], in_use),
        )
    if shape.dialect is not None and any(one.reason in PASSING for one in if_empty):
        healed = ledger.catalog.dialects[shape.dialect].healed(empty)
        if_well = advice.shortfalls(healed, shape.request, dialect, policy)
        if not beyond and not if_well:
            wait = f"an unhealthy card of {facts.name} is healthy again"
            if any(one.reason is Reason.UNSTEADY for one in if_empty):
                wait = f"a card of {facts.name} that repeatedly became unhealthy has stayed healthy"
            if any(one.reason is Reason.CLAIMED for one in if_empty):
                wait = f"a resource claim frees a card of {facts.name} back"
            if any(one.reason is Reason.UNORDERED for one in if_empty):
                wait = f"the device plugin of {facts.name} is known to keep the order of its cards"
            return NodeRefusal(node=facts.name, key=key, shortfalls=if_empty, now=now, wait=wait)
        if if_well:
            all_of_it = all_of_it._replace(cards=healed, shortfalls=if_well)
            if_empty = if_well
    unwished = advice.unwished(shape, all_of_it, dialect, policy) if once_empty is None else None
    unusable = not beyond and any(one.reason is Reason.UNUSABLE for one in if_empty)
    return NodeRefusal(
        node=facts.name,
        key=key if hardest else _key(if_empty),
        detail=_amounts(beyond, "in total"),
        shortfalls=if_empty,
        hopeless=True,
        now=now,
        once_empty=once_empty,
        unwished=unwished,
        repair=f"the cards of {facts.name} that are unusable become usable" if unusable else "",
    )


def _accounts(ledger: Ledger, shape: Shape, facts: NodeFacts, used: Mapping[str, int]) -> dict[str, int]:
    """Return how much memory and cores are free in kubelet's account, if the cards of *shape* count them too."""
    found: dict[str, int] = {}
    named = ledger.catalog.names(shape.dialect, ledger.tables) if shape.dialect is not None else Names()
    memories = set(named.memories.values())
    for name in ledger.resources_of(shape.dialect) & ledger.words.uncounted:
        if name not in facts.allocatable or name in named.memories:
            continue
        figure = Reason.MEMORY if name in memories else Reason.CORES
        found[figure] = facts.allocatable[name] - used.get(name, 0)
    return found


def _without_account(facts: NodeFacts, account: model.Shortages, lasting: model.Shortages, wait: str) -> NodeRefusal:
    """Return the refusal of a node whose cards take the pod, now or once empty, but whose kubelet does not.

    Args:
        facts: facts of the node.
        account: the current shortages of kubelet's account.
        lasting: its shortages on the empty node.
        wait: what to wait for if there are no such shortages.
    """
    named = _names(account)
    free = "; ".join(
        f"has {free} of {wanted} {name} free in kubelet's count (the plugin advertises {facts.allocatable[name]})"
        for name, wanted, free in account
    )
    # kubelet learns of a changed factor or a failed card only from the plugin.
    repair = f"the device plugin of {facts.name} advertises as much {named} as its cards have"
    return NodeRefusal(
        node=facts.name,
        key=f"kubelet counts too little {named}",
        detail=f"{free}, less than its cards have: the factor changed, the plugin is old, or a card failed",
        hopeless=bool(lasting),
        wait=repair if lasting else f"{wait}, or until {repair}",
        repair=repair if lasting else "",
    )


def _names(lacking: model.Shortages) -> str:
    return ", ".join(_names_of(lacking))


def _names_of(lacking: model.Shortages) -> list[str]:
    return [name for name, _, _ in lacking]


def _amounts(lacking: model.Shortages, of: str) -> str:
    shown = advice.shown
    return "; ".join(
        f"{name}: {shown(name, wanted)} requested, {shown(name, free)} {of}" for name, wanted, free in lacking
    )


def _wait(shortfalls: Sequence[Shortfall], lacking: Sequence[str], in_use: Sequence[Obstacle]) -> str:
    """Return what must happen for the node to take the unchanged pod.

    *lacking*: scarce resources besides cards. *in_use*: what other pods hold.
    """
    reasons = {short.reason for short in shortfalls}
    if Reason.HANDOVER in reasons:
        cards = "the slice is handed over"
    elif Reason.CARD_COUNT in reasons:
        cards = "enough cards are free"
    else:
        cards = "enough of a card is free" if reasons or not (lacking or in_use) else ""
    freed = ", ".join(name for name in lacking if name != names.PODS)
    others = f"other pods free {freed}" if freed else "other pods end" if lacking else ""
    return " and ".join(part for part in (cards, others, *(one.until for one in in_use)) if part)


def _key(shortfalls: Sequence[Shortfall]) -> str:
    short = telling(shortfalls)
    return WHY[short.reason] if short is not None else "no card fits"


def telling(shortfalls: Sequence[Shortfall]) -> Shortfall | None:
    """Return the shortfall that represents a node: too few cards if some fit, else the card that lacks least."""
    few = next((one for one in shortfalls if _is_of_all(one)), None)
    lacking = [one for one in shortfalls if lacks(one)]
    if few is not None or not shortfalls:
        return few
    if lacking:
        return min(lacking, key=lambda one: (lack(one), one.card))
    return min(shortfalls, key=lambda one: (NEARNESS[one.reason], one.card))


def _is_of_all(short: Shortfall) -> bool:
    """Return whether some cards fit, but not enough, or not together."""
    if short.reason is Reason.CARD_COUNT:
        return lacks(short)
    return not short.card and short.reason in (Reason.RULE, Reason.LINKS)


def lacks(short: Shortfall) -> bool:
    """Return whether a smaller request would help there."""
    if short.reason is Reason.CARD_COUNT:
        return short.free > 0
    return short.reason in AMOUNTS and short.wanted > 0


def lack(short: Shortfall) -> float:
    """Return the missing fraction of what is wanted."""
    return (short.wanted - short.free) / short.wanted
