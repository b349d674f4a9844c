"""Groups whose members are placed together: who of a group waits, who counts already, and what is told of the others.

A member that is on a node, is being sent to one or ended well counts; one that failed or leaves does not. Once enough
count, further members are placed like any other pod. What is decided of a gang is `core.placing.gang`'s; `cycle`
reserves and sends it.
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
from core.groups import SUBGROUPS_MAX, TASK, GroupKey, GroupKind, group_of, is_leaving, task_of
from core.model import NodeName, Phase, Pod
from core.placing import gang as gangs
from core.placing.domains import Near
from core.placing.gang import Together
from core.placing.minimums import TASKS, Division, Minimum, Path, Tally, minimum_of
from core.placing.shape import Shape
from core.waiting import Cause, Wait

# Where nothing is sent or reserved for a pod, and it may be decided.
_UNDECIDED: Final = (Stage.READY, Stage.REFUSED, Stage.HELD)
# Refusals of what nobody waits for any more are forgotten once there may be more of these than of others, and so many.
_SPARE: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """A group of which not enough members have their places.

    what: it, or one of its subgroups, as people are told. unit: its members. waiting: those to decide. absent: members
    that are there and not to be decided now: gated, resting, invalid. foreign: those that name another scheduler and
    have no node. asks: what they ask together, by which they wait while it is refused. subgroups: how many its group
    has.
    """

    key: GroupKey
    what: str
    unit: gangs.Unit
    waiting: tuple[Entry, ...]
    absent: int
    foreign: int
    asks: Together
    subgroups: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether its minimum would be met if all that wait were placed."""
        return self.subgroups <= SUBGROUPS_MAX and self.unit.is_complete

    def incomplete_wait(self) -> Wait:
        """Why those that wait do, while others are missing."""
        if self.subgroups > SUBGROUPS_MAX:
            text = f"name fewer matchLabelKeys: {self.key} has {self.subgroups} subgroups, at most {SUBGROUPS_MAX}"
            return Wait(Cause.WAITING_FOR_GROUP, f"{text} are placed")
        tally = self.unit.tally(Counter(one.parts for one in self.unit.members))
        wanted = Tally(self.unit.minimum, {}).needed()
        text = f"waits until {wanted} members of {self.what} can be placed together; {_ready(tally.members)}"
        short = tally.short()
        text += f" ({', '.join(short)})" if short else ""
        if self.absent:
            text += f", {self.absent} more {'is' if self.absent == 1 else 'are'} not ready: see why each waits"
        if self.foreign:
            name = self.waiting[0].pod.scheduler_name
            text += f", {self.foreign} more {'names' if self.foreign == 1 else 'name'} another scheduler: write {name}"
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
        """Whether a task lacks members; otherwise a subgroup does."""
        tasks = (part.name for one in self.unit.minimum.parts if one.name == TASKS for part in one.parts)
        return any(tally.helps((name,)) for name in tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why what is asked is refused.

    spender: of one of those that asked. wait: in short. answer: how many of a unit fit, None of a pod by itself. over:
    of what its queue or namespace has too little left. silent: nodes that were left out because their device plugins
    are silent.
    """

    spender: Spender
    wait: Wait
    answer: gangs.Refused | None = None
    over: tuple[Over, ...] = ()
    silent: tuple[NodeName, ...] = ()


class Gangs:
    """Finds gangs among pods, and remembers why units are refused, and pods whose queue or namespace has no room."""

    def __init__(
        self, groups: Groups, queue: SchedulingQueue, budgets: Budgets, room_on: Callable[[Shape, NodeName, int], int]
    ) -> None:
        """Begin with nothing; *room_on*: how many of a shape, up to a number, a node takes now."""
        self._budgets: Final = budgets
        self._groups: Final = groups
        self._queue: Final = queue
        self._room_on: Final = room_on
        self._refusals: Final[dict[Ask, Refusal]] = {}
        self._refusals_max = _SPARE
        # How many members nodes that opened may take, by unit that waits for them: at least as many as they do.
        self._gains: Final[dict[Together, dict[NodeName, int]]] = {}
        self._told: Final[dict[Together, str]] = {}
        self._begun: list[GroupKey] | None = None

    def gang(self, entry: Entry) -> Gang | None:
        """The gang that *entry* is decided with; None if it is decided alone."""
        key = group_of(entry.pod)
        found = self._gang(key, entry) if key is not None else None
        return None if found is None or entry not in found.waiting else found

    def unit(self, entry: Entry) -> gangs.Unit:
        """What is placed at once with *entry*: its gang, or it alone; nobody while it is not known what it asks."""
        found = self.gang(entry)
        if found is not None:
            return found.unit
        alone = () if entry.shape is None else (gangs.Member(pod=entry.pod, shape=entry.shape),)
        return gangs.Unit(members=alone)

    def is_near_others(self, pod: Pod) -> bool:
        """Whether it is for others of its group where *pod* is placed: it must be near them, or had better be."""
        key = group_of(pod)
        spec = self._groups.spec(key) if key is not None else None
        if spec is None:
            return False
        return self._groups.near(spec) is not None or any(map(self._groups.near, spec.sub_groups))

    def _gang(self, key: GroupKey, one: Entry | None = None) -> Gang | None:
        """Group *key* if its minimum is not there; else the subgroup of *one*, or *one* that must be near others."""
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
        if not (spec.is_gang or has_domains):
            return None
        held = Counter[Path]()
        home = set[NodeName]()
        homes: dict[str, tuple[Near, set[NodeName]]] = {}
        waiting: list[tuple[Entry, Path]] = []
        absent, foreign = Counter[Path](), Counter[Path]()
        division = Division(spec)
        for uid, pod in self._groups.members(key).items():
            entry = self._queue.get(uid)
            path, policy = division.of(pod)
            if policy in within:
                homes.setdefault(path[-1], (within[policy], set()))
            if _counts(pod, entry):
                held[path] += 1
                placement = entry.placement if entry is not None else None
                node = NodeName(pod.node_name) if pod.node_name or placement is None else placement.node
                home.add(node)
                if policy in within:
                    homes[path[-1]][1].add(node)
            elif entry is not None and _may_go(entry):
                waiting.append((entry, path))
            elif not (is_leaving(pod) or pod.finished):
                (foreign if entry is None and not pod.gated else absent)[path] += 1
        waiting.sort(key=lambda each: each[0].order)
        subgroup_of = {entry.pod.uid: path[-1] for entry, path in waiting if path and path[-1] in homes}
        minimum, what = minimum_of(spec, division), str(key)
        tally = Tally(minimum, held)
        if tally.is_met:
            path, policy = division.of(one.pod) if one is not None else ((), None)
            if policy is not None and tally.whole(path)[1]:
                minimum, what = Minimum(name="subgroup", members=policy.size), f"{path[-1]} of {key}"
                waiting = [(entry, ()) for entry, of in waiting if of[-1:] == path[-1:]]
                held, absent, foreign = (
                    Counter[Path]({(): sum(many for of, many in counts.items() if of[-1:] == path[-1:])})
                    for counts in (held, absent, foreign)
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
            asks=unit.together(self._budgets.limits(key)),
            subgroups=sum(map(len, division.subgroups.values())),
        )

    # ------------------------------------------------------------------ what was decided

    def placed(self, found: Gang) -> None:
        """Enough members have their places."""
        if not found.asks.inner:
            self._groups.placed(found.key)

    def refused(self, found: Gang, answer: gangs.Refused, silent: Iterable[NodeName]) -> None:
        """Not enough members fit."""
        wait = over_wait(answer.over) if answer.over else shortage(answer)
        refusal = Refusal(spender=found.key, wait=wait, answer=answer, over=answer.over, silent=tuple(sorted(silent)))
        self._note(found.asks, refusal)
        self._gains.pop(found.asks, None)
        if answer.over:
            self._told.pop(found.asks, None)

    def lacks(self, found: Gang, wait: Wait, now_s: float) -> None:
        """Not enough members are there: have that said of the group."""
        if not found.asks.inner:
            self._groups.lacks(found.key, wait.text, now_s)

    def tell(self, found: Gang) -> None:
        """Have it said of the group why its members find no place."""
        refusal = self._refusals.get(found.asks)
        if refusal is not None and not found.asks.inner:
            self._groups.refused(found.key, self._told.get(found.asks) or refusal.wait.text)

    def explained(self, asks: Together, text: str) -> None:
        """Why *asks* is refused, in full; the groups that wait so say it from now on."""
        if self._queue.refuses(asks):
            self._told[asks] = text
            if asks.inner:
                return  # its group has begun
            for key in dict.fromkeys(group_of(entry.pod) for entry in self._queue.refused_pods(asks)):
                if key is not None:
                    self._groups.refused(key, text)

    def capped(self, ask: Capped, pod: Pod, over: tuple[Over, ...]) -> None:
        """Queue or namespace of *pod*, which is decided alone, has too little left for it."""
        self._note(ask, Refusal(spender=spender_of(pod), wait=over_wait(over), over=over))

    def cap(self, entry: Entry) -> Capped | None:
        """What a pod that is decided alone waits by if too little is left for it; None if nothing limits that."""
        limits = self._budgets.limits(spender_of(entry.pod))
        return Capped(limits, entry.shape) if limits and entry.shape is not None else None

    def refusal(self, ask: Ask) -> Refusal | None:
        """Why *ask* was refused when it was last tried."""
        return self._refusals.get(ask)

    def counted_anew(self, ask: Capped) -> Wait | None:
        """Why *ask* is refused now, if what is left, too little still, is another amount than when it was refused."""
        refusal = self._refusals.get(ask)
        over = self._over_now(refusal) if refusal is not None else ()
        if refusal is None or not over or over == refusal.over:
            return None
        found = replace(refusal, wait=over_wait(over), over=over)
        self._refusals[ask] = found
        return found.wait

    def _over_now(self, refusal: Refusal) -> tuple[Over, ...]:
        """Of what there is too little left now for who was refused so."""
        left = self._budgets.budget(refusal.spender)
        return () if left is None else left.lacks({one.resource: one.asked for one in refusal.over})

    def _note(self, ask: Ask, refusal: Refusal) -> None:
        self._refusals[ask] = refusal
        if len(self._refusals) > self._refusals_max:
            for one in [one for one in self._refusals if one != ask and not self._queue.refuses(one)]:
                self.forget(one)
            self._refusals_max = 2 * len(self._refusals) + _SPARE

    def forget(self, ask: Ask) -> None:
        """Nobody waits by *ask*."""
        self._refusals.pop(ask, None)
        if isinstance(ask, Together):
            self._gains.pop(ask, None)
            self._told.pop(ask, None)

    # ------------------------------------------------------------------ trying again

    def may_fit(self, asks: Together, opened: Iterable[NodeName] | None) -> bool:
        """Whether a unit that was refused could fit, now that these nodes *opened*; None: any may have.

        Of members that are all alike those that fit are counted: there must be as many more as were missing.
        """
        refusal = self._refusals.get(asks)
        if refusal is None or refusal.answer is None:
            return True
        shapes = asks.shapes
        if len(shapes) == 1 and refusal.over:
            return self.has_room(asks)
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

    def has_room(self, ask: Ask) -> bool:
        """Whether the accounts for which *ask* was refused could have room for it now.

        Of others that came to limit it since nothing is asked: where they have none, it is refused for them.
        """
        refusal = self._refusals.get(ask)
        if refusal is None:
            return True
        lacking = {one.account for one in self._over_now(refusal)}
        return not any(one.account in lacking for one in refusal.over)

    def freed(self) -> Iterator[Ask]:
        """Those that wait for an account that may have more left, and have room there now."""
        self._budgets.hear()
        if not self._budgets.freed:
            return
        freed = frozenset(self._budgets.freed)
        self._budgets.freed.clear()
        for ask in self._queue.refused_asks():
            refusal = self._refusals.get(ask) if not isinstance(ask, Shape) else None
            if (
                refusal is not None
                and any(one.account.freed_with in freed for one in refusal.over)
                and self.has_room(ask)
            ):
                yield ask

    def begun(self) -> Entry | None:
        """Who waits of a gang that was begun before this process was: those are decided before all others, once."""
        if self._begun is None:
            if self._groups.served[GroupKind.VOLCANO] is None:
                return None  # nobody knows yet which groups there are
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
    """Whether a pod can be decided now; one that waits for others of its group is decided with them."""
    if entry.shape is None or entry.stage not in _UNDECIDED:
        return False
    # Who is held waits for the user, but for those who wait until more members are there.
    return entry.stage is not Stage.HELD or entry.waits_for_others


def _counts(pod: Pod, entry: Entry | None) -> bool:
    """Whether *pod* has its place in the gang: on a node, promised one or being sent there, or ended well."""
    if pod.phase is Phase.SUCCEEDED:
        return True
    if pod.phase is Phase.FAILED or is_leaving(pod):
        return False
    return bool(pod.node_name) or (entry is not None and entry.has_place)


def _ready(count: int) -> str:
    return f"{count} {'is' if count == 1 else 'are'} ready"
