"""What users should know of a pod with vGPUs: figures and words of it that have no effect.

Source: protocol reference, nvidia 1.9, 3.1, 3.7, 3.9.
"""

from collections.abc import Iterator

from core.dialects.vgpu import keys
from core.dialects.vgpu.table import VgpuTable
from core.model import AnyPod, Container
from core.sharing.request import Request
from core.warnings import AdmissionWarning, all_memory, another_effect, limit_of, little_memory, no_effect


def of(pod: AnyPod, request: Request, table: VgpuTable) -> Iterator[AdmissionWarning]:
    """CS116 and CS119 for *pod*, which asks *request*."""
    for one in pod.containers:
        yield from _shares(one, request, table)
    word = pod.annotations.get(keys.GROUP_POLICY)
    if word is not None and word not in ("", keys.SPREAD_GROUP):
        why, remedy = "the one word that is read is spread", "write spread, or leave it out"
        yield no_effect(f"annotation {keys.GROUP_POLICY}", word, why, remedy)


def _shares(one: Container, request: Request, table: VgpuTable) -> Iterator[AdmissionWarning]:
    """The percentage holds over the memory, 0 is no amount, and MIG limits no cores."""
    memory, percent = one.amount(table.memory_resource), one.amount(table.percentage_resource)
    if memory is not None and percent is not None:
        why = f"{table.percentage_resource} {percent} overrides it"
        yield no_effect(limit_of(one, table.memory_resource), memory, why, "leave one of the two out")
    elif memory == "0":
        yield all_memory(one, table.memory_resource)
    else:
        yield from little_memory(one, table.memory_resource, table.memory_factor)
    cores = one.amount(table.cores_resource)
    if cores not in (None, "0") and request.modes == (keys.MIG,):
        what = "it limits no cores, because in mode mig a slice brings its own: it only keeps other pods away"
        takes_all = f"; without {table.memory_resource} it takes all memory of a card"
        remedy = "leave it out" + (takes_all if memory is None and percent is None else "")
        yield another_effect(limit_of(one, table.cores_resource), cores, what, remedy)
