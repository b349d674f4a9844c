"""Every text that comes from outside, and what reads it: shared by the laws over generated input and by the fuzzer.

A target takes any bytes. It may raise what its codec promises, and nothing else; anything else is a finding.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from core import selection
from core.admission.configuration import InForce, judge_edit
from core.admission.mutate import mutate, validate
from core.admission.rulebook import rulebook
from core.catalog import standard_catalog
from core.configuration import (
    DEVICE_KEY,
    NAMESPACES_OF_OTHERS,
    OWN_MAP,
    SCHEDULER_KEY,
    SCHEDULER_MAP,
    SETTINGS_KEY,
    hami_map,
)
from core.dialects.gpushare import cards as gpushare_cards
from core.dialects.gpushare import pods as gpushare_pods
from core.dialects.mindcluster import keys as mind_keys
from core.dialects.mindcluster import pods as mind_pods
from core.dialects.vgpu import pods as vgpu_pods
from core.errors import ConfigError, InvalidRequestError
from core.model import Container, GroupKind, Node, NodeName, Pod, PodUid
from core.settings import Settings, Tables
from core.sharing.account import segments_of
from core.units import parse_amount, parse_count, parse_milli
from core.wire import hami_register, mindcluster, vgpu_register
from core.wire.config_maps import ReviewedConfigMap, decode_config_map, decode_config_map_edit
from core.wire.extender import decode_extender_args
from core.wire.groups import DECODERS, decode_job, decode_queue, salvage_group, salvage_queue
from core.wire.hyper_nodes import decode_hyper_node, salvage_hyper_node
from core.wire.kueue import decode_workload as decode_kueue_workload
from core.wire.kueue import salvage_workload
from core.wire.manifests import read_manifests
from core.wire.nodes import decode_node
from core.wire.pods import decode_pod
from core.wire.policies import decode_min_member
from core.wire.reviews import decode_review
from core.wire.templates import decode_workload
from kube.calls import page_decoder, read_version
from kube.errors import UndecodableError
from kube.reflector import event_decoder
from tests.support.devices.texts import decode_device_config, decode_scheduler_conf, decode_settings

_DATA: Final = Path(__file__).parents[1] / "data"
_CATALOG: Final = standard_catalog()
_ASCEND: Final = (_DATA / "ascend-device-config.yaml").read_text(encoding="utf-8")
_VGPU: Final = (_DATA / "vgpu-device-config.yaml").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Something that reads text from outside.

    read: takes any bytes. refuses: what it may raise. seeds: text that it accepts, to begin from.
    """

    read: Callable[[bytes], object]
    refuses: tuple[type[Exception], ...] = (InvalidRequestError,)
    seeds: tuple[bytes, ...] = ()


def read(target: Target, data: bytes) -> bool:
    """Have *target* read *data*; whether it was accepted.

    Raises:
        Exception: what the target must not raise.
    """
    try:
        target.read(data)
    except target.refuses:
        return False
    return True


def _text(decode: Callable[[str], object]) -> Callable[[bytes], object]:
    """*decode* of text as objects of the API server bring it: valid, whatever was written."""
    return lambda data: decode(data.decode("utf-8", "replace"))


_TABLES: Final = Tables()
_BOOK: Final = rulebook(Settings(), _TABLES, _CATALOG)
_NODE_KEYS: Final = (
    "volcano.sh/node-vgpu-register",
    "volcano.sh/node-vgpu-handshake",
    "volcano.sh/gpu-unhealthy-ids",
    "hami.io/node-register-Ascend910B3",
    "hami.io/node-handshake-Ascend910B3",
    "hami.io/mutex.lock",
    "baseDeviceInfos",
)
_AMOUNTS: Final = {
    "pods": "110",
    "volcano.sh/vgpu-number": "20",
    "volcano.sh/vgpu-memory": "90000",
    "volcano.sh/vgpu-cores": "900",
    "volcano.sh/gpu-memory": "32000",
    "volcano.sh/gpu-number": "2",
    "huawei.com/Ascend910B3": "8",
    "huawei.com/npu-core": "16",
    "nvidia.com/gpu": "2",
}


def _offer(text: str) -> object:
    """What a node offers whose every annotation of a device plugin, and every amount, is *text*."""
    found = []
    for amounts in (_AMOUNTS, dict.fromkeys(_AMOUNTS, text[:200])):
        node = Node(
            name=NodeName("n"),
            annotations=dict.fromkeys(_NODE_KEYS, text),
            allocatable=amounts,
            capacity=amounts,
        )
        found.append(_CATALOG.offers(node, _TABLES, Settings()))
    return found


def _held(text: str) -> object:
    """What a bound pod holds whose every assignment key is *text*."""
    pod = Pod(
        uid=PodUid("u"),
        namespace="d",
        name="p",
        node_name="n",
        annotations=dict.fromkeys(_CATALOG.assignment_keys(_TABLES), text),
        containers=(Container(name="c", limits={"volcano.sh/vgpu-number": "1", "huawei.com/npu-core": "8"}),),
    )
    return [(dialect.held(pod, (), _TABLES), dialect.in_flight(pod, _TABLES)) for dialect in _CATALOG.dialects.values()]


def _request(text: str) -> object:
    """What a pod asks of every dialect whose every wish, and every amount, is *text*."""
    found = []
    for dialect in _CATALOG.dialects.values():
        for amount in ("1", text[:200]):
            pod = Pod(
                uid=PodUid("u"),
                namespace="d",
                name="p",
                annotations=dict.fromkeys(_BOOK.preferences, text),
                labels={"ring-controller.atlas": text[:60], "npu-level": text[:60]},
                containers=(Container(name="c", limits=dict.fromkeys(dialect.names(_TABLES).resources, amount)),),
            )
            found.append(dialect.request(pod, _TABLES))
    return found


def _review(data: bytes) -> object:
    review = decode_review(data)
    return mutate(review, _BOOK), validate(review, _BOOK)


def _edit(text: str) -> object:
    """What is said of the configuration's ConfigMaps whose every key is *text*."""
    now = InForce(parts={}, sections={}, settings=Settings(), trusted=frozenset(NAMESPACES_OF_OTHERS))
    found = []
    for place in (OWN_MAP, SCHEDULER_MAP, hami_map(Settings())):
        namespace, _, name = place.partition("/")
        texts = dict.fromkeys((SETTINGS_KEY, SCHEDULER_KEY, DEVICE_KEY), text)
        found.append(judge_edit(namespace, ReviewedConfigMap(name, "", texts, {}), None, now, _CATALOG))
    return found


def _documents(text: str) -> object:
    return [
        list(mindcluster.node_documents(name, {name: text, "DeviceInfoCfg": text, "NodeInfo": text}))
        for name in ("cluster-info-device-0", "cluster-info-node-cm", "mindx-dl-deviceinfo-n", "mindx-dl-nodeinfo-n")
    ]


def _document_lists(text: str) -> object:
    documents = dict.fromkeys(
        (mindcluster.CLUSTER_DEVICES, mindcluster.DIRECT_DEVICES, mindcluster.CLUSTER_NODE, mindcluster.DIRECT_NODE),
        text,
    )
    return (
        mindcluster.device_list(documents, from_cluster=True),
        mindcluster.device_list(documents, from_cluster=False),
        mindcluster.node_status(documents, from_cluster=True),
        mindcluster.node_status(documents, from_cluster=False),
    )


_GROUP: Final = (
    b'{"metadata":{"name":"j-1","namespace":"d","uid":"u","ownerReferences":[{"kind":"Job","name":"j","controller":true}]},'
    b'"spec":{"minMember":2,"minTaskMember":{"w":2},"minResources":{"cpu":"2","pods":"2"},"queue":"default"},'
    b'"status":{"phase":"Inqueue","conditions":[{"type":"Scheduled","status":"True"}]}}'
)
_NATIVE_GROUP: Final = b'{"metadata":{"name":"g"},"spec":{"schedulingPolicy":{"gang":{"minCount":2}}}}'
_KUEUE: Final = (
    b'{"metadata":{"name":"w","namespace":"n"},"spec":{"podSets":[{"name":"main","count":2,"template":{"spec":{}}}]},'
    b'"status":{"conditions":[{"type":"QuotaReserved","status":"True"}],"admissionChecks":[{"name":"c","state":"Pending",'
    b'"podSetUpdates":[{"name":"main","nodeSelector":{"a":"b"},"tolerations":[{"key":"k"}]}]}]}}'
)
_QUEUE: Final = (
    b'{"metadata":{"name":"q"},"spec":{"weight":2,"capability":{"cpu":"1500m","volcano.sh/vgpu-memory":"64000"}},'
    b'"status":{"state":"Open"}}'
)
_HYPER_NODE: Final = (
    b'{"metadata":{"name":"s"},"spec":{"tier":1,"tierName":"rack","members":[{"type":"Node","selector":'
    b'{"regexMatch":{"pattern":"^node-[0-9]+$"}}},{"type":"HyperNode","selector":{"exactMatch":{"name":"t"}}}]}}'
)
_OWNER: Final = b'{"metadata":{"name":"o","annotations":{"scheduling.volcano.sh/group-min-member":"5"}}}'
_JOB: Final = (
    b'{"metadata":{"name":"j","namespace":"n","uid":"u"},"spec":{"queue":"q","minAvailable":2},'
    b'"status":{"state":{"phase":"Pending"}}}'
)
_PODS: Final = (
    b'{"metadata":{"name":"p","uid":"u","annotations":{"volcano.sh/vgpu-mode":"mig"}},"spec":{"containers":[{"name":"c",'
    b'"resources":{"limits":{"volcano.sh/vgpu-number":"1","volcano.sh/vgpu-memory":"1000"}}}]}}',
)
_REVIEW: Final = (
    b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","kind":{"group":"","version":"v1",'
    b'"kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"operation":"CREATE","userInfo":{"username":"a"},'
    b'"namespace":"d","object":' + _PODS[0] + b"}}"
)
_ENTRY: Final = b"GPU-0,NVIDIA,1000,10:;GPU-1[group1-0],NVIDIA,1000,10:"
_REGISTER: Final = b"GPU-0,10,15360,NVIDIA-Tesla T4,true,hami-core:GPU-1,10,40536,NVIDIA-A100-SXM4-40GB,true,mig:"
_NPUS: Final = b'[{"id":"B3-0","count":8,"devmem":65536,"devcore":20,"type":"Ascend910B3","health":true,"index":0}]'
_LIST: Final = b'{"metadata":{"resourceVersion":"1"},"items":[' + _PODS[0] + b"]}"
_EVENT: Final = b'{"type":"MODIFIED","object":' + _PODS[0] + b"}"
_YAML: Final = (ConfigError,)
_LISTS: Final = (b"A100,T4*", b"GPU-0,GPU-1", b"0,1,2")

TARGETS: Final[dict[str, Target]] = {
    "pod": Target(read=decode_pod, seeds=_PODS),
    "node": Target(read=decode_node, seeds=(b'{"metadata":{"name":"n"},"status":{"allocatable":{"cpu":"1500m"}}}',)),
    "extender": Target(read=decode_extender_args, seeds=(b'{"Pod":{"metadata":{"name":"p"}},"NodeNames":["n"]}',)),
    "config-map": Target(read=decode_config_map, seeds=(b'{"metadata":{"name":"n"},"data":{"a":"b"}}',)),
    "volcano-group": Target(read=DECODERS[GroupKind.VOLCANO], seeds=(_GROUP,)),
    "native-group": Target(read=DECODERS[GroupKind.NATIVE], seeds=(_NATIVE_GROUP,)),
    "coscheduling-group": Target(read=DECODERS[GroupKind.COSCHEDULING], seeds=(_GROUP,)),
    "owner": Target(read=decode_min_member, seeds=(_OWNER,)),
    "volcano-job": Target(read=decode_job, seeds=(_JOB,)),
    "group-left": Target(read=lambda data: salvage_group(GroupKind.VOLCANO, data), seeds=(_GROUP,)),
    "queue": Target(read=decode_queue, seeds=(_QUEUE,)),
    "queue-left": Target(read=salvage_queue, seeds=(_QUEUE,)),
    "kueue-workload": Target(read=decode_kueue_workload, seeds=(_KUEUE,)),
    "kueue-workload-left": Target(read=salvage_workload, seeds=(_KUEUE,)),
    "hyper-node": Target(read=decode_hyper_node, seeds=(_HYPER_NODE,)),
    "hyper-node-left": Target(read=salvage_hyper_node, seeds=(_HYPER_NODE,)),
    "workload": Target(read=decode_workload, seeds=(_REVIEW,)),
    "review": Target(read=_review, seeds=(_REVIEW,)),
    "list": Target(read=page_decoder(decode_pod), refuses=(UndecodableError,), seeds=(_LIST,)),
    "watch-event": Target(read=event_decoder(decode_pod), refuses=(UndecodableError,), seeds=(_EVENT,)),
    "version": Target(read=read_version, refuses=(UndecodableError,), seeds=_PODS),
    "settings": Target(
        read=_text(decode_settings), refuses=_YAML, seeds=(b"scheduler_names: [cardshare]\npolicy: spread",)
    ),
    "scheduler-conf": Target(
        read=_text(decode_scheduler_conf),
        refuses=_YAML,
        seeds=(b"tiers:\n- plugins:\n  - name: deviceshare\n    arguments:\n      deviceshare.VGPUEnable: true\n",),
    ),
    "device-config": Target(
        read=_text(decode_device_config),
        refuses=_YAML,
        seeds=(_ASCEND.encode()[:4000], b"nvidia:\n  resourceCountName: a\n"),
    ),
    "configuration-edit": Target(
        read=_text(_edit),
        refuses=(),
        seeds=(b"policy: spread\n", b"tiers:\n- plugins:\n  - name: gang\n", b"vnpus: []\n"),
    ),
    "config-map-edit": Target(
        read=decode_config_map_edit,
        seeds=(b'{"request":{"object":{"metadata":{"name":"n"},"binaryData":{"a":"Yg=="}}}}',),
    ),
    "manifests": Target(
        read=_text(lambda text: list(read_manifests(text))), seeds=(b"kind: Pod\nmetadata: {name: a}\n---\n",)
    ),
    "vgpu-register": Target(read=_text(vgpu_register.decode_register), seeds=(_REGISTER,)),
    "vgpu-devices": Target(read=_text(vgpu_pods.decode_pod_devices), seeds=(_ENTRY,)),
    "mig-slice": Target(read=_text(vgpu_pods.decode_slice_id), seeds=(b"GPU-1[group1-0]",)),
    "ascend-register": Target(read=_text(lambda text: hami_register.decode_whole_register(text, "f")), seeds=(_NPUS,)),
    "ascend-devices": Target(read=_text(lambda text: segments_of(text, "f")), seeds=(_ENTRY,)),
    "gpu-index": Target(read=_text(gpushare_pods.decode_gpu_index), seeds=(b"0,1",)),
    "gpu-unhealthy": Target(read=_text(gpushare_cards.decode_unhealthy), seeds=(b"0,1",)),
    "npu-assigned": Target(read=_text(mind_pods.decode_assigned), seeds=(b"0-vir04_3c", b"0,1,2")),
    "npu-device": Target(read=_text(mind_keys.decode_device), seeds=(b"Ascend310P-2c-100-0", b"Ascend910-3")),
    "npu-base-names": Target(read=_text(mindcluster.decode_base_names), seeds=(b'{"Ascend310P-0":{"IP":"1"}}',)),
    "npu-maps": Target(read=_text(_documents), seeds=(b'{"mindx-dl-deviceinfo-n":{"DeviceList":{}}}',)),
    "npu-documents": Target(read=_text(_document_lists), seeds=(b'{"DeviceInfo":{"DeviceList":{"a":"b"}}}',)),
    "types": Target(read=_text(lambda text: selection.decode_types(text, "f")), seeds=_LISTS),
    "items": Target(read=_text(lambda text: selection.decode_items(text, "f")), seeds=_LISTS),
    "indices": Target(read=_text(lambda text: selection.decode_indices(text, "f")), seeds=_LISTS),
    "milli": Target(read=_text(lambda text: parse_milli(text, "f")), seeds=(b"1500m", b"1e3", b"2Gi")),
    "amount": Target(read=_text(lambda text: parse_amount(text, "f")), seeds=(b"1500m", b"1e3", b"2Gi")),
    "count": Target(read=_text(lambda text: parse_count(text, "f")), seeds=(b"15", b"1k")),
    "offer": Target(read=_text(_offer), refuses=(), seeds=(_REGISTER, _NPUS, b"3", b"Requesting_2026.01.02 15:04:05")),
    "held": Target(read=_text(_held), refuses=(), seeds=(_ENTRY, b"0,1", b"0-vir04_3c", b"1784812345")),
    "request": Target(read=_text(_request), refuses=(), seeds=(*_LISTS, b"mig", b"vir04_3c_ndvpp", b"50")),
}
