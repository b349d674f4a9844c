"""The sections of device-config.yaml for HAMi's other vendors: names of resources.

Source: protocol reference, hami-vendors.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from core.tables import Section
from core.wire.checked import Checks
from core.wire.vocabulary import MAX_FACTOR, DeviceSection


class VendorSection(NamedTuple):
    """Where device-config.yaml names the resources of a dialect.

    key: of the section. word: in a list, the item with this commonWord. names: the keys for count, memory and cores.
    """

    key: str
    word: str = ""
    names: tuple[str, str, str] = ("resourceCountName", "resourceMemoryName", "resourceCoreName")


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorNames(Section):
    """The section of one dialect, which may be among others of this class: "" and 0 for the usual."""

    dialect: str = ""
    cards: str = ""
    memory: str = ""
    cores: str = ""
    mib_per_unit: int = 0


def section_of(dialect: str, given: VendorSection) -> DeviceSection:
    """Return how *given* is read for *dialect*."""
    return DeviceSection(
        key=given.key,
        table=VendorNames,
        read=partial(_table, dialect, given),
        means=partial(_means, given),
        is_hamis=True,
    )


def _item(given: VendorSection, found: object) -> Any:
    if not given.word:
        return found
    items = found if isinstance(found, list) else []
    return next((one for one in items if isinstance(one, dict) and one.get("commonWord") == given.word), None)


def _means(given: VendorSection, found: object, *, is_hamis: bool) -> bool:
    del is_hamis
    return _item(given, found) is not None


def _table(dialect: str, given: VendorSection, checks: Checks, found: object) -> VendorNames:
    """Return the names; a section that names nothing has the usual names."""
    section: Mapping[str, Any] = checks.mapping(_item(given, found), given.key)
    cards, memory, cores = [
        checks.text(section[key], f"{given.key}.{key}", "") if key and section.get(key) else "" for key in given.names
    ]
    factor = checks.whole(section.get("memoryFactor") or 1, f"{given.key}.memoryFactor", 1, MAX_FACTOR, 1)
    return VendorNames(
        dialect=dialect, cards=cards, memory=memory, cores=cores, mib_per_unit=factor if factor > 1 else 0
    )
