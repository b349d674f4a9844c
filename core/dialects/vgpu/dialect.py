"""The vGPU protocol behind the port; each question is answered in a file of its own."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from core import names
from core.dialects.vgpu import advice, handoff, keys, requests, series, usage, warnings
from core.dialects.vgpu import cards as _cards
from core.dialects.vgpu import scale as _scale
from core.dialects.vgpu.rules import VgpuRules
from core.dialects.vgpu.scale import Scale
from core.model import AnyPod, Node, Pod
from core.port.cards import Held, Offer, Series
from core.port.handoff import InFlight, Stamp
from core.port.optional import (
    Advising,
    Beating,
    CardStock,
    Choosing,
    Exposing,
    Marking,
    Reading,
    Rotating,
    Scaled,
)
from core.port.refusals import Complaint, Violation
from core.port.spec import CardLists, DialectSpec, Modes
from core.settings import DialectName
from core.sharing.account import Assignment
from core.sharing.card import Card
from core.sharing.dialect import SharedCards
from core.sharing.request import Request
from core.sharing.resources import Resources
from core.tables import Tables
from core.warnings import AdmissionWarning


class Vgpu(
    SharedCards,
    Rotating,
    Beating,
    Marking,
    Scaled[Card, Assignment, Scale],
    Choosing[Card, Request, Assignment],
    Reading[Request],
    Advising[Request],
    Exposing[Card, Assignment],
):
    """`Dialect` of core.port for shares of NVIDIA cards handed over by the Volcano vGPU device plugin."""

    name: DialectName = DialectName("vgpu")
    rules = VgpuRules()

    def declared(self, tables: Tables) -> tuple[Resources, ...]:
        """Return the names of the configuration."""
        table = tables.vgpu
        factor = table.memory_factor
        return (
            Resources(
                table.number_resource, table.memory_resource, table.cores_resource, table.percentage_resource, factor
            ),
        )

    def metered(self, assignment: Assignment, tables: Tables) -> Mapping[str, int]:
        """Return memory and cores as written: Volcano counts what pods ask, not the slices that they get."""
        factor = tables.vgpu.memory_factor
        memory_mib = sum([one.memory for one in assignment.entries]) * factor
        return self.metered_as(memory_mib, sum([one.cores for one in assignment.entries]), tables)

    def assignment_keys(self, tables: Tables) -> frozenset[str]:
        """Pod annotations that only schedulers and the plugin write."""
        del tables
        return keys.ASSIGNMENT_KEYS

    def marks(self) -> frozenset[str]:
        """What tells how far the plugin is: `held` reads the cards alone."""
        return keys.MARKS | {names.SEGMENT_QUEUE}

    def offer(self, node: Node, tables: Tables) -> Offer[Card] | Complaint | None:
        """The cards that *node* registers; None without a register, a complaint if it cannot be used."""
        return _cards.offer(node, tables)

    def preferences(self, tables: Tables) -> frozenset[str]:
        """Which cards, in which mode, and how far apart."""
        del tables
        return keys.WISHES | names.TYPE_WISHES | names.PLACE_WISHES

    def recognised(self, request: Request, tables: Tables) -> frozenset[str]:
        """All of its preferences."""
        del request
        return self.preferences(tables)

    def warnings(self, pod: AnyPod, request: Request, tables: Tables) -> Iterator[AdmissionWarning]:
        """Figures and words of *pod* that have no effect."""
        return warnings.of(pod, request, tables.vgpu)

    def request(self, pod: AnyPod, tables: Tables) -> Request | tuple[Violation, ...] | None:
        """What *pod* asks; None if nothing; violations if it may not be asked so."""
        return requests.request(pod, tables)

    def held(self, pod: Pod, cards: Sequence[Card], tables: Tables) -> Held[Assignment] | None:
        """What bound *pod* holds by its annotations, whoever bound it."""
        return usage.held(pod, cards, tables)

    def scale(self, node: Node | None, cards: Sequence[Card], tables: Tables) -> Scale:
        """What amounts of memory mean on *node*."""
        return _scale.of_node(node, cards, tables)

    def rescaled(self, assignment: Assignment, since: Scale, now: Scale) -> tuple[Scale, str]:
        """(the scale to keep beside *assignment*, counted by *since*; why it cannot be counted by *now*)."""
        return _scale.rescaled(assignment, since, now)

    def scale_told(self, assignment: Assignment, scale: Scale) -> Mapping[str, str]:
        """What the Binding carries of *scale*."""
        return _scale.told(assignment, scale)

    def scale_read(self, pod: Pod, assignment: Assignment, now: Scale) -> Scale | None:
        """The scale that bound *pod* tells of, *now* if it says the same of the pod's cards."""
        return _scale.read(pod, assignment, now)

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

    def rotate(self, old: Mapping[str, str], new: Mapping[str, str]) -> Mapping[str, str | None]:
        """What the plugin's write from *old* to *new* must carry besides: the next container's segment."""
        return handoff.rotate(old, new)

    def in_flight(self, pod: Pod, tables: Tables) -> InFlight | None:
        """*pod* as the plugin sees it; None if it never serves it."""
        del tables
        return handoff.in_flight(pod)

    def beat(self, node: Node) -> str:
        """The handshake, which plugins up to v1.12.0 rewrite every 30 s."""
        return node.annotations.get(keys.HANDSHAKE, "")

    def without_beat(self, node: Node) -> Node:
        """*node* without the handshake of a plugin that main has replaced."""
        left = {key: value for key, value in node.annotations.items() if key != keys.HANDSHAKE}
        return replace(node, annotations=left)

    def is_blind(self, node: Node) -> bool:
        """Up to v1.11.0 it goes by time alone; v1.12.0 does not, and writes the same to its node."""
        return keys.HANDSHAKE in node.annotations

    def retirement(self, pod: Pod) -> Mapping[str, str]:
        """The time that the plugin writes when it is done: the smallest is served, whatever else the pod says."""
        return handoff.retirement(pod)

    def advice(self, request: Request, tables: Tables, stock: CardStock[Request] | None) -> Iterator[AdmissionWarning]:
        """That MIG gives whole slices."""
        return advice.slices(request, tables.vgpu, stock)

    def card_series(self) -> tuple[Series, ...]:
        """Those of Volcano's scheduler."""
        return series.OF_CARDS

    def pod_series(self) -> tuple[Series, ...]:
        """Those of Volcano's scheduler."""
        return series.OF_PODS

    def card_figures(self, card: Card) -> tuple[str, tuple[int, ...]]:
        """The UUID of *card*, and what is in use of it."""
        return series.of_card(card)

    def pod_figures(self, assignment: Assignment) -> Iterator[tuple[str, tuple[int, ...]]]:
        """What each entry takes of its card."""
        return series.of_pod(assignment)

    def ways(self, request: Request) -> tuple[tuple[str, Request], ...]:
        """The modes, for a request that names none."""
        return () if request.modes else tuple((mode, request._replace(modes=(mode,))) for mode in keys.MODES)

    def way(self, assignment: Assignment, cards: Sequence[Card]) -> str:
        """The mode of the first card."""
        modes = {card.fixed.uuid: card.fixed.kind.mode for card in cards}
        return next((modes[entry.uuid] for entry in assignment.entries if entry.uuid in modes), "")


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
)
