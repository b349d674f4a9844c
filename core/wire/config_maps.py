"""ConfigMaps, from watches and in admission reviews: from the API server's JSON to names and texts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from core.wire import reading
from core.wire.objects import ObjectMeta


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMap:
    """A ConfigMap; texts by key."""

    namespace: str
    name: str
    resource_version: str = ""
    texts: Mapping[str, str] = field(default_factory=dict)


class ConfigMapObject(msgspec.Struct, frozen=True, gc=False):
    """The fields of a ConfigMap that are read. Source: Kubernetes API reference, core/v1 ConfigMap (v1.36)."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None


def config_map_of(found: ConfigMapObject) -> ConfigMap:
    """Return the value of a decoded ConfigMap."""
    meta = found.metadata
    return ConfigMap(
        namespace=meta.namespace or "",
        name=meta.name,
        resource_version=meta.resource_version or "",
        texts=found.data or {},
    )


decode_config_map: Final = reading.reader("ConfigMap", ConfigMapObject, config_map_of)
config_map_from_object: Final = reading.converter("ConfigMap", ConfigMapObject, config_map_of)


_VERSION_LABEL: Final = "app.kubernetes.io/version"


class ReviewedConfigMap(NamedTuple):
    """A ConfigMap that is being written.

    version: the release in its labels, "" if absent. binary: values that are not text, or were given as binary data.
    """

    name: str
    version: str
    texts: Mapping[str, str]
    binary: Mapping[str, bytes]


class _ConfigMap(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None
    binary_data: dict[str, bytes] | None = None


class _Request(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    object: _ConfigMap | None = None
    old_object: _ConfigMap | None = None


class _Question(msgspec.Struct, frozen=True, gc=False):
    request: _Request


_decoder: Final = msgspec.json.Decoder(_Question)


def decode_config_map_edit(
    text: bytes | bytearray | memoryview,
) -> tuple[ReviewedConfigMap | None, ReviewedConfigMap | None]:
    """Return (the new ConfigMap, the old one) of an AdmissionReview about one; None if there is none.

    Source: Kubernetes API reference, core/v1 ConfigMap (v1.36).

    Raises:
        InvalidRequestError: its object is not a ConfigMap.
    """
    try:
        found = _decoder.decode(text).request
    except reading.DECODE_ERRORS as e:
        raise reading.unreadable("ConfigMap", e) from e
    return _value(found.object), _value(found.old_object)


def _value(found: _ConfigMap | None) -> ReviewedConfigMap | None:
    if found is None:
        return None
    version = (found.metadata.labels or {}).get(_VERSION_LABEL, "")
    return ReviewedConfigMap(found.metadata.name, version, found.data or {}, found.binary_data or {})
