"""What dialects add to the grammar of the configuration's texts: words, and sections that only they understand."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from core.settings import DialectName, Section
from core.wire.checked import Checks

# The most MiB in a unit of memory.
MAX_FACTOR: Final = 1 << 20

# Keys, and where they have a meaning, for people: "in section nvidia".
Level: TypeAlias = tuple[Sequence[str], str]


def _always(found: object, *, is_hamis: bool) -> bool:
    del found, is_hamis
    return True


def _nothing(checks: Checks, found: object) -> None:
    del checks, found


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSection:
    """A section of device-config.yaml.

    key: its name. table: the class of its values. read: makes them of the section, and reports problems.
    means: returns whether a section of this name is this one, if several products have one; is_hamis: whether the text
    is in HAMi's ConfigMap. is_hamis: it is first looked for in HAMi's ConfigMap.
    note: adds what is unknown in it, also if *means* says no. levels: its keys, for hints at keys that are written at
    another place. alone: the only dialect that it concerns: if it is wrong, an earlier one replaces it, or that dialect
    has none; "" if the whole text is refused then.
    """

    key: str
    table: type[Section]
    read: Callable[[Checks, Any], Section]
    means: Callable[..., bool] = _always
    is_hamis: bool = False
    note: Callable[[Checks, Any], None] = _nothing
    levels: tuple[Level, ...] = ()
    alone: str = ""

    def unused(self, problem: str, *, is_kept: bool | None) -> str:
        """Return the note that it is not used because of *problem*; is_kept: an earlier one is; None: perhaps."""
        if is_kept is False:
            return f"{problem}; until then this section is ignored for {self.alone}"
        told = f"{problem}; until then the section that was read before stays in force for {self.alone}"
        return told if is_kept else f"{told}, if there was one"


class SchedulerArguments(NamedTuple):
    """Arguments in volcano-scheduler.conf.

    table: the class of their values. read: makes them of the named arguments of plugin deviceshare, and of those of
    configuration init-params, as far as they are given, and reports problems. deviceshare, init_params: the names.
    """

    table: type[Section]
    read: Callable[[Checks, Mapping[str, Any], Mapping[str, bool]], Section]
    deviceshare: tuple[str, ...] = ()
    init_params: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """The words of dialects that a configuration's texts may use.

    dialects: every name. switches: the dialect that each argument of Volcano's deviceshare plugin enables.
    old_switches: those that the predicates plugin had up to v1.8.2. modes: the names of sharing modes. sections,
    arguments: what dialects read of device-config.yaml and of volcano-scheduler.conf.
    """

    dialects: tuple[DialectName, ...] = ()
    switches: Mapping[str, DialectName] = field(default_factory=dict)
    old_switches: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    sections: tuple[DeviceSection, ...] = ()
    arguments: tuple[SchedulerArguments, ...] = ()
