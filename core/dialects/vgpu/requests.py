"""What a pod asks for in the vGPU protocol.

Source: protocol reference, nvidia 3.1, 3.7 to 3.10, with the defects S19 to S25 done as they say.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Final, NamedTuple, TypeVar

from core import names, selection
from core.dialects.vgpu import keys
from core.errors import InvalidRequestError, quoted
from core.model import AnyPod, Container
from core.port.refusals import Violation
from core.selection import ANY_CARD, CardSelection
from core.tables import Tables, VgpuTable
from core.units import MAX_INT32, parse_count, parse_memory

_Read = TypeVar("_Read")


class Ask(NamedTuple):
    """One container's request: *number* different cards, and of each of them the same share.

    container: its position in the pod. percent: of a card's memory, 0 = *memory* counts (in register units).
    """

    container: int
    number: int
    memory: int
    percent: int
    cores: int


class Request(NamedTuple):
    """All that a pod asks of the cards of one node.

    mode: "" for any. group: the pod group whose members' cards are refused, "" for none; rules: the exclusive rules
    that the pod matches, by index.
    """

    asks: tuple[Ask, ...]
    selection: CardSelection = ANY_CARD
    mode: str = ""
    group: str = ""
    rules: tuple[int, ...] = ()


def request(pod: AnyPod, tables: Tables) -> Request | tuple[Violation, ...] | None:
    """What *pod* asks, if the device plugin can also be told so; see `readable_request`."""
    asked = readable_request(pod, tables)
    if asked is None:
        waiting = (*_init_violations(pod, tables.vgpu), *_cardless(pod, tables.vgpu))
        return waiting or None
    violations = (*(asked if not isinstance(asked, Request) else ()), *_unservable(pod, tables.vgpu))
    if violations:
        return violations
    return asked


def readable_request(pod: AnyPod, tables: Tables) -> Request | tuple[Violation, ...] | None:
    """What *pod* asks, its containers as many as they are; None if nothing, violations if it cannot be read."""
    asks, violations = asks_of(pod, tables.vgpu)
    if not asks and not violations:
        return None
    wish, wrong = _selection(pod.annotations)
    violations += wrong
    mode = pod.annotations.get(keys.MODE, "").strip() and pod.annotations[keys.MODE]
    if mode and mode not in keys.MODES:
        violations += (_unknown_mode(mode),)
    if wish.indices:
        violations += _too_few(pod, wish.indices, asks, tables.vgpu)
    if violations:
        return violations
    spread = pod.annotations.get(keys.GROUP_POLICY) == keys.SPREAD_GROUP
    return Request(asks, wish, mode, group_of(pod) if spread else "", matched_rules(pod, tables))


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


def _unknown_mode(word: str) -> Violation:
    close = get_close_matches(word[:32], keys.MODES, n=1, cutoff=0.5)
    hint = f"did you mean {quoted(close[0])}? " if close else ""
    remedy = f"{hint}write one of {', '.join(keys.MODES)}, or leave it out to let the scheduler choose"
    return Violation(code="CS104", field=f"annotation {keys.MODE}", found=quoted(word), remedy=remedy)


def group_of(pod: AnyPod) -> str:
    """namespace/name of the pod group, "" without one (nvidia 3.9)."""
    for key in names.GROUP_NAME_KEYS:
        name = pod.annotations.get(key)
        if name:
            return f"{pod.namespace}/{name}"
    return ""


def matched_rules(pod: AnyPod, tables: Tables) -> tuple[int, ...]:
    """The exclusive rules that *pod* matches, by index; a rule without labels matches nobody."""
    rules = tables.exclusive_rules
    if not rules:
        return ()
    return tuple(index for index, rule in enumerate(rules) if rule.labels and rule.matches(pod.labels))


def asks_of(pod: AnyPod, table: VgpuTable) -> tuple[tuple[Ask, ...], tuple[Violation, ...]]:
    """(what the containers ask, what is wrong with their figures); init containers are not looked at.

    A container that gives memory, cores or a percentage without a number asks for one card (S25); number 0 asks
    for nothing (S21).
    """
    asks: list[Ask] = []
    violations: list[Violation] = []
    as_memory = partial(parse_memory, mib_per_unit=table.memory_factor)
    for position, container in enumerate(pod.containers):
        if not _mentions(container, table):
            continue
        figures = _Figures(container)
        number = figures.read(table.number_resource, "CS101")
        memory = figures.read(table.memory_resource, "CS101", parse=as_memory)
        percent = (
            figures.read(table.percentage_resource, "CS102", minimum=1, maximum=100)
            if table.percentage_resource
            else None
        )
        cores = figures.read(table.cores_resource, "CS103", maximum=100)
        if number == 0:
            continue
        violations += figures.violations
        if not percent and not memory:
            percent = 100
        # The percentage wins over the memory where both are given, as upstream has it.
        asks.append(
            Ask(position, 1 if number is None else number, 0 if percent else memory or 0, percent or 0, cores or 0)
        )
    return tuple(asks), tuple(violations)


class _Figures:
    """Reads one container's figures, limits before requests, and keeps what is wrong with them."""

    def __init__(self, container: Container) -> None:
        self._container = container
        self.violations: list[Violation] = []

    def read(
        self,
        resource: str,
        code: str,
        minimum: int = 0,
        maximum: int = MAX_INT32,
        parse: Callable[[str, str, int], int] = parse_count,
    ) -> int | None:
        text = self._container.limits.get(resource)
        place = "limit"
        if text is None:
            text = self._container.requests.get(resource)
            place = "request"
        if text is None:
            return None
        try:
            value = parse(text, "", maximum)
        except InvalidRequestError as error:
            self._wrong(code, f"{place} {resource}", text, error.remedy)
            return minimum or 1
        if value < minimum:
            self._wrong(code, f"{place} {resource}", text, f"write a whole number from {minimum} to {maximum}")
            return minimum
        return value

    def _wrong(self, code: str, place: str, text: str, remedy: str) -> None:
        field = f'container "{self._container.name}": {place}'
        self.violations.append(Violation(code=code, field=field, found=quoted(text), remedy=remedy))


def _mentions(container: Container, table: VgpuTable) -> bool:
    resources = table.resources
    return not (resources.isdisjoint(container.limits) and resources.isdisjoint(container.requests))


def _selection(annotations: Mapping[str, str]) -> tuple[CardSelection, tuple[Violation, ...]]:
    if _SELECTING.isdisjoint(annotations):
        return ANY_CARD, ()
    wrong: list[Violation] = []
    empty: frozenset[str] = frozenset()
    no_types: frozenset[selection.TypePattern] = frozenset()
    no_use_uuids = _read(annotations, keys.NO_USE_UUID, selection.decode_items, empty, wrong)
    avoided = _read(annotations, names.AVOIDED_CARDS, selection.avoided, (empty, frozenset[int]()), wrong)
    found = CardSelection(
        use_types=_read(annotations, names.USE_GPU_TYPE, selection.decode_types, no_types, wrong),
        no_use_types=_read(annotations, names.NO_USE_GPU_TYPE, selection.decode_types, no_types, wrong),
        use_uuids=_read(annotations, keys.USE_UUID, selection.decode_items, empty, wrong),
        no_use_uuids=no_use_uuids | avoided[0] if avoided[0] else no_use_uuids,
        indices=_read(annotations, names.WISHED_INDICES, selection.decode_indices, frozenset[int](), wrong),
        avoided_indices=avoided[1],
    )
    return (ANY_CARD if found == ANY_CARD else found), tuple(wrong)


_SELECTING: Final = frozenset(
    {
        keys.USE_UUID,
        keys.NO_USE_UUID,
        names.USE_GPU_TYPE,
        names.NO_USE_GPU_TYPE,
        names.WISHED_INDICES,
        names.AVOIDED_CARDS,
    }
)


def _read(
    annotations: Mapping[str, str], key: str, decode: Callable[[str, str], _Read], absent: _Read, wrong: list[Violation]
) -> _Read:
    text = annotations.get(key)
    if text is None:
        return absent
    try:
        return decode(text, f"annotation {key}")
    except InvalidRequestError as error:
        wrong.append(Violation(code="CS105", field=error.field, found=error.found, remedy=error.remedy))
        return absent


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
