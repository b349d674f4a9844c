"""What users should know of a pod with vGPUs: figures and words without effect, and that MIG gives whole slices.

Source: protocol reference, nvidia 1.9, 3.1, 3.6, 3.7, 3.9.
"""

from collections.abc import Collection, Iterator
from itertools import groupby
from typing import Final, NamedTuple

from core.dialects.vgpu import keys
from core.dialects.vgpu.table import VgpuTable
from core.model import AnyPod, Container
from core.port.dialect import CardStock
from core.selection import type_words
from core.sharing.card import HAMI_CORE, MIG
from core.sharing.request import Request
from core.sharing.slices import choose
from core.tables import Tables
from core.warnings import AdmissionWarning, all_memory, another_effect, limit_of, little_memory, no_effect

# More card models than these are not told apart: the first ones show what is meant.
_MODELS_MAX: Final = 3


def of(pod: AnyPod, request: Request, tables: Tables) -> Iterator[AdmissionWarning]:
    """CS116 and CS119 for *pod*, which asks *request*."""
    for one in pod.containers:
        yield from _shares(one, request, tables.of(VgpuTable))
    word = pod.annotations.get(keys.GROUP_POLICY)
    if word is not None and word not in ("", keys.SPREAD_GROUP):
        why, remedy = "the one word that is read is spread", "write spread, or leave it out"
        yield no_effect(f"annotation {keys.GROUP_POLICY}", word, why, remedy)


def _shares(one: Container, request: Request, table: VgpuTable) -> Iterator[AdmissionWarning]:
    """The percentage holds over the memory, 0 is no amount, and MIG limits no cores."""
    memory, percent = one.amount(table.named.memory), one.amount(table.named.percentage)
    if memory is not None and percent is not None:
        why = f"{table.named.percentage} {percent} overrides it"
        yield no_effect(limit_of(one, table.named.memory), memory, why, "leave one of the two out")
    elif memory == "0":
        yield all_memory(one, table.named.memory)
    else:
        yield from little_memory(one, table.named.memory, table.named.mib_per_unit)
    cores = one.amount(table.named.cores)
    if cores not in (None, "0") and request.modes == (MIG,):
        what = "it limits no cores, because in mode mig a slice brings its own: it only keeps other pods away"
        takes_all = f"; without {table.named.memory} it takes all memory of a card"
        remedy = "leave it out" + (takes_all if memory is None and percent is None else "")
        yield another_effect(limit_of(one, table.named.cores), cores, what, remedy)


class Grant(NamedTuple):
    """The slice that *wanted_mib* get on an empty card of *model*."""

    wanted_mib: int
    slice_mib: int
    profile: str
    model: str


def slices(
    pod: AnyPod, request: Request, tables: Tables, stock: CardStock[Request] | None
) -> Iterator[AdmissionWarning]:
    """CS113: MIG gives whole slices, which may be larger than what was asked for.

    Told of pods in mode mig, and of those that name no mode where this cluster serves them by MIG alone.
    """
    why = "mode mig gives whole slices only"
    there = stock.types() if stock is not None else None
    grants = larger_slices(request._replace(modes=request.modes or (MIG,)), tables.of(VgpuTable), there)
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
    others = stock.takes(request._replace(modes=(HAMI_CORE,)))
    return others is False and stock.takes(request._replace(modes=(MIG,))) is True


def larger_slices(request: Request, table: VgpuTable, there: Collection[str] | None = None) -> tuple[Grant, ...]:
    """What each container's memory becomes on the card models that the pod accepts, where that is more.

    Only for pods of mode mig; one entry per profile and wanted figure, smallest slice first. A percentage depends on
    the card and is left out. *there* are the types of the cluster's cards, None where they are not known.
    """
    if request.modes != (MIG,):
        return ()
    factor = table.named.mib_per_unit
    found: dict[tuple[int, str], Grant] = {}
    for ask in request.asks:
        wanted_mib = ask.memory * factor
        for geometry in table.geometries if not ask.percent else ():
            chosen = choose(geometry.layout, (), wanted_mib)
            if chosen is None or chosen.profile.memory_mib <= wanted_mib:
                continue
            size, name = chosen.profile.memory_mib, chosen.profile.name
            models = [
                model
                for model in geometry.models
                if (there is None or any(model in one for one in there))
                and request.selection.accepts_type(type_words(f"NVIDIA-{model}"))
            ]
            if models:
                found.setdefault((wanted_mib, name), Grant(wanted_mib, size, name, models[0]))
    return tuple(sorted(found.values()))
