"""Reads request bodies, and applies patches: JSON patch, merge patch, strategic merge patch, a simplified apply.

Every function returns a new object and does not change its inputs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jsonpatch
import msgspec
import yaml

from sandbox.api import protobuf
from sandbox.api.errors import StatusError, bad_request
from sandbox.api.resources import ResourceType
from sandbox.client import PatchKind

Json = dict[str, Any]

# The fields that identify the elements of a list. Other lists are replaced as a whole. Source: the patchMergeKey tags
# of k8s.io/api.
_MERGE_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "imagePullSecrets": ("name",),
    "secrets": ("name",),
    "hostAliases": ("ip",),
    "podIPs": ("ip",),
    "ports": ("containerPort", "port"),
    "topologySpreadConstraints": ("topologyKey",),
    "schedulingGates": ("name",),
    "resourceClaims": ("name",),
    "conditions": ("type",),
    "addresses": ("type",),
    "ownerReferences": ("uid",),
    "webhooks": ("name",),
}
_MERGED_VALUES: Final = frozenset({"finalizers", "podCIDRs"})
_DELETED_VALUES: Final = "$deleteFromPrimitiveList/"


def json_patch(obj: Json, operations: Sequence[Mapping[str, Any]]) -> Json:
    """Apply RFC 6902.

    Raises:
        StatusError: 422, an operation does not apply (including a failing ``test``: measured).
    """
    try:
        result: Json = copy.deepcopy(obj)
        for operation in operations:
            result = jsonpatch.apply_patch(result, [_as_applied(result, operation)], in_place=True)
    except jsonpatch.JsonPatchTestFailed as e:
        raise StatusError(422, "Invalid", f"the server rejected our request due to an error in our request: {e}") from e
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError, KeyError, ValueError) as e:
        raise StatusError(422, "Invalid", f"the patch cannot be applied: {e}") from e
    if not isinstance(result, dict):
        raise StatusError(422, "Invalid", "the patch replaces the object by something that is none")
    return result


def _as_applied(obj: Any, operation: Mapping[str, Any]) -> Mapping[str, Any]:
    """Measured: replacing a missing member of an object adds it; in lists, and below missing parents, it fails."""
    if not isinstance(operation, Mapping) or operation.get("op") != "replace":
        return operation
    parent, last = jsonpatch.JsonPointer(str(operation.get("path"))).to_last(obj)
    missing = isinstance(parent, Mapping) and last is not None and last not in parent
    return {**operation, "op": "add"} if missing else operation


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply RFC 7386."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def strategic_merge(target: Mapping[str, Any], patch: Mapping[str, Any]) -> Json:
    """Apply a strategic merge patch, with the directives that kubectl and client-go send.

    Raises:
        StatusError: 400, an element of a merged list lacks its key, or a directive is unknown.
    """
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"unable to apply patch: unknown $patch directive {directive!r}")
    merged = dict(target)
    retained = patch.get("$retainKeys")
    if retained is not None:
        merged = {key: value for key, value in merged.items() if key in retained}
    for key, value in patch.items():
        if not key.startswith("$"):
            _merge_field(merged, key, value, patch)
    for key, value in patch.items():
        if key.startswith(_DELETED_VALUES):
            name = key.removeprefix(_DELETED_VALUES)
            merged[name] = [item for item in merged.get(name) or () if item not in value]
    return merged


def _merge_field(merged: Json, key: str, value: Any, patch: Mapping[str, Any]) -> None:
    old = merged.get(key)
    if value is None:
        merged.pop(key, None)
    elif isinstance(value, Mapping):
        merged[key] = strategic_merge(old if isinstance(old, Mapping) else {}, value)
    elif isinstance(value, list) and key in _MERGED_VALUES:
        merged[key] = [*(old or ()), *(item for item in value if item not in (old or ()))]
    elif isinstance(value, list) and key in _MERGE_KEYS and _is_keyed(old, value):
        merged[key] = _merge_lists(key, old or [], value)
    else:
        merged[key] = value
    if merged.get(key) == [] and old is None and f"{_DELETED_VALUES}{key}" in patch:
        del merged[key]


def _is_keyed(old: Any, new: list[Any]) -> bool:
    return all(isinstance(item, Mapping) for item in [*(old or ()), *new])


def _merge_lists(field: str, old: Sequence[Json], new: Sequence[Mapping[str, Any]]) -> list[Json]:
    if any(item.get("$patch") == "replace" for item in new):
        return [dict(item) for item in new if item.get("$patch") != "replace"]
    result = [dict(item) for item in old]
    for item in new:
        key = next((k for k in _MERGE_KEYS[field] if k in item), None)
        if key is None:
            raise bad_request(f"map: {dict(item)} does not contain declared merge key: {_MERGE_KEYS[field][0]}")
        at = next((i for i, known in enumerate(result) if known.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            result = [known for known in result if known.get(key) != item[key]]
        elif at is None:
            result.append(strategic_merge({}, item))
        else:
            result[at] = strategic_merge(result[at], item)
    return result


def apply_patch(target: Mapping[str, Any] | None, applied: Mapping[str, Any], *, custom: bool) -> Json:
    """Apply without field ownership: the applied fields are merged, and none is removed."""
    if custom:
        merged: Json = merge_patch(target or {}, applied)
        return merged
    return strategic_merge(target or {}, applied)


def decode(raw: bytes, content_type: str) -> Any:
    """Read a body as JSON or YAML.

    Raises:
        StatusError: 400 for invalid text, 415 for another format.
    """
    if "protobuf" in content_type:
        try:
            return protobuf.decode(raw)
        except protobuf.ProtobufError as e:
            raise StatusError(415, "UnsupportedMediaType", f"the body is protobuf, and {e}") from e
    try:
        if "yaml" in content_type and not raw.lstrip().startswith(b"{"):
            return yaml.safe_load(raw)
        return msgspec.json.decode(raw)
    except yaml.YAMLError as e:
        raise bad_request(f"error decoding YAML: {e}") from e
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise bad_request(f"the object provided is unrecognized (must be of type JSON): {e}") from e


def decode_object(raw: bytes, content_type: str) -> Json:
    """Read a body that must be an object; an empty body is an empty object.

    Raises:
        StatusError: 400 or 415.
    """
    body = decode(raw, content_type) if raw else {}
    if not isinstance(body, dict):
        raise bad_request("the body must be an object")
    return body


def transformation(kind: ResourceType, content_type: str, raw: bytes) -> Callable[[Json], Json]:
    """Return the effect of a patch on an object.

    Raises:
        StatusError: 400 or 415.
    """
    media = content_type.partition(";")[0].strip()
    patch = decode(raw, media)
    match media:
        case PatchKind.JSON:
            if not isinstance(patch, list):
                raise bad_request("a JSON patch must be a list of operations")
            return lambda obj: json_patch(obj, patch)
        case _ if not isinstance(patch, dict):
            raise bad_request("the patch must be an object")
        case PatchKind.MERGE:
            return lambda obj: _object(merge_patch(obj, patch))
        case PatchKind.STRATEGIC if not kind.custom:
            return lambda obj: strategic_merge(obj, patch)
        case PatchKind.APPLY:
            return lambda obj: apply_patch(obj, patch, custom=kind.custom)
        case _:
            message = f"the body of the request was in an unknown format - {media} is not supported by {kind.plural}"
            raise StatusError(415, "UnsupportedMediaType", message)


def _object(value: Any) -> Json:
    if not isinstance(value, dict):
        raise bad_request("the patch leaves no object")
    return value
