"""The inputs of the verdict on a new pod, as bytes, so that pods of a workload are judged once.

An omitted input of a rule or dialect would give a pod the wrong answer. So everything that
`core.wire.reviewed_pods.pod_of` reads is included, except what no rule may ever depend on, listed below.
"""

from collections.abc import Mapping
from typing import Final

from core.admission.rules import NODE_PREFIX
from core.wire.reading import written_out
from core.wire.reviewed_pods import LAST_APPLIED, PodObject, spec_of, values_of

# Keys by which controllers number the pods of a workload, and the manifest of a pod: no rule reads their text.
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
    """Return a key that is equal for two new pods with the same `values_read` only if verdict and patch are equal.

    This holds under one rulebook. Pods with equal keys either all have read values or none.
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
    """Return the values of variables that rules read; b"" if no name is relevant."""
    values = values_of(found)
    return written_out(values) if values else b""


def _texts(found: Mapping[str, str] | None) -> Mapping[str, str] | None:
    if not found or _PER_POD.isdisjoint(found):
        return found
    return {key: "" if key in _PER_POD else text for key, text in found.items()}
