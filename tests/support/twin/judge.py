"""What must never be, read from API objects and the kubelets' process tables alone.

Its own arithmetic, its own reading of annotations: nothing here comes from what is judged.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import permutations, product
from typing import Any, NamedTuple

from tests.support.twin.api import Json
from tests.support.twin.clock import CLOCK
from tests.support.twin.machines import ASCEND, ENDED, Kind, Machine, Share, shares_of

# Names a type of card that a pod does not accept.
NO_USE = "nvidia.com/nouse-gputype"
GROUP = "scheduling.k8s.io/group-name"
TASK = "volcano.sh/task-spec"
MODE, HAMI_MODE = "volcano.sh/vgpu-mode", "nvidia.com/vgpu-mode"
LOCK = "hami.io/mutex.lock"
# Before the names of Kubernetes' own PodGroups.
NATIVE = "native/"

# The driver's templates: MiB, AI cores and AI CPUs, of 21527, 8 and 7 of a whole chip (ascend 1.1, 3.2).
CUTS = {
    "": (21527, 8, 7),
    "vir01": (3072, 1, 1),
    "vir02": (6144, 2, 2),
    "vir02_1c": (6144, 2, 1),
    "vir04": (12288, 4, 4),
    "vir04_3c": (12288, 4, 3),
}


# What a condition says (why-pods-wait.md).
_NODES = re.compile(r"\b0/(\d+) nodes are available")
_NEAREST = re.compile(r"Nearest: (?P<node>\S+) (?P<card>\S+): (?P<mib>\d+) of \d+ MiB free[.,;]")
_LESS = re.compile(r"(?:Ask for|with) at most (?P<mib>\d+) MiB of memory(?:, or wait|\.|,? it would be placed now)")


class Use(NamedTuple):
    """What is in use of one card."""

    mib: int = 0
    cores: int = 0
    cpus: int = 0
    slots: int = 0

    def plus(self, other: "Use") -> "Use":
        return Use(*(a + b for a, b in zip(self, other, strict=True)))

    def most(self, other: "Use") -> "Use":
        return Use(*(max(a, b) for a, b in zip(self, other, strict=True)))


def use(machine: Machine, share: Share) -> Use:
    """What one share takes."""
    if machine.profiles:
        return Use(slots=1)  # their places say the rest
    if machine.geometry:
        return Use(machine.slice_mib(share.place), share.cores, 0, 1)
    if machine.kind is Kind.ASCEND:
        mib, cores, cpus = CUTS[share.place]
        return Use(max(mib, share.mib), cores, cpus, 1)
    return Use(share.mib, share.cores, 0, 1)


def total(machine: Machine, card: str) -> Use:
    """What a card has."""
    if machine.kind is Kind.ASCEND:
        return Use(machine.cards.get(card, 0), 8, 7, machine.slots)
    return Use(machine.cards.get(card, 0), 100, 0, machine.slots)


class Judge:
    """Looks at one world."""

    def __init__(self, world: Any) -> None:
        self._world = world

    # ------------------------------------------------------------------ after every event

    def look(self) -> None:
        """Judge the nodes of which something changed."""
        world = self._world
        for name in sorted(world.dirty):
            machine = world.machines[name]
            for card, (used, holders) in self.in_use(machine, but=machine.doubtful).items():
                there = self._allowed(machine, card, used)
                if any(a > b for a, b in zip(used, there, strict=True)):
                    world.find("oversold", f"{name}: {card} has {there}, in use {used} by {', '.join(holders)}")
            for text in cut_wrong(machine, self._places(machine)):
                world.find("oversold", text)
            for text in machine.swapped:
                world.find("swapped", text)
            for _, text in machine.refused:
                world.find("lost", text)
            machine.swapped.clear()
            machine.refused.clear()
        world.dirty.clear()
        for key in world.api.gated:
            world.find("gated", f"{key} has scheduling gates, and somebody tried to bind it")
        world.api.gated.clear()

    def excuse(self, machine: Machine) -> None:
        """Its cards are about to change: whoever was placed by what they were may come, and stay."""
        for card in machine.cards:
            machine.excused[card] = total(machine, card).most(machine.excused.get(card, Use()))

    @staticmethod
    def _allowed(machine: Machine, card: str, used: Use) -> Use:
        """What may be in use of *card*: what it has, and what was there when it became less."""
        excused = machine.excused.get(card)
        if excused is None:
            return total(machine, card)
        if CLOCK.now_s >= machine.changed_until_s:
            excused = machine.excused[card] = Use(*map(min, excused, used))
        return total(machine, card).most(excused)

    def in_use(self, machine: Machine, *, but: Collection[str] = ()) -> dict[str, tuple[Use, list[str]]]:
        """Of every card what is in use, and by whom: pods that are bound and not at their end, and all processes.

        Not by pods with the uids of *but*.
        """
        by_uid: dict[tuple[str, str], dict[str, Use]] = defaultdict(dict)
        for key, pod in self._world.api.objects["pods"].items():
            if pod["spec"].get("nodeName") == machine.name and pod["status"].get("phase") not in ENDED:
                by_uid[pod["metadata"]["uid"], key] = _by_card(machine, machine.shares(pod))
        for proc in machine.procs.values():
            if proc.runs and not proc.is_excused:
                mine = by_uid[proc.uid, proc.key]
                for card, used in _by_card(machine, proc.shares).items():
                    mine[card] = mine.get(card, Use()).most(used)
        found: dict[str, tuple[Use, list[str]]] = {}
        for (uid, key), cards in [one for one in by_uid.items() if one[0][0] not in but]:
            for card, used in cards.items():
                before, holders = found.get(card, (Use(), []))
                found[card] = before.plus(used), [*holders, f"{key} ({uid}) {used.mib}"]
        return found

    # ------------------------------------------------------------------ once nothing happens any more

    def forgotten(self) -> list[str]:
        """Pods that wait although they fit somewhere, or without a word, and what was taken and not given back.

        After all has come to rest.
        """
        found = []
        gangs: dict[str, list[tuple[str, Json]]] = defaultdict(list)
        for key, pod in sorted(self._world.api.objects["pods"].items()):
            if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
                continue
            if pod["spec"].get("schedulingGates"):
                continue
            group = group_of(pod)
            if group:
                gangs[group].append((key, pod))
            elif (places := self.places([pod])) is not None:
                found.append(f"{key} waits, and fits on {places[0]}: {told(pod)}")
            if not told(pod):
                found.append(f"{key} waits, and nobody says why")
            found += self._untrue(key, pod)
            if node := pod["status"].get("nominatedNodeName"):
                found.append(f"{key} waits, and is still nominated for {node}")
        for group, waiting in gangs.items():
            if self._world.wanted(group) is None:
                continue
            chosen = self._next(group, waiting)
            places = self.places([pod for _, pod in chosen]) if chosen else None
            if places is not None:
                keys = [key for key, _ in chosen]
                found.append(f"{keys} of {group} wait, and fit on {places}: {told(waiting[0][1])}")
        for name, node in self._world.api.objects["nodes"].items():
            if lock := node["metadata"]["annotations"].get(LOCK):
                found.append(f"{name} is still locked: {lock}")
        return found

    def _untrue(self, key: str, pod: Json) -> Iterator[str]:
        """What the condition of a waiting pod says that is not so: what is free of a card, and what would fit now."""
        text, world = told(pod), self._world
        if world.kueue is not None or group_of(pod):
            return  # promises to others, and places of other members, count too
        if (nodes := _NODES.search(text)) and int(nodes[1]) != len(world.api.objects["nodes"]):
            yield f"the condition of {key} names {nodes[1]} nodes: {text}"
        near = _NEAREST.search(text)
        machine = world.machines.get(near["node"]) if near else None
        if near and machine is not None and near["card"] in machine.cards and not machine.is_cut:
            used, _ = self.in_use(machine).get(near["card"], (Use(), []))
            free = max(total(machine, near["card"]).mib - used.mib, 0)
            if free != int(near["mib"]):
                yield f"the condition of {key} names {near['mib']} MiB free, and {free} are: {text}"
        less = _LESS.search(text)
        if less is None or len(pod["spec"]["containers"]) > 1:
            return
        # What quotas leave is another reason, which comes once a node has room.
        if all(self._room(_asking(pod, less["mib"]), one) is None for one in world.machines.values()):
            yield f"the condition of {key} says that it would fit with {less['mib']} MiB, and it would not: {text}"

    def _next(self, group: str, waiting: list[tuple[str, Json]]) -> list[tuple[str, Json]]:
        """The members with which a group would have as many as it wants, or one more if it has them; [] if it lacks."""
        first: list[tuple[str, Json]] = []
        for task, many in self._world.wanted_of_tasks(group).items():
            more = max(many - self.held(group, task), 0)
            mates = [one for one in waiting if task_of(one[1]) == task]
            if len(mates) < more:
                return []
            first += mates[:more]
        more = self.needed(group) - len(first)
        others = [one for one in waiting if one not in first]
        return first + others[: max(more, 0)] if len(others) >= more else []

    def needed(self, group: str) -> int:
        """How many more members a group needs to have as many as it wants; 1 if it has."""
        tasks = self._world.wanted_of_tasks(group).items()
        lacks: int = sum(max(many - self.held(group, task), 0) for task, many in tasks)
        wanted: int = self._world.wanted(group) or 0
        return max(wanted - self.held(group), lacks, 1)

    def held(self, group: str, task: str = "") -> int:
        """How many members of a group, or of a task of it, count: on a node, or ended well."""
        pods = [
            pod
            for pod in self._world.api.objects["pods"].values()
            if group_of(pod) == group
            and task in ("", task_of(pod))
            and (not pod["metadata"].get("deletionTimestamp") or pod["status"].get("phase") == "Succeeded")
        ]
        return sum(
            pod["status"].get("phase") == "Succeeded"
            or bool(pod["spec"].get("nodeName") and pod["status"].get("phase") != "Failed")
            for pod in pods
        )

    def lonely(self) -> list[str]:
        """Pods on nodes of groups that never had as many members as they want."""
        world, found = self._world, []
        for key, pod in sorted(world.api.objects["pods"].items()):
            group = group_of(pod)
            if pod["spec"].get("nodeName") and group and world.members[group] < world.groups[group]:
                found.append(f"{key} is on a node, and {group} wants {world.groups[group]} members")
        return found

    def places(self, pods: list[Json]) -> list[str] | None:
        """The nodes on which *pods* find room one after the other; None if one finds none, or a quota has none."""
        if not self._world.limits.allows(pods):
            return None
        now: dict[str, dict[str, Use]] = {}
        beside: dict[str, list[Json]] = defaultdict(list)
        places = []
        for pod in pods:
            for name, machine in sorted(self._world.machines.items()):
                cards = self._room(pod, machine, now.get(name), beside[name])
                if cards is not None:
                    now[name] = cards
                    beside[name].append(pod)
                    places.append(name)
                    break
            else:
                return None
        return places

    def _room(
        self,
        pod: Json,
        machine: Machine,
        cards: dict[str, Use] | None = None,
        beside: Sequence[Json] = (),
        but: Collection[str] = (),
    ) -> dict[str, Use] | None:
        """Return what *machine* has in use with *pod*, by default beside what it has now; None: it does not fit.

        beside: others that are to go there too. but: uids of pods that are not there.
        """
        node = self._world.api.objects["nodes"].get(machine.name)
        if node is None or not machine.is_ready or not int(node["status"]["allocatable"].get(machine.kind.resource, 0)):
            return None
        if not accepts(pod, machine) or (_mode(pod) == "mig" and not machine.is_cut):
            return None
        if not all(side.allows(pod, machine, beside) for side in self._world.sides):
            return None
        wanted = [(count, given(machine, share)) for count, share in filter(None, asks(pod, machine.kind))]
        if not wanted or node["spec"].get("unschedulable") or node["spec"].get("taints"):
            return None
        if cards is None:
            cards = self._cards(machine, but=but)
        if machine.is_cut:
            return self._room_in_slices(pod, machine, cards, beside, but)
        if sum(used.slots for used in cards.values()) + sum(count for count, _ in wanted) > len(cards) * machine.slots:
            return None
        ways = [list(permutations(sorted(cards), count)) for count, _ in wanted]
        return next((now for way in product(*ways) if (now := self.holds(machine, cards, wanted, way))), None)

    def _cards(self, machine: Machine, *, but: Collection[str] = ()) -> dict[str, Use]:
        """What is in use of each card that takes pods."""
        in_use, shunned = self.in_use(machine, but=but), machine.ill.keys() | self._shunned(machine)
        return {card: in_use.get(card, (Use(), []))[0] for card in machine.cards if card not in shunned}

    def _shunned(self, machine: Machine) -> set[str]:
        return {card for side in self._world.sides for card in side.shuns(machine)}

    def fits_without(self, pod: Json, machine: Machine, uids: Collection[str]) -> bool:
        """Whether *pod* would fit on *machine* without the pods *uids* there."""
        if not self._world.limits.allows([pod]):
            return False
        return self._room(pod, machine, but=uids) is not None

    def _places(self, machine: Machine, *, but: Collection[str] = ()) -> dict[str, list[tuple[str, Share]]]:
        """Of every card that is cut, the slices in use: by whom, and which; a pod and its processes count once."""
        if not machine.is_cut:
            return {}
        by_uid: dict[str, Counter[Share]] = defaultdict(Counter)
        for _, pod in sorted(self._world.api.objects["pods"].items()):
            if pod["spec"].get("nodeName") == machine.name and pod["status"].get("phase") not in ENDED:
                by_uid[pod["metadata"]["uid"]] = Counter(shares_of(pod, machine.kind.assigned))
        for proc in machine.procs.values():
            if proc.runs and not proc.is_excused:
                by_uid[proc.uid] |= Counter(proc.shares)
        found: dict[str, list[tuple[str, Share]]] = defaultdict(list)
        for uid, shares in by_uid.items():
            for share in shares.elements() if uid not in but else ():
                found[share.card].append((uid, share))
        return found

    def _room_in_slices(
        self, pod: Json, machine: Machine, cards: dict[str, Use], beside: Sequence[Json], but: Collection[str]
    ) -> dict[str, Use] | None:
        """Return *cards* if *pod* finds slices after those *beside* did; None: it does not."""
        if _mode(pod) not in ("", "mig"):
            return None
        free = self._cards(machine, but=but)
        taken = {card: {one.place for _, one in found} for card, found in self._places(machine, but=but).items()}
        for one in (*beside, pod):
            for count, share in filter(None, asks(one, machine.kind)):
                left = count
                # HAMi gives several instances of one card to one container.
                for card in sorted([*free] * (count if machine.profiles else 1)):
                    place = _slice_for(machine, share, free[card], card, taken.get(card, set()))
                    if place and left:
                        left -= 1
                        taken[card] = taken.get(card, set()) | {place}
                        free[card] = free[card].plus(use(machine, share._replace(place=place)))
                if left or sum(used.slots for used in free.values()) > len(free) * machine.slots:
                    return None
        return cards

    @staticmethod
    def holds(
        machine: Machine, cards: dict[str, Use], wanted: list[tuple[int, Share]], way: Any
    ) -> dict[str, Use] | None:
        """Return what is in use beside *cards* if each of *wanted* is on its cards of *way*; None: it does not fit."""
        now = dict(cards)
        # What a chip is cut to is written once a pod and chip (ascend, D-8): its containers are on chips of their own.
        if machine.kind is Kind.ASCEND and len({card for chosen in way for card in chosen}) < sum(map(len, way)):
            return None
        for (_, share), chosen in zip(wanted, way, strict=True):
            for card in chosen:
                there = total(machine, card)
                # A card whose cores are all taken takes nobody more, whatever he asks (nvidia 3.5).
                if machine.kind is not Kind.ASCEND and now[card].cores >= there.cores:
                    return None
                now[card] = now[card].plus(use(machine, share))
                if any(a > b for a, b in zip(now[card], there, strict=True)):
                    return None
        return now


def cut_wrong(machine: Machine, places: dict[str, list[tuple[str, Share]]]) -> Iterator[str]:
    """What no card can be cut into at once: two layouts, a slice twice, one that there is not, or that is too small."""
    for card, found in places.items():
        if machine.profiles:
            told = ", ".join(f"{uid} {share.place} {share.mib}" for uid, share in found)
            parts = [at for _, share in found for at in _parts(share.place)]
            if len(set(parts)) < len(parts):
                yield f"{machine.name}: {card} has instances that overlap: {told}"
            continue
        groups = {share.place.partition("-")[0] for _, share in found}
        told = ", ".join(f"{uid} {share.place} {share.mib}" for uid, share in found)
        if len(groups) > 1:
            yield f"{machine.name}: {card} is in two layouts: {told}"
        if len({share.place for _, share in found}) < len(found):
            yield f"{machine.name}: {card} has a slice that two have: {told}"
        if any(machine.slice_mib(share.place) < max(share.mib, 1) for _, share in found):
            yield f"{machine.name}: {card} has no such slice: {told}"


def _parts(place: str) -> range:
    """The parts of a card that an instance of HAMi's takes; none of a share that says no place."""
    start, _, size = place.partition("+")
    return range(int(start), int(start) + int(size)) if size else range(0)


def _instance_for(machine: Machine, share: Share, used: Use, taken: set[str]) -> str:
    """The first place of the smallest profile that takes *share* beside *taken*; "" if there is none (hami 4.7)."""
    parts = {at for place in taken for at in _parts(place)}
    if used.slots >= machine.slots or "" in taken:
        return ""
    # What a share is charged is its profile's.
    sizes = {one.size: one.cores for one in machine.profiles}
    cores = sum(sizes.get(len(_parts(place)), 100) for place in taken)
    if cores + share.cores > 100 or cores == 100:
        return ""
    for one in sorted(machine.profiles, key=lambda one: one.mib):
        if one.mib >= share.mib:
            starts = sorted(one.starts, reverse=one.name.startswith(("1g.", "3g.")))
            for start in starts:
                if not parts & {*range(start, start + one.size)}:
                    return f"{start}+{one.size}"
    return ""


def _slice_for(machine: Machine, share: Share, used: Use, card: str, taken: set[str]) -> str:
    """The first slice that takes *share* on a card of which so much is *taken*; "" if there is none (nvidia 3.6)."""
    if machine.profiles:
        return _instance_for(machine, share, used, taken)
    there = total(machine, card)
    if used.cores >= there.cores or used.cores + share.cores > there.cores or used.slots >= there.slots:
        return ""
    if share.mib > there.mib - used.mib:
        return ""
    group_now = next(iter(taken)).partition("-")[0] if taken else ""
    for group, profiles in machine.geometry.items():
        places = [f"{group}-{at}" for at in range(sum(count for _, count in profiles))]
        fits = [one for one in places if one not in taken and machine.slice_mib(one) >= share.mib]
        if fits and group_now in ("", group):
            return min(fits, key=machine.slice_mib)
    return ""


def given(machine: Machine, share: Share) -> Share:
    """What a container gets that asks for *share*: so many of the plugin's units, or the smallest template for it."""
    if machine.kind is not Kind.ASCEND:
        return share._replace(mib=share.mib * machine.factor)
    temps = [name for name in machine.templates if CUTS[name][0] >= share.mib]
    place = min(temps, key=lambda name: CUTS[name]) if temps else ""
    return share._replace(mib=max(CUTS[place][0], share.mib), place=place)


def accepts(pod: Json, machine: Machine) -> bool:
    """Whether a pod does not exclude the type of the node's cards; the only one that is excluded is T4."""
    return NO_USE not in pod["metadata"].get("annotations", {}) or "T4" not in machine.model


def _mode(pod: Json) -> str:
    notes = pod["metadata"].get("annotations", {})
    return str(notes.get(MODE, "") or notes.get(HAMI_MODE, ""))


def group_of(pod: Json) -> str:
    """The PodGroup of a pod, Kubernetes' own after `NATIVE`; "" if it has none."""
    native = pod["spec"].get("schedulingGroup", {}).get("podGroupName", "")
    return str(pod["metadata"].get("annotations", {}).get(GROUP) or (native and NATIVE + native))


def task_of(pod: Json) -> str:
    """The task of a pod in its group; "" if it has none."""
    return str(pod["metadata"].get("annotations", {}).get(TASK, ""))


def _asking(pod: Json, mib: str) -> Json:
    """Return *pod* if it asked for *mib* of each card."""
    containers = []
    for container in pod["spec"]["containers"]:
        limits = container["resources"]["limits"]
        less = {key: mib if key.endswith(("-memory", "/gpumem")) else value for key, value in limits.items()}
        containers.append({**container, "resources": {**container["resources"], "limits": less}})
    return {**pod, "spec": {**pod["spec"], "containers": containers}}


def told(pod: Json) -> str:
    """Why a pod waits, as its condition says."""
    for one in pod["status"].get("conditions", ()):
        if one["type"] == "PodScheduled" and one["status"] == "False":
            return f"{one.get('reason')}: {one.get('message')}"
    return ""


def _by_card(machine: Machine, shares: list[Share]) -> dict[str, Use]:
    found: dict[str, Use] = {}
    for share in shares:
        found[share.card] = found.get(share.card, Use()).plus(use(machine, share))
    return found


def asks(pod: Json, kind: Kind) -> Iterator[tuple[int, Share] | None]:
    """Of each container, of how many cards it asks what share; None: of none."""
    words = {
        Kind.VGPU: ("volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"),
        Kind.HAMI: ("nvidia.com/gpumem", "nvidia.com/gpucores"),
        Kind.ASCEND: (f"huawei.com/{ASCEND}-memory", ""),
    }[kind]
    for container in pod["spec"]["containers"]:
        limits = container["resources"]["limits"]
        count = int(limits.get(kind.resource, 0))
        mib, cores = (int(limits.get(word, 0)) for word in words)
        yield (count, Share("", mib, cores)) if count else None
