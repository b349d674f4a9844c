"""Nodes that get no pods of a protocol for now: they rejected a pod, or the pod of their device plugin is missing.

`NodeCooldown` lets them rest, and `Plugins` watches the pods of device plugins. Pods without cards still go there.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import Final, NamedTuple

from controller.handing_over.collision import CollisionKey, Taken
from core.catalog import Catalog
from core.model import NodeName, Pod, PodUid
from core.settings import DialectName

FIRST_S: Final = 5.0
LAST_S: Final = 300.0
# Without another cause for this long, earlier causes no longer count.
FORGOTTEN_S: Final = 600.0
# After this many failures in a row of one owner's pods on a node, its next pods avoid that node if another one fits.
STEERED_AT: Final = 3
_TOLD_MAX: Final = 256
# No scheduler knows how kubelet's topology manager has divided CPUs and devices. It judges a pod by what the pod asks
# for, and calls no plugin: another pod that asks for the same would fail there, too; one that asks for less may not.
_TOPOLOGY: Final = "TopologyAffinityError"
# A node whose topology manager has rejected pods of this many kinds takes none.
_KINDS_MAX: Final = 16
_REJECTIONS: Final = ("UnexpectedAdmissionError", _TOPOLOGY)
# By then, kubelet has withdrawn the devices of a dead plugin; if not, the pod is unready for another reason.
NOT_READY_S: Final = 60.0
# The same for a plugin without any pod.
GONE_S: Final = 15.0
# A node without a pod for this long, while others have one, is no longer meant to run the plugin; a rollout takes less.
LEFT_S: Final = 60.0
# How the owner of a device plugin's pod begins.
DAEMON_SET: Final = "DaemonSet/"
_ACCOUNT: Final = "system:serviceaccount:"
_NEVER: Final = float("inf")

_Key = tuple[NodeName, DialectName]
# A node rests only for pods that take these amounts of it; `_WHATEVER`: for all of the dialect.
_RestKey = tuple[NodeName, DialectName, Taken]
_WHATEVER: Final[Taken] = frozenset()


class RestCause(StrEnum):
    """Why a node rests."""

    FAILED = "failed"
    RETURNED = "returned"


@dataclass(slots=True)
class _Rest:
    """times: causes in a row. words: kubelet's message. over: whether its end was reported."""

    cause: RestCause
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
    """The nodes that rest, by dialect, and the nodes that an owner's pods avoid.

    A node with a dead plugin would attract pods: nothing is in use there, so it looks best, and kubelet advertises the
    plugin's devices for up to 10 s. Every replacement of a failed pod would be bound there and fail, too. So a node
    rests for a dialect after its kubelet has rejected a pod of it; if that was the topology manager, it rests for pods
    that take the same. It also rests when cards return that were missing or unhealthy: then the plugin has restarted,
    and kubelet may get some of its device lists later. Repeated failures lengthen the rest, and so does a node whose
    cards all come and go. `controller.handing_over.registers.Flaps` handles single cards.
    Source: protocol reference, nvidia 1.3, 4.3, 5.2 (P16); Kubernetes, pkg/kubelet/cm/devicemanager and
    pkg/kubelet/cm/topologymanager.

    Attributes:
        rests: the nodes that rest, and those that rested lately, by dialect and by what pods take.
        rows: (namespace, owner) -> node -> failures in a row.
    """

    def __init__(self) -> None:
        self.rests: Final[dict[_RestKey, _Rest]] = {}
        self.rows: Final[dict[tuple[str, str], dict[NodeName, _Row]]] = {}

    # ------------------------------------------------------------------ what happens

    def failed(self, pod: Pod, dialect: DialectName, taken: Taken, now_s: float) -> float:
        """Let a node rest because its kubelet rejected *pod*; return for how long, 0 if it rests already.

        taken: what *pod* has taken of the node.
        """
        node = NodeName(pod.node_name)
        kinds = sum(key[:2] == (node, dialect) for key in self.rests)
        if not is_by_topology(pod) or (kinds >= _KINDS_MAX and (node, dialect, taken) not in self.rests):
            taken = _WHATEVER
        if pod.owner:
            rows = self.rows.setdefault((pod.namespace, pod.owner), {})
            row = rows.setdefault(node, _Row(0, now_s, ""))
            row.times, row.last_s, row.words = row.times + 1, now_s, pod.status_message[:_TOLD_MAX]
        return self._rest((node, dialect, taken), RestCause.FAILED, pod.status_message[:_TOLD_MAX], now_s)

    def returned(self, node: NodeName, dialect: DialectName, now_s: float, *, longer: bool) -> float:
        """Let a node rest because cards have returned; return for how long, 0 if it rests already.

        longer: whether each repetition lengthens the rest.
        """
        return self._rest((node, dialect, _WHATEVER), RestCause.RETURNED, "", now_s, longer=longer)

    def _rest(self, key: _RestKey, cause: RestCause, told: str, now_s: float, *, longer: bool = True) -> float:
        known = self.rests.get(key)
        if known is not None and now_s < known.until_s:
            return 0.0
        times = known.times if known is not None and now_s < known.until_s + FORGOTTEN_S else 0
        times = max(times + longer, 1)
        rest_s = float(min(FIRST_S * 2.0 ** min(times - 1, 30), LAST_S))
        self.rests[key] = _Rest(cause, now_s + rest_s, times, told)
        return rest_s

    def served(self, pod: Pod, dialect: DialectName, taken: Taken, now_s: float) -> None:
        """Forget earlier failures, because *pod*, which takes *taken* of its node, has started there after the rest."""
        node = NodeName(pod.node_name)
        for key in ((node, dialect, _WHATEVER), (node, dialect, taken)):
            known = self.rests.get(key)
            if known is not None and known.cause is RestCause.FAILED and known.over and now_s >= known.until_s:
                del self.rests[key]
        if pod.owner and (rows := self.rows.get((pod.namespace, pod.owner))) is not None:
            rows.pop(node, None)
            if not rows:
                del self.rows[pod.namespace, pod.owner]

    def forget(self, node: NodeName) -> None:
        """The node is gone."""
        for key in [key for key in self.rests if key[0] == node]:
            del self.rests[key]
        for owner, rows in list(self.rows.items()):
            rows.pop(node, None)
            if not rows:
                del self.rows[owner]

    # ------------------------------------------------------------------ asking

    def _known(self, node: NodeName, keys: CollisionKey) -> _Rest | None:
        """Return the longer one of the rests that keep pods with *keys* from *node*; those without cards are taken."""
        if keys.dialect is None or not self.rests:
            return None
        found = (self.rests.get((node, keys.dialect, taken)) for taken in (_WHATEVER, keys.taken))
        resting = [one for one in found if one is not None and not one.over]
        return max(resting, key=attrgetter("until_s"), default=None)

    def left_s(self, node: NodeName, keys: CollisionKey, now_s: float) -> float:
        """Return for how long it still rests."""
        known = self._known(node, keys)
        return 0.0 if known is None else max(known.until_s - now_s, 0.0)

    def why(self, node: NodeName, keys: CollisionKey, *, in_full: bool = False) -> str:
        """Why *node* rests, for people; *in_full*: with kubelet's own words on somebody's pod; "" if it does not."""
        known = self._known(node, keys)
        if known is None:
            return ""
        if known.cause is RestCause.RETURNED:
            return "its device plugin has just restarted"
        again = f", {known.times} times in a row" if known.times > 1 else ""
        return f"its kubelet rejected a pod{again}" + (f": {known.words}" if in_full and known.words else "")

    def avoided(self, pod: Pod) -> frozenset[NodeName]:
        """Return the nodes that rejected `STEERED_AT` pods of *pod*'s owner in a row."""
        if not pod.owner:
            return frozenset()
        rows = self.rows.get((pod.namespace, pod.owner), {})
        return frozenset(node for node, row in rows.items() if row.times >= STEERED_AT)

    def avoidances(self) -> Iterator[tuple[str, str, NodeName, int, str]]:
        """Every avoidance: namespace, owner, node, failures in a row, and what kubelet last said."""
        for (namespace, owner), rows in self.rows.items():
            for node, row in rows.items():
                if row.times >= STEERED_AT:
                    yield namespace, owner, node, row.times, row.words

    def resting(self, dialect: DialectName) -> list[NodeName]:
        """The nodes that rest for some pods of *dialect*."""
        found = (node for (node, name, _), rest in self.rests.items() if name is dialect and not rest.over)
        return list(dict.fromkeys(found))

    # ------------------------------------------------------------------ time

    def next_s(self) -> float:
        """Return when the next rest ends or the next failures are forgotten, monotonic; infinite if never."""
        if not (self.rests or self.rows):
            return _NEVER  # nearly always, and asked twice in every turn of the loop
        rests = (rest.until_s + (FORGOTTEN_S if rest.over else 0.0) for rest in self.rests.values())
        rows = (row.last_s + FORGOTTEN_S for rows in self.rows.values() for row in rows.values())
        return min(*rests, *rows, _NEVER, _NEVER)

    def end(self, now_s: float) -> list[NodeName]:
        """Return the nodes whose rest has ended since the last call; forget old failures."""
        ended: list[NodeName] = []
        for key, rest in list(self.rests.items()):
            if now_s >= rest.until_s and not rest.over:
                rest.over = True
                ended.append(key[0])
            elif now_s >= rest.until_s + FORGOTTEN_S:
                del self.rests[key]
        for owner, rows in list(self.rows.items()):
            for node in [node for node, row in rows.items() if now_s >= row.last_s + FORGOTTEN_S]:
                del rows[node]
            if not rows:
                del self.rows[owner]
        return ended


def turned_away(pod: Pod, resources: frozenset[str]) -> bool:
    """Return whether kubelet rejected *pod*, which has failed, because it lacked devices, or those of one NUMA node.

    Source: Kubernetes, pkg/kubelet/lifecycle: ``UnexpectedAdmissionError`` of a device plugin or its manager, and
    ``OutOf<resource>`` where the node has too little; pkg/kubelet/cm/topologymanager: ``TopologyAffinityError``.
    """
    return pod.status_reason in _REJECTIONS or pod.status_reason.removeprefix("OutOf") in resources


def is_by_topology(pod: Pod) -> bool:
    """Return whether kubelet's topology manager rejected *pod*, for which no device plugin was asked."""
    return pod.status_reason == _TOPOLOGY


def remedy_of(pod: Pod) -> str:
    """Return what to do after kubelet rejected *pod*; the topology manager decides without the device plugin."""
    if is_by_topology(pod):
        return "ask for fewer CPUs or cards for each pod, or relax topologyManagerPolicy of the node's kubelet"
    return "see the device plugin's log"


class _Away(NamedTuple):
    """until_s: from then on kubelet is trusted. pod: namespace/name of the unready pod, "" if it is gone."""

    until_s: float
    pod: str
    is_over: bool = False


class Plugins:
    """Device plugins whose pods are not ready or gone: their nodes get no new pods of these dialects until they run.

    Kubelet reports that a plugin is gone only in its next status, up to 10 s later, and pods that are bound meanwhile
    fail. The plugin's pod shows it within a second. A dialect names the service accounts of its plugins' pods; a node
    on which no such pod was ever seen is not affected. Kubelet decides in the end: it advertises devices only while
    their plugin answers, so devices that it still advertises after the times above can be used. But if a register
    outlasts its plugin, another plugin may serve those cards to kubelet. Such a node needs a pod of the plugin, once
    another node has one.
    Source: Kubernetes, pkg/kubelet/cm/devicemanager and nodeStatusUpdateFrequency; protocol reference, hami 2.4, 7.2.

    Attributes:
        away: nodes without a ready pod of their plugin, by dialect.
        keys_of: what each known pod of a plugin serves; its DaemonSet may have left it since.
        left: the nodes that need a pod of their plugin and have none, while others have one.
        returned: the nodes that were left and whose plugin is back; the reader takes them out.
    """

    def __init__(self, catalog: Catalog) -> None:
        # How the account is called, or how its name begins; whether that is the whole of it; and whose it is.
        self._accounts: Final = [
            (account.removesuffix("*"), not account.endswith("*"), one.name)
            for one in catalog.specs
            for account in one.plugin_accounts
        ]
        self._pods: Final[dict[_Key, dict[PodUid, Pod]]] = {}
        self.keys_of: Final[dict[PodUid, tuple[_Key, ...]]] = {}
        self.away: Final[dict[_Key, _Away]] = {}
        self._lasting: Final = frozenset([one.name for one in catalog.specs if one.deserted is not None])
        # Since when each node that needs a pod has none; never if it has one.
        self._without_s: Final[dict[_Key, float]] = {}
        self.left: set[_Key] = set()
        self.returned: Final[dict[NodeName, None]] = {}

    # ------------------------------------------------------------------ what happens

    def seen(self, pod: Pod, now_s: float) -> bool:
        """Take the state of *pod*, which a DaemonSet has or had; return whether its node may get pods again by it."""
        if pod.finished:
            self.gone(pod.uid, now_s)
        elif pod.uid not in self.keys_of and (keys := self._served_by(pod)):
            self.keys_of[pod.uid] = keys
        opens = False
        for key in self.keys_of.get(pod.uid, ()):
            self._pods.setdefault(key, {})[pod.uid] = pod
            opens |= self._judge(key, now_s)
            if key in self._without_s and key not in self.left:
                self._without_s[key] = _NEVER
        return opens

    def _served_by(self, pod: Pod) -> tuple[_Key, ...]:
        node, account = NodeName(pod.node_name), f"{_ACCOUNT}{pod.namespace}:{pod.service_account}"
        return tuple(
            [
                (node, dialect)
                for name, is_whole, dialect in self._accounts
                if node and (account == name or (not is_whole and account.startswith(name)))
            ]
        )

    def gone(self, uid: PodUid, now_s: float) -> None:
        """Forget a pod that ended or was deleted."""
        for key in self.keys_of.pop(uid, ()):
            del self._pods[key][uid]
            if self._pods[key]:
                self._judge(key, now_s)
            else:
                del self._pods[key]
                self.away[key] = _Away(now_s + GONE_S, "")
                if key in self._without_s and key not in self.left:
                    self._without_s[key] = now_s

    def _judge(self, key: _Key, now_s: float) -> bool:
        """One of several that run is enough: during an update there are two."""
        pods = self._pods[key].values()
        if any(one.ready and not one.deleting for one in pods):
            if key in self.left:
                self.left.remove(key)
                self.returned[key[0]] = None
            return self.away.pop(key, None) is not None
        known = self.away.get(key)
        if known is None or not known.pod:
            self.away[key] = _Away(now_s + NOT_READY_S, next(iter(pods)).key)
        return False

    def forget(self, node: NodeName) -> None:
        """The node is gone; its pods go by themselves."""
        for key in [key for key in self.away if key[0] == node]:
            del self.away[key]
        for dialect in self._lasting:
            self._without_s.pop((node, dialect), None)
            self.left.discard((node, dialect))

    def needed(self, node: NodeName, dialects: Collection[DialectName], now_s: float) -> None:
        """*node* has cards of *dialects*: a plugin whose register lasts must be there too, from now on."""
        for key in ((node, one) for one in dialects if one in self._lasting):
            if key not in self._without_s:
                self._without_s[key] = _NEVER if key in self._pods else now_s

    def look(self, now_s: float) -> set[NodeName]:
        """Find which nodes lack their plugin now; return the nodes for which that has changed."""
        seen = {name for name in self._lasting if any(dialect == name for _, dialect in self._pods)}
        left = {key for key, since_s in self._without_s.items() if now_s >= since_s + LEFT_S and key[1] in seen}
        changed = left ^ self.left
        self.left = left
        return {node for node, _ in changed}

    # ------------------------------------------------------------------ asking

    def _known(self, node: NodeName, dialect: DialectName | None) -> _Away | None:
        if dialect is None:
            return None
        known = self.away.get((node, dialect))
        return None if known is None or known.is_over else known

    def left_s(self, node: NodeName, dialect: DialectName | None, now_s: float) -> float:
        """Return for how long at most it takes none."""
        known = self._known(node, dialect)
        return 0.0 if known is None else max(known.until_s - now_s, 0.0)

    def unserved(self, node: NodeName) -> frozenset[str]:
        """The dialects whose plugins have left *node*."""
        return frozenset([one for one in self._lasting if (node, one) in self.left])

    def why(self, node: NodeName, dialect: DialectName | None) -> str:
        """Why it takes none, for people; "" if it does."""
        known = self._known(node, dialect)
        if known is None:
            return ""
        return f"its device plugin's pod {known.pod} is not ready" if known.pod else "its device plugin's pod is gone"

    # ------------------------------------------------------------------ time

    def next_s(self) -> float:
        """Return when kubelet is trusted on the next node, monotonic; infinite if there is none."""
        return min((one.until_s for one in self.away.values() if not one.is_over), default=_NEVER)

    def end(self, now_s: float) -> list[NodeName]:
        """Return the nodes where kubelet is trusted by now."""
        over = [key for key, one in self.away.items() if one.until_s <= now_s and not one.is_over]
        for key in over:
            if key in self._pods:
                self.away[key] = self.away[key]._replace(is_over=True)
            else:
                del self.away[key]
        return [node for node, _ in over]
