"""What a pod asks of the shared cards of one node."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Final, NamedTuple, TypeVar

from core import names, selection
from core.errors import InvalidRequestError, quoted
from core.model import AnyPod, Container
from core.port.cards import CardWish, Wording
from core.port.refusals import Violation
from core.selection import ANY_CARD, CardSelection
from core.sharing.slices import Profile
from core.units import MAX_INT32, parse_count, parse_memory
from core.warnings import AdmissionWarning, all_memory, little_memory


class Resources(NamedTuple):
    """The names for one kind of cards: how many *cards*, and of each *memory*, *cores* and *percentage* of its memory.

    A name is "" if the protocol has none. mib_per_unit: MiB per unit of *memory*. type: the only type of
    these cards, "" for any.
    """

    cards: str = ""
    memory: str = ""
    cores: str = ""
    percentage: str = ""
    mib_per_unit: int = 1
    type: str = ""

    @property
    def all(self) -> tuple[str, ...]:
        """All of its names."""
        return (self.cards, *self.parts) if self.cards else self.parts

    @property
    def parts(self) -> tuple[str, ...]:
        """The names for a part of a card."""
        return tuple([one for one in (self.memory, self.cores, self.percentage) if one])


def worded(wish: CardWish, named: Resources, types: str) -> Wording | None:
    """Return *wish* as limits, and the annotation *types*; None if the protocol has no word for a part of it.

    Memory is rounded up to units; without a resource that counts cards, it is of one card. A type is in the names
    themselves if these are of one type.
    """
    if named.type:
        wanted = [one.strip().lower() for one in wish.types.split(",") if one.strip()]
        if wanted and not any(one in named.type.lower() for one in wanted):
            return None
        wish = wish._replace(types="")
    lacks = (wish.memory_mib is not None and not named.memory) or (wish.cores_pct is not None and not named.cores)
    uncounted = not named.cards and (wish.cards != 1 or wish.memory_mib is None)
    if lacks or uncounted or (wish.types and not types):
        return None
    limits = {named.cards: str(wish.cards)} if named.cards else {}
    if wish.memory_mib is not None:
        limits[named.memory] = str(-(-wish.memory_mib // named.mib_per_unit))
    if wish.cores_pct is not None:
        limits[named.cores] = str(wish.cores_pct)
    return Wording(limits, {types: wish.types} if wish.types else {})


def odd_memory(pod: AnyPod, named: Resources, *, none_is_all: bool = True) -> Iterator[AdmissionWarning]:
    """Yield CS116 and CS119 for amounts of memory of *pod* that give more, or less, than they seem to.

    none_is_all: 0 gives all memory of a card.
    """
    for one in (*pod.init_containers, *pod.containers):
        written = {name: one.amount(name) for name in (named.memory, named.percentage) if name}
        has_cards = one.amount(named.cards) not in (None, "0")
        if none_is_all and has_cards and all(text in (None, "0") for text in written.values()):
            yield from [all_memory(one, name) for name, text in written.items() if text == "0"]
        yield from little_memory(one, named.memory, named.mib_per_unit)


_Read = TypeVar("_Read")


class Ask(NamedTuple):
    """One container's request: *number* cards, and the same share of each.

    container: its segment in an assignment. memory: in register units; percent: of a card's memory, 0 if *memory*
    counts. cores: percent of one card. initial: it ends before the containers after it start; sidecar: it starts among
    those and stays. parts: the amounts of which this is the sum, if the plugin gives all containers of a pod the same
    cards; container is 0 then. profile: the template by which the share is cut, None without; then *memory* is its
    charge, or *percent* is 100 and the template is `slices.WHOLE`.
    """

    container: int
    number: int
    memory: int
    percent: int
    cores: int
    initial: bool = False
    sidecar: bool = False
    parts: tuple[int, ...] = ()
    profile: Profile | None = None

    def unit(self, word: str) -> str:
        """Return the unit *word* for people, with the addition that several containers are counted together."""
        return f"{word} in all" if len(self.parts) > 1 else word


class Weights(NamedTuple):
    """How much the used slots, cores and memory of a card count when cards are compared."""

    slot: int = 1
    core: int = 1
    memory: int = 1


EVEN: Final = Weights()


class Order(NamedTuple):
    """How the pod wants cards compared.

    policies: the words of `core.sharing.order` in the order of the pod, () if the settings decide. bound: all cards of
    a container must be of one NUMA node. nodes: the word by which nodes compare, "" if the settings decide. linked:
    nodes whose links stay whole are preferred.
    """

    policies: tuple[str, ...] = ()
    weights: Weights = EVEN
    bound: bool = False
    nodes: str = ""
    linked: bool = False


ANY_ORDER: Final = Order()


class Request(NamedTuple):
    """Everything that a pod asks of the cards of one node; asks: containers, then sidecars, then init containers.

    segments: how many containers the assignment has. modes: the accepted sharing modes, () for any. marks: what the pod
    puts on its cards (see `Card`), and may avoid on others. type: the only type of cards that serves it, "" for any.
    mib_per_unit: MiB per unit of memory in manifests, if registers have MiB.
    """

    asks: tuple[Ask, ...]
    segments: int
    selection: CardSelection = ANY_CARD
    modes: tuple[str, ...] = ()
    order: Order = ANY_ORDER
    marks: tuple[str, ...] = ()
    type: str = ""
    mib_per_unit: int = 1


class Figures:
    """Reads the figures of one container, limits before requests, and collects what is wrong with them."""

    def __init__(self, container: Container, role: str, violations: list[Violation]) -> None:
        """Read *container*, which is a "container" or an "init container" by its *role*."""
        self._container = container
        # Read here once: there are many figures, and each call of `Container.amount` costs more than both lookups.
        self._limits, self._requests = container.limits, container.requests
        self._role = role
        self.violations = violations

    def read(
        self,
        resource: str,
        code: str,
        minimum: int = 0,
        maximum: int = MAX_INT32,
        parse: Callable[[str, str, int], int] = parse_count,
    ) -> int | None:
        """Return the amount of *resource*, from *minimum* to *maximum*; None if it is absent, or wrong (*code*)."""
        text = self._limits.get(resource)
        if text is None:
            text = self._requests.get(resource)
        if text is None:
            return None
        try:
            found = parse(text, "", maximum)
            remedy = f"write a whole number from {minimum} to {maximum}"
        except InvalidRequestError as error:
            found, remedy = minimum - 1, error.remedy
        if found >= minimum:
            return found
        self.wrong(code, resource, remedy)
        return None

    def mib(self, resource: str, mib_per_unit: int) -> int | None:
        """Return the MiB of *resource*, an amount of units of *mib_per_unit* MiB; None if it is absent, or wrong."""
        parse = partial(parse_memory, mib_per_unit=mib_per_unit)
        units = self.read(resource, "CS101", maximum=MAX_INT32 // mib_per_unit, parse=parse)
        return units and units * mib_per_unit

    def text(self, resource: str) -> str:
        """Return the amount of *resource* as it is written, "" if it is absent."""
        return self._container.amount(resource) or ""

    def wrong(self, code: str, resource: str, remedy: str) -> None:
        """Add a violation: the amount of *resource* is wrong."""
        place = "limit" if resource in self._limits else "request"
        field = f'{self._role} "{self._container.name}": {place} {resource}'
        found = quoted(self._container.amount(resource) or "")
        self.violations.append(Violation(code=code, field=field, found=found, remedy=remedy))


class Place(NamedTuple):
    """One container of a pod: its figures, its segment in an assignment, and when it runs, as in `Ask`."""

    figures: Figures
    container: int
    initial: bool = False
    sidecar: bool = False


def containers_of(pod: AnyPod) -> tuple[tuple[str, Container], ...]:
    """Return the containers of *pod* by segment, init containers first, each after its role for people."""
    inits = [("init container", one) for one in pod.init_containers]
    return (*inits, *[("container", one) for one in pod.containers])


def places_of(pod: AnyPod, violations: list[Violation]) -> list[Place]:
    """Return the containers of *pod* by segment, init containers first; their figures add to *violations*."""
    inits = len(pod.init_containers)
    return [
        Place(Figures(one, role, violations), at, at < inits and not one.sidecar, at < inits and one.sidecar)
        for at, (role, one) in enumerate(containers_of(pod))
    ]


def selection_of(
    annotations: Mapping[str, str],
    use: str,
    avoid: str,
    violations: list[Violation],
    *,
    types: tuple[str, str] = (names.USE_GPU_TYPE, names.NO_USE_GPU_TYPE),
) -> CardSelection:
    """Return the cards that *annotations* select.

    Args:
        annotations: of the pod.
        use: the key of the list of wanted uuids.
        avoid: the key of the list of rejected ones.
        violations: to which lists that cannot be read add CS105.
        types: the same two keys for types.
    """
    if annotations.keys().isdisjoint((use, avoid, *types, *names.PLACE_WISHES)):
        return ANY_CARD
    wished = _Wished(annotations, violations)
    avoided = wished.read(names.AVOIDED_CARDS, selection.avoided, (ANY_CARD.no_use_uuids, ANY_CARD.avoided_indices))
    found = CardSelection(
        use_types=wished.read(types[0], selection.decode_types, ANY_CARD.use_types),
        no_use_types=wished.read(types[1], selection.decode_types, ANY_CARD.no_use_types),
        use_uuids=wished.read(use, selection.decode_items, ANY_CARD.use_uuids),
        no_use_uuids=wished.read(avoid, selection.decode_items, ANY_CARD.no_use_uuids) | avoided[0],
        indices=wished.read(names.WISHED_INDICES, selection.decode_indices, ANY_CARD.indices),
        avoided_indices=avoided[1],
    )
    return ANY_CARD if found == ANY_CARD else found


class _Wished:
    """Reads *annotations*; those that cannot be read add CS105 to *violations*."""

    def __init__(self, annotations: Mapping[str, str], violations: list[Violation]) -> None:
        self._annotations = annotations
        self._violations = violations

    def read(self, key: str, decode: Callable[[str, str], _Read], absent: _Read) -> _Read:
        text = self._annotations.get(key)
        if text is None:
            return absent
        try:
            return decode(text, f"annotation {key}")
        except InvalidRequestError as error:
            self._violations.append(Violation(code="CS105", field=error.field, found=error.found, remedy=error.remedy))
            return absent


def uncounted_shares(
    containers: Iterable[tuple[str, Container]], named: Resources, wanted: str = "1", *, implied: bool = False
) -> list[Violation]:
    """Return CS203 for each of *containers* that asks for parts of cards and no card: kubelet gives it none.

    Args:
        containers: each after its role for people.
        named: what parts and cards are called.
        wanted: how much of the count it should write.
        implied: a part without a count asks for one card, whatever its amount.
    """
    found: list[Violation] = []
    shares = (named.memory, named.cores, named.percentage)
    for role, one in containers:
        count = one.limits.get(named.cards)
        if count is not None and count.strip("0"):
            continue
        amounts = {key: one.limits.get(key, one.requests.get(key)) for key in shares}
        parts = {key: text for key, text in amounts.items() if text is not None}
        given = [key for key, text in parts.items() if text.strip("0")]
        field = f'{role} "{one.name}": limit {named.cards}'
        if count is None and ((parts if implied else given) or named.cards in one.requests):
            remedy = f"write {named.cards}: {wanted} as well; kubelet gives the container no card without it"
            found.append(Violation(code="CS203", field=field, found="", remedy=remedy))
        elif count is not None and given:
            remedy = f"write {named.cards}: {wanted}, or leave out {', '.join(given)} as well"
            found.append(Violation(code="CS203", field=field, found=quoted(count), remedy=remedy))
    return found


def cards_at_start(pod: AnyPod, resource: str, asks: Callable[[Container], object]) -> list[Violation]:
    """Return CS205 for each init container that *asks* for cards, where a plugin serves only other containers."""
    found: list[Violation] = []
    for one in pod.init_containers:
        if asks(one):
            remedy = f"ask for {resource} in a normal container; init containers get no card"
            found.append(Violation(code="CS205", field=f'init container "{one.name}"', found="", remedy=remedy))
    return found


def miscounted(pod: AnyPod, least: str, resource: str, number: int) -> Violation:
    """Return CS106: the number of positions that *pod* names is wrong; *least*: "at least" or "exactly" *number*."""
    key = names.WISHED_INDICES
    remedy = f"name {least} as many cards as {resource} asks for ({number})"
    return Violation(code="CS106", field=f"annotation {key}", found=quoted(pod.annotations[key]), remedy=remedy)


def check_words(key: str, words: Sequence[str], known: Sequence[str], violations: list[Violation]) -> None:
    """Add CS104 for the first of *words* of annotation *key* that is not *known*."""
    for word in words:
        if word not in known:
            close = get_close_matches(word[:32], known, n=1, cutoff=0.5)
            hint = f"did you mean {quoted(close[0])}? " if close else ""
            remedy = f"{hint}write one of {', '.join(known)}, or leave it out to let the scheduler choose"
            violations.append(Violation(code="CS104", field=f"annotation {key}", found=quoted(word), remedy=remedy))
            return


def judged(
    asked: Request | tuple[Violation, ...] | None, more: Iterable[Violation]
) -> Request | tuple[Violation, ...] | None:
    """Return *asked*, or what is wrong with it and *more*, each once."""
    wrong = asked if asked is not None and not isinstance(asked, Request) else ()
    found = [*wrong, *more]
    return tuple(dict.fromkeys(found)) if found else asked
