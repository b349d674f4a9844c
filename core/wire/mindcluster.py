"""What MindCluster's components report on a node besides its labels: JSON in an annotation and in ConfigMaps.

A ConfigMap of ClusterD covers many nodes; `node_documents` splits it, so that each node has only its own text. Source:
protocol reference, ascend 1.4, 1.8.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from core.errors import InvalidRequestError
from core.names import MAX_NODE_ANNOTATION_BYTES
from core.wire import reading

# Names of the documents in `core.model.Node.documents`.
CLUSTER_DEVICES: Final = "cluster-info-device"
CLUSTER_NODE: Final = "cluster-info-node"
DIRECT_DEVICES: Final = "mindx-dl-deviceinfo"
DIRECT_NODE: Final = "mindx-dl-nodeinfo"
SEPARATED: Final = "manually-separated"

_DEVICE_KEY: Final = "mindx-dl-deviceinfo-"
_NODE_KEY: Final = "mindx-dl-nodeinfo-"
_CLUSTER_DEVICE_MAP: Final = "cluster-info-device-"
_CLUSTER_NODE_MAP: Final = "cluster-info-node-cm"
_DIRECT_DEVICE_TEXT: Final = "DeviceInfoCfg"
_DIRECT_SEPARATED_TEXT: Final = "ManuallySeparateNPU"
_DIRECT_NODE_TEXT: Final = "NodeInfo"


class _Devices(msgspec.Struct, frozen=True, gc=False):
    """One node's entry of ``cluster-info-device-<n>``, and the inner part of ``DeviceInfoCfg``."""

    DeviceList: dict[str, str] | None = None


class _DeviceInfoCfg(msgspec.Struct, frozen=True, gc=False):
    """Data key ``DeviceInfoCfg`` of ``mindx-dl-deviceinfo-<node>``."""

    DeviceInfo: _Devices = _Devices()


class _Status(msgspec.Struct, frozen=True, gc=False):
    """One node's entry of ``cluster-info-node-cm``, and the inner part of ``NodeInfo``."""

    NodeStatus: str | None = ""


class _NodeInfo(msgspec.Struct, frozen=True, gc=False):
    """Data key ``NodeInfo`` of ``mindx-dl-nodeinfo-<node>``."""

    NodeInfo: _Status = _Status()


_base_names: Final = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)
_cluster_devices: Final = reading.reader(CLUSTER_DEVICES, _Devices, lambda found: found.DeviceList or {})
_direct_devices: Final = reading.reader(DIRECT_DEVICES, _DeviceInfoCfg, lambda found: found.DeviceInfo.DeviceList or {})
_cluster_status: Final = reading.reader(CLUSTER_NODE, _Status, lambda found: found.NodeStatus or "")
_direct_status: Final = reading.reader(DIRECT_NODE, _NodeInfo, lambda found: found.NodeInfo.NodeStatus or "")


def decode_base_names(text: str) -> tuple[str, ...]:
    """Return the device names of annotation ``baseDeviceInfos``.

    Raises:
        InvalidRequestError: it is not a JSON object, or longer than a node's annotation may be.
    """
    field = "annotation baseDeviceInfos"
    if len(text) > MAX_NODE_ANNOTATION_BYTES:
        raise InvalidRequestError(field, text, f"no more than {MAX_NODE_ANNOTATION_BYTES} characters are read")
    try:
        return tuple(_base_names.decode(text) or ())
    except reading.DECODE_ERRORS as e:
        raise reading.unreadable(field, e) from e


def device_list(documents: Mapping[str, str], *, from_cluster: bool) -> Mapping[str, str] | None:
    """Return the ``DeviceList`` of a node, first from ClusterD's map or MDP's own; None if neither exists.

    Raises:
        InvalidRequestError: the existing document is unreadable.
    """
    for cluster in (from_cluster, not from_cluster):
        text = documents.get(CLUSTER_DEVICES if cluster else DIRECT_DEVICES)
        if text:
            return _cluster_devices(text.encode()) if cluster else _direct_devices(text.encode())
    return None


def node_status(documents: Mapping[str, str], *, from_cluster: bool) -> str:
    """Return NodeD's status of a node; "" if there is none, which means healthy.

    Raises:
        InvalidRequestError: the existing document is unreadable.
    """
    for cluster in (from_cluster, not from_cluster):
        text = documents.get(CLUSTER_NODE if cluster else DIRECT_NODE)
        if text:
            return _cluster_status(text.encode()) if cluster else _direct_status(text.encode())
    return ""


def node_documents(name: str, texts: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield (node, document, text) for every node in the ConfigMap *name*; nothing for other ConfigMaps.

    Raises:
        InvalidRequestError: a map of ClusterD is not a JSON object.
    """
    if name.startswith(_DEVICE_KEY):
        node = name.removeprefix(_DEVICE_KEY)
        yield node, DIRECT_DEVICES, texts.get(_DIRECT_DEVICE_TEXT, "")
        yield node, SEPARATED, texts.get(_DIRECT_SEPARATED_TEXT, "")
    elif name.startswith(_NODE_KEY):
        yield name.removeprefix(_NODE_KEY), DIRECT_NODE, texts.get(_DIRECT_NODE_TEXT, "")
    elif name.startswith(_CLUSTER_DEVICE_MAP):
        yield from _entries(name, texts.get(name, ""), _DEVICE_KEY, CLUSTER_DEVICES)
    elif name == _CLUSTER_NODE_MAP:
        yield from _entries(name, texts.get(name, ""), _NODE_KEY, CLUSTER_NODE)


def _entries(name: str, text: str, prefix: str, document: str) -> Iterator[tuple[str, str, str]]:
    if not text:
        return
    try:
        found = _base_names.decode(text) or {}
    except reading.DECODE_ERRORS as e:
        raise reading.unreadable(f"ConfigMap {name}", e) from e
    for key, value in found.items():
        if key.startswith(prefix):
            yield key.removeprefix(prefix), document, bytes(value).decode()
