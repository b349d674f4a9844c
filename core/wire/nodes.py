"""Nodes: from the API server's JSON to `Node`."""

import sys
from functools import lru_cache
from typing import Final

import msgspec

from core.model import Image, Node, NodeName, Taint
from core.wire import reading
from core.wire.objects import Head, ObjectMeta
from core.wire.reading import Quantity


class _Taint(msgspec.Struct, frozen=True, gc=False):
    key: str = ""
    value: str | None = ""
    effect: str | None = ""


class _Spec(msgspec.Struct, frozen=True, gc=False):
    unschedulable: bool | None = False
    taints: tuple[_Taint, ...] | None = None


class _Condition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""


class _Image(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    names: tuple[str, ...] | None = None
    size_bytes: int | None = 0


class _Info(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    kubelet_version: str | None = ""


class _Status(msgspec.Struct, frozen=True, gc=False):
    capacity: dict[str, Quantity] | None = None
    allocatable: dict[str, Quantity] | None = None
    conditions: tuple[_Condition, ...] | None = None
    images: tuple[_Image, ...] | None = None
    node_info: _Info | None = msgspec.field(default=None, name="nodeInfo")
    declared_features: tuple[str, ...] | None = msgspec.field(default=None, name="declaredFeatures")


class NodeObject(msgspec.Struct, frozen=True, gc=False):
    """The fields of a node that are read. Source: Kubernetes API reference, core/v1 Node (v1.36)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec | None = None
    status: _Status | None = None


_NO_SPEC: Final = _Spec()
_NO_STATUS: Final = _Status()
_READY: Final = "Ready"


def node_of(found: NodeObject) -> Node:
    """Return the value of a decoded node."""
    meta, spec, status = found.metadata, found.spec or _NO_SPEC, found.status or _NO_STATUS
    return Node(
        name=NodeName(sys.intern(meta.name)),
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        labels=reading.annotations(meta.labels),
        annotations=reading.annotations(meta.annotations),
        capacity=reading.amounts(status.capacity),
        allocatable=reading.amounts(status.allocatable),
        taints=tuple(
            [Taint(key=t.key, value=t.value or "", effect=t.effect or "") for t in spec.taints] if spec.taints else ()
        ),
        unschedulable=bool(spec.unschedulable),
        ready=_ready(status.conditions),
        deleting=meta.deletion_timestamp is not None,
        created_s=int(meta.creation_timestamp.timestamp()) if meta.creation_timestamp else 0,
        images=_images(status.images) if status.images else (),
        kubelet_version=sys.intern(status.node_info.kubelet_version or "") if status.node_info else "",
        features=tuple([sys.intern(one) for one in status.declared_features or ()]),
    )


decode_node: Final = reading.reader("node", NodeObject, node_of)
node_from_object: Final = reading.converter("node", NodeObject, node_of)


def _images(found: tuple[_Image, ...]) -> tuple[Image, ...]:
    return tuple([_image(one.names, one.size_bytes or 0) for one in found if one.names])


@lru_cache(maxsize=1 << 14)
def _image(names: tuple[str, ...], size_bytes: int) -> Image:
    """Return one value for all nodes with the image, because the nodes of a cluster have mostly the same."""
    return Image(tuple([sys.intern(name) for name in names]), size_bytes)


def _ready(conditions: tuple[_Condition, ...] | None) -> bool:
    # A node without conditions is judged by its taints alone, as in kube-scheduler.
    return all(one.status == "True" for one in conditions or () if one.type == _READY)


_decode_head: Final = reading.reader("node", Head, lambda found: found)


def salvage_node(text: bytes) -> Node:
    """Return a node that `decode_node` cannot read; it exists and offers nothing.

    Raises:
        InvalidRequestError: even its name is unreadable.
    """
    meta = _decode_head(text).metadata
    return Node(name=NodeName(meta.name), uid=meta.uid, resource_version=meta.resource_version, unschedulable=True)
