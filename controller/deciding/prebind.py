"""What a pod needs between its place and its Binding: volume claims that wait for a node are bound there first.

A claim of which the class has `WaitForFirstConsumer` is told the node (an annotation), and its provisioner makes the
volume; or a volume that is there is reserved for it, and Kubernetes' volume controller binds the two. Both are written
against the version that was seen. The pod keeps its place meanwhile, for `volume_wait_max_s` at most; then, or when the
provisioner gives up, the node is taken back from the claim and the pod is decided anew. The device plugin hears of the
pod only with its Binding.

All that lasts stands in the API: a process that begins finds claims with their node, and either goes on from there or,
where the pod does not fit there any more, takes the node back.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final

from controller.actions import GiveVolume, SelectNode, Target, target_of
from controller.deciding.lifecycle import Entry, Stage
from controller.deciding.pending import Pending
from controller.deciding.planner import Planner
from controller.deciding.wake import storage_happening
from core.claims import Claim, StorageKind
from core.errors import quoted
from core.explaining.asked import read_wish
from core.ledger import Placement
from core.model import NO_VOLUMES, NodeName, PodUid
from core.storage import Storage
from core.volumes import Volumes
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

    def __init__(self, planner: Planner, pending: Pending, clock: Callable[[], float]) -> None:
        self._planner: Final = planner
        self._pending: Final = pending
        self._clock: Final = clock
        self._under_way: Final[dict[PodUid, _Preparation]] = {}
        self._looked_s = -inf
        # Claims that have a node without a pod that is on its way there, since when.
        self._idle: Final[dict[str, float]] = {}
        planner.turns.prepares = self.begin

    @property
    def _volumes(self) -> Volumes:
        return self._planner.ledger.topology.volumes

    @property
    def _storage(self) -> Storage:
        return self._volumes.storage

    # ------------------------------------------------------------------ beginning

    def begin(self, entry: Entry, placement: Placement) -> bool:
        """Have the claims of a reserved pod bound where it has its place; False if none waits for that."""
        pod = entry.pod
        if pod.volumes is NO_VOLUMES:
            return False
        needs = self._planner.ledger.topology.needs_of(pod)
        if isinstance(needs, Wait):
            # Another pod was promised what it needs since it was read.
            self._planner.promises.take_back(entry)
            self._pending.read(entry)
            return True
        if not needs.unbound:
            return False
        chosen = self._volumes.choose(pod, self._planner.ledger.states[placement.node].facts)
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
            until_s=self._clock() + self._planner.settings.volume_wait_max_s,
            told=set(),
        )
        self._under_way[pod.uid] = work
        self._planner.life.prepare(entry, _waits(work))
        self._planner.unreported[pod.uid] = None
        for one in chosen:
            if one.volume:
                self._storage.promise(one.volume, one.claim.key)
                volume = self._storage.volumes[one.volume]
                if volume.claim_uid != one.claim.uid:
                    self._planner.actions.append(GiveVolume(claim=one.claim, volume=volume, pod=target))
            elif one.claim.selected_node != placement.node:
                self._planner.actions.append(SelectNode(claim=one.claim, node=placement.node, pod=target))
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
        elif self._clock() >= work.until_s:
            waited_s = self._planner.settings.volume_wait_max_s
            open_ = ", ".join(quoted(key) for key in work.claims if not self._is_bound(key))
            self._give_up(entry, f"{open_} was not bound on {work.node} within {waited_s:g} s (volume_wait_max_s)")

    def failed(self, action: SelectNode | GiveVolume, problem: str) -> None:
        """A write for a pod's claim did not go through."""
        entry = self._planner.life.get(action.pod.uid)
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
        wish = read_wish(entry.pod, self._planner.ledger)
        if isinstance(wish, Wait):
            self._planner.promises.take_back(entry)
            self._pending.read(entry)
            return
        self._planner.life.asks(entry, wish)
        self._planner.turns.go_on(entry)

    def _give_up(self, entry: Entry, problem: str) -> None:
        self._undo(self._end(entry.pod.uid))
        self._planner.life.failed(entry)
        self._planner.promises.take_back(entry)
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
        self._planner.actions.append(SelectNode(claim=claim, node="", pod=pod))

    # ------------------------------------------------------------------ time

    def next_s(self) -> float:
        """Soon, while anything is made ready, or a claim has a node."""
        return self._looked_s + _LOOK_S if self._under_way or self._storage.selected else inf

    def look(self, now_s: float) -> None:
        """End what is done, took too long, or is of a pod that is not there any more."""
        self._looked_s = now_s
        for uid, work in list(self._under_way.items()):
            entry = self._planner.life.get(uid)
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
            if pods and now_s >= since_s + self._planner.settings.volume_wait_max_s:
                self._idle[key] = now_s
                self._clear(self._storage.claims[key], target_of(pods[0].pod))

    def _waiting_for(self, key: str) -> list[Entry]:
        """The pods of ours that have the claim; none of others, which are their scheduler's matter."""
        uids = self._planner.wakes.waiting(storage_happening(StorageKind.CLAIMS, key))
        return [entry for uid in uids if (entry := self._planner.life.get(uid)) is not None]


def _waits(work: _Preparation) -> Wait:
    told = ", ".join(quoted(key) for key in work.claims)
    text = f"has its place on {work.node} and waits until its volume claims are bound there: {told}"
    return Wait(Cause.WAITING_FOR_VOLUMES, text)
