"""Gangs: which members of a group wait, which count already, and why the group is refused.

A member counts if it is on a node, has a reservation, or succeeded; one that failed, is leaving or is being evicted
does not. Once the minimum is met, further members are placed like any other pod. `core.placing.gang` finds the places
of a gang; `cycle` reserves them and sends the Bindings.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from controller.deciding.lifecycle import Ask, Capped, Entry, Stage
from controller.deciding.queue import SchedulingQueue
from controller.grouping.budgets import Budgets, Spender, spender_of
from controller.grouping.groups import Groups
from core.constraints.quota import Over, over_wait
from core.explaining.shortage import shortage
from core.groups import TASK, is_leaving, task_of
from core.model import GroupKey, GroupKind, NodeName, Phase, Pod, PodUid, group_of
from core.placing import gang as gangs
from core.placing.decide import Shape
from core.placing.domains import Near
from core.placing.gang import Together
from core.placing.minimums import TASKS, Division, Minimum, Path, Tally, minimum_of
from core.units import counted
from core.waiting import Cause, Wait

# Stages in which nothing is sent or reserved for a pod, and it may be decided.
_UNDECIDED: Final = (Stage.READY, Stage.REFUSED, Stage.HELD)
# The number of refusals that are kept beyond twice the asks that were refused at the last clean-up.
_SPARE: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """A group whose minimum is not met yet.

    what: the group, or one of its subgroups, for messages. unit: its members. waiting: the members to decide. absent:
    the number of members that cannot be decided now: gated, backing off, invalid. foreign: the number of members of
    another scheduler without a node. leaving: the number that end and no longer count. asks: the joint ask, by which
    they wait while it is refused. resting: the members of *absent* that back off. undivided: why its subgroups cannot
    be placed, "" if they can.
    """

    key: GroupKey
    what: str
    unit: gangs.Unit
    waiting: tuple[Entry, ...]
    absent: int
    foreign: int
    leaving: int
    asks: Together
    resting: tuple[gangs.Member, ...] = ()
    undivided: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether the minimum would be met if all waiting members were placed."""
        return not self.undivided and self.unit.is_complete

    def may_start_with(self, rooms: int) -> bool:
        """Return whether the minimum can be met if *rooms* more members are placed, and those that back off return."""
        tally = self.unit.tally(Counter(one.parts for one in self.resting))
        unit = replace(self.unit, members=(*self.unit.members, *self.resting))
        return tally.needed() <= rooms and replace(self, unit=unit).is_complete

    def incomplete_wait(self) -> Wait:
        """Return that the waiting members wait for more members."""
        if self.undivided:
            return Wait(Cause.WAITING_FOR_GROUP, self.undivided)
        tally = self.unit.tally(Counter(one.parts for one in self.unit.members))
        wanted = Tally(self.unit.minimum, {}).needed()
        text = (
            f"waits until {counted(wanted, 'members')} of {self.what} can be placed together; {_ready(tally.members)}"
        )
        short = tally.short()
        text += f" ({', '.join(short)})" if short else ""
        if self.absent:
            text += f", {self.absent} more {'is' if self.absent == 1 else 'are'} not ready: see why each waits"
        if self.foreign:
            name = self.waiting[0].pod.scheduler_name
            text += f", {self.foreign} more {'names' if self.foreign == 1 else 'name'} another scheduler: write {name}"
        if self.leaving:
            text += f", {self.leaving} more {'is' if self.leaving == 1 else 'are'} leaving"
        missing = wanted - tally.members - self.absent - self.foreign
        if missing > 0:
            text += f". Create {missing} more"
            if not self.unit.minimum.name and tally.members and tally.parts_are_met:
                text += f", or set {self.unit.minimum.field} to {tally.members}"
        elif short and not self._lacks_tasks(tally):
            text += ". Compare the labels of its pods with the group's subGroupPolicy"
        elif short and not any(task_of(one.pod) for one in self.waiting):
            text += f". Name the task of each pod in annotation {TASK}, or leave out the group's minTaskMember"
        return Wait(Cause.WAITING_FOR_GROUP, text)

    def _lacks_tasks(self, tally: Tally) -> bool:
        """Return whether a task lacks members; otherwise a subgroup does."""
        tasks = (part.name for one in self.unit.minimum.parts if one.name == TASKS for part in one.parts)
        return any(tally.helps((name,)) for name in tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why an ask is refused.

    spender: whose queue or namespace pays for it. wait: the reason in short. answer: how many members of a unit fit;
    None for a single pod. over: what its queue or namespace has too little of. silent: nodes that were left out because
    their device plugins do not answer.
    """

    spender: Spender
    wait: Wait
    answer: gangs.Refused | None = None
    over: tuple[Over, ...] = ()
    silent: tuple[NodeName, ...] = ()


class Gangs:
    """Finds the gangs of pods, and remembers why units and pods over the limits of queues are refused."""

    def __init__(
        self,
        groups: Groups,
        queue: SchedulingQueue,
        budgets: Budgets,
        room_on: Callable[[Shape, NodeName, int], int],
        is_victim: Callable[[PodUid], bool],
    ) -> None:
        """Begin with nothing.

        Args:
            groups: groups and their members.
            queue: the pending pods.
            budgets: what groups may still hold.
            room_on: returns how many pods of a shape, up to a number, a node takes now.
            is_victim: returns whether a pod is being evicted for another.
        """
        self._budgets: Final = budgets
        self._groups: Final = groups
        self._queue: Final = queue
        self._room_on: Final = room_on
        self._is_victim: Final = is_victim
        self._refusals: Final[dict[Ask, Refusal]] = {}
        self._refusals_max = _SPARE
        # By refused unit, an upper bound of the members that each opened node takes.
        self._gains: Final[dict[Together, dict[NodeName, int]]] = {}
        self._told: Final[dict[Together, str]] = {}
        self._begun: list[GroupKey] | None = None

    def gang(self, entry: Entry) -> Gang | None:
        """Return the gang with which *entry* is decided; None if it is decided alone."""
        key = group_of(entry.pod)
        found = self._gang(key, entry) if key is not None else None
        return None if found is None or entry not in found.waiting else found

    def is_met(self, key: GroupKey) -> bool:
        """Return whether waiting members of group *key* are surely decided alone: not if it has subgroups.

        This reads all members.
        """
        spec = self._groups.spec(key)
        return spec is None or (not spec.sub_groups and self._gang(key) is None)

    def unit(self, entry: Entry) -> gangs.Unit:
        """Return what is placed together with *entry*: its gang, or it alone; empty while its shape is unknown."""
        found = self.gang(entry)
        if found is not None:
            return found.unit
        alone = () if entry.shape is None else (gangs.Member(pod=entry.pod, shape=entry.shape),)
        return gangs.Unit(members=alone)

    def is_near_others(self, pod: Pod) -> bool:
        """Return whether the place of *pod* depends on other members: its group has a topology."""
        key = group_of(pod)
        spec = self._groups.spec(key) if key is not None else None
        if spec is None:
            return False
        return self._groups.near(spec) is not None or any(map(self._groups.near, spec.sub_groups))

    def _gang(self, key: GroupKey, one: Entry | None = None) -> Gang | None:
        """Return group *key* if its minimum is not met; else the subgroup of *one*, or *one* if it has a topology."""
        spec = self._groups.spec(key)
        if spec is None:
            return None
        topology = self._groups.near(spec)
        within = {
            policy: near
            for policy in spec.sub_groups
            if policy.network_topology is not None and (near := self._groups.near(policy)) is not None
        }
        has_domains = topology is not None or bool(within)
        if not (spec.is_gang or any(spec.task_minimums.values()) or has_domains):
            return None
        held = Counter[Path]()
        home = set[NodeName]()
        homes: dict[str, tuple[Near, set[NodeName]]] = {}
        waiting: list[tuple[Entry, Path]] = []
        absent, foreign, leaving = Counter[Path](), Counter[Path](), Counter[Path]()
        resting: list[gangs.Member] = []
        division = Division(spec)
        for uid, pod in self._groups.members(key).items():
            entry = self._queue.get(uid)
            path, policy = division.of(pod)
            if policy in within:
                homes.setdefault(path[-1], (within[policy], set()))
            counts = self.counts(pod, entry)
            # A victim holds its group where it is until its eviction is accepted.
            if counts or (pod.node_name and self._is_victim(uid) and not (pod.finished or is_leaving(pod))):
                placement = entry.placement if entry is not None else None
                node = NodeName(pod.node_name) if pod.node_name or placement is None else placement.node
                home.add(node)
                if policy in within:
                    homes[path[-1]][1].add(node)
            if counts:
                held[path] += 1
            elif entry is not None and _may_go(entry):
                waiting.append((entry, path))
            elif is_leaving(pod) or self._is_victim(uid):
                leaving[path] += not pod.finished
            elif not (pod.finished or pod.node_name):
                (foreign if entry is None and not pod.gated else absent)[path] += 1
                if entry is not None and entry.stage is Stage.RESTING and entry.shape is not None:
                    resting.append(gangs.Member(pod=pod, shape=entry.shape, parts=path))
        waiting.sort(key=lambda each: each[0].order)
        subgroup_of = {entry.pod.uid: path[-1] for entry, path in waiting if path and path[-1] in homes}
        minimum, what = minimum_of(spec, division), str(key)
        tally = Tally(minimum, held)
        if tally.is_met and not division.problem:
            path, policy = division.of(one.pod) if one is not None else ((), None)
            if policy is not None and tally.whole(path)[1]:
                minimum, what = Minimum(name="subgroup", members=policy.size), f"{path[-1]} of {key}"
                waiting = [(entry, ()) for entry, of in waiting if of[-1:] == path[-1:]]
                resting = [each for each in resting if each.parts[-1:] == path[-1:]]
                held, absent, foreign, leaving = (
                    Counter[Path]({(): sum(many for of, many in counts.items() if of[-1:] == path[-1:])})
                    for counts in (held, absent, foreign, leaving)
                )
            elif one is not None and has_domains:
                minimum, waiting, held = Minimum(name="pod", members=1), [(one, ())], Counter()
            else:
                return None
        members = tuple(
            gangs.Member(pod=entry.pod, shape=entry.shape, parts=path, subgroup=subgroup_of.get(entry.pod.uid, ""))
            for entry, path in waiting
            if entry.shape is not None
        )
        asked = {one.subgroup for one in members}
        unit = gangs.Unit(
            members=members,
            minimum=minimum,
            held=held,
            topology=topology,
            home=frozenset(home) if topology is not None else frozenset(),
            inner={name: gangs.Inner(near, frozenset(nodes)) for name, (near, nodes) in homes.items() if name in asked},
        )
        return Gang(
            key=key,
            what=what,
            unit=unit,
            waiting=tuple(entry for entry, _ in waiting),
            absent=absent.total(),
            foreign=foreign.total(),
            leaving=leaving.total(),
            asks=unit.together(self._budgets.limits(key)),
            resting=tuple(resting),
            undivided=division.problem,
        )

    def counts(self, pod: Pod, entry: Entry | None) -> bool:
        """Return whether *pod* counts for the minimum: it is on a node, has a reservation, or succeeded."""
        if pod.phase is Phase.SUCCEEDED:
            return True
        if pod.phase is Phase.FAILED or is_leaving(pod) or self._is_victim(pod.uid):
            return False
        return bool(pod.node_name) or (entry is not None and entry.has_place)

    # ------------------------------------------------------------------ outcomes

    def placed(self, found: Gang) -> None:
        """Record that enough members were placed."""
        if not found.asks.inner:
            self._groups.placed(found.key)

    def refused(self, found: Gang, answer: gangs.Refused, silent: Iterable[NodeName]) -> None:
        """Record that not enough members fit."""
        several = found.unit.needed > 1
        wait = over_wait(answer.over, together=several) if answer.over else shortage(answer)
        refusal = Refusal(spender=found.key, wait=wait, answer=answer, over=answer.over, silent=tuple(sorted(silent)))
        self._note(found.asks, refusal)
        self._gains.pop(found.asks, None)
        if answer.over:
            self._told.pop(found.asks, None)

    def lacks(self, found: Gang, wait: Wait, now_s: float) -> None:
        """Report on the group that not enough members exist."""
        if not found.asks.inner:
            self._groups.lacks(found.key, wait.text, now_s)

    def tell(self, found: Gang) -> None:
        """Report on the group why its members do not fit."""
        refusal = self._refusals.get(found.asks)
        if refusal is not None and not found.asks.inner:
            self._groups.refused(found.key, self._told.get(found.asks) or refusal.wait.text)

    def explained(self, asks: Together, text: str) -> None:
        """Report the full reason *text* on all groups that wait with *asks*."""
        if self._queue.refuses(asks):
            self._told[asks] = text
            if asks.inner:
                return  # its group has begun
            for key in dict.fromkeys(group_of(entry.pod) for entry in self._queue.refused_pods(asks)):
                if key is not None:
                    self._groups.refused(key, text)

    def capped(self, ask: Capped, pod: Pod, over: tuple[Over, ...]) -> None:
        """Record that the queue or namespace of *pod*, which is decided alone, has too little left for it."""
        self._note(ask, Refusal(spender=spender_of(pod), wait=over_wait(over), over=over))

    def refusal(self, ask: Ask) -> Refusal | None:
        """Return why *ask* was refused at the last try."""
        return self._refusals.get(ask)

    def counted_anew(self, ask: Capped) -> Wait | None:
        """Return the reason with new figures, if too little is still left for *ask* but the amount has changed."""
        refusal = self._refusals.get(ask)
        over = self._over_now(refusal) if refusal is not None else ()
        if refusal is None or not over or over == refusal.over:
            return None
        found = replace(refusal, wait=over_wait(over), over=over)
        self._refusals[ask] = found
        return found.wait

    def _over_now(self, refusal: Refusal) -> tuple[Over, ...]:
        """Return what there is still too little of for a *refusal*."""
        left = self._budgets.budget(refusal.spender)
        return () if left is None else left.lacks({one.resource: one.asked for one in refusal.over})

    def _note(self, ask: Ask, refusal: Refusal) -> None:
        self._refusals[ask] = refusal
        if len(self._refusals) > self._refusals_max:
            for one in [one for one in self._refusals if one != ask and not self._queue.refuses(one)]:
                self.forget(one)
            self._refusals_max = 2 * len(self._refusals) + _SPARE

    def forget(self, ask: Ask) -> None:
        """Forget *ask*, with which no pod waits any more."""
        self._refusals.pop(ask, None)
        if isinstance(ask, Together):
            self._gains.pop(ask, None)
            self._told.pop(ask, None)

    # ------------------------------------------------------------------ trying again

    def may_fit(self, asks: Together, opened: Iterable[NodeName] | None) -> bool:
        """Return whether a refused unit could fit, now that nodes *opened*; None: any node may have.

        If all members are alike, the members that fit on these nodes are counted: as many as were missing must fit.
        """
        refusal = self._refusals.get(asks)
        if refusal is None or refusal.answer is None:
            return True
        shapes = asks.shapes
        if len(shapes) == 1 and refusal.over:
            return self.may_afford(asks)
        if opened is None:
            return True
        if len(shapes) > 1 or asks.whole or asks.has_domains:
            return any(self._room_on(shape, name, 1) for name in opened for shape in shapes)
        missing = refusal.answer.missing
        (shape,) = shapes
        gains = self._gains.setdefault(asks, {})
        for name in opened:
            gains[name] = self._room_on(shape, name, missing)
        return sum(gains.values()) >= missing

    def may_afford(self, ask: Ask) -> bool:
        """Return whether the accounts that refused *ask* may have enough left now.

        Accounts that limit it only since then are not checked; the next try does that.
        """
        refusal = self._refusals.get(ask)
        if refusal is None:
            return True
        lacking = {one.account for one in self._over_now(refusal)}
        return not any(one.account in lacking for one in refusal.over)

    def freed(self) -> Iterator[Ask]:
        """Yield the asks for which a freed account may have enough left now."""
        freed = self._budgets.freed
        for ask in self._queue.refused_asks():
            refusal = self._refusals.get(ask) if not isinstance(ask, Shape) else None
            if (
                refusal is not None
                and any(one.account.freed_with in freed for one in refusal.over)
                and self.may_afford(ask)
            ):
                yield ask

    def begun(self) -> Entry | None:
        """Return a waiting member of a gang that was partly placed before this process began; decided first, once."""
        if self._begun is None:
            if self._groups.served[GroupKind.VOLCANO] is None:
                return None  # the groups are not listed yet
            self._begun = list(dict.fromkeys(key for entry in self._queue if (key := group_of(entry.pod)) is not None))
        while self._begun:
            found = self._gang(self._begun[-1])
            if found is not None and any(found.unit.held.values()):
                entry = next((one for one in found.waiting if one.stage is Stage.READY), None)
                if entry is not None:
                    return entry
            self._begun.pop()
        return None


def _may_go(entry: Entry) -> bool:
    """Return whether a pod can be decided now; one that waits for other members is decided with them."""
    if entry.shape is None or entry.stage not in _UNDECIDED:
        return False
    # A held pod waits for the user, unless it waits for more members.
    return entry.stage is not Stage.HELD or entry.waits_for_others


def _ready(count: int) -> str:
    return f"{count} {'is' if count == 1 else 'are'} ready"
