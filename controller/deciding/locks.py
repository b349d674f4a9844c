"""Which lock on a node a pod's Binding needs, and what is to be done with it.

Some device plugins are told by it whose turn it is; such a dialect answers for itself (`core.port.optional.Locking`).
Others ignore it, and it only keeps two schedulers apart: it is taken where the operator asks for it.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from controller.handing_over.handoff import HandOff
from core.catalog import Catalog
from core.hami_lock import RELEASING
from core.model import Node, NodeName, Pod
from core.port.handoff import LockStep, LockWait
from core.port.optional import Locking
from core.settings import DialectName, Settings
from core.tables import Tables

_EXPIRES_S: Final = 300


class TimeLock:
    """The lock of Volcano's scheduler: a node annotation that holds the time it was taken, and no owner.

    Which one is ours is known by what was written; after a restart it is another's until it expires.
    """

    def __init__(self, key: str) -> None:
        self._key: Final = key
        self._written: dict[NodeName, str] = {}

    def written(self, node: NodeName, step: LockStep) -> None:
        """*step* was written to *node*."""
        if step.value is None:
            self._written.pop(node, None)
        else:
            self._written[node] = step.value

    def lock_owner(self, node: Node) -> str:
        """It names nobody."""
        del node
        return ""

    @property
    def lock_key(self) -> str:
        """See `core.port.optional.Locking`."""
        return self._key

    def lock(
        self,
        node: Node,
        pods: Sequence[Pod],
        now_s: int,
        tables: Tables,
        wanted: Pod | None = None,
        *,
        seen_s: int | None = None,
        served: Sequence[Pod] = (),
        releasing: Sequence[Pod] = (),
    ) -> LockStep | LockWait | None:
        """See `core.port.optional.Locking`; one pod of ours at a time is in flight on a node."""
        del tables, served
        value = node.annotations.get(self._key)
        ours = value is not None and value == self._written.get(node.name)
        other = next((pod for pod in pods if wanted is None or pod.uid != wanted.uid), None)
        is_leaving = ours and bool(releasing)
        if wanted is None:
            return LockStep(key=self._key, value=None) if ours and other is None and not is_leaving else None
        if other is not None:
            return LockWait(reason="the device plugin is serving another pod")
        if is_leaving:
            return RELEASING
        # A time that is ahead of ours locks the node for no longer than from when it was first seen.
        taken_s = 0 if value is None or ours else min(_taken_s(value), now_s if seen_s is None else seen_s)
        if now_s - taken_s < _EXPIRES_S:
            reason = f"annotation {self._key} of the node is held by another scheduler"
            return LockWait(reason=reason, until_s=taken_s + _EXPIRES_S)
        time = datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return LockStep(key=self._key, value=time)


class Locks:
    """The locks that are in use under these settings."""

    def __init__(self, catalog: Catalog, settings: Settings, handoff: HandOff) -> None:
        self._catalog: Final = catalog
        self._handoff: Final = handoff
        self._timed: Final = {one.name: TimeLock(one.time_lock) for one in catalog.specs if one.time_lock}
        self._used: dict[DialectName, Locking] = {}
        self.configure(settings)

    def configure(self, settings: Settings) -> None:
        """Use those of *settings* from now on."""
        used: dict[DialectName, Locking] = {
            name: dialect for name, dialect in self._catalog.dialects.items() if isinstance(dialect, Locking)
        }
        if settings.node_lock:
            used |= self._timed
        self._used = used
        self._handoff.locking = frozenset(used)

    def of(self, name: DialectName) -> Locking | None:
        """The lock that pods of one dialect need, if any."""
        return self._used.get(name)

    def among(self, offered: Mapping[DialectName, object]) -> dict[DialectName, Locking]:
        """The dialects with a lock of those that a node offers."""
        return {name: lock for name, lock in self._used.items() if name in offered}

    def written(self, name: DialectName, node: NodeName, step: LockStep) -> None:
        """*step* was written to *node*."""
        timed = self._timed.get(name)
        if timed is not None:
            timed.written(node, step)


def _taken_s(text: str) -> int:
    """When the lock was taken, Unix seconds; 0 for what is no time, so that it has expired."""
    try:
        time = datetime.fromisoformat(text)
        return int(time.timestamp()) if time.tzinfo is not None else 0
    except (ValueError, OverflowError):
        return 0
