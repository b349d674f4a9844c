"""Applies patches: JSON patch, merge patch, strategic merge patch, and a simplified server-side apply.

Every function returns a new object and does not change its inputs.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jsonpatch

from sandbox.api.errors import StatusError, bad_request

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
_ORDER: Final = "$setElementOrder/"
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
    for key, value in patch.items():
        if key.startswith(_ORDER):
            _reorder(merged, key.removeprefix(_ORDER), value)
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


def _reorder(merged: Json, field: str, order: Sequence[Any]) -> None:
    items = merged.get(field)
    if not items:
        return
    if isinstance(items[0], Mapping):
        keys = _MERGE_KEYS.get(field, ("name",))
        wanted = [next((o[k] for k in keys if k in o), None) if isinstance(o, Mapping) else o for o in order]
        place = {value: i for i, value in enumerate(wanted)}
        named = [next((item[k] for k in keys if k in item), None) for item in items]
    else:
        place = {value: i for i, value in enumerate(order)}
        named = list(items)
    # An element that the order does not name stays behind its neighbour if possible.
    last, ranks = -1, []
    for name in named:
        last = place.get(name, last)
        ranks.append(last)
    merged[field] = [item for _, item in sorted(zip(ranks, items, strict=True), key=lambda pair: pair[0])]


def apply_patch(target: Mapping[str, Any] | None, applied: Mapping[str, Any], *, custom: bool) -> Json:
    """Apply without field ownership: the applied fields are merged, and none is removed."""
    if custom:
        merged: Json = merge_patch(target or {}, applied)
        return merged
    return strategic_merge(target or {}, applied)
