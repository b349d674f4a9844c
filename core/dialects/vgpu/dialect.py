"""The vGPU protocol behind the port; each question is answered in a file of its own."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from core import names
from core.dialects.vgpu import advice, handoff, keys, requests, scale, series, usage, warnings
from core.dialects.vgpu import cards as _cards
from core.dialects.vgpu.rules import VgpuRules
from core.dialects.vgpu.table import ARGUMENTS, SECTION, VgpuTable
from core.model import AnyPod, Node, Pod
from core.port.cards import Held, Offer
from core.port.dialect import CardStock
from core.port.handoff import InFlight, Stamp
from core.port.names import Names
from core.port.refusals import Complaint, Violation
from core.port.spec import CardLists, DialectSpec, Heartbeat, Metrics, Modes, Scaling
from core.settings import DialectName
from core.sharing.account import Assignment
from core.sharing.card import Card
from core.sharing.dialect import SharedCards
from core.sharing.request import Request
from core.sharing.resources import Resources
from core.tables import Tables
from core.warnings import AdmissionWarning


class Vgpu(SharedCards):
    """`Dialect` of core.port for shares of NVIDIA cards handed over by the Volcano vGPU device plugin."""

    name: DialectName = DialectName("vgpu")
    rules = VgpuRules()

    def declared(self, tables: Tables) -> tuple[Resources, ...]:
        """Return the names of the configuration."""
        table = tables.of(VgpuTable)
        factor = table.memory_factor
        return (
            Resources(
                table.number_resource, table.memory_resource, table.cores_resource, table.percentage_resource, factor
            ),
        )

    def names(self, tables: Tables) -> Names:
        """See `Reads`; preferences are which cards, in which mode, and how far apart."""
        found = super().names(tables)
        return replace(found, assignment_keys=keys.ASSIGNMENT_KEYS, preferences=keys.PREFERENCES)

    def metered(self, assignment: Assignment, tables: Tables) -> Mapping[str, int]:
        """Return memory and cores as written: Volcano counts what pods ask, not the slices that they get."""
        factor = tables.of(VgpuTable).memory_factor
        memory_mib = sum([one.memory for one in assignment.entries]) * factor
        return self.metered_as(memory_mib, sum([one.cores for one in assignment.entries]), tables)

    def offer(self, node: Node, tables: Tables) -> Offer[Card] | Complaint | None:
        """The cards that *node* registers; None without a register, a complaint if it cannot be used."""
        return _cards.offer(node, tables)

    def warnings(self, pod: AnyPod, request: Request, tables: Tables) -> Iterator[AdmissionWarning]:
        """Figures and words of *pod* that have no effect."""
        return warnings.of(pod, request, tables.of(VgpuTable))

    def request(self, pod: AnyPod, tables: Tables) -> Request | tuple[Violation, ...] | None:
        """What *pod* asks; None if nothing; violations if it may not be asked so."""
        return requests.request(pod, tables)

    def held(self, pod: Pod, cards: Sequence[Card], tables: Tables) -> Held[Assignment] | None:
        """What bound *pod* holds by its annotations, whoever bound it."""
        return usage.held(pod, cards, tables)

    def annotations(self, assignment: Assignment, stamp: Stamp, tables: Tables) -> Mapping[str, str]:
        """What the Binding must carry."""
        del tables
        return handoff.annotations(assignment, stamp)

    def next_stamp(self, pods: Sequence[Pod], now_s: int) -> int:
        """The time that is above that of every pod of the node that is still to be served."""
        return handoff.next_stamp(pods, now_s)

    def confusable(self, request: Request) -> frozenset[Hashable]:
        """What the plugin could mistake a pod with *request* by: the number of its devices."""
        return handoff.confusable(request)

    def in_flight(self, pod: Pod, tables: Tables) -> InFlight | None:
        """*pod* as the plugin sees it; None if it never serves it."""
        del tables
        return handoff.in_flight(pod)

    def advice(self, request: Request, tables: Tables, stock: CardStock[Request] | None) -> Iterator[AdmissionWarning]:
        """That MIG gives whole slices."""
        return advice.slices(request, tables.of(VgpuTable), stock)

    def ways(self, request: Request) -> tuple[tuple[str, Request], ...]:
        """The modes, for a request that names none."""
        return () if request.modes else tuple((mode, request._replace(modes=(mode,))) for mode in keys.MODES)


DIALECT: Final = DialectSpec(
    port=Vgpu(),
    cards="nvidia",
    switch="VGPUEnable",
    old_switch=True,
    plugin_accounts=("system:serviceaccount:kube-system:volcano-device-plugin",),
    # Source: nvidia 2.7.
    time_lock="hamivgpu",
    modes=Modes(keys.MODE, keys.MODES),
    card_lists=(CardLists(keys.USE_UUID, keys.NO_USE_UUID),),
    key_prefixes=("volcano.sh/", "nvidia.com/"),
    marks=keys.MARKS | {names.SEGMENT_QUEUE},
    # Plugins up to v1.12.0 rewrite it every 30 s. Up to v1.11.0 they go by time alone; v1.12.0 does not.
    heartbeat=Heartbeat(keys.HANDSHAKE, handoff.retirement),
    rotate=handoff.rotate,
    scaling=Scaling(scale.of_node, scale.rescaled, scale.told, scale.read),
    metrics=Metrics(series.OF_CARDS, series.OF_PODS, series.of_card, series.of_pod),
    sections=(SECTION,),
    arguments=(ARGUMENTS,),
)
