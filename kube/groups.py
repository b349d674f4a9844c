"""Where PodGroups, Queues and HyperNodes are at the API server."""

from collections.abc import Mapping, Sequence
from typing import Final

from core.groups import GroupKind

VOLCANO_VERSION: Final = "scheduling.volcano.sh/v1beta1"
# The newest first. Kubernetes 1.36 serves the last of its own alone, 1.37 the others (groups 7).
APIS: Final[Mapping[GroupKind, Sequence[str]]] = {
    GroupKind.VOLCANO: (f"/apis/{VOLCANO_VERSION}",),
    GroupKind.NATIVE: tuple(f"/apis/scheduling.k8s.io/{version}" for version in ("v1beta1", "v1alpha3", "v1alpha2")),
    GroupKind.COSCHEDULING: ("/apis/scheduling.x-k8s.io/v1alpha1",),
}
PODGROUPS: Final = "podgroups"
QUEUES_PATH: Final = f"/apis/{VOLCANO_VERSION}/queues"
HYPER_NODES_PATH: Final = "/apis/topology.volcano.sh/v1alpha1/hypernodes"
# Where Kubernetes' own groups had another condition.
FIRST_NATIVE: Final = APIS[GroupKind.NATIVE][-1]
