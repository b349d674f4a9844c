"""CS115: unknown keys and resources that look like those of cardshare.

Third-party keys are ignored, even under the vendors' prefixes. A warning needs near equality with a key of cardshare,
or, on pods with cards, its words under another prefix.
"""

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from core import names, spelling
from core.admission.rulebook import MOVED, Rulebook
from core.errors import quoted
from core.model import Container, ReviewedPod
from core.warnings import AdmissionWarning

# Third-party names that look like cardshare's: KubeVirt's and Kata's GPUs; MindCluster's cards of 310P.
_OTHERS: Final = frozenset(
    {
        "huawei.com/Ascend310P-IPro",
        "huawei.com/Ascend310P-V",
        "huawei.com/Ascend310P-VPro",
        "nvidia.com/pgpu",
        "nvidia.com/vgpu",
    }
)
_VOLCANO: Final = "volcano.sh/"
_MISNAMED: Final = "volcano.com/"
_RESOURCES_OF_OTHERS: Final = ("aliyun.com/gpu-", _MISNAMED)
_TIME_SLICE: Final = "nvidia.com/gpu.shared"
_INSTANCE: Final = "nvidia.com/mig-"
# Words by which pods select cards, under any prefix.
_CHOOSING: Final = re.compile(
    r"/(no-?)?use-|/v?gpu-|/(numa-bind|avoid-cards|vnpu-mode)$|-scheduler-policy$", re.MULTILINE
)
_SHARED_MEMORY: Final = "aliyun.com/gpu-mem"
_OF_CHIPS: Final = "huawei.com/ascend310p-"
_WHOLE_CHIP: Final = "huawei.com/Ascend910"
# The number of unknown keys that are examined and reported for a pod.
_LOOKED_AT: Final = 16
_TOLD: Final = 4


def strange(pod: ReviewedPod, before: ReviewedPod | None, book: Rulebook) -> Iterator[AdmissionWarning]:
    """Yield warnings for unknown keys of *pod* that look like cardshare's; if *before* is given, only for new ones."""
    return islice(_strange(pod, before, book), _TOLD)


def _strange(pod: ReviewedPod, before: ReviewedPod | None, book: Rulebook) -> Iterator[AdmissionWarning]:
    known = before.annotations if before is not None else {}
    # Third-party keys are correct on pods of their schedulers.
    is_ours = not book.is_left_to_others(pod)
    # One search over all keys, because few pods have such a word.
    chooses = is_ours and _CHOOSING.search("\n".join(pod.annotations)) is not None
    found = [
        key
        for key in pod.annotations
        if (key.startswith(book.key_prefixes) or (chooses and _CHOOSING.search(key)))
        and key not in known
        and not _is_known(key, book)
    ]
    for key in found[:_LOOKED_AT]:
        meant = spelling.meant(key, book.preferences) if key.startswith(book.key_prefixes) else ""
        if not meant and chooses:
            meant = spelling.elsewhere(key, book.preferences, _prefixes(pod, book))
        if meant or key.startswith(names.OWN_PREFIX):
            remedy = f"did you mean {meant}?" if meant else f"write one of {', '.join(_own(book))}"
            yield AdmissionWarning("CS115", f"annotation {_shown(key)}: this key is unknown; {remedy}")
    if before is None:
        found_in = ((one, key) for one in (*pod.containers, *pod.init_containers) for key in _resources(one, book))
        for one, key in islice(found_in, _LOOKED_AT):
            where = f'container "{one.name}": limit {_shown(key)}'
            instead = _instead(key, pod, book) if is_ours else ""
            if instead:
                yield AdmissionWarning("CS115", f"{where}: cardshare does not support this resource; {instead}")
                continue
            meant = spelling.meant(key, book.resources)
            if meant:
                told = "no device plugin is known to offer this resource"
                yield AdmissionWarning("CS115", f"{where}: {told}; did you mean {meant}?")


def _prefixes(pod: ReviewedPod, book: Rulebook) -> frozenset[str]:
    """Return the prefixes of the card resources that *pod* requests; without any, third-party words are ignored."""
    asked = {key for one in (*pod.init_containers, *pod.containers) for key in (*one.limits, *one.requests)}
    return frozenset(key.partition("/")[0] for key in asked & book.resources)


def _instead(key: str, pod: ReviewedPod, book: Rulebook) -> str:
    """Return what to write instead of a third-party resource with an equivalent of cardshare; "" for others.

    Resources that another plugin may offer are reported only on pods that also request cards of cardshare.
    """
    if key == _SHARED_MEMORY:
        return "write volcano.sh/gpu-memory"
    if key.startswith(_MISNAMED):
        return f"write {_VOLCANO}{key.partition('/')[2]}"
    if key == _TIME_SLICE and book.asks_cards(pod):
        return "leave it out, or ask for nvidia.com/gpu alone; a pod can use cards of one plugin only"
    if key.startswith(_INSTANCE) and book.asks_cards(pod):
        return "leave it out, or ask for it alone; shares get MIG instances through mode mig and memory"
    if key.casefold().startswith(_OF_CHIPS):
        return "write huawei.com/Ascend310P with huawei.com/Ascend310P-memory, or huawei.com/npu-core"
    return "write huawei.com/npu-core, or the chip's model such as huawei.com/Ascend910A" if key == _WHOLE_CHIP else ""


def _resources(container: Container, book: Rulebook) -> list[str]:
    return [
        key
        for key in dict.fromkeys((*container.limits, *container.requests))
        if key.startswith((*book.key_prefixes, *_RESOURCES_OF_OTHERS))
        and key not in book.resources
        and key not in _OTHERS
    ]


def _is_known(key: str, book: Rulebook) -> bool:
    return key in book.preferences or key in MOVED or key in book.resources or key in _OTHERS or book.is_protected(key)


def _own(book: Rulebook) -> list[str]:
    return sorted(key for key in book.preferences if key.startswith(names.OWN_PREFIX))


def _shown(key: str) -> str:
    return quoted(key, 100)[1:-1]
