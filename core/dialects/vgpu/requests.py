"""What a pod asks for in the vGPU protocol.

Source: protocol reference, nvidia 3.1, 3.7 to 3.10, with the defects S19 to S25 done as they say.
"""

from functools import partial

from core import names
from core.dialects.vgpu import keys
from core.dialects.vgpu.rules import marks_of
from core.dialects.vgpu.table import ExclusiveRules, VgpuTable
from core.model import AnyPod
from core.port.refusals import Violation
from core.sharing.card import MODES
from core.sharing.request import (
    Ask,
    Figures,
    Request,
    cards_at_start,
    check_words,
    judged,
    miscounted,
    selection_of,
    uncounted_shares,
)
from core.tables import Tables
from core.units import parse_memory


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
