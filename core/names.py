"""Names that several packages share: cardshare's own keys, Kubernetes' keys, common words of the protocols.

A dialect owns the keys and the grammar of its own annotations; this module has only what two packages need.
"""

import re
from typing import Final

# The project's version; scripts/release compares it with the other places that state it.
VERSION: Final = "0.2.0"

SCHEDULER_NAME: Final = "cardshare"
VOLCANO_SCHEDULER_NAME: Final = "volcano"
DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"

OWN_PREFIX: Final = "cardshare.io/"
# The condition of the controller's own pod that shows whether the configuration is in force.
CONFIGURATION_ACCEPTED: Final = "cardshare.io/ConfigurationAccepted"
# The condition of the pod of `certs run` that shows whether certificates are valid and trusted.
CERTIFICATES_KEPT: Final = "cardshare.io/CertificatesKept"
# The user's wish for cards by index. Admission moves the same wish from volcano.sh/gpu-index to this key, because that
# key later carries the assignment (protocol reference, nvidia 4.5).
WISHED_INDICES: Final = "cardshare.io/gpu-index"
# Cards that the user wants to avoid; admission moves them here from a pod's volcano.sh/gpu-unhealthy-ids.
AVOIDED_CARDS: Final = "cardshare.io/avoid-cards"
PLACE_WISHES: Final = frozenset({WISHED_INDICES, AVOIDED_CARDS})
# Segments of a pod's assignment that the device plugin has not seen yet (nvidia 2.8).
SEGMENT_QUEUE: Final = "cardshare.io/segment-queue"
# The memory unit of a pod's assignment, to count it correctly after the unit has changed (nvidia 4.2).
MEMORY_UNIT: Final = "cardshare.io/memory-unit"
# When a new leader changed the version of a waiting pod whose condition it may not write, in Unix seconds.
MOVED: Final = "cardshare.io/moved"
# Keys that only this project's own service accounts may write.
PRIVATE_KEYS: Final = frozenset({SEGMENT_QUEUE, MEMORY_UNIT})

GPU_INDEX: Final = "volcano.sh/gpu-index"
GPU_UNHEALTHY: Final = "volcano.sh/gpu-unhealthy-ids"
VGPU_REGISTER: Final = "volcano.sh/node-vgpu-register"
USE_GPU_TYPE: Final = "nvidia.com/use-gputype"
NO_USE_GPU_TYPE: Final = "nvidia.com/nouse-gputype"
TYPE_WISHES: Final = frozenset({USE_GPU_TYPE, NO_USE_GPU_TYPE})
# PodGroup names: the first key wins over the second (nvidia 3.9).
GROUP_NAME_KEYS: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")

# A longer text in a pod's annotation is refused unread; a node's register may be larger.
MAX_POD_ANNOTATION_BYTES: Final = 16 * 1024
MAX_NODE_ANNOTATION_BYTES: Final = 1024 * 1024
# No machine registers more cards. A longer register is a mistake or an attack, which would cost every reader some
# microseconds for each card.
MAX_REGISTERED_CARDS: Final = 256

# Limits for a pod with cards: containers, and items of a list of cards or types. Each costs some microseconds wherever
# the pod is judged, and real pods have fewer.
MAX_CARD_CONTAINERS: Final = 64
MAX_LIST_ITEMS: Final = 512

PODS: Final = "pods"
CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
# Resources that are counted in thousandths or bytes; everything else with a domain is an extended resource.
NATIVE_RESOURCES: Final = frozenset({PODS, CPU, MEMORY, EPHEMERAL_STORAGE})

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
# The labels by which volumes are restricted to zones and regions, and the newer labels that a node may have instead.
# Source: kube-scheduler's plugin VolumeZone.
OLD_ZONES: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
ZONES: Final = (*OLD_ZONES, *OLD_ZONES.values())
# Annotations of claims. Source: Kubernetes documentation, "Well-Known Labels, Annotations and Taints".
STORAGE_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"

# RFC 1123: a label names a namespace; labels joined by dots name objects of most other kinds.
LABEL: Final = re.compile("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def is_object_name(text: str) -> bool:
    """Return whether an object can have this name."""
    return len(text) <= 253 and all(map(LABEL.fullmatch, text.split(".")))


# The keys of labels and annotations, without the prefix, and the values of labels.
_WORD: Final = re.compile("[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


def is_label_key(text: str) -> bool:
    """Return whether a label can have this key."""
    prefix, slash, name = text.rpartition("/")
    return _WORD.fullmatch(name) is not None and (not slash or is_object_name(prefix))


def is_annotation_key(text: str) -> bool:
    """Return whether an annotation can have this key; its prefix may have capital letters."""
    return is_label_key(text.lower())


def is_label_value(text: str) -> bool:
    """Return whether a label can have this value, which may be empty."""
    return not text or _WORD.fullmatch(text) is not None
