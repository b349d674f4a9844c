"""MindCluster's dynamic vNPU on Ascend 310P: ``huawei.com/npu-core``.

Its chips stay outside `core.sharing`: what a chip can take depends on which slices are on it and which of them are
reported, and one slice that is being handed over decides for the whole node. Source: protocol reference, ascend 3.
"""

from typing import Final

from core.dialects.mindcluster import chips, fit, keys, offer, pods
from core.dialects.mindcluster.chips import Assignment, Chip
from core.dialects.mindcluster.pods import Request
from core.dialects.mindcluster.table import ARGUMENTS
from core.port.cards import Bound
from core.port.dialect import Dialect, Names
from core.port.spec import ConfigMapPlace, DialectSpec, NodeDocuments
from core.settings import DialectName, Policy, Tables
from core.wire.mindcluster import node_documents


class MindCluster(Dialect[Chip, Request, Assignment]):
    """`Dialect` of core.port for MindCluster. A policy for cards means nothing here: slices fill the fullest chip."""

    name: DialectName = offer.NAME

    request = staticmethod(pods.request)
    completed = staticmethod(pods.completed)
    warnings = staticmethod(pods.warnings)

    place = staticmethod(fit.place)
    shortfalls = staticmethod(fit.shortfalls)
    relaxed = staticmethod(fit.relaxed)
    want = staticmethod(fit.want)
    stands = staticmethod(fit.stands)

    take = staticmethod(chips.take)
    give_back = staticmethod(chips.give_back)
    room = staticmethod(chips.room)
    holes = staticmethod(chips.holes)
    overcommitted = staticmethod(chips.overcommitted)
    tally = staticmethod(chips.tally)
    describe = staticmethod(chips.describe)
    at_best = staticmethod(chips.at_best)
    healed = staticmethod(chips.healed)
    well = staticmethod(chips.well)
    kept_out = staticmethod(chips.kept_out)

    held = staticmethod(pods.held)
    annotations = staticmethod(pods.annotations)
    next_stamp = staticmethod(pods.next_stamp)
    confusable = staticmethod(pods.confusable)
    in_flight = staticmethod(pods.in_flight)

    offer = staticmethod(offer.offer)

    def names(self, tables: Tables) -> Names:
        return Names(resources=frozenset({keys.CORES}), assignment_keys=keys.ASSIGNMENT_KEYS)

    def bound(self, request: Request, policy: Policy) -> Bound:
        return Bound(1, True, lambda idle: 100.0)

    def packs(self, request: Request) -> bool:
        # A pod has no order of nodes of its own.
        return True


DIALECT: Final = DialectSpec(
    port=MindCluster(),
    cards="ascend",
    machine_keys=frozenset({"ascend.kubectl.kubernetes.io/ascend-910-configuration"}),
    key_prefixes=("huawei.com/",),
    # Found by label, in namespaces that need not exist. Source: ascend 1.8.
    documents=NodeDocuments(
        places=(
            ConfigMapPlace("chip-states", "kube-system", "mx-consumer-cim=true"),
            ConfigMapPlace("node-states", "mindx-dl", "mx-consumer-cim=true"),
            ConfigMapPlace("cluster-states", "mindx-dl", "mx-consumer-volcano=true"),
        ),
        read=node_documents,
    ),
    switch="AscendMindClusterVNPUEnable",
    plugin_accounts=("system:serviceaccount:kube-system:ascend-device-plugin-sa-*",),
    report=pods.report,
    arguments=(ARGUMENTS,),
    # Those that choose a template.
    labels=frozenset({keys.LEVEL, keys.DVPP}),
)
