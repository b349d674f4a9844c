"""Which of the names that are known was probably meant by one that is not."""

import re
from difflib import get_close_matches
from functools import lru_cache
from typing import Final

# How alike two names are, and how long a key may be that is looked at: with its prefix no true one is longer.
_ALIKE: Final = 0.8
_MAX_KEY: Final = 128
# A chip of another model is no misspelt one, and digits are hardly ever mistyped.
_CHIP: Final = re.compile(r"Ascend[0-9A-Za-z]*")


def meant(key: str, known: frozenset[str]) -> str:
    """The key of *known* that was probably meant by *key*, or ""."""
    # Who makes pods by the thousand gives them the same keys.
    return _compared(key, known) if len(key) <= _MAX_KEY else ""


@lru_cache(maxsize=1024)
def _compared(key: str, known: frozenset[str]) -> str:
    prefix, slash, name = key.partition("/")
    chip, digits = _CHIP.search(name), _digits(name)
    alike = {
        one.partition("/")[2].casefold(): one
        for one in sorted(known)
        if one.startswith(prefix + slash) and _digits(one) == digits
    }
    if chip is not None:
        model = chip[0].casefold()
        alike = {other: one for other, one in alike.items() if model in other.split("-")}
    close = get_close_matches(name.casefold(), alike, n=1, cutoff=_ALIKE)
    return alike[close[0]] if close else ""


def elsewhere(key: str, known: frozenset[str], prefixes: frozenset[str]) -> str:
    """The key of *known* with the words of *key* under another prefix, those of *prefixes* first; "" without any."""
    name = key.partition("/")[2]
    if not (name and prefixes) or len(key) > _MAX_KEY:
        return ""
    alike = _by_words(known).get(_words(name), ())
    return min(alike, key=lambda one: (one.partition("/")[0] not in prefixes, one), default="")


# What HAMi and its plugins call the cards of each vendor in the keys by which pods choose among them.
_CARD: Final = re.compile(r"(?<=use-)(gpu|npu|dcu|mlu|gcu|ppu|xpu|vxpu|sgpu|iluvatar)-?")


@lru_cache(maxsize=16)
def _by_words(known: frozenset[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for one in sorted(known):
        words = _words(one.partition("/")[2])
        found[words] = (*found.get(words, ()), one)
    return found


def _words(name: str) -> str:
    return _CARD.sub("gpu", name.casefold().removeprefix("vgpu-").replace("no-use-", "nouse-"))


def _digits(text: str) -> str:
    return "".join(filter(str.isdigit, text))
