"""A scheduler for shadow mode: for each Binding of another scheduler, it records what this controller would have done.

It decides when it sees the Binding, for the cluster as it was just before, with all pods where others bound them. Then
the pod is counted as bound, like any other.
"""

from collections import Counter, deque
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from controller.deciding.lifecycle import Entry
from controller.deciding.scheduler import Scheduler
from controller.reporting.answers import as_placed, coded, where
from core.errors import NodeInvariantError
from core.explaining.refusal import refusal_on
from core.model import NodeName, Pod
from core.placing.decide import decide
from core.placing.shape import Shape

DIFFERENCES_MAX: Final = 200


class Outcome(StrEnum):
    """How another scheduler's Binding compares with this controller's decision; also the words of the metric.

    SAME: the same node and cards. CARDS: the same node, other cards. NODE: another node. REFUSED: nowhere, or not yet.
    UNKNOWN: there is no comparison.
    """

    SAME = "same"
    CARDS = "other-cards"
    NODE = "other-node"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A pod that another scheduler placed differently: both placements, and the time (Unix seconds)."""

    pod: str
    outcome: Outcome
    at_s: float
    bound: dict[str, Any]
    instead: dict[str, Any]

    def told(self) -> dict[str, Any]:
        """Return it in the form of /v1/shadow."""
        at = datetime.fromtimestamp(self.at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {"pod": self.pod, "at": at, "outcome": self.outcome.value, "bound": self.bound, "instead": self.instead}


class Onlooker(Scheduler):
    """A scheduler that decides nothing, and records the decisions of others.

    Attributes:
        outcomes_seen: number of other schedulers' Bindings, by outcome.
        differences: the latest Bindings that were not the same, oldest first.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """See `Scheduler`."""
        super().__init__(*args, **kwargs)
        self.outcomes_seen: Final[Counter[Outcome]] = Counter()
        self.differences: Final[deque[Difference]] = deque(maxlen=DIFFERENCES_MAX)

    def pod_changed(self, pod: Pod) -> None:
        """Record that a pod was added or changed; see `Scheduler.pod_changed`."""
        entry = self.cluster.queue.get(pod.uid)
        if entry is None or not pod.node_name:
            super().pod_changed(pod)
            return
        instead = self._decided(entry, NodeName(pod.node_name))
        super().pod_changed(pod)
        if self.cluster.queue.get(pod.uid) is None:
            self._compare(pod, instead)

    def _decided(self, entry: Entry, node: NodeName) -> dict[str, Any] | None:
        """Return where the pod of *entry* would go now, or if nowhere, why not to *node*; None if unknown."""
        if entry.shape is None:
            return coded(entry.wait) if entry.wait is not None else None
        try:
            placement = decide(self.cluster.search.candidates, entry.pod, entry.shape)
        except NodeInvariantError:
            return None
        return where(self.cluster.ledger, placement) if placement is not None else self._refused(entry.shape, node)

    def _refused(self, shape: Shape, name: NodeName) -> dict[str, Any]:
        state = self.cluster.ledger.states.get(name)
        if state is None:
            return {"text": f"no node fits, and node {name} does not exist"}
        refusal = refusal_on(self.cluster.ledger, shape, state, self.cluster.search.policy.cards)
        why = (
            ": ".join(filter(None, (refusal.key, refusal.detail)))
            if refusal is not None
            else "constraints of other pods exclude it"
        )
        return {"text": f"no node fits; {name}: {why}"}

    def _compare(self, pod: Pod, instead: dict[str, Any] | None) -> None:
        bound = self._bound(pod)
        outcome = _outcome(bound, instead)
        self.outcomes_seen[outcome] += 1
        if outcome is Outcome.SAME:
            return
        told = instead if instead is not None else {"text": "the decision at that time is unknown"}
        self.differences.append(
            Difference(pod=pod.key, outcome=outcome, at_s=self.cluster.wall(), bound=bound, instead=told)
        )

    def _bound(self, pod: Pod) -> dict[str, Any]:
        """Return where *pod* is, as counted."""
        holding = self.cluster.ledger.holding(pod.uid)
        if holding is None or holding.dialect is None or holding.assignment is None:
            told = {"node": pod.node_name, "cards": []}
            return told | ({"text": holding.reason} if holding is not None and holding.reason else {})
        return where(self.cluster.ledger, as_placed(pod, holding))


def _outcome(bound: dict[str, Any], instead: dict[str, Any] | None) -> Outcome:
    if instead is None:
        return Outcome.UNKNOWN
    if "node" not in instead:
        return Outcome.REFUSED
    if bound["node"] != instead["node"]:
        return Outcome.NODE
    return Outcome.SAME if _cards(bound) == _cards(instead) else Outcome.CARDS


def _cards(told: dict[str, Any]) -> list[str]:
    return sorted(one["card"] for one in told["cards"])
