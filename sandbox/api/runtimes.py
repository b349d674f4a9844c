"""The API server's admission plugin RuntimeClass: what a runtime class adds to its pods.

Source: Kubernetes documentation, "Runtime Class" (Scheduling, Pod Overhead).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sandbox.api.errors import forbidden
from sandbox.api.store import Store

RUNTIME_CLASSES: Final = "runtimeclasses.node.k8s.io"


def meet_runtime_class(store: Store, pod: dict[str, Any]) -> None:
    """Add the overhead, node selector and tolerations of its runtime class to *pod*; idempotent.

    Raises:
        StatusError: there is no such class, or the pod's own overhead or node selector differs.
    """
    spec = pod["spec"]
    name = spec.get("runtimeClassName")
    if not name:
        return
    stored = store.get(RUNTIME_CLASSES, "", name)
    if stored is None:
        raise _forbidden(pod, f'pod rejected: RuntimeClass "{name}" not found')
    overhead = (stored.obj.get("overhead") or {}).get("podFixed")
    if overhead:
        if spec.get("overhead") not in (None, overhead):
            raise _forbidden(pod, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
        spec["overhead"] = dict(overhead)
    _schedule(pod, stored.obj.get("scheduling") or {})


def _schedule(pod: dict[str, Any], scheduling: Mapping[str, Any]) -> None:
    spec = pod["spec"]
    wanted, own = scheduling.get("nodeSelector") or {}, spec.get("nodeSelector") or {}
    for key, value in wanted.items():
        if own.get(key, value) != value:
            why = f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = "
            raise _forbidden(pod, why + own[key])
    if wanted:
        spec["nodeSelector"] = {**own, **wanted}
    tolerations = spec.get("tolerations") or []
    if missing := [one for one in scheduling.get("tolerations") or () if one not in tolerations]:
        spec["tolerations"] = [*tolerations, *missing]


def _forbidden(pod: Mapping[str, Any], why: str) -> Exception:
    return forbidden("pods", pod["metadata"].get("name", ""), why)
