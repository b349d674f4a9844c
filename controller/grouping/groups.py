"""PodGroups, Queues and the members of groups, and which groups are admitted.

Only the scheduler changes this state. `group_status` computes what to write, and `group_writes` writes it. A group is
identified by its uid: a group that is recreated under the same name starts again.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Final

from controller.grouping import admitting
from controller.grouping.by_name import ByName
from controller.grouping.group_status import (
    NOT_ENOUGH_PODS,
    NOT_ENOUGH_RESOURCES,
    NOT_SUPPORTED,
    GroupVerdict,
    MemberCounts,
    MemberState,
    state_of,
)
from core.errors import InvalidRequestError, quoted
from core.groups import (
    MIN_MEMBER,
    QUEUE_OF_JOB,
    QUEUE_OF_POD,
    ROOT_QUEUE,
    GroupPhase,
    GroupSpec,
    HyperNode,
    QueueSpec,
    SubGroups,
    progress_of,
    unsupported_in,
)
from core.model import ALONE, SURPLUS, Amounts, GroupKey, GroupKind, Pod, PodUid, Standing, amounts_of, group_of
from core.placing import domains
from core.placing.domains import HyperNodes, LabelTiers, Near, Network
from core.placing.queues import QueueTree, standing_of
from core.settings import GroupSettings
from core.units import parse_int64
from core.waiting import Cause, Wait
from core.wire.policies import PriorityClass
from kube.calls import is_newer
from kube.kinds import APIS

# States in which a member holds its request on its node.
_HOLDING: Final = frozenset({MemberState.BOUND, MemberState.RUNNING, MemberState.LEAVING})
_NO_POD: Final = PodUid("")
_NOTHING: Final[Mapping[PodUid, Pod]] = {}
_NO_UNITS: Final[Mapping[str, int]] = {}
_SLICE: Final = 256
# All of a group that affects the places of its members, and all of a queue that affects its groups.
_asked: Final = attrgetter(
    *("uid", "min_member", "min_resources", "min_task_member", "sub_groups", "queue", "problems", "unread"),
    "status.phase",
    *("priority_class", "priority", "preempts", "stays", "disrupted_together", "topology_key", "network_topology"),
)
_ruled: Final = attrgetter(
    *("capability", "guarantee", "deserved", "weight", "priority", "is_open", "problems", "unread"),
    "parent",
)


@dataclass(slots=True)
class _Members:
    """The pods of one group, their states, and what those on nodes hold.

    odd: name and unsupported request of members that have one. named: the one of these that messages name. said: the
    member count that each pod states in its annotation.
    implied: the group according to these annotations, built on demand.
    """

    pods: dict[PodUid, Pod] = field(default_factory=dict)
    odd: dict[PodUid, tuple[str, str]] = field(default_factory=dict)
    named: PodUid = _NO_POD
    said: dict[PodUid, int] = field(default_factory=dict)
    implied: GroupSpec | None = None
    tally: MemberCounts = field(default_factory=MemberCounts)
    held: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Judged:
    """The decisions about the group with *uid*.

    refused: why a placement attempt failed, or "". lacks: why none was made because members are missing, or "";
    lacks_s: since when (monotonic), None if an attempt was made before.
    """

    uid: str
    admitted: bool = False
    waits: str = ""
    refused: str = ""
    lacks: str = ""
    lacks_s: float | None = None


class Groups:
    """Groups, queues and members, as in the mirror.

    Attributes:
        queues: by name.
        tree: the hierarchy of queues.
        classes: PriorityClasses; groups name them, and the pods of these groups often do not.
        hyper_nodes: the HyperNodes, which show the network.
        served: whether each kind is installed; None while unknown.
        apis: API path of each kind, if served.
        governs: whether PodGroups of Volcano are admitted and written here: only while cardshare has its scheduler
            name.
        unreported: groups whose status may have changed.
        reworded: groups that still wait for admission, with other figures.
        queues_unreported: whether the holdings of queues may have changed.
        key_of: the group of every pod that names one.
        wanting: groups that wait for admission.
        version: increases with every change that could help one of these.
    """

    def __init__(
        self, changed: Callable[[GroupKey], None], parted: Callable[[GroupKey], None], settings: GroupSettings
    ) -> None:
        """Begin with nothing.

        Args:
            changed: called for every group whose members may have to be read again.
            parted: called for every group when a member leaves, fails, returns or stays, because others wait for it.
            settings: the operator's settings.
        """
        self.queues: Final[dict[str, QueueSpec]] = {}
        self.tree = QueueTree()
        self.classes: Final[ByName[PriorityClass]] = ByName(self._classes_changed)
        self.hyper_nodes: Final[ByName[HyperNode]] = ByName(lambda _: self._network_changed())
        self.served: Final[dict[GroupKind, bool | None]] = dict.fromkeys(GroupKind)
        self.apis: Final[dict[GroupKind, str]] = {kind: apis[0] for kind, apis in APIS.items()}
        self.queues_served: bool | None = None
        self.governs = False
        self.settings = settings
        self.key_of: Final[dict[PodUid, GroupKey]] = {}
        self.unreported: Final[dict[GroupKey, None]] = {}
        self.reworded: Final[dict[GroupKey, None]] = {}
        self.queues_unreported = False
        self.wanting: Final[dict[GroupKey, None]] = {}
        self.version = 0
        self._units: Mapping[str, int] = _NO_UNITS
        self._changed: Final = changed
        self._parted: Final = parted
        # The tiers of the operator's settings; tiers of HyperNodes are computed on demand.
        self._labels: Network | None = None
        self._network: Network | None = None
        self._by_hyper_nodes: HyperNodes | None = None
        self._specs: Final[dict[GroupKey, GroupSpec]] = {}
        self._members: Final[dict[GroupKey, _Members]] = {}
        self._judged: Final[dict[GroupKey, _Judged]] = {}
        # The queues of deleted groups with members.
        self._last_queues: Final[dict[GroupKey, str]] = {}

    # ------------------------------------------------------------------ questions

    def spec(self, key: GroupKey) -> GroupSpec | None:
        """Return the specification of group *key*; None if there is no such group.

        If its kind is not installed, annotations of the members may define it.
        """
        found = self._specs.get(key)
        if found is None:
            return self._implied(key) if self.served[key.kind] is False else None
        if key.kind is GroupKind.VOLCANO and not self.settings.gang:
            return replace(found, min_member=0, min_task_member={}, sub_groups=(), network_topology=None)
        return found

    def queue_of(self, key: GroupKey) -> str:
        """Return the queue of group *key*, "" if it has none; a deleted group has its last one until its pods are gone.

        Volcano's job controller deletes a group first, and its pods end only after their grace period. If the group was
        deleted before this process began, its pods on nodes name the queue.
        """
        spec = self.spec(key)
        return spec.queue if spec is not None else self._last_queues.get(key, "")

    def members(self, key: GroupKey) -> Mapping[PodUid, Pod]:
        """Return the pods of group *key* as last seen, including bound and finished ones."""
        found = self._members.get(key)
        return found.pods if found is not None else _NOTHING

    def named(self) -> Iterable[GroupKey]:
        """Return the groups that pods name."""
        return self._members.keys()

    def standing(self, pod: Pod) -> Standing:
        """Return the importance of *pod*: the larger of its own priority and that of its group's class."""
        key = group_of(pod)
        spec = self._specs.get(key) if key is not None else None
        progress = ALONE if key is None or pod.node_name else self._progress(key)
        return standing_of(pod, spec, self.classes, progress=progress)

    def _progress(self, key: GroupKey) -> int:
        """Return how far *key* is with the members that are placed or have ended successfully."""
        spec, members = self._specs.get(key), self._members.get(key)
        if spec is None or members is None:
            return ALONE
        placed = members.tally.of(MemberState.BOUND, MemberState.RUNNING, MemberState.SUCCEEDED)
        return progress_of(spec, placed)

    def _is_met(self, key: GroupKey) -> bool:
        return self._progress(key) == SURPLUS

    def is_admitted(self, key: GroupKey) -> bool:
        """Return whether members of *key* may be placed."""
        spec = self._specs.get(key)
        if spec is None:
            return self.served[key.kind] is False
        return self._verdict(spec).admitted

    def wait(self, key: GroupKey) -> Wait | None:
        """Return why no member of *key* may be placed; None if they may."""
        spec = self._specs.get(key)
        if spec is None:
            return None if self.served[key.kind] is False and self._implied(key) is not None else self._missing(key)
        if spec.problems:
            return Wait(Cause.GROUP_NOT_SUPPORTED, unsupported(spec))
        if odd := self._odd(key):
            return Wait(Cause.GROUP_NOT_SUPPORTED, odd)
        closed = self._closed(spec)
        if self.is_admitted(key):
            return closed
        why = self._verdict(spec).why
        text = f"waits because {key} is not admitted: {why}" if why else f"waits until {key} is admitted"
        return Wait(Cause.WAITING_FOR_QUEUE if closed is None else closed.cause, text)

    def _closed(self, spec: GroupSpec) -> Wait | None:
        """Return why the queue of *spec* places nothing, even for admitted groups; running pods continue."""
        if not self._is_ours(spec):
            return None
        if self.queues_served is None:
            return Wait(Cause.WAITING_FOR_QUEUE, f"waits until it is known whether queue {spec.queue} exists")
        problem = admitting.queue_problem(spec.queue, self.queues.get(spec.queue))
        return Wait(Cause.QUEUE_NOT_OPEN, f"waits because {problem}") if problem else None

    def _odd(self, key: GroupKey) -> str:
        """Return the unsupported request of a member of *key*, as a sentence, or ""."""
        members = self._members.get(key)
        if members is None or not members.odd:
            return ""
        name, what = members.odd[members.named]
        return f"pod {name} of {key} asks for {what}, which cardshare does not support; leave it out of the whole group"

    def _missing(self, key: GroupKey) -> Wait:
        match self.served[key.kind]:
            case None:
                text = (
                    f"waits until it is known whether {_quoted(key)} exists; if this lasts, check that the "
                    f"controller's ClusterRole allows listing podgroups of {key.kind.value}"
                )
                return Wait(Cause.WAITING_FOR_GROUP, text)
            case False:
                text = (
                    f"waits for {_quoted(key)}, but this cluster has no supported kind PodGroup of {key.kind.value}; "
                    "install it, leave the group out of the pod, or write on the group's pods how many start together: "
                    f"annotation {MIN_MEMBER}"
                )
                return Wait(Cause.GROUP_NOT_FOUND, text)
            case _:
                text = f"waits for {_quoted(key)}, which does not exist; create it, or leave it out of the pod"
                return Wait(Cause.GROUP_NOT_FOUND, text)

    def _implied(self, key: GroupKey) -> GroupSpec | None:
        """Return the group according to its members' annotations, if there can be no object."""
        members = self._members.get(key)
        if members is None or not members.said:
            return None
        if members.implied is None:
            members.implied = GroupSpec(key=key, min_member=max(members.said.values()), queue="")
        return members.implied

    def _is_ours(self, spec: GroupSpec) -> bool:
        """Return whether it is admitted and written here."""
        return self.governs and spec.key.kind is GroupKind.VOLCANO

    # ------------------------------------------------------------------ what the mirror shows

    def govern(
        self, governs: bool, settings: GroupSettings, tiers: tuple[str, ...] = (), units: Mapping[str, int] = _NO_UNITS
    ) -> None:
        """Start or stop admitting and writing Volcano's groups.

        *tiers*: the node labels that define tiers of the network; if empty, HyperNodes define them. *units*: the MiB of
        a unit, by resource for memory of cards.
        """
        if units != self._units:
            self._units = units
            for queue in [*self.queues.values()]:
                self.queue_changed(queue)
        labels = LabelTiers(tiers) if tiers else None
        if labels != self._labels:
            self._labels = labels
            self._network_changed()
        if (governs, settings) == (self.governs, self.settings):
            return
        self.governs, self.settings = governs, settings
        self.version += 1
        for key in self._specs:
            self._look_at(key)
        self.queues_unreported = True

    def replaced(self, kind: GroupKind, specs: Sequence[GroupSpec], *, served: bool, api: str = "") -> Iterator[None]:
        """Replace all groups of *kind*; *api*: their path. Yields so that other tasks can run.

        A full list always counts: if etcd was restored from a backup, groups have older versions than those known.
        """
        moved, self.apis[kind] = api not in ("", self.apis[kind]), api or self.apis[kind]
        was_known = self.served[kind] is not None
        changes = self.served[kind] is not served
        self.served[kind] = served
        there = {spec.key for spec in specs}
        gone = [key for key in self._specs if key.kind is kind and key not in there]
        for at, spec in enumerate(specs):
            if self._specs.get(spec.key) != spec:
                self._take(spec)
            if moved:
                self.unreported[spec.key] = None  # another API version has another condition
            if at % _SLICE == 0:
                yield
        for key in gone:
            self.gone(key)
        if changes or not was_known:
            for key in [key for key in self._members if key.kind is kind and key not in there]:
                self._changed(key)

    def changed(self, spec: GroupSpec) -> None:
        """Record that a group was added or changed; repeated or late events are ignored."""
        known = self._specs.get(spec.key)
        if known is not None and known.uid == spec.uid:
            if known.resource_version == spec.resource_version:
                return
            if is_newer(known.resource_version, spec.resource_version):
                return
        self._take(spec)

    def _take(self, spec: GroupSpec) -> None:
        known = self._specs.get(spec.key)
        self._specs[spec.key] = spec
        self._last_queues.pop(spec.key, None)
        if known is None or known.uid != spec.uid:
            self._judged.pop(spec.key, None)
        elif known.is_gang and not spec.is_gang:
            self.refused(spec.key, "")
        self._look_at(spec.key)
        if known is None or _asked(known) != _asked(spec):
            self.version += 1
            self._changed(spec.key)

    def answered(self, spec: GroupSpec) -> None:
        """Record a group as a write returned it; only watches show which groups exist, and the answer may be late."""
        known = self._specs.get(spec.key)
        if known is not None and known.uid == spec.uid:
            self.changed(spec)

    def gone(self, key: GroupKey) -> None:
        """Record that a group was deleted."""
        spec = self._specs.pop(key, None)
        if spec is not None:
            if key in self._members:
                self._last_queues[key] = spec.queue
            self._judged.pop(key, None)
            self.wanting.pop(key, None)
            self.unreported.pop(key, None)
            self.reworded.pop(key, None)
            self.queues_unreported = True
            self.version += 1
            self._changed(key)

    def queues_replaced(self, queues: Sequence[QueueSpec], *, served: bool) -> None:
        """Replace all queues."""
        self.queues_served = served
        self.queues.clear()
        self.queues.update((queue.name, queue.in_units(self._units)) for queue in queues)
        self._queues_changed(None)

    def queue_changed(self, queue: QueueSpec) -> None:
        """Record that a queue was added or changed."""
        before, queue = self.queues.get(queue.name), queue.in_units(self._units)
        self.queues[queue.name] = queue
        if before is None or _ruled(before) != _ruled(queue):
            self._queues_changed(queue.name)

    def queue_answered(self, queue: QueueSpec) -> None:
        """Record a queue as a write returned it, unless a watch has shown since that it has changed or is gone."""
        known = self.queues.get(queue.name)
        if known is not None and known.uid == queue.uid and is_newer(queue.resource_version, known.resource_version):
            self.queue_changed(queue)

    def queue_gone(self, name: str) -> None:
        """Record that a queue was deleted."""
        self.queues.pop(name, None)
        self._queues_changed(name)

    def _queues_changed(self, name: str | None) -> None:
        self.queues_unreported = True
        before, self.tree = self.tree, QueueTree(self.queues.values())
        self.version += 1
        # A queue that is deleted or moved leaves room in those above it, also for their other queues.
        moved = {*before.path(name or "")} ^ {*self.tree.path(name or "")}
        for key, spec in self._specs.items():
            above = (spec.queue, *before.path(spec.queue), *self.tree.path(spec.queue))
            if name in (None, ROOT_QUEUE, *above) or not moved.isdisjoint(above):
                self._look_at(key)
                self._changed(key)

    # ------------------------------------------------------------------ the network

    def near(self, asked: GroupSpec | SubGroups) -> Near | None:
        """Return how close together the members of a group or subgroup must be; None if anywhere."""
        if isinstance(asked, GroupSpec) and asked.topology_key:
            return domains.by_label(asked.topology_key)
        if asked.network_topology is None:
            return None
        if self._network is None:
            self._network = self._labels
        if self._network is None:
            self._by_hyper_nodes = HyperNodes(self.hyper_nodes.values(), self._by_hyper_nodes)
            self._network = self._by_hyper_nodes
        return domains.near(asked.network_topology, self._network)

    def _network_changed(self) -> None:
        self._network = None
        for key, spec in self._specs.items():
            if spec.network_topology or any(one.network_topology for one in spec.sub_groups):
                self._changed(key)

    # ------------------------------------------------------------------ priority classes

    def _classes_changed(self, names: Set[str]) -> None:
        for key in [key for key, spec in self._specs.items() if spec.priority_class in names]:
            self._changed(key)

    # ------------------------------------------------------------------ pods

    def pod_changed(self, pod: Pod, *, has_place: bool = False) -> None:
        """Record that a pod was added or changed; has_place: it was seen before, and is placed or promised a place."""
        key = group_of(pod)
        known = self.key_of.get(pod.uid)
        if known is not None and known != key:
            self.pod_gone(pod.uid)
        if key is None:
            return
        self.key_of[pod.uid] = key
        members = self._members.setdefault(key, _Members())
        was_met = self._is_met(key)
        before = members.pods.get(pod.uid)
        self._count(members, before, pod)
        members.pods[pod.uid] = pod
        self._note_queue(key, pod)
        implies_otherwise = self._say(key, pod.uid, parse_int64(pod.annotations.get(MIN_MEMBER, "")))
        what = unsupported_in(pod)
        is_told_otherwise = self._note_odd(members, pod.uid, (pod.name, what) if what else None)
        is_counted_late = has_place and known != key  # a placed pod that names its group late (groups 3)
        is_met = self._is_met(key)
        if is_met and not was_met:
            self.refused_alone(key, "")
        if is_told_otherwise or was_met is not is_met or is_counted_late or implies_otherwise:
            self._changed(key)
        if before is not None and _parts(state_of(before), state_of(pod)):
            self._parted(key)
        self._note(key)

    def pod_gone(self, uid: PodUid) -> None:
        """Record that a pod was deleted."""
        key = self.key_of.pop(uid, None)
        if key is None:
            return
        members = self._members[key]
        was_met = self._is_met(key)
        self._count(members, members.pods.pop(uid), None)
        implies_otherwise = self._say(key, uid, None)
        is_told_otherwise = self._note_odd(members, uid, None)
        if is_told_otherwise or was_met is not self._is_met(key) or implies_otherwise:
            self._changed(key)
        if not members.pods:
            del self._members[key]
            self._last_queues.pop(key, None)
            if key in self._judged:
                self._judged[key].lacks = ""
        else:
            self._parted(key)
        self._note(key)

    def stays(self, key: GroupKey) -> None:
        """Record that a member that was to be evicted may stay."""
        self._parted(key)

    def _note_queue(self, key: GroupKey, pod: Pod) -> None:
        """Note the queue that a pod on a node names, if its group is unknown; the group itself replaces it."""
        if not pod.node_name or key.kind is not GroupKind.VOLCANO or key in self._specs or key in self._last_queues:
            return
        queue = pod.annotations.get(QUEUE_OF_JOB) or pod.annotations.get(QUEUE_OF_POD)
        if queue:
            self._last_queues[key] = queue
            self._changed(key)

    @staticmethod
    def _note_odd(members: _Members, uid: PodUid, odd: tuple[str, str] | None) -> bool:
        """Record the name and unsupported request of a member (None: it has none); return whether messages change."""
        before = members.odd.get(members.named)
        if odd is not None:
            members.odd[uid] = odd
        else:
            members.odd.pop(uid, None)
        if members.odd and members.named not in members.odd:
            # Pods are often deleted by name, and each other one that is named has all members read again.
            members.named = max(members.odd, key=members.odd.__getitem__)
        return members.odd.get(members.named) != before

    def _say(self, key: GroupKey, uid: PodUid, count: int | None) -> bool:
        """Record that a member states *count* members in total (None: nothing readable).

        Return whether that changes a group that only its members define, so that the others must be read again.
        """
        members = self._members[key]
        stated = count if count is not None and count >= 0 else None
        if members.said.get(uid) == stated:
            return False
        before = max(members.said.values(), default=None)
        members.said.pop(uid, None)
        if stated is not None:
            members.said[uid] = stated
        members.implied = None
        return self.served[key.kind] is False and max(members.said.values(), default=None) != before

    def _count(self, members: _Members, before: Pod | None, now: Pod | None) -> None:
        for pod, times in ((before, -1), (now, 1)):
            if pod is None:
                continue
            state = state_of(pod)
            members.tally.add(state, times)
            if state in _HOLDING and pod.node_name:
                admitting.add(members.held, dict(_amounts(pod)), times)

    def _note(self, key: GroupKey) -> None:
        if key in self._specs:
            self.unreported[key] = None

    def _look_at(self, key: GroupKey) -> None:
        """Group *key* has changed: check its admission and its status."""
        spec = self._specs[key]
        self.unreported[key] = None
        if self._is_ours(spec) and not spec.problems and not self._verdict(spec).admitted:
            self.wanting[key] = None
        else:
            self.wanting.pop(key, None)

    # ------------------------------------------------------------------ what is decided

    def admit(
        self, total: Mapping[str, int], used: Mapping[str, int], sold: Callable[[], Mapping[str, int]] = dict
    ) -> int:
        """Admit the waiting groups that fit; return their number.

        Args:
            total: allocatable of ready nodes.
            used: what their pods use of it.
            sold: capacity of their cards in resources that no node advertises.
        """
        room = self._room(total, used, sold)
        found = 0
        for spec in admitting.order([self._specs[key] for key in self.wanting], self.queues):
            held = self._held(spec.key)
            judged = self._judgement(spec)
            why = self._refusal(spec, room, held)
            if not why:
                found += 1
                judged.admitted = True
                del self.wanting[spec.key]
                room.count(spec.queue, admitting.compared(spec.min_resources or {}), held)
                self._changed(spec.key)
            if why != judged.waits or not why:
                told = self.reworded if why and judged.waits else self.unreported
                told[spec.key] = None
                judged.waits = why
                self._changed(spec.key)
        return found

    def _refusal(self, spec: GroupSpec, room: admitting.Headroom, held: Mapping[str, int]) -> str:
        members = self._members.get(spec.key)
        if members is not None and members.tally.placed and members.tally.placed >= spec.min_member:
            # Its pods are placed: the group was deleted and recreated (groups G18), and its Job waits only for it.
            return ""
        if self.settings.enqueue:
            return admitting.refusal(spec, self.queues, room, held)
        # As in Volcano, which without this action checks no group before its pods exist.
        return admitting.queue_problem(spec.queue, self.queues.get(spec.queue))

    def _room(
        self, total: Mapping[str, int], used: Mapping[str, int], sold: Callable[[], Mapping[str, int]]
    ) -> admitting.Headroom:
        room = admitting.Headroom(
            total=total, used=used, sold=sold, tree=self.tree, factor_pct=self.settings.overcommit_pct
        )
        for key, spec in self._specs.items():
            if self._is_ours(spec) and key not in self.wanting and spec.status.phase is not GroupPhase.COMPLETED:
                room.count(spec.queue, admitting.compared(spec.min_resources or {}), self._held(key))
        return room

    def _held(self, key: GroupKey) -> Mapping[str, int]:
        members = self._members.get(key)
        return members.held if members is not None else {}

    def refused(self, key: GroupKey, why: str) -> None:
        """Record that placing the members of *key* failed."""
        spec = self._specs.get(key)
        if spec is None:
            return
        judged = self._judgement(spec)
        if judged.refused != why or judged.lacks:
            judged.refused, judged.lacks = why, ""
            self.unreported[key] = None

    def lacks(self, key: GroupKey, why: str, now_s: float) -> None:
        """Record that members of *key* wait because others are missing (*now_s*: monotonic)."""
        spec = self._specs.get(key)
        if spec is None:
            return
        judged = self._judgement(spec)
        if judged.lacks != why or judged.refused:
            if not judged.lacks:
                judged.lacks_s = None if judged.refused else now_s
            judged.refused, judged.lacks = "", why
            self.unreported[key] = None

    def refused_alone(self, key: GroupKey, why: str) -> None:
        """Record why a member of *key* waits that is placed by itself; it counts until the group has its minimum."""
        spec = self._specs.get(key)
        if spec is not None and not spec.is_gang:
            self.refused(key, why)

    def placed(self, key: GroupKey) -> None:
        """Record that placing the members of *key* succeeded, unless they are placed each by itself."""
        spec = self._specs.get(key)
        if spec is not None and spec.is_gang:
            self.refused(key, "")

    def _judgement(self, spec: GroupSpec) -> _Judged:
        found = self._judged.get(spec.key)
        if found is None or found.uid != spec.uid:
            found = self._judged[spec.key] = _Judged(spec.uid)
        return found

    def _verdict(self, spec: GroupSpec) -> GroupVerdict:
        judged = self._judged.get(spec.key)
        if spec.problems:
            return GroupVerdict(admitted=False, why=unsupported(spec), reason=NOT_SUPPORTED)
        # The written phase is an earlier process's decision. Groups that are not ours have no phase, or another's.
        is_free = not self._is_ours(spec) or spec.status.phase is not GroupPhase.PENDING
        admitted = is_free or (judged is not None and judged.admitted)
        if judged is None:
            return GroupVerdict(admitted=admitted)
        if not admitted:
            return GroupVerdict(admitted=False, why=judged.waits, reason=NOT_ENOUGH_RESOURCES)
        if judged.lacks and not self._is_met(spec.key):
            return GroupVerdict(admitted=True, why=judged.lacks, reason=NOT_ENOUGH_PODS, since_s=judged.lacks_s)
        # Without waiting members nothing is refused any more: they may have been deleted.
        members = self._members.get(spec.key)
        is_waiting = members is not None and members.tally.of(MemberState.WAITING) > 0
        refused = judged.refused if is_waiting and (spec.is_gang or not self._is_met(spec.key)) else ""
        return GroupVerdict(admitted=True, why=refused, tried=bool(refused))

    def judged(self, key: GroupKey) -> tuple[GroupSpec, MemberCounts, GroupVerdict] | None:
        """Return the inputs of the status of group *key*; None if it is not written here."""
        spec = self._specs.get(key)
        if spec is None or not (self._is_ours(spec) or key.kind is GroupKind.NATIVE):
            return None
        members = self._members.get(key)
        return spec, members.tally if members is not None else MemberCounts(), self._verdict(spec)


def _amounts(pod: Pod) -> Amounts:
    try:
        return amounts_of(pod)
    except InvalidRequestError:
        return ()


def _parts(before: MemberState, now: MemberState) -> bool:
    """Return whether a change from *before* to *now* means that the member stops counting, or counts again."""
    return before is not now and (now is MemberState.FAILED or MemberState.LEAVING in (before, now))


def _quoted(key: GroupKey) -> str:
    """Return the name of a group in printable form, because it may come from a pod."""
    return quoted(str(key), 300)


def unsupported(spec: GroupSpec) -> str:
    """Return the message that a group cannot be read or has unsupported requests, and what to do."""
    if spec.unread:
        return f"{spec.key} cannot be read: {spec.unread}"
    what = ", ".join(spec.problems)
    return f"{spec.key} asks for {what}, which cardshare does not support; leave it out, or use Volcano's scheduler"
