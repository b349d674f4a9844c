"""The fields of pods and metadata with their types: unknown fields are dropped, fields of another type rejected.

Tables cover everything that shares use; below that, any content is accepted. Source: k8s.io/api/core/v1/types.go of
v0.36.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sandbox.api.errors import StatusError, bad_request
from sandbox.api.resources import ResourceType

Json = dict[str, Any]

# A type is a word, a table of fields, or a list with the type of its elements.
Type = str | Mapping[str, Any] | Sequence[Any]


def _all(names: str, kind: Type) -> dict[str, Type]:
    return dict.fromkeys(names.split(), kind)


_METADATA: Final[Mapping[str, Type]] = {
    **_all("name generateName namespace selfLink uid resourceVersion", "string"),
    **_all("creationTimestamp deletionTimestamp", "string"),
    **_all("generation deletionGracePeriodSeconds", "number"),
    **_all("labels annotations", "strings"),
    "ownerReferences": ("object",),
    "finalizers": ["string"],
    "managedFields": "any",
}
_RESOURCES: Final[Mapping[str, Type]] = {"limits": "object", "requests": "object", "claims": ["object"]}
_CONTAINER: Final[Mapping[str, Type]] = {
    **_all("name image workingDir terminationMessagePath terminationMessagePolicy", "string"),
    **_all("imagePullPolicy restartPolicy targetContainerName", "string"),
    **_all("stdin stdinOnce tty", "bool"),
    **_all("securityContext livenessProbe readinessProbe startupProbe lifecycle", "object"),
    **_all("ports envFrom resizePolicy restartPolicyRules volumeMounts volumeDevices", ("object",)),
    **_all("command args", ["string"]),
    "env": [{"name": "string", "value": "string", "valueFrom": "object"}],
    "resources": _RESOURCES,
}
_POD_SPEC: Final[Mapping[str, Type]] = {
    **_all("initContainers containers ephemeralContainers", (_CONTAINER,)),
    **_all("restartPolicy dnsPolicy serviceAccountName serviceAccount nodeName hostname", "string"),
    **_all("subdomain schedulerName priorityClassName runtimeClassName preemptionPolicy", "string"),
    "hostnameOverride": "string",
    **_all("terminationGracePeriodSeconds activeDeadlineSeconds priority", "number"),
    **_all("automountServiceAccountToken hostNetwork hostPID hostIPC shareProcessNamespace", "bool"),
    **_all("enableServiceLinks setHostnameAsFQDN hostUsers", "bool"),
    **_all("securityContext affinity dnsConfig overhead os workloadRef schedulingGroup", "object"),
    **_all("volumes imagePullSecrets tolerations hostAliases readinessGates", ("object",)),
    **_all("topologySpreadConstraints schedulingGates resourceClaims", ("object",)),
    "nodeSelector": "strings",
    "resources": _RESOURCES,
}
_TEMPLATE: Final[Mapping[str, Type]] = {"metadata": _METADATA, "spec": _POD_SPEC}
_OBJECT: Final[Mapping[str, Type]] = {"kind": "string", "apiVersion": "string", "metadata": _METADATA}
_TARGET: Final = _all("kind namespace name uid apiVersion resourceVersion fieldPath", "string")
_TABLES: Final[Mapping[str, Mapping[str, Type]]] = {
    "pods": {**_OBJECT, "spec": _POD_SPEC, "status": "object"},
    "bindings": {**_OBJECT, "target": _TARGET},
}


def check(kind: ResourceType, obj: Json) -> tuple[Json, tuple[str, ...]]:
    """Return *obj* with the fields of *kind*, and the paths of dropped fields.

    Raises:
        StatusError: 400, a field has another type.
    """
    unknown: list[str] = []
    try:
        if kind.resource in _TABLES:
            return _table(_TABLES[kind.resource], obj, "", unknown), tuple(unknown)
        checked = {**obj, "metadata": _value(_METADATA, obj.get("metadata") or {}, "metadata", unknown)}
        if not kind.custom:
            _check_template(checked, unknown)
    except _TypeMismatchError as e:
        raise bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: json: {e}'
        ) from e
    return checked, tuple(unknown)


def refuse_or_warn(kind: ResourceType, unknown: Sequence[str], policy: str, warnings: list[str]) -> None:
    """Handle unknown fields according to ``fieldValidation``: Strict, Warn (also if absent) or Ignore.

    Raises:
        StatusError: 400 under Strict, 422 for another word.
    """
    match policy:
        case "Strict":
            if unknown:
                named = ", ".join(f'unknown field "{path}"' for path in unknown)
                title = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}'
                raise bad_request(f"{title}: strict decoding error: {named}")
        case "" | "Warn":
            warnings.extend(f'unknown field "{path}"' for path in unknown)
        case "Ignore":
            pass
        case other:
            message = f'fieldValidation: Unsupported value: "{other}": supported values: "Ignore", "Strict", "Warn"'
            raise StatusError(422, "Invalid", message)


class _TypeMismatchError(Exception):
    pass


def _check_template(obj: Json, unknown: list[str]) -> None:
    """Check the pod template of a workload, and replace it in *obj*, whose spec is copied for that."""
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return
    if isinstance(spec.get("template"), dict):
        obj["spec"] = {**spec, "template": _table(_TEMPLATE, spec["template"], "spec.template", unknown)}
    elif isinstance(spec.get("jobTemplate"), dict):
        inner = {"spec": spec["jobTemplate"].get("spec")}
        _check_template(inner, unknown)
        obj["spec"] = {**spec, "jobTemplate": {**spec["jobTemplate"], **inner}}


def _value(what: Type, value: Any, path: str, unknown: list[str]) -> Any:
    if isinstance(what, Mapping):
        return _table(what, value, path, unknown)
    if not isinstance(what, str):
        if not isinstance(value, list):
            raise _mismatch(value, path, "a list")
        return [_value(what[0], item, f"{path}[{i}]", unknown) for i, item in enumerate(value)]
    match what:
        case "any":
            fits = True
        case "string":
            fits = isinstance(value, str)
        case "number":
            fits = isinstance(value, int) and not isinstance(value, bool)
        case "bool":
            fits = isinstance(value, bool)
        case "strings":
            fits = isinstance(value, dict) and all(v is None or isinstance(v, str) for v in value.values())
        case _:
            fits = isinstance(value, dict)
    if not fits:
        raise _mismatch(value, path, {"strings": "a map of strings"}.get(what, f"type {what}"))
    return value


def _table(fields: Mapping[str, Type], value: Any, path: str, unknown: list[str]) -> Json:
    if not isinstance(value, dict):
        raise _mismatch(value, path, "an object")
    kept = {}
    for name, inner in value.items():
        where = f"{path}.{name}" if path else name
        if name not in fields:
            unknown.append(where)
        elif inner is not None:
            kept[name] = _value(fields[name], inner, where, unknown)
    return kept


def _mismatch(value: Any, path: str, wanted: str) -> _TypeMismatchError:
    words: Mapping[type, str] = {dict: "object", list: "array", str: "string", bool: "bool", type(None): "null"}
    return _TypeMismatchError(
        f"cannot unmarshal {words.get(type(value), 'number')} into field {path}, which is {wanted}"
    )
