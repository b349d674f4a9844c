"""Checks of a pod's final state: requests that can never fit, and warnings for an admitted pod.

CS115 warns of unknown keys and resources that look like those of cardshare. Third-party keys are ignored, even under
the vendors' prefixes: a warning needs near equality with a key of cardshare, or, on pods with cards, its words under
another prefix. CS116 warns of parts that have no effect, or another than they suggest, because of another part; this
module reports what no component reads, and dialects report their own settings.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, Final, NamedTuple

from core import names, spelling
from core.admission import defaulting, reach, rules
from core.admission.rulebook import MOVED, Rulebook
from core.admission.verdict import Judged, Verdict
from core.catalog import Asked, is_crowded
from core.device_lists import DEVICES_MAX, device_count
from core.errors import quoted
from core.inventory import Stock
from core.model import Container, ReviewedPod
from core.port.dialect import AnyDialect
from core.warnings import AdmissionWarning, no_effect

# Third-party names that look like cardshare's: KubeVirt's and Kata's GPUs; MindCluster's cards of 310P; whole cards of
# the plugins of Cambricon and Moore Threads.
_OTHERS: Final = frozenset(
    {
        "cambricon.com/mlu",
        "huawei.com/Ascend310P-IPro",
        "huawei.com/Ascend310P-V",
        "huawei.com/Ascend310P-VPro",
        "mthreads.com/gpu",
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
# Shares of Enflame's cards up to HAMi v2.9 (hami-vendors 1).
_SHARED_GCU: Final = "enflame.com/vgcu"
_WHOLE_CHIP: Final = "huawei.com/Ascend910"
# The number of unknown keys that are examined and reported for a pod.
_LOOKED_AT: Final = 16
_STRANGE_MAX: Final = 4
# The number of reported parts of a pod that have no effect, or give more than is written.
_INEFFECTIVE_MAX: Final = 8


def with_warnings(judged: Judged, book: Rulebook) -> Verdict:
    """Return the verdict of *judged* with all warnings, if the pod is admitted so far."""
    verdict, pod, asked, before = judged
    if pod is None or not verdict.allowed:
        return verdict
    warnings = [*verdict.warnings, *strange(pod, before, book)]
    if asked is not None:
        never = rules.never_fits(pod, asked, book)
        if never is not None and rules.denies_what_never_fits(pod, book):
            return replace(verdict, violations=(never,))
        # A pod that gets no card gets no larger share either.
        warnings += advice(pod, asked, book) if never is None else [rules.warned(never)]
        warnings += too_many_devices(pod, book)
    if before is None or asked is not None:
        warnings += ineffective(pod, asked, book)
    if before is None and asked is not None:
        warnings += unsure(pod, book)
    return replace(verdict, warnings=tuple(warnings)) if len(warnings) > len(verdict.warnings) else verdict


def unsure(pod: ReviewedPod, book: Rulebook) -> Iterator[AdmissionWarning]:
    """Warn of what is unknown at admission: CS312, CS320, and CS314 for the pod's scheduler."""
    if not book.settings.admission.allows("CS304", pod.namespace):
        for found in (reach.unseen(pod), reach.loading(pod, book)):
            if found is not None:
                yield found
    name, own = pod.scheduler_name, book.own_scheduler()
    known = (
        *defaulting.DEFAULT_SCHEDULERS,
        *book.settings.scheduler_names,
        *book.settings.admission.known_schedulers,
    )
    if name not in known:
        yield AdmissionWarning(
            "CS314",
            f"spec.schedulerName: found {quoted(name)}; write {own}, or leave it out: it is not known to assign "
            "cards, and the pod may run without any",
        )


def too_many_devices(pod: ReviewedPod, book: Rulebook) -> Iterator[AdmissionWarning]:
    """CS322: the devices that kubelet lists in the status of *pod* exceed etcd's limit."""
    listed = book.stock.listed if book.stock is not None else ()
    if (count := device_count(pod, listed)) > DEVICES_MAX and not book.settings.admission.allows(
        "CS322", pod.namespace
    ):
        yield AdmissionWarning(
            "CS322",
            f"set gpuMemoryFactor, or switch ResourceHealthStatus off in kubelet: it lists each of this pod's {count} "
            f"devices in its status, and with more than {DEVICES_MAX} the pod may stay Pending (doctor.md, CS619)",
        )


class _Stock(NamedTuple):
    """`core.port.dialect.CardStock` of one dialect."""

    stock: Stock
    dialect: AnyDialect

    def types(self) -> frozenset[str]:
        return self.stock.types(self.dialect)

    def takes(self, request: Any) -> bool | None:
        return self.stock.takes(self.dialect, request)


def _first(found: Iterable[AdmissionWarning], most: int) -> Iterator[AdmissionWarning]:
    """Yield *most* of the warnings *found*, and that there are more, if so."""
    left = iter(found)
    yield from islice(left, most)
    for one in islice(left, 1):
        yield AdmissionWarning(one.code, "correct these first; there are more like these")


def advice(pod: ReviewedPod, asked: Asked, book: Rulebook) -> Iterator[AdmissionWarning]:
    """Yield the dialect's advice on what *pod*, which requests *asked*, would get."""
    dialect = book.catalog.dialects[asked.dialect]
    stock = _Stock(book.stock, dialect) if book.stock is not None else None
    yield from _first(dialect.advice(pod, asked.request, book.tables, stock), _INEFFECTIVE_MAX)


def ineffective(pod: ReviewedPod, asked: Asked | None, book: Rulebook) -> Iterator[AdmissionWarning]:
    """CS116: yield warnings for parts of *pod*, which requests *asked*, that do not have the suggested effect."""
    return _first(_ineffective(pod, asked, book), _INEFFECTIVE_MAX)


def _ineffective(pod: ReviewedPod, asked: Asked | None, book: Rulebook) -> Iterator[AdmissionWarning]:
    if pod.labels:
        yield from misplaced(pod, book)
    if pod.annotations:
        yield from annotated_resources(pod, book)
    if is_crowded(pod):
        return
    resource = rules.asked_resource(pod, book)
    if not resource:
        return
    if pod.annotations:
        yield from unread(pod, asked, resource, book)
    if pod.labels:
        yield from others_labels(pod, asked, book)
    if asked is not None:
        yield from book.catalog.dialects[asked.dialect].warnings(pod, asked.request, book.tables)


def misplaced(pod: ReviewedPod, book: Rulebook) -> Iterator[AdmissionWarning]:
    """Yield warnings for annotation keys among the labels, where they are not read."""
    for key in sorted(pod.labels.keys() & book.preferences):
        yield no_effect(f"label {key}", pod.labels[key], "it is read as an annotation only", "write it there")


def annotated_resources(pod: ReviewedPod, book: Rulebook) -> Iterator[AdmissionWarning]:
    """Yield warnings for resources among the annotations, also of a pod that therefore requests no cards."""
    for key in sorted(pod.annotations.keys() & book.resources):
        if not book.is_protected(key):
            remedy = "write it among a container's limits"
            yield no_effect(f"annotation {key}", pod.annotations[key], "it is a resource", remedy)


def unread(pod: ReviewedPod, asked: Asked | None, resource: str, book: Rulebook) -> Iterator[AdmissionWarning]:
    """Yield warnings for card annotations that are not read for a pod with *resource*, and for misplaced labels."""
    recognised = frozenset[str]()
    if asked is not None:
        recognised = book.catalog.dialects[asked.dialect].recognised(asked.request, book.tables)
    for key in sorted((pod.annotations.keys() & book.preferences) - recognised):
        if pod.annotations[key].strip():
            why = f"it is not read on pods that ask for {resource}"
            yield no_effect(f"annotation {key}", pod.annotations[key], why, "leave it out")
    own_labels = book.labels.get(asked.dialect, frozenset()) if asked is not None else frozenset()
    for key in sorted(pod.annotations.keys() & own_labels):
        yield no_effect(f"annotation {key}", pod.annotations[key], "it is read as a label only", "write it there")


def others_labels(pod: ReviewedPod, asked: Asked | None, book: Rulebook) -> Iterator[AdmissionWarning]:
    """Yield warnings for labels that only another dialect reads."""
    for name, keys in book.labels.items():
        if asked is None or asked.dialect is not name:
            resources = ", ".join(sorted(book.resources_by_dialect[name]))
            for key in sorted(pod.labels.keys() & keys):
                why = f"only pods with {resources} use it"
                yield no_effect(f"label {key}", pod.labels[key], why, "leave it out")


def strange(pod: ReviewedPod, before: ReviewedPod | None, book: Rulebook) -> Iterator[AdmissionWarning]:
    """CS115: yield warnings for unknown keys of *pod* that look like cardshare's; with *before*, for new ones."""
    return _first(_strange(pod, before, book), _STRANGE_MAX)


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
            if meant := meant_resource(key, book.resources):
                told = "no device plugin is known to offer this resource"
                yield AdmissionWarning("CS115", f"{where}: {told}; did you mean {meant}?")


def meant_resource(key: str, resources: frozenset[str]) -> str:
    """Return which of *resources* the unknown resource *key* should probably be; "" if none."""
    return "" if key in _OTHERS or key == _SHARED_GCU else spelling.meant(key, resources)


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
        same = _VOLCANO + key.removeprefix(_MISNAMED)
        meant = same if same in book.resources else spelling.meant(same, book.resources)
        ours = [meant] if meant else sorted(one for one in book.resources if one.startswith(_VOLCANO))
        return f"write {'one of ' if len(ours) > 1 else ''}{', '.join(ours)}" if ours else ""
    if key == _TIME_SLICE and book.asks_cards(pod):
        return "leave it out, or ask for nvidia.com/gpu alone; a pod can use cards of one plugin only"
    if key.startswith(_INSTANCE) and book.asks_cards(pod):
        return "leave it out, or ask for it alone; shares get MIG instances through mode mig and memory"
    if key == _SHARED_GCU:
        return "write enflame.com/drs-gcu, and how many slices of a card the pod needs"
    if key.casefold().startswith(_OF_CHIPS):
        return "write huawei.com/Ascend310P with huawei.com/Ascend310P-memory, or huawei.com/npu-core"
    return "write the chip's model such as huawei.com/Ascend910A" if key == _WHOLE_CHIP else ""


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
