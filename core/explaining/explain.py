"""Explains why a pod waits: combines the refusals of all nodes into sentences, with the smallest change that helps.

A refusal is judged node by node (`core.explaining.refusal`), in slices if necessary. `summed` combines refusals into
counts per reason and a few nearest nodes; `sentence` and `report` turn them into text. Nothing else in the core does.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from core import names, spelling
from core.constraints.node_affinity import CORRECT_LABELS
from core.explaining.advice import Advice, Unwished
from core.explaining.refusal import AMOUNTS, NEARNESS, WHY, NodeRefusal, lack, lacks, refusal_on, telling
from core.ledger import Ledger
from core.model import NodeName
from core.placing.decide import Shape
from core.placing.kinds import Helping, Kinds
from core.port.refusals import Reason, Shortfall
from core.settings import Policy
from core.units import listed
from core.waiting import Cause, Wait

# The number of nodes that a refusal shows in detail; the rest are counted.
_NEAREST: Final = 3
_SENTENCE_MAX: Final = 1024
# How a card is described that is refused for one of these reasons.
_SAID: Final = {
    Reason.UUID: "not one of the cards that the pod accepts",
    Reason.INDEX: "not at a position that the pod accepts",
    Reason.BUSY: "in use",
}
# Reasons that a number with its unit already expresses.
_COUNTED: Final = (*AMOUNTS, Reason.CARD_COUNT)
# What to do about a wish beside others.
_LEFT_OUT: Final = {
    Reason.TYPE: "leave out the list of types",
    Reason.UUID: "leave out the list of cards",
    Reason.INDEX: "leave out the list of positions",
    Reason.UNORDERED: "leave out the list of positions",
    Reason.MODE: "leave out the mode",
}
# The refusal may be outdated, or only a silent device plugin prevents the placement.
_NONE_REFUSES: Final = "no node currently refuses the pod"
_OTHER: Final = "Change what the pod asks for (kubectl cards get shows the cards), or ask the cluster's operator"
_FEWER: Final = "Let fewer containers of one pod ask for cards"
_BESIDE: Final = "beside other containers of the pod"
# The number of listed names of cards or types.
_LISTED: Final = 6

_Distance = tuple[bool, int, float, int, float, str]
# Sorts after every change that helps.
_NO_CHANGE: Final = (99, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why no node fits: number of *nodes*, counts per reason (most frequent first), nearest nodes, and the remedy.

    Without counts, no node refuses. remedy: the smallest change that lets the pod in, or "". never: no node could take
    it even if empty. faulty: nodes have cards that cannot be judged, for which this is unknown. new: the name of a kind
    of new node that would take the pod (`core.placing.kinds`), or "". joining: some nodes are so new that their cards
    may be registered soon. away: the kubelets of some nodes currently have no cards, and no other node could take the
    pod even if empty. held: some nodes will take it in some seconds, when the cards of a force-deleted pod are free.
    """

    nodes: int
    counts: tuple[tuple[str, int], ...]
    nearest: tuple[NodeRefusal, ...]
    remedy: str
    never: bool = False
    faulty: bool = False
    new: str = ""
    joining: bool = False
    away: bool = False
    held: bool = False

    @property
    def signature(self) -> tuple[tuple[str, ...], str, str]:
        """A key that stays equal while only numbers change."""
        return tuple(key for key, _ in self.counts), _without_digits(self.remedy), self.new

    @property
    def words(self) -> str:
        """The text without digits in which the nearest node or its card explains the refusal."""
        if not self.nearest:
            return ""
        short = telling(self.nearest[0].shortfalls)
        return _without_digits(self.nearest[0].detail if short is None else short.detail)


@dataclass(slots=True)
class _There:
    """The wishes to drop according to the nodes seen so far, and the alternatives to name."""

    unwished: Unwished | None = None
    names: set[str] = field(default_factory=set)
    positions: int = 0
    labels: dict[str, set[str]] = field(default_factory=dict)
    instead: set[str] = field(default_factory=set)
    relabelled: bool = False

    def add(self, refusal: NodeRefusal) -> None:
        """Add one more node."""
        if refusal.instead:
            self.instead.add(refusal.instead)
        # No other node gets the name that a pod selects.
        by_name = any(key == names.HOSTNAME_LABEL for key, _ in refusal.labels)
        self.relabelled = self.relabelled or (refusal.instead == CORRECT_LABELS and not by_name)
        for key, value in refusal.labels:
            self.labels.setdefault(key, set()).add(value)
        found, best = refusal.unwished, self.unwished
        if found is None or (best is not None and best.size < found.size):
            return
        if best is None or (found.size, found.wishes) != (best.size, best.wishes):
            if best is not None and best.size == found.size and best.wishes <= found.wishes:
                return
            self.unwished, self.names, self.positions = found, set(), 0
        # If some cards of a node are accepted, it takes the pod only with these.
        if all(one.reason is found.wishes[0] for one in refusal.shortfalls):
            self.names.update(map(_name_of, refusal.shortfalls))
        self.positions = max(self.positions, len({one.card for one in refusal.shortfalls if one.card}))

    def remedy(self) -> str:
        """Return what the pod could name or request instead."""
        if self.unwished is None:
            return self._selector() if CORRECT_LABELS in self.instead else min(self.instead, default="")
        wishes, less = self.unwished
        if len(wishes) == 1 and not less.parts:
            return self._named(wishes[0])
        # With other wishes, some cards are rejected before their type is compared.
        parts = [self._named(one) if wishes == (Reason.TYPE,) else _LEFT_OUT[one] for one in wishes]
        if less.parts:
            parts.append(f"ask for {less}")
        return "; also ".join(parts)

    def _named(self, wish: Reason) -> str:
        there = _listed(self.names - {""})
        match wish:
            case Reason.TYPE if there:
                return f"accept an existing type ({there})"
            case Reason.UUID if there:
                return f"use existing cards ({there}), or leave out their list"
            case Reason.INDEX:
                return f"use an existing position (0 to {self.positions - 1}), or leave out their list"
            case Reason.MODE:
                return "leave out the mode, or use one that a card has"
            case _:
                return _LEFT_OUT[wish]

    def _selector(self) -> str:
        has = " and ".join(f"{key}: {_listed(values)}" for key, values in sorted(self.labels.items()))
        there = f" (nodes with such cards have {has})" if has else ""
        labelled = ", or label a node" if self.relabelled else ""
        return f"{CORRECT_LABELS}{there}{labelled}"


def summed(refusals: Iterable[NodeRefusal], nodes: int, new: str = "") -> Explanation:
    """Return the *refusals* out of all *nodes* as counts, the nearest nodes, and the smallest change.

    new: the name of a kind of new node that would take the pod, or "".
    """
    counts: dict[str, int] = {}
    nearest: list[tuple[_Distance, NodeRefusal]] = []
    never = True
    absent: set[str] | None = None
    offered: set[str] = set()
    asked: set[str] = set()
    now: Advice | None = None
    once_empty: tuple[Advice, str] | None = None
    # The node that would take the unchanged pod if it accepted pods.
    shut: NodeRefusal | None = None
    repair = ""
    joining = held = False
    away, never_elsewhere = False, True
    there = _There()
    for refusal in refusals:
        joining, held = joining or refusal.joining, held or refusal.held
        away, never_elsewhere = away or refusal.away, never_elsewhere and (refusal.away or refusal.hopeless)
        never = never and refusal.hopeless
        absent = set(refusal.absent) if absent is None else absent & set(refusal.absent)
        offered.update(refusal.offered)
        asked.update(refusal.asked)
        counts[refusal.key] = counts.get(refusal.key, 0) + 1
        if refusal.now is not None and (now is None or refusal.now.size < now.size):
            now = refusal.now
        if refusal.once_empty is not None and (once_empty is None or refusal.once_empty.size < once_empty[0].size):
            once_empty = refusal.once_empty, refusal.wait
        if refusal.barred and not refusal.shortfalls and not refusal.detail and not refusal.hopeless:
            shut = refusal if shut is None or refusal.node < shut.node else shut
        repair = min(repair or refusal.repair, refusal.repair or repair)
        there.add(refusal)
        nearest.append((_distance(refusal), refusal))
        if len(nearest) > 64:
            nearest = sorted(nearest, key=lambda pair: pair[0])[:_NEAREST]
    best = tuple(refusal for _, refusal in sorted(nearest, key=lambda pair: pair[0])[:_NEAREST])
    ordered = tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
    everywhere = sum(counts.values()) == nodes > 0
    never = never and everywhere
    if absent and everywhere:
        named = " or ".join(_absent(one, frozenset(offered)) for one in sorted(absent))
        # Without its cards, the pod would not be what its owner wants.
        without = "" if asked and asked <= absent else "leave it out, or "
        remedy = f"No node offers {named}: {without}ask the cluster's operator"
    elif never:
        parts = ["" if best[0].repair else there.remedy(), f"wait until {repair}" if repair else ""]
        other = _FEWER if best[0].key == WHY[Reason.CONTAINERS] else _OTHER
        remedy = _never_remedy(now, once_empty) or _capital(", or ".join(part for part in parts if part)) or other
    else:
        waits = [next((one for one in best if one.wait), None), shut]
        remedy = _remedy(now, [one for one in dict.fromkeys(waits) if one is not None])
    return Explanation(
        nodes=nodes,
        counts=ordered,
        nearest=best,
        remedy=remedy,
        never=never,
        faulty=bool(repair),
        new=new,
        joining=joining,
        away=away and never_elsewhere and everywhere,
        held=held,
    )


def _absent(resource: str, offered: frozenset[str]) -> str:
    """Return *resource*, which no node offers, with the similar one in *offered*."""
    # Another chip model has the same name with a suffix.
    meant = spelling.meant(resource, offered) or next(
        (one for one in sorted(offered) if f"{resource}-".startswith(f"{one}-") or one.startswith(f"{resource}-")), ""
    )
    return f"{resource} (did you mean {meant}?)" if meant else resource


def _remedy(now: Advice | None, waits: Sequence[NodeRefusal]) -> str:
    """Return the remedy: request less, or wait for the repair of one of *waits*."""
    parts = [f"ask for {now}"] if now is not None else []
    parts += [f"tolerate {one.tolerate}" for one in waits if one.tolerate]
    if waits:
        parts.append("wait until " + ", or until ".join(one.wait for one in waits))
    return _capital(", or ".join(parts))


def _never_remedy(now: Advice | None, once_empty: tuple[Advice, str] | None) -> str:
    """Return what an empty node would take and when, and how much of that is available now."""
    if once_empty is None:
        return ""
    less = f"Ask for {once_empty[0]}"
    if str(now) == str(once_empty[0]):
        return less
    wait = f"until {once_empty[1]}" if once_empty[1] else "for capacity"
    return f"{less}; with {now} it would be placed now" if now is not None else f"{less}; it would then wait {wait}"


def refused(ledger: Ledger, shape: Shape, policy: Policy) -> Explanation:
    """Return why no node fits *shape*, judged over all nodes at once."""
    helping = Helping(Kinds(ledger), shape, policy)
    found: list[NodeRefusal] = []
    for name, state in ledger.states.items():
        helping.look(name)
        refusal = refusal_on(ledger, shape, state, policy)
        found += [refusal] if refusal is not None else []
    return summed(found, len(ledger.states), helping.told())


def wait(answer: Explanation, silent: Sequence[NodeName] = ()) -> Wait:
    """Return why a pod waits that no node takes; *silent*: nodes that would if their device plugins answered."""
    text, cause = sentence(answer), _cause(answer)
    if not silent:
        return Wait(cause, _with_help(text, answer) if cause is Cause.UNSCHEDULABLE else text)
    return Wait(Cause.DEVICE_PLUGIN_SILENT, f"{_silence(silent)} {text}" if answer.counts else _silence(silent))


def _cause(answer: Explanation) -> Cause:
    if answer.nodes and not answer.counts:
        return Cause.WAITING_FOR_DECISION
    if answer.held:
        return Cause.WAITING_FOR_REMOVED
    if answer.joining:
        return Cause.NODE_JOINING
    if answer.away:
        return Cause.PLUGIN_NOT_REGISTERED
    if answer.new:
        return Cause.UNSCHEDULABLE
    if not answer.nodes:
        return Cause.NO_NODES
    if not answer.never:
        return Cause.WAITING_FOR_NODE
    return Cause.CARDS_UNUSABLE if answer.faulty else Cause.NEVER_FITS


def _silence(nodes: Sequence[NodeName]) -> str:
    fit = "1 node would fit, but its" if len(nodes) == 1 else f"{len(nodes)} nodes would fit, but their"
    return f"{fit} device plugin does not answer ({listed(nodes, 3)})."


def sentence(answer: Explanation) -> str:
    """Return the short form for conditions and events: counts per reason, the nearest card, the remedy."""
    if not answer.nodes:
        return "0/0 nodes are available: the cluster has no nodes yet."
    if not answer.counts:
        return _NONE_REFUSES
    why = ", ".join(f"{count} {key}" for key, count in answer.counts)
    text = f"0/{answer.nodes} nodes are available: {why}."
    near = _nearest_card(answer.nearest)
    if near:
        text += f" Nearest: {near}."
    # If the nearest node cannot be judged, a statement about the others would mislead.
    if answer.never and not answer.nearest[0].repair:
        on = ", with its usable cards" if answer.faulty else ""
        text += f" Not even an empty node of this cluster could take it{on}."
    if answer.remedy:
        text += f" {answer.remedy}."
    return text if len(text) <= _SENTENCE_MAX else text[: _SENTENCE_MAX - 1] + "…"


def report(answer: Explanation) -> str:
    """Return the full text: every reason with its count, the nearest nodes card by card."""
    if answer.nodes and not answer.counts:
        return _NONE_REFUSES
    never = ", and none would fit even if empty" if answer.never and not answer.faulty else ""
    lines = [f"No node fits ({answer.nodes} checked{never}):"]
    lines += [f"  {count:>5}  {key}" for key, count in answer.counts]
    for refusal in answer.nearest:
        lines.append(f"{refusal.node}: {refusal.key}" + (f" ({refusal.detail})" if refusal.detail else ""))
        lines += [f"    {_card(short, hopeless=refusal.hopeless)}" for short in refusal.shortfalls]
    if answer.remedy:
        lines.append(f"What would help: {answer.remedy}.")
    if answer.new:
        lines.append(_helps(answer))
    return "\n".join(lines)


def _with_help(text: str, answer: Explanation) -> str:
    """Return *text* and the kind of node that would help; only *text* is shortened."""
    most = _SENTENCE_MAX - len(_helps(answer)) - 1
    return f"{text if len(text) <= most else text[: most - 1] + '…'} {_helps(answer)}"


def _helps(answer: Explanation) -> str:
    return f"A new node {answer.new} would take it."


def _distance(refusal: NodeRefusal) -> _Distance:
    """Return how far a node is from fitting: nodes that could once empty come first, then by smallest change or lack.

    Names break ties.
    """
    size = refusal.once_empty.size if refusal.once_empty is not None else _NO_CHANGE if refusal.hopeless else (0, 0.0)
    short = telling(refusal.shortfalls)
    if short is None:
        return (refusal.hopeless, *size, 2 if refusal.detail else 3, 0.0, refusal.node)
    if lacks(short):
        return (refusal.hopeless, *size, 0, lack(short), refusal.node)
    return (refusal.hopeless, *size, 1, float(NEARNESS[short.reason]), refusal.node)


def _nearest_card(nearest: Sequence[NodeRefusal]) -> str:
    for refusal in nearest:
        if refusal.barred and not refusal.hopeless and not refusal.shortfalls:
            return ""
        short = telling(refusal.shortfalls)
        if short is not None:
            return f"{refusal.node} {_card(short, hopeless=refusal.hopeless)}"
        if refusal.detail:
            return f"{refusal.node} {refusal.detail}"
    return ""


def _card(short: Shortfall, *, hopeless: bool) -> str:
    where = f"{short.card}: " if short.card else ""
    # The remedy mentions chips of another size; the text describes only the problem.
    is_multiple = short.reason is Reason.TEMPLATE and short.unit.endswith(" of idle chips")
    if short.reason is Reason.LAYOUT:
        slices = "slice" if hopeless and not short.alone else "free slice"
        beside = f" {_BESIDE}" if short.alone else ""
        if not short.free:
            return f"{where}no {slices} has {short.wanted} {short.unit}{beside}"
        return f"{where}its largest {slices} has {short.free} of {short.wanted} {short.unit}{beside}"
    if (short.wanted or short.free) and not is_multiple:
        unit = short.unit
        if hopeless:
            unit = unit.removeprefix("idle ").removesuffix(" of idle chips").removesuffix(" in all")
        left = f"free {_BESIDE}" if short.alone else "in total" if hopeless else "free"
        text = f"{where}{short.free} of {short.wanted}{' ' * bool(unit)}{unit} {left}"
        return text if short.reason in _COUNTED else f"{text} ({short.reason})"
    if short.reason is Reason.TYPE and short.detail:
        return f"{where}its type is {short.detail}"
    return where + (short.detail or _SAID.get(short.reason, short.reason))


def _name_of(short: Shortfall) -> str:
    if short.reason is not Reason.TYPE:
        return short.card
    # A unit instead of a type is not shown.
    return "" if short.unit else short.detail


def _listed(words: Iterable[str]) -> str:
    return listed(sorted(words), _LISTED)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _without_digits(text: str) -> str:
    return "".join("#" if char.isdigit() else char for char in text)
