"""The templates of an Ascend 310P chip, and which of them a request gets.

Source: protocol reference, ascend 1.7, 3.2, 3.3; the decision table is the one that the user guide prints.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

NULL: Final = "null"
YES: Final = "yes"
NO: Final = "no"
HIGH: Final = "high"
LOW: Final = "low"
DVPP_VALUES: Final = (YES, NO, NULL)


class Template(NamedTuple):
    """One slice: AI cores, AI CPUs, and its part of the chip's DVPP (yes: all, no: none, null: in proportion).

    bit tells templates apart in a set of them; device_type is the plugin's word for it in device names.
    """

    name: str
    cores: int
    cpus: int
    dvpp: str
    device_type: str
    bit: int


_ROWS: Final = (
    ("vir01", 1, 1, NULL, "1c"),
    ("vir02", 2, 2, NULL, "2c"),
    ("vir02_1c", 2, 1, NULL, "2c.1cpu"),
    ("vir04", 4, 4, NULL, "4c"),
    ("vir04_3c", 4, 3, NULL, "4c.3cpu"),
    ("vir04_3c_ndvpp", 4, 3, NO, "4c.3cpu.ndvpp"),
    ("vir04_4c_dvpp", 4, 4, YES, "4c.4cpu.dvpp"),
)
TEMPLATES: Final[Mapping[str, Template]] = {row[0]: Template(*row, bit=1 << place) for place, row in enumerate(_ROWS)}
BY_DEVICE_TYPE: Final[Mapping[str, Template]] = {one.device_type: one for one in TEMPLATES.values()}
# Stands for an unknown template, whose size is unknown, too.
NOT_KNOWN: Final = Template("", 0, 0, NO, "", bit=1 << len(_ROWS))

SLICE_CORES: Final = (1, 2, 4)
# AI cores of a chip -> its AI CPUs; no other chip is known.
CHIP_CPUS: Final[Mapping[int, int]] = {8: 7, 10: 7}


class Choice(NamedTuple):
    """What a slice gets where there is room, and what instead where there is not (None: nothing)."""

    template: Template
    downgraded: Template | None = None


# (AI cores, vnpu-dvpp, level is high) -> what it gets.
DECISIONS: Final[Mapping[tuple[int, str, bool], Choice]] = {
    (1, NULL, False): Choice(TEMPLATES["vir01"]),
    (1, NULL, True): Choice(TEMPLATES["vir01"]),
    (2, NULL, False): Choice(TEMPLATES["vir02_1c"]),
    (2, NULL, True): Choice(TEMPLATES["vir02"], TEMPLATES["vir02_1c"]),
    (4, YES, False): Choice(TEMPLATES["vir04_4c_dvpp"]),
    (4, NO, False): Choice(TEMPLATES["vir04_3c_ndvpp"]),
    (4, NULL, False): Choice(TEMPLATES["vir04_3c"]),
    (4, YES, True): Choice(TEMPLATES["vir04_4c_dvpp"]),
    (4, NO, True): Choice(TEMPLATES["vir04_3c_ndvpp"]),
    (4, NULL, True): Choice(TEMPLATES["vir04"], TEMPLATES["vir04_3c"]),
}


def asks_whole_chips(cores: int) -> bool:
    """Whether so many AI cores are whole chips of some 310P."""
    return cores > 0 and any(cores % per_chip == 0 for per_chip in CHIP_CPUS)


def row(cores: int, dvpp: str, *, high: bool) -> str:
    """A row of the table in words: what to ask for, and what that gives."""
    choice = DECISIONS[cores, dvpp, high]
    level = HIGH if high else LOW
    given = choice.template.name + (f" or {choice.downgraded.name}" if choice.downgraded else "")
    return f"huawei.com/npu-core: {cores} with vnpu-level {level} and vnpu-dvpp {dvpp} ({given})"
