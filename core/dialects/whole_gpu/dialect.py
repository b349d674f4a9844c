"""Whole GPUs by model: ``nvidia.com/gpu`` with ``nvidia.com/use-gputype`` or ``nouse-gputype``.

NVIDIA's plugin chooses the cards and needs no word from a scheduler, so an assignment is a count and nothing is
written. Pods of the default scheduler without either annotation are its business, and counted once they are bound.
Source: architecture 4.
"""

from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

from core import names
from core import selection as _selection
from core.dialects.whole_gpu.pool import PRODUCT, RESOURCE, Kind, Pool, accepts, gpus_of, offer, takes_parts
from core.errors import InvalidRequestError, quoted
from core.model import AnyPod, Node, Pod
from core.names import AVOIDED_CARDS, DEFAULT_SCHEDULER_NAME, NO_USE_GPU_TYPE, USE_GPU_TYPE, WISHED_INDICES
from core.port.cards import Bound, CardShare, CardWish, Held, Hole, NodeRoom, Offer, Placed, Tally, Want, Wording
from core.port.dialect import Dialect
from core.port.names import Names
from core.port.refusals import Complaint, Reason, Shortfall, Violation
from core.port.spec import DialectSpec
from core.selection import CardSelection
from core.settings import DialectName, Policy
from core.tables import Tables

_TITLE: Final = "GPUs"
_DEFAULT_SCHEDULERS: Final = frozenset({"", DEFAULT_SCHEDULER_NAME})


class Request(NamedTuple):
    """So many GPUs of one node, of a model that *selection* accepts; least: with one for each container that asks."""

    gpus: int
    selection: CardSelection
    least: int = 1

    @property
    def unit(self) -> str:
        """What is counted: what several containers ask is counted together."""
        return "GPUs in all" if self.least > 1 else "GPUs"


class WholeGpu(Dialect[Pool, Request, int]):
    """`Dialect` of core.port for NVIDIA's own plugin."""

    name: DialectName = DialectName("whole_gpu")

    def names(self, tables: Tables) -> Names:
        """``nvidia.com/gpu``, unless another plugin sells shares by that name, and which models."""
        resources = frozenset[str]() if tables.is_claimed(RESOURCE) else frozenset({RESOURCE})
        return Names(resources=resources, preferences=names.TYPE_WISHES)

    def worded(self, wish: CardWish, tables: Tables) -> Sequence[Wording]:
        """See `Usual`."""
        del tables
        chosen = {USE_GPU_TYPE: wish.types} if wish.types else {}
        return (Wording({RESOURCE: str(wish.cards)}, chosen),) if wish.is_whole else ()

    def offer(self, node: Node, tables: Tables) -> Offer[Pool] | Complaint | None:
        """The GPUs of a node, as one pool; None if NVIDIA's plugin does not run there."""
        return None if tables.is_claimed(RESOURCE) else offer(node)

    def request(self, pod: AnyPod, tables: Tables) -> Request | tuple[Violation, ...] | None:
        """What *pod* asks, if it says which models it accepts or names a scheduler; None if it asks for no GPU.

        Plain pods of the default scheduler stay with it.
        """
        unheard = _unheard(pod)
        named = pod.scheduler_name not in _DEFAULT_SCHEDULERS
        chooses = USE_GPU_TYPE in pod.annotations or NO_USE_GPU_TYPE in pod.annotations
        if tables.is_claimed(RESOURCE) or not (unheard or chooses or named):
            return None
        try:
            gpus, least = gpus_of(pod), gpus_of(pod, 1)
            if not gpus:
                return None
            selection = CardSelection(
                use_types=_types(pod, USE_GPU_TYPE),
                no_use_types=_types(pod, NO_USE_GPU_TYPE),
            )
        except InvalidRequestError as error:
            code = "CS105" if error.field.startswith("annotation") else "CS101"
            return (Violation(code=code, field=error.field, found=error.found, remedy=error.remedy),)
        return unheard or Request(gpus, selection, least)

    def recognised(self, request: Request, tables: Tables) -> frozenset[str]:
        """Its preferences; positions are refused by name (CS212), because NVIDIA's plugin chooses the cards."""
        del request, tables
        return names.TYPE_WISHES | names.PLACE_WISHES

    def held(self, pod: Pod, cards: Sequence[Pool], tables: Tables) -> Held[int] | None:
        """How many GPUs bound *pod* has, whoever bound it: 0 if NVIDIA's plugin gave it parts of cards alone."""
        del cards
        if tables.is_claimed(RESOURCE):
            return None
        try:
            gpus = gpus_of(pod)
        except InvalidRequestError:
            return None
        return Held(assignment=gpus) if gpus or takes_parts(pod) else None

    def place(self, cards: Sequence[Pool], request: Request, policy: Policy) -> Placed[int] | None:
        """The count, if the node has so many GPUs of a model that *request* accepts."""
        for kind, _, used in cards:
            if kind.total - used >= request.gpus and accepts(request.selection, kind.models):
                full = 100.0 * (used + request.gpus) / kind.total
                return Placed(request.gpus, full if policy is Policy.BINPACK else 0.0)
        return None

    def shortfalls(self, cards: Sequence[Pool], request: Request) -> tuple[Shortfall, ...]:
        """Why `place` answers None: another model, or too few."""
        found: list[Shortfall] = []
        for pool in cards:
            if not accepts(request.selection, pool.kind.models):
                unknown = f"unknown; GPU feature discovery would tell it by label {PRODUCT}"
                unit = "" if pool.label else "label"
                found.append(Shortfall(_TITLE, Reason.TYPE, unit=unit, detail=pool.label or unknown))
            elif pool.free < request.gpus:
                found.append(Shortfall(_TITLE, Reason.CARD_COUNT, request.gpus, max(pool.free, 0), request.unit))
        return tuple(found) or (Shortfall("", Reason.CARD_COUNT, request.gpus, 0, request.unit),)

    def relaxed(self, cards: Sequence[Pool], request: Request, reason: Reason, amount: int) -> Request | None:
        """*request* for no more than *amount* GPUs; None where that is less than one for each container."""
        del cards
        if reason is Reason.TYPE:
            return request._replace(selection=_selection.ANY_CARD)
        return request._replace(gpus=amount) if reason is Reason.CARD_COUNT and amount >= request.least else None

    def take(self, cards: tuple[Pool, ...], assignment: int) -> tuple[Pool, ...]:
        """The pool after so many GPUs are in use."""
        return tuple(Pool(kind, label, used + assignment) for kind, label, used in cards)

    def give_back(self, cards: tuple[Pool, ...], assignment: int) -> tuple[Pool, ...]:
        """The pool after so many GPUs are given back."""
        return tuple(Pool(kind, label, used - assignment) for kind, label, used in cards)

    def room(self, cards: Sequence[Pool]) -> NodeRoom:
        """The pool as one room: as many free GPUs."""
        for kind, _, used in cards:
            free = kind.total - used
            ppm = used * 1_000_000 // kind.total
            return NodeRoom(free, ppm, (kind,), (free,), (0,)) if free > 0 else NodeRoom(0, ppm)
        return NodeRoom(0, 0)

    def want(self, request: Request, kind: Hashable, policy: Policy) -> Want | None:
        """What *request* asks of pools of *kind*; None if such a pool can never serve it."""
        del policy
        if not isinstance(kind, Kind) or kind.total < request.gpus or not accepts(request.selection, kind.models):
            return None
        return Want(request.gpus, 0, kind.total + request.gpus, kind.total)

    def bound(self, request: Request, policy: Policy) -> Bound:
        """See `Bounds`."""
        return Bound(1, policy is Policy.BINPACK, lambda idle: 100.0 if policy is Policy.BINPACK else 0.0)

    def packs(self, request: Request) -> bool:
        """Yes: a pod has no order of nodes of its own."""
        del request
        return True

    def holes(self, cards: Sequence[Pool]) -> tuple[Hole, ...]:
        """All free GPUs of the pool."""
        return tuple(Hole(pool.kind.models, 1, 1, cards=max(pool.free, 0)) for pool in cards)

    def overcommitted(self, cards: Sequence[Pool]) -> tuple[str, ...]:
        """Whether pods hold more GPUs than the node can give."""
        return tuple(f"pods hold {pool.used} of {pool.kind.total} GPUs" for pool in cards if pool.free < 0)

    def tally(self, cards: Sequence[Pool]) -> tuple[Tally, ...]:
        """The pool with how many of it are in use, for people."""
        return tuple(
            Tally(
                _TITLE,
                pool.label or "unknown model",
                pool.used,
                pool.kind.total,
                "GPUs",
                note="chosen by the plugin",
                mode="whole",
            )
            for pool in cards
        )

    def describe(self, assignment: int, cards: Sequence[Pool]) -> tuple[CardShare, ...]:
        """How many, and of which model, for people."""
        if not assignment:
            return (CardShare(_TITLE, "parts of cards, chosen by NVIDIA's device plugin", 0),)
        label = next((pool.label for pool in cards if pool.label), "")
        told = f"{assignment} whole" + (f", {label}" if label else "") + ", chosen by the device plugin"
        return (CardShare(_TITLE, told, assignment),)


# Wishes for single cards, which nobody would hear: refused rather than passed over in silence.
_UNHEARD: Final = (WISHED_INDICES, AVOIDED_CARDS)


def _types(pod: AnyPod, key: str) -> frozenset[_selection.TypePattern]:
    return _selection.decode_types(pod.annotations.get(key, ""), f"annotation {key}")


def _unheard(pod: AnyPod) -> tuple[Violation, ...]:
    return tuple(
        Violation(
            code="CS212",
            field=f"annotation {key}",
            found=quoted(pod.annotations[key]),
            remedy=f"leave it out: NVIDIA's device plugin chooses the cards of {RESOURCE} itself; "
            "ask for volcano.sh/gpu-number or volcano.sh/vgpu-number to say which cards",
        )
        for key in _UNHEARD
        if pod.annotations.get(key, "").strip()
    )


DIALECT: Final = DialectSpec(
    port=WholeGpu(),
    cards="nvidia",
    key_prefixes=("nvidia.com/",),
)
