"""Checks of a pod's final state: requests that can never fit, and warnings for an admitted pod."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from core.admission import defaulting, effects, reach, rules, spelling
from core.admission.rulebook import Rulebook
from core.admission.verdict import Judged, Verdict
from core.catalog import Asked
from core.device_lists import DEVICES_MAX, device_count
from core.errors import quoted
from core.inventory import Stock
from core.model import ReviewedPod
from core.port.dialect import AnyDialect
from core.warnings import AdmissionWarning


def with_warnings(judged: Judged, book: Rulebook) -> Verdict:
    """Return the verdict of *judged* with all warnings, if the pod is admitted so far."""
    verdict, pod, asked, before = judged
    if pod is None or not verdict.allowed:
        return verdict
    warnings = [*verdict.warnings, *spelling.strange(pod, before, book)]
    if asked is not None:
        never = rules.never_fits(pod, asked, book)
        if never is not None and rules.denies_what_never_fits(pod, book):
            return replace(verdict, violations=(never,))
        if never is not None:
            warnings.append(rules.warned(never))
        warnings += advice(asked, book)
        warnings += too_many_devices(pod, book)
    if before is None or asked is not None:
        warnings += effects.ineffective(pod, asked, book)
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


def advice(asked: Asked, book: Rulebook) -> Iterator[AdmissionWarning]:
    """Yield the dialect's advice on what the pod of *asked* would get."""
    dialect = book.catalog.dialects[asked.dialect]
    stock = _Stock(book.stock, dialect) if book.stock is not None else None
    yield from dialect.advice(asked.request, book.tables, stock)
