"""Pre-bind: volume claims that wait for a node are bound on the pod's node before its Binding.

For a claim whose class has `WaitForFirstConsumer`, either the node is written to the claim (an annotation) and its
provisioner creates the volume, or an existing volume is reserved for it and Kubernetes' volume controller binds the
two. Each write names the version that was seen. The pod keeps its place meanwhile, for `volume_wait_max_s` at most.
After that, or if the provisioner gives up, the node is removed from the claim and the pod is decided again. The device
plugin sees the pod only with its Binding.

All state is in the API. After a start, the process finds claims with a node; it continues from there, or removes the
node if the pod no longer fits there.

`Claims` follows claims, volumes and classes. When one changes, the pods that depend on it
(`core.constraints.volumes.awaited`) are read again, whatever their stage.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from typing import Any, Final

from controller.actions import GiveVolume, SelectNode, Target, target_of
from controller.deciding.bind import PluginGate
from controller.deciding.cluster import ClusterState
from controller.deciding.lifecycle import ClusterEvent, Entry, Stage, storage_event
from controller.deciding.pending import Pending
from controller.deciding.reserve import Reservations
from core.claims import Claim, NodeDrivers, StorageKind, Volume
from core.errors import quoted
from core.ledger import Placement
from core.model import NodeName, PodUid
from core.placing.decide import shape_of
from core.store import Store
from core.waiting import Cause, Wait

_LOOK_S: Final = 0.5
# The back-off after a failure; an immediate retry rarely succeeds.
_FIRST_REST_S: Final = 1.0


@dataclass(slots=True, kw_only=True)
class _Preparation:
    """The pre-bind of one pod. told: claims that were seen with the pod's node."""

    pod: Target
    node: NodeName
    claims: tuple[str, ...]
    volumes: tuple[str, ...]
    until_s: float
    told: set[str]


class PreBind:
    """Binds the claims of placed pods; a chore, which ends what takes too long."""

    def __init__(self, cluster: ClusterState, reservations: Reservations, pending: Pending, gate: PluginGate) -> None:
        self._cluster: Final = cluster
        self._reservations: Final = reservations
        self._pending: Final = pending
        self._gate: Final = gate
        self._volumes: Final = cluster.ledger.volumes
        self._storage: Final = self._volumes.storage
        self._under_way: Final[dict[PodUid, _Preparation]] = {}
        self._looked_s = -inf
        # Claims that have a node although no placed pod waits for them, and since when.
        self._idle: Final[dict[str, float]] = {}

    # ------------------------------------------------------------------ beginning

    def begin(self, entry: Entry, placement: Placement) -> bool:
        """Start to bind the claims of a reserved pod on its node; return False if none needs that."""
        pod = entry.pod
        self._end(pod.uid)  # it may have had a place on another node a moment ago
        needs = self._volumes.needs(pod)
        if isinstance(needs, Wait):
            # Another pod was promised what it needs since it was read.
            self._reservations.release(entry)
            self._pending.read(entry)
            return True
        if not needs.unbound:
            return False
        chosen = self._volumes.choose(pod, self._cluster.ledger.states[placement.node].facts)
        if chosen is None:
            # Several claims of the pod need the same volume, or another pod was given it.
            self._give_up(entry, f"{placement.node} cannot provide volumes for all its claims")
            return True
        target = target_of(pod)
        work = _Preparation(
            pod=target,
            node=placement.node,
            claims=tuple(one.claim.key for one in chosen),
            volumes=tuple(one.volume for one in chosen if one.volume),
            until_s=self._cluster.clock() + self._cluster.settings.volume_wait_max_s,
            told=set(),
        )
        self._under_way[pod.uid] = work
        self._cluster.queue.prepare(entry, _waits(work))
        self._cluster.unreported[pod.uid] = None
        for one in chosen:
            if one.volume:
                self._storage.promise(one.volume, one.claim.key)
                volume = self._storage.volumes[one.volume]
                if volume.claim_uid != one.claim.uid:
                    self._cluster.actions.append(GiveVolume(claim=one.claim, volume=volume, pod=target))
            elif one.claim.selected_node != placement.node:
                self._cluster.actions.append(SelectNode(claim=one.claim, node=placement.node, pod=target))
            else:
                work.told.add(one.claim.key)
        return True

    # ------------------------------------------------------------------ ending

    def look_at(self, entry: Entry) -> None:
        """Check the claims of a pod in pre-bind, after one changed or some time has passed."""
        work = self._under_way.get(entry.pod.uid)
        if work is None or entry.stage is not Stage.PREPARING:
            return
        problem = next((text for key in work.claims if (text := self._problem(work, key))), "")
        if work.node not in self._cluster.ledger.states:
            problem = f"node {work.node} does not exist any more"
        if problem:
            self._give_up(entry, problem)
        elif all(self._is_bound(key) for key in work.claims):
            self._done(entry)
        elif self._cluster.clock() >= work.until_s:
            waited_s = self._cluster.settings.volume_wait_max_s
            open_ = ", ".join(quoted(key) for key in work.claims if not self._is_bound(key))
            self._give_up(entry, f"{open_} was not bound on {work.node} within {waited_s:g} s (volume_wait_max_s)")

    def failed(self, action: SelectNode | GiveVolume, problem: str) -> None:
        """Give up the pre-bind of a pod, because a write for its claim failed."""
        entry = self._cluster.queue.get(action.pod.uid)
        if isinstance(action, SelectNode) and not action.node:
            return  # `_tidy` tries again
        if entry is not None and entry.stage is Stage.PREPARING:
            self._give_up(entry, f"volume claim {quoted(action.claim.key)} could not be written: {problem}")

    def _is_bound(self, key: str) -> bool:
        claim = self._storage.claims.get(key)
        return claim is not None and claim.bound and claim.volume in self._storage.volumes

    def _problem(self, work: _Preparation, key: str) -> str:
        """Return why a claim will not be bound on the pod's node, or ""."""
        claim = self._storage.claims.get(key)
        if claim is None or claim.deleting or claim.lost:
            return f"volume claim {quoted(key)} does not exist, or is being deleted"
        if claim.bound or claim.volume:
            return ""
        if claim.selected_node == work.node:
            work.told.add(key)
        elif key in work.told:
            return (
                f"its provisioner failed to provide volume claim {quoted(key)} on {work.node}: see the claim's events"
            )
        return ""

    def _done(self, entry: Entry) -> None:
        """Continue with a pod whose claims are bound, if its node can reach the volumes."""
        self._end(entry.pod.uid)
        shape = shape_of(entry.pod, self._cluster.ledger)
        if isinstance(shape, Wait):
            self._reservations.release(entry)
            self._pending.read(entry)
            return
        self._cluster.queue.asks(entry, shape)
        self._gate.resume(entry)

    def _give_up(self, entry: Entry, problem: str) -> None:
        self._undo(self._end(entry.pod.uid))
        self._cluster.queue.failed(entry)
        self._reservations.release(entry)
        wait = Wait(Cause.VOLUMES_NOT_BOUND, f"{problem}; it is retried")
        self._pending.settled(entry, rest_s=_FIRST_REST_S, wait=wait)

    def _end(self, uid: PodUid) -> _Preparation | None:
        work = self._under_way.pop(uid, None)
        shared = {name for other in self._under_way.values() for name in other.volumes}
        for name in work.volumes if work is not None else ():
            if name not in shared:
                self._storage.promise(name, "")
        return work

    def _undo(self, work: _Preparation | None) -> None:
        """Remove the node from claims that are not bound, unless another pod waits for them there.

        `_tidy` removes nodes that the watch shows only later.
        """
        shared = self._wanted()
        for key in work.claims if work is not None else ():
            claim = self._storage.claims.get(key)
            if work is None or claim is None or claim.bound or key in shared:
                continue
            if claim.selected_node == work.node:
                self._clear(claim, work.pod)

    def _wanted(self) -> set[str]:
        """Return the claims for which a placed pod waits."""
        return {key for work in self._under_way.values() for key in work.claims}

    def _clear(self, claim: Claim, pod: Target) -> None:
        self._cluster.actions.append(SelectNode(claim=claim, node="", pod=pod))

    # ------------------------------------------------------------------ time

    def next_s(self) -> float:
        """Return when to look again, monotonic; never while no pod is in pre-bind and no claim has a node."""
        return self._looked_s + _LOOK_S if self._under_way or self._storage.selected else inf

    def look(self, now_s: float) -> None:
        """End pre-binds that are done, took too long, or belong to pods that are gone."""
        self._looked_s = now_s
        for uid, work in list(self._under_way.items()):
            entry = self._cluster.queue.get(uid)
            placed = entry.placement if entry is not None and entry.stage is Stage.PREPARING else None
            if entry is None or placed is None or placed.node != work.node:
                self._undo(self._end(uid))
            else:
                self.look_at(entry)
        self._tidy(now_s)

    def _tidy(self, now_s: float) -> None:
        """Remove the node from claims for which no placed pod has waited for `volume_wait_max_s`."""
        wanted = self._wanted()
        selected = self._storage.selected
        for key in [key for key in self._idle if key not in selected or key in wanted]:
            del self._idle[key]
        for key in selected:
            if key in wanted:
                continue
            since_s = self._idle.setdefault(key, now_s)
            pods = self._waiting_for(key)
            if pods and now_s >= since_s + self._cluster.settings.volume_wait_max_s:
                self._idle[key] = now_s
                self._clear(self._storage.claims[key], target_of(pods[0].pod))

    def _waiting_for(self, key: str) -> list[Entry]:
        """Return the queued pods with the claim; those of other schedulers are not in the queue."""
        uids = self._cluster.requeue.waiting(storage_event(StorageKind.CLAIMS, key))
        return [entry for uid in uids if (entry := self._cluster.queue.get(uid)) is not None]


def _waits(work: _Preparation) -> Wait:
    told = ", ".join(quoted(key) for key in work.claims)
    text = f"has its place on {work.node} and waits until its volume claims are bound there: {told}"
    return Wait(Cause.WAITING_FOR_VOLUMES, text)


_NAME: Final = attrgetter("name")


class Claims:
    """Takes what the watches show of storage; a chore, which reads the pods again that wait for it.

    Attributes:
        storage: what is known.
        stores: the receivers of each kind of object.
    """

    def __init__(self, cluster: ClusterState, pending: Pending, prebind: PreBind) -> None:
        self._cluster: Final = cluster
        self._prebind: Final = prebind
        self._pending: Final = pending
        volumes = cluster.ledger.volumes
        storage = volumes.storage
        self._volumes: Final = volumes
        self.storage: Final = storage
        self.stores: Final[Mapping[StorageKind, Store[Any]]] = {
            StorageKind.CLAIMS: Store(self._claim, self._claim_gone, storage.claims.values, lambda one: one.key),
            StorageKind.VOLUMES: Store(self._volume, self._volume_gone, storage.volumes.values, _NAME),
            StorageKind.CLASSES: Store(
                storage.set_class, lambda one: storage.remove_class(one.name), storage.classes.values, _NAME
            ),
            StorageKind.NODES: Store(
                volumes.set_limits,
                lambda one: volumes.set_limits(NodeDrivers(one.node, {})),
                lambda: [
                    NodeDrivers(node, storage.limits.get(node, {}), drivers)
                    for node, drivers in storage.running.items()
                ],
                lambda one: one.node,
            ),
            StorageKind.DRIVERS: Store(volumes.set_driver, volumes.remove_driver, storage.drivers.values, _NAME),
            StorageKind.ATTACHMENTS: Store(
                volumes.set_attachment, volumes.remove_attachment, storage.attachments.values, _NAME
            ),
            StorageKind.CAPACITIES: Store(
                storage.set_capacity,
                storage.remove_capacity,
                lambda: [one for there in storage.capacities.values() for one in there.values()],
                lambda one: one.key,
            ),
        }

    # ------------------------------------------------------------------ what is there

    def replaced(self, kind: StorageKind, objects: Sequence[Any]) -> Iterator[None]:
        """Replace all objects of *kind*; yields between slices."""
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

    # ------------------------------------------------------------------ pods that wait for storage

    def next_s(self) -> float:
        """Return when `look` is due, monotonic: at once if anything changed, else never."""
        return -inf if self.storage.changed or self._volumes.unused else inf

    def look(self, now_s: float) -> None:
        """Read the pods again that wait for what changed."""
        changed, freed = list(self.storage.changed), list(self._volumes.unused)
        self.storage.changed.clear()
        self._volumes.unused.clear()
        for kind, name in changed:
            self._let_in(storage_event(kind, name), lambda _: True)
        for name in freed:
            self._let_in(storage_event(StorageKind.CLAIMS, name), _waits_for_another)

    def _let_in(self, event: ClusterEvent, concerns: Callable[[Entry], bool]) -> None:
        queue = self._cluster.queue
        for uid in self._cluster.requeue.waiting(event):
            entry = queue.get(uid)
            if entry is None or not concerns(entry):
                continue
            match entry.stage:
                case Stage.READY | Stage.REFUSED | Stage.HELD:
                    self._pending.read(entry)
                case Stage.TURN:
                    self._pending.reconsider(entry, entry.pod)
                case Stage.RESTING:
                    queue.asks(entry, None, entry.wait)  # it is read when it has rested
                case Stage.PREPARING:
                    self._prebind.look_at(entry)
                case _:
                    pass  # what was sent for it is settled first, and then it is read


def _waits_for_another(entry: Entry) -> bool:
    return entry.wait is not None and entry.wait.cause is Cause.CLAIM_IN_USE
