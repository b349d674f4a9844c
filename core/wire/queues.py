"""Volcano's Queues: from the API server's JSON to `QueueSpec`."""

from collections.abc import Iterator
from typing import Final

import msgspec

from core.groups import QueueSpec
from core.wire import reading
from core.wire.objects import Head, Presence, Time
from core.wire.podgroups import UNREADABLE
from core.wire.reading import Quantity, quantities

_MAX_WEIGHT: Final = 65_535


class _Meta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    uid: str | None = ""
    resource_version: str | None = ""
    creation_timestamp: Time | None = None


class _Guarantee(msgspec.Struct, frozen=True, gc=False):
    resource: dict[str, Quantity] | None = None


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    weight: int | None = 1
    priority: int | None = 0
    capability: dict[str, Quantity] | None = None
    guarantee: _Guarantee | None = None
    deserved: dict[str, Quantity] | None = None
    reclaimable: bool | None = None
    parent: str | None = ""
    affinity: Presence | None = None
    extend_clusters: tuple[Presence, ...] | None = None


class _Status(msgspec.Struct, frozen=True, gc=False):
    state: str | None = ""
    allocated: dict[str, Quantity] | None = None


class QueueObject(msgspec.Struct, frozen=True, gc=False):
    """The fields of a Queue that are read. Source: Volcano, scheduling/v1beta1 types.go (groups 1.6)."""

    metadata: _Meta = _Meta()
    spec: _Spec | None = None
    status: _Status | None = None


_NO_SPEC: Final = _Spec()
_NO_STATUS: Final = _Status()
_NO_GUARANTEE: Final = _Guarantee()


def queue_of(found: QueueObject) -> QueueSpec:
    """Return the value of a decoded Queue."""
    meta, spec, status = found.metadata, found.spec or _NO_SPEC, found.status or _NO_STATUS
    return QueueSpec(
        name=meta.name,
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        weight=min(max(spec.weight or 1, 1), _MAX_WEIGHT),
        priority=spec.priority or 0,
        capability=quantities(spec.capability, "spec.capability"),
        guarantee=quantities((spec.guarantee or _NO_GUARANTEE).resource, "spec.guarantee.resource"),
        deserved=quantities(spec.deserved, "spec.deserved"),
        reclaimable=spec.reclaimable is not False,
        parent=spec.parent or "",
        created_s=int(meta.creation_timestamp.timestamp()) if meta.creation_timestamp else 0,
        state=status.state or "",
        allocated=reading.texts(status.allocated),
        problems=tuple(_problems(spec)),
    )


def _problems(spec: _Spec) -> Iterator[str]:
    """Yield the unsupported parts of *spec* (groups 4.10)."""
    if spec.affinity is not None:
        yield "spec.affinity"
    if spec.extend_clusters:
        yield "spec.extendClusters"


decode_queue: Final = reading.reader("Queue", QueueObject, queue_of)
queue_from_object: Final = reading.converter("Queue", QueueObject, queue_of)


_decode_head: Final = reading.reader("Queue", Head, lambda found: found)


def salvage_queue(text: bytes) -> QueueSpec:
    """Return a Queue that `decode_queue` cannot read; it exists and takes nothing.

    Raises:
        InvalidRequestError: even its name is unreadable.
    """
    meta = _decode_head(text).metadata
    return QueueSpec(name=meta.name, uid=meta.uid, resource_version=meta.resource_version, problems=(UNREADABLE,))
