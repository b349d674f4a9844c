"""CS116: what of a pod has no effect, or another than its words say, because something else of it holds.

Each rule takes one protocol's words; what nobody reads is told with what holds instead. Source: protocol reference,
nvidia 1.9, 3.1, 3.7, 3.9; ascend 1.5, 3.3, 3.4, 4.2.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from core import names, selection
from core.admission import rules
from core.admission.mends import plain
from core.admission.rulebook import SELECTORS, Rulebook
from core.admission.verdict import Notice
from core.catalog import Asked
from core.dialects.ascend_hami import keys as ascend_keys
from core.dialects.mindcluster import keys as mindcluster_keys
from core.dialects.mindcluster.templates import DECISIONS, HIGH, LOW, NULL
from core.dialects.vgpu import keys as vgpu_keys
from core.errors import InvalidRequestError, quoted
from core.model import Container, Pod
from core.settings import DialectName

_TOLD: Final = 8
_TYPES: Final = frozenset({names.USE_GPU_TYPE, names.NO_USE_GPU_TYPE})
_PLACES: Final = frozenset({names.WISHED_INDICES, names.AVOIDED_CARDS})
# Which annotations on cards each protocol reads. Whole GPUs refuse _PLACES (CS212) instead of passing them over.
_READ: Final[Mapping[DialectName, frozenset[str]]] = {
    DialectName.VGPU: SELECTORS,
    DialectName.GPU_MEMORY: _PLACES,
    DialectName.GPU_NUMBER: _PLACES,
    DialectName.WHOLE_GPU: _TYPES | _PLACES,
    DialectName.ASCEND_HAMI: frozenset(),
    DialectName.MINDCLUSTER: frozenset(),
}
_LABELS: Final = (mindcluster_keys.LEVEL, mindcluster_keys.DVPP)


def lost(pod: Pod, asked: Asked | None, book: Rulebook) -> Iterator[Notice]:
    """What of *pod*, which asks *asked* of cards, has not the effect that its words have."""
    return islice(_lost(pod, asked, book), _TOLD)


def _lost(pod: Pod, asked: Asked | None, book: Rulebook) -> Iterator[Notice]:
    if pod.labels:
        yield from misplaced(pod, book)
    resource = rules.asked_resource(pod, book)
    if not resource:
        return
    if pod.annotations:
        yield from unread(pod, asked, resource, book)
    if pod.labels:
        yield from labels(pod, asked)
    if asked is None:
        return
    if asked.dialect is DialectName.VGPU:
        for one in pod.containers:
            yield from shares(one, asked, book)
        yield from grouping(pod)
    elif asked.dialect is DialectName.ASCEND_HAMI:
        yield from cutting(pod)
        for one in (*pod.containers, *pod.init_containers):
            yield from chip_memory(one, book)
    elif asked.dialect in (DialectName.GPU_MEMORY, DialectName.GPU_NUMBER):
        yield from avoided_ids(pod)


def misplaced(pod: Pod, book: Rulebook) -> Iterator[Notice]:
    """Keys of annotations among the labels, where nobody looks for them."""
    for key in sorted(pod.labels.keys() & book.wishes):
        yield _notice(f"label {key}", pod.labels[key], "it is read as an annotation only", "write it there")


def unread(pod: Pod, asked: Asked | None, resource: str, book: Rulebook) -> Iterator[Notice]:
    """Annotations on cards that nobody reads of a pod with *resource*, and what does not belong among annotations."""
    ascend = ascend_keys_of(asked)
    read = _READ[asked.dialect] if asked is not None else frozenset[str]()
    for key in sorted(pod.annotations.keys() & book.wishes):
        if key in read or key in ascend or not pod.annotations[key].strip():
            continue
        why = f"nobody reads it on pods that ask for {resource}"
        yield _notice(f"annotation {key}", pod.annotations[key], why, "leave it out")
    for key in _LABELS if asked is not None and asked.dialect is DialectName.MINDCLUSTER else ():
        if key in pod.annotations:
            yield _notice(f"annotation {key}", pod.annotations[key], "it is read as a label only", "write it there")
    for key in sorted(pod.annotations.keys() & book.resources):
        if not book.is_protected(key):
            remedy = "write it among a container's limits"
            yield _notice(f"annotation {key}", pod.annotations[key], "it is a resource", remedy)


def ascend_keys_of(asked: Asked | None) -> frozenset[str]:
    """The annotations that are read of a pod with Ascend chips: those of its own chip type."""
    if asked is None or asked.dialect is not DialectName.ASCEND_HAMI:
        return frozenset()
    word = asked.request.word
    return frozenset({ascend_keys.MODE, ascend_keys.use_uuids(word), ascend_keys.no_use_uuids(word)})


def labels(pod: Pod, asked: Asked | None) -> Iterator[Notice]:
    """Labels by which MindCluster chooses a template, where there is none to choose, or the choice is the same."""
    if asked is None or asked.dialect is not DialectName.MINDCLUSTER:
        for key in _LABELS:
            if key in pod.labels:
                why = f"only pods with {mindcluster_keys.CORES} have templates to choose from"
                yield _notice(f"label {key}", pod.labels[key], why, "leave it out")
        return
    cores, choice = asked.request
    level, dvpp = pod.labels.get(mindcluster_keys.LEVEL, LOW), pod.labels.get(mindcluster_keys.DVPP, NULL)
    if choice is None:
        for key, found, usual in ((_LABELS[0], level, LOW), (_LABELS[1], dvpp, NULL)):
            if found != usual:
                yield _notice(f"label {key}", found, f"{cores} AI cores are whole chips", "leave it out")
    elif level not in (LOW, HIGH):
        yield _notice(f"label {_LABELS[0]}", level, f"it is read as {LOW}", f"write {LOW} or {HIGH}")
    elif level == HIGH and choice == DECISIONS[cores, dvpp, False]:
        why = f"{mindcluster_keys.CORES}: {cores} with {_LABELS[1]} {dvpp} is {choice.template.name} at any level"
        yield _notice(f"label {_LABELS[0]}", level, why, "leave it out")


def shares(one: Container, asked: Asked, book: Rulebook) -> Iterator[Notice]:
    """Of a container's figures: the percentage holds over the memory, 0 is no amount, and MIG limits no cores."""
    table = book.tables.vgpu
    memory, percent = _limit(one, table.memory_resource), _limit(one, table.percentage_resource)
    if memory is not None and percent is not None:
        yield _notice(
            _place(one, table.memory_resource),
            memory,
            f"{table.percentage_resource} {percent} holds over it",
            "leave one of the two out",
        )
    elif memory is not None and plain(memory) == "0":
        yield _all_memory(one, table.memory_resource, memory)
    cores = _limit(one, table.cores_resource)
    if cores is not None and plain(cores) != "0" and asked.request.mode == vgpu_keys.MIG:
        yield _notice(
            _place(one, table.cores_resource),
            cores,
            "in mode mig a slice brings its own cores, and this figure only keeps other pods off the card",
            "leave it out",
        )


def grouping(pod: Pod) -> Iterator[Notice]:
    """The policy of a pod group has one word."""
    word = pod.annotations.get(vgpu_keys.GROUP_POLICY)
    if word is not None and word not in ("", vgpu_keys.SPREAD_GROUP):
        why, remedy = "the one word that is read is spread", "write spread, or leave it out"
        yield _notice(f"annotation {vgpu_keys.GROUP_POLICY}", word, why, remedy)


def cutting(pod: Pod) -> Iterator[Notice]:
    """Any word but one means that chips are cut by templates."""
    word = pod.annotations.get(ascend_keys.MODE, "")
    if word not in ("", ascend_keys.SOFT):
        why = f"the one word that is read is {ascend_keys.SOFT}, and the chip is cut by templates"
        yield _notice(f"annotation {ascend_keys.MODE}", word, why, f"write {ascend_keys.SOFT}, or leave it out")


def chip_memory(one: Container, book: Rulebook) -> Iterator[Notice]:
    """Memory of 0 is all of a chip's."""
    for chip in book.tables.ascend.chips:
        memory = _limit(one, chip.memory_resource)
        if memory is not None and plain(memory) == "0" and plain(_limit(one, chip.resource) or "0") != "0":
            yield _all_memory(one, chip.memory_resource, memory)


def avoided_ids(pod: Pod) -> Iterator[Notice]:
    """The share plugin knows cards by position alone."""
    text = pod.annotations.get(names.AVOIDED_CARDS, "")
    try:
        ids, _ = selection.avoided(text, "")
    except InvalidRequestError:
        return
    if ids:
        why = "these nodes know their cards by position, not by id"
        yield _notice(f"annotation {names.AVOIDED_CARDS}", ", ".join(sorted(ids)), why, "write positions such as '0,2'")


def _all_memory(one: Container, resource: str, found: str) -> Notice:
    why = "0 asks for all memory of the card"
    return _notice(_place(one, resource), found, why, "write how many MiB, or leave it out")


def _notice(field: str, found: str, why: str, remedy: str) -> Notice:
    return Notice("CS116", f"{field}: found {quoted(found)}; it has no effect, because {why}: {remedy}")


def _place(one: Container, resource: str) -> str:
    return f'container "{one.name}": limit {resource}'


def _limit(one: Container, resource: str) -> str | None:
    text = one.limits.get(resource)
    return one.requests.get(resource) if text is None else text
