"""Words that several rooms share: our own keys, Kubernetes' keys, the words of the protocols' common part.

A dialect owns the keys and the grammar of its own annotations; only what two rooms need stands here.
"""

from typing import Final

# Of the project; scripts/release compares it with what else says it.
VERSION: Final = "0.2.0"

SCHEDULER_NAME: Final = "cardshare"
VOLCANO_SCHEDULER_NAME: Final = "volcano"
DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"

OWN_PREFIX: Final = "cardshare.io/"
# The condition of the controller's own pod that says whether the configuration is in force.
CONFIGURATION_ACCEPTED: Final = "cardshare.io/ConfigurationAccepted"
# The condition of the pod of `certs run` that says whether certificates are as they should be, and trusted.
CERTIFICATES_KEPT: Final = "cardshare.io/CertificatesKept"
# The user's wish for cards by index. The same wish written as volcano.sh/gpu-index is moved here at admission,
# because that key later carries the assignment (protocol reference, nvidia 4.5).
WISHED_INDICES: Final = "cardshare.io/gpu-index"
# Cards that the user wants left alone; moved here from a pod's volcano.sh/gpu-unhealthy-ids.
AVOIDED_CARDS: Final = "cardshare.io/avoid-cards"
PLACE_WISHES: Final = frozenset({WISHED_INDICES, AVOIDED_CARDS})
# Segments of a pod's assignment that the device plugin has not been shown yet (nvidia 2.8).
SEGMENT_QUEUE: Final = "cardshare.io/segment-queue"
# In which unit a pod's assignment counts memory, for whoever counts it after the unit has changed (nvidia 4.2).
MEMORY_UNIT: Final = "cardshare.io/memory-unit"
# When a new leader moved the version of a waiting pod whose condition it may not write, in Unix seconds.
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

# Text in a pod's annotation beyond this is refused unread; a node's register may be larger.
MAX_POD_ANNOTATION_BYTES: Final = 16 * 1024
MAX_NODE_ANNOTATION_BYTES: Final = 1024 * 1024
# No machine has more cards than these in one register; one that names more is a mistake, or malice, that would cost
# every process that reads it some microseconds for each of them.
MAX_REGISTERED_CARDS: Final = 256

# A pod with cards has no more containers, and a list of cards or types no more items: each costs some microseconds
# wherever the pod is judged, and nobody writes so many.
MAX_CARD_CONTAINERS: Final = 64
MAX_LIST_ITEMS: Final = 512

PODS: Final = "pods"
CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
# Resources that are counted in thousandths or bytes; everything else with a domain is an extended resource.
NATIVE_RESOURCES: Final = frozenset({PODS, CPU, MEMORY, EPHEMERAL_STORAGE})

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
# By what labels of theirs volumes are held to zones and regions, and what a node may have in place of the older ones.
# Source: kube-scheduler's plugin VolumeZone.
OLD_ZONES: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
ZONES: Final = (*OLD_ZONES, *OLD_ZONES.values())
# Of claims. Source: Kubernetes documentation, "Well-Known Labels, Annotations and Taints".
STORAGE_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
