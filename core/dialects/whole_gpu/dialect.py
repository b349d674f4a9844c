"""Whole GPUs by model: ``nvidia.com/gpu`` with ``nvidia.com/use-gputype`` or ``nouse-gputype``.

NVIDIA's plugin chooses the cards and needs no word from a scheduler, so an assignment is a count and nothing is
written. Pods of the default scheduler without either annotation are its business, and counted once they are bound.
Source: architecture 4.
"""

from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

from core import names
from core.dialects.whole_gpu.pool import (
    PARTS,
    PRODUCT,
    RESOURCE,
    Kind,
    Pool,
    accepts,
    gpus_of,
    most_of_one,
    offer,
    takes_parts,
)
from core.errors import quoted
from core.model import AnyPod, Node, Pod
from core.port.cards import (
    WHOLE,
    Bound,
    CardShare,
    CardWish,
    Held,
    Hole,
    NodeRoom,
    Offer,
    Placed,
    Tally,
    Want,
    Wording,
)
from core.port.dialect import Dialect, Names
from core.port.refusals import Complaint, Reason, Shortfall, Violation
from core.port.spec import MIG_MANAGER, DialectSpec
from core.selection import ANY_CARD, CardSelection
from core.settings import DialectName, Policy, Tables
from core.sharing.request import selection_of

_TITLE: Final = "GPUs"
_BY_MPS: Final = "GPUs, one for each container under MPS"
_DEFAULT_SCHEDULERS: Final = frozenset({"", names.DEFAULT_SCHEDULER_NAME})


class Request(NamedTuple):
    """So many GPUs of one node, of a model that *selection* accepts.

    least: with one for each container that asks. largest: those of the container that asks for most.
    """

    gpus: int
    selection: CardSelection
    least: int = 1
    largest: int = 1

    @property
    def unit(self) -> str:
        """What is counted: what several containers ask is counted together."""
        return "GPUs in all" if self.least > 1 else "GPUs"


class WholeGpu(Dialect[Pool, Request, int]):
    """`Dialect` of core.port for NVIDIA's own plugin."""

    name: DialectName = DialectName("whole_gpu")

    def names(self, tables: Tables) -> Names:
        # Another plugin may sell shares by that name.
        resources = frozenset[str]() if tables.is_claimed(RESOURCE) else frozenset({RESOURCE})
        return Names(resources=resources, preferences=names.TYPE_WISHES, beginnings=PARTS)

    def worded(self, wish: CardWish, tables: Tables) -> Sequence[Wording]:
        chosen = {names.USE_GPU_TYPE: wish.types} if wish.types else {}
        return (Wording({RESOURCE: str(wish.cards)}, chosen),) if wish.is_whole else ()

    def offer(self, node: Node, tables: Tables) -> Offer[Pool] | Complaint | None:
        return None if tables.is_claimed(RESOURCE) else offer(node, tables)

    def request(self, pod: AnyPod, tables: Tables) -> Request | tuple[Violation, ...] | None:
        unheard = _unheard(pod)
        chosen = {key: text for key, text in pod.annotations.items() if key in names.TYPE_WISHES}
        # Plain pods of the default scheduler stay with it.
        is_ours = unheard or chosen or pod.scheduler_name not in _DEFAULT_SCHEDULERS
        if tables.is_claimed(RESOURCE) or not is_ours:
            return None
        violations: list[Violation] = []
        gpus, least = gpus_of(pod, violations), gpus_of(pod, [], 1)
        if not gpus and not violations:
            return None
        selection = selection_of(chosen, "", "", violations)
        return tuple(violations) or unheard or Request(gpus, selection, least, most_of_one(pod))

    def recognised(self, request: Request, tables: Tables) -> frozenset[str]:
        # Positions are refused by name (CS212), because NVIDIA's plugin chooses the cards.
        return names.TYPE_WISHES | names.PLACE_WISHES

    def held(self, pod: Pod, cards: Sequence[Pool], tables: Tables) -> Held[int] | None:
        violations: list[Violation] = []
        gpus = gpus_of(pod, violations)
        if tables.is_claimed(RESOURCE) or violations:
            return None
        # With parts of cards alone, it holds 0 GPUs of the pool.
        return Held(assignment=gpus) if gpus or takes_parts(pod) else None

    def place(self, cards: Sequence[Pool], request: Request, policy: Policy) -> Placed[int] | None:
        for kind, _, used in cards:
            if kind.total - used >= request.gpus and _suits(kind, request):
                full = 100.0 * (used + request.gpus) / kind.total
                return Placed(request.gpus, full if policy is Policy.BINPACK else 0.0)
        return None

    def shortfalls(self, cards: Sequence[Pool], request: Request) -> tuple[Shortfall, ...]:
        found: list[Shortfall] = []
        for pool in cards:
            if not accepts(request.selection, pool.kind.models):
                unknown = f"unknown; GPU feature discovery would tell it by label {PRODUCT}"
                unit = "" if pool.label else "label"
                found.append(Shortfall(_TITLE, Reason.TYPE, unit=unit, detail=pool.label or unknown))
            elif pool.kind.each < request.largest:
                found.append(Shortfall(_BY_MPS, Reason.CARD_COUNT, request.gpus, request.least, request.unit))
            elif pool.free < request.gpus:
                found.append(Shortfall(_TITLE, Reason.CARD_COUNT, request.gpus, max(pool.free, 0), request.unit))
        return tuple(found) or (Shortfall("", Reason.CARD_COUNT, request.gpus, 0, request.unit),)

    def relaxed(self, cards: Sequence[Pool], request: Request, reason: Reason, amount: int) -> Request | None:
        if reason is Reason.TYPE:
            return request._replace(selection=ANY_CARD)
        if reason is not Reason.CARD_COUNT or amount < request.least:
            return None
        return request._replace(gpus=amount, largest=min(request.largest, amount - request.least + 1))

    def take(self, cards: tuple[Pool, ...], assignment: int) -> tuple[Pool, ...]:
        return tuple(Pool(kind, label, used + assignment) for kind, label, used in cards)

    def give_back(self, cards: tuple[Pool, ...], assignment: int) -> tuple[Pool, ...]:
        return self.take(cards, -assignment)

    def room(self, cards: Sequence[Pool]) -> NodeRoom:
        for kind, _, used in cards:
            free = kind.total - used
            ppm = used * 1_000_000 // kind.total
            return NodeRoom(free, ppm, (kind,), (free,), (0,)) if free > 0 else NodeRoom(0, ppm)
        return NodeRoom(0, 0)

    def want(self, request: Request, kind: Hashable, policy: Policy) -> Want | None:
        if not isinstance(kind, Kind) or kind.total < request.gpus or not _suits(kind, request):
            return None
        return Want(request.gpus, 0, kind.total + request.gpus, kind.total)

    def bound(self, request: Request, policy: Policy) -> Bound:
        return Bound(1, policy is Policy.BINPACK, lambda idle: 100.0 if policy is Policy.BINPACK else 0.0)

    def packs(self, request: Request) -> bool:
        return True

    def holes(self, cards: Sequence[Pool]) -> tuple[Hole, ...]:
        return tuple(Hole(pool.kind.models, 1, 1, cards=max(pool.free, 0)) for pool in cards)

    def stands(self, cards: Sequence[Pool], request: Request, assignment: int) -> bool:
        return all(pool.free >= 0 and _suits(pool.kind, request) for pool in cards)

    def overcommitted(self, cards: Sequence[Pool]) -> tuple[str, ...]:
        return tuple(f"pods hold {pool.used} of {pool.kind.total} GPUs" for pool in cards if pool.free < 0)

    def tally(self, cards: Sequence[Pool]) -> tuple[Tally, ...]:
        note = "chosen by the plugin"
        return tuple(
            Tally(_TITLE, pool.label or "unknown model", pool.used, pool.kind.total, "GPUs", note=note, mode=WHOLE)
            for pool in cards
        )

    def describe(self, assignment: int, cards: Sequence[Pool]) -> tuple[CardShare, ...]:
        if not assignment:
            return (CardShare(_TITLE, "parts of cards, chosen by NVIDIA's device plugin", 0),)
        label = next((pool.label for pool in cards if pool.label), "")
        told = f"{assignment} whole" + (f", {label}" if label else "") + ", chosen by the device plugin"
        return (CardShare(_TITLE, told, assignment),)


def _suits(kind: Kind, request: Request) -> bool:
    """Return whether pools of *kind* take *request* if they have enough GPUs."""
    return kind.each >= request.largest and accepts(request.selection, kind.models)


# Wishes for single cards, which nobody would hear: refused rather than passed over in silence.
_UNHEARD: Final = (names.WISHED_INDICES, names.AVOIDED_CARDS)


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
    pausing=MIG_MANAGER,
)
