"""The pods of a manifest, with the defaults of admission."""

from collections.abc import Iterator, Mapping
from typing import Any

from core.admission.awaited import pod_to_come
from core.admission.manifests import is_judged
from core.admission.rulebook import Rulebook
from core.errors import ConfigError
from core.model import Pod
from core.wire.manifests import Manifest, review_of
from core.wire.pods import pod_from_object
from core.wire.reviewed_pods import pod_of
from core.wire.reviews import decode_review


def pods_of(manifest: Manifest, book: Rulebook, namespace: str) -> Iterator[Pod]:
    """Yield one pod of each template in *manifest*, always in *namespace*; nothing for other kinds.

    Raises:
        InvalidRequestError: it is unreadable.
        ConfigError: admission would deny it.
    """
    if not is_judged(manifest):
        return
    for template in templates_of(manifest):
        metadata = {**_mapping(template.get("metadata")), "namespace": namespace}
        metadata.setdefault("name", "pod")
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _mapping(template.get("spec"))}
        reviewed = decode_review(review_of(made, namespace)).object
        if reviewed is None:
            continue
        pod = pod_to_come(pod_from_object(made), pod_of(reviewed, namespace), book)
        if not isinstance(pod, Pod):
            raise ConfigError([f"admission denies it: {'; '.join(map(str, pod))}"])
        yield pod


def templates_of(manifest: Manifest) -> Iterator[Mapping[str, Any]]:
    """Yield the pod templates in *manifest*, in the order of `pods_of`; a pod is its own template."""
    if manifest.value.get("kind") == "Pod":
        yield manifest.value
        return
    spec = manifest.value.get("spec")
    job = _mapping(_mapping(spec).get("jobTemplate")).get("spec")
    spec = _mapping(job or spec)
    tasks = spec.get("tasks")
    for one in tasks if isinstance(tasks, list) else [spec]:
        yield _mapping(_mapping(one).get("template"))


def _mapping(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}
