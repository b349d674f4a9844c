"""Where PodGroups are at the API server, and Queues, HyperNodes and Jobs of Volcano."""

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
JOBS_VERSION: Final = "batch.volcano.sh/v1alpha1"
JOBS_PATH: Final = f"/apis/{JOBS_VERSION}/jobs"
# Where Kubernetes' own groups had another condition.
FIRST_NATIVE: Final = APIS[GroupKind.NATIVE][-1]
