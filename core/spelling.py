"""Finds the known name that an unknown one probably means."""

import re
from difflib import get_close_matches
from functools import lru_cache
from typing import Final

# Minimum similarity, and maximum length of a compared key; no real key with its prefix is longer.
_ALIKE: Final = 0.8
_MAX_KEY: Final = 128
# Another model, of Ascend's or Iluvatar's, is not a misspelling, and digits are rarely mistyped.
_CHIP: Final = re.compile(r"Ascend[0-9A-Za-z]*|(?i:MR|BI)-[Vv][0-9]+")


def meant(key: str, known: frozenset[str]) -> str:
    """Return the key in *known* that *key* probably means, or ""."""
    # Controllers that create thousands of pods give them the same keys.
    return _compared(key, known) if len(key) <= _MAX_KEY else ""


@lru_cache(maxsize=1024)
def _compared(key: str, known: frozenset[str]) -> str:
    prefix, slash, name = key.partition("/")
    model, digits = _model(name), _digits(name)
    alike = {
        one.partition("/")[2].casefold(): one
        for one in sorted(known)
        if one.startswith(prefix + slash) and _digits(one) == digits
    }
    if model:
        alike = {other: one for other, one in alike.items() if _model(one) == model}
    close = get_close_matches(name.casefold(), alike, n=1, cutoff=_ALIKE)
    return alike[close[0]] if close else ""


def _model(key: str) -> str:
    found = _CHIP.search(key)
    return found[0].casefold() if found is not None else ""


def elsewhere(key: str, known: frozenset[str], prefixes: frozenset[str]) -> str:
    """Return the key in *known* with the words of *key* under another prefix, *prefixes* first; "" if there is none."""
    name = key.partition("/")[2]
    if not (name and prefixes) or len(key) > _MAX_KEY:
        return ""
    alike = _by_words(known).get(_words(name), ())
    return min(alike, key=lambda one: (one.partition("/")[0] not in prefixes, one), default="")


# The words of HAMi and its plugins for each vendor's cards in the keys that select cards.
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
