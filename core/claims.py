"""Storage and devices of the cluster as values: claims, volumes, classes, attach limits, and ResourceClaims.

A ResourceClaim names devices by driver, pool and name; a ResourceSlice gives the node and the ids of such a device.
`core.constraints.resource_claims` finds the cards that this closes. Source: Kubernetes documentation, "Dynamic Resource
Allocation".
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from core.model import Alternatives, NodeName, Requirement


class StorageKind(StrEnum):
    """The kinds of storage objects that are read."""

    CLAIMS = "persistentvolumeclaims"
    VOLUMES = "persistentvolumes"
    CLASSES = "storageclasses"
    NODES = "csinodes"
    DRIVERS = "csidrivers"
    CAPACITIES = "csistoragecapacities"
    ATTACHMENTS = "volumeattachments"


class Claim(NamedTuple):
    """One PersistentVolumeClaim; key: namespace/name.

    storage_class: name of its class, "" for none. volume: the PersistentVolume that it names. bound: the binding to it
    is complete. lost: its volume is gone. once: one pod at a time (ReadWriteOncePod). request_bytes: the requested
    size. modes, block, selector: access modes, and requirements on volumes. pod_uid: the pod that it was created for.
    selected_node: the node where it will be provisioned. attributes_class: name of its VolumeAttributesClass, "" for
    none.
    """

    key: str
    uid: str = ""
    version: str = ""
    storage_class: str = ""
    volume: str = ""
    bound: bool = False
    lost: bool = False
    deleting: bool = False
    once: bool = False
    request_bytes: int = 0
    modes: frozenset[str] = frozenset()
    block: bool = False
    selector: tuple[Requirement, ...] | None = None
    pod_uid: str = ""
    selected_node: NodeName = NodeName("")
    attributes_class: str = ""


class Volume(NamedTuple):
    """One PersistentVolume.

    affinity: nodes that can reach it, None: all. zones: by node label, the allowed values. driver, handle: attachment,
    "" if it counts against no limit. claim: the claim that it is reserved for, namespace/name, "" for any; claim_uid:
    its uid, if complete. available: no claim has it. attributes_class: as for `Claim`.
    """

    name: str
    version: str = ""
    affinity: Alternatives | None = None
    zones: tuple[tuple[str, frozenset[str]], ...] = ()
    driver: str = ""
    handle: str = ""
    storage_class: str = ""
    capacity_bytes: int = 0
    modes: frozenset[str] = frozenset()
    block: bool = False
    labels: Mapping[str, str] = {}
    claim: str = ""
    claim_uid: str = ""
    available: bool = False
    deleting: bool = False
    attributes_class: str = ""


class StorageClass(NamedTuple):
    """One StorageClass: provisioner, whether it waits for the pod's placement, and allowed nodes (None: all)."""

    name: str
    provisioner: str = ""
    waits: bool = False
    topologies: Alternatives | None = None


class NodeDrivers(NamedTuple):
    """One CSINode: its drivers, and how many volumes each can attach to the node; those without a limit have none."""

    node: NodeName
    limits: Mapping[str, int]
    drivers: frozenset[str] = frozenset()


class Driver(NamedTuple):
    """One CSIDriver.

    tells_capacity: CSIStorageCapacity objects define where it can create volumes. must_run: pods with its volumes only
    go to nodes where it runs.
    """

    name: str
    tells_capacity: bool
    must_run: bool = False


class Capacity(NamedTuple):
    """One CSIStorageCapacity: the largest volume of a class on nodes that match *nodes*; None: no node."""

    key: str
    storage_class: str
    nodes: tuple[Requirement, ...] | None
    most_bytes: int


class Attachment(NamedTuple):
    """One VolumeAttachment: *volume*, a PersistentVolume ("": none), is or will be attached to *node* by *driver*."""

    name: str
    node: NodeName = NodeName("")
    driver: str = ""
    volume: str = ""


class Device(NamedTuple):
    """One device of a ResourceSlice: its node, "" if it is not on a single one, and its known ids."""

    node: NodeName
    ids: frozenset[str]


class Pool(NamedTuple):
    """A driver's pool of devices."""

    driver: str
    name: str


class ResourceSlice(NamedTuple):
    """One ResourceSlice: devices of a pool by name. Only slices of a pool's highest generation count."""

    name: str
    pool: Pool
    generation: int
    devices: Mapping[str, Device]


class ResourceClaim(NamedTuple):
    """One ResourceClaim as allocated; key: namespace/name.

    devices: pool and name of each device that its pods use, exclusively or shared. nodes: the nodes that its allocation
    names, if any.
    """

    key: str
    devices: tuple[tuple[Pool, str], ...] = ()
    nodes: tuple[NodeName, ...] = ()


class Use(NamedTuple):
    """A device of a node in use through *claim*, namespace/name; ids: as in `Device`, empty if unknown."""

    claim: str
    driver: str
    device: str
    ids: frozenset[str] = frozenset()
