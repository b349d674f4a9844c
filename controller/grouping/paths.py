"""Where PodGroups and Queues are at the API server."""

from collections.abc import Mapping
from typing import Final

from core.groups import GroupKind

VOLCANO_VERSION: Final = "scheduling.volcano.sh/v1beta1"
APIS: Final[Mapping[GroupKind, str]] = {
    GroupKind.VOLCANO: f"/apis/{VOLCANO_VERSION}",
    GroupKind.NATIVE: "/apis/scheduling.k8s.io/v1alpha2",
    GroupKind.COSCHEDULING: "/apis/scheduling.x-k8s.io/v1alpha1",
}
QUEUES_PATH: Final = f"{APIS[GroupKind.VOLCANO]}/queues"
