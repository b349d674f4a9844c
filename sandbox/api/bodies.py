"""Decodes request bodies to objects, and patches to transformations."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import yaml

from sandbox.api import protobuf
from sandbox.api.errors import StatusError, bad_request
from sandbox.api.patching import apply_patch, json_patch, merge_patch, strategic_merge
from sandbox.api.resources import ResourceType
from sandbox.client import PatchKind

Json = dict[str, Any]


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
    if "cbor" in content_type:
        message = f"the body of the request was in an unknown format, {content_type}; accepted: application/json"
        raise StatusError(415, "UnsupportedMediaType", message)
    try:
        if "yaml" in content_type and not raw.lstrip().startswith(b"{"):
            return yaml.safe_load(raw)
        return msgspec.json.decode(raw)
    except yaml.YAMLError as e:
        raise bad_request(f"error decoding YAML: {e}") from e
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _leniently(raw)


def _leniently(raw: bytes) -> Any:
    """Decode what msgspec rejects and the real server accepts: lone surrogates, which become U+FFFD (measured)."""
    try:
        found = json.loads(raw.decode("utf-8", "replace"))
        return msgspec.json.decode(
            json.dumps(found, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        )
    except (ValueError, RecursionError, msgspec.DecodeError) as e:
        raise bad_request(f"the object provided is unrecognized (must be of type JSON): {e}") from e


def refuse_doubled(raw: bytes, content_type: str) -> None:
    """Reject a JSON object with a repeated field, as a strict reader does.

    Raises:
        StatusError: 400 with the field's name.
    """
    if "json" not in content_type or not raw:
        return

    def once(pairs: list[tuple[str, Any]]) -> Json:
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            doubled = next(name for name in names if names.count(name) > 1)
            raise bad_request(f'strict decoding error: duplicate field "{doubled}"')
        return dict(pairs)

    try:
        json.loads(raw.decode("utf-8", "replace"), object_pairs_hook=once)
    except (ValueError, RecursionError):
        # Invalid JSON is reported by its reader.
        return


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
