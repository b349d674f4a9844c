"""What a user should know of a request although it is granted: MIG gives whole slices.

Source: protocol reference, nvidia 3.6.
"""

from collections.abc import Collection, Iterator
from itertools import groupby
from typing import Final, NamedTuple

from core.dialects.vgpu import keys
from core.dialects.vgpu.table import MigModel, VgpuTable
from core.port.dialect import CardStock
from core.selection import type_words
from core.sharing.request import Request
from core.warnings import AdmissionWarning

# More card models than these are not told apart: the first ones show what is meant.
_MODELS_MAX: Final = 3


class Grant(NamedTuple):
    """The slice that *wanted_mib* get on an empty card of *model*."""

    wanted_mib: int
    slice_mib: int
    profile: str
    model: str


def slices(request: Request, table: VgpuTable, stock: CardStock[Request] | None) -> Iterator[AdmissionWarning]:
    """CS113: MIG gives whole slices, which may be larger than what was asked for.

    Told of pods in mode mig, and of those that name no mode where this cluster serves them by MIG alone.
    """
    why = "mode mig gives whole slices only"
    there = stock.types() if stock is not None else None
    grants = larger_slices(request._replace(modes=request.modes or (keys.MIG,)), table, there)
    if grants and not request.modes:
        if not _is_for_mig(request, stock):
            return
        why = "only cards in mode mig can take it here, and these give whole slices"
    for wanted_mib, some in groupby(grants, lambda one: one.wanted_mib):
        told = [f"{one.slice_mib} MiB ({one.profile}) on {one.model}" for one in some]
        text = ", or ".join(told[:_MODELS_MAX])
        yield AdmissionWarning("CS113", f"{wanted_mib} MiB may get a slice of {text}: {why}")


def _is_for_mig(request: Request, stock: CardStock[Request] | None) -> bool:
    """Whether, of this cluster's cards, certainly none but those in mode mig take *request*."""
    if stock is None:
        return False
    # Who asks for hami-core gets cards in mode mps as well, so that no third mode is left.
    others = stock.takes(request._replace(modes=(keys.HAMI_CORE,)))
    return others is False and stock.takes(request._replace(modes=(keys.MIG,))) is True


def larger_slices(request: Request, table: VgpuTable, there: Collection[str] | None = None) -> tuple[Grant, ...]:
    """What each container's memory becomes on the card models that the pod accepts, where that is more.

    Only for pods of mode mig; one entry per profile and wanted figure, smallest slice first. A percentage depends on
    the card and is left out. *there* are the types of the cluster's cards, None where they are not known.
    """
    if request.modes != (keys.MIG,):
        return ()
    factor = max(table.memory_factor, 1)
    found: dict[tuple[int, str], Grant] = {}
    for ask in request.asks:
        wanted_mib = ask.memory * factor
        for geometry in table.geometries if not ask.percent else ():
            first = _first_fit(geometry, wanted_mib)
            if first is None or first[0] <= wanted_mib:
                continue
            models = [
                model
                for model in geometry.models
                if (there is None or any(model in one for one in there))
                and request.selection.accepts_type(type_words(f"NVIDIA-{model}"))
            ]
            if models:
                found.setdefault((wanted_mib, first[1]), Grant(wanted_mib, *first, models[0]))
    return tuple(sorted(found.values()))


def _first_fit(geometry: MigModel, wanted_mib: int) -> tuple[int, str] | None:
    """(MiB, name) of the profile that an empty card gives: the first group in which anything fits."""
    for group in geometry.groups:
        fitting = sorted((one.memory_mib, one.name) for one in group.profiles if one.memory_mib >= wanted_mib)
        if fitting:
            return fitting[0]
    return None
