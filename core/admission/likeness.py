"""What the verdict on a new pod depends on, as bytes: pods of a workload are judged once.

To leave something out that a rule or a dialect reads would give one pod another's answer. So everything of a pod that
`core.model.Pod` hands to `Dialect.request` is in, less what no rule may ever depend on, named below.
"""

from collections.abc import Mapping
from typing import Final

from core.admission.reach import is_watched, may_be_watched
from core.admission.rules import NODE_PREFIX
from core.wire.applied import LAST_APPLIED
from core.wire.pods import PodObject, host_paths_of, told_apart
from core.wire.reading import written_out

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


def likeness(found: PodObject, namespace: str, user_name: str) -> bytes:
    """Equal for two pods only if `judge_new` has the same verdict, and the same patch, for both under one rulebook."""
    meta, spec = found.metadata, found.spec
    if spec is None:
        return b""
    return written_out(
        (
            namespace,
            meta.namespace,
            user_name.startswith(NODE_PREFIX),
            _texts(meta.annotations),
            _texts(meta.labels),
            spec.scheduler_name,
            spec.node_name,
            spec.runtime_class_name,
            told_apart(spec.containers, may_be_watched, is_watched),
            told_apart(spec.init_containers, may_be_watched, is_watched),
            spec.host_pid,
            host_paths_of(spec.volumes) if spec.volumes else (),
        )
    )


def _texts(found: Mapping[str, str] | None) -> Mapping[str, str] | None:
    if not found or _PER_POD.isdisjoint(found):
        return found
    return {key: text for key, text in found.items() if key not in _PER_POD}
