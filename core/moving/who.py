"""Who may move: pods that a controller replaces, and whose owners, budgets and annotations allow an eviction now.

Everybody else stays, each for one reason. Members of a gang move together or not at all.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from core.admission.rulebook import Rulebook, rulebook
from core.constraints.taints import tolerates
from core.groups import GroupSpec
from core.ledger import Ledger
from core.model import NO_VOLUMES, GroupKey, Phase, Pod, PodUid, Taint, group_of
from core.moving.search import Movable
from core.placing.crowd import SYSTEM_CRITICAL, is_counted, speaks_of
from core.placing.decide import Shape, shape_of
from core.placing.queues import standing_of
from core.wire.policies import DisruptionBudget, PriorityClass

_SYSTEM: Final = "kube-system"
# Their pods belong to one node: a DaemonSet's, and those that a kubelet has from a file.
_OF_NODE: Final = ("DaemonSet/", "Node/")
# Their controllers replace a pod whatever it did until then; others may count a failure, or end with it.
_REPLACING: Final = ("ReplicaSet/", "StatefulSet/", "ReplicationController/", "CloneSet/")
# The key of the taint of nodes on which room is made: only pods that are to get in may be placed there.
MOVING: Final = "cardshare.io/moving"
_CLOSED: Final = Taint(key=MOVING, value="of any plan", effect="NoSchedule")
# Annotations by which a pod asks not to be moved. Source: Karpenter, "Disruption"; Cluster Autoscaler, "FAQ".
_REFUSING: Final = (
    ("karpenter.sh/do-not-disrupt", "true"),
    ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
)


class Stays(StrEnum):
    """Why a pod does not move."""

    OTHER_SCHEDULER = "another scheduler places them"
    NO_CONTROLLER = "no controller would replace them"
    OF_NODE = "they belong to their node (DaemonSets, static pods)"
    OF_JOB = "their Job, or a controller of another kind, may count a failure; --jobs lets them move"
    OF_SYSTEM = "the cluster needs them (kube-system, system priorities)"
    ANNOTATION = "they carry do-not-disrupt, or safe-to-evict: false"
    TOLERATES = "they tolerate every taint, so they could come back to the node"
    PRIORITY = "their priority is higher"
    BUDGET = "a PodDisruptionBudget allows no eviction now"
    BUDGETS = "several PodDisruptionBudgets select them, and the API server evicts no such pod"
    VOLUMES = "their volume claims cannot be judged"
    LEAVING = "they are being deleted"
    NOT_JUDGED = "cardshare cannot say where a replacement would fit"
    OWN_GROUP = "they belong to the group that room is made for"
    GROUP = "their group may not move as a whole"
    UNKNOWN_GROUP = "their PodGroup is not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """What decides who may move, besides the pods.

    priority: of the pods that are to get in. own: their group. jobs: pods of Jobs may move, and of all
    other controllers but ReplicaSets and their like. groups: by key. classes: by
    name. budgets: all PodDisruptionBudgets. schedulers: names of the schedulers that are cardshare.
    """

    priority: int = 0
    own: GroupKey | None = None
    jobs: bool = False
    groups: Mapping[GroupKey, GroupSpec] = field(default_factory=dict)
    classes: Mapping[str, PriorityClass] = field(default_factory=dict)
    budgets: Sequence[DisruptionBudget] = ()
    schedulers: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class MovablePods:
    """Who may move, and why each other pod stays, by uid."""

    movable: Mapping[PodUid, Movable]
    staying: Mapping[PodUid, Stays]


def crowd_of(ledger: Ledger, pods: Iterable[Pod], rights: Rights) -> MovablePods:
    """Return who of *pods* on nodes may move.

    Args:
        ledger: one in which all of *pods* are counted.
        pods: all pods that are on nodes.
        rights: what else decides it.
    """
    judge = _Judge(ledger, rights)
    found: dict[PodUid, Movable] = {}
    stays: dict[PodUid, Stays] = {}
    members: dict[GroupKey, list[PodUid]] = {}
    for pod in pods:
        if pod.finished or ledger.node_of(pod.uid) not in ledger.states:
            continue
        key = group_of(pod)
        if key is not None and judge.moves_whole(key):
            members.setdefault(key, []).append(pod.uid)
        verdict = judge.of(pod)
        if isinstance(verdict, Movable):
            found[pod.uid] = verdict
        else:
            stays[pod.uid] = verdict
    for uids in members.values():
        if any(uid in stays for uid in uids):
            stays |= {uid: Stays.GROUP for uid in uids if uid in found}
            for uid in uids:
                found.pop(uid, None)
    return MovablePods(found, stays)


def replacement_of(pod: Pod, book: Rulebook) -> Pod:
    """Return *pod* as its controller makes it again: on no node, and without what a scheduler or a plugin wrote."""
    written = set(book.protected_of(pod.annotations))
    annotations = {key: value for key, value in pod.annotations.items() if key not in written} if written else None
    return pod._replace(
        node_name="",
        nominated_node="",
        phase=Phase.PENDING,
        started=False,
        init_done=False,
        ready=False,
        deleting=False,
        start_s=0,
        annotations=pod.annotations if annotations is None else annotations,
        status_reason="",
        status_message="",
        scheduled_reason="",
        scheduled_message="",
    )


class _Judge:
    def __init__(self, ledger: Ledger, rights: Rights) -> None:
        self._ledger: Final = ledger
        self._rights: Final = rights
        self._book: Final = rulebook(ledger.settings, ledger.tables, ledger.catalog)
        self._budgets: Final[dict[str, list[DisruptionBudget]]] = {}
        for one in rights.budgets:
            self._budgets.setdefault(one.namespace, []).append(one)

    def moves_whole(self, key: GroupKey) -> bool:
        """Return whether members of group *key* move together or not at all."""
        spec = self._rights.groups.get(key)
        if spec is None:
            return False
        return spec.is_gang if spec.disrupted_together is None else spec.disrupted_together

    def of(self, pod: Pod) -> Movable | Stays:
        """Return *pod*'s replacement, or why it stays."""
        rights, key = self._rights, group_of(pod)
        spec = rights.groups.get(key) if key is not None else None
        priority = standing_of(pod, spec, rights.classes).priority
        stays = (
            self._by_owner(pod, priority)
            or self._by_group(key, spec)
            or self._by_budget(pod)
            or (Stays.PRIORITY if priority > rights.priority else None)
        )
        if stays is not None:
            return stays
        again = replacement_of(pod, self._book)
        shape = shape_of(again, self._ledger)
        if not isinstance(shape, Shape):
            return Stays.VOLUMES if pod.volumes != NO_VOLUMES else Stays.NOT_JUDGED
        block = key if key is not None and self.moves_whole(key) else None
        return Movable(again, shape, priority, pod.start_s or pod.created_s, block)

    def _by_owner(self, pod: Pod, priority: int) -> Stays | None:
        if pod.deleting:
            return Stays.LEAVING
        if pod.owner.startswith(_OF_NODE):
            return Stays.OF_NODE
        if priority >= SYSTEM_CRITICAL or pod.namespace == _SYSTEM:
            return Stays.OF_SYSTEM
        if pod.scheduler_name not in self._rights.schedulers:
            return Stays.OTHER_SCHEDULER
        if not pod.owner:
            return Stays.NO_CONTROLLER
        if not (self._rights.jobs or pod.owner.startswith(_REPLACING)):
            return Stays.OF_JOB
        if any(pod.annotations.get(name) == value for name, value in _REFUSING):
            return Stays.ANNOTATION
        if tolerates(pod.constraints.tolerations, _CLOSED):
            return Stays.TOLERATES
        return None

    def _by_group(self, key: GroupKey | None, spec: GroupSpec | None) -> Stays | None:
        if key is None:
            return None
        if key == self._rights.own:
            return Stays.OWN_GROUP
        if spec is None:
            # Without an object, a group is what annotations of its pods say, which are not read here.
            return Stays.UNKNOWN_GROUP
        near = spec.network_topology or spec.topology_key or any(one.network_topology for one in spec.sub_groups)
        return Stays.GROUP if near or spec.problems else None

    def _by_budget(self, pod: Pod) -> Stays | None:
        meant = [one for one in self._budgets.get(pod.namespace, ()) if speaks_of(one, pod.labels)]
        if not is_counted(meant, pending=pod.phase is Phase.PENDING, ready=pod.ready):
            return None
        if len(meant) > 1:
            return Stays.BUDGETS
        return Stays.BUDGET if any(one.allowed < 1 for one in meant) else None


def budget_of(pod: Pod, budgets: Iterable[DisruptionBudget]) -> str:
    """Return the name of the PodDisruptionBudget that selects *pod*, "" if none does."""
    found = (one.name for one in budgets if one.namespace == pod.namespace and speaks_of(one, pod.labels))
    return next(found, "")
