"""What users should know of a pod with shares of HAMi, and what such a pod gets besides.

Source: protocol reference, hami 1.2, 4.1 and 6, HN-11.
"""

from collections.abc import Iterator
from typing import Final

from core import names
from core.dialects.hami import keys
from core.dialects.hami.table import HamiTable
from core.errors import quoted
from core.model import AnyPod, Container, Pod
from core.sharing import wishes
from core.units import FALSE, TRUE
from core.warnings import AdmissionWarning, all_memory, limit_of, little_memory, no_effect
from core.watched import CORE_POLICY, NVIDIA_DEVICES, TASK_PRIORITY, VOID

PREFERENCES: Final[frozenset[str]] = keys.OWN_WISHES | names.TYPE_WISHES | names.PLACE_WISHES
_ALL_CORES: Final = "100"


def completed(pod: Pod, table: HamiTable) -> tuple[Pod, tuple[AdmissionWarning, ...]]:
    """CS117: with HAMi's runtime class; all cores for whoever gets all memory, and variables as HAMi's webhook sets."""
    pod = pod._replace(
        containers=tuple([_completed(one, table) for one in pod.containers]),
        init_containers=tuple([_completed(one, table) for one in pod.init_containers]),
    )
    if not table.runtime_class or pod.runtime_class:
        return pod, ()
    text = f"spec.runtimeClassName: {table.runtime_class} was added, as HAMi's device-config.yaml has it"
    return pod._replace(runtime_class=table.runtime_class), (AdmissionWarning("CS117", text),)


def _completed(one: Container, table: HamiTable) -> Container:
    return _with_variables(_with_cores(one, table), table)


def _with_variables(one: Container, table: HamiTable) -> Container:
    """With the variables for its priority, and by the configuration how it keeps to its cores or that it sees no GPU.

    Those that it has stand.
    """
    has_share = not table.resources.isdisjoint((*one.limits, *one.requests))
    wanted = {TASK_PRIORITY: one.amount(table.priority_resource)}
    if has_share and table.core_policy:
        wanted[CORE_POLICY] = table.core_policy
    if not has_share and table.hides_devices:
        wanted[NVIDIA_DEVICES] = VOID
    has = {name for name, _ in one.reach.env}
    more = tuple([(name, value) for name, value in wanted.items() if value is not None and name not in has])
    return one._replace(reach=one.reach._replace(env=(*one.reach.env, *more))) if more else one


def _with_cores(one: Container, table: HamiTable) -> Container:
    if one.amount(table.count_resource) in (None, "0") or one.amount(table.cores_resource) is not None:
        return one
    if table.default_memory or table.default_cores:
        # A part of the card is meant where the operator says so (HN-11).
        return one
    percent = one.amount(table.percentage_resource)
    if percent != "100" and (percent is not None or one.amount(table.memory_resource) is not None):
        return one
    more = {table.cores_resource: _ALL_CORES}
    return one._replace(limits={**one.limits, **more}, requests={**one.requests, **more})


def of(pod: AnyPod, table: HamiTable) -> Iterator[AdmissionWarning]:
    """CS116 and CS119 for *pod*."""
    for one in (*pod.init_containers, *pod.containers):
        memory, percent = one.amount(table.memory_resource), one.amount(table.percentage_resource)
        if memory == "0" and percent in (None, "0") and one.amount(table.count_resource) not in (None, "0"):
            yield all_memory(one, table.memory_resource)
        yield from little_memory(one, table.memory_resource, table.memory_factor)
        if memory not in (None, "0") and percent not in (None, "0"):
            why = f"{table.memory_resource} is given too"
            yield no_effect(limit_of(one, table.percentage_resource), percent or "", why, "leave one of both out")
    numa = pod.annotations.get(wishes.NUMA_BIND)
    if numa is not None and numa not in TRUE and numa not in FALSE:
        yield no_effect(
            f"annotation {wishes.NUMA_BIND}", numa, "it is read as false", f"write {quoted('true')} to bind"
        )
