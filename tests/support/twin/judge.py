"""What must never be, read from API objects and the kubelets' process tables alone.

Its own arithmetic, its own reading of annotations: nothing here comes from what is judged.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import permutations, product
from typing import Any, NamedTuple

from tests.support.twin.api import Json
from tests.support.twin.clock import CLOCK
from tests.support.twin.machines import ASCEND, ENDED, Kind, Machine, Share, shares_of

# Names a type of card that a pod does not accept; here all have one.
NO_USE = "nvidia.com/nouse-gputype"
GROUP = "scheduling.k8s.io/group-name"

# MiB of a template to its AI cores and AI CPUs, of 8 and 7 (ascend 1.1).
_CUTS = {3072: (1, 1), 6144: (2, 2), 12288: (4, 4), 21527: (8, 7)}


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


def use(kind: Kind, share: Share) -> Use:
    """What one share takes."""
    if kind is Kind.ASCEND:
        cores, cpus = _CUTS.get(share.mib, (8, 7))
        return Use(share.mib, cores, cpus, 1)
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
            for card, (used, holders) in self.in_use(machine).items():
                there = self._allowed(machine, card, used)
                if any(a > b for a, b in zip(used, there, strict=True)):
                    world.find("oversold", f"{name}: {card} has {there}, in use {used} by {', '.join(holders)}")
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
                by_uid[pod["metadata"]["uid"], key] = _by_card(machine.kind, shares_of(pod, machine.kind.assigned))
        for proc in machine.procs.values():
            if proc.runs and not proc.is_excused:
                mine = by_uid[proc.uid, proc.key]
                for card, used in _by_card(machine.kind, proc.shares).items():
                    mine[card] = mine.get(card, Use()).most(used)
        found: dict[str, tuple[Use, list[str]]] = {}
        for (uid, key), cards in [one for one in by_uid.items() if one[0][0] not in but]:
            for card, used in cards.items():
                before, holders = found.get(card, (Use(), []))
                found[card] = before.plus(used), [*holders, f"{key} ({uid}) {used.mib}"]
        return found

    # ------------------------------------------------------------------ once nothing happens any more

    def forgotten(self) -> list[str]:
        """Pods that wait although they fit somewhere, or without a word; after all has come to rest."""
        found = []
        gangs: dict[str, list[tuple[str, Json]]] = defaultdict(list)
        for key, pod in sorted(self._world.api.objects["pods"].items()):
            if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
                continue
            if pod["spec"].get("schedulingGates"):
                continue
            group = pod["metadata"]["annotations"].get(GROUP, "")
            if group:
                gangs[group].append((key, pod))
            elif (places := self.places([pod])) is not None:
                found.append(f"{key} waits, and fits on {places[0]}: {told(pod)}")
            if not told(pod):
                found.append(f"{key} waits, and nobody says why")
        for group, waiting in gangs.items():
            wanted = self._world.wanted(group)
            if wanted is None:
                continue
            needed = max(wanted - self._held(group), 1)
            places = self.places([pod for _, pod in waiting[:needed]]) if len(waiting) >= needed else None
            if places is not None:
                keys = [key for key, _ in waiting[:needed]]
                found.append(f"{keys} of {group} wait, and fit on {places}: {told(waiting[0][1])}")
        return found

    def _held(self, group: str) -> int:
        """How many members of a group count: on a node, or ended well."""
        pods = [
            pod
            for pod in self._world.api.objects["pods"].values()
            if pod["metadata"]["annotations"].get(GROUP) == group and not pod["metadata"].get("deletionTimestamp")
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
            group = pod["metadata"]["annotations"].get(GROUP, "")
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
        self, pod: Json, machine: Machine, cards: dict[str, Use] | None, beside: Sequence[Json] = ()
    ) -> dict[str, Use] | None:
        """Return what *machine* has in use with *pod*, by default beside what it has now; None: it does not fit.

        beside: others that are to go there too.
        """
        node = self._world.api.objects["nodes"].get(machine.name)
        if node is None or not machine.is_ready or not int(node["status"]["allocatable"].get(machine.kind.resource, 0)):
            return None
        if NO_USE in pod["metadata"].get("annotations", {}) and machine.kind is not Kind.ASCEND:
            return None
        if not all(side.allows(pod, machine, beside) for side in self._world.sides):
            return None
        wanted = [one for one in asks(pod, machine.kind) if one is not None]
        if not wanted or node["spec"].get("unschedulable") or node["spec"].get("taints"):
            return None
        if cards is None:
            cards = self._cards(machine)
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
        return self._room(pod, machine, self._cards(machine, but=uids)) is not None

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
                now[card] = now[card].plus(use(machine.kind, share))
                if any(a > b for a, b in zip(now[card], there, strict=True)):
                    return None
        return now


def told(pod: Json) -> str:
    """Why a pod waits, as its condition says."""
    for one in pod["status"].get("conditions", ()):
        if one["type"] == "PodScheduled" and one["status"] == "False":
            return f"{one.get('reason')}: {one.get('message')}"
    return ""


def _by_card(kind: Kind, shares: list[Share]) -> dict[str, Use]:
    found: dict[str, Use] = {}
    for share in shares:
        found[share.card] = found.get(share.card, Use()).plus(use(kind, share))
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
