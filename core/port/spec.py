"""The complete description of a dialect: the object behind the port, and other data about its protocol."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeAlias

from core.port.dialect import Dialect
from core.port.typevars import AssignmentT, CardT, RequestT
from core.settings import DialectName, Section


class Modes(NamedTuple):
    """The annotation by which a pod selects a sharing mode, and its values."""

    key: str
    words: tuple[str, ...]


class CardLists(NamedTuple):
    """Two annotations with comma-separated ids of cards: those that a pod wants, and those that it avoids."""

    use: str
    avoid: str


class Place(NamedTuple):
    """A place of ConfigMaps with documents of nodes: a name for people, the namespace, the label selector."""

    title: str
    namespace: str
    selector: str


class NodeDocuments(NamedTuple):
    """Documents about nodes in ConfigMaps besides their annotations: their places and their decoder.

    read: yields (node, document, text) for every node in the ConfigMap with this name and these texts, nothing for
    other ConfigMaps; raises InvalidRequestError if it is unreadable.
    """

    places: tuple[Place, ...]
    read: Callable[[str, Mapping[str, str]], Iterator[tuple[str, str, str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DialectSpec(Generic[CardT, RequestT, AssignmentT]):
    """The complete description of a dialect: its package exports one, and the catalog lists them.

    port: its implementation. cards: their maker; dialects of one maker sell the same cards of a node, each with its own
    accounting. switch: the argument of Volcano's deviceshare plugin that enables it, "" if there is none; old_switch:
    the predicates plugin had it up to v1.8.2. plugin_accounts: user names of its device plugins, a trailing ``*`` marks
    a prefix.
    time_lock: the node annotation by which two schedulers avoid each other, "" if there is none; a dialect whose plugin
    reads the lock implements `Locking`. modes: how its pods select a sharing mode, None if there is only one.
    card_lists: the annotations with lists of card ids. machine_keys: annotations that machines write besides its
    assignment. key_prefixes:
    prefixes of its keys and resources. documents: documents about its nodes in ConfigMaps, None if there are none.
    instead_of: the dialect that sells by the same resource on nodes that this one does not serve, None if there is
    none.
    ignored: label and value of pods that admission does not complete, "" if there is none.
    section: its section of device-config.yaml, if it is of one of HAMi's other vendors.
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
    section: Section | None = None

    @property
    def name(self) -> DialectName:
        """Its name."""
        return self.port.name


AnySpec: TypeAlias = DialectSpec[Any, Any, Any]
