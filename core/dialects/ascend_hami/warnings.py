"""What users should know of a pod with Ascend chips, and what such a pod needs besides.

Source: protocol reference, ascend 1.5, 1.9, 4.2, 4.3, 4.11.
"""

from collections.abc import Iterator

from core.dialects.ascend_hami import keys
from core.dialects.ascend_hami.cards import trim
from core.dialects.ascend_hami.requests import is_soft
from core.dialects.ascend_hami.table import AscendChip, AscendTable
from core.errors import quoted
from core.model import AnyPod, Container, Pod
from core.sharing.request import Request
from core.tables import Tables
from core.warnings import AdmissionWarning, all_memory, limit_of, no_effect


def preferences(tables: Tables) -> frozenset[str]:
    """The annotations by which a pod says which chips it wants, and how they are cut."""
    return frozenset({keys.MODE}).union(*(_uuids(chip.common_word) for chip in tables.of(AscendTable).chips))


def recognised(request: Request) -> frozenset[str]:
    """Those that are read of a pod with *request*: of lists, the ones of its own chip type."""
    return _uuids(request.type) | {keys.MODE}


def completed(pod: Pod, request: Request, tables: Tables) -> tuple[Pod, tuple[AdmissionWarning, ...]]:
    """CS117: with the runtime class of its chip type, where device-config.yaml names one."""
    found = next((one.runtime_class for one in tables.of(AscendTable).chips if one.common_word == request.type), "")
    if not found or pod.runtime_class:
        return pod, ()
    text = f"spec.runtimeClassName: {found} was added, from device-config.yaml for {request.type}"
    return pod._replace(runtime_class=found), (AdmissionWarning("CS117", text),)


def of(pod: AnyPod, tables: Tables) -> Iterator[AdmissionWarning]:
    """CS114 and CS116 for *pod*."""
    word = pod.annotations.get(keys.MODE, "")
    if word not in ("", keys.SOFT):
        why = f"the one word that is read is {keys.SOFT}, and the chip is cut by templates"
        yield no_effect(f"annotation {keys.MODE}", word, why, f"write {keys.SOFT}, or leave it out")
    for chip in tables.of(AscendTable).chips:
        for one in (*pod.init_containers, *pod.containers):
            if one.amount(chip.memory_resource) == "0" and one.amount(chip.resource) not in (None, "0"):
                yield all_memory(one, chip.memory_resource)
            if not is_soft(pod):
                yield from _cut(one, chip)


def _cut(one: Container, chip: AscendChip) -> Iterator[AdmissionWarning]:
    """A chip is cut by templates, so that a container gets the next larger one.

    The figure is left as it was written: scheduler and device plugin read both alike, and a second apply is no change.
    """
    text = one.limits.get(chip.memory_resource, "")
    factor = chip.memory_factor
    wanted_mib = factor * int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else 0
    cut = trim(chip, wanted_mib) if wanted_mib else None
    # What is no whole number of units cannot be asked for to the MiB.
    if cut is not None and cut.charge // factor * factor > wanted_mib:
        given, just = f"{cut.charge} MiB ({cut.name})", cut.charge // factor
        why = f"found {quoted(text)}; chips are sliced by templates: it gets {given}"
        yield AdmissionWarning(
            "CS114",
            f"{limit_of(one, chip.memory_resource)}: {why}; write {just} to request exactly that",
        )


def _uuids(word: str) -> frozenset[str]:
    return frozenset({keys.use_uuids(word), keys.no_use_uuids(word)})
