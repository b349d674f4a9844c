"""Claims, volumes and what else the cluster says of storage; and which pods are judged anew once it says another thing.

A pod that has claims waits for those, for the volumes that they name and for their classes (`core.volumes.awaited`), in
whatever stage it is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, Final, NamedTuple

from controller.deciding.lifecycle import Entry, Stage
from controller.deciding.pending import Pending
from controller.deciding.planner import Planner
from controller.deciding.prebind import PreBind
from controller.deciding.wake import Happening, storage_happening
from core.claims import Attachment, Claim, NodeDrivers, StorageKind, Volume
from core.storage import Storage
from core.volumes import Volumes
from core.waiting import Cause

_SLICE: Final = 512


class Follow(NamedTuple):
    """How one kind is taken: as it appeared or changed, or gone; and which are known, by what they are called."""

    put: Callable[[Any], object]
    drop: Callable[[Any], object]
    known: Callable[[], Mapping[Any, Any]]
    name: Callable[[Any], Any]


class Claims:
    """Takes what the mirror shows of storage; a chore, which lets those in who wait for it."""

    def __init__(self, planner: Planner, pending: Pending, prebind: PreBind) -> None:
        self._planner: Final = planner
        self._prebind: Final = prebind
        self._pending: Final = pending
        storage = self.storage
        self.kinds: Final[Mapping[StorageKind, Follow]] = {
            StorageKind.CLAIMS: Follow(
                put=self._claim, drop=self._claim_gone, known=lambda: storage.claims, name=lambda one: one.key
            ),
            StorageKind.VOLUMES: Follow(
                put=self._volume, drop=self._volume_gone, known=lambda: storage.volumes, name=lambda one: one.name
            ),
            StorageKind.CLASSES: Follow(
                put=storage.set_class,
                drop=lambda one: storage.remove_class(one.name),
                known=lambda: storage.classes,
                name=lambda one: one.name,
            ),
            StorageKind.NODES: Follow(
                put=self._set_limits,
                drop=lambda one: self._set_limits(NodeDrivers(one.node, {})),
                known=lambda: {node: NodeDrivers(node, limits) for node, limits in storage.limits.items()},
                name=lambda one: one.node,
            ),
            StorageKind.DRIVERS: Follow(
                put=storage.set_driver,
                drop=lambda one: storage.remove_driver(one.name),
                known=lambda: storage.drivers,
                name=lambda one: one.name,
            ),
            StorageKind.ATTACHMENTS: Follow(
                put=self._attached,
                drop=self._detached,
                known=lambda: storage.attachments,
                name=lambda one: one.name,
            ),
            StorageKind.CAPACITIES: Follow(
                put=storage.set_capacity,
                drop=storage.remove_capacity,
                known=lambda: {key: one for there in storage.capacities.values() for key, one in there.items()},
                name=lambda one: one.key,
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
        follow = self.kinds[kind]
        for at, one in enumerate(objects, start=1):
            follow.put(one)
            if at % _SLICE == 0:
                yield
        there = {follow.name(one) for one in objects}
        for name, one in list(follow.known().items()):
            if name not in there:
                follow.drop(one)
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
