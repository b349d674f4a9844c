"""What would happen if the cluster changed; ``kubectl cards simulate``. Pure.

Fields may be added; renaming a field or changing its meaning requires another *version*.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from core.view.cards import VERSION, Kind


class Because(StrEnum):
    """Why a pod is in the answer.

    ADDED: the change adds it. DRAINED: its node is drained, removed or partitioned again. PREEMPTED: it is evicted for
    another pod. WAITED: it waits now, and would be placed. POLICY: another policy places all pods again.
    """

    ADDED = "added"
    DRAINED = "drained"
    PREEMPTED = "preempted"
    WAITED = "waited"
    POLICY = "policy"


class Outcome(StrEnum):
    """What becomes of a pod.

    PLACED: it gets *node* and *cards*. WAITS: it does not run, for the reason in *code*. ENDED: it is deleted, and
    nothing creates it again.
    """

    PLACED = "placed"
    WAITS = "waits"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedCard:
    """A part of one card, in words."""

    card: str
    share: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPod:
    """What would become of one pod (namespace/name).

    because, outcome: their values are listed in docs/operators/simulate.md. before: its node now, "" if it does not
    run. node, cards: where it would be, "" and empty if it would not run. code, text, nearest, change: why it would
    wait, as in ``waiting``; empty otherwise. evicted_for: the pod for which it would be evicted, "" if none.
    """

    pod: str
    because: str
    outcome: str
    before: str = ""
    node: str = ""
    cards: tuple[SimulatedCard, ...] = ()
    code: str = ""
    text: str = ""
    nearest: str = ""
    change: str = ""
    evicted_for: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedKind:
    """The cards of one *type* under one *protocol*, before and after the change, in *unit*.

    free: on healthy cards. stranded: the part of it that no pod can get. All are None if the value of a card is
    unknown, and 0 if there are no such cards.
    """

    protocol: str
    type: str
    unit: str
    cards_before: int
    cards_after: int
    free_before: int | None
    free_after: int | None
    stranded_before: int | None
    stranded_after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """The answer of ``simulate``.

    pods: those that the change affects, those that it adds first. kinds: by protocol and type. losing: how many pods
    that run now would wait or end; exit status 5 if any. waiting: how many other pods wait, before and after.
    """

    version: int = VERSION
    pods: tuple[SimulatedPod, ...]
    kinds: tuple[SimulatedKind, ...]
    losing: int
    waiting: int
    notes: tuple[str, ...] = ()


def losing(pods: Iterable[SimulatedPod]) -> int:
    """Return how many of *pods* run now and would not run."""
    return sum(bool(one.before) and one.outcome != Outcome.PLACED for one in pods)


def kinds_between(before: Sequence[Kind], after: Sequence[Kind]) -> tuple[SimulatedKind, ...]:
    """Return the cards before and after a change, by protocol, type and unit."""
    was, now = ({(one.protocol, one.type, one.unit): one for one in kinds} for kinds in (before, after))
    return tuple(_between(key, was.get(key), now.get(key)) for key in sorted(was.keys() | now.keys()))


def _between(key: tuple[str, str, str], before: Kind | None, after: Kind | None) -> SimulatedKind:
    protocol, label, unit = key
    return SimulatedKind(
        protocol=protocol,
        type=label,
        unit=unit,
        cards_before=before.cards if before is not None else 0,
        cards_after=after.cards if after is not None else 0,
        free_before=before.free if before is not None else 0,
        free_after=after.free if after is not None else 0,
        stranded_before=before.stranded if before is not None else 0,
        stranded_after=after.stranded if after is not None else 0,
    )
