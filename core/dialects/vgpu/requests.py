"""What a pod asks for in the vGPU protocol.

Source: protocol reference, nvidia 3.1, 3.7 to 3.10, with the defects S19 to S25 done as they say.
"""

from functools import partial

from core import names
from core.dialects.vgpu import keys
from core.dialects.vgpu.rules import marks_of
from core.dialects.vgpu.table import ExclusiveRules, VgpuTable
from core.errors import InvalidRequestError, quoted
from core.model import AnyPod, Container
from core.port.refusals import Violation
from core.sharing.request import Ask, Figures, Request, check_words, selection_of
from core.tables import Tables
from core.units import parse_count, parse_memory


def request(pod: AnyPod, tables: Tables) -> Request | tuple[Violation, ...] | None:
    """What *pod* asks, if the device plugin can also be told so; see `readable_request`."""
    asked = readable_request(pod, tables)
    if asked is None:
        waiting = (*_init_violations(pod, tables.of(VgpuTable)), *_cardless(pod, tables.of(VgpuTable)))
        return waiting or None
    violations = (*(asked if not isinstance(asked, Request) else ()), *_unservable(pod, tables.of(VgpuTable)))
    if violations:
        return violations
    return asked


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
    check_words(keys.MODE, modes, keys.MODES, violations)
    if wish.indices:
        violations += _too_few(pod, wish.indices, asks, tables.of(VgpuTable))
    if violations:
        return tuple(violations)
    # Other groups do not matter: pods that differ by their group alone have one shape.
    group = group_of(pod) if annotations.get(keys.GROUP_POLICY) == keys.SPREAD_GROUP else ""
    return Request(asks, asks[-1].container + 1, wish, modes, marks=marks_of(group, matched_rules(pod, tables)))


def _too_few(pod: AnyPod, wished: frozenset[int], asks: tuple[Ask, ...], table: VgpuTable) -> tuple[Violation, ...]:
    wanted = max((ask.number for ask in asks), default=0)
    if len(wished) >= wanted:
        return ()
    return (
        Violation(
            code="CS106",
            field=f"annotation {names.WISHED_INDICES}",
            found=quoted(pod.annotations[names.WISHED_INDICES]),
            remedy=f"name at least as many cards as {table.number_resource} asks for ({wanted})",
        ),
    )


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
    if not rules:
        return ()
    return tuple(index for index, rule in enumerate(rules) if rule.labels and rule.matches(pod.labels))


def asks_of(pod: AnyPod, table: VgpuTable, violations: list[Violation]) -> tuple[Ask, ...]:
    """Return what the containers ask, and add what is wrong with their figures; init containers do not count.

    A container with memory, cores or a percentage but no number asks for one card (S25); number 0 asks for nothing
    (S21).
    """
    found: list[Ask] = []
    for position, container in enumerate(pod.containers):
        if not _mentions(container, table):
            continue
        wrong: list[Violation] = []
        ask = _ask(Figures(container, "container", wrong), position, table)
        if ask.number:
            violations += wrong
            found.append(ask)
    return tuple(found)


def _ask(figures: Figures, position: int, table: VgpuTable) -> Ask:
    number = figures.read(table.number_resource, "CS101")
    as_memory = partial(parse_memory, mib_per_unit=table.memory_factor)
    memory = figures.read(table.memory_resource, "CS101", parse=as_memory) or 0
    percent = figures.read(table.percentage_resource, "CS102", 1, 100) or 0 if table.percentage_resource else 0
    cores = figures.read(table.cores_resource, "CS103", maximum=100) or 0
    if not percent and not memory:
        percent = 100
    # The percentage overrides the memory if both are given, as upstream has it.
    return Ask(position, 1 if number is None else number, 0 if percent else memory, percent, cores)


def _mentions(container: Container, table: VgpuTable) -> bool:
    resources = table.resources
    return not (resources.isdisjoint(container.limits) and resources.isdisjoint(container.requests))


def _unservable(pod: AnyPod, table: VgpuTable) -> tuple[Violation, ...]:
    """What the plugin could not be told: cards without a number, init containers."""
    violations = [*_init_violations(pod, table), *_cardless(pod, table)]
    violations += [
        Violation(
            code="CS203",
            field=f'container "{one.name}": limit {table.number_resource}',
            found="",
            remedy=f"write {table.number_resource}: 1 as well; kubelet gives the container no card without it",
        )
        for one in pod.containers
        if table.number_resource not in one.limits and _mentions(one, table)
    ]
    return tuple(violations)


def _cardless(pod: AnyPod, table: VgpuTable) -> list[Violation]:
    """Shares of no card: kubelet gives the container none (S21), and a node none of its shares."""
    violations: list[Violation] = []
    for word, instead, containers in (
        ("container", f"write {table.number_resource}: 1, or leave out", pod.containers),
        ("init container", "leave out", pod.init_containers),
    ):
        for one in containers:
            if not _asks_nothing(one, table):
                continue
            shares = (table.memory_resource, table.cores_resource, table.percentage_resource)
            given = [key for key in shares if _is_more_than_none(one.limits.get(key) or one.requests.get(key))]
            if given:
                violations.append(
                    Violation(
                        code="CS203",
                        field=f'{word} "{one.name}": limit {table.number_resource}',
                        found=quoted(one.limits[table.number_resource]),
                        remedy=f"{instead} {', '.join(given)} as well",
                    )
                )
    return violations


def _is_more_than_none(text: str | None) -> bool:
    return text is not None and bool(text.strip("0"))


def _asks_nothing(container: Container, table: VgpuTable) -> bool:
    text = container.limits.get(table.number_resource)
    if text is None or text == "1":
        return False
    try:
        return parse_count(text, "") == 0
    except InvalidRequestError:
        return False


def _init_violations(pod: AnyPod, table: VgpuTable) -> tuple[Violation, ...]:
    return tuple(
        [
            Violation(
                code="CS205",
                field=f'init container "{one.name}"',
                found="",
                remedy=f"ask for {table.number_resource} in a normal container; init containers get no card",
            )
            for one in pod.init_containers
            if _mentions(one, table) and not _asks_nothing(one, table)
        ]
    )
