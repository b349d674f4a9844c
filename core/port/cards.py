"""What is told of a node's cards: what it offers, what is free, what a pod gets and holds, and what people see."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple

from core.port.refusals import Complaint
from core.port.typevars import AssignmentT, CardT


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer(Generic[CardT]):
    """The cards that a node offers in one dialect, nothing in use; complaints name single cards left out."""

    cards: tuple[CardT, ...]
    complaints: tuple[Complaint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Held(Generic[AssignmentT]):
    """What a bound pod holds. closes: why the node may take nothing new until this pod is gone, or ""."""

    assignment: AssignmentT
    closes: str = ""


class NodeRoom(NamedTuple):
    """A node's cards in one dialect, summed up: idle cards, used share in parts per million, and what is free of each.

    The latter of each card that could still take something, as many times as one container may get a share of it.
    kinds: cards of one kind answer alike to selectors and have one total, so that *free* alone bounds their score.
    free: the largest amount one more share could have, in the dialect's unit; spare: what is left of the second
    dimension (percent of cores; constant where a protocol has none). narrow: kinds within *kinds*, of which `want`
    tells more, where what a share takes depends on more than *free*; such cards have *free* in common. None where
    *kinds* say all, else `want` is asked with these alone. A request for several cards of one kind scores no more
    than if all of them were of the best of their narrow ones, which is that with the largest `Want.numerator`; nodes
    are bounded by that.
    """

    idle: int
    used_ppm: int
    kinds: Sequence[Hashable] = ()
    free: Sequence[int] = ()
    spare: Sequence[int] = ()
    narrow: Sequence[Hashable] | None = None


class Want(NamedTuple):
    """What a request asks of cards of one kind, as far as kinds can tell; never more than is truly needed.

    Each card needs at least *free* and *spare*. A placement on cards of this kind whose free amounts sum to f before
    it scores at most ``100.0 * (numerator - f) / total``; where one container asks, the score is
    computed by exactly that expression, so that equal figures are equal floats.
    """

    free: int
    spare: int
    numerator: float
    total: int


class Placed(NamedTuple, Generic[AssignmentT]):
    """A placement on one node: the dialect's assignment, and the raw device score (upstream's, before rounding)."""

    assignment: AssignmentT
    score: float


class Hole(NamedTuple):
    """What is left of a card to be sold, *free* of *total* in the dialect's unit; 0 of one that takes nothing new.

    size: cards of one size are parted alike. spare_pct: percent that are left of what else is shared of it (cores, AI
    CPUs), whichever is scarcest. cards: how many such cards there are.
    """

    size: Hashable
    free: int
    total: int
    spare_pct: int = 100
    cards: int = 1


class Tally(NamedTuple):
    """One card as people count it: *used* of *total* in *unit*, and what is special.

    cores_pct is the percent of its cores in use, None where the protocol does not count them so. mode: how it is
    shared, where the protocol knows several ways. healthy: False for a card that takes nothing; note says why.
    """

    card: str
    label: str
    used: int
    total: int
    unit: str
    cores_pct: int | None = None
    note: str = ""
    mode: str = ""
    healthy: bool = True


class CardShare(NamedTuple):
    """What one assignment holds of one card, in words: ("GPU-v0", "4096 MiB, 25 % cores").

    amount is in the unit of the card's `Tally`, None where it cannot be told; cores_pct in percent of its cores, None
    where the protocol does not count them so. of: the card where *card* may name a slice of it, else "".
    """

    card: str
    text: str
    amount: int | None = None
    cores_pct: int | None = None
    of: str = ""

    @property
    def whole(self) -> str:
        """The card as its `Tally` names it."""
        return self.of or self.card


class CardWish(NamedTuple):
    """What people ask in plain words: *cards* for one container, and of each so much.

    memory_mib: None for all of a card, or what the protocol takes if nothing is asked. cores_pct: percent of the card's
    cores, None for no word of them. types: words that the card's type contains, joined by commas; "" for any.
    """

    cards: int
    memory_mib: int | None = None
    cores_pct: int | None = None
    types: str = ""


class Wording(NamedTuple):
    """How a pod writes what it asks: a container's limits, and annotations of the pod."""

    limits: Mapping[str, str]
    annotations: Mapping[str, str] = {}


class Series(NamedTuple):
    """A series of Prometheus, one figure for each card, or each pod and card: its whole name, and what it tells.

    labels: how those of the card and of its node are called. pod_labels: how that of a pod is, namespace/name, or those
    of its namespace and of its name.
    """

    name: str
    text: str
    labels: tuple[str, str] = ("devID", "NodeName")
    pod_labels: tuple[str] | tuple[str, str] = ("podName",)
