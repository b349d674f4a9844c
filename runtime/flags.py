"""Flags: the fields of a dataclass, each declared once with its kind, help and default.

    listen: Address = flag(ADDRESS, "address for metrics and health", ":8080")

This is ``--listen HOST:PORT`` in the parser and in ``--help``. In a process, CARDSHARE_LISTEN stands for a flag that is
not given.
"""

import argparse
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, fields
from enum import StrEnum
from os.path import exists
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypedDict, TypeVar, Unpack

from core.errors import ConfigError, quoted
from core.names import LABEL, is_object_name
from runtime.listening import Address, read_address

_T = TypeVar("_T")
_E = TypeVar("_E", bound=str)
_SEPARATORS: Final = re.compile(r"[,\s]+")


class FlagKind(NamedTuple, Generic[_T]):
    """How text becomes a value.

    read: returns None for text that *remedy* corrects. empty: the value without text. metavar: "" for a switch.
    words: all allowed texts, if they are few.
    """

    read: Callable[[str], _T | None]
    remedy: str
    empty: _T
    metavar: str = ""
    words: tuple[str, ...] = ()


class Flag(NamedTuple):
    """A declared flag.

    default: the text that stands for a missing one. many: what collects its values, if it takes several; its variable
    separates them by commas. name: its forms, the longest last; one without dashes, as POD, is an argument by position,
    and comes first; "" for the field's name. metavar: "" for the kind's. variable: the environment variable that stands
    for it.
    missing: the remedy if there is no text; "" if none is needed. splits: a value may be several, separated by commas.
    listed: so may it be, and only the last one given counts, as of a flag with one value. joins: its value may be
    several words.
    """

    kind: FlagKind[Any]
    help: str
    default: str = ""
    many: Callable[[Iterable[Any]], Any] | None = None
    name: str = ""
    metavar: str = ""
    variable: str = ""
    missing: str = ""
    splits: bool = False
    listed: bool = False
    joins: bool = False

    def __str__(self) -> str:
        return f"{self.names[-1]} ({self.variable})" if self.variable else self.names[-1]

    @property
    def is_positional(self) -> bool:
        """Whether it is an argument by position."""
        return not self.name.startswith("-")

    @property
    def names(self) -> tuple[str, ...]:
        """All forms of the name."""
        return tuple(self.name.split())


class _More(TypedDict, total=False):
    """The optional attributes of a `Flag`."""

    name: str
    metavar: str
    variable: str
    missing: str
    splits: bool
    listed: bool
    joins: bool


def flag(kind: FlagKind[_T], told: str, default: str = "", **more: Unpack[_More]) -> _T:
    """Declare a field as a `Flag` with this help."""
    value = kind.read(default) if default else None
    return field(default=kind.empty if value is None else value, metadata={"flag": Flag(kind, told, default, **more)})


def several(kind: FlagKind[_T], told: str, **more: Unpack[_More]) -> tuple[_T, ...]:
    """Declare a field as a flag that takes several values of *kind*."""
    return field(default=(), metadata={"flag": Flag(kind, told, many=tuple, **more)})


def unique(kind: FlagKind[_T], told: str, **more: Unpack[_More]) -> frozenset[_T]:
    """Declare a field as a flag that takes several values of *kind* in any order."""
    return field(default=frozenset(), metadata={"flag": Flag(kind, told, many=frozenset, **more)})


def declared(of: type, *, in_process: bool = True) -> dict[str, Flag]:
    """Return the flags of a dataclass by field, its own before those of its bases; in a process each has a variable."""
    found: dict[str, Flag] = {}
    for one in sorted(fields(of), key=lambda one: one.name not in of.__annotations__):
        if flag := one.metadata.get("flag"):
            name, metavar = flag.name or f"--{one.name.replace('_', '-')}", flag.metavar or flag.kind.metavar
            variable = f"CARDSHARE_{name.split()[-1][2:].replace('-', '_').upper()}" if in_process else flag.variable
            found[one.name] = flag._replace(name=name, metavar=metavar, variable=variable)
    return found


def add(parser: argparse.ArgumentParser, flags: Mapping[str, Flag]) -> None:
    """Add *flags* to *parser*, whose result lacks what is not given."""
    for dest, flag in flags.items():
        told = f"{flag.help} (default {flag.default})" if flag.default else flag.help
        how: dict[str, Any] = {"help": f"{told} [{flag.variable}]" if flag.variable else told}
        if flag.is_positional:
            position, *others = flag.names
            if others:
                either = parser.add_mutually_exclusive_group(required=True)
                either.add_argument(dest, metavar=position, nargs="?", default=argparse.SUPPRESS, **how)
                either.add_argument(*others, dest=dest, metavar=flag.metavar, default=argparse.SUPPRESS, **how)
            else:
                parser.add_argument(dest, metavar=position, nargs="*" if flag.many else None, **how)
            continue
        if flag.metavar:
            many = flag.many is not None and not flag.listed
            how |= {"metavar": flag.metavar} | ({"action": "extend"} if many else {})
            how |= {"nargs": "+"} if many or flag.joins else {}
        else:
            # In a process a switch may have a text, as its variable has.
            how |= {"const": "true"} | (
                {"nargs": "?", "metavar": "true | false"} if flag.variable else {"action": "store_const"}
            )
        parser.add_argument(*flag.names, dest=dest, default=argparse.SUPPRESS, **how)


def read(
    of: Callable[..., _T],
    flags: Mapping[str, Flag],
    given: argparse.Namespace,
    environ: Mapping[str, str],
    problems: list[str],
) -> _T:
    """Return *of* with the values of *flags*; adds bad texts to *problems*, and keeps them in text fields."""
    values: dict[str, Any] = {}
    for dest, flag in flags.items():
        found, text = getattr(given, dest, None), environ.get(flag.variable) or flag.default
        texts: list[str] = [text] if found is None else [found] if isinstance(found, str) else found
        if flag.joins:
            texts = [" ".join(texts)]
        if flag.splits or flag.listed or (flag.many and found is None):
            texts = [one for each in texts for one in _SEPARATORS.split(each) if one]
        if flag.missing and not any(texts):
            problems.append(f"{flag}: missing; {flag.missing}")
        if texts == [""] and not (flag.default or flag.many or flag.is_positional):
            texts = []
        good: list[Any] = []
        for one in texts:
            if (value := flag.kind.read(one)) is None:
                problems.append(f"{flag}: found {quoted(one, 256)}; {flag.kind.remedy}")
                value = one if isinstance(flag.kind.empty, str) else None
            good += [] if value is None else [value]
        if flag.many:
            values[dest] = flag.many(dict.fromkeys(good))
        elif good:
            values[dest] = good[0]
    return of(**values)


def parse(
    parser: argparse.ArgumentParser,
    of: type[_T],
    argv: Sequence[str],
    environ: Mapping[str, str],
    conflicts: Callable[[_T], Iterable[str]] = lambda _: (),
) -> _T:
    """Add the flags of the dataclass *of* to *parser*, and return those of a process; otherwise as `checked`.

    Raises:
        SystemExit: ``--help``, or an unknown flag.
    """
    add(parser, declared(of))
    return checked(of, parser.parse_args(argv), environ, conflicts)


def checked(
    of: type[_T],
    given: argparse.Namespace,
    environ: Mapping[str, str],
    conflicts: Callable[[_T], Iterable[str]],
) -> _T:
    """Return the flags of a process; *conflicts* returns what is wrong with several together.

    Raises:
        ConfigError: lists every problem.
    """
    problems: list[str] = []
    found = read(of, declared(of), given, environ, problems)
    problems += conflicts(found)
    if problems:
        raise ConfigError(problems)
    return found


# The kinds of values.


class LogFormat(StrEnum):
    """The format of a process's log lines."""

    JSON = "json"
    LOGFMT = "logfmt"


class ObjectName(NamedTuple):
    """The name of an object in a namespace."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def optional(kind: FlagKind[_T]) -> FlagKind[_T | None]:
    """Return *kind* with None for no text."""
    return FlagKind(kind.read, kind.remedy, None, kind.metavar, kind.words)


def judged(is_good: Callable[[str], object], remedy: str, metavar: str = "NAME") -> FlagKind[str]:
    """Return the kind of the texts that are good."""
    return FlagKind(lambda text: text if is_good(text) else None, remedy, "", metavar)


def whole(least: int, most: int, metavar: str = "NUMBER") -> FlagKind[int]:
    """Return the kind of the whole numbers in this range."""

    def number(text: str) -> int | None:
        return int(text) if re.fullmatch("[0-9]{1,18}", text) and least <= int(text) <= most else None

    return FlagKind(number, f"write a number from {least} to {most}", 0, metavar)


def seconds(least_s: float, most_s: float) -> FlagKind[float]:
    """Return the kind of the durations in this range."""

    def duration_s(text: str) -> float | None:
        is_number = re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text)
        return float(text) if is_number and least_s <= float(text) <= most_s else None

    return FlagKind(duration_s, f"write seconds from {least_s:g} to {most_s:g}", 0.0, "SECONDS")


def one_of(allowed: Iterable[_E]) -> FlagKind[_E]:
    """Return the kind of the *allowed* words, of which the first stands for a missing one."""
    words = {str(word): word for word in allowed}
    *others, last = words
    remedy = f"write {', '.join(others)} or {last}"
    return FlagKind(words.get, remedy, next(iter(words.values())), " | ".join(words), tuple(words))


def _object_name(text: str) -> ObjectName | None:
    namespace, _, name = text.partition("/")
    return ObjectName(namespace, name) if LABEL.fullmatch(namespace) and is_object_name(name) else None


_HTTPS: Final = re.compile(r"https://[A-Za-z0-9.\[\]:-]{1,253}/*")
_TRUE: Final = {"true": True, "1": True, "false": False, "0": False}
TEXT: Final = FlagKind(str, "", "", "TEXT")
FILE: Final = FlagKind(str, "", "", "FILE")
PATH: Final = FlagKind(Path, "", Path(), "PATH")
EXISTING: Final = FlagKind(lambda text: Path(text) if exists(text) else None, "there is no such file", Path(), "PATH")
SWITCH: Final = FlagKind(lambda text: _TRUE.get(text.strip().lower()), "write true or false", False)
# A switch that turns off what the field stands for.
OFF: Final = FlagKind(lambda text: None if SWITCH.read(text) is None else not SWITCH.read(text), SWITCH.remedy, True)
ADDRESS: Final = FlagKind(read_address, "write host:port such as ':8080'", Address(host="", port=0), "HOST:PORT")
URL: Final = FlagKind(
    lambda text: text.rstrip("/") if _HTTPS.fullmatch(text) else None, "write https://host:port", "", "URL"
)
OBJECT: Final = FlagKind(_object_name, "write NAMESPACE/NAME", ObjectName("", ""), "NAMESPACE/NAME")
# As text; none if it is empty.
CONFIG_MAP: Final = judged(lambda text: not text or _object_name(text), OBJECT.remedy, OBJECT.metavar)
ONE_NAMESPACE: Final = judged(
    LABEL.fullmatch, "write a namespace: at most 63 small letters, digits and '-'", "NAMESPACE"
)
NAMESPACE: Final = judged(LABEL.fullmatch, "write names of namespaces, separated by commas", "NAMESPACE")
LOG_FORMAT: Final = one_of(LogFormat)
