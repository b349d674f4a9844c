"""ResourceQuotas: from the API server's JSON to the limits that may concern cards.

Source: Kubernetes API reference, core/v1 ResourceQuota.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from core.wire import reading
from core.wire.objects import Presence
from core.wire.reading import Quantity, as_written, quantities


class ResourceQuota(NamedTuple):
    """A namespace's limits on extended resources, by the quota's own keys (``requests.volcano.sh/vgpu-number``).

    used: by the same keys, as Kubernetes counts; uncounted keys are absent. scoped: whether it counts only some pods.
    others: its other limits by key, as written, such as ``pods`` and ``requests.cpu``.
    """

    namespace: str
    name: str
    hard: Mapping[str, int]
    used: Mapping[str, int]
    scoped: bool = False
    others: tuple[tuple[str, str], ...] = ()


class _Meta(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    namespace: str = ""


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    hard: dict[str, Quantity] | None = None
    scopes: tuple[str, ...] | None = None
    scope_selector: Presence | None = None


class _Status(msgspec.Struct, frozen=True, gc=False):
    used: dict[str, Quantity] | None = None


class QuotaObject(msgspec.Struct, frozen=True, gc=False):
    """The fields of a ResourceQuota that are read."""

    metadata: _Meta = _Meta()
    spec: _Spec | None = None
    status: _Status | None = None


_NO_SPEC: Final = _Spec()
_NO_STATUS: Final = _Status()


def quota_of(found: QuotaObject) -> ResourceQuota:
    """Return the value of a decoded ResourceQuota."""
    meta, spec, status = found.metadata, found.spec or _NO_SPEC, found.status or _NO_STATUS
    return ResourceQuota(
        namespace=meta.namespace,
        name=meta.name,
        hard=_extended(spec.hard, "spec.hard"),
        used=_extended(status.used, "status.used"),
        scoped=bool(spec.scopes) or spec.scope_selector is not None,
        others=tuple((key, as_written(one)) for key, one in (spec.hard or {}).items() if not _is_extended(key)),
    )


def _extended(found: Mapping[str, Quantity] | None, field: str) -> Mapping[str, int]:
    return quantities({key: amount for key, amount in (found or {}).items() if _is_extended(key)}, field)


def _is_extended(key: str) -> bool:
    return "/" in key and not key.startswith("count/") and ".storageclass.storage.k8s.io/" not in key


decode_quota: Final = reading.reader("ResourceQuota", QuotaObject, quota_of)


class _Head(msgspec.Struct, frozen=True, gc=False):
    metadata: _Meta


_decode_head: Final = reading.reader("ResourceQuota", _Head, lambda found: found)


def salvage_quota(text: bytes) -> ResourceQuota:
    """Return a ResourceQuota that `decode_quota` cannot read; it exists and limits nothing.

    Raises:
        InvalidRequestError: even its name is unreadable.
    """
    meta = _decode_head(text).metadata
    return ResourceQuota(meta.namespace, meta.name, {}, {})
