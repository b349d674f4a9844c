"""What the cluster says of storage, as values: claims, volumes, classes, what nodes attach, what is left where."""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from core.model import Alternatives, NodeName, Requirement


class StorageKind(StrEnum):
    """What is read of the cluster's storage."""

    CLAIMS = "persistentvolumeclaims"
    VOLUMES = "persistentvolumes"
    CLASSES = "storageclasses"
    NODES = "csinodes"
    DRIVERS = "csidrivers"
    CAPACITIES = "csistoragecapacities"
    ATTACHMENTS = "volumeattachments"


class Claim(NamedTuple):
    """One PersistentVolumeClaim; key: namespace/name.

    storage_class: the name of its class, "" for none. volume: the PersistentVolume that it names. bound: it is bound to
    that, and that is settled. lost: what it was bound to is gone. once: one pod at a time (ReadWriteOncePod).
    request_bytes: what it asks. modes, block, selector: the access modes, and which volumes would do. pod_uid: the pod
    that it was made for. selected_node: where it is to be provisioned.
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


class Volume(NamedTuple):
    """One PersistentVolume.

    affinity: which nodes reach it, None: all. zones: by label of nodes, the values of which one must be theirs. driver,
    handle: what attaches it, "" if nothing that counts. claim: whom it is for, namespace/name, "" if anybody;
    claim_uid: the same by uid, if that is settled. available: no claim has it.
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


class StorageClass(NamedTuple):
    """One StorageClass: who makes its volumes, whether once a pod has its place, and on which nodes (None: all)."""

    name: str
    provisioner: str = ""
    waits: bool = False
    topologies: Alternatives | None = None


class NodeDrivers(NamedTuple):
    """One CSINode: how many volumes each driver attaches to the node; a driver without a limit is left out."""

    node: NodeName
    limits: Mapping[str, int]


class Driver(NamedTuple):
    """One CSIDriver; tells_capacity: CSIStorageCapacity says where it can make volumes."""

    name: str
    tells_capacity: bool


class Capacity(NamedTuple):
    """One CSIStorageCapacity: how large a volume of a class may be on nodes that meet *nodes*; None: on none."""

    key: str
    storage_class: str
    nodes: tuple[Requirement, ...] | None
    most_bytes: int


class Attachment(NamedTuple):
    """One VolumeAttachment: *volume*, a PersistentVolume ("": none), is attached to *node* by *driver*, or is to be."""

    name: str
    node: NodeName = NodeName("")
    driver: str = ""
    volume: str = ""
