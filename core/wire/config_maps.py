"""ConfigMaps: from the API server's JSON to names and texts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from core.wire import reading


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMap:
    """A ConfigMap; texts by key."""

    namespace: str
    name: str
    resource_version: str = ""
    texts: Mapping[str, str] = field(default_factory=dict)


class _Meta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    namespace: str | None = ""
    resource_version: str | None = ""


class ConfigMapObject(msgspec.Struct, frozen=True, gc=False):
    """The fields of a ConfigMap that are read. Source: Kubernetes API reference, core/v1 ConfigMap (v1.36)."""

    metadata: _Meta = _Meta()
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
