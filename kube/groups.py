"""API paths of PodGroups, and of Volcano's Queues, HyperNodes and Jobs."""

from collections.abc import Mapping, Sequence
from typing import Final

from core.groups import GroupKind

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
