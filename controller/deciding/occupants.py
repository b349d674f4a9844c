"""The pods on nodes, as far as it decides whether they leave for others of a higher priority."""

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Final

from controller.grouping.groups import Groups
from core.groups import GroupKey, group_of
from core.model import Pod, PodUid
from core.placing.preemption import SYSTEM_CRITICAL, Crowd, Occupant
from core.wire.disruptions import DisruptionBudget

# Its pods keep the cluster going, whatever their priority.
_SYSTEM: Final = "kube-system"
# Whether other queues may take back what it holds. Source: Volcano, scheduling/v1beta1 (groups 4.9).
_PREEMPTABLE: Final = "volcano.sh/preemptable"
_PREEMPTABLE_NO: Final = "false"
# The API server's object of a pod that a kubelet has from a file: to delete it ends nothing.
_MIRROR: Final = "kubernetes.io/config.mirror"


class Occupants:
    """Who is on a node.

    Attributes:
        budgets: the disruption budgets; None while they are not known.
    """

    def __init__(self, groups: Groups, clock: Callable[[], float]) -> None:
        self.budgets: dict[tuple[str, str], DisruptionBudget] | None = None
        self._groups: Final = groups
        self._clock: Final = clock
        self._who: Final[dict[PodUid, Occupant]] = {}
        # Who does not leave although asked to, and whom the API server does not let go before a time (monotonic).
        self._stuck: Final[set[PodUid]] = set()
        self._spared: dict[PodUid, float] = {}

    def put(self, pod: Pod) -> None:
        """*pod* is on a node; a finished one is not any more."""
        if pod.finished:
            self.drop(pod.uid)
            return
        priority = self._groups.standing(pod).priority
        self._who[pod.uid] = Occupant(
            priority=priority,
            start_s=pod.start_s or pod.created_s,
            block=group_of(pod),
            leaving=pod.deleting,
            kept=_PREEMPTABLE_NO in (pod.annotations.get(_PREEMPTABLE), pod.labels.get(_PREEMPTABLE)),
            stays=priority >= SYSTEM_CRITICAL or pod.namespace == _SYSTEM or _MIRROR in pod.annotations,
        )

    def group_changed(self, key: GroupKey) -> None:
        """Something else is known of a group: its members on nodes may have another priority."""
        for pod in self._groups.members(key).values():
            if pod.uid in self._who:
                self.put(pod)

    def drop(self, uid: PodUid) -> None:
        """A pod is on no node."""
        self._who.pop(uid, None)
        self._stuck.discard(uid)
        self._spared.pop(uid, None)

    def get(self, uid: PodUid) -> Occupant | None:
        """A pod that is on a node."""
        return self._who.get(uid)

    def is_leaving(self, uid: PodUid) -> bool:
        """Whether a pod is on a node and is expected to leave it."""
        found = self._who.get(uid)
        return found is not None and found.leaving and uid not in self._stuck

    def does_not_leave(self, uid: PodUid) -> None:
        """A pod was asked to leave long ago: do not count on it."""
        if uid in self._who:
            self._stuck.add(uid)

    def spare(self, uid: PodUid, until_s: float) -> None:
        """Do not choose a pod before *until_s* (monotonic): it may not leave now."""
        if uid in self._who:
            self._spared[uid] = until_s

    def crowd(self) -> Crowd:
        """All of them as they are now, of a gang together."""
        now_s = self._clock()
        self._spared = {uid: until_s for uid, until_s in self._spared.items() if until_s > now_s}
        who = dict(self._who)
        for uid in (*self._stuck, *self._spared):
            if uid in self._stuck or not who[uid].leaving:
                who[uid] = who[uid]._replace(leaving=False, stays=True)
        return Crowd(who, self._gangs(), self._all_budgets())

    def _gangs(self) -> dict[Hashable, Collection[PodUid]]:
        """The members of every group that is disrupted together."""
        return {key: tuple(self._groups.members(key)) for key in self._groups.named() if self.disrupted_together(key)}

    def disrupted_together(self, key: GroupKey) -> bool:
        """Whether members of group *key* leave together: by its disruption mode, or as they are placed."""
        spec = self._groups.spec(key)
        if spec is None:
            return False
        return spec.is_gang if spec.disrupted_together is None else spec.disrupted_together

    def _all_budgets(self) -> Sequence[DisruptionBudget]:
        return tuple(self.budgets.values()) if self.budgets else ()

    # ------------------------------------------------------------------ disruption budgets

    def budgets_replaced(self, budgets: Sequence[DisruptionBudget]) -> None:
        """These disruption budgets, and no others, exist."""
        self.budgets = {(one.namespace, one.name): one for one in budgets}

    def forget_budgets(self) -> None:
        """It is not known any more which disruption budgets there are."""
        self.budgets = None

    def budget_changed(self, budget: DisruptionBudget) -> None:
        """A disruption budget appeared or changed."""
        if self.budgets is not None:
            self.budgets[budget.namespace, budget.name] = budget

    def budget_gone(self, budget: DisruptionBudget) -> None:
        """A disruption budget is deleted."""
        if self.budgets is not None:
            self.budgets.pop((budget.namespace, budget.name), None)
