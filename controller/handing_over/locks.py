"""The locks of nodes that Bindings need: those of device plugins, and that of Volcano's scheduler."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from controller.handing_over.handoff import HandOff
from core.catalog import Catalog
from core.hami_lock import RELEASING
from core.model import Node, NodeName
from core.port.handoff import LockQuestion, LockStep, LockWait, NodeLock
from core.settings import DialectName, Settings
from core.units import time_text


class TimeLock:
    """The lock of Volcano's scheduler: a node annotation with the time at which it was taken, and without an owner.

    This process recognizes its own locks by the value that it wrote. After a restart it waits until they expire.
    """

    def __init__(self, key: str) -> None:
        self.lock_key: Final = key
        self._written: dict[NodeName, str] = {}

    def written(self, node: NodeName, step: LockStep) -> None:
        """*step* was written to *node*."""
        if step.value is None:
            self._written.pop(node, None)
        else:
            self._written[node] = step.value

    def lock_owner(self, node: Node) -> str:
        """Return "", because the lock names no pod."""
        del node
        return ""

    def lock(self, node: Node, asked: LockQuestion) -> LockStep | LockWait | None:
        """See `core.port.handoff.NodeLock`; cardshare has one pod at a time in flight on a node."""
        wanted, now_s = asked.wanted, asked.now_s
        value = node.annotations.get(self.lock_key)
        ours = value is not None and value == self._written.get(node.name)
        other = next((pod for pod in asked.pods if wanted is None or pod.uid != wanted.uid), None)
        is_leaving = ours and bool(asked.releasing)
        if wanted is None:
            return LockStep(key=self.lock_key, value=None) if ours and other is None and not is_leaving else None
        if other is not None:
            return LockWait(reason="the device plugin is serving another pod")
        if is_leaving:
            return RELEASING
        until_s = 0 if value is None or ours else asked.until_s(_taken_s(value))
        if now_s < until_s:
            reason = f"annotation {self.lock_key} of the node is held by another scheduler"
            return LockWait(reason=reason, until_s=until_s)
        return LockStep(key=self.lock_key, value=time_text(now_s))


class Locks:
    """The locks that Bindings need under the settings in force.

    Attributes:
        used: the locks by dialect.
    """

    def __init__(self, catalog: Catalog, settings: Settings, handoff: HandOff) -> None:
        self._catalog: Final = catalog
        self._handoff: Final = handoff
        self._timed: Final = {one.name: TimeLock(one.time_lock) for one in catalog.specs if one.time_lock}
        self.used: dict[DialectName, NodeLock] = {}
        self.configure(settings)

    def configure(self, settings: Settings) -> None:
        """Use the locks of *settings*."""
        used: dict[DialectName, NodeLock] = {
            one.name: one.node_lock for one in self._catalog.specs if one.node_lock is not None
        }
        if settings.node_lock:
            used |= self._timed
        self.used = used
        self._handoff.lock_for(frozenset(used))

    def among(self, offered: Mapping[DialectName, object]) -> dict[DialectName, NodeLock]:
        """Return the locks of the dialects that a node offers."""
        return {name: lock for name, lock in self.used.items() if name in offered}

    def written(self, name: DialectName, node: NodeName, step: LockStep) -> None:
        """*step* was written to *node*."""
        timed = self._timed.get(name)
        if timed is not None:
            timed.written(node, step)


def _taken_s(text: str) -> int:
    """Return when the lock was taken, Unix seconds; 0, long expired, for an unreadable time."""
    try:
        time = datetime.fromisoformat(text)
        return int(time.timestamp()) if time.tzinfo is not None else 0
    except (ValueError, OverflowError):
        return 0
