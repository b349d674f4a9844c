"""HAMi's protocol for NVIDIA cards behind the port; each question is answered in a file of its own."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from core import hami_lock
from core.dialects.hami import another, handoff, keys, requests, series, usage, warnings
from core.dialects.hami import cards as _cards
from core.dialects.hami.rules import HamiRules
from core.dialects.hami.table import SECTION, HamiTable
from core.model import AnyPod, Node, Pod
from core.port.cards import Held, Offer
from core.port.handoff import InFlight, Stamp
from core.port.names import Names
from core.port.refusals import Complaint, Violation
from core.port.spec import CardLists, DialectSpec, Metrics, Register
from core.settings import DialectName
from core.sharing.account import Assignment
from core.sharing.card import Card
from core.sharing.dialect import SharedCards
from core.sharing.handoff import ByNodeLock, NodeLock
from core.sharing.request import Request
from core.sharing.resources import Resources
from core.tables import Tables
from core.warnings import AdmissionWarning
from core.wire import hami_register as register


class Hami(ByNodeLock, SharedCards):
    """`Dialect` of core.port for NVIDIA cards handed over by HAMi's device plugin."""

    name: DialectName = _cards.NAME
    rules = HamiRules()

    def declared(self, tables: Tables) -> tuple[Resources, ...]:
        """Return the names of HAMi's configuration; none if another protocol sells shares by the name of the count."""
        table = tables.of(HamiTable)
        if tables.is_claimed(table.count_resource):
            return ()
        return (requests.resources_of(table),)

    def names(self, tables: Tables) -> Names:
        """See `Reads`; without HAMi's configuration the count is NVIDIA's too."""
        found, table = super().names(tables), tables.of(HamiTable)
        return replace(
            found,
            uncounted=found.uncounted | {table.priority_resource} if found.uncounted else frozenset(),
            assignment_keys=keys.ASSIGNMENT_KEYS,
            preferences=warnings.PREFERENCES,
            fills=dict.fromkeys(found.memories, table.default_count),
            memories=found.memories if table.installed else {},
            runtime_classes=frozenset([table.runtime_class] if table.runtime_class else ()),
        )

    def offer(self, node: Node, tables: Tables) -> Offer[Card] | Complaint | None:
        """The cards that *node* registers; None without a register."""
        return _cards.offer(node, tables)

    def request(self, pod: AnyPod, tables: Tables) -> Request | tuple[Violation, ...] | None:
        """What *pod* asks; None if nothing, or if NVIDIA's own plugin is meant; violations if it may not ask so."""
        return requests.request(pod, tables)

    def held(self, pod: Pod, cards: Sequence[Card], tables: Tables) -> Held[Assignment] | None:
        """What bound *pod* holds by its annotations, whoever bound it."""
        return usage.held(pod, cards, tables)

    def annotations(self, assignment: Assignment, stamp: Stamp, tables: Tables) -> Mapping[str, str]:
        """What the Binding must carry."""
        del tables
        return handoff.annotations(assignment, stamp)

    def in_flight(self, pod: Pod, tables: Tables) -> InFlight | None:
        """*pod* as the plugin sees it; None if it never serves it."""
        del tables
        return hami_lock.in_flight(pod) if keys.TO_ALLOCATE in pod.annotations else None

    def warnings(self, pod: AnyPod, request: Request, tables: Tables) -> Iterator[AdmissionWarning]:
        """Figures and words of *pod* that have no effect."""
        del request
        return warnings.of(pod, tables.of(HamiTable))

    def completed(self, pod: Pod, request: Request, tables: Tables) -> tuple[Pod, tuple[AdmissionWarning, ...]]:
        """*pod* with all cores for whoever gets all memory, and HAMi's runtime class."""
        del request
        return warnings.completed(pod, tables.of(HamiTable))


def _deserted(node: Node) -> Complaint:
    """Return the complaint that NVIDIA's plugin may answer on *node* (hami 7.2)."""
    return Complaint(dialect=_cards.NAME, field=f"annotation {keys.REGISTER}", problem=another.deserted(node))


DIALECT: Final = DialectSpec(
    port=Hami(),
    cards="nvidia",
    plugin_accounts=("system:serviceaccount:kube-system:hami-device-plugin",),
    card_lists=(CardLists(keys.USE_UUID, keys.NO_USE_UUID),),
    key_prefixes=("hami.io/", "nvidia.com/"),
    instead_of=DialectName("whole_gpu"),
    ignored=hami_lock.IGNORED,
    sections=(SECTION,),
    marks=keys.MARKS,
    node_lock=NodeLock(),
    register=Register(keys.REGISTER, register.figures, register.held_to),
    deserted=_deserted,
    metrics=Metrics(series.OF_CARDS, series.OF_PODS, series.of_card, series.of_pod),
)
