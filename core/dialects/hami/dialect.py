"""HAMi's protocol for NVIDIA cards behind the port."""

from dataclasses import replace
from functools import partial
from typing import Final

from core import hami_lock
from core.dialects.hami import another, cards, keys, pods
from core.dialects.hami.table import SECTION, HamiTable
from core.port.cards import Series
from core.port.dialect import Names
from core.port.spec import MIG_MANAGER, CardLists, DialectSpec, Metrics, Register
from core.settings import DialectName, Tables
from core.sharing.dialect import ByNodeLock, NodeLock, SharedCards
from core.sharing.request import Resources
from core.wire import hami_register as register


class Hami(ByNodeLock, SharedCards):
    """`Dialect` of core.port for NVIDIA cards handed over by HAMi's device plugin."""

    name: DialectName = keys.NAME
    rules = cards.HamiRules()
    assignment_keys = keys.ASSIGNMENT_KEYS
    preferences = keys.PREFERENCES

    offer = staticmethod(cards.offer)
    well = staticmethod(cards.well)
    request = staticmethod(pods.request)
    held = staticmethod(pods.held)
    annotations = staticmethod(pods.annotations)
    labels = staticmethod(pods.labels)
    in_flight = staticmethod(pods.in_flight)
    completed = staticmethod(pods.completed)
    warnings = staticmethod(pods.warnings)

    def declared(self, tables: Tables) -> tuple[Resources, ...]:
        table = tables.of(HamiTable)
        # Another protocol may sell shares by the name of the count.
        return () if tables.is_claimed(table.named.cards) else (table.named,)

    def names(self, tables: Tables) -> Names:
        # Without HAMi's configuration the count is NVIDIA's too.
        found, table = super().names(tables), tables.of(HamiTable)
        return replace(
            found,
            uncounted=found.uncounted | {table.priority_resource} if found.uncounted else frozenset(),
            fills=dict.fromkeys(found.memories, table.default_count),
            memories=found.memories if table.installed else {},
            runtime_classes=frozenset([table.runtime_class] if table.runtime_class else ()),
        )


# HAMi's scheduler v2.10 has series under the same names; what is called a ratio is percent.
_OF_CARDS: Final = partial(Series, labels=("device_uuid", "node"))
_OF_PODS: Final = partial(_OF_CARDS, pod_labels=("namespace", "pod"))
_MIB: Final = 1 << 20
_METRICS: Final = Metrics(
    of_cards=(
        _OF_CARDS("hami_gpu_memory_limit_bytes", "Device memory limit for a certain GPU"),
        _OF_CARDS("hami_gpu_memory_allocated_bytes", "Device memory allocated for a certain GPU"),
        _OF_CARDS("hami_gpu_core_limit_ratio", "Device core limit for a certain GPU"),
        _OF_CARDS("hami_gpu_core_allocated_ratio", "Device core allocated for a certain GPU"),
        _OF_CARDS("hami_gpu_shared_count", "Number of containers sharing this GPU"),
    ),
    of_pods=(
        _OF_PODS("hami_vgpu_memory_allocated_bytes", "vGPU memory allocated from a container"),
        _OF_PODS("hami_vgpu_core_allocated_ratio", "vGPU core allocated from a container"),
    ),
    card=lambda card: (
        card.fixed.uuid,
        (card.fixed.memory * _MIB, card.used_memory * _MIB, card.fixed.cores, card.used_cores, card.used_slots),
    ),
    pod=lambda assignment: ((one.uuid, (one.memory * _MIB, one.cores)) for one in assignment.entries),
)
DIALECT: Final = DialectSpec(
    port=Hami(),
    cards="nvidia",
    plugin_accounts=("system:serviceaccount:kube-system:hami-device-plugin",),
    card_lists=(CardLists(keys.USE_UUID, keys.NO_USE_UUID),),
    key_prefixes=("hami.io/", "nvidia.com/"),
    instead_of=DialectName("whole_gpu"),
    ignored=hami_lock.IGNORED,
    sections=(SECTION,),
    marks=keys.MARKS,
    node_lock=NodeLock(),
    register=Register(keys.REGISTER, register.figures, register.held_to),
    deserted=another.deserted,
    pausing=MIG_MANAGER,
    metrics=_METRICS,
)
