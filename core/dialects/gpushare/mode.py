"""What both modes of the share plugin answer alike: memory of one card, and whole cards.

Which cards a pod gets, and what of them is free, is each mode's own.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence

from core import names
from core.dialects.gpushare import cards as _cards
from core.dialects.gpushare import grammar, handoff
from core.dialects.gpushare.cards import Assignment, Card
from core.dialects.gpushare.grammar import Request
from core.errors import InvalidRequestError
from core.model import AnyPod, Node, Pod
from core.port.cards import Held, Offer
from core.port.handoff import InFlight, Stamp
from core.port.refusals import Complaint, Fault, Reason, Violation
from core.settings import DialectName
from core.tables import Tables
from core.warnings import AdmissionWarning


class Mode:
    """The half of `Dialect` of core.port that is the same for both modes.

    Attributes:
        name: the dialect.
        resource: what containers ask for in this mode.
    """

    name: DialectName
    resource: str

    def violations(self, asked: Request, pod: AnyPod) -> tuple[Violation, ...]:
        """Why *pod* may not ask what it asks."""
        del asked
        return grammar.unservable(pod, self.resource)

    def resources(self, tables: Tables) -> frozenset[str]:
        """Every resource name by which a container can ask."""
        del tables
        return frozenset({self.resource})

    def uncounted(self, tables: Tables) -> frozenset[str]:
        """None: kubelet counts what the plugin advertises."""
        del tables
        return frozenset()

    def assignment_keys(self, tables: Tables) -> frozenset[str]:
        """Pod annotations that only schedulers and the plugin write."""
        del tables
        return grammar.ASSIGNMENT_KEYS

    def marks(self) -> frozenset[str]:
        """What tells how far the plugin is: `held` reads the cards alone."""
        return frozenset({grammar.PREDICATE_TIME, grammar.ASSIGNED, names.SEGMENT_QUEUE})

    def offer(self, node: Node, tables: Tables) -> Offer[Card] | Complaint | None:
        """The cards of a node; None if it has none, or sells them in the other mode: no card is sold twice."""
        del tables
        try:
            capacity = grammar.capacity_of(node)
        except InvalidRequestError as error:
            return Complaint(dialect=self.name, field=error.field, problem=f"found {error.found}; {error.remedy}")
        if capacity is None or capacity.sold_by != self.resource:
            return None
        return Offer(cards=_cards.cards_of(capacity, self.name))

    def healed(self, cards: tuple[Card, ...]) -> tuple[Card, ...]:
        """*cards* as they would be if the unhealthy ones were well."""
        return tuple(card._replace(fault=None) for card in cards)

    def well(self, cards: tuple[Card, ...]) -> frozenset[str]:
        """The indices of those that are not said to be unhealthy."""
        return frozenset(str(card.position) for card in cards if card.fault is not Reason.UNHEALTHY)

    def kept_out(self, cards: tuple[Card, ...], faults: Mapping[str, Fault]) -> tuple[Card, ...]:
        """*cards* with nothing new for those that are named in *faults*."""
        return tuple(
            card._replace(fault=faults[str(card.position)].reason)
            if card.fault is None and str(card.position) in faults
            else card
            for card in cards
        )

    def at_best(self, cards: tuple[Card, ...]) -> tuple[Card, ...]:
        """The same: these cards have no names."""
        return self.healed(cards)

    def request(self, pod: AnyPod, tables: Tables) -> Request | tuple[Violation, ...] | None:
        """What *pod* asks; None if nothing; violations if it may not be asked so."""
        del tables
        try:
            asked = grammar.readable_request(pod, self.resource)
            return None if asked is None else self.violations(asked, pod) or asked
        except InvalidRequestError as error:
            return (grammar.violation_of(error, "CS105" if error.field.startswith("annotation") else "CS101"),)

    def preferences(self, tables: Tables) -> frozenset[str]:
        """At which positions."""
        del tables
        return names.PLACE_WISHES

    def recognised(self, request: Request, tables: Tables) -> frozenset[str]:
        """All of its preferences."""
        del request
        return self.preferences(tables)

    def warnings(self, pod: AnyPod, request: Request, tables: Tables) -> Iterator[AdmissionWarning]:
        """Cards that *pod* names by what these nodes do not know."""
        del request, tables
        return grammar.warnings(pod)

    def held(self, pod: Pod, cards: Sequence[Card], tables: Tables) -> Held[Assignment] | None:
        """What bound *pod* holds by its annotations, whoever bound it."""
        del tables
        return _cards.held(pod, cards, self.resource)

    def take(self, cards: tuple[Card, ...], assignment: Assignment) -> tuple[Card, ...]:
        """The cards after *assignment* is in use on them."""
        return _cards.take(cards, assignment)

    def give_back(self, cards: tuple[Card, ...], assignment: Assignment) -> tuple[Card, ...]:
        """The cards after *assignment* is given back."""
        return _cards.give_back(cards, assignment)

    def packs(self, request: Request) -> bool:
        """Always: a pod has no order of nodes of its own."""
        del request
        return True

    def annotations(self, assignment: Assignment, stamp: Stamp, tables: Tables) -> Mapping[str, str]:
        """What the Binding must carry."""
        del tables
        return handoff.annotations(assignment, stamp)

    def next_stamp(self, pods: Sequence[Pod], now_s: int) -> int:
        """The time that is above that of every pod of the node that is still to be served."""
        return handoff.next_stamp(pods, now_s)

    def confusable(self, request: Request) -> frozenset[Hashable]:
        """What the plugin could mistake a pod with *request* by: the exact amount of a container."""
        return frozenset(handoff.mark(self.resource, amount) for amount in request.amounts)

    def rotate(self, old: Mapping[str, str], new: Mapping[str, str]) -> Mapping[str, str | None]:
        """What the plugin's write from *old* to *new* must carry besides: that containers are still to be served."""
        return handoff.rotate(old, new)

    def in_flight(self, pod: Pod, tables: Tables) -> InFlight | None:
        """*pod* as the plugin sees it; None if it never serves it."""
        del tables
        return handoff.in_flight(pod, self.resource)
