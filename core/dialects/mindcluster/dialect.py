"""MindCluster's dynamic vNPU on Ascend 310P: ``huawei.com/npu-core``.

This file joins the parts; each rule stands in the file that it is named after. Source: protocol reference, ascend 3.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Final

from core.dialects.mindcluster import chips as _chips
from core.dialects.mindcluster import fit, handoff, holding, keys, offer, requests, warnings
from core.dialects.mindcluster.chips import WHOLE, Assignment, Chip
from core.dialects.mindcluster.requests import Request
from core.dialects.mindcluster.table import ARGUMENTS
from core.dialects.mindcluster.templates import TEMPLATES
from core.model import AnyPod, Node, Pod
from core.port.cards import Bound, CardShare, Held, Hole, NodeRoom, Offer, Placed, Tally, Want
from core.port.dialect import Dialect
from core.port.handoff import InFlight, Stamp
from core.port.names import Names
from core.port.refusals import Complaint, Fault, Reason, Shortfall, Violation
from core.port.spec import DialectSpec, NodeDocuments, Place
from core.settings import DialectName, Policy
from core.tables import Tables
from core.units import counted
from core.warnings import AdmissionWarning
from core.wire.mindcluster import node_documents


class MindCluster(Dialect[Chip, Request, Assignment]):
    """`Dialect` of core.port for MindCluster. A policy for cards means nothing here: slices fill the fullest chip."""

    name: DialectName = DialectName("mindcluster")

    def names(self, tables: Tables) -> Names:
        """AI cores, which kubelet counts as the plugin advertises them."""
        del tables
        return Names(resources=frozenset({keys.CORES}), assignment_keys=keys.ASSIGNMENT_KEYS)

    def offer(self, node: Node, tables: Tables) -> Offer[Chip] | Complaint | None:
        """The chips of a node; None if its plugin offers no AI cores."""
        return offer.offer(node, tables)

    def request(self, pod: AnyPod, tables: Tables) -> Request | tuple[Violation, ...] | None:
        """What *pod* asks; None if nothing; violations if it may not be asked so."""
        return requests.request_of(pod, tables)

    def warnings(self, pod: AnyPod, request: Request, tables: Tables) -> Iterator[AdmissionWarning]:
        """Labels of *pod* that choose nothing."""
        del tables
        return warnings.of(pod, request)

    def completed(self, pod: Pod, request: Request, tables: Tables) -> tuple[Pod, tuple[AdmissionWarning, ...]]:
        """*pod* with the labels of its slice written out."""
        del tables
        return warnings.completed(pod, request), ()

    def at_best(self, cards: tuple[Chip, ...]) -> tuple[Chip, ...]:
        """The chips as if all of them were listed and well."""
        return tuple([_chips.chip(one.fixed._replace(fault=None, listed=True)) for one in cards])

    def healed(self, cards: tuple[Chip, ...]) -> tuple[Chip, ...]:
        """The chips as if none were unhealthy."""
        return tuple([_chips.chip(one.fixed._replace(fault=None)) for one in cards])

    def well(self, cards: tuple[Chip, ...]) -> frozenset[str]:
        """The numbers of those that are not said to be unhealthy."""
        return frozenset(str(one.fixed.id) for one in cards if one.fixed.fault is not Reason.UNHEALTHY)

    def kept_out(self, cards: tuple[Chip, ...], faults: Mapping[str, Fault]) -> tuple[Chip, ...]:
        """The chips with nothing new for those that are named in *faults*."""
        return tuple(
            [
                _chips.chip(one.fixed._replace(fault=one.fixed.fault or faults[str(one.fixed.id)].reason))
                if str(one.fixed.id) in faults
                else one
                for one in cards
            ]
        )

    def held(self, pod: Pod, cards: Sequence[Chip], tables: Tables) -> Held[Assignment] | None:
        """What bound *pod* holds by its annotations, whoever bound it."""
        del cards, tables
        return holding.held(pod)

    def place(self, cards: Sequence[Chip], request: Request, policy: Policy) -> Placed[Assignment] | None:
        """The chips that *request* gets, or None."""
        del policy
        return fit.place(cards, request)

    def shortfalls(self, cards: Sequence[Chip], request: Request) -> tuple[Shortfall, ...]:
        """Why `place` answers None, chip by chip with numbers."""
        return fit.shortfalls(cards, request)

    def relaxed(self, cards: Sequence[Chip], request: Request, reason: Reason, amount: int) -> Request | None:
        """*request* for no more than *amount* AI cores, of which whole chips and slices are counted."""
        del cards
        return fit.relaxed(request, amount) if reason in (Reason.CORES, Reason.CARD_COUNT) else None

    def take(self, cards: tuple[Chip, ...], assignment: Assignment) -> tuple[Chip, ...]:
        """The chips after *assignment* is in use on them."""
        return _chips.take(cards, assignment)

    def give_back(self, cards: tuple[Chip, ...], assignment: Assignment) -> tuple[Chip, ...]:
        """The chips after *assignment* is given back."""
        return _chips.give_back(cards, assignment)

    def room(self, cards: Sequence[Chip]) -> NodeRoom:
        """One room for the whole node, because it is the node's idle AI cores that score."""
        return _chips.room(cards)

    def want(self, request: Request, kind: Hashable, policy: Policy) -> Want | None:
        """What *request* asks of a node of *kind*; None if such a node can never serve it."""
        del policy
        return fit.want(request, kind)

    def bound(self, request: Request, policy: Policy) -> Bound:
        """See `Bounds`."""
        return Bound(1, True, lambda idle: 100.0)

    def packs(self, request: Request) -> bool:
        """Yes: a pod has no order of nodes of its own."""
        del request
        return True

    def holes(self, cards: Sequence[Chip]) -> tuple[Hole, ...]:
        """The AI cores and AI CPUs that are left of each chip."""
        return _chips.holes(cards)

    def overcommitted(self, cards: Sequence[Chip]) -> tuple[str, ...]:
        """The chips that hold more than they have."""
        return _chips.overcommitted(cards)

    def tally(self, cards: Sequence[Chip]) -> tuple[Tally, ...]:
        """Every chip with how much of it is in use, for people."""
        return _chips.tally(cards)

    def annotations(self, assignment: Assignment, stamp: Stamp, tables: Tables) -> Mapping[str, str]:
        """What the Binding must carry."""
        del tables
        return handoff.annotations(assignment, stamp)

    def next_stamp(self, pods: Sequence[Pod], now_s: int) -> int:
        """The time that is above that of every pod of the node that is still to be served."""
        return handoff.next_stamp(pods, now_s)

    def confusable(self, request: Request) -> frozenset[Hashable]:
        """What the plugin could mistake a pod with *request* by: its AI cores."""
        return frozenset({handoff.mark(request.cores)})

    def in_flight(self, pod: Pod, tables: Tables) -> InFlight | None:
        """*pod* as the plugin sees it; None if it never serves it."""
        del tables
        return handoff.in_flight(pod)

    def describe(self, assignment: Assignment, cards: Sequence[Chip]) -> tuple[CardShare, ...]:
        """What *assignment* holds of each of its chips, for people."""
        template = TEMPLATES.get(assignment.share.template)
        if template is not None:
            what = f"{template.name}: {counted(template.cores, 'AI cores')}, {counted(template.cpus, 'AI CPUs')}"
            return tuple(CardShare(f"NPU {chip}", what, template.cores) for chip in assignment.chips)
        if assignment.share.template != WHOLE:
            return tuple(CardShare(f"NPU {chip}", "a slice of an unknown template") for chip in assignment.chips)
        cores = {one.fixed.id: one.fixed.cores for one in cards}
        return tuple(CardShare(f"NPU {chip}", "the whole chip", cores.get(chip)) for chip in assignment.chips)


DIALECT: Final = DialectSpec(
    port=MindCluster(),
    cards="ascend",
    machine_keys=frozenset({"ascend.kubectl.kubernetes.io/ascend-910-configuration"}),
    key_prefixes=("huawei.com/",),
    # Found by label, in namespaces that need not exist. Source: ascend 1.8.
    documents=NodeDocuments(
        places=(
            Place("chip-states", "kube-system", "mx-consumer-cim=true"),
            Place("node-states", "mindx-dl", "mx-consumer-cim=true"),
            Place("cluster-states", "mindx-dl", "mx-consumer-volcano=true"),
        ),
        read=node_documents,
    ),
    switch="AscendMindClusterVNPUEnable",
    plugin_accounts=("system:serviceaccount:kube-system:ascend-device-plugin-sa-*",),
    report=handoff.report,
    arguments=(ARGUMENTS,),
    # Those that choose a template.
    labels=frozenset({keys.LEVEL, keys.DVPP}),
)
