"""The complete description of a dialect: the object behind the port, and other data about its protocol."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeAlias

from core.model import Node, Pod
from core.port.cards import Series
from core.port.dialect import AssignmentT, CardT, Dialect, RequestT
from core.port.handoff import NodeLock
from core.port.refusals import Complaint
from core.settings import DialectName, Tables
from core.wire.vocabulary import DeviceSection, SchedulerArguments


class Modes(NamedTuple):
    """The annotation by which a pod selects a sharing mode, and its values."""

    key: str
    words: tuple[str, ...]


class CardLists(NamedTuple):
    """Two annotations with comma-separated ids or types of cards: those that a pod wants, and those that it avoids."""

    use: str
    avoid: str


class ConfigMapPlace(NamedTuple):
    """A place of ConfigMaps with documents of nodes: a name for people, the namespace, the label selector."""

    title: str
    namespace: str
    selector: str


class NodeDocuments(NamedTuple):
    """Documents about nodes in ConfigMaps besides their annotations: their places and their decoder.

    read: yields (node, document, text) for every node in the ConfigMap with this name and these texts, nothing for
    other ConfigMaps; raises InvalidRequestError if it is unreadable.
    """

    places: tuple[ConfigMapPlace, ...]
    read: Callable[[str, Mapping[str, str]], Iterator[tuple[str, str, str]]]


# (annotations before a write of the plugin, after it) -> what to add to that write; None = remove. The Binding shows
# the plugin the first container, and `core.names.SEGMENT_QUEUE` keeps the rest. Admission asks at every change of a pod
# by a trusted account while the queue is not empty. {} unless the write is the mark that a container was served.
Rotate: TypeAlias = Callable[[Mapping[str, str], Mapping[str, str]], Mapping[str, str | None]]


class Heartbeat(NamedTuple):
    """A node annotation that some versions of a device plugin rewrite regularly; such a one may confuse any two pods.

    retirement: returns the annotations with which it skips a pod that is served or dead; {} if it already does.
    """

    key: str
    retirement: Callable[[Pod], Mapping[str, str]]


class Register(NamedTuple):
    """A node annotation with cards that a device plugin may write in turns with other figures (hami HN-31).

    figures: returns the figures of each card in a text by its id, larger is better; {} if it is unreadable.
    held_to: returns a readable text limited to the cards and amounts of such figures.
    """

    key: str
    figures: Callable[[str], Mapping[str, tuple[int, ...]]]
    held_to: Callable[[str, Mapping[str, tuple[int, ...]]], str]


class Scaling(NamedTuple):
    """The unit of a node in which assignments have figures.

    It is kept beside each holding, and written with the Binding. After a change of the unit, a card accepts nothing new
    until every holding of it in the old unit is gone.

    of_node: returns the scale of a node (None: gone) with these cards; empty if it currently offers none.
    rescaled: of an assignment counted by one scale and the scale now, returns the scale to keep; the assignment, with
    the whole of those cards on which it cannot be counted now; and why it cannot, or "". told: returns the annotations
    of the Binding that store the scale of an assignment.
    read: returns the scale stored on a bound pod, or the scale now if both mean the same for its cards; None if absent.
    """

    of_node: Callable[[Node | None, Sequence[Any], Tables], Any]
    rescaled: Callable[[Any, Any, Any], tuple[Any, Any, str]]
    told: Callable[[Any, Any], Mapping[str, str]]
    read: Callable[[Pod, Any, Any], Any]


class Pausing(NamedTuple):
    """A node label that says that a machine is changing the cards, and with which values; who: does so, for people."""

    label: str
    values: frozenset[str]
    who: str

    def why(self, labels: Mapping[str, str]) -> str:
        """Return why a node with *labels* takes no new pods for now although it offers cards, "" if it does."""
        value = labels.get(self.label, "")
        return f"{self.who} of the node: label {self.label}={value}" if value in self.values else ""


# It stops NVIDIA's own device plugin, and other programs that it knows; those of Volcano and HAMi go on. Then it resets
# the GPUs and cuts them. A pod that starts on one of them makes the change fail, or loses the GPU; the cards that were
# registered before may be no more. It may leave the label at "pending" if a pod that it stops does not end in 5
# minutes. Source: NVIDIA/mig-parted v0.15.0, pkg/mig/reconfigure/reconfigure.go (`Run`).
MIG_MANAGER: Final = Pausing(
    "nvidia.com/mig.config.state", frozenset({"pending", "rebooting"}), "NVIDIA's MIG manager is changing the GPUs"
)


class Metrics(NamedTuple):
    """Established series of metrics: of cards, and of the cards of pods.

    card: returns the id of a card, and its figures in the order of of_cards. pod: yields what an assignment uses by
    card id, in the order of of_pods; several entries of one card add up.
    """

    of_cards: tuple[Series, ...] = ()
    of_pods: tuple[Series, ...] = ()
    card: Callable[[Any], tuple[str, tuple[int, ...]]] = lambda card: ("", ())
    pod: Callable[[Any], Iterable[tuple[str, tuple[int, ...]]]] = lambda assignment: ()


_NO_METRICS: Final = Metrics()


@dataclass(frozen=True, slots=True, kw_only=True)
class DialectSpec(Generic[CardT, RequestT, AssignmentT]):
    """The complete description of a dialect: its package exports one, and the catalog lists them.

    port: its implementation. cards: their maker; dialects of one maker sell the same cards of a node, each with its own
    accounting. switch: the argument of Volcano's deviceshare plugin that enables it, "" if there is none; old_switch:
    the predicates plugin had it up to v1.8.2. plugin_accounts: user names of its device plugins, a trailing ``*`` marks
    a prefix.
    time_lock: the node annotation by which two schedulers avoid each other, "" if there is none; node_lock: the lock of
    the node that its plugin reads, None if it reads none.
    modes: how its pods select a sharing mode, None if there is only one.
    card_lists, type_lists: the annotations with lists of card ids, and of types other than those of NVIDIA's cards.
    variables: those by which its plugin limits a container to its share, each also with ``_`` and more behind it;
    `core.watched` has them too. machine_keys: annotations that machines write besides its assignment. marks:
    annotations in which its plugin marks its progress on a pod, so no `held` reads them. labels: those that are read
    only from its pods. key_prefixes: prefixes of its keys and resources.
    documents: documents about its nodes in ConfigMaps, None if there are none.
    instead_of: the dialect that sells by the same resource on nodes that this one does not serve, None if there is
    none.
    ignored: label and value of pods that admission does not complete, "" if there is none.
    heartbeat: what some versions of its plugin write regularly, register: what its plugin may write in turns, None if
    there is no such thing. deserted: returns the complaint that a node has a register but no pod of the plugin, which
    other nodes have; None if another plugin can never serve its cards. pausing: the sign that a node takes no new pods
    for now although it offers cards; None if there is no such sign. rotate: returns what to add to the
    write of a plugin that handles one container at a time (see `Rotate`), None if it handles them together. report:
    returns the annotations that its plugin adds to a bound pod when it serves it, {} if it has done so, which decide
    what it places next; None if it adds none. scaling: the unit of a node in its assignments, None if there is none.
    metrics: the series that existing dashboards have.
    sections, arguments: what it reads of device-config.yaml and of volcano-scheduler.conf.
    """

    port: "Dialect[CardT, RequestT, AssignmentT]"
    cards: str
    switch: str = ""
    old_switch: bool = False
    plugin_accounts: tuple[str, ...] = ()
    time_lock: str = ""
    node_lock: NodeLock | None = None
    modes: Modes | None = None
    card_lists: tuple[CardLists, ...] = ()
    type_lists: tuple[CardLists, ...] = ()
    variables: frozenset[str] = frozenset()
    machine_keys: frozenset[str] = frozenset()
    marks: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()
    key_prefixes: tuple[str, ...] = ()
    documents: "NodeDocuments | None" = None
    instead_of: DialectName | None = None
    ignored: tuple[str, str] = ("", "")
    heartbeat: Heartbeat | None = None
    register: Register | None = None
    deserted: Callable[[Node], Complaint] | None = None
    pausing: Pausing | None = None
    rotate: Rotate | None = None
    report: Callable[[Pod], Mapping[str, str]] | None = None
    scaling: Scaling | None = None
    metrics: Metrics = _NO_METRICS
    sections: tuple[DeviceSection, ...] = ()
    arguments: tuple[SchedulerArguments, ...] = ()

    @property
    def name(self) -> DialectName:
        """Its name."""
        return self.port.name


AnySpec: TypeAlias = DialectSpec[Any, Any, Any]
