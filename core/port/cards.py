"""Values about a node's cards: what it offers, what is free, what a pod gets and holds, and what people see."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from core.port.refusals import Complaint

_CardT = TypeVar("_CardT")
_AssignmentT = TypeVar("_AssignmentT")

# The mode of cards that are sold by number and not told apart.
WHOLE: Final = "whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer(Generic[_CardT]):
    """The unused cards that a node offers in one dialect; complaints name single cards that are left out."""

    cards: tuple[_CardT, ...]
    complaints: tuple[Complaint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Held(Generic[_AssignmentT]):
    """What a bound pod holds. closes: why the node must accept nothing new until this pod is gone, or ""."""

    assignment: _AssignmentT
    closes: str = ""


class NodeRoom(NamedTuple):
    """A summary of a node's cards in one dialect: idle cards, used fraction in parts per million, and free amounts.

    The free amounts cover each card that can still take a share, once for each share that one container may get of it.
    kinds: cards of one kind answer selectors alike and have the same total, so that *free* alone bounds their score.
    free: the largest amount of one more share, in the dialect's unit; spare: the rest of the second dimension (percent
    of cores; constant if a protocol has none). narrow: kinds within *kinds* for which `want` is more precise, if the
    use of a share depends on more than *free*; such cards have *free* in common. None if *kinds* suffice, else `want`
    is called only with these. A request for several cards of one kind scores no more than if all of them were of the
    best of their narrow kinds, which has the largest `Want.numerator`; that bounds nodes.
    """

    idle: int
    used_ppm: int
    kinds: Sequence[Hashable] = ()
    free: Sequence[int] = ()
    spare: Sequence[int] = ()
    narrow: Sequence[Hashable] | None = None


class Want(NamedTuple):
    """What a request needs from cards of one kind, as far as the kind determines it; never more than the true need.

    Each card needs at least *free* and *spare*. A placement on cards of this kind whose free amounts sum to f before it
    scores at most ``100.0 * (numerator - f) / total``. For a single container, the score is computed by exactly that
    expression, so that equal figures are equal floats.
    """

    free: int
    spare: int
    numerator: float
    total: int


class Bound(NamedTuple):
    """What bounds the score of a node for a request.

    width: how many entries of `NodeRoom` it needs at once (its largest container's number), >= 1. by_free: whether free
    amounts bound the score (`Want`). idle_score: returns the highest score of a node with exactly so many idle cards;
    called once for each number that occurs, if free amounts bound nothing. If it is infinite, it is so for all numbers.
    """

    width: int
    by_free: bool
    idle_score: Callable[[int], float]


class Placed(NamedTuple, Generic[_AssignmentT]):
    """A placement on one node: the dialect's assignment, and the raw device score (upstream's, before rounding)."""

    assignment: _AssignmentT
    score: float


class Hole(NamedTuple):
    """The unsold rest of a card, *free* of *total* in the dialect's unit; 0 if it accepts nothing new.

    size: cards of one size are divided alike. spare_pct: percent left of its other shared resources (cores, AI CPUs),
    of which the scarcest counts. cards: number of such cards.
    """

    size: Hashable
    free: int
    total: int
    spare_pct: int = 100
    cards: int = 1


class Tally(NamedTuple):
    """One card for people: *used* of *total* in *unit*, and special conditions.

    cores_pct: percent of its cores in use, None if the protocol does not count them this way. mode: its sharing mode,
    if the protocol has several. healthy: False for a card that accepts nothing; note gives the reason.
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

    @property
    def cards(self) -> int:
        """How many cards it is: *total* if they are sold by number and not told apart."""
        return self.total if self.mode == WHOLE else 1


class CardShare(NamedTuple):
    """What one assignment holds of one card, in words: ("GPU-v0", "4096 MiB, 25 % cores").

    amount: in the unit of the card's `Tally`, None if unknown; cores_pct: percent of its cores, None if the protocol
    does not count them this way. of: the card if *card* may name a slice of it, else "".
    """

    card: str
    text: str
    amount: int | None = None
    cores_pct: int | None = None
    of: str = ""

    @property
    def whole(self) -> str:
        """The card's name in its `Tally`."""
        return self.of or self.card


class CardWish(NamedTuple):
    """A request in plain words: *cards* for one container, and the amounts on each.

    memory_mib: None for all of a card, or for the protocol's default. cores_pct: percent of the card's cores, None for
    unspecified. types: words in the card's type, joined by commas; "" for any.
    """

    cards: int
    memory_mib: int | None = None
    cores_pct: int | None = None
    types: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether it is only for whole cards."""
        return self.memory_mib is None and self.cores_pct in (None, 100)


class Wording(NamedTuple):
    """How a pod writes a request: limits of a container, and annotations of the pod."""

    limits: Mapping[str, str]
    annotations: Mapping[str, str] = {}


class Series(NamedTuple):
    """A Prometheus series with one figure for each card, or for each pod and card: its full name, and its help text.

    labels: names of the labels for the card and its node. pod_labels: name of the label for the pod, namespace/name, or
    names of the labels for its namespace and its name.
    """

    name: str
    text: str
    labels: tuple[str, str] = ("devID", "NodeName")
    pod_labels: tuple[str] | tuple[str, str] = ("podName",)
