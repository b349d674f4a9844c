"""The cards of the cluster by type, as nodes offer them with nothing in use: what can never fit, however long it waits.

Nodes that offer alike are judged once: a handful of layouts stands for thousands of nodes. A verdict is only given
where it is certain. What could be wrong tomorrow (a card that is unhealthy just now, a node whose data cannot be read)
gives none: chips whose state stands in ConfigMaps, which nobody watches for admission, count as well.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from core import names, selection
from core.errors import InvalidRequestError, quoted
from core.model import NodeName, Pod
from core.port import Complaint, Dialect, Reason, Shortfall, Tally, Unseen, Violation
from core.settings import DialectName, Policy
from core.units import counted

_MAX_SHOWN: Final = 6


class Type(NamedTuple):
    """Cards that people call by one name: *total* of *unit* each."""

    label: str
    total: int
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sold:
    """What the nodes of one protocol offer.

    layouts: the cards of one node for all that offer alike. nodes: on how many nodes a type is, cards: how many there
    are of it. most: the cards of the node with most of them. read: whether every node could be read, well: whether all
    cards can be used now. hidden: types of which no node is well, so that nobody can say what fits there.
    """

    layouts: tuple[tuple[Any, ...], ...] = ()
    nodes: Mapping[Type, int] = field(default_factory=dict)
    cards: Mapping[Type, int] = field(default_factory=dict)
    most: int = 0
    read: bool = True
    well: bool = True
    hidden: frozenset[Type] = frozenset()


@dataclass(frozen=True, slots=True)
class Stock:
    """All that the cluster sells, at one instant."""

    by_dialect: Mapping[DialectName, Sold]

    def never_fits(self, dialect: Dialect, request: Any, pod: Pod, resource: str) -> Violation | None:
        """Why no node could ever take *pod*, which asks *request*, were it empty; None = one could, or who knows.

        resource: by which the pod asks, for people.
        """
        sold = self.by_dialect.get(dialect.name, _NOTHING)
        if not sold.read:
            return None
        if not sold.layouts:
            return _no("CS405", f"no node of this cluster offers {resource}", "ask the cluster's operator")
        return (
            _unknown_type(pod, sold)
            or _too_many(dialect.width(request), sold)
            or _beyond(dialect.width(request), pod, sold)
            or _too_large(dialect, request, pod, sold)
        )

    def types(self, dialect: Dialect) -> frozenset[str]:
        """What the cluster's cards are called."""
        return frozenset(type_.label for type_ in self.by_dialect.get(dialect.name, _NOTHING).nodes)

    def takes(self, dialect: Dialect, request: Any) -> bool | None:
        """Whether an empty node of this cluster takes *request*; None where that is not certain."""
        sold = self.by_dialect.get(dialect.name, _NOTHING)
        return _takes(dialect, request, sold) if sold.read and sold.well else None


_NOTHING: Final = Sold()


class _Offered(NamedTuple):
    """What nodes that offer alike offer in one protocol: *layout* is what makes them alike."""

    layout: Hashable
    cards: tuple[Any, ...]
    types: tuple[Type, ...]
    well: bool


class Inventory:
    """What every node offers, kept node by node; `stock` sums it up."""

    def __init__(self) -> None:
        self._offered: dict[NodeName, dict[DialectName, _Offered]] = {}
        self._unread: dict[NodeName, frozenset[DialectName]] = {}
        # One value for all nodes that offer alike: thousands of nodes have hardly more than a few kinds of machines.
        self._shared: dict[tuple[DialectName, Hashable], _Offered] = {}
        self.version = 0

    def put(
        self,
        name: NodeName,
        offers: Mapping[DialectName, tuple[Any, ...]],
        complaints: Sequence[Complaint],
        dialects: Mapping[DialectName, Dialect],
    ) -> None:
        """Node *name* offers *offers*, nothing in use. `version` grows if that says anything new of the cluster."""
        found = {dialect: self._offered_alike(dialects[dialect], cards) for dialect, cards in offers.items() if cards}
        unread = frozenset(one.dialect for one in complaints)
        before = self._offered.get(name, {})
        if _alike(before, found) and self._unread.get(name, frozenset()) == unread:
            return
        self.version += 1
        self._offered[name] = found
        self._unread[name] = unread

    def remove(self, name: NodeName) -> None:
        """Node *name* is gone."""
        if self._offered.pop(name, None) is not None:
            self.version += 1
        self._unread.pop(name, None)

    def keep(self, there: frozenset[NodeName]) -> None:
        """No other nodes than *there* exist."""
        for name in [name for name in self._offered if name not in there]:
            self.remove(name)

    def _offered_alike(self, dialect: Dialect, cards: tuple[Any, ...]) -> _Offered:
        offered = _offered(dialect, cards)
        return self._shared.setdefault((dialect.name, offered.layout), offered)

    def stock(self) -> Stock:
        """All nodes, summed up."""
        used = {(name, one.layout) for offered in self._offered.values() for name, one in offered.items()}
        self._shared = {key: one for key, one in self._shared.items() if key in used}
        unread = frozenset[DialectName]().union(*self._unread.values())
        found: dict[DialectName, list[_Offered]] = {name: [] for name in unread}
        for offered in self._offered.values():
            for name, one in offered.items():
                found.setdefault(name, []).append(one)
        return Stock({name: _sold(some, name in unread) for name, some in found.items()})


def _offered(dialect: Dialect, cards: tuple[Any, ...]) -> _Offered:
    if isinstance(dialect, Unseen):
        cards = dialect.at_best(cards)
        types = tuple(Type(one.label, one.total, one.unit) for one in dialect.tally(cards))
        return _Offered(cards, cards, types, well=True)
    rooms = dialect.room(cards).rooms
    types = tuple(Type(one.label, one.total, one.unit) for one in dialect.tally(cards))
    layout = (frozenset(Counter(room.kind for room in rooms).items()), frozenset(Counter(types).items()))
    return _Offered(layout, cards, types, len(rooms) == len(cards))


def _alike(one: Mapping[DialectName, _Offered], other: Mapping[DialectName, _Offered]) -> bool:
    return one.keys() == other.keys() and all(one[name].layout == other[name].layout for name in one)


def _sold(offered: Sequence[_Offered], unread: bool) -> Sold:
    well = [one for one in offered if one.well]
    known = {type_ for one in well for type_ in one.types}
    return Sold(
        layouts=tuple({one.layout: one.cards for one in offered}.values()),
        nodes=Counter(type_ for one in offered for type_ in set(one.types)),
        cards=Counter(type_ for one in offered for type_ in one.types),
        most=max((len(one.types) for one in offered), default=0),
        read=not unread,
        well=len(well) == len(offered),
        hidden=frozenset(type_ for one in offered for type_ in one.types if type_ not in known),
    )


def _unknown_type(pod: Pod, sold: Sold) -> Violation | None:
    """CS402: of the types asked for there is no card; only where types are names that people could have written."""
    text = pod.annotations.get(names.USE_GPU_TYPE, "")
    key = f"annotation {names.USE_GPU_TYPE}"
    labels = sorted({type_.label for type_ in sold.nodes})
    try:
        patterns = selection.decode_types(text, key)
    except InvalidRequestError:
        return None
    if not patterns:
        return None
    # A register says "NVIDIA-" before every type, so that a list may say it too.
    kinds = [selection.type_words(f"NVIDIA-{label}") for label in labels]
    if any(pattern.matches(words) for pattern in patterns for words in kinds):
        return None
    asked = sorted(selection.decode_items(text, key))
    meant = _close(asked[0], labels)
    hint = f"did you mean {meant}? " if meant else ""
    return Violation(
        code="CS402",
        field=key,
        found=quoted(text),
        remedy=f"{hint}no card of that type is in this cluster; there are {_listed(labels)}",
    )


def _too_many(width: int, sold: Sold) -> Violation | None:
    """CS404: more cards of one node than any node has."""
    if width <= sold.most or _counted_in_pools(sold):
        return None
    return _no(
        "CS404", f"no node has {counted(width, 'cards')}; the largest has {sold.most}", f"ask for {sold.most} or fewer"
    )


def _beyond(width: int, pod: Pod, sold: Sold) -> Violation | None:
    """CS403: positions that no node has."""
    key = f"annotation {names.WISHED_INDICES}"
    text = pod.annotations.get(names.WISHED_INDICES, "")
    try:
        wished = selection.decode_indices(text, key)
    except InvalidRequestError:
        return None
    there = [index for index in wished if index < sold.most]
    if not wished or len(there) >= width:
        return None
    return Violation(
        code="CS403",
        field=key,
        found=quoted(text),
        remedy=f"the node with the most cards has positions 0 to {sold.most - 1}; name at least {width} of these",
    )


def _too_large(dialect: Dialect, request: Any, pod: Pod, sold: Sold) -> Violation | None:
    """CS401: more of one card than the largest has; CS405: whatever else no empty node can do."""
    if _takes(dialect, request, sold):
        return None
    # Layouts stand for nodes with other ids and positions than theirs: of these nothing is known here.
    if _names_cards(pod):
        return None
    short = [dialect.shortfalls(cards, request) for cards in sold.layouts]
    tallies = [dialect.tally(cards) for cards in sold.layouts]
    memory = _memory(short, tallies, sold)
    if memory is not None or not sold.well:
        return memory
    return _too_few(short) or _impossible(short)


def _too_few(short: Sequence[Sequence[Shortfall]]) -> Violation | None:
    """CS404, if it is their number that every node lacks."""
    # Nodes of other types are not asked.
    asked = [some for some in short if any(one.reason is not Reason.TYPE for one in some)]
    few = [one for some in asked for one in some if one.reason is Reason.CARD_COUNT]
    if not few or len(few) != len(asked):
        return None
    best = max(few, key=lambda one: one.free)
    unit = best.unit.removeprefix("idle ")
    what = f"no node has {counted(best.wanted, unit)} that could take it; the most is {best.free}"
    return _no("CS404", what, f"ask for {counted(best.free, unit)} or fewer" if best.free else "ask for less")


def _impossible(short: Sequence[Sequence[Shortfall]]) -> Violation:
    told = ", ".join(dict.fromkeys(_reason(one) for some in short for one in some))
    return _no("CS405", f"no node could take it, not even an empty one ({told})", "ask for less, or for other cards")


def _takes(dialect: Dialect, request: Any, sold: Sold) -> bool:
    """Whether an empty node takes *request*."""
    return any(dialect.place(cards, request, Policy.BINPACK) is not None for cards in sold.layouts)


def _memory(short: Sequence[Sequence[Shortfall]], tallies: Sequence[Sequence[Tally]], sold: Sold) -> Violation | None:
    """CS401, if every card is refused by itself, and those that nothing else refuses for their memory."""
    lacking: dict[str, Tally] = {}
    wanted: list[int] = []
    for some, tally in zip(short, tallies, strict=True):
        refused = {one.card for one in some}
        if any(one.card not in refused for one in tally):
            return None
        small = {one.card for one in some if one.reason is Reason.MEMORY}
        lacking |= {one.card: one for one in tally if one.card in small}
        wanted += [one.wanted for one in some if one.reason is Reason.MEMORY]
    if not lacking or any(type_.total >= min(wanted) for type_ in sold.hidden):
        return None
    best = max(lacking.values(), key=lambda one: (one.total, one.label))
    count = sold.nodes.get(Type(best.label, best.total, best.unit), 0)
    return _no(
        "CS401",
        f"no card has {min(wanted)} {best.unit}; the largest is {best.label} with {best.total} {best.unit} "
        f"on {count} node{'' if count == 1 else 's'}",
        f"ask for {best.total} {best.unit} or less",
    )


def _names_cards(pod: Pod) -> bool:
    """Whether it matters which cards are meant, beside how they are: keys of lists of ids end alike in all dialects."""
    listed = (names.WISHED_INDICES, names.AVOIDED_CARDS)
    return any(key in listed or "uuid" in key.rpartition("/")[2] for key in pod.annotations)


def _counted_in_pools(sold: Sold) -> bool:
    return any(type_.unit == "GPUs" for type_ in sold.nodes)


def _reason(one: Shortfall) -> str:
    if one.wanted:
        return f"{one.reason.value}: {one.free} of {counted(one.wanted, one.unit)}"
    return f"{one.reason.value}: {one.detail}" if one.reason is Reason.TEMPLATE and one.detail else one.reason.value


def _no(code: str, what: str, remedy: str) -> Violation:
    return Violation(code=code, field="cards", found="", remedy=f"{what}; {remedy}")


def _close(asked: str, labels: Sequence[str]) -> str:
    """The label that was probably meant by *asked*, or ""."""
    text = asked[:64].upper()
    # "A100-80" names parts of "A100-SXM4-80GB", which is too long to look like it.
    words = set(selection.type_words(text)) - _EMPTY_WORDS
    shared = {
        label: sum(any(one.startswith(w) for one in selection.type_words(label)) for w in words) for label in labels
    }
    best = max(labels, key=lambda label: shared[label], default="")
    if best and shared[best]:
        return best
    by_text = {label.upper(): label for label in labels}
    found = get_close_matches(text, by_text, n=1, cutoff=0.5)
    return by_text[found[0]] if found else ""


# What vendors write before every name.
_EMPTY_WORDS: Final = frozenset({"NVIDIA", "TESLA", "GEFORCE"})


def _listed(labels: Sequence[str]) -> str:
    shown = ", ".join(labels[:_MAX_SHOWN])
    return f"{shown} and {len(labels) - _MAX_SHOWN} more" if len(labels) > _MAX_SHOWN else shown
