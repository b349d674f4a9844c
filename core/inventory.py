"""The cards of the cluster by type, as nodes offer them when unused: finds requests that can never fit.

A pod can never fit if no node takes it in its best state: nothing in use, all cards healthy, all capacity allocatable.
The dialect decides this on the cards of every node; nodes whose cards differ only in their ids are judged once. The
kinds of nodes in the settings count like nodes, because a pool that is scaled to zero may return. There is a verdict
only if it is certain; a node with unreadable data gives none.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from core import names, selection
from core.errors import InvalidRequestError, quoted
from core.model import Node, NodeName, Pod
from core.port.dialect import AnyDialect
from core.port.refusals import Complaint, Reason, Shortfall, Violation
from core.settings import CARD_POLICIES, DialectName, NodeKind, Policy, Tables
from core.units import counted, listed, parse_amount

_MAX_SHOWN: Final = 6
# The cost limit of one review: containers placed on kinds of nodes, some microseconds each. Beyond it there is no
# verdict.
_WORK_MAX: Final = 512
# Several containers are tried under every policy and mode, because the order of filling affects the result.
_TRIES: Final = 12
_OTHER_CARDS: Final = "change what it asks for, or ask the cluster's operator for such cards"
# The number of preferences of a pod that are removed as a trial, to find those that no node meets.
_WISHES_TRIED: Final = 4
# Prefix of the names of kinds; no node name starts like this.
_KIND: Final = "kind "


def at_its_best(node: Node) -> Node:
    """Return *node* with its full capacity as allocatable, because its plugin may release what it holds back now."""
    best = dict(node.allocatable)
    for resource, text in node.capacity.items():
        if _is_less(best.get(resource, "0"), text):
            best[resource] = text
    return node if best == node.allocatable else replace(node, allocatable=best)


def _is_less(text: str, other: str) -> bool:
    try:
        return parse_amount(text, "") < parse_amount(other, "")
    except InvalidRequestError:
        return False


def node_of(kind: NodeKind) -> Node:
    """Return an imaginary node of *kind*."""
    capacity = dict(kind.capacity)
    return Node(
        name=NodeName(f"{_KIND}{kind.name}"),
        labels=dict(kind.labels),
        annotations=dict(kind.annotations),
        capacity=capacity,
        allocatable=capacity,
    )


class Type(NamedTuple):
    """Cards with one name for people: *total* of *unit* each."""

    label: str
    total: int
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sold:
    """What the nodes of one protocol offer in their best state.

    layouts: the cards of one node, once for all nodes that offer the same. nodes: number of real nodes with each type.
    ids: of the cards of real nodes. most: number of cards of the largest node. read: whether every node was readable.
    """

    layouts: tuple[tuple[Any, ...], ...] = ()
    ids: frozenset[str] = frozenset()
    nodes: Mapping[Type, int] = field(default_factory=dict)
    most: int = 0
    read: bool = True


@dataclass(frozen=True, slots=True)
class Stock:
    """Everything that the cluster offers, at one instant; listed: resources whose devices kubelets list (1.36)."""

    by_dialect: Mapping[DialectName, Sold]
    listed: frozenset[str] = frozenset()

    def never_fits(
        self, dialect: AnyDialect, request: Any, pod: Pod, tables: Tables, resource: str
    ) -> Violation | None:
        """Return why no node, even an empty one, could take *pod* with *request*; None = one could, or uncertain.

        resource: the resource that the pod requests, for the message.
        """
        sold = self.by_dialect.get(dialect.name, _NOTHING)
        several = len(pod.containers) + len(pod.init_containers)
        if not sold.read or len(sold.layouts) * several * (_TRIES if several > 1 else 1) > _WORK_MAX:
            return None
        if not sold.layouts:
            return _not_offered(resource)
        asked = _Asked(dialect, request, pod, tables, sold)
        if _takes(asked):
            return None
        if _names_cards(pod):
            # Layouts have no ids. If no node takes the pod without its list of ids, none takes it with the list.
            unnamed = dialect.request(_unnamed(pod), tables)
            asked = asked._replace(request=unnamed)
            if unnamed is None or _is_wrong(unnamed):
                return None
            if _takes(asked):
                return _unknown_ids(asked)
        if _is_of_absent_model(asked):
            return _not_offered(resource)
        return _unknown_type(asked) or _too_many(asked) or _beyond(asked) or _too_large(asked)

    def types(self, dialect: AnyDialect) -> frozenset[str]:
        """Return the names of the cluster's card types."""
        return frozenset(type_.label for type_ in self.by_dialect.get(dialect.name, _NOTHING).nodes)

    def takes(self, dialect: AnyDialect, request: Any) -> bool | None:
        """Return whether an empty node of this cluster takes *request*; None if that is uncertain."""
        sold = self.by_dialect.get(dialect.name, _NOTHING)
        if not sold.read or len(sold.layouts) > _WORK_MAX:
            return None
        return any(dialect.place(cards, request, Policy.BINPACK) is not None for cards in sold.layouts)


_NOTHING: Final = Sold()


class _Asked(NamedTuple):
    """A request that no node takes: *request* of *pod* without its lists of ids."""

    dialect: AnyDialect
    request: Any
    pod: Pod
    tables: Tables
    sold: Sold


class _Offered(NamedTuple):
    """What nodes with equal offers offer in one protocol."""

    cards: tuple[Any, ...]
    types: tuple[Type, ...]


class Inventory:
    """What every node offers, kept by node; `stock` combines it."""

    def __init__(self) -> None:
        self._offered: dict[NodeName, dict[DialectName, _Offered]] = {}
        self._ids: dict[NodeName, dict[DialectName, tuple[str, ...]]] = {}
        self._unread: dict[NodeName, frozenset[DialectName]] = {}
        self._listed: dict[NodeName, frozenset[str]] = {}
        # One value for all nodes with equal offers, because thousands of nodes have only a few kinds of machines.
        self._shared: dict[tuple[DialectName, tuple[Any, ...]], _Offered] = {}
        self.version = 0

    def put(
        self,
        name: NodeName,
        offers: Mapping[DialectName, tuple[Any, ...]],
        complaints: Sequence[Complaint],
        dialects: Mapping[DialectName, AnyDialect],
        listed: frozenset[str] = frozenset(),
    ) -> None:
        """Record the unused *offers* of node *name*. `version` increases if the cluster's offers changed.

        listed: card resources whose devices its kubelet lists in the status of pods.
        """
        found = {dialect: self._offered_alike(dialects[dialect], cards) for dialect, cards in offers.items() if cards}
        unread = frozenset(one.dialect for one in complaints if one.closes)
        ids = {each: tuple(one.card for one in dialects[each].tally(offers[each])) for each in found}
        before = self._offered.get(name), self._ids.get(name), self._listed.get(name, frozenset())
        if before == (found, ids, listed) and self._unread.get(name, frozenset()) == unread:
            return
        self.version += 1
        self._offered[name], self._ids[name] = found, ids
        self._unread[name] = unread
        self._listed[name] = listed

    def remove(self, name: NodeName) -> None:
        """Record that node *name* was removed."""
        if self._offered.pop(name, None) is not None:
            self.version += 1
        self._ids.pop(name, None)
        self._unread.pop(name, None)
        self._listed.pop(name, None)

    def keep(self, there: frozenset[NodeName]) -> None:
        """Remove all nodes except *there*; the kinds of the settings stay."""
        for name in [name for name in self._offered if name not in there and not name.startswith(_KIND)]:
            self.remove(name)

    def _offered_alike(self, dialect: AnyDialect, cards: tuple[Any, ...]) -> _Offered:
        cards = dialect.at_best(cards)
        known = self._shared.get((dialect.name, cards))
        if known is None:
            types = tuple(Type(one.label, one.total, one.unit) for one in dialect.tally(cards))
            known = self._shared[dialect.name, cards] = _Offered(cards, types)
        return known

    def stock(self) -> Stock:
        """Return the combined offers of all nodes."""
        used = {(name, one.cards) for offered in self._offered.values() for name, one in offered.items()}
        self._shared = {key: one for key, one in self._shared.items() if key in used}
        unread = frozenset[DialectName]().union(*self._unread.values())
        found: dict[DialectName, list[tuple[NodeName, _Offered]]] = {name: [] for name in unread}
        for node, offered in self._offered.items():
            for name, one in offered.items():
                found.setdefault(name, []).append((node, one))
        ids: dict[DialectName, set[str]] = {name: set() for name in found}
        for node, by_dialect in self._ids.items():
            for name, some_ids in by_dialect.items() if not node.startswith(_KIND) else ():
                ids[name].update(some_ids)
        return Stock(
            {name: _sold(some, frozenset(ids[name]), name in unread) for name, some in found.items()},
            frozenset[str]().union(*self._listed.values()),
        )


def _sold(offered: Sequence[tuple[NodeName, _Offered]], ids: frozenset[str], unread: bool) -> Sold:
    nodes = Counter(type_ for name, one in offered if not name.startswith(_KIND) for type_ in set(one.types))
    # A type without a real node still has a name.
    described = {type_: 0 for name, one in offered if name.startswith(_KIND) for type_ in one.types}
    return Sold(
        layouts=tuple({one.cards: None for _, one in offered}),
        ids=ids,
        nodes={**described, **nodes},
        most=max((len(one.cards) for _, one in offered), default=0),
        read=not unread,
    )


def _takes(asked: _Asked) -> bool:
    """Return whether an empty node takes the request, under any policy and mode."""
    dialect, request, layouts = asked.dialect, asked.request, asked.sold.layouts
    if any(dialect.place(cards, request, Policy.BINPACK) is not None for cards in layouts):
        return True
    if len(asked.pod.containers) + len(asked.pod.init_containers) == 1:
        # The order of filling does not affect a single container.
        return False
    ways = [way for _, way in dialect.ways(request)]
    return any(
        dialect.place(cards, wished, policy) is not None
        for cards in layouts
        for wished in (request, *ways)
        for policy in CARD_POLICIES
    )


def _names_cards(pod: Pod) -> bool:
    """Return whether *pod* selects cards by their ids."""
    return any(_is_of_ids(key) for key in pod.annotations)


def _is_of_ids(key: str) -> bool:
    """Return whether *key* holds ids of cards; the keys of such lists end alike in all dialects."""
    return key == names.AVOIDED_CARDS or "uuid" in key.rpartition("/")[2]


def _unnamed(pod: Pod) -> Pod:
    return pod._replace(annotations={key: text for key, text in pod.annotations.items() if not _is_of_ids(key)})


def _is_wrong(found: object) -> bool:
    return isinstance(found, tuple) and bool(found) and isinstance(found[0], Violation)


def _unknown_type(asked: _Asked) -> Violation | None:
    """CS402: no card has the requested types; only if the dialect reads types that people write."""
    text = asked.pod.annotations.get(names.USE_GPU_TYPE, "")
    key = f"annotation {names.USE_GPU_TYPE}"
    labels = sorted({type_.label for type_ in asked.sold.nodes})
    try:
        patterns = selection.decode_types(text, key)
    except InvalidRequestError:
        return None
    if not patterns or not _is_recognised(asked, names.USE_GPU_TYPE):
        return None
    # A register prefixes every type with "NVIDIA-", so a list may do so too.
    kinds = [selection.type_words(f"NVIDIA-{label}") for label in labels]
    if any(pattern.matches(words) for pattern in patterns for words in kinds):
        return None
    wanted = sorted(selection.decode_items(text, key))
    meant = _close(wanted[0], labels)
    hint = f"did you mean {meant}? " if meant else ""
    return Violation(
        code="CS402",
        field=key,
        found=quoted(text),
        remedy=f"{hint}no card of that type is in this cluster; there are {_listed(labels)}",
    )


def _unknown_ids(asked: _Asked) -> Violation | None:
    """CS406: the cluster has fewer of the cards in the list of ids than the pod needs."""
    width = _different(asked)
    for key, text in asked.pod.annotations.items():
        if key == names.AVOIDED_CARDS or not _is_of_ids(key) or not _is_recognised_alone(asked, key):
            continue
        wished = selection.decode_items(text, key)
        unknown = sorted(wished - asked.sold.ids)
        if not unknown or len(wished) - len(unknown) >= width or _avoids(asked, key):
            continue
        return Violation(
            code="CS406",
            field=f"annotation {key}",
            found=quoted(text),
            remedy=f"no node of this cluster has {_listed(unknown)}; kubectl cards get shows the cards that there are",
        )
    return None


def _is_recognised_alone(asked: _Asked, key: str) -> bool:
    """Return whether the dialect reads the list of ids *key*."""
    alone = asked.pod._replace(annotations={**_unnamed(asked.pod).annotations, key: asked.pod.annotations[key]})
    return bool(asked.dialect.request(alone, asked.tables) != asked.request)


def _avoids(asked: _Asked, key: str) -> bool:
    """Return whether *key* lists cards to avoid, which need not exist."""
    alone = asked.pod._replace(annotations={**_unnamed(asked.pod).annotations, key: _NO_CARD})
    request = asked.dialect.request(alone, asked.tables)
    return any(asked.dialect.place(cards, request, Policy.BINPACK) is not None for cards in asked.sold.layouts)


# An id that no card has.
_NO_CARD: Final = "no-such-card"


def _is_recognised(asked: _Asked, key: str) -> bool:
    """Return whether the dialect reads *key*: without it, the request differs."""
    without = {one: text for one, text in asked.pod.annotations.items() if one != key and not _is_of_ids(one)}
    return bool(asked.dialect.request(asked.pod._replace(annotations=without), asked.tables) != asked.request)


def _different(asked: _Asked) -> int:
    """Return the minimum number of different cards; 1 if a card can hold several parts of the request."""
    dialect = asked.dialect
    several = any(len(dialect.room(cards).kinds) > len(cards) for cards in asked.sold.layouts)
    return 1 if several else dialect.bound(asked.request, Policy.BINPACK).width


def _too_many(asked: _Asked) -> Violation | None:
    """CS404: more cards of one node than any node has."""
    width, most = _different(asked), asked.sold.most
    if width <= most or _counted_in_pools(asked.sold):
        return None
    what = f"no node has {counted(width, 'cards')}; the largest has {most}"
    short = [asked.dialect.shortfalls(cards, asked.request) for cards in asked.sold.layouts]
    if any(one.per_card > 1 for some in short for one in some):
        return _too_few(asked, short)
    eases = _eases(asked, Reason.CARD_COUNT, most)
    # Some protocols count the requests of several containers together.
    together = " in all" if any(one.unit.endswith(" in all") for some in short for one in some) else ""
    return _no("CS404", what, f"ask for {most} or fewer{together}" if eases else _way_out(asked))


def _beyond(asked: _Asked) -> Violation | None:
    """CS403: positions that no node has."""
    key = f"annotation {names.WISHED_INDICES}"
    text = asked.pod.annotations.get(names.WISHED_INDICES, "")
    try:
        wished = selection.decode_indices(text, key)
    except InvalidRequestError:
        return None
    width, most = _different(asked), asked.sold.most
    there = [index for index in wished if index < most]
    if not wished or len(there) >= width or not _is_recognised(asked, names.WISHED_INDICES):
        return None
    return Violation(
        code="CS403",
        field=key,
        found=quoted(text),
        remedy=f"the node with the most cards has positions 0 to {most - 1}; name at least {width} of these",
    )


def _not_offered(resource: str) -> Violation:
    return _no("CS405", f"no node of this cluster offers {resource}", "ask the cluster's operator")


def _is_of_absent_model(asked: _Asked) -> bool:
    """Return whether every card is of another model than the resource of the pod names, whatever else it asks for."""
    bare = asked.dialect.request(asked.pod._replace(annotations={}), asked.tables)
    if bare is None or _is_wrong(bare):
        return False
    short = [asked.dialect.shortfalls(cards, bare) for cards in asked.sold.layouts]
    return all(some and all(one.reason is Reason.TYPE for one in some) for some in short)


def _too_large(asked: _Asked) -> Violation:
    """CS401: more of one card than the largest has; CS404: too few cards; CS405: any other reason."""
    short = [asked.dialect.shortfalls(cards, asked.request) for cards in asked.sold.layouts]
    return _memory(asked, short) or _too_few(asked, short) or _impossible(asked, short)


def _too_few(asked: _Asked, short: Sequence[Sequence[Shortfall]]) -> Violation | None:
    """CS404, if every node has too few cards."""
    # Nodes of other types do not count.
    some_of_type = [some for some in short if any(one.reason is not Reason.TYPE for one in some)]
    few = [one for some in some_of_type for one in some if one.reason is Reason.CARD_COUNT]
    if not few or len(few) != len(some_of_type):
        return None
    best = max(few, key=lambda one: one.free)
    unit = best.unit.removeprefix("idle ")
    what = f"no node has {counted(best.wanted, unit)} that could take it; the most is {best.free}"
    helps = best.free and _eases(asked, best.reason, best.free)
    return _no("CS404", what, f"ask for {counted(best.free, unit)} or fewer" if helps else _way_out(asked))


def _impossible(asked: _Asked, short: Sequence[Sequence[Shortfall]]) -> Violation:
    most: dict[Shortfall, Shortfall] = {}
    for one in (one for some in short for one in some):
        # Everything except the free amount and its card.
        alike = one._replace(card="", free=0)
        most[alike] = max(most.get(alike, one), one, key=lambda lack: lack.free)
    told = list(dict.fromkeys(map(_reason, most.values())))
    return _no("CS405", f"no node could take it, not even an empty one ({_listed(told)})", _way_out(asked))


def _way_out(asked: _Asked) -> str:
    """Return a change with which some empty node takes the pod: drop a preference, or request less; each is tested."""
    known = asked.dialect.names(asked.tables).preferences
    wishes = sorted(asked.pod.annotations.keys() & known)[:_WISHES_TRIED]
    for left_out in (*((one,) for one in wishes), tuple(wishes)):
        without = {key: text for key, text in _unnamed(asked.pod).annotations.items() if key not in left_out}
        request = asked.dialect.request(asked.pod._replace(annotations=without), asked.tables)
        if left_out and request is not None and not _is_wrong(request) and _takes(asked._replace(request=request)):
            word = "annotation" if len(left_out) == 1 else "annotations"
            return f"leave {word} {' and '.join(left_out)} out, or name what this cluster has"
    return "ask for less" if _takes_least(asked) else _OTHER_CARDS


def _takes_least(asked: _Asked) -> bool:
    """Return whether some node takes the pod with the smallest possible request."""
    for cards in asked.sold.layouts:
        request = asked.request
        short = asked.dialect.shortfalls(cards, request)
        unit = max((one.mib_per_unit for one in short), default=1)
        for reason, least in ((Reason.CARD_COUNT, 1), (Reason.MEMORY, unit), (Reason.CORES, 1)):
            request = asked.dialect.relaxed(cards, request, reason, least) or request
        if _takes(asked._replace(request=request, sold=replace(asked.sold, layouts=(cards,)))):
            return True
    return False


class _Short(NamedTuple):
    """A card that only lacks memory: how much a pod can get at once, how much is wanted, and its type."""

    free: int
    wanted: int
    type: Type
    mib_per_unit: int
    unit: str


def _memory(asked: _Asked, short: Sequence[Sequence[Shortfall]]) -> Violation | None:
    """CS401, if every card is refused for itself, and some only for their memory."""
    small: list[_Short] = []
    others: list[int] = []
    for cards, some in zip(asked.sold.layouts, short, strict=True):
        tallies = {one.card: one for one in asked.dialect.tally(cards)}
        refused = {one.card for one in some}
        if any(card not in refused for card in tallies):
            return None
        lacking = [(one, tallies[one.card]) for one in some if one.reason is Reason.MEMORY and one.card in tallies]
        small += [
            _Short(one.free, one.wanted, Type(t.label, t.total, t.unit), one.mib_per_unit, one.unit)
            for one, t in lacking
        ]
        # The card is large enough, but other containers of the pod take the memory.
        if any(t.total >= one.wanted for one, t in lacking):
            return None
        named = {one.card for one, _ in lacking}
        others += [t.total for card, t in tallies.items() if card not in named]
    if not small:
        return None
    best = max(small, key=lambda one: (one.free, one.type.total, one.type.label))
    label, total, unit = best.type
    count = asked.sold.nodes.get(best.type, 0)
    where = f"on {counted(count, 'nodes')}" if count else "on nodes of a kind that is described in settings"
    most = f"{total} {unit}" if best.free == total else f"{best.free} of {total} {unit}"
    which = "no card that it accepts has" if max(others, default=0) >= best.wanted else "no card has"
    what = f"{which} {best.wanted} {unit}; the largest is {label} with {most} {where}"
    # A fraction of a unit cannot be requested.
    least = best.free - best.free % best.mib_per_unit
    helps = least and _eases(asked, Reason.MEMORY, least)
    # Some protocols count the requests of several containers together.
    amount = f"{least} {best.unit}"
    if best.mib_per_unit > 1:
        amount = f"{counted(least // best.mib_per_unit, 'units')} ({least} {unit})"
    return _no("CS401", what, f"ask for {amount} or less" if helps else _way_out(asked))


def _eases(asked: _Asked, reason: Reason, amount: int) -> bool:
    """Return whether some node takes the pod if it requests at most *amount*; only then is that proposed."""
    for cards in asked.sold.layouts:
        less = asked.dialect.relaxed(cards, asked.request, reason, amount)
        if less is not None and _takes(asked._replace(request=less, sold=replace(asked.sold, layouts=(cards,)))):
            return True
    return False


def _counted_in_pools(sold: Sold) -> bool:
    return any(type_.unit == "GPUs" for type_ in sold.nodes)


def _reason(one: Shortfall) -> str:
    if one.detail and one.reason in _TOLD_BY_DETAIL:
        return f"{one.reason.value}: {one.detail}"
    beside = " beside its other containers" if one.alone else ""
    return (
        f"{one.reason.value}: {one.free} of {counted(one.wanted, one.unit)}{beside}" if one.wanted else one.reason.value
    )


# Their figures, if they have any, do not say what is wrong.
_TOLD_BY_DETAIL: Final = (Reason.TEMPLATE, Reason.RULE, Reason.LINKS, Reason.CONTAINERS, Reason.MODE)


def _no(code: str, what: str, remedy: str) -> Violation:
    return Violation(code=code, field="cards", found="", remedy=f"{what}; {remedy}")


def _close(asked: str, labels: Sequence[str]) -> str:
    """Return the label that *asked* probably means, or ""."""
    text = asked[:64].upper()
    # "A100-80" has words of "A100-SXM4-80GB", but a comparison of characters finds too many differences.
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


# Words that vendors write before every name.
_EMPTY_WORDS: Final = frozenset({"NVIDIA", "TESLA", "GEFORCE"})


def _listed(labels: Sequence[str]) -> str:
    return listed(labels, _MAX_SHOWN)
