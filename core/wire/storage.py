"""Storage objects: from the API server's JSON to the values of `core.claims`.

Source: Kubernetes API reference, core/v1 PersistentVolumeClaim and PersistentVolume, storage.k8s.io/v1 StorageClass,
CSINode, CSIStorageCapacity and VolumeAttachment.
"""

import sys
from functools import lru_cache
from typing import Final

import msgspec

from core import names
from core.claims import Attachment, Capacity, Claim, Driver, NodeDrivers, StorageClass, Volume
from core.errors import InvalidRequestError
from core.model import Alternatives, NodeName, Requirement
from core.units import MAX_AMOUNT
from core.wire import reading
from core.wire.objects import NamedMeta, Selector, Terms, alternatives, selector_of
from core.wire.reading import Quantity

_ONCE: Final = "ReadWriteOncePod"
_BLOCK: Final = "Block"
_STORAGE: Final = "storage"
# CSI drivers that attach volumes of these kinds since CSI migration. Source: Kubernetes documentation, "Storage /
# Volumes", CSI migration.
_EBS: Final = "ebs.csi.aws.com"
_GCE: Final = "pd.csi.storage.gke.io"
_AZURE: Final = "disk.csi.azure.com"
_CINDER: Final = "cinder.csi.openstack.org"
_VSPHERE: Final = "csi.vsphere.vmware.com"


def _bytes(found: dict[str, Quantity], *, unreadable: int, absent: int = 0) -> int:
    """Return the amount of storage; an unreadable object must not block all others."""
    try:
        return reading.limits({_STORAGE: found[_STORAGE]}, "").get(_STORAGE, 0) if _STORAGE in found else absent
    except InvalidRequestError:
        return unreadable


# ---------------------------------------------------------------------- claims


class _Requests(msgspec.Struct, frozen=True, gc=False):
    requests: dict[str, Quantity] | None = None


class _ClaimSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    access_modes: tuple[str, ...] | None = None
    resources: _Requests | None = None
    selector: Selector | None = None
    storage_class_name: str | None = ""
    volume_attributes_class_name: str | None = ""
    volume_mode: str | None = None
    volume_name: str | None = ""


class _Phase(msgspec.Struct, frozen=True, gc=False):
    phase: str | None = ""


class _ClaimObject(msgspec.Struct, frozen=True, gc=False):
    metadata: NamedMeta
    spec: _ClaimSpec = _ClaimSpec()
    status: _Phase | None = None


def _claim(found: _ClaimObject) -> Claim:
    meta, spec = found.metadata, found.spec
    modes = frozenset(map(sys.intern, spec.access_modes or ()))
    owners = [one.uid for one in meta.owner_references or () if one.controller and one.kind == "Pod"]
    return Claim(
        key=meta.key,
        uid=meta.uid or "",
        version=meta.resource_version or "",
        storage_class=sys.intern(meta.annotation(names.STORAGE_CLASS) or spec.storage_class_name or ""),
        volume=spec.volume_name or "",
        bound=bool(spec.volume_name) and names.BIND_COMPLETED in (meta.annotations or {}),
        lost=found.status is not None and found.status.phase == "Lost",
        deleting=meta.deletion_timestamp is not None,
        once=_ONCE in modes,
        request_bytes=_bytes((spec.resources.requests if spec.resources else None) or {}, unreadable=MAX_AMOUNT),
        modes=modes,
        block=spec.volume_mode == _BLOCK,
        selector=selector_of(spec.selector),
        pod_uid=owners[0] if owners else "",
        selected_node=NodeName(sys.intern(meta.annotation(names.SELECTED_NODE))),
        attributes_class=sys.intern(spec.volume_attributes_class_name or ""),
    )


decode_claim: Final = reading.reader("PersistentVolumeClaim", _ClaimObject, _claim)
claim_from_object: Final = reading.converter("PersistentVolumeClaim", _ClaimObject, _claim)


# ---------------------------------------------------------------------- volumes


class _Csi(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    driver: str = ""
    volume_handle: str = ""


class _GceDisk(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    pd_name: str = ""


class _AwsDisk(msgspec.Struct, frozen=True, gc=False):
    volume_id: str = msgspec.field(default="", name="volumeID")


class _AzureDisk(msgspec.Struct, frozen=True, gc=False):
    disk_uri: str = msgspec.field(default="", name="diskURI")


class _Cinder(msgspec.Struct, frozen=True, gc=False):
    volume_id: str = msgspec.field(default="", name="volumeID")


class _Vsphere(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    volume_path: str = ""


class _ClaimRef(msgspec.Struct, frozen=True, gc=False):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class _VolumeAffinity(msgspec.Struct, frozen=True, gc=False):
    required: Terms | None = None


class _VolumeSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    capacity: dict[str, Quantity] | None = None
    access_modes: tuple[str, ...] | None = None
    claim_ref: _ClaimRef | None = None
    node_affinity: _VolumeAffinity | None = None
    storage_class_name: str | None = ""
    volume_attributes_class_name: str | None = ""
    volume_mode: str | None = None
    csi: _Csi | None = None
    gce_persistent_disk: _GceDisk | None = None
    aws_elastic_block_store: _AwsDisk | None = msgspec.field(default=None, name="awsElasticBlockStore")
    azure_disk: _AzureDisk | None = None
    cinder: _Cinder | None = None
    vsphere_volume: _Vsphere | None = None


class _VolumeObject(msgspec.Struct, frozen=True, gc=False):
    metadata: NamedMeta
    spec: _VolumeSpec = _VolumeSpec()
    status: _Phase | None = None


def _volume(found: _VolumeObject) -> Volume:
    meta, spec = found.metadata, found.spec
    required = spec.node_affinity.required if spec.node_affinity else None
    labels = reading.labels(meta.labels)
    driver, handle = _attached_by(spec)
    ref = spec.claim_ref
    return Volume(
        name=meta.name,
        version=meta.resource_version or "",
        affinity=alternatives(required) if required is not None else None,
        zones=tuple([(key, frozenset(labels[key].split("__"))) for key in names.ZONES if key in labels]),
        driver=sys.intern(driver),
        handle=handle,
        storage_class=sys.intern(meta.annotation(names.STORAGE_CLASS) or spec.storage_class_name or ""),
        capacity_bytes=_bytes(spec.capacity or {}, unreadable=0),
        modes=frozenset(map(sys.intern, spec.access_modes or ())),
        block=spec.volume_mode == _BLOCK,
        labels=labels,
        claim=f"{ref.namespace}/{ref.name}" if ref else "",
        claim_uid=ref.uid if ref else "",
        available=found.status is not None and found.status.phase == "Available",
        deleting=meta.deletion_timestamp is not None,
        attributes_class=sys.intern(spec.volume_attributes_class_name or ""),
    )


def _attached_by(spec: _VolumeSpec) -> tuple[str, str]:
    """Return the CSI driver that attaches a volume, and its handle; volumes of other kinds have a path as handle."""
    if spec.csi is not None:
        return spec.csi.driver, spec.csi.volume_handle
    if spec.aws_elastic_block_store is not None:
        return _EBS, f"awsElasticBlockStore {spec.aws_elastic_block_store.volume_id}"
    if spec.gce_persistent_disk is not None:
        return _GCE, f"gcePersistentDisk {spec.gce_persistent_disk.pd_name}"
    if spec.azure_disk is not None:
        return _AZURE, f"azureDisk {spec.azure_disk.disk_uri}"
    if spec.cinder is not None:
        return _CINDER, f"cinder {spec.cinder.volume_id}"
    if spec.vsphere_volume is not None:
        return _VSPHERE, f"vsphereVolume {spec.vsphere_volume.volume_path}"
    return "", ""


decode_volume: Final = reading.reader("PersistentVolume", _VolumeObject, _volume)
volume_from_object: Final = reading.converter("PersistentVolume", _VolumeObject, _volume)


# ---------------------------------------------------------------------- classes


class _LabelExpression(msgspec.Struct, frozen=True, gc=False):
    key: str = ""
    values: tuple[str, ...] = ()


class _Topology(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    match_label_expressions: tuple[_LabelExpression, ...] | None = None


class _ClassObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    metadata: NamedMeta
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[_Topology, ...] | None = None


def _class(found: _ClassObject) -> StorageClass:
    return StorageClass(
        name=sys.intern(found.metadata.name),
        provisioner=sys.intern(found.provisioner),
        waits=found.volume_binding_mode == "WaitForFirstConsumer",
        topologies=_topologies(found.allowed_topologies),
    )


def _topologies(found: tuple[_Topology, ...] | None) -> Alternatives | None:
    if not found:
        return None
    return tuple(
        tuple(Requirement(key=e.key, operator="In", values=e.values) for e in one.match_label_expressions or ())
        for one in found
    )


decode_class: Final = reading.reader("StorageClass", _ClassObject, _class)
class_from_object: Final = reading.converter("StorageClass", _ClassObject, _class)


# ---------------------------------------------------------------------- CSI


class _Allocatable(msgspec.Struct, frozen=True, gc=False):
    count: int | None = None


class _Driver(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    allocatable: _Allocatable | None = None


class _CsiNodeSpec(msgspec.Struct, frozen=True, gc=False):
    drivers: tuple[_Driver, ...] | None = None


class _CsiNodeObject(msgspec.Struct, frozen=True, gc=False):
    metadata: NamedMeta
    spec: _CsiNodeSpec = _CsiNodeSpec()


def _csi_node(found: _CsiNodeObject) -> NodeDrivers:
    return NodeDrivers(
        node=NodeName(sys.intern(found.metadata.name)),
        drivers=_shared_names(frozenset([sys.intern(one.name) for one in found.spec.drivers or ()])),
        limits={
            sys.intern(one.name): one.allocatable.count
            for one in found.spec.drivers or ()
            if one.allocatable is not None and one.allocatable.count is not None
        },
    )


def _same(names: frozenset[str]) -> frozenset[str]:
    return names


# One value for all nodes with the same drivers.
_shared_names: Final = lru_cache(maxsize=1 << 8)(_same)

decode_csi_node: Final = reading.reader("CSINode", _CsiNodeObject, _csi_node)
csi_node_from_object: Final = reading.converter("CSINode", _CsiNodeObject, _csi_node)


class _DriverSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    storage_capacity: bool | None = False
    prevent_pod_scheduling_if_missing: bool | None = False


class _DriverObject(msgspec.Struct, frozen=True, gc=False):
    metadata: NamedMeta
    spec: _DriverSpec = _DriverSpec()


def _driver(found: _DriverObject) -> Driver:
    spec = found.spec
    return Driver(
        sys.intern(found.metadata.name), bool(spec.storage_capacity), bool(spec.prevent_pod_scheduling_if_missing)
    )


decode_driver: Final = reading.reader("CSIDriver", _DriverObject, _driver)
driver_from_object: Final = reading.converter("CSIDriver", _DriverObject, _driver)


class _CapacityObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    metadata: NamedMeta
    storage_class_name: str = ""
    node_topology: Selector | None = None
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None


def _capacity(found: _CapacityObject) -> Capacity:
    most = found.capacity if found.maximum_volume_size is None else found.maximum_volume_size
    return Capacity(
        key=found.metadata.key,
        storage_class=sys.intern(found.storage_class_name),
        nodes=selector_of(found.node_topology),
        most_bytes=_bytes({} if most is None else {_STORAGE: most}, absent=-1, unreadable=-1),
    )


decode_capacity: Final = reading.reader("CSIStorageCapacity", _CapacityObject, _capacity)
capacity_from_object: Final = reading.converter("CSIStorageCapacity", _CapacityObject, _capacity)


class _AttachmentSource(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    persistent_volume_name: str | None = ""


class _AttachmentSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    attacher: str = ""
    node_name: str = ""
    source: _AttachmentSource = _AttachmentSource()


class _AttachmentObject(msgspec.Struct, frozen=True, gc=False):
    metadata: NamedMeta
    spec: _AttachmentSpec = _AttachmentSpec()


def _attachment(found: _AttachmentObject) -> Attachment:
    spec = found.spec
    return Attachment(
        name=found.metadata.name,
        node=NodeName(sys.intern(spec.node_name)),
        driver=sys.intern(spec.attacher),
        volume=spec.source.persistent_volume_name or "",
    )


decode_attachment: Final = reading.reader("VolumeAttachment", _AttachmentObject, _attachment)
attachment_from_object: Final = reading.converter("VolumeAttachment", _AttachmentObject, _attachment)
