"""How many members a group needs at least: one tree of the group, its tasks and its subgroups.

A gang is a root without parts. A task is a part that needs a number of members. A policy of subgroups is a part that
needs a number of subgroups; each subgroup is placed whole or not at all, as a gang in a gang.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from core.errors import escaped
from core.groups import SUBGROUPS_MAX, GroupSpec, SubGroups, task_of
from core.model import Pod, required_labels, satisfies

# The parts that a member counts for, by name, besides the group itself.
Path = tuple[str, ...]
# The name of the part that contains all tasks.
TASKS: Final = "tasks"

_TOLD_MAX: Final = 3
# This takes 50 ms. Usually a member is compared with one policy, because each selects a label of its own.
_COMPARED_MAX: Final = 400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Minimum:
    """What a group, or a part of it, needs at least: *members* pods, and *least* of its *parts*.

    name: unique in the tree; "" for the group. whole: unless it is met, none of its members is placed. apart: no member
    counts for two of its parts. field: what says how many members, as people are told.
    """

    name: str = ""
    members: int = 0
    parts: tuple["Minimum", ...] = ()
    least: int = 0
    whole: bool = False
    apart: bool = True
    field: str = "the group's minMember"

    def each(self) -> Iterator["Minimum"]:
        """It and all below it."""
        yield self
        for part in self.parts:
            yield from part.each()


def of_tasks(least: Mapping[str, int]) -> Minimum:
    """That each task, by name of its part, has so many members."""
    parts = tuple(Minimum(name=name, members=many) for name, many in sorted(least.items()))
    return Minimum(name=TASKS, parts=parts, least=len(parts))


class Division:
    """The parts of a group that its members count for.

    Attributes:
        subgroups: the names of the subgroups seen so far, by their policies.
    """

    def __init__(self, spec: GroupSpec) -> None:
        """Begin without members; policies are found by the label of their members that fewest others name."""
        self.subgroups: Final[dict[int, set[str]]] = {}
        self._key: Final = spec.key
        self._left = _COMPARED_MAX
        self._policies: Final = spec.sub_groups
        self._words: Final = [_words(one) for one in spec.sub_groups]
        self._by_label: Final[dict[tuple[str, str] | None, list[int]]] = {}
        choices = [[required_labels((one,)) for one in policy.selector or ()] or [[None]] for policy in spec.sub_groups]
        counts = Counter(label for labels in choices for found in labels for label in found)
        counts[None] = len(choices)
        for at, labels in enumerate(choices):
            for label in min(labels, key=lambda found: max((counts[one] for one in found), default=0)):
                self._by_label.setdefault(label, []).append(at)

    def of(self, pod: Pod) -> tuple[Path, SubGroups | None]:
        """The parts that *pod* counts for, its subgroup last; and the policy of that subgroup, None without one."""
        task = task_of(pod)
        path = (_of_task(task),) if task else ()
        found = (at for label in (None, *pod.labels.items()) for at in self._by_label.get(label, ()))
        for at in sorted(found):
            policy = self._policies[at]
            self._left -= self._words[at]
            if self._left < 0:
                break
            values = [pod.labels.get(key, "") for key in policy.keys]
            if all(values) and all(satisfies(pod.labels, one) for one in policy.selector or ()):
                name = "/".join((f"subgroup {escaped(policy.name)}", *values))
                self.subgroups.setdefault(at, set()).add(name)
                return (*path, name), policy
        return path, None

    @property
    def problem(self) -> str:
        """Return why members of the group cannot be placed, although they may be enough, and the remedy; "" if none."""
        many = sum(map(len, self.subgroups.values()))
        if many > SUBGROUPS_MAX:
            text = f"name fewer matchLabelKeys: {self._key} has {many} subgroups, at most {SUBGROUPS_MAX}"
            return f"{text} are placed"
        if self._left < 0:
            text = f"give each entry of the subGroupPolicy of {self._key} a label value of its own in matchLabels"
            return f"{text}: too many entries would be compared with each of its pods"
        return ""


def _words(policy: SubGroups) -> int:
    """Return how many words are compared to find whether a member belongs to *policy*, and some for the call."""
    return 16 + len(policy.keys) + sum(len(one.values) for one in policy.selector or ())


def minimum_of(spec: GroupSpec, division: Division) -> Minimum:
    """What group *spec* needs at least, of all, of each task, and of the subgroups of *division*."""
    parts = [
        Minimum(
            name=f"subgroups of {escaped(policy.name)}",
            parts=tuple(
                Minimum(name=one, members=policy.size, whole=True) for one in sorted(division.subgroups.get(at, ()))
            ),
            least=policy.least,
        )
        for at, policy in enumerate(spec.sub_groups)
        if policy.least or at in division.subgroups
    ]
    if spec.task_minimums:
        parts.insert(0, of_tasks({_of_task(task): least for task, least in spec.task_minimums.items()}))
    field = spec.minimum_field
    return Minimum(members=spec.min_member, parts=tuple(parts), least=len(parts), apart=False, field=field)


def _of_task(task: str) -> str:
    return f"task {escaped(task)}"


class Tally:
    """How many members each part of a tree has, and which minimums are met; members are only added."""

    def __init__(self, root: Minimum, held: Mapping[Path, int]) -> None:
        """Begin with the members that are *held*, by the parts that they count for."""
        self._root: Final = root
        self._nodes: Final[dict[str, Minimum]] = {}
        self._above: Final[dict[str, Minimum]] = {}
        self._counts: Final = Counter[str]()
        self._parts_met: Final = Counter[str]()
        self._met: Final[set[str]] = set()
        for one in root.each():
            self._nodes[one.name] = one
            self._above.update((part.name, one) for part in one.parts)
        for one in root.each():
            self._settle(one)
        for path, many in held.items():
            self.add(path, many)

    def add(self, path: Path, many: int = 1) -> None:
        """Count *many* members more for the parts of *path*."""
        for name in (self._root.name, *path):
            if name in self._nodes:
                self._counts[name] += many
                self._settle(self._nodes[name])

    def _settle(self, one: Minimum) -> None:
        if one.name in self._met or self._counts[one.name] < one.members or self._parts_met[one.name] < one.least:
            return
        self._met.add(one.name)
        above = self._above.get(one.name)
        if above is not None:
            self._parts_met[above.name] += 1
            self._settle(above)

    @property
    def is_met(self) -> bool:
        """Whether the minimum of the whole is there."""
        return self._root.name in self._met

    @property
    def parts_are_met(self) -> bool:
        """Whether those of all parts are."""
        return self._parts_met[self._root.name] >= self._root.least

    @property
    def members(self) -> int:
        """How many members there are."""
        return self._counts[self._root.name]

    def helps(self, path: Path) -> bool:
        """Whether a part that is needed lacks a member of *path*."""
        return any(
            name in self._above and name not in self._met and self._above[name].name not in self._met for name in path
        )

    def whole(self, path: Path) -> tuple[str, int]:
        """The part of *path* that is placed whole and is not met, and how many members it lacks; else ("", 0)."""
        for name in path:
            one = self._nodes.get(name)
            if one is not None and one.whole and name not in self._met:
                return name, one.members - self._counts[name]
        return "", 0

    def needed(self) -> int:
        """How many more members are needed, at the least."""
        return self._needs(self._root)

    def _needs(self, one: Minimum) -> int:
        if one.name in self._met:
            return 0
        missing = one.least - self._parts_met[one.name]
        parts = sorted(self._needs(part) for part in one.parts if part.name not in self._met)[: max(missing, 0)]
        of_parts = sum(parts) if one.apart else max(parts, default=0)
        return max(one.members - self._counts[one.name], of_parts)

    def short(self) -> list[str]:
        """Which parts lack what, in words; of the subgroups of a policy the fullest."""
        return list(self._short(self._root))

    def _short(self, one: Minimum) -> Iterator[str]:
        lacking = [part for part in one.parts if part.name not in self._met]
        is_choice = one.least < len(one.parts) or any(part.whole for part in lacking)
        if is_choice:
            lacking = sorted(lacking, key=lambda part: (part.members - self._counts[part.name], part.name))
        for part in lacking[:_TOLD_MAX]:
            if part.members:
                yield f"{self._counts[part.name]} of {part.members} of {part.name}"
            elif part.least and part.name != TASKS:
                yield f"{self._parts_met[part.name]} of {part.least} {part.name}"
            yield from self._short(part)
        if len(lacking) > _TOLD_MAX and not is_choice:
            yield f"{len(lacking) - _TOLD_MAX} more"
