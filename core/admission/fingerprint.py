"""What the verdict on a new pod depends on, as bytes: pods of a workload are judged once.

To leave something out that a rule or a dialect reads would give one pod another's answer. So everything is in that
`core.wire.reviewed_pods.pod_of` makes a value of, less what no rule may ever depend on, named below.
"""

from collections.abc import Mapping
from typing import Final

from core.admission.rules import NODE_PREFIX
from core.wire.applied import LAST_APPLIED
from core.wire.reading import written_out
from core.wire.reviewed_pods import PodObject, spec_of, values_of

# What controllers write to number the pods of one workload, and the manifest that a pod was made from: of these
# nobody reads the text.
_PER_POD: Final = frozenset(
    {
        LAST_APPLIED,
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/job-completion-index",
        "statefulset.kubernetes.io/pod-name",
        "volcano.sh/task-index",
    }
)


def fingerprint(found: PodObject, namespace: str, user_name: str) -> bytes:
    """Equal for two pods of which `values_read` is the same only if both have one verdict, and one patch, as new pods.

    Under one rulebook, that is. Whether any values are read is the same for all pods that are alike.
    """
    meta = found.metadata
    return written_out(
        (
            meta.namespace or namespace,
            user_name.startswith(NODE_PREFIX),
            _texts(meta.annotations),
            _texts(meta.labels),
            spec_of(found),
        )
    )


def values_read(found: PodObject) -> bytes:
    """The values of variables that rules read; b"" where no name is one that they look at."""
    values = values_of(found)
    return written_out(values) if values else b""


def _texts(found: Mapping[str, str] | None) -> Mapping[str, str] | None:
    if not found or _PER_POD.isdisjoint(found):
        return found
    return {key: "" if key in _PER_POD else text for key, text in found.items()}
