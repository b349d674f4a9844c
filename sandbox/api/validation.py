"""The API server's validation of pods, nodes and related writes.

Each check returns reasons, each starting with a field path; `check_create` and `check_update` raise them together.
Rules and texts: validation of Kubernetes 1.36 (k8s.io/kubernetes/pkg/apis/core/validation), shortened.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sandbox.api.defaults import CONTAINER_LISTS, template_of
from sandbox.api.errors import StatusError, bad_request, conflict, invalid, not_found
from sandbox.api.quantities import QuantityError, is_whole, value_of
from sandbox.api.resources import ResourceType, custom_types

Json = dict[str, Any]

MAX_ANNOTATION_BYTES: Final = 262_144
_NAME_PART: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
# Native resources of containers; other names without a domain are invalid.
_NATIVE: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
# Kinds whose names may have more characters than a DNS subdomain.
_FREE_NAMES: Final = frozenset(
    f"{plural}.rbac.authorization.k8s.io" for plural in ("roles", "rolebindings", "clusterroles", "clusterrolebindings")
)
_MUTABLE_IN_SPEC: Final = (
    "activeDeadlineSeconds",
    "tolerations",
    "terminationGracePeriodSeconds",
    "schedulingGates",
    "ephemeralContainers",
)


def check_create(kind: ResourceType, obj: Mapping[str, Any]) -> None:
    """Reject a new object that violates a rule.

    Raises:
        StatusError: 422 with every reason.
    """
    _raise(kind, obj, [*_metadata(kind, obj), *_body(kind, obj)])


def check_update(kind: ResourceType, obj: Mapping[str, Any], old: Mapping[str, Any]) -> None:
    """Reject a change that violates a rule.

    Raises:
        StatusError: 422 with every reason.
    """
    # The stored object may already violate a rule (a Binding is not validated), and is checked anyway: measured, a bad
    # annotation key makes every later write fail until it is removed.
    reasons = list(_metadata(kind, obj))
    judged = "status" if kind.resource == "nodes" else "spec"
    if obj.get(judged) != old.get(judged):
        reasons += _body(kind, obj)
        if kind.resource == "pods":
            reasons += _pod_spec_change(obj["spec"], old["spec"])
    _raise(kind, obj, reasons)


def check_binding(binding: Mapping[str, Any], name: str) -> str:
    """Check a Binding of the pod *name* by itself, and return the node's name.

    The node need not exist, and neither annotations nor labels are checked: measured.

    Raises:
        StatusError: 400 for another pod's name or none; 500 without a target.
    """
    if (binding["metadata"].get("name") or "") != name:
        raise bad_request("name in URL does not match name in Binding object")
    target = binding.get("target") or {}
    if not target.get("name"):
        raise StatusError(500, "", "target.name: Required value")
    if target.get("kind") not in (None, "", "Node"):
        raise StatusError(
            500, "", f'target.kind: Unsupported value: "{target["kind"]}": supported values: "Node", "<empty>"'
        )
    return str(target["name"])


def check_bindable(pod: Mapping[str, Any] | None, binding: Mapping[str, Any], name: str) -> None:
    """Check whether *pod*, called *name*, may be bound by *binding*, as the registry does.

    Raises:
        StatusError: 404 no such pod; 409 another uid or version, bound, gated or being deleted.
    """
    if pod is None:
        raise not_found("pods", name)
    asked, there = binding["metadata"], pod["metadata"]
    if asked.get("uid") and asked["uid"] != there["uid"]:
        raise conflict("pods", name, _storage_error("pods", there) + _other_uid(there, asked["uid"]))
    if asked.get("resourceVersion") and asked["resourceVersion"] != there["resourceVersion"]:
        why = (
            f"Precondition failed: ResourceVersion in precondition: {asked['resourceVersion']}, "
            f"ResourceVersion in object meta: {there['resourceVersion']}"
        )
        raise conflict("pods", name, _storage_error("pods", there) + why)
    if there.get("deletionTimestamp"):
        raise conflict("pods/binding", name, f"pod {name} is being deleted, cannot be assigned to a host")
    if bound := pod["spec"].get("nodeName"):
        raise conflict("pods/binding", name, f'pod {name} is already assigned to node "{bound}"')
    if pod["spec"].get("schedulingGates"):
        raise conflict("pods/binding", name, f"pod {name} has non-empty .spec.schedulingGates")


def other_uid(kind: ResourceType, there: Mapping[str, Any], asked: str) -> str:
    """Return why a write with the uid *asked* conflicts with the object whose metadata are *there*."""
    return _storage_error(kind.plural, there) + _other_uid(there, asked)


def _storage_error(plural: str, there: Mapping[str, Any]) -> str:
    place = "/".join(filter(None, (plural, there.get("namespace"), there["name"])))
    return f"StorageError: invalid object, Code: 4, Key: /registry/{place}, ResourceVersion: 0, AdditionalErrorMsg: "


def _other_uid(there: Mapping[str, Any], asked: str) -> str:
    return f"Precondition failed: UID in precondition: {asked}, UID in object meta: {there['uid']}"


def _raise(kind: ResourceType, obj: Mapping[str, Any], reasons: list[str]) -> None:
    if not reasons:
        return
    raise invalid(kind.kind, str(obj["metadata"].get("name", "")), reasons, kind.group)


def _metadata(kind: ResourceType, obj: Mapping[str, Any]) -> Iterator[str]:
    metadata = obj["metadata"]
    name = metadata.get("name", "")
    if kind.resource not in _FREE_NAMES and (len(name) > 253 or not _SUBDOMAIN.fullmatch(name)):
        yield (
            f'metadata.name: Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist of lower case '
            "alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character"
        )
    yield from _annotations(metadata.get("annotations") or {})
    yield from _labels("metadata.labels", metadata.get("labels") or {})


def _annotations(annotations: Any) -> Iterator[str]:
    if not isinstance(annotations, Mapping):
        yield "metadata.annotations: Invalid value: must be a map of text"
        return
    size = 0
    for key, value in annotations.items():
        if not isinstance(value, str):
            yield f"metadata.annotations[{key}]: Invalid value: must be text"
            continue
        if not qualified(key.lower()):
            yield (
                f'metadata.annotations: Invalid value: "{key}": name part must consist of alphanumeric characters, '
                "'-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or "
                "'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
            )
        size += len(key.encode("utf-8", "replace")) + len(value.encode("utf-8", "replace"))
    if size > MAX_ANNOTATION_BYTES:
        yield f"metadata.annotations: Too long: may not be more than {MAX_ANNOTATION_BYTES} bytes"


def _labels(path: str, labels: Any) -> Iterator[str]:
    if not isinstance(labels, Mapping):
        yield f"{path}: Invalid value: must be a map of text"
        return
    for key, value in labels.items():
        if not qualified(key):
            yield f'{path}: Invalid value: "{key}": name part must consist of alphanumeric characters'
        if not isinstance(value, str) or len(value) > 63 or (value and not _NAME_PART.fullmatch(value)):
            yield (
                f'{path}: Invalid value: "{value}": a valid label must be an empty string or consist of '
                "alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
            )


def qualified(key: str) -> bool:
    """Return whether *key* is a valid annotation or label key: ``name`` or ``domain/name``."""
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > 253 or not _SUBDOMAIN.fullmatch(prefix)):
        return False
    return 0 < len(name) <= 63 and _NAME_PART.fullmatch(name) is not None


def _body(kind: ResourceType, obj: Mapping[str, Any]) -> list[str]:
    if kind.custom:
        return []
    if kind.resource == "pods":
        return list(_pod_spec("spec", obj["spec"]))
    if kind.resource == "nodes":
        return list(_node(obj))
    if kind.resource == "customresourcedefinitions.apiextensions.k8s.io":
        return list(_definition(obj))
    template = template_of(obj)
    return [] if template is None else list(_pod_spec("spec.template.spec", template))


def _definition(obj: Mapping[str, Any]) -> Iterator[str]:
    """Check a definition, because an invalid one would break discovery for all kinds."""
    try:
        types = custom_types(obj)
    except KeyError as e:
        yield f"spec: Required value: {e.args[0]}"
        return
    except (TypeError, AttributeError):
        types = ()
    words = [word for one in types for word in (one.group, one.version, one.kind, one.plural, one.singular)]
    if not words or not all(isinstance(word, str) and word for word in words):
        yield "spec: Invalid value: group, names and at least one served version must be given as text"


def _node(obj: Mapping[str, Any]) -> Iterator[str]:
    status = obj.get("status") or {}
    for field in ("capacity", "allocatable"):
        for name, text in (status.get(field) or {}).items():
            yield from _quantity(f"status.{field}.{name}", name, text)


def _pod_spec(path: str, spec: Any) -> Iterator[str]:
    if not isinstance(spec, Mapping) or not spec.get("containers"):
        yield f"{path}.containers: Required value"
        return
    names: set[str] = set()
    for field in CONTAINER_LISTS:
        for i, container in enumerate(spec.get(field) or ()):
            where = f"{path}.{field}[{i}]"
            name = container.get("name", "")
            if not name:
                yield f"{where}.name: Required value"
            elif len(name) > 63 or not _LABEL.fullmatch(name):
                yield (
                    f'{where}.name: Invalid value: "{name}": a lowercase RFC 1123 label must consist of lower case '
                    "alphanumeric characters or '-', and must start and end with an alphanumeric character"
                )
            elif name in names:
                yield f'{where}.name: Duplicate value: "{name}"'
            names.add(name)
            if not container.get("image") and path == "spec":
                yield f"{where}.image: Required value"
            yield from _resources(f"{where}.resources", container.get("resources") or {})


def _resources(path: str, resources: Mapping[str, Any]) -> Iterator[str]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for field, quantities in (("limits", limits), ("requests", requests)):
        for name, text in quantities.items():
            where = f"{path}.{field}[{name}]"
            if not qualified(name):
                yield f'{where}: Invalid value: "{name}": name part must consist of alphanumeric characters'
            elif "/" not in name and name not in _NATIVE and not name.startswith("hugepages-"):
                yield f'{where}: Invalid value: "{name}": must be a standard resource for containers'
            else:
                yield from _quantity(where, name, text)
    for name, asked in requests.items():
        limit = limits.get(name)
        if limit is None:
            if is_extended(name):
                yield f"{path}.limits: Required value: Limit must be set for non overcommitable resources"
        else:
            yield from _against_limit(f"{path}.requests", name, asked, limit)


def _against_limit(where: str, name: str, asked: Any, limit: Any) -> Iterator[str]:
    try:
        request_value, limit_value = value_of(asked), value_of(limit)
    except QuantityError:
        return
    if is_extended(name) and request_value != limit_value:
        yield f'{where}: Invalid value: "{asked}": must be equal to {name} limit of {limit}'
    elif request_value > limit_value:
        yield f'{where}: Invalid value: "{asked}": must be less than or equal to {name} limit of {limit}'


def _quantity(where: str, name: str, text: Any) -> Iterator[str]:
    try:
        value = value_of(text)
    except QuantityError as e:
        yield f'{where}: Invalid value: "{text}": {e}'
        return
    if value < 0:
        yield f'{where}: Invalid value: "{text}": must be greater than or equal to 0'
    elif is_extended(name) and not is_whole(value):
        yield f'{where}: Invalid value: "{text}": must be an integer'


def is_extended(name: str) -> bool:
    """Return whether *name* is an extended resource: it has a domain other than Kubernetes' own."""
    domain, slash, _ = name.partition("/")
    return (
        bool(slash)
        and domain != "kubernetes.io"
        and not domain.endswith(".kubernetes.io")
        and not name.startswith("requests.")
    )


def _pod_spec_change(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[str]:
    yield from _gates_and_tolerations(new, old)
    grace = old.get("terminationGracePeriodSeconds")
    if new.get("terminationGracePeriodSeconds") not in (grace, 1) or (
        new.get("terminationGracePeriodSeconds") != grace and (grace or 0) >= 0
    ):
        yield "spec: Forbidden: terminationGracePeriodSeconds may only be set to 1 if it was negative"
    mutable = set(_MUTABLE_IN_SPEC)
    if old.get("schedulingGates"):
        # A gated pod's node selection may only be narrowed, which is not checked here.
        mutable |= {"nodeSelector", "affinity"}
    if _frozen(new, mutable) != _frozen(old, mutable):
        yield (
            "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to "
            "existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously "
            "negative)"
        )


def _gates_and_tolerations(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[str]:
    if any(gate not in (old.get("schedulingGates") or ()) for gate in new.get("schedulingGates") or ()):
        yield "spec.schedulingGates: Forbidden: only deletion is allowed"
    kept = [_untimed(toleration) for toleration in new.get("tolerations") or ()]
    if any(_untimed(toleration) not in kept for toleration in old.get("tolerations") or ()):
        yield "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"


def _untimed(toleration: Mapping[str, Any]) -> Json:
    return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}


def _frozen(spec: Mapping[str, Any], mutable: set[str]) -> Json:
    """Return the parts of a pod spec that an update must not change; the images of containers may."""
    frozen: Json = {key: value for key, value in spec.items() if key not in mutable}
    for name in CONTAINER_LISTS[:2]:
        frozen[name] = [
            {key: value for key, value in container.items() if key != "image"} for container in spec.get(name) or ()
        ]
    return {key: value for key, value in frozen.items() if value not in (None, [], {}, "")}
