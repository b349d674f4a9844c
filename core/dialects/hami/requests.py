"""What a pod asks for in HAMi's protocol for NVIDIA cards.

Source: protocol reference, hami 1.4, 4.1, 4.4 and 6, with HN-12 done as it says and types matched by whole words.
"""

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from functools import partial
from typing import Final, NamedTuple, TypeVar

from core import names, selection
from core.dialects.hami import keys
from core.errors import InvalidRequestError, quoted
from core.model import AnyPod, Container
from core.port.refusals import Violation
from core.selection import ANY_CARD, CardSelection
from core.tables import HamiTable, Tables
from core.units import MAX_INT32, parse_count, parse_memory

_Read = TypeVar("_Read")


class Ask(NamedTuple):
    """One container's request: *number* cards, and of each of them the same share.

    container: its segment, init containers first. memory in MiB; percent: of a card's memory, 0 = *memory* counts.
    cores in percent of one card. initial: it ends before the containers after it start; sidecar: it starts among those
    and stays.
    """

    container: int
    number: int
    memory: int
    percent: int
    cores: int
    initial: bool = False
    sidecar: bool = False


class Weights(NamedTuple):
    """How much the used slots, cores and memory of a card count when cards are compared."""

    slot: int = 1
    core: int = 1
    memory: int = 1


EVEN: Final = Weights()


class Order(NamedTuple):
    """How the pod wants cards compared; policies: in the order of the annotation, () where it leaves it to us."""

    policies: tuple[str, ...] = ()
    weights: Weights = EVEN
    bound: bool = False
    nodes: str = ""

    @property
    def exclusive(self) -> bool:
        """Whether only cards that nobody uses will do."""
        return keys.MUTEX in self.policies

    @property
    def linked(self) -> bool:
        """Whether cards are chosen by how they are linked."""
        return keys.TOPOLOGY in self.policies


ANY_ORDER: Final = Order()


class Request(NamedTuple):
    """All that a pod asks of the cards of one node; asks: containers, then sidecars, then init containers.

    segments: how many containers the pod has in all. modes: the words of its annotation, () for any.
    """

    asks: tuple[Ask, ...]
    segments: int
    selection: CardSelection = ANY_CARD
    modes: tuple[str, ...] = ()
    order: Order = ANY_ORDER


def request(pod: AnyPod, tables: Tables) -> Request | tuple[Violation, ...] | None:
    """What *pod* asks, if HAMi is meant and its plugin can be told so; see `readable_request`."""
    table = tables.hami
    if tables.sells_shares_as(table.count_resource) or not _means_hami(pod, table):
        return None
    asked = readable_request(pod, table)
    violations = (
        *(asked if asked is not None and not isinstance(asked, Request) else ()),
        *_unservable(pod, table),
    )
    if violations:
        return tuple(dict.fromkeys(violations))
    return asked


def _means_hami(pod: AnyPod, table: HamiTable) -> bool:
    """Whether a resource of HAMi's alone, or a word of its, is in *pod*; by the count alone NVIDIA may be meant too."""
    named: set[str] = set()
    for one in (*pod.containers, *pod.init_containers):
        named.update(one.limits, one.requests)
    if not table.resources.isdisjoint(named - {table.count_resource}):
        return True
    if table.count_resource not in named:
        return False
    return (
        table.installed
        or table.count_resource != keys.GPU
        or pod.scheduler_name == keys.SCHEDULER
        or not keys.OWN_WISHES.isdisjoint(pod.annotations)
    )


def readable_request(pod: AnyPod, table: HamiTable) -> Request | tuple[Violation, ...] | None:
    """What *pod* asks, as upstream's scheduler reads it; None if nothing, violations if it cannot be placed."""
    violations: list[Violation] = []
    asks = _asks(pod, table, violations)
    if not asks and not violations:
        return None
    found = Request(
        asks=asks,
        segments=len(pod.init_containers) + len(pod.containers),
        selection=_selection(pod, violations),
        modes=_modes(pod, violations),
        order=_order(pod, violations),
    )
    return tuple(violations) if violations else found


def _asks(pod: AnyPod, table: HamiTable, violations: list[Violation]) -> tuple[Ask, ...]:
    early: list[Ask] = []
    sidecars: list[Ask] = []
    for at, one in enumerate(pod.init_containers):
        ask = _ask(_Figures(one, "init container", violations), at, table)
        if ask is not None and one.sidecar:
            sidecars.append(ask._replace(sidecar=True))
        elif ask is not None:
            early.append(ask._replace(initial=True))
    offset = len(pod.init_containers)
    asks = [
        ask
        for at, one in enumerate(pod.containers)
        if (ask := _ask(_Figures(one, "container", violations), offset + at, table)) is not None
    ]
    return (*asks, *sidecars, *early)


def _ask(read: "_Figures", position: int, table: HamiTable) -> Ask | None:
    number = read(table.count_resource, "CS101")
    if not number:
        return None
    factor = table.memory_factor
    as_memory = partial(parse_memory, mib_per_unit=factor)
    memory = (read(table.memory_resource, "CS101", MAX_INT32 // factor, as_memory) or 0) * factor
    percent = read(table.percentage_resource, "CS102", 100) or 0
    cores = read(table.cores_resource, "CS103", 100)
    if not memory and not percent:
        memory, percent = table.default_memory, 0 if table.default_memory else 100
    return Ask(position, number, memory, 0 if memory else percent, table.default_cores if cores is None else cores)


class _Figures:
    """Reads one container's figures, limits before requests, and notes what is wrong with them."""

    def __init__(self, container: Container, role: str, violations: list[Violation]) -> None:
        self._container = container
        self._role = role
        self._violations = violations

    def __call__(
        self,
        resource: str,
        code: str,
        maximum: int = MAX_INT32,
        parse: Callable[[str, str, int], int] = parse_count,
    ) -> int | None:
        place, text = "limit", self._container.limits.get(resource)
        if text is None:
            place, text = "request", self._container.requests.get(resource)
        if text is None:
            return None
        field = f'{self._role} "{self._container.name}": {place} {resource}'
        try:
            return parse(text, field, maximum)
        except InvalidRequestError as error:
            self._violations.append(Violation(code=code, field=field, found=quoted(text), remedy=error.remedy))
            return None


def _selection(pod: AnyPod, violations: list[Violation]) -> CardSelection:
    annotations = pod.annotations
    empty: frozenset[str] = frozenset()
    no_types: frozenset[selection.TypePattern] = frozenset()

    def read(key: str, decode: Callable[[str, str], _Read], absent: _Read) -> _Read:
        text = annotations.get(key)
        try:
            return absent if text is None else decode(text, f"annotation {key}")
        except InvalidRequestError as error:
            violations.append(Violation(code="CS105", field=error.field, found=error.found, remedy=error.remedy))
            return absent

    avoided = read(names.AVOIDED_CARDS, selection.avoided, (empty, frozenset[int]()))
    found = CardSelection(
        use_types=read(names.USE_GPU_TYPE, selection.decode_types, no_types),
        no_use_types=read(names.NO_USE_GPU_TYPE, selection.decode_types, no_types),
        use_uuids=read(keys.USE_UUID, selection.decode_items, empty),
        no_use_uuids=read(keys.NO_USE_UUID, selection.decode_items, empty) | avoided[0],
        indices=read(names.WISHED_INDICES, selection.decode_indices, frozenset[int]()),
        avoided_indices=avoided[1],
    )
    return ANY_CARD if found == ANY_CARD else found


def _words(pod: AnyPod, key: str) -> tuple[str, ...]:
    return tuple(word for item in pod.annotations.get(key, "").split(",") if (word := item.strip()))


def _modes(pod: AnyPod, violations: list[Violation]) -> tuple[str, ...]:
    words = _words(pod, keys.MODE)
    _check(keys.MODE, words, keys.MODES, violations)
    return words


def _check(key: str, words: tuple[str, ...], known: tuple[str, ...], violations: list[Violation]) -> None:
    for word in words:
        if word not in known:
            close = get_close_matches(word[:32], known, n=1, cutoff=0.5)
            hint = f"did you mean {quoted(close[0])}? " if close else ""
            remedy = f"{hint}write one of {', '.join(known)}, or leave it out to let the scheduler choose"
            violations.append(Violation(code="CS104", field=f"annotation {key}", found=quoted(word), remedy=remedy))
            return


def _order(pod: AnyPod, violations: list[Violation]) -> Order:
    annotations = pod.annotations
    policies = _words(pod, keys.CARD_POLICY)
    nodes = annotations.get(keys.NODE_POLICY, "").strip()
    _check(keys.CARD_POLICY, policies, keys.CARD_POLICIES, violations)
    _check(keys.NODE_POLICY, (nodes,) if nodes else (), keys.NODE_POLICIES, violations)
    found = Order(policies, _weights(pod, violations), annotations.get(keys.NUMA_BIND, "") in keys.TRUE, nodes)
    return ANY_ORDER if found == ANY_ORDER else found


_WEIGHT_REMEDY: Final = "write 'slot=1,core=1,memory=1' with whole numbers, not all of them 0"


def _weights(pod: AnyPod, violations: list[Violation]) -> Weights:
    text = pod.annotations.get(keys.WEIGHTS)
    if text is None:
        return EVEN
    pairs = [[part.strip() for part in item.split("=", 1)] for item in text[:256].split(",")]
    try:
        found = {name: parse_count(figure, "", MAX_INT32) for name, figure in pairs}
    except (InvalidRequestError, ValueError):
        found = {}
    if len(pairs) != len(found) or found.keys() != set(Weights._fields) or not any(found.values()):
        violations.append(
            Violation(code="CS105", field=f"annotation {keys.WEIGHTS}", found=quoted(text), remedy=_WEIGHT_REMEDY)
        )
        return EVEN
    return Weights(**found)


def _unservable(pod: AnyPod, table: HamiTable) -> Iterator[Violation]:
    """What kubelet or the plugin would not do as asked: no count, or shares of no card; and contradictions."""
    shares = (table.memory_resource, table.percentage_resource, table.cores_resource)
    containers = (
        *(("init container", one) for one in pod.init_containers),
        *(("container", one) for one in pod.containers),
    )
    for role, one in containers:
        priority = one.amount(table.priority_resource)
        if priority not in (None, "0", "1"):
            field = f'{role} "{one.name}": limit {table.priority_resource}'
            yield Violation(code="CS304", field=field, found=quoted(priority or ""), remedy="write 0 (high) or 1 (low)")
        given = [key for key in shares if (text := one.amount(key)) is not None and text.strip("0")]
        field = f'{role} "{one.name}": limit {table.count_resource}'
        count = one.limits.get(table.count_resource)
        if count is None and (given or table.count_resource in one.requests):
            remedy = f"write {table.count_resource}: 1 as well; kubelet gives the container no card without it"
            yield Violation(code="CS203", field=field, found="", remedy=remedy)
        elif count is not None and not count.strip("0") and given:
            remedy = f"write {table.count_resource}: 1, or leave out {', '.join(given)} as well"
            yield Violation(code="CS203", field=field, found=quoted(count), remedy=remedy)
