"""HAMi's protocol for NVIDIA cards behind the port; each question is answered in a file of its own."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from core import hami_lock
from core.dialects.hami import another, handoff, keys, requests, series, usage, warnings
from core.dialects.hami import cards as _cards
from core.dialects.hami.rules import HamiRules
from core.model import AnyPod, Node, Pod
from core.port.cards import Held, Offer, Series
from core.port.handoff import InFlight, Stamp
from core.port.optional import (
    Exposing,
    Furnishing,
    Lasting,
    Marking,
    Reading,
    Registering,
)
from core.port.refusals import Complaint, Violation
from core.port.spec import CardLists, DialectSpec
from core.settings import DialectName
from core.sharing.account import Assignment
from core.sharing.card import Card
from core.sharing.dialect import SharedCards
from core.sharing.handoff import ByNodeLock
from core.sharing.request import Request
from core.sharing.resources import Resources
from core.tables import Tables
from core.warnings import AdmissionWarning
from core.wire import hami_register as register


class Hami(
    SharedCards,
    ByNodeLock,
    Marking,
    Registering,
    Lasting,
    Furnishing[Request],
    Reading[Request],
    Exposing[Card, Assignment],
):
    """`Dialect` and `Locking` of core.port for NVIDIA cards handed over by HAMi's device plugin."""

    name: DialectName = _cards.NAME
    rules = HamiRules()

    def declared(self, tables: Tables) -> tuple[Resources, ...]:
        """Return the names of HAMi's configuration; none if another protocol sells shares by the name of the count."""
        table = tables.hami
        if tables.sells_shares_as(table.count_resource):
            return ()
        return (requests.resources_of(table),)

    def uncounted(self, tables: Tables) -> frozenset[str]:
        """Return memory, cores, percentage and priority."""
        found = super().uncounted(tables)
        return found | {tables.hami.priority_resource} if found else found

    def memories(self, tables: Tables) -> dict[str, str]:
        """See `Counting`; without HAMi's configuration the count is NVIDIA's too."""
        return super().memories(tables) if tables.hami.installed else {}

    def register(self, node: Node) -> str:
        """The cards that the plugin wrote on *node*."""
        return node.annotations.get(keys.REGISTER, "")

    def figures(self, text: str) -> Mapping[str, tuple[int, ...]]:
        """Slots, MiB and cores of each card."""
        return register.figures(text)

    def held_to(self, node: Node, figures: Mapping[str, tuple[int, ...]]) -> Node:
        """*node* with a register that says no more than *figures*."""
        text = register.held_to(node.annotations[keys.REGISTER], figures)
        return replace(node, annotations={**node.annotations, keys.REGISTER: text})

    def deserted(self, node: Node) -> Complaint:
        """That NVIDIA's plugin may answer there (hami 7.2)."""
        field, problem = f"annotation {keys.REGISTER}", another.deserted(node)
        return Complaint(dialect=self.name, field=field, problem=problem)

    def assignment_keys(self, tables: Tables) -> frozenset[str]:
        """Pod annotations that only schedulers and the plugin write."""
        del tables
        return keys.ASSIGNMENT_KEYS

    def marks(self) -> frozenset[str]:
        """What tells how far the plugin is: `held` reads cards and instances alone."""
        return keys.MARKS

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

    def card_series(self) -> tuple[Series, ...]:
        """Those of HAMi's scheduler."""
        return series.OF_CARDS

    def pod_series(self) -> tuple[Series, ...]:
        """Those of HAMi's scheduler, containers of one pod added up."""
        return series.OF_PODS

    def card_figures(self, card: Card) -> tuple[str, tuple[int, ...]]:
        """The UUID of *card*, and what is in use of it."""
        return series.of_card(card)

    def pod_figures(self, assignment: Assignment) -> Iterator[tuple[str, tuple[int, ...]]]:
        """The UUID of every card that *assignment* names, and what is in use of it."""
        return series.of_pod(assignment)

    def preferences(self, tables: Tables) -> frozenset[str]:
        """Which cards, in which mode, and in which order."""
        del tables
        return warnings.PREFERENCES

    def recognised(self, request: Request, tables: Tables) -> frozenset[str]:
        """All of its preferences."""
        del request, tables
        return warnings.PREFERENCES

    def warnings(self, pod: AnyPod, request: Request, tables: Tables) -> Iterator[AdmissionWarning]:
        """Figures and words of *pod* that have no effect."""
        del request
        return warnings.of(pod, tables.hami)

    def labels(self) -> frozenset[str]:
        """None."""
        return frozenset()

    def completed(self, pod: Pod, request: Request, tables: Tables) -> tuple[Pod, tuple[AdmissionWarning, ...]]:
        """*pod* with all cores for whoever gets all memory, and HAMi's runtime class."""
        del request
        return warnings.completed(pod, tables.hami)

    def runtime_classes(self, tables: Tables) -> frozenset[str]:
        """HAMi's."""
        return frozenset([tables.hami.runtime_class] if tables.hami.runtime_class else ())


DIALECT: Final = DialectSpec(
    port=Hami(),
    cards="nvidia",
    plugin_accounts=("system:serviceaccount:kube-system:hami-device-plugin",),
    card_lists=(CardLists(keys.USE_UUID, keys.NO_USE_UUID),),
    key_prefixes=("hami.io/", "nvidia.com/"),
    instead_of=DialectName("whole_gpu"),
    ignored=hami_lock.IGNORED,
)
