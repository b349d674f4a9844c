"""Device plugins whose own pods say that they do not run: nothing new goes to their node until they do.

Kubelet reports only with its next status, up to 10 s later, that a plugin is gone; whatever is bound meanwhile fails.
The plugin's pod says so within a second. A dialect names the accounts of its plugins' pods; if no such pod was seen on
a node, nothing follows from that. Kubelet has the last word: it offers devices only while their plugin answers, so what
it has not withdrawn after its longest silence can be had. But if a register outlasts its plugin, another plugin may
answer kubelet for those cards: such a node needs a pod of the plugin once any other node has one.
Source: Kubernetes, pkg/kubelet/cm/devicemanager and nodeStatusUpdateFrequency; protocol reference, hami 2.4, 7.2.
"""

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from core.catalog import Catalog
from core.model import NodeName, Pod, PodUid
from core.settings import DialectName

# Kubelet has withdrawn by then what a plugin that does not run had: its pod is not ready for another reason.
NOT_READY_S: Final = 60.0
# So long without any pod: it was not replaced, and kubelet has reported that it is gone.
GONE_S: Final = 15.0
# So long without any pod, while other nodes have one: the plugin is not to run there. A rollout takes less.
LEFT_S: Final = 60.0
_DAEMON_SET: Final = "DaemonSet/"
_ACCOUNT: Final = "system:serviceaccount:"
_NEVER: Final = float("inf")

_Key = tuple[NodeName, DialectName]


class _Away(NamedTuple):
    """until_s: kubelet is believed from then on. pod: namespace/name of one that is not ready, "" if it is gone."""

    until_s: float
    pod: str
    is_over: bool = False


def _nobody(_: NodeName) -> None:
    pass


class Plugins:
    """The device plugins of every node whose pods are seen.

    Attributes:
        left: the nodes that need a pod of their plugin and have none, while others have one.
    """

    def __init__(self, catalog: Catalog) -> None:
        # How the account is called, or how its name begins; whether that is the whole of it; and whose it is.
        self._accounts: Final = [
            (account.removesuffix("*"), not account.endswith("*"), one.name)
            for one in catalog.specs
            for account in one.plugin_accounts
        ]
        self._pods: Final[dict[_Key, dict[PodUid, Pod]]] = {}
        self._keys_of: Final[dict[PodUid, tuple[_Key, ...]]] = {}
        self._away: Final[dict[_Key, _Away]] = {}
        self._lasting: Final = frozenset([one.name for one in catalog.specs if one.deserted is not None])
        # Since when each node that needs a pod has none; never if it has one.
        self._without_s: Final[dict[_Key, float]] = {}
        self.left: set[_Key] = set()
        self._returned: Callable[[NodeName], None] = _nobody

    def tell(self, returned: Callable[[NodeName], None]) -> None:
        """Have *returned* called at once for a node whose plugin is back."""
        self._returned = returned

    # ------------------------------------------------------------------ what happens

    def seen(self, pod: Pod, now_s: float) -> bool:
        """*pod* is as it says; whether its node may take pods again by that."""
        if pod.finished:
            self.gone(pod.uid, now_s)
        elif pod.owner.startswith(_DAEMON_SET) and pod.uid not in self._keys_of and (keys := self._served_by(pod)):
            self._keys_of[pod.uid] = keys
        opens = False
        for key in self._keys_of.get(pod.uid, ()):
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
        """A pod does not exist any more, or has ended."""
        for key in self._keys_of.pop(uid, ()):
            del self._pods[key][uid]
            if self._pods[key]:
                self._judge(key, now_s)
            else:
                del self._pods[key]
                self._away[key] = _Away(now_s + GONE_S, "")
                if key in self._without_s and key not in self.left:
                    self._without_s[key] = now_s

    def _judge(self, key: _Key, now_s: float) -> bool:
        """One of several that run is enough: during an update there are two."""
        pods = self._pods[key].values()
        if any(one.ready and not one.deleting for one in pods):
            if key in self.left:
                self.left.remove(key)
                self._returned(key[0])
            return self._away.pop(key, None) is not None
        known = self._away.get(key)
        if known is None or not known.pod:
            self._away[key] = _Away(now_s + NOT_READY_S, next(iter(pods)).key)
        return False

    def forget(self, node: NodeName) -> None:
        """The node is gone; its pods go by themselves."""
        for key in [key for key in self._away if key[0] == node]:
            del self._away[key]
        for dialect in self._lasting:
            self._without_s.pop((node, dialect), None)
            self.left.discard((node, dialect))

    def needed(self, node: NodeName, dialects: Collection[DialectName], now_s: float) -> None:
        """*node* has cards of *dialects*: a plugin whose register lasts must be there too, from now on."""
        for key in ((node, one) for one in dialects if one in self._lasting):
            if key not in self._without_s:
                self._without_s[key] = _NEVER if key in self._pods else now_s

    def look(self, now_s: float) -> set[NodeName]:
        """Find anew which nodes have been left; those for which that has changed."""
        seen = {name for name in self._lasting if any(dialect == name for _, dialect in self._pods)}
        left = {key for key, since_s in self._without_s.items() if now_s >= since_s + LEFT_S and key[1] in seen}
        changed = left ^ self.left
        self.left = left
        return {node for node, _ in changed}

    # ------------------------------------------------------------------ asking

    def _known(self, node: NodeName, dialect: DialectName | None) -> _Away | None:
        if dialect is None or not self._away:
            return None  # nearly always, and asked for every node that is looked at
        known = self._away.get((node, dialect))
        return None if known is None or known.is_over else known

    def is_away(self, node: NodeName, dialect: DialectName | None) -> bool:
        """Whether *node* takes no pods of *dialect* now."""
        return self._known(node, dialect) is not None

    def left_s(self, node: NodeName, dialect: DialectName | None, now_s: float) -> float:
        """For how long it takes none at most."""
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
        """When kubelet is believed next, monotonic; infinite without any."""
        return min((one.until_s for one in self._away.values() if not one.is_over), default=_NEVER)

    def end(self, now_s: float) -> list[NodeName]:
        """The nodes of which kubelet is believed by now."""
        over = [key for key, one in self._away.items() if one.until_s <= now_s and not one.is_over]
        for key in over:
            if key in self._pods:
                self._away[key] = self._away[key]._replace(is_over=True)
            else:
                del self._away[key]
        return [node for node, _ in over]
