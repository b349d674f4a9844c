"""Reasons for refusals: a card cannot take a request, a request is invalid, a node is unreadable."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from core.settings import DialectName


class Reason(StrEnum):
    """Why a card or a node cannot take a request."""

    MEMORY = "memory"
    CORES = "cores"
    SLOTS = "slots"
    EXCLUSIVE = "exclusive"
    PROMISED = "cores promised"
    UNHEALTHY = "unhealthy"
    UNSTEADY = "unsteady"
    CLAIMED = "in use through a resource claim"
    CORDONED = "cordoned"
    TYPE = "type"
    UUID = "uuid"
    INDEX = "index"
    UNORDERED = "order of cards"
    MODE = "mode"
    GROUP = "group"
    RULE = "rule"
    LINKS = "links"
    LAYOUT = "layout"
    TEMPLATE = "template"
    BUSY = "busy"
    CONTAINERS = "other containers"
    HANDOVER = "hand-over"
    CARD_COUNT = "card count"
    UNUSABLE = "unusable"


# Faults from which a card may recover by itself.
PASSING: Final = frozenset({Reason.UNHEALTHY, Reason.UNSTEADY, Reason.CLAIMED, Reason.UNORDERED})
# Wishes about a card that a pod can drop.
WISHES: Final = (Reason.TYPE, Reason.UUID, Reason.INDEX, Reason.UNORDERED, Reason.MODE)
# Why a card that repeatedly becomes unhealthy accepts nothing new although it is healthy now, for people.
UNSTEADY: Final = "it became unhealthy again and again, and has not stayed well for long enough since"
# Why a node accepts nothing new if its device plugin runs only on other nodes, for people.
DESERTED: Final = "another device plugin may answer kubelet there; event CardsUnusable on the node says what to do"


class CardFault(NamedTuple):
    """Why a card without a fault of its device plugin accepts nothing new, as a reason and for people."""

    reason: Reason
    problem: str


class Shortfall(NamedTuple):
    """One card, and what it lacked: wanted and free in the dialect's *unit* (both 0 if no amount is involved).

    mib_per_unit: MiB per unit of memory in manifests, if *unit* is MiB. per_card: how much of *unit* a card is, where
    cards are asked for by their parts. alone: how much would be free without what other containers of the pod take of
    the card; 0 if they take nothing.
    """

    card: str
    reason: Reason
    wanted: int = 0
    free: int = 0
    unit: str = ""
    detail: str = ""
    mib_per_unit: int = 1
    per_card: int = 1
    alone: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One error in a pod's request: its location, the text found, and the correction.

    code is stable (CS1xx a value, CS2xx a combination, CS3xx protection, CS4xx cannot fit).
    """

    code: str
    field: str
    found: str
    remedy: str

    def __str__(self) -> str:
        """Return the sentence for people."""
        return f"{self.field}: found {self.found}; {self.remedy}" if self.found else f"{self.field}: {self.remedy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """A node with unusable device data: it is set aside for this dialect, the others continue.

    remedy: what to do, if it is something other than checking the device plugin; the problem says it too.
    closes: whether cards are left out because of it; otherwise a person only needs to know.
    """

    dialect: DialectName
    field: str
    problem: str
    remedy: str = ""
    closes: bool = True
