"""All of one dialect: the object behind the port, and as data what else is known of its protocol."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeAlias

from core.port.dialect import Dialect
from core.port.typevars import AssignmentT, CardT, RequestT
from core.settings import DialectName


class Modes(NamedTuple):
    """The annotation by which a pod says how its cards are shared, and its words."""

    key: str
    words: tuple[str, ...]


class CardLists(NamedTuple):
    """Two annotations with ids of cards, joined by commas: those that a pod wants, and those that it avoids."""

    use: str
    avoid: str


class Place(NamedTuple):
    """Where ConfigMaps with documents of nodes are: a name for people, the namespace, the label that tells them."""

    title: str
    namespace: str
    selector: str


class NodeDocuments(NamedTuple):
    """What ConfigMaps say of nodes beside their annotations: where they are, and what one says.

    read: (node, document, text) for everything that the ConfigMap of this name and these texts says of nodes, nothing
    for any other; raises InvalidRequestError where it cannot be read.
    """

    places: tuple[Place, ...]
    read: Callable[[str, Mapping[str, str]], Iterator[tuple[str, str, str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DialectSpec(Generic[CardT, RequestT, AssignmentT]):
    """All of one dialect: its folder exports one, and the catalog lists them.

    port: what it answers. cards: whose they are; dialects of one maker sell the same cards of a node, each by its own
    count. switch: the argument of Volcano's deviceshare plugin that switches it on, "" where it has none; old_switch:
    the predicates plugin had it up to v1.8.2. plugin_accounts: user names of its device plugins, a trailing ``*`` is a
    prefix. time_lock: the annotation of a node by which two schedulers keep apart, "" where there is none; a plugin
    that reads its lock answers for itself (`Locking`). modes: by which words its pods choose how a card is shared, None
    where it is shared in one way only. card_lists: the annotations in which users list ids of cards. machine_keys:
    annotations that other machines write beside its assignment. key_prefixes: how its keys and resources begin.
    documents: what ConfigMaps say of its nodes, None where none does. instead_of: the dialect that sells by the same
    resource on nodes that this one does not serve, None where there is none. ignored: the label, and its value, of pods
    that admission does not complete, "" where there is none.
    """

    port: "Dialect[CardT, RequestT, AssignmentT]"
    cards: str
    switch: str = ""
    old_switch: bool = False
    plugin_accounts: tuple[str, ...] = ()
    time_lock: str = ""
    modes: Modes | None = None
    card_lists: tuple[CardLists, ...] = ()
    machine_keys: frozenset[str] = frozenset()
    key_prefixes: tuple[str, ...] = ()
    documents: "NodeDocuments | None" = None
    instead_of: DialectName | None = None
    ignored: tuple[str, str] = ("", "")

    @property
    def name(self) -> DialectName:
        """Its name."""
        return self.port.name


AnySpec: TypeAlias = DialectSpec[Any, Any, Any]
