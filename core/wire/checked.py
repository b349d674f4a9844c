"""Reading a configuration's plain values with every problem noted, not only the first."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any, Final, TypeVar

from core.errors import ConfigError, escaped, quoted
from core.units import parse_int64

_T = TypeVar("_T")

# The words that Go's strconv.ParseBool takes, which Volcano's plugins accept in place of a boolean.
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
# Longer ones are shortened for people, and not compared: that costs the square of their length.
_KEY_MAX: Final = 64
# More problems, or notes, of one text than these are counted and not told: to tell each costs a comparison with all
# names, and nobody reads them.
TOLD_MAX: Final = 200
_MAX_SHOWN_BITS: Final = 256


class _Told:
    """Sentences, once each, in the order in which they came; beyond `TOLD_MAX` they are counted."""

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}
        self._more = 0

    def add(self, make: Callable[[], str]) -> None:
        """Tell what *make* says; it is not asked for what is only counted."""
        if len(self._texts) < TOLD_MAX:
            self._texts.setdefault(make())
        else:
            self._more += 1

    def all(self) -> tuple[str, ...]:
        """Every sentence, and how many there would be more."""
        return (*self._texts, f"and {self._more} more") if self._more else tuple(self._texts)


class Checks:
    """The problems found so far; each reader below adds one and answers its default when a value is wrong."""

    def __init__(self) -> None:
        self._problems = _Told()
        self._notes = _Told()

    @property
    def notes(self) -> tuple[str, ...]:
        """What of the text is unknown and has no effect, once each."""
        return self._notes.all()

    def raise_all(self) -> None:
        """End here if anything was wrong.

        Raises:
            ConfigError: with the problems that make the text useless.
        """
        problems = self._problems.all()
        if problems:
            raise ConfigError(problems)

    def wrong(self, place: str, found: object, remedy: str) -> None:
        """Add that what stands at *place* cannot be used."""
        self._problems.add(lambda: f"{place}: found {quoted(_shown(found))}; {remedy}")

    def mapping(self, found: object, place: str) -> Mapping[str, Any]:
        """A mapping with text keys; {} for nothing."""
        if found is None:
            return {}
        if isinstance(found, dict) and all(isinstance(key, str) for key in found):
            return found
        self.wrong(place, found, "write a mapping of names to values")
        return {}

    def items(self, found: object, place: str) -> list[Any]:
        """A list; [] for nothing."""
        if found is None:
            return []
        if isinstance(found, list):
            return found
        self.wrong(place, found, "write a list")
        return []

    def text(self, found: object, place: str, default: str = "") -> str:
        """A text that is not empty."""
        if isinstance(found, str) and found.strip():
            return found.strip()
        self.wrong(place, found, "write a text that is not empty")
        return default

    def texts(self, found: object, place: str) -> tuple[str, ...]:
        """A list of texts."""
        return tuple(self.text(one, f"{place}[{i}]") for i, one in enumerate(self.items(found, place)))

    def word(self, found: object, place: str, words: Iterable[str], default: str) -> str:
        """One of *words*."""
        known = list(words)
        if isinstance(found, str) and found in known:
            return found
        self.wrong(place, found, "write one of " + ", ".join(f"'{word}'" for word in known))
        return default

    def switch(self, found: object, place: str, *, default: bool = False) -> bool:
        """A boolean, or a word that Go's ParseBool takes."""
        if isinstance(found, bool):
            return found
        if isinstance(found, str | int) and found in {0, 1, *_TRUE, *_FALSE}:
            return str(found) in _TRUE
        self.wrong(place, found, "write true or false")
        return default

    def whole(self, found: object, place: str, least: int, most: int, default: int) -> int:
        """A whole number, also one in quotes, from *least* to *most*."""
        if isinstance(found, str):
            found = found if (number := parse_int64(found)) is None else number
        if isinstance(found, int) and not isinstance(found, bool) and least <= found <= most:
            return found
        self.wrong(place, found, f"write a whole number from {least} to {most}")
        return default

    def seconds(self, found: object, place: str, least: float, most: float, default: float) -> float:
        """A number of seconds from *least* to *most*."""
        if isinstance(found, int | float) and not isinstance(found, bool) and least <= found <= most:
            return float(found)
        self.wrong(place, found, f"write seconds from {least:g} to {most:g}")
        return default

    def unknown(self, found: Mapping[str, Any], known: Iterable[str], place: str) -> None:
        """Add a problem for every key of *found*, in a format of ours, that is not *known*."""
        names = sorted(known)
        for key in found:
            if key not in names:
                self._problems.add(partial(_no_setting, key, names, place))

    def note(self, text: str) -> None:
        """Note what has no effect."""
        self._notes.add(lambda: text)

    def note_unknown(
        self, found: Iterable[str], known: Iterable[str], place: str, elsewhere: Callable[[str], str] = lambda _: ""
    ) -> None:
        """Note every key of *found*, in a format of others, that is not *known*: others may know it.

        Args:
            found: the keys.
            known: those that have a meaning there.
            place: where they stand.
            elsewhere: where a key would have a meaning, "" if nowhere; asked for those that are not nearly *known*.
        """
        names = sorted(known)
        for key in found:
            if key not in names:
                self._notes.add(partial(_no_effect, key, names, place, elsewhere))


def each(checks: Checks, found: object, place: str, read: Callable[[Mapping[str, Any], str], _T]) -> tuple[_T, ...]:
    """*read* over a list of mappings, each with its place."""
    return tuple(
        read(checks.mapping(one, f"{place}[{i}]"), f"{place}[{i}]") for i, one in enumerate(checks.items(found, place))
    )


def _shown(found: object) -> str:
    if isinstance(found, dict | list) and not found:
        return str(found)
    if isinstance(found, dict | list | set):
        return "a mapping" if isinstance(found, dict) else "a list"
    # Python refuses to write out a number that is long enough.
    if isinstance(found, int) and found.bit_length() > _MAX_SHOWN_BITS:
        return f"a number of {found.bit_length()} bits"
    return "" if found is None else str(found)


def _no_setting(key: str, names: Sequence[str], place: str) -> str:
    return f"{place}{_named(key)}: there is no such setting; {_meant(key, names)}known are {', '.join(names)}"


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
    """The first of *names* that is *key* but for case, signs and a plural; "" if there is none."""
    word = _word(key[:_KEY_MAX])
    return next((name for name in names if _word(name) == word), "") if word else ""


def _word(text: str) -> str:
    return "".join([char for char in text.lower() if char.isalnum()]).removesuffix("s")
