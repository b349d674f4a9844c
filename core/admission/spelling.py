"""CS115: keys and resources that nobody is known to read, and that look like those that cardshare reads.

Keys of others are let be, also under the prefixes of the vendors: only what is nearly one of ours is told.
"""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from typing import Final

from core import names
from core.admission.rulebook import MOVED, Rulebook
from core.admission.verdict import Notice
from core.errors import quoted
from core.model import Container, Pod

PREFIXES: Final = (names.OWN_PREFIX, "hami.io/", "huawei.com/", "nvidia.com/", "volcano.sh/")
# What others offer or read, and what looks like ours: KubeVirt's and Kata's GPUs; MindCluster's cards of 310P.
_OTHERS: Final = frozenset(
    {
        "huawei.com/Ascend310P-IPro",
        "huawei.com/Ascend310P-V",
        "huawei.com/Ascend310P-VPro",
        "nvidia.com/pgpu",
        "nvidia.com/vgpu",
    }
)
# How alike two names are, and how long a key may be that is looked at: with its prefix no true one is longer.
_ALIKE: Final = 0.8
_MAX_KEY: Final = 128
# A pod with more strange keys than these is told of the first ones.
_LOOKED_AT: Final = 16
_TOLD: Final = 4
# A chip of another model is no misspelt one, and digits are hardly ever mistyped.
_CHIP: Final = re.compile(r"Ascend[0-9A-Za-z]*")


def strange(pod: Pod, before: Pod | None, book: Rulebook) -> Iterator[Notice]:
    """What of *pod* looks like a key of ours and is none; of a changed pod what it had not *before*."""
    return islice(_strange(pod, before, book), _TOLD)


def _strange(pod: Pod, before: Pod | None, book: Rulebook) -> Iterator[Notice]:
    known = before.annotations if before is not None else {}
    found = [
        key for key in pod.annotations if key.startswith(PREFIXES) and key not in known and not _is_known(key, book)
    ]
    for key in found[:_LOOKED_AT]:
        meant = _meant(key, book.wishes)
        if meant or key.startswith(names.OWN_PREFIX):
            remedy = f"did you mean {meant}?" if meant else f"write one of {', '.join(_own(book))}"
            yield Notice("CS115", f"annotation {_shown(key)}: nobody reads this key; {remedy}")
    if before is None:
        for one in (*pod.containers, *pod.init_containers):
            yield from _resources(one, book)


def _resources(container: Container, book: Rulebook) -> Iterator[Notice]:
    found = [
        key
        for key in dict.fromkeys((*container.limits, *container.requests))
        if key.startswith(PREFIXES) and key not in book.resources and key not in _OTHERS
    ]
    for key in found[:_LOOKED_AT]:
        meant = _meant(key, book.resources)
        if meant:
            where = f'container "{container.name}": limit {_shown(key)}'
            yield Notice("CS115", f"{where}: no device plugin is known to offer this resource; did you mean {meant}?")


def _is_known(key: str, book: Rulebook) -> bool:
    return key in book.wishes or key in MOVED or key in book.resources or key in _OTHERS or book.is_protected(key)


def _meant(key: str, known: frozenset[str]) -> str:
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


def _digits(text: str) -> str:
    return "".join(filter(str.isdigit, text))


def _own(book: Rulebook) -> list[str]:
    return sorted(key for key in book.wishes if key.startswith(names.OWN_PREFIX))


def _shown(key: str) -> str:
    return quoted(key, 100)[1:-1]
