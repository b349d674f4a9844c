"""What a pod asks for in the vGPU protocol, how cards score for it, and what its users should know.

Source: protocol reference, nvidia 1.9, 3.1, 3.5 to 3.10, 3.13, with the defects S19 to S25 done as they say.
"""

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple

from core import names
from core.dialects.vgpu import keys
from core.dialects.vgpu.table import ExclusiveRules, VgpuTable
from core.model import AnyPod, Container
from core.port.dialect import CardStock
from core.port.refusals import Reason, Shortfall, Violation
from core.selection import type_words
from core.settings import Policy, Tables
from core.sharing.card import HAMI_CORE, MIG, MODES, Card, Entry, assigned, fullness, take
from core.sharing.order import Ranking
from core.sharing.request import (
    Ask,
    Figures,
    Order,
    Request,
    cards_at_start,
    check_words,
    judged,
    miscounted,
    selection_of,
    uncounted_shares,
)
from core.sharing.rules import BY_USE, Rules
from core.sharing.slices import choose
from core.units import parse_memory
from core.warnings import AdmissionWarning, all_memory, another_effect, limit_of, little_memory, no_effect


def request(pod: AnyPod, tables: Tables) -> Request | tuple[Violation, ...] | None:
    """Return what *pod* asks, if the device plugin can also be told so; see `readable_request`."""
    named = tables.of(VgpuTable).named
    # Init containers get no card, whatever they ask for.
    unservable = cards_at_start(
        pod, named.cards, lambda one: any((one.amount(key) or "").strip("0") for key in named.all)
    )
    unservable += uncounted_shares([("container", one) for one in pod.containers], named, implied=True)
    return judged(readable_request(pod, tables), unservable)


def readable_request(pod: AnyPod, tables: Tables) -> Request | tuple[Violation, ...] | None:
    """Return what *pod* asks, however many its containers; None if nothing, violations if it cannot be read."""
    violations: list[Violation] = []
    asks = asks_of(pod, tables.of(VgpuTable), violations)
    if not asks and not violations:
        return None
    annotations = pod.annotations
    wish = selection_of(annotations, keys.USE_UUID, keys.NO_USE_UUID, violations)
    mode = annotations.get(keys.MODE, "")
    modes = (mode,) if mode.strip() else ()
    check_words(keys.MODE, modes, MODES, violations)
    if wish.indices and len(wish.indices) < (most := max([ask.number for ask in asks], default=0)):
        violations.append(miscounted(pod, "at least", tables.of(VgpuTable).named.cards, most))
    if violations:
        return tuple(violations)
    # Other groups do not matter: pods that differ by their group alone have one shape.
    group = group_of(pod) if annotations.get(keys.GROUP_POLICY) == keys.SPREAD_GROUP else ""
    return Request(asks, asks[-1].container + 1, wish, modes, marks=marks_of(group, matched_rules(pod, tables)))


def group_of(pod: AnyPod) -> str:
    """namespace/name of the pod group, "" without one (nvidia 3.9)."""
    for key in names.GROUP_NAME_KEYS:
        name = pod.annotations.get(key)
        if name:
            return f"{pod.namespace}/{name}"
    return ""


def matched_rules(pod: AnyPod, tables: Tables) -> tuple[int, ...]:
    """The exclusive rules that *pod* matches, by index; a rule without labels matches nobody."""
    rules = tables.of(ExclusiveRules).rules
    return tuple(index for index, rule in enumerate(rules) if rule and rule <= pod.labels.items())


def asks_of(pod: AnyPod, table: VgpuTable, violations: list[Violation]) -> tuple[Ask, ...]:
    """Return what the containers ask, and add what is wrong with their figures; init containers do not count.

    A container with memory, cores or a percentage but no number asks for one card (S25); number 0 asks for nothing
    (S21).
    """
    found: list[Ask] = []
    named = table.named
    names = (named.cards, named.memory, named.cores, named.percentage)
    for position, one in enumerate(pod.containers):
        if one.limits.keys().isdisjoint(names) and one.requests.keys().isdisjoint(names):
            continue
        wrong: list[Violation] = []
        ask = _ask(Figures(one, "container", wrong), position, table)
        if ask.number:
            violations += wrong
            found.append(ask)
    return tuple(found)


def _ask(figures: Figures, position: int, table: VgpuTable) -> Ask:
    named = table.named
    number = figures.read(named.cards, "CS101")
    as_memory = partial(parse_memory, mib_per_unit=named.mib_per_unit) if named.mib_per_unit > 1 else parse_memory
    memory = figures.read(named.memory, "CS101", parse=as_memory) or 0
    percent = figures.read(named.percentage, "CS102", 1, 100) or 0
    cores = figures.read(named.cores, "CS103", maximum=100) or 0
    if not percent and not memory:
        percent = 100
    # The percentage overrides the memory if both are given, as upstream has it.
    return Ask(position, 1 if number is None else number, 0 if percent else memory, percent, cores)


_GROUP: Final = "group "
_RULE: Final = "rule "
_UNORDERED: Final = f"the node's device plugin may change the order of its cards; name them with {keys.USE_UUID}"


def marks_of(group: str, rules: Sequence[int]) -> tuple[str, ...]:
    """Return what a pod of pod group *group*, "" without one, that matches the exclusive *rules* carries to cards."""
    return tuple(sorted([_GROUP + group] * bool(group) + [f"{_RULE}{one}" for one in rules]))


def without_group(marks: tuple[str, ...]) -> tuple[str, ...]:
    """Return *marks* of a share of nothing, which keeps no pod of its group away."""
    return tuple([one for one in marks if not one.startswith(_GROUP)])


class VgpuRules(Rules):
    """The rules of the vGPU protocol; limits are applied in bus order in a container, so entries are too (S33)."""

    by_position = True

    def refuse(self, card: Card, ask: Ask, request: Request) -> Reason | None:
        """Return that a pod of the same group, or of the same exclusive rule, is on the card."""
        met = set(request.marks).intersection(card.marks)
        if any(one.startswith(_RULE) for one in met) and card.fixed.kind.mode != MIG:
            return Reason.RULE
        return Reason.GROUP if any(one.startswith(_GROUP) for one in met) else None

    def shortfall(self, card: Card, ask: Ask, request: Request, reason: Reason) -> Shortfall | None:
        """See `Rules`."""
        match reason:
            case Reason.GROUP:
                group = next((one for one in request.marks if one.startswith(_GROUP)), _GROUP)
                detail = f"a pod of {group} is on the card"
            case Reason.RULE:
                detail = "a pod of the same exclusive rule is on the card"
            case Reason.UNORDERED:
                detail = _UNORDERED
            case _:
                return None
        return Shortfall(card.fixed.uuid, reason, detail=detail)

    def ranking(self, wanted: Order, policy: Policy) -> Ranking:
        """Return the order of upstream: the fullest, the one with the fewest shares, or the last."""
        return BY_USE.get(policy, lambda slot, _: (-slot,))

    def score(self, cards: Sequence[Card], entries: Sequence[Entry], request: Request, policy: Policy) -> float:
        """Return the sum of what the containers score one after the other."""
        if policy not in (Policy.BINPACK, Policy.SPREAD):
            return 0.0
        total = 0.0
        filled = tuple(cards)
        for _, some in groupby(entries, key=lambda one: one.container):
            shares = list(some)
            if policy is Policy.SPREAD:
                # A card scores by what it was before it took the share (S10).
                total += 100.0 * sum([not filled[one.slot].used_slots for one in shares])
            else:
                # Slices can fill a card beyond its memory; no bound of several containers knows by how much.
                total += min(fullness(filled, shares), 100.0 * len(shares))
            if len(request.asks) > 1:
                filled = take(filled, assigned(0, shares))
        return total

    def idle_score(self, request: Request, idle: int, policy: Policy) -> float:
        """See `Rules`; slices can fill cards to the last."""
        if policy is Policy.BINPACK:
            return 100.0 * sum([ask.number for ask in request.asks])
        return super().idle_score(request, idle, policy)


# More card models than these are not told apart: the first ones show what is meant.
_MODELS_MAX: Final = 3


def warnings(pod: AnyPod, request: Request, tables: Tables) -> Iterator[AdmissionWarning]:
    """CS116 and CS119 for *pod*, which asks *request*."""
    for one in pod.containers:
        yield from _shares(one, request, tables.of(VgpuTable))
    word = pod.annotations.get(keys.GROUP_POLICY)
    if word is not None and word not in ("", keys.SPREAD_GROUP):
        why, remedy = "the one word that is read is spread", "write spread, or leave it out"
        yield no_effect(f"annotation {keys.GROUP_POLICY}", word, why, remedy)


def _shares(one: Container, request: Request, table: VgpuTable) -> Iterator[AdmissionWarning]:
    """The percentage holds over the memory, 0 is no amount, and MIG limits no cores."""
    memory, percent = one.amount(table.named.memory), one.amount(table.named.percentage)
    if memory is not None and percent is not None:
        why = f"{table.named.percentage} {percent} overrides it"
        yield no_effect(limit_of(one, table.named.memory), memory, why, "leave one of the two out")
    elif memory == "0":
        yield all_memory(one, table.named.memory)
    else:
        yield from little_memory(one, table.named.memory, table.named.mib_per_unit)
    cores = one.amount(table.named.cores)
    if cores not in (None, "0") and request.modes == (MIG,):
        what = "it limits no cores, because in mode mig a slice brings its own: it only keeps other pods away"
        takes_all = f"; without {table.named.memory} it takes all memory of a card"
        remedy = "leave it out" + (takes_all if memory is None and percent is None else "")
        yield another_effect(limit_of(one, table.named.cores), cores, what, remedy)


class Grant(NamedTuple):
    """The slice that *wanted_mib* get on an empty card of *model*."""

    wanted_mib: int
    slice_mib: int
    profile: str
    model: str


def advice(
    pod: AnyPod, request: Request, tables: Tables, stock: CardStock[Request] | None
) -> Iterator[AdmissionWarning]:
    """CS113: MIG gives whole slices, which may be larger than what was asked for.

    Told of pods in mode mig, and of those that name no mode where this cluster serves them by MIG alone.
    """
    why = "mode mig gives whole slices only"
    there = stock.types() if stock is not None else None
    grants = larger_slices(request._replace(modes=request.modes or (MIG,)), tables.of(VgpuTable), there)
    if grants and not request.modes:
        if not _is_for_mig(request, stock):
            return
        why = "only cards in mode mig can take it here, and these give whole slices"
    for wanted_mib, some in groupby(grants, lambda one: one.wanted_mib):
        told = [f"{one.slice_mib} MiB ({one.profile}) on {one.model}" for one in some]
        text = ", or ".join(told[:_MODELS_MAX])
        yield AdmissionWarning("CS113", f"{wanted_mib} MiB may get a slice of {text}: {why}")


def _is_for_mig(request: Request, stock: CardStock[Request] | None) -> bool:
    """Whether, of this cluster's cards, certainly none but those in mode mig take *request*."""
    if stock is None:
        return False
    # Who asks for hami-core gets cards in mode mps as well, so that no third mode is left.
    others = stock.takes(request._replace(modes=(HAMI_CORE,)))
    return others is False and stock.takes(request._replace(modes=(MIG,))) is True


def larger_slices(request: Request, table: VgpuTable, there: Collection[str] | None = None) -> tuple[Grant, ...]:
    """What each container's memory becomes on the card models that the pod accepts, where that is more.

    Only for pods of mode mig; one entry per profile and wanted figure, smallest slice first. A percentage depends on
    the card and is left out. *there* are the types of the cluster's cards, None where they are not known.
    """
    if request.modes != (MIG,):
        return ()
    factor = table.named.mib_per_unit
    found: dict[tuple[int, str], Grant] = {}
    for ask in request.asks:
        wanted_mib = ask.memory * factor
        for geometry in table.geometries if not ask.percent else ():
            chosen = choose(geometry.layout, (), wanted_mib)
            if chosen is None or chosen.profile.memory_mib <= wanted_mib:
                continue
            size, name = chosen.profile.memory_mib, chosen.profile.name
            models = [
                model
                for model in geometry.models
                if (there is None or any(model in one for one in there))
                and request.selection.accepts_type(type_words(f"NVIDIA-{model}"))
            ]
            if models:
                found.setdefault((wanted_mib, name), Grant(wanted_mib, size, name, models[0]))
    return tuple(sorted(found.values()))
