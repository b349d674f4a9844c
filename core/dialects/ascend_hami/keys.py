"""The annotations of the HAMi protocol for Ascend and their fixed words (protocol reference, ascend 1.4 to 1.6).

Keys that carry a chip's common word are made from it whole: ``Ascend910B4`` is a beginning of ``Ascend910B4-1``.
"""

from typing import Final

from core.hami_lock import BIND_PHASE, BIND_TIME, NODE, TIME

PREDICATE_TIME: Final = "predicate-time"
COMMON_KEYS: Final = frozenset({NODE, TIME, BIND_TIME, BIND_PHASE, PREDICATE_TIME})

# The one key of a node without a domain.
NODE_SOFT: Final = "hami-vnpu-core"
NODE_ENPU: Final = "hami.io/enpu"
TRUE: Final = "true"

MODE: Final = "huawei.com/vnpu-mode"
SOFT: Final = "hami-core"
TEMPLATE: Final = "template"
# Another runtime for soft slices, by each of its names; only HAMi's own scheduler serves it.
ENPU: Final = "enpu"
ENPU_WORDS: Final = frozenset({ENPU, "ubs-virt", "vcann-rt"})
# How a node shares its chips, for people.
SOFT_MODE: Final = "soft"
TEMPLATE_MODE: Final = "template"
# So many dies are on a module, at indices next to each other, where chips are given by modules (ascend 4.6).
MODULE: Final = 2

# How the common word of every chip type begins.
ASCEND: Final = "Ascend"
# Chips with rings, whose devices carry a network id.
RINGED_PREFIX: Final = "Ascend910"

# Huawei's own plugin sells 310P chips by the core, and in its static mode under the same name as this protocol.
NPU_CORE: Final = "huawei.com/npu-core"
SOLD_BY_CORE: Final = "Ascend310P"

PREFIX: Final = "hami.io/"
_ALLOCATED: Final = (PREFIX, "-devices-allocated")


def register(word: str) -> str:
    """The node annotation that lists the devices of a chip type."""
    return f"hami.io/node-register-{word}"


def to_allocate(word: str) -> str:
    """The pod annotation that the plugin pops devices from."""
    return f"hami.io/{word}-devices-to-allocate"


def allocated(word: str) -> str:
    """The pod annotation that says for good what the pod holds."""
    return word.join(_ALLOCATED)


def word_of(key: str) -> str:
    """The chip type whose `allocated` is *key*, "" if none is."""
    head, tail = _ALLOCATED
    return key[len(head) : -len(tail)] if key.startswith(head) and key.endswith(tail) else ""


def runtime_info(word: str) -> str:
    """The pod annotation with one JSON object per device: its template, or its memory and cores."""
    return f"huawei.com/{word}"


def lists(word: str) -> tuple[str, str]:
    """The pod annotations that list the allowed devices, and the devices to avoid."""
    return f"hami.io/use-{word}-uuid", f"hami.io/no-use-{word}-uuid"
