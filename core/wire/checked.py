"""Validates the plain values of a configuration, and collects every problem."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any, Final, TypeVar

from core.errors import ConfigError, escaped, quoted
from core.names import LABEL, is_object_name
from core.units import parse_int64

_T = TypeVar("_T")

# The words of Go's strconv.ParseBool, which Volcano's plugins accept as booleans.
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
# Longer keys are shortened in messages and not compared, because that costs the square of their length.
_KEY_MAX: Final = 64
# Further problems or notes of one text are only counted: formatting each costs a comparison with all names, and no one
# would read them.
TOLD_MAX: Final = 200
_MAX_SHOWN_BITS: Final = 256


class _Told:
    """Distinct sentences in order of their arrival; beyond `TOLD_MAX` they are only counted."""

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}
        self._more = 0

    def add(self, make: Callable[[], str]) -> None:
        """Add the sentence that *make* returns; it is not called if the sentence is only counted."""
        if len(self._texts) < TOLD_MAX:
            self._texts.setdefault(make())
        else:
            self._more += 1

    def all(self) -> tuple[str, ...]:
        """Return every sentence, and the number of further ones."""
        return (*self._texts, f"and {self._more} more") if self._more else tuple(self._texts)


def _nowhere(_: str) -> str:
    return ""


class Checks:
    """The problems so far; each reader below adds one and returns its default if a value is wrong.

    elsewhere: returns where an unknown key would have a meaning, for people; "" if nowhere.
    """

    def __init__(self, elsewhere: Callable[[str], str] = _nowhere) -> None:
        self._elsewhere = elsewhere
        self._problems = _Told()
        self._notes = _Told()

    @property
    def notes(self) -> tuple[str, ...]:
        """The unknown or ineffective parts of the text, once each."""
        return self._notes.all()

    @property
    def problems(self) -> tuple[str, ...]:
        """The problems that make the text unusable, once each."""
        return self._problems.all()

    def raise_all(self) -> None:
        """Raise if there was any problem.

        Raises:
            ConfigError: lists the problems that make the text unusable.
        """
        if self.problems:
            raise ConfigError(self.problems)

    def wrong(self, place: str, found: object, remedy: str) -> None:
        """Add the problem that the value at *place* is unusable."""
        self._problems.add(lambda: f"{place}: found {quoted(_shown(found))}; {remedy}")

    def mapping(self, found: object, place: str) -> Mapping[str, Any]:
        """Read a mapping with text keys; {} for None."""
        if found is None:
            return {}
        if not isinstance(found, dict):
            self.wrong(place, found, "write a mapping of names to values")
            return {}
        odd = [key for key in found if not isinstance(key, str)]
        if odd:
            self.wrong(place, odd[0], "write this name in quotes, so that it is a text")
        return {} if odd else found

    def items(self, found: object, place: str) -> list[Any]:
        """Read a list; [] for None."""
        if found is None:
            return []
        if isinstance(found, list):
            return found
        self.wrong(place, found, "write a list")
        return []

    def text(self, found: object, place: str, default: str = "") -> str:
        """Read a text that is not empty."""
        if isinstance(found, str) and found.strip():
            return found.strip()
        self.wrong(place, found, "write a text that is not empty")
        return default

    def config_map(self, found: object, place: str, default: str = "") -> str:
        """Read the name of a ConfigMap."""
        remedy = "write the ConfigMap's name without its namespace: lower-case letters, digits, '-' and '.'"
        return self._name(found, place, default, is_object_name, remedy)

    def namespace(self, found: object, place: str, default: str = "") -> str:
        """Read the name of a namespace."""
        remedy = "write a namespace's name: lower-case letters, digits and '-'"
        return self._name(found, place, default, LABEL.fullmatch, remedy)

    def _name(self, found: object, place: str, default: str, is_one: Callable[[str], object], remedy: str) -> str:
        if isinstance(found, str) and is_one(found.strip()):
            return found.strip()
        self.wrong(place, found, remedy)
        return default

    def texts(self, found: object, place: str) -> tuple[str, ...]:
        """Read a list of texts."""
        return tuple(self.text(one, f"{place}[{i}]") for i, one in enumerate(self.items(found, place)))

    def word(self, found: object, place: str, words: Iterable[str], default: str) -> str:
        """Read one of *words*."""
        known = list(words)
        if isinstance(found, str) and found in known:
            return found
        self.wrong(place, found, "write one of " + ", ".join(f"'{word}'" for word in known))
        return default

    def switch(self, found: object, place: str, *, default: bool = False) -> bool:
        """Read a boolean, or a word of Go's ParseBool."""
        if isinstance(found, bool):
            return found
        if isinstance(found, str | int) and found in {0, 1, *_TRUE, *_FALSE}:
            return str(found) in _TRUE
        self.wrong(place, found, "write true or false")
        return default

    def whole(self, found: object, place: str, least: int, most: int, default: int) -> int:
        """Read a whole number from *least* to *most*, which may be quoted."""
        if isinstance(found, str):
            found = found if (number := parse_int64(found)) is None else number
        if isinstance(found, int) and not isinstance(found, bool) and least <= found <= most:
            return found
        self.wrong(place, found, f"write a whole number from {least} to {most}")
        return default

    def seconds(self, found: object, place: str, least: float, most: float, default: float) -> float:
        """Read a number of seconds from *least* to *most*."""
        if isinstance(found, int | float) and not isinstance(found, bool) and least <= found <= most:
            return float(found)
        plain = ", without quotes or unit" if isinstance(found, str) else ""
        self.wrong(place, found, f"write seconds from {least:g} to {most:g}{plain}")
        return default

    def unknown(self, found: Mapping[str, Any], known: Iterable[str], place: str) -> None:
        """Add a problem for every key of *found* that is not *known*, in a format of cardshare."""
        names = sorted(known)
        for key in found:
            if key not in names:
                self._problems.add(partial(_no_setting, key, names, place))

    def note(self, text: str) -> None:
        """Add a note about something without effect."""
        self._notes.add(lambda: text)

    def note_unknown(
        self, found: Iterable[str], known: Iterable[str], place: str, *, may_belong_elsewhere: bool = True
    ) -> None:
        """Note every key of *found* at *place* that is not *known*, in a third-party format that may define it."""
        names, elsewhere = sorted(known), self._elsewhere if may_belong_elsewhere else _nowhere
        for key in found:
            if key not in names:
                self._notes.add(partial(_no_effect, key, names, place, elsewhere))


def each(checks: Checks, found: object, place: str, read: Callable[[Mapping[str, Any], str], _T]) -> tuple[_T, ...]:
    """Apply *read* to a list of mappings, each with its place."""
    return tuple(
        read(checks.mapping(one, f"{place}[{i}]"), f"{place}[{i}]") for i, one in enumerate(checks.items(found, place))
    )


def _shown(found: object) -> str:
    if isinstance(found, dict | list) and not found:
        return str(found)
    if isinstance(found, dict | list | set):
        return "a mapping" if isinstance(found, dict) else "a list"
    # Python refuses to format a very long number.
    if isinstance(found, int) and found.bit_length() > _MAX_SHOWN_BITS:
        return f"a number of {found.bit_length()} bits"
    return "" if found is None else str(found)


def _no_setting(key: str, names: Sequence[str], place: str) -> str:
    over, _, under = key.partition(".")
    # Pages write a key below another one with a dot.
    hint = f"write {_named(under)} under {over}; " if under and over in names else _meant(key, names)
    return f"{place}{_named(key)}: there is no such setting; {hint}known are {', '.join(names)}"


def _no_effect(key: str, names: Sequence[str], place: str, elsewhere: Callable[[str], str]) -> str:
    where = "" if same_word(key, names) else elsewhere(key[:_KEY_MAX])
    hint = f"write {where}" if where else _meant(key, names).removesuffix(" ")
    return f"{place}{_named(key)}: unknown, has no effect" + (f"; {hint}" if hint else "")


def _named(key: str) -> str:
    return escaped(key if len(key) <= _KEY_MAX else f"{key[:_KEY_MAX]}…")


def _meant(key: str, names: Sequence[str]) -> str:
    key = key[:_KEY_MAX]
    ends = [name for name in names if _word(name.rpartition(".")[2]) == _word(key.rpartition(".")[2])]
    close = [same_word(key, names)] if same_word(key, names) else ends if len(ends) == 1 else []
    close = close or get_close_matches(key, names, n=1)
    return f"did you mean '{close[0]}'? " if close else ""


def same_word(key: str, names: Iterable[str]) -> str:
    """Return the first of *names* that equals *key* except for case, punctuation and a plural; "" if there is none."""
    word = _word(key[:_KEY_MAX])
    return next((name for name in names if _word(name) == word), "") if word else ""


def _word(text: str) -> str:
    return "".join([char for char in text.lower() if char.isalnum()]).removesuffix("s")
