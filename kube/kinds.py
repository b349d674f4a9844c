"""API paths of groups, queues and storage, which more than one process reads."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from core.claims import StorageKind
from core.model import GroupKind
from core.wire.storage import (
    decode_attachment,
    decode_capacity,
    decode_claim,
    decode_class,
    decode_csi_node,
    decode_driver,
    decode_volume,
)

VOLCANO_VERSION: Final = "scheduling.volcano.sh/v1beta1"
# Newest first. Kubernetes 1.36 serves only the last of its own versions, 1.37 serves the others (groups 7).
APIS: Final[Mapping[GroupKind, Sequence[str]]] = {
    GroupKind.VOLCANO: (f"/apis/{VOLCANO_VERSION}",),
    GroupKind.NATIVE: tuple(f"/apis/scheduling.k8s.io/{version}" for version in ("v1beta1", "v1alpha3", "v1alpha2")),
    GroupKind.COSCHEDULING: ("/apis/scheduling.x-k8s.io/v1alpha1",),
}
PODGROUPS: Final = "podgroups"
QUEUES_PATH: Final = f"/apis/{VOLCANO_VERSION}/queues"
HYPER_NODES_PATH: Final = "/apis/topology.volcano.sh/v1alpha1/hypernodes"
JOBS_VERSION: Final = "batch.volcano.sh/v1alpha1"
JOBS_PATH: Final = f"/apis/{JOBS_VERSION}/jobs"
# The version whose groups have a different condition.
FIRST_NATIVE: Final = APIS[GroupKind.NATIVE][-1]

_PATH: Final = "/apis/storage.k8s.io/v1"
# With their decoders.
STORAGE: Final[Mapping[StorageKind, tuple[str, Callable[[bytes], Any]]]] = {
    StorageKind.CLAIMS: ("/api/v1/persistentvolumeclaims", decode_claim),
    StorageKind.VOLUMES: ("/api/v1/persistentvolumes", decode_volume),
    StorageKind.CLASSES: (f"{_PATH}/storageclasses", decode_class),
    StorageKind.NODES: (f"{_PATH}/csinodes", decode_csi_node),
    StorageKind.DRIVERS: (f"{_PATH}/csidrivers", decode_driver),
    StorageKind.CAPACITIES: (f"{_PATH}/csistoragecapacities", decode_capacity),
    StorageKind.ATTACHMENTS: (f"{_PATH}/volumeattachments", decode_attachment),
}
