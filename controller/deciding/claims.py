"""Claims, volumes and what else the cluster says of storage; and which pods are judged anew once it says another thing.

A pod that has claims waits for those, for the volumes that they name and for their classes (`core.volumes.awaited`), in
whatever stage it is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from operator import attrgetter
from typing import Any, Final

from controller.deciding.lifecycle import Entry, Stage
from controller.deciding.pending import Pending
from controller.deciding.planner import Planner
from controller.deciding.prebind import PreBind
from controller.deciding.wake import Happening, storage_happening
from core.claims import Attachment, Claim, NodeDrivers, StorageKind, Volume
from core.storage import Storage
from core.store import Store
from core.volumes import Volumes
from core.waiting import Cause

_NAME: Final = attrgetter("name")


class Claims:
    """Takes what the mirror shows of storage; a chore, which lets those in who wait for it."""

    def __init__(self, planner: Planner, pending: Pending, prebind: PreBind) -> None:
        self._planner: Final = planner
        self._prebind: Final = prebind
        self._pending: Final = pending
        storage = self.storage
        self.stores: Final[Mapping[StorageKind, Store[Any]]] = {
            StorageKind.CLAIMS: Store(self._claim, self._claim_gone, storage.claims.values, lambda one: one.key),
            StorageKind.VOLUMES: Store(self._volume, self._volume_gone, storage.volumes.values, _NAME),
            StorageKind.CLASSES: Store(
                storage.set_class, lambda one: storage.remove_class(one.name), storage.classes.values, _NAME
            ),
            StorageKind.NODES: Store(
                self._set_limits,
                lambda one: self._set_limits(NodeDrivers(one.node, {})),
                lambda: [NodeDrivers(node, limits) for node, limits in storage.limits.items()],
                lambda one: one.node,
            ),
            StorageKind.DRIVERS: Store(
                storage.set_driver, lambda one: storage.remove_driver(one.name), storage.drivers.values, _NAME
            ),
            StorageKind.ATTACHMENTS: Store(self._attached, self._detached, storage.attachments.values, _NAME),
            StorageKind.CAPACITIES: Store(
                storage.set_capacity,
                storage.remove_capacity,
                lambda: [one for there in storage.capacities.values() for one in there.values()],
                lambda one: one.key,
            ),
        }

    @property
    def _volumes(self) -> Volumes:
        return self._planner.ledger.topology.volumes

    @property
    def storage(self) -> Storage:
        """What is known."""
        return self._volumes.storage

    # ------------------------------------------------------------------ what is there

    def replaced(self, kind: StorageKind, objects: Sequence[Any]) -> Iterator[None]:
        """These of *kind*, and no others, exist. Yields where others may have their turn."""
        yield from self.stores[kind].replaced(objects)
        if kind in self.storage.unread:
            del self.storage.unread[kind]
            if not self.storage.unread:
                self.storage.changed[StorageKind.CLAIMS, ""] = None

    def _claim(self, claim: Claim) -> None:
        if self.storage.set_claim(claim):
            self._volumes.touch_claim(claim.key)

    def _claim_gone(self, claim: Claim) -> None:
        self.storage.remove_claim(claim.key)
        self._volumes.touch_claim(claim.key)

    def _volume(self, volume: Volume) -> None:
        self.storage.set_volume(volume)
        self._volumes.touch_volume(volume.name)

    def _volume_gone(self, volume: Volume) -> None:
        self._volumes.touch_volume(volume.name)
        self.storage.remove_volume(volume.name)

    def _attached(self, found: Attachment) -> None:
        self._volumes.set_attachment(found)

    def _detached(self, found: Attachment) -> None:
        self._volumes.remove_attachment(found)

    def _set_limits(self, found: NodeDrivers) -> None:
        self._volumes.set_limits(found)

    # ------------------------------------------------------------------ who waits for it

    def next_s(self) -> float:
        """At once, if anything changed."""
        return -inf if self.storage.changed or self._volumes.freed else inf

    def look(self, now_s: float) -> None:
        """Judge those anew who wait for what changed."""
        changed, freed = list(self.storage.changed), list(self._volumes.freed)
        self.storage.changed.clear()
        self._volumes.freed.clear()
        for kind, name in changed:
            self._let_in(storage_happening(kind, name), lambda _: True)
        for name in freed:
            self._let_in(storage_happening(StorageKind.CLAIMS, name), _waits_for_another)

    def _let_in(self, happening: Happening, concerns: Callable[[Entry], bool]) -> None:
        life = self._planner.life
        for uid in self._planner.wakes.waiting(happening):
            entry = life.get(uid)
            if entry is None or not concerns(entry):
                continue
            match entry.stage:
                case Stage.READY | Stage.REFUSED | Stage.HELD:
                    self._pending.read(entry)
                case Stage.TURN:
                    self._pending.reconsider(entry, entry.pod)
                case Stage.RESTING:
                    life.asks(entry, None, entry.wait)  # it is read when it has rested
                case Stage.PREPARING:
                    self._prebind.look_at(entry)
                case _:
                    pass  # what was sent for it is settled first, and then it is read


def _waits_for_another(entry: Entry) -> bool:
    return entry.wait is not None and entry.wait.cause is Cause.CLAIM_IN_USE
