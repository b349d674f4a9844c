"""What the verdict on a new pod depends on, as one hashable value: pods of a workload are judged once.

To leave something out that a rule or a dialect reads would give one pod another's answer. So everything of a pod that
`core.model.Pod` hands to `Dialect.request` is in, less what no rule may ever depend on, named below.
"""

from collections.abc import Hashable, Mapping
from typing import Final

from core.admission.rules import NODE_PREFIX
from core.wire.applied import LAST_APPLIED
from core.wire.pods import ContainerObject, PodObject
from core.wire.reading import Quantity

# What controllers write to number the pods of one workload, and the manifest that a pod was made from.
_PER_POD: Final = frozenset(
    {
        LAST_APPLIED,
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/job-completion-index",
        "statefulset.kubernetes.io/pod-name",
        "volcano.sh/task-index",
    }
)


def likeness(found: PodObject, namespace: str, user_name: str) -> Hashable:
    """Equal for two pods only if `judge_new` has the same verdict, and the same patch, for both under one rulebook."""
    meta, spec = found.metadata, found.spec
    if spec is None:
        return None
    return (
        namespace,
        meta.namespace,
        user_name.startswith(NODE_PREFIX),
        _texts(meta.annotations),
        _texts(meta.labels),
        spec.scheduler_name,
        spec.node_name,
        spec.runtime_class_name,
        None if spec.containers is None else tuple([_container(one) for one in spec.containers]),
        None if spec.init_containers is None else tuple([_container(one) for one in spec.init_containers]),
    )


def _texts(found: Mapping[str, str] | None) -> Hashable:
    if not found:
        return found is None
    if _PER_POD.isdisjoint(found):
        return tuple(found.items())
    return tuple([pair for pair in found.items() if pair[0] not in _PER_POD])


def _container(found: ContainerObject) -> Hashable:
    resources, security = found.resources, found.security_context
    return (
        found.name,
        found.restart_policy,
        None if security is None else security.privileged,
        None if resources is None else (_amounts(resources.limits), _amounts(resources.requests)),
        found.env,
    )


def _amounts(found: Mapping[str, Quantity] | None) -> Hashable:
    # With their types: 1 and 1.0 are equal, and two texts.
    return None if found is None else (*found.items(), *map(type, found.values()))
