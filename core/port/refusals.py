"""Why not: a card that cannot take a request, a request that may not be made, a node that cannot be read."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from core.settings import DialectName


class Reason(StrEnum):
    """Why a card, or a node, cannot take a request."""

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
    LAYOUT = "layout"
    TEMPLATE = "template"
    BUSY = "busy"
    HANDOVER = "hand-over"
    CARD_COUNT = "card count"
    UNUSABLE = "unusable"


# What a card may get over by itself.
PASSING: Final = frozenset({Reason.UNHEALTHY, Reason.UNSTEADY, Reason.CLAIMED, Reason.UNORDERED})
# What of a card a pod may wish, and leave out.
WISHES: Final = (Reason.TYPE, Reason.UUID, Reason.INDEX, Reason.UNORDERED, Reason.MODE)
# Why a card that becomes unhealthy again and again takes nothing new although it is well now, for people.
UNSTEADY: Final = "it became unhealthy again and again, and has not stayed well for long enough since"
# Why a node takes nothing new whose device plugin is on other nodes alone, for people.
DESERTED: Final = "another device plugin may answer kubelet there; event CardsUnusable on the node says what to do"


class Fault(NamedTuple):
    """Why a card that its device plugin says nothing against takes nothing new; the same for people."""

    reason: Reason
    problem: str


class Shortfall(NamedTuple):
    """One card, and what it lacked: wanted and free in the dialect's *unit* (0 and 0 where no amount is meant).

    mib_per_unit: of how many MiB each manifests count memory, where *unit* is MiB.
    """

    card: str
    reason: Reason
    wanted: int = 0
    free: int = 0
    unit: str = ""
    detail: str = ""
    mib_per_unit: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One thing wrong with what a pod asks: where, what was found, what to write instead.

    code is stable (CS1xx a value, CS2xx a combination, CS3xx protection, CS4xx cannot fit).
    """

    code: str
    field: str
    found: str
    remedy: str

    def __str__(self) -> str:
        """The sentence for people."""
        return f"{self.field}: found {self.found}; {self.remedy}" if self.found else f"{self.field}: {self.remedy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """A node whose device data cannot be used: the node is set aside for this dialect, the others go on.

    remedy: what to do, if it is something else than to look after the device plugin; the problem says it too.
    """

    dialect: DialectName
    field: str
    problem: str
    remedy: str = ""
