"""The sections of device-config.yaml for HAMi's other vendors: names of resources.

Source: protocol reference, hami-vendors.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from core.settings import Section
from core.wire.checked import Checks
from core.wire.vocabulary import MAX_FACTOR, DeviceSection

# A name with a domain; names without one, and those of its own domain, belong to Kubernetes.
_RESOURCE: Final = re.compile(
    r"(?!requests\.)(?!([^/]*\.)?kubernetes\.io/)"
    r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?",
    re.ASCII,
)


# In a list: whose cards an item is about.
_WORD: Final = "commonWord"


class VendorSection(NamedTuple):
    """Where device-config.yaml names the resources of a dialect.

    key: of the section. word: in a list, the item with this commonWord. names: the keys for count, memory and cores.
    has_factor: it may say how many MiB a unit of memory has. sizes: the key for the units of memory that whole cards
    have. switch: the key of a switch, and the annotation by which a pod decides instead. others: keys that HAMi reads
    and that have no effect here.
    """

    key: str
    word: str = ""
    names: tuple[str, str, str] = ("resourceCountName", "resourceMemoryName", "resourceCoreName")
    has_factor: bool = False
    sizes: str = ""
    switch: tuple[str, str] = ("", "")
    others: tuple[str, ...] = ()

    def keys(self, usual: Sequence[str]) -> frozenset[str]:
        """Return every key that it can have; *usual*: the names of count, memory and cores, "" for what it lacks."""
        names = [key for key, name in zip(self.names, usual, strict=True) if name]
        factor, item = ("memoryFactor",) * self.has_factor, (_WORD, "chipName") if self.word else ()
        return frozenset([*names, *factor, *item, self.sizes, self.switch[0], *self.others]) - {""}


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorNames(Section):
    """The section of one dialect, which may be among others of this class: "" and 0 for the usual.

    sizes: the units of memory that whole cards have. annotations: defaults for pods without them.
    """

    dialect: str = ""
    cards: str = ""
    memory: str = ""
    cores: str = ""
    mib_per_unit: int = 0
    sizes: tuple[int, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()


def section_of(
    dialect: str, given: VendorSection, usual: Sequence[str], keys: Collection[str], words: Collection[str]
) -> DeviceSection:
    """Return how *given* is read for *dialect*.

    usual: the names of count, memory and cores without it. keys, words: what all dialects know of this section.
    """
    return DeviceSection(
        key=given.key,
        table=VendorNames,
        read=partial(_table, dialect, given, usual),
        means=partial(_means, given),
        is_hamis=True,
        note=partial(_note, given.key, keys, words),
        alone=dialect,
    )


def _note(place: str, keys: Collection[str], words: Collection[str], checks: Checks, found: object) -> None:
    """Note unknown keys, and items of a list that are for no dialect, or for one that an earlier item is for."""
    items = [(one, f"{place}[{at}]") for at, one in enumerate(found)] if isinstance(found, list) else [(found, place)]
    seen: set[str] = set()
    for one, where in items:
        if isinstance(one, dict) and all(isinstance(key, str) for key in one):
            # A key of the same name in another vendor's section is about that vendor's cards.
            checks.note_unknown(one, keys, f"{where}.", may_belong_elsewhere=False)
        word = one.get(_WORD) if isinstance(one, dict) else None
        if not (words and isinstance(found, list)):
            continue
        if not isinstance(word, str):
            checks.note(f"{where}: has no effect; write a mapping with {_WORD}, one of {', '.join(sorted(words))}")
        elif word in seen:
            checks.note(
                f"{where}.{_WORD}: {word}: an earlier item has it, so this one has no effect; remove one of them"
            )
        else:
            checks.note_unknown((word,), words, f"{where}.{_WORD}: ")
            seen.add(word)


def _item(given: VendorSection, items: Sequence[object]) -> tuple[Any, str]:
    """Return the item of a list that is for this dialect, and its place; (None, ...) if there is none."""
    of_word = ((one, at) for at, one in enumerate(items) if isinstance(one, dict) and one.get(_WORD) == given.word)
    one, at = next(of_word, (None, 0))
    return one, f"{given.key}[{at}]"


def _means(given: VendorSection, found: object, *, is_hamis: bool) -> bool:
    return not given.word or not isinstance(found, list) or _item(given, found)[0] is not None


def _table(dialect: str, given: VendorSection, usual: Sequence[str], checks: Checks, found: object) -> VendorNames:
    """Return the names; a section that names nothing has the usual names."""
    place = given.key
    if given.word:
        found, place = _item(given, checks.items(found, place))
    section: Mapping[str, Any] = checks.mapping(found, place)
    names: list[str] = []
    for key in given.names:
        is_known = key and usual[len(names)]
        name = checks.text(section[key], f"{place}.{key}") if is_known and section.get(key) else ""
        if name and not _RESOURCE.fullmatch(name):
            checks.wrong(f"{place}.{key}", name, "write a resource of the device plugin, with its domain")
        names.append(name)
    cards, memory, cores = names
    named = [one and (name or one) for name, one in zip(names, usual, strict=True)]
    for at, key in enumerate(given.names):
        # Of two that are written alike, the second is wrong; of one like a default, the one that is written.
        same = [other for other in range(len(named)) if named[other] == named[at] != "" and other != at]
        if names[at] and any(other < at or not names[other] for other in same):
            checks.wrong(f"{place}.{key}", names[at], f"write a name that differs from {given.names[same[0]]}")
    text = section.get("memoryFactor") if given.has_factor else None
    factor = checks.whole(text or 1, f"{place}.memoryFactor", 1, MAX_FACTOR, 1)
    told = section.get(given.sizes) if given.sizes else None
    # One size may be written alone.
    sizes: Sequence[object] = told if isinstance(told, list) else [told] if told else []
    where = f"{place}.{given.sizes}"
    key, annotation = given.switch
    is_on = bool(key) and checks.switch(section.get(key, False), f"{place}.{key}")
    return VendorNames(
        dialect=dialect,
        cards=cards,
        memory=memory,
        cores=cores,
        mib_per_unit=factor if factor > 1 else 0,
        sizes=tuple(sorted({checks.whole(one, where, 1, MAX_FACTOR, 1) for one in sizes})),
        annotations=((annotation, "true"),) if is_on else (),
    )
