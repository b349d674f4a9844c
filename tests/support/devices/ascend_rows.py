"""What the device tables of both Ascend protocols promise, row by row, read from the tables themselves.

HAMi: the chips of ConfigMap ``hami-scheduler-device``, for each the memory asked and the template it is rounded up to.
MindCluster: AI cores, vnpu-dvpp and vnpu-level to a template, and to the one that takes its place where there are too
few AI CPUs.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

_DATA: Final = Path(__file__).parents[2] / "data"
_CHIPS: Final = yaml.safe_load(
    yaml.safe_load((_DATA / "ascend-device-config.yaml").read_text(encoding="utf-8"))["data"]["device-config.yaml"]
)["vnpus"]["configs"]
_SLICES: Final = yaml.safe_load((_DATA / "ascend-mindcluster-310p.yaml").read_text(encoding="utf-8"))

CORES: Final = "huawei.com/npu-core"
CORES_PER_CHIP: Final[int] = _SLICES["chip_kinds"][0]["aicore_per_chip"]
_CPUS_PER_CHIP: Final[int] = _SLICES["chip_kinds"][0]["aicpu_per_chip"]
# There are chips of so many too, so that a multiple of it is whole chips somewhere.
_CHIP_OF_TEN: Final[int] = _SLICES["chip_kinds"][1]["aicore_per_chip"]
# Any word that is none of the table's counts as low.
_LEVELS: Final = {"*": ("low", "high", "other"), "low": ("low", "other"), "high": ("high",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipRow:
    """One request for chips of the HAMi protocol and what each of them is cut to.

    booked_mib: of each chip. template: "" = the whole chip.
    """

    name: str
    word: str
    limits: Mapping[str, str]
    count: int
    booked_mib: int
    template: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRow:
    """One request for AI cores and what it becomes; template "" = whole chips.

    before: how many equal requests are placed first, which get *first* (the better template) and use its CPUs up.
    """

    name: str
    cores: int
    dvpp: str
    level: str
    template: str
    before: int = 0
    first: str = ""


def chip_words() -> tuple[str, ...]:
    """The chip types."""
    return tuple(chip["commonWord"] for chip in _CHIPS)


def chip_rows() -> Iterator[ChipRow]:
    """Every template of every chip type, asked for exactly and with the least that is rounded up to it; whole chips."""
    for chip in _CHIPS:
        below = 0
        for template in sorted(chip["templates"], key=lambda one: one["memory"]):
            for mib in (below + 1, template["memory"]):
                yield _row(chip, mib, template["memory"], template["name"])
            below = template["memory"]
        whole = chip["memoryAllocatable"]
        for mib in (below + 1, chip["memoryCapacity"], None):
            yield _row(chip, mib, whole, "")
        for count in (2, 4):
            yield _row(chip, None, whole, "", count)
        yield _row(chip, whole, whole, "", 2)


def refused_chip_rows() -> Iterator[tuple[str, Mapping[str, str], str]]:
    """(name, limits, text of the refusal) of what no chip type gives: more than a chip has, parts of several chips."""
    for chip in _CHIPS:
        word = chip["commonWord"].lower()
        above = chip["memoryCapacity"] + 1
        yield f"{word}-above", _limits(chip, above, 1), f"has {chip['memoryCapacity']} MiB"
        part = min(one["memory"] for one in chip["templates"])
        yield f"{word}-parts", _limits(chip, part, 2), "several chips can only be asked for whole"


def slice_rows() -> Iterator[SliceRow]:
    """Every row of the table of slices, for every word of the labels that it speaks of; then whole chips."""
    for row in _SLICES["selection"]:
        for level in _LEVELS[row["level"]]:
            if row["template"] is None:
                yield from _whole_chips(level)
                continue
            name = f"{row['cores']}-{row['dvpp']}-{level}"
            found = {"cores": row["cores"], "dvpp": row["dvpp"], "level": level}
            yield SliceRow(name=name, template=row["template"], **found)
            if "downgraded" in row:
                before = _CPUS_PER_CHIP // _SLICES["templates"][row["template"]]["aicpu"]
                less = row["downgraded"]
                yield SliceRow(name=f"{name}-less", template=less, before=before, first=row["template"], **found)


def refused_slices() -> Iterator[tuple[str, int, str]]:
    """(name, AI cores, vnpu-dvpp) of what no row has: other numbers of cores, other words in vnpu-dvpp."""
    rows = [row for row in _SLICES["selection"] if row["template"] is not None]
    known = {row["cores"] for row in rows}
    for cores in range(1, 2 * CORES_PER_CHIP):
        if cores not in known and cores % CORES_PER_CHIP and cores % _CHIP_OF_TEN:
            yield f"cores-{cores}", cores, "null"
    for cores in sorted(known):
        for dvpp in ("yes", "no", "null", "maybe"):
            if not any((row["cores"], row["dvpp"]) == (cores, dvpp) for row in rows):
                yield f"cores-{cores}-{dvpp}", cores, dvpp


def gives(cores: int, dvpp: str, level: str) -> tuple[str, ...]:
    """The template that the table gives for these, and the one in its place; nothing if it has no such row."""
    for row in _SLICES["selection"]:
        if (row["cores"], row["dvpp"]) == (cores, dvpp) and level in _LEVELS[row["level"]]:
            return tuple(row[key] for key in ("template", "downgraded") if key in row)
    return ()


def _whole_chips(level: str) -> Iterator[SliceRow]:
    for number in (1, 2):
        for dvpp in ("yes", "no", "null"):
            cores = number * CORES_PER_CHIP
            yield SliceRow(name=f"{cores}-{dvpp}-{level}", cores=cores, dvpp=dvpp, level=level, template="")


def _row(chip: Mapping[str, Any], mib: int | None, booked: int, template: str, count: int = 1) -> ChipRow:
    word = chip["commonWord"]
    name = f"{word.lower()}-{count}-{'all' if mib is None else mib}"
    limits = _limits(chip, mib, count)
    return ChipRow(name=name, word=word, limits=limits, count=count, booked_mib=booked, template=template)


def _limits(chip: Mapping[str, Any], mib: int | None, count: int) -> Mapping[str, str]:
    memory = {} if mib is None else {chip["resourceMemoryName"]: str(mib)}
    return {chip["resourceName"]: str(count), **memory}
