"""Nodes that turned pods away, or whose device plugin has just come back: they rest, longer each time.

A dead plugin makes its node a black hole: nothing is in use there, so that it looks best, and kubelet tells for up to
10 s what the plugin had. Every replacement would be bound there and fail. So a node rests, for the protocol at hand,
after kubelet has turned away a pod of it. It does so, too, when cards come back that were not there or were unhealthy:
a restart of the plugin is behind that, and of its lists of devices some reach kubelet later. What fails again and again
rests longer each time, and so does a node of which all cards come and go. One card that does: `flaps`.
Source: protocol reference, nvidia 1.3, 4.3, 5.2 (P16); Kubernetes, pkg/kubelet/cm/devicemanager.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from core.model import NodeName, Phase, Pod
from core.settings import DialectName

FIRST_S: Final = 5.0
LAST_S: Final = 300.0
# After so long without another cause, what was before it counts no more.
FORGOTTEN_S: Final = 600.0
# So many failures of one owner's pods in a row on a node, and its next ones go elsewhere, if anything else fits them.
STEERED_AT: Final = 3
_TOLD_MAX: Final = 256
_NEVER: Final = float("inf")


class Cause(StrEnum):
    """Why a node rests."""

    FAILED = "failed"
    RETURNED = "returned"


@dataclass(slots=True)
class _Rest:
    """times: in a row. words: what kubelet said. over: whether its end was noted."""

    cause: Cause
    until_s: float
    times: int
    words: str = ""
    over: bool = False


@dataclass(slots=True)
class _Row:
    """Failures of one owner's pods in a row on one node."""

    times: int
    last_s: float
    words: str


class NodeCooldown:
    """Which nodes rest, by protocol, and which an owner's pods had better avoid."""

    def __init__(self) -> None:
        self._rests: Final[dict[tuple[NodeName, DialectName], _Rest]] = {}
        # (namespace, owner) -> node -> failures in a row.
        self._rows: Final[dict[tuple[str, str], dict[NodeName, _Row]]] = {}

    # ------------------------------------------------------------------ what happens

    def failed(self, pod: Pod, dialect: DialectName, now_s: float) -> float:
        """Kubelet has turned *pod* away: for how long its node rests now; 0 where it rests already."""
        node = NodeName(pod.node_name)
        if pod.owner:
            rows = self._rows.setdefault((pod.namespace, pod.owner), {})
            row = rows.setdefault(node, _Row(0, now_s, ""))
            row.times, row.last_s, row.words = row.times + 1, now_s, pod.status_message[:_TOLD_MAX]
        return self._rest((node, dialect), Cause.FAILED, pod.status_message[:_TOLD_MAX], now_s)

    def returned(self, node: NodeName, dialect: DialectName, now_s: float, *, longer: bool) -> float:
        """Cards are back that were missing or unhealthy: how long their node rests now; 0 where it rests already.

        longer: each time.
        """
        return self._rest((node, dialect), Cause.RETURNED, "", now_s, longer=longer)

    def _rest(
        self, key: tuple[NodeName, DialectName], cause: Cause, told: str, now_s: float, *, longer: bool = True
    ) -> float:
        known = self._rests.get(key)
        if known is not None and now_s < known.until_s:
            return 0.0
        times = known.times if known is not None and now_s < known.until_s + FORGOTTEN_S else 0
        times = max(times + longer, 1)
        rest_s = float(min(FIRST_S * 2.0 ** min(times - 1, 30), LAST_S))
        self._rests[key] = _Rest(cause, now_s + rest_s, times, told)
        return rest_s

    def served(self, pod: Pod, dialect: DialectName, now_s: float) -> None:
        """*pod* has its devices: its node serves again, where that is not from before the rest."""
        node = NodeName(pod.node_name)
        known = self._rests.get((node, dialect))
        if known is not None and known.cause is Cause.FAILED and known.over and now_s >= known.until_s:
            del self._rests[node, dialect]
        if pod.owner and (rows := self._rows.get((pod.namespace, pod.owner))) is not None:
            rows.pop(node, None)
            if not rows:
                del self._rows[pod.namespace, pod.owner]

    def forget(self, node: NodeName) -> None:
        """The node is gone."""
        for key in [key for key in self._rests if key[0] == node]:
            del self._rests[key]
        for owner, rows in list(self._rows.items()):
            rows.pop(node, None)
            if not rows:
                del self._rows[owner]

    # ------------------------------------------------------------------ asking

    def is_resting(self, node: NodeName, dialect: DialectName | None) -> bool:
        """Whether *node* takes no new pods of *dialect* now; those without cards are taken."""
        known = self._known(node, dialect)
        return known is not None and not known.over

    def _known(self, node: NodeName, dialect: DialectName | None) -> _Rest | None:
        return self._rests.get((node, dialect)) if dialect is not None else None

    def left_s(self, node: NodeName, dialect: DialectName | None, now_s: float) -> float:
        """For how long it still rests."""
        known = self._known(node, dialect)
        return 0.0 if known is None or known.over else max(known.until_s - now_s, 0.0)

    def why(self, node: NodeName, dialect: DialectName | None, *, in_full: bool = False) -> str:
        """Why *node* rests, for people; *in_full*: with kubelet's own words on somebody's pod; "" if it does not."""
        known = self._known(node, dialect)
        if known is None or known.over:
            return ""
        if known.cause is Cause.RETURNED:
            return "its device plugin has just restarted"
        again = f", {known.times} times in a row" if known.times > 1 else ""
        return f"its kubelet rejected a pod{again}" + (f": {known.words}" if in_full and known.words else "")

    def avoided(self, pod: Pod) -> frozenset[NodeName]:
        """The nodes that turned away so many pods of *pod*'s owner in a row that it had better go elsewhere."""
        if not self._rows or not pod.owner:
            return frozenset()
        rows = self._rows.get((pod.namespace, pod.owner), {})
        return frozenset(node for node, row in rows.items() if row.times >= STEERED_AT)

    def avoidances(self) -> Iterator[tuple[str, str, NodeName, int, str]]:
        """Every avoidance: namespace, owner, node, failures in a row, and what kubelet last said."""
        for (namespace, owner), rows in self._rows.items():
            for node, row in rows.items():
                if row.times >= STEERED_AT:
                    yield namespace, owner, node, row.times, row.words

    def resting(self, dialect: DialectName) -> list[NodeName]:
        """The nodes that rest for *dialect*."""
        return [node for (node, name), rest in self._rests.items() if name is dialect and not rest.over]

    # ------------------------------------------------------------------ time

    def next_s(self) -> float:
        """When the next rest ends, or row is forgotten, monotonic; infinite without any."""
        if not (self._rests or self._rows):
            return _NEVER  # nearly always, and asked twice in every turn of the loop
        rests = (rest.until_s + (FORGOTTEN_S if rest.over else 0.0) for rest in self._rests.values())
        rows = (row.last_s + FORGOTTEN_S for rows in self._rows.values() for row in rows.values())
        return min(*rests, *rows, _NEVER, _NEVER)

    def end(self, now_s: float) -> list[NodeName]:
        """The nodes of which a rest has ended since this was last asked; what is long past is forgotten."""
        ended: list[NodeName] = []
        for key, rest in list(self._rests.items()):
            if now_s >= rest.until_s and not rest.over:
                rest.over = True
                ended.append(key[0])
            elif now_s >= rest.until_s + FORGOTTEN_S:
                del self._rests[key]
        for owner, rows in list(self._rows.items()):
            for node in [node for node, row in rows.items() if now_s >= row.last_s + FORGOTTEN_S]:
                del rows[node]
            if not rows:
                del self._rows[owner]
        return ended


def turned_away(pod: Pod, resources: frozenset[str]) -> bool:
    """Whether kubelet refused to admit *pod* for want of its devices.

    Source: Kubernetes, pkg/kubelet/lifecycle: ``UnexpectedAdmissionError`` of a device plugin or its manager, and
    ``OutOf<resource>`` where the node has too little.
    """
    if pod.phase is not Phase.FAILED:
        return False
    reason = pod.status_reason
    return reason == "UnexpectedAdmissionError" or reason.removeprefix("OutOf") in resources
