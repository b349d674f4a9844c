"""The vGPU protocol behind the port."""

from typing import Final

from core import names
from core.dialects.vgpu import cards, keys, pods
from core.dialects.vgpu.table import ARGUMENTS, SECTION, VgpuTable
from core.port.cards import Series
from core.port.spec import MIG_MANAGER, CardLists, DialectSpec, Heartbeat, Metrics, Modes, Scaling
from core.settings import DialectName, Tables
from core.sharing.card import MODES
from core.sharing.dialect import SharedCards
from core.sharing.request import Request, Resources


class Vgpu(SharedCards):
    """`Dialect` of core.port for shares of NVIDIA cards handed over by the Volcano vGPU device plugin."""

    name: DialectName = DialectName("vgpu")
    rules = pods.VgpuRules()
    assignment_keys = keys.ASSIGNMENT_KEYS
    preferences = keys.PREFERENCES

    offer = staticmethod(cards.offer)
    request = staticmethod(pods.request)
    held = staticmethod(pods.held)
    annotations = staticmethod(pods.annotations)
    next_stamp = staticmethod(pods.next_stamp)
    confusable = staticmethod(pods.confusable)
    in_flight = staticmethod(pods.in_flight)
    metered = staticmethod(pods.metered)
    advice = staticmethod(pods.advice)
    warnings = staticmethod(pods.warnings)

    def declared(self, tables: Tables) -> tuple[Resources, ...]:
        return (tables.of(VgpuTable).named,)

    def ways(self, request: Request) -> tuple[tuple[str, Request], ...]:
        return () if request.modes else tuple((mode, request._replace(modes=(mode,))) for mode in MODES)


# Volcano's scheduler has series under the same names (nvidia 1.11).
_PREFIX: Final = "volcano_vgpu_device_"
_METRICS: Final = Metrics(
    of_cards=(
        Series(f"{_PREFIX}shared_number", "The number of vgpu tasks sharing this card."),
        Series(f"{_PREFIX}allocated_memory", "The number of vgpu memory allocated in this card."),
        Series(f"{_PREFIX}allocated_cores", "The percentage of gpu compute cores allocated in this card."),
        Series(f"{_PREFIX}memory_limit", "The number of total device memory in this card."),
    ),
    of_pods=(
        Series(f"{_PREFIX}memory_allocation_for_a_certain_pod", "The vgpu device memory allocated for a certain pod."),
        Series(f"{_PREFIX}core_allocation_for_a_certain_pod", "The vgpu device core allocated for a certain pod."),
    ),
    card=lambda card: (card.fixed.uuid, (card.used_slots, card.used_memory, card.used_cores, card.fixed.memory)),
    pod=lambda assignment: ((one.uuid, (one.charge, one.cores)) for one in assignment.entries),
)
DIALECT: Final = DialectSpec(
    port=Vgpu(),
    cards="nvidia",
    switch="VGPUEnable",
    old_switch=True,
    plugin_accounts=("system:serviceaccount:kube-system:volcano-device-plugin",),
    # Source: nvidia 2.7.
    time_lock="hamivgpu",
    modes=Modes(keys.MODE, MODES),
    card_lists=(CardLists(keys.USE_UUID, keys.NO_USE_UUID),),
    key_prefixes=("volcano.sh/", "nvidia.com/"),
    marks=keys.MARKS | {names.SEGMENT_QUEUE},
    # Plugins up to v1.12.0 rewrite it every 30 s. Up to v1.11.0 they go by time alone; v1.12.0 does not.
    heartbeat=Heartbeat(keys.HANDSHAKE, pods.retirement),
    pausing=MIG_MANAGER,
    rotate=pods.rotate,
    scaling=Scaling(pods.scale_of, pods.rescaled, pods.scale_told, pods.scale_read),
    metrics=_METRICS,
    sections=(SECTION,),
    arguments=(ARGUMENTS,),
)
