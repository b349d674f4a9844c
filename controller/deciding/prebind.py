"""What a pod needs between its place and its Binding: volume claims that wait for a node are bound there first.

A claim of which the class has `WaitForFirstConsumer` is told the node (an annotation), and its provisioner makes the
volume; or a volume that is there is reserved for it, and Kubernetes' volume controller binds the two. Both are written
against the version that was seen. The pod keeps its place meanwhile, for `volume_wait_max_s` at most; then, or when the
provisioner gives up, the node is taken back from the claim and the pod is decided anew. The device plugin hears of the
pod only with its Binding.

All that lasts stands in the API: a process that begins finds claims with their node, and either goes on from there or,
where the pod does not fit there any more, takes the node back.

A pod that has claims waits for those, for the volumes that they name and for their classes
(`core.constraints.volumes.awaited`), in whatever stage it is: `Claims` takes in what the cluster says of storage, and
judges those pods anew.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from typing import Any, Final

from controller.actions import GiveVolume, SelectNode, Target, target_of
from controller.deciding.cluster import ClusterState
from controller.deciding.lifecycle import ClusterEvent, Entry, Stage, storage_event
from controller.deciding.pending import Pending
from controller.deciding.permit import PluginGate
from controller.deciding.reserve import Reservations
from controller.handing_over.collision import CollisionKey
from core.claims import Claim, NodeDrivers, StorageKind, Volume
from core.errors import quoted
from core.explaining.asked import read_wish
from core.ledger import Placement
from core.model import NO_VOLUMES, NodeName, PodUid
from core.store import Store
from core.waiting import Cause, Wait

_LOOK_S: Final = 0.5
# What was not bound for so long is rarely bound a moment later.
_FIRST_REST_S: Final = 1.0


@dataclass(slots=True, kw_only=True)
class _Preparation:
    """What is being made ready for one pod. told: claims that were seen to have the node."""

    pod: Target
    node: NodeName
    claims: tuple[str, ...]
    volumes: tuple[str, ...]
    until_s: float
    told: set[str]


class PreBind:
    """Makes ready what pods need; a chore, which sees that it ends."""

    def __init__(self, cluster: ClusterState, reservations: Reservations, pending: Pending, gate: PluginGate) -> None:
        self._cluster: Final = cluster
        self._reservations: Final = reservations
        self._pending: Final = pending
        self._gate: Final = gate
        self._volumes: Final = cluster.ledger.volumes
        self._storage: Final = self._volumes.storage
        self._under_way: Final[dict[PodUid, _Preparation]] = {}
        self._looked_s = -inf
        # Claims that have a node without a pod that is on its way there, since when.
        self._idle: Final[dict[str, float]] = {}

    # ------------------------------------------------------------------ beginning

    def place(self, entry: Entry, placement: Placement, keys: CollisionKey, now_s: float) -> None:
        """Promise a pod its place, and let it go there once it has all that it needs for that."""
        self._reservations.reserve(entry, placement)
        if not self._begin(entry, placement):
            self._gate.go(entry, placement, keys, now_s)

    def _begin(self, entry: Entry, placement: Placement) -> bool:
        """Have the claims of a reserved pod bound where it has its place; False if none waits for that."""
        pod = entry.pod
        if pod.volumes is NO_VOLUMES:
            return False
        needs = self._volumes.needs(pod)
        if isinstance(needs, Wait):
            # Another pod was promised what it needs since it was read.
            self._reservations.take_back(entry)
            self._pending.read(entry)
            return True
        if not needs.unbound:
            return False
        chosen = self._volumes.choose(pod, self._cluster.ledger.states[placement.node].facts)
        if chosen is None:
            # Several claims of the pod fight for one volume, or another pod was given it.
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
        """A claim of a pod that is being made ready says another thing, or time has passed."""
        work = self._under_way.get(entry.pod.uid)
        if work is None or entry.stage is not Stage.PREPARING:
            return
        problem = next((text for key in work.claims if (text := self._problem(work, key))), "")
        if problem:
            self._give_up(entry, problem)
        elif all(self._is_bound(key) for key in work.claims):
            self._done(entry)
        elif self._cluster.clock() >= work.until_s:
            waited_s = self._cluster.settings.volume_wait_max_s
            open_ = ", ".join(quoted(key) for key in work.claims if not self._is_bound(key))
            self._give_up(entry, f"{open_} was not bound on {work.node} within {waited_s:g} s (volume_wait_max_s)")

    def failed(self, action: SelectNode | GiveVolume, problem: str) -> None:
        """A write for a pod's claim did not go through."""
        entry = self._cluster.queue.get(action.pod.uid)
        if isinstance(action, SelectNode) and not action.node:
            return  # it is looked at again
        if entry is not None and entry.stage is Stage.PREPARING:
            self._give_up(entry, f"volume claim {quoted(action.claim.key)} could not be written: {problem}")

    def _is_bound(self, key: str) -> bool:
        claim = self._storage.claims.get(key)
        return claim is not None and claim.bound and claim.volume in self._storage.volumes

    def _problem(self, work: _Preparation, key: str) -> str:
        """Why a claim will not be bound where it is to be, or ""."""
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
        """The claims are bound: the pod goes on, if the volumes can be reached where it has its place."""
        self._end(entry.pod.uid)
        wish = read_wish(entry.pod, self._cluster.ledger)
        if isinstance(wish, Wait):
            self._reservations.take_back(entry)
            self._pending.read(entry)
            return
        self._cluster.queue.asks(entry, wish)
        self._gate.go_on(entry)

    def _give_up(self, entry: Entry, problem: str) -> None:
        self._undo(self._end(entry.pod.uid))
        self._cluster.queue.failed(entry)
        self._reservations.take_back(entry)
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
        """Take the node back from the claims that are not bound, and that no other pod waits for there.

        What was written may be seen only later (`_tidy`).
        """
        shared = self._wanted()
        for key in work.claims if work is not None else ():
            claim = self._storage.claims.get(key)
            if work is None or claim is None or claim.bound or key in shared:
                continue
            if claim.selected_node == work.node:
                self._clear(claim, work.pod)

    def _wanted(self) -> set[str]:
        """The claims that any pod waits for where it has its place."""
        return {key for work in self._under_way.values() for key in work.claims}

    def _clear(self, claim: Claim, pod: Target) -> None:
        self._cluster.actions.append(SelectNode(claim=claim, node="", pod=pod))

    # ------------------------------------------------------------------ time

    def next_s(self) -> float:
        """Soon, while anything is made ready, or a claim has a node."""
        return self._looked_s + _LOOK_S if self._under_way or self._storage.selected else inf

    def look(self, now_s: float) -> None:
        """End what is done, took too long, or is of a pod that is not there any more."""
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
        """Take the node back from claims of which the pod has not been on its way there for long."""
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
        """The pods of ours that have the claim; none of others, which are their scheduler's matter."""
        uids = self._cluster.requeue.waiting(storage_event(StorageKind.CLAIMS, key))
        return [entry for uid in uids if (entry := self._cluster.queue.get(uid)) is not None]


def _waits(work: _Preparation) -> Wait:
    told = ", ".join(quoted(key) for key in work.claims)
    text = f"has its place on {work.node} and waits until its volume claims are bound there: {told}"
    return Wait(Cause.WAITING_FOR_VOLUMES, text)


_NAME: Final = attrgetter("name")


class Claims:
    """Takes what the mirror shows of storage; a chore, which lets those in who wait for it.

    Attributes:
        storage: what is known.
        stores: where each kind of it is taken in.
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
                lambda: [NodeDrivers(node, limits) for node, limits in storage.limits.items()],
                lambda one: one.node,
            ),
            StorageKind.DRIVERS: Store(
                storage.set_driver, lambda one: storage.remove_driver(one.name), storage.drivers.values, _NAME
            ),
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

    # ------------------------------------------------------------------ who waits for it

    def next_s(self) -> float:
        """At once, if anything changed."""
        return -inf if self.storage.changed or self._volumes.unused else inf

    def look(self, now_s: float) -> None:
        """Judge those anew who wait for what changed."""
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
