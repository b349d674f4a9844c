"""What is said of the final state of a pod: what can never fit, and what is told of a pod that is admitted as it is."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import Final

from core.admission import effects, mends, reach, rules, spelling
from core.admission.rulebook import Rulebook
from core.admission.verdict import Judged, Verdict
from core.catalog import Asked
from core.dialects.vgpu import advice, keys
from core.dialects.vgpu.requests import Request
from core.errors import quoted
from core.inventory import Stock
from core.model import ReviewedPod
from core.port import Dialect
from core.remarks import Notice

# More card models than these are not told apart: the first ones show what is meant.
_MODELS_MAX: Final = 3


def spoken(judged: Judged, book: Rulebook) -> Verdict:
    """The verdict of *judged* with all that is to be said of the pod, if it is admitted so far."""
    verdict, pod, asked, before = judged
    if pod is None or not verdict.allowed:
        return verdict
    notices = [*verdict.notices, *spelling.strange(pod, before, book)]
    if asked is not None:
        never = rules.never_fits(pod, asked, book)
        if never is not None and rules.denies_what_never_fits(pod, book):
            return replace(verdict, violations=(never,))
        if never is not None:
            notices.append(rules.warned(never))
        notices += slices(asked, book)
    if before is None or asked is not None:
        notices += effects.lost(pod, asked, book)
    if before is None and asked is not None:
        notices += unsure(pod, book)
    return replace(verdict, notices=tuple(notices)) if len(notices) > len(verdict.notices) else verdict


def unsure(pod: ReviewedPod, book: Rulebook) -> Iterator[Notice]:
    """What of a pod with cards nobody can know here: CS312, and CS314, who places it."""
    unseen = reach.unseen(pod)
    if unseen is not None and not book.settings.admission.allows("CS304", pod.namespace):
        yield unseen
    name, own = pod.scheduler_name, book.own_scheduler()
    known = (
        *mends.DEFAULT_SCHEDULERS,
        *book.settings.scheduler_names,
        *book.settings.admission.known_schedulers,
    )
    if name not in known:
        yield Notice(
            "CS314",
            f"spec.schedulerName: found {quoted(name)}; it is not known to give cards, so that the pod may run without "
            f"any; write {own}, or leave it out",
        )


def slices(asked: Asked, book: Rulebook) -> Iterator[Notice]:
    """CS113: MIG gives whole slices, which may be larger than what was asked for.

    Told of pods in mode mig, and of those that name no mode where this cluster serves them by MIG alone.
    """
    if asked.dialect != "vgpu":
        return
    dialect, request, why = book.catalog.dialects[asked.dialect], asked.request, "mode mig gives whole slices only"
    there = book.stock.types(dialect) if book.stock is not None else None
    grants = advice.larger_slices(request._replace(mode=request.mode or keys.MIG), book.tables.vgpu, there)
    if grants and not request.mode:
        if not _is_for_mig(dialect, request, book.stock):
            return
        why = "only cards in mode mig can take it here, and these give whole slices"
    for wanted_mib, some in groupby(grants, lambda one: one.wanted_mib):
        told = [f"{one.slice_mib} MiB ({one.profile}) on {one.model}" for one in some]
        text = ", or ".join(told[:_MODELS_MAX])
        yield Notice("CS113", f"{wanted_mib} MiB may get a slice of {text}: {why}")


def _is_for_mig(dialect: Dialect, request: Request, stock: Stock | None) -> bool:
    """Whether, of this cluster's cards, certainly none but those in mode mig take *request*."""
    if stock is None:
        return False
    # Who asks for hami-core gets cards in mode mps as well, so that no third mode is left.
    others = stock.takes(dialect, request._replace(mode=keys.HAMI_CORE))
    return others is False and stock.takes(dialect, request._replace(mode=keys.MIG)) is True
