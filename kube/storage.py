"""API paths of volume claims, volumes and the other objects of storage, with their decoders."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from core.claims import StorageKind
from core.wire.storage import (
    decode_attachment,
    decode_capacity,
    decode_claim,
    decode_class,
    decode_csi_node,
    decode_driver,
    decode_volume,
)

_PATH: Final = "/apis/storage.k8s.io/v1"
STORAGE: Final[Mapping[StorageKind, tuple[str, Callable[[bytes], Any]]]] = {
    StorageKind.CLAIMS: ("/api/v1/persistentvolumeclaims", decode_claim),
    StorageKind.VOLUMES: ("/api/v1/persistentvolumes", decode_volume),
    StorageKind.CLASSES: (f"{_PATH}/storageclasses", decode_class),
    StorageKind.NODES: (f"{_PATH}/csinodes", decode_csi_node),
    StorageKind.DRIVERS: (f"{_PATH}/csidrivers", decode_driver),
    StorageKind.CAPACITIES: (f"{_PATH}/csistoragecapacities", decode_capacity),
    StorageKind.ATTACHMENTS: (f"{_PATH}/volumeattachments", decode_attachment),
}
